"""What stands before one link, of one topic: partials that grow until their time comes, and publications held back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from catchment.broker.aggregation.asking import Base, View
from catchment.broker.aggregation.clocks import NEVER
from catchment.broker.aggregation.deciding import Column, size_of
from catchment.broker.aggregation.places import Item, Place, Wanted
from catchment.broker.aggregation.shelves import Partial, merged
from catchment.model.window import Window
from catchment.overlay.placement import VALUE_BYTES
from catchment.stages import PARTIAL_BYTES

__all__ = ["Held", "Outlet"]

HELD_OVERHEAD_BYTES = 1_000
"""What it takes to hold a publication, besides its values."""


@dataclass(frozen=True, slots=True)
class Held:
    """A publication that waits for the end of a stride."""

    since_us: int
    """No decision about an earlier end knows of it: its time is later, or it was held until then further up."""
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
        return [self.since_us, self.end_us, self.values, self.size_bytes, wanted, self.served]

    @classmethod
    def from_plain(cls, plain: list[Any]) -> Held:
        since_us, end_us, values, size_bytes, wanted, served = plain
        found = tuple(Wanted(key, tuple(group), number) for key, group, number in wanted)
        return cls(since_us, end_us, values, size_bytes, found, tuple(served))


class Outlet(Place):
    """What is to be told to one neighbour about one topic."""

    def __init__(self, side: str, *, by_stride: bool) -> None:
        super().__init__(side, by_stride=by_stride)
        self.held: list[Held] = []
        self._held_until_us: int | None = None
        """The first end that something held waits for; None if that has to be looked for."""
        self.promised_us = NEVER

    def _numbers(self, window: Window, slices: Iterable[int]) -> Iterable[int]:
        if not self._by_stride:
            return super()._numbers(window, slices)
        return dict.fromkeys(map(window.stride_of, slices))

    def _end_us(self, window: Window, number: int) -> int:
        return window.stride_end_us(number) if self._by_stride else super()._end_us(window, number)

    # -- something is due -------------------------------------------------------------------------------------------

    def end_us(self, base: Base, wanted: Wanted) -> int:
        """The end of the stride that a publication is wanted in."""
        return base.window.stride_end_us(base.window.stride_of(wanted.slice))

    def number(self, base: Base, wanted: Wanted) -> int:
        """The slice or stride that a placement is asked about."""
        return base.window.stride_of(wanted.slice) if self._by_stride else wanted.slice

    def crosses_anyway(self, base: Base, column: Column, number: int, *, ended: bool) -> bool:
        """Whether a partial with this in it is known to be sent."""
        shelf = self.shelves.get((column[0], column[1]))
        if shelf is None:
            return False
        slices = base.window.slices_of_stride(number) if self._by_stride else (number,)
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

    def forget(self, key: str) -> None:
        """Nobody asks for a base any more on this side."""
        super().forget(key)
        held = []
        for one in self.held:
            wanted = tuple(each for each in one.wanted if each.key != key)
            if wanted:
                held.append(replace(one, wanted=wanted))
        self.keep(held)

    def first_end_us(self) -> int | None:
        ends = [self.agenda.first_end_us(), self._first_held_end_us()]
        return min((end_us for end_us in ends if end_us is not None), default=None)

    def _first_held_end_us(self) -> int | None:
        if self._held_until_us is None and self.held:
            self._held_until_us = min(one.end_us for one in self.held)
        return self._held_until_us

    def hold(self, publication: Held) -> None:
        first_us = self._first_held_end_us()
        self.held.append(publication)
        self._held_until_us = publication.end_us if first_us is None else min(first_us, publication.end_us)

    def keep(self, held: list[Held]) -> None:
        """Hold no others any longer."""
        self.held, self._held_until_us = held, None

    def weight_bytes(self, bases: Mapping[str, Base]) -> int:
        return super().weight_bytes(bases) + sum(one.size_bytes + HELD_OVERHEAD_BYTES for one in self.held)

    # -- memory -----------------------------------------------------------------------------------------------------

    def plain(self, bases: Mapping[str, Base]) -> list[Any]:
        return [super().plain(bases), [one.plain() for one in self.held], self.promised_us]

    def restore(self, plain: list[Any]) -> None:
        shelves, held, self.promised_us = plain
        self.restore_shelves(shelves)
        self.keep([Held.from_plain(one) for one in held])


def _weight(view: View, whole: Partial | None) -> tuple[int, int]:
    """How many messages a partial counts as, and its bytes."""
    assert whole is not None
    messages, size = (1, size_of(view.parts)) if view.is_plain else (0, 0)
    for part in view.collected:
        values = whole.values(part)
        messages += values
        size += PARTIAL_BYTES + VALUE_BYTES * values if part.state == "values" else PARTIAL_BYTES * values
    return messages, size
