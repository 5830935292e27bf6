"""Rows that are published one by one as they come: how many were taken, came late, or were refused, and why."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from catchment.model.errors import CatchmentError, TransportError
from catchment.transport.client import Client, Receipt, Wait

__all__ = ["PublishedRows"]

PENDING_MAX = 10_000


class PublishedRows:
    """Publishes rows of a topic that is advertised; a bad one is refused alone."""

    def __init__(self, client: Client, topic: str, wait: Wait = "acknowledged") -> None:
        self._client, self._topic, self._wait = client, topic, wait
        self._pending: list[tuple[int, asyncio.Future[Receipt]]] = []
        self.taken = 0
        self.late: list[str] = []
        """Ids of events that came too late."""
        self.refused: list[tuple[int, str]] = []
        """Which rows were refused, by their numbers, and why."""
        self.problem: TransportError | None = None
        """Why the client cannot go on, if it cannot."""

    async def add(self, number: int, row: Mapping[str, Any]) -> None:
        """Publish a row soon; waits where many are under way."""
        await self._client.look_up(self._topic, row.keys())
        self._pending.append((number, self._client.publish_soon(self._topic, row, wait=self._wait)))
        if len(self._pending) >= PENDING_MAX:
            await self.settle()

    def refuse(self, number: int, reason: str) -> None:
        self.refused.append((number, reason))

    async def settle(self) -> None:
        """Wait until all is answered."""
        pending, self._pending = self._pending, []
        for number, one in pending:
            try:
                receipt = await one
            except CatchmentError as error:
                self.refuse(number, str(error))
                self.problem = error if isinstance(error, TransportError) else self.problem
            else:
                self.late += receipt.dropped
                self.taken += 1 - len(receipt.dropped)
