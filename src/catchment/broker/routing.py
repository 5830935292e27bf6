"""What a broker knows of one topic: who publishes it, who wants which events of it, and what each neighbour was told.

Rule 1: a neighbour is told of the filters of all peers but itself; so one summary is kept per neighbour.
Rule 2: every change to these tables happens in this file.
Rule 3: peers are visited in the order of their names, so that a seed replays exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from catchment.broker.summaries import Summary, in_order
from catchment.matching import Matcher
from catchment.matching.poset import Shift
from catchment.model.filter import Filter
from catchment.model.schema import Schema

__all__ = ["Before", "Matched", "Routes", "Rows", "combined"]

Rows = npt.NDArray[np.int64]

FEW_PAIRS = 128
"""Up to so many, Python's own lists are quicker than arrays."""


@dataclass(frozen=True, slots=True)
class Before:
    """What a neighbour was told before a change; worked out only if somebody looks."""

    summary: Summary
    shift: Shift

    @property
    def told(self) -> tuple[Filter, ...]:
        now = dict.fromkeys(self.summary.told)
        for risen in self.shift.risen:
            now.pop(risen, None)
        return (*now, *self.shift.sunk)


@dataclass(slots=True)
class Matched:
    """Which rows of a batch go where, in the order of rows."""

    neighbours: dict[str, Rows] = field(default_factory=dict)
    clients: dict[str, dict[str, Rows]] = field(default_factory=dict)
    """By client and subscription."""
    notes: dict[str, dict[str, pa.Array]] = field(default_factory=dict)
    """By neighbour, what advice says of each event that goes there, in columns."""

    def note(self, advice: str, neighbour: str, columns: Mapping[str, pa.Array]) -> None:
        """Let the events that go to a neighbour carry columns of an advice."""
        self.notes.setdefault(neighbour, {}).update({f"{advice}/{name}": column for name, column in columns.items()})


class Routes:
    """The routing tables of one topic."""

    def __init__(self, schema: Schema, neighbours: Collection[str], make_summary: Callable[[], Summary]) -> None:
        self.schema = schema
        self.advertisers: set[str] = set()
        self.advertised_to: set[str] = set()
        self.summaries = {neighbour: make_summary() for neighbour in sorted(neighbours)}
        self.wanted: dict[str, dict[Filter, None]] = {neighbour: {} for neighbour in sorted(neighbours)}
        """Of each neighbour, the filters that it has told."""
        self.subscriptions: dict[tuple[str, str], tuple[Filter, tuple[str, ...] | None]] = {}
        """Of clients, by client and name: the filter, and the columns wanted."""
        self._matcher = Matcher({}, schema)

    @property
    def is_empty(self) -> bool:
        has_filters = any(self.wanted.values()) or self.subscriptions
        return not (self.advertisers or self.advertised_to or has_filters)

    # -- filters --------------------------------------------------------------------------------------------------

    def add_neighbour_filter(self, neighbour: str, condition: Filter) -> dict[str, Before]:
        self.wanted[neighbour][condition] = None
        self._matcher.add((neighbour, condition), condition)
        return self._spread(condition, neighbour, added=True)

    def remove_neighbour_filter(self, neighbour: str, condition: Filter) -> dict[str, Before]:
        if condition not in self.wanted[neighbour]:
            return {}
        del self.wanted[neighbour][condition]
        self._matcher.remove((neighbour, condition))
        return self._spread(condition, neighbour, added=False)

    def add_subscription(
        self, client: str, name: str, condition: Filter, columns: tuple[str, ...] | None
    ) -> dict[str, Before]:
        self.subscriptions[client, name] = (condition, columns)
        self._matcher.add((client, name), condition)
        return self._spread(condition, client, added=True)

    def remove_subscription(self, client: str, name: str) -> dict[str, Before]:
        if (client, name) not in self.subscriptions:
            return {}  # an advice kept it from being added
        condition, _ = self.subscriptions.pop((client, name))
        self._matcher.remove((client, name))
        return self._spread(condition, client, added=False)

    def columns_for(self, client: str, names: Iterable[str], there: list[str]) -> list[str]:
        """The columns that some of a client's subscriptions ask for, of those that are there."""
        asked = [self.subscriptions[client, name][1] for name in names if (client, name) in self.subscriptions]
        wanted = {"event_id", *(column for columns in asked for column in columns or there)}
        return [name for name in there if name in wanted]

    def _spread(self, condition: Filter, peer: str, *, added: bool) -> dict[str, Before]:
        before = {}
        for neighbour, summary in self.summaries.items():
            if neighbour != peer:
                shift = summary.add(condition) if added else summary.remove(condition)
                before[neighbour] = Before(summary, shift)
        return before

    def filters_beside(self, neighbour: str) -> list[Filter]:
        """What all peers but one want."""
        found = [one for peer, filters in self.wanted.items() if peer != neighbour for one in filters]
        return found + [condition for condition, _ in self.subscriptions.values()]

    def recall(
        self,
        wanted: Mapping[str, Iterable[Filter]],
        subscriptions: Mapping[tuple[str, str], tuple[Filter, tuple[str, ...] | None]],
        told: Mapping[str, tuple[Filter, ...]],
    ) -> None:
        """Become what routes were that had and had told this; called on empty ones."""
        for neighbour, filters in wanted.items():
            for condition in filters:
                self.wanted[neighbour][condition] = None
                self._matcher.add((neighbour, condition), condition)
        for (client, name), (condition, columns) in subscriptions.items():
            self.subscriptions[client, name] = (condition, columns)
            self._matcher.add((client, name), condition)
        for neighbour, summary in self.summaries.items():
            summary.recall(self.filters_beside(neighbour), told[neighbour])

    # -- advertisements -------------------------------------------------------------------------------------------

    def advertisement_changes(self) -> Iterator[tuple[str, bool]]:
        """Neighbours to whom an advertisement is due (True) or has to be taken back.

        A neighbour hears of a publisher on any other side than its own.
        """
        for neighbour in self.summaries:
            is_due = bool(self.advertisers - {neighbour})
            if is_due != (neighbour in self.advertised_to):
                yield neighbour, is_due

    # -- events ---------------------------------------------------------------------------------------------------

    def match(self, events: pa.RecordBatch) -> Matched:
        rows, slots = self._matcher.match_slots(events)
        matched = Matched()
        if not len(rows):
            return matched
        per_neighbour: dict[str, list[Rows]] = {}
        for slot, found in _by_slot(rows, slots):
            peer, what = self._matcher.id_of(slot)
            if isinstance(what, str):
                matched.clients.setdefault(peer, {})[what] = found
            else:
                per_neighbour.setdefault(peer, []).append(found)
        for neighbour, several in sorted(per_neighbour.items()):
            matched.neighbours[neighbour] = several[0] if len(several) == 1 else np.unique(np.concatenate(several))
        return matched


def _by_slot(rows: Any, slots: Any) -> Iterator[tuple[int, Rows]]:
    """The rows of each slot, by slot."""
    if len(slots) <= FEW_PAIRS:
        found: dict[int, list[int]] = {}
        for row, slot in zip(rows.tolist(), slots.tolist(), strict=True):
            found.setdefault(slot, []).append(row)
        for slot in sorted(found):
            yield slot, np.array(found[slot], np.int64)
        return
    order = np.argsort(slots, kind="stable")
    rows, slots = rows[order].astype(np.int64), slots[order]
    edges = [0, *(np.flatnonzero(np.diff(slots)) + 1).tolist(), len(slots)]
    for begin, end in pairwise(edges):
        yield int(slots[begin]), rows[begin:end]


def combined(befores: Iterable[Any]) -> dict[str, Shift]:
    """What several changes, one after the other, did to what each neighbour is told."""
    risen: dict[str, dict[Filter, None]] = {}
    sunk: dict[str, dict[Filter, None]] = {}
    for before in befores:
        # An advice that stood in for the step may say nothing of neighbours.
        if not isinstance(before, Mapping):
            continue
        for neighbour, one in before.items():
            up, down = risen.setdefault(neighbour, {}), sunk.setdefault(neighbour, {})
            for condition in one.shift.sunk:
                if condition in up:
                    del up[condition]
                else:
                    down[condition] = None
            for condition in one.shift.risen:
                if condition in down:
                    del down[condition]
                else:
                    up[condition] = None
    return {neighbour: Shift(in_order(up), in_order(sunk[neighbour])) for neighbour, up in risen.items()}
