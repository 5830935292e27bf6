"""What the server pushes to a client from its outbox: every message once and in order, or an error.

Rule 1: each message has a number; where one is missing, or nothing has come for longer than the server is silent where
        there is nothing new, reading has ended, and whoever reads asks for all behind what it has read.
Rule 2: the server pushes more only after it was told that what it has pushed is read: what a client does not read stays
        in its outbox.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from catchment.transport.asking import HEARTBEAT_S
from catchment.transport.jetstream import Stored
from catchment.transport.wire import Connection, ConnectionLostError, Message

__all__ = ["Arrivals"]

SILENCE_S = 3 * HEARTBEAT_S
BYTES_MAX = 4_000_000
"""What may wait here before the server is let push more."""


class Arrivals:
    """Messages that come on one subject of a connection."""

    def __init__(self, connection: Connection, subject: str) -> None:
        self._connection = connection
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[Stored] = deque()
        self._size_bytes = 0
        self._sequence = 0
        self._may_go_on = ""
        """The subject on which the server is waiting to hear that it may push more."""
        self._arrived = asyncio.Event()
        self._problem: ConnectionLostError | None = None
        self._heard_s = self._loop.time()
        self._watching = self._loop.call_later(SILENCE_S, self._watch)
        self._end: Callable[[], None] = connection.subscribe(subject, self._receive)
        connection.lost.add_done_callback(lambda _: self._fail("the connection to the server is lost"))

    def stop(self) -> None:
        self._watching.cancel()
        self._end()

    async def read(self) -> list[Stored]:
        """Wait for messages; all that are there."""
        while not self._waiting:
            if self._problem is not None:
                raise self._problem
            self._arrived.clear()
            await self._arrived.wait()
        found = list(self._waiting)
        self._waiting.clear()
        self._size_bytes = 0
        self._let_go_on()
        return found

    def _receive(self, message: Message) -> None:
        self._heard_s = self._loop.time()
        if message.status == 100:
            self._handle_status(message)
            return
        fields = message.reply.split(".")
        if len(fields) not in (9, 12) or self._problem is not None:
            # Not of the server, or behind something that is missing.
            return
        position, sequence, time_ns = fields[5:8] if len(fields) == 9 else fields[7:10]
        if int(sequence) != self._sequence + 1:
            self._fail(f"message {self._sequence + 1} of an outbox is missing; {sequence} has come")
            return
        self._sequence += 1
        stored = Stored(message.subject, message.data, int(position), int(time_ns) // 1_000, message.head)
        self._waiting.append(stored)
        self._size_bytes += stored.size_bytes
        self._arrived.set()

    def _handle_status(self, message: Message) -> None:
        if message.reply:
            self._may_go_on = message.reply
        else:
            headers = message.headers
            self._may_go_on = headers.get("Nats-Consumer-Stalled", self._may_go_on)
            last = headers.get("Nats-Last-Consumer", "")
            if last.isdigit() and int(last) > self._sequence:
                self._fail(f"message {self._sequence + 1} of an outbox is missing")
        self._let_go_on()

    def _let_go_on(self) -> None:
        if self._may_go_on and self._size_bytes < BYTES_MAX and not self._connection.is_lost:
            self._connection.publish(self._may_go_on, b"")
            self._may_go_on = ""

    def _watch(self) -> None:
        silent_s = self._loop.time() - self._heard_s
        if silent_s >= SILENCE_S:
            self._fail(f"the server has said nothing of an outbox for {silent_s:.0f} seconds")
        else:
            self._watching = self._loop.call_later(SILENCE_S - silent_s, self._watch)

    def _fail(self, why: str) -> None:
        if self._problem is None:
            self._problem = ConnectionLostError(why)
        self._arrived.set()
