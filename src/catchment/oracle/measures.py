"""Each operator from all of its values at once, exactly, with the bounds within which any engine's answer is right."""

from __future__ import annotations

import math
import statistics
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from catchment.model.errors import AggregateOverflowError
from catchment.model.operators import Measure
from catchment.model.schema import Type

__all__ = ["Result", "measured"]

TOLERANCE = 1e-9
DOUBLE_MAX = Fraction(sys.float_info.max)
KLL_RANK_ERROR = 0.035
"""Of the rank, for sketches that have had to compact (more values than k); twice the published 99 % bound."""
HLL_ERROR = 0.07
"""Of the count, four standard errors at lgK = 12; below a hundred values the sketch keeps them one by one."""


@dataclass(frozen=True, slots=True)
class Result:
    """A value, and for numbers what is near enough to it.

    Infinite bounds are where a total on the way to the value may be beyond a double: then any answer is right.
    """

    value: Any
    low: float | None = None
    high: float | None = None


def measured(measure: Measure, values: list[Any], kind: Type) -> Result:
    """The value of a measure over all non-null values of a window."""
    return _MEASURES[measure.operator](values, kind, *measure.parameters)


def _real(value: Fraction, values: list[Any], slack: float = 0.0) -> Result:
    """A result within the promised tolerance of its exact value, or within a wider one."""
    total = sum(abs(Fraction(v)) for v in values)
    if total > DOUBLE_MAX or abs(value) > DOUBLE_MAX:
        return Result(_double(value), -math.inf, math.inf)
    nearest = float(value)
    slack = max(slack, TOLERANCE * max(abs(nearest), float(total / len(values))))
    return Result(nearest, nearest - slack, nearest + slack)


def _double(value: Fraction) -> float:
    if abs(value) <= DOUBLE_MAX:
        return float(value)
    return math.inf if value > 0 else -math.inf


def _sum(values: list[Any], kind: Type) -> Result:
    if not values:
        return Result(None)
    if kind is Type.FLOAT:
        return _real(sum(map(Fraction, values), Fraction()), values)
    total = sum(values)
    if not -(2**63) <= total < 2**63:
        raise AggregateOverflowError(f"a sum of integers is {total}; accepted are sums within 64 bits")
    return Result(total)


def _avg(values: list[Any], kind: Type) -> Result:
    return _real(sum(map(Fraction, values), Fraction()) / len(values), values) if values else Result(None)


def _variance(values: list[Any], kind: Type) -> Result:
    if len(values) < 2:
        return Result(None)
    exact = statistics.variance([Fraction(v) for v in values])
    if sum(Fraction(v) ** 2 for v in values) > DOUBLE_MAX / 4:
        return Result(_double(exact), -math.inf, math.inf)
    # A mean in doubles is off by its own rounding, and each deviation with it: mean · deviation is what squares lose.
    mean = float(sum(abs(Fraction(v)) for v in values) / len(values))
    return _real(exact, values, TOLERANCE * mean * math.sqrt(exact))


def _deviation(values: list[Any], kind: Type) -> Result:
    if len(values) < 2:
        return Result(None)
    variance = _variance(values, kind)
    if variance.high == math.inf:
        return Result(math.sqrt(variance.value), -math.inf, math.inf)
    return _real(Fraction(math.sqrt(variance.value)), values)


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
    return Result(at(fraction), float(at(fraction - error)), float(at(fraction + error)))


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
