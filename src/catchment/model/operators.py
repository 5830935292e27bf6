"""The aggregate operators, one row of OPERATORS each, with four verbs.

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
    VALUES,
    WHOLE_TOTAL,
    BlobState,
    State,
)

__all__ = ["BEYOND_DOUBLE", "OPERATORS", "Measure", "Operator", "beyond_integer", "fits_integer", "operator_named"]


@dataclass(frozen=True, slots=True, order=True)
class Measure:
    """An operator applied to an attribute: one column of an answer."""

    operator: str
    attribute: str | None = None
    parameters: tuple[float, ...] = ()

    def __str__(self) -> str:
        return self._written(self.attribute)

    @property
    def quoted(self) -> str:
        """The text with quotes where the attribute needs them; no other measure has the same, whatever its name."""
        return self._written(_quoted_name(self.attribute))

    def _written(self, attribute: str | None) -> str:
        if attribute is None:
            return f"{self.operator}(*)"
        if self.operator == "count_distinct":
            return f"count(DISTINCT {attribute})"
        numbers = (str(int(p)) if p.is_integer() else repr(p) for p in self.parameters)
        return f"{self.operator}({', '.join([attribute, *numbers])})"

    @property
    def definition(self) -> Operator:
        return OPERATORS[self.operator]

    def state(self, kind: Type) -> State | BlobState:
        return self.definition.state(kind)

    def finish(self, state: Any, kind: Type) -> Any:
        return self.definition.finish(state, kind, *self.parameters)

    def result(self, kind: Type) -> Type | None:
        """The type of the answer over an attribute of a type; None is a list."""
        return self.definition.result(kind)


def _quoted_name(attribute: str | None) -> str | None:
    return attribute if attribute is None or attribute.isidentifier() else "`" + attribute.replace("`", "``") + "`"


@dataclass(frozen=True, slots=True)
class Operator:
    """One row of the table of operators."""

    name: str
    category: Literal["self-decomposable", "indirectly decomposable", "bounded error", "not decomposable"]
    accepts: tuple[Type, ...]
    gives: Type | Literal["the same", "a list"]
    """The type of the result, which may be that of the attribute."""
    travels: State | BlobState
    formula: Callable[..., Any]
    """From a state's numbers, which may be arrays or Spark's columns; or from bytes, the type and the parameters."""
    travels_of_floats: State | None = None
    """What travels over floats, if that is another state."""
    fewest: int = 1
    """Of fewer values, the formula has no result."""
    is_bounded: bool = False
    """Whether the result of a formula is sure to lie within its type."""
    parameters: tuple[str, ...] = ()
    """Names of the arguments after the attribute."""
    spellings: tuple[str, ...] = ()
    """What SQL and its parser call it besides."""

    def state(self, kind: Type) -> State | BlobState:
        return self.travels_of_floats if self.travels_of_floats is not None and kind is Type.FLOAT else self.travels

    def result(self, kind: Type) -> Type | None:
        if isinstance(self.gives, Type):
            return self.gives
        return kind if self.gives == "the same" else None

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

    def finish(self, state: Any, kind: Type, *parameters: float) -> Any:
        travels = self.state(kind)
        if isinstance(travels, BlobState):
            value = self.formula(state, kind, *parameters)
        else:
            count, *numbers = travels.numbers(state)
            value = None if count < self.fewest else self.formula(count, *numbers)
            if value is not None and not self.is_bounded:
                _require_within_type(value)
        return bool(value) if value is not None and self.result(kind) is Type.BOOL else value


BEYOND_DOUBLE = "it is beyond the largest double"


def beyond_integer(total: int) -> str:
    return f"it is {total}, beyond 64 bits"


def fits_integer(total: int) -> bool:
    """Tell whether a total fits 64 bits."""
    return -(2**63) <= total < 2**63


def _require_within_type(value: int | float) -> None:
    if isinstance(value, int):
        if not fits_integer(value):
            raise AggregateOverflowError(beyond_integer(value))
    elif not math.isfinite(value):
        raise AggregateOverflowError(BEYOND_DOUBLE)


def _interpolated(values: list[Any], fraction: float) -> float | None:
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


def _most_frequent(values: list[Any]) -> Any:
    """The value that occurs most often; of several, the smallest."""
    counts = Counter(values)
    return min(counts, key=lambda value: (-counts[value], value)) if counts else None


def _quantile(blob: bytes, kind: Type, fraction: float) -> int | float | None:
    value = QUANTILE_SKETCH.quantile(blob, fraction)
    # The sketch holds doubles, and the double next to the largest integer is beyond it.
    return value if value is None or kind is Type.FLOAT else min(round(value), 2**63 - 1)


_NUMBERS, _ANY = (Type.INT, Type.FLOAT), tuple(Type)

OPERATORS: dict[str, Operator] = {
    operator.name: operator
    for operator in (
        Operator("count", "self-decomposable", _ANY, Type.INT, TALLY, lambda n: n, fewest=0, is_bounded=True),
        Operator(
            "sum", "self-decomposable", _NUMBERS, "the same", WHOLE_TOTAL, lambda n, total, scale: total * scale,
            travels_of_floats=REAL_TOTAL,
        ),
        Operator("min", "self-decomposable", _ANY, "the same", LOWEST, lambda n, least: least, is_bounded=True),
        Operator("max", "self-decomposable", _ANY, "the same", HIGHEST, lambda n, most: most, is_bounded=True),
        Operator(
            "bool_and", "self-decomposable", (Type.BOOL,), "the same", LOWEST, lambda n, least: least,
            is_bounded=True, spellings=("every",),
        ),
        Operator(
            "bool_or", "self-decomposable", (Type.BOOL,), "the same", HIGHEST, lambda n, most: most,
            is_bounded=True, spellings=("some", "any"),
        ),
        Operator(
            "avg", "indirectly decomposable", _NUMBERS, Type.FLOAT, WHOLE_TOTAL,
            lambda n, total, scale: total / n * scale,
            travels_of_floats=REAL_TOTAL, spellings=("mean",),
        ),
        Operator(
            "var_samp", "indirectly decomposable", _NUMBERS, Type.FLOAT, MOMENTS,
            lambda n, mean, squares: squares / (n - 1), fewest=2, spellings=("variance",),
        ),
        Operator(
            "stddev_samp", "indirectly decomposable", _NUMBERS, Type.FLOAT, MOMENTS,
            lambda n, mean, squares: (squares / (n - 1)) ** 0.5, fewest=2, spellings=("stddev", "std"),
        ),
        Operator(
            "approx_count_distinct", "bounded error", _ANY, Type.INT, DISTINCT_SKETCH,
            lambda blob, kind: DISTINCT_SKETCH.estimate(blob),
        ),
        Operator(
            "approx_percentile", "bounded error", _NUMBERS, "the same", QUANTILE_SKETCH, _quantile,
            parameters=("fraction",), spellings=("approx_quantile",),
        ),
        Operator(
            "approx_top_k", "bounded error", (*_NUMBERS, Type.STRING), "a list", TOP_SKETCH,
            lambda blob, kind, k: TOP_SKETCH.top(blob, int(k), kind), parameters=("k",),
        ),
        Operator(
            "median", "not decomposable", _NUMBERS, Type.FLOAT, VALUES,
            lambda blob, kind: _interpolated(VALUES.values(blob, kind), 0.5),
        ),
        Operator(
            "percentile", "not decomposable", _NUMBERS, Type.FLOAT, VALUES,
            lambda blob, kind, fraction: _interpolated(VALUES.values(blob, kind), fraction),
            parameters=("fraction",), spellings=("quantile",),
        ),
        Operator(
            "count_distinct", "not decomposable", _ANY, Type.INT, DISTINCT_VALUES,
            lambda blob, kind: len(DISTINCT_VALUES.values(blob, kind)),
        ),
        Operator(
            "mode", "not decomposable", _ANY, "the same", VALUES,
            lambda blob, kind: _most_frequent(VALUES.values(blob, kind)),
        ),
    )
}  # fmt: skip


def operator_named(spelled: str) -> str | None:
    """Find the operator that SQL calls so."""
    return next((name for name, one in OPERATORS.items() if spelled in (name, *one.spellings)), None)
