"""The broker: a state machine that forwards events to those who want them.

    receive(frame, now_us)          a frame has come; False if there is no room for what it sets off: try again later
    receive_reply(reply, now_us)    the store has answered
    take_output(peer, room)         frames to send, each once, in order per peer
    take_requests()                 what to ask the store
    timer_us()                      when it wants to be woken
    handle_timer(now_us)            that time has come
    attach / detach                 a client has come to this broker, or gone

Rule 1: no input or output, no clock, no chance: the same calls give the same frames.
Rule 2: what goes to a neighbour is the difference to what it was last told; nothing is never told.
Rule 3: an answer to a change, towards whoever caused it, waits for the answers of all others that it set off.
Rule 4: peers are visited in the order of their names.
Rule 5: events that come from a peer wait for room towards the others, never towards that peer: on a tree no circle of
        brokers can then wait for each other. Control never waits between brokers; it is bounded where it comes in, as
        a client may have only so many requests that are not answered.

What clients ask for is in `requests.py`, what neighbours say in `neighbours.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa

from catchment.broker import messages as m
from catchment.broker import neighbours, requests
from catchment.broker.advice import Advice
from catchment.broker.frames import Frame, decode
from catchment.broker.ingress import Ingress
from catchment.broker.peers import CONTROL, EVENTS, Peer
from catchment.broker.routing import Before, Matched, Routes, Rows, combined
from catchment.broker.store import StoreReply, StoreRequest
from catchment.broker.summaries import SUMMARIES
from catchment.broker.weaving import Failure, Weaver
from catchment.model.errors import ConfigurationError, FrameError
from catchment.model.filter import Filter
from catchment.model.schema import Schema

__all__ = ["Broker", "Draft", "Forwarding", "Send", "Settings", "Waiting"]

Forwarding = Literal["advertised", "flooded"]
Columns = tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class Send:
    """A frame, and to whom."""

    to: str
    frame: Frame


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What brokers of one overlay agree on."""

    schemas: Mapping[str, Schema]
    forwarding: Forwarding = "advertised"
    """Where subscriptions go: towards publishers, or everywhere."""
    summary: Literal["bound", "covering", "each"] = "covering"
    queue_max: int = 10_000
    """Batches of events that may wait for one peer, and requests of one client that may wait for their answers."""
    remembered_max: int = 1_000_000
    """Ids of events that are remembered against repetition."""

    def __post_init__(self) -> None:
        if self.forwarding not in ("advertised", "flooded"):
            raise ConfigurationError(f"forwarding is {self.forwarding!r}; accepted are 'advertised' and 'flooded'")
        if self.summary not in SUMMARIES:
            raise ConfigurationError(f"summary is {self.summary!r}; accepted are {', '.join(SUMMARIES)}")
        for name in ("queue_max", "remembered_max"):
            if getattr(self, name) < 1:
                raise ConfigurationError(f"{name} is {getattr(self, name)}; accepted are numbers from 1 on")


@dataclass(slots=True)
class Waiting:
    """An answer that is due once others have answered."""

    peer: str
    answer: m.Message
    needs: set[tuple[str, int]]
    """Neighbours and changes that they have not confirmed."""
    subscription: str = ""
    """What is acknowledged by it, if it is a subscription."""


@dataclass(slots=True)
class Draft:
    """A message to a neighbour about filters, while it is made."""

    added: tuple[Filter, ...] = ()
    dropped: tuple[Filter, ...] = ()


class Broker:
    """One broker of an overlay, whose `neighbours` are those of the tree that messages follow."""

    def __init__(self, name: str, neighbours: Iterable[str], settings: Settings, advice: Iterable[Advice] = ()) -> None:
        self.name, self.settings = name, settings
        self.neighbours = tuple(sorted(set(neighbours)))
        self.counters: Counter[str] = Counter()
        self.work: Counter[str] = Counter()
        """What advice says it has done; of no other use here."""
        self.peers = {neighbour: Peer() for neighbour in self.neighbours}
        self.clients: set[str] = set()
        self.topics: dict[str, Routes] = {}
        self.subscribed: dict[tuple[str, str], str] = {}
        self.waiting: list[Waiting] = []
        self.ingress = Ingress(name, settings.schemas, settings.remembered_max)
        self.now_us = self.sent = 0
        self.weaver = Weaver(self, advice)

    # -- the boundary ---------------------------------------------------------------------------------------------

    def receive_bytes(self, data: bytes, now_us: int) -> bool:
        """As `receive`; what does not decode is counted and otherwise ignored."""
        try:
            frame = decode(data)
        except FrameError:
            self.counters["frames that do not decode"] += 1
            return True
        return self.receive(frame, now_us)

    def receive(self, frame: Frame, now_us: int) -> bool:
        self.now_us = now_us
        peer = self.peers.get(frame.sender)
        if peer is None:
            self.counters["frames of strangers"] += 1
            return True
        message = frame.message
        kind = EVENTS if message.is_event else CONTROL
        if frame.sequence != peer.received[kind] + 1:
            came_again = frame.sequence <= peer.received[kind]
            self.counters["frames that came again" if came_again else "frames that came too early"] += 1
            return True
        handlers = requests.HANDLERS if frame.sender in self.clients else neighbours.HANDLERS
        handler = handlers.get(type(message))
        if handler is None:
            peer.received[kind] += 1
            self.counters["messages out of place"] += 1
            return True
        if not self._has_room_for(message, frame.sender):
            return False
        peer.received[kind] += 1
        handler(self, message, frame.sender)
        return True

    def take_output(self, peer: str | None = None, room: tuple[int, int] | None = None) -> list[Send]:
        """Queued frames, all or those of one peer, and no more of control and of events than there is room for."""
        names = sorted(self.peers) if peer is None else [peer]
        return [Send(name, frame) for name in names for frame in self.peers[name].take(room)]

    def peers_with_output(self) -> list[str]:
        return sorted(name for name, peer in self.peers.items() if peer.queues[CONTROL] or peer.queues[EVENTS])

    def take_requests(self) -> list[StoreRequest]:
        """What to ask the store, each once; after a crash, again whatever it has not answered."""
        return self.weaver.requests.take()

    def receive_reply(self, reply: StoreReply, now_us: int) -> None:
        self.now_us = now_us
        self.weaver.replied(reply)

    def timer_us(self) -> int | None:
        return self.weaver.timer_us()

    def handle_timer(self, now_us: int) -> None:
        self.now_us = now_us
        self.weaver.wake()

    def attach(self, client: str) -> None:
        """A client has come."""
        if client in self.peers:
            raise ConfigurationError(f"{client!r} is already known to broker {self.name!r}; accepted are new names")
        self.peers[client] = Peer()
        self.clients.add(client)

    def detach(self, client: str, now_us: int) -> None:
        """A client has gone, and what it wanted and advertised with it."""
        if client not in self.clients:
            known = ", ".join(sorted(self.clients)) or "none"
            raise ConfigurationError(f"no client {client!r} is at broker {self.name!r}; there are {known}")
        self.now_us = now_us
        for owner, name in sorted(self.subscribed):
            if owner == client:
                requests.unsubscribe(self, client, name)
        for topic in sorted(self.peers[client].topics):
            self.stop_advertising(topic, client)
        self.clients.remove(client)
        del self.peers[client]
        self.waiting = [one for one in self.waiting if one.peer != client]

    # -- what the host and advice may look at -----------------------------------------------------------------------

    @property
    def failures(self) -> tuple[Failure, ...]:
        """The last failures of advice."""
        return tuple(self.weaver.failures)

    @property
    def is_at_rest(self) -> bool:
        """Nothing is queued and nobody waits for an answer."""
        return not self.waiting and not any(queue for peer in self.peers.values() for queue in peer.queues)

    def routes(self, topic: str) -> Routes:
        if topic not in self.topics:
            make = SUMMARIES[self.settings.summary]
            self.topics[topic] = Routes(self.settings.schemas[topic].with_implicit(), self.neighbours, make)
        return self.topics[topic]

    def table_sizes(self) -> dict[str, int]:
        """How large everything is that could grow."""
        routes = self.topics.values()
        return {
            "filters of neighbours": sum(len(one) for r in routes for one in r.wanted.values()),
            "subscriptions": len(self.subscribed),
            "advertisements": sum(len(r.advertisers) for r in routes),
            "waiting answers": len(self.waiting),
            "remembered ids": len(self.ingress.remembered),
            "queued frames": sum(len(queue) for peer in self.peers.values() for queue in peer.queues),
            **self.weaver.sizes(),
        }

    def send(self, to: str, message: m.Message) -> None:
        """Queue a message."""
        self.sent += 1
        self.peers[to].put(self.name, message)

    # -- room -------------------------------------------------------------------------------------------------------

    def _has_room_for(self, message: m.Message, sender: str) -> bool:
        if sender in self.clients:
            # Full queues of events are told to publishers by name.
            return self._due_to(sender) < self.settings.queue_max
        return not message.is_event or self.has_room_for_events(sender)

    def has_room_for_events(self, sender: str) -> bool:
        """Whether everyone who may get a batch of events can; no neighbour gets back what it has sent."""
        limit, upstream = self.settings.queue_max, sender if sender in self.neighbours else None
        return all(len(peer.queues[EVENTS]) < limit for name, peer in self.peers.items() if name != upstream)

    def has_room_towards(self, peer: str) -> bool:
        return len(self.peers[peer].queues[EVENTS]) < self.settings.queue_max

    def _due_to(self, client: str) -> int:
        """Answers that wait for a client to take them, or for others to confirm."""
        return len(self.peers[client].queues[CONTROL]) + sum(one.peer == client for one in self.waiting)

    # -- the steps that advice may stand in for ---------------------------------------------------------------------

    def add_subscription(self, topic: str, condition: Filter, client: str, name: str, columns: Columns) -> None:
        own = {"name": name, "columns": columns}
        self.tell_neighbours(topic, [self.weaver.call("sub_add", topic, condition, client, own=own)])

    def remove_subscription(self, topic: str, condition: Filter, client: str, name: str) -> None:
        self.tell_neighbours(topic, [self.weaver.call("sub_del", topic, condition, client, own={"name": name})])

    def start_advertising(self, topic: str, peer: str) -> None:
        if peer in self.routes(topic).advertisers:
            return
        self.weaver.call("ad_add", topic, peer)
        self._update_advertisements(topic)
        if peer in self.neighbours and self.settings.forwarding == "advertised":
            self._tell(topic, peer, added=self.routes(topic).summaries[peer].told)

    def stop_advertising(self, topic: str, peer: str) -> None:
        if peer not in self.routes(topic).advertisers:
            return
        self.weaver.call("ad_del", topic, peer)
        self._update_advertisements(topic)
        if peer in self.neighbours and self.settings.forwarding == "advertised":
            self._tell(topic, peer, dropped=self.routes(topic).summaries[peer].told)

    def _update_advertisements(self, topic: str) -> None:
        routes = self.routes(topic)
        for neighbour, is_due in list(routes.advertisement_changes()):
            extras = self.weaver.call_sending("ad_send" if is_due else "unad_send", topic, neighbour)
            if is_due and neighbour in routes.advertised_to:
                generation = routes.generations[neighbour] = routes.generations.get(neighbour, 0) + 1
                self.send(neighbour, m.Advertised(topic, self.change_for(neighbour), generation, extras))
            elif not is_due and neighbour not in routes.advertised_to:
                generation = routes.generations[neighbour]
                self.send(neighbour, m.Unadvertised(topic, self.change_for(neighbour), generation, extras))

    def tell_neighbours(self, topic: str, befores: list[Mapping[str, Before]]) -> None:
        """Say what changes did to the filters on the other sides of each neighbour."""
        routes = self.routes(topic)
        for neighbour, shift in sorted(combined(befores).items()):
            if self.settings.forwarding == "flooded" or neighbour in routes.advertisers:
                self._tell(topic, neighbour, added=shift.risen, dropped=shift.sunk)

    def _tell(
        self, topic: str, neighbour: str, *, added: tuple[Filter, ...] = (), dropped: tuple[Filter, ...] = ()
    ) -> None:
        """The new before the old, in one message, so that no event falls between the two."""
        draft = Draft()
        extras: m.Extras = {}
        if added:
            extras |= self.weaver.call_sending("sub_send", topic, added, neighbour, own={"draft": draft})
        if dropped:
            extras |= self.weaver.call_sending("unsub_send", topic, dropped, neighbour, own={"draft": draft})
        if draft.added or draft.dropped:
            change = self.change_for(neighbour)
            self.send(neighbour, m.Subscribed(topic, change, draft.added, draft.dropped, extras))

    def change_for(self, neighbour: str) -> int:
        """The number of a change that a neighbour is about to be told, and has to confirm."""
        peer = self.peers[neighbour]
        peer.changes += 1
        peer.unconfirmed.add(peer.changes)
        return peer.changes

    def when_confirmed(self, peer: str, answer: m.Message, subscription: str = "") -> None:
        """Answer once all others have confirmed what they were told."""
        self.weaver.attached = {}
        needs = {(n, change) for n in self.neighbours if n != peer for change in self.peers[n].unconfirmed}
        waiting = Waiting(peer, answer, needs, subscription)
        if needs:
            self.waiting.append(waiting)
        else:
            self.answer(waiting)

    def answer(self, waiting: Waiting) -> None:
        """Nobody has to confirm anything any more."""
        self.send(waiting.peer, waiting.answer)
        if waiting.subscription:
            self.weaver.acknowledged(waiting.peer, waiting.subscription)

    def forward(self, topic: str, events: pa.RecordBatch, upstream: str) -> None:
        matched: Matched = self.weaver.call("pub_match", topic, events)
        self.weaver.call("pub_send", topic, events, matched, upstream)
        self.weaver.attached = {}

    # -- the broker's own steps at the joinpoints --------------------------------------------------------------------

    def own_ad_add(self, topic: str, peer: str) -> None:
        self.routes(topic).advertisers.add(peer)

    def own_ad_del(self, topic: str, peer: str) -> None:
        self.routes(topic).advertisers.discard(peer)

    def own_sub_add(
        self, topic: str, condition: Filter, peer: str, name: str | None = None, columns: Columns = None
    ) -> dict[str, Before]:
        if name is not None:
            return self.routes(topic).add_subscription(peer, name, condition, columns)
        return self.routes(topic).add_neighbour_filter(peer, condition)

    def own_sub_del(self, topic: str, condition: Filter, peer: str, name: str | None = None) -> dict[str, Before]:
        if name is not None:
            return self.routes(topic).remove_subscription(peer, name)
        return self.routes(topic).remove_neighbour_filter(peer, condition)

    def own_pub_match(self, topic: str, events: pa.RecordBatch) -> Matched:
        return self.routes(topic).match(events)

    def own_pub_send(self, topic: str, events: pa.RecordBatch, matched: Matched, upstream: str) -> None:
        for neighbour, rows in matched.neighbours.items():
            if neighbour != upstream:
                self.send(neighbour, m.Published(topic, _taken(events, rows), matched.extras.get(neighbour, {})))
        there = events.schema.names
        for client, wanted in sorted(matched.clients.items()):
            rows, places = _each_once(wanted)
            columns = self.routes(topic).columns_for(client, wanted, there)
            chosen = events if columns == there else events.select(columns)
            self.send(client, m.Delivered(topic, _taken(chosen, rows), places))

    def own_sub_send(self, topic: str, added: tuple[Filter, ...], neighbour: str, draft: Draft) -> None:
        draft.added += added

    def own_unsub_send(self, topic: str, dropped: tuple[Filter, ...], neighbour: str, draft: Draft) -> None:
        draft.dropped += dropped

    def own_ad_send(self, topic: str, neighbour: str) -> None:
        self.routes(topic).advertised_to.add(neighbour)

    def own_unad_send(self, topic: str, neighbour: str) -> None:
        self.routes(topic).advertised_to.discard(neighbour)


def _each_once(wanted: Mapping[str, Rows]) -> tuple[Rows, dict[str, tuple[int, ...]]]:
    """The rows that some subscription wants, and where among them those of each are."""
    if len(wanted) == 1:
        ((name, rows),) = wanted.items()
        return rows, {name: tuple(range(len(rows)))}
    rows = np.unique(np.concatenate(list(wanted.values())))
    return rows, {name: tuple(np.searchsorted(rows, of).tolist()) for name, of in sorted(wanted.items())}


def _taken(events: pa.RecordBatch, rows: Rows) -> pa.RecordBatch:
    """Rows of a batch, without copying them if they lie side by side."""
    if len(rows) == events.num_rows:
        return events
    first, last = int(rows[0]), int(rows[-1])
    return events.slice(first, len(rows)) if last - first < len(rows) else events.take(pa.array(rows))
