"""Links that lose, repeat and delay, and in the end deliver everything in order: what a durable log between two gives.

Rule 1: on one link and traffic class frames arrive in the order in which they were sent.
Rule 2: what cannot be delivered, because it was lost, the link is cut or the receiver is down or full, is tried again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from random import Random

from catchment.broker import Frame, encode
from catchment.simulation.options import Options
from catchment.simulation.timeline import Timeline

__all__ = ["Network"]

Deliver = Callable[[str, str, Frame], bool]
"""Source, target and frame; whether the target has taken it."""


class Network:
    """All links of a simulation."""

    def __init__(self, timeline: Timeline, random: Random, options: Options, deliver: Deliver) -> None:
        self._timeline, self._random, self._options, self._deliver = timeline, random, options, deliver
        self._links: dict[tuple[str, str, bool], _Link] = {}
        self._cut_until_us: dict[frozenset[str], int] = {}
        self.waiting_max = 0
        """The most frames that ever waited on one link."""

    def send(self, source: str, target: str, frame: Frame) -> None:
        key = (source, target, frame.message.is_event)
        link = self._links.setdefault(key, _Link())
        times = 2 if self._random.random() < self._options.duplicates else 1
        for _ in range(times):
            link.frames.append((self._arrival_us(link, frame), frame))
        self.waiting_max = max(self.waiting_max, len(link.frames))
        if not link.is_pumping:
            link.is_pumping = True
            self._timeline.at(link.frames[0][0], lambda: self._pump(key))

    def cut(self, one: str, other: str, until_us: int) -> None:
        """Let the link between two carry nothing until a time."""
        self._cut_until_us[frozenset((one, other))] = until_us

    @property
    def is_empty(self) -> bool:
        return not any(link.frames for link in self._links.values())

    def _arrival_us(self, link: _Link, frame: Frame) -> int:
        options = self._options
        arrival_us = self._timeline.now_us + self._random.randint(options.delay_us_min, options.delay_us_max)
        while self._random.random() < options.drops:
            arrival_us += options.retransmit_us
        if options.bytes_per_s is not None:
            begin_us = max(link.busy_until_us, self._timeline.now_us)
            link.busy_until_us = begin_us + len(encode(frame)) * 1_000_000 // options.bytes_per_s
            arrival_us += link.busy_until_us - self._timeline.now_us
        return arrival_us

    def _pump(self, key: tuple[str, str, bool]) -> None:
        source, target, _ = key
        link = self._links[key]
        cut_until_us = self._cut_until_us.get(frozenset((source, target)), 0)
        if cut_until_us > self._timeline.now_us or not self._deliver(source, target, link.frames[0][1]):
            again_us = max(cut_until_us, self._timeline.now_us + self._options.retransmit_us)
            self._timeline.at(again_us, lambda: self._pump(key))
            return
        link.frames.popleft()
        if link.frames:
            self._timeline.at(link.frames[0][0], lambda: self._pump(key))
        else:
            link.is_pumping = False


class _Link:
    def __init__(self) -> None:
        self.frames: deque[tuple[int, Frame]] = deque()
        self.is_pumping = False
        self.busy_until_us = 0
