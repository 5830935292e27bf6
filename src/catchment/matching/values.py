"""Compiled: single values out of Arrow's buffers, and the cell that a code falls into."""

from __future__ import annotations

from typing import Any

import numpy as np

from catchment.matching.layout import BOOL, INT8, INT16, INT32, INT64, UINT8, UINT16, UINT32
from catchment.matching.memory import (
    compiled,
    count_up_to,
    load_i8,
    load_i16,
    load_i32,
    load_i64,
    load_u8,
    load_u16,
    load_u32,
)

__all__ = ["cell_of", "integer_at", "is_valid"]


@compiled
def is_valid(bitmap: Any, position: Any) -> Any:
    return bitmap == 0 or (load_u8(bitmap + (position >> 3)) >> (position & 7)) & 1 != 0


@compiled
def integer_at(kind: Any, values: Any, position: Any) -> Any:
    if kind == INT64:
        return load_i64(values + position * 8)
    if kind == INT32:
        return np.int64(load_i32(values + position * 4))
    if kind == INT16:
        return np.int64(load_i16(values + position * 2))
    if kind == INT8:
        return np.int64(load_i8(values + position))
    if kind == UINT8:
        return np.int64(load_u8(values + position))
    if kind == UINT16:
        return np.int64(load_u16(values + position * 2))
    if kind == UINT32:
        return np.int64(load_u32(values + position * 4))
    if kind == BOOL:
        return np.int64((load_u8(values + (position >> 3)) >> (position & 7)) & 1)
    # An unsigned number beyond int64 comes out negative, which its reader looks for.
    return load_i64(values + position * 8)


@compiled
def cell_of(search: Any, cell_max: Any, code: Any) -> Any:
    """The cell of a code within its lane, by a search of two steps: 16 pivots, then 16 boundaries."""
    group = min(count_up_to(search, code), 15)
    return min(1 + group * 16 + count_up_to(search + 128 + group * 128, code), cell_max)
