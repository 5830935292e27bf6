"""An overlay of brokers and clients in virtual time, run from a seed.

Rule 1: every chance is drawn from the seed, in an order that depends on nothing else; so a seed replays exactly.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from random import Random

import pyarrow as pa

from catchment.broker import messages as m
from catchment.broker.advice import Advice
from catchment.broker.broker import Broker, Settings
from catchment.broker.frames import Frame
from catchment.broker.peers import CONTROL
from catchment.broker.store import StoreReply, StoreRequest
from catchment.model.errors import ConfigurationError
from catchment.overlay import Overlay, topic_tree
from catchment.simulation.clients import Client, Publication, publications_of
from catchment.simulation.network import Network
from catchment.simulation.node import Node
from catchment.simulation.options import CALM, Options
from catchment.simulation.service import FREE
from catchment.simulation.store import STORE, Store
from catchment.simulation.tally import Tally
from catchment.simulation.timeline import Timeline

__all__ = ["World"]


class World:
    """Brokers of an overlay, joined along the topic's tree, and the clients at them.

    `traces` keeps a line for every frame, `records` every event that was accepted, for checkers to look at; `meters`
    adds up what links carry; `epoch_us` is what brokers' clocks say at the beginning; `watch` is called with every
    broker that has done something.
    """

    def __init__(
        self,
        overlay: Overlay,
        settings: Settings,
        *,
        seed: int = 0,
        options: Options = CALM,
        make_advice: Callable[[], Iterable[Advice]] = tuple,
        traces: bool = False,
        records: bool = True,
        meters: bool = False,
        epoch_us: int = 0,
        watch: Callable[[World, Node], None] | None = None,
    ) -> None:
        self.overlay, self.settings, self.options, self.epoch_us = overlay, settings, options, epoch_us
        self.random = Random(seed)
        self.timeline = Timeline()
        self.trace: list[str] = []
        self.clients: dict[str, Client] = {}
        self.publications: list[Publication] = []
        self.tally = Tally(overlay.brokers, meters=meters)
        self._traces, self._records, self._watch = traces, records, watch
        self.store = Store()
        self._network = Network(self.timeline, self.random, options, self._deliver, self._made_room)
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
                memory_every=options.memory_every,
                skew_us=epoch_us + self.random.randint(-options.clock_skew_us_max, options.clock_skew_us_max),
            )
            for name, of in neighbours.items()
        }

    # -- what clients do --------------------------------------------------------------------------------------------

    def client(self, broker: str, name: str) -> Client:
        """A new client at a broker."""
        full = f"{broker}/{name}"
        self.overlay.require(broker)
        self.clients[full] = Client(full, broker)
        self.nodes[broker].attach(full)
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

    def _ask(self, client: Client, kind: type, *fields: object) -> None:
        now_us = self.timeline.now_us
        if self._network.is_empty and not self._down:
            self._rested_us = now_us
        self._network.send(client.name, client.broker, client.ask(kind, now_us, self._rested_us, *fields))

    # -- what goes wrong --------------------------------------------------------------------------------------------

    def crash(self, broker: str, down_us: int) -> None:
        """Stop a broker, and start it again after some time."""
        node = self.nodes[broker]
        if self.options.memory_every is None:
            raise ConfigurationError("memory_every is None, so no broker can come back; accepted here are numbers")
        if node.is_down:
            return
        self._note(f"{broker} crashes")
        node.crash()
        self._down.add(broker)
        self.timeline.at(self.timeline.now_us + down_us, lambda: self._restart(node))

    def _restart(self, node: Node) -> None:
        self._note(f"{node.name} is back")
        self._down.discard(node.name)
        for send in node.restart():
            self._network.send(node.name, send.to, send.frame)
        self._after(node)

    def cut(self, one: str, other: str, down_us: int) -> None:
        """Let a link, between brokers or from a broker to the store, carry nothing for some time."""
        self._note(f"{one} - {other} is cut for {down_us}us")
        self._network.cut(one, other, self.timeline.now_us + down_us)

    # -- time passes ------------------------------------------------------------------------------------------------

    def run(self, until_us: int | None = None) -> None:
        """Let time pass until all is at rest, or up to a time."""
        self.timeline.run(until_us)

    def _deliver(self, source: str, target: str, frame: Frame) -> int | None:
        now_us = self.timeline.now_us
        if target in self.clients:
            if self._traces:
                self._note(f"{source} -> {target} {frame.message}")
            self.clients[target].receive(frame, now_us)
            return None
        node = self.nodes[target]
        if node.busy_until_us > now_us:
            return node.busy_until_us
        repeats, before = node.broker.counters["frames that came again"], _Done.of(node.broker)
        if not node.receive(frame, now_us):
            return now_us + self.options.retransmit_us
        if self._traces:
            self._note(f"{source} -> {target} {frame.message}")
        came_again = node.broker.counters["frames that came again"] > repeats
        self.tally.add(source, target, frame, came_again=came_again)
        if self._records and isinstance(frame.message, m.PublishEvents) and not came_again:
            answer = node.broker.peers[frame.sender].queues[CONTROL][-1].message
            if isinstance(answer, m.Acknowledged):
                self.publications += publications_of(frame, now_us, now_us + node.skew_us, answer.dropped)
        self._serve(node, frame, before)
        self._after(node)
        return None

    def _serve(self, node: Node, frame: Frame | None, before: _Done) -> None:
        """Let a broker be busy with what it has just been handed."""
        service = self.options.service
        if service is not FREE:
            after, message = _Done.of(node.broker), frame.message if frame is not None else None
            events = message.events.num_rows if isinstance(message, (m.Published, m.PublishEvents)) else 0
            spent = {
                "match": service.match_us * events,
                "add": service.add_us * (after.adds - before.adds),
                "merge": service.merge_us * (after.merges - before.merges),
                "decide": service.decide_us * (after.decisions - before.decisions),
                "send": service.send_us * ((frame is not None) + after.sent - before.sent),
            }
            node.load_us.update(spent)
            busy_us = max(node.busy_until_us, self.timeline.now_us)
            node.busy_until_us = busy_us + math.ceil(sum(spent.values()))

    def _after(self, node: Node) -> None:
        """What a broker wants after it has been called."""
        if self._watch is not None:
            self._watch(self, node)
        self._made_room(node.name)
        for request in node.broker.take_requests():
            self._ask_store(node, request)
        self._wake(node)

    def _made_room(self, source: str) -> None:
        """Send what waits with a broker, as far as its links take it."""
        node = self.nodes.get(source)
        if node is None or node.is_down:
            return
        for peer in node.broker.peers_with_output():
            room = self._network.room(source, peer)
            if any(room):
                for send in node.take_output(peer, room):
                    self._network.send(source, send.to, send.frame)

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
            node.receive_reply(reply, self.timeline.now_us)
            if not node.is_down:
                self._after(node)

        later(self._delay_us(), arrive)

    def _delay_us(self) -> int:
        return self.random.randint(self.options.delay_us_min, self.options.delay_us_max)

    def _wake(self, node: Node) -> None:
        due_us = node.timer_us()
        if due_us is not None and self._wakes.get(node.name) != due_us:
            self._wakes[node.name] = due_us
            self.timeline.at(due_us, lambda: self._woken(node, due_us))

    def _woken(self, node: Node, due_us: int) -> None:
        if self._wakes.get(node.name) == due_us:
            del self._wakes[node.name]
        now_due_us = node.timer_us()
        if now_due_us is not None and now_due_us <= self.timeline.now_us:
            before = _Done.of(node.broker)
            node.handle_timer(self.timeline.now_us)
            self._serve(node, None, before)
            self._after(node)
        self._wake(node)

    def _note(self, line: str) -> None:
        if self._traces:
            self.trace.append(f"{self.timeline.now_us}us {line}")


@dataclass(frozen=True, slots=True)
class _Done:
    """What a broker has done so far."""

    sent: int
    adds: int
    merges: int
    decisions: int

    @classmethod
    def of(cls, broker: Broker) -> _Done:
        return cls(broker.sent, broker.work["add"], broker.work["merge"], broker.work["decide"])
