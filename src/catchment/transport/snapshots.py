"""Snapshots of a broker, in pieces, in a stream of their own: a subject for each piece.

Rule 1: a snapshot counts once its last piece is stored (`hosting.Snapshots` says which are needed, and which are not).
Rule 2: its pieces are stored after every frame of every step that it stands for: replay begins behind them.
Rule 3: pieces are stored on condition of the last position of the stream. A process that takes over stores a fence
        first: its predecessor makes no snapshot whole any more, and so purges nothing that the new process reads.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from catchment.broker.broker import Broker
from catchment.broker.hosting import Snapshots
from catchment.transport.jetstream import JetStream, Reader, WrongPositionError
from catchment.transport.names import snapshot_stream, snapshot_subject, token, untoken

__all__ = ["SnapshotStore"]

FENCE = "fence"


class SnapshotStore:
    """The snapshots of one broker."""

    def __init__(self, streams: JetStream, broker: str) -> None:
        self._streams, self._broker = streams, broker
        self._name = snapshot_stream(broker)
        self._last = 0
        self._at: dict[str, int] = {}
        """By key, where a piece is stored."""
        self._snapshots = Snapshots(broker)
        self.whole_at_us: int | None = None
        """When the newest whole snapshot was stored."""
        self.writing: int | None = None
        """The position of the snapshot that was begun and is not whole."""

    @property
    def position(self) -> int:
        """What the newest whole snapshot stands for; 0 if there is none."""
        return self._snapshots.position

    async def open(self) -> list[bytes]:
        """Keep any other process from writing; the pieces that bring the broker back, none if it never was here."""
        await self._streams.create(self._name, [snapshot_subject(self._broker, "*")], max_msgs_per_subject=1)
        await self._store_fence()
        pieces, stored_us = await self._stored()
        self._snapshots = Snapshots(self._broker, pieces.values())
        self.whole_at_us = max((stored_us[key] for key in self._snapshots.needed), default=None)
        return [pieces[key] for key in self._snapshots.needed]

    async def _store_fence(self) -> None:
        while True:
            state = await self._streams.state(self._name)
            try:
                self._last = await self._streams.store(
                    snapshot_subject(self._broker, FENCE), b"", after=0 if state is None else state.last
                )
            except WrongPositionError:
                continue
            return

    async def _stored(self) -> tuple[dict[str, bytes], dict[str, int]]:
        """All pieces that are there, and when each was stored, by key."""
        reader = Reader(self._streams, self._name, 1)
        await reader.start()
        pieces: dict[str, bytes] = {}
        stored_us: dict[str, int] = {}
        position = 0
        try:
            while position < self._last:
                for one in await reader.read(1_000):
                    position = one.position
                    kind = one.subject.rpartition(".")[2]
                    if kind != FENCE:
                        key = untoken(kind)
                        pieces[key], self._at[key], stored_us[key] = one.data, position, one.at_us
        finally:
            reader.stop()
        return pieces, stored_us

    def begin(self, broker: Broker) -> None:
        """Freeze a broker, all of whose frames are handed over; or do nothing if there is a snapshot of it already."""
        if self.writing is None:
            self._snapshots.begin(broker)
            self.writing = None if self._snapshots.next_piece() is None else broker.position

    async def store_pieces(self) -> None:
        """Store what was begun, up to its last piece. If that fails in between, the next call goes on."""
        while (piece := self._snapshots.next_piece()) is not None:
            key, data = piece
            self._last = self._at[key] = await self._streams.store(self._subject(key), data, after=self._last)
            if self._snapshots.note_stored():
                self.writing, self.whole_at_us = None, time.time_ns() // 1_000
                return

    async def drop_useless(self) -> None:
        """Delete the pieces that nobody needs any more."""
        await self._drop(self._snapshots.useless())

    async def _drop(self, keys: Sequence[str]) -> None:
        for key in keys:
            await self._streams.purge(self._name, self._at.pop(key) + 1, self._subject(key))

    def _subject(self, key: str) -> str:
        return snapshot_subject(self._broker, token(key))
