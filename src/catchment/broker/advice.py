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
        had asked for in that call, messages and timers, is forgotten; what it has changed of its own state is not.
Rule 2: an advice keeps what it must remember in `at.state`, which is part of the broker's state and survives a crash.
        One with much to remember keeps it as it likes, and says it in plain values when it is asked (`saved`).
Rule 3: besides joinpoints there are moments that belong to an advice alone: messages, timers and replies that it asked
        for, and what clients do at this broker (`on_subscribe`, `on_unsubscribe`, `on_publish`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from catchment.broker.messages import WindowValue
from catchment.broker.store import DeleteKey, ListKeys, ReadKey, StoreRequest, WriteKey
from catchment.model.errors import ConfigurationError
from catchment.model.filter import Filter
from catchment.model.subscription import Query

if TYPE_CHECKING:
    from catchment.broker.broker import Broker
    from catchment.broker.routing import Matched

__all__ = ["JOINPOINTS", "Advice", "At", "Proceed", "Reply"]

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


@dataclass(frozen=True, slots=True)
class Reply:
    """What the shared store has answered."""

    request: int
    """What `at.read`, `at.write`, `at.delete` or `at.list_keys` returned."""
    key: str
    """The key that was asked about, or the prefix."""
    value: Any
    """What is there now; None if nothing is."""
    version: int
    """Of what is there; 0 if nothing is."""
    written: bool
    """Whether a write or a deletion took effect."""
    keys: tuple[tuple[str, int], ...] = ()
    """Of `at.list_keys`: the keys in their order, with their versions."""


class At:
    """What an advice sees of its broker, and what it may ask for. Valid during one call."""

    def __init__(self, broker: Broker, state: dict[str, Any], attached: bytes | None) -> None:
        self.broker, self.neighbours, self.now_us, self.state = broker.name, broker.neighbours, broker.now_us, state
        self._here, self._attached = broker, attached
        self.asked: list[tuple[str, Any, Any]] = []

    @property
    def attached(self) -> Any:
        """What this advice attached to the message that led here, at the broker that sent it; or None."""
        return None if self._attached is None else msgspec.msgpack.decode(self._attached)

    def attach(self, value: Any) -> None:
        """Let the message that is about to be sent carry a value; in a joinpoint that sends."""
        self.asked.append(("attach", None, msgspec.msgpack.encode(value)))

    def tell(
        self, neighbour: str, value: Any, *, confirmed: bool = False, counts: tuple[str, int, int] | None = None
    ) -> None:
        """Send a message of its own, which `on_message` of the same advice will get at the neighbour.

        If it must be `confirmed`, whoever set it off is answered only after it has taken effect on the neighbour's
        side. It counts as one message of control, unless `counts` says as what kind, how many messages and bytes.
        """
        self._require(neighbour)
        self.asked.append(("tell", neighbour, (msgspec.msgpack.encode(value), confirmed, counts)))

    def publish(self, neighbour: str, topic: str, events: pa.RecordBatch, value: Any) -> None:
        """Send events that were held back, with a value attached."""
        self._require(neighbour)
        self.asked.append(("publish", neighbour, (topic, events, msgspec.msgpack.encode(value))))

    def notify(self, client: str, values: tuple[WindowValue, ...]) -> None:
        """Tell a client the values of windows."""
        self.asked.append(("notify", client, values))

    def report(self, what: str, detail: str) -> None:
        """Count something that should not happen, and keep the last of what was said about it."""
        self.asked.append(("report", what, detail))

    def spend(self, work: str, times: int) -> None:
        """Say how often something was done that somebody may want to add up."""
        self.asked.append(("spend", work, times))

    def advertisers(self, topic: str) -> frozenset[str]:
        """The peers that advertise a topic: neighbours and clients."""
        return frozenset(self._here.routes(topic).advertisers)

    @property
    def is_flooded(self) -> bool:
        """Whether subscriptions go everywhere, and not only towards publishers."""
        return self._here.settings.forwarding == "flooded"

    def _require(self, neighbour: str) -> None:
        if neighbour not in self.neighbours:
            raise ConfigurationError(f"{neighbour!r} is no neighbour; there are {', '.join(self.neighbours) or 'none'}")

    def wake(self, key: str, at_us: int) -> None:
        """Call `on_timer` with this key at a time; a later call for the same key replaces an earlier one."""
        self.asked.append(("wake", key, at_us))

    # Each of these returns the number of the request, by which `on_reply` names it.

    def read(self, key: str) -> int:
        """Ask the shared store for what is at a key."""
        return self._ask_store(ReadKey, key)

    def write(self, key: str, value: Any, version: int) -> int:
        """Put a value into the shared store, if what is there has this version, or is not there and it is 0.

        After a crash or a lost reply, the store may answer that it was not written though it was: then the value that
        it says is there is this one.
        """
        return self._ask_store(WriteKey, key, msgspec.msgpack.encode(value), version)

    def delete(self, key: str, version: int) -> int:
        """Take a key out of the shared store, if what is there has this version."""
        return self._ask_store(DeleteKey, key, version)

    def list_keys(self, prefix: str, after: str = "") -> int:
        """Ask which keys begin with a prefix; at most `KEYS_MAX` of them, behind a key that is known."""
        return self._ask_store(ListKeys, prefix, after)

    def _ask_store(self, kind: type[Any], *fields: Any) -> int:
        number = self._here.weaver.requests.next_number()
        # Through its bytes and back, so that fields of wrong types show here.
        request = _store_requests.decode(msgspec.msgpack.encode(kind(number, *fields)))
        self.asked.append(("ask", None, request))
        return number


_store_requests = msgspec.msgpack.Decoder(StoreRequest)


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

    def on_reply(self, at: At, reply: Reply) -> None:
        """The store has answered a request of this advice."""

    def on_subscribe(self, at: At, client: str, name: str, sql: str, query: Query) -> bool:
        """A client asks for aggregates; whether this advice sees to it. What it raises is told to the client."""
        return False

    def on_acknowledged(self, at: At, client: str, name: str) -> None:
        """All brokers that must know a subscription have confirmed it, and its client is told so."""

    def on_unsubscribe(self, at: At, client: str, name: str) -> bool:
        """A client wants no more of a subscription; whether this advice had seen to it."""
        return False

    def on_publish(
        self, at: At, topic: str, events: pa.RecordBatch, requests: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.bool_] | None:
        """Events of clients were accepted here, each by one of several requests: which of them may go on.

        None is all of them. Clients hear of the others.
        """
        return None

    def sizes(self) -> dict[str, int]:
        """How large everything is that could grow."""
        return {}

    def saved(self) -> Any:
        """What it must remember besides `at.state`, in plain values; None is nothing."""
        return None

    def restore(self, saved: Any) -> None:
        """Go on from what another one of its kind has saved."""
