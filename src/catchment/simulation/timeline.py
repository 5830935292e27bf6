"""Virtual time: what is to happen, in order."""

from __future__ import annotations

import heapq
from collections.abc import Callable

__all__ = ["Timeline"]


class Timeline:
    """Actions by their time; of the same time in the order in which they were asked for."""

    def __init__(self) -> None:
        self.now_us = 0
        self._order = 0
        self._pending: list[tuple[int, int, Callable[[], None]]] = []

    def at(self, time_us: int, action: Callable[[], None]) -> None:
        """Do something at a time, or now if that is past."""
        self._order += 1
        heapq.heappush(self._pending, (max(time_us, self.now_us), self._order, action))

    def run(self, until_us: int | None = None) -> None:
        """Let time pass until nothing is left to happen, or up to a time."""
        while self._pending and (until_us is None or self._pending[0][0] <= until_us):
            self.now_us, _, action = heapq.heappop(self._pending)
            action()
        if until_us is not None:
            self.now_us = max(self.now_us, until_us)
