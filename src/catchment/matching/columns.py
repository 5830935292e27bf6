"""From Arrow batches and mappings to rows of `columns`: where the values of each attribute are and how to read them.

Arrow hands a whole batch over in one call of its C interface; its structs are read here, its buffers in `reading`.
"""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Mapping
from datetime import date, datetime
from typing import Any

import numpy as np
import pyarrow as pa

from catchment.matching import layout
from catchment.matching.layout import COLUMN_FIELDS, DATA, FLOAT64, INT64, UTF8, VALUES
from catchment.matching.memory import Array, compiled, load_i64
from catchment.model.errors import EventError
from catchment.model.schema import DECIMALS_ACCEPTED, Schema, Type
from catchment.model.times import microseconds

__all__ = ["Plan", "columns_of", "columns_of_event"]

_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]

_WHOLE = {
    pa.int8(): layout.INT8,
    pa.int16(): layout.INT16,
    pa.int32(): layout.INT32,
    pa.int64(): layout.INT64,
    pa.uint8(): layout.UINT8,
    pa.uint16(): layout.UINT16,
    pa.uint32(): layout.UINT32,
    pa.uint64(): layout.UINT64,
}
_REAL = {pa.float32(): layout.FLOAT32, pa.float64(): layout.FLOAT64}
_TEXT = {pa.string(): layout.UTF8, pa.large_string(): layout.LARGE_UTF8}
_SCALE = {"s": 1_000_000, "ms": 1_000, "us": 1, "ns": -1_000}
"""Microseconds in a unit; a negative number divides."""

INT_MIN, INT_MAX = -(2**63), 2**63 - 1

_ACCEPTED = {
    Type.BOOL: "bool",
    Type.INT: f"integers of any width, {DECIMALS_ACCEPTED}",
    Type.FLOAT: f"float, double, integers, {DECIMALS_ACCEPTED}",
    Type.STRING: "string, large_string or a dictionary of them",
    Type.TIMESTAMP: "timestamp of any unit, or date",
}


class Plan:
    """How the batches of one Arrow schema are read. Made once per schema, used for every batch."""

    def __init__(self, given: pa.Schema, schema: Schema) -> None:
        self.given = given
        self.casts: list[tuple[int, pa.DataType]] = []
        # Column of each attribute or -1, kind, scale, kind of index.
        self.columns = np.full((max(len(schema), 1), 4), -1, np.int64)
        for attribute, (name, kind) in enumerate(schema.attributes.items()):
            places = given.get_all_field_indices(name)
            if len(places) > 1:
                raise EventError(f"column {name!r} is there {len(places)} times; accepted is one")
            if not places or pa.types.is_null(given.field(places[0]).type):
                continue
            found = given.field(places[0]).type
            readable = _readable(found, kind)
            if readable is None:
                raise EventError(f"column {name!r} is of type {found}; accepted is {_ACCEPTED[kind]}")
            if isinstance(readable, pa.DataType):
                self.casts.append((places[0], readable))
            else:
                self.columns[attribute] = (places[0], *readable)


def _readable(found: pa.DataType, kind: Type) -> tuple[int, int, int] | pa.DataType | None:
    """Kind, scale and kind of index; or the type to cast to first; or None."""
    if pa.types.is_dictionary(found):
        inner = _readable(found.value_type, kind)
        if kind is Type.STRING and isinstance(inner, tuple):
            return inner[0], inner[1], _WHOLE[found.index_type]
        return found.value_type if isinstance(inner, tuple) else inner
    table = {
        Type.INT: _WHOLE,
        Type.FLOAT: {**_WHOLE, **_REAL},
        Type.STRING: _TEXT,
        Type.BOOL: {pa.bool_(): layout.BOOL},
    }
    if kind is Type.TIMESTAMP:
        if pa.types.is_timestamp(found):
            return INT64, _SCALE[found.unit], 0
        if pa.types.is_date32(found):
            return layout.INT32, 86_400_000_000, 0
        return (INT64, 1_000, 0) if pa.types.is_date64(found) else None
    if found in table[kind]:
        return table[kind][found], 1, 0
    if pa.types.is_decimal(found):
        means = Type.of_decimal(found.precision, found.scale)
        return kind.arrow if means is kind or (means is Type.INT and kind is Type.FLOAT) else None
    if kind is Type.FLOAT and pa.types.is_float16(found):
        return pa.float64()
    return pa.large_string() if kind is Type.STRING and pa.types.is_string_view(found) else None


def plan_for(batch: pa.RecordBatch, schema: Schema, plans: list[Plan]) -> Plan:
    """A plan made before for an equal schema, or a new one."""
    for plan in plans:
        if batch.schema.equals(plan.given):
            return plan
    plan = Plan(batch.schema, schema)
    # A source has one schema, or a few; more are not worth remembering.
    plans[:] = [plan, *plans[:3]]
    return plan


def columns_of(batch: pa.RecordBatch, schema: Schema, plans: list[Plan]) -> tuple[Array, Any]:
    """The description of a batch, and what must stay alive while it is used."""
    plan = plan_for(batch, schema, plans)
    if plan.casts:
        for place, kind in plan.casts:
            batch = batch.set_column(place, batch.schema.field(place).with_type(kind), _cast(batch.column(place), kind))
        plan = plan_for(batch, schema, plans)
    _, capsule = batch.__arrow_c_array__()
    columns = np.zeros((len(plan.columns), COLUMN_FIELDS), np.int64)
    _describe(_pointer(capsule, b"arrow_array"), plan.columns, columns)
    return columns, (batch, capsule)


def _cast(column: pa.Array, kind: pa.DataType) -> pa.Array:
    if pa.types.is_dictionary(column.type):
        # Arrow casts not every dictionary; its values and their selection it can do apart.
        column = column.dictionary.cast(kind).take(column.indices)
    if pa.types.is_decimal(column.type) and pa.types.is_floating(kind):
        column = column.cast(pa.string())  # by its text, as Arrow's own cast is not rounded correctly
    return column.cast(kind)


@compiled
def _describe(batch: Any, plan: Any, columns: Any) -> Any:
    # struct ArrowArray: length, null_count, offset, n_buffers, n_children, buffers, children, dictionary, …
    outer_offset, children = load_i64(batch + 16), load_i64(batch + 48)
    for attribute in range(plan.shape[0]):
        place = plan[attribute, 0]
        if place < 0:
            continue
        column = columns[attribute]
        array = load_i64(children + place * 8)
        offset = outer_offset + load_i64(array + 16)
        buffers = load_i64(array + 40)
        validity = load_i64(buffers) if load_i64(array + 8) != 0 else 0
        column[layout.KIND], column[layout.SCALE] = plan[attribute, 1], plan[attribute, 2]
        if plan[attribute, 3] > 0:
            column[layout.INDEX_KIND], column[layout.INDEX] = plan[attribute, 3], load_i64(buffers + 8)
            column[layout.INDEX_VALIDITY], column[layout.INDEX_OFFSET] = validity, offset
            array = load_i64(array + 56)
            offset = load_i64(array + 16)
            buffers = load_i64(array + 40)
            validity = load_i64(buffers) if load_i64(array + 8) != 0 else 0
        column[layout.VALUES], column[layout.VALIDITY] = load_i64(buffers + 8), validity
        column[layout.OFFSET] = offset
        if column[layout.KIND] >= UTF8:
            column[layout.DATA] = load_i64(buffers + 16)


def columns_of_event(event: Mapping[str, object], schema: Schema) -> tuple[Array, Any]:
    """The description of one event given as a mapping, and the buffers it points to.

    Written value by value, at which Python's own arrays are quicker than numpy's.
    """
    size = max(len(schema), 1)
    columns, numbers = array("q", bytes(8 * COLUMN_FIELDS * size)), array("q", bytes(8 * size))
    reals, offsets = array("d", bytes(8 * size)), array("i", bytes(4 * (size + 1)))
    here, real_here, there = (buffer.buffer_info()[0] for buffer in (numbers, reals, offsets))
    texts, end = [], 0
    for attribute, (name, kind) in enumerate(schema.attributes.items()):
        value = event.get(name)
        if value is not None:
            at = COLUMN_FIELDS * attribute
            if kind is Type.STRING and isinstance(value, str):
                texts.append((at, value.encode("utf-8", "surrogatepass")))
                end += len(texts[-1][1])
                columns[at], columns[at + VALUES] = UTF8, there + 4 * attribute
            else:
                number = _number(name, value, kind)
                if isinstance(number, float):
                    reals[attribute] = number
                    columns[at], columns[at + VALUES] = FLOAT64, real_here + 8 * attribute
                else:
                    numbers[attribute] = number
                    columns[at], columns[at + VALUES] = INT64, here + 8 * attribute
        offsets[attribute + 1] = end
    data = array("B", b"".join(text for _, text in texts) or b"\0")
    for at, _ in texts:
        columns[at + DATA] = data.buffer_info()[0]
    return np.frombuffer(columns, np.int64).reshape(size, COLUMN_FIELDS), (numbers, reals, offsets, data)


def _number(name: str, value: object, kind: Type) -> int | float:
    if kind is Type.TIMESTAMP and isinstance(value, (datetime, date)):
        return microseconds(value, attribute=name)
    if isinstance(value, bool) or kind is Type.BOOL:
        if isinstance(value, bool) and kind is Type.BOOL:
            return value
    elif isinstance(value, int) and kind is not Type.STRING:
        if INT_MIN <= value <= INT_MAX:
            return value
        raise EventError(f"attribute {name!r} is {value}; accepted are integers of 64 bits")
    elif isinstance(value, float):
        if kind is Type.FLOAT:
            return value
        if kind is Type.INT and value.is_integer() and INT_MIN <= value < INT_MAX:
            return int(value)
    raise EventError(f"attribute {name!r} is {value!r} of type {type(value).__name__}; accepted is {kind.value}")
