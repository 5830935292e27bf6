"""Events as rows of names and values, and the columns that they become."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date, datetime
from typing import Any

import pyarrow as pa

from catchment.model.errors import EventError
from catchment.model.schema import Schema, Type
from catchment.model.times import microseconds

__all__ = ["column_of", "row_types", "rows_to_batch"]

_UNFIT = (pa.ArrowException, TypeError, ValueError, OverflowError)


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
    unknown = [str(name) for name in names if name not in known]
    if unknown:
        raise EventError(f"an event of {topic!r} has {', '.join(unknown)}; accepted are {', '.join(known)}")
    if not names:
        # A batch without columns would have no rows.
        names = {"ts": None}
    columns = {name: column_of(name, known[name], [row.get(name) for row in rows]) for name in names}
    return pa.RecordBatch.from_pydict(columns)


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
        return _exact(values, arrow)
    except _UNFIT:
        for value in values:
            try:
                _exact([value], arrow)
            except _UNFIT:
                raise EventError(f"attribute {name!r} is {value!r}; accepted is {kind.value}") from None
        raise


def _exact(values: Sequence[Any], arrow: pa.DataType) -> pa.Array:
    """An array of values, none of them cut: Arrow itself drops fractions where integers are wanted."""
    if arrow == pa.int64():
        for value in values:
            if isinstance(value, float) and not value.is_integer():
                raise ValueError(f"{value} is no integer")
    return pa.array(values, arrow)
