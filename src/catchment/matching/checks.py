"""The checks of all entries as flat arrays, with room for what is added and lists of what was removed.

A record is 32 bytes and an entry's records lie together, so that verifying an entry touches few lines of the cache.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from catchment.matching.encoding import Check
from catchment.matching.kernel import FLAGS, HIGH, LANE, LOW, SET, Checks
from catchment.matching.memory import Array, grown

__all__ = ["CheckStore"]


class CheckStore:
    """Checks by entry, in the order of their selectivity as far as it is known."""

    def __init__(self, entries: Sequence[tuple[Check, ...]], entry_room: int) -> None:
        records: list[tuple[int, int, int, int]] = []
        sets: list[tuple[int, int]] = []
        for entry in entries:
            for lane, flags, spans in entry:
                if len(spans) == 1:
                    records.append((lane, flags, *spans[0]))
                else:
                    records.append((lane, flags | SET, len(sets), len(spans)))
                    sets += spans
        self.record_count, self.set_size = len(records), len(sets)
        # Spare room costs nothing until it is written to, and puts off the first copy.
        self.record = _array(np.array(records, np.int64).reshape(-1, 4), 2 * len(records) + 1024)
        self.sets = _array(np.array(sets, np.int64).reshape(-1, 2), 2 * len(sets) + 1024)
        counts = np.array([len(entry) for entry in entries], np.int64)
        self.run = _array(np.stack([np.cumsum(counts) - counts, counts], axis=1), entry_room)
        self.hash = _array(np.array([hash(entry) for entry in entries], np.int64), entry_room)
        self._free_runs: dict[int, list[int]] = {}
        self._free_sets: dict[int, list[int]] = {}

    def of_entry(self, entry: int) -> tuple[Check, ...]:
        found = []
        first, count = self.run[entry].tolist()
        for lane, flags, low, high in self.record[first : first + count].tolist():
            spans = ((low, high),) if not flags & SET else tuple(map(tuple, self.sets[low : low + high].tolist()))
            found.append((lane, flags & ~SET, spans))
        return tuple(sorted(found))

    def ends(self) -> tuple[Array, Array]:
        """Lanes and ends of all spans, an upper end as the code that follows it."""
        record = self.record[: self.record_count]
        is_set = record[:, FLAGS] & SET != 0
        single, several = record[~is_set], record[is_set]
        sets = self.sets[: self.set_size]
        of_sets = np.repeat(several[:, LANE], several[:, HIGH])
        return (
            np.concatenate([single[:, LANE], single[:, LANE], of_sets, of_sets]),
            np.concatenate([single[:, LOW], single[:, HIGH] + 1, sets[:, 0], sets[:, 1] + 1]),
        )

    def reorder(self, by: Array) -> None:
        """Number the entries anew: what was entry by[i] becomes entry i, and its records move along."""
        n, total = len(by), self.record_count
        first, count = self.run[by, 0], self.run[by, 1]
        begin = np.cumsum(count) - count
        self.record[:total] = self.record[np.repeat(first - begin, count) + np.arange(total)]
        self.run[:n, 0], self.run[:n, 1] = begin, count
        self.hash[:n] = self.hash[by]

    def put(self, entry: int, checks: Sequence[Check], hashed: int) -> None:
        """Write the checks of a new entry where others were removed, else at the end."""
        free = self._free_runs.get(len(checks))
        first = free.pop() if free else self.record_count
        if not free and first == self.record_count:
            self.record_count += len(checks)
            self.record = grown(self.record, self.record_count)
        self.run, self.hash = grown(self.run, entry + 1), grown(self.hash, entry + 1)
        self.run[entry], self.hash[entry] = (first, len(checks)), hashed
        for k, (lane, flags, spans) in enumerate(checks, first):
            if len(spans) == 1:
                self.record[k] = lane, flags, *spans[0]
            else:
                self.record[k] = lane, flags | SET, self._put_set(spans), len(spans)

    def _put_set(self, spans: tuple[tuple[int, int], ...]) -> int:
        free = self._free_sets.get(len(spans))
        begin = free.pop() if free else self.set_size
        if begin == self.set_size:
            self.set_size += len(spans)
            self.sets = grown(self.sets, self.set_size)
        if spans:
            self.sets[begin : begin + len(spans)] = spans
        return begin

    def free(self, entry: int) -> None:
        first, count = self.run[entry].tolist()
        for _, flags, low, high in self.record[first : first + count].tolist():
            if flags & SET and high:
                self._free_sets.setdefault(high, []).append(low)
        if count:
            self._free_runs.setdefault(count, []).append(first)
        self.run[entry] = 0

    def view(self, label: Array) -> Checks:
        return Checks(self.run, self.record, self.sets, label)


def _array(values: Array, room: int) -> Array:
    found = np.zeros((room, *values.shape[1:]), values.dtype)
    found[: len(values)] = values
    return found
