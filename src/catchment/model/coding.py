"""Filters as plain lists and back, for messages between processes.

    filter       [conjunction, …]
    conjunction  [[attribute, family, may be null, ranges, patterns], …]
    range        [low, high], each [] for no end, or [value, 0 just before it | 1 just after it]
    pattern      [kind, text, negated]

Rule 1: what is read back is checked as if an enemy had written it; then it is normalised again.
"""

from __future__ import annotations

import math
from typing import Any, cast

from catchment.model.constraint import ANYTHING, HIGHEST, LOWEST, Constraint, Cut, Family, Pattern, Range, Scalar
from catchment.model.errors import FilterError
from catchment.model.filter import DISJUNCTS_MAX, Conjunction, Filter
from catchment.model.times import TIME_MAX_US, TIME_MIN_US

__all__ = ["filter_from_plain", "filter_to_plain"]

CONSTRAINTS_MAX = 1024
RANGES_MAX = 65_536
_TYPES: dict[Family | None, tuple[type, ...]] = {
    "number": (int, float),
    "string": (str,),
    "bool": (bool,),
    "timestamp": (int,),
    None: (),
}
_PATTERNS = ("suffix", "contains")


def filter_to_plain(condition: Filter) -> list[Any]:
    return [
        [
            [name, c.family, c.null, [[_end(low), _end(high)] for low, high in c.ranges], _patterns(c)]
            for name, c in conjunction
        ]
        for conjunction in condition.disjuncts
    ]


def _end(cut: Cut) -> list[Any]:
    return [cut[1], cut[2]] if len(cut) == 3 else []


def _patterns(constraint: Constraint) -> list[Any]:
    return [[p.kind, p.text, p.negated] for p in constraint.patterns]


def filter_from_plain(plain: object) -> Filter:
    """The filter that `filter_to_plain` was given; anything else is a FilterError."""
    conjunctions = [_conjunction(one) for one in _list(plain, "a filter", DISJUNCTS_MAX)]
    return Filter.of(conjunctions)


def _conjunction(plain: object) -> Conjunction:
    constraints: dict[str, Constraint] = {}
    for one in _list(plain, "a conjunction", CONSTRAINTS_MAX):
        parts = _list(one, "a constraint", 5)
        _require(len(parts) == 5, "a constraint", one, "five parts")
        name, family, null, ranges, patterns = parts
        _require(isinstance(name, str) and name not in constraints, "an attribute", name, "a name, each once")
        known = family is None or (isinstance(family, str) and family in _TYPES)
        _require(known, "a family", family, "number, string, bool, timestamp or none")
        _require(isinstance(null, bool), "whether null is accepted", null, "true or false")
        read = Constraint(null, _ranges(ranges, family), _read_patterns(patterns, family), family)
        constraints[name] = read.intersect(ANYTHING)
    return Conjunction.of(constraints)


def _ranges(plain: object, family: Family | None) -> tuple[Range, ...]:
    found: list[Range] = []
    for one in _list(plain, "ranges", RANGES_MAX):
        ends = _list(one, "a range", 2)
        _require(len(ends) == 2, "a range", one, "two ends")
        low, high = _cut(ends[0], family, LOWEST), _cut(ends[1], family, HIGHEST)
        _require(low < high and (not found or found[-1][1] < low), "a range", one, "ranges in ascending order")
        found.append((low, high))
    return tuple(found)


def _cut(plain: object, family: Family | None, none: Cut) -> Cut:
    parts = _list(plain, "an end", 2)
    if not parts:
        return none
    _require(len(parts) == 2, "an end", plain, "a value and a side")
    value, side = parts
    fits = isinstance(value, _TYPES[family]) and isinstance(value, bool) is (family == "bool")
    _require(fits and not (isinstance(value, float) and not math.isfinite(value)), "a value", value, f"a {family}")
    in_range = family != "timestamp" or TIME_MIN_US <= cast(int, value) <= TIME_MAX_US
    _require(in_range, "a time", value, "a time of the years 1 to 9999")
    # Texts, truth values and times have one domain, where every cut stands before a value.
    sides = (0, 1) if family == "number" else (0,)
    _require(isinstance(side, int) and not isinstance(side, bool) and side in sides, "a side", side, f"{sides}")
    return (1, cast(Scalar, value), cast(int, side))


def _read_patterns(plain: object, family: Family | None) -> tuple[Pattern, ...]:
    found = []
    for one in _list(plain, "patterns", CONSTRAINTS_MAX):
        parts = _list(one, "a pattern", 3)
        _require(len(parts) == 3 and family == "string", "a pattern", one, "kind, text, negated, of a string")
        kind, text, negated = parts
        fits = kind in _PATTERNS and isinstance(text, str) and text and isinstance(negated, bool)
        _require(bool(fits), "a pattern", one, f"{' or '.join(_PATTERNS)}, a text, true or false")
        found.append(Pattern(kind, text, negated))
    return tuple(sorted(set(found)))


def _list(plain: object, what: str, most: int) -> list[Any]:
    if not isinstance(plain, (list, tuple)) or len(plain) > most:
        raise FilterError(f"{what} is {str(plain)[:80]!r}; accepted is a list of at most {most}")
    return list(plain)


def _require(fits: bool, what: str, given: object, accepted: str) -> None:
    if not fits:
        raise FilterError(f"{what} is {str(given)[:80]!r}; accepted: {accepted}")
