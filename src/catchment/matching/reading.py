"""Compiled: from the buffers of Arrow columns to codes and cells.

A code is an int64 that orders the values of a lane; a cell is the bucket of the lane that the code falls into. A lane is
one way to look at an attribute: its values in their order, its strings backwards, or the pieces its strings contain.

Rule 1: nothing here allocates per value; strings are looked up in a memo and worked out once per distinct string.
Rule 2: a problem is reported as a number and a row; the caller words the error.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from catchment.matching.memory import (
    Array,
    load_f32,
    load_f64,
    load_i8,
    load_i16,
    load_i32,
    load_i64,
    load_u8,
    load_u16,
    load_u32,
    load_u64,
)

NULL_CODE = -(2**63)
LOWEST_CODE, HIGHEST_CODE = NULL_CODE + 1, 2**63 - 1
FLIP = 2**63 - 1

# What a row of `columns` says about an attribute.
KIND, VALUES, VALIDITY, OFFSET, DATA, SCALE, INDEX_KIND, INDEX, INDEX_VALIDITY, INDEX_OFFSET = range(10)
COLUMN_FIELDS = 10
MISSING, INT8, INT16, INT32, INT64, UINT8, UINT16, UINT32, UINT64, FLOAT32, FLOAT64, BOOL, UTF8, LARGE_UTF8 = range(14)

# What is wrong with a value.
FINE, MEMO_FULL, NOT_FINITE, TOO_LARGE, NOT_A_FLOAT = range(5)


class Lanes(NamedTuple):
    """Where the cells of each lane are. Cell 0 of a lane is null, cell k+1 lies above k of its boundaries."""

    of_attribute: Array
    is_float: Array
    first_cell: Array
    first_boundary: Array
    boundary: Array


class Memo(NamedTuple):
    """Strings already seen, in an open hash table, with what was worked out about each."""

    table: Array
    hash: Array
    attribute: Array
    start: Array
    length: Array
    pool: Array
    code: Array
    cell: Array
    bits_at: Array
    bits: Array
    """Per string, the set of pieces it contains."""
    counts: Array
    """Strings, bytes of the pool, words of bits: in use."""


@njit(cache=True, nogil=True, inline="always")
def _is_valid(bitmap: int, position: int) -> bool:
    return bitmap == 0 or (load_u8(bitmap + (position >> 3)) >> (position & 7)) & 1 != 0


@njit(cache=True, nogil=True)
def _integer_at(kind: int, values: int, position: int) -> int:
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


@njit(cache=True, nogil=True, inline="always")
def cell_of(lanes: Any, lane: int, code: int) -> int:
    base = lanes.first_boundary[lane]
    count = lanes.first_boundary[lane + 1] - base
    start = base
    while count > 1:
        half = count >> 1
        base += half * (lanes.boundary[base + half - 1] <= code)
        count -= half
    if count == 1 and lanes.boundary[base] <= code:
        base += 1
    return lanes.first_cell[lane] + 1 + (base - start)


@njit(cache=True, nogil=True)
def _read_numbers(column: Any, is_float: int, lane: int, first: int, lanes: Any, codes: Any, cells: Any) -> Any:
    kind, values, validity, scale = column[KIND], column[VALUES], column[VALIDITY], column[SCALE]
    null_cell = lanes.first_cell[lane]
    scratch = np.empty(1, np.float64)
    bits = scratch.view(np.int64)
    for row in range(codes.shape[0]):
        position = column[OFFSET] + first + row
        if not _is_valid(validity, position):
            codes[row, lane] = NULL_CODE
            cells[row, lane] = null_cell
            continue
        if kind == FLOAT64 or kind == FLOAT32:
            value = load_f64(values + position * 8) if kind == FLOAT64 else np.float64(load_f32(values + position * 4))
            if not np.isfinite(value):
                return NOT_FINITE, row
        elif is_float:
            whole = _integer_at(kind, values, position)
            value = np.float64(whole)
            if abs(whole) > 2**53 and (value >= 2.0**63 or np.int64(value) != whole):
                return NOT_A_FLOAT, row
        if is_float:
            scratch[0] = value + 0.0  # -0.0 is 0.0
            code = bits[0] if bits[0] >= 0 else bits[0] ^ FLIP
        else:
            code = _integer_at(kind, values, position)
            if code == NULL_CODE or (kind == UINT64 and code < 0):
                return TOO_LARGE, row
            if scale > 1:
                if abs(code) > FLIP // scale:
                    return TOO_LARGE, row
                code *= scale
            elif scale < 0:
                code //= -scale
        codes[row, lane] = code
        cells[row, lane] = cell_of(lanes, lane, code)
    return FINE, 0


# -- strings ----------------------------------------------------------------------------------------------------------


@njit(cache=True, nogil=True, inline="always")
def _mixed(state: int, word: int) -> int:
    product = (state ^ word) * np.uint64(0x9E3779B97F4A7C15)
    return product ^ (product >> np.uint64(29))


@njit(cache=True, nogil=True)
def _hashed(address: int, length: int, seed: int) -> int:
    state = np.uint64(seed) * np.uint64(0xC2B2AE3D27D4EB4F) + np.uint64(length)
    if length >= 8:
        for at in range(0, length - 8, 8):
            state = _mixed(state, load_u64(address + at))
        return _mixed(state, load_u64(address + length - 8))
    if length >= 4:
        low, high = np.uint64(load_u32(address)), np.uint64(load_u32(address + length - 4))
        return _mixed(state, low | (high << np.uint64(32)))
    word = np.uint64(0)
    for at in range(length):
        word = (word << np.uint64(8)) | np.uint64(load_u8(address + at))
    return _mixed(state, word)


@njit(cache=True, nogil=True)
def _same(left: int, right: int, length: int) -> bool:
    if length >= 8:
        for at in range(0, length - 8, 8):
            if load_u64(left + at) != load_u64(right + at):
                return False
        return load_u64(left + length - 8) == load_u64(right + length - 8)
    for at in range(length):
        if load_u8(left + at) != load_u8(right + at):
            return False
    return True


@njit(cache=True, nogil=True)
def locate(constants: Any, first: int, last: int, pool: Any, start: int, length: int) -> Any:
    """How many constants of a view lie before a text, and whether it is one of them."""
    head = np.uint64(0)
    for at in range(8):
        head = (head << np.uint64(8)) | (np.uint64(pool[start + at]) if at < length else np.uint64(0))
    low, high = first, last
    while low < high:
        middle = (low + high) >> 1
        if constants.key[middle] != head:
            before = constants.key[middle] < head
        else:
            constant = constants.order[middle]
            their_start, their_length = constants.start[constant], constants.length[constant]
            shared = min(length, np.int64(their_length))
            at = 0
            while at < shared and constants.pool[their_start + at] == pool[start + at]:
                at += 1
            if at == shared:
                if length == their_length:
                    return middle - first, True
                before = their_length < length
            else:
                before = constants.pool[their_start + at] < pool[start + at]
        if before:
            low = middle + 1
        else:
            high = middle
    return low - first, False


@njit(cache=True, nogil=True)
def _node_slot(pieces: Any, key: int) -> int:
    mask = len(pieces.key) - 1
    slot = np.int64((np.uint64(key) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(20)) & mask
    while pieces.key[slot] != key and pieces.key[slot] != -1:
        slot = (slot + 1) & mask
    return slot


@njit(cache=True, nogil=True)
def put_nodes(pieces: Any, keys: Any, children: Any) -> None:
    for i in range(len(keys)):
        if keys[i] != -1:
            slot = _node_slot(pieces, keys[i])
            pieces.key[slot] = keys[i]
            pieces.child[slot] = children[i]


@njit(cache=True, nogil=True)
def add_piece(pieces: Any, root: int, text: Any, piece: int, node_count: int) -> int:
    node = root
    for byte in text:
        key = node * 256 + np.int64(byte)
        slot = _node_slot(pieces, key)
        if pieces.key[slot] == -1:
            pieces.key[slot] = key
            pieces.child[slot] = node_count
            node_count += 1
        node = np.int64(pieces.child[slot])
    pieces.piece[node] = piece
    return node_count


@njit(cache=True, nogil=True)
def _find_pieces(pieces: Any, root: int, pool: Any, start: int, length: int, bits: Any, bits_at: int) -> None:
    for begin in range(start, start + length):
        node = root
        for at in range(begin, start + length):
            slot = _node_slot(pieces, node * 256 + np.int64(pool[at]))
            if pieces.key[slot] == -1:
                break
            node = np.int64(pieces.child[slot])
            piece = pieces.piece[node]
            if piece >= 0:
                bits[bits_at + (piece >> 6)] |= np.uint64(1) << np.uint64(piece & 63)


@njit(cache=True, nogil=True)
def _learn(memo: Any, attribute: int, text: int, lanes: Any, constants: Any, pieces: Any) -> None:
    """Work out codes, cells and pieces of a string that was just put into the memo."""
    start, length = memo.start[text], np.int64(memo.length[text])
    for view in range(2):
        lane = lanes.of_attribute[attribute, view]
        if lane < 0:
            continue
        if view == 1:
            for at in range(length):
                memo.pool[start + length + at] = memo.pool[start + length - 1 - at]
            start += length
        smaller, equal = locate(constants, constants.first[lane], constants.first[lane + 1], memo.pool, start, length)
        memo.code[text, view] = 2 * smaller + (2 if equal else 1)
        memo.cell[text, view] = cell_of(lanes, lane, memo.code[text, view])
    if lanes.of_attribute[attribute, 2] >= 0:
        width = (pieces.count[attribute] + 63) >> 6
        bits_at = memo.counts[2]
        memo.bits[bits_at : bits_at + width] = 0
        _find_pieces(pieces, attribute, memo.pool, memo.start[text], length, memo.bits, bits_at)
        memo.bits_at[text] = bits_at
        memo.counts[2] = bits_at + width


@njit(cache=True, nogil=True, inline="always")
def _known(table: Any, hashes: Any, attributes: Any, starts: Any, lengths: Any, pool: int, hashed: int,
    attribute: int, address: int, length: int) -> int:  # fmt: skip
    """The number of a string in the memo; if it is not there, where in the table it would be, as -1 - slot."""
    mask = len(table) - 1
    slot = np.int64(hashed >> np.uint64(1)) & mask
    while True:
        text = np.int64(table[slot])
        if text < 0:
            return -1 - slot
        if (
            hashes[text] == hashed
            and lengths[text] == length
            and attributes[text] == attribute
            and _same(pool + starts[text], address, length)
        ):
            return text
        slot = (slot + 1) & mask


@njit(cache=True, nogil=True)
def _remember(
    memo: Any,
    slot: int,
    hashed: int,
    attribute: int,
    address: int,
    length: int,
    lanes: Any,
    constants: Any,
    pieces: Any,
) -> int:
    """Put a new string into the memo; its number there, or -1 if it does not fit."""
    text, start = memo.counts[0], memo.counts[1]
    width = (pieces.count[attribute] + 63) >> 6
    # Twice the length, since its reverse is written behind it.
    if text == len(memo.hash) or start + 2 * length > len(memo.pool) or memo.counts[2] + width > len(memo.bits):
        return -1
    memo.table[slot] = text
    memo.hash[text] = hashed
    memo.attribute[text] = attribute
    memo.start[text] = start
    memo.length[text] = length
    for at in range(length):
        memo.pool[start + at] = load_u8(address + at)
    memo.counts[0] = text + 1
    memo.counts[1] = start + length
    _learn(memo, attribute, text, lanes, constants, pieces)
    return text


@njit(cache=True, nogil=True)
def _read_strings(
    column: Any, attribute: int, first: int, lanes: Any, constants: Any, pieces: Any, memo: Any, codes: Any, cells: Any
) -> Any:
    plain, backwards, parts = lanes.of_attribute[attribute]
    wide, indexed = column[KIND] == LARGE_UTF8, column[INDEX_KIND] != 0
    # Taken out of the memo once: handing all of it to a function costs more than the lookup.
    table, hashes, attributes, starts, lengths = memo.table, memo.hash, memo.attribute, memo.start, memo.length
    text_code, text_cell, bits_at, pool = memo.code, memo.cell, memo.bits_at, memo.pool.ctypes.data
    for row in range(codes.shape[0]):
        valid = True
        position = first + row
        if indexed:
            valid = _is_valid(column[INDEX_VALIDITY], column[INDEX_OFFSET] + position)
            position = _integer_at(column[INDEX_KIND], column[INDEX], column[INDEX_OFFSET] + position) if valid else 0
        position += column[OFFSET]
        if valid and _is_valid(column[VALIDITY], position):
            if wide:
                begin, end = load_i64(column[VALUES] + position * 8), load_i64(column[VALUES] + position * 8 + 8)
            else:
                begin = np.int64(load_i32(column[VALUES] + position * 4))
                end = np.int64(load_i32(column[VALUES] + position * 4 + 4))
            address, length = column[DATA] + begin, end - begin
            hashed = _hashed(address, length, attribute)
            text = _known(table, hashes, attributes, starts, lengths, pool, hashed, attribute, address, length)
            if text < 0:
                text = _remember(memo, -1 - text, hashed, attribute, address, length, lanes, constants, pieces)
                if text < 0:
                    return MEMO_FULL, row
            if plain >= 0:
                codes[row, plain] = text_code[text, 0]
                cells[row, plain] = text_cell[text, 0]
            if backwards >= 0:
                codes[row, backwards] = text_code[text, 1]
                cells[row, backwards] = text_cell[text, 1]
            if parts >= 0:
                codes[row, parts] = bits_at[text]
                cells[row, parts] = lanes.first_cell[parts] + 1
        else:
            for lane in (plain, backwards, parts):
                if lane >= 0:
                    codes[row, lane] = NULL_CODE
                    cells[row, lane] = lanes.first_cell[lane]
    return FINE, 0


@njit(cache=True, nogil=True)
def read(columns: Any, first: int, lanes: Any, constants: Any, pieces: Any, memo: Any, codes: Any, cells: Any) -> Any:
    """Fill codes and cells for the rows from `first` on; says what was wrong, with which attribute, in which row."""
    for attribute in range(columns.shape[0]):
        column = columns[attribute]
        plain, backwards, parts = lanes.of_attribute[attribute]
        if plain < 0 and backwards < 0 and parts < 0:
            continue
        if column[KIND] == MISSING:
            for lane in (plain, backwards, parts):
                if lane >= 0:
                    for row in range(codes.shape[0]):
                        codes[row, lane] = NULL_CODE
                        cells[row, lane] = lanes.first_cell[lane]
        elif column[KIND] >= UTF8:
            problem, row = _read_strings(column, attribute, first, lanes, constants, pieces, memo, codes, cells)
            if problem != FINE:
                return problem, attribute, row
        else:
            is_float = lanes.is_float[attribute]
            problem, row = _read_numbers(column, is_float, plain, first, lanes, codes, cells)
            if problem != FINE:
                return problem, attribute, row
    return FINE, 0, 0
