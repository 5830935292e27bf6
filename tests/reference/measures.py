"""Operators as drawn: what Spark is asked for, and what plain arithmetic makes of it."""

from __future__ import annotations

import math
import statistics
import sys
from collections import Counter
from dataclasses import dataclass
from datetime import datetime, timedelta
from fractions import Fraction
from typing import Any

from tests.reference.values import EPOCH, Family

__all__ = ["BEYOND", "OPERATORS", "Expected", "Measure", "key_text", "time_text"]

TOLERANCE = Fraction(1, 10**9)
LARGEST, SMALLEST = Fraction(sys.float_info.max), Fraction(5e-324)
"""No double lies beyond the one, nor between the other and 0."""
NUMBERS: tuple[Family, ...] = ("int", "float")
ANY: tuple[Family, ...] = ("bool", "int", "float", "string", "time")


@dataclass(frozen=True, slots=True)
class Expected:
    """A value, with the least and the greatest number that is as right."""

    value: Any
    low: Any = None
    high: Any = None
    text: str | None = None
    """How a time is told."""
    borderline: bool = False
    """So near to the end of its type that rounding decides whether it is told or reported."""

    @property
    def ends(self) -> tuple[Any, Any] | None:
        """What HAVING may see; None is null."""
        if self.value is None:
            return None
        return (self.value, self.value) if self.low is None else (self.low, self.high)


BEYOND = Expected("beyond its type")
"""A value that its type cannot hold: reported, not told."""

OPERATORS: dict[str, tuple[tuple[Family, ...], Family | None]] = {
    "count": (ANY, "int"),
    "sum": (NUMBERS, None),
    "avg": (NUMBERS, "float"),
    "min": (ANY, None),
    "max": (ANY, None),
    "bool_and": (("bool",), "bool"),
    "bool_or": (("bool",), "bool"),
    "var_samp": (NUMBERS, "float"),
    "stddev_samp": (NUMBERS, "float"),
    "median": (NUMBERS, "float"),
    "percentile": (NUMBERS, "float"),
    "count_distinct": (ANY, "int"),
    "mode": (ANY, None),
    "approx_count_distinct": (ANY, "int"),
    "approx_percentile": (NUMBERS, None),
    "approx_top_k": (("int", "float", "string"), None),
}
"""What each accepts, and the family of its result where it is not that of its column."""


@dataclass(frozen=True, slots=True)
class Measure:
    """An operator over a column; `name` is how a subscription writes the column, `column` how the reference does."""

    operator: str
    name: str = ""
    column: str = ""
    family: Family = "int"
    parameter: str = ""

    @property
    def text(self) -> str:
        if not self.name:
            return "count(*)"
        if self.operator == "count_distinct":
            return f"count(DISTINCT {self.name})"
        return f"{self.operator}({self.name}{', ' + self.parameter if self.parameter else ''})"

    @property
    def plain_text(self) -> str:
        """The text with its name as it is, which names an output without an alias."""
        return self.text if not self.name else self.text.replace(self.name, self.name[1:-1].replace("``", "`"))

    @property
    def result(self) -> Family:
        return OPERATORS[self.operator][1] or self.family

    @property
    def spark_sql(self) -> str:
        """What Spark computes: the value itself where its meaning is the same, else all values."""
        if not self.name:
            return "count(*)"
        column = f"unix_micros({self.column})" if self.family == "time" else self.column
        simple = {"count", "min", "max", "bool_and", "bool_or"}
        if self.operator in simple:
            return f"{self.operator}({column})"
        if self.operator == "sum" and self.family == "int":
            return f"CAST(sum(CAST({column} AS DECIMAL(38, 0))) AS STRING)"
        if self.operator == "count_distinct":
            return f"size(collect_set({column}))"
        if self.operator == "mode":
            return f"mode({column}, true)"
        if self.operator in ("median", "percentile"):
            fraction = self.parameter or "0.5"
            return f"named_struct('values', collect_list({column}), 'value', percentile({column}, {fraction}))"
        return f"collect_list({column})"

    def expected(self, found: Any) -> Expected:
        """From what Spark found, as JSON holds it."""
        finish = _FINISHES.get(self.operator)
        if self.operator == "sum":
            finish = _whole_sum if self.family == "int" else _real_sum
        if finish is None:
            return _exact(found, self.result)
        return finish(found, self)


def time_text(time_us: int) -> str:
    moment: datetime = EPOCH + timedelta(microseconds=time_us)
    return moment.replace(tzinfo=None).isoformat(sep="T", timespec="microseconds") + "Z"


def key_text(value: Any, family: Family) -> str | None:
    """A group key as a notification writes it."""
    if value is None:
        return None
    if family == "time":
        return time_text(value)
    if family == "bool":
        return "true" if value else "false"
    return repr(float(value) + 0.0) if family == "float" else str(value)


def _exact(value: Any, family: Family) -> Expected:
    if value is not None and family == "float":
        return Expected(float(value))
    return Expected(value, text=time_text(value) if value is not None and family == "time" else None)


def _near(
    value: Fraction, values: list[Any], slack: Fraction = Fraction(0), *, way: Fraction | None = None
) -> Expected:
    """Within the promised precision; `way` is what must fit a double on the way to the value, else the value itself."""
    largest = abs(value if way is None else way)
    if largest > LARGEST * (1 + TOLERANCE):
        return BEYOND
    mean = sum((abs(Fraction(v)) for v in values), Fraction()) / len(values)
    slack = max(slack, TOLERANCE * max(abs(value), mean), SMALLEST)
    borderline = largest > LARGEST * (1 - TOLERANCE)
    return Expected(float(min(max(value, -LARGEST), LARGEST)), value - slack, value + slack, borderline=borderline)


def _whole_sum(found: str | None, measure: Measure) -> Expected:
    if found is None:
        return Expected(None)
    total = int(found)
    return Expected(total) if -(2**63) <= total < 2**63 else BEYOND


def _total(values: list[Any]) -> Fraction:
    return sum(map(Fraction, values), Fraction())


def _real_sum(values: list[Any], measure: Measure) -> Expected:
    return _near(_total(values), values) if values else Expected(None)


def _avg(values: list[Any], measure: Measure) -> Expected:
    return _near(_total(values) / len(values), values) if values else Expected(None)


def _variance(values: list[Any], measure: Measure) -> Expected:
    if len(values) < 2:
        return Expected(None)
    exact = statistics.variance([Fraction(v) for v in values])
    # A mean in doubles is off by its own rounding, and every deviation with it.
    mean = sum((abs(Fraction(v)) for v in values), Fraction()) / len(values)
    return _near(exact, values, TOLERANCE * mean * _root(exact), way=exact * (len(values) - 1))


def _deviation(values: list[Any], measure: Measure) -> Expected:
    if len(values) < 2:
        return Expected(None)
    variance = statistics.variance([Fraction(v) for v in values])
    # The sum of squared deviations is what travels, and has to fit a double also where its root would.
    return _near(_root(variance), values, way=variance * (len(values) - 1))


def _root(value: Fraction) -> Fraction:
    """Also of what is beyond a double."""
    scale = 2**700 if value > 2**1000 else 1
    return Fraction(math.sqrt(value / scale**2)) * scale


def _percentile(found: dict[str, Any], measure: Measure) -> Expected:
    if found["value"] is None:
        return Expected(None)
    if math.isinf(found["value"]):
        # Spark takes the difference of two values on the way, which may be beyond a double where the result is not.
        return Expected(LARGEST, -LARGEST, LARGEST, borderline=True)
    return _near(Fraction(float(found["value"])), found["values"])


def _approx_count_distinct(values: list[Any], measure: Measure) -> Expected:
    count = len(set(values))
    slack = 0 if count <= 100 else 0.07 * count
    return Expected(count, count - slack, count + slack)


def _approx_percentile(values: list[Any], measure: Measure) -> Expected:
    if not values:
        return Expected(None)
    ranked = sorted(values)
    error = 0.5 / len(ranked) if len(ranked) <= 200 else 0.035

    def at(share: float) -> Any:
        return ranked[min(max(math.ceil(share * len(ranked)), 1), len(ranked)) - 1]

    fraction = float(measure.parameter)
    low, high = Fraction(at(fraction - error)), Fraction(at(fraction + error))
    # The sketch holds doubles, so that an integer beyond 2^53 comes back as a neighbour.
    return Expected(at(fraction), low - abs(low) / 2**52, high + abs(high) / 2**52)


def _approx_top_k(values: list[Any], measure: Measure) -> Expected:
    ranked = sorted((-count, value) for value, count in Counter(values).items())
    return Expected([{"item": value, "count": -negative} for negative, value in ranked[: int(measure.parameter)]])


_FINISHES = {
    "avg": _avg,
    "var_samp": _variance,
    "stddev_samp": _deviation,
    "median": _percentile,
    "percentile": _percentile,
    "approx_count_distinct": _approx_count_distinct,
    "approx_percentile": _approx_percentile,
    "approx_top_k": _approx_top_k,
}
