"""The index: entries as bits of tiles, built at once and then changed one by one.

Rule 1: boundaries of cells are drawn once, where the ends of the checks lie. What comes later is placed among them;
        more of it is then in doubt, and is verified. Right always, fast again after rebuilding.
Rule 2: the large arrays come in tiles of 512 entries, so that growing never copies them.
Rule 3: an entry's number is its bit: it stays until the entry is removed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from catchment.matching.checks import CheckStore
from catchment.matching.encoding import Check, Space
from catchment.matching.kernel import LANE, PIECE, TILE, TILE_WORDS, Checks, Tiles
from catchment.matching.layout import HIGHEST_CODE, LOWEST_CODE, NULL_CODE, Lanes
from catchment.matching.marking import arrange, doubtful_first, mark, summarise, unmark, weigh
from catchment.matching.memory import Array, grown
from catchment.matching.texts import HIGHEST_TEXT, LOWEST_TEXT

__all__ = ["Index"]

CELLS_MAX = 256
"""Per lane. More leave less in doubt; fewer keep more of a tile in the cache."""
CELLS_TOTAL_MAX = 16_384


class Index:
    """Entries of checks. `order[i]` is the number that the i-th of the given entries got."""

    def __init__(self, space: Space, entries: Sequence[tuple[Check, ...]]) -> None:
        self.space = space
        self.entry_count = len(entries)
        self._free: list[int] = []
        self.store = CheckStore(entries, 2 * len(entries) + TILE)
        self._draw_boundaries()
        self.order = self._sort_entries()
        self._mark_all()

    # -- building -------------------------------------------------------------------------------------------------

    def _draw_boundaries(self) -> None:
        """At the ends of checks: all of them, or where there are too many, evenly by their number."""
        space = self.space
        lanes, ends = self.store.ends()
        cells_max = max(2, min(CELLS_MAX, CELLS_TOTAL_MAX // max(len(space.lanes), 1)))
        self.first_cell = np.zeros(max(space.lane_limit, 1), np.int32)
        self.first_boundary = np.zeros(max(space.lane_limit, 1) + 1, np.int64)
        chosen, text = [np.zeros(0, np.int64)], [np.zeros(0, np.bool_)]
        cell = boundary = 0
        # Lanes that no entry asks for yet have two cells: there is a value, or none.
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
        lane_limit = len(self.first_cell)
        steps = np.full((lane_limit, 17, 16), HIGHEST_CODE, np.int64)
        for lane in range(len(self.space.lanes)):
            mine = self.boundary[self.first_boundary[lane] : self.first_boundary[lane + 1]]
            steps[lane, 1:].reshape(-1)[: len(mine)] = mine
        steps[:, 0] = steps[:, 1:, 15]
        self.search = steps
        self.cell_max = np.diff(self.first_boundary) + 1

    def _sort_entries(self) -> Array:
        """Put entries side by side that fail together, so that whole tiles fail."""
        store, n = self.store, self.entry_count
        weight, reached = np.zeros(store.record_count + 1), np.zeros(store.record_count + 1, np.int64)
        weigh(self.checks(), store.record_count, self.lanes(), self._verdict, weight, reached)
        arrange(self.checks(), n, weight, reached)
        first, count = store.run[:n, 0], store.run[:n, 1]
        keys = []
        for i in range(3):
            at = np.where(count > i, first + i, store.record_count)
            keys += [np.where(count > i, store.record[at, LANE], -1), np.where(count > i, reached[at], 0)]
        by = np.lexsort(keys[::-1])
        store.reorder(by)
        doubtful_first(self.checks(), n)
        order = np.empty(n, np.int64)
        order[by] = np.arange(n)
        return order

    def selective_first(self) -> Checks:
        """The checks of all entries in the order in which a scan without an index would best look at them."""
        checks = self.checks()
        checks = checks._replace(record=checks.record.copy())
        count = self.store.record_count
        weight, reached = np.zeros(count + 1), np.zeros(count + 1, np.int64)
        weigh(checks, count, self.lanes(), self._verdict, weight, reached)
        arrange(checks, self.entry_count, weight, reached)
        return checks

    def _mark_all(self) -> None:
        room, lane_limit = self.entry_count // TILE + 2, max(self.space.lane_limit, 1)
        self.fail: list[Array] = []
        self.doubt: list[Array] = []
        self.top: list[Array] = []
        self.alive = np.zeros((room, TILE_WORDS), np.uint64)
        self.tile_lane, self.doubt_lane = np.zeros((2, room, lane_limit), np.uint16)
        self.lane_counts = np.zeros((room, 2), np.int32)
        self._address()
        tiles = -(-self.entry_count // TILE)
        self._reserve = self._bits(2 * tiles + -(-tiles // TILE))
        for first in range(0, self.entry_count, TILE):
            self._new_tile()
            self._mark(first, min(first + TILE, self.entry_count))

    def _mark(self, first: int, last: int) -> None:
        tile = first // TILE
        fail, doubt = self.fail[tile], self.doubt[tile]
        mark(fail, doubt, self.alive[tile], self.checks(), self.lanes(), first, last, self._verdict)
        summarise(tile, fail, doubt, self.top[tile // TILE], self.lanes(), self.tiles())

    def _new_tile(self) -> None:
        new = [self.fail, self.doubt] + ([self.top] if len(self.fail) % TILE == 0 else [])
        if len(self._reserve) < len(new):
            self._reserve = self._bits(len(new))
        for tiles in new:
            tiles.append(self._reserve.pop())
        room = len(self.fail)
        self.alive, self.lane_counts = grown(self.alive, room), grown(self.lane_counts, room)
        self.tile_lane, self.doubt_lane = grown(self.tile_lane, room), grown(self.doubt_lane, room)
        self._address()

    def _bits(self, count: int) -> list[Array]:
        """Bits for so many tiles, all 0: in one piece, as numpy asks for large pages where it is large."""
        size = self.cell_count * TILE_WORDS
        raw = np.zeros(count * size + TILE_WORDS, np.uint64)
        # A row of 64 bytes must not lie across two lines of the cache.
        start = -raw.ctypes.data % 64 // 8
        return list(raw[start : start + count * size].reshape(count, self.cell_count, TILE_WORDS))

    def _address(self) -> None:
        self._addresses = [
            np.array([bits.ctypes.data for bits in some], np.int64) for some in (self.fail, self.doubt, self.top)
        ]

    # -- changing -------------------------------------------------------------------------------------------------

    def add(self, checks: tuple[Check, ...]) -> int:
        if self._free:
            entry = self._free.pop()
        else:
            entry = self.entry_count
            self.entry_count += 1
            if entry // TILE == len(self.fail):
                self._new_tile()
        self.store.put(entry, sorted(checks, key=_guessed_weight), hash(checks))
        self._mark(entry, entry + 1)
        return entry

    def remove(self, entry: int) -> None:
        tile = entry // TILE
        fail, doubt = self.fail[tile], self.doubt[tile]
        unmark(fail, doubt, self.alive[tile], self.checks(), self.lanes(), entry)
        summarise(tile, fail, doubt, self.top[tile // TILE], self.lanes(), self.tiles())
        self.store.free(entry)
        self._free.append(entry)

    def living(self) -> list[int]:
        """The numbers of the entries that have not been removed."""
        bits = np.unpackbits(self.alive.view(np.uint8).reshape(-1), bitorder="little")
        found: list[int] = np.flatnonzero(bits).tolist()
        return found

    # -- for the kernels ------------------------------------------------------------------------------------------

    @property
    def version(self) -> tuple[int, int, int]:
        """Changes whenever what is known about a string may have changed."""
        return self.space.vocabulary.count, int(self.space.pieces.count.sum()), len(self.space.lanes)

    def lanes(self) -> Lanes:
        return Lanes(
            self.space.of_attribute,
            self.space.is_float,
            self.space.cell_lane,
            self.first_cell,
            self.cell_max,
            self.first_boundary,
            self.boundary,
            self.search,
        )

    def checks(self) -> Checks:
        return self.store.view(self.space.vocabulary.label)

    def tiles(self) -> Tiles:
        fail, doubt, top = self._addresses
        return Tiles(
            fail, doubt, top, self.alive, self.tile_lane, self.doubt_lane, self.lane_counts, self.space.ordered_lanes
        )

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in ("_addresses", "_reserve")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._reserve = self._bits(len(self.fail) + len(self.doubt) + len(self.top))
        for tiles in (self.fail, self.doubt, self.top):
            for i, bits in enumerate(tiles):
                tiles[i] = self._reserve.pop()
                tiles[i][:] = bits
        self._address()


def _guessed_weight(check: Check) -> int:
    """A rough order for checks that come one by one: pieces are rare, and few spans are narrower than many."""
    return 0 if check[1] & PIECE else len(check[2])


def _boundaries(space: Space, ends: Array, is_text: bool, limit: int) -> Array:
    # One above the highest code wraps around to null.
    lowest, above_highest = (LOWEST_TEXT, HIGHEST_TEXT + 1) if is_text else (LOWEST_CODE, NULL_CODE)
    ends = ends[(ends != lowest) & (ends != above_highest)]
    codes = space.resolved(ends, np.full(len(ends), is_text))
    by = np.argsort(codes, kind="stable")
    ends, codes = ends[by], codes[by]
    distinct = np.flatnonzero(np.diff(codes, prepend=codes[0] - 1)) if len(codes) else np.zeros(0, np.int64)
    if len(distinct) > limit:
        even = np.arange(limit) * len(codes) // limit + len(codes) // (2 * limit)
        # A constant that many filters mention draws a boundary on both of its sides.
        distinct = np.unique(distinct[np.searchsorted(distinct, even, side="right") - 1])
    return ends[distinct]
