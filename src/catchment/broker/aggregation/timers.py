"""When to tell something by the clock, with revisions: sections 5.2.2 and 5.2.3 of the paper.

Publications wait, after the end of their window, for as long as they took of late to come here: the waiting time.
Partials wait for others of the same window: the collection delay.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from heapq import heappop, heappush
from typing import Any

from catchment.broker.aggregation.options import AggregationOptions

__all__ = ["HOLDING", "Item", "Timers", "WaitingTimes", "timer_key"]

Item = tuple[int, int]
"""A question, and the number of a window or stride; or HOLDING and the end of a stride."""
HOLDING = 0
"""What publications wait for that are held; no question has this id."""


def timer_key(what: str, topic: str, side: str) -> str:
    """The name of a timer."""
    return f"{what}\x1f{topic}\x1f{side}"


class Timers:
    """What is due when by the clock, on one side."""

    def __init__(self) -> None:
        self._due: dict[Item, int] = {}
        # Entries of timers that were moved or dropped stay in the heap until they come up.
        self._heap: list[tuple[int, int, Item]] = []
        self._set = 0

    def wake(self, item: Item, at_us: int) -> bool:
        """Set a timer, unless there is one; whether none is sooner."""
        if item in self._due:
            return False
        soonest_us = self.soonest_us()
        self._due[item] = at_us
        self._set += 1
        heappush(self._heap, (at_us, self._set, item))
        return soonest_us is None or at_us < soonest_us

    def soonest_us(self) -> int | None:
        """When the next timer ends."""
        while self._heap and self._due.get(self._heap[0][2]) != self._heap[0][0]:
            heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def expired(self, now_us: int) -> list[Item]:
        """Take out the timers whose time has come."""
        found = []
        while (at_us := self.soonest_us()) is not None and at_us <= now_us:
            item = heappop(self._heap)[2]
            del self._due[item]
            found.append(item)
        return found

    def drop(self, items: Iterable[Item]) -> None:
        """Forget timers for what was sent already."""
        for item in items:
            self._due.pop(item, None)

    def forget(self, question: int) -> None:
        self.drop([item for item in self._due if item[0] == question])

    def saved(self) -> dict[Item, int]:
        return dict(self._due)

    def restore(self, saved: Mapping[Item, int]) -> None:
        for item, at_us in saved.items():
            self.wake(item, at_us)

    def items(self) -> list[Item]:
        return list(self._due)


class WaitingTimes:
    """How long publications took of late, question by question."""

    def __init__(self, broker: str, options: AggregationOptions) -> None:
        self._broker, self._options = broker, options
        self._took: dict[int, list[int]] = {}
        """Of each question, how long publications took at most in the last two shifts, and which the last one is."""

    def for_publication_us(self, question: int, end_us: int, now_us: int) -> int:
        took_us = max(self._took.get(question, (0, 0))[:2])
        return max(now_us, end_us + took_us)

    def for_partial_us(self, end_us: int, now_us: int) -> int:
        return max(now_us, end_us) + self._options.collection_delay_us(self._broker, end_us)

    def observe(self, question: int, shift: int, took_us: int) -> None:
        """Learn how long a publication took to come here."""
        took = self._took.setdefault(question, [0, 0, shift])
        if shift > took[2]:
            took[:] = [took[1], 0, shift]
        took[1] = max(took[1], took_us)

    def forget(self, question: int) -> None:
        self._took.pop(question, None)

    def saved(self) -> dict[int, Any]:
        return {question: tuple(took) for question, took in self._took.items()}

    def restore(self, saved: Mapping[int, Any]) -> None:
        self._took = {question: list(took) for question, took in saved.items()}
