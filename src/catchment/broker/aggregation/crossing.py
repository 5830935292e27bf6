"""Publications before links: which cross as they are, which go into partials, which wait for the end of a stride."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from catchment.broker.advice import At
from catchment.broker.aggregation.clocks import NEVER
from catchment.broker.aggregation.deciding import Deciding, Standing
from catchment.broker.aggregation.holding import HeldBack, HeldPublications
from catchment.broker.aggregation.marks import Marks
from catchment.broker.aggregation.places import Outlet, Pairs, joined_later, rows_taken
from catchment.broker.aggregation.questions import Questions
from catchment.broker.routing import Matched, rising
from catchment.model.events import event_times_us
from catchment.stages import NOTHING, Wants, cells_of, event_bytes, lots_of_wants, mixed, wants_of

__all__ = ["ADVICE", "Arrived", "Crossing"]

ADVICE = "aggregation"
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Arrived:
    """Publications that have come, and who wants them and does not have them yet."""

    pairs: Pairs
    times_us: Ints
    ends_us: Ints
    """Of each pair, the first end of a window that it is wanted in."""
    marks: Marks

    @property
    def events(self) -> pa.RecordBatch:
        return self.pairs.events


@dataclass(frozen=True, slots=True, eq=False)
class _Seen:
    """Publications that a placement is asked about."""

    pairs: Pairs
    times_us: Ints
    sides: dict[str, tuple[Bools, Ints]]
    """By side, which pairs are wanted there, and which rows cross anyway."""

    def where(self, chosen: Bools) -> _Seen:
        pairs = Pairs(self.pairs.events, self.pairs.rows[chosen], self.pairs.numbers[chosen])
        sides = {side: (mine[chosen], must) for side, (mine, must) in self.sides.items()}
        return _Seen(pairs, self.times_us, {side: pair for side, pair in sides.items() if pair[0].any()})

    @classmethod
    def together(cls, several: Sequence[_Seen]) -> _Seen:
        """All of some, in the order in which they came."""
        if len(several) == 1:
            return several[0]
        firsts = np.cumsum([0, *(len(one.times_us) for one in several)])[:-1].tolist()
        pairs = Pairs.together([one.pairs for one in several])
        sides = {}
        for side in dict.fromkeys(side for one in several for side in one.sides):
            mine, must = [], []
            for one, first in zip(several, firsts, strict=True):
                here = one.sides.get(side, (np.zeros(len(one.pairs.rows), np.bool_), _NO_ROWS))
                mine.append(here[0])
                must.append(here[1] + first)
            sides[side] = np.concatenate(mine), np.concatenate(must)
        return cls(pairs, np.concatenate([one.times_us for one in several]), sides)


class Crossing:
    """One topic's links, and the placement that is asked about each."""

    def __init__(
        self, topic: str, key: str, questions: Questions, outlets: Mapping[str, Outlet], deciding: Deciding
    ) -> None:
        self._topic, self._key, self._questions = topic, key, questions
        self._outlets, self.deciding = outlets, deciding
        self.held = {side: HeldBack() for side in outlets}
        self._unheard: list[_Seen] = []
        """What was decided since the last sample, and the placement has not heard of."""

    def offer(
        self, at: At, arrived: Arrived, regular: Matched, upstream: str, more: Mapping[str, Marks]
    ) -> tuple[Matched, dict[str, Bools]]:
        """Where publications go as they are, and with which marks; and by side, which pairs were absorbed.

        `more` are marks by side of what was absorbed there for others.
        """
        sides = [side for side in self._outlets if side != upstream]
        must = {side: regular.neighbours.get(side, _NO_ROWS) for side in sides}
        mine = {side: self._questions.at_side(side)[arrived.pairs.numbers] for side in sides}
        crossing = {side: must[side] for side in sides}
        absorbed = {side: np.zeros(len(arrived.pairs.rows), np.bool_) for side in sides}
        wanted = [side for side in sides if mine[side].any()]
        if self.deciding.placement.holds:
            for side in wanted:
                crossing[side] = self._hold_back(side, arrived, mine[side], must[side], more.get(side))
        else:
            if wanted:
                seen = _Seen(arrived.pairs, arrived.times_us, {side: (mine[side], must[side]) for side in wanted})
                absorbed |= self._decide_by_period(at, seen)
            for side in wanted:
                raw = arrived.pairs.rows[mine[side] & ~absorbed[side]]
                if len(raw):
                    crossing[side] = np.union1d(must[side], raw)
        onwards = Matched(clients=regular.clients)
        for side in sides:
            self._let_cross(onwards, side, arrived, crossing[side], absorbed[side], more.get(side))
            if absorbed[side].any():
                self._put_in(at, side, arrived, absorbed[side])
        return onwards, absorbed

    def _let_cross(
        self, onwards: Matched, side: str, arrived: Arrived, rows: Ints, absorbed: Bools, more: Marks | None
    ) -> None:
        if not len(rows):
            return
        onwards.neighbours[side] = rows
        pairs = arrived.pairs
        marks = arrived.marks if more is None else arrived.marks.more(more.rows, more.questions)
        if absorbed.any():
            marks = marks.more(pairs.rows[absorbed], self._questions.tables.ids[pairs.numbers[absorbed]])
        columns = marks.taken(rows).columns(len(rows))
        if columns is not None:
            onwards.note(ADVICE, side, columns)

    def _put_in(self, at: At, side: str, arrived: Arrived, absorbed: Bools) -> None:
        self._outlets[side].add(arrived.pairs.where(absorbed), int(arrived.ends_us[absorbed].min()))
        at.spend("add", int(absorbed.sum()))

    # -- at once ----------------------------------------------------------------------------------------------------

    def _decide_by_period(self, at: At, seen: _Seen) -> dict[str, Bools]:
        """Decide what goes into partials: at once where the placement's answer is sure, else by asking it."""
        period_us = self.deciding.placement.period_us
        if period_us is None and self.deciding.answer() is not None:
            return {side: mine & bool(self.deciding.answer()) for side, (mine, _) in seen.sides.items()}
        if period_us is None:
            return self._ask(seen)
        found = {side: np.zeros(len(mine), np.bool_) for side, (mine, _) in seen.sides.items()}
        periods = seen.times_us // period_us
        edges = np.flatnonzero(np.diff(periods)) + 1
        for begin, end in pairwise([0, *edges.tolist(), len(periods)]):
            inside = (seen.pairs.rows >= begin) & (seen.pairs.rows < end)
            part = seen if len(edges) == 0 else seen.where(inside)
            if not part.sides:
                continue
            self._sample(at, int(seen.times_us[begin]))
            answer = self.deciding.answer()
            if answer is None:
                decided = self._ask(part)
            else:
                # The placement hears of it before the next sample, together with others.
                self._unheard.append(part)
                decided = {side: mine & answer for side, (mine, _) in part.sides.items()}
            for side, of_part in decided.items():
                found[side][inside] = of_part
            if self.deciding.ponders:
                at.spend("decide", sum(len(np.unique(part.pairs.rows[mine])) for mine, _ in part.sides.values()))
        return found

    def _sample(self, at: At, time_us: int) -> None:
        if self.deciding.would_sample(time_us):
            self.tell_placement()
        before = self.deciding.transitions
        if self.deciding.sample(time_us):
            at.spend("transition", self.deciding.transitions - before)
            self.coordinate(at)

    def tell_placement(self) -> None:
        """Let the placement hear of all that was decided without it."""
        unheard, self._unheard = self._unheard, []
        if unheard:
            self._ask(_Seen.together(unheard))

    def _ask(self, seen: _Seen) -> dict[str, Bools]:
        """Ask the placement about each link, one cell of time after the other."""
        pairs, times_us = seen.pairs, seen.times_us
        sizes = event_bytes(pairs.events)
        cells = cells_of(times_us, self._questions.windows, self.deciding.placement.period_us)
        run_of_row = np.concatenate(([0], np.cumsum(np.diff(cells) != 0)))
        standing, absorbed = {}, {}
        for side, (mine, must) in seen.sides.items():
            chosen = np.flatnonzero(mine)
            wants = self._wants(side, Pairs(pairs.events, pairs.rows[chosen], pairs.numbers[chosen]), times_us)
            forced = np.zeros(len(times_us), np.int64)
            forced[must] = 1
            keys = wants.keys()
            lots = lots_of_wants(wants.event, keys, sizes, 2 * run_of_row + forced)
            windows = self._questions.tables.windows[pairs.numbers[chosen][wants.pair[lots.want]]]
            stands = Standing(
                lots.weights, lots.size_bytes, lots.apart % 2 > 0, lots.lot, wants.names[lots.want], keys[lots.want],
                np.asarray(windows.slice_of(times_us[wants.event[lots.want]])),
            )  # fmt: skip
            standing[side] = stands, lots.apart[lots.lot] // 2, np.ones(len(lots.lot), np.bool_)
            absorbed[side] = mine.copy(), chosen[wants.pair], lots.edge
        for run in np.unique(run_of_row[pairs.rows]).tolist():
            for side, (stands, run_of_edge, decided) in standing.items():
                inside = run_of_edge == run
                if inside.any():
                    decided[inside] = self.deciding.absorb(side, stands.where(inside), self._questions.by_id)
        for side, (found, pair, edge) in absorbed.items():
            found[pair[~standing[side][2][edge]]] = False
        return {side: found for side, (found, _, _) in absorbed.items()}

    def _wants(self, side: str, pairs: Pairs, times_us: Ints) -> Wants:
        """What publications are wanted for on a side."""
        wants = wants_of(self._questions.plan(side), pairs.events, pairs.rows, pairs.numbers, times_us)
        kept = self._questions.is_plain(side)[pairs.numbers[wants.pair]] | (wants.names[:, 2] != NOTHING)
        return wants if kept.all() else Wants(wants.event[kept], wants.pair[kept], wants.names[kept])

    def coordinate(self, at: At) -> None:
        """Send neighbours the series whose number of links has changed."""
        for side, news in self.deciding.news(self._questions.by_id).items():
            at.tell(side, ["ahead", self._key, news])

    # -- when a stride has ended --------------------------------------------------------------------------------------

    def _hold_back(self, side: str, arrived: Arrived, mine: Bools, must: Ints, more: Marks | None) -> Ints:
        """Let wait what may; what a regular subscription wants goes at once, and so does what must be collected."""
        pairs = arrived.pairs.where(mine)
        at_once = np.zeros(arrived.events.num_rows, np.bool_)
        at_once[pairs.rows[self._questions.fetches(side)[pairs.numbers]]] = True
        at_once[must] = True
        waits = ~at_once[pairs.rows]
        if waits.any():
            self._hold(side, arrived, np.flatnonzero(mine)[waits], more)
        return np.flatnonzero(at_once)

    def _hold(self, side: str, arrived: Arrived, chosen: Ints, more: Marks | None) -> None:
        pairs, count = arrived.pairs, arrived.events.num_rows
        ends_us = np.full(count, np.iinfo(np.int64).max)
        np.minimum.at(ends_us, pairs.rows[chosen], arrived.ends_us[chosen])
        since_us = arrived.times_us + 1
        if arrived.marks.held_us is not None:
            # Who began to ask meanwhile may want it sooner than anybody did further up.
            held_us = arrived.marks.held_us
            since_us = np.where(held_us == NEVER, since_us, np.minimum(held_us, ends_us))
        whole = HeldPublications(
            Pairs(arrived.events, pairs.rows[chosen], pairs.numbers[chosen]),
            since_us,
            ends_us,
            Marks(arrived.marks.rows, arrived.marks.questions)
            if more is None
            else Marks(arrived.marks.rows, arrived.marks.questions).more(more.rows, more.questions),
        )
        self.held[side].add(whole.taken(rising(pairs.rows[chosen], count)))

    def release(self, at: At, side: str, end_us: int) -> Pairs | None:
        """Decide about all that waits for the end of a stride, and let go on what shall cross as it is.

        Gives what went into partials.
        """
        back = self.held[side]
        held = back.all()
        if held is None:
            return None
        ready = held.since_us <= end_us
        over = ready & (held.end_us <= end_us)
        if not over.any():
            return None
        rows = np.flatnonzero(ready)
        taken = held.taken(rows)
        at.spend("decide", len(rows))
        absorbed = self._absorbed(side, taken, end_us)
        done = over[rows]
        pairs = taken.pairs
        crosses = np.zeros(len(taken), np.bool_)
        crosses[pairs.rows[~absorbed]] = True
        crosses &= done
        absorbed &= done[pairs.rows]
        into = pairs.where(absorbed) if absorbed.any() else None
        if crosses.any():
            chosen = np.flatnonzero(crosses)
            ids = self._questions.tables.ids[pairs.numbers[absorbed]]
            marks = taken.marks.more(pairs.rows[absorbed], ids).taken(chosen)
            columns = Marks(marks.rows, marks.questions, np.full(len(chosen), end_us)).columns(len(chosen))
            assert columns is not None
            at.forward(side, self._topic, rows_taken(pairs.events, chosen), columns)
        if into is not None:
            times_us = event_times_us(pairs.events)
            windows = self._questions.tables.windows[into.numbers]
            self._outlets[side].add(into, int(windows.next_end_us(times_us[into.rows]).min()))
            at.spend("add", len(into.rows))
        back.keep(np.flatnonzero(~over))
        return into

    def _absorbed(self, side: str, held: HeldPublications, end_us: int) -> Bools:
        """Ask the placement about all that is ready to be decided about: of each pair, whether it is absorbed."""
        times_us = event_times_us(held.pairs.events)
        wants = self._wants(side, held.pairs, times_us)
        sizes = event_bytes(held.pairs.events)
        keys = wants.keys()
        lots = lots_of_wants(wants.event, keys, sizes, np.zeros(len(held), np.int64))
        names = wants.names[lots.want]
        windows = self._questions.tables.windows[held.pairs.numbers[wants.pair[lots.want]]]
        strides = np.asarray(windows.stride_of(windows.slice_of(times_us[wants.event[lots.want]])))
        due = np.zeros(len(names), np.bool_)
        own, received = self._outlets[side].sure_strides(end_us)
        if own or received:
            cells = mixed(np.column_stack([names, strides]), 0)
            due |= _is_in(cells, own)
            due |= _is_in(cells, received) & (np.asarray(windows.stride_end_us(strides)) <= end_us)
        must = np.zeros(len(lots.weights), np.bool_)
        standing = Standing(lots.weights, lots.size_bytes, must, lots.lot, names, keys[lots.want], strides, due)
        decided = self.deciding.absorb(side, standing, self._questions.by_id)
        absorbed = np.ones(len(held.pairs.rows), np.bool_)
        absorbed[wants.pair[~decided[lots.edge]]] = False
        return absorbed

    # -- others ask than before ---------------------------------------------------------------------------------------

    def forget(self, side: str, number: int) -> None:
        """Forget a question that is no longer asked on a side."""
        self.held[side].forget(number)

    # -- memory -----------------------------------------------------------------------------------------------------

    def saved(self) -> list[Any]:
        unheard = joined_later(self._unheard, lambda one: one.pairs.events.schema, _Seen.together)
        return [{side: one.saved() for side, one in self.held.items()}, unheard]

    def restore(self, saved: list[Any]) -> None:
        held, unheard = saved
        for side, one in held.items():
            self.held[side].restore(one)
        for one in (one for some in unheard for one in some):
            sides = {side: (mine, must) for side, (mine, must) in one["sides"].items()}
            self._unheard.append(_Seen(Pairs(**one["pairs"]), one["times_us"], sides))


def _is_in(keys: npt.NDArray[np.uint64], several: list[Ints]) -> Bools:
    if not several:
        return np.zeros(len(keys), np.bool_)
    return np.isin(keys, mixed(np.concatenate(several), 0))


_NO_ROWS = np.zeros(0, np.int64)
