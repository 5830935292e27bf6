"""What applications publish, as record batches: one event or many, plain values or columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from catchment.model.errors import EventError
from catchment.model.rows import rows_to_batch
from catchment.model.schema import Schema

__all__ = ["batches_of"]

ROWS_MAX = 10_000
BYTES_MAX = 500_000
"""Of one request, so that it fits into a frame whatever its columns take besides."""


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
