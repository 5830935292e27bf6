"""Types and schemas, from names, Python types and Arrow types."""

from __future__ import annotations

import pickle
from datetime import datetime
from typing import Any

import pyarrow as pa
import pytest

from catchment.model.errors import SchemaError
from catchment.model.schema import Schema, Type


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("int", Type.INT),
        ("BIGINT", Type.INT),
        ("double", Type.FLOAT),
        ("Boolean", Type.BOOL),
        ("text", Type.STRING),
        (bool, Type.BOOL),
        (int, Type.INT),
        (float, Type.FLOAT),
        (str, Type.STRING),
        (datetime, Type.TIMESTAMP),
        (Type.FLOAT, Type.FLOAT),
        (pa.int8(), Type.INT),
        (pa.uint64(), Type.INT),
        (pa.float32(), Type.FLOAT),
        (pa.decimal128(10, 2), Type.FLOAT),
        (pa.large_string(), Type.STRING),
        (pa.dictionary(pa.int32(), pa.string()), Type.STRING),
        (pa.timestamp("ns"), Type.TIMESTAMP),
        (pa.date32(), Type.TIMESTAMP),
    ],
)
def test_types_have_many_names(given: Any, expected: Type) -> None:
    assert Type.of(given) is expected


@pytest.mark.parametrize("given", ["money", bytes, pa.binary(), pa.list_(pa.int64()), None])
def test_an_unknown_type_is_an_error_that_names_the_attribute(given: Any) -> None:
    with pytest.raises(SchemaError, match=r"'price' has type .*; accepted are bool, int, float, string, timestamp"):
        Schema.of({"price": given})


def test_schemas_are_values() -> None:
    schema = Schema.of({"a": "int", "b": "string"})
    assert schema == Schema.of(pa.schema([("b", pa.string()), ("a", pa.int64())]))
    assert hash(schema) == hash(Schema.of({"b": "string", "a": "int"}))
    assert schema != Schema.of({"a": "int"})
    assert pickle.loads(pickle.dumps(schema)) == schema
    assert Schema.of(schema) is schema
    assert (list(schema), len(schema), "a" in schema, schema["a"], schema.get("z")) == (
        ["a", "b"],
        2,
        True,
        Type.INT,
        None,
    )


def test_every_event_has_a_broker_and_a_time_whatever_its_schema_says() -> None:
    full = Schema.of({"ts": "string", "speed": "int"}).with_implicit()
    assert full == Schema.of({"ts": "timestamp", "broker": "string", "speed": "int"})
