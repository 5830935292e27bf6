"""Raw JetStream with the same bytes: what the server alone takes, stored and read back."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from catchment.lab.live.loads import Ready
from catchment.transport.jetstream import JetStream, Reader
from catchment.transport.wire import open_connection

__all__ = ["raw_messages"]

IN_FLIGHT = 2_000
BYTES_IN_FLIGHT = 32_000_000


async def raw_messages(ready: Ready, url: str, count: int, size: int) -> float:
    """Have messages stored and read back, at the same time; seconds for all of them."""
    connection = await open_connection(url, "raw")
    try:
        streams = JetStream(connection)
        await streams.delete("raw")
        await streams.create("raw", ["raw"])
        reader = Reader(streams, "raw", 1)
        await reader.start()
        ready()
        most, room, waiting = max(min(IN_FLIGHT, BYTES_IN_FLIGHT // size), 1), asyncio.Event(), 0

        def answered(_: asyncio.Future[Any]) -> None:
            nonlocal waiting
            waiting -= 1
            room.set()

        async def read() -> None:
            left = count
            while left:
                left -= len(await reader.read(10_000))

        begun = time.perf_counter()
        reading, data = asyncio.create_task(read()), b"x" * size
        for number in range(count):
            waiting += 1
            streams.send("raw", data).add_done_callback(answered)
            if number % 64 == 63 or waiting >= most:
                await asyncio.sleep(0)
                await connection.drain()
                while waiting >= most:
                    room.clear()
                    await room.wait()
        await reading
        spent = time.perf_counter() - begun
        await streams.delete("raw")
        return spent
    finally:
        await connection.close()
