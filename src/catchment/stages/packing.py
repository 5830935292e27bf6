"""Lists of numbers as bytes: what partials look like while Spark has them.

To Spark a list of bytes is one value instead of thousands, which it would copy one by one wherever it reads, shuffles
or writes a row. Integers take four bytes where all of a batch fit; `narrow` says of which columns that is so.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from catchment.stages.partials import PARTIAL_SCHEMA

__all__ = ["PACKED_SCHEMA", "packed", "unpacked"]

Ints = npt.NDArray[np.int64]

WIDE, NARROW = 8, 4
"""Bytes of a number."""
_MARK = "narrow"


def _is_numbers(kind: pa.DataType) -> bool:
    return pa.types.is_list(kind) and kind.value_type in (pa.int64(), pa.float64())


PACKED_SCHEMA = pa.schema(
    [
        (_MARK, pa.int32()),
        *(field.with_type(pa.binary()) if _is_numbers(field.type) else field for field in PARTIAL_SCHEMA),
    ]
)


def packed(partials: pa.RecordBatch) -> pa.RecordBatch:
    """Partials as PACKED_SCHEMA."""
    columns, narrow = [], 0
    for number, column in enumerate(partials.columns):
        if not _is_numbers(column.type):
            columns.append(column)
            continue
        values = _values(column)
        if values.dtype == np.int64 and len(values) and values.min() >= -(2**31) and values.max() < 2**31:
            values = values.astype(np.int32)
            narrow |= 1 << number
        columns.append(_bytes_of(column, values))
    mark = pa.array(np.full(partials.num_rows, narrow, np.int32))
    return pa.RecordBatch.from_arrays([mark, *columns], schema=PACKED_SCHEMA)


def unpacked(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Rows with the columns of PACKED_SCHEMA, and maybe others, with lists of numbers again."""
    mark = rows.column(_MARK).to_numpy()
    found = {name: column for name, column in zip(rows.schema.names, rows.columns, strict=True) if name != _MARK}
    for number, field in enumerate(PARTIAL_SCHEMA):
        if _is_numbers(field.type):
            kind = field.type.value_type.to_pandas_dtype()
            found[field.name] = _lists_of(found[field.name], kind, (mark >> number) & 1 > 0)
    return pa.RecordBatch.from_arrays(list(found.values()), names=list(found))


def _values(lists: pa.ListArray) -> npt.NDArray[Any]:
    values: npt.NDArray[Any] = lists.flatten().to_numpy(zero_copy_only=False)
    return values


def _bytes_of(lists: pa.ListArray, values: npt.NDArray[Any]) -> pa.BinaryArray:
    offsets = lists.offsets.to_numpy()
    places = (offsets - offsets[0]) * values.itemsize
    buffers = [None, pa.py_buffer(places.astype(np.int32)), pa.py_buffer(values)]
    return pa.Array.from_buffers(pa.binary(), len(lists), buffers)


def _lists_of(texts: pa.BinaryArray, kind: Any, narrow: npt.NDArray[np.bool_]) -> pa.ListArray:
    _, offsets, data = texts.buffers()
    if not len(texts) or data is None:
        empty = pa.array(np.zeros(len(texts) + 1, np.int32))
        return pa.ListArray.from_arrays(empty, pa.array(np.empty(0, kind)))
    places = np.frombuffer(offsets, np.int32, len(texts) + 1, texts.offset * 4).astype(np.int64)
    lengths = np.diff(places) // np.where(narrow, NARROW, WIDE)
    # Batches that differ in width may lie side by side.
    edges = [0, *(np.flatnonzero(np.diff(narrow)) + 1).tolist(), len(texts)]
    pieces = []
    for begin, end in pairwise(edges):
        width = np.dtype(np.int32 if narrow[begin] else kind)
        size = (places[end] - places[begin]) // width.itemsize
        pieces.append(np.frombuffer(data, width, size, places[begin]).astype(kind, copy=False))
    values = pieces[0] if len(pieces) == 1 else np.concatenate(pieces)
    firsts = np.concatenate(([0], np.cumsum(lengths))).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(firsts), pa.array(values))
