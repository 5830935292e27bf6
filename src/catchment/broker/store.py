"""What a broker asks of the shared store, and what it hears: versioned values, written only where nobody came between.

Rule 1: a write names the version that it replaces, 0 for a key that is not there. If the version is another one,
        nothing is written and the reply says what is there.
Rule 2: a request may reach the store more than once, when its reply was lost or its broker crashed. A write that took
        effect is then told as one that did not, with its own value as what is there: whoever writes must look.
"""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["Requests", "StoreReply", "StoreRequest"]


@dataclass(frozen=True, slots=True)
class StoreRequest:
    """Read a key; or, with a value, write it."""

    number: int
    key: str
    value: bytes | None = None
    version: int = 0
    """Of what a write replaces."""

    def __str__(self) -> str:
        return f"read {self.key}" if self.value is None else f"write {self.key} over version {self.version}"


@dataclass(frozen=True, slots=True)
class StoreReply:
    """What is there now, and whether a write took effect."""

    number: int
    value: bytes | None
    version: int
    written: bool = False

    def __str__(self) -> str:
        return f"version {self.version}" + (", written" if self.written else "")


@dataclass(slots=True)
class Requests:
    """The requests of one broker that have no reply yet."""

    last: int = 0
    open: dict[int, tuple[str, StoreRequest]] = field(default_factory=dict)
    """By number: the advice that asked, and the request."""
    _untaken: list[int] = field(default_factory=list)

    def add(self, advice: str, key: str, value: bytes | None, version: int) -> None:
        self.last += 1
        self.open[self.last] = (advice, StoreRequest(self.last, key, value, version))
        self._untaken.append(self.last)

    def take(self) -> tuple[StoreRequest, ...]:
        taken, self._untaken = self._untaken, []
        return tuple(self.open[number][1] for number in taken if number in self.open)

    def recall(self, last: int, open_requests: dict[int, tuple[str, StoreRequest]]) -> None:
        """Go on after a crash: everything without a reply is asked again."""
        self.last, self.open, self._untaken = last, open_requests, sorted(open_requests)
