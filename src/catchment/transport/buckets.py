"""Values by key on a server, written with test-and-set: leases, descriptions, what brokers share.

A bucket is a stream that keeps the newest message of each subject: what other NATS clients know as key-value.
The version of a value is its position in the stream, so that versions rise over all keys.
"""

from __future__ import annotations

from dataclasses import dataclass

from catchment.broker.store import KEYS_MAX, DeleteKey, ListKeys, StoreReply, StoreRequest, WriteKey
from catchment.transport.jetstream import JetStream, WrongPositionError
from catchment.transport.names import token, untoken

__all__ = ["Bucket", "Entry", "apply_request"]

_OPERATION = "KV-Operation"
_DELETED = "DEL"


@dataclass(frozen=True, slots=True)
class Entry:
    """What is at a key."""

    value: bytes | None
    """None if it was deleted, or never there."""
    version: int
    """Of the last change; 0 if there was none."""


class Bucket:
    """One bucket; keys may be any text."""

    def __init__(self, streams: JetStream, name: str) -> None:
        self._streams, self._name = streams, name

    @property
    def stream(self) -> str:
        return f"KV_{self._name}"

    def subject(self, key: str) -> str:
        return f"$KV.{self._name}.{token(key)}"

    async def create(self) -> None:
        """Create the bucket, if it is not there."""
        await self._streams.create(
            self.stream, [f"$KV.{self._name}.>"], max_msgs_per_subject=1, allow_rollup_hdrs=True, deny_delete=True
        )

    async def read(self, key: str) -> Entry:
        stored = await self._streams.last(self.stream, self.subject(key))
        if stored is None:
            return Entry(None, 0)
        is_deleted = stored.headers.get(_OPERATION) == _DELETED
        return Entry(None if is_deleted else stored.data, stored.position)

    async def write(self, key: str, value: bytes, over: int | None = None) -> int:
        """Put a value over a version, or over any; its version. Another version is a WrongPositionError."""
        return await self._streams.store(self.subject(key), value, after_of_subject=over)

    async def delete(self, key: str, over: int) -> int:
        return await self._streams.store(self.subject(key), b"", after_of_subject=over, headers={_OPERATION: _DELETED})

    async def keys(self) -> list[str]:
        """All keys that were ever written, rising."""
        found = await self._streams.subjects(self.stream, f"$KV.{self._name}.>")
        return sorted(untoken(subject.rpartition(".")[2]) for subject in found)


async def apply_request(bucket: Bucket, request: StoreRequest) -> StoreReply:
    """Carry out what a broker asks of the shared store."""
    if isinstance(request, ListKeys):
        wanted = (key for key in await bucket.keys() if key.startswith(request.key) and key > request.after)
        listed: list[tuple[str, int]] = []
        for key in wanted:
            entry = await bucket.read(key)
            if entry.value is not None:
                listed.append((key, entry.version))
            if len(listed) == KEYS_MAX:
                break
        return StoreReply(request.number, None, 0, keys=tuple(listed))
    entry = await bucket.read(request.key)
    version = 0 if entry.value is None else entry.version
    try:
        if isinstance(request, WriteKey) and request.version == version:
            written = await bucket.write(request.key, request.value, entry.version)
            return StoreReply(request.number, request.value, written, written=True)
        if isinstance(request, DeleteKey) and request.version == version and version:
            await bucket.delete(request.key, entry.version)
            return StoreReply(request.number, None, 0, written=True)
    except WrongPositionError:
        entry = await bucket.read(request.key)
        version = 0 if entry.value is None else entry.version
    return StoreReply(request.number, entry.value, version)
