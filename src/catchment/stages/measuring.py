"""How large an event is on the wire."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

__all__ = ["HEADER_BYTES", "SIZE", "event_bytes"]

SIZE = "__size"
"""A column of publications that were measured before they came here."""
HEADER_BYTES = 24
"""Id, topic and time of an event on the wire."""


def event_bytes(batch: pa.RecordBatch) -> npt.NDArray[Any]:
    """The size of each event on the wire: a header, and what each attribute that is there takes."""
    if SIZE in batch.schema.names:
        measured: npt.NDArray[Any] = batch.column(SIZE).to_numpy()
        return measured
    sizes = np.full(batch.num_rows, HEADER_BYTES, np.int64)
    for name in batch.schema.names:
        if name in ("event_id", "topic", "broker", "ts"):
            continue
        column = batch.column(name)
        each = _text_bytes(column) if pa.types.is_string(column.type) or pa.types.is_large_string(column.type) else 8
        if pa.types.is_boolean(column.type):
            each = 1
        # Most columns have no nulls, and looking for them one by one is dear.
        sizes += each * column.is_valid().to_numpy(zero_copy_only=False) if column.null_count else each
    return sizes


def _text_bytes(column: pa.Array) -> npt.NDArray[Any]:
    """The length of each text, and of what tells it."""
    offsets = np.frombuffer(column.buffers()[1], np.int64 if pa.types.is_large_string(column.type) else np.int32)
    return np.diff(offsets[column.offset : column.offset + len(column) + 1]) + 4
