"""Messages of advice that is not attached here, or not yet: they wait for it, for a limited time, within some bytes."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from catchment.broker.messages import AdviceMessage

__all__ = ["UNCLAIMED_BYTES_MAX", "UNCLAIMED_US", "Unclaimed", "UnclaimedMessage"]

UNCLAIMED_US = 10_000_000
UNCLAIMED_BYTES_MAX = 1_000_000
OVERHEAD_BYTES = 100
"""Of a message, besides its body."""


@dataclass(frozen=True, slots=True)
class UnclaimedMessage:
    """A message, who sent it, and until when it waits."""

    until_us: int
    sender: str
    message: AdviceMessage

    @property
    def size_bytes(self) -> int:
        return len(self.message.body) + len(self.message.advice) + OVERHEAD_BYTES


class Unclaimed:
    """All that waits at one broker, in the order in which it came."""

    def __init__(self) -> None:
        self.messages: deque[UnclaimedMessage] = deque()
        self.size_bytes = 0

    def takes(self, message: AdviceMessage, sender: str, now_us: int) -> bool:
        """Keep a message, if there is room for it."""
        one = UnclaimedMessage(now_us + UNCLAIMED_US, sender, message)
        if self.size_bytes + one.size_bytes > UNCLAIMED_BYTES_MAX:
            return False
        self._keep(one)
        return True

    def _keep(self, one: UnclaimedMessage) -> None:
        self.messages.append(one)
        self.size_bytes += one.size_bytes

    def saved(self) -> tuple[UnclaimedMessage, ...]:
        return tuple(self.messages)

    def restore(self, saved: list[Any]) -> None:
        for one in saved:
            self._keep(msgspec.convert(one, UnclaimedMessage))

    @property
    def due_us(self) -> int | None:
        """When the first of them has waited for long enough."""
        return self.messages[0].until_us if self.messages else None

    def expired(self, now_us: int) -> list[UnclaimedMessage]:
        return self._taken(lambda one: one.until_us <= now_us)

    def of_advice(self, name: str) -> list[UnclaimedMessage]:
        return self._taken(lambda one: one.message.advice == name)

    def forget_sender(self, name: str) -> None:
        """A neighbour has begun a new life, and waits for nothing of before."""
        self._taken(lambda one: one.sender == name)

    def _taken(self, is_meant: Callable[[UnclaimedMessage], bool]) -> list[UnclaimedMessage]:
        found = [one for one in self.messages if is_meant(one)]
        self.messages = deque(one for one in self.messages if not is_meant(one))
        self.size_bytes -= sum(one.size_bytes for one in found)
        return found
