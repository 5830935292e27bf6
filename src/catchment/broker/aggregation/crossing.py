"""Publications before links: which cross as they are, which go into partials, which wait for the end of a stride."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from catchment.broker.advice import At
from catchment.broker.aggregation.asking import Base, Bases
from catchment.broker.aggregation.deciding import Column, Deciding, Standing, columns_of
from catchment.broker.aggregation.outlets import Held, Outlet
from catchment.broker.aggregation.places import Wanted
from catchment.broker.aggregation.rows import Rows, batch_of, marks_of
from catchment.broker.aggregation.waiting import Waiting
from catchment.broker.routing import Matched
from catchment.model.schema import Schema
from catchment.stages import event_bytes

__all__ = ["ADVICE", "HOLDING", "Batch", "Crossing", "Wants"]

ADVICE = "aggregation"
HOLDING = " held"
"""A timer for publications that are held; no base has this key."""
Wants = dict[int, list[tuple[Base, Wanted]]]
"""Of each row of a batch, who wants it and does not have it yet."""


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Publications that have come, and what became of them so far."""

    rows: Rows
    wants: Wants
    served: Mapping[int, Sequence[str]]
    """Of each row, the bases that have it in a partial from further up."""
    sizes: list[int]
    held_until_us: int | None
    """Until the end of which stride they were held further up, if they were."""

    @classmethod
    def of(
        cls,
        events: pa.RecordBatch,
        rows: Rows,
        wants: Wants,
        served: Mapping[int, Sequence[str]],
        held_until_us: int | None,
    ) -> Batch:
        return cls(rows, wants, served, event_bytes(events).tolist() if wants else [], held_until_us)

    def values(self, row: int, base: Base) -> dict[str, Any]:
        """What a base reads of a row."""
        return self.rows.values(row, [part.attribute for part in base.parts.values() if part.attribute is not None])

    def beyond(self, side: str) -> Wants:
        """What is wanted on one side."""
        found = {row: [pair for pair in several if side in pair[0].sides] for row, several in self.wants.items()}
        return {row: several for row, several in found.items() if several}


@dataclass(slots=True)
class _Draft:
    """What goes to a neighbour as it is."""

    must: frozenset[int]
    crossing: set[int] = field(default_factory=set)
    marks: dict[int, list[str]] = field(default_factory=dict)


class Crossing:
    """One topic's links, and the placement that is asked about each."""

    def __init__(
        self,
        topic: str,
        schema: Schema,
        bases: Bases,
        outlets: Mapping[str, Outlet],
        deciding: Deciding,
        waiting: Waiting,
    ) -> None:
        self._topic, self._schema, self._bases = topic, schema, bases
        self._outlets, self._deciding, self._waiting = outlets, deciding, waiting

    def offer(self, at: At, batch: Batch, regular: Matched, upstream: str) -> Matched:
        """Where publications go as they are, and with which marks."""
        drafts = {}
        for side in self._outlets:
            if side != upstream:
                must = regular.neighbours[side].tolist() if side in regular.neighbours else []
                drafts[side] = _Draft(frozenset(must), set(must))
        if batch.wants and self._deciding.placement.holds:
            for side, draft in drafts.items():
                self._hold_back(at, side, draft, batch)
        elif batch.wants:
            self._absorb(at, drafts, batch)
        onwards = Matched(clients=regular.clients, extras=regular.extras)
        for side, draft in drafts.items():
            crossing = sorted(draft.crossing)
            if crossing:
                onwards.neighbours[side] = np.array(crossing, np.int64)
                marks = {n: [*batch.served.get(row, ()), *draft.marks.get(row, ())] for n, row in enumerate(crossing)}
                value = marks_of(marks, batch.held_until_us)
                if value is not None:
                    onwards.attach(ADVICE, side, value)
        return onwards

    # -- at once ----------------------------------------------------------------------------------------------------

    def _absorb(self, at: At, drafts: Mapping[str, _Draft], batch: Batch) -> None:
        """Decide for each link what goes into partials, one cell of time after the other."""
        beyond = {side: batch.beyond(side) for side in drafts}
        for begin_us, run in batch.rows.runs(self._bases.windows, self._deciding.placement):
            before = self._deciding.transitions
            if self._deciding.sample(begin_us):
                at.spend("transition", self._deciding.transitions - before)
                self.coordinate(at)
            for side, draft in drafts.items():
                inside = {row: beyond[side][row] for row in run if row in beyond[side]}
                if inside:
                    self._decide(at, side, draft, batch, inside)

    def _decide(self, at: At, side: str, draft: _Draft, batch: Batch, inside: Wants) -> None:
        outlet = self._outlets[side]
        standing = []
        for row, several in inside.items():
            columns: list[tuple[Column, int, bool]] = []
            for base, wanted in several:
                columns += _columns(outlet, base, wanted, batch.values(row, base), ended=False)
            standing.append(Standing(batch.sizes[row], row in draft.must, columns))
        if self._deciding.ponders:
            at.spend("decide", len(standing))
        decisions = self._deciding.absorb(side, standing, self._bases.by_key)
        for (row, several), stands, decided in zip(inside.items(), standing, decisions, strict=True):
            into = _whole_bases(stands, decided)
            for base, wanted in several:
                if base.key in into:
                    due = outlet.add(base, wanted, batch.values(row, base))
                    self._waiting.for_publication(at, outlet, due, base)
                    draft.marks.setdefault(row, []).append(base.key)
                else:
                    draft.crossing.add(row)
            at.spend("add", len(into))

    def coordinate(self, at: At) -> None:
        """Tell neighbours what has changed for them."""
        for side, news in self._deciding.news(self._bases.by_key).items():
            at.tell(side, ["ahead", self._topic, news])

    # -- when a stride has ended --------------------------------------------------------------------------------------

    def _hold_back(self, at: At, side: str, draft: _Draft, batch: Batch) -> None:
        """Let wait what may; what a regular subscription wants goes at once, and so does what must be collected."""
        for row, several in batch.beyond(side).items():
            if any(part.state == "values" for base, _ in several for part in base.views[side].collected):
                draft.crossing.add(row)
            elif row not in draft.must:
                self._hold(at, self._outlets[side], batch, row, several)

    def _hold(self, at: At, outlet: Outlet, batch: Batch, row: int, several: Sequence[tuple[Base, Wanted]]) -> None:
        end_us = min(outlet.end_us(base, wanted) for base, wanted in several)
        wanted, served = tuple(one for _, one in several), tuple(batch.served.get(row, ()))
        since_us = batch.rows.times[row] + 1
        if batch.held_until_us is not None:
            # Who began to ask meanwhile may want it sooner than anybody did further up.
            since_us = min(batch.held_until_us, end_us)
        held = Held(since_us, end_us, batch.rows.whole(row), batch.sizes[row], wanted, served)
        outlet.hold(held)
        for base, _ in several:
            self._waiting.for_publication(at, outlet, [(end_us, (HOLDING, (), end_us))], base)

    def release(self, at: At, side: str, end_us: int) -> None:
        """Decide about all that waits for the end of a stride, and let go on what shall cross as it is."""
        outlet, bases = self._outlets[side], self._bases.by_key
        ready = [one for one in outlet.held if one.since_us <= end_us]
        if not any(one.end_us <= end_us for one in ready):
            return
        standing = []
        for one in ready:
            columns: list[tuple[Column, int, bool]] = []
            for wanted in one.wanted:
                base = bases[wanted.key]
                has_ended = outlet.end_us(base, wanted) <= end_us
                columns += _columns(outlet, base, wanted, one.values, ended=has_ended)
            standing.append(Standing(one.size_bytes, False, columns))
        at.spend("decide", len(standing))
        crossing: list[Held] = []
        marks: dict[int, list[str]] = {}
        for one, stands, decided in zip(ready, standing, self._deciding.absorb(side, standing, bases), strict=True):
            if one.end_us > end_us:
                continue
            into = _whole_bases(stands, decided)
            for wanted in one.wanted:
                if wanted.key in into:
                    base = bases[wanted.key]
                    self._waiting.for_publication(at, outlet, outlet.add(base, wanted, one.values), base)
            at.spend("add", len(into))
            if len(into) < len({wanted.key for wanted in one.wanted}):
                marks[len(crossing)] = [*one.served, *into]
                crossing.append(one)
        outlet.keep([one for one in outlet.held if one.end_us > end_us])
        if crossing:
            batch = batch_of([one.values for one in crossing], self._schema)
            at.forward(side, self._topic, batch, marks_of(marks, end_us))


def _columns(
    outlet: Outlet, base: Base, wanted: Wanted, values: Mapping[str, Any], *, ended: bool
) -> list[tuple[Column, int, bool]]:
    """What a placement is asked about for one base; `ended` says whether all partials from further up are here."""
    number = outlet.number(base, wanted)
    return [
        (column, number, outlet.crosses_anyway(base, column, number, ended=ended))
        for column in columns_of(base, base.views[outlet.side], wanted.group, values)
    ]


def _whole_bases(standing: Standing, absorbed: Sequence[bool]) -> set[str]:
    """The bases all of whose columns were absorbed."""
    keys = {column[0] for column, _, _ in standing.columns}
    return keys - {column[0] for (column, _, _), inside in zip(standing.columns, absorbed, strict=True) if not inside}
