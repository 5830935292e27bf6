"""The compiled loops over open cells, which lie in the order in which they came, and over what they are wanted for."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from catchment.stages.kernels import _combine

__all__ = ["least_numbers", "lower", "mixed", "numbered", "signatures", "window_over"]

Array = Any
MIX = np.uint64(0x9E3779B97F4A7C15)


@njit(cache=True, nogil=True)
def numbered(
    instance: Array, group: Array, slots: Array, row_instance: Array, row_group: Array, known: int
) -> tuple[Any, int]:
    """Give a number to each pair of instance and group, the same to equal ones; and how many there are by then.

    `slots` is a hash table of numbers, at least twice as long as there may be numbers, of a length that is a power of
    two; `row_instance` and `row_group` hold the pairs by number, with room for all that may come.
    """
    rows = np.empty(len(instance), np.int64)
    mask = np.uint64(len(slots) - 1)
    for at in range(len(instance)):
        one, other = instance[at], group[at]
        place = (np.uint64(one) * MIX) ^ ((np.uint64(other) + np.uint64(1)) * np.uint64(0xC2B2AE3D27D4EB4F))
        place ^= place >> np.uint64(29)
        place &= mask
        while True:
            row = slots[place]
            if row < 0:
                slots[place] = known
                row_instance[known], row_group[known] = one, other
                row = known
                known += 1
                break
            if row_instance[row] == one and row_group[row] == other:
                break
            place = (place + np.uint64(1)) & mask
        rows[at] = row
    return rows, known


@njit(cache=True, nogil=True)
def window_over(
    code: int, row: Array, number: Array, publications: Array, count: Array, whole: Array, low: Array, real: Array,
    rest: Array, row_instance: Array, first: Array, behind: Array, rows: int,
) -> Any:  # fmt: skip
    """Merge, for each row, the cells whose numbers lie in the range of its instance."""
    found = np.zeros(rows, np.int64)
    out_count, out_whole, out_low = np.zeros(rows, np.int64), np.zeros(rows, np.int64), np.zeros(rows, np.int64)
    out_real, out_rest = np.zeros(rows), np.zeros(rows)
    for cell in range(len(row)):
        at = row[cell]
        instance = row_instance[at]
        if first[instance] <= number[cell] < behind[instance]:
            found[at] += publications[cell]
            out_count[at], out_whole[at], out_low[at], out_real[at], out_rest[at] = _combine(
                code, out_count[at], out_whole[at], out_low[at], out_real[at], out_rest[at],
                count[cell], whole[cell], low[cell], real[cell], rest[cell],
            )  # fmt: skip
    return found, out_count, out_whole, out_low, out_real, out_rest


@njit(cache=True, nogil=True)
def least_numbers(row: Array, number: Array, row_instance: Array, bound: Array, nothing: int) -> Any:
    """Find the least number of each instance that is not below its bound, and how many cells are."""
    least = np.full(len(bound), nothing, np.int64)
    below = 0
    for cell in range(len(row)):
        instance = row_instance[row[cell]]
        if number[cell] < bound[instance]:
            below += 1
        elif number[cell] < least[instance]:
            least[instance] = number[cell]
    return least, below


@njit(cache=True, nogil=True)
def lower(least: Array, instance: Array, number: Array, bound: Array) -> None:
    """Lower the least number of each instance to those of some cells that are not below its bound."""
    for cell in range(len(instance)):
        one = instance[cell]
        if bound[one] <= number[cell] < least[one]:
            least[one] = number[cell]


@njit(cache=True, nogil=True)
def mixed(rows: Array, seed: Any) -> Array:
    """Give a hash of each row."""
    found = np.empty(len(rows), np.uint64)
    for at in range(len(rows)):
        one = seed
        for column in range(rows.shape[1]):
            one ^= np.uint64(rows[at, column])
            one = (one ^ (one >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            one = (one ^ (one >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            one ^= one >> np.uint64(31)
            one += MIX
        found[at] = one
    return found


@njit(cache=True, nogil=True)
def signatures(event: Array, keys: Array, count: int) -> Array:
    """Give of each event two hashes of the set of its keys: [count, 2]."""
    found = np.zeros((count, 2), np.uint64)
    for at in range(len(event)):
        key = keys[at]
        found[event[at], 0] += key
        key = (key ^ (key >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        key = (key ^ (key >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        found[event[at], 1] += key ^ (key >> np.uint64(31))
    return found
