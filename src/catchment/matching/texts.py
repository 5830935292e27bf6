"""The texts that filters mention: constants in their order, and pieces that a string may contain.

Rule 1: texts are UTF-8 bytes, whose order is that of code points. A reversed view holds the bytes backwards.
Rule 2: the code of a string in a view is 2·(constants before it) + 2 if it is a constant, + 1 if it lies between two.
        So a string that no filter mentions, or that is first seen tomorrow, has its place like any other.
Rule 3: filters refer to constants by id. A new constant moves the codes of others, never their ids.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from catchment.matching.layout import HIGHEST_CODE, LOWEST_CODE
from catchment.matching.memory import Array, grown
from catchment.matching.strings import add_piece, locate, put_nodes

__all__ = ["HIGHEST_TEXT", "LOWEST_TEXT", "Constants", "Pieces", "PiecesView", "Vocabulary", "text_end"]


class Constants(NamedTuple):
    """The constants of all views, as kernels see them: those of view v are `first[v]` to `first[v + 1]`, in order."""

    first: Array
    key: Array
    """Their first eight bytes as a number: most comparisons need no more."""
    order: Array
    start: Array
    length: Array
    pool: Array


class Vocabulary:
    """Constants by view. `intern` collects, `settle` puts what was collected in its place."""

    def __init__(self, view_count: int) -> None:
        self._ids: dict[tuple[int, bytes], int] = {}
        self._pending: dict[int, list[int]] = {}
        self._pool_size = 0
        self.first = np.zeros(view_count + 1, np.int64)
        self.key = np.zeros(0, np.uint64)
        self.order = np.zeros(0, np.int32)
        self.start = np.zeros(16, np.int64)
        self.length = np.zeros(16, np.int64)
        self.pool = np.zeros(64, np.uint8)
        # Two constants that no string is: below all and above all.
        self.label = np.zeros(16, np.int64)
        self.label[0], self.label[1] = LOWEST_CODE, HIGHEST_CODE
        self.count = 2

    def intern(self, view: int, text: bytes) -> int:
        known = self._ids.get((view, text))
        if known is not None:
            return known
        found = self._ids[view, text] = self.count
        self.count += 1
        self.pool = grown(self.pool, self._pool_size + len(text))
        self.pool[self._pool_size : self._pool_size + len(text)] = np.frombuffer(text, np.uint8)
        self.start = grown(self.start, self.count)
        self.length = grown(self.length, self.count)
        self.label = grown(self.label, self.count)
        self.start[found], self.length[found] = self._pool_size, len(text)
        self._pool_size += len(text)
        self._pending.setdefault(view, []).append(found)
        return found

    def settle(self) -> bool:
        """Sort the new constants in; True if there were any, and so codes have moved."""
        if not self._pending:
            return False
        for view, ids in sorted(self._pending.items()):
            ids.sort(key=self.text)
            first, last = int(self.first[view]), int(self.first[view + 1])
            constants = self.view()
            places = [first + locate(constants, first, last, self.pool, self.start[i], self.length[i])[0] for i in ids]
            heads = [int.from_bytes(self.text(i)[:8].ljust(8, b"\0"), "big") for i in ids]
            self.order = np.insert(self.order, places, np.array(ids, np.int32))
            self.key = np.insert(self.key, places, np.array(heads, np.uint64))
            self.first[view + 1 :] += len(ids)
            mine = self.order[first : last + len(ids)]
            self.label[mine] = np.arange(2, 2 * len(mine) + 2, 2)
        self._pending = {}
        return True

    def text(self, constant: int) -> bytes:
        start = int(self.start[constant])
        return self.pool[start : start + int(self.length[constant])].tobytes()

    def view(self) -> Constants:
        return Constants(self.first, self.key, self.order, self.start, self.length, self.pool)


# An end of an interval of texts: a constant and how far beside it, in one number.
def text_end(constant: int, beside: int) -> int:
    return constant * 4 + beside + 1


LOWEST_TEXT = text_end(0, 0)
HIGHEST_TEXT = text_end(1, 0)


class PiecesView(NamedTuple):
    """A trie of the pieces as a hash table from (node, byte) to node."""

    key: Array
    child: Array
    piece: Array
    """Which piece of its attribute ends at a node, or -1."""
    piece_count: Array
    """Pieces by attribute. The root of attribute a is node a."""


class Pieces:
    """What `LIKE '%piece%'` looks for, by attribute."""

    def __init__(self, attribute_count: int) -> None:
        self._ids: dict[tuple[int, bytes], int] = {}
        self._texts: list[list[bytes]] = [[] for _ in range(attribute_count)]
        self._node_count = attribute_count
        self.key = np.full(64, -1, np.int64)
        self.child = np.zeros(64, np.int32)
        self.piece = np.full(max(attribute_count, 16), -1, np.int32)
        self.count = np.zeros(max(attribute_count, 1), np.int64)

    def intern(self, attribute: int, text: bytes) -> int:
        known = self._ids.get((attribute, text))
        if known is not None:
            return known
        found = self._ids[attribute, text] = int(self.count[attribute])
        self.count[attribute] += 1
        self._texts[attribute].append(text)
        self.piece = grown(self.piece, self._node_count + len(text), -1)
        # Each node but a root is one key; at half full the table is made anew.
        if 2 * (self._node_count + len(text)) > len(self.key):
            self._rehash(2 * (self._node_count + len(text)))
        self._node_count = add_piece(self.view(), attribute, np.array(list(text), np.uint8), found, self._node_count)
        return found

    def _rehash(self, size_min: int) -> None:
        old_key, old_child = self.key, self.child
        size = 1 << (2 * size_min - 1).bit_length()
        self.key, self.child = np.full(size, -1, np.int64), np.zeros(size, np.int32)
        put_nodes(self.view(), old_key, old_child)

    def text(self, attribute: int, piece: int) -> bytes:
        return self._texts[attribute][piece]

    def view(self) -> PiecesView:
        return PiecesView(self.key, self.child, self.piece, self.count)
