"""Rows as columns."""

import pytest

from catchment import Schema
from catchment.model.errors import EventError
from catchment.model.rows import rows_to_batch

SCHEMA = Schema({"count": "int", "speed": "float", "seen": "timestamp"})


@pytest.mark.parametrize("row", [{"count": 1.5}, {"ts": 0.5}, {"seen": 1.25}, {"count": float("inf")}, {"count": "1"}])
def test_values_are_refused_that_would_be_cut_to_fit(row: dict[str, object]) -> None:
    with pytest.raises(EventError, match=f"attribute '{next(iter(row))}' is .*; accepted is"):
        rows_to_batch("t", SCHEMA, [{"count": 1}, row])


def test_whole_numbers_may_be_written_as_floats() -> None:
    batch = rows_to_batch("t", SCHEMA, [{"count": 5.0, "speed": 1, "ts": 1e6}])
    assert batch.column("count").to_pylist() == [5]
    assert batch.column("ts").cast("int64").to_pylist() == [1_000_000]
