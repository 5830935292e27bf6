"""How brokers of one overlay aggregate."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from typing import Literal

from catchment.model.errors import ConfigurationError
from catchment.overlay.placement import MESSAGES, PERIOD_US, Chosen, Cost, Strategy

__all__ = ["COLLECTION_US", "AggregationOptions", "Delivery"]

Delivery = Literal["final", "revisions"]
COLLECTION_US = (10_000, 50_000)
"""Between what the collection delay varies in the paper."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AggregationOptions:
    """What all brokers agree on."""

    placement: Chosen | str = "early"
    delivery: Delivery = "final"
    lateness_us: int = 0
    """How far behind the latest event of a broker another one may still come."""
    idle_after_us: int = 10_000_000
    """How long a broker's publishers are silent before its time goes on by the clock."""
    sampling_period_us: int = PERIOD_US
    cost: Cost = MESSAGES
    """What an adaptive placement weighs."""
    collection_us: int | tuple[int, int] = COLLECTION_US
    """How long partials are collected before they go on, with revisions: always the same, or between two bounds."""
    memory_bytes_max: int = 2**30
    """What the open windows of one subscription and group may take at a broker: more is refused. If those of a topic
    take more all together, that is reported."""

    def __post_init__(self) -> None:
        if self.delivery not in ("final", "revisions"):
            raise ConfigurationError(f"delivery is {self.delivery!r}; accepted are 'final' and 'revisions'")
        if self.lateness_us < 0:
            raise ConfigurationError(f"lateness_us is {self.lateness_us}; accepted are numbers from 0 on")
        for name in ("idle_after_us", "sampling_period_us", "memory_bytes_max"):
            if getattr(self, name) < 1:
                raise ConfigurationError(f"{name} is {getattr(self, name)}; accepted are numbers from 1 on")
        self.strategy()
        low, high = self.collection_us if isinstance(self.collection_us, tuple) else (self.collection_us,) * 2
        if not 0 <= low <= high:
            raise ConfigurationError(f"collection_us is {self.collection_us}; accepted is a rising pair from 0 on")

    def strategy(self) -> Strategy:
        return Strategy.online(self.placement, self.sampling_period_us, self.cost)

    @property
    def revises(self) -> bool:
        return self.delivery == "revisions"

    def collection_delay_us(self, broker: str, end_us: int) -> int:
        """How long a broker collects what belongs to windows that end then: spread evenly, and not by chance."""
        if isinstance(self.collection_us, int):
            return self.collection_us
        low, high = self.collection_us
        digest = blake2b(f"{broker} {end_us}".encode(), digest_size=8).digest()
        return low + int.from_bytes(digest, "little") % (high - low + 1)
