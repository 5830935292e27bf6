"""Where partials grow until their time comes: before each link, and for the clients here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Any

from catchment.broker.aggregation.asking import Base
from catchment.broker.aggregation.shelves import Partial, Shelf
from catchment.model.window import Window

__all__ = ["Agenda", "Due", "Group", "Item", "Place", "Wanted"]

Group = tuple[Any, ...]
Item = tuple[str, Group, int]
"""A base, a group, and the number of a window or stride."""
Due = list[tuple[int, Item]]
"""Ends, and what is to be told then."""


class Agenda:
    """What is due when: in event time, and with revisions also by the clock."""

    def __init__(self) -> None:
        self.ends: dict[int, dict[Item, None]] = {}
        self.timers: dict[Item, int] = {}
        # Heaps, in which what is no longer so may stay until it comes up.
        self._ends: list[int] = []
        self._timers: list[tuple[int, int, Item]] = []
        self._set = 0

    def add(self, end_us: int, item: Item) -> None:
        if end_us not in self.ends:
            self.ends[end_us] = {}
            heappush(self._ends, end_us)
        self.ends[end_us][item] = None

    def first_end_us(self) -> int | None:
        while self._ends and self._ends[0] not in self.ends:
            heappop(self._ends)
        return self._ends[0] if self._ends else None

    def until(self, time_us: int) -> list[tuple[int, list[Item]]]:
        """Take out what ends up to a time, in order."""
        found: list[tuple[int, list[Item]]] = []
        while (end_us := self.first_end_us()) is not None and end_us <= time_us:
            found.append((end_us, list(self.ends.pop(end_us))))
            for item in found[-1][1]:
                self.timers.pop(item, None)
        return found

    def wake(self, item: Item, at_us: int) -> bool:
        """Set a timer, unless there is one; whether none is sooner."""
        if item in self.timers:
            return False
        soonest_us = self.soonest_us()
        self.timers[item] = at_us
        self._set += 1
        heappush(self._timers, (at_us, self._set, item))
        return soonest_us is None or at_us < soonest_us

    def soonest_us(self) -> int | None:
        """When the next timer ends."""
        while self._timers and self.timers.get(self._timers[0][2]) != self._timers[0][0]:
            heappop(self._timers)
        return self._timers[0][0] if self._timers else None

    def expired(self, now_us: int) -> list[Item]:
        """Take out the timers whose time has come."""
        found = []
        while (at_us := self.soonest_us()) is not None and at_us <= now_us:
            item = heappop(self._timers)[2]
            del self.timers[item]
            found.append(item)
        return found

    def forget(self, key: str) -> None:
        for items in self.ends.values():
            for item in [item for item in items if item[0] == key]:
                del items[item]
        self.ends = {end_us: items for end_us, items in self.ends.items() if items}
        self.timers = {item: at_us for item, at_us in self.timers.items() if item[0] != key}

    def plain(self) -> list[Any]:
        ends = [[end_us, list(items)] for end_us, items in self.ends.items()]
        return [ends, [[item, at_us] for item, at_us in self.timers.items()]]

    @classmethod
    def from_plain(cls, plain: list[Any]) -> Agenda:
        agenda = cls()
        ends, timers = plain
        for end_us, items in ends:
            for one in items:
                agenda.add(end_us, _item(one))
        for one, at_us in timers:
            agenda.wake(_item(one), at_us)
        return agenda


def _item(plain: list[Any]) -> Item:
    key, group, number = plain
    return key, tuple(group), number


@dataclass(frozen=True, slots=True)
class Wanted:
    """A publication is wanted by a base, in a slice and group."""

    key: str
    group: Group
    slice: int


class Place:
    """The partials of one topic that wait on one side, by base and group, and when they are due."""

    def __init__(self, side: str, *, by_stride: bool) -> None:
        self.side, self._by_stride = side, by_stride
        self.shelves: dict[tuple[str, Group], Shelf] = {}
        self.agenda = Agenda()

    # -- something comes --------------------------------------------------------------------------------------------

    def add(self, base: Base, wanted: Wanted, values: Mapping[str, Any]) -> Due:
        """Add a publication to its slice; what that is due for, if that is news."""
        shelf = self.shelves.setdefault((wanted.key, wanted.group), Shelf())
        is_new = shelf.add(base.window, wanted.slice, base.views[self.side].parts, values)
        if not is_new and not self._tells_again:
            return []
        return self._note(base, wanted.group, self._numbers(base.window, [wanted.slice]))

    def receive(self, base: Base, group: Group, number: int, slices: Mapping[int, Partial]) -> Due:
        """A partial has come: of a window, or of the slices of a stride; what that is due for."""
        shelf = self.shelves.setdefault((base.key, group), Shelf())
        parts = {part.id: part for part in base.views[self.side].parts}
        for place, partial in slices.items():
            shelf.put(shelf.received if self._by_stride else shelf.windows, place, partial, parts)
        return self._note(base, group, self._numbers(base.window, slices) if self._by_stride else [number])

    def _note(self, base: Base, group: Group, numbers: Iterable[int]) -> Due:
        found = [(self._end_us(base.window, number), (base.key, group, number)) for number in numbers]
        for end_us, item in found:
            self.agenda.add(end_us, item)
        return found

    _tells_again = False
    """Whether what was told once is told again when more comes."""

    def _numbers(self, window: Window, slices: Iterable[int]) -> Iterable[int]:
        """What some slices are told in: here, windows."""
        return dict.fromkeys(number for one in slices for number in window.windows_of_slice(one))

    def _end_us(self, window: Window, number: int) -> int:
        return window.bounds_us(number)[1]

    def weight_bytes(self, bases: Mapping[str, Base]) -> int:
        """About what it takes to keep all this."""
        return sum(shelf.weight_bytes(bases[key].parts) for (key, _), shelf in self.shelves.items() if key in bases)

    # -- something is over ------------------------------------------------------------------------------------------

    def first_end_us(self) -> int | None:
        """The first end that something waits for."""
        return self.agenda.first_end_us()

    def forget_until(self, closed_us: int, bases: Mapping[str, Base]) -> None:
        """Leave out what belongs to windows that are closed."""
        for key, group in list(self.shelves):
            base = bases.get(key)
            if base is None or self.shelves[key, group].forget(base.window, closed_us):
                del self.shelves[key, group]

    def forget(self, key: str) -> None:
        """Nobody asks for a base any more on this side."""
        for name in [name for name in self.shelves if name[0] == key]:
            del self.shelves[name]
        self.agenda.forget(key)

    # -- memory -----------------------------------------------------------------------------------------------------

    def plain(self, bases: Mapping[str, Base]) -> list[Any]:
        known = [(key, group, shelf) for (key, group), shelf in self.shelves.items() if key in bases]
        return [[[key, group, shelf.plain(bases[key].parts)] for key, group, shelf in known], self.agenda.plain()]

    def restore_shelves(self, plain: list[Any]) -> None:
        shelves, agenda = plain
        self.shelves = {(key, tuple(group)): Shelf.from_plain(shelf) for key, group, shelf in shelves}
        self.agenda = Agenda.from_plain(agenda)
