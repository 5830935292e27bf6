"""What subscribers receive, as columns, and how a typed value is written down."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa

from catchment.model.schema import Type
from catchment.model.times import microseconds, timestamp_text

__all__ = ["NOTIFICATION_SCHEMA", "OVERFLOW_SCHEMA", "exact_json", "key_from_text", "key_text", "number_of"]

NOTIFICATION_SCHEMA = pa.schema(
    [
        ("subscription", pa.string()),
        ("window_start", pa.timestamp("us", tz="UTC")),
        ("window_end", pa.timestamp("us", tz="UTC")),
        ("group", pa.map_(pa.string(), pa.string())),
        ("output", pa.string()),
        ("value", pa.float64()),
        ("exact", pa.string()),
        ("publications", pa.int64()),
        ("revision", pa.int32()),
    ]
)

OVERFLOW_SCHEMA = pa.schema(
    [*(NOTIFICATION_SCHEMA.field(at) for at in range(5)), ("problem", pa.string())],
)
"""Values that are beyond their type, which is reported of their subscription instead of a value."""


def number_of(value: Any, kind: Type | None) -> float | None:
    """A value as the column `value` holds it: null if it is not a number."""
    if value is None or kind not in (Type.INT, Type.FLOAT):
        return None
    return float(value)


def exact_json(value: Any, kind: Type | None) -> str:
    """A value as the column `exact` holds it: JSON, times as ISO text."""
    if value is None:
        return "null"
    if kind is Type.TIMESTAMP:
        return json.dumps(key_text(value, kind))
    return json.dumps(value, ensure_ascii=False)


def key_text(value: Any, kind: Type) -> str | None:
    """A group key's value as the map `group` holds it."""
    if value is None:
        return None
    if kind is Type.TIMESTAMP:
        return timestamp_text(value).replace(" ", "T") + "Z"
    if kind is Type.BOOL:
        return "true" if value else "false"
    return repr(float(value) + 0.0) if kind is Type.FLOAT else str(value)  # -0.0 is 0.0


def key_from_text(text: str | None, kind: Type) -> Any:
    """The value that `key_text` was given."""
    if text is None or kind is Type.STRING:
        return text
    if kind is Type.BOOL:
        return text == "true"
    if kind is Type.INT:
        return int(text)
    if kind is Type.FLOAT:
        return float(text)
    return microseconds(text)
