"""Events as columns: the shape they must have, and what makes a single one unacceptable."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import isfinite
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from catchment.model.errors import EventError, SchemaError
from catchment.model.schema import RESERVED_COLUMNS, Schema, Type, column_types_of
from catchment.model.times import TIME_MAX_US, TIME_MIN_US

__all__ = [
    "DEDUPLICATION_US",
    "Column",
    "as_events",
    "attribute_schema",
    "cast_column",
    "event_times_us",
    "problems",
    "value_problem",
]

DEDUPLICATION_US = 120_000_000
"""An id that its publisher supplied, seen again at the same broker and topic within this time, is the same event."""

Columns: TypeAlias = "pa.Table | pa.RecordBatch"
Column: TypeAlias = "pa.Array | pa.ChunkedArray"


def attribute_schema(columns: pa.Schema) -> Schema:
    """What the columns of publications say about attributes; a column of another type is no attribute."""
    found = {}
    unusable = {}
    for column in columns:
        if column.name not in RESERVED_COLUMNS:
            try:
                found[column.name] = Type.of(column.type, attribute=column.name)
            except SchemaError:
                unusable[column.name] = str(column.type)
    return Schema(found, unusable=unusable, column_types=column_types_of(columns))


def as_events(table: Columns, schema: Schema) -> pa.Table:
    """The same events with every attribute in the type of the schema; the reserved columns are required."""
    missing = [name for name in RESERVED_COLUMNS if name not in table.schema.names]
    if missing:
        raise EventError(
            f"events lack the column{'s' * (len(missing) > 1)} {', '.join(missing)}; "
            f"required are {', '.join(RESERVED_COLUMNS)}, then the attributes"
        )
    columns = {name: table.column(name) for name in ("event_id", "topic", "broker")}
    columns["ts"] = cast_column("ts", table.column("ts"), Type.TIMESTAMP)
    for name in schema:
        if name in table.schema.names and name not in columns:
            columns[name] = cast_column(name, table.column(name), schema[name])
    return pa.table(columns)


def cast_column(name: str, column: Column, kind: Type) -> Column:
    """A column in the Arrow type of its attribute; one that means another type, or has a value beyond it, raises."""
    if column.type == kind.arrow:
        return column
    given = None if pa.types.is_null(column.type) else Type.of(column.type, attribute=name)
    if given not in (None, kind) and not (given is Type.INT and kind is Type.FLOAT):
        raise EventError(f"column {name!r} has type {column.type}; accepted is {kind.value}")
    if pa.types.is_decimal(column.type) and kind is Type.FLOAT:
        column = column.cast(pa.string())  # by its text, as Arrow's own cast is not rounded correctly
    try:
        return column.cast(kind.arrow)
    except (pa.ArrowException, UnicodeDecodeError) as error:
        raise EventError(f"column {name!r} of type {column.type} does not fit {kind.value}: {error}") from None


def problems(events: Columns, schemas: Mapping[str, Schema] | None, brokers: Iterable[str] | None) -> pa.Array | None:
    """Why each event is refused, null where it is accepted; None if all are.

    A refused event lacks an id, topic, broker or time stamp, is of an unknown topic or broker, has a time outside of
    the years 1 to 9999, or a number that is NaN or infinite.
    """
    reasons: npt.NDArray[np.object_] | None = None

    def refuse(refused: Column, reason: str) -> None:
        nonlocal reasons
        mask = np.asarray(pc.fill_null(refused, False))
        if mask.any():
            if reasons is None:
                reasons = np.full(len(mask), None, np.object_)
            reasons[mask & (reasons == None)] = reason  # noqa: E711  (element by element)

    for name in RESERVED_COLUMNS:
        if events.column(name).null_count:
            refuse(pc.is_null(events.column(name)), f"{name} is missing")
    if schemas is not None:
        refuse(_not_in(events.column("topic"), schemas), f"unknown topic; known are {', '.join(sorted(schemas))}")
    if brokers is not None:
        refuse(_not_in(events.column("broker"), brokers), "the broker is not in the overlay")
    for column in events.schema:
        if column.name == "ts" or column.name not in RESERVED_COLUMNS:
            wrong = _wrong_values(column.name, events.column(column.name))
            if wrong is not None:
                refuse(*wrong)
    return None if reasons is None else pa.array(reasons, pa.string())


_FLOAT, _TIMESTAMP = Type.FLOAT.arrow, Type.TIMESTAMP.arrow


def value_problem(name: str, values: pa.Array) -> str | None:
    """What is wrong with some value of a column, as `problems` would say it; None if nothing is."""
    if not values.null_count and len(values) and _are_fine(values):
        return None
    wrong = _wrong_values(name, values)
    return wrong[1] if wrong is not None and pc.any(wrong[0]).as_py() else None


def _are_fine(values: pa.Array) -> bool:
    """Whether all of some values are, if that is found out quickly: most events come alone."""
    if values.type == _FLOAT:
        return isfinite(values[0].as_py()) if len(values) == 1 else bool(np.isfinite(values.to_numpy()).all())
    if values.type == _TIMESTAMP:
        if len(values) == 1:
            return bool(TIME_MIN_US <= values[0].value <= TIME_MAX_US)
        times = values.view(pa.int64()).to_numpy()
        return bool(times.min() >= TIME_MIN_US and times.max() <= TIME_MAX_US)
    return False


def _wrong_values(name: str, values: Column) -> tuple[Column, str] | None:
    """Which values no event may have, and why; None where any will do."""
    if pa.types.is_floating(values.type):
        return pc.invert(pc.is_finite(values)), f"{name} is NaN or infinite"
    if pa.types.is_timestamp(values.type):
        times = values.cast(Type.TIMESTAMP.arrow).cast(pa.int64())
        outside = pc.or_(pc.less(times, TIME_MIN_US), pc.greater(times, TIME_MAX_US))
        return outside, f"{name} is outside of the years 1 to 9999"
    return None


def _not_in(values: pa.Array | pa.ChunkedArray, accepted: Iterable[str]) -> pa.Array | pa.ChunkedArray:
    kind = values.type.value_type if pa.types.is_dictionary(values.type) else values.type
    return pc.invert(pc.is_in(values, value_set=pa.array(sorted(accepted), kind)))


def event_times_us(batch: pa.RecordBatch) -> Any:
    """The times of events, as numbers."""
    return batch.column("ts").view(pa.int64()).to_numpy(zero_copy_only=False)
