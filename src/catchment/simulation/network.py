"""Links that lose, repeat and delay, and in the end deliver everything in order: what a durable log between two gives.

Rule 1: on one link frames arrive in the order in which they were sent.
Rule 2: what cannot be delivered, because it was lost, the link is cut or the receiver does not read, is tried again.
Rule 3: a link takes only so many frames at a time; what it does not take waits with its sender.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from random import Random

from catchment.simulation.options import Options
from catchment.simulation.timeline import Timeline

__all__ = ["Network"]

Deliver = Callable[[str, str, bytes], int | None]
"""Source, target and frame; None if the target has taken it, else when to try again."""


class Network:
    """All links of a simulation. `made_room` hears of a link that has room again."""

    def __init__(
        self,
        timeline: Timeline,
        random: Random,
        options: Options,
        deliver: Deliver,
        made_room: Callable[[str, str], None],
    ) -> None:
        self._timeline, self._random, self._options = timeline, random, options
        self._deliver, self._made_room = deliver, made_room
        self._links: dict[tuple[str, str], _Link] = {}
        self._cut_until_us: dict[frozenset[str], int] = {}
        self._under_way = 0

    def has_room(self, source: str, target: str) -> bool:
        """Whether a link would take a frame now."""
        link = self._links.get((source, target))
        return link is None or len(link.frames) < self._options.in_flight_max

    def send(self, source: str, target: str, data: bytes) -> None:
        key = (source, target)
        link = self._links.get(key)
        if link is None:
            link = self._links[key] = _Link()
        chance, options = self._random.random, self._options
        for _ in range(2 if options.duplicates and chance() < options.duplicates else 1):
            link.frames.append((self._arrival_us(link, data), data))
            self._under_way += 1
        if not link.is_pumping:
            link.is_pumping = True
            self._timeline.at(link.frames[0][0], lambda: self._pump(key, link))

    def cut(self, one: str, other: str, until_us: int) -> None:
        """Let the link between two carry nothing until a time."""
        self._cut_until_us[frozenset((one, other))] = until_us

    def cut_until_us(self, one: str, other: str) -> int:
        return self._cut_until_us.get(frozenset((one, other)), 0) if self._cut_until_us else 0

    @property
    def is_empty(self) -> bool:
        return not self._under_way

    def _arrival_us(self, link: _Link, data: bytes) -> int:
        options = self._options
        arrival_us = self._timeline.now_us + self._random.randint(options.delay_us_min, options.delay_us_max)
        while options.drops and self._random.random() < options.drops:
            arrival_us += options.retransmit_us
        if options.bytes_per_s is not None:
            begin_us = max(link.busy_until_us, self._timeline.now_us)
            link.busy_until_us = begin_us + len(data) * 1_000_000 // options.bytes_per_s
            arrival_us += link.busy_until_us - self._timeline.now_us
        return arrival_us

    def _pump(self, key: tuple[str, str], link: _Link) -> None:
        source, target = key
        again_us: int | None = self.cut_until_us(source, target)
        if again_us is None or again_us <= self._timeline.now_us:
            again_us = self._deliver(source, target, link.frames[0][1])
        if again_us is not None:
            self._timeline.at(again_us, lambda: self._pump(key, link))
            return
        link.frames.popleft()
        self._under_way -= 1
        if link.frames:
            self._timeline.at(link.frames[0][0], lambda: self._pump(key, link))
        else:
            link.is_pumping = False
        self._made_room(source, target)


class _Link:
    def __init__(self) -> None:
        self.frames: deque[tuple[int, bytes]] = deque()
        self.is_pumping = False
        self.busy_until_us = 0
