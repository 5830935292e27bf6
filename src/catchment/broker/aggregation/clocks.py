"""How far event time has come, on each side of a broker.

A *promise* from a neighbour says that no event before a time will come from its side any more, neither raw nor inside a
partial. A broker promises what all its other sides and its own publishers have promised. Who advertises nothing stands
in nobody's way.

Rule 1: an event before what was promised anywhere is late where it comes in, and goes nowhere.
Rule 2: who begins to advertise hears up to where time has been closed, and may publish nothing before that.
Rule 3: a broker whose publishers are silent lets its time go on by the clock, from its last event on, once somebody
        waits for it: so nobody sends anything while nothing is open.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from catchment.model.window import Window

__all__ = ["FOR_EVER", "NEVER", "Clock", "last_end_us"]

NEVER, FOR_EVER = -(2**62), 2**62


def last_end_us(windows: Iterable[Window], time_us: int) -> int:
    """The last end of a window up to a time."""
    return max((window.last_end_us(time_us) for window in windows), default=NEVER)


class Clock:
    """Event time of one topic at one broker."""

    def __init__(self, lateness_us: int, idle_after_us: int) -> None:
        self._lateness_us, self._idle_after_us = lateness_us, idle_after_us
        self.heard: dict[str, int] = {}
        """What neighbours have promised."""
        self.latest_us = NEVER
        """Of the events that came in here."""
        self.arrived_us = NEVER
        """When the last of them came, by this broker's clock."""
        self.past_us = NEVER
        """Of the events of publishers who have gone."""
        self.closed_us = NEVER
        """Up to where this broker has promised or closed anything, or has heard that others have."""
        self._idle_us = NEVER
        self.wanted_us = NEVER
        """Up to where other brokers, or clients here, wait for this broker's publishers."""
        self.seen_us = NEVER
        """Of all events that have passed."""
        self.seen_at_us = NEVER

    def follow(self, other: Clock) -> None:
        """Begin where another clock of the same topic is; what neighbours promise there, they promise there alone."""
        self.latest_us, self.arrived_us, self.past_us = other.latest_us, other.arrived_us, other.past_us
        self.closed_us, self.seen_us, self.seen_at_us = other.closed_us, other.seen_us, other.seen_at_us

    @property
    def known_us(self) -> int:
        """The last event that came in here, or that came from a side where nobody publishes any more."""
        return max(self.latest_us, self.past_us)

    def see(self, time_us: int, now_us: int) -> None:
        """An event has passed."""
        if time_us > self.seen_us:
            self.seen_us, self.seen_at_us = time_us, now_us

    def accept(self, time_us: int, now_us: int) -> None:
        """An event has come in here."""
        self.latest_us = max(self.latest_us, time_us)
        self.arrived_us = now_us

    def own_us(self, latest_us: int = NEVER) -> int:
        """What this broker's own publishers have promised, or would have if events up to a time had come in."""
        return max(max(self.latest_us, latest_us) - self._lateness_us, self._idle_us)

    def watermark_us(
        self, advertisers: Collection[str], neighbours: Collection[str], besides: str = "", *, latest_us: int = NEVER
    ) -> int:
        """What all sides but one have promised."""
        advertising = [peer for peer in neighbours if peer in advertisers]
        promised = [self.heard.get(peer, NEVER) for peer in advertising if peer != besides]
        if len(advertisers) > len(advertising):
            promised.append(self.own_us(latest_us))
        return max(min(promised, default=FOR_EVER), NEVER)

    # -- silence ----------------------------------------------------------------------------------------------------

    def patience_us(self, end_us: int, now_us: int) -> int:
        """Expected arrival of a time plus `idle_after_us`: at the clock's pace, from the last time that has passed."""
        return max(now_us, self.seen_at_us + end_us - self.seen_us + self._idle_after_us)

    def want(self, end_us: int) -> None:
        self.wanted_us = max(self.wanted_us, end_us)

    def idle_at_us(self) -> int:
        """When this broker's own time has come to what is wanted, if nothing comes in until then."""
        if self.latest_us == NEVER:
            return self.arrived_us + self._idle_after_us
        return self.arrived_us + max(self.wanted_us - self.latest_us + self._lateness_us, self._idle_after_us)

    def advance_idle_clock(self) -> None:
        """Let time pass up to what is wanted: nothing has come in until then."""
        self._idle_us = max(self._idle_us, self.wanted_us)

    # -- memory -----------------------------------------------------------------------------------------------------

    def saved(self) -> list[Any]:
        return [
            dict(self.heard), self.latest_us, self.arrived_us, self.past_us, self.closed_us, self._idle_us,
            self.wanted_us, self.seen_us, self.seen_at_us,
        ]  # fmt: skip

    def restore(self, saved: list[Any]) -> None:
        (
            heard, self.latest_us, self.arrived_us, self.past_us, self.closed_us, self._idle_us, self.wanted_us,
            self.seen_us, self.seen_at_us,
          ) = saved  # fmt: skip
        self.heard = dict(heard)
