"""Compiled: from entries that hold to pairs of event and filter, in the order of events."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba.cpython.unsafe import numbers

from catchment.matching.memory import Array, bit_count, compiled

trailing_zeros: Any = numbers.trailing_zeros

EMIT_ROWS = 512
"""Rows whose pairs are written together: the tiles' hits go round once for so many rows, and the pairs stay cached."""


class Owners(NamedTuple):
    """Whose entries they are: a slot, or (from -2 down) the head of a chain of slots; -1 is nobody."""

    of_entry: Array
    chained: Array
    """Which entries have a chain, as bits of words."""
    chain_slot: Array
    chain_next: Array
    is_split: Array
    """Slots of several entries, which one event may satisfy more than once."""
    counts: Array
    """Chains and split slots: how many there are."""


@compiled
def count(owners: Any, scratch: Any, rows: Any, hits: Any) -> Any:
    """How many pairs the hits are; `scratch.end` then says where those of each row begin and end."""
    end, hit_row, hit_word, hit_bits = scratch.end, scratch.hit_row, scratch.hit_word, scratch.hit_bits
    of_entry, chained, chain_next = owners.of_entry, owners.chained, owners.chain_next
    for row in range(rows + 1):
        end[row] = 0
    for hit in range(hits):
        end[hit_row[hit] + 1] += bit_count(hit_bits[hit])
    if owners.counts[0] > 0:
        for hit in range(hits):
            left = hit_bits[hit] & chained[hit_word[hit]]
            while left != 0:
                owner = of_entry[np.int64(hit_word[hit]) * 64 + np.int64(trailing_zeros(left))]
                left &= left - np.uint64(1)
                link = chain_next[-2 - owner]
                while link >= 0:
                    end[hit_row[hit] + 1] += 1
                    link = chain_next[link]
    for row in range(rows):
        end[row + 1] += end[row]
    return end[rows]


@compiled
def emit(owners: Any, scratch: Any, tile_count: Any, rows: Any, first_row: Any, out_row: Any, out_slot: Any) -> Any:
    """Write the pairs of all hits in the order of rows; returns how many."""
    end = scratch.end
    for row in range(rows):
        for place in range(end[row], end[row + 1]):
            out_row[place] = first_row + row
    for tile in range(tile_count):
        scratch.at[tile] = scratch.run_end[tile]
    for begin in range(0, rows, EMIT_ROWS):
        stop = min(begin + EMIT_ROWS, rows)
        _emit_some(owners.of_entry, owners.chain_slot, owners.chain_next, tile_count, begin, stop, scratch, out_slot)
    return _once_each(owners.is_split, end[rows], out_row, out_slot) if owners.counts[1] > 0 else end[rows]


@compiled
def _emit_some(
    of_entry: Any, chain_slot: Any, chain_next: Any, tile_count: Any, begin: Any, stop: Any, scratch: Any, out_slot: Any
) -> Any:
    """Write the slots of the rows from begin to stop."""
    run_end, end, at, cursor = scratch.run_end, scratch.end, scratch.at, scratch.cursor
    hit_row, hit_word, hit_bits = scratch.hit_row, scratch.hit_word, scratch.hit_bits
    for row in range(begin, stop):
        cursor[row] = end[row]
    for tile in range(tile_count):
        hit = at[tile]
        while hit < run_end[tile + 1] and hit_row[hit] < stop:
            row, left, base = hit_row[hit], hit_bits[hit], np.int64(hit_word[hit]) * 64
            place = cursor[row]
            while left != 0:
                owner = of_entry[base + np.int64(trailing_zeros(left))]
                left &= left - np.uint64(1)
                if owner >= 0:
                    out_slot[place] = owner
                    place += 1
                else:
                    link = np.int64(-2 - owner)
                    while link >= 0:
                        out_slot[place] = chain_slot[link]
                        place += 1
                        link = np.int64(chain_next[link])
            cursor[row] = place
            hit += 1
        at[tile] = hit


@compiled
def _once_each(is_split: Any, pairs: Any, out_row: Any, out_slot: Any) -> Any:
    """Keep a slot once per row, though several of its entries hold; returns how many pairs are left."""
    last = np.full(len(is_split), -1, np.int64)
    kept = 0
    for i in range(pairs):
        slot = out_slot[i]
        if is_split[slot]:
            if last[slot] == out_row[i]:
                continue
            last[slot] = out_row[i]
        out_row[kept] = out_row[i]
        out_slot[kept] = slot
        kept += 1
    return kept
