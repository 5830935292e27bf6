"""What travels of an aggregate: the mergeable states behind the operators, one row of STATES each.

Each state has three of the four verbs (`finish` belongs to the operator):

    create(kind)              nothing seen yet
    add(state, value, kind)   one more value, never null
    merge(left, right, kind)  any cut, any order

States are small frozen tuples; sketches and collected values are bytes, ready for the wire. `catchment.stages` does
the same over whole columns. All verbs take the type, needed or not.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import datasketches
import msgspec
import numpy as np

from catchment.model import quantiles
from catchment.model.schema import Type

__all__ = ["COLLECTED", "DOWN", "STATES", "UP", "BlobState", "State"]

Value = bool | int | float | str


@dataclass(frozen=True, slots=True)
class State:
    """A state of a few numbers (or, for the extreme of strings, one string)."""

    name: str
    contents: str
    """In words."""
    size_bytes: int
    """On the wire."""
    create: Callable[[Type], Any]
    add: Callable[[Any, Any, Type], Any]
    merge: Callable[[Any, Any, Type], Any]
    numbers: Callable[[Any], tuple[Any, ...]]
    """What the formulas of operators take: how many values it has met, and the rest."""

    @property
    def size_bytes_max(self) -> int:
        return self.size_bytes


def _two_sum(total: float, carry: float, value: float) -> tuple[float, float]:
    """Add to a sum whose rounding errors are kept beside it, so that the order of adding does not show."""
    new = total + value
    lost = (total - new) + value if abs(total) >= abs(value) else (value - new) + total
    return new, carry + lost


DOWN, UP = 2.0**-200, 2.0**200
"""Sums that a double cannot hold on the way are kept so many times smaller; no number of events fills that up."""


def _merge_real_total(left: Any, right: Any, kind: Type) -> Any:
    """States are (count, sum, what rounding lost of it, whether both are DOWN times their size)."""
    if left[3] != right[3]:
        left, right = _scaled_down(left), _scaled_down(right)
    total, carry = _two_sum(left[1], left[2] + right[2], right[1])
    if not math.isfinite(total):
        return _merge_real_total(_scaled_down(left), _scaled_down(right), kind)
    return (left[0] + right[0], total, carry, left[3])


def _scaled_down(state: Any) -> Any:
    count, total, carry, is_down = state
    return state if is_down else (count, total * DOWN, carry * DOWN, 1)


def _merge_moments(left: Any, right: Any, kind: Type) -> Any:
    (n, mean, squares), (m, other_mean, other_squares) = left, right
    if not n or not m:
        return left if n else right
    count, distance = n + m, other_mean - mean
    share = m / count
    return (count, mean + distance * share, squares + other_squares + distance * (n * share) * distance)


def _extreme(choose: Callable[[Any, Any], Any], name: str, contents: str) -> State:
    def either(left: Any, right: Any, kind: Type) -> Any:
        if left is None or right is None:
            return right if left is None else left
        return choose(left, right)

    return State(name, contents, 8, lambda kind: None, either, either, lambda value: (int(value is not None), value))


TALLY = State(
    "tally",
    "a count",
    size_bytes=8,
    create=lambda kind: 0,
    add=lambda n, value, kind: n + 1,
    merge=lambda n, m, kind: n + m,
    numbers=lambda n: (n,),
)
WHOLE_TOTAL = State(
    "whole total",
    "count and sum",
    size_bytes=16,
    create=lambda kind: (0, 0),
    add=lambda state, value, kind: (state[0] + 1, state[1] + int(value)),
    merge=lambda left, right, kind: (left[0] + right[0], left[1] + right[1]),
    numbers=lambda state: (*state, 1),
)
REAL_TOTAL = State(
    "real total",
    "count, sum, and what the sum lost by rounding",
    size_bytes=16,
    create=lambda kind: (0, 0.0, 0.0, 0),
    add=lambda state, value, kind: _merge_real_total(state, (1, float(value), 0.0, 0), kind),
    merge=_merge_real_total,
    # The scale apart, as a mean may fit a double where the sum does not.
    numbers=lambda state: (state[0], state[1] + state[2], UP if state[3] else 1.0),
)
MOMENTS = State(
    "moments",
    "count, mean, sum of squared deviations",
    size_bytes=24,
    create=lambda kind: (0, 0.0, 0.0),
    add=lambda state, value, kind: _merge_moments(state, (1, float(value), 0.0), kind),
    merge=_merge_moments,
    numbers=tuple,
)
LOWEST = _extreme(min, "lowest", "the least value")
HIGHEST = _extreme(max, "highest", "the greatest value")


@dataclass(frozen=True, slots=True)
class BlobState:
    """A state of bytes: made from many values at once, merged many at once."""

    name: str
    contents: str
    size_bytes: int
    size_bytes_max: int
    """On the wire, after a hundred values and after ten thousand; collected values are counted besides."""

    def collect(self, values: Sequence[Any] | np.ndarray[Any, Any], kind: Type) -> bytes:
        raise NotImplementedError

    def merge_all(self, blobs: Sequence[bytes], kind: Type) -> bytes:
        raise NotImplementedError

    def create(self, kind: Type) -> bytes:
        return self.collect([], kind)

    def add(self, state: bytes, value: Value, kind: Type) -> bytes:
        return self.merge(state, self.collect([value], kind), kind)

    def merge(self, left: bytes, right: bytes, kind: Type) -> bytes:
        return self.merge_all([left, right], kind)


class CollectedValues(BlobState):
    """The values themselves (the paper's *Fetch*): eight bytes a number, MessagePack for strings."""

    def collect(self, values: Sequence[Any] | np.ndarray[Any, Any], kind: Type) -> bytes:
        if kind is Type.STRING:
            return msgspec.msgpack.encode(list(values))
        return np.asarray(values, "<f8" if kind is Type.FLOAT else "<i8").tobytes()

    def merge_all(self, blobs: Sequence[bytes], kind: Type) -> bytes:
        if kind is Type.STRING:
            return self.collect([text for blob in blobs for text in self.values(blob, kind)], kind)
        return b"".join(blobs)

    def values(self, blob: bytes, kind: Type) -> list[Any]:
        if kind is Type.STRING:
            texts: list[Any] = msgspec.msgpack.decode(blob)
            return texts
        numbers: list[Any] = np.frombuffer(blob, "<f8" if kind is Type.FLOAT else "<i8").tolist()
        return numbers


class DistinctValues(CollectedValues):
    """The values themselves, each once."""

    def collect(self, values: Sequence[Any] | np.ndarray[Any, Any], kind: Type) -> bytes:
        if kind is Type.STRING:
            return super().collect(sorted(set(values)), kind)
        return super().collect(np.unique(np.asarray(values, "<f8" if kind is Type.FLOAT else "<i8")), kind)

    def merge_all(self, blobs: Sequence[bytes], kind: Type) -> bytes:
        return self.collect([value for blob in blobs for value in self.values(blob, kind)], kind)


HLL_LG_K = 12
TOP_LG_MAP_SIZE = 14
SPARK_NULL_COUNT_BYTES = 8
EMPTY_TEXT = "\uffff"
"""What a sketch counts instead of the empty string, which it would ignore; no text may contain this code point."""


class DistinctSketch(BlobState):
    """A HyperLogLog sketch as `hll_union_agg` and `hll_sketch_estimate` of Spark read it."""

    def collect(self, values: Sequence[Any] | np.ndarray[Any, Any], kind: Type) -> bytes:
        sketch = datasketches.hll_sketch(HLL_LG_K, datasketches.tgt_hll_type.HLL_8)
        cast = {Type.STRING: str, Type.FLOAT: float}.get(kind, int)
        for value in values:
            sketch.update(EMPTY_TEXT if value == "" else cast(value))
        return bytes(sketch.serialize_compact())

    def merge_all(self, blobs: Sequence[bytes], kind: Type) -> bytes:
        union = datasketches.hll_union(HLL_LG_K)
        for blob in blobs:
            union.update(datasketches.hll_sketch.deserialize(blob))
        return bytes(union.get_result(datasketches.tgt_hll_type.HLL_8).serialize_compact())

    def estimate(self, blob: bytes) -> int:
        estimate: float = datasketches.hll_sketch.deserialize(blob).get_estimate()
        return round(estimate)


class QuantileSketch(BlobState):
    """A KLL sketch of doubles as `kll_merge_agg_double` and `kll_sketch_get_quantile_double` of Spark read it."""

    def collect(self, values: Sequence[Any] | np.ndarray[Any, Any], kind: Type) -> bytes:
        return quantiles.sketch_of(values)

    def merge_all(self, blobs: Sequence[bytes], kind: Type) -> bytes:
        return quantiles.merged_sketch(blobs)

    def quantile(self, blob: bytes, fraction: float) -> float | None:
        return quantiles.quantile(blob, fraction)


class TopSketch(BlobState):
    """A sketch of frequent items; with `spark_bytes` in the form that `approx_top_k_combine` of Spark reads."""

    def collect(self, values: Sequence[Any] | np.ndarray[Any, Any], kind: Type) -> bytes:
        sketch, serde = _top_sketch(kind)
        cast = {Type.STRING: str, Type.FLOAT: float}.get(kind, int)
        # In a fixed order, so that equal values make equal bytes.
        for value, count in sorted(Counter(cast(v) for v in values).items()):
            sketch.update(value, count)
        return bytes(sketch.serialize(*serde))

    def merge_all(self, blobs: Sequence[bytes], kind: Type) -> bytes:
        merged, serde = _top_sketch(kind)
        for blob in blobs:
            merged.merge(type(merged).deserialize(blob, *serde))
        return bytes(merged.serialize(*serde))

    def top(self, blob: bytes, count: int, kind: Type) -> list[dict[str, Any]]:
        sketch, serde = _top_sketch(kind)
        found = (
            type(sketch)
            .deserialize(blob, *serde)
            .get_frequent_items(datasketches.frequent_items_error_type.NO_FALSE_NEGATIVES)
        )
        ranked = sorted(((-estimate, item) for item, estimate, _, _ in found))[:count]
        return [{"item": item, "count": -negative} for negative, item in ranked]

    def spark_bytes(self, blob: bytes) -> bytes:
        """Spark appends the number of nulls it saw, which for us is none."""
        return blob + bytes(SPARK_NULL_COUNT_BYTES)

    def from_spark_bytes(self, given: bytes) -> bytes:
        """What `approx_top_k_accumulate` made, without the number of nulls."""
        return given[:-SPARK_NULL_COUNT_BYTES]


def _top_sketch(kind: Type) -> tuple[Any, tuple[Any, ...]]:
    if kind is Type.STRING:
        return datasketches.frequent_strings_sketch(TOP_LG_MAP_SIZE), ()
    serde = datasketches.PyDoublesSerDe() if kind is Type.FLOAT else datasketches.PyLongsSerDe()
    return datasketches.frequent_items_sketch(TOP_LG_MAP_SIZE), (serde,)


VALUES = CollectedValues("values", "the values themselves", 64, 64)
DISTINCT_VALUES = DistinctValues("distinct values", "the values themselves, each once", 64, 64)
DISTINCT_SKETCH = DistinctSketch("distinct sketch", "a distinct sketch", 415, 4_139)
QUANTILE_SKETCH = QuantileSketch("quantile sketch", "a quantile sketch", 843, 4_375)
TOP_SKETCH = TopSketch("top sketch", "a top sketch", 1_900, 217_674)

STATES: dict[str, State | BlobState] = {
    state.name: state
    for state in (
        TALLY,
        WHOLE_TOTAL,
        REAL_TOTAL,
        MOMENTS,
        LOWEST,
        HIGHEST,
        VALUES,
        DISTINCT_VALUES,
        DISTINCT_SKETCH,
        QUANTILE_SKETCH,
        TOP_SKETCH,
    )
}

COLLECTED = frozenset(name for name, state in STATES.items() if isinstance(state, CollectedValues))
"""The states that hold values, each of which counts as a message; a missing value counts as well."""
