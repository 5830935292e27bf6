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
    count_up_to,
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
    cell_lane: Array
    """The lane whose cells count for a lane. Pieces have none of their own: those of the strings' order say what is null."""
    first_cell: Array
    cell_max: Array
    """Cells of a lane but the one of null, whose number within the lane is 0."""
    first_boundary: Array
    boundary: Array
    search: Array
    """The boundaries of each lane again, 16 by 16, behind every sixteenth of them."""


# What is remembered about a string: columns of a record of 64 bytes. There are two codes and two cells.
HASH, START, LENGTH, CODE, _, CELL, _, BITS_AT = range(8)
RECORD_FIELDS = 8


class Memo(NamedTuple):
    """Strings already seen, in an open hash table, with what was worked out about each."""

    table: Array
    record: Array
    pool: Array
    """Their bytes."""
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


@njit(cache=True, nogil=True)
def cell_of(search: Any, cell_max: Any, code: Any) -> Any:
    """The cell of a code within its lane, by a search of two steps: 16 pivots, then 16 boundaries."""
    group = min(count_up_to(search, code), 15)
    return min(1 + group * 16 + count_up_to(search + 128 + group * 128, code), cell_max)


@njit(cache=True, nogil=True)
def _integer_codes(column: Any, first: Any, code: Any) -> Any:
    kind, values, validity, scale = column[KIND], column[VALUES], column[VALIDITY], column[SCALE]
    for row in range(len(code)):
        position = column[OFFSET] + first + row
        value = _integer_at(kind, values, position)
        if not _is_valid(validity, position):
            value = NULL_CODE
        elif value == NULL_CODE or (kind == UINT64 and value < 0) or (scale > 1 and abs(value) > FLIP // scale):
            return TOO_LARGE, row
        elif scale > 1:
            value *= scale
        elif scale < 0:
            value //= -scale
        code[row] = value
    return FINE, 0


@njit(cache=True, nogil=True)
def _float_codes(column: Any, first: Any, code: Any) -> Any:
    kind, values, validity = column[KIND], column[VALUES], column[VALIDITY]
    value, bits = code.view(np.float64), code
    for row in range(len(code)):
        position = column[OFFSET] + first + row
        if kind == FLOAT64:
            number = load_f64(values + position * 8)
        elif kind == FLOAT32:
            number = np.float64(load_f32(values + position * 4))
        else:
            whole = _integer_at(kind, values, position)
            number = np.float64(whole)
            if abs(number) > 2.0**53 and _is_valid(validity, position):
                # Beyond 2^63 a double has no int64 to compare with; only unsigned numbers come there.
                if kind == UINT64 and whole < 0 or number >= 2.0**63 or np.int64(number) != whole:
                    return NOT_A_FLOAT, row
        valid = _is_valid(validity, position)
        if valid and not np.isfinite(number):
            return NOT_FINITE, row
        value[row] = number + 0.0  # -0.0 is 0.0
        bits[row] = (bits[row] if bits[row] >= 0 else bits[row] ^ FLIP) if valid else NULL_CODE
    return FINE, 0


@njit(cache=True, nogil=True)
def _read_numbers(
    column: Any, is_float: Any, lane: Any, first: Any, lanes: Any, code: Any, codes: Any, cells: Any
) -> Any:
    problem, row = _float_codes(column, first, code) if is_float else _integer_codes(column, first, code)
    if problem != FINE:
        return problem, row
    search, null_cell, cell_max = lanes.search[lane].ctypes.data, lanes.first_cell[lane], lanes.cell_max[lane]
    for row in range(len(code)):
        codes[row, lane] = code[row]
        cell = cell_of(search, cell_max, code[row])
        cells[row, lane] = null_cell + cell * (code[row] != NULL_CODE)
    return FINE, 0


# -- strings ----------------------------------------------------------------------------------------------------------


@njit(cache=True, nogil=True, inline="always")
def _mixed(state: Any, word: Any) -> Any:
    product = (state ^ word) * np.uint64(0x9E3779B97F4A7C15)
    return product ^ (product >> np.uint64(29))


@njit(cache=True, nogil=True)
def _hashed(address: Any, length: Any, attribute: Any) -> Any:
    """A hash that no two attributes share: which one it is stands in its upper bits."""
    state = np.uint64(length)
    if length >= 8:
        for at in range(0, length - 8, 8):
            state = _mixed(state, load_u64(address + at))
        state = _mixed(state, load_u64(address + length - 8))
    elif length >= 4:
        low, high = np.uint64(load_u32(address)), np.uint64(load_u32(address + length - 4))
        state = _mixed(state, low | (high << np.uint64(32)))
    else:
        for at in range(length):
            state = _mixed(state, np.uint64(load_u8(address + at)))
    state = (state + np.uint64(attribute) * np.uint64(0xC2B2AE3D27D4EB4F)) & np.uint64(0xFFFFFFFFFFF)
    return np.int64(state) | (np.int64(attribute) << 44)


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
def _learn(memo: Any, attribute: Any, record: Any, lanes: Any, constants: Any, pieces: Any) -> Any:
    """Work out codes, cells and pieces of a string that was just put into the memo."""
    start, length = record[START], record[LENGTH]
    for view in range(2):
        lane = lanes.of_attribute[attribute, view]
        if lane < 0:
            continue
        if view == 1:
            for at in range(length):
                memo.pool[start + length + at] = memo.pool[start + length - 1 - at]
            start += length
        smaller, equal = locate(constants, constants.first[lane], constants.first[lane + 1], memo.pool, start, length)
        code = 2 * smaller + (2 if equal else 1)
        record[CODE + view] = code
        cell = cell_of(lanes.search[lane].ctypes.data, lanes.cell_max[lane], code)
        record[CELL + view] = lanes.first_cell[lane] + cell
    if lanes.of_attribute[attribute, 2] >= 0:
        width = (pieces.count[attribute] + 63) >> 6
        bits_at = memo.counts[2]
        memo.bits[bits_at : bits_at + width] = 0
        _find_pieces(pieces, attribute, memo.pool, record[START], length, memo.bits, bits_at)
        record[BITS_AT] = bits_at
        memo.counts[2] = bits_at + width


@njit(cache=True, nogil=True)
def _remember(
    memo: Any, slot: Any, hashed: Any, attribute: Any, address: Any, length: Any, lanes: Any, constants: Any,
    pieces: Any,
) -> Any:  # fmt: skip
    """Put a new string into the memo; its number there, or -1 if it does not fit."""
    text, start = memo.counts[0], memo.counts[1]
    width = (pieces.count[attribute] + 63) >> 6
    # Twice the length, since its reverse is written behind it.
    if text == len(memo.record) or start + 2 * length > len(memo.pool) or memo.counts[2] + width > len(memo.bits):
        return -1
    memo.table[slot] = text
    record = memo.record[text]
    record[HASH], record[START], record[LENGTH] = hashed, start, length
    for at in range(length):
        memo.pool[start + at] = load_u8(address + at)
    memo.counts[0] = text + 1
    memo.counts[1] = start + length
    _learn(memo, attribute, record, lanes, constants, pieces)
    return text


@njit(cache=True, nogil=True)
def _read_strings(
    column: Any, attribute: Any, first: Any, lanes: Any, constants: Any, pieces: Any, memo: Any, codes: Any, cells: Any
) -> Any:
    plain, backwards, parts = lanes.of_attribute[attribute]
    kind, values, validity, offset, data = column[KIND], column[VALUES], column[VALIDITY], column[OFFSET], column[DATA]
    index_kind, index, index_validity = column[INDEX_KIND], column[INDEX], column[INDEX_VALIDITY]
    # Taken out of the memo once: handing all of it to a function costs more than the lookup.
    table, records, pool, mask = memo.table, memo.record, memo.pool.ctypes.data, len(memo.table) - 1
    plain_null, backwards_null = lanes.first_cell[max(plain, 0)], lanes.first_cell[max(backwards, 0)]
    for row in range(codes.shape[0]):
        position = first + row
        valid = True
        if index_kind != 0:
            valid = _is_valid(index_validity, column[INDEX_OFFSET] + position)
            position = _integer_at(index_kind, index, column[INDEX_OFFSET] + position) if valid else 0
        position += offset
        if not valid or not _is_valid(validity, position):
            if plain >= 0:
                codes[row, plain] = NULL_CODE
                cells[row, plain] = plain_null
            if backwards >= 0:
                codes[row, backwards] = NULL_CODE
                cells[row, backwards] = backwards_null
            if parts >= 0:
                codes[row, parts] = NULL_CODE
            continue
        if kind == LARGE_UTF8:
            begin, end = load_i64(values + position * 8), load_i64(values + position * 8 + 8)
        else:
            begin, end = np.int64(load_i32(values + position * 4)), np.int64(load_i32(values + position * 4 + 4))
        address, length = data + begin, end - begin
        hashed = _hashed(address, length, attribute)
        slot = (hashed >> 1) & mask
        text = np.int64(table[slot])
        while text >= 0 and not (
            records[text, HASH] == hashed
            and records[text, LENGTH] == length
            and _same(pool + records[text, START], address, length)
        ):
            slot = (slot + 1) & mask
            text = np.int64(table[slot])
        if text < 0:
            text = _remember(memo, slot, hashed, attribute, address, length, lanes, constants, pieces)
            if text < 0:
                return MEMO_FULL, row
        if plain >= 0:
            codes[row, plain] = records[text, CODE]
            cells[row, plain] = records[text, CELL]
        if backwards >= 0:
            codes[row, backwards] = records[text, CODE + 1]
            cells[row, backwards] = records[text, CELL + 1]
        if parts >= 0:
            codes[row, parts] = records[text, BITS_AT]
    return FINE, 0


READ_ROWS = 256
"""Rows of which all columns are read before the next: so their codes and cells are written while in the cache."""


@njit(cache=True, nogil=True)
def read(columns: Any, start: Any, lanes: Any, constants: Any, pieces: Any, memo: Any, codes: Any, cells: Any) -> Any:
    """Fill codes and cells for the rows from `start` on; says what was wrong, with which attribute, in which row."""
    buffer = np.empty(min(READ_ROWS, codes.shape[0]), np.int64)
    for begin in range(0, codes.shape[0], READ_ROWS):
        some_codes, some_cells = codes[begin : begin + READ_ROWS], cells[begin : begin + READ_ROWS]
        for attribute in range(columns.shape[0]):
            column = columns[attribute]
            plain, backwards, parts = lanes.of_attribute[attribute]
            if plain < 0 and backwards < 0 and parts < 0:
                continue
            if column[KIND] == MISSING:
                for lane in (plain, backwards, parts):
                    if lane >= 0:
                        some_codes[:, lane] = NULL_CODE
                        some_cells[:, lane] = lanes.first_cell[lane]
                continue
            if column[KIND] >= UTF8:
                problem, row = _read_strings(
                    column, attribute, start + begin, lanes, constants, pieces, memo, some_codes, some_cells
                )
            else:
                problem, row = _read_numbers(
                    column, lanes.is_float[attribute], plain, start + begin, lanes, buffer[: len(some_codes)],
                    some_codes, some_cells,
                )  # fmt: skip
            if problem != FINE:
                return problem, attribute, begin + row
    return FINE, 0, 0
