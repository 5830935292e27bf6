"""Filters ordered by covering: which of them say all there is to say.

Rule 1: a filter that no other covers is a root; every other one hangs below one root that covers it.
Rule 2: an equal filter is the same element, counted: it goes when it has been deleted as often as inserted.
Rule 3: of two filters that cover each other the one that came first stays the root.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from catchment.model.errors import FilterError
from catchment.model.filter import Filter

__all__ = ["Poset", "Shift"]


class Shift(NamedTuple):
    """What a change did to the roots."""

    risen: tuple[Filter, ...] = ()
    sunk: tuple[Filter, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.risen or self.sunk)


class Poset:
    """Inserted and deleted one by one; the roots are always known."""

    def __init__(self) -> None:
        self._count: dict[Filter, int] = {}
        self._parent: dict[Filter, Filter] = {}
        self._children: dict[Filter, dict[Filter, None]] = {}
        self._by_attributes: dict[frozenset[str] | None, dict[Filter, None]] = {}

    def __len__(self) -> int:
        return len(self._count)

    def __contains__(self, condition: object) -> bool:
        return condition in self._count

    def __iter__(self) -> Iterator[Filter]:
        return iter(self._count)

    @property
    def roots(self) -> tuple[Filter, ...]:
        """In the order in which they became roots."""
        return tuple(self._children)

    def insert(self, condition: Filter) -> Shift:
        self._count[condition] = self._count.get(condition, 0) + 1
        return self._place(condition) if self._count[condition] == 1 else Shift()

    def delete(self, condition: Filter) -> Shift:
        """Deleting what is not there is an error."""
        if condition not in self._count:
            raise FilterError(f"[{condition}] is not there and cannot be deleted")
        self._count[condition] -= 1
        if self._count[condition]:
            return Shift()
        del self._count[condition]
        if condition in self._parent:
            del self._children[self._parent.pop(condition)][condition]
            return Shift()
        orphans = self._children.pop(condition)
        del self._by_attributes[_attributes(condition)][condition]
        risen: dict[Filter, None] = {}
        for orphan in orphans:
            del self._parent[orphan]
        for orphan in orphans:
            shift = self._place(orphan)
            for sunk in shift.sunk:
                del risen[sunk]
            risen.update(dict.fromkeys(shift.risen))
        return Shift(tuple(risen), (condition,))

    def match(self, event: Mapping[str, object]) -> list[Filter]:
        """The filters that an event satisfies; what hangs below a root that fails is not looked at."""
        found = []
        for root, children in self._children.items():
            if root.matches(event):
                found += [root, *(child for child in children if child.matches(event))]
        return found

    def _place(self, condition: Filter) -> Shift:
        for root in self._roots_about(condition, wider=True):
            if root.covers(condition):
                self._parent[condition] = root
                self._children[root][condition] = None
                return Shift()
        sunk = [root for root in self._roots_about(condition, wider=False) if condition.covers(root)]
        mine: dict[Filter, None] = {}
        for root in sunk:
            for below in (root, *self._children.pop(root)):
                mine[below] = None
                self._parent[below] = condition
            del self._by_attributes[_attributes(root)][root]
        self._children[condition] = mine
        self._by_attributes.setdefault(_attributes(condition), {})[condition] = None
        return Shift((condition,), tuple(sunk))

    def _roots_about(self, condition: Filter, *, wider: bool) -> Iterator[Filter]:
        """The roots that may cover a filter, or that it may cover.

        A conjunction covers another only if it constrains no attribute that the other does not.
        """
        about = _attributes(condition)
        for attributes, roots in list(self._by_attributes.items()):
            if about is None or attributes is None or (attributes <= about if wider else about <= attributes):
                yield from list(roots)


def _attributes(condition: Filter) -> frozenset[str] | None:
    """What a filter constrains, if it is one conjunction."""
    return frozenset(condition.attributes) if len(condition.disjuncts) == 1 else None
