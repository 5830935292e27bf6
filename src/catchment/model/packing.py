"""Batches of events as plain lists of bytes and back, for messages between processes.

    batch    [rows, [column, …]]
    column   [name, type, validity, values, text]

Validity is a bitmap, or none where nothing is null. Values are 64 bits each, bits for bool, or 32-bit ends for strings,
whose text comes last: the layout of Arrow, so that neither side copies more than once.

Rule 1: what is read back is checked as if an enemy had written it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from catchment.model.errors import EventError
from catchment.model.schema import Type

__all__ = ["ROWS_MAX", "batch_from_plain", "batch_to_plain"]

ROWS_MAX = 1_000_000
COLUMNS_MAX = 4096
_ARROW = {kind.value: kind.arrow for kind in Type}


def batch_to_plain(batch: pa.RecordBatch) -> list[Any]:
    """A batch whose columns are of the five types; anything else is an EventError."""
    if batch.num_rows > ROWS_MAX:
        raise EventError(f"a batch has {batch.num_rows} events; accepted are at most {ROWS_MAX}")
    return [batch.num_rows, [_column(name, batch.column(name)) for name in batch.schema.names]]


def _column(name: str, column: pa.Array) -> list[Any]:
    kind = Type.of(column.type, attribute=name)
    if column.type != kind.arrow:
        raise EventError(f"column {name!r} has type {column.type}; accepted is {kind.arrow}")
    validity = np.packbits(column.is_valid(), bitorder="little").tobytes() if column.null_count else None
    if kind is Type.STRING:
        offsets, text = _text(column)
        return [name, kind.value, validity, offsets.tobytes(), text]
    values: npt.NDArray[Any]
    if kind is Type.BOOL:
        values = np.packbits(column.fill_null(False).to_numpy(zero_copy_only=False), bitorder="little")
    else:
        buffer = column.buffers()[1]
        values = np.frombuffer(buffer, np.int64, len(column), column.offset * 8) if len(column) else np.empty(0)
    return [name, kind.value, validity, values.tobytes(), None]


def _text(column: pa.Array) -> tuple[Any, bytes]:
    if not len(column):
        return np.zeros(1, np.int32), b""
    _, ends, text = column.buffers()
    offsets = np.frombuffer(ends, np.int32, len(column) + 1, column.offset * 4)
    used = text.slice(int(offsets[0]), int(offsets[-1] - offsets[0])).to_pybytes() if text is not None else b""
    return offsets - offsets[0], used


def batch_from_plain(plain: object) -> pa.RecordBatch:
    """The batch that `batch_to_plain` was given; anything else is an EventError."""
    rows, columns = _fields(plain, 2, "a batch")
    _require(_is_count(rows, ROWS_MAX), "the number of events", rows, f"at most {ROWS_MAX}")
    _require(isinstance(columns, list) and len(columns) <= COLUMNS_MAX, "the columns", columns, f"up to {COLUMNS_MAX}")
    arrays: dict[str, pa.Array] = {}
    for column in columns:
        name, *rest = _fields(column, 5, "a column")
        _require(isinstance(name, str) and name not in arrays, "a column's name", name, "a text, each once")
        arrays[name] = _array(name, rows, *rest)
    if not arrays:
        return pa.RecordBatch.from_struct_array(pa.array([{}] * rows, pa.struct([])))
    return pa.RecordBatch.from_arrays(list(arrays.values()), names=list(arrays))


def _array(name: str, rows: int, kind: object, validity: object, values: object, text: object) -> pa.Array:
    _require(isinstance(kind, str) and kind in _ARROW, f"the type of {name!r}", kind, ", ".join(_ARROW))
    _require(isinstance(values, bytes), f"the values of {name!r}", values, "bytes")
    _require(validity is None or isinstance(validity, bytes), f"the validity of {name!r}", validity, "bytes or none")
    assert isinstance(values, bytes)
    assert isinstance(kind, str)
    bits = (rows + 7) // 8
    if validity is not None:
        _require(len(validity) == bits, f"the validity of {name!r}", validity, f"{bits} bytes")  # type: ignore[arg-type]
    size = {"bool": bits, "string": 4 * (rows + 1)}.get(kind, 8 * rows)
    _require(len(values) == size, f"the values of {name!r}", values, f"{size} bytes")
    buffers = [None if validity is None else pa.py_buffer(validity), pa.py_buffer(values)]
    if kind == "string":
        _require(isinstance(text, bytes), f"the text of {name!r}", text, "bytes")
        assert isinstance(text, bytes)
        ends = np.frombuffer(values, np.int32)
        rising = ends[0] == 0 and ends[-1] == len(text) and bool((np.diff(ends) >= 0).all())
        _require(rising, f"the ends of {name!r}", values, "ends that rise from 0 to the length of the text")
        buffers.append(pa.py_buffer(text))
    else:
        _require(text is None, f"the text of {name!r}", text, "none")
    array = pa.Array.from_buffers(_ARROW[kind], rows, buffers)
    try:
        array.validate(full=True)
    except pa.ArrowInvalid as error:
        raise EventError(f"column {name!r} is damaged: {error}") from None
    return array


def _fields(plain: object, count: int, what: str) -> list[Any]:
    _require(isinstance(plain, list) and len(plain) == count, what, plain, f"a list of {count}")
    assert isinstance(plain, list)
    return plain


def _is_count(value: object, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= most


def _require(fits: bool, what: str, given: object, accepted: str) -> None:
    if not fits:
        raise EventError(f"{what} is {str(given)[:80]}; accepted: {accepted}")
