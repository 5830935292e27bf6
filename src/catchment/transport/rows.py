"""What applications publish, as record batches, and what they get, as JSON: the same rows for shell and HTTP."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from catchment.broker.client import WindowValue
from catchment.broker.limits import require_event_sizes
from catchment.model.errors import EventError
from catchment.model.rows import row_types, rows_to_batch, typed_columns
from catchment.model.schema import Schema

__all__ = ["ColumnSets", "batches_of", "event_of_line", "names_in", "shown_row"]

ROWS_MAX = 10_000
BYTES_MAX = 500_000
"""Of one request, so that it fits into a frame whatever its columns take besides."""
COLUMN_SETS_MAX = 8
"""Of one topic."""


class ColumnSets:
    """The sets of columns that one life of a client sends events in.

    A broker remembers each, and no more than a thousand of a client: a topic whose events have ever other attributes
    is sent with all of them, null where they are missing.
    """

    def __init__(self) -> None:
        self._sent: dict[str, set[tuple[str, ...]]] = {}

    def fitted(self, topic: str, schema: Schema, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The same events, in columns that may be sent."""
        sent, names = self._sent.setdefault(topic, set()), tuple(batch.schema.names)
        if names in sent:
            return batch
        if len(sent) < COLUMN_SETS_MAX:
            sent.add(names)
            return batch
        columns = {
            name: batch.column(name) if name in names else pa.nulls(batch.num_rows, kind.arrow)
            for name, kind in row_types(schema).items()
        }
        return pa.RecordBatch.from_pydict(columns)


def names_in(events: Any) -> AbstractSet[str]:
    """The attributes that events have, in any form that `batches_of` takes."""
    if isinstance(events, Mapping):
        return events.keys()
    if isinstance(events, (pa.RecordBatch, pa.Table)):
        return frozenset(events.schema.names)
    if isinstance(events, (list, tuple)):
        return {name for row in events if isinstance(row, Mapping) for name in row}
    return frozenset(map(str, getattr(events, "columns", ())))


def batches_of(topic: str, schema: Schema, events: Any) -> Iterator[pa.RecordBatch]:
    """Events in any form (record batch, table, data frame, rows), as batches that each fit into a request."""
    if isinstance(events, pa.RecordBatch):
        whole = [typed_columns(topic, schema, events)]
    elif isinstance(events, pa.Table):
        whole = typed_columns(topic, schema, events).to_batches()
    elif hasattr(events, "__dataframe__") or type(events).__name__ == "DataFrame":
        whole = typed_columns(topic, schema, _table_of(events)).to_batches()
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
        require_event_sizes(batch, None)
    for batch in whole:
        yield from _halved(batch)


def _table_of(frame: Any) -> pa.Table:
    try:
        return pa.Table.from_pandas(frame, preserve_index=False)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise EventError(
            f"a data frame does not become columns: {error}; accepted are values of one type each"
        ) from None


def _halved(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    if batch.num_rows > 1 and (batch.num_rows > ROWS_MAX or batch.nbytes > BYTES_MAX):
        half = batch.num_rows // 2
        yield from _halved(batch.slice(0, half))
        yield from _halved(batch.slice(half))
    elif batch.num_rows:
        yield batch


def event_of_line(line: bytes) -> dict[str, Any]:
    """The event that a line of JSON is; anything else is an EventError."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise EventError(f"it is no event: {error or 'it is nested too deeply'}; accepted is a JSON object") from None
    if not isinstance(row, dict):
        raise EventError(f"it is no event but {str(row)[:40]!r}; accepted is a JSON object")
    return row


def shown_row(name: str, one: Any) -> dict[str, Any]:
    """An event or a value of a window that a subscription brought, as JSON has it."""
    if isinstance(one, WindowValue):
        shown = asdict(one)
        for end in ("start", "end"):
            shown[f"window_{end}"] = _time(shown.pop(f"{end}_us"))
        return shown
    return {"subscription": name, **{key: _shown(value) for key, value in one.items()}}


def _shown(value: Any) -> Any:
    return value.astimezone(UTC).isoformat() if isinstance(value, datetime) else value


def _time(time_us: int) -> str:
    return datetime.fromtimestamp(time_us // 1_000_000, UTC).replace(microsecond=time_us % 1_000_000).isoformat()
