"""The broker: a state machine that forwards events to those who want them.

    step(inputs)    handle all that waits: an outcome for each input, frames to send, requests to the store, the timer

Rule 1: no input or output, no clock, no chance: what a broker does depends on its inputs alone, one after the other.
Rule 2: events of one topic that wait together from one side (all clients are one) are joined and matched once; a join
        ends at any other input. So does what foreign publishers post, topic by topic, behind the events of clients.
Rule 3: neighbours get deltas only, never an empty update.
Rule 4: a change is acknowledged after every change that it caused is confirmed.
Rule 5: peers are visited in the order of their names.
Rule 6: the broker queues nothing. Whoever hosts it parks what a peer does not take yet, and says when that is too much;
        then clients' publications are refused, and nothing else is: what an advice publishes, nobody could keep back.

How clients come and go is in `clients.py`, what they ask for in `requests.py`, what neighbours say in `neighbours.py`,
how topics are added in `topics.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from catchment.broker import clients, neighbours, requests, topics
from catchment.broker import messages as m
from catchment.broker.advice import NO_CATALOGUE, OWN, Advice, Catalogue, KnownSubscription
from catchment.broker.confirmations import Confirmations, WaitingAnswer
from catchment.broker.demands import Demand
from catchment.broker.frames import EPOCH, BatchCoder, Envelope, FrameWriter, fitting_messages, message_bytes, opened
from catchment.broker.guarding import Guard, InputFailure
from catchment.broker.ingress import Ingress
from catchment.broker.inputs import (
    ALONG,
    TAKEN,
    AdviceAttached,
    AdviceRemoved,
    Allowed,
    Input,
    Item,
    Outcome,
    Post,
    Posted,
    Received,
    Replied,
    Room,
    Send,
    Step,
    Traffic,
    Woken,
    add_traffic,
)
from catchment.broker.joining import Joined, JoinedMessage
from catchment.broker.limits import DEFAULT_LIMITS, ClientLimits, require_name, shortened
from catchment.broker.peers import HERE, HISTORY, Peer
from catchment.broker.routing import Before, Matched, Routes, RowNumbers, combined, rising
from catchment.broker.summaries import SUMMARIES
from catchment.broker.weaving import Failure, Weaver
from catchment.model.errors import CatchmentError, ConfigurationError, FrameError
from catchment.model.schema import Schema
from catchment.stages import event_bytes

__all__ = ["Broker", "Draft", "Forwarding", "Settings"]

Forwarding = Literal["advertised", "flooded"]
NEVER_US = -(2**62)
TIMER_TURNS_MAX = 10_000
"""Times for which timers are called before one input; later ones wait for the next."""
Columns = tuple[str, ...] | None
Counts = tuple[str, int, int]
"""As what a message counts: kind, messages, bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What brokers of one overlay agree on."""

    schemas: Mapping[str, Schema]
    """The topics that brokers begin with; others are added while they run."""
    forwarding: Forwarding = "advertised"
    """Where subscriptions go: towards publishers, or everywhere."""
    summary: Literal["bound", "covering", "each"] = "covering"
    requests_max: int = 10_000
    """Requests of one client that may wait for their answers."""
    meters: bool = False
    """Whether bytes are counted of what crosses links, and what advice has to do with it: a quarter of the time of a
    step with one event."""
    remembered_max: int = 12_000_000
    """Ids that clients supply, remembered against repetition: 100,000 a second for as long as they count."""
    limits: ClientLimits = DEFAULT_LIMITS

    def __post_init__(self) -> None:
        if self.forwarding not in ("advertised", "flooded"):
            raise ConfigurationError(f"forwarding is {self.forwarding!r}; accepted are 'advertised' and 'flooded'")
        if self.summary not in SUMMARIES:
            raise ConfigurationError(f"summary is {self.summary!r}; accepted are {', '.join(SUMMARIES)}")
        for topic in self.schemas:
            require_name("a topic", topic)
        for name in ("requests_max", "remembered_max"):
            if getattr(self, name) < 1:
                raise ConfigurationError(f"{name} is {getattr(self, name)}; accepted are numbers from 1 on")


@dataclass(slots=True)
class Draft:
    """A message to a neighbour about demands, while it is made."""

    added: tuple[Demand, ...] = ()
    dropped: tuple[Demand, ...] = ()


class Broker:
    """One broker of an overlay, whose `neighbours` are those of the tree that messages follow.

    `incarnation` counts the lives of a broker that starts without its memory; one that is brought back keeps its own.
    `catalogue` has what may be attached while it runs, by name: how to make an advice.
    """

    def __init__(
        self,
        name: str,
        neighbours: Iterable[str],
        settings: Settings,
        advice: Iterable[Advice] = (),
        *,
        catalogue: Catalogue = NO_CATALOGUE,
        incarnation: int = 1,
    ) -> None:
        self.name, self.settings, self.incarnation, self._catalogue = name, settings, incarnation, catalogue
        self.neighbours = tuple(sorted(set(neighbours)))
        for one in (name, *self.neighbours):
            require_name("a broker", one)
        self._guard, self.coder = Guard(self), BatchCoder()
        self.counters: Counter[str] = Counter()
        self.peers = {neighbour: Peer() for neighbour in self.neighbours}
        self.history = Peer(writer=FrameWriter(is_remembered=False))
        """What is recorded here, for whoever reads it later."""
        self.clients: set[str] = set()
        self.schemas = dict(settings.schemas)
        """All topics that are known; changed by `topics.py` alone."""
        self.placements: dict[str, str] = {}
        """Of topics whose placement was changed while the broker ran."""
        self.topics: dict[str, Routes] = {}
        self.subscribed: dict[tuple[str, str], KnownSubscription] = {}
        self.confirmations = Confirmations(self.neighbours)
        self.ingress = Ingress(name, self.schemas, settings.remembered_max)
        self.now_us, self.position = NEVER_US, 0
        self.is_full = False
        """More waits in this broker's own log than may."""
        self.rights: Mapping[str, Allowed] | None = None
        """By owner; None while everybody may do everything."""
        self.weaver = Weaver(self, advice)
        self._joined: dict[str, Joined] = {}
        """By topic, events that are not forwarded yet; empty between steps."""
        self._posts: dict[str, list[Post]] = {}
        """By topic, what foreign publishers have posted; empty between steps."""
        self._outgoing: dict[str, list[m.Message]] = {}
        self._leaving: dict[str, Peer] = {}
        """Clients that were dropped in this step."""
        self._begin_step()

    # -- the boundary ---------------------------------------------------------------------------------------------

    def step(self, inputs: Iterable[Input]) -> Step:
        """Handle inputs in their order."""
        for one in inputs:
            self._outcomes.append(self._handle(one))
        self._guard.attempt("joined events", self.forward_joined)
        sends, requests_ = self._sealed(), self.weaver.requests.take()
        step = Step(
            tuple(self._outcomes), sends, requests_, self.weaver.timer_us(), self._taken, self.work, self._traffic,
            self._traffic_by_advice, self.events, tuple(dict.fromkeys(self._begun)),
        )  # fmt: skip
        self._begin_step()
        return step

    def _begin_step(self) -> None:
        self._taken: Counter[str] = Counter()
        self.work: Counter[str] = Counter()
        self._traffic: Traffic = {}
        self._traffic_by_advice: Traffic = {}
        self.events: Counter[tuple[str, str]] = Counter()
        self._begun: list[str] = []
        self._outcomes: list[Outcome] = []
        """Of the inputs so far; those of posts may still change."""
        self._quiet_until_us = NEVER_US
        """No timer is due before that, as long as nothing but posts comes."""

    def _handle(self, one: Input) -> Outcome:
        if one.at_us < self._quiet_until_us and type(one.item) is Posted:
            self.now_us, self.position = max(self.now_us, one.at_us), max(self.position, one.position)
            return self._wait(one.item)
        if self._timer_due_us() <= one.at_us:
            self._guard.attempt("timers", self._pass_time, one.at_us)
        self.now_us = max(self.now_us, one.at_us)
        self.position = max(self.position, one.position)
        outcome, reason = self._guard.attempt(type(one.item).__name__, self._take, one.item)
        self._quiet_until_us = self._timer_due_us() if isinstance(one.item, Posted) else NEVER_US
        return outcome if outcome is not None else Outcome("refused", reason)

    def _timer_due_us(self) -> int:
        due_us = self.weaver.timer_us()
        return -NEVER_US if due_us is None else due_us

    def _wait(self, item: Posted) -> Outcome:
        """Let a post wait for others; its outcome changes if an advice refuses it."""
        self._posts.setdefault(item.topic, []).append(Post(item.data, self.now_us, len(self._outcomes)))
        return TAKEN

    def _take(self, item: Item) -> Outcome:
        if isinstance(item, Posted):
            return self._wait(item)
        outcome = self._receive(item.data) if isinstance(item, Received) else self._note(item)
        self.weaver.rounds.run()
        return outcome

    def _note(self, item: Item) -> Outcome:
        """Handle anything but a frame."""
        self.forward_joined()
        handle: Callable[[Broker, Any], Outcome] = _HANDLERS[type(item)]
        try:
            return handle(self, item)
        except CatchmentError as error:
            return Outcome("refused", shortened(str(error)))

    def _pass_time(self, at_us: int) -> None:
        """Call timers at the times that they were set for; what they set for now or the past comes after this input."""
        turns = 0
        self.weaver.timers_until_us = at_us
        try:
            while (due_us := self.weaver.timer_us()) is not None and due_us <= at_us:
                self.forward_joined()
                self.now_us = max(self.now_us, due_us)
                self.weaver.wake()
                self.weaver.rounds.run()
                turns += 1
                if turns == TIMER_TURNS_MAX:
                    self.counters["timers put off to the next input"] += 1
                    break
        finally:
            self.weaver.timers_until_us = None

    def _receive(self, data: bytes) -> Outcome:
        try:
            envelope = opened(data)
        except FrameError as error:
            self.counters["frames that do not decode"] += 1
            return Outcome("refused", str(error))
        sender = envelope.sender
        if envelope.epoch != EPOCH:
            reason = f"a frame of {sender!r} is of epoch {envelope.epoch}; accepted is {EPOCH}"
            return self._cannot_read(envelope, reason)
        peer = self.peers.get(sender)
        if peer is None:
            known = ", ".join(sorted(self.peers)) or "none"
            return Outcome("stranger", f"no {sender!r} is at broker {self.name!r}; there are {known}")
        if sender in self.neighbours and envelope.incarnation > peer.incarnation:
            # Whatever it raises, the frame counts, or the link would wait for it for ever.
            self._guard.attempt("a neighbour's new life", self._neighbour_begins, sender, envelope.incarnation)
        outcome = peer.judge(envelope)
        if outcome.kind != "taken":
            return outcome
        peer.received += 1
        self.work["frame"] += 1
        try:
            messages = peer.reader.messages(envelope)
        except FrameError as error:
            # The link goes on behind it, or nothing that this sender says would ever be heard again.
            return self._cannot_read(envelope, str(error))
        if sender in self.clients:
            reason = requests.refuse_too_large(self, messages, sender, len(data))
            if reason:
                return Outcome("refused", reason)
        reasons = [self.hear(message, sender) for message in messages]
        failed = next((reason for reason in reasons if reason), None)
        return TAKEN if failed is None else Outcome("refused", failed)

    def _cannot_read(self, envelope: Envelope, reason: str) -> Outcome:
        self.counters["frames that do not decode"] += 1
        if envelope.sender in self.clients:
            requests.refuse_unreadable(self, envelope.sender, envelope.messages, reason)
        return Outcome("refused", reason)

    def hear(self, message: m.Message, sender: str) -> str:
        """Handle a message of a client or a neighbour; why it failed, or an empty text."""
        _, reason = self._guard.attempt(type(message).__name__, self._hear, message, sender)
        if reason:
            self._guard.give_up(message, sender, reason)
        return reason

    def _hear(self, message: m.Message, sender: str) -> None:
        is_client = sender in self.clients
        self._taken[type(message).__name__] += 1
        if isinstance(message, m.PublishEvents if is_client else m.Published):
            self._join(message, sender, is_client=is_client)
            return
        self.forward_joined()
        handler = (requests.HANDLERS if is_client else neighbours.HANDLERS).get(type(message))
        if handler is None:
            self.counters["messages out of place"] += 1
        else:
            handler(self, message, sender)
            self.weaver.rounds.run()

    def _sealed(self) -> tuple[Send, ...]:
        """All messages of this step as frames, by peer."""
        found: dict[str, Send] = {}
        # A message that no frame can carry may let others leave.
        while self._outgoing:
            outgoing, self._outgoing = self._outgoing, {}
            for name, messages in sorted(outgoing.items()):
                peer = self.history if name == HISTORY else self.peers.get(name) or self._leaving.pop(name, None)
                if peer is None or not (frames := self._guard.frames(name, peer, messages)):
                    continue
                before = found.get(name)
                first, earlier = (peer.sent + 1, ()) if before is None else (before.first, before.frames)
                found[name] = Send(name, (*earlier, *frames), first, self.position)
                peer.sent += len(frames)
        self.coder.forget()
        return tuple(found[name] for name in sorted(found))

    def unsend(self, to: str, kind: type[m.Message], request: int) -> None:
        """Take an answer back that is about to leave."""
        said = self._outgoing.get(to, [])
        said[:] = [one for one in said if not (isinstance(one, kind) and getattr(one, "request", None) == request)]

    def answers_under_way(self, peer: str) -> list[m.Message]:
        """What a peer is about to be sent, or will be once others have confirmed."""
        waiting = self.confirmations.answers_for(peer)
        return [*self._outgoing.get(peer, ()), *waiting, *self.weaver.rounds.answers_for(peer)]

    def send(self, to: str, message: m.Message, counts: Counts | None = None) -> None:
        """Let a message leave at the end of this step; `counts` says what it counts as, if not as itself.

        What is for an advice as a client of this broker stays here.
        """
        if to.startswith(OWN):
            self.weaver.rounds.hear(to, message)
            return
        self.work["send"] += 1
        self._outgoing.setdefault(to, []).append(message)
        if to in self.neighbours:
            self._count(to, message, counts)

    def _count(self, to: str, message: m.Message, counts: Counts | None) -> None:
        kind, messages, size = counts or _counts_of(message, with_bytes=self.settings.meters)
        add_traffic(self._traffic, (to, kind), messages, size)
        if not self.settings.meters:
            return
        if isinstance(message, m.AdviceMessage):
            add_traffic(self._traffic_by_advice, (to, message.advice, kind), messages, size)
        for advice, body in getattr(message, "extras", {}).items():
            add_traffic(self._traffic_by_advice, (to, advice, ALONG), 1, len(body))

    # -- events that are joined ---------------------------------------------------------------------------------------

    def _join(self, message: m.PublishEvents | m.Published, sender: str, *, is_client: bool) -> None:
        joined = self._joined.get(message.topic)
        side = HERE if is_client else sender
        if joined is not None and not joined.takes(side, message):
            self.forward_joined(message.topic)
            joined = None
        if joined is None:
            joined = self._joined[message.topic] = Joined(side)
        joined.parts.append(JoinedMessage(sender, message, self.now_us))

    def forward_joined(self, topic: str | None = None) -> None:
        """Forward the events that wait, of one topic or of all; with all, what was posted as well."""
        for name in [topic] if topic is not None else list(self._joined):
            joined = self._joined.pop(name)
            self.work["join"] += len(joined.parts) - 1
            where = f"events of {name}"
            if joined.side != HERE:
                self._guard.attempt(where, neighbours.forward, self, name, joined)
                continue
            _, reason = self._guard.attempt(where, requests.publish, self, name, joined.parts)
            for one in joined.parts if reason else ():
                self._guard.give_up(one.message, one.sender, reason)
        if topic is None and self._posts:
            self._hand_posts()
        self.weaver.rounds.run()

    def _hand_posts(self) -> None:
        """Give an advice what was posted, and note what it refuses."""
        posted, self._posts = self._posts, {}
        for topic, posts in posted.items():
            self._taken["Posted"] += len(posts)
            refused, failure = self._guard.attempt(f"posts of {topic}", self.weaver.posted, topic, posts)
            if refused is None:
                refused = dict.fromkeys(range(len(posts)), failure)
            for place, reason in refused.items():
                self._outcomes[posts[place].number] = Outcome("refused", shortened(reason))
                self.weaver.report("posts that were refused", shortened(reason))

    # -- clients and neighbours come and go ---------------------------------------------------------------------------

    def admit_client(self, client: str, peer: Peer) -> None:
        """Know a client that begins a life; what an earlier one was about to hear is for nobody."""
        self.peers[client] = peer
        self.clients.add(client)
        self._leaving.pop(client, None)
        self._outgoing.pop(client, None)
        self._begun.append(client)

    def drop_client(self, client: str) -> None:
        """Forget a client, and take back all that it wanted and advertised."""
        for owner, name in sorted(self.subscribed):
            if owner == client:
                requests.unsubscribe(self, client, name)
        for topic in sorted(self.peers[client].topics):
            self.stop_advertising(topic, client)
        self.clients.remove(client)
        del self.peers[client]
        self._outgoing.pop(client, None)
        self.confirmations.forget_client(client)

    def said_to(self, peer: str) -> list[m.Message]:
        """What a peer is about to be sent in this step."""
        return list(self._outgoing.get(peer, ()))

    def let_leave(self, client: str, peer: Peer, kept: Sequence[m.Message], last: m.Dropped) -> None:
        """Send a client that was dropped the last that it hears, behind what is kept of this step."""
        self._leaving[client], self._outgoing[client] = peer, list(kept)
        self.send(client, last)

    def _neighbour_begins(self, neighbour: str, incarnation: int) -> None:
        """A neighbour has begun a new life: it knows nothing of before, and wants and advertises nothing yet."""
        peer = self.peers[neighbour]
        is_first = peer.incarnation == 0
        peer.begin(incarnation)
        if is_first:
            return
        # Whatever this raises, the link begins anew as well, or its frames would never be taken.
        self._guard.attempt("a neighbour's old life", self._take_back_all, neighbour)
        # It would take answers to changes of its old life for answers to its new ones.
        for waiting in self.confirmations.confirm_all(neighbour):
            self.answer(waiting)
        self._outgoing.pop(neighbour, None)
        self.weaver.unclaimed.forget_sender(neighbour)
        peer.writer, peer.sent = FrameWriter(), 0
        topics.announce(self, neighbour)
        for topic, routes in sorted(self.topics.items()):
            routes.advertised_to.discard(neighbour)
            self._update_advertisements(topic)
            if self.settings.forwarding == "flooded":
                self._send_demands(topic, neighbour, added=routes.summaries[neighbour].sent)
        self.weaver.happened("on_neighbour_began", neighbour)

    def _take_back_all(self, neighbour: str) -> None:
        """Take back all that a neighbour wanted and advertised."""
        self.forward_joined()
        for topic, routes in sorted(self.topics.items()):
            self.update_neighbours(
                topic, [self.weaver.call("sub_del", topic, one, neighbour) for one in list(routes.demands[neighbour])]
            )
            self.stop_advertising(topic, neighbour)

    # -- room -------------------------------------------------------------------------------------------------------

    def _room(self, item: Room) -> Outcome:
        if item.neighbour == self.name:
            self.is_full = item.is_full
            return TAKEN
        if item.neighbour not in self.neighbours:
            there = ", ".join(self.neighbours) or "none"
            raise ConfigurationError(f"{item.neighbour!r} is no neighbour of {self.name!r}; there are {there}")
        self.peers[item.neighbour].is_full = item.is_full
        self.send_room()
        return TAKEN

    def send_room(self) -> None:
        """Send each neighbour whether there is room on all other sides, where that has changed."""
        for neighbour in self.neighbours:
            full = any(self._is_full(one) for one in self.neighbours if one != neighbour)
            if full != self.peers[neighbour].sent_full:
                self.peers[neighbour].sent_full = full
                self.send(neighbour, m.RoomChanged(full))

    @property
    def has_room(self) -> bool:
        """Whether clients may publish."""
        return not self.is_full and not any(map(self._is_full, self.neighbours))

    def _is_full(self, neighbour: str) -> bool:
        return self.peers[neighbour].is_full or self.peers[neighbour].says_full

    # -- what the host and advice may look at -----------------------------------------------------------------------

    @property
    def failures(self) -> tuple[Failure, ...]:
        """The last failures of advice."""
        return tuple(self.weaver.failures)

    @property
    def input_failures(self) -> tuple[InputFailure, ...]:
        """The last failures of the broker itself, counted as `inputs that failed`."""
        return tuple(self._guard.failures)

    @property
    def is_at_rest(self) -> bool:
        """Nobody waits for an answer."""
        return not self.confirmations

    def routes(self, topic: str) -> Routes:
        if topic not in self.topics:
            make = SUMMARIES[self.settings.summary]
            self.topics[topic] = Routes(self.schemas[topic].with_implicit(), self.neighbours, make)
        return self.topics[topic]

    def table_sizes(self) -> dict[str, int]:
        """How large everything is that could grow."""
        routes = self.topics.values()
        return {
            "demands of neighbours": sum(len(one) for r in routes for one in r.demands.values()),
            "subscriptions": len(self.subscribed),
            "advertisements": sum(len(r.advertisers) for r in routes),
            "waiting answers": len(self.confirmations),
            "remembered ids": len(self.ingress.recent),
            "bytes for unknown advice": self.weaver.unclaimed.size_bytes,
            **self.weaver.sizes(),
        }

    # -- the steps that advice may stand in for ---------------------------------------------------------------------

    def add_subscription(self, topic: str, demand: Demand, client: str, name: str, columns: Columns) -> None:
        own = {"name": name, "columns": columns}
        self.update_neighbours(topic, [self.weaver.call("sub_add", topic, demand, client, own=own)])

    def remove_subscription(self, topic: str, demand: Demand, client: str, name: str) -> None:
        self.update_neighbours(topic, [self.weaver.call("sub_del", topic, demand, client, own={"name": name})])

    def let_go(self, client: str, name: str) -> None:
        """Demand no more what a subscription demands that is there."""
        topic = self.subscribed[client, name].topic
        known = self.routes(topic).subscriptions.get((client, name))
        if known is not None:
            self.remove_subscription(topic, known[0], client, name)

    def start_advertising(self, topic: str, peer: str) -> None:
        if peer in self.routes(topic).advertisers:
            return
        self.weaver.call("ad_add", topic, peer)
        self._update_advertisements(topic)
        if peer in self.neighbours and self.settings.forwarding == "advertised":
            self._send_demands(topic, peer, added=self.routes(topic).summaries[peer].sent)

    def stop_advertising(self, topic: str, peer: str) -> None:
        if peer not in self.routes(topic).advertisers:
            return
        self.weaver.call("ad_del", topic, peer)
        self._update_advertisements(topic)
        if peer in self.neighbours and self.settings.forwarding == "advertised":
            self._send_demands(topic, peer, dropped=self.routes(topic).summaries[peer].sent)

    def _update_advertisements(self, topic: str) -> None:
        routes = self.routes(topic)
        for neighbour, is_due in list(routes.advertisement_changes()):
            extras = self.weaver.call_sending("ad_send" if is_due else "unad_send", topic, neighbour)
            if is_due and neighbour in routes.advertised_to:
                self.send(neighbour, m.Advertised(topic, self.change_for(neighbour), extras))
            elif not is_due and neighbour not in routes.advertised_to:
                self.send(neighbour, m.Unadvertised(topic, self.change_for(neighbour), extras))

    def update_neighbours(self, topic: str, befores: list[Mapping[str, Before]]) -> None:
        """Send each neighbour what changes did to the demands on its other sides."""
        routes = self.routes(topic)
        for neighbour, shift in sorted(combined(befores).items()):
            if self.settings.forwarding == "flooded" or neighbour in routes.advertisers:
                self._send_demands(topic, neighbour, added=shift.risen, dropped=shift.sunk)

    def _send_demands(
        self, topic: str, neighbour: str, *, added: tuple[Demand, ...] = (), dropped: tuple[Demand, ...] = ()
    ) -> None:
        """Send the new before the old, in one step, so that no event falls between the two."""
        draft = Draft()
        extras: m.Extras = {}
        if added:
            extras |= self.weaver.call_sending("sub_send", topic, added, neighbour, own={"draft": draft})
        if dropped:
            extras |= self.weaver.call_sending("unsub_send", topic, dropped, neighbour, own={"draft": draft})
        for some_added, some_dropped in fitting_messages(topic, draft.added, draft.dropped):
            change = self.change_for(neighbour)
            self.send(neighbour, m.Subscribed(topic, change, some_added, some_dropped, extras))
            extras = {}

    def change_for(self, neighbour: str) -> int:
        """The number of a change that a neighbour is about to be sent, and has to confirm."""
        return self.confirmations.next_change(neighbour)

    def when_confirmed(self, peer: str, answer: m.Acknowledged | m.Confirmed, subscription: str = "") -> None:
        """Answer once all others have confirmed what they were sent, also by requests of advice that this led to."""
        self.weaver.attached = {}
        if not self.weaver.rounds.put_off(peer, answer, subscription):
            self.weaver.rounds.run()
            self.answer_once_confirmed(peer, answer, subscription)

    def answer_once_confirmed(self, peer: str, answer: m.Acknowledged | m.Confirmed, subscription: str) -> None:
        due = self.confirmations.wait(peer, answer, subscription)
        if due is not None:
            self.answer(due)

    def answer(self, waiting: WaitingAnswer) -> None:
        """Nobody has to confirm anything any more."""
        self.send(waiting.peer, waiting.answer)
        if waiting.subscription:
            self.weaver.happened("on_acknowledged", waiting.peer, waiting.subscription)

    def forward(self, topic: str, events: pa.RecordBatch, upstream: str) -> None:
        self.work["match"] += events.num_rows
        matched: Matched = self.weaver.call("pub_match", topic, events)
        self.weaver.call("pub_send", topic, events, matched, upstream)

    # -- the broker's own steps at the joinpoints --------------------------------------------------------------------

    def own_ad_add(self, topic: str, peer: str) -> None:
        self.routes(topic).advertisers.add(peer)

    def own_ad_del(self, topic: str, peer: str) -> None:
        self.routes(topic).advertisers.discard(peer)

    def own_sub_add(
        self, topic: str, demand: Demand, peer: str, name: str | None = None, columns: Columns = None
    ) -> dict[str, Before]:
        if name is not None:
            return self.routes(topic).add_subscription(peer, name, demand, columns)
        return self.routes(topic).add_demand(peer, demand)

    def own_sub_del(self, topic: str, demand: Demand, peer: str, name: str | None = None) -> dict[str, Before]:
        if name is not None:
            return self.routes(topic).remove_subscription(peer, name)
        return self.routes(topic).remove_demand(peer, demand)

    def own_pub_match(self, topic: str, events: pa.RecordBatch) -> Matched:
        return self.routes(topic).match(events)

    def own_pub_send(self, topic: str, events: pa.RecordBatch, matched: Matched, upstream: str) -> None:
        onwards = {side: rows for side, rows in matched.neighbours.items() if side != upstream and len(rows)}
        clients = sorted(matched.clients.items())
        each = [rising(wanted.rows, events.num_rows) for _, wanted in clients]
        taken = iter(_taken(events, [*onwards.values(), *each]))
        for neighbour, rows in onwards.items():
            notes = matched.notes.get(neighbour)
            noted = None if notes is None else pa.RecordBatch.from_pydict(notes)
            if noted is not None and noted.num_rows != len(rows):
                raise ConfigurationError(f"{noted.num_rows} notes are about {len(rows)} events; accepted are as many")
            self.send(neighbour, m.Published(topic, next(taken), noted))
        routes, there = self.routes(topic), events.schema.names if clients else []
        for (client, wanted), rows, chosen in zip(clients, each, taken, strict=True):
            columns = routes.columns_for(client, wanted.names, there)
            places = wanted.rows
            if events.num_rows > 1:
                place_of = np.empty(events.num_rows, np.int32)
                place_of[rows] = np.arange(len(rows))
                places = place_of[wanted.rows]
            asked_for = chosen if columns is there else chosen.select(columns)
            self.send(client, m.Delivered(topic, asked_for, tuple(wanted.names), wanted.ends, places))

    def own_sub_send(self, topic: str, added: tuple[Demand, ...], neighbour: str, draft: Draft) -> None:
        draft.added += added

    def own_unsub_send(self, topic: str, dropped: tuple[Demand, ...], neighbour: str, draft: Draft) -> None:
        draft.dropped += dropped

    def own_ad_send(self, topic: str, neighbour: str) -> None:
        self.routes(topic).advertised_to.add(neighbour)

    def own_unad_send(self, topic: str, neighbour: str) -> None:
        self.routes(topic).advertised_to.discard(neighbour)


_HANDLERS: Mapping[type, Callable[[Broker, Any], Outcome]] = {
    **clients.HANDLERS,
    **topics.HANDLERS,
    Room: Broker._room,
    AdviceAttached: lambda broker, item: broker.weaver.begin(item.advice, broker._catalogue),
    AdviceRemoved: lambda broker, item: broker.weaver.remove(item.advice),
    Replied: lambda broker, item: broker.weaver.replied(item.reply),
    Woken: lambda broker, item: TAKEN,
}


def _counts_of(message: m.Message, *, with_bytes: bool) -> Counts:
    if isinstance(message, m.Published):
        return "publications", message.events.num_rows, int(event_bytes(message.events).sum()) if with_bytes else 0
    return "control", 1, message_bytes(message) if with_bytes else 0


def _taken(events: pa.RecordBatch, several: Sequence[RowNumbers]) -> list[pa.RecordBatch]:
    """Rows of a batch, rising, for each of several receivers; those that do not lie side by side are copied at once."""
    if events.num_rows == 1:
        return [events] * len(several)
    scattered = [rows for rows in several if len(rows) and rows[-1] - rows[0] >= len(rows)]
    copied = events.take(pa.array(np.concatenate(scattered))) if scattered else events
    found, first = [], 0
    for rows in several:
        if len(rows) == events.num_rows:
            found.append(events)
        elif not len(rows) or rows[-1] - rows[0] < len(rows):
            found.append(events.slice(int(rows[0]) if len(rows) else 0, len(rows)))
        else:
            found.append(copied.slice(first, len(rows)))
            first += len(rows)
    return found
