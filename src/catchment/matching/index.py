"""The index: entries as bits, built at once and then changed one by one.

Rule 1: boundaries of cells are drawn once, where the ends of the checks lie. What comes later is placed among them; more of
        it is then in doubt, and is verified. Right always, fast again after rebuilding.
Rule 2: the large arrays come in blocks of 4,096 entries, so that growing never copies them.
Rule 3: an entry's number is its bit: it stays until the entry is removed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from catchment.matching.encoding import Check, Space
from catchment.matching.kernel import BLOCK, BLOCK_WORDS, SET, WORD, Blocks, Checks
from catchment.matching.marking import arrange, mark, summarise, unmark, weigh
from catchment.matching.memory import Array, grown
from catchment.matching.reading import LOWEST_CODE, NULL_CODE, Lanes
from catchment.matching.texts import HIGHEST_TEXT, LOWEST_TEXT

__all__ = ["Index"]

CELLS_MAX = 256
"""Per lane. More leave less in doubt; fewer keep more of a word's cells in the cache."""
CELLS_TOTAL_MAX = 16_384


class Index:
    """Entries of checks. `order[i]` is the number that the i-th of the given entries got."""

    def __init__(self, space: Space, entries: Sequence[tuple[Check, ...]]) -> None:
        self.space = space
        self.entry_count = len(entries)
        self._free: list[int] = []
        self._free_runs: dict[int, list[int]] = {}
        self._free_sets: dict[int, list[int]] = {}
        self._load(entries)
        self._draw_boundaries()
        self.order = self._sort_entries()
        self._mark_all()

    # -- the checks, flat -----------------------------------------------------------------------------------------

    def _load(self, entries: Sequence[tuple[Check, ...]]) -> None:
        lane, flags, low, high, set_low, set_high = [], [], [], [], [], []
        counts = np.array([len(entry) for entry in entries], np.int32)
        for entry in entries:
            for check_lane, check_flags, spans in entry:
                lane.append(check_lane)
                if len(spans) == 1:
                    flags.append(check_flags)
                    low.append(spans[0][0])
                    high.append(spans[0][1])
                else:
                    flags.append(check_flags | SET)
                    low.append(len(set_low))
                    high.append(len(spans))
                    set_low += [span[0] for span in spans]
                    set_high += [span[1] for span in spans]
        self.check_count, self.set_size = len(lane), len(set_low)
        # Spare room costs nothing until it is written to, and puts off the first copy.
        room, entry_room = 2 * self.check_count + 1024, _whole_blocks(2 * self.entry_count + 1)
        self.lane, self.flags = _array(lane, np.int32, room), _array(flags, np.uint8, room)
        self.low, self.high = _array(low, np.int64, room), _array(high, np.int64, room)
        self.set_low = _array(set_low, np.int64, 2 * self.set_size + 1024)
        self.set_high = _array(set_high, np.int64, 2 * self.set_size + 1024)
        self.count = _array(counts, np.int32, entry_room)
        self.first = _array(np.cumsum(counts) - counts, np.int64, entry_room)
        self.hash = _array([hash(entry) for entry in entries], np.int64, entry_room)

    def living(self) -> list[int]:
        """The numbers of the entries that have not been removed."""
        bits = np.unpackbits(self.alive.view(np.uint8), bitorder="little")
        found: list[int] = np.flatnonzero(bits).tolist()
        return found

    def checks_of(self, entry: int) -> tuple[Check, ...]:
        found = []
        for k in range(self.first[entry], self.first[entry] + self.count[entry]):
            flags, low, high = int(self.flags[k]), int(self.low[k]), int(self.high[k])
            spans: tuple[tuple[int, int], ...] = ((low, high),)
            if flags & SET:
                spans = tuple(
                    zip(self.set_low[low : low + high].tolist(), self.set_high[low : low + high].tolist(), strict=True)
                )
            found.append((int(self.lane[k]), flags & ~SET, spans))
        return tuple(sorted(found))

    # -- building -------------------------------------------------------------------------------------------------

    def _draw_boundaries(self) -> None:
        """At the ends of checks: all of them, or where there are too many, evenly by their number."""
        space, n = self.space, self.check_count
        is_set = self.flags[:n] & SET != 0
        sizes = np.where(is_set, self.high[:n], 1)
        ends = np.concatenate(
            [
                self.low[:n][~is_set],
                self.high[:n][~is_set] + 1,
                self.set_low[: self.set_size],
                self.set_high[: self.set_size] + 1,
            ]
        )
        of_sets = np.repeat(self.lane[:n][is_set], sizes[is_set])
        lanes = np.concatenate([self.lane[:n][~is_set]] * 2 + [of_sets] * 2)
        cells_max = max(2, min(CELLS_MAX, CELLS_TOTAL_MAX // max(len(space.lanes), 1)))
        self.first_cell = np.zeros(max(space.lane_limit, 1), np.int32)
        self.first_boundary = np.zeros(max(space.lane_limit, 1) + 1, np.int64)
        chosen, text = [np.zeros(0, np.int64)], [np.zeros(0, np.bool_)]
        cell = boundary = 0
        for lane in range(space.lane_limit):
            self.first_cell[lane], self.first_boundary[lane] = cell, boundary
            mine = np.zeros(0, np.int64)
            if lane < len(space.lanes) and space.has_order(lane):
                is_text = space.is_text(lane)
                mine = _boundaries(space, ends[lanes == lane], is_text, cells_max - 2)
                chosen.append(mine)
                text.append(np.full(len(mine), is_text))
            cell += len(mine) + 2
            boundary += len(mine)
        self.first_boundary[space.lane_limit :] = boundary
        self.boundary_end, self.boundary_is_text = np.concatenate(chosen), np.concatenate(text)
        self.cell_count = max(cell, 1)
        self._verdict = np.zeros(CELLS_MAX + 2, np.uint8)
        self.resolve()

    def resolve(self) -> None:
        """Work out the codes of the boundaries again, after new texts have moved them."""
        self.boundary = self.space.resolved(self.boundary_end, self.boundary_is_text)

    def _sort_entries(self) -> Array:
        """Put entries side by side that fail together, so that whole words fail."""
        n, k = self.entry_count, self.check_count
        weight, reached = np.zeros(k + 1, np.float64), np.zeros(k + 1, np.int64)
        weigh(self.checks(), k, self.lanes(), self._verdict, weight, reached)
        arrange(self.checks(), n, weight, reached)
        first, count = self.first[:n], self.count[:n]
        keys = []
        for i in range(3):
            at = np.where(count > i, first + i, k)
            keys += [np.where(count > i, self.lane[at], -1), np.where(count > i, reached[at], 0)]
        by = np.lexsort(keys[::-1])
        gather = np.repeat(first[by] - (np.cumsum(count[by]) - count[by]), count[by]) + np.arange(k)
        for column in (self.lane, self.flags, self.low, self.high):
            column[:k] = column[gather]
        self.count[:n], self.hash[:n] = count[by], self.hash[:n][by]
        self.first[:n] = np.cumsum(self.count[:n]) - self.count[:n]
        order = np.empty(n, np.int64)
        order[by] = np.arange(n)
        return order

    def _mark_all(self) -> None:
        words = len(self.count) // WORD
        self.alive = np.zeros(words, np.uint64)
        self.word_lane = np.zeros((words, max(self.space.lane_limit, 1)), np.uint16)
        self.word_lane_count = np.zeros(words, np.int32)
        self.blocks: list[tuple[Array, Array, Array]] = []
        self._addresses = np.zeros((3, 0), np.int64)
        for first in range(0, self.entry_count, BLOCK):
            self._new_block()
            last = min(first + BLOCK, self.entry_count)
            fail, doubt, summary = self.blocks[-1]
            mark(fail, doubt, self.alive, self.checks(), self.lanes(), first, last, self._verdict)
            summarise(fail, doubt, summary, self.lanes(), self.view(), first // WORD, -(-last // WORD))

    def _new_block(self) -> None:
        block = tuple(np.zeros((BLOCK_WORDS, self.cell_count), np.uint64) for _ in range(2))
        self.blocks.append((*block, np.zeros(self.cell_count, np.uint64)))
        self._address()

    def _address(self) -> None:
        self._addresses = np.array([[a.ctypes.data for a in block] for block in self.blocks], np.int64).T.copy()

    # -- changing -------------------------------------------------------------------------------------------------

    def add(self, checks: tuple[Check, ...]) -> int:
        if self._free:
            entry = self._free.pop()
        else:
            entry = self.entry_count
            self.entry_count += 1
            room = _whole_blocks(self.entry_count)
            self.count, self.first, self.hash = grown(self.count, room), grown(self.first, room), grown(self.hash, room)
            self.alive = grown(self.alive, room // WORD)
            self.word_lane = grown(self.word_lane, room // WORD)
            self.word_lane_count = grown(self.word_lane_count, room // WORD)
            if entry // BLOCK == len(self.blocks):
                self._new_block()
        weighted = sorted((self._weight(check), check) for check in checks)
        run = self._run(len(checks))
        self.first[entry], self.count[entry], self.hash[entry] = run, len(checks), hash(checks)
        for k, (_, check) in enumerate(weighted, run):
            self._put(k, check)
        fail, doubt, summary = self.blocks[entry // BLOCK]
        mark(fail, doubt, self.alive, self.checks(), self.lanes(), entry, entry + 1, self._verdict)
        summarise(fail, doubt, summary, self.lanes(), self.view(), entry // WORD, entry // WORD + 1)
        return entry

    def remove(self, entry: int) -> None:
        fail, doubt, summary = self.blocks[entry // BLOCK]
        unmark(fail, doubt, self.alive, self.checks(), self.lanes(), entry)
        summarise(fail, doubt, summary, self.lanes(), self.view(), entry // WORD, entry // WORD + 1)
        first, count = int(self.first[entry]), int(self.count[entry])
        for k in range(first, first + count):
            if self.flags[k] & SET:
                self._free_sets.setdefault(int(self.high[k]), []).append(int(self.low[k]))
        self._free_runs.setdefault(count, []).append(first)
        self._free.append(entry)

    def _weight(self, check: Check) -> float:
        """A rough order for checks that come one by one: the fewer spans, the narrower."""
        return len(check[2]) if check[2] else 0

    def _run(self, count: int) -> int:
        """Room for so many checks: where others were removed, else at the end."""
        free = self._free_runs.get(count)
        if free:
            return free.pop()
        run = self.check_count
        self.check_count += count
        self.lane, self.flags = grown(self.lane, self.check_count), grown(self.flags, self.check_count)
        self.low, self.high = grown(self.low, self.check_count), grown(self.high, self.check_count)
        return run

    def _put(self, k: int, check: Check) -> None:
        self.lane[k], self.flags[k], spans = check
        if len(spans) == 1:
            self.low[k], self.high[k] = spans[0]
            return
        free = self._free_sets.get(len(spans))
        if free:
            begin = free.pop()
        else:
            begin = self.set_size
            self.set_size += len(spans)
            self.set_low, self.set_high = grown(self.set_low, self.set_size), grown(self.set_high, self.set_size)
        for i, (low, high) in enumerate(spans, begin):
            self.set_low[i], self.set_high[i] = low, high
        self.flags[k] |= SET
        self.low[k], self.high[k] = begin, len(spans)

    # -- for the kernels ------------------------------------------------------------------------------------------

    def lanes(self) -> Lanes:
        return Lanes(self.space.of_attribute, self.space.is_float, self.first_cell, self.first_boundary, self.boundary)

    def checks(self) -> Checks:
        return Checks(
            self.first,
            self.count,
            self.lane,
            self.flags,
            self.low,
            self.high,
            self.set_low,
            self.set_high,
            self.space.vocabulary.label,
        )

    def view(self) -> Blocks:
        sizes = np.array([self.cell_count, len(self.space.lanes), -(-self.entry_count // WORD)], np.int64)
        fail, doubt, summary = self._addresses
        return Blocks(fail, doubt, summary, self.alive, self.word_lane, self.word_lane_count, sizes)

    def __getstate__(self) -> dict[str, Any]:
        state = dict(self.__dict__)
        del state["_addresses"]
        words = -(-self.entry_count // WORD)
        # Words that hold no entry are all zero; they need not travel.
        state["blocks"] = [
            (fail[: words - i * BLOCK_WORDS], doubt[: words - i * BLOCK_WORDS], summary)
            for i, (fail, doubt, summary) in enumerate(self.blocks)
        ]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        whole = []
        for fail, doubt, summary in state["blocks"]:
            block = tuple(np.zeros((BLOCK_WORDS, self.cell_count), np.uint64) for _ in range(2))
            block[0][: len(fail)], block[1][: len(doubt)] = fail, doubt
            whole.append((*block, summary))
        self.blocks = whole
        self._address()


def _whole_blocks(entries: int) -> int:
    return -(-entries // BLOCK) * BLOCK


def _array(values: Any, kind: Any, room: int) -> Array:
    found = np.zeros(room, kind)
    found[: len(values)] = values
    return found


def _boundaries(space: Space, ends: Array, is_text: bool, limit: int) -> Array:
    # One above the highest code wraps around to null.
    lowest, above_highest = (LOWEST_TEXT, HIGHEST_TEXT + 1) if is_text else (LOWEST_CODE, NULL_CODE)
    ends = ends[(ends != lowest) & (ends != above_highest)]
    codes = space.resolved(ends, np.full(len(ends), is_text))
    by = np.argsort(codes, kind="stable")
    ends, codes = ends[by], codes[by]
    distinct = (
        np.flatnonzero(np.concatenate([[True], codes[1:] != codes[:-1]])) if len(codes) else np.zeros(0, np.int64)
    )
    if len(distinct) > limit:
        even = np.arange(limit) * len(codes) // limit + len(codes) // (2 * limit)
        # A constant that many filters mention draws a boundary on both of its sides.
        distinct = np.unique(distinct[np.searchsorted(distinct, even, side="right") - 1])
    return ends[distinct]
