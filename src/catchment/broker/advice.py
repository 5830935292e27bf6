"""Joinpoints, and the advice attached to them: ASIA's table 1.

An advice is a class with methods named like joinpoints. Each is called in place of the broker's own step, with what the
step would get, and `proceed`, which goes on: to the next advice on the same joinpoint, in the order in which they were
attached, and at last to the broker's own step. What it returns stands in for what the step returns.

    class Shout(Advice):
        name = "shout"

        def sub_add(self, at, proceed, topic, demand, peer):
            before = proceed()                          # or proceed(topic, another, peer), or not at all
            at.state["heard"] = at.state.get("heard", 0) + 1
            return before

Rule 1: an advice that raises is reported, and the broker goes on as if the advice had only said `proceed()`. What it
        had asked for in that call, messages, requests and timers, is forgotten; what it has changed of its own state is
        not. One that returns what the broker cannot use is treated in the same way.
Rule 2: an advice keeps what it must remember in `at.state`, which is part of the broker's state and survives a crash.
        One with much to remember keeps it as it likes, and gives a value of it when a snapshot is taken (`saved`).
Rule 3: besides joinpoints there are moments, methods named `on_…`: what clients do at this broker, and messages, timers
        and replies that belong to an advice alone.
Rule 4: an advice may be a client of its broker (`at.subscribe`, `at.publish`, …). What it asks for is carried out after
        the input that led to it and before the next one, so that no grouping of inputs into steps changes anything.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import index
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from catchment.broker import messages as m
from catchment.broker.demands import AskedQuestion, Demand
from catchment.broker.frames import MESSAGE_BYTES_MAX, carried, require_forwardable
from catchment.broker.inputs import Post
from catchment.broker.limits import shortened
from catchment.broker.peers import HISTORY
from catchment.broker.rights import Deed, may
from catchment.broker.store import DeleteKey, ListKeys, ReadKey, StoreRequest, WriteKey
from catchment.model.errors import ConfigurationError, require_type
from catchment.model.filter import Filter
from catchment.model.schema import Schema
from catchment.model.subscription import Query
from catchment.stages import ANSWER_SCHEMA

if TYPE_CHECKING:
    from catchment.broker.broker import Broker
    from catchment.broker.routing import Before, Matched, Routes

__all__ = [
    "JOINPOINTS",
    "NO_CATALOGUE",
    "OWN",
    "VALUE_BYTES_MAX",
    "Advice",
    "At",
    "Catalogue",
    "KnownSubscription",
    "Proceed",
    "Reply",
]

Proceed = Callable[..., Any]
Catalogue = Mapping[str, Callable[[], "Advice"]]
"""How to make the advice that may be attached while a broker runs, by name."""
NO_CATALOGUE: Catalogue = {}

JOINPOINTS: Mapping[str, str] = {
    "ad_add": "a peer has begun to advertise a topic",
    "ad_del": "a peer advertises a topic no longer",
    "sub_add": "a peer has a new demand: a filter, or a question; returns what each neighbour had been sent before",
    "sub_del": "a peer has it no longer; returns what each neighbour had been sent before",
    "pub_match": "events have come; returns which peers and subscriptions want which of them",
    "pub_send": "matched events go to those who want them",
    "sub_send": "new demands go to a neighbour",
    "unsub_send": "old demands are taken back from a neighbour",
    "ad_send": "an advertisement of one's own goes to a neighbour",
    "unad_send": "it is taken back",
}
"""The ten joinpoints, and when they are reached."""


OWN = "@"
"""What the name of an advice's own client begins with, and no other client's."""
VALUE_BYTES_MAX = MESSAGE_BYTES_MAX - 2_000
"""Of a value that an advice sends, and of one that a client sends to an advice."""
TIME_US_MAX = 2**62
ATTACHED_BYTES_MAX = 10_000
"""Of a value that rides along on a message."""


class KnownSubscription(NamedTuple):
    """What a client of this broker has subscribed to."""

    topic: str
    sql: str


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

    def __init__(
        self, broker: Broker, advice: str, attached: bytes | None, notes: dict[str, pa.Array] | None = None
    ) -> None:
        self.broker, self.neighbours, self.now_us = broker.name, broker.neighbours, broker.now_us
        self.state = broker.weaver.states[advice]
        self._here, self._weaver, self._advice, self._attached = broker, broker.weaver, advice, attached
        self.notes = notes
        """What this advice says, at the broker that sent them, of each event that is forwarded, in columns; or None."""
        self.asked: list[Callable[[], None]] = []
        """What is carried out once the advice returns, in this order."""

    # -- to look at -------------------------------------------------------------------------------------------------

    @property
    def attached(self) -> Any:
        """What this advice attached to the message that led here, at the broker that sent it; or None."""
        return None if self._attached is None else msgspec.msgpack.decode(self._attached)

    def advertisers(self, topic: str) -> frozenset[str]:
        """The peers that advertise a topic: neighbours and clients."""
        routes = self._routes(topic)
        return frozenset() if routes is None else frozenset(routes.advertisers)

    def demands(self, neighbour: str, topic: str) -> tuple[Demand, ...]:
        """What a neighbour has sent that its side wants of a topic: filters, and questions of aggregates."""
        self._require_neighbour(neighbour)
        routes = self._routes(topic)
        return () if routes is None else tuple(routes.demands[neighbour])

    @property
    def schemas(self) -> Mapping[str, Schema]:
        """The topics that the broker knows now, without the attributes that every event has."""
        return self._here.schemas

    @property
    def placements(self) -> Mapping[str, str]:
        """The placements of topics that were given one while the broker ran."""
        return self._here.placements

    @property
    def clients(self) -> tuple[str, ...]:
        """The clients of this broker, also those that are parked; an advice that is one is named `@` and its name."""
        return tuple(sorted(self._here.clients))

    def subscriptions(self, client: str) -> dict[str, KnownSubscription]:
        """By name, what a client has subscribed to."""
        self._require_client(client)
        return {name: known for (owner, name), known in self._here.subscribed.items() if owner == client}

    def topics(self, client: str) -> tuple[str, ...]:
        """What a client advertises."""
        self._require_client(client)
        return tuple(sorted(self._here.peers[client].topics))

    def may(self, client: str, deed: Deed, topic: str | None) -> bool:
        """Whether the owner of a client may publish or subscribe to a topic; None is every topic."""
        return may(self._here, client, deed, topic)

    # -- messages ---------------------------------------------------------------------------------------------------

    def attach(self, value: Any) -> None:
        """Let the message that is about to be sent carry a value; in a joinpoint that sends."""
        self.asked.append(partial(self._weaver.put_extra, self._advice, _packed(value, ATTACHED_BYTES_MAX)))

    def tell(
        self, neighbour: str, value: Any, *, confirmed: bool = False, counts: tuple[str, int, int] | None = None
    ) -> None:
        """Send a message of its own, which `on_message` of the same advice will get at the neighbour.

        If it must be `confirmed`, whoever set it off is answered only after it has taken effect on the neighbour's
        side. It counts as one message of control, unless `counts` says as what kind, how many messages and bytes.
        """
        self._require_neighbour(neighbour)
        body = _packed(value)
        if counts is not None:
            kind, messages, size = counts
            counts = (_text("kind", kind), _number("messages", messages), _number("bytes", size))

        def send() -> None:
            change = self._here.change_for(neighbour) if confirmed else 0
            self._here.send(neighbour, m.AdviceMessage(self._advice, body, change), counts)

        self.asked.append(send)

    def forward(self, neighbour: str, topic: str, events: pa.RecordBatch, notes: Mapping[str, pa.Array]) -> None:
        """Send events that were held back, with columns that say something of each."""
        self._require_neighbour(neighbour)
        self._routes(topic)
        columns = {f"{self._advice}/{name}": column for name, column in notes.items()}
        message = m.Published(topic, events, pa.RecordBatch.from_pydict(columns))
        require_forwardable(events, message.notes)
        self.asked.append(partial(self._here.send, neighbour, message))

    def record(self, message: m.Recorded) -> None:
        """Store events or a mark in this broker's history."""
        require_type("what is recorded", message, m.Recorded)
        self.asked.append(partial(self._here.send, HISTORY, message))

    def watch(self, topic: str, number: int, condition: Filter) -> None:
        """Match a filter of this advice besides; `Matched.watched` of its name tells the rows and numbers.

        A filter that it watches under the same number is matched no more.
        """
        self._routes(topic)
        require_type("the condition", condition, Filter)
        condition.within(self._here.schemas[topic].with_implicit())
        number = _number("the number of a filter", number)
        self.asked.append(lambda: self._here.routes(topic).watch(self._advice, number, condition))

    def unwatch(self, topic: str, number: int) -> None:
        """Match it no more."""
        self._routes(topic)
        number = _number("the number of a filter", number)
        self.asked.append(lambda: self._here.routes(topic).unwatch(self._advice, number))

    def inform(self, client: str, value: Any) -> None:
        """Send a client a value, as a message of this advice; one that has gone meanwhile is left out."""
        self._send_client(client, m.Informed(self._advice, _packed(value)))

    def notify(self, client: str, answers: pa.RecordBatch) -> None:
        """Tell a client the values of windows, in the columns of `stages.ANSWER_SCHEMA`."""
        require_type("answers", answers, pa.RecordBatch)
        if not answers.schema.equals(ANSWER_SCHEMA):
            given = ", ".join(answers.schema.names)
            raise ConfigurationError(f"answers have the columns {given}; accepted are those of stages.ANSWER_SCHEMA")
        self._send_client(client, m.Notified(answers))

    def _send_client(self, client: str, message: m.Message) -> None:
        require_type("a client", client, str)

        def send() -> None:
            if client in self._here.clients:
                self._here.send(client, message)

        self.asked.append(send)

    # -- as a client of its own broker --------------------------------------------------------------------------------

    # Each of these is a request, and returns its number; `on_received` gets the answer, and what clients get.

    def advertise(self, topic: str) -> int:
        """Begin to publish events of a topic."""
        return self._ask(m.AdvertiseTopic, topic)

    def unadvertise(self, topic: str) -> int:
        """Publish no more events of a topic."""
        return self._ask(m.UnadvertiseTopic, topic)

    def subscribe(self, name: str, sql: str) -> int:
        """Subscribe to events, or to aggregates."""
        return self._ask(m.SubscribeTo, name, sql)

    def unsubscribe(self, name: str) -> int:
        """Take a subscription of its own back."""
        return self._ask(m.UnsubscribeFrom, name)

    def let_go(self, client: str, name: str) -> None:
        """Demand no more what a subscription of a client demands: this advice answers it by other means."""
        self._require_client(client)

        def act() -> None:
            if (client, name) in self._here.subscribed:
                self._here.let_go(client, name)

        self.asked.append(act)

    def publish(self, topic: str, events: pa.RecordBatch) -> int:
        """Publish events of a topic that it advertises."""
        return self._ask(m.PublishEvents, topic, events)

    def checked(self, topic: str, events: pa.RecordBatch, came_us: npt.NDArray[np.int64]) -> pa.RecordBatch:
        """Events as they may be published: of the topic's types, stamped with when they came where they have no time.

        Raises an EventError that says why the broker would not take one of them.
        """
        self._routes(topic)
        known, ids = self._here.ingress.checked(topic, events, came_us)
        return known if ids is None else known.add_column(0, "event_id", ids)

    def advance_time(self, topic: str, time_us: int) -> int:
        """Say how far its event time has come, where no event says so."""
        return self._ask(m.AdvanceTime, topic, time_us)

    def _ask(self, kind: type[Any], *fields: Any) -> int:
        number = self._weaver.rounds.next_number(self._advice)
        # Through the codec and back, so that the broker gets nothing that no client could have sent.
        request = carried(kind(number, *fields))
        self.asked.append(partial(self._weaver.rounds.ask, self._advice, request))
        return number

    # -- being called again -------------------------------------------------------------------------------------------

    def settle(self) -> None:
        """Call `on_settled`, once, after the broker has sent all neighbours what this input leads to."""
        self.asked.append(partial(self._weaver.rounds.settle_later, self._advice))

    def wake(self, key: str, at_us: int) -> None:
        """Call `on_timer` with this key at a time; a later call for the same key replaces an earlier one.

        What a timer call sets for now or the past is called after the input that it was called before.
        """
        at_us = min(max(_number("the time of a timer", at_us), -TIME_US_MAX), TIME_US_MAX)
        self.asked.append(partial(self._weaver.set_timer, self._advice, _text("the key of a timer", key), at_us))

    # -- the shared store ---------------------------------------------------------------------------------------------

    # Each of these returns the number of the request, by which `on_reply` names it.

    def read(self, key: str) -> int:
        """Ask the shared store for what is at a key."""
        return self._ask_store(ReadKey, key)

    def write(self, key: str, value: Any, version: int) -> int:
        """Put a value into the shared store, if what is there has this version, or is not there and it is 0.

        After a crash or a lost reply, the store may answer that it was not written though it was: then the value that
        it says is there is this one.
        """
        return self._ask_store(WriteKey, key, _packed(value), version)

    def delete(self, key: str, version: int) -> int:
        """Take a key out of the shared store, if what is there has this version."""
        return self._ask_store(DeleteKey, key, version)

    def list_keys(self, prefix: str, after: str = "") -> int:
        """Ask which keys begin with a prefix; at most `KEYS_MAX` of them, behind a key that is known."""
        return self._ask_store(ListKeys, prefix, after)

    def _ask_store(self, kind: type[Any], *fields: Any) -> int:
        number = self._weaver.requests.next_number()
        # Through its bytes and back, so that fields of wrong types show here.
        request = _store_requests.decode(msgspec.msgpack.encode(kind(number, *fields)))
        self.asked.append(partial(self._weaver.requests.add, self._advice, request))
        return number

    # -- what somebody may want to know -------------------------------------------------------------------------------

    def report(self, what: str, detail: str) -> None:
        """Count something that should not happen, and keep the last of what was said about it."""
        self.asked.append(partial(self._weaver.report, _text("what", what), shortened(str(detail))))

    def spend(self, work: str, times: int) -> None:
        """Say how often something was done that somebody may want to add up."""
        self.asked.append(partial(self._here.work.update, {_text("work", work): _number("times", times)}))

    # -- checks -----------------------------------------------------------------------------------------------------

    def _require_neighbour(self, name: str) -> None:
        if name not in self.neighbours:
            raise ConfigurationError(f"{name!r} is no neighbour; there are {', '.join(self.neighbours) or 'none'}")

    def _require_client(self, name: str) -> None:
        if name not in self._here.clients:
            raise ConfigurationError(f"{name!r} is no client; there are {', '.join(self.clients) or 'none'}")

    def _routes(self, topic: str) -> Routes | None:
        schemas = self._here.schemas
        if topic not in schemas:
            raise ConfigurationError(f"unknown topic {topic!r}; known are {', '.join(sorted(schemas))}")
        return self._here.topics.get(topic)


_store_requests = msgspec.msgpack.Decoder(StoreRequest)


def _number(what: str, given: Any) -> int:
    try:
        return index(given)
    except TypeError:
        raise ConfigurationError(f"{what} is {str(given)[:40]!r}; accepted is an integer") from None


def _text(what: str, given: Any) -> str:
    require_type(what, given, str)
    return str(given)


def _packed(value: Any, most: int = VALUE_BYTES_MAX) -> bytes:
    body = msgspec.msgpack.encode(value)
    if len(body) > most:
        raise ConfigurationError(f"a value of an advice has {len(body)} bytes; accepted are at most {most}")
    return body


class Advice:
    """The base of all advice: every joinpoint just proceeds. Only methods that a class overrides are called."""

    name: str = ""

    def ad_add(self, at: At, proceed: Proceed, topic: str, peer: str) -> None:
        proceed()

    def ad_del(self, at: At, proceed: Proceed, topic: str, peer: str) -> None:
        proceed()

    def sub_add(self, at: At, proceed: Proceed, topic: str, demand: Demand, peer: str) -> dict[str, Before]:
        found: dict[str, Before] = proceed()
        return found

    def sub_del(self, at: At, proceed: Proceed, topic: str, demand: Demand, peer: str) -> dict[str, Before]:
        found: dict[str, Before] = proceed()
        return found

    def pub_match(self, at: At, proceed: Proceed, topic: str, events: pa.RecordBatch) -> Matched:
        found: Matched = proceed()
        return found

    def pub_send(
        self, at: At, proceed: Proceed, topic: str, events: pa.RecordBatch, matched: Matched, upstream: str
    ) -> None:
        proceed()

    def sub_send(self, at: At, proceed: Proceed, topic: str, added: tuple[Demand, ...], neighbour: str) -> None:
        proceed()

    def unsub_send(self, at: At, proceed: Proceed, topic: str, dropped: tuple[Demand, ...], neighbour: str) -> None:
        proceed()

    def ad_send(self, at: At, proceed: Proceed, topic: str, neighbour: str) -> None:
        proceed()

    def unad_send(self, at: At, proceed: Proceed, topic: str, neighbour: str) -> None:
        proceed()

    # -- moments ----------------------------------------------------------------------------------------------------

    def on_begin(self, at: At) -> None:
        """It was attached while the broker runs."""

    def on_end(self, at: At) -> None:
        """It is about to be removed while the broker runs; what it remembers and asked for as a client goes with it."""

    def on_neighbour_began(self, at: At, neighbour: str) -> None:
        """A neighbour has begun a new life: it knows nothing of before, and what it was sent is gone."""

    def on_topic_added(self, at: At, topic: str, schema: Schema) -> None:
        """There is another topic, or a topic has more attributes than before."""

    def on_topic_placed(self, at: At, topic: str, placement: str) -> None:
        """A topic shall have another placement from now on. A CatchmentError refuses it, with its text."""

    def on_settled(self, at: At) -> None:
        """All neighbours were sent what an input led to; called once for each input in which it said `at.settle()`."""

    def on_message(self, at: At, sender: str, value: Any) -> None:
        """A message that this advice sent from a neighbour has come."""

    def on_timer(self, at: At, key: str) -> None:
        """A time that this advice asked for has come."""

    def on_reply(self, at: At, reply: Reply) -> None:
        """The store has answered a request of this advice."""

    def on_received(self, at: At, message: m.ForClient) -> None:
        """The broker has something for this advice as its client: an answer, events, values of windows."""

    # -- what clients do --------------------------------------------------------------------------------------------

    def on_request(self, at: At, client: str, value: Any) -> None:
        """A client asks something of this advice.

        It is acknowledged once all is confirmed that this sets off. A CatchmentError refuses it, with its text.
        """

    def on_client_attached(self, at: At, client: str) -> None:
        """A client has come."""

    def on_client_parked(self, at: At, client: str) -> None:
        """A client is away and will be back."""

    def on_client_resumed(self, at: At, client: str) -> None:
        """A client that was parked is back."""

    def on_client_detached(self, at: At, client: str) -> None:
        """A client has gone, after all that it wanted and advertised."""

    def on_subscribe(self, at: At, client: str, name: str, sql: str, query: Query) -> AskedQuestion | None:
        """A client asks for aggregates; return what this advice, if it answers them, has the broker subscribe to.

        Only the first that answers is called. A CatchmentError refuses the subscription, with its text.
        """
        return None

    def on_subscribed(self, at: At, client: str, name: str, query: Query) -> None:
        """A subscription was accepted, regular or aggregate; every advice hears of every one."""

    def on_acknowledged(self, at: At, client: str, name: str) -> None:
        """All brokers that must know a subscription have confirmed it, and its client is told so."""

    def on_unsubscribed(self, at: At, client: str, name: str) -> None:
        """A subscription is no more; every advice hears of every one."""

    def on_posted(self, at: At, topic: str, posts: Sequence[Post]) -> Mapping[int, str] | None:
        """Foreign publishers have stored something about a topic, which the broker may not know.

        Returns, by their places, why some are refused; or None if this advice takes no posts. Only the first that does
        is called.
        """
        return None

    def on_advance(self, at: At, client: str, topic: str, time_us: int) -> None:
        """A client that advertises a topic says how far event time has come."""

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
        """Give what it must remember besides `at.state`; None is nothing. Called when a snapshot is taken.

        It is written later, piece by piece: give copies of containers, and arrays that are only ever replaced. What
        may be in it, and how it is read back, says `snapshot_coding`. It must not take long, nor change anything.
        """
        return None

    def restore(self, at: At, saved: Any) -> None:
        """Go on from what another one of its kind has saved; called on a new one, which may keep it."""
