"""Events as applications publish them, as rows of names and values or as columns, and the columns that they become.

Rule 1: rows and columns are held to the same rules. What a row may have (times as text or microseconds, whole numbers
        as floats, ids as numbers) a column may have too, and what is refused of one is refused of the other.
Rule 2: nothing is rounded, cut or parsed but times.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from catchment.model.errors import EventError, SchemaError
from catchment.model.events import Column, cast_column
from catchment.model.schema import Schema, Type
from catchment.model.times import microseconds

__all__ = ["column_of", "row_types", "rows_to_batch", "typed_column", "typed_columns"]

_UNFIT = (pa.ArrowException, TypeError, ValueError, OverflowError)
_AS_IN_ROWS = frozenset([(Type.STRING, Type.TIMESTAMP), (Type.INT, Type.TIMESTAMP), (Type.FLOAT, Type.INT)])
"""Types of columns whose values are accepted for attributes of another type, one by one."""
_NO_NUMBERS = frozenset([bool, np.bool_])
_NO_TEXTS = frozenset([bytes, bytearray])
_Columns = TypeVar("_Columns", pa.RecordBatch, pa.Table)


def row_types(schema: Schema) -> dict[str, Type]:
    """What a row of a topic may have."""
    return {"event_id": Type.STRING, "ts": Type.TIMESTAMP, **{name: schema[name] for name in schema}}


def rows_to_batch(topic: str, schema: Schema, rows: Sequence[Mapping[str, Any]]) -> pa.RecordBatch:
    """Events as columns; an event that does not fit the topic is an EventError."""
    known = row_types(schema)
    names: dict[str, None] = {}
    for row in rows:
        if type(row) is not dict and not isinstance(row, Mapping):
            raise EventError(f"an event of {topic!r} is a {type(row).__name__}; accepted are names and values")
        # Most rows have the names of the first.
        if row.keys() != names.keys():
            names.update(dict.fromkeys(row))
    _require_known(topic, names, known)
    if not names:
        # A batch without columns would have no rows.
        names = {"ts": None}
    columns = {name: column_of(name, known[name], [row.get(name) for row in rows]) for name in names}
    return pa.RecordBatch.from_pydict(columns)


def typed_columns(topic: str, schema: Schema, given: _Columns) -> _Columns:
    """Columns of events in the types of the topic; what does not fit it is an EventError."""
    known, names = row_types(schema), given.schema.names
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise EventError(
            f"events of {topic!r} have several columns {', '.join(repeated)}; accepted is one of each name"
        )
    _require_known(topic, names, known)
    columns = {name: typed_column(name, known[name], given.column(name)) for name in names}
    return type(given).from_pydict(columns)


def _require_known(topic: str, names: Iterable[object], known: Mapping[str, Type]) -> None:
    unknown = [str(name) for name in names if name not in known]
    if unknown:
        raise EventError(f"an event of {topic!r} has {', '.join(unknown)}; accepted are {', '.join(known)}")


def typed_column(name: str, kind: Type, given: Column) -> Column:
    """A column of events in the type of its attribute; one with values that no row may have is an EventError."""
    if given.type == kind.arrow:
        return given
    try:
        means = None if pa.types.is_null(given.type) else Type.of(given.type, attribute=name)
    except SchemaError:
        raise EventError(f"column {name!r} has type {given.type}; accepted is {kind.value}") from None
    if (means, kind) in _AS_IN_ROWS or (means is Type.INT and name == "event_id"):
        return column_of(name, kind, given.to_pylist())
    return cast_column(name, given, kind)


def column_of(name: str, kind: Type, values: Sequence[Any]) -> pa.Array:
    """The values of one attribute; one that is of another type is an EventError."""
    if kind is Type.TIMESTAMP:
        values = [
            microseconds(one, attribute=name) if isinstance(one, (str, date, datetime)) else one for one in values
        ]
        return _array(name, kind, values, pa.int64()).view(kind.arrow)
    if name == "event_id":
        values = [str(one) if isinstance(one, int) else one for one in values]
    return _array(name, kind, values, kind.arrow)


def _array(name: str, kind: Type, values: Sequence[Any], arrow: pa.DataType) -> pa.Array:
    try:
        return _exact(name, kind, values, arrow)
    except _UNFIT:
        for value in values:
            try:
                _exact(name, kind, [value], arrow)
            except _UNFIT:
                raise EventError(f"attribute {name!r} is {value!r}; accepted is {kind.value}") from None
        raise


def _exact(name: str, kind: Type, values: Sequence[Any], arrow: pa.DataType) -> pa.Array:
    """An array of values, none of them cut, rounded or read as what it is not: Arrow itself is less strict."""
    found = set(map(type, values))
    if Decimal in found and kind.is_number:
        return cast_column(name, pa.array(values), kind)
    unfit = _NO_TEXTS if kind is Type.STRING else _NO_NUMBERS if kind is not Type.BOOL else frozenset()
    if not found.isdisjoint(unfit):
        raise TypeError(f"some are {', '.join(sorted(one.__name__ for one in found & unfit))}")
    if arrow == pa.int64():
        for value in values:
            if isinstance(value, float) and not value.is_integer():
                raise ValueError(f"{value} is no integer")
    return pa.array(values, arrow)
