"""Real brokers joined by links that lose nothing: what the simulation is, without time and faults."""

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
import pyarrow as pa

from catchment import Overlay
from catchment.broker import messages as m
from catchment.broker.advice import Advice
from catchment.broker.broker import Broker, Settings
from catchment.broker.client import Session
from catchment.broker.frames import FrameReader, FrameWriter
from catchment.broker.inputs import Attached, Input, Item, Outcome, Received, Step, Woken
from catchment.broker.snapshot_coding import SnapshotWriter, read_value
from catchment.model.schema import Schema
from catchment.overlay import topic_tree

SCHEMAS: Mapping[str, Schema] = {
    "traffic": Schema({"speed": "float", "highway": "string", "vehicles": "int"}),
    "stock": Schema({"symbol": "string", "price": "float"}),
}


def read_back(saved: Any) -> Any:
    """What is left of a value once it was written into a snapshot and read again."""
    return read_value([written(saved)])


def written(saved: Any) -> bytes:
    """What a snapshot has of a value."""
    return b"".join(SnapshotWriter(bytes_max=100, work_max=20).parts(saved))


class Voice:
    """A peer of one's own making, that says whatever it is told to, as frames in their order."""

    def __init__(self, name: str, incarnation: int = 1) -> None:
        self.name, self.incarnation, self.sequence = name, incarnation, 0
        self._writer, self._reader = FrameWriter(), FrameReader()

    def says(self, *messages: m.Message) -> Received:
        """The next frame."""
        (data,) = self._writer.frames(
            self.name, messages, incarnation=self.incarnation, epoch=1, after=self.sequence, covers=0
        )
        self.sequence += 1
        return Received(data)

    def hears(self, step: Step) -> list[m.Message]:
        """What a step has for it."""
        frames = [data for send in step.sends if send.to == self.name for data in send.frames]
        return [message for data in frames for message in self._reader.decode(data).messages]


class Desk:
    """One broker, handed one input after the other."""

    def __init__(self, broker: Broker) -> None:
        self.broker, self.position, self.timer_us = broker, 0, None

    def hand(self, *items: Item, at_us: int = 0) -> Step:
        """One step with some inputs."""
        inputs = [Input(item, at_us, self.position + number) for number, item in enumerate(items, 1)]
        self.position += len(items)
        step = self.broker.step(inputs)
        self.timer_us = step.timer_us  # type: ignore[assignment]
        return step

    def outcomes(self, *items: Item, at_us: int = 0) -> list[str]:
        return [one.kind for one in self.hand(*items, at_us=at_us).outcomes]

    def outcome(self, item: Item, at_us: int = 0) -> Outcome:
        return self.hand(item, at_us=at_us).outcomes[0]


class Wire:
    """An overlay at rest between steps. Clients are at the broker named before the slash: `b1/c2`."""

    def __init__(
        self,
        overlay: Overlay,
        advice: Iterable[type[Advice]] = (),
        *,
        catalogue: Iterable[type[Advice]] = (),
        **settings: Any,
    ) -> None:
        tree = topic_tree(overlay)
        neighbours: dict[str, set[str]] = {name: set() for name in overlay.brokers}
        for source, target in tree.link_names:
            neighbours[source].add(target)
        self.settings = Settings(schemas=SCHEMAS, **settings)
        self.desks = {
            name: Desk(
                Broker(
                    name,
                    of,
                    self.settings,
                    [one() for one in advice],
                    catalogue={one.name: one for one in catalogue},
                )
            )
            for name, of in neighbours.items()
        }
        self.trace: list[str] = []
        self.heard: dict[str, list[m.Message]] = {}
        self._sessions: dict[str, Session] = {}
        self._links: dict[tuple[str, str], deque[bytes]] = {}
        self._taps: dict[tuple[str, str], FrameReader] = {}
        self._requests: dict[int, tuple[str, int]] = {}
        self.now_us = 0

    @property
    def brokers(self) -> dict[str, Broker]:
        return {name: desk.broker for name, desk in self.desks.items()}

    def ask(self, client: str, message: type, *fields: Any) -> int:
        """Hand a request to the client's broker, attaching the client if it is new; the request's number."""
        broker = client.split("/", maxsplit=1)[0]
        if client not in self.heard:
            self.heard[client] = []
            self._sessions[client] = Session(client)
            self.desks[broker].hand(Attached(client), at_us=self.now_us)
        number, frames = self._sessions[client].ask(message, *fields)
        self._links.setdefault((client, broker), deque()).extend(frames)
        self._requests[len(self._requests) + 1] = (client, number)
        return len(self._requests)

    def run(self, choose: Any = None) -> None:
        """Deliver until nothing is under way; `choose` picks the next of the links that carry something."""
        while busy := sorted(key for key, frames in self._links.items() if frames):
            key = busy[choose(len(busy)) if choose is not None else 0]
            source, target = key
            data = self._links[key].popleft()
            for message in self._taps.setdefault(key, FrameReader()).decode(data).messages:
                self.trace.append(f"{source} -> {target} {message}")
            self.now_us += 1
            step = self.desks[target].hand(Received(data), at_us=self.now_us)
            assert [one.kind for one in step.outcomes] == ["taken"]
            self._post(target, step)
            for name, desk in self.desks.items():
                while desk.timer_us is not None and desk.timer_us <= self.now_us:
                    self._post(name, desk.hand(Woken(), at_us=self.now_us))

    def hand(self, broker: str, item: Item) -> Outcome:
        """Hand something else than a frame to a broker."""
        step = self.desks[broker].hand(item, at_us=self.now_us)
        self._post(broker, step)
        return step.outcomes[0]

    def _post(self, source: str, step: Step) -> None:
        for send in step.sends:
            if send.to in self.desks:
                self._links.setdefault((source, send.to), deque()).extend(send.frames)
            else:
                for data in send.frames:
                    messages = self._sessions[send.to].receive(data)
                    self.trace += [f"{source} -> {send.to} {message}" for message in messages]
                    self.heard[send.to] += messages

    def answer(self, request: int) -> m.Message:
        client, number = self._requests[request]
        found = [one for one in self.heard[client] if getattr(one, "request", None) == number]
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

    def ask_advice(self, client: str, advice: str, value: Any) -> int:
        return self.ask(client, m.AskAdvice, advice, msgspec.msgpack.encode(value))

    def informed(self, client: str) -> list[Any]:
        """What advice has told a client, in order."""
        return [msgspec.msgpack.decode(one.body) for one in self.heard[client] if isinstance(one, m.Informed)]

    def delivered(self, client: str, name: str) -> list[str]:
        """The ids of what a subscription received, in order."""
        ids = []
        for message in self.heard.get(client, []):
            if isinstance(message, m.Delivered) and name in message.wanted:
                all_ids = message.events.column("event_id").to_pylist()
                ids += [all_ids[row] for row in message.wanted[name].tolist()]
        return ids
