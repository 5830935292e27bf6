"""Whose entries they are: filters by id, by slot, and the entries each of them owns.

Filters with an equal conjunction share its entry; a filter of several conjunctions owns several entries.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np

from catchment.matching.memory import Array, grown
from catchment.matching.pairs import Owners

__all__ = ["Registry"]

NOBODY = -1


class Registry:
    """Slots are small numbers for filter ids; the slot of a removed filter is given to the next one."""

    def __init__(self) -> None:
        self.slots: dict[Hashable, int] = {}
        self.ids = np.zeros(0, np.object_)
        self.entries: list[tuple[int, ...]] = []
        self._free: list[int] = []
        self._free_links: list[int] = []
        self.of_entry = np.zeros(0, np.int32)
        self.chained = np.zeros(0, np.uint64)
        self.chain_slot = np.zeros(16, np.int32)
        self.chain_next = np.full(16, -1, np.int32)
        self.link_count = 0
        self.is_split = np.zeros(0, np.uint8)
        self.counts = np.zeros(2, np.int64)

    def enter(self, identifier: Hashable, entries: Sequence[int]) -> int:
        """Give a filter a slot and make it an owner of its entries."""
        if self._free:
            slot = self._free.pop()
        else:
            slot = len(self.entries)
            self.entries.append(())
            self.ids = grown(self.ids, slot + 1)
            self.is_split = grown(self.is_split, slot + 1)
        self.slots[identifier] = slot
        self.ids[slot] = identifier
        self.entries[slot] = tuple(entries)
        self.is_split[slot] = len(entries) > 1
        self.counts[1] += len(entries) > 1
        for entry in entries:
            self._own(entry, slot)
        return slot

    def leave(self, identifier: Hashable) -> list[int]:
        """Take a filter out; returns the entries that nobody owns any more."""
        slot = self.slots.pop(identifier)
        entries, self.entries[slot], self.ids[slot] = self.entries[slot], (), None
        self.counts[1] -= len(entries) > 1
        self.is_split[slot] = 0
        self._free.append(slot)
        return [entry for entry in entries if self._disown(entry, slot)]

    def is_owned(self, entry: int) -> bool:
        return entry < len(self.of_entry) and self.of_entry[entry] != NOBODY

    def _own(self, entry: int, slot: int) -> None:
        self.of_entry = grown(self.of_entry, entry + 1, NOBODY)
        self.chained = grown(self.chained, entry // 64 + 1)
        owner = int(self.of_entry[entry])
        if owner == NOBODY:
            self.of_entry[entry] = slot
            return
        if owner >= 0:
            head = self._link(owner, -1)
            self.counts[0] += 1
            self.chained[entry // 64] |= _bit(entry)
        else:
            head = -2 - owner
        self.of_entry[entry] = -2 - self._link(slot, head)

    def _link(self, slot: int, following: int) -> int:
        if self._free_links:
            link = self._free_links.pop()
        else:
            link = self.link_count
            self.link_count += 1
            self.chain_slot = grown(self.chain_slot, self.link_count)
            self.chain_next = grown(self.chain_next, self.link_count, -1)
        self.chain_slot[link], self.chain_next[link] = slot, following
        return link

    def _disown(self, entry: int, slot: int) -> bool:
        owner = int(self.of_entry[entry])
        if owner == slot:
            self.of_entry[entry] = NOBODY
            return True
        before, link = -1, -2 - owner
        while self.chain_slot[link] != slot:
            before, link = link, int(self.chain_next[link])
        following = int(self.chain_next[link])
        self._free_links.append(link)
        if before >= 0:
            self.chain_next[before] = following
        else:
            self.of_entry[entry] = -2 - following
        head = -2 - int(self.of_entry[entry])
        if self.chain_next[head] == -1:
            self.of_entry[entry] = self.chain_slot[head]
            self._free_links.append(head)
            self.counts[0] -= 1
            self.chained[entry // 64] &= ~_bit(entry)
        return False

    def move(self, order: Array) -> None:
        """Entry e is now called `order[e]`."""
        moved = np.full(len(self.of_entry), NOBODY, np.int32)
        known = np.flatnonzero(order >= 0)
        moved[order[known]] = self.of_entry[known]
        self.of_entry = moved
        self.chained = np.zeros(len(moved) // 64 + 1, np.uint64)
        for entry in np.flatnonzero(moved < NOBODY).tolist():
            self.chained[entry // 64] |= _bit(entry)
        self.entries = [tuple(int(order[e]) for e in entries) for entries in self.entries]

    def view(self) -> Owners:
        return Owners(self.of_entry, self.chained, self.chain_slot, self.chain_next, self.is_split, self.counts)


def _bit(entry: int) -> np.uint64:
    return np.uint64(1 << entry % 64)
