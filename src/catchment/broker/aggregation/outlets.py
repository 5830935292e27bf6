"""What stands before one link, of one topic: partials that grow until their time comes, and publications held back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from catchment.broker.aggregation.asking import Base, View
from catchment.broker.aggregation.clocks import FOR_EVER, NEVER
from catchment.broker.aggregation.deciding import Column, size_of
from catchment.broker.aggregation.shelves import (
    Partial,
    Shelf,
    merged,
    slices_of_stride,
    stride_of,
    windows_of_slice,
)
from catchment.stages import PARTIAL_BYTES

__all__ = ["Agenda", "Group", "Held", "Item", "Outlet", "Wanted", "shelves_from_plain", "shelves_plain"]

Group = tuple[Any, ...]
Item = tuple[str, Group, int]
"""A base, a group, and the number of a window or stride."""
VALUE_BYTES = 8


class Agenda:
    """What is due when: in event time, and with revisions also by the clock."""

    def __init__(self) -> None:
        self.ends: dict[int, dict[Item, None]] = {}
        self.timers: dict[Item, int] = {}
        self._soonest_us = FOR_EVER

    def add(self, end_us: int, item: Item) -> None:
        self.ends.setdefault(end_us, {})[item] = None

    def until(self, time_us: int) -> list[tuple[int, list[Item]]]:
        """Take out what ends up to a time, in order."""
        ends = sorted(end_us for end_us in self.ends if end_us <= time_us)
        found = [(end_us, list(self.ends.pop(end_us))) for end_us in ends]
        for _, items in found:
            for item in items:
                self.timers.pop(item, None)
        return found

    def wake(self, item: Item, at_us: int) -> bool:
        """Set a timer, unless there is one; whether none is sooner."""
        if item in self.timers:
            return False
        self.timers[item] = at_us
        is_soonest = at_us < self._soonest_us
        self._soonest_us = min(self._soonest_us, at_us)
        return is_soonest

    def expired(self, now_us: int) -> list[Item]:
        """Take out the timers whose time has come."""
        found = [item for item, at_us in self.timers.items() if at_us <= now_us]
        for item in found:
            del self.timers[item]
        self._soonest_us = min(self.timers.values(), default=FOR_EVER)
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
        agenda.ends = {end_us: dict.fromkeys(_item(one) for one in items) for end_us, items in ends}
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


@dataclass(frozen=True, slots=True)
class Held:
    """A publication that waits for the end of a stride."""

    time_us: int
    end_us: int
    """The first end of a stride that it is wanted in."""
    values: dict[str, Any]
    """All columns."""
    size_bytes: int
    wanted: tuple[Wanted, ...]
    served: tuple[str, ...]
    """Bases that have it in a partial from further up."""

    def plain(self) -> list[Any]:
        wanted = [[one.key, one.group, one.slice] for one in self.wanted]
        return [self.time_us, self.end_us, self.values, self.size_bytes, wanted, self.served]

    @classmethod
    def from_plain(cls, plain: list[Any]) -> Held:
        time_us, end_us, values, size_bytes, wanted, served = plain
        found = tuple(Wanted(key, tuple(group), number) for key, group, number in wanted)
        return cls(time_us, end_us, values, size_bytes, found, tuple(served))


class Outlet:
    """What is to be told to one neighbour about one topic."""

    def __init__(self, side: str, *, by_stride: bool) -> None:
        self.side, self._by_stride = side, by_stride
        self.shelves: dict[tuple[str, Group], Shelf] = {}
        self.agenda = Agenda()
        self.held: list[Held] = []
        self.promised_us = NEVER

    # -- something comes --------------------------------------------------------------------------------------------

    def absorb(self, base: Base, view: View, wanted: Wanted, values: Mapping[str, Any]) -> list[tuple[int, Item]]:
        """Put a publication into a partial; what that is due for, if that is new."""
        shelf = self.shelves.setdefault((wanted.key, wanted.group), Shelf())
        if not shelf.add(base.window, wanted.slice, view.parts, values):
            return []
        return self._note(base, wanted.group, [wanted.slice])

    def receive(
        self, base: Base, view: View, group: Group, number: int, slices: Mapping[int, Partial]
    ) -> list[tuple[int, Item]]:
        """A partial has come: of a window, or of the slices of a stride."""
        shelf = self.shelves.setdefault((base.key, group), Shelf())
        parts = {part.id: part for part in view.parts}
        where = shelf.received if self._by_stride else shelf.windows
        for at, partial in slices.items():
            shelf.put(where, at, partial, parts)
        if self._by_stride:
            return self._note(base, group, slices)
        item = (base.key, group, number)
        self.agenda.add(base.window.bounds_us(number)[1], item)
        return [(base.window.bounds_us(number)[1], item)]

    def _note(self, base: Base, group: Group, slices: Iterable[int]) -> list[tuple[int, Item]]:
        window, found = base.window, []
        for at in slices:
            if self._by_stride:
                number = stride_of(window, at)
                found.append((window.slice_end_us(window.step * number), (base.key, group, number)))
            else:
                windows = windows_of_slice(window, at)
                found += [(window.bounds_us(number)[1], (base.key, group, number)) for number in windows]
        for end_us, item in found:
            self.agenda.add(end_us, item)
        return found

    # -- something is due -------------------------------------------------------------------------------------------

    def end_us(self, base: Base, wanted: Wanted) -> int:
        """The end of the stride that a publication is wanted in."""
        return base.window.slice_end_us(base.window.step * stride_of(base.window, wanted.slice))

    def number(self, base: Base, wanted: Wanted) -> int:
        """The slice or stride that a placement is asked about."""
        return stride_of(base.window, wanted.slice) if self._by_stride else wanted.slice

    def crosses_anyway(self, base: Base, column: Column, number: int, *, ended: bool) -> bool:
        """Whether a partial with this in it is known to be sent."""
        shelf = self.shelves.get((column[0], column[1]))
        if shelf is None:
            return False
        slices = slices_of_stride(base.window, number) if self._by_stride else (number,)
        part = base.parts.get(column[2])
        for held in (shelf.own, shelf.received) if ended else (shelf.own,):
            for at in slices:
                if at in held and (part is None or held[at].holds(part, column[3])):
                    return True
        return False

    def take(self, item: Item, base: Base) -> tuple[list[Any] | None, int]:
        """What there is to tell of a window or stride, in plain values, and how many states it took."""
        key, group, number = item
        shelf = self.shelves.get((key, group))
        view = base.views.get(self.side)
        if shelf is None or view is None:
            return None, 0
        parts = {part.id: part for part in view.parts}
        if self._by_stride:
            slices, states = shelf.take_stride(base.window, number, parts)
        else:
            whole, states = shelf.take_window(base.window, number, parts)
            slices = {} if whole is None else {number: whole}
        if not slices:
            return None, states
        messages, size = _weight(view, merged(list(slices.values()), parts))
        return [key, group, number, messages, size, [[at, one.plain(parts)] for at, one in slices.items()]], states

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
        held = []
        for one in self.held:
            wanted = tuple(each for each in one.wanted if each.key != key)
            if wanted:
                held.append(Held(one.time_us, one.end_us, one.values, one.size_bytes, wanted, one.served))
        self.held = held

    def first_end_us(self) -> int | None:
        ends = [*self.agenda.ends, *(one.end_us for one in self.held)]
        return min(ends, default=None)

    # -- memory -----------------------------------------------------------------------------------------------------

    def plain(self, bases: Mapping[str, Base]) -> list[Any]:
        held = [one.plain() for one in self.held]
        return [shelves_plain(self.shelves, bases), self.agenda.plain(), held, self.promised_us]

    def restore(self, plain: list[Any]) -> None:
        shelves, agenda, held, self.promised_us = plain
        self.shelves = shelves_from_plain(shelves)
        self.agenda = Agenda.from_plain(agenda)
        self.held = [Held.from_plain(one) for one in held]


def _weight(view: View, whole: Partial | None) -> tuple[int, int]:
    """How many messages a partial counts as, and its bytes."""
    assert whole is not None
    messages, size = (1, size_of(view.parts)) if view.is_plain else (0, 0)
    for part in view.collected:
        values = whole.values(part)
        messages += values
        size += PARTIAL_BYTES + VALUE_BYTES * values if part.state == "values" else PARTIAL_BYTES * values
    return messages, size


def shelves_plain(shelves: Mapping[tuple[str, Group], Shelf], bases: Mapping[str, Base]) -> list[Any]:
    return [[key, group, shelf.plain(bases[key].parts)] for (key, group), shelf in shelves.items() if key in bases]


def shelves_from_plain(plain: list[Any]) -> dict[tuple[str, Group], Shelf]:
    return {(key, tuple(group)): Shelf.from_plain(shelf) for key, group, shelf in plain}
