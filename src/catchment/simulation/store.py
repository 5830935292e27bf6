"""The shared store of a simulation: never loses what it has said, but may be slow, asked twice, or out of reach."""

from __future__ import annotations

from catchment.broker.store import StoreReply, StoreRequest

__all__ = ["STORE", "Store"]

STORE = "store"
"""Its name in traces, and at the end of links that are cut."""


class Store:
    """Versioned values by key."""

    def __init__(self) -> None:
        self.values: dict[str, tuple[int, bytes]] = {}
        self.applied = 0

    def apply(self, request: StoreRequest) -> StoreReply:
        self.applied += 1
        version, value = self.values.get(request.key, (0, None))
        if request.value is None or request.version != version:
            return StoreReply(request.number, value, version)
        self.values[request.key] = (version + 1, request.value)
        return StoreReply(request.number, request.value, version + 1, written=True)
