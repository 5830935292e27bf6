"""The compiled loops of quantile sketches: read, gather, compact and write KLL of doubles, as DataSketches has it.

A sketch holds values in levels; a value on level h stands for 2^h values seen. Where there is no room left, a level is
*compacted*: of its sorted values every other one rises to the next level.

    word    words   of a sketch: 4 bytes each, little-endian
    0       2       words up to the levels (2 or 5), version, family, flags; k, smallest level: an empty one ends here
    2       2       values seen; of a single value, that value instead of all that follows
    4       1       smallest k that was merged, height (the number of levels)
    5       h       where each level begins, in an array as large as there is room, filled up to its end
    5 + h   4       lowest and highest value
    9 + h   2 × r   the retained values, level by level, sorted from level 1 on

All is in one file: numba takes a compiled loop from its cache as long as the loop's own file is the same.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit

__all__ = ["EMPTY", "FULL", "HEADER_BYTES_MAX", "KLL_K", "SINGLE", "SIZES", "Array", "merge_into", "sketch_into"]

Array = npt.NDArray[Any]

KLL_K = 200
SMALLEST_LEVEL = 8
SIZES = KLL_K | SMALLEST_LEVEL << 16
SHORT, LONG = 2, 5
IS_EMPTY, IS_SORTED, IS_SINGLE = 1 << 24, 2 << 24, 4 << 24
EMPTY, SINGLE, FULL = (
    words | version << 8 | 15 << 16 | flag
    for words, version, flag in ((SHORT, 1, IS_EMPTY), (SHORT, 2, IS_SINGLE), (LONG, 1, 0))
)
HEIGHT_MAX, SEEN_MAX = 48, 2**48
HEADER_BYTES_MAX = 4 * (LONG + HEIGHT_MAX + 4)
HELD_MAX = 700
"""How many values wait for a common compaction: more would err less and take longer."""


@njit(cache=True, nogil=True)
def sketch_into(out: bytearray, values: Array) -> Any:
    """Sketch sorted values and return the size."""
    seen = len(values)
    while seen and np.isnan(values[seen - 1]):
        seen -= 1
    for one in range(seen):
        values[one] += 0.0  # -0.0 is 0.0, or the bytes would depend on how they were sorted
    lowest, highest = (values[0], values[seen - 1]) if seen else (0.0, 0.0)
    bounds = np.zeros(1 + HEIGHT_MAX, np.int64)
    bounds[1] = seen
    height = _compact(values, bounds, 1, seen)
    return _write(out, seen, KLL_K, lowest, highest, values, bounds, height)


@njit(cache=True, nogil=True)
def merge_into(out: bytearray, whole: bytes, count: int) -> Any:
    """Merge sketches that follow one another; return 0 if one is none, as raising would leak what is allocated."""
    if len(whole) % 4:
        return 0
    words = np.frombuffer(whole, np.uint32)
    levels = np.zeros((count, 1 + HEIGHT_MAX), np.int64)
    values, bounds = np.empty(0), np.zeros(1 + HEIGHT_MAX, np.int64)
    seen, smallest_k, lowest, highest, height, held, first, end = 0, KLL_K, np.inf, -np.inf, 1, 0, 0, 0
    for one in range(count):
        end, more, retained, k, its_height, low, high = _read(words, end, levels, one)
        seen += more
        if end < 0 or seen >= SEEN_MAX:
            return 0
        held += retained
        smallest_k, height = min(smallest_k, k), max(height, its_height)
        lowest, highest = min(lowest, low), max(highest, high)
        if held > HELD_MAX or one == count - 1:
            values = _gathered(values, bounds, words, levels, first, one + 1, held, height)
            fitting = 0
            for value in values:
                fitting += (value >= lowest) & (value <= highest)
            if fitting < held:  # NaN does not fit either, and could not be sorted
                return 0
            height = _compact(values, bounds, height, seen)
            first, held = one + 1, bounds[height]
    return _write(out, seen, smallest_k, lowest, highest, values, bounds, height) if end == len(words) else 0


# -- compaction -------------------------------------------------------------------------------------------------------


@njit(cache=True, nogil=True)
def _room(k: int, height: int) -> Any:
    """Add up how many values each level has room for: k at the top, a third less with each level below."""
    room = 0
    for depth in range(height):
        room += max(SMALLEST_LEVEL, ((2 * k << depth) // 3**depth + 1) >> 1) if depth <= 30 else SMALLEST_LEVEL
    return room


ROOM = np.array([_room.py_func(KLL_K, height) for height in range(HEIGHT_MAX + 1)])


@njit(cache=True, nogil=True)
def _compact(values: Array, bounds: Array, height: int, seen: int) -> Any:
    """Compact full levels in place, lowest first, as long as there is no room for all; return the new height.

    Level h is values[bounds[h]:bounds[h + 1]], before and after; it need not be sorted before.
    """
    held, room = bounds[height], ROOM[height]
    begin = kept = level = 0
    while level < height:
        end = bounds[level + 1]
        size = end - begin
        is_full = held > room and size >= ROOM[height - level] - ROOM[height - level - 1]
        if is_full or level:
            _sort(values, begin, end)
        if is_full:
            half = size // 2
            coin = _coin(values, end - 2 * half, end, seen)
            if size % 2:
                values[kept] = values[begin]
                kept += 1
            # What rises moves next to the level above, to be sorted with it.
            for one in range(half):
                values[end - 1 - one] = values[end - 1 - 2 * one - coin]
            begin = end - half
            held -= half
            if level == height - 1:
                height += 1
                room, bounds[height] = ROOM[height], end
        else:
            _copy(values[kept : kept + size], values[begin:end])
            kept += size
            begin = end
        level += 1
        bounds[level] = kept
    return height


@njit(cache=True, nogil=True)
def _coin(values: Array, begin: int, end: int, seen: int) -> Any:
    """Choose which of each pair of values rises: 0 the second, 1 the first.

    Alternating would err to one side wherever the input has twice the period of the compactions. So this mixes the
    bits of all that is compacted: sketches of equal size choose apart as soon as one value differs, and a level that
    holds the same values again chooses anew, as more has been seen. Only an input made against this very function
    finds a bias.
    """
    bits = values.view(np.uint64)
    mixed = np.uint64(seen) * np.uint64(0x9E3779B97F4A7C15)
    for one in range(begin, end):
        mixed += bits[one]
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.int64(mixed >> np.uint64(63))


@njit(cache=True, nogil=True)
def _sort(values: Array, begin: int, end: int) -> None:
    """Sort by merging neighbouring runs until there is one: most of what comes here is few long runs."""
    left = right = begin
    while left > begin or right < end:
        left = begin
        middle = _run_end(values, left, end)
        right = _run_end(values, middle, end)
        while middle < end:
            _merge_runs(values, left, middle, right)
            if left == begin and right == end:
                break
            left, middle = right, _run_end(values, right, end)
            right = _run_end(values, middle, end)


@njit(cache=True, nogil=True)
def _run_end(values: Array, at: int, end: int) -> Any:
    at += 1
    while at < end and values[at - 1] <= values[at]:
        at += 1
    return min(at, end)


@njit(cache=True, nogil=True)
def _merge_runs(values: Array, left: int, middle: int, right: int) -> None:
    """Merge two neighbouring runs; of equal values, those of the first come first.

    No branch depends on a value. Both ends are merged at once, as every step has to wait for the one before.
    """
    runs = values[left:right].copy()
    i, i_last, j, j_last = 0, middle - left - 1, middle - left, right - left - 1
    at, last = left, right - 1
    steps = min(i_last - i, j_last - j) + 1 >> 1
    while steps > 0:
        for _ in range(steps):
            first, second = runs[i], runs[j]
            is_first = first <= second
            values[at] = first if is_first else second
            i += is_first
            j += not is_first
            at += 1
            first, second = runs[i_last], runs[j_last]
            is_second = first <= second
            values[last] = second if is_second else first
            j_last -= is_second
            i_last -= not is_second
            last -= 1
        steps = min(i_last - i, j_last - j) + 1 >> 1
    while i <= i_last and j <= j_last:
        first, second = runs[i], runs[j]
        is_first = first <= second
        values[at] = first if is_first else second
        i += is_first
        j += not is_first
        at += 1
    _copy(values[at : last + 1], runs[i:] if i <= i_last else runs[j:])


@njit(cache=True, nogil=True)
def _copy(target: Array, source: Array) -> None:
    """Copy from the front; numba compiles this many times faster than an assignment."""
    for one in range(len(target)):
        target[one] = source[one]


# -- bytes ------------------------------------------------------------------------------------------------------------


@njit(cache=True, nogil=True)
def _read(words: Array, begin: int, levels: Array, row: int) -> Any:
    """Read all but the values of the sketch that begins here; into a row of `levels`, their place and sizes by level.

    Return where it ends (-1 if it is none), how many values it has seen and how many retained, smallest k, height,
    lowest and highest value.
    """
    refused = -1, 0, 0, KLL_K, 1, 0.0, 0.0
    left = len(words) - begin
    if left < SHORT:
        return refused
    kind, k = _word(words, begin) & ~IS_SORTED, _word(words, begin + 1) & 0xFFFF
    if _word(words, begin + 1) >> 16 != SMALLEST_LEVEL or k < SMALLEST_LEVEL:
        return refused
    at = begin + SHORT
    if kind == EMPTY:
        return at, 0, 0, KLL_K, 1, np.inf, -np.inf
    if kind == SINGLE and left >= SHORT + 2:
        levels[row, 0], levels[row, 1] = at, 1
        return at + 2, 1, 1, KLL_K, 1, _double(words, at), _double(words, at)
    if kind != FULL or left < LONG:
        return refused
    seen = _word(words, at) | _word(words, at + 1) << 32
    smallest_k, height = _word(words, at + 2) & 0xFFFF, _word(words, at + 2) >> 16
    if not (0 < seen < SEEN_MAX and 0 < height < HEIGHT_MAX and LONG + height + 4 <= left):
        return refused
    at, unexplained, retained = begin + LONG, seen, 0
    for level in range(height):
        level_end = _word(words, at + 1) if level + 1 < height else _room(k, height)
        size = level_end - _word(words, at)
        if not 0 <= size <= unexplained >> level:
            return refused
        levels[row, 1 + level] = size
        unexplained -= size << level
        retained += size
        at += 1
    levels[row, 0] = at + 4
    end = at + 4 + 2 * retained
    if unexplained or end > len(words):
        return refused
    place = at + 4 + 2 * levels[row, 1]
    for level in range(1, height):
        for one in range(place, place + 2 * levels[row, 1 + level] - 2, 2):
            if not _double(words, one) <= _double(words, one + 2):
                return refused
        place += 2 * levels[row, 1 + level]
    smallest_k = min(smallest_k, KLL_K) if height > 1 else KLL_K
    return end, seen, retained, smallest_k, height, _double(words, at), _double(words, at + 2)


@njit(cache=True, nogil=True)
def _gathered(
    before: Array, bounds: Array, words: Array, levels: Array, first: int, last: int, held: int, height: int
) -> Any:
    """Put each level of some sketches behind what is there of that level, and move its bounds."""
    values = np.empty(held)
    into = values.view(np.uint32)
    at = begin = 0
    for level in range(height):
        end = max(begin, bounds[level + 1])
        _copy(values[at : at + end - begin], before[begin:end])
        at += end - begin
        begin = end
        for one in range(first, last):
            place, size = levels[one, 0], levels[one, 1 + level]
            _copy(into[2 * at : 2 * (at + size)], words[place : place + 2 * size])
            levels[one, 0] += 2 * size
            at += size
        bounds[level + 1] = at
    return values


@njit(cache=True, nogil=True)
def _write(
    out: bytearray, seen: int, smallest_k: int, lowest: float, highest: float,
    values: Array, bounds: Array, height: int,
) -> Any:  # fmt: skip
    """Write a sketch and return its size."""
    words = np.frombuffer(out, np.uint32)
    retained = bounds[height]
    words[0] = EMPTY if seen == 0 else SINGLE if seen == 1 else FULL
    words[1] = SIZES
    at = SHORT
    if seen > 1:
        words[2], words[3], words[4] = seen & 0xFFFFFFFF, seen >> 32, smallest_k | height << 16
        unused = ROOM[height] - retained
        for level in range(height):
            words[LONG + level] = unused + bounds[level]
        at = LONG + height + 4
        _copy(words[at - 4 : at], np.array([lowest, highest]).view(np.uint32))
    end = at + 2 * retained
    _copy(words[at:end], values.view(np.uint32))
    return 4 * end


@njit(cache=True, nogil=True)
def _word(words: Array, at: int) -> Any:
    return np.int64(words[at])


@njit(cache=True, nogil=True)
def _double(words: Array, at: int) -> Any:
    return np.uint64(np.uint64(words[at]) | np.uint64(words[at + 1]) << np.uint64(32)).view(np.float64)
