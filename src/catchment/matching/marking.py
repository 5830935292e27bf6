"""Compiled: how checks relate to cells, and the bits that say so. Runs when an index is built and when it changes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from catchment.matching.kernel import NULL_HOLDS, PIECE, SET, WORD, bit_count, resolved
from catchment.matching.reading import HIGHEST_CODE, LOWEST_CODE

# How a check and a cell relate.
SURE, DOUBT, FAIL = 0, 1, 2

PIECE_WEIGHT = 0.05
"""Assumed share of strings that contain a given piece; only the order of checks depends on it."""
NULL_WEIGHT = 0.2
"""Assumed share of events that lack a given attribute; only the order of lanes depends on it."""


@njit(cache=True, nogil=True)
def classify(checks: Any, k: int, lanes: Any, verdict: Any) -> int:
    """How a check relates to each cell of its lane; returns how many cells the lane has."""
    lane, flags = checks.lane[k], checks.flags[k]
    first, last = lanes.first_boundary[lane], lanes.first_boundary[lane + 1]
    verdict[0] = SURE if flags & NULL_HOLDS else FAIL
    if flags & PIECE:
        verdict[1] = DOUBT
        return 2
    span = 0
    spans = checks.high[k] if flags & SET else 1
    low = high = np.int64(0)
    for cell in range(last - first + 1):
        lower = lanes.boundary[first + cell - 1] if cell > 0 else LOWEST_CODE
        upper = lanes.boundary[first + cell] - 1 if first + cell < last else np.int64(HIGHEST_CODE)
        while span < spans:
            at = checks.low[k] + span
            low = resolved(checks, flags, checks.set_low[at] if flags & SET else checks.low[k])
            high = resolved(checks, flags, checks.set_high[at] if flags & SET else checks.high[k])
            if high >= lower:
                break
            span += 1
        if span == spans or low > upper:
            verdict[cell + 1] = FAIL
        elif low <= lower and high >= upper:
            verdict[cell + 1] = SURE
        else:
            verdict[cell + 1] = DOUBT
    return last - first + 2


@njit(cache=True, nogil=True)
def weigh(checks: Any, check_count: int, lanes: Any, verdict: Any, weight: Any, reached: Any) -> None:
    """Per check the share of cells it lets through, a doubtful one counting half, and the first of them."""
    for k in range(check_count):
        cells = classify(checks, k, lanes, verdict)
        total = 0.0
        reached[k] = 0
        for cell in range(cells - 1, -1, -1):
            if verdict[cell] != FAIL:
                reached[k] = cell
                if cell > 0:
                    total += 1.0 if verdict[cell] == SURE else 0.5
        weight[k] = total / (cells - 1)
        if checks.flags[k] & PIECE:
            weight[k] = PIECE_WEIGHT


@njit(cache=True, nogil=True)
def mark(fail: Any, doubt: Any, alive: Any, checks: Any, lanes: Any, first: int, last: int, verdict: Any) -> None:
    """Set the bits of the entries from first to last, all of one block."""
    for entry in range(first, last):
        word, bit = (entry // WORD) % len(fail), np.uint64(1) << np.uint64(entry % WORD)
        alive[entry // WORD] |= bit
        for k in range(checks.first[entry], checks.first[entry] + checks.count[entry]):
            begin = lanes.first_cell[checks.lane[k]]
            for cell in range(classify(checks, k, lanes, verdict)):
                if verdict[cell] == FAIL:
                    fail[word, begin + cell] |= bit
                elif verdict[cell] == DOUBT:
                    doubt[word, begin + cell] |= bit


@njit(cache=True, nogil=True)
def unmark(fail: Any, doubt: Any, alive: Any, checks: Any, lanes: Any, entry: int) -> None:
    word, bit = (entry // WORD) % len(fail), np.uint64(1) << np.uint64(entry % WORD)
    alive[entry // WORD] &= ~bit
    for k in range(checks.first[entry], checks.first[entry] + checks.count[entry]):
        lane = checks.lane[k]
        begin = lanes.first_cell[lane]
        for cell in range(begin, begin + 2 + lanes.first_boundary[lane + 1] - lanes.first_boundary[lane]):
            fail[word, cell] &= ~bit
            doubt[word, cell] &= ~bit


@njit(cache=True, nogil=True)
def summarise(fail: Any, doubt: Any, summary: Any, lanes: Any, blocks: Any, first: int, last: int) -> None:
    """Bring summary bits and lanes of the words from first to last up to date, all of one block."""
    lane_count = blocks.sizes[1]
    score = np.empty(lane_count, np.float64)
    for number in range(first, last):
        word, alive = number % len(fail), blocks.alive[number]
        bit = np.uint64(1) << np.uint64(word)
        used = 0
        for lane in range(lane_count):
            begin = lanes.first_cell[lane]
            cells = 2 + lanes.first_boundary[lane + 1] - lanes.first_boundary[lane]
            failing, touched = 0, False
            for cell in range(begin, begin + cells):
                bits = fail[word, cell]
                if alive & ~bits == 0:
                    summary[cell] |= bit
                else:
                    summary[cell] &= ~bit
                touched |= (bits | doubt[word, cell]) != 0
                if cell > begin:
                    failing += bit_count(bits)
            if touched:
                power = NULL_WEIGHT * bit_count(fail[word, begin]) + (1 - NULL_WEIGHT) * failing / (cells - 1)
                at = used
                while at > 0 and score[at - 1] < power:
                    score[at] = score[at - 1]
                    blocks.lane[number, at] = blocks.lane[number, at - 1]
                    at -= 1
                score[at] = power
                blocks.lane[number, at] = lane
                used += 1
        blocks.lane_count[number] = used


@njit(cache=True, nogil=True)
def arrange(checks: Any, entry_count: int, weight: Any, reached: Any) -> None:
    """Sort the checks of each entry, most selective first."""
    for entry in range(entry_count):
        first = checks.first[entry]
        for k in range(first + 1, first + checks.count[entry]):
            at = k
            while at > first and weight[at - 1] > weight[at]:
                for column in (checks.low, checks.high):
                    column[at - 1], column[at] = column[at], column[at - 1]
                checks.lane[at - 1], checks.lane[at] = checks.lane[at], checks.lane[at - 1]
                checks.flags[at - 1], checks.flags[at] = checks.flags[at], checks.flags[at - 1]
                weight[at - 1], weight[at] = weight[at], weight[at - 1]
                reached[at - 1], reached[at] = reached[at], reached[at - 1]
                at -= 1
