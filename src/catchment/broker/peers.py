"""What a broker keeps of a neighbour or a client: what came, what went, and what waits to go."""

from __future__ import annotations

from collections import deque
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
    topics: dict[str, int] = field(default_factory=dict)
    """Of a client, what it advertises, and by which request."""

    def put(self, sender: str, message: Message) -> None:
        """Queue a message."""
        kind = EVENTS if message.is_event else CONTROL
        self.sent[kind] += 1
        self.queues[kind].append(Frame(sender, self.sent[kind], message))

    def take(self, room: tuple[int, int] | None = None) -> list[Frame]:
        """Frames of both classes in turn, so that neither waits for all of the other."""
        taken: list[Frame] = []
        left = [len(queue) for queue in self.queues]
        if room is not None:
            left = [min(pair) for pair in zip(left, room, strict=True)]
        while left[CONTROL] or left[EVENTS]:
            kind = self.turn if left[self.turn] else 1 - self.turn
            self.turn = 1 - kind
            left[kind] -= 1
            taken.append(self.queues[kind].popleft())
        return taken
