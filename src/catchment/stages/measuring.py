"""How large events and partials are on the wire."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from catchment.model.schema import RESERVED_COLUMNS
from catchment.model.states import STATES

__all__ = ["HEADER_BYTES", "PARTIAL_BYTES", "event_bytes", "state_bytes", "state_bytes_max"]

HEADER_BYTES = 24
"""Id, topic and time of an event on the wire."""
PARTIAL_BYTES = 32
"""Subscription, window and kind of a partial or a notification on the wire."""


def state_bytes(state: str) -> int:
    """Give the size of a state of this name, as far as that is known before it has met any value."""
    return STATES[state].size_bytes


def state_bytes_max(state: str) -> int:
    """… and of one that has met many."""
    return STATES[state].size_bytes_max


def event_bytes(batch: pa.RecordBatch) -> npt.NDArray[Any]:
    """The size of each event on the wire: a header, and what each attribute that is there takes."""
    sizes = np.full(batch.num_rows, HEADER_BYTES, np.int64)
    for name in batch.schema.names:
        if name in RESERVED_COLUMNS:
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
