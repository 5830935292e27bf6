"""How the gateway of a broker behaves."""

from __future__ import annotations

from dataclasses import dataclass

from catchment.model.errors import ConfigurationError

__all__ = ["GatewayOptions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayOptions:
    """What the gateways of one overlay agree on."""

    lease_us: int = 30_000_000
    """How long a topic stays advertised after the last post: what windows may wait for a device that has vanished."""
    held_bytes_max: int = 16_000_000
    """Of events that wait for the confirmation of an advertisement; more are refused."""

    def __post_init__(self) -> None:
        for name in ("lease_us", "held_bytes_max"):
            if getattr(self, name) < 1:
                raise ConfigurationError(f"{name} is {getattr(self, name)}; accepted are numbers from 1 on")
