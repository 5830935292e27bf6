"""Compiled: from entries that hold to the events of each filter, side by side.

Hits come by tile, so the events of a tile's filters are written while their places are in the cache; in the order of
events they would have to be sorted again by whoever aggregates them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba.cpython.unsafe import numbers

from catchment.matching.memory import Array, compiled

__all__ = ["RowsBySlot", "count_by_slot", "gather", "grouped", "rows_by_slot"]

trailing_zeros: Any = numbers.trailing_zeros


class RowsBySlot(NamedTuple):
    """The rows that satisfy each slot: those of slot s in stretch t are `rows[begin[t, s] : end[t, s]]`.

    Rows rise within a stretch and from stretch to stretch.
    """

    begin: Array
    end: Array
    rows: Array


@compiled
def count_by_slot(owners: Any, scratch: Any, hits: Any, first: Any, begin: Any, end: Any) -> Any:
    """Say where the rows of each slot will begin, from `first` on; returns where all of them end."""
    of_entry, chain_slot, chain_next = owners.of_entry, owners.chain_slot, owners.chain_next
    hit_word, hit_bits = scratch.hit_word, scratch.hit_bits
    for slot in range(len(begin)):
        end[slot] = 0
    for hit in range(hits):
        left, base = hit_bits[hit], np.int64(hit_word[hit]) * 64
        while left != 0:
            owner = of_entry[base + np.int64(trailing_zeros(left))]
            left &= left - np.uint64(1)
            if owner >= 0:
                end[owner] += 1
            else:
                link = np.int64(-2 - owner)
                while link >= 0:
                    end[chain_slot[link]] += 1
                    link = np.int64(chain_next[link])
    for slot in range(len(begin)):
        begin[slot] = first
        first += end[slot]
        end[slot] = begin[slot]
    return first


@compiled
def gather(owners: Any, scratch: Any, hits: Any, first_row: Any, begin: Any, end: Any, out: Any) -> Any:
    """Write the rows of each slot; `end` then says where they end."""
    of_entry, chain_slot, chain_next = owners.of_entry, owners.chain_slot, owners.chain_next
    hit_row, hit_word, hit_bits = scratch.hit_row, scratch.hit_word, scratch.hit_bits
    for hit in range(hits):
        row, left, base = first_row + hit_row[hit], hit_bits[hit], np.int64(hit_word[hit]) * 64
        while left != 0:
            owner = of_entry[base + np.int64(trailing_zeros(left))]
            left &= left - np.uint64(1)
            if owner >= 0:
                out[end[owner]] = row
                end[owner] += 1
            else:
                link = np.int64(-2 - owner)
                while link >= 0:
                    slot = chain_slot[link]
                    out[end[slot]] = row
                    end[slot] += 1
                    link = np.int64(chain_next[link])
    if owners.counts[1] > 0:
        for slot in range(len(begin)):
            if owners.is_split[slot] and end[slot] > begin[slot]:
                end[slot] = _once_each(out, begin[slot], end[slot])


@compiled
def _once_each(out: Any, begin: Any, end: Any) -> Any:
    """Put the rows of a slot in order and keep each once, though several of its entries hold; returns the new end."""
    out[begin:end].sort()
    kept = begin
    for at in range(begin, end):
        if at == begin or out[at] != out[kept - 1]:
            out[kept] = out[at]
            kept += 1
    return kept


@compiled
def grouped(rows: Any, slots: Any, slot_count: Any) -> Any:
    """Pairs in the order of rows as rows of each slot: begin, end, and the rows."""
    begin, end = np.zeros(slot_count, np.int64), np.zeros(slot_count, np.int64)
    for pair in range(len(slots)):
        end[slots[pair]] += 1
    first = 0
    for slot in range(slot_count):
        begin[slot] = first
        first += end[slot]
        end[slot] = begin[slot]
    out = np.empty(len(rows), np.int32)
    for pair in range(len(slots)):
        out[end[slots[pair]]] = rows[pair]
        end[slots[pair]] += 1
    return begin, end, out


def rows_by_slot(rows: Any, slots: Any, slot_count: int) -> RowsBySlot:
    """Pairs in the order of rows, as the rows of each slot."""
    begin, end, out = grouped(np.asarray(rows, np.int32), np.asarray(slots, np.int32), slot_count)
    return RowsBySlot(begin[None], end[None], out)
