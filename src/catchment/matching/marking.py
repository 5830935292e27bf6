"""Compiled: how checks relate to cells, and the bits that say so. Runs when an index is built and when it changes."""

from __future__ import annotations

from typing import Any

import numpy as np

from catchment.matching.kernel import FLAGS, LANE, NULL_HOLDS, PIECE, SET, TEXT, TILE, TILE_WORDS
from catchment.matching.layout import HIGHEST_CODE, LOWEST_CODE
from catchment.matching.memory import bit_count, compiled

# How a check and a cell relate.
SURE, DOUBT, FAIL = 0, 1, 2

PIECE_WEIGHT = 0.05
"""Assumed share of strings that contain a given piece; only the order of checks depends on it."""
NULL_WEIGHT = 0.2
"""Assumed share of events that lack a given attribute; only the order of lanes depends on it."""


@compiled
def _code(checks: Any, flags: Any, end: Any) -> Any:
    # The brackets keep the highest code from overflowing on the way.
    return checks.label[end >> 2] + ((end & 3) - 1) if flags & TEXT else end


@compiled
def classify(checks: Any, k: Any, lanes: Any, verdict: Any) -> Any:
    """How a check relates to each cell of its lane; returns how many cells the lane has."""
    lane, flags, begin, size = checks.record[k]
    first, last = lanes.first_boundary[lanes.cell_lane[lane]], lanes.first_boundary[lanes.cell_lane[lane] + 1]
    verdict[0] = SURE if flags & NULL_HOLDS else FAIL
    if flags & PIECE:
        verdict[1 : last - first + 2] = DOUBT
        return last - first + 2
    span = 0
    spans = size if flags & SET else 1
    low = high = np.int64(0)
    for cell in range(last - first + 1):
        lower = lanes.boundary[first + cell - 1] if cell > 0 else LOWEST_CODE
        upper = lanes.boundary[first + cell] - 1 if first + cell < last else np.int64(HIGHEST_CODE)
        while span < spans:
            low = _code(checks, flags, checks.sets[begin + span, 0] if flags & SET else begin)
            high = _code(checks, flags, checks.sets[begin + span, 1] if flags & SET else size)
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


@compiled
def weigh(checks: Any, check_count: Any, lanes: Any, verdict: Any, weight: Any, reached: Any) -> Any:
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
        if checks.record[k, FLAGS] & PIECE:
            weight[k] = PIECE_WEIGHT


@compiled
def mark(fail: Any, doubt: Any, alive: Any, checks: Any, lanes: Any, first: Any, last: Any, verdict: Any) -> Any:
    """Set the bits of the entries from first to last, all of one tile."""
    for entry in range(first, last):
        word, bit = (entry % TILE) // 64, np.uint64(1) << np.uint64(entry % 64)
        alive[word] |= bit
        for k in range(checks.run[entry, 0], checks.run[entry, 0] + checks.run[entry, 1]):
            begin = lanes.first_cell[lanes.cell_lane[checks.record[k, LANE]]]
            for cell in range(classify(checks, k, lanes, verdict)):
                if verdict[cell] == FAIL:
                    fail[begin + cell, word] |= bit
                elif verdict[cell] == DOUBT:
                    doubt[begin + cell, word] |= bit


@compiled
def unmark(fail: Any, doubt: Any, alive: Any, checks: Any, lanes: Any, entry: Any) -> Any:
    word, bit = (entry % TILE) // 64, np.uint64(1) << np.uint64(entry % 64)
    alive[word] &= ~bit
    for k in range(checks.run[entry, 0], checks.run[entry, 0] + checks.run[entry, 1]):
        lane = lanes.cell_lane[checks.record[k, LANE]]
        begin = lanes.first_cell[lane]
        for cell in range(begin, begin + 2 + lanes.first_boundary[lane + 1] - lanes.first_boundary[lane]):
            fail[cell, word] &= ~bit
            doubt[cell, word] &= ~bit


@compiled
def summarise(tile: Any, fail: Any, doubt: Any, top: Any, lanes: Any, tiles: Any) -> Any:
    """Bring the bit of a tile on top, and its lists of lanes, up to date."""
    alive = tiles.alive[tile]
    word, bit = tile % TILE // 64, np.uint64(1) << np.uint64(tile % 64)
    score = np.empty(len(tiles.all_lanes), np.float64)
    failing_lanes = doubtful_lanes = 0
    for lane in tiles.all_lanes:
        begin = lanes.first_cell[lane]
        cells = 2 + lanes.first_boundary[lane + 1] - lanes.first_boundary[lane]
        failing, failing_null, in_doubt = 0, 0, np.uint64(0)
        for cell in range(begin, begin + cells):
            left = np.uint64(0)
            for i in range(TILE_WORDS):
                left |= alive[i] & ~fail[cell, i]
                in_doubt |= doubt[cell, i]
                failing += bit_count(fail[cell, i])
            if cell == begin:
                failing_null, failing = failing, 0
            if left == 0:
                top[cell, word] |= bit
            else:
                top[cell, word] &= ~bit
        if in_doubt != 0:
            tiles.doubt_lane[tile, doubtful_lanes] = lane
            doubtful_lanes += 1
        if failing + failing_null == 0:
            continue
        power = NULL_WEIGHT * failing_null + (1 - NULL_WEIGHT) * failing / (cells - 1)
        at = failing_lanes
        while at > 0 and score[at - 1] < power:
            score[at] = score[at - 1]
            tiles.lane[tile, at] = tiles.lane[tile, at - 1]
            at -= 1
        score[at] = power
        tiles.lane[tile, at] = lane
        failing_lanes += 1
    tiles.lane_counts[tile, 0] = failing_lanes
    tiles.lane_counts[tile, 1] = doubtful_lanes


@compiled
def doubtful_first(checks: Any, entry_count: Any) -> Any:
    """Put pieces before the other checks of each entry: whenever an entry is verified, they are what is in doubt."""
    for entry in range(entry_count):
        first, size = checks.run[entry]
        ready = first
        for k in range(first, first + size):
            if checks.record[k, FLAGS] & PIECE:
                for at in range(k, ready, -1):
                    for column in range(4):
                        moved = checks.record[at - 1, column]
                        checks.record[at - 1, column] = checks.record[at, column]
                        checks.record[at, column] = moved
                ready += 1


@compiled
def arrange(checks: Any, entry_count: Any, weight: Any, reached: Any) -> Any:
    """Sort the checks of each entry, most selective first."""
    for entry in range(entry_count):
        first, count = checks.run[entry]
        for k in range(first + 1, first + count):
            at = k
            while at > first and weight[at - 1] > weight[at]:
                for column in range(4):
                    moved = checks.record[at - 1, column]
                    checks.record[at - 1, column] = checks.record[at, column]
                    checks.record[at, column] = moved
                weight[at - 1], weight[at] = weight[at], weight[at - 1]
                reached[at - 1], reached[at] = reached[at], reached[at - 1]
                at -= 1
