"""What is written into a snapshot, a little at a time, is read back whole."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catchment import Filter
from catchment.broker.snapshot_coding import Deferred, SnapshotWriter, read_value
from catchment.model.errors import CheckpointError
from tests.broker.wire import read_back

SIMPLE = (
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | st.text() | st.binary()
)
VALUES = st.recursive(
    SIMPLE,
    lambda inner: st.lists(inner, max_size=200) | st.dictionaries(st.text() | st.integers(0, 9), inner, max_size=200),
    max_leaves=400,
)


@given(VALUES, st.integers(1, 3_000), st.integers(1, 500))
@settings(max_examples=200, deadline=None)
def test_plain_values_are_read_as_they_were_written(value: Any, bytes_max: int, work_max: int) -> None:
    parts = list(SnapshotWriter(bytes_max, work_max).parts(value))
    assert read_value(parts) == value
    assert max(map(len, parts)) <= bytes_max


@dataclass(frozen=True, slots=True)
class Pair:
    """Something frozen, of a broker's own."""

    one: np.ndarray[Any, Any]
    other: Filter


def test_arrays_batches_and_filters_are_read_as_they_were_written() -> None:
    batch = pa.RecordBatch.from_pydict({"a": list(range(50_000)), "b": [f"text {number}" for number in range(50_000)]})
    arrays = [np.arange(30_000).reshape(3, -1), np.zeros((0, 4)), np.array([True, False]), np.array(7.5)]
    condition = Filter.parse("speed > 3 AND highway = 'a' OR vehicles IS NULL")
    given = {
        ("x", 1): Pair(arrays[0][:, ::2], condition),
        "arrays": arrays,
        "batches": (batch, batch.slice(10, 5), batch.slice(3, 0)),
        "schema": batch.schema,
        "sets": [{3, 1, 2}, frozenset(["b", "a"])],
        "number": np.int64(5),
        "deferred": Deferred(lambda: [1, 2], work_us=10),
    }
    parts = list(SnapshotWriter(100_000, 300).parts(given))
    assert len(parts) > 10
    read = read_value(parts)
    assert read["x", 1]["one"].tolist() == arrays[0][:, ::2].tolist()
    assert read["x", 1]["other"] == condition
    for one, other in zip(read["arrays"], arrays, strict=True):
        assert (one.dtype, one.shape, one.tolist()) == (other.dtype, other.shape, other.tolist())
        assert one.flags.writeable, "numba compiles another version for arrays that are read-only"
    assert read["batches"] == list(given["batches"])
    assert read["schema"] == batch.schema
    assert (read["sets"], read["number"], read["deferred"]) == ([[1, 2, 3], ["a", "b"]], 5, [1, 2])
    # What was read can be written again, by a broker that has not needed it in between.
    assert read_back(read).keys() == read.keys()


def test_what_cannot_be_written_or_read_is_refused_by_name() -> None:
    with pytest.raises(CheckpointError, match="a snapshot cannot hold a object; accepted are plain values"):
        read_back({"a": object()})
    whole = b"".join(SnapshotWriter(1_000, 1_000).parts({"a": np.arange(3), "f": Filter.parse("a > 1")}))
    for length in range(len(whole)):
        with pytest.raises(CheckpointError, match="a snapshot does not decode"):
            read_value([whole[:length]])
