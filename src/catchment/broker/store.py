"""What a broker asks of the shared store, and what it hears: versioned values, written only where nobody came between.

Rule 1: a write or a deletion names the version that it replaces, 0 for a key that is not there. If the version is
        another one, nothing changes and the reply says what is there.
Rule 2: versions rise over all keys, so that a key that was deleted and written again never has an old version.
Rule 3: a request may reach the store more than once, when its reply was lost or its broker crashed. The reply to the
        second write says that it was not written, with its own value as what is there; that to the second deletion says
        that nothing is there. The writer must look at the value.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec

__all__ = ["KEYS_MAX", "DeleteKey", "ListKeys", "ReadKey", "Requests", "StoreReply", "StoreRequest", "WriteKey"]

KEYS_MAX = 1_000
"""Keys that one reply lists; whoever wants more asks again, after the last of them."""


class _Request(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The base of all requests. A reply has the number of its request."""

    number: int
    key: str
    """Or the prefix of keys."""


class ReadKey(_Request, frozen=True):
    """Say what is at a key."""

    def __str__(self) -> str:
        return f"read {self.key}"


class WriteKey(_Request, frozen=True):
    """Put a value over a version."""

    value: bytes
    version: int

    def __str__(self) -> str:
        return f"write {self.key} over version {self.version}"


class DeleteKey(_Request, frozen=True):
    """Take a version of a key out."""

    version: int

    def __str__(self) -> str:
        return f"delete {self.key} at version {self.version}"


class ListKeys(_Request, frozen=True):
    """Say which keys begin with a prefix, in their order, behind one that is known."""

    after: str = ""

    def __str__(self) -> str:
        return f"list {self.key}*" + f" after {self.after}" * bool(self.after)


StoreRequest = ReadKey | WriteKey | DeleteKey | ListKeys


@dataclass(frozen=True, slots=True)
class StoreReply:
    """What is there now, and whether a write or a deletion took effect."""

    number: int
    value: bytes | None
    version: int
    written: bool = False
    keys: tuple[tuple[str, int], ...] = ()
    """Keys and their versions, for a request that lists them."""

    def __str__(self) -> str:
        listed = f", keys {' '.join(key for key, _ in self.keys)}" if self.keys else ""
        return f"version {self.version}" + ", written" * self.written + listed


@dataclass(slots=True)
class Requests:
    """The requests of one broker that have no reply yet."""

    last: int = 0
    open: dict[int, tuple[str, StoreRequest]] = field(default_factory=dict)
    """By number: the advice that asked, and the request."""
    _untaken: list[int] = field(default_factory=list)

    def next_number(self) -> int:
        self.last += 1
        return self.last

    def add(self, advice: str, request: StoreRequest) -> None:
        self.open[request.number] = (advice, request)
        self._untaken.append(request.number)

    def forget(self, advice: str) -> None:
        """Wait for no reply to an advice any more."""
        self.open = {number: one for number, one in self.open.items() if one[0] != advice}

    def take(self) -> tuple[StoreRequest, ...]:
        taken, self._untaken = self._untaken, []
        return tuple(self.open[number][1] for number in taken if number in self.open)

    def saved(self) -> tuple[Any, ...]:
        return self.last, tuple(self.open.values())

    def restore(self, saved: list[Any]) -> None:
        """Go on after a crash: everything without a reply is asked again."""
        self.last, open_requests = saved
        several = [(advice, msgspec.convert(one, StoreRequest)) for advice, one in open_requests]
        self.open = {request.number: (advice, request) for advice, request in several}
        self.ask_open()

    def ask_open(self) -> None:
        """Ask everything again that has no reply."""
        self._untaken = sorted(self.open)
