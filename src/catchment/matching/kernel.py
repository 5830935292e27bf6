"""Compiled: which entries hold for which events.

An entry is a conjunction of checks. Entries are bits: 64 to a word, 64 words to a block. For each cell of each lane a word
says which of its entries *fail* there whatever the exact value is, and for which it remains in *doubt*; a block's summary
says which of its words fail as a whole.

Rule 1: an entry holds if no cell of the event fails it, and its checks hold where a cell leaves doubt.
Rule 2: words go outside, events inside: the cells of one word stay in the cache while thousands of events pass.
Rule 3: bits default to neither failing nor doubtful, so a lane that an entry does not check needs no work.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numba.cpython.unsafe.numbers import trailing_zeros

from catchment.matching.memory import Array, load_u64
from catchment.matching.reading import NULL_CODE

WORD, BLOCK_WORDS = 64, 64
BLOCK = WORD * BLOCK_WORDS

# Flags of a check.
NULL_HOLDS, TEXT, SET, PIECE, NEGATED = 1, 2, 4, 8, 16


class Checks(NamedTuple):
    """The checks of all entries. Those of entry e are `first[e]` to `first[e] + count[e]`, most selective first."""

    first: Array
    count: Array
    lane: Array
    flags: Array
    low: Array
    """Lower end of an interval; or where a set begins; or a piece."""
    high: Array
    """Upper end, inclusive; or the size of a set."""
    set_low: Array
    set_high: Array
    label: Array
    """Code of each text constant: ends of text intervals are relative to one."""


class Blocks(NamedTuple):
    """Bits by word and cell. Blocks are reached by address, so that a new one moves none of the others."""

    fail: Array
    doubt: Array
    summary: Array
    alive: Array
    lane: Array
    lane_count: Array
    """Lanes that entries of a word check, most selective first."""
    sizes: Array
    """Cells, lanes, words in use."""


class Owners(NamedTuple):
    """Whose entries they are: a slot, or (from -2 down) the head of a chain of slots; -1 is nobody."""

    of_entry: Array
    chain_slot: Array
    chain_next: Array
    is_split: Array
    """Slots of several entries, which one event may satisfy more than once."""
    counts: Array
    """Chains and split slots: how many there are."""


@njit(cache=True, nogil=True, inline="always")
def resolved(checks: Any, flags: int, end: int) -> int:
    if flags & TEXT:
        return checks.label[end >> 2] + ((end & 3) - 1)
    return end


@njit(cache=True, nogil=True, inline="always")
def holds(first, count, lane, flags, low, high, set_low, set_high, label, entry, codes, row, bits):
    """Whether all checks of an entry hold for the codes of an event."""
    k = first[entry]
    last = k + count[entry]
    held = True
    while held and k < last:
        code = codes[row, lane[k]]
        flag = flags[k]
        if code == NULL_CODE:
            held = flag & NULL_HOLDS != 0
        elif flag & PIECE:
            piece = low[k]
            found = (bits[code + (piece >> 6)] >> np.uint64(piece & 63)) & np.uint64(1) != 0
            held = found == (flag & NEGATED == 0)
        elif flag & SET:
            begin = low[k]
            left, right = begin, begin + high[k]
            while left < right:
                middle = (left + right) >> 1
                end = set_low[middle]
                if flag & TEXT:
                    end = label[end >> 2] + ((end & 3) - 1)
                if end <= code:
                    left = middle + 1
                else:
                    right = middle
            held = False
            if left > begin:
                end = set_high[left - 1]
                if flag & TEXT:
                    end = label[end >> 2] + ((end & 3) - 1)
                held = code <= end
        elif flag & TEXT:
            lower, upper = low[k], high[k]
            held = (code >= label[lower >> 2] + ((lower & 3) - 1)) and (code <= label[upper >> 2] + ((upper & 3) - 1))
        else:
            held = code >= low[k] and code <= high[k]
        k += 1
    return held


@njit(cache=True, nogil=True)
def _surviving_words(blocks: Any, block: int, words: int, cells: Any, queue: Any, queued: Any) -> None:
    """Queue each event at the words of a block that its cells do not rule out as a whole."""
    summary = blocks.summary[block]
    lane_count = blocks.sizes[1]
    everything = np.uint64(0xFFFFFFFFFFFFFFFF) >> np.uint64(BLOCK_WORDS - words)
    for row in range(cells.shape[0]):
        failing = np.uint64(0)
        for lane in range(lane_count):
            failing |= load_u64(summary + np.int64(cells[row, lane]) * 8)
        left = everything & ~failing
        while left != 0:
            word = trailing_zeros(left)
            queue[word, queued[word]] = row
            queued[word] += 1
            left &= left - np.uint64(1)


@njit(cache=True, nogil=True)
def find(blocks: Any, checks: Any, owners: Any, codes: Any, cells: Any, bits: Any) -> Any:
    """Rows and slots, aligned, in the order of rows."""
    rows = codes.shape[0]
    cell_count, word_count = blocks.sizes[0], blocks.sizes[2]
    queue = np.empty((BLOCK_WORDS, rows), np.int32)
    queued = np.empty(BLOCK_WORDS, np.int64)
    hit_row, hit_bits = np.empty(4 * rows + 64, np.int32), np.empty(4 * rows + 64, np.uint64)
    run_end = np.zeros(word_count + 1, np.int64)
    matched = np.zeros(rows + 1, np.int64)
    hits = 0
    first, count, lane_, flags, low, high, set_low, set_high, label = checks
    for block in range((word_count + BLOCK_WORDS - 1) // BLOCK_WORDS):
        words = min(BLOCK_WORDS, word_count - block * BLOCK_WORDS)
        queued[:] = 0
        _surviving_words(blocks, block, words, cells, queue, queued)
        for word in range(words):
            number = block * BLOCK_WORDS + word
            fail = blocks.fail[block] + word * cell_count * 8
            doubt = blocks.doubt[block] + word * cell_count * 8
            alive = blocks.alive[number]
            lanes = blocks.lane[number]
            lane_count = blocks.lane_count[number]
            plain = owners.counts[0] == 0
            if hits + queued[word] > len(hit_row):
                hit_row, hit_bits = _doubled(hit_row, hit_bits, hits, hits + queued[word])
            for at in range(queued[word]):
                row = np.int64(queue[word, at])
                left = alive
                for i in range(lane_count):
                    left &= ~load_u64(fail + np.int64(cells[row, lanes[i]]) * 8)
                    if left == 0:
                        break
                if left == 0:
                    continue
                doubtful = np.uint64(0)
                for i in range(lane_count):
                    doubtful |= load_u64(doubt + np.int64(cells[row, lanes[i]]) * 8)
                doubtful &= left
                while doubtful != 0:
                    bit = doubtful & (~doubtful + np.uint64(1))
                    if not holds(
                        first,
                        count,
                        lane_,
                        flags,
                        low,
                        high,
                        set_low,
                        set_high,
                        label,
                        number * WORD + trailing_zeros(doubtful),
                        codes,
                        row,
                        bits,
                    ):
                        left &= ~bit
                    doubtful ^= bit
                if left != 0:
                    hit_row[hits] = row
                    hit_bits[hits] = left
                    hits += 1
                    matched[row + 1] += bit_count(left) if plain else _count_owners(owners, number, left)
            run_end[number + 1] = hits
    return _emitted(owners, rows, run_end, hit_row, hit_bits, matched)


@njit(cache=True, nogil=True)
def _doubled(hit_row: Any, hit_bits: Any, used: int, needed: int) -> Any:
    size = max(needed, 2 * len(hit_row))
    rows, bits = np.empty(size, np.int32), np.empty(size, np.uint64)
    rows[:used] = hit_row[:used]
    bits[:used] = hit_bits[:used]
    return rows, bits


@njit(cache=True, nogil=True, inline="always")
def bit_count(bits: int) -> int:
    bits = bits - ((bits >> np.uint64(1)) & np.uint64(0x5555555555555555))
    bits = (bits & np.uint64(0x3333333333333333)) + ((bits >> np.uint64(2)) & np.uint64(0x3333333333333333))
    bits = (bits + (bits >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return np.int64((bits * np.uint64(0x0101010101010101)) >> np.uint64(56))


@njit(cache=True, nogil=True)
def _count_owners(owners: Any, word: int, bits: int) -> int:
    count = 0
    while bits != 0:
        owner = owners.of_entry[word * WORD + trailing_zeros(bits)]
        bits &= bits - np.uint64(1)
        count += 1
        if owner < 0:
            link = owners.chain_next[-2 - owner]
            while link >= 0:
                count += 1
                link = owners.chain_next[link]
    return count


EMIT_ROWS = 512
"""Rows whose pairs are written together: the words' hits go round once for so many rows, and the pairs stay cached."""


@njit(cache=True, nogil=True)
def _emitted(owners: Any, rows: int, run_end: Any, hit_row: Any, hit_bits: Any, matched: Any) -> Any:
    end = np.cumsum(matched)
    total = end[rows]
    out_row, out_slot = np.empty(total, np.int32), np.empty(total, np.int32)
    at = run_end[:-1].copy()
    cursor = end[:-1].copy()
    for limit in range(EMIT_ROWS, rows + EMIT_ROWS, EMIT_ROWS):
        for word in range(len(at)):
            hit = at[word]
            while hit < run_end[word + 1] and hit_row[hit] < limit:
                row, left = hit_row[hit], hit_bits[hit]
                place = cursor[row]
                while left != 0:
                    owner = owners.of_entry[word * WORD + trailing_zeros(left)]
                    left &= left - np.uint64(1)
                    if owner >= 0:
                        out_slot[place] = owner
                        place += 1
                    else:
                        link = np.int64(-2 - owner)
                        while link >= 0:
                            out_slot[place] = owners.chain_slot[link]
                            place += 1
                            link = np.int64(owners.chain_next[link])
                cursor[row] = place
                hit += 1
            at[word] = hit
    for row in range(rows):
        out_row[end[row] : end[row + 1]] = row
    if owners.counts[1] > 0:
        return _once_each(owners, out_row, out_slot)
    return out_row, out_slot


@njit(cache=True, nogil=True)
def _once_each(owners: Any, out_row: Any, out_slot: Any) -> Any:
    """Report a slot once per row, though several of its entries hold."""
    last = np.full(len(owners.is_split), -1, np.int32)
    kept = 0
    for i in range(len(out_row)):
        slot = out_slot[i]
        if owners.is_split[slot]:
            if last[slot] == out_row[i]:
                continue
            last[slot] = out_row[i]
        out_row[kept] = out_row[i]
        out_slot[kept] = slot
        kept += 1
    return out_row[:kept].copy(), out_slot[:kept].copy()
