"""The matching benchmark: one workload of 20 attributes, so that figures compare between changes and engines.

The benchmark's text leaves some draws open. Taken here, and checked by a test against the selectivities it states:
values of `topic =` follow the topics' own frequency, and all other values are uniform; ranges and inequalities on the
Zipf integers are as wide in probability as the others are in value; patterns have one to three letters.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from random import Random
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from catchment.model.errors import ConfigurationError
from catchment.model.schema import Schema, Type

__all__ = [
    "MATCHING_SCHEMA",
    "MatchingProfile",
    "PlainConstraint",
    "condition_of",
    "matching_constraints",
    "matching_events",
    "matching_filters",
]

MatchingProfile = Literal["broad", "narrow", "ranges"]
Operator = Literal["=", "!=", "<", "<=", ">", ">=", "BETWEEN", "IN", "PREFIX", "SUFFIX", "CONTAINS", "IS NOT NULL"]
Value = bool | int | float | str


class PlainConstraint(NamedTuple):
    """One condition on one attribute; a filter is the conjunction of several, on different attributes."""

    attribute: str
    operator: Operator
    operands: tuple[Value, ...]


_TOPICS = tuple(f"topic{index:02}" for index in range(100))
_ALPHABET = "aeiolmnprstu"
_WORD_COUNT = 1_000
_INTEGERS = {"i1": 1_000, "i2": 1_000, "i3": 100_000, "i4": 100_000}
_ZIPF_INTEGERS = {"i5": 1_000, "i6": 1_000}
_FLOATS = ("f1", "f2", "f3", "f4", "f5")
_STRINGS = ("s1", "s2", "s3", "s4", "s5", "s6")
_BOOLS = {"b1": 0.5, "b2": 0.9}
_NUMBERS = (*_INTEGERS, *_ZIPF_INTEGERS, *_FLOATS)

MATCHING_SCHEMA = Schema(
    {
        "topic": Type.STRING,
        **dict.fromkeys((*_INTEGERS, *_ZIPF_INTEGERS), Type.INT),
        **dict.fromkeys(_FLOATS, Type.FLOAT),
        **dict.fromkeys(_STRINGS, Type.STRING),
        **dict.fromkeys(_BOOLS, Type.BOOL),
    }
)


@lru_cache(maxsize=1)
def _words() -> dict[str, tuple[str, ...]]:
    # The vocabulary belongs to the benchmark, not to a seed: events and filters of any seeds share it.
    random = Random(1_000)
    return {name: tuple(itertools.islice(_distinct_words(random), _WORD_COUNT)) for name in _STRINGS}


def _distinct_words(random: Random) -> Iterator[str]:
    seen: set[str] = set()
    while True:
        word = "".join(_pick(random, _ALPHABET) for _ in range(_whole(random, 5, 12)))
        if word not in seen:
            seen.add(word)
            yield word


def _zipf(count: int, exponent: float) -> npt.NDArray[np.float64]:
    weights: npt.NDArray[np.float64] = np.arange(1, count + 1, dtype=np.float64) ** -exponent
    return weights / float(weights.sum())


@lru_cache(maxsize=4)
def _cumulative(count: int) -> tuple[float, ...]:
    # Rounding may leave the sum a little below 1, and a draw above it: the last one takes the rest.
    return (*np.cumsum(_zipf(count, 1.0)).tolist()[:-1], 1.0)


def matching_events(seed: int, count: int = 65_536) -> pa.Table:
    """Events as a table of the 20 attributes; each has 8 to 20 of them, `topic` always."""
    random = np.random.default_rng(seed)
    values: dict[str, pa.Array] = {"topic": pa.array(_TOPICS).take(_draw(random, count, _zipf(100, 1.0)))}
    for name, below in _INTEGERS.items():
        values[name] = pa.array(random.integers(0, below, count))
    for name, below in _ZIPF_INTEGERS.items():
        values[name] = _draw(random, count, _zipf(below, 1.0))
    for name in _FLOATS:
        values[name] = pa.array(random.integers(0, 1_000_000, count) / 1e6)
    for name in _STRINGS:
        values[name] = pa.array(_words()[name]).take(_draw(random, count, _zipf(_WORD_COUNT, 0.8)))
    for name, share in _BOOLS.items():
        values[name] = pa.array(random.random(count) < share)
    optional = [name for name in MATCHING_SCHEMA if name != "topic"]
    rank = random.random((count, len(optional))).argsort(axis=1).argsort(axis=1)
    present = rank < random.integers(7, 20, count)[:, None]
    nothing = pa.scalar(None)
    for position, name in enumerate(optional):
        column = values[name]
        values[name] = pc.if_else(pa.array(present[:, position]), column, nothing.cast(column.type))
    return pa.table({name: values[name].cast(kind.arrow) for name, kind in MATCHING_SCHEMA.attributes.items()})


def _draw(random: np.random.Generator, count: int, shares: npt.NDArray[np.float64]) -> pa.Array:
    return pa.array(np.minimum(np.searchsorted(np.cumsum(shares), random.random(count)), len(shares) - 1))


def matching_constraints(profile: MatchingProfile, count: int, seed: int) -> dict[str, tuple[PlainConstraint, ...]]:
    """Filters as plain constraints, for those who build filter values without parsing SQL."""
    if profile not in _PROFILES:
        raise ConfigurationError(f"profile={profile!r}; accepted are {', '.join(_PROFILES)}")
    random = Random(seed)
    draw, width = _PROFILES[profile], len(str(max(0, count - 1)))
    return {f"{profile}-{index:0{width}}": draw(random) for index in range(count)}


def matching_filters(profile: MatchingProfile, count: int, seed: int) -> dict[str, str]:
    """The same filters as SQL conditions."""
    return {name: condition_of(filter_) for name, filter_ in matching_constraints(profile, count, seed).items()}


def condition_of(constraints: Sequence[PlainConstraint]) -> str:
    """The SQL condition that says the same."""
    return " AND ".join(_sql(constraint) for constraint in constraints)


def _sql(constraint: PlainConstraint) -> str:
    attribute, operator, operands = constraint
    match operator:
        case "IS NOT NULL":
            return f"{attribute} IS NOT NULL"
        case "BETWEEN":
            return f"{attribute} BETWEEN {_literal(operands[0])} AND {_literal(operands[1])}"
        case "IN":
            return f"{attribute} IN ({', '.join(map(_literal, operands))})"
        case "PREFIX":
            return f"{attribute} LIKE '{operands[0]}%'"
        case "SUFFIX":
            return f"{attribute} LIKE '%{operands[0]}'"
        case "CONTAINS":
            return f"{attribute} LIKE '%{operands[0]}%'"
        case _:
            return f"{attribute} {operator} {_literal(operands[0])}"


def _literal(value: Value) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    # Floats have six decimals: written out, as some SQL reads 1e-05 as another type.
    return f"'{value}'" if isinstance(value, str) else f"{value:.6f}" if isinstance(value, float) else str(value)


# Only Random.random() is promised to stay the same from one Python to the next, so all draws are made of it.


def _whole(random: Random, low: int, high: int) -> int:
    return low + int(random.random() * (high - low + 1))


def _pick(random: Random, among: Sequence[str]) -> str:
    return among[int(random.random() * len(among))]


def _some(random: Random, among: Sequence[str], count: int) -> tuple[str, ...]:
    chosen: dict[str, None] = {}
    while len(chosen) < count:
        chosen[_pick(random, among)] = None
    return tuple(chosen)


def _uniform(random: Random, low: float, high: float) -> float:
    return low + random.random() * (high - low)


def _quantile(attribute: str, share: float) -> int | float:
    """The value under which this share of the attribute's values is."""
    if attribute in _INTEGERS:
        return int(share * _INTEGERS[attribute])
    if attribute in _ZIPF_INTEGERS:
        return bisect_left(_cumulative(_ZIPF_INTEGERS[attribute]), share)
    return round(share, 6)


def _range(random: Random, attribute: str, low: float, high: float) -> PlainConstraint:
    width = _uniform(random, low, high)
    first = _uniform(random, 0.0, 1.0 - width)
    return PlainConstraint(attribute, "BETWEEN", (_quantile(attribute, first), _quantile(attribute, first + width)))


def _anchor_broad(random: Random) -> PlainConstraint:
    kind = random.random()
    if kind < 0.60:
        return PlainConstraint("topic", "=", (_TOPICS[bisect_left(_cumulative(100), random.random())],))
    if kind < 0.85:
        return _range(random, _pick(random, _NUMBERS), 0.02, 0.08)
    name = _pick(random, _STRINGS)
    return PlainConstraint(name, "IN", _some(random, _words()[name], 4))


def _anchor_narrow(random: Random) -> PlainConstraint:
    kind = random.random()
    if kind < 0.40:
        name = _pick(random, _STRINGS)
        return PlainConstraint(name, "=", (_pick(random, _words()[name]),))
    if kind < 0.70:
        return PlainConstraint(_pick(random, ("i1", "i2")), "=", (_whole(random, 0, 999),))
    if kind < 0.85:
        return _range(random, _pick(random, _FLOATS), 0.0002, 0.001)
    return PlainConstraint(_pick(random, ("i3", "i4")), "=", (_whole(random, 0, 99_999),))


def _further(random: Random, attribute: str) -> PlainConstraint:
    if attribute == "topic":
        if random.random() < 0.60:
            return PlainConstraint(attribute, "IN", _some(random, _TOPICS, 8))
        return PlainConstraint(attribute, "!=", (_pick(random, _TOPICS),))
    if attribute in _BOOLS:
        return PlainConstraint(attribute, "=", (random.random() < 0.5,))
    return (_further_string if attribute in _STRINGS else _further_number)(random, attribute)


def _further_number(random: Random, attribute: str) -> PlainConstraint:
    kind = random.random()
    if kind < 0.42:
        return _range(random, attribute, 0.3, 0.7)
    if kind < 0.88:
        share = _uniform(random, 0.3, 0.8)
        if random.random() < 0.5:
            return PlainConstraint(attribute, "<" if random.random() < 0.5 else "<=", (_quantile(attribute, share),))
        return PlainConstraint(attribute, ">" if random.random() < 0.5 else ">=", (_quantile(attribute, 1.0 - share),))
    value = _quantile(attribute, random.random())
    if kind < 0.92:
        return PlainConstraint(attribute, "!=", (value,))
    return PlainConstraint(attribute, "IS NOT NULL", ()) if kind < 0.96 else PlainConstraint(attribute, "=", (value,))


def _further_string(random: Random, attribute: str) -> PlainConstraint:
    kind, words = random.random(), _words()[attribute]
    word = _pick(random, words)
    if kind < 0.30:
        return PlainConstraint(attribute, "IN", _some(random, words, 16))
    if kind < 0.45:
        return PlainConstraint(attribute, "!=", (word,))
    if kind < 0.65:
        return PlainConstraint(attribute, "PREFIX", (word[: _whole(random, 1, 3)],))
    if kind < 0.77:
        return PlainConstraint(attribute, "SUFFIX", (word[-_whole(random, 1, 3) :],))
    if kind < 0.92:
        length = _whole(random, 1, 3)
        at = _whole(random, 0, len(word) - length)
        return PlainConstraint(attribute, "CONTAINS", (word[at : at + length],))
    return PlainConstraint(attribute, "IS NOT NULL", ())


def _anchored(anchor: Callable[[Random], PlainConstraint]) -> Callable[[Random], tuple[PlainConstraint, ...]]:
    def draw(random: Random) -> tuple[PlainConstraint, ...]:
        first = anchor(random)
        others = tuple(name for name in MATCHING_SCHEMA if name != first.attribute)
        return (first, *(_further(random, name) for name in _some(random, others, _whole(random, 0, 5))))

    return draw


def _only_ranges(random: Random) -> tuple[PlainConstraint, ...]:
    names = _some(random, _NUMBERS, _whole(random, 3, 6))
    return tuple(_range(random, name, 0.2, 0.6) for name in names)


_PROFILES: dict[str, Callable[[Random], tuple[PlainConstraint, ...]]] = {
    "broad": _anchored(_anchor_broad),
    "narrow": _anchored(_anchor_narrow),
    "ranges": _only_ranges,
}
