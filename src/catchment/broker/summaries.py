"""What a broker tells a neighbour of the filters on all its other sides.

Rule 1: a summary matches every event that one of its filters matches; so nothing is lost, whichever is chosen.
Rule 2: a filter that nothing satisfies is kept by nobody and told to nobody.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from catchment.matching.poset import Poset, Shift
from catchment.model.filter import NO_EVENT, Filter, least_upper_bound

__all__ = ["SUMMARIES", "Bound", "Covering", "Each", "Summary", "in_order"]


class Summary(Protocol):
    """Filters in, and which filters stand for them."""

    def add(self, condition: Filter) -> Shift: ...

    def remove(self, condition: Filter) -> Shift: ...

    def recall(self, filters: Iterable[Filter], told: tuple[Filter, ...]) -> None:
        """Become what a summary was that had these filters and told this; called on an empty one."""

    @property
    def told(self) -> tuple[Filter, ...]: ...


class Each:
    """Every filter, once: what flooding sends."""

    def __init__(self) -> None:
        self._count: dict[Filter, int] = {}

    def add(self, condition: Filter) -> Shift:
        if condition == NO_EVENT:
            return Shift()
        self._count[condition] = self._count.get(condition, 0) + 1
        return Shift((condition,)) if self._count[condition] == 1 else Shift()

    def remove(self, condition: Filter) -> Shift:
        if condition == NO_EVENT:
            return Shift()
        self._count[condition] -= 1
        if self._count[condition]:
            return Shift()
        del self._count[condition]
        return Shift((), (condition,))

    def recall(self, filters: Iterable[Filter], told: tuple[Filter, ...]) -> None:
        for condition in filters:
            self.add(condition)

    @property
    def told(self) -> tuple[Filter, ...]:
        return in_order(self._count)


class Covering:
    """The filters that no other one covers."""

    def __init__(self) -> None:
        self._poset = Poset()

    def add(self, condition: Filter) -> Shift:
        return self._poset.insert(condition) if condition != NO_EVENT else Shift()

    def remove(self, condition: Filter) -> Shift:
        return self._poset.delete(condition) if condition != NO_EVENT else Shift()

    def recall(self, filters: Iterable[Filter], told: tuple[Filter, ...]) -> None:
        # Of filters that cover each other the one that was told has to come first.
        for condition in sorted(filters, key=lambda one: one not in told):
            self.add(condition)

    @property
    def told(self) -> tuple[Filter, ...]:
        return in_order(self._poset.roots)


class Bound:
    """One conjunction that covers them all: short to tell, and it lets some events pass that nobody wants."""

    def __init__(self) -> None:
        self._each = Each()
        self._bound = NO_EVENT

    def add(self, condition: Filter) -> Shift:
        self._each.add(condition)
        if self._bound.covers(condition):
            return Shift()
        return self._moved_to(least_upper_bound([self._bound, condition]))

    def remove(self, condition: Filter) -> Shift:
        return self._moved_to(least_upper_bound(self._each.told)) if self._each.remove(condition) else Shift()

    def _moved_to(self, bound: Filter) -> Shift:
        before, self._bound = self._bound, bound
        if bound == before:
            return Shift()
        return Shift(*((() if one == NO_EVENT else (one,)) for one in (bound, before)))

    def recall(self, filters: Iterable[Filter], told: tuple[Filter, ...]) -> None:
        self._each.recall(filters, told)
        # A bound that grew step by step may be wider than one made at once, and it is what the neighbour knows.
        self._bound = told[0] if told else NO_EVENT

    @property
    def told(self) -> tuple[Filter, ...]:
        return () if self._bound == NO_EVENT else (self._bound,)


def in_order(filters: Iterable[Filter]) -> tuple[Filter, ...]:
    """An order that does not tell in which order they came."""
    return tuple(sorted(filters, key=lambda one: one.order))


SUMMARIES: Mapping[str, Callable[[], Summary]] = {"bound": Bound, "covering": Covering, "each": Each}
