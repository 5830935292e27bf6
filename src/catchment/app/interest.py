"""`catchment interest`: what is known about the clients of a topic."""

from __future__ import annotations

import asyncio
import json
import sys

from catchment.app.stopping import until_stopped
from catchment.transport.client import Client
from catchment.transport.credentials import OPEN, Credentials

__all__ = ["interest_lines"]


def interest_lines(
    topic: str,
    url: str,
    at: str | None,
    *,
    function: str,
    where: str | None,
    tolerance: float | None,
    watch: bool,
    credentials: Credentials = OPEN,
) -> None:
    """Print a value as a JSON line; to `watch` it, a line for each change, until Ctrl-C."""

    async def run() -> None:
        client = await Client(url, broker=at, credentials=credentials).open()
        try:
            found = await client.interest(topic, function, where=where, tolerance=tolerance)

            async def read() -> None:
                async for value in found:
                    line = {"topic": topic, "function": function, "value": value, "slack": found.slack}
                    sys.stdout.write(json.dumps(line, ensure_ascii=False) + "\n")
                    sys.stdout.flush()
                    if not watch:
                        return

            await until_stopped(read())
        finally:
            await client.close()

    asyncio.run(run())
