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
from catchment.model.errors import EventError
from catchment.model.rows import rows_to_batch
from catchment.model.schema import Schema

__all__ = ["batches_of", "event_of_line", "names_in", "shown_row"]

ROWS_MAX = 10_000
BYTES_MAX = 500_000
"""Of one request, so that it fits into a frame whatever its columns take besides."""


def names_in(events: Any) -> AbstractSet[str]:
    """What a row or rows have, by name; nothing of columns, which have types of their own."""
    if isinstance(events, Mapping):
        return events.keys()
    if isinstance(events, (list, tuple)):
        return {name for row in events if isinstance(row, Mapping) for name in row}
    return frozenset()


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
