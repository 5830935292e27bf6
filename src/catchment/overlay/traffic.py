"""What each link of a tree carries, from masks of brokers: one vectorised pass, no hop simulated.

Rows are grouped counts: a row stands for `messages` messages of `size_bytes` bytes together, all with the same ends.

`late` sends every publication to all brokers with a subscription that wants it: count_publications with these brokers
as destinations, and no partial. `early` sends raw only what regular subscriptions want: count_publications with their
brokers as destinations; and count_partials with one row per (subscription, window, group).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from catchment.model.errors import OverlayError
from catchment.overlay.masks import Indices, Words, word_count
from catchment.overlay.trees import Tree

__all__ = [
    "CLIENTS",
    "LINK_TRAFFIC_SCHEMA",
    "EdgeCounts",
    "LinkCounts",
    "count_notifications",
    "count_partials",
    "count_publications",
    "meets",
    "members",
    "traffic_table",
]

CLIENTS = "clients"
"""The target of the last hop: all subscribers of a broker together."""

LINK_TRAFFIC_SCHEMA = pa.schema(
    [
        ("source", pa.string()),
        ("target", pa.string()),
        ("kind", pa.string()),
        ("messages", pa.int64()),
        ("bytes", pa.int64()),
    ]
)

_CHUNK_CELLS = 1 << 20
"""Cells of the rows x links intermediate; a few of 8 MB, however many rows there are."""

Counts = npt.NDArray[np.int64]
_Crossing = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class LinkCounts:
    """Messages and bytes per directed link of a tree, in the order of `Tree.links`; adds up over batches."""

    messages: Counts
    bytes: Counts

    @classmethod
    def none(cls, links: int) -> LinkCounts:
        return cls(np.zeros(links, np.int64), np.zeros(links, np.int64))

    def __add__(self, other: LinkCounts) -> LinkCounts:
        return LinkCounts(self.messages + other.messages, self.bytes + other.bytes)


@dataclass(frozen=True, slots=True, eq=False)
class EdgeCounts:
    """Messages and bytes from each broker to its own clients, by broker index; adds up over batches."""

    messages: Counts
    bytes: Counts

    def __add__(self, other: EdgeCounts) -> EdgeCounts:
        return EdgeCounts(self.messages + other.messages, self.bytes + other.bytes)


def count_publications(
    tree: Tree, origin: Indices, destinations: Words, messages: Indices, size_bytes: Indices
) -> LinkCounts:
    """Publications from `origin` to the sets `destinations` [rows, words], each crossing a link at most once.

    A publication crosses a link iff it comes from this side and someone on the other side wants it.
    """
    _check(tree, origin, destinations, messages, size_bytes)
    from_here = ~members(tree)

    def crosses(rows: slice) -> _Crossing:
        return meets(tree.beyond, destinations[rows]) & from_here[origin[rows]]

    return _count(tree, crosses, messages, size_bytes)


def count_partials(tree: Tree, target: Indices, origins: Words, messages: Indices, size_bytes: Indices) -> LinkCounts:
    """Partials merged on their way from the brokers `origins` [rows, words] to the subscription's broker `target`.

    A link carries one iff the target is on the other side and some origin on this side; merging makes it one however
    many origins there are. Where partials grow as they merge (operators that are not decomposable), add rows of no
    messages: for each single origin, the bytes of its own values.
    """
    _check(tree, target, origins, messages, size_bytes)
    towards = members(tree)
    # What is not beyond a link is beyond its reverse.
    behind = tree.beyond[_reverses(tree)]

    def crosses(rows: slice) -> _Crossing:
        return meets(behind, origins[rows]) & towards[target[rows]]

    return _count(tree, crosses, messages, size_bytes)


def count_notifications(tree: Tree, broker: Indices, messages: Indices, size_bytes: Indices) -> EdgeCounts:
    """Notifications on the last hop, from the subscriptions' brokers to their clients."""
    _check(tree, broker, None, messages, size_bytes)
    counts = EdgeCounts(np.zeros(len(tree.brokers), dtype=np.int64), np.zeros(len(tree.brokers), dtype=np.int64))
    np.add.at(counts.messages, broker, messages)
    np.add.at(counts.bytes, broker, size_bytes)
    return counts


def traffic_table(
    tree: Tree,
    *,
    publications: LinkCounts | None = None,
    partials: LinkCounts | None = None,
    control: LinkCounts | None = None,
    notifications: EdgeCounts | None = None,
) -> pa.Table:
    """One row per kind and directed link with traffic, ascending by link; notifications are on the last hop."""
    between = (("publication", publications), ("partial", partials), ("control", control))
    hops = [
        *((kind, tree.link_names, counts) for kind, counts in between),
        ("notification", tuple((broker, CLIENTS) for broker in tree.brokers), notifications),
    ]
    rows = [
        {"source": source, "target": target, "kind": kind, "messages": messages, "bytes": size}
        for kind, names, counts in hops
        if counts is not None
        for (source, target), messages, size in zip(names, counts.messages.tolist(), counts.bytes.tolist(), strict=True)
        if messages > 0
    ]
    return pa.Table.from_pylist(rows, schema=LINK_TRAFFIC_SCHEMA)


def _count(tree: Tree, crosses: Callable[[slice], _Crossing], messages: Indices, size_bytes: Indices) -> LinkCounts:
    counts = LinkCounts.none(len(tree.links))
    step = max(1, _CHUNK_CELLS // max(1, len(tree.links)))
    for start in range(0, len(messages), step):
        rows = slice(start, start + step)
        crossing = crosses(rows)
        # Integers throughout: a float64 product would be faster and wrong beyond 2^53 bytes.
        counts += LinkCounts(messages[rows].astype(np.int64) @ crossing, size_bytes[rows].astype(np.int64) @ crossing)
    return counts


def meets(of_links: Words, of_rows: Words) -> _Crossing:
    """[rows, links]: whether the two sets share a broker."""
    met = np.zeros((len(of_rows), len(of_links)), dtype=np.bool_)
    for word in range(of_links.shape[1]):
        met |= (of_rows[:, word, None] & of_links[None, :, word]) != 0
    return met


def members(tree: Tree) -> _Crossing:
    """[brokers, links]: whether the broker is beyond the link."""
    count = len(tree.brokers)
    bits = np.unpackbits(np.ascontiguousarray(tree.beyond).astype("<u8").view(np.uint8), axis=1, bitorder="little")
    return np.ascontiguousarray(bits[:, :count].T.astype(np.bool_))


def _reverses(tree: Tree) -> npt.NDArray[np.int64]:
    position = {link: index for index, link in enumerate(tree.links)}
    return np.array([position[target, source] for source, target in tree.links], dtype=np.int64)


def _check(tree: Tree, end: Indices, sets: Words | None, messages: Indices, size_bytes: Indices) -> None:
    rows = len(end)
    if len(messages) != rows or len(size_bytes) != rows:
        raise OverlayError(f"columns of {rows}, {len(messages)} and {len(size_bytes)} rows; all must be equally long")
    words = word_count(len(tree.brokers))
    if sets is not None and (sets.shape != (rows, words) or sets.dtype != np.uint64):
        raise OverlayError(
            f"masks of shape {sets.shape} and type {sets.dtype}; accepted for {rows} rows and {len(tree.brokers)} "
            f"brokers is uint64 of shape {(rows, words)}"
        )
    if rows and (end.min() < 0 or end.max() >= len(tree.brokers)):
        raise OverlayError(
            f"broker index out of range: found {end.min()}..{end.max()}, accepted is 0..{len(tree.brokers) - 1}"
        )
