"""What a client sends to its broker: frames until they are stored, and requests until they are answered.

Rule 1: a frame is sent until it, and every one before it, is stored; the broker drops what comes twice by its number.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from catchment.broker import messages as m
from catchment.broker.client import Session
from catchment.transport.asking import RequestRefusedError
from catchment.transport.futures import fail
from catchment.transport.jetstream import FullError, JetStream, stored_position
from catchment.transport.wire import Connection, ConnectionLostError, Message

__all__ = ["Sending"]

OPEN_BYTES_MAX = 16_000_000
"""Of requests that are not answered: publishing waits beyond that."""
FULL_S = 2.0
"""After which a server whose store was full is asked again."""


@dataclass(slots=True)
class _Frame:
    data: bytes
    is_stored: bool = False
    stored: asyncio.Future[None] | None = None


@dataclass(slots=True)
class _Request:
    answer: asyncio.Future[m.Acknowledged]
    size_bytes: int


class Sending:
    """The requests of one life of a client. `failed` hears what ends them all."""

    def __init__(
        self,
        session: Session,
        subject: str,
        connection: Connection,
        *,
        failed: Callable[[BaseException], None],
    ) -> None:
        self._session, self._subject, self._streams = session, subject, JetStream(connection)
        self._failed = failed
        self.on_stored: Callable[[], None] = lambda: None
        """Called whenever fewer frames wait than before."""
        self.on_begun: Callable[[], None] = lambda: None
        """Called whenever an answer is waited for."""
        self._frames: deque[_Frame] = deque()
        """Those that are not stored, or behind one that is not."""
        self._requests: dict[int, _Request] = {}
        self._open_bytes = 0
        self._room = asyncio.Event()
        self._room.set()
        self._is_blocked = False
        self._failure: BaseException | None = None

    @property
    def frames_waiting(self) -> int:
        return len(self._frames)

    @property
    def is_asking(self) -> bool:
        """Whether any request is not answered."""
        return bool(self._requests)

    async def ask(self, kind: type, *fields: Any) -> m.Acknowledged:
        """Send a request, and wait for its answer."""
        return await self.begin(kind, *fields)[0]

    def begin(self, kind: type, *fields: Any) -> tuple[asyncio.Future[m.Acknowledged], asyncio.Future[None]]:
        """Send a request: its answer, and when it is stored."""
        if self._failure is not None:
            raise self._failure
        loop = asyncio.get_running_loop()
        number, frames = self._session.ask(kind, *fields)
        answer: asyncio.Future[m.Acknowledged] = loop.create_future()
        stored: asyncio.Future[None] = loop.create_future()
        size = sum(map(len, frames))
        self._requests[number] = _Request(answer, size)
        self._open_bytes += size
        if self._open_bytes > OPEN_BYTES_MAX:
            self._room.clear()
        for place, data in enumerate(frames, 1):
            frame = _Frame(data, stored=stored if place == len(frames) else None)
            self._frames.append(frame)
            self._send(frame)
        self.on_begun()
        return answer, stored

    async def room(self) -> None:
        """Wait while more is under way than may be."""
        while not self._room.is_set():
            await self._room.wait()

    def settle(self, message: m.Acknowledged | m.Refused) -> None:
        """Take an answer of the broker."""
        request = self._requests.pop(message.request, None)
        if request is None:
            return
        self._open_bytes -= request.size_bytes
        if self._open_bytes <= OPEN_BYTES_MAX // 2:
            self._room.set()
        if request.answer.done():
            return
        if isinstance(message, m.Refused):
            retry_s = None if message.retry_us < 0 else message.retry_us / 1e6
            fail(request.answer, RequestRefusedError(message.reason, retry_s))
        else:
            request.answer.set_result(message)

    def go_on(self, connection: Connection) -> None:
        """Use another connection from now on."""
        self._streams = JetStream(connection)
        self._send_again()

    def end(self, error: BaseException) -> None:
        """Fail whatever waits."""
        self._failure = error
        for request in self._requests.values():
            fail(request.answer, error)
        for frame in self._frames:
            if frame.stored is not None:
                fail(frame.stored, error)
        self._room.set()

    def _send(self, frame: _Frame) -> None:
        if self._is_blocked or self._streams.connection.is_lost:
            return
        answer = self._streams.send(self._subject, frame.data)
        answer.add_done_callback(lambda answer: self._stored(frame, answer))

    def _stored(self, frame: _Frame, answer: asyncio.Future[Message]) -> None:
        try:
            stored_position(answer.result())
        except ConnectionLostError:
            return
        except FullError:
            if not self._is_blocked:
                self._is_blocked = True
                asyncio.get_running_loop().call_later(FULL_S, self._send_again)
            return
        except BaseException as error:
            self._failed(error)
            return
        frame.is_stored = True
        while self._frames and self._frames[0].is_stored:
            first = self._frames.popleft()
            if first.stored is not None and not first.stored.done():
                first.stored.set_result(None)
        self.on_stored()

    def _send_again(self) -> None:
        """Send all that is not known to be stored, and what is behind it: the broker takes frames in order only."""
        self._is_blocked = False
        for frame in self._frames:
            frame.is_stored = False
            self._send(frame)
