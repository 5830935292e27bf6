"""Everything that may go wrong in a simulation, in one value."""

from __future__ import annotations

from dataclasses import dataclass

from catchment.broker.hosting import Limits
from catchment.model.errors import ConfigurationError
from catchment.simulation.service import FREE, ServiceTimes

__all__ = ["CALM", "Options"]

LIMITS = Limits()


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Network, store, crashes and clocks. All chances are drawn from the seed."""

    delay_us_min: int = 100
    delay_us_max: int = 2_000
    bytes_per_s: int | None = None
    """Of each link and direction; None is no limit."""
    in_flight_max: int = 1_000
    """Frames that a link takes before the first of them has arrived; the rest waits in outboxes."""
    step_max: int = 1
    """Inputs that a broker handles in one step: so many, or as many as wait, or by chance fewer."""
    step_delay_us_max: int = 0
    """How long a broker may let inputs wait for others."""
    limits: Limits = LIMITS
    """What may wait in outboxes."""
    service: ServiceTimes = FREE
    duplicates: float = 0.0
    """The share of frames, and of requests to the store, that come twice."""
    drops: float = 0.0
    """The share of transmissions that are lost; what is lost is sent again after `retransmit_us`."""
    retransmit_us: int = 5_000
    crashes: float = 0.0
    """The chance, at each step of a story, that a broker crashes; it is back after at most `down_us_max`."""
    kills: float = 0.0
    """The chance that a broker crashes within a step: before it, or between any two peers that its output is for."""
    partitions: float = 0.0
    """The chance, at each step of a story, that a link carries nothing for at most `down_us_max`."""
    down_us_max: int = 50_000
    clock_skew_us_max: int = 0
    """By how much the clock of a broker may be wrong."""
    snapshot_every: int | None = 20
    """Steps of a broker between two times that it writes down what it must remember; None where nobody crashes."""

    def __post_init__(self) -> None:
        for name in ("duplicates", "drops", "crashes", "kills", "partitions"):
            if not 0 <= getattr(self, name) < 1:
                raise ConfigurationError(f"{name} is {getattr(self, name)}; accepted are shares from 0 to below 1")
        if not 0 <= self.delay_us_min <= self.delay_us_max:
            raise ConfigurationError(
                f"delays are {self.delay_us_min} to {self.delay_us_max}; accepted is a rising pair from 0 on"
            )
        for name in ("clock_skew_us_max", "step_delay_us_max"):
            if getattr(self, name) < 0:
                raise ConfigurationError(f"{name} is {getattr(self, name)}; accepted are numbers from 0 on")
        for name in ("retransmit_us", "snapshot_every", "down_us_max", "in_flight_max", "step_max"):
            if getattr(self, name) is not None and getattr(self, name) < 1:
                raise ConfigurationError(f"{name} is {getattr(self, name)}; accepted are numbers from 1 on")
        if self.bytes_per_s is not None and self.bytes_per_s < 1:
            raise ConfigurationError(f"bytes_per_s is {self.bytes_per_s}; accepted are numbers from 1 on, or None")


CALM = Options()
"""Delays, and no faults."""
