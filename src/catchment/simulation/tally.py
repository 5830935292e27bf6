"""What brokers of a simulation have handled, and what links have carried."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

import msgspec

from catchment.broker import Frame
from catchment.broker import messages as m
from catchment.broker.aggregation import Aggregation
from catchment.broker.frames import encode
from catchment.stages import event_bytes

__all__ = ["Tally"]


class Tally:
    """Adds up frames that brokers have taken; `meters` says whether also bytes, which takes longer."""

    def __init__(self, brokers: Collection[str], *, meters: bool) -> None:
        self._brokers, self._meters = frozenset(brokers), meters
        self.handled: Counter[str] = Counter()
        """Frames, by the kind of their message."""
        self.events = 0
        """Each counted at every broker that it reached."""
        self.filters = 0
        """That brokers have told each other."""
        self.carried: dict[tuple[str, str], tuple[int, int]] = {}
        """By directed link between brokers: events, and their bytes."""
        self.partials: dict[tuple[str, str], tuple[int, int]] = {}
        """… and the same of partials, where each collected value is a message."""
        self.control: dict[tuple[str, str], tuple[int, int]] = {}
        """… and of all other frames: who asks for what, and promises that no partial goes with."""

    def add(self, source: str, target: str, frame: Frame, *, came_again: bool) -> None:
        message = frame.message
        self.handled[type(message).__name__] += 1
        if isinstance(message, (m.Published, m.PublishEvents)):
            self.events += message.events.num_rows
        if isinstance(message, m.Subscribed):
            self.filters += len(message.added) + len(message.dropped)
        if not self._meters or came_again or source not in self._brokers:
            return
        link = source, target
        if isinstance(message, m.Published):
            _count(self.carried, link, message.events.num_rows, int(event_bytes(message.events).sum()))
            return
        if isinstance(message, m.Told) and message.advice == Aggregation.name and message.with_events:
            _, _, partials, *_ = msgspec.msgpack.decode(message.body)
            if partials:
                _count(self.partials, link, sum(one[3] for one in partials), sum(one[4] for one in partials))
                return
        _count(self.control, link, 1, len(message.body) if isinstance(message, m.Told) else len(encode(frame)))

    @property
    def frames(self) -> int:
        return self.handled.total()

    @property
    def messages(self) -> int:
        """Events and control frames: what the frames were about."""
        batches = sum(self.handled[kind.__name__] for kind in (m.Published, m.PublishEvents))
        return self.frames - batches + self.events


def _count(table: dict[tuple[str, str], tuple[int, int]], link: tuple[str, str], messages: int, size: int) -> None:
    before = table.get(link, (0, 0))
    table[link] = (before[0] + messages, before[1] + size)
