"""The aggregate operators: four verbs each.

    state = create(kind)                what nothing is
    state = add(state, value, kind)     one more value, never null
    state = merge(left, right, kind)    any cut, any order
    value = finish(state, …)            what the subscriber reads; None is null

`kind` is the type of the attribute. All verbs take it, whether or not they need it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal

from catchment.model.errors import AggregateOverflowError
from catchment.model.schema import Type
from catchment.model.states import (
    DISTINCT_SKETCH,
    DISTINCT_VALUES,
    HIGHEST,
    LOWEST,
    MOMENTS,
    QUANTILE_SKETCH,
    REAL_TOTAL,
    TALLY,
    TOP_SKETCH,
    UP,
    VALUES,
    WHOLE_TOTAL,
    BlobState,
    State,
)

__all__ = [
    "BEYOND_DOUBLE",
    "OPERATORS",
    "Measure",
    "Operator",
    "beyond_integer",
    "checked_sum",
    "interpolated",
    "most_frequent",
]

NUMBERS = (Type.INT, Type.FLOAT)
ANY = tuple(Type)


@dataclass(frozen=True, slots=True, order=True)
class Measure:
    """An operator applied to an attribute: one column of an answer."""

    operator: str
    attribute: str | None = None
    parameters: tuple[float, ...] = ()

    def __str__(self) -> str:
        if self.attribute is None:
            return f"{self.operator}(*)"
        if self.operator == "count_distinct":
            return f"count(DISTINCT {self.attribute})"
        numbers = (str(int(p)) if p.is_integer() else repr(p) for p in self.parameters)
        return f"{self.operator}({', '.join([self.attribute, *numbers])})"

    @property
    def definition(self) -> Operator:
        return OPERATORS[self.operator]

    def state(self, kind: Type) -> State | BlobState:
        return self.definition.state(kind)

    def finish(self, state: Any, kind: Type) -> Any:
        return self.definition.finish(state, kind, *self.parameters)

    def result(self, kind: Type) -> Type | None:
        """The type of the answer over an attribute of a type; None is a list."""
        return _RESULTS.get(self.operator, kind)


Category = Literal["self-decomposable", "indirectly decomposable", "bounded error", "not decomposable"]


@dataclass(frozen=True, slots=True)
class Operator:
    """One row of the table of operators."""

    name: str
    category: Category
    accepts: tuple[Type, ...]
    state: Callable[[Type], State | BlobState]
    """What travels, which for sums depends on the type of the attribute."""
    finish: Callable[..., Any]
    parameters: tuple[str, ...] = ()
    """Names of the arguments after the attribute."""

    def create(self, kind: Type) -> Any:
        return self.state(kind).create(kind)

    def add(self, state: Any, value: Any, kind: Type) -> Any:
        return self.state(kind).add(state, value, kind)

    def merge(self, left: Any, right: Any, kind: Type) -> Any:
        return self.state(kind).merge(left, right, kind)

    def fold(self, values: Iterable[Any], kind: Type) -> Any:
        state = self.create(kind)
        for value in values:
            state = self.add(state, value, kind)
        return state


BEYOND_DOUBLE = "it is beyond the largest double"


def beyond_integer(total: int) -> str:
    return f"it is {total}, beyond 64 bits"


def checked_sum(total: int) -> int:
    if not -(2**63) <= total < 2**63:
        raise AggregateOverflowError(beyond_integer(total))
    return total


def _checked_real(value: float) -> float:
    if not math.isfinite(value):
        raise AggregateOverflowError(BEYOND_DOUBLE)
    return value


def interpolated(values: list[Any], fraction: float) -> float | None:
    """The percentile as SQL defines it: linear between the two nearest values."""
    if not values:
        return None
    ranked = sorted(values)
    position = fraction * (len(ranked) - 1)
    below = math.floor(position)
    low, high = float(ranked[below]), float(ranked[min(below + 1, len(ranked) - 1)])
    share = position - below
    # Not low + (high - low) * share: the difference may be beyond a double.
    return low if low == high else low * (1 - share) + high * share


def most_frequent(values: list[Any]) -> Any:
    """The value that occurs most often; of several, the smallest."""
    counts = Counter(values)
    return min(counts, key=lambda value: (-counts[value], value)) if counts else None


def _finish_sum(state: Any, kind: Type) -> int | float | None:
    if not state[0]:
        return None
    return checked_sum(state[1]) if kind is Type.INT else _checked_real(_real_sum(state))


def _finish_avg(state: Any, kind: Type) -> float | None:
    if not state[0]:
        return None
    if kind is Type.INT:
        return float(state[1] / state[0])
    count, total, carry, is_down = state
    mean: float = (total + carry) / count
    return mean * UP if is_down else mean


def _real_sum(state: Any) -> float:
    _, total, carry, is_down = state
    return float((total + carry) * UP if is_down else total + carry)


def _finish_variance(state: Any, kind: Type) -> float | None:
    return _checked_real(state[2] / (state[0] - 1)) if state[0] > 1 else None


def _finish_deviation(state: Any, kind: Type) -> float | None:
    variance = _finish_variance(state, kind)
    return None if variance is None else math.sqrt(variance)


def _finish_extreme(state: Any, kind: Type) -> Any:
    return state if state is None or kind is not Type.BOOL else bool(state)


def _finish_quantile(blob: bytes, kind: Type, fraction: float) -> int | float | None:
    value = QUANTILE_SKETCH.quantile(blob, fraction)
    # The sketch holds doubles, and the double next to the largest integer is beyond it.
    return value if value is None or kind is Type.FLOAT else min(round(value), 2**63 - 1)


def _finish_mode(blob: bytes, kind: Type) -> Any:
    return _finish_extreme(most_frequent(VALUES.values(blob, kind)), kind)


def _total(kind: Type) -> State:
    return WHOLE_TOTAL if kind is Type.INT else REAL_TOTAL


_RESULTS: dict[str, Type | None] = {
    "count": Type.INT,
    "avg": Type.FLOAT,
    "var_samp": Type.FLOAT,
    "stddev_samp": Type.FLOAT,
    "approx_count_distinct": Type.INT,
    "approx_top_k": None,
    "median": Type.FLOAT,
    "percentile": Type.FLOAT,
    "count_distinct": Type.INT,
}
"""Where it is not the type of the attribute."""

OPERATORS: dict[str, Operator] = {
    operator.name: operator
    for operator in (
        Operator("count", "self-decomposable", ANY, lambda kind: TALLY, lambda n, kind: n),
        Operator("sum", "self-decomposable", NUMBERS, _total, _finish_sum),
        Operator("min", "self-decomposable", ANY, lambda kind: LOWEST, _finish_extreme),
        Operator("max", "self-decomposable", ANY, lambda kind: HIGHEST, _finish_extreme),
        Operator("bool_and", "self-decomposable", (Type.BOOL,), lambda kind: LOWEST, _finish_extreme),
        Operator("bool_or", "self-decomposable", (Type.BOOL,), lambda kind: HIGHEST, _finish_extreme),
        Operator("avg", "indirectly decomposable", NUMBERS, _total, _finish_avg),
        Operator("var_samp", "indirectly decomposable", NUMBERS, lambda kind: MOMENTS, _finish_variance),
        Operator("stddev_samp", "indirectly decomposable", NUMBERS, lambda kind: MOMENTS, _finish_deviation),
        Operator(
            "approx_count_distinct",
            "bounded error",
            ANY,
            lambda kind: DISTINCT_SKETCH,
            lambda blob, kind: DISTINCT_SKETCH.estimate(blob),
        ),
        Operator(
            "approx_percentile",
            "bounded error",
            NUMBERS,
            lambda kind: QUANTILE_SKETCH,
            _finish_quantile,
            ("fraction",),
        ),
        Operator(
            "approx_top_k",
            "bounded error",
            (Type.INT, Type.FLOAT, Type.STRING),
            lambda kind: TOP_SKETCH,
            lambda blob, kind, k: TOP_SKETCH.top(blob, int(k), kind),
            ("k",),
        ),
        Operator(
            "median",
            "not decomposable",
            NUMBERS,
            lambda kind: VALUES,
            lambda blob, kind: interpolated(VALUES.values(blob, kind), 0.5),
        ),
        Operator(
            "percentile",
            "not decomposable",
            NUMBERS,
            lambda kind: VALUES,
            lambda blob, kind, fraction: interpolated(VALUES.values(blob, kind), fraction),
            ("fraction",),
        ),
        Operator(
            "count_distinct",
            "not decomposable",
            ANY,
            lambda kind: DISTINCT_VALUES,
            lambda blob, kind: len(DISTINCT_VALUES.values(blob, kind)),
        ),
        Operator("mode", "not decomposable", ANY, lambda kind: VALUES, _finish_mode),
    )
}
