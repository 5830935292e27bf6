"""An overlay of brokers and clients in virtual time, run from a seed.

    client ─► link ─► log ─► step ─► outbox ─► link ─► …

Rule 1: every chance is drawn from the seed, in an order that depends on nothing else; so a seed replays exactly.
Rule 2: links carry bytes. The world looks at outcomes and sizes, and reads along on links where it has to know more.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from random import Random
from typing import Any

import msgspec
import pyarrow as pa

from catchment.broker import messages as m
from catchment.broker.advice import NO_CATALOGUE, Advice, Catalogue
from catchment.broker.broker import Settings
from catchment.broker.inputs import (
    AdviceAttached,
    AdviceRemoved,
    Attached,
    Detached,
    Item,
    Parked,
    Posted,
    Received,
    Replied,
    Resumed,
    Step,
    TopicPlaced,
    TopicsAdded,
    Woken,
)
from catchment.broker.store import StoreReply, StoreRequest
from catchment.broker.topics import PlainTopics, extended
from catchment.model.errors import ConfigurationError
from catchment.overlay import Overlay, topic_tree
from catchment.simulation.clients import Client, Publication, publications_of
from catchment.simulation.network import Network
from catchment.simulation.node import Node
from catchment.simulation.options import CALM, Options
from catchment.simulation.service import FREE
from catchment.simulation.store import STORE, Store
from catchment.simulation.tally import Tally
from catchment.simulation.tap import Tap
from catchment.simulation.timeline import Timeline

__all__ = ["World"]

FOREVER_US = 2**62


class World:
    """Brokers of an overlay, joined along the topic's tree, and the clients at them.

    `traces` keeps a line for every message, as `describe` puts it; `records` keeps every event that was accepted, for
    checkers to look at;
    `make_advice` makes what each broker begins with, `catalogue` what may be attached while it runs; `epoch_us` is what
    brokers' clocks say at the beginning; `watch` is called with every broker that has made a step.
    """

    def __init__(
        self,
        overlay: Overlay,
        settings: Settings,
        *,
        seed: int = 0,
        options: Options = CALM,
        make_advice: Callable[[], Iterable[Advice]] = tuple,
        catalogue: Catalogue = NO_CATALOGUE,
        traces: bool = False,
        records: bool = True,
        describe: Callable[[m.Message], str] = str,
        epoch_us: int = 0,
        watch: Callable[[World, Node], None] | None = None,
    ) -> None:
        self.overlay, self.settings, self.options, self.epoch_us = overlay, settings, options, epoch_us
        self.schemas = dict(settings.schemas)
        """All topics, once every broker knows what was added."""
        self.random = Random(seed)
        self.timeline = Timeline()
        self.trace: list[str] = []
        self.clients: dict[str, Client] = {}
        self.publications: list[Publication] = []
        self.posted: set[str] = set()
        """Ids of events that foreign publishers have stored."""
        self.tally = Tally()
        self._traces, self._records, self._watch = traces, records, watch
        self._describe = describe
        self.store = Store()
        self._network = Network(self.timeline, self.random, options, self._deliver, self._pump)
        self._tap, self._answers = Tap(), Tap()
        self._asked: dict[tuple[str, int], tuple[m.PublishEvents, int] | None] = {}
        """Requests to publish, and when they were stored, by the broker's clock; None once they are answered."""
        self._late: dict[tuple[str, int], set[str]] = {}
        """Ids of late events in answers that go on in another message."""
        self._scheduled: set[str] = set()
        self._wakes: dict[str, int] = {}
        self._down: set[str] = set()
        self._rested_us = 0
        neighbours: dict[str, set[str]] = {name: set() for name in overlay.brokers}
        self.links = topic_tree(overlay).link_names
        for source, target in self.links:
            neighbours[source].add(target)
        self.nodes = {
            name: Node(
                name,
                of,
                settings,
                make_advice,
                catalogue=catalogue,
                limits=options.limits,
                snapshot_every=options.snapshot_every,
                skew_us=epoch_us + self.random.randint(-options.clock_skew_us_max, options.clock_skew_us_max),
            )
            for name, of in neighbours.items()
        }

    # -- what clients do --------------------------------------------------------------------------------------------

    def client(self, broker: str, name: str, *, durable: bool = False) -> Client:
        """A new client at a broker."""
        full = f"{broker}/{name}"
        self.overlay.require(broker)
        self.clients[full] = Client(full, broker)
        self._store(self.nodes[broker], Attached(full, durable=durable))
        return self.clients[full]

    def advertise(self, client: Client, topic: str) -> None:
        self._ask(client, m.AdvertiseTopic, topic)

    def unadvertise(self, client: Client, topic: str) -> None:
        self._ask(client, m.UnadvertiseTopic, topic)

    def subscribe(self, client: Client, name: str, sql: str) -> None:
        self._ask(client, m.SubscribeTo, name, sql)

    def unsubscribe(self, client: Client, name: str) -> None:
        self._ask(client, m.UnsubscribeFrom, name)

    def publish(self, client: Client, topic: str, events: pa.RecordBatch) -> None:
        self._ask(client, m.PublishEvents, topic, events)

    def post(self, broker: str, topic: str, rows: Sequence[Mapping[str, Any]], *, as_array: bool = False) -> None:
        """Let a foreign publisher store events as JSON: an array, or lines. Each has an id of its own."""
        self.posted.update(row["event_id"] for row in rows)
        data = msgspec.json.encode(rows) if as_array else b"\n".join(map(msgspec.json.encode, rows))
        self._note(f"{broker} is posted {data.decode()} of {topic}")
        self._store(self.nodes[broker], Posted(topic, data))

    def park(self, client: Client) -> None:
        """Let a client that waits for no answer go away for some time; what it wants is collected for it."""
        client.is_away = True
        client.pauses_us.append((self.timeline.now_us, FOREVER_US))
        self._store(self.nodes[client.broker], Parked(client.name))

    def resume(self, client: Client) -> None:
        """Let a client that has parked come back, in another life."""
        client.is_away = False
        client.pauses_us[-1] = (client.pauses_us[-1][0], self.timeline.now_us)
        self._store(self.nodes[client.broker], Resumed(client.name, client.resume()))

    def starve(self, client: Client, for_us: int) -> None:
        """Let a client read nothing for some time."""
        client.reads = False
        client.pauses_us.append((self.timeline.now_us, self.timeline.now_us + for_us))

        def read_again() -> None:
            client.reads = True

        self.timeline.at(self.timeline.now_us + for_us, read_again)

    def advance_time(self, client: Client, topic: str, time_us: int) -> None:
        self._ask(client, m.AdvanceTime, topic, time_us)

    def ask_advice(self, client: Client, advice: str, value: Any) -> None:
        self._ask(client, m.AskAdvice, advice, msgspec.msgpack.encode(value))

    def detach(self, client: Client) -> None:
        """Let a client go, with all that it wanted and advertised."""
        self._store(self.nodes[client.broker], Detached(client.name))

    # -- what whoever runs the brokers does ---------------------------------------------------------------------------

    def attach_advice(self, broker: str, advice: str) -> None:
        """Attach an advice of the catalogue to a broker."""
        self._store(self.nodes[broker], AdviceAttached(advice))

    def remove_advice(self, broker: str, advice: str) -> None:
        self._store(self.nodes[broker], AdviceRemoved(advice))

    def add_topics(self, brokers: Iterable[str], topics: PlainTopics) -> None:
        """Tell some brokers of more topics or attributes; they tell the others."""
        self.schemas |= extended(self.schemas, topics)
        for broker in brokers:
            self._note(f"{broker} is told of {topics}")
            self._store(self.nodes[broker], TopicsAdded({topic: dict(of) for topic, of in topics.items()}))

    def place(self, brokers: Iterable[str], topic: str, placement: str) -> None:
        """Tell some brokers which placement a topic has from now on."""
        for broker in brokers:
            self._note(f"{broker} is told to place {topic} {placement}")
            self._store(self.nodes[broker], TopicPlaced(topic, placement))

    def _ask(self, client: Client, kind: type, *fields: object) -> None:
        now_us = self.timeline.now_us
        if self._records and self._is_at_rest():
            self._rested_us = now_us
        for data in client.ask(kind, now_us, self._rested_us, *fields):
            self._network.send(client.name, client.broker, data)

    def _is_at_rest(self) -> bool:
        """Whether nothing is under way, and nothing waits."""
        if self._down or not self._network.is_empty:
            return False
        nodes = self.nodes.values()
        return not any(node.waiting or any(box.frames for box in node.outboxes.values()) for node in nodes)

    # -- what goes wrong --------------------------------------------------------------------------------------------

    def crash(self, broker: str, down_us: int) -> None:
        """Stop a broker, and start it again after some time."""
        node = self.nodes[broker]
        if self.options.snapshot_every is None:
            raise ConfigurationError("snapshot_every is None, so no broker can come back; accepted here are numbers")
        if node.is_down:
            return
        self._note(f"{broker} crashes")
        node.crash()
        self._down.add(broker)
        self.timeline.at(self.timeline.now_us + down_us, lambda: self._restart(node))

    def _restart(self, node: Node) -> None:
        self._note(f"{node.name} is back")
        self._down.discard(node.name)
        for step in node.restart(self._step_sizes()):
            self._record(node, step)
            for request in step.requests:
                self._ask_store(node, request)
        self._after(node)

    def _step_sizes(self) -> Iterator[int]:
        while True:
            yield self.random.randint(1, self.options.step_max)

    def cut(self, one: str, other: str, down_us: int) -> None:
        """Let a link, between brokers or from a broker to the store, carry nothing for some time."""
        self._note(f"{one} - {other} is cut for {down_us}us")
        self._network.cut(one, other, self.timeline.now_us + down_us)

    def _is_killed(self, node: Node) -> bool:
        """Whether a broker crashes just now."""
        kills = self.options.kills
        if kills and self.random.random() < kills:
            self.crash(node.name, self.random.randint(1, self.options.down_us_max))
        return node.is_down

    # -- time passes ------------------------------------------------------------------------------------------------

    def run(self, until_us: int | None = None) -> None:
        """Let time pass until all is at rest, or up to a time."""
        self.timeline.run(until_us)

    def _deliver(self, source: str, target: str, data: bytes) -> int | None:
        now_us = self.timeline.now_us
        if target in self.clients:
            client = self.clients[target]
            if client.is_away or not client.reads:
                return now_us + self.options.retransmit_us
            for message in client.receive(data, now_us):
                if self._traces:
                    self._note(f"{source} -> {target} {self._describe(message)}")
            return None
        node = self.nodes[target]
        if self._traces or (self._records and source in self.clients):
            for message in self._tap.messages(source, target, data):
                if self._traces:
                    self._note(f"{source} -> {target} {self._describe(message)}")
                if isinstance(message, m.PublishEvents):
                    self._asked.setdefault((source, message.request), (message, now_us + node.skew_us))
        self._store(node, Received(data))
        return None

    def _store(self, node: Node, item: Item) -> None:
        """Let an input wait in a broker's log."""
        node.store(item, self.timeline.now_us)
        self._soon(node)

    def _soon(self, node: Node) -> None:
        """Let a broker make a step, once it is free."""
        if node.name not in self._scheduled:
            self._scheduled.add(node.name)
            delay_us = self.options.step_delay_us_max
            at_us = self.timeline.now_us + (self.random.randint(0, delay_us) if delay_us else 0)
            self.timeline.at(max(at_us, node.busy_until_us), lambda: self._step(node))

    def _step(self, node: Node) -> None:
        self._scheduled.discard(node.name)
        if node.is_down or not node.waiting:
            return
        if node.busy_until_us > self.timeline.now_us:
            self._soon(node)
            return
        most = min(node.waiting, self.options.step_max)
        if self._is_killed(node):
            return
        step = node.step(self.random.randint(1, most) if most > 1 else 1)
        self._look_at(node, step)
        for send in step.sends:
            if self._is_killed(node):
                return
            node.hand_over(send)
        for request in step.requests:
            self._ask_store(node, request)
        if self._is_killed(node):
            return
        node.snapshot()
        self._after(node)

    def _look_at(self, node: Node, step: Step) -> None:
        """Count what a step did, let the broker be busy with it, and note which events it accepted."""
        self.tally.add(node.name, step)
        service = self.options.service
        if service is not FREE:
            work = step.work
            spent = {
                "match": service.match_us * work["match"],
                "add": service.add_us * work["add"],
                "merge": service.merge_us * work["merge"],
                "decide": service.decide_us * work["decide"],
                "send": service.send_us * (step.taken.total() + work["send"]),
            }
            node.load_us.update(spent)
            node.busy_until_us = self.timeline.now_us + math.ceil(sum(spent.values()))
        self._record(node, step)

    def _record(self, node: Node, step: Step) -> None:
        """Note which events a broker has accepted; after a crash it may find once more what it has found before."""
        if not self._records:
            return
        frames = ((send.to, data) for send in step.sends if send.to in self.clients for data in send.frames)
        for client, data in frames:
            for message in self._answers.messages(node.name, client, data):
                if not isinstance(message, (m.Acknowledged, m.Refused)):
                    continue
                if isinstance(message, m.Acknowledged) and not message.is_last:
                    self._late.setdefault((client, message.request), set()).update(message.dropped)
                    continue
                asked = self._asked.get((client, message.request))
                self._asked[client, message.request] = None
                late = self._late.pop((client, message.request), set())
                if asked is not None and isinstance(message, m.Acknowledged):
                    self.publications += publications_of(
                        client, asked[0], self.timeline.now_us, asked[1], late.union(message.dropped)
                    )

    def _after(self, node: Node) -> None:
        """What a broker wants after a step."""
        if self._watch is not None:
            self._watch(self, node)
        for peer in sorted(name for name, outbox in node.outboxes.items() if outbox.frames):
            self._pump(node.name, peer)
        self._take_notice(node)
        if node.waiting:
            self._soon(node)
        self._wake(node)

    def _pump(self, source: str, target: str) -> None:
        """Send what waits for a peer, as far as its link takes it."""
        node = self.nodes.get(source)
        if node is None:
            return
        outbox = node.outboxes.get(target)
        while outbox is not None and outbox.frames and self._network.has_room(source, target):
            self._network.send(source, target, outbox.take())
        if not node.is_down:
            self._take_notice(node)

    def _take_notice(self, node: Node) -> None:
        """Store what a broker has to know of its outboxes."""
        for item in node.host.notices():
            self._store(node, item)

    def _ask_store(self, node: Node, request: StoreRequest) -> None:
        options, chance = self.options, self.random.random

        def later(delay_us: int, act: Callable[[], None]) -> None:
            self.timeline.at(self.timeline.now_us + delay_us, act)

        def arrive() -> None:
            cut_us = self._network.cut_until_us(node.name, STORE) - self.timeline.now_us
            if cut_us > 0 or chance() < options.drops:
                later(max(cut_us, options.retransmit_us), arrive)
                return
            for _ in range(2 if chance() < options.duplicates else 1):
                reply = self.store.apply(request)
                self._note(f"{node.name} -> {STORE} {request}: {reply}")
                if chance() < options.drops:
                    # Lost on its way back: it will be asked once more for what it may have done already.
                    later(options.retransmit_us, arrive)
                else:
                    later(self._delay_us(), partial(replied, reply))

        def replied(reply: StoreReply) -> None:
            self._store(node, Replied(reply))

        later(self._delay_us(), arrive)

    def _delay_us(self) -> int:
        return self.random.randint(self.options.delay_us_min, self.options.delay_us_max)

    def _wake(self, node: Node) -> None:
        due_us = None if node.timer_us is None else node.timer_us - node.skew_us
        if due_us is not None and self._wakes.get(node.name) != due_us:
            self._wakes[node.name] = due_us
            self.timeline.at(due_us, lambda: self._woken(node, due_us))

    def _woken(self, node: Node, due_us: int) -> None:
        if self._wakes.get(node.name) == due_us:
            del self._wakes[node.name]
        if not node.is_down and node.timer_us is not None and node.timer_us <= self.timeline.now_us + node.skew_us:
            self._store(node, Woken())

    def _note(self, line: Any) -> None:
        if self._traces:
            self.trace.append(f"{self.timeline.now_us}us {line}")
