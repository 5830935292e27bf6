"""The shared store of a simulation: never loses what it has said, but may be slow, asked twice, or out of reach."""

from __future__ import annotations

from catchment.broker.store import KEYS_MAX, DeleteKey, ListKeys, StoreReply, StoreRequest, WriteKey

__all__ = ["STORE", "Store"]

STORE = "store"
"""Its name in traces, and at the end of links that are cut."""


class Store:
    """Versioned values by key."""

    def __init__(self) -> None:
        self.values: dict[str, tuple[int, bytes]] = {}
        self._version = 0
        """Of the last change to any key."""
        self.applied = 0

    def apply(self, request: StoreRequest) -> StoreReply:
        self.applied += 1
        if isinstance(request, ListKeys):
            found = sorted(key for key in self.values if key.startswith(request.key) and key > request.after)
            return StoreReply(
                request.number, None, 0, keys=tuple((key, self.values[key][0]) for key in found[:KEYS_MAX])
            )
        version, value = self.values.get(request.key, (0, None))
        if isinstance(request, WriteKey) and request.version == version:
            self._version += 1
            self.values[request.key] = (self._version, request.value)
            return StoreReply(request.number, request.value, self._version, written=True)
        if isinstance(request, DeleteKey) and request.version == version and value is not None:
            self._version += 1
            del self.values[request.key]
            return StoreReply(request.number, None, 0, written=True)
        return StoreReply(request.number, value, version)
