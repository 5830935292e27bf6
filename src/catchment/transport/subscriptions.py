"""What a subscription brings to an application, as an iterator."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Any, TypeAlias

import pyarrow as pa

from catchment.broker.client import WindowValue
from catchment.transport.taking import Taking

__all__ = ["Content", "Subscription"]

Content: TypeAlias = pa.RecordBatch | list[WindowValue]


class Subscription:
    """What a subscription brings, in order: events as dictionaries, or values of windows.

    Iterate over it, or over `batches()`. What was handed out is confirmed when more is asked for, or by `confirm()`.
    """

    def __init__(self, name: str, taking: Taking) -> None:
        self.name, self._taking = name, taking
        self._waiting: deque[tuple[int | None, Content, int]] = deque()
        """What has come, with the frame that it came in, unless that is confirmed, and its size."""
        self._arrived = asyncio.Event()
        self.is_ended = False
        """Nothing more comes, as nobody asks for it any longer."""
        self._failure: BaseException | None = None
        self._rows: deque[Any] = deque()
        self._taken: int | None = None
        """The frame whose content is being handed out, unless that is confirmed."""
        self._past: AsyncIterator[Content] | None = None
        """What is handed out before anything else."""
        self._next_past: asyncio.Future[Content | None] | None = None
        """The next of it, which whoever gives up waiting leaves to the next who asks."""
        self._hidden: tuple[str, ...] = ()
        """Columns that nobody has asked for."""

    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    async def __anext__(self) -> Any:
        """The next event or value."""
        while not self._rows:
            content = await self._next()
            self._rows.extend(content.to_pylist() if isinstance(content, pa.RecordBatch) else content)
        return self._rows.popleft()

    def confirm(self) -> None:
        """Confirm what was handed out, without asking for more. Events that came together are confirmed together."""
        if self._taken is not None and not self._rows:
            self._taking.taken(self._taken)
            self._taken = None

    async def batches(self) -> AsyncIterator[Content]:
        """Events as record batches, or values of windows in lists, as they came."""
        try:
            while True:
                content = await self._next()
                if len(content):
                    yield content
        except StopAsyncIteration:
            return

    async def _next(self) -> Content:
        content = await self._next_whole()
        return content.drop_columns(self._hidden) if isinstance(content, pa.RecordBatch) and self._hidden else content

    async def _next_whole(self) -> Content:
        self.confirm()
        if self._past is not None:
            if self._next_past is None:
                self._next_past = asyncio.ensure_future(_next_or_none(self._past))
                # Nobody may ask again.
                self._next_past.add_done_callback(lambda done: done.cancelled() or done.exception())
            content = await asyncio.shield(self._next_past)
            self._next_past = None
            if content is not None:
                return content
            self._past = None
        while not self._waiting:
            if self.is_ended:
                raise StopAsyncIteration
            if self._failure is not None:
                raise self._failure
            self._arrived.clear()
            await self._arrived.wait()
        self._taken, content, size = self._waiting.popleft()
        self._taking.release(size)
        return content

    @property
    def waiting(self) -> list[Content]:
        """What has come and was not handed out."""
        return [content for _, content, _ in self._waiting]

    def begin_with(self, contents: AsyncIterator[Content], hidden: tuple[str, ...]) -> None:
        """Hand something out before what has come and comes, and leave columns out of all."""
        self._past, self._hidden = contents, hidden

    def leave_out(self, count: int, is_new: Callable[[pa.RecordBatch], list[bool]]) -> None:
        """Leave events out of what waits here, of the first so many contents."""
        for place in range(count):
            position, content, size = self._waiting[place]
            assert isinstance(content, pa.RecordBatch)
            self._waiting[place] = (position, content.filter(pa.array(is_new(content), pa.bool_())), size)

    def put(self, position: int, content: Content, size: int) -> None:
        """Keep something of a frame until it is asked for."""
        if self.is_ended:
            return
        self._taking.hold(position, size)
        self._waiting.append((position, content, size))
        self._arrived.set()

    def end(self) -> None:
        """Bring nothing more. What has come can still be taken, and no frame waits for that to be confirmed."""
        self.is_ended = True
        self._rows, rows = deque(), self._rows
        self.confirm()
        self._rows = rows
        for position, _, size in self._waiting:
            if position is not None:
                self._taking.release(size)
                self._taking.taken(position)
        self._waiting = deque((None, content, 0) for _, content, _ in self._waiting)
        self._arrived.set()

    def fail(self, failure: BaseException) -> None:
        """Bring nothing more but an error."""
        self._failure = failure
        self._arrived.set()


async def _next_or_none(contents: AsyncIterator[Content]) -> Content | None:
    return await anext(contents, None)
