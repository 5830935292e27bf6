"""Rows as columns, and columns as what rows of the same values would be."""

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from catchment import Schema
from catchment.model.errors import EventError
from catchment.model.rows import rows_to_batch, typed_columns

SCHEMA = Schema({"count": "int", "speed": "float", "seen": "timestamp"})


@pytest.mark.parametrize("row", [{"count": 1.5}, {"ts": 0.5}, {"seen": 1.25}, {"count": float("inf")}, {"count": "1"}])
def test_values_are_refused_that_would_be_cut_to_fit(row: dict[str, object]) -> None:
    with pytest.raises(EventError, match=f"attribute '{next(iter(row))}' is .*; accepted is"):
        rows_to_batch("t", SCHEMA, [{"count": 1}, row])


def test_whole_numbers_may_be_written_as_floats() -> None:
    batch = rows_to_batch("t", SCHEMA, [{"count": 5.0, "speed": 1, "ts": 1e6}])
    assert batch.column("count").to_pylist() == [5]
    assert batch.column("ts").cast("int64").to_pylist() == [1_000_000]


TYPED = Schema({"flag": "bool", "count": "int", "speed": "float", "name": "string", "seen": "timestamp"})
DAY = date(2026, 1, 2)
NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
NAIVE = NOON.replace(tzinfo=None)

ACCEPTED: list[tuple[str, pa.Array, list[Any]]] = [
    ("name", pa.array(["a", None], pa.large_string()), ["a", None]),
    ("name", pa.array(["a", "a", None]).dictionary_encode(), ["a", "a", None]),
    ("name", pa.array(["a"], pa.string_view()), ["a"]),
    ("seen", pa.array([NOON], pa.timestamp("ns", "America/Toronto")), [NOON]),
    ("seen", pa.array([NOON], pa.timestamp("ms", "UTC")), [NOON]),
    ("ts", pa.array([NAIVE], pa.timestamp("s")), [NOON]),
    ("seen", pa.array([DAY], pa.date32()), [datetime(2026, 1, 2, tzinfo=UTC)]),
    ("ts", pa.array(["2026-01-02 12:00:00"]), [NOON]),
    ("ts", pa.array([1_000_000]), [datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)]),
    ("speed", pa.array([Decimal("1.50")]), [1.5]),
    ("count", pa.array([Decimal("7")]), [7]),
    ("speed", pa.array([7], pa.uint64()), [7.0]),
    ("count", pa.array([7], pa.uint64()), [7]),
    ("count", pa.array([7.0, None]), [7, None]),
    ("count", pa.array([None, None], pa.null()), [None, None]),
    ("event_id", pa.array([7]), ["7"]),
]
REFUSED: list[tuple[str, pa.Array]] = [
    ("count", pa.array([2**63], pa.uint64())),
    ("count", pa.array([1.5])),
    ("count", pa.array([True])),
    ("count", pa.array(["1"])),
    ("speed", pa.array([True])),
    ("speed", pa.array(["1.5"])),
    ("speed", pa.array([2**53 + 1])),
    ("speed", pa.array([Decimal("1.2345678901234567")])),
    ("flag", pa.array([1])),
    ("name", pa.array([1])),
    ("name", pa.array([b"a"])),
    ("name", pa.array([["a"]])),
    ("event_id", pa.array([1.5])),
    ("seen", pa.array([1.5])),
    ("seen", pa.array(["soon"])),
    ("topic", pa.array(["t"])),
]


@pytest.mark.parametrize(("name", "column", "means"), ACCEPTED, ids=lambda one: getattr(one, "type", None))
def test_columns_and_rows_of_the_same_values_become_the_same(name: str, column: pa.Array, means: list[Any]) -> None:
    for given in (pa.table({name: column}), pa.RecordBatch.from_pydict({name: column})):
        typed = typed_columns("t", TYPED, given)
        assert typed.column(name).to_pylist() == means
        rows = rows_to_batch("t", TYPED, given.to_pylist())
        assert rows.schema.equals(typed.schema, check_metadata=True)
        assert rows.column(name).to_pylist() == means


@pytest.mark.parametrize(("name", "column"), REFUSED, ids=lambda one: getattr(one, "type", None))
def test_values_that_no_row_may_have_are_refused_in_columns_too(name: str, column: pa.Array) -> None:
    given = pa.table({name: column})
    with pytest.raises(EventError, match=name):
        typed_columns("t", TYPED, given)
    with pytest.raises(EventError, match=name):
        rows_to_batch("t", TYPED, given.to_pylist())


def test_a_time_that_microseconds_cannot_say_is_refused() -> None:
    with pytest.raises(EventError, match=r"column 'ts' of type timestamp.* does not fit timestamp"):
        typed_columns("t", TYPED, pa.table({"ts": pa.array([1_501], pa.timestamp("ns"))}))


def test_two_columns_of_one_name_are_refused() -> None:
    twice = pa.table([pa.array([1.0]), pa.array([2.0])], names=["speed", "speed"])
    with pytest.raises(EventError, match="events of 't' have several columns speed; accepted is one of each name"):
        typed_columns("t", TYPED, twice)
