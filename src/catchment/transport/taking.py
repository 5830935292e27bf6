"""How far an application has come in what was delivered to it.

Rule 1: a frame is confirmed once the application has taken all that it holds, and all before it. A durable client that
        comes back, in whatever process, goes on behind the last frame that was confirmed.
Rule 2: while the application leaves too much lying, no more is read; unless it waits for an answer, which comes behind
        what it has not taken. Then all is read, up to what may wait in the client's outbox.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec

from catchment.transport.asking import Came

__all__ = ["Taking"]

CONFIRM_S = 0.1
CONFIRM_BYTES = 1_000_000
UNTAKEN_BYTES_MAX = 32_000_000
"""What waits for the application; the rest stays in the client's outbox."""


class Taking:
    """Positions of one client in its outbox.

    `tell` sends what is confirmed, and says whether it could; `is_asking` says whether an answer is waited for.
    """

    def __init__(self, came: Came, tell: Callable[[bytes], bool], is_asking: Callable[[], bool]) -> None:
        self.attached, self._tell, self._is_asking = came.attached, tell, is_asking
        self.read = 0
        """The position of the last frame that was read."""
        self.confirmed = self._told = came.confirmed
        # Confirmed in time, what was taken never fills the outbox.
        self._confirm_bytes = max(min(came.bytes_max // 8, CONFIRM_BYTES), 1)
        self._read_bytes = 0
        """Since anything was last said to be confirmed."""
        self._untaken: dict[int, int] = {}
        """By position, how many parts of a frame the application has not taken; in order."""
        self._untaken_bytes = 0
        self._has_room = True
        self._changed = asyncio.Event()
        self._telling: asyncio.TimerHandle | None = None

    def note_read(self, position: int, size_bytes: int) -> None:
        self.read = position
        self._read_bytes += size_bytes

    def begin(self, position: int) -> None:
        """Handle a frame; `taken` ends that."""
        self._untaken[position] = 1

    def hold(self, position: int, size: int) -> None:
        """Keep a part of a frame for the application, which `release` hands out, and `taken` ends."""
        self._untaken[position] += 1
        self._untaken_bytes += size
        if self._untaken_bytes > UNTAKEN_BYTES_MAX:
            self._has_room = False

    def release(self, size: int) -> None:
        self._untaken_bytes -= size
        if self._untaken_bytes <= UNTAKEN_BYTES_MAX // 2 and not self._has_room:
            self.let_read()

    def let_read(self) -> None:
        self._has_room = True
        self.look_again()

    def look_again(self) -> None:
        """Look whether more may be read."""
        self._changed.set()

    async def room(self) -> None:
        """Wait while too much waits for the application, and the application for nothing."""
        while not self._has_room and not self._is_asking():
            self._changed.clear()
            await self._changed.wait()

    def taken(self, position: int) -> None:
        """A part of a frame needs no more attention."""
        self._untaken[position] -= 1
        before = self.confirmed
        while self._untaken and not (first := next(iter(self._untaken.items())))[1]:
            self.confirmed = first[0]
            del self._untaken[first[0]]
        if self.confirmed > before and self._read_bytes >= self._confirm_bytes:
            self.tell()
        elif self.confirmed > before and self._telling is None:
            self._telling = asyncio.get_running_loop().call_later(CONFIRM_S, self.tell)

    def tell(self) -> None:
        """Say how far the application has come; it is said again with what comes next."""
        self.stop()
        if self.confirmed > self._told and self._tell(self.said()):
            self._told, self._read_bytes = self.confirmed, 0

    def said(self) -> bytes:
        return msgspec.json.encode({"attached": self.attached, "confirmed": self.confirmed})

    def stop(self) -> None:
        if self._telling is not None:
            self._telling.cancel()
            self._telling = None
