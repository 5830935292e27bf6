"""Compiled: from strings to codes, cells and the pieces they contain.

Strings are looked up in a memo and worked out once per distinct string, whatever the filters ask of it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from catchment.matching.layout import (
    BITS_AT,
    CELL,
    CODE,
    DATA,
    FINE,
    HASH,
    INDEX,
    INDEX_KIND,
    INDEX_OFFSET,
    INDEX_VALIDITY,
    KIND,
    LARGE_UTF8,
    LENGTH,
    MEMO_FULL,
    NULL_CODE,
    OFFSET,
    START,
    VALIDITY,
    VALUES,
)
from catchment.matching.memory import compiled, load_i32, load_i64, load_u8, load_u32, load_u64
from catchment.matching.values import cell_of, integer_at, is_valid

__all__ = ["add_piece", "locate", "put_nodes", "read_strings"]


@compiled
def _mixed(state: Any, word: Any) -> Any:
    product = (state ^ word) * np.uint64(0x9E3779B97F4A7C15)
    return product ^ (product >> np.uint64(29))


@compiled
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


@compiled
def _same(left: Any, right: Any, length: Any) -> Any:
    if length >= 8:
        for at in range(0, length - 8, 8):
            if load_u64(left + at) != load_u64(right + at):
                return False
        return load_u64(left + length - 8) == load_u64(right + length - 8)
    for at in range(length):
        if load_u8(left + at) != load_u8(right + at):
            return False
    return True


@compiled
def locate(constants: Any, first: Any, last: Any, pool: Any, start: Any, length: Any) -> Any:
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


@compiled
def _node_slot(pieces: Any, key: Any) -> Any:
    mask = len(pieces.key) - 1
    slot = np.int64((np.uint64(key) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(20)) & mask
    while pieces.key[slot] != key and pieces.key[slot] != -1:
        slot = (slot + 1) & mask
    return slot


@compiled
def put_nodes(pieces: Any, keys: Any, children: Any) -> Any:
    for i in range(len(keys)):
        if keys[i] != -1:
            slot = _node_slot(pieces, keys[i])
            pieces.key[slot] = keys[i]
            pieces.child[slot] = children[i]


@compiled
def add_piece(pieces: Any, root: Any, text: Any, piece: Any, node_count: Any) -> Any:
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


@compiled
def _find_pieces(pieces: Any, root: Any, pool: Any, start: Any, length: Any, bits: Any, bits_at: Any) -> Any:
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


@compiled
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
        width = (pieces.piece_count[attribute] + 63) >> 6
        bits_at = memo.counts[2]
        for word in range(bits_at, bits_at + width):
            memo.bits[word] = 0
        _find_pieces(pieces, attribute, memo.pool, record[START], length, memo.bits, bits_at)
        record[BITS_AT] = bits_at
        memo.counts[2] = bits_at + width


@compiled
def _remember(
    memo: Any, slot: Any, hashed: Any, attribute: Any, address: Any, length: Any, lanes: Any, constants: Any,
    pieces: Any,
) -> Any:  # fmt: skip
    """Put a new string into the memo; its number there, or -1 if it does not fit."""
    text, start = memo.counts[0], memo.counts[1]
    width = (pieces.piece_count[attribute] + 63) >> 6
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


@compiled
def read_strings(
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
            valid = is_valid(index_validity, column[INDEX_OFFSET] + position)
            position = integer_at(index_kind, index, column[INDEX_OFFSET] + position) if valid else 0
        position += offset
        if not valid or not is_valid(validity, position):
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
