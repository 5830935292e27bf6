"""What a streaming job remembers between micro-batches, and how it moves on.

    changes/00000003   version 3: what was subscribed and unsubscribed
    pins/…12           batch 12 runs with version 3, and began at this moment
    ledger/…12         where batch 12 left off: clocks, watermark, live state
    placing/…12        what the placement had learned and held by then, where it learns or holds

Rule 1: a pin is written before anything of its batch runs, so that a re-run sees the same subscriptions and time.
Rule 2: the ledger of a batch follows from the ledger before it, its pin and its events alone.
Rule 3: the ledger of a batch knows every file that the next one reads.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import msgspec

from catchment.model.window import Window
from catchment.pipeline.integrity import KnownFile

__all__ = [
    "Change",
    "Clock",
    "JobRecord",
    "Ledger",
    "LiveState",
    "Moved",
    "Pin",
    "Step",
    "SubscriptionText",
    "Version",
    "closes_any",
    "moved_on",
]


MISSED_ARRIVALS = 2
"""A broker is idle once it has missed so many."""
FORGOTTEN_AFTER_GAPS = 20
PATIENCE_MAX = 10
"""No broker is waited for longer than so many times `idle_after`, whatever was learned."""


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
    versions: int = 0
    """How many versions there are at least: one more may have been written just before a crash."""


class Version(msgspec.Struct, frozen=True):
    """What makes one version of the subscriptions from the one before it."""

    changes: tuple[Change, ...]
    follows: str
    """The checksum of the version before, so that none can be missing in between."""


class Pin(msgspec.Struct, frozen=True):
    version: int
    began_us: int
    """By the driver's clock; a re-run keeps it."""
    resumed_us: int
    """When the job was last started: silence before that was ours, not a broker's."""
    offsets: str | None = None
    """The checksum of what Spark had noted down to read."""
    sources: tuple[KnownFile, ...] = ()
    """The files that the sources in Spark's checkpoint would start from."""
    idle_after_us: int | None = None
    """As the job was told when the batch began: another start may be told otherwise."""
    whole_from_us: int | None = None
    """Of the first batch: from when on the publications are whole; None is from the first."""


class Clock(msgspec.Struct, frozen=True):
    """What is known of a broker's time."""

    latest_us: int
    heard_us: int
    """When, by the driver's clock, it was last heard of."""
    gap_us: int = 0
    """The longest silence between arrivals of late; forgotten linearly, over 20 times as long."""


class LiveState(msgspec.Struct, frozen=True):
    """A folder of partials, and the watermark from which on no open window needs it."""

    folder: str
    until_us: int
    files: tuple[KnownFile, ...] = ()
    is_large: bool = False
    """Whether a total in it might pass its type, alone or merged with others."""


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
    first_heard_us: int | None = None
    """When, by the driver's clock, the first event of all came."""
    steps: tuple[Step, ...] = ()
    live: tuple[LiveState, ...] = ()
    seen: tuple[KnownFile, ...] | None = None
    """The files that say which events a later one may repeat; None where nobody asks."""
    placing: str | None = None
    """The checksum of what the placement had learned, where it learns."""
    events: int = 0
    dropped: int = 0
    rejected: int = 0
    repeated: int = 0
    """Publications left out as repeats of an event."""
    overflows: int = 0
    """Values reported as beyond their type."""
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


class Moved(msgspec.Struct, frozen=True):
    """Where a batch brings the time."""

    clocks: dict[str, Clock]
    watermark_us: int | None
    latest_us: int | None
    first_heard_us: int | None


def moved_on(
    before: Ledger,
    pin: Pin,
    heard: Mapping[str, tuple[int, int]],
    *,
    lateness_us: int,
    idle_after_us: int | None,
    expected: Collection[str] = (),
) -> Moved:
    """Time after a batch that heard from some brokers, and of `expected` ones if all that may speak are known.

    The watermark is the least of the brokers' times, less the lateness; it never goes back. There is none in the first
    `idle_after_us` after the first event, unless all expected brokers were heard: what a broker of which nothing is
    known brings first may be as old as that.
    """
    clocks = dict(before.clocks)
    for broker, (latest_us, _) in heard.items():
        clocks[broker] = _heard_again(clocks.get(broker), latest_us, pin, idle_after_us)
    first_us = before.first_heard_us
    if first_us is None and heard:
        first_us = pin.began_us
    watermark_us = before.watermark_us
    may_miss_some = not expected or not clocks.keys() >= set(expected)
    is_early = first_us is not None and pin.began_us - max(first_us, pin.resumed_us) < (idle_after_us or 0)
    if clocks and (watermark_us is not None or not (may_miss_some and is_early)):
        reached = min(_time_us(clock, pin, idle_after_us) for clock in clocks.values()) - lateness_us
        watermark_us = reached if watermark_us is None else max(watermark_us, reached)
    latest = max((clock.latest_us for clock in clocks.values()), default=None)
    return Moved(clocks, watermark_us, latest, first_us)


def _silent_us(clock: Clock, pin: Pin) -> int:
    return max(0, pin.began_us - max(clock.heard_us, pin.resumed_us))


def _heard_again(known: Clock | None, latest_us: int, pin: Pin, idle_after_us: int | None) -> Clock:
    """The clock of a broker whose events came; how often they come is learned, beginning with a cautious guess."""
    if known is None:
        return Clock(latest_us, pin.began_us, (idle_after_us or 0) // MISSED_ARRIVALS)
    silent_us = _silent_us(known, pin)
    gap_us = max(silent_us, known.gap_us - silent_us // FORGOTTEN_AFTER_GAPS)
    return Clock(max(latest_us, known.latest_us), pin.began_us, gap_us)


def _time_us(clock: Clock, pin: Pin, idle_after_us: int | None) -> int:
    """A broker's time: its latest event, or, once it has missed two arrivals, what the driver's clock makes of it.

    A source that lands in lumps brings the events of the time since its last arrival. So the time of a silent broker
    stays two gaps behind the driver's clock, and what it brings when it speaks again is not late.
    """
    if idle_after_us is None:
        return clock.latest_us
    silent_us = _silent_us(clock, pin)
    behind_us = min(MISSED_ARRIVALS * clock.gap_us, PATIENCE_MAX * idle_after_us)
    is_idle = silent_us >= max(idle_after_us, behind_us)
    return clock.latest_us + silent_us - behind_us if is_idle else clock.latest_us


def closes_any(window: Window, after_us: int | None, until_us: int | None) -> bool:
    """Whether some window ends later than `after_us` and no later than `until_us`."""
    if until_us is None or after_us is None:
        return until_us is not None
    first, behind = window.ending_within(after_us, until_us)
    return first < behind
