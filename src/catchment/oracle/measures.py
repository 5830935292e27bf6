"""Each operator from all of its values at once, exactly, with the bounds within which any engine's answer is right."""

from __future__ import annotations

import math
import statistics
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from catchment.model.operators import BEYOND_DOUBLE, Measure, beyond_integer
from catchment.model.schema import Type

__all__ = ["Result", "measured"]

TOLERANCE = 1e-9
DOUBLE_MAX = Fraction(sys.float_info.max)
BEYOND_MAX = Fraction(2**1024 - 2**970)
"""The least number that is no double any more: below it, the nearest double is the largest one."""
KLL_RANK_ERROR = 0.035
"""Of the rank, for sketches that have had to compact (more values than k); twice the published 99 % bound."""
HLL_ERROR = 0.07
"""Of the count, four standard errors at lgK = 12; below a hundred values the sketch keeps them one by one."""


@dataclass(frozen=True, slots=True)
class Result:
    """A value, and for numbers what is near enough to it."""

    value: Any
    low: float | None = None
    high: float | None = None
    problem: str | None = None
    """What is reported instead of the value, if it is beyond its type."""
    is_borderline: bool = False
    """So near to the end of its type that rounding decides whether it is told or reported: both are right."""


def measured(measure: Measure, values: list[Any], kind: Type) -> Result:
    """The value of a measure over all non-null values of a window."""
    return _MEASURES[measure.operator](values, kind, *measure.parameters)


def _real(value: Fraction, values: list[Any], slack: float = 0.0, *, way: Fraction | None = None) -> Result:
    """A result within the promised tolerance of its exact value, or within a wider one.

    `way` is what has to fit a double to come to the value; without it, the value itself.
    """
    largest = abs(value if way is None else way)
    is_borderline = abs(largest - DOUBLE_MAX) <= DOUBLE_MAX * Fraction(TOLERANCE)
    if largest >= BEYOND_MAX:
        return Result(
            float(min(max(value, -DOUBLE_MAX), DOUBLE_MAX)), -math.inf, math.inf, BEYOND_DOUBLE, is_borderline
        )
    nearest = float(value)
    mean = float(sum(abs(Fraction(v)) for v in values) / len(values))
    slack = max(slack, TOLERANCE * max(abs(nearest), mean))
    return Result(nearest, nearest - slack, nearest + slack, is_borderline=is_borderline)


def _sum(values: list[Any], kind: Type) -> Result:
    if not values:
        return Result(None)
    if kind is Type.FLOAT:
        return _real(sum(map(Fraction, values), Fraction()), values)
    total = sum(values)
    is_within = -(2**63) <= total < 2**63
    return Result(total) if is_within else Result(None, problem=beyond_integer(total))


def _avg(values: list[Any], kind: Type) -> Result:
    return _real(sum(map(Fraction, values), Fraction()) / len(values), values) if values else Result(None)


def _variance(values: list[Any], kind: Type) -> Result:
    if len(values) < 2:
        return Result(None)
    exact = statistics.variance([Fraction(v) for v in values])
    squares = exact * (len(values) - 1)
    if squares >= BEYOND_MAX:
        return _real(exact, values, way=squares)
    # A mean in doubles is off by its own rounding, and each deviation with it: mean · deviation is what squares lose.
    mean = float(sum(abs(Fraction(v)) for v in values) / len(values))
    return _real(exact, values, TOLERANCE * mean * math.sqrt(exact), way=squares)


def _deviation(values: list[Any], kind: Type) -> Result:
    variance = _variance(values, kind)
    if variance.value is None or variance.problem is not None:
        return variance
    deviation = _real(Fraction(math.sqrt(variance.value)), values)
    return replace(deviation, is_borderline=variance.is_borderline)


def _extreme(choose: Callable[[list[Any]], Any]) -> Callable[..., Result]:
    return lambda values, kind: Result(choose(values) if values else None)


def _percentile(values: list[Any], kind: Type, fraction: float = 0.5) -> Result:
    if not values:
        return Result(None)
    ranked = sorted(values)
    position = Fraction(fraction) * (len(ranked) - 1)
    below = math.floor(position)
    above = min(below + 1, len(ranked) - 1)
    between = Fraction(ranked[below]) + (Fraction(ranked[above]) - Fraction(ranked[below])) * (position - below)
    return _real(between, values)


def _mode(values: list[Any], kind: Type) -> Result:
    counts = Counter(values)
    most = max(counts.values(), default=0)
    return Result(min((value for value, count in counts.items() if count == most), default=None))


def _approx_count_distinct(values: list[Any], kind: Type) -> Result:
    count = len(set(values))
    slack = 0 if count <= 100 else HLL_ERROR * count
    return Result(count, count - slack, count + slack)


def _approx_percentile(values: list[Any], kind: Type, fraction: float) -> Result:
    if not values:
        return Result(None)
    ranked = sorted(values)

    def at(share: float) -> Any:
        return ranked[min(max(math.ceil(share * len(ranked)), 1), len(ranked)) - 1]

    error = 0 if len(ranked) <= 200 else KLL_RANK_ERROR
    # The sketch holds doubles, and the double of a large integer lies beside it.
    low, high = (float(at(share)) for share in (fraction - error, fraction + error))
    return Result(at(fraction), math.nextafter(low, -math.inf), math.nextafter(high, math.inf))


def _approx_top_k(values: list[Any], kind: Type, k: float) -> Result:
    ranked = sorted((-count, value) for value, count in Counter(values).items())
    return Result([{"item": value, "count": -negative} for negative, value in ranked[: int(k)]])


_MEASURES: dict[str, Callable[..., Result]] = {
    "count": lambda values, kind: Result(len(values)),
    "sum": _sum,
    "min": _extreme(min),
    "max": _extreme(max),
    "bool_and": _extreme(all),
    "bool_or": _extreme(any),
    "avg": _avg,
    "var_samp": _variance,
    "stddev_samp": _deviation,
    "approx_count_distinct": _approx_count_distinct,
    "approx_percentile": _approx_percentile,
    "approx_top_k": _approx_top_k,
    "median": _percentile,
    "percentile": _percentile,
    "count_distinct": lambda values, kind: Result(len(set(values))),
    "mode": _mode,
}
