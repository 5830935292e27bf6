"""Work that goes on until it is done, or until somebody stops the command."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine
from typing import Any

__all__ = ["until_stopped"]


async def until_stopped(work: Coroutine[Any, Any, None]) -> None:
    """Do some work; Ctrl-C and SIGTERM end it, which is no failure."""
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    working, stopping = asyncio.create_task(work), asyncio.create_task(stopped.wait())
    await asyncio.wait([working, stopping], return_when=asyncio.FIRST_COMPLETED)
    for task in (working, stopping):
        task.cancel()
    await asyncio.gather(working, stopping, return_exceptions=True)
    if not working.cancelled() and (error := working.exception()) is not None:
        raise error
