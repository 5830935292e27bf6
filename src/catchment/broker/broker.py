"""The broker: a state machine that forwards events to those who want them.

    receive(frame, now_us)    a frame has come; False if there is no room for what it sets off, keep it and try again
    take_output()             frames to send, each once, in order per peer
    timer_us()                when it wants to be woken
    handle_timer(now_us)      that time has come
    attach / detach           a client has come to this broker, or gone

Rule 1: no input or output, no clock, no chance: the same calls give the same frames.
Rule 2: what goes to a neighbour is the difference to what it was last told; nothing is never told.
Rule 3: an answer to a change, towards whoever caused it, waits for the answers of all others that it set off.
Rule 4: peers are visited in the order of their names.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from catchment.broker import messages as m
from catchment.broker.advice import Advice
from catchment.broker.frames import Frame, decode
from catchment.broker.ingress import Ingress
from catchment.broker.peers import CONTROL, EVENTS, Peer
from catchment.broker.routing import Before, Matched, Routes, combined
from catchment.broker.summaries import SUMMARIES
from catchment.broker.weaving import Failure, Weaver
from catchment.model.errors import CatchmentError, ConfigurationError, FrameError
from catchment.model.filter import NO_EVENT, Filter
from catchment.model.schema import Schema
from catchment.model.subscription import Subscription

__all__ = ["Broker", "Forwarding", "Send", "Settings", "Waiting"]

Forwarding = Literal["advertised", "flooded"]


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
    """Frames of one traffic class that may wait for one peer."""
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


class Broker:
    """One broker of an overlay, whose `neighbours` are those of the tree that messages follow."""

    def __init__(self, name: str, neighbours: Iterable[str], settings: Settings, advice: Iterable[Advice] = ()) -> None:
        self.name, self.settings = name, settings
        self.neighbours = tuple(sorted(set(neighbours)))
        self.counters: Counter[str] = Counter()
        self.peers = {neighbour: Peer() for neighbour in self.neighbours}
        self.clients: set[str] = set()
        self.topics: dict[str, Routes] = {}
        self.subscribed: dict[tuple[str, str], str] = {}
        self.waiting: list[Waiting] = []
        self.ingress = Ingress(name, settings.schemas, settings.remembered_max)
        self.now_us = 0
        self._pending: dict[str, Any] = {}
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
        if frame.sequence <= peer.received[kind]:
            self.counters["frames that came again"] += 1
            return True
        if frame.sequence > peer.received[kind] + 1:
            self.counters["frames that came too early"] += 1
            return True
        handlers = self._FROM_CLIENT if frame.sender in self.clients else self._FROM_NEIGHBOUR
        handler = handlers.get(type(message))
        if handler is None:
            peer.received[kind] += 1
            self.counters["messages out of place"] += 1
            return True
        if not self._has_room(kind) and not isinstance(message, m.PublishEvents):
            return False
        peer.received[kind] += 1
        handler(self, message, frame.sender, frame.sequence)
        return True

    def take_output(self, most: int | None = None) -> list[Send]:
        """Queued frames; of each peer control and events in turn, so that neither waits for all of the other."""
        taken: list[Send] = []
        for name in sorted(self.peers):
            rest = None if most is None else most - len(taken)
            taken += [Send(name, frame) for frame in self.peers[name].take(rest)]
        return taken

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
                self._unsubscribe(client, name)
        for topic in sorted(self.peers[client].topics):
            self._stop_advertising(topic, client)
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
        }

    def send(self, to: str, message: m.Message) -> None:
        """Queue a message."""
        self.peers[to].put(self.name, message)

    def _has_room(self, kind: int) -> bool:
        return all(len(peer.queues[kind]) < self.settings.queue_max for peer in self.peers.values())

    # -- requests of clients ----------------------------------------------------------------------------------------

    def _answer(self, client: str, request: int, act: Callable[[], None]) -> None:
        """Acknowledge a request once all has taken effect that it set off; or say why it has none."""
        try:
            act()
        except CatchmentError as error:
            self.send(client, m.Refused(request, str(error)))
            return
        self._when_confirmed(client, m.Acknowledged(request))

    def _advertise_topic(self, message: m.AdvertiseTopic, client: str, sequence: int) -> None:
        def act() -> None:
            self._require_topic(message.topic)
            if message.topic not in self.peers[client].topics:
                self.peers[client].topics.add(message.topic)
                self._start_advertising(message.topic, client)

        self._answer(client, message.request, act)

    def _unadvertise_topic(self, message: m.UnadvertiseTopic, client: str, sequence: int) -> None:
        def act() -> None:
            self._require_advertised(message.topic, client)
            self.peers[client].topics.remove(message.topic)
            self._stop_advertising(message.topic, client)

        self._answer(client, message.request, act)

    def _subscribe_to(self, message: m.SubscribeTo, client: str, sequence: int) -> None:
        def act() -> None:
            if (client, message.name) in self.subscribed:
                raise ConfigurationError(f"subscription {message.name!r} is already there; accepted is another name")
            subscription = Subscription(message.name, self.name, sql=message.sql)
            query = subscription.within(self.settings.schemas)
            if query.aggregate is not None:
                raise ConfigurationError(f"subscription {message.name!r} aggregates; accepted here are regular ones")
            self.subscribed[client, message.name] = query.topic
            self._pending = {"name": message.name, "columns": query.columns}
            before = self.weaver.call("sub_add", query.topic, query.where, client)
            self._tell_neighbours(query.topic, [before])

        self._answer(client, message.request, act)

    def _unsubscribe_from(self, message: m.UnsubscribeFrom, client: str, sequence: int) -> None:
        def act() -> None:
            if (client, message.name) not in self.subscribed:
                known = ", ".join(sorted(name for owner, name in self.subscribed if owner == client)) or "none"
                raise ConfigurationError(f"subscription {message.name!r} is not there; there are {known}")
            self._unsubscribe(client, message.name)

        self._answer(client, message.request, act)

    def _unsubscribe(self, client: str, name: str) -> None:
        topic = self.subscribed.pop((client, name))
        condition, _ = self.routes(topic).subscriptions.get((client, name), (NO_EVENT, None))
        self._pending = {"name": name}
        before = self.weaver.call("sub_del", topic, condition, client)
        self._tell_neighbours(topic, [before])

    def _publish_events(self, message: m.PublishEvents, client: str, sequence: int) -> None:
        try:
            self._require_topic(message.topic)
            self._require_advertised(message.topic, client)
            if not self._has_room(EVENTS):
                raise ConfigurationError(
                    f"a queue of broker {self.name!r} is full with {self.settings.queue_max} frames; try again later"
                )
            events = self.ingress.accepted(message.topic, message.events, self.now_us)
        except CatchmentError as error:
            self.send(client, m.Refused(message.request, str(error)))
            return
        self.send(client, m.Acknowledged(message.request))
        if events.num_rows:
            self._forward(message.topic, events, client)

    def _require_topic(self, topic: str) -> None:
        if topic not in self.settings.schemas:
            raise ConfigurationError(f"unknown topic {topic!r}; known are {', '.join(sorted(self.settings.schemas))}")

    def _require_advertised(self, topic: str, client: str) -> None:
        topics = self.peers[client].topics
        if topic not in topics:
            advertised = ", ".join(sorted(topics)) or "none"
            raise ConfigurationError(f"topic {topic!r} is not advertised by {client!r}; advertised: {advertised}")

    # -- messages of neighbours -------------------------------------------------------------------------------------

    def _advertised(self, message: m.Advertised, neighbour: str, sequence: int) -> None:
        # Control and events travel apart: what took an advertisement back may come before it, or after the next one.
        if self._is_known(message.topic) and message.generation > self.routes(message.topic).ended.get(neighbour, 0):
            self.weaver.attached = message.extras
            routes = self.routes(message.topic)
            routes.heard[neighbour] = message.generation
            if neighbour in routes.advertisers:
                self.weaver.call("ad_add", message.topic, neighbour)
            else:
                self._start_advertising(message.topic, neighbour)
        self._when_confirmed(neighbour, m.Confirmed(message.change))

    def _unadvertised(self, message: m.Unadvertised, neighbour: str, sequence: int) -> None:
        if self._is_known(message.topic):
            self.weaver.attached = message.extras
            routes = self.routes(message.topic)
            routes.ended[neighbour] = max(routes.ended.get(neighbour, 0), message.generation)
            if routes.heard.get(neighbour) == message.generation:
                self._stop_advertising(message.topic, neighbour)
        self._when_confirmed(neighbour, m.Confirmed(message.change))

    def _neighbour_subscribed(self, message: m.Subscribed, neighbour: str, sequence: int) -> None:
        if self._is_known(message.topic):
            self.weaver.attached = message.extras
            wanted = self.routes(message.topic).wanted[neighbour]
            befores = [
                self.weaver.call("sub_add", message.topic, condition, neighbour)
                for condition in dict.fromkeys(message.added)
                if condition not in wanted and self._fits(message.topic, condition)
            ]
            for condition in message.dropped:
                if condition in wanted:
                    befores.append(self.weaver.call("sub_del", message.topic, condition, neighbour))
                else:
                    self.counters["filters dropped that were never added"] += 1
            self._tell_neighbours(message.topic, befores)
        self._when_confirmed(neighbour, m.Confirmed(message.change))

    def _published(self, message: m.Published, neighbour: str, sequence: int) -> None:
        if self._is_known(message.topic):
            self.weaver.attached = message.extras
            try:
                self._forward(message.topic, message.events, neighbour)
            except CatchmentError:
                # The broker where they came in has checked them: this one was not said by a broker of ours.
                self.counters["batches that do not fit their topic"] += 1

    def _confirmed(self, message: m.Confirmed, neighbour: str, sequence: int) -> None:
        if message.change not in self.peers[neighbour].unconfirmed:
            self.counters["confirmations of what was never asked"] += 1
            return
        self.peers[neighbour].unconfirmed.remove(message.change)
        for one in self.waiting:
            one.needs.discard((neighbour, message.change))
            if not one.needs:
                self.send(one.peer, one.answer)
        self.waiting = [one for one in self.waiting if one.needs]

    def _told(self, message: m.Told, neighbour: str, sequence: int) -> None:
        self.weaver.deliver(message, neighbour)

    def _is_known(self, topic: str) -> bool:
        if topic not in self.settings.schemas:
            self.counters["messages about unknown topics"] += 1
            return False
        return True

    def _fits(self, topic: str, condition: Filter) -> bool:
        try:
            condition.within(self.routes(topic).schema)
        except CatchmentError:
            self.counters["filters that do not fit their topic"] += 1
            return False
        return True

    # -- the steps that advice may stand in for ---------------------------------------------------------------------

    def _start_advertising(self, topic: str, peer: str) -> None:
        if peer in self.routes(topic).advertisers:
            return
        self.weaver.call("ad_add", topic, peer)
        self._update_advertisements(topic)
        if peer in self.neighbours and self.settings.forwarding == "advertised":
            self._tell(topic, peer, added=self.routes(topic).summaries[peer].told)

    def _stop_advertising(self, topic: str, peer: str) -> None:
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
                self.send(neighbour, m.Advertised(topic, self._change(neighbour), generation, extras))
            elif not is_due and neighbour not in routes.advertised_to:
                generation = routes.generations[neighbour]
                self.send(neighbour, m.Unadvertised(topic, self._change(neighbour), generation, extras))

    def _tell_neighbours(self, topic: str, befores: list[Mapping[str, Before]]) -> None:
        routes = self.routes(topic)
        for neighbour, shift in sorted(combined(befores).items()):
            if self.settings.forwarding == "flooded" or neighbour in routes.advertisers:
                self._tell(topic, neighbour, added=shift.risen, dropped=shift.sunk)

    def _tell(
        self, topic: str, neighbour: str, *, added: tuple[Filter, ...] = (), dropped: tuple[Filter, ...] = ()
    ) -> None:
        """The new before the old, in one message, so that no event falls between the two."""
        self._pending = {"added": (), "dropped": ()}
        extras: m.Extras = {}
        if added:
            extras |= self.weaver.call_sending("sub_send", topic, added, neighbour)
        if dropped:
            extras |= self.weaver.call_sending("unsub_send", topic, dropped, neighbour)
        pending = self._pending
        if pending["added"] or pending["dropped"]:
            change = self._change(neighbour)
            self.send(neighbour, m.Subscribed(topic, change, pending["added"], pending["dropped"], extras))

    def _change(self, neighbour: str) -> int:
        """The number of a change that a neighbour is about to be told, and has to confirm."""
        peer = self.peers[neighbour]
        peer.changes += 1
        peer.unconfirmed.add(peer.changes)
        return peer.changes

    def _when_confirmed(self, peer: str, answer: m.Message) -> None:
        self.weaver.attached = {}
        needs = {(n, change) for n in self.neighbours if n != peer for change in self.peers[n].unconfirmed}
        if needs:
            self.waiting.append(Waiting(peer, answer, needs))
        else:
            self.send(peer, answer)

    def _forward(self, topic: str, events: pa.RecordBatch, upstream: str) -> None:
        matched: Matched = self.weaver.call("pub_match", topic, events)
        self.weaver.call("pub_send", topic, events, matched, upstream)
        self.weaver.attached = {}

    # -- the broker's own steps at the joinpoints --------------------------------------------------------------------

    def own_ad_add(self, topic: str, peer: str) -> None:
        self.routes(topic).advertisers.add(peer)

    def own_ad_del(self, topic: str, peer: str) -> None:
        self.routes(topic).advertisers.discard(peer)

    def own_sub_add(self, topic: str, condition: Filter, peer: str) -> dict[str, Before]:
        if peer in self.clients:
            return self.routes(topic).add_subscription(peer, self._pending["name"], condition, self._pending["columns"])
        return self.routes(topic).add_neighbour_filter(peer, condition)

    def own_sub_del(self, topic: str, condition: Filter, peer: str) -> dict[str, Before]:
        if peer in self.clients:
            return self.routes(topic).remove_subscription(peer, self._pending["name"])
        return self.routes(topic).remove_neighbour_filter(peer, condition)

    def own_pub_match(self, topic: str, events: pa.RecordBatch) -> Matched:
        return self.routes(topic).match(events)

    def own_pub_send(self, topic: str, events: pa.RecordBatch, matched: Matched, upstream: str) -> None:
        for neighbour, rows in matched.neighbours.items():
            if neighbour != upstream:
                self.send(neighbour, m.Published(topic, _taken(events, rows)))
        for client, wanted in sorted(matched.clients.items()):
            rows = np.unique(np.concatenate(list(wanted.values())))
            places = {name: tuple(np.searchsorted(rows, of).tolist()) for name, of in sorted(wanted.items())}
            columns = self.routes(topic).columns_for(client, wanted, events.schema.names)
            self.send(client, m.Delivered(topic, _taken(events, rows).select(columns), places))

    def own_sub_send(self, topic: str, added: tuple[Filter, ...], neighbour: str) -> None:
        self._pending["added"] += added

    def own_unsub_send(self, topic: str, dropped: tuple[Filter, ...], neighbour: str) -> None:
        self._pending["dropped"] += dropped

    def own_ad_send(self, topic: str, neighbour: str) -> None:
        self.routes(topic).advertised_to.add(neighbour)

    def own_unad_send(self, topic: str, neighbour: str) -> None:
        self.routes(topic).advertised_to.discard(neighbour)

    _FROM_CLIENT: Mapping[type, Callable[..., None]] = {
        m.AdvertiseTopic: _advertise_topic,
        m.UnadvertiseTopic: _unadvertise_topic,
        m.SubscribeTo: _subscribe_to,
        m.UnsubscribeFrom: _unsubscribe_from,
        m.PublishEvents: _publish_events,
    }
    _FROM_NEIGHBOUR: Mapping[type, Callable[..., None]] = {
        m.Advertised: _advertised,
        m.Unadvertised: _unadvertised,
        m.Subscribed: _neighbour_subscribed,
        m.Published: _published,
        m.Confirmed: _confirmed,
        m.Told: _told,
    }


def _taken(events: pa.RecordBatch, rows: Any) -> pa.RecordBatch:
    return events if len(rows) == events.num_rows else events.take(pa.array(rows))
