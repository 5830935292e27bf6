"""What one attribute may be: a set of values, and whether it may be missing.

Rule 1: a set is a sorted tuple of ranges between *cuts*. A cut stands just before or just after a value, so open and
        closed ends, points and gaps are all the same thing, and every operation is a comparison of tuples.
Rule 2: patterns narrow the ranges further; all of them must hold.
Rule 3: what nothing can satisfy is `NOTHING`, so emptiness is never hidden.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from catchment.model.errors import EventError, FilterError
from catchment.model.schema import Type
from catchment.model.times import microseconds

__all__ = ["ANYTHING", "NOTHING", "NOT_NULL", "NULL", "Constraint", "Cut", "Family", "Pattern", "Scalar", "family_of"]

Scalar = bool | int | float | str
Family = Literal["number", "string", "bool", "timestamp"]
Cut = tuple[int] | tuple[int, Scalar, int]
Range = tuple[Cut, Cut]

LOWEST: Cut = (0,)
HIGHEST: Cut = (2,)
EVERYTHING: tuple[Range, ...] = ((LOWEST, HIGHEST),)


def before(value: Scalar) -> Cut:
    return (1, value, 0)


def after(value: Scalar) -> Cut:
    return (1, value, 1)


def family_of(value: object) -> Family:
    """The family within which a value can be compared."""
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, (int, float)):
        return "number"
    if isinstance(value, str):
        return "string"
    raise EventError(f"{value!r} of type {type(value).__name__} is no attribute value; accepted are "
                     "bool, int, float, str, datetime, None")


@dataclass(frozen=True, slots=True, order=True)
class Pattern:
    """A `LIKE` with one wildcard at its end, at its beginning, or at both."""

    kind: Literal["prefix", "suffix", "contains"]
    text: str
    negated: bool = False

    def matches(self, value: str) -> bool:
        return self._holds(value) is not self.negated

    def _holds(self, value: str) -> bool:
        if self.kind == "prefix":
            return value.startswith(self.text)
        if self.kind == "suffix":
            return value.endswith(self.text)
        return self.text in value

    def implies(self, other: Pattern) -> bool:
        """Every string that matches this matches the other (sound and, for one pattern, complete)."""
        if not self.negated and not other.negated:
            return other._holds(self.text) if other.kind in (self.kind, "contains") else False
        if self.negated and other.negated:
            return self._holds(other.text) if self.kind in (other.kind, "contains") else False
        return not self.negated and self.kind == other.kind and self._excludes(other)

    def _excludes(self, other: Pattern) -> bool:
        """No string holds both texts at the same end."""
        shorter, longer = sorted((self.text, other.text), key=len)
        if self.kind == "prefix":
            return not longer.startswith(shorter)
        return self.kind == "suffix" and not longer.endswith(shorter)

    def contradicts(self, other: Pattern) -> bool:
        """No string matches both."""
        if self.negated and other.negated:
            return False
        if self.negated:
            return other.contradicts(self)
        if other.negated:
            return self.implies(Pattern(other.kind, other.text))
        return self.kind == other.kind and self._excludes(other)

    @property
    def range(self) -> Range:
        """The stretch of the code point order that a positive prefix selects."""
        head = self.text.rstrip("\U0010ffff")
        if not head:
            return (before(self.text), HIGHEST)
        following = ord(head[-1]) + 1
        if following == 0xD800:  # surrogates are no code points of text
            following = 0xE000
        return (before(self.text), before(head[:-1] + chr(following)))


@dataclass(frozen=True, eq=True)
class Constraint:
    """The values an attribute may have. Made by the functions of this module, never empty unless it is `NOTHING`."""

    null: bool
    ranges: tuple[Range, ...]
    patterns: tuple[Pattern, ...] = ()
    family: Family | None = None

    # -- making ---------------------------------------------------------------------------------------------------

    @classmethod
    def compare(cls, operator: str, value: Scalar, family: Family | None = None) -> Constraint:
        """`attribute operator value`, null never satisfying it."""
        family = family or family_of(value)
        if isinstance(value, float) and math.isnan(value):
            raise FilterError("NaN is no value to compare with; accepted are finite numbers")
        ranges: dict[str, tuple[Range, ...]] = {
            "=": ((before(value), after(value)),),
            "!=": ((LOWEST, before(value)), (after(value), HIGHEST)),
            "<": ((LOWEST, before(value)),),
            "<=": ((LOWEST, after(value)),),
            ">": ((after(value), HIGHEST),),
            ">=": ((before(value), HIGHEST),),
        }
        return cls(False, ranges[operator], (), family)

    @classmethod
    def one_of(cls, values: Iterable[Scalar], family: Family | None = None) -> Constraint:
        points = sorted(set(values))
        if not points:
            return NOTHING
        family = family or family_of(points[0])
        return cls(False, tuple((before(v), after(v)) for v in points), (), family)

    @classmethod
    def like(cls, pattern: Pattern) -> Constraint:
        if not pattern.text:
            return NOTHING if pattern.negated else NOT_NULL
        return cls(False, EVERYTHING, (pattern,), "string")

    def _simplified(self) -> Constraint:
        ranges = self.ranges
        patterns = tuple(p for p in sorted(set(self.patterns)) if not any(q != p and q.implies(p) for q in self.patterns))
        if any(p.contradicts(q) for i, p in enumerate(patterns) for q in patterns[i + 1 :]):
            ranges = ()
        for p in patterns:
            if p.kind == "prefix" and not p.negated:
                ranges = _intersect(ranges, (p.range,))
        points = _points(ranges)
        if patterns and points is not None:
            kept = [v for v in points if all(p.matches(str(v)) for p in patterns)]
            ranges, patterns = tuple((before(v), after(v)) for v in kept), ()
        if not ranges:
            return NULL if self.null else NOTHING
        if ranges == EVERYTHING and not patterns:
            return ANYTHING if self.null else NOT_NULL
        return Constraint(self.null, ranges, patterns, self.family)

    # -- asking ---------------------------------------------------------------------------------------------------

    @property
    def is_empty(self) -> bool:
        return not self.null and not self.ranges

    @cached_property
    def points(self) -> tuple[Scalar, ...] | None:
        """The values, if they are finitely many and there is no pattern."""
        return _points(self.ranges) if not self.patterns else None

    def matches(self, value: Scalar | None) -> bool:
        if value is None:
            return self.null
        cut = before(value)
        return any(low <= cut < high for low, high in self.ranges) and all(p.matches(str(value)) for p in self.patterns)

    def covers(self, other: Constraint) -> bool:
        """Every value that satisfies the other satisfies this."""
        if other.null and not self.null:
            return False
        missing = _intersect(other.ranges, _complement(self.ranges))
        if missing:
            points = _points(missing)
            if points is None or any(other.matches(v) for v in points):
                return False
        return all(other._implies(p) for p in self.patterns)

    def _implies(self, pattern: Pattern) -> bool:
        if not self.ranges:
            return True
        points = _points(self.ranges)
        if points is not None:
            return all(pattern.matches(str(v)) or not self.matches(v) for v in points)
        if any(q.implies(pattern) for q in self.patterns):
            return True
        if pattern.kind != "prefix":
            return False
        inside = _intersect(self.ranges, (pattern.range,))
        return not inside if pattern.negated else inside == self.ranges

    # -- combining ------------------------------------------------------------------------------------------------

    def intersect(self, other: Constraint) -> Constraint:
        left, right = _aligned(self, other)
        return Constraint(
            left.null and right.null,
            _intersect(left.ranges, right.ranges),
            left.patterns + right.patterns,
            left.family or right.family,
        )._simplified()

    def union(self, other: Constraint) -> Constraint | None:
        """The exact union, or None where one set of ranges and patterns cannot say it."""
        if not _families_agree(self, other):
            return None
        if self.covers(other):
            return self
        if other.covers(self):
            return other
        if not self.ranges or not other.ranges:
            some = self if self.ranges else other
            return Constraint(self.null or other.null, some.ranges, some.patterns, some.family)._simplified()
        if self.patterns != other.patterns:
            return None
        ranges = _union(self.ranges + other.ranges)
        return Constraint(self.null or other.null, ranges, self.patterns, self.family or other.family)._simplified()

    def hull(self, other: Constraint, *, ranges_max: int) -> Constraint:
        """A set that covers both, of at most so many ranges."""
        exact = self.union(other)
        if exact is None:
            if not _families_agree(self, other):
                return ANYTHING if self.null or other.null else NOT_NULL
            shared = tuple(p for p in {*self.patterns, *other.patterns} if self._implies(p) and other._implies(p))
            ranges = _union(self.ranges + other.ranges)
            exact = Constraint(self.null or other.null, ranges, shared, self.family or other.family)._simplified()
        if len(exact.ranges) > ranges_max:
            ends = ((exact.ranges[0][0], exact.ranges[-1][1]),)
            exact = Constraint(exact.null, ends, exact.patterns, exact.family)._simplified()
        return exact

    def as_timestamps(self) -> Constraint:
        """The same set with its texts read as times."""
        if self.patterns:
            raise FilterError("LIKE asks for text, and the attribute is a time stamp; accepted are comparisons")

        def moved(cut: Cut) -> Cut:
            return cut if len(cut) == 1 else (1, microseconds(str(cut[1])), cut[2])

        ranges = tuple((moved(low), moved(high)) for low, high in self.ranges)
        return Constraint(self.null, ranges, (), "timestamp")

    def within(self, kind: Type) -> Constraint:
        """The same set over the values of a type: cuts that no value lies between become one cut."""
        ranges = []
        for low, high in self.ranges:
            first, last = _cut_within(low, kind), _cut_within(high, kind)
            if first < last:
                ranges.append((first, last))
        return Constraint(self.null, _union(tuple(ranges)), self.patterns, self.family)._simplified()


ANYTHING = Constraint(True, EVERYTHING)
NOT_NULL = Constraint(False, EVERYTHING)
NULL = Constraint(True, ())
NOTHING = Constraint(False, ())


def _families_agree(a: Constraint, b: Constraint) -> bool:
    return a.family is None or b.family is None or a.family == b.family


def _aligned(a: Constraint, b: Constraint) -> tuple[Constraint, Constraint]:
    """Both in one family: text beside a time stamp is read as a time."""
    if a.family == "timestamp" and b.family == "string":
        return a, b.as_timestamps()
    if a.family == "string" and b.family == "timestamp":
        return a.as_timestamps(), b
    if not _families_agree(a, b):
        raise FilterError(f"one attribute is compared with a {a.family} and with a {b.family}; accepted is one of them")
    return a, b


def _intersect(left: tuple[Range, ...], right: tuple[Range, ...]) -> tuple[Range, ...]:
    found: list[Range] = []
    i = j = 0
    while i < len(left) and j < len(right):
        low = max(left[i][0], right[j][0])
        high = min(left[i][1], right[j][1])
        if low < high:
            found.append((low, high))
        if left[i][1] < right[j][1]:
            i += 1
        else:
            j += 1
    return tuple(found)


def _union(ranges: tuple[Range, ...]) -> tuple[Range, ...]:
    merged: list[Range] = []
    for low, high in sorted(ranges):
        if merged and low <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(high, merged[-1][1]))
        else:
            merged.append((low, high))
    return tuple(merged)


def _complement(ranges: tuple[Range, ...]) -> tuple[Range, ...]:
    edges = [LOWEST, *(cut for r in ranges for cut in r), HIGHEST]
    return tuple((low, high) for low, high in zip(edges[::2], edges[1::2], strict=True) if low < high)


def _points(ranges: tuple[Range, ...]) -> tuple[Scalar, ...] | None:
    found = []
    for low, high in ranges:
        if len(low) == 1 or len(high) == 1 or not _is_point(low, high):
            return None
        found.append(low[1])
    return tuple(found)


def _is_point(low: Cut, high: Cut) -> bool:
    if len(low) == 1 or len(high) == 1 or low[2] != 0:
        return False
    if high[2] == 1:
        return low[1] == high[1]
    # Over a discrete domain a point ends just before its successor.
    value, successor = low[1], high[1]
    if isinstance(value, str):
        return successor == value + "\0"
    if isinstance(value, bool):
        return False
    if isinstance(value, int) and isinstance(successor, int):
        return successor == value + 1
    if isinstance(value, float) and isinstance(successor, float):
        return successor == math.nextafter(value, math.inf)
    return False


INT_MIN, INT_MAX = -(2**63), 2**63 - 1


def _cut_within(cut: Cut, kind: Type) -> Cut:
    """Move a cut up to just before the next value of the type, so that equal sets have equal cuts."""
    if len(cut) == 1:
        return cut
    _, value, side = cut
    if kind is Type.STRING:
        return before(f"{value}\0") if side else cut
    if kind is Type.BOOL:
        passed = int(value) + side
        return LOWEST if passed == 0 else HIGHEST if passed == 2 else before(True)
    if kind is Type.FLOAT:
        return _float_cut(value, side)
    return _int_cut(value, side)


def _int_cut(value: Scalar, side: int) -> Cut:
    if isinstance(value, float) and math.isinf(value):
        return HIGHEST if value > 0 else LOWEST
    number = value if isinstance(value, (int, float)) else 0
    following = math.floor(number) + 1 if side else math.ceil(number)
    if following <= INT_MIN:
        return LOWEST
    return HIGHEST if following > INT_MAX else before(following)


def _float_cut(value: Scalar, side: int) -> Cut:
    number = value if isinstance(value, (int, float)) else 0
    try:
        nearest = float(number)
    except OverflowError:
        return HIGHEST if number > 0 else LOWEST
    if nearest < number or (side and nearest == number):
        nearest = math.nextafter(nearest, math.inf)
    if nearest == math.inf:
        return HIGHEST
    smallest = -1.7976931348623157e308
    return LOWEST if nearest <= smallest else before(nearest + 0.0)
