"""Real brokers joined by links that lose nothing: what the simulation is, without time and faults."""

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from catchment import Overlay
from catchment.broker import messages as m
from catchment.broker.advice import Advice
from catchment.broker.broker import Broker, Settings
from catchment.broker.frames import Frame
from catchment.model.schema import Schema
from catchment.overlay import topic_tree

SCHEMAS: Mapping[str, Schema] = {
    "traffic": Schema({"speed": "float", "highway": "string", "vehicles": "int"}),
    "stock": Schema({"symbol": "string", "price": "float"}),
}


class Wire:
    """An overlay at rest between steps. Clients are at the broker named before the slash: `b1/c2`."""

    def __init__(self, overlay: Overlay, advice: Iterable[type[Advice]] = (), **settings: Any) -> None:
        tree = topic_tree(overlay)
        neighbours: dict[str, set[str]] = {name: set() for name in overlay.brokers}
        for source, target in tree.link_names:
            neighbours[source].add(target)
        self.settings = Settings(schemas=SCHEMAS, **settings)
        self.brokers = {
            name: Broker(name, of, self.settings, [one() for one in advice]) for name, of in neighbours.items()
        }
        self.trace: list[str] = []
        self.heard: dict[str, list[m.Message]] = {}
        self._links: dict[tuple[str, str, bool], deque[Frame]] = {}
        self._sequences: dict[tuple[str, bool], int] = {}
        self._requests = 0
        self.now_us = 0

    def ask(self, client: str, message: type, *fields: Any) -> int:
        """Hand a request to the client's broker, attaching the client if it is new; the request's number."""
        broker = client.split("/", maxsplit=1)[0]
        if client not in self.heard:
            self.heard[client] = []
            self.brokers[broker].attach(client)
        self._requests += 1
        made = message(self._requests, *fields)
        key = (client, made.is_event)
        self._sequences[key] = self._sequences.get(key, 0) + 1
        self._post(client, broker, Frame(client, self._sequences[key], made))
        return self._requests

    def _post(self, source: str, target: str, frame: Frame) -> None:
        self._links.setdefault((source, target, frame.message.is_event), deque()).append(frame)

    def run(self, choose: Any = None) -> None:
        """Deliver until nothing is under way; `choose` picks the next of the links that carry something."""
        while busy := sorted(key for key, frames in self._links.items() if frames):
            key = busy[choose(len(busy)) if choose is not None else 0]
            source, target, _ = key
            frame = self._links[key].popleft()
            self.trace.append(f"{source} -> {target} {frame.message}")
            self.now_us += 1
            assert self.brokers[target].receive(frame, self.now_us)
            for broker in self.brokers.values():
                due_us = broker.timer_us()
                if due_us is not None and due_us <= self.now_us:
                    broker.handle_timer(self.now_us)
                for send in broker.take_output():
                    if send.to in self.brokers:
                        self._post(broker.name, send.to, send.frame)
                    else:
                        self.trace.append(f"{broker.name} -> {send.to} {send.frame.message}")
                        self.heard[send.to].append(send.frame.message)

    def answer(self, request: int) -> m.Message:
        found = [one for heard in self.heard.values() for one in heard if getattr(one, "request", None) == request]
        assert len(found) == 1, f"request {request} has {len(found)} answers"
        return found[0]

    def advertise(self, client: str, topic: str = "traffic") -> int:
        return self.ask(client, m.AdvertiseTopic, topic)

    def unadvertise(self, client: str, topic: str = "traffic") -> int:
        return self.ask(client, m.UnadvertiseTopic, topic)

    def subscribe(self, client: str, name: str, condition: str = "TRUE", topic: str = "traffic") -> int:
        return self.ask(client, m.SubscribeTo, name, f"SELECT * FROM {topic} WHERE {condition}")

    def unsubscribe(self, client: str, name: str) -> int:
        return self.ask(client, m.UnsubscribeFrom, name)

    def publish(self, client: str, *speeds: float, topic: str = "traffic", ids: list[str] | None = None) -> int:
        columns: dict[str, Any] = {"speed": pa.array(speeds, pa.float64())}
        if ids is not None:
            columns["event_id"] = pa.array(ids, pa.string())
        return self.ask(client, m.PublishEvents, topic, pa.RecordBatch.from_pydict(columns))

    def delivered(self, client: str, name: str) -> list[str]:
        """The ids of what a subscription received, in order."""
        ids = []
        for message in self.heard.get(client, []):
            if isinstance(message, m.Delivered) and name in message.wanted:
                all_ids = message.events.column("event_id").to_pylist()
                ids += [all_ids[row] for row in message.wanted[name]]
        return ids
