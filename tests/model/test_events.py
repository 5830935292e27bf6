"""Which columns make an event, how they are cast, and why single events are refused."""

from __future__ import annotations

import math
from datetime import date
from typing import Any

import pyarrow as pa
import pytest

from catchment.model.errors import EventError
from catchment.model.events import as_events, attribute_schema, problems
from catchment.model.schema import Schema, Type
from catchment.model.times import TIME_MAX_US, TIME_MIN_US

TS = Type.TIMESTAMP.arrow


def table(**columns: Any) -> pa.Table:
    """Two events, whose columns may be replaced."""
    plain = {
        "event_id": pa.array([1, 2]),
        "topic": pa.array(["traffic", "traffic"]),
        "broker": pa.array(["b1", "b2"]),
        "ts": pa.array([0, 1], TS),
    }
    return pa.table({**plain, **columns})


SCHEMAS = {"traffic": Schema.of({"speed": "float"})}


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ({"event_id": pa.array([1, None])}, "event_id is missing"),
        ({"topic": pa.array(["traffic", None])}, "topic is missing"),
        ({"broker": pa.array(["b1", None])}, "broker is missing"),
        ({"ts": pa.array([0, None], TS)}, "ts is missing"),
        ({"topic": pa.array(["traffic", "weather"])}, "unknown topic; known are traffic"),
        ({"broker": pa.array(["b1", "b9"])}, "the broker is not in the overlay"),
        ({"ts": pa.array([0, TIME_MAX_US + 1], TS)}, "ts is outside of the years 1 to 9999"),
        ({"ts": pa.array([0, TIME_MIN_US - 1], TS)}, "ts is outside of the years 1 to 9999"),
        ({"due": pa.array([TIME_MAX_US, TIME_MAX_US + 1], TS)}, "due is outside of the years 1 to 9999"),
        ({"speed": pa.array([1.0, math.nan])}, "speed is NaN or infinite"),
        ({"speed": pa.array([None, math.inf])}, "speed is NaN or infinite"),
        ({"speed": pa.array([1.0, -math.inf], pa.float32())}, "speed is NaN or infinite"),
    ],
)
def test_each_reason(columns: dict[str, pa.Array], reason: str) -> None:
    events = table(**columns)
    for shape in (events, events.combine_chunks().to_batches()[0]):
        found = problems(shape, SCHEMAS, ["b1", "b2"])
        assert found is not None
        assert found.to_pylist() == [None, reason]


def test_good_events_have_no_problems() -> None:
    events = table(speed=pa.array([1.5, None]), due=pa.array([TIME_MIN_US, TIME_MAX_US], TS), name=pa.array(["", None]))
    assert problems(events, SCHEMAS, ["b1", "b2"]) is None
    assert problems(events, None, None) is None
    assert problems(events.slice(0, 0), SCHEMAS, []) is None


def test_dictionaries_and_large_strings_are_strings() -> None:
    encoded = table(
        topic=pa.array(["traffic", "x"]).dictionary_encode(), broker=pa.array(["b1", "y"], pa.large_string())
    )
    assert problems(encoded, SCHEMAS, ["b1"]).to_pylist() == [None, "unknown topic; known are traffic"]


def test_the_first_reason_is_given() -> None:
    events = table(topic=pa.array([None, "x"]), speed=pa.array([math.nan, math.nan]), ts=pa.array([None, 0], TS))
    assert problems(events, SCHEMAS, None).to_pylist() == ["topic is missing", "unknown topic; known are traffic"]


def test_columns_are_cast_to_the_types_of_the_schema() -> None:
    schema = Schema.of(
        {"a": "int", "b": "float", "c": "string", "d": "timestamp", "e": "bool", "f": "float", "g": "int"}
    )
    events = as_events(
        table(
            a=pa.array([1, None], pa.int8()),
            b=pa.array([1, 2]),
            c=pa.array(["x", "y"]).dictionary_encode(),
            d=pa.array([date(1970, 1, 2), None]),
            e=pa.nulls(2),
            f=pa.array([0.5, 1.0], pa.float32()),
            ignored=pa.array([b"x", b"y"]),
            ts=pa.array([0, 1], pa.timestamp("ms")),
        ),
        schema,
    )
    assert {field.name: field.type for field in events.schema} == {
        "event_id": pa.int64(),
        "topic": pa.string(),
        "broker": pa.string(),
        "ts": TS,
        **{name: schema[name].arrow for name in "abcdef"},
    }
    assert events.column("ts").cast(pa.int64()).to_pylist() == [0, 1000]
    assert events.column("d").cast(pa.int64()).to_pylist() == [86_400_000_000, None]


@pytest.mark.parametrize(
    ("column", "kind", "named"),
    [
        (pa.array(["x", "y"]), "int", "'a' has type string; accepted is int"),
        (pa.array([1.5, 2.0]), "int", "'a' has type double; accepted is int"),
        (pa.array([1, 2]), "string", "'a' has type int64; accepted is string"),
        (pa.array([2**63, 1], pa.uint64()), "int", "'a' of type uint64 does not fit int"),
        (pa.array([2**53 + 1, 1]), "float", "'a' of type int64 does not fit float"),
        (pa.array([1, 2], pa.timestamp("ns")), "timestamp", r"'a' of type timestamp\[ns\] does not fit timestamp"),
    ],
)
def test_a_column_that_does_not_fit_is_an_error_that_names_it(column: pa.Array, kind: str, named: str) -> None:
    with pytest.raises(EventError, match=named):
        as_events(table(a=column), Schema.of({"a": kind}))


def test_missing_columns_are_named() -> None:
    with pytest.raises(EventError, match="lack the columns broker, ts; required are event_id, topic, broker, ts"):
        as_events(table().drop_columns(["broker", "ts"]), Schema({}))
    with pytest.raises(EventError, match="lack the column topic; "):
        as_events(table().drop_columns(["topic"]), Schema({}))


def test_a_missing_attribute_stays_missing() -> None:
    assert as_events(table(), Schema.of({"speed": "int"})).schema.names == ["event_id", "topic", "broker", "ts"]


def test_the_columns_say_the_schema() -> None:
    events = table(speed=pa.array([1, 2]), name=pa.array(["a", "b"]), blob=pa.array([b"", b""]))
    assert attribute_schema(events.schema) == Schema.of({"speed": "int", "name": "string"})
