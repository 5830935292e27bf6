"""Filters ordered by covering: which of them say all there is to say.

Rule 1: a filter that no other covers is a root; every other one hangs below one root that covers it.
Rule 2: an equal filter is the same element, counted: it goes when it has been deleted as often as inserted.
Rule 3: of two filters that cover each other the one that came first stays the root.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Generic, Literal, NamedTuple, TypeVar

from catchment.model.constraint import Cell
from catchment.model.errors import FilterError
from catchment.model.filter import Conjunction, Filter

__all__ = ["Poset", "Shift"]

CELLS_MAX = 64
"""More cells are as good as endlessly many."""

Kind = Literal["few", "many", "untold"]
KINDS: tuple[Kind, ...] = ("few", "many", "untold")
Side = Literal["above", "below"]


_One = TypeVar("_One")


class Shift(NamedTuple, Generic[_One]):
    """What a change did to the roots."""

    risen: tuple[_One, ...] = ()
    sunk: tuple[_One, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.risen or self.sunk)


class Poset:
    """Inserted and deleted one by one; the roots are always known."""

    def __init__(self) -> None:
        self._elements: dict[Filter, _Element] = {}
        self._roots = _Roots()

    def __len__(self) -> int:
        return len(self._elements)

    def __contains__(self, condition: object) -> bool:
        return condition in self._elements

    def __iter__(self) -> Iterator[Filter]:
        return iter(self._elements)

    @property
    def roots(self) -> tuple[Filter, ...]:
        """In the order in which they became roots."""
        return tuple(root.condition for root in self._roots)

    def insert(self, condition: Filter) -> Shift[Filter]:
        element = self._elements.get(condition)
        if element is not None:
            element.count += 1
            return Shift()
        element = _Element(condition)
        shift = self._place(element)
        self._elements[condition] = element
        return shift

    def delete(self, condition: Filter) -> Shift[Filter]:
        """Deleting what is not there is an error."""
        element = self._elements.get(condition)
        if element is None:
            raise FilterError(f"[{condition}] is not there and cannot be deleted")
        element.count -= 1
        if element.count:
            return Shift()
        del self._elements[condition]
        root = element.root
        if root.element is not element:
            del root.below[element]
            return Shift()
        self._roots.remove(root)
        risen: dict[Filter, None] = {}
        sunk = {condition: None}
        for orphan in root.below:
            shift = self._place(orphan)
            for one in shift.sunk:
                # An orphan may cover an older root that the one gone did not: not all covering is found.
                if one in risen:
                    del risen[one]
                else:
                    sunk[one] = None
            risen.update(dict.fromkeys(shift.risen))
        return Shift(tuple(risen), tuple(sunk))

    def match(self, event: Mapping[str, object]) -> list[Filter]:
        """The filters that an event satisfies; what hangs below a root that fails is not looked at."""
        found = []
        for root in self._roots:
            if root.condition.matches(event):
                found += [root.condition, *(one.condition for one in root.below if one.condition.matches(event))]
        return found

    def _place(self, element: _Element) -> Shift[Filter]:
        condition, mine = element.condition, _Root(element)
        for root in self._roots.above(mine):
            if root.condition.covers(condition):
                element.root = root
                root.below[element] = None
                return Shift()
        sunk = [root for root in self._roots.below(mine) if condition.covers(root.condition)]
        for root in sunk:
            for below in (root.element, *root.below):
                below.root = mine
                mine.below[below] = None
            self._roots.remove(root)
        element.root = mine
        self._roots.add(mine)
        return Shift((condition,), tuple(root.condition for root in sunk))


@dataclass(eq=False, slots=True)
class _Element:
    """A filter, how often it is there, and the root that it is or hangs below."""

    condition: Filter
    count: int = 1
    root: _Root = field(init=False)


class _Root:
    """An element as a root: what hangs below it, and by what it is found.

    `attributes` are those that it constrains, if it is one conjunction; `cells` are those of its constraints that have
    few, fewest first. `kind` is whether there are such, or only ones of many, or cells do not tell what covers it.
    """

    __slots__ = ("attributes", "below", "cells", "condition", "element", "kind", "rank")

    def __init__(self, element: _Element) -> None:
        self.element = element
        self.condition = element.condition
        self.below: dict[_Element, None] = {}
        self.attributes: frozenset[str] | None = None
        self.cells: list[tuple[str, tuple[Cell, ...]]] = []
        self.kind: Kind = "untold"
        self.rank = (0, 0)
        if len(self.condition.disjuncts) == 1:
            self._look_at(self.condition.disjuncts[0])

    def _look_at(self, conjunction: Conjunction) -> None:
        self.attributes = frozenset(name for name, _ in conjunction)
        cells = [(name, constraint.cells(CELLS_MAX)) for name, constraint in conjunction]
        if all(found != () for _, found in cells):
            self.cells = sorted(((name, found) for name, found in cells if found), key=lambda one: len(one[1]))
            self.kind = "few" if self.cells else "many"


class _Roots:
    """The roots, and which of them may cover a filter or be covered by it.

    Rule 1: a conjunction covers another only if it constrains no attribute that the other does not.
    Rule 2: a constraint of few cells covers only such as have no other cells. So a root stands under all cells of one
            attribute, to be found by any cell of what it covers; and under one cell of each attribute, to be found by
            all cells of what covers it.
    Rule 3: they come in the order in which what they constrain was first constrained, then in that of becoming roots.
    """

    def __init__(self) -> None:
        self._age = itertools.count()
        self._seen: dict[frozenset[str] | None, int] = {}
        self._all: _Group = {}
        self._by_attributes: dict[tuple[frozenset[str] | None, Kind], _Group] = {}
        self._by_cell: dict[tuple[Side, str, Cell], _Group] = {}

    def __iter__(self) -> Iterator[_Root]:
        return iter(self._all)

    def add(self, root: _Root) -> None:
        root.rank = (self._seen.setdefault(root.attributes, len(self._seen)), next(self._age))
        self._all[root] = None
        self._by_attributes.setdefault((root.attributes, root.kind), {})[root] = None
        for label in _labels(root):
            self._by_cell.setdefault(label, {})[root] = None

    def remove(self, root: _Root) -> None:
        del self._all[root]
        del self._by_attributes[root.attributes, root.kind][root]
        for label in _labels(root):
            group = self._by_cell[label]
            del group[root]
            if not group:
                del self._by_cell[label]

    def above(self, given: _Root) -> list[_Root]:
        """Those that may cover a filter."""
        others: tuple[Kind, ...] = ("many", "untold") if given.kind != "untold" else KINDS
        found = [
            root
            for (attributes, kind), group in self._by_attributes.items()
            if kind in others and _may_cover(attributes, given.attributes)
            for root in group
        ]
        for name, cells in given.cells:
            group = self._by_cell.get(("above", name, cells[0]), {})
            found += [root for root in group if _may_cover(root.attributes, given.attributes)]
        return sorted(found, key=_by_rank)

    def below(self, given: _Root) -> list[_Root]:
        """Those that a filter may cover."""
        others: tuple[Kind, ...] = ("untold",) if given.kind == "few" else KINDS
        found = [
            root
            for (attributes, kind), group in self._by_attributes.items()
            if kind in others and _may_cover(given.attributes, attributes)
            for root in group
        ]
        for name, cells in given.cells[:1]:
            for cell in cells:
                group = self._by_cell.get(("below", name, cell), {})
                found += [root for root in group if _may_cover(given.attributes, root.attributes)]
        return sorted(found, key=_by_rank)


_Group = dict[_Root, None]
_by_rank = attrgetter("rank")


def _labels(root: _Root) -> Iterator[tuple[Side, str, Cell]]:
    for name, cells in root.cells[:1]:
        yield from (("above", name, cell) for cell in cells)
    yield from (("below", name, cells[0]) for name, cells in root.cells)


def _may_cover(wide: frozenset[str] | None, narrow: frozenset[str] | None) -> bool:
    return wide is None or narrow is None or wide <= narrow
