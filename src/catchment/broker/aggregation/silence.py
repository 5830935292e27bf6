"""Windows close although publishers are silent.

Where something waits for a time that does not come, those whose time is behind are asked for it, once; they ask on, and
answer by their promise when they can. A broker whose own publishers are silent lets its time go on by the clock.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from catchment.broker.advice import At
from catchment.broker.aggregation.clocks import NEVER, Clock
from catchment.broker.aggregation.timers import timer_key
from catchment.broker.peers import HERE

__all__ = ["Silence"]


class Silence:
    """Who waits for whom, about one topic."""

    def __init__(
        self, topic: str, key: str, clock: Clock, idle_after_us: int, open_ends: Callable[[], dict[str, int]]
    ) -> None:
        self._topic, self._key, self._clock, self._idle_after_us = topic, key, clock, idle_after_us
        self._open_ends = open_ends
        """Of each side for which something waits, the first end that it waits for."""
        self._watching = False
        self._sought: dict[str, int] = {}
        """Of each side for which something is open, up to where the others have been asked."""
        self._wanted: dict[str, int] = {}
        """Of each side, up to where it waits for the others."""

    def watch(self, at: At) -> None:
        """Look again when what is open should long have been closed."""
        if not self._watching:
            ends = [end_us for side, end_us in self._open_ends().items() if end_us > self._sought.get(side, NEVER)]
            if ends:
                self._watching = True
                at.wake(timer_key("watch", self._key, HERE), self._clock.patience_us(min(ends), at.now_us))

    def look(self, at: At) -> None:
        """Something may have waited too long: ask those whose time is behind."""
        self._watching = False
        late_us = at.now_us - self._clock.seen_at_us + self._clock.seen_us - self._idle_after_us
        for side, end_us in self._open_ends().items():
            if self._sought.get(side, NEVER) < end_us <= late_us:
                self._sought[side] = end_us
                self.want(at, end_us, side)

    def want(self, at: At, end_us: int, besides: str) -> None:
        """Ask all sides but one for a time that they have not promised: the one waits for it."""
        clock = self._clock
        if besides != HERE:
            self._wanted[besides] = max(self._wanted.get(besides, NEVER), end_us)
        for peer in sorted(at.advertisers(self._topic)):
            if peer == besides:
                continue
            if peer in at.neighbours:
                if clock.heard.get(peer, NEVER) < end_us:
                    at.tell(peer, ["want", self._key, end_us, at.now_us])
            elif clock.own_us() < end_us:
                clock.want(end_us)
        if clock.wanted_us > clock.own_us():
            at.wake(timer_key("idle", self._key, HERE), max(clock.idle_at_us(), at.now_us))

    def peers_changed(self, at: At) -> None:
        """Ask new publishers for the times that sides still wait for."""
        self._sought.clear()
        advertisers = at.advertisers(self._topic)
        for side, end_us in list(self._wanted.items()):
            if self._clock.watermark_us(advertisers, at.neighbours, side) < end_us:
                self.want(at, end_us, side)
            else:
                del self._wanted[side]

    def has_passed(self, at: At) -> bool:
        """Whether this broker's publishers have been silent for long enough; else it is seen to later."""
        clock = self._clock
        if clock.wanted_us <= clock.own_us():
            return False
        if at.now_us < clock.idle_at_us():
            at.wake(timer_key("idle", self._key, HERE), clock.idle_at_us())
            return False
        clock.advance_idle_clock()
        return True

    def saved(self) -> list[Any]:
        return [self._watching, dict(self._sought), dict(self._wanted)]

    def restore(self, saved: list[Any]) -> None:
        self._watching, sought, wanted = saved
        self._sought, self._wanted = dict(sought), dict(wanted)
