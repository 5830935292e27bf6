"""Which process is a broker: the newest to take its lease.

Rule 1: a lease is taken by test-and-set, and its version is a fencing number: it rises with every process.
Rule 2: whoever held it before hears of that, says so, and stops before it stores anything more. Should it not hear,
        what it stores is refused at the position that it expects (`outlets.py`).

A lease does not expire: a broker that was killed is followed at once.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable

import msgspec

from catchment.model.errors import UNREADABLE, TransportError
from catchment.transport.buckets import Bucket
from catchment.transport.jetstream import JetStream, WrongPositionError
from catchment.transport.wire import Message

__all__ = ["Lease", "LeaseLostError"]

BUCKET = "catchment_leases"


class LeaseLostError(TransportError):
    """Another process has become this broker."""


class Holder(msgspec.Struct, frozen=True):
    """Who has a lease."""

    id: str
    host: str
    process: int

    def __str__(self) -> str:
        return f"process {self.process} on {self.host}"


class Lease:
    """The lease of one broker, held by this process until `on_lost` is called with who has it now."""

    def __init__(self, streams: JetStream, broker: str, on_lost: Callable[[LeaseLostError], None]) -> None:
        self._streams, self._broker, self._on_lost = streams, broker, on_lost
        self._bucket = Bucket(streams, BUCKET)
        self._holder = Holder(os.urandom(8).hex(), socket.gethostname(), os.getpid())
        self.fence = 0

    async def take(self) -> None:
        """Become the holder, whoever is it now."""
        await self._bucket.create()
        self._streams.connection.subscribe(self._bucket.subject(self._broker), self._heard)
        while True:
            before = await self._bucket.read(self._broker)
            try:
                self.fence = await self._bucket.write(self._broker, msgspec.json.encode(self._holder), before.version)
            except WrongPositionError:
                continue
            return

    async def check(self) -> None:
        """Raise if another process is the holder."""
        entry = await self._bucket.read(self._broker)
        if entry.version != self.fence:
            raise self._lost(entry.value or b"")

    def _heard(self, message: Message) -> None:
        if self.fence and not message.data.startswith(msgspec.json.encode(self._holder)):
            self._on_lost(self._lost(message.data))

    def _lost(self, data: bytes) -> LeaseLostError:
        try:
            now = str(msgspec.json.decode(data, type=Holder))
        except UNREADABLE:
            now = "somebody else"
        return LeaseLostError(
            f"broker {self._broker!r} runs as {now} now; this one, whose lease has the number {self.fence}, stops"
        )
