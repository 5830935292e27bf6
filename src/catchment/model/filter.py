"""Filters: conditions on attributes in disjunctive normal form, and how they relate.

A filter is a tuple of conjunctions, a conjunction one constraint per attribute. `matches` decides an event, `covers`,
`overlaps` and `least_upper_bound` compare filters without any event.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from functools import reduce
from itertools import chain
from operator import and_
from typing import TypeVar

from catchment.model.constraint import ANYTHING, Constraint, Family, family_of
from catchment.model.errors import EventError, FilterError
from catchment.model.schema import Schema, Type
from catchment.model.times import microseconds

__all__ = ["DISJUNCTS_MAX", "EVERY_EVENT", "NO_EVENT", "Conjunction", "Filter", "least_upper_bound"]

DISJUNCTS_MAX = 64
UNMERGED_MAX = 4 * DISJUNCTS_MAX
"""Where merging gives up, as it compares all pairs."""
HULL_RANGES_MAX = 16

_FAMILY_OF_TYPE = {
    Type.BOOL: "bool",
    Type.INT: "number",
    Type.FLOAT: "number",
    Type.STRING: "string",
    Type.TIMESTAMP: "timestamp",
}


@dataclass(frozen=True, slots=True)
class Conjunction:
    """Constraints that must all hold, at most one per attribute, in the order of attribute names."""

    constraints: tuple[tuple[str, Constraint], ...] = ()

    @classmethod
    def of(cls, constraints: Mapping[str, Constraint]) -> Conjunction:
        """Leave out what constrains nothing, so that equal conditions are equal values."""
        kept = ((name, c) for name, c in sorted(constraints.items()) if c != ANYTHING)
        return cls(tuple(kept))

    def __iter__(self) -> Iterator[tuple[str, Constraint]]:
        return iter(self.constraints)

    def __len__(self) -> int:
        return len(self.constraints)

    @property
    def is_empty(self) -> bool:
        return any(c.is_empty for _, c in self.constraints)

    @property
    def order(self) -> tuple[object, ...]:
        """A key to sort by: equal for equal conjunctions, whichever way their numbers are written."""
        return tuple((name, c.family or "", c.null, c.ranges, c.patterns) for name, c in self.constraints)

    def intersect(self, other: Conjunction) -> Conjunction:
        combined = dict(self.constraints)
        for name, constraint in other:
            combined[name] = combined[name].intersect(constraint) if name in combined else constraint
        return Conjunction.of(combined)

    def covers(self, other: Conjunction) -> bool:
        theirs = dict(other.constraints)
        return all(mine.covers(theirs.get(name, ANYTHING)) for name, mine in self.constraints)

    def union(self, other: Conjunction) -> Conjunction | None:
        """One conjunction for both, if one covers the other or they differ in a single attribute."""
        mine, theirs = dict(self.constraints), dict(other.constraints)
        if mine.keys() == theirs.keys():
            different = [name for name in mine if mine[name] != theirs[name]]
            if len(different) == 1:
                joined = mine[different[0]].union(theirs[different[0]])
                if joined is not None:
                    return Conjunction.of({**mine, different[0]: joined})
        if self.covers(other):
            return self
        return other if other.covers(self) else None


@dataclass(frozen=True, slots=True)
class Filter:
    """A condition on events. `str(f)` is SQL that parses back to an equal filter."""

    disjuncts: tuple[Conjunction, ...]

    @classmethod
    def of(cls, conjunctions: Iterable[Conjunction]) -> Filter:
        """Drop what cannot hold, merge what one conjunction can say, and put the rest in a fixed order."""
        (given,) = _in_one_family(conjunctions)
        kept: list[Conjunction] = []
        # Sorted before merging too, as what is merged first decides what is left.
        ordered = sorted({c for c in given if not c.is_empty}, key=lambda c: c.order)
        for conjunction in _with_ranges_joined(ordered) if len(ordered) > DISJUNCTS_MAX else ordered:
            _absorb(kept, conjunction)
            if len(kept) > UNMERGED_MAX:
                break
        if len(kept) > DISJUNCTS_MAX:
            raise FilterError(
                f"the condition needs {len(kept)} disjuncts in disjunctive normal form; "
                f"at most {DISJUNCTS_MAX} are accepted: split the subscription"
            )
        return cls(tuple(sorted(kept, key=lambda c: c.order)))

    @classmethod
    def parse(cls, text: str, schema: Schema | Mapping[str, object] | None = None) -> Filter:
        """Read an SQL condition; with a schema, check attributes and types and use the domains of the types."""
        from catchment.model.condition import parse_condition

        if schema is None:
            return parse_condition(text)
        known = Schema.of(schema)
        return parse_condition(text, known).within(known)

    @classmethod
    def where(cls, attribute: str, constraint: Constraint) -> Filter:
        return NO_EVENT if constraint.is_empty else cls((Conjunction.of({attribute: constraint}),))

    @classmethod
    def all_of(cls, filters: Iterable[Filter]) -> Filter:
        """What satisfies every one of them, the same whatever their order."""
        ordered = sorted(filters, key=lambda f: f.order)
        # Conjunctions in pairs, and pairs of pairs: one after the other, thousands of `n != 1` would take minutes.
        simple = [one for one in ordered if len(one.disjuncts) <= 1]
        others = [one for one in ordered if len(one.disjuncts) > 1]
        return reduce(and_, others, _in_pairs(simple, and_) if simple else EVERY_EVENT)

    @classmethod
    def any_of(cls, filters: Iterable[Filter]) -> Filter:
        """What satisfies at least one of them, the same whatever their order."""
        return cls.of(conjunction for one in filters for conjunction in one.disjuncts)

    # -- asking ---------------------------------------------------------------------------------------------------

    @property
    def order(self) -> tuple[object, ...]:
        """A key to sort filters by that are over one schema."""
        return tuple(conjunction.order for conjunction in self.disjuncts)

    @property
    def attributes(self) -> tuple[str, ...]:
        return tuple(sorted({name for conjunction in self.disjuncts for name, _ in conjunction}))

    def matches(self, event: Mapping[str, object]) -> bool:
        """Whether an event, as attribute to value, satisfies the filter; a missing attribute is null."""
        return any(all(_holds(name, event.get(name), c) for name, c in conjunction) for conjunction in self.disjuncts)

    def covers(self, other: Filter, schema: Schema | None = None) -> bool:
        """Every event that the other matches, this matches. Sound always; complete as DESIGN says."""
        if schema is not None:
            return self.within(schema).covers(other.within(schema))
        mine, theirs = _in_one_family(self.disjuncts, other.disjuncts)
        return all(any(one.covers(another) for one in mine) for another in theirs)

    def overlaps(self, other: Filter, schema: Schema | None = None) -> bool:
        """Some event may match both; never False when one does."""
        if schema is not None:
            return self.within(schema).overlaps(other.within(schema))
        mine, theirs = _in_one_family(self.disjuncts, other.disjuncts)
        return any(not one.intersect(another).is_empty for one in mine for another in theirs)

    # -- combining ------------------------------------------------------------------------------------------------

    def __and__(self, other: Filter) -> Filter:
        if EVERY_EVENT in (self, other):
            return other if self == EVERY_EVENT else self
        mine, theirs = _in_one_family(self.disjuncts, other.disjuncts)
        return Filter.of(one.intersect(another) for one in mine for another in theirs)

    def __or__(self, other: Filter) -> Filter:
        return Filter.of(self.disjuncts + other.disjuncts)

    def within(self, schema: Schema) -> Filter:
        """The same condition over the domains of a schema; an unknown attribute or another type is an error."""
        return Filter.of(
            Conjunction.of({name: _typed(name, c, schema) for name, c in conjunction}) for conjunction in self.disjuncts
        )

    def __str__(self) -> str:
        from catchment.model.rendering import filter_sql

        return filter_sql(self)


EVERY_EVENT = Filter((Conjunction(),))
NO_EVENT = Filter(())


def least_upper_bound(filters: Iterable[Filter]) -> Filter:
    """One conjunction that covers every given filter, as narrow as one set of ranges per attribute can be."""
    (conjunctions,) = _in_one_family([c for f in filters for c in f.disjuncts])
    if not conjunctions:
        return NO_EVENT
    bound = dict(conjunctions[0].constraints)
    for conjunction in conjunctions[1:]:
        theirs = dict(conjunction.constraints)
        bound = {
            name: constraint.hull(theirs[name], ranges_max=HULL_RANGES_MAX)
            for name, constraint in bound.items()
            if name in theirs
        }
    return Filter.of([Conjunction.of(bound)])


_One = TypeVar("_One")


def _in_pairs(values: list[_One], combine: Callable[[_One, _One], _One]) -> _One:
    """Combine neighbours, then what came of neighbours, until one is left."""
    while len(values) > 1:
        pairs = zip(values[::2], values[1::2], strict=False)
        values = [combine(*pair) for pair in pairs] + values[len(values) // 2 * 2 :]
    return values[0]


def _with_ranges_joined(conjunctions: list[Conjunction]) -> list[Conjunction]:
    """The same with one conjunction for all that say nothing but in which ranges one attribute lies."""
    ranges: dict[str, list[Constraint]] = {}
    others = []
    for conjunction in conjunctions:
        if len(conjunction) == 1 and not conjunction.constraints[0][1].patterns:
            name, constraint = conjunction.constraints[0]
            ranges.setdefault(name, []).append(constraint)
        else:
            others.append(conjunction)
    joined = [Conjunction.of({name: _in_pairs(some, _joined)}) for name, some in ranges.items()]
    return sorted([*joined, *others], key=lambda c: c.order)


def _joined(one: Constraint, other: Constraint) -> Constraint:
    both = one.union(other)
    assert both is not None  # as they are of one family, and have no patterns
    return both


def _absorb(kept: list[Conjunction], new: Conjunction) -> None:
    """Add a conjunction, merging as long as anything merges."""
    index = 0
    while index < len(kept):
        joined = kept[index].union(new)
        if joined is None:
            index += 1
        else:
            del kept[index]
            new, index = joined, 0
    kept.append(new)


def _holds(name: str, value: object, constraint: Constraint) -> bool:
    if value is None:
        return constraint.null
    given: Family
    if isinstance(value, (datetime, date)):
        value, given = microseconds(value, attribute=name), "timestamp"
    else:
        given = family_of(value)
    if isinstance(value, float) and not math.isfinite(value):
        raise EventError(f"attribute {name!r} is {value}; accepted are finite numbers")
    wanted = constraint.family
    if wanted == "string" and given == "timestamp":
        constraint = constraint.as_timestamps()
    elif wanted not in (None, given) and (wanted, given) != ("timestamp", "number"):
        raise EventError(f"attribute {name!r} is {value!r}, a {given}; the filter accepts a {wanted}")
    assert isinstance(value, (bool, int, float, str))
    return constraint.matches(value)


def _typed(name: str, constraint: Constraint, schema: Schema) -> Constraint:
    if name not in schema:
        raise FilterError(f"unknown attribute {name!r}; known are {', '.join(sorted(schema)) or 'none'}")
    kind = schema[name]
    family = constraint.family
    if family == "string" and kind is Type.TIMESTAMP:
        constraint = constraint.as_timestamps()
    elif family is not None and family != _FAMILY_OF_TYPE[kind]:
        raise FilterError(
            f"attribute {name!r} is of type {kind.value} and is compared with a {family}; "
            f"accepted is a {_FAMILY_OF_TYPE[kind]}"
        )
    return constraint.within(kind)


def _in_one_family(*groups: Iterable[Conjunction]) -> list[list[Conjunction]]:
    """The same conjunctions with each attribute in one family: text beside a time stamp is read as a time."""
    listed = [list(group) for group in groups]
    mixed = _mixed(listed)
    if not mixed:
        return listed
    for name in sorted(mixed):
        if mixed[name] != {"string", "timestamp"}:
            raise FilterError(
                f"attribute {name!r} is compared with a {' and with a '.join(sorted(mixed[name]))}; "
                "accepted is one of them"
            )
    return [
        [
            Conjunction.of({name: c.as_timestamps() if _is_text(name, c, mixed) else c for name, c in conjunction})
            for conjunction in group
        ]
        for group in listed
    ]


def _mixed(groups: Iterable[Iterable[Conjunction]]) -> dict[str, set[Family]]:
    """The attributes that are in several families, and in which."""
    first: dict[str, Family] = {}
    mixed: dict[str, set[Family]] = {}
    for conjunction in chain.from_iterable(groups):
        for name, constraint in conjunction.constraints:
            family = constraint.family
            if family is not None and first.setdefault(name, family) != family:
                mixed.setdefault(name, {first[name]}).add(family)
    return mixed


def _is_text(name: str, constraint: Constraint, mixed: Container[str]) -> bool:
    return name in mixed and constraint.family == "string"
