"""How large an event is on the wire."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

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
        if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
            sizes += pc.fill_null(pc.add(pc.binary_length(column), 4), 0).to_numpy(zero_copy_only=False)
        else:
            sizes += column.is_valid().to_numpy(zero_copy_only=False) * (1 if pa.types.is_boolean(column.type) else 8)
    return sizes
