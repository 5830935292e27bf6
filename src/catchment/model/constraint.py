"""What one attribute may be: a set of values, and whether it may be missing.

Rule 1: a set is a sorted tuple of ranges between *cuts*. A cut stands just before or just after a value, so open and
        closed ends, points and gaps are all the same thing, and every operation is a comparison of tuples.
Rule 2: patterns narrow the ranges further; all of them must hold. A prefix is a range and never stays a pattern.
Rule 3: what nothing can satisfy is `NOTHING`, so emptiness is never hidden.
Rule 4: texts, truth values and times have one domain, so their cuts always stand just before a value of it. Numbers
        wait for a schema, which says whether they are whole.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from catchment.model.errors import EventError, FilterError
from catchment.model.schema import Type
from catchment.model.times import TIME_MAX_US, TIME_MIN_US, microseconds

__all__ = [
    "ANYTHING",
    "NOTHING",
    "NOT_NULL",
    "NULL",
    "Cell",
    "Constraint",
    "Cut",
    "Family",
    "Pattern",
    "Range",
    "Scalar",
    "family_of",
    "prefix_of",
]

Scalar = bool | int | float | str
Cell = int | str | None
"""Values that are looked for together: null, one text or truth value, the numbers from a whole one up to the next."""
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
    raise EventError(
        f"{value!r} of type {type(value).__name__} is no attribute value; accepted are "
        "bool, int, float, str, datetime, None"
    )


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
            return (before(self.text) if self.text else LOWEST, HIGHEST)
        following = ord(head[-1]) + 1
        if following == 0xD800:  # surrogates are no code points of text
            following = 0xE000
        return (before(self.text), before(head[:-1] + chr(following)))


@dataclass(frozen=True, slots=True)
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
        _require_finite(value)
        ranges: dict[str, tuple[Range, ...]] = {
            "=": ((before(value), after(value)),),
            "!=": ((LOWEST, before(value)), (after(value), HIGHEST)),
            "<": ((LOWEST, before(value)),),
            "<=": ((LOWEST, after(value)),),
            ">": ((after(value), HIGHEST),),
            ">=": ((before(value), HIGHEST),),
        }
        return cls(False, ranges[operator], (), family)._over_family()

    @classmethod
    def one_of(cls, values: Iterable[Scalar], family: Family | None = None) -> Constraint:
        points = sorted(set(values))
        if not points:
            return NOTHING
        for value in points:
            _require_finite(value)
        family = family or family_of(points[0])
        return cls(False, tuple((before(v), after(v)) for v in points), (), family)._over_family()

    @classmethod
    def none_of(cls, values: Iterable[Scalar], family: Family | None = None) -> Constraint:
        """Any value but these; not null."""
        return cls.one_of(values, family).outside()._over_family()

    @classmethod
    def like(cls, pattern: Pattern) -> Constraint:
        return cls(False, EVERYTHING, (pattern,), "string")._simplified()

    def _over_family(self) -> Constraint:
        """The same set in the one form it has where the family alone says what values there are."""
        kind = _DOMAINS.get(self.family)
        return self if kind is None else self.within(kind)

    def _simplified(self) -> Constraint:
        ranges = self.ranges
        for p in self.patterns:
            if p.kind == "prefix" or not p.text:
                ranges = _intersect(ranges, _complement((p.range,)) if p.negated else (p.range,))
        patterns = tuple(sorted({p for p in self.patterns if p.kind != "prefix" and p.text}))
        patterns = tuple(p for p in patterns if not any(q != p and q.implies(p) for q in patterns))
        if any(p.contradicts(q) for i, p in enumerate(patterns) for q in patterns[i + 1 :]):
            ranges = ()
        ranges = tuple(r for r in ranges if not _refuted(r, patterns))
        points = _text_points(ranges) if patterns else None
        if points is not None:
            kept = tuple((before(v), before(v + "\0")) for v in points if all(p.matches(v) for p in patterns))
            ranges, patterns = _union(kept), ()
        if not ranges:
            return NULL if self.null else NOTHING
        if ranges == EVERYTHING and not patterns:
            return ANYTHING if self.null else NOT_NULL
        return Constraint(self.null, ranges, patterns, self.family)

    # -- asking ---------------------------------------------------------------------------------------------------

    @property
    def is_empty(self) -> bool:
        return not self.null and not self.ranges

    def points(self, kind: Type | None = None) -> tuple[Scalar, ...] | None:
        """The values, if they are finitely many and there is no pattern; for whole numbers the type must be known."""
        return None if self.patterns else _points(self.ranges, kind or _DOMAINS.get(self.family))

    def cells(self, most: int) -> tuple[Cell, ...] | None:
        """The cells of its values, if they are at most so many: a constraint covers only what lies in cells of its own.

        Empty where cells do not tell what covers it, and it has to be compared.
        """
        if self.patterns:
            # What texts may not contain can leave few of them within ranges that seem to hold many.
            return () if any(p.negated and p.kind == "contains" for p in self.patterns) else None
        found: Iterable[Cell] | None
        if self.family == "bool":
            found = [value for value in (False, True) if self.matches(value)]
        elif self.family == "string":
            texts = _text_points(self.ranges, most)
            if texts is None:
                return () if self._is_few_moments(most) else None
            found = map(_moment_or_text, texts)
        else:
            found = _whole_numbers(self.ranges, most)
        if found is None:
            return None
        cells = tuple(dict.fromkeys((None, *found) if self.null else found))
        return cells if len(cells) <= most else None

    def _is_few_moments(self, most: int) -> bool:
        """A stretch of many texts that is short when read as times."""
        try:
            return self.as_timestamps().cells(most) is not None
        except FilterError:
            return False

    def require_codable(self, attribute: str) -> None:
        """Refuse what tells the least integer from the next: 64 bits have room for null or for one of the two."""
        if any(len(cut) == 3 and cut[1] == INT_MIN + 1 for ends in self.ranges for cut in ends):
            raise FilterError(
                f"attribute {attribute!r} is compared with {INT_MIN} or {INT_MIN + 1}; "
                f"accepted are integers from {INT_MIN + 2} on"
            )

    def outside(self) -> Constraint:
        """The values that the ranges leave out, whatever the patterns say."""
        return Constraint(False, _complement(self.ranges), (), self.family)

    def matches(self, value: Scalar | None) -> bool:
        if value is None:
            return self.null
        cut = before(value)
        return any(low <= cut < high for low, high in self.ranges) and all(p.matches(str(value)) for p in self.patterns)

    def covers(self, other: Constraint) -> bool:
        """Every value that satisfies the other satisfies this."""
        if other.null and not self.null:
            return False
        if not _lie_within(other.ranges, self.ranges) and not (other.patterns and self._covers_the_rest(other)):
            return False
        return all(other._implies(p) for p in self.patterns)

    def _covers_the_rest(self, other: Constraint) -> bool:
        """What the other's ranges have beside these, its patterns exclude."""
        missing = _intersect(other.ranges, _complement(self.ranges))
        points = _text_points(tuple(r for r in missing if not _refuted(r, other.patterns)))
        return points is not None and not any(other.matches(v) for v in points)

    def _implies(self, pattern: Pattern) -> bool:
        if any(q.implies(pattern) for q in self.patterns):
            return True
        if self.ranges == EVERYTHING:
            return False
        points = _text_points(self.ranges)
        if points is not None:
            return all(pattern.matches(v) or not self.matches(v) for v in points)
        if pattern.negated or pattern.kind != "contains":
            return False
        return all(pattern.text in _common_prefix(r) for r in self.ranges)

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
        cuts = [_as_time(cut) for r in self.ranges for cut in r]
        if cuts != sorted(cuts):
            raise FilterError(
                "times are written in different forms, whose order as text is not their order in time; "
                "accepted are TIMESTAMP '…' literals, or a schema where the condition is read"
            )
        ranges = tuple(zip(cuts[::2], cuts[1::2], strict=True))
        return Constraint(self.null, ranges, (), "timestamp")._over_family()

    def within(self, kind: Type) -> Constraint:
        """The same set over the values of a type: cuts that no value lies between become one cut."""
        moved = ((_cut_within(low, kind), _cut_within(high, kind)) for low, high in self.ranges)
        ranges = _union(tuple((low, high) for low, high in moved if low < high))
        return Constraint(self.null, ranges, self.patterns, self.family)._simplified()


ANYTHING = Constraint(True, EVERYTHING)
NOT_NULL = Constraint(False, EVERYTHING)
NULL = Constraint(True, ())
NOTHING = Constraint(False, ())

# The families whose values are all of one type.
_DOMAINS: dict[Family | None, Type] = {"bool": Type.BOOL, "string": Type.STRING, "timestamp": Type.TIMESTAMP}


def _require_finite(value: Scalar) -> None:
    if isinstance(value, float) and not math.isfinite(value):
        raise FilterError(f"{value} is no value to compare with; accepted are finite numbers")


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


def _lie_within(narrow: tuple[Range, ...], wide: tuple[Range, ...]) -> bool:
    """Each range lies in one of the others, which do not touch each other."""
    index = 0
    for low, high in narrow:
        while index < len(wide) and wide[index][1] < high:
            index += 1
        if index == len(wide) or low < wide[index][0]:
            return False
    return True


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


def _points(ranges: tuple[Range, ...], kind: Type | None) -> tuple[Scalar, ...] | None:
    if kind is Type.STRING:
        return _text_points(ranges)
    found: list[Scalar] = []
    for low, high in ranges:
        point = _point(low, high, kind)
        if point is None:
            return None
        found.append(point)
    return tuple(found)


def _point(low: Cut, high: Cut, kind: Type | None) -> Scalar | None:
    if kind is Type.BOOL:
        return len(low) == 3 if len(low) != len(high) else None
    if len(low) == 1 or len(high) == 1 or low[2]:
        return None
    value, end = low[1], high[1]
    if high[2]:
        return value if value == end else None
    # Over a discrete domain a point ends just before its successor.
    assert not isinstance(value, str)
    assert not isinstance(end, str)
    if kind is Type.FLOAT:
        return value if end == math.nextafter(value, math.inf) else None
    return value if kind is not None and end == value + 1 else None


ZEROS_MAX = 64
"""A range of more texts that differ only in the zeros behind them is as good as endless: nobody asks for it."""


def _text_points(ranges: tuple[Range, ...], most: int = sys.maxsize) -> tuple[str, ...] | None:
    """The texts, if they are so many at most: between a text and the same with zeros behind it lies nothing else."""
    found: list[str] = []
    for low, high in ranges:
        first, end = "" if len(low) == 1 else str(low[1]), None if len(high) == 1 else str(high[1])
        if end is None or end.rstrip("\0") != first.rstrip("\0"):
            return None
        if len(end) - len(first) > ZEROS_MAX or len(found) + len(end) - len(first) > most:
            return None
        found += [first + "\0" * more for more in range(len(end) - len(first))]
    return tuple(found)


def _moment_or_text(text: str) -> Cell:
    """The same for a time, however it is written."""
    try:
        return microseconds(text)
    except EventError:
        return text


def _whole_numbers(ranges: tuple[Range, ...], most: int) -> Iterable[int] | None:
    """What the numbers are without their fractions, if that is so many at most."""
    found: dict[int, None] = {}
    for low, high in ranges:
        if len(low) == 1 or len(high) == 1:
            return None
        assert not isinstance(low[1], str)
        assert not isinstance(high[1], str)
        first, end = math.floor(low[1]), math.floor(high[1]) + 1 if high[2] else math.ceil(high[1])
        if end - first > most:
            return None
        found.update(dict.fromkeys(range(first, end)))
        if len(found) > most:
            return None
    return found


def _common_prefix(stretch: Range) -> str:
    """What all texts of a range begin with."""
    low, high = stretch
    text = "" if len(low) == 1 else str(low[1])
    while text and high > Pattern("prefix", text).range[1]:
        text = text[:-1]
    return text


def prefix_of(stretch: Range) -> str:
    """What text a range is the prefix range of; empty if of none."""
    text = "" if len(stretch[0]) == 1 else stretch[0][1]
    return text if isinstance(text, str) and text and Pattern("prefix", text).range == stretch else ""


def _refuted(stretch: Range, patterns: tuple[Pattern, ...]) -> bool:
    """All texts of the range begin with what a pattern forbids them to contain."""
    forbidden = [p.text for p in patterns if p.negated and p.kind == "contains"]
    return bool(forbidden) and any(text in _common_prefix(stretch) for text in forbidden)


def _as_time(cut: Cut) -> Cut:
    if len(cut) == 1:
        return cut
    # What stands before a text with a zero at its end stands after the text without it.
    text = str(cut[1]).removesuffix("\0")
    try:
        moment_us = microseconds(text)
    except EventError:
        raise FilterError(f"{text!r} is no time; accepted are times like '2014-08-11 07:30:00'") from None
    return before(moment_us) if text == cut[1] else after(moment_us)


INT_MIN, INT_MAX = -(2**63), 2**63 - 1


def _cut_within(cut: Cut, kind: Type) -> Cut:
    """Move a cut up to just before the next value of the type, so that equal sets have equal cuts."""
    if len(cut) == 1:
        return cut
    _, value, side = cut
    if kind is Type.STRING:
        moved = before(f"{value}\0") if side else cut
        return LOWEST if moved == before("") else moved
    assert not isinstance(value, str)
    if kind is Type.BOOL:
        passed = int(value) + side
        return LOWEST if passed <= 0 else HIGHEST if passed >= 2 else before(True)
    if kind is Type.FLOAT:
        return _float_cut(value, side)
    return _whole_cut(value, side, *((TIME_MIN_US, TIME_MAX_US) if kind is Type.TIMESTAMP else (INT_MIN, INT_MAX)))


def _whole_cut(value: float, side: int, least: int, most: int) -> Cut:
    following = math.floor(value) + 1 if side else math.ceil(value)
    if following <= least:
        return LOWEST
    return HIGHEST if following > most else before(following)


def _float_cut(value: float, side: int) -> Cut:
    """By exact value: a whole number may lie between two doubles, where Spark would round it to one of them."""
    try:
        nearest = float(value)
    except OverflowError:
        return HIGHEST if value > 0 else LOWEST
    if nearest < value or (side and nearest == value):
        nearest = math.nextafter(nearest, math.inf)
    if nearest == math.inf:
        return HIGHEST
    return LOWEST if nearest <= -sys.float_info.max else before(nearest + 0.0)  # -0.0 is 0.0
