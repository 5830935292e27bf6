"""An overlay of brokers and clients in virtual time, run from a seed.

Rule 1: every chance is drawn from the seed, in an order that depends on nothing else; so a seed replays exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from random import Random

import pyarrow as pa

from catchment.broker import messages as m
from catchment.broker.advice import Advice
from catchment.broker.broker import Send, Settings
from catchment.broker.frames import Frame
from catchment.overlay import Overlay, topic_tree
from catchment.simulation.clients import Client, Publication, publications_of
from catchment.simulation.network import Network
from catchment.simulation.node import Node
from catchment.simulation.options import CALM, Options
from catchment.simulation.timeline import Timeline

__all__ = ["World"]


class World:
    """Brokers of an overlay, joined along the topic's tree, and the clients at them."""

    def __init__(
        self,
        overlay: Overlay,
        settings: Settings,
        *,
        seed: int = 0,
        options: Options = CALM,
        make_advice: Callable[[], Iterable[Advice]] = tuple,
        traces: bool = False,
    ) -> None:
        self.overlay, self.settings, self.options = overlay, settings, options
        self.random = Random(seed)
        self.timeline = Timeline()
        self.trace: list[str] = []
        self.clients: dict[str, Client] = {}
        self.publications: list[Publication] = []
        self.frames = 0
        """Frames that brokers have handled."""
        self.events_handled = 0
        """Events that brokers have handled, each at every broker that it reached."""
        self._traces = traces
        self._network = Network(self.timeline, self.random, options, self._deliver)
        self._wakes: dict[str, int] = {}
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
                skew_us=self.random.randint(-options.clock_skew_us_max, options.clock_skew_us_max),
            )
            for name, of in neighbours.items()
        }

    # -- what clients do --------------------------------------------------------------------------------------------

    def client(self, broker: str, name: str) -> Client:
        """A new client at a broker."""
        full = f"{broker}/{name}"
        self.overlay.require(broker)
        self.clients[full] = Client(full, broker)
        self._send_all(broker, self.nodes[broker].attach(full))
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
        if self._network.is_empty:
            self._rested_us = now_us
        self._network.send(client.name, client.broker, client.ask(kind, now_us, self._rested_us, *fields))

    # -- what goes wrong --------------------------------------------------------------------------------------------

    def crash(self, broker: str, down_us: int) -> None:
        """Stop a broker, and start it again after some time."""
        node = self.nodes[broker]
        if node.is_down:
            return
        self._note(f"{broker} crashes")
        node.crash()
        self.timeline.at(self.timeline.now_us + down_us, lambda: self._restart(node))

    def _restart(self, node: Node) -> None:
        self._note(f"{node.name} is back")
        self._send_all(node.name, node.restart())
        self._wake(node)

    def cut(self, one: str, other: str, down_us: int) -> None:
        """Let a link carry nothing for some time."""
        self._note(f"{one} - {other} is cut for {down_us}us")
        self._network.cut(one, other, self.timeline.now_us + down_us)

    # -- time passes ------------------------------------------------------------------------------------------------

    def run(self, until_us: int | None = None) -> None:
        """Let time pass until all is at rest, or up to a time."""
        self.timeline.run(until_us)

    def _deliver(self, source: str, target: str, frame: Frame) -> bool:
        now_us = self.timeline.now_us
        if target in self.clients:
            self._note(f"{source} -> {target} {frame.message}")
            self.clients[target].receive(frame, now_us)
            return True
        node = self.nodes[target]
        if node.busy_until_us > now_us:
            return False
        repeats = node.broker.counters["frames that came again"]
        taken, sent = node.receive(frame, now_us)
        if not taken:
            return False
        self._note(f"{source} -> {target} {frame.message}")
        node.busy_until_us = now_us + self.options.service_us
        self.frames += 1
        if isinstance(frame.message, (m.Published, m.PublishEvents)):
            self.events_handled += frame.message.events.num_rows
        is_new = node.broker.counters["frames that came again"] == repeats
        if is_new and isinstance(frame.message, m.PublishEvents) and _is_accepted(frame.message, sent):
            self.publications += publications_of(frame, now_us)
        self._send_all(target, sent)
        self._wake(node)
        return True

    def _send_all(self, broker: str, sent: Iterable[Send]) -> None:
        for send in sent:
            self._network.send(broker, send.to, send.frame)

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
            self._send_all(node.name, node.handle_timer(self.timeline.now_us))
        self._wake(node)

    def _note(self, line: str) -> None:
        if self._traces:
            self.trace.append(f"{self.timeline.now_us}us {line}")

    @property
    def waiting_max(self) -> int:
        return self._network.waiting_max


def _is_accepted(message: m.PublishEvents, sent: list[Send]) -> bool:
    return any(send.frame.message == m.Acknowledged(message.request) for send in sent)
