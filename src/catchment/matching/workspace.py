"""What one call of `match` works in, kept from call to call because making it anew costs more than a small batch."""

from __future__ import annotations

import numpy as np

from catchment.matching.kernel import QUEUE_PIECE, TILE, TILE_WORDS, Scratch
from catchment.matching.layout import RECORD_FIELDS, Memo
from catchment.matching.memory import Array

__all__ = ["TEXTS_MAX", "Workspace"]

TEXTS_MAX, POOL_MAX, BITS_MAX = 2**17, 2**24, 2**23
"""Distinct strings, their bytes, and 64-bit words of pieces that are remembered; at the limit all are forgotten."""

FEW_PAIRS = 4096
"""Pairs of a few events for which there is room at first."""


class Workspace:
    """Codes and cells of a stretch of events, hits, and the memo of strings. Used by one call at a time."""

    def __init__(self, version: tuple[int, ...], texts: int = 256, pool: int = 2**13, bits: int = 2**8) -> None:
        self.version = version
        self._sizes = texts, pool, bits
        self._codes, self._cells = np.zeros((0, 0), np.int64), np.zeros((0, 0), np.uint16)
        self._scratch: Scratch | None = None
        self.memo = _memo(texts, pool, bits)
        self.few = np.empty(FEW_PAIRS, np.int32), np.empty(FEW_PAIRS, np.int32)

    def codes_and_cells(self, rows: int, lanes: int) -> tuple[Array, Array]:
        if self._codes.shape[0] < rows or self._codes.shape[1] != lanes:
            self._codes, self._cells = np.empty((rows, lanes), np.int64), np.empty((rows, lanes), np.uint16)
        return self._codes[:rows], self._cells[:rows]

    def scratch(self, rows: int, tiles: int) -> Scratch:
        found = self._scratch
        if found is None or len(found.cursor) < rows or len(found.at) < tiles:
            found = self._scratch = _scratch(rows, tiles, max(4 * rows, 8 * min(rows, QUEUE_PIECE)))
        return found

    def make_room_for_hits(self) -> Scratch:
        """Scratch with room for twice as many hits."""
        assert self._scratch is not None
        old = self._scratch
        self._scratch = _scratch(len(old.cursor), len(old.at), 2 * len(old.hit_row))
        return self._scratch

    def make_room_for_pairs(self, pairs: int) -> tuple[Array, Array]:
        """Room for the pairs of a few events, and for some more."""
        self.few = np.empty(2 * pairs, np.int32), np.empty(2 * pairs, np.int32)
        return self.few

    def make_room(self, was_empty: bool) -> None:
        """Forget all strings; and remember twice as many from now on, up to the limits or as one stretch needs."""
        limits = (2**62,) * 3 if was_empty else (TEXTS_MAX, POOL_MAX, BITS_MAX)
        texts, pool, bits = (max(size, min(2 * size, limit)) for size, limit in zip(self._sizes, limits, strict=True))
        self._sizes = texts, pool, bits
        self.memo = _memo(texts, pool, bits)


def _scratch(rows: int, tiles: int, hits: int) -> Scratch:
    piece = min(rows, QUEUE_PIECE)
    return Scratch(
        survivors=np.empty((rows, TILE_WORDS), np.uint64),
        queue=np.empty((64, rows), np.int32),
        queued=np.empty(64, np.int64),
        failing=np.empty((piece + 1, TILE_WORDS), np.uint64),
        doubtful=np.empty((piece + 1, TILE_WORDS), np.uint64),
        kept_row=np.empty(piece + 1, np.int64),
        kept_words=np.empty(piece + 1, np.int64),
        # A piece of a queue is so short that all its bits may be unsure.
        unsure_hit=np.empty(piece * TILE, np.int64),
        unsure_bit=np.empty(piece * TILE, np.uint8),
        hit_row=np.empty(hits, np.int32),
        hit_word=np.empty(hits, np.int32),
        hit_bits=np.empty(hits, np.uint64),
        run_end=np.empty(tiles + 1, np.int64),
        end=np.empty(rows + 1, np.int64),
        at=np.empty(tiles, np.int64),
        cursor=np.empty(rows, np.int64),
    )


def _memo(texts: int, pool: int, bits: int) -> Memo:
    return Memo(
        table=np.full(1 << (2 * texts - 1).bit_length(), -1, np.int32),
        record=np.empty((texts, RECORD_FIELDS), np.int64),
        pool=np.empty(pool, np.uint8),
        bits=np.empty(bits, np.uint64),
        counts=np.zeros(3, np.int64),
    )
