"""What applications publish, as record batches: one event or many, plain values or columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime
from typing import Any

import pyarrow as pa

from catchment.model.errors import EventError
from catchment.model.schema import Schema, Type
from catchment.model.times import microseconds

__all__ = ["batches_of", "rows_to_batch"]

ROWS_MAX = 10_000
BYTES_MAX = 500_000
"""Of one request, so that it fits into a frame whatever its columns take besides."""


def rows_to_batch(topic: str, schema: Schema, rows: Sequence[Mapping[str, Any]]) -> pa.RecordBatch:
    """Events as columns; an event that does not fit the topic is an EventError."""
    known = {"event_id": Type.STRING, "ts": Type.TIMESTAMP, **{name: schema[name] for name in schema}}
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
    columns = {name: _column(name, known[name], [row.get(name) for row in rows]) for name in names}
    return pa.RecordBatch.from_pydict(columns)


def _column(name: str, kind: Type, values: list[Any]) -> pa.Array:
    if kind is Type.TIMESTAMP:
        values = [
            microseconds(one, attribute=name) if isinstance(one, (str, date, datetime)) else one for one in values
        ]
        return _array(name, kind, values, pa.int64()).view(kind.arrow)
    if kind is Type.STRING and name == "event_id":
        values = [str(one) if isinstance(one, int) else one for one in values]
    return _array(name, kind, values, kind.arrow)


def _array(name: str, kind: Type, values: list[Any], arrow: pa.DataType) -> pa.Array:
    try:
        return pa.array(values, arrow)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        for value in values:
            try:
                pa.array([value], arrow)
            except (pa.ArrowException, TypeError, ValueError, OverflowError):
                raise EventError(f"attribute {name!r} is {value!r}; accepted is {kind.value}") from None
        raise


def batches_of(topic: str, schema: Schema, events: Any) -> Iterator[pa.RecordBatch]:
    """Events in any form (record batch, table, data frame, rows), as batches that each fit into a request."""
    if isinstance(events, pa.RecordBatch):
        whole = [events]
    elif isinstance(events, pa.Table):
        whole = events.to_batches()
    elif hasattr(events, "__dataframe__") or type(events).__name__ == "DataFrame":
        whole = pa.Table.from_pandas(events, preserve_index=False).to_batches()
    elif isinstance(events, Iterable) and not isinstance(events, (str, bytes, Mapping)):
        rows = list(events)
        whole = [
            rows_to_batch(topic, schema, rows[begin : begin + ROWS_MAX]) for begin in range(0, len(rows), ROWS_MAX)
        ]
    else:
        raise EventError(
            f"events are a {type(events).__name__}; accepted are a table, record batch, data frame, or rows"
        )
    for batch in whole:
        yield from _halved(batch)


def _halved(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    if batch.num_rows > 1 and (batch.num_rows > ROWS_MAX or batch.nbytes > BYTES_MAX):
        half = batch.num_rows // 2
        yield from _halved(batch.slice(0, half))
        yield from _halved(batch.slice(half))
    elif batch.num_rows:
        yield batch
