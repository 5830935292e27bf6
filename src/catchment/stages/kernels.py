"""The compiled loops of partial aggregation: events into cells, slices into windows.

A cell holds, for one part and one (slice, group), the columns `count, whole, low, real, rest`; which of them a state
uses is in the table of `stages.holding`. Both loops are linear: the first in matched pairs, the second in cells.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from catchment.model.states import DOWN

__all__ = ["accumulate", "slide", "union_over", "windows_over"]

TALLY, WHOLE_TOTAL, REAL_TOTAL, MOMENTS, LOWEST, HIGHEST, LOWEST_REAL, HIGHEST_REAL, BLOB = range(9)
Array = Any

LARGEST = np.finfo(np.float64).max
"""A real total beyond it is kept DOWN times its size, and its `low` is 1, as in `model.states`."""


@njit(cache=True, nogil=True)
def accumulate(
    begins: Array, ends: Array, rows: Array, part_slot: Array, part_code: Array, part_column: Array, part_layout: Array,
    part_masked: Array, codes: Array, widths: Array, origins: Array, words: int,
    ints: Array, reals: Array, valid: Array,
) -> Any:  # fmt: skip
    """The cells that the events of each part's slot fall into: where each part begins, and the cells' columns.

    One part at a time, so that its cells stay in the cache. Events mostly come in the order of time, so that many in a
    row fall into one cell: they are added to it together. A part of a layout below zero has no cells, nor has an event
    of a code below zero.
    """
    room = most = 0
    for part in range(len(part_slot)):
        if part_layout[part] >= 0:
            slot = part_slot[part]
            pairs = 0
            for stretch in range(len(begins)):
                pairs += ends[stretch, slot] - begins[stretch, slot]
            room += min(pairs, widths[part_layout[part]])
            most = max(most, pairs)
    code_of, publications = np.empty(room, np.int32), np.zeros(room, np.int64)
    masks = np.zeros((room if words else 0, max(words, 1)), np.uint64)
    count, whole, low = np.zeros(room, np.int64), np.zeros(room, np.int64), np.zeros(room, np.int64)
    real, rest = np.zeros(room), np.zeros(room)
    # Where the cell of a code is; what a part before left here lies before the part's first cell.
    cell_of = np.full(widths.max(), -1, np.int64)
    runs = np.empty((most, 3), np.int64)
    firsts = np.zeros(len(part_slot) + 1, np.int64)
    end = 0
    for part in range(len(part_slot)):
        if part_layout[part] >= 0:
            run_count, end = _runs(
                begins[:, part_slot[part]], ends[:, part_slot[part]], rows, codes[part_layout[part]], cell_of, code_of,
                end, runs,
            )  # fmt: skip
            for run in range(run_count):
                publications[runs[run, CELL]] += runs[run, END] - runs[run, BEGIN]
            if part_masked[part]:
                for run in range(run_count):
                    for at in range(runs[run, BEGIN], runs[run, END]):
                        origin = origins[rows[at]]
                        masks[runs[run, CELL], origin >> 6] |= np.uint64(1) << np.uint64(origin & 63)
            column, state = part_column[part], part_code[part]
            if column >= 0:
                there = valid[column]
                if state == REAL_TOTAL:
                    _add_real_totals(runs[:run_count], rows, there, reals[column], count, low, real, rest)
                elif state == WHOLE_TOTAL:
                    _add_whole_totals(runs[:run_count], rows, there, ints[column], count, whole, low)
                elif state == MOMENTS:
                    _add_moments(runs[:run_count], rows, there, reals[column], count, real, rest)
                elif state in (LOWEST, HIGHEST):
                    _add_extremes(runs[:run_count], rows, there, ints[column], state == LOWEST, count, whole)
                elif state in (LOWEST_REAL, HIGHEST_REAL):
                    _add_extremes(runs[:run_count], rows, there, reals[column], state == LOWEST_REAL, count, real)
                else:
                    for run in range(run_count):
                        for at in range(runs[run, BEGIN], runs[run, END]):
                            count[runs[run, CELL]] += there[rows[at]]
        firsts[part + 1] = end
    return (
        firsts, code_of[:end], publications[:end], masks[:end],
        count[:end], whole[:end], low[:end], real[:end], rest[:end],
    )  # fmt: skip


BEGIN, END, CELL = range(3)


@njit(cache=True, nogil=True)
def _runs(
    begins: Array, ends: Array, rows: Array, codes: Array, cell_of: Array, code_of: Array, first: int, runs: Array
) -> Any:
    """Runs of events of one cell, as [begin, end, cell]; returns how many, and where the part's cells end."""
    count, end = 0, first
    for stretch in range(len(begins)):
        at, last = begins[stretch], ends[stretch]
        while at < last:
            begin, code = at, codes[rows[at]]
            at += 1
            while at < last and codes[rows[at]] == code:
                at += 1
            if code >= 0:
                cell = cell_of[code]
                if cell < first:
                    cell = end
                    cell_of[code] = cell
                    code_of[cell] = code
                    end += 1
                runs[count, BEGIN], runs[count, END], runs[count, CELL] = begin, at, cell
                count += 1
    return count, end


@njit(cache=True, nogil=True)
def _add_real_totals(
    runs: Array, rows: Array, there: Array, values: Array, count: Array, is_down: Array, real: Array, rest: Array
) -> None:
    for run in range(len(runs)):
        cell = runs[run, CELL]
        n, down, total, lost = count[cell], is_down[cell], real[cell], rest[cell]
        for at in range(runs[run, BEGIN], runs[run, END]):
            row = rows[at]
            if there[row]:
                value = values[row] * DOWN if down else values[row]
                new = total + value
                if not abs(new) <= LARGEST:
                    down, total, lost, value = 1, total * DOWN, lost * DOWN, value * DOWN
                    new = total + value
                # What rounding lost is kept beside the sum, so that the order of adding does not show.
                lost += (total - new) + value if abs(total) >= abs(value) else (value - new) + total
                total = new
                n += 1
        count[cell], is_down[cell], real[cell], rest[cell] = n, down, total, lost


@njit(cache=True, nogil=True)
def _add_whole_totals(
    runs: Array, rows: Array, there: Array, values: Array, count: Array, whole: Array, low: Array
) -> None:
    for run in range(len(runs)):
        n, high_half, low_half = 0, 0, 0
        for at in range(runs[run, BEGIN], runs[run, END]):
            row = rows[at]
            if there[row]:
                # Two halves, so that a sum beyond 64 bits is seen and not wrapped.
                high_half += values[row] >> 32
                low_half += values[row] & 0xFFFFFFFF
                n += 1
        cell = runs[run, CELL]
        count[cell] += n
        whole[cell] += high_half
        low[cell] += low_half


@njit(cache=True, nogil=True)
def _add_moments(runs: Array, rows: Array, there: Array, values: Array, count: Array, mean: Array, m2: Array) -> None:
    for run in range(len(runs)):
        cell = runs[run, CELL]
        n, middle, squares = count[cell], mean[cell], m2[cell]
        for at in range(runs[run, BEGIN], runs[run, END]):
            row = rows[at]
            if there[row]:
                n += 1
                distance = values[row] - middle
                middle += distance / n
                squares += distance * (values[row] - middle)
        count[cell], mean[cell], m2[cell] = n, middle, squares


@njit(cache=True, nogil=True)
def _add_extremes(
    runs: Array, rows: Array, there: Array, values: Array, lowest: bool, count: Array, extreme: Array
) -> None:
    for run in range(len(runs)):
        cell = runs[run, CELL]
        n, best = count[cell], extreme[cell]
        for at in range(runs[run, BEGIN], runs[run, END]):
            row = rows[at]
            if there[row]:
                value = values[row]
                if n == 0 or (value < best if lowest else value > best):
                    best = value
                n += 1
        count[cell], extreme[cell] = n, best


@njit(cache=True, nogil=True)
def windows_over(runs: Array, slices: Array, steps: Array, spans: Array) -> Any:
    """The windows that hold at least one cell: (run, window number, first cell, cell behind the last).

    Run r is the cells [runs[r], runs[r+1]), one part and group, their slices rising. The formulas are those of
    `model.window`, which compiled code cannot call.
    """
    total = 0
    for fill in range(2):
        if fill:
            run_of, number_of = np.empty(total, np.int64), np.empty(total, np.int64)
            first_of, last_of = np.empty(total, np.int64), np.empty(total, np.int64)
        at = 0
        for run in range(len(runs) - 1):
            begin, end = runs[run], runs[run + 1]
            step, span = steps[run], spans[run]
            low = high = begin
            number = -((span - 1 - slices[begin]) // step) if begin < end else 0
            while low < end:
                first = step * number
                while low < end and slices[low] < first:
                    low += 1
                if low == end:
                    break
                high = max(high, low)
                while high < end and slices[high] < first + span:
                    high += 1
                if low == high:
                    number = -((span - 1 - slices[low]) // step)
                    if step * number <= first:
                        number = first // step + 1
                    continue
                if fill:
                    run_of[at], number_of[at], first_of[at], last_of[at] = run, number, low, high
                at += 1
                number += 1
        total = at
    return run_of, number_of, first_of, last_of


@njit(cache=True, nogil=True, inline="always")
def _combine(code: int, n: int, i: int, j: int, a: float, b: float, m: int, k: int, h: int, c: float, d: float) -> Any:
    if n == 0:
        return m, k, h, c, d
    if m == 0:
        return n, i, j, a, b
    if code == REAL_TOTAL:
        if j != h or not abs(a + c) <= LARGEST:
            if j == 0:
                j, a, b = 1, a * DOWN, b * DOWN
            if h == 0:
                c, d = c * DOWN, d * DOWN
        new = a + c
        lost = (a - new) + c if abs(a) >= abs(c) else (c - new) + a
        return n + m, i, j, new, b + d + lost
    if code == WHOLE_TOTAL:
        return n + m, i + k, j + h, a, b
    if code == MOMENTS:
        distance = c - a
        share = m / (n + m)
        return n + m, i, j, a + distance * share, b + d + distance * (n * share) * distance
    if code == LOWEST:
        return n + m, min(i, k), j, a, b
    if code == HIGHEST:
        return n + m, max(i, k), j, a, b
    if code == LOWEST_REAL:
        return n + m, i, j, min(a, c), b
    if code == HIGHEST_REAL:
        return n + m, i, j, max(a, c), b
    return n + m, i, j, a, b


@njit(cache=True, nogil=True)
def slide(
    code: int, runs: Array, first: Array, last: Array,
    count: Array, whole: Array, low: Array, real: Array, rest: Array,
) -> Any:  # fmt: skip
    """Merge the cells [first, last) of each window, both ends rising within a run.

    Two stacks: the merged tails of the older cells, and the merge of all newer ones; each cell is merged a constant
    number of times however many windows it lies in.
    """
    total = len(first)
    out_count, out_whole, out_low = np.zeros(total, np.int64), np.zeros(total, np.int64), np.zeros(total, np.int64)
    out_real, out_rest = np.zeros(total), np.zeros(total)
    cells = len(count)
    tail_count, tail_whole, tail_low = np.zeros(cells, np.int64), np.zeros(cells, np.int64), np.zeros(cells, np.int64)
    tail_real, tail_rest = np.zeros(cells), np.zeros(cells)
    split = high = 0
    n, i, j, a, b = 0, 0, 0, 0.0, 0.0
    previous = -1
    for w in range(total):
        if runs[w] != previous or first[w] >= split:
            # Everything up to the end of this window becomes the older stack.
            previous = runs[w]
            n, i, j, a, b = 0, 0, 0, 0.0, 0.0
            for cell in range(last[w] - 1, first[w] - 1, -1):
                n, i, j, a, b = _combine(
                    code, count[cell], whole[cell], low[cell], real[cell], rest[cell], n, i, j, a, b
                )
                tail_count[cell], tail_whole[cell], tail_low[cell] = n, i, j
                tail_real[cell], tail_rest[cell] = a, b
            split = high = last[w]
            n, i, j, a, b = 0, 0, 0, 0.0, 0.0
        while high < last[w]:
            n, i, j, a, b = _combine(code, n, i, j, a, b, count[high], whole[high], low[high], real[high], rest[high])
            high += 1
        at = first[w]
        out_count[w], out_whole[w], out_low[w], out_real[w], out_rest[w] = _combine(
            code, tail_count[at], tail_whole[at], tail_low[at], tail_real[at], tail_rest[at], n, i, j, a, b
        )
    return out_count, out_whole, out_low, out_real, out_rest


@njit(cache=True, nogil=True)
def union_over(masks: Array, first: Array, last: Array) -> Any:
    """The union of the masks [first, last) of each window."""
    out = np.zeros((len(first), masks.shape[1]), np.uint64)
    for window in range(len(first)):
        for cell in range(first[window], last[window]):
            for word in range(masks.shape[1]):
                out[window, word] |= masks[cell, word]
    return out
