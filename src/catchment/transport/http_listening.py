"""What a subscription brings, as server-sent events for one HTTP listener.

Rule 1: what a listener was sent is confirmed once the next is asked for, after it was written.
Rule 2: a durable listener goes on behind the last event that its browser names, out of what is kept here.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

import pyarrow as pa

from catchment.broker.client import WindowValue
from catchment.model.errors import TransportError
from catchment.transport.client import Client, RequestRefusedError, Subscription
from catchment.transport.rows import shown_row

__all__ = ["RETRY_S", "Kept", "Listener", "durable_name", "listening"]

HEARTBEAT_S = 15.0
RETRY_S = 5


@dataclass(slots=True)
class Kept:
    """What a durable listener was sent last, and what it is about to be sent."""

    bytes_max: int
    rows: deque[tuple[int, str]] = field(default_factory=deque)
    size_bytes: int = 0
    last: int = 0
    """The number of the newest row."""
    written: int = 0
    """The number of the last row that was sent to anybody."""

    def add(self, text: str) -> None:
        self.last += 1
        self.rows.append((self.last, text))
        self.size_bytes += len(text)
        while self.size_bytes > self.bytes_max and self.rows[0][0] <= self.written:
            self.size_bytes -= len(self.rows.popleft()[1])

    def go_back(self, number: int | None) -> None:
        """Go on behind a row that its listener has, if that is known."""
        if number is not None:
            self.written = min(number, self.last)

    @property
    def missing(self) -> int:
        """How many rows would be next, and are not kept any more."""
        return max((self.rows[0][0] if self.rows else self.last + 1) - self.written - 1, 0)

    def behind(self, number: int) -> list[tuple[int, str]]:
        return [row for row in self.rows if row[0] > number]


async def listening(client: Client, sql: str, name: str, kept: Kept, prefix: str) -> Listener:
    try:
        return Listener(client, await client.subscribe(sql, name=name), kept, prefix)
    except BaseException as error:
        # Of one that asked for nonsense nothing is left.
        client.is_durable = client.is_durable and not isinstance(error, RequestRefusedError)
        await client.close()
        raise


class Listener:
    """What a subscription brings as server-sent events; `prefix` is what their ids begin with, if they have any."""

    def __init__(self, client: Client, subscription: Subscription, kept: Kept, prefix: str) -> None:
        self._client, self._subscription, self._kept, self._prefix = client, subscription, kept, prefix
        self._coming: asyncio.Future[Any] | None = None
        self._closing: asyncio.Task[None] | None = None

    async def __aiter__(self) -> AsyncGenerator[str, None]:
        kept, batches = self._kept, self._subscription.batches()
        yield f"retry: {RETRY_S * 1_000}\n\n"
        if kept.missing:
            yield f"event: missed\ndata: {kept.missing}\n\n"
        while not self.is_closing():
            for number, text in kept.behind(kept.written):
                identity = f"id: {self._prefix}{number}\n" if self._prefix else ""
                yield f"{identity}data: {text}\n\n"
                kept.written = number
            if self.is_closing():
                return
            if self._coming is None:
                self._coming = asyncio.ensure_future(anext(batches))
            await asyncio.wait([self._coming], timeout=HEARTBEAT_S)
            if not self._coming.done():
                yield ": still there\n\n"
            elif not self.is_closing():
                coming, self._coming = self._coming, None
                try:
                    content = coming.result()
                except TransportError as error:
                    yield f"event: error\ndata: {json.dumps({'error': str(error)})}\n\n"
                    return
                self._keep(content)

    def is_closing(self) -> bool:
        return self._closing is not None

    async def close(self) -> None:
        """End the client, or park it; what was not sent yet is kept. Whoever calls it next waits for the same end."""
        if self._closing is None:
            self._closing = asyncio.create_task(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        if self._coming is not None:
            self._coming.cancel()
            await asyncio.wait([self._coming])
            if not self._coming.cancelled() and self._coming.exception() is None:
                # It had come, and nobody has asked for it yet.
                self._keep(self._coming.result())
        if self._prefix:
            self._subscription.confirm()
        await self._client.close()

    def _keep(self, content: pa.RecordBatch | list[WindowValue]) -> None:
        for one in content.to_pylist() if isinstance(content, pa.RecordBatch) else content:
            self._kept.add(json.dumps(shown_row(self._subscription.name, one), ensure_ascii=False))


def durable_name(durable: str, sql: str) -> str:
    """The name of the client that listens: another question is another listener."""
    return f"http-{durable}-{blake2b(sql.encode(), digest_size=8).hexdigest()}"
