"""The gateway: what foreign publishers, who are no clients, post to a broker as JSON or Arrow."""

from catchment.broker.gateway.advice import LATE, UNPUBLISHED, Gateway
from catchment.broker.gateway.options import GatewayOptions

__all__ = ["LATE", "UNPUBLISHED", "Gateway", "GatewayOptions"]
