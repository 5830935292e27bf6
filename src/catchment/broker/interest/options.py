"""How brokers work out interest."""

from __future__ import annotations

from dataclasses import dataclass

from catchment.broker.interest.slack import DIVISIONS, Division
from catchment.model.errors import ConfigurationError

__all__ = ["InterestOptions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class InterestOptions:
    """What all brokers of an overlay agree on."""

    division: Division = "leaves"
    """How brokers divide a client's tolerance: all of it to the leaves, or evenly, as the paper has it."""
    questions_max: int = 10_000
    """How many different questions one broker answers at a time."""

    def __post_init__(self) -> None:
        if self.division not in DIVISIONS:
            raise ConfigurationError(f"division is {self.division!r}; accepted are {' and '.join(DIVISIONS)}")
        if self.questions_max < 1:
            raise ConfigurationError(f"questions_max is {self.questions_max}; accepted is at least 1")
