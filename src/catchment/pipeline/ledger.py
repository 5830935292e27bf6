"""What a streaming job remembers between micro-batches, and how it moves on.

    changes/00000003   version 3: what was subscribed and unsubscribed
    pins/…12           batch 12 runs with version 3, and began at this moment
    ledger/…12         where batch 12 left off: clocks, watermark, live state
    placing/…12        what the placement had learned and held by then, where it learns or holds

Rule 1: a pin is written before anything of its batch runs, so that a re-run sees the same subscriptions and time.
Rule 2: the ledger of a batch follows from the ledger before it, its pin and its events alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from catchment.model.window import Window

__all__ = [
    "Change",
    "Clock",
    "JobRecord",
    "Ledger",
    "LiveState",
    "Pin",
    "Step",
    "SubscriptionText",
    "closes_any",
    "moved_on",
]


class SubscriptionText(msgspec.Struct, frozen=True):
    name: str
    sql: str
    at: str | None = None


class Change(msgspec.Struct, frozen=True, omit_defaults=True):
    """One subscription more or one less."""

    subscribe: SubscriptionText | None = None
    unsubscribe: str | None = None


class JobRecord(msgspec.Struct, frozen=True):
    """What makes a job this job: with other settings its state would mean something else."""

    format: int
    settings: dict[str, Any]
    declared: tuple[SubscriptionText, ...]
    """The subscriptions it was started with; on a restart with others, the difference is a change."""


class Pin(msgspec.Struct, frozen=True):
    version: int
    began_us: int
    """By the driver's clock; a re-run keeps it."""
    resumed_us: int
    """When the job was last started: silence before that was ours, not a broker's."""


class Clock(msgspec.Struct, frozen=True):
    """What is known of a broker's time."""

    latest_us: int
    heard_us: int
    """When, by the driver's clock, it was last heard of."""


class LiveState(msgspec.Struct, frozen=True):
    """A folder of partials, and the watermark from which on no open window needs it."""

    folder: str
    until_us: int


class Step(msgspec.Struct, frozen=True):
    """A version that a batch was the first to run with, and the first moment that it may ask about."""

    version: int
    batch: int
    since_us: int | None


class Ledger(msgspec.Struct, frozen=True):
    batch: int = -1
    clocks: dict[str, Clock] = {}
    watermark_us: int | None = None
    latest_us: int | None = None
    steps: tuple[Step, ...] = ()
    live: tuple[LiveState, ...] = ()
    events: int = 0
    dropped: int = 0
    rejected: int = 0
    repeated: int = 0
    """Publications left out as repeats of an event."""
    transitions: int = 0
    """How often brokers have changed their mind under the placement."""
    ended: bool = False

    def since_us(self, incarnation: int) -> int | None:
        """From when on the windows of a subscription of this incarnation count."""
        return next((step.since_us for step in self.steps if step.version >= incarnation), None)

    @property
    def version(self) -> int:
        """The version that the last batch ran with; 0 before the first."""
        return self.steps[-1].version if self.steps else 0


def moved_on(
    before: Ledger,
    pin: Pin,
    heard: Mapping[str, tuple[int, int]],
    *,
    lateness_us: int,
    idle_after_us: int | None,
) -> tuple[dict[str, Clock], int | None, int | None]:
    """Clocks, watermark and latest time stamp after a batch.

    The watermark is the least of the brokers' times, less the lateness. A broker silent for longer than `idle_after_us`
    advances with the driver's clock, so that the windows of the others can close; it never goes back.
    """
    clocks = dict(before.clocks)
    for broker, (latest_us, _) in heard.items():
        known = clocks.get(broker)
        clocks[broker] = Clock(max(latest_us, known.latest_us) if known else latest_us, pin.began_us)
    times = []
    for clock in clocks.values():
        silent_us = pin.began_us - max(clock.heard_us, pin.resumed_us)
        is_idle = idle_after_us is not None and silent_us >= idle_after_us
        times.append(clock.latest_us + silent_us if is_idle else clock.latest_us)
    watermark_us = before.watermark_us
    if times:
        reached = min(times) - lateness_us
        watermark_us = reached if watermark_us is None else max(watermark_us, reached)
    latest = max((clock.latest_us for clock in clocks.values()), default=None)
    return clocks, watermark_us, latest


def closes_any(window: Window, after_us: int | None, until_us: int | None) -> bool:
    """Whether some window ends later than `after_us` and no later than `until_us`."""
    if until_us is None or after_us is None:
        return until_us is not None
    return (until_us - window.size_us) // window.shift_us > (after_us - window.size_us) // window.shift_us
