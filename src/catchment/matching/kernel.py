"""Compiled: which entries hold for which events.

An entry is a conjunction of checks, and one bit of a tile; a tile has 512. For each cell of each lane a tile says which
of its entries *fail* there whatever the exact value is, and for which it remains in *doubt*. On top, a tile whose bits
stand for tiles says which of them fail as a whole.

Rule 1: an entry holds if no cell of the event fails it, and its checks hold where a cell leaves doubt.
Rule 2: tiles go outside, events inside: the cells of one tile stay in the cache while thousands of events pass.
Rule 3: bits default to neither failing nor doubtful, so a lane that an entry does not check needs no work.
Rule 4: what is called per event gets addresses, not arrays: counting references would cost more than matching.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba.cpython.unsafe import numbers

from catchment.matching.layout import NULL_CODE
from catchment.matching.memory import Array, compiled, load_i64, load_u64, or_cells, prefetch

TILE_WORDS = 8
TILE = 64 * TILE_WORDS

# Flags of a check.
NULL_HOLDS, TEXT, SET, PIECE, NEGATED = 1, 2, 4, 8, 16

QUEUE_PIECE = 256
"""Events looked up before what they left unsure is verified."""
PROBE_LANES = 8
"""Lanes looked up before those events drop out of which nothing is left."""

trailing_zeros: Any = numbers.trailing_zeros


# Columns of a record.
LANE, FLAGS, LOW, HIGH = range(4)


class Checks(NamedTuple):
    """The checks of all entries: int64 throughout."""

    run: Array
    """Per entry its first record and how many it has, most selective first."""
    record: Array
    """Lane; flags; lower end of an interval, where a set begins, or a piece; upper end, inclusive, or size of a set."""
    sets: Array
    """Lower and upper ends."""
    label: Array
    """Code of each text constant: ends of text intervals are relative to one."""


class Tiles(NamedTuple):
    """Bits by cell. Tiles are reached by address, so that a new one moves none of the others."""

    fail: Array
    doubt: Array
    top: Array
    alive: Array
    lane: Array
    """Per tile the lanes that can fail an entry, most selective first."""
    doubt_lane: Array
    """Per tile the lanes that can leave doubt."""
    lane_counts: Array
    """Per tile how many there are of either."""
    all_lanes: Array


class Scratch(NamedTuple):
    """Room to work in, for so many rows and tiles."""

    survivors: Array
    """Per row, which tiles fail as a whole."""
    queue: Array
    queued: Array
    failing: Array
    doubtful: Array
    kept_row: Array
    kept_words: Array
    unsure_hit: Array
    unsure_bit: Array
    hit_row: Array
    hit_word: Array
    hit_bits: Array
    """Entries that hold, 64 to a word: in the order of tiles and then of rows."""
    run_end: Array
    """Where the hits of each tile end."""
    end: Array
    """Where the pairs of each row end."""
    at: Array
    cursor: Array


@compiled
def addresses_of(checks: Any, bits: Any) -> Any:
    """What `holds` needs, as numbers."""
    return (
        checks.run.ctypes.data,
        checks.record.ctypes.data,
        checks.sets.ctypes.data,
        checks.label.ctypes.data,
        bits.ctypes.data,
    )


@compiled
def _end_code(label: Any, flags: Any, end: Any) -> Any:
    # The brackets keep the highest code from overflowing on the way.
    return load_i64(label + (end >> 2) * 8) + ((end & 3) - 1) if flags & TEXT else end


@compiled
def _in_set(sets: Any, label: Any, flags: Any, begin: Any, size: Any, code: Any) -> Any:
    low, high = begin, begin + size
    while low < high:
        middle = (low + high) >> 1
        if _end_code(label, flags, load_i64(sets + middle * 16)) <= code:
            low = middle + 1
        else:
            high = middle
    return low > begin and code <= _end_code(label, flags, load_i64(sets + low * 16 - 8))


@compiled
def holds(addresses: Any, entry: Any, codes: Any) -> Any:
    """Whether all checks of an entry hold for an event whose codes are at an address."""
    run, records, sets, label, bits = addresses
    record = records + load_i64(run + entry * 16) * 32
    last = record + load_i64(run + entry * 16 + 8) * 32
    while record < last:
        code = load_i64(codes + load_i64(record) * 8)
        flags, low, high = load_i64(record + 8), load_i64(record + 16), load_i64(record + 24)
        if code == NULL_CODE:
            if flags & NULL_HOLDS == 0:
                return False
        elif flags & PIECE:
            found = (load_u64(bits + (code + (low >> 6)) * 8) >> np.uint64(low & 63)) & np.uint64(1)
            if (found != 0) == (flags & NEGATED != 0):
                return False
        elif flags & SET:
            if not _in_set(sets, label, flags, low, high, code):
                return False
        elif code < _end_code(label, flags, low) or code > _end_code(label, flags, high):
            return False
        record += 32
    return True


@compiled
def _surviving_tiles(top: Any, lanes: Any, cells: Any, scratch: Any) -> Any:
    """Per event, which tiles its cells do not rule out as a whole."""
    survivors = scratch.survivors
    nothing = np.zeros(TILE_WORDS, np.uint64)
    for row in range(len(cells)):
        row_at, result = cells.ctypes.data + row * cells.shape[1] * 2, survivors[row].ctypes.data
        or_cells(top, row_at, lanes.ctypes.data, len(lanes), nothing.ctypes.data, result, result)


@compiled
def _queue(failing: Any, rows: Any, tiles: Any, queue: Any, queued: Any) -> Any:
    """Put the numbers of events into the queues of the tiles that they may have entries in."""
    for tile in range(64):
        queued[tile] = 0
    everything = np.uint64(0xFFFFFFFFFFFFFFFF) >> np.uint64(64 - tiles)
    for row in range(rows):
        left = everything & ~failing[row]
        while left != 0:
            tile = trailing_zeros(left)
            queue[tile, queued[tile]] = row
            queued[tile] += 1
            left &= left - np.uint64(1)


@compiled
def _look_up(
    tile: Any, fail: Any, doubt: Any, alive: Any, lanes: Any, doubt_lanes: Any, queue: Any, cells: Any, hits: Any,
    failing: Any, doubtful: Any, kept_row: Any, kept_words: Any, hit_row: Any, hit_word: Any, hit_bits: Any,
    unsure_hit: Any, unsure_bit: Any, codes: Any, codes_bytes: Any,
) -> Any:  # fmt: skip
    """Append the words of one tile of which something is left for the queued events, and which bits are unsure.

    In four loops, of which only the last has branches that a processor cannot guess: the others run at the speed of
    the cache.
    """
    cells_at, row_bytes, alive_at = cells.ctypes.data, cells.shape[1] * 2, alive.ctypes.data
    lanes_at, doubt_lanes_at = lanes.ctypes.data, doubt_lanes.ctypes.data
    # Its address is taken in each loop, as an array lives no longer than its name is used.
    nothing = np.zeros(TILE_WORDS, np.uint64)
    probe = min(PROBE_LANES, len(lanes))
    probed = 0
    for at in range(len(queue)):
        row_at, bits = cells_at + queue[at] * row_bytes, failing[probed].ctypes.data
        kept_row[probed] = queue[at]
        probed += or_cells(fail, row_at, lanes_at, probe, nothing.ctypes.data, bits, alive_at) != 0
    kept = 0
    for at in range(probed):
        row = kept_row[at]
        row_at, bits = cells_at + row * row_bytes, failing[at].ctypes.data
        words = or_cells(
            fail, row_at, lanes_at + probe * 2, len(lanes) - probe, bits, failing[kept].ctypes.data, alive_at
        )
        kept_row[kept], kept_words[kept] = row, words
        kept += words != 0
    for at in range(kept):
        row_at, bits = cells_at + kept_row[at] * row_bytes, doubtful[at].ctypes.data
        or_cells(doubt, row_at, doubt_lanes_at, len(doubt_lanes), nothing.ctypes.data, bits, alive_at)
    unsures = 0
    for at in range(kept):
        words, before = kept_words[at], unsures
        while words != 0:
            word = np.int64(trailing_zeros(words))
            words &= words - 1
            left = alive[word] & ~failing[at, word]
            unsure = left & doubtful[at, word]
            while unsure != 0:
                unsure_hit[unsures] = hits
                unsure_bit[unsures] = trailing_zeros(unsure)
                unsures += 1
                unsure &= unsure - np.uint64(1)
            hit_row[hits] = kept_row[at]
            hit_word[hits] = tile * TILE_WORDS + word
            hit_bits[hits] = left
            hits += 1
        if unsures > before:
            for offset in range(0, codes_bytes, 64):
                prefetch(codes + kept_row[at] * codes_bytes + offset)
    return hits, unsures


@compiled
def _verify(
    checks: Any, codes: Any, unsures: Any, unsure_hit: Any, unsure_bit: Any, hit_row: Any, hit_word: Any, hit_bits: Any
) -> Any:
    """Clear the unsure bits whose checks do not hold. Apart from looking up, so that waiting for memory overlaps."""
    codes_at, row_bytes = codes.ctypes.data, codes.shape[1] * 8
    for i in range(unsures):
        hit = unsure_hit[i]
        entry = np.int64(hit_word[hit]) * 64 + np.int64(unsure_bit[i])
        if not holds(checks, entry, codes_at + hit_row[hit] * row_bytes):
            hit_bits[hit] &= ~(np.uint64(1) << np.uint64(unsure_bit[i]))


@compiled
def look(tiles: Any, checks: Any, codes: Any, cells: Any, bits: Any, scratch: Any) -> Any:
    """Find the entries that hold, as hits in scratch; returns how many words of hits, or -1 if they do not fit."""
    addresses = addresses_of(checks, bits)
    rows, tile_count = codes.shape[0], len(tiles.fail)
    queue, queued, run_end = scratch.queue, scratch.queued, scratch.run_end
    hit_row, hit_word, hit_bits = scratch.hit_row, scratch.hit_word, scratch.hit_bits
    # A plain 0 would be a type of its own, and compile what it is handed to twice.
    hits = np.int64(0)
    run_end[0] = 0
    for tile in range(tile_count):
        if tile % TILE == 0:
            _surviving_tiles(tiles.top[tile // TILE], tiles.all_lanes, cells, scratch)
        if tile % 64 == 0:
            _queue(scratch.survivors[:, tile % TILE // 64], rows, min(64, tile_count - tile), queue, queued)
        for begin in range(0, queued[tile % 64], QUEUE_PIECE):
            end = min(begin + QUEUE_PIECE, queued[tile % 64])
            if hits + TILE_WORDS * (end - begin) > len(hit_row):
                return -1
            hits, unsures = _look_up(
                tile, tiles.fail[tile], tiles.doubt[tile], tiles.alive[tile],
                tiles.lane[tile, : tiles.lane_counts[tile, 0]], tiles.doubt_lane[tile, : tiles.lane_counts[tile, 1]],
                queue[tile % 64, begin:end], cells, hits, scratch.failing, scratch.doubtful, scratch.kept_row,
                scratch.kept_words, hit_row, hit_word, hit_bits, scratch.unsure_hit, scratch.unsure_bit,
                codes.ctypes.data, codes.shape[1] * 8,
            )  # fmt: skip
            _verify(addresses, codes, unsures, scratch.unsure_hit, scratch.unsure_bit, hit_row, hit_word, hit_bits)
        run_end[tile + 1] = hits
    return hits
