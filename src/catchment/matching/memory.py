"""Loads from addresses and growable arrays: the few things that numpy and numba leave to us.

Arrow's C interface hands out addresses. Reading them as such, instead of wrapping every buffer in an array, keeps a
batch of one event cheap, and there is one compiled version of each kernel whether a buffer may be written to or not.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from importlib.resources import files
from typing import Any, TypeVar, cast

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils as _cgutils
from numba.extending import intrinsic as _intrinsic

Array = npt.NDArray[Any]

_Kernel = TypeVar("_Kernel", bound=Callable[..., Any])
cgutils: Any = _cgutils

_SOURCES = sorted((file.name, file.read_bytes()) for file in files(__package__).iterdir() if file.name.endswith(".py"))
FINGERPRINT = hashlib.sha1(repr(_SOURCES).encode(), usedforsecurity=False).hexdigest()[:12]


def compiled(kernel: _Kernel) -> _Kernel:
    """Decorates kernels: compiled at the first call, kept on disk for the next process, run without the global lock.

    numba takes a kernel from disk as long as the kernel's own file is the same. The fingerprint in its name makes it
    look at all files of the package, as kernels call each other and share their layout.
    """
    kernel.__qualname__ += f"_{FINGERPRINT}"
    return cast(_Kernel, njit(cache=True, nogil=True)(kernel))


def intrinsic(generator: Callable[..., Any]) -> Any:
    """Decorates functions that write machine instructions."""
    return _intrinsic(generator)


def _loader(result: types.Type, stored: ir.Type) -> Any:
    @intrinsic
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


@intrinsic
def prefetch(typingctx: Any, address: Any) -> Any:
    """Ask for a line of memory that will be read soon."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        number, pointer = ir.IntType(32), ir.IntType(8).as_pointer()
        name = "llvm.prefetch.p0" if pointer.is_opaque else "llvm.prefetch.p0i8"
        function_type = ir.FunctionType(ir.VoidType(), [pointer, number, number, number])
        function = cgutils.get_or_insert_function(builder.module, function_type, name)
        how = [ir.Constant(number, 0), ir.Constant(number, 3), ir.Constant(number, 1)]
        builder.call(function, [builder.inttoptr(arguments[0], pointer), *how])
        return context.get_dummy_value()

    return types.void(types.int64), generate


_TILE = ir.VectorType(ir.IntType(64), 8)
_SIXTEEN = ir.VectorType(ir.IntType(64), 16)


@intrinsic
def count_up_to(typingctx: Any, numbers: Any, limit: Any) -> Any:
    """How many of the 16 int64 at an address are not above a limit: a step of a search with no branch to mispredict."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        address, limit = arguments
        numbers = builder.load(builder.inttoptr(address, _SIXTEEN.as_pointer()), align=8)
        one = builder.insert_element(ir.Constant(_SIXTEEN, ir.Undefined), limit, ir.Constant(ir.IntType(32), 0))
        zeros = ir.Constant(ir.VectorType(ir.IntType(32), 16), [0] * 16)
        limits = builder.shuffle_vector(one, ir.Constant(_SIXTEEN, ir.Undefined), zeros)
        found = builder.bitcast(builder.icmp_signed("<=", numbers, limits), ir.IntType(16))
        return builder.zext(builder.ctpop(found), ir.IntType(64))

    return types.int64(types.int64, types.int64), generate


@intrinsic
def or_cells(
    typingctx: Any, table: Any, cells: Any, lanes: Any, count: Any, start: Any, result: Any, wanted: Any
) -> Any:
    """Start or-ed with `table[cells[lanes[i]]]` for i below count; returns in which words `wanted & ~result` is not 0.

    All but the count are addresses; a row of the table, start, result and what is wanted are 8 words of 64 bits.
    Written as vector instructions because the compiler, left to itself, vectorises the loop the wrong way round: across
    lanes, gathering words one by one, at a tenth of the speed.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        table, cells, lanes, count, start, result, wanted = arguments
        word = ir.IntType(64)

        def short_at(base: Any, number: Any) -> Any:
            address = builder.add(base, builder.mul(number, ir.Constant(word, 2)))
            return builder.zext(builder.load(builder.inttoptr(address, ir.IntType(16).as_pointer()), align=2), word)

        bits = cgutils.alloca_once(builder, _TILE)
        builder.store(builder.load(builder.inttoptr(start, _TILE.as_pointer()), align=8), bits)
        with cgutils.for_range(builder, count) as loop:
            cell = short_at(cells, short_at(lanes, loop.index))
            address = builder.add(table, builder.mul(cell, ir.Constant(word, 64)))
            row = builder.load(builder.inttoptr(address, _TILE.as_pointer()), align=8)
            builder.store(builder.or_(builder.load(bits), row), bits)
        total = builder.load(bits)
        builder.store(total, builder.inttoptr(result, _TILE.as_pointer()), align=8)
        asked = builder.load(builder.inttoptr(wanted, _TILE.as_pointer()), align=8)
        left = builder.icmp_unsigned("!=", builder.and_(asked, builder.not_(total)), ir.Constant(_TILE, [0] * 8))
        return builder.zext(builder.bitcast(left, ir.IntType(8)), word)

    return types.int64(*[types.int64] * 7), generate


@compiled
def bit_count(bits: Any) -> Any:
    bits = bits - ((bits >> np.uint64(1)) & np.uint64(0x5555555555555555))
    bits = (bits & np.uint64(0x3333333333333333)) + ((bits >> np.uint64(2)) & np.uint64(0x3333333333333333))
    bits = (bits + (bits >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return np.int64((bits * np.uint64(0x0101010101010101)) >> np.uint64(56))
