"""What a broker's process stores in the broker's own stream, so that it is input like any other: notices, room, timers.

Rule 1: notices are stored in the order in which they were made.
Rule 2: a server whose store is full is waited for: a notice is never dropped.
"""

from __future__ import annotations

import asyncio
import time

from catchment.broker.hosting import item_to_bytes
from catchment.broker.inputs import Item, Room, Woken
from catchment.transport.context import LifeContext
from catchment.transport.jetstream import FullError, Reader, Stored
from catchment.transport.names import control_subject, room_subject

__all__ = ["Notices", "RoomWatch", "Timer"]

RETRY_S = 2.0
"""How long to wait for a server whose store is full."""


class Notices:
    """Notices that are on their way into a stream."""

    def __init__(self, context: LifeContext) -> None:
        self._context = context
        self._under_way: set[asyncio.Task[None]] = set()
        self._in_order = asyncio.Lock()

    def note(self, item: Item) -> None:
        """Store something in the broker's own log."""
        self.send(control_subject(self._context.name), item)

    def send(self, subject: str, item: Item) -> None:
        task = self._context.tasks.begin(self._store(subject, item))
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    async def stored(self) -> None:
        """Wait until all that was noted so far is stored."""
        if self._under_way:
            await asyncio.wait(self._under_way)

    async def _store(self, subject: str, item: Item) -> None:
        async with self._in_order:
            while True:
                try:
                    await self._context.streams.store(subject, item_to_bytes(item))
                except FullError as error:
                    self._context.report("waits, as the server's store is full", "warning", reason=str(error))
                    await asyncio.sleep(RETRY_S)
                else:
                    return


class RoomWatch:
    """Says when more waits in the broker's own stream than may, and when less than half of that does."""

    def __init__(self, context: LifeContext, notices: Notices) -> None:
        self._context, self._notices = context, notices
        self._is_full = False
        self._size_bytes = 200.0
        """What a message of the own stream takes, of late."""

    def heard(self, entries: list[Stored]) -> None:
        """Learn from messages how large one is."""
        size = sum(one.size_bytes for one in entries)
        self._size_bytes += (size / len(entries) - self._size_bytes) * 0.1

    def look(self, reader: Reader) -> None:
        most = self._context.options.limits.link_bytes_max
        waiting = reader.waiting_bytes + reader.pending * self._size_bytes
        if not self._is_full and waiting > most:
            self.tell(is_full=True)
        elif self._is_full and waiting <= most / 2:
            self.tell(is_full=False)

    def tell(self, *, is_full: bool) -> None:
        """Tell this broker and its neighbours."""
        if is_full != self._is_full:
            if is_full:
                self._context.report("has no room for more publications", "warning")
            else:
                self._context.report("has room again")
        self._is_full = is_full
        room = Room(self._context.name, is_full)
        self._notices.note(room)
        for neighbour in self._context.neighbours:
            self._notices.send(room_subject(neighbour, self._context.name), room)


class Timer:
    """Has the broker woken at a time of the server's clock, which is known from the stamps of messages alone."""

    def __init__(self, context: LifeContext, notices: Notices) -> None:
        self._context, self._notices = context, notices
        self._handle: asyncio.TimerHandle | None = None
        self._due_us: int | None = None
        self._woken_for_us: int | None = None
        self._ahead_us = time.time_ns() // 1_000 - _clock_us()
        """By how much the server's clock is ahead of this process's own, which begins anywhere."""

    def now_us(self) -> int:
        """About what the server's clock says."""
        return _clock_us() + self._ahead_us

    def heard(self, at_us: int) -> None:
        """Learn from a stamp how far the server's clock is."""
        self._ahead_us = max(self._ahead_us, at_us - _clock_us())

    def set(self, due_us: int | None, *, woken_us: int | None = None) -> None:
        """Wake the broker when it wants to be; `woken_us` is the stamp by which it was woken just now, if it was."""
        if woken_us is not None and due_us is not None and due_us == self._woken_for_us:
            # It was woken too early: the server's clock is behind what it seemed to be, or was set back.
            self._ahead_us = woken_us - _clock_us()
        elif due_us == self._due_us:
            return
        self.cancel()
        self._due_us, self._woken_for_us = due_us, None
        if due_us is not None:
            delay_s = max(due_us - self._ahead_us - _clock_us(), 0) / 1e6
            self._handle = asyncio.get_running_loop().call_later(delay_s, self._wake)

    def cancel(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
        self._handle = None

    def _wake(self) -> None:
        self._handle, self._woken_for_us = None, self._due_us
        if not self._context.streams.connection.is_lost:
            self._notices.note(Woken())


def _clock_us() -> int:
    return time.monotonic_ns() // 1_000
