"""What a broker keeps of a neighbour or a client: what came, what went, and what waits to go."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from catchment.broker.frames import Frame
from catchment.broker.messages import Message

__all__ = ["CONTROL", "EVENTS", "Peer"]

CONTROL, EVENTS = 0, 1
"""The traffic classes. Each has a queue and a count of its own."""


@dataclass(slots=True)
class Peer:
    """A neighbour or a client."""

    queues: tuple[deque[Frame], deque[Frame]] = field(default_factory=lambda: (deque(), deque()))
    received: list[int] = field(default_factory=lambda: [0, 0])
    """The last sequence that came, by traffic class."""
    sent: list[int] = field(default_factory=lambda: [0, 0])
    changes: int = 0
    """How many changes it was told."""
    unconfirmed: set[int] = field(default_factory=set)
    turn: int = CONTROL
    topics: set[str] = field(default_factory=set)
    """Of a client, what it advertises."""

    def put(self, sender: str, message: Message) -> None:
        """Queue a message."""
        kind = EVENTS if message.is_event else CONTROL
        self.sent[kind] += 1
        self.queues[kind].append(Frame(sender, self.sent[kind], message))

    def take(self, most: int | None) -> Iterator[Frame]:
        """Frames of both classes in turn, while there are some."""
        taken = 0
        while any(self.queues) and (most is None or taken < most):
            queue = self.queues[self.turn] or self.queues[1 - self.turn]
            self.turn = 1 - self.turn
            taken += 1
            yield queue.popleft()
