"""The ids that came within a window of time, at about 28 bytes each; and snapshots of them.

Rule 1: ids are numbered by position in the order of their arrival, over restarts too. Those remembered are the
        positions [oldest, end).
Rule 2: digest and time of a position never change, so that a snapshot shares the pages they are in.
Rule 3: a snapshot has at least one piece, even if nothing is new. The last piece tells the latest time, and which
        positions must be there.
"""

from __future__ import annotations

import hashlib
import math
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from catchment.broker.recent_ids_kernel import (
    BUCKETS,
    EMPTY,
    END,
    FIRST,
    LATEST_US,
    PAGE_BUCKETS,
    PAGE_RECORDS,
    digests_of,
    first_kept,
    remember,
)
from catchment.model.errors import CheckpointError, ConfigurationError, require_type

__all__ = ["Frozen", "Piece", "RecentIds"]

Array = npt.NDArray[Any]

WINDOW_US_MAX = (1 << 32) - 1
RECORD_WORDS, STORED_WORDS = 6, 5
"""Of 32 bits: four of the digest and one of the time; the last links records in memory and is not stored."""
HEADER = struct.Struct("<8s5q")
FORMAT = b"ids 1\0\0\0"
CHECKSUM_BYTES = 32
PIECE_BYTES_MIN = CHECKSUM_BYTES + HEADER.size + 4 * STORED_WORDS


class RecentIds:
    """The ids that came at one broker within the window, each recognised by a digest of 128 bits.

    The caller limits how many there are, below 2^30, by asking `count_at` first.
    """

    def __init__(self, window_us: int) -> None:
        if not 0 <= window_us <= WINDOW_US_MAX:
            raise ConfigurationError(f"ids are remembered for {window_us} µs; accepted are 0 to {WINDOW_US_MAX}")
        self._window_us = window_us
        self._state = np.array(EMPTY, np.int64)
        self._records = _Pages((PAGE_RECORDS, RECORD_WORDS))
        self._buckets = _Pages((PAGE_BUCKETS,))

    def __len__(self) -> int:
        """Count the ids remembered at the latest time so far."""
        return int(self._state[END] - self._state[FIRST])

    @property
    def nbytes(self) -> int:
        """Count all memory held, except what only a `Frozen` still holds."""
        return self._state.nbytes + self._records.nbytes + self._buckets.nbytes

    def count_at(self, now_us: int) -> int:
        """Count the ids that will be left at a time, without forgetting any."""
        return int(self._state[END]) - self._oldest_at(now_us)

    def forget(self, now_us: int) -> None:
        """Advance to a time, and free the memory of ids that are outside the window then."""
        self._state[FIRST] = self._oldest_at(now_us)
        self._state[LATEST_US] = max(now_us, self._state[LATEST_US])
        if len(self) == 0:
            self._state[BUCKETS:] = EMPTY[BUCKETS:]
        self._fit_memory()

    def _oldest_at(self, now_us: int) -> int:
        since_us = max(now_us, int(self._state[LATEST_US])) - self._window_us
        return int(first_kept(self._state, self._records.addresses, since_us))

    def fresh(self, ids: pa.StringArray, came_us: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Remember the ids that are not remembered yet, and tell which they are; a repeated id keeps its time.

        Times never run backwards: one that does is taken as the latest so far. Ids must not be null.
        """
        require_type("ids", ids, pa.StringArray)
        if len(ids) != len(came_us):
            raise ConfigurationError(f"{len(ids)} ids have {len(came_us)} times; accepted is one for each")
        # A copy: numba would stop to compile another version for an array that is read-only or not contiguous.
        times_us = np.array(came_us, np.int64)
        _, offsets, data = ids.buffers()
        data_at = data.address if data is not None else 0
        fresh = np.empty(len(ids), np.bool_)
        for begin in range(0, len(ids), PAGE_RECORDS):
            end = min(begin + PAGE_RECORDS, len(ids))
            digests = digests_of(offsets.address + 4 * (ids.offset + begin), data_at, end - begin)
            fresh[begin:end] = self._remember(digests, times_us[begin:end])
        return fresh

    def _remember(self, digests: Array, came_us: Array) -> Array:
        self._fit_memory(len(digests))
        pages, buckets = self._records.addresses, self._buckets.addresses
        fresh: Array = remember(self._state, pages, buckets, self._window_us, digests, came_us)
        self._fit_memory()
        return fresh

    def _fit_memory(self, more: int = 0) -> None:
        """Hold the memory that the ids and so many more may need, and free the rest."""
        first, end, _, buckets, *_ = self._state.tolist()
        self._records.hold(first // PAGE_RECORDS, (end + more) // PAGE_RECORDS)
        self._buckets.hold(0, (buckets + more) // PAGE_BUCKETS)

    def frozen(self) -> Frozen:
        """Take a snapshot, whose pieces can be written later."""
        first, end, latest_us, *_ = self._state.tolist()
        return Frozen(first, end, latest_us, self._window_us, self._records.held.copy())

    @classmethod
    def restored(cls, window_us: int, pieces: Iterable[bytes]) -> RecentIds:
        """Remember what was remembered at a snapshot, from its pieces and those of the snapshots that it continues.

        Pieces come in the order of their positions; those with only forgotten ids may be left out.
        """
        ids = cls(window_us)
        last: Piece | None = None
        for data in pieces:
            before, last = last, Piece.read(data)
            if last.window_us != window_us:
                raise CheckpointError(f"ids were remembered for {last.window_us} µs; accepted are {window_us} µs")
            if before is None or last.begin == last.oldest > before.end:
                ids._state[[FIRST, END]] = last.begin
            elif last.begin != before.end:
                raise CheckpointError(
                    f"ids {last.begin} to {last.end} follow ids {before.begin} to {before.end}; "
                    f"accepted is a piece that begins at {before.end}"
                )
            for digests, came_us in last.digests_and_times():
                if not ids._remember(digests, came_us).all():
                    raise CheckpointError(f"one of the ids {last.begin} to {last.end} is there twice")
        if last is None:
            raise CheckpointError("no remembered ids are given; accepted is one piece or more")
        ids.forget(last.latest_us)
        if ids._state[FIRST] != last.oldest:
            raise CheckpointError(f"ids are given from {ids._state[FIRST]} on; accepted are all from {last.oldest} on")
        return ids

    def __reduce__(self) -> tuple[Callable[..., RecentIds], tuple[int, list[bytes]]]:
        """Copy and pickle by pieces: a copy of the addresses would lead to the pages of the original."""
        return RecentIds.restored, (self._window_us, list(self.frozen().pieces()))


class _Pages:
    """Pages of memory with consecutive numbers, whose addresses lie in a ring for compiled loops."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self._shape = shape
        self._numbers = range(0)
        self.held: dict[int, Array] = {}
        self.addresses = np.zeros(1, np.int64)

    @property
    def nbytes(self) -> int:
        return len(self.held) * math.prod(self._shape) * 4 + self.addresses.nbytes

    def hold(self, first: int, last: int) -> None:
        """Hold the pages `first` to `last` and no others; `first` never falls."""
        before, numbers = self._numbers, range(first, last + 1)
        if numbers == before:
            return
        for number in (*range(before.start, min(first, before.stop)), *range(last + 1, before.stop)):
            del self.held[number]
        added = range(max(first, before.stop), last + 1)
        for number in added:
            self.held[number] = np.empty(self._shape, np.uint32)
        if len(numbers) > len(self.addresses):
            self.addresses = np.zeros(1 << (len(numbers) - 1).bit_length(), np.int64)
            added = numbers
        for number in added:
            self.addresses[number % len(self.addresses)] = self.held[number].ctypes.data
        self._numbers = numbers


@dataclass(frozen=True, slots=True)
class Frozen:
    """The ids that were remembered at one moment: positions [oldest, end)."""

    oldest: int
    end: int
    latest_us: int
    window_us: int
    _pages: Mapping[int, Array] = field(repr=False)

    def pieces(self, max_bytes: int = 1_000_000, after: int = 0) -> Iterator[bytes]:
        """Write the ids as pieces; with `after`, the end of an earlier snapshot, only those that came since."""
        return (piece.written() for piece in self.cut(max_bytes, after))

    def cut(self, max_bytes: int, after: int) -> Iterator[Piece]:
        """Give the pieces that `pieces` writes, one by one."""
        if max_bytes < PIECE_BYTES_MIN or after > self.end:
            raise ConfigurationError(
                f"pieces of {max_bytes} bytes are to be written after position {after}; "
                f"accepted are {PIECE_BYTES_MIN} bytes or more, and positions up to {self.end}"
            )
        count_max = 1 + (max_bytes - PIECE_BYTES_MIN) // (4 * STORED_WORDS)
        begin = max(after, self.oldest)
        for at in range(begin, max(self.end, begin + 1), count_max):
            end = min(at + count_max, self.end)
            yield Piece(at, end, self.oldest, self.latest_us, self.window_us, self._stored(at, end))

    def _stored(self, begin: int, end: int) -> Array:
        """Copy the digests and times of positions."""
        parts = [np.empty((0, STORED_WORDS), np.uint32)]
        for number in range(begin // PAGE_RECORDS, -(-end // PAGE_RECORDS)):
            first = number * PAGE_RECORDS
            parts.append(self._pages[number][max(begin - first, 0) : end - first, :STORED_WORDS])
        return np.concatenate(parts)


@dataclass(frozen=True, slots=True)
class Piece:
    """Successive ids of a snapshot: positions [begin, end) of [oldest, …)."""

    begin: int
    end: int
    oldest: int
    latest_us: int
    window_us: int
    records: Array = field(repr=False)

    def written(self) -> bytes:
        """Encode, with a checksum in front."""
        header = HEADER.pack(FORMAT, self.begin, self.end, self.oldest, self.latest_us, self.window_us)
        content = header + self.records.astype("<u4").tobytes()
        return hashlib.sha256(content).digest() + content

    @classmethod
    def read(cls, data: bytes) -> Piece:
        """Decode what `written` gave, and refuse anything else."""
        checksum, content = data[:CHECKSUM_BYTES], data[CHECKSUM_BYTES:]
        if hashlib.sha256(content).digest() != checksum:
            raise CheckpointError(f"{len(data)} bytes of remembered ids do not fit the checksum that they begin with")
        if not content.startswith(FORMAT):
            raise CheckpointError(f"remembered ids have the format {content[: len(FORMAT)]!r}; accepted is {FORMAT!r}")
        _, begin, end, oldest, latest_us, window_us = HEADER.unpack_from(content)
        records = np.frombuffer(content, "<u4", offset=HEADER.size).reshape(-1, STORED_WORDS)
        return cls(begin, end, oldest, latest_us, window_us, records)

    def digests_and_times(self) -> Iterator[tuple[Array, Array]]:
        """Yield digests and full times, at most as many at once as a page has."""
        for at in range(0, len(self.records), PAGE_RECORDS):
            records = self.records[at : at + PAGE_RECORDS]
            ages_us = (self.latest_us - records[:, 4].astype(np.int64)) & WINDOW_US_MAX
            yield records[:, :4].copy().view(np.uint64), self.latest_us - ages_us
