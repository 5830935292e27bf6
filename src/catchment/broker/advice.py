"""Joinpoints, and the advice attached to them: ASIA's table 1.

An advice is a class with methods named like joinpoints. Each is called in place of the broker's own step, with what the
step would get, and `proceed`, which goes on: to the next advice on the same joinpoint, in the order in which they were
attached, and at last to the broker's own step. What it returns stands in for what the step returns.

    class Shout(Advice):
        name = "shout"

        def sub_add(self, at, proceed, topic, condition, peer):
            before = proceed()                          # or proceed(topic, another, peer), or not at all
            at.state["heard"] = at.state.get("heard", 0) + 1
            return before

Rule 1: an advice that raises is reported, and the broker goes on as if the advice had only said `proceed()`. What it
        had asked for in that call, messages and timers, is forgotten.
Rule 2: an advice keeps what it must remember in `at.state`, which is part of the broker's state and survives a crash.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from catchment.model.errors import ConfigurationError
from catchment.model.filter import Filter

if TYPE_CHECKING:
    from catchment.broker.routing import Matched

__all__ = ["JOINPOINTS", "Advice", "At", "Proceed"]

Proceed = Callable[..., Any]

JOINPOINTS: Mapping[str, str] = {
    "ad_add": "a peer has begun to advertise a topic",
    "ad_del": "a peer advertises a topic no longer",
    "sub_add": "a peer has begun to want the events of a filter; returns what was told to each neighbour before",
    "sub_del": "a peer wants them no longer; returns what was told to each neighbour before",
    "pub_match": "events have come; returns which peers and subscriptions want which of them",
    "pub_send": "matched events go to those who want them",
    "sub_send": "new filters of one's own go to a neighbour",
    "unsub_send": "old filters of one's own are taken back from a neighbour",
    "ad_send": "an advertisement of one's own goes to a neighbour",
    "unad_send": "it is taken back",
}
"""The ten joinpoints, and when they are reached."""


class At:
    """What an advice sees of its broker, and what it may ask for. Valid during one call."""

    def __init__(
        self, *, broker: str, neighbours: tuple[str, ...], now_us: int, state: dict[str, Any], attached: bytes | None
    ) -> None:
        self.broker, self.neighbours, self.now_us, self.state = broker, neighbours, now_us, state
        self._attached = attached
        self.asked: list[tuple[str, Any, Any]] = []

    @property
    def attached(self) -> Any:
        """What this advice attached to the message that led here, at the broker that sent it; or None."""
        return None if self._attached is None else msgspec.msgpack.decode(self._attached)

    def attach(self, value: Any) -> None:
        """Let the message that is about to be sent carry a value; in a joinpoint that sends."""
        self.asked.append(("attach", None, msgspec.msgpack.encode(value)))

    def tell(self, neighbour: str, value: Any) -> None:
        """Send a message of its own, which `on_message` of the same advice will get at the neighbour."""
        if neighbour not in self.neighbours:
            raise ConfigurationError(f"{neighbour!r} is no neighbour; there are {', '.join(self.neighbours) or 'none'}")
        self.asked.append(("tell", neighbour, msgspec.msgpack.encode(value)))

    def wake(self, key: str, at_us: int) -> None:
        """Call `on_timer` with this key at a time; a later call for the same key replaces an earlier one."""
        self.asked.append(("wake", key, at_us))

    def read(self, key: str) -> None:
        """Ask the shared store for what is at a key; `on_reply` will get it."""
        self.asked.append(("ask", key, (None, 0)))

    def write(self, key: str, value: Any, version: int) -> None:
        """Put a value into the shared store, if what is there has this version, or is not there and it is 0.

        `on_reply` will say whether it was written. After a crash or a lost reply it may say no though it was: then the
        value that it says is there is this one.
        """
        self.asked.append(("ask", key, (msgspec.msgpack.encode(value), version)))


class Advice:
    """The base of all advice: every joinpoint just proceeds. Only methods that a class overrides are called."""

    name: str = ""

    def ad_add(self, at: At, proceed: Proceed, topic: str, peer: str) -> None:
        proceed()

    def ad_del(self, at: At, proceed: Proceed, topic: str, peer: str) -> None:
        proceed()

    def sub_add(
        self, at: At, proceed: Proceed, topic: str, condition: Filter, peer: str
    ) -> dict[str, tuple[Filter, ...]]:
        found: dict[str, tuple[Filter, ...]] = proceed()
        return found

    def sub_del(
        self, at: At, proceed: Proceed, topic: str, condition: Filter, peer: str
    ) -> dict[str, tuple[Filter, ...]]:
        found: dict[str, tuple[Filter, ...]] = proceed()
        return found

    def pub_match(self, at: At, proceed: Proceed, topic: str, events: pa.RecordBatch) -> Matched:
        found: Matched = proceed()
        return found

    def pub_send(
        self, at: At, proceed: Proceed, topic: str, events: pa.RecordBatch, matched: Matched, upstream: str
    ) -> None:
        proceed()

    def sub_send(self, at: At, proceed: Proceed, topic: str, added: tuple[Filter, ...], neighbour: str) -> None:
        proceed()

    def unsub_send(self, at: At, proceed: Proceed, topic: str, dropped: tuple[Filter, ...], neighbour: str) -> None:
        proceed()

    def ad_send(self, at: At, proceed: Proceed, topic: str, neighbour: str) -> None:
        proceed()

    def unad_send(self, at: At, proceed: Proceed, topic: str, neighbour: str) -> None:
        proceed()

    def on_message(self, at: At, sender: str, value: Any) -> None:
        """A message that this advice sent from a neighbour has come."""

    def on_timer(self, at: At, key: str) -> None:
        """A time that this advice asked for has come."""

    def on_reply(self, at: At, key: str, value: Any, version: int, written: bool) -> None:
        """The store has answered: what is at the key now, its version, and whether a write took effect."""
