"""Loads from addresses and growable arrays: the few things that numpy and numba leave to us.

Arrow's C interface hands out addresses. Reading them as such, instead of wrapping every buffer in an array, keeps a batch
of one event cheap, and there is one compiled version of each kernel whether a buffer may be written to or not.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

__all__ = [
    "Array",
    "grown",
    "load_f32",
    "load_f64",
    "load_i8",
    "load_i16",
    "load_i32",
    "load_i64",
    "load_u8",
    "load_u16",
    "load_u32",
    "load_u64",
]

Array = npt.NDArray[Any]


def _loader(result: types.Type, stored: ir.Type) -> Any:
    @intrinsic  # type: ignore[untyped-decorator]
    def load(typingctx: Any, address: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            # Slices of foreign buffers may start anywhere, so no alignment may be assumed.
            return builder.load(builder.inttoptr(arguments[0], stored.as_pointer()), align=1)

        return result(types.int64), generate

    return load


load_i8 = _loader(types.int8, ir.IntType(8))
load_i16 = _loader(types.int16, ir.IntType(16))
load_i32 = _loader(types.int32, ir.IntType(32))
load_i64 = _loader(types.int64, ir.IntType(64))
load_u8 = _loader(types.uint8, ir.IntType(8))
load_u16 = _loader(types.uint16, ir.IntType(16))
load_u32 = _loader(types.uint32, ir.IntType(32))
load_u64 = _loader(types.uint64, ir.IntType(64))
load_f32 = _loader(types.float32, ir.FloatType())
load_f64 = _loader(types.float64, ir.DoubleType())


def grown(array: Array, needed: int, fill: int = 0) -> Array:
    """The array, or one of at least twice its length, so that appending one by one stays cheap."""
    if needed <= len(array):
        return array
    larger = np.full((max(needed, 2 * len(array), 16), *array.shape[1:]), fill, array.dtype)
    larger[: len(array)] = array
    return larger
