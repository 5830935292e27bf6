"""What a subscription brings to an application, as an iterator."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
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
        self._waiting: deque[tuple[int, Content, int]] = deque()
        self._arrived = asyncio.Event()
        self._is_ended = False
        self._failure: BaseException | None = None
        self._rows: deque[Any] = deque()
        self._taken: int | None = None
        """The frame whose content is being handed out."""

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
                yield await self._next()
        except StopAsyncIteration:
            return

    async def _next(self) -> Content:
        self.confirm()
        while not self._waiting:
            if self._is_ended:
                raise StopAsyncIteration
            if self._failure is not None:
                raise self._failure
            self._arrived.clear()
            await self._arrived.wait()
        self._taken, content, size = self._waiting.popleft()
        self._taking.release(size)
        return content

    def put(self, position: int, content: Content, size: int) -> None:
        """Keep something of a frame until it is asked for."""
        self._taking.hold(position, size)
        self._waiting.append((position, content, size))
        self._arrived.set()

    def end(self, failure: BaseException | None = None) -> None:
        """Bring nothing more: the iteration ends, or fails."""
        if failure is None:
            self._is_ended = True
        self._failure = failure
        self._arrived.set()
