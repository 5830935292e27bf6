"""Snapshots of a broker, in pieces, in a stream of their own.

Rule 1: a snapshot is whole once its head is stored, behind all its pieces. What lies behind the newest head is what is
        left of one that never became whole.
Rule 2: the head is stored after every frame of every step that the snapshot stands for: replay begins behind them.
Rule 3: an older snapshot is dropped after a newer one is whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from catchment.broker.hosting import SnapshotHead
from catchment.model.errors import CheckpointError
from catchment.transport.jetstream import JetStream, Reader
from catchment.transport.names import snapshot_stream, snapshot_subject

__all__ = ["PIECE_BYTES_MAX", "SnapshotStore", "split"]

PIECE_BYTES_MAX = 1_000_000


def split(data: bytes) -> list[bytes]:
    """Bytes in pieces that a server takes."""
    return [data[begin : begin + PIECE_BYTES_MAX] for begin in range(0, len(data), PIECE_BYTES_MAX)]


class SnapshotStore:
    """The snapshots of one broker."""

    def __init__(self, streams: JetStream, broker: str, neighbours: Sequence[str]) -> None:
        self._streams, self._broker, self._neighbours = streams, broker, tuple(neighbours)
        self._name = snapshot_stream(broker)
        self._piece, self._head = (snapshot_subject(broker, kind) for kind in ("piece", "head"))
        self._last = 0

    async def open(self) -> None:
        """Create the stream if it is not there. From now on, nobody else may write to it."""
        state = await self._streams.create(self._name, [snapshot_subject(self._broker, "*")])
        self._last = state.last

    async def newest(self) -> tuple[SnapshotHead, list[bytes]] | None:
        """The newest whole snapshot; None if there never was one."""
        stored = await self._streams.last(self._name, self._head)
        if stored is None:
            return None
        head = SnapshotHead.from_bytes(stored.data, self._broker, self._neighbours)
        reader = Reader(self._streams, self._name, head.first)
        await reader.start()
        pieces: list[bytes] = []
        try:
            while len(pieces) < head.pieces:
                for one in await reader.read(head.pieces - len(pieces)):
                    if one.subject != self._piece:
                        raise CheckpointError(
                            f"the snapshot of {self._broker!r} at {head.position} has {len(pieces)} pieces; "
                            f"its head says {head.pieces}"
                        )
                    pieces.append(one.data)
        finally:
            reader.stop()
        if sum(map(len, pieces)) != head.size_bytes:
            raise CheckpointError(
                f"the snapshot of {self._broker!r} at {head.position} has {sum(map(len, pieces))} bytes; "
                f"its head says {head.size_bytes}"
            )
        return head, pieces

    async def put_pieces(self, position: int, pieces: Iterable[bytes]) -> SnapshotHead:
        """Store the pieces of a snapshot; `put_head` makes it whole."""
        first, count, size = self._last + 1, 0, 0
        for piece in pieces:
            self._last = await self._streams.store(self._piece, piece, after=self._last)
            count += 1
            size += len(piece)
        return SnapshotHead(self._broker, self._neighbours, position, first, count, size)

    async def put_head(self, head: SnapshotHead) -> None:
        self._last = await self._streams.store(self._head, head.to_bytes(), after=self._last)

    async def drop_older(self, head: SnapshotHead) -> None:
        await self._streams.purge(self._name, head.first)
