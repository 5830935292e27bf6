"""How long a broker takes for what it does, so that virtual time shows load."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from catchment.model.errors import ConfigurationError

__all__ = ["FREE", "ServiceTimes"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceTimes:
    """Microseconds of one core. `catchment calibrate` measures all but decisions on the machine at hand."""

    match_us: float = 0.0
    """To find out who wants an event."""
    add_us: float = 0.0
    """To add an event to the state of a slice."""
    merge_us: float = 0.0
    """To merge one state into another."""
    decide_us: float = 0.0
    """To ask a placement what shall become of a publication at a link."""
    send_us: float = 0.0
    """To take a message in and to send one message on."""

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if not value >= 0:
                raise ConfigurationError(f"{name} is {value}; accepted are numbers from 0 on")


FREE = ServiceTimes()
"""Nothing takes any time."""
