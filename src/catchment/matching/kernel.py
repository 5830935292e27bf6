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
from catchment.matching.memory import Array, compiled, load_i64, load_u64, or_cells

TILE_WORDS = 8
TILE = 64 * TILE_WORDS

# Flags of a check.
NULL_HOLDS, TEXT, SET, PIECE, NEGATED = 1, 2, 4, 8, 16

QUEUE_PIECE = 256
"""Events looked up before what they left unsure is verified."""

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


class Owners(NamedTuple):
    """Whose entries they are: a slot, or (from -2 down) the head of a chain of slots; -1 is nobody."""

    of_entry: Array
    chain_slot: Array
    chain_next: Array
    is_split: Array
    """Slots of several entries, which one event may satisfy more than once."""
    counts: Array
    """Chains and split slots: how many there are."""


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
def bit_count(bits: Any) -> Any:
    bits = bits - ((bits >> np.uint64(1)) & np.uint64(0x5555555555555555))
    bits = (bits & np.uint64(0x3333333333333333)) + ((bits >> np.uint64(2)) & np.uint64(0x3333333333333333))
    bits = (bits + (bits >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return np.int64((bits * np.uint64(0x0101010101010101)) >> np.uint64(56))


@compiled
def _surviving_tiles(top: Any, lanes: Any, cells: Any, survivors: Any) -> Any:
    """Per event, which tiles its cells do not rule out as a whole."""
    failing = np.empty(TILE_WORDS, np.uint64)
    for row in range(cells.shape[0]):
        row_at = cells.ctypes.data + row * cells.shape[1] * 2
        or_cells(top, row_at, lanes.ctypes.data, len(lanes), failing.ctypes.data, failing.ctypes.data)
        for word in range(TILE_WORDS):
            survivors[row, word] = ~failing[word]


@compiled
def _queue(survivors: Any, tiles: Any, queue: Any, queued: Any) -> Any:
    """Put the numbers of events into the queues of the tiles that they may have entries in."""
    for tile in range(64):
        queued[tile] = 0
    everything = np.uint64(0xFFFFFFFFFFFFFFFF) >> np.uint64(64 - tiles)
    for row in range(len(survivors)):
        left = survivors[row] & everything
        while left != 0:
            tile = trailing_zeros(left)
            queue[tile, queued[tile]] = row
            queued[tile] += 1
            left &= left - np.uint64(1)


@compiled
def _look_up(
    tile: Any, fail: Any, doubt: Any, alive: Any, lanes: Any, doubt_lanes: Any, queue: Any, cells: Any,
    hits: Any, hit_row: Any, hit_word: Any, hit_bits: Any, unsure_hit: Any, unsure_bit: Any,
) -> Any:  # fmt: skip
    """Append the words of one tile of which something is left for the queued events, and which bits are unsure.

    In three loops, of which only the last has branches that a processor cannot guess: the others run at the speed of
    the cache.
    """
    cells_at, row_bytes, alive_at = cells.ctypes.data, cells.shape[1] * 2, alive.ctypes.data
    failing, doubtful = np.empty((len(queue), TILE_WORDS), np.uint64), np.empty((len(queue), TILE_WORDS), np.uint64)
    row, left_words = np.empty(len(queue), np.int64), np.empty(len(queue), np.int64)
    kept = 0
    for at in range(len(queue)):
        row[kept] = queue[at]
        left_words[kept] = or_cells(
            fail, cells_at + queue[at] * row_bytes, lanes.ctypes.data, len(lanes), failing[kept].ctypes.data, alive_at
        )
        kept += left_words[kept] != 0
    for i in range(kept):
        row_at = cells_at + row[i] * row_bytes
        or_cells(doubt, row_at, doubt_lanes.ctypes.data, len(doubt_lanes), doubtful[i].ctypes.data, alive_at)
    unsures = 0
    for i in range(kept):
        words = left_words[i]
        while words != 0:
            word = np.int64(trailing_zeros(words))
            words &= words - 1
            left = alive[word] & ~failing[i, word]
            unsure = left & doubtful[i, word]
            while unsure != 0:
                unsure_hit[unsures] = hits
                unsure_bit[unsures] = trailing_zeros(unsure)
                unsures += 1
                unsure &= unsure - np.uint64(1)
            hit_row[hits] = row[i]
            hit_word[hits] = tile * TILE_WORDS + word
            hit_bits[hits] = left
            hits += 1
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
def find(tiles: Any, checks: Any, owners: Any, codes: Any, cells: Any, bits: Any) -> Any:
    """Rows and slots, aligned, in the order of rows."""
    addresses = addresses_of(checks, bits)
    rows, tile_count = codes.shape[0], len(tiles.fail)
    survivors = np.empty((rows, TILE_WORDS), np.uint64)
    queue, queued = np.empty((64, rows), np.int32), np.empty(64, np.int64)
    piece = min(QUEUE_PIECE, rows)
    size = 4 * rows + 64
    hit_row, hit_word, hit_bits = np.empty(size, np.int32), np.empty(size, np.int32), np.empty(size, np.uint64)
    # A piece of a queue is short enough that all its bits may be unsure.
    unsure_hit, unsure_bit = np.empty(piece * TILE, np.int64), np.empty(piece * TILE, np.uint8)
    run_end = np.zeros(tile_count + 1, np.int64)
    # A plain 0 would be a type of its own, and compile what it is handed to twice.
    hits = np.int64(0)
    for tile in range(tile_count):
        if tile % TILE == 0:
            _surviving_tiles(tiles.top[tile // TILE], tiles.all_lanes, cells, survivors)
        if tile % 64 == 0:
            _queue(survivors[:, tile % TILE // 64], min(64, tile_count - tile), queue, queued)
        for begin in range(0, queued[tile % 64], piece):
            end = min(begin + piece, queued[tile % 64])
            if hits + TILE_WORDS * piece > len(hit_row):
                size = 2 * len(hit_row) + TILE_WORDS * piece
                hit_row, hit_word = _longer(hit_row, hits, size), _longer(hit_word, hits, size)
                hit_bits = _longer(hit_bits, hits, size)
            hits, unsures = _look_up(
                tile, tiles.fail[tile], tiles.doubt[tile], tiles.alive[tile],
                tiles.lane[tile, : tiles.lane_counts[tile, 0]], tiles.doubt_lane[tile, : tiles.lane_counts[tile, 1]],
                queue[tile % 64, begin:end], cells, hits, hit_row, hit_word, hit_bits, unsure_hit, unsure_bit,
            )  # fmt: skip
            _verify(addresses, codes, unsures, unsure_hit, unsure_bit, hit_row, hit_word, hit_bits)
        run_end[tile + 1] = hits
    matched = np.zeros(rows + 1, np.int64)
    for hit in range(hits):
        matched[hit_row[hit] + 1] += bit_count(hit_bits[hit])
    if owners.counts[0] > 0:
        _count_chains(owners.of_entry, owners.chain_next, hits, hit_row, hit_word, hit_bits, matched)
    out_row, out_slot = _emitted(
        owners.of_entry,
        owners.chain_slot,
        owners.chain_next,
        run_end,
        hit_row,
        hit_word,
        hit_bits,
        matched,
    )
    if owners.counts[1] > 0:
        return _once_each(owners.is_split, out_row, out_slot)
    return out_row, out_slot


@compiled
def _longer(array: Any, used: Any, size: Any) -> Any:
    longer = np.empty(size, array.dtype)
    for i in range(used):
        longer[i] = array[i]
    return longer


@compiled
def _count_chains(
    of_entry: Any, chain_next: Any, hits: Any, hit_row: Any, hit_word: Any, hit_bits: Any, matched: Any
) -> Any:
    """Count further owners of entries, after each entry was counted once."""
    for hit in range(hits):
        left = hit_bits[hit]
        while left != 0:
            owner = of_entry[np.int64(hit_word[hit]) * 64 + np.int64(trailing_zeros(left))]
            left &= left - np.uint64(1)
            if owner < 0:
                link = chain_next[-2 - owner]
                while link >= 0:
                    matched[hit_row[hit] + 1] += 1
                    link = chain_next[link]


EMIT_ROWS = 512
"""Rows whose pairs are written together: the tiles' hits go round once for so many rows, and the pairs stay cached."""


@compiled
def _emitted(
    of_entry: Any, chain_slot: Any, chain_next: Any, run_end: Any, hit_row: Any, hit_word: Any, hit_bits: Any,
    matched: Any,
) -> Any:  # fmt: skip
    """Rows and slots in the order of rows, from hits in the order of tiles and then rows."""
    rows = len(matched) - 1
    end = matched
    for row in range(rows):
        end[row + 1] += end[row]
    out_row, out_slot = np.empty(end[rows], np.int32), np.empty(end[rows], np.int32)
    at, cursor = run_end.copy(), end.copy()
    for limit in range(EMIT_ROWS, rows + EMIT_ROWS, EMIT_ROWS):
        for tile in range(len(at) - 1):
            hit = at[tile]
            while hit < run_end[tile + 1] and hit_row[hit] < limit:
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
    for row in range(rows):
        for place in range(end[row], end[row + 1]):
            out_row[place] = row
    return out_row, out_slot


@compiled
def _once_each(is_split: Any, out_row: Any, out_slot: Any) -> Any:
    """Report a slot once per row, though several of its entries hold."""
    last = np.full(len(is_split), -1, np.int32)
    kept = 0
    for i in range(len(out_row)):
        slot = out_slot[i]
        if is_split[slot]:
            if last[slot] == out_row[i]:
                continue
            last[slot] = out_row[i]
        out_row[kept] = out_row[i]
        out_slot[kept] = slot
        kept += 1
    return out_row[:kept].copy(), out_slot[:kept].copy()
