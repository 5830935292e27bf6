"""Shortest paths and the trees made of them.

The one path rule: the cost of a path is (hops, sum over its links of h(u) + h(v)), compared as a pair, with h a
64-bit hash of the broker id. Between two brokers, paths of the same length have the same cost only if their inner
brokers' hashes add up to the same sum, so the shortest path is unique; it is the same in both directions, because
the cost is; and it depends on the links alone, not on the order in which they came.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2b

import numpy as np
import numpy.typing as npt

from catchment.model.errors import OverlayError
from catchment.overlay.graph import Overlay
from catchment.overlay.masks import Words, word_count

__all__ = ["Paths", "Tree", "broker_hash", "shortest_paths", "topic_tree", "tree_from"]


def broker_hash(broker: str) -> int:
    """The 64-bit hash of the path rule: the same in every process, unlike Python's own."""
    return int.from_bytes(blake2b(broker.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big")


@dataclass(frozen=True, slots=True, eq=False)
class Paths:
    """All shortest paths of an overlay, by broker index."""

    distance: npt.NDArray[np.int32]
    """[a, b]: hops from a to b."""
    predecessor: npt.NDArray[np.int32]
    """[a, b]: the broker before b on the path from a; a itself where a = b."""

    def path(self, a: int, b: int) -> tuple[int, ...]:
        """The brokers from a to b, both included."""
        walked = [b]
        while walked[-1] != a:
            walked.append(int(self.predecessor[a, walked[-1]]))
        return tuple(reversed(walked))


def shortest_paths(overlay: Overlay) -> Paths:
    """Distance and predecessor matrices under the path rule."""
    count = len(overlay)
    hashes = [broker_hash(broker) for broker in overlay.brokers]
    distance = np.empty((count, count), dtype=np.int32)
    predecessor = np.empty((count, count), dtype=np.int32)
    for source in range(count):
        distance[source], predecessor[source] = _paths_from(overlay, hashes, source)
    distance.flags.writeable = predecessor.flags.writeable = False
    return Paths(distance, predecessor)


def _paths_from(overlay: Overlay, hashes: Sequence[int], source: int) -> tuple[list[int], list[int]]:
    # Hops weigh first, so a breadth-first search by layers decides them, and the hashes only choose between the
    # predecessors of one layer. The sums are Python integers: 64 bits would wrap, and wrapped sums do not compare.
    distance = [-1] * len(hashes)
    predecessor = [source] * len(hashes)
    cost = [0] * len(hashes)
    distance[source] = 0
    layer = [source]
    while layer:
        following: list[int] = []
        for near in layer:
            for far in overlay.neighbour_indices(near):
                through = cost[near] + hashes[near] + hashes[far]
                if distance[far] < 0:
                    distance[far] = distance[near] + 1
                    following.append(far)
                elif distance[far] != distance[near] + 1 or (cost[far], predecessor[far]) <= (through, near):
                    continue
                cost[far], predecessor[far] = through, near
        layer = following
    return distance, predecessor


@dataclass(frozen=True, slots=True)
class Tree:
    """An acyclic subgraph that reaches every broker; what a message follows."""

    brokers: tuple[str, ...]
    parent: tuple[int, ...]
    """By broker index; the root is its own parent."""
    links: tuple[tuple[int, int], ...] = field(init=False, repr=False, compare=False)
    """Every directed link as (source, target) indices, ascending; all per-link arrays have this order."""
    beyond: Words = field(init=False, repr=False, compare=False)
    """[links, words]: the brokers that a message crossing the link is coming nearer to.

    A message from s to a set D crosses link e iff s is not in beyond[e] and D and beyond[e] share a broker.
    """

    def __post_init__(self) -> None:
        count = len(self.brokers)
        order = _root_first(self.parent)
        if len(order) != count:
            raise OverlayError(f"{count} brokers with parents {self.parent[:16]} are no tree with one root")
        below = np.zeros((count, word_count(count)), dtype=np.uint64)
        below[np.arange(count), np.arange(count) >> 6] = np.left_shift(
            np.uint64(1), (np.arange(count) & 63).astype(np.uint64)
        )
        for broker in reversed(order[1:]):
            below[self.parent[broker]] |= below[broker]
        everyone = below[order[0]]
        down = [(self.parent[broker], broker) for broker in order[1:]]
        links = tuple(sorted(down + [(child, parent) for parent, child in down]))
        beyond = np.empty((len(links), below.shape[1]), dtype=np.uint64)
        for position, (source, target) in enumerate(links):
            beyond[position] = below[target] if self.parent[target] == source else everyone & ~below[source]
        beyond.flags.writeable = False
        object.__setattr__(self, "links", links)
        object.__setattr__(self, "beyond", beyond)

    @property
    def root(self) -> int:
        """The index of the broker that is its own parent."""
        return next(broker for broker, parent in enumerate(self.parent) if broker == parent)

    @property
    def link_names(self) -> tuple[tuple[str, str], ...]:
        """`links` by broker id."""
        return tuple((self.brokers[source], self.brokers[target]) for source, target in self.links)

    def path(self, a: int, b: int) -> tuple[int, ...]:
        """The brokers from a to b along the tree, both included."""
        up, down = self._to_root(a), self._to_root(b)
        while len(up) > 1 and len(down) > 1 and up[-2] == down[-2]:
            up.pop()
            down.pop()
        return (*up, *reversed(down[:-1]))

    def __reduce__(self) -> tuple[object, ...]:
        return (Tree, (self.brokers, self.parent))

    def _to_root(self, broker: int) -> list[int]:
        walked = [broker]
        while self.parent[walked[-1]] != walked[-1]:
            walked.append(self.parent[walked[-1]])
        return walked


def _root_first(parent: Sequence[int]) -> list[int]:
    children: list[list[int]] = [[] for _ in parent]
    roots: list[int] = []
    for broker, above in enumerate(parent):
        (roots if above == broker else children[above]).append(broker)
    order = roots[:1]
    for broker in order:
        order.extend(children[broker])
    return order


def tree_from(overlay: Overlay, root: str) -> Tree:
    """The shortest-path tree of one broker: the per-source tree."""
    source = overlay.require(root)
    _, predecessor = _paths_from(overlay, [broker_hash(broker) for broker in overlay.brokers], source)
    return Tree(overlay.brokers, tuple(predecessor))


def topic_tree(overlay: Overlay) -> Tree:
    """The tree of a topic: the shortest-path tree of the smallest broker id."""
    return tree_from(overlay, overlay.brokers[0])
