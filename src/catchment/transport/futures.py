"""Futures that somebody may wait for, or nobody."""

from __future__ import annotations

import asyncio
from typing import Any

__all__ = ["fail"]


def fail(future: asyncio.Future[Any], error: BaseException) -> None:
    """End a future with an error, unless it has ended."""
    if not future.done():
        future.set_exception(error)
        # Nobody may wait for it.
        future.exception()
