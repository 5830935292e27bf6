"""Hosts of brokers whose advice does all that it may: crashes lose nothing of it and repeat nothing."""

from collections.abc import Iterator
from itertools import repeat
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from catchment import Filter
from catchment.broker import messages as m
from catchment.broker.advice import Advice, At, Reply
from catchment.broker.aggregation import Aggregation, AggregationOptions
from catchment.broker.broker import Broker, Settings
from catchment.broker.client import window_values
from catchment.broker.frames import FrameReader
from catchment.broker.hosting import Host, Limits, Log, Outbox, Snapshots
from catchment.broker.inputs import (
    AdviceAttached,
    AdviceRemoved,
    Attached,
    Replied,
    Woken,
)
from catchment.broker.memory import restored
from catchment.broker.store import StoreReply
from catchment.model.errors import ConfigurationError
from tests.broker.wire import SCHEMAS, Voice

SETTINGS = Settings(schemas=SCHEMAS)
SECOND_US = 1_000_000


class Busy(Advice):
    """Does all that an advice may ask for, whenever a client or a neighbour says so."""

    name = "busy"

    def on_begin(self, at: At) -> None:
        at.state["begun"] = at.now_us

    def on_request(self, at: At, client: str, value: Any) -> None:
        self._act(at, value)
        at.inform(client, [value, at.state.get("events", 0)])

    def on_message(self, at: At, sender: str, value: Any) -> None:
        self._act(at, value)

    def _act(self, at: At, value: int) -> None:
        at.settle()
        last = at.state["last"] = at.state.get("last", 0) + 1
        if value == 0:
            at.subscribe(f"busy {last}", f"SELECT * FROM traffic WHERE speed < {last}")
        elif value == 1:
            at.advertise("stock")
        elif value == 2:
            at.publish("stock", pa.RecordBatch.from_pydict({"price": [float(last)]}))
        elif value == 3:
            at.write("busy", last, at.state.get("version", 0))
        elif value == 4:
            at.wake("soon", at.now_us + 5_000)
        elif value == 5:
            raise ConfigurationError("not today")
        else:
            at.advance_time("stock", at.now_us)

    def on_received(self, at: At, message: m.ForClient) -> None:
        if isinstance(message, m.Delivered):
            at.state["events"] = at.state.get("events", 0) + message.events.num_rows
        else:
            at.tell("b2", str(message))

    def on_reply(self, at: At, reply: Reply) -> None:
        at.state["version"] = reply.version
        at.tell("b2", [reply.request, reply.version], confirmed=True)

    def on_timer(self, at: At, key: str) -> None:
        at.settle()

    def on_settled(self, at: At) -> None:
        at.tell("b3", [at.state.get("last"), len(at.clients), len(at.demands("b2", "traffic"))], confirmed=True)

    def on_client_parked(self, at: At, client: str) -> None:
        at.tell("b3", client)

    on_client_resumed = on_client_parked


def advice() -> list[Advice]:
    options = AggregationOptions(placement="cover", delivery="revisions", idle_after_us=SECOND_US)
    return [Aggregation(options)]


CATALOGUE = {"busy": Busy}


def new_broker() -> Broker:
    return Broker("b1", ["b2", "b3"], SETTINGS, advice(), catalogue=CATALOGUE)


# -- a story: what a broker between two others is handed ------------------------------------------------------------


def story(seed: int) -> Log:
    """Clients and neighbours that ask and publish, a step of a millisecond after the other."""
    random, log = Random(seed), Log()
    voices = {name: Voice(name) for name in ("b2", "b3", "p", "s")}
    numbers: Iterator[int] = iter(range(1, 10_000))
    changes = {"b2": 0, "b3": 0}
    log.append(Attached("p"), 0)
    log.append(Attached("s"), 0)
    log.append(voices["p"].says(m.AdvertiseTopic(next(numbers), "traffic")), 0)
    for name in changes:
        # Until then, what it publishes is refused.
        log.append(voices[name].says(m.Confirmed(1)), 0)
    for at_us in range(1_000, 60_000, 1_000):
        if random.random() < 0.1:
            log.append(random.choice([AdviceAttached("busy"), AdviceAttached("busy"), AdviceRemoved("busy")]), at_us)
        if random.random() < 0.1:
            number, version = random.randint(1, 5), random.randint(0, 3)
            log.append(Replied(StoreReply(number, b"\x01" if version else None, version, written=True)), at_us)
        name = random.choice(["b2", "b3", "p", "p", "p", "s"])
        speeds = [random.randint(0, 9) / 2 for _ in range(random.randint(1, 3))]
        ids = [f"e{next(numbers)}" for _ in speeds]
        times = pa.array([at_us * 1_000 + at for at in range(len(ids))], pa.timestamp("us", tz="UTC"))
        events = pa.RecordBatch.from_pydict({"event_id": ids, "ts": times, "speed": speeds})
        if name in changes:
            changes[name] += 1
            condition = Filter.parse(f"speed >= {random.randint(0, 4)}").within(SCHEMAS["traffic"])
            said: Any = random.choice(
                [
                    m.Advertised("traffic", changes[name]),
                    m.Subscribed("traffic", changes[name], (condition,)),
                    m.Published("traffic", events),
                    m.Published("traffic", events),
                    m.Confirmed(random.randint(2, 5)),
                    m.AdviceMessage("busy", bytes([random.randint(0, 6)]), changes[name]),
                ]
            )
        elif name == "p":
            said = m.PublishEvents(next(numbers), "traffic", events)
        elif random.random() < 0.6:
            said = m.AskAdvice(next(numbers), "busy", bytes([random.randint(0, 6)]))
        else:
            what = random.choice(["*", "count(*), sum(speed)"])
            window = "" if what == "*" else " GROUP BY window(ts, '20 seconds', '5 seconds')"
            sql = f"SELECT {what} FROM traffic WHERE speed > {random.randint(0, 3)}{window}"
            said = m.SubscribeTo(next(numbers), f"s{next(numbers)}", sql)
        log.append(Woken() if random.random() < 0.05 else voices[name].says(said), at_us)
    # Long enough for all windows to close, whenever somebody began to wait for them.
    for at_us in range(100_000, 100_000_000, 5_000_000):
        log.append(Woken(), at_us)
    return log


class Disk:
    """What outlives a crash, and all frames that were ever handed over."""

    def __init__(self, log: Log) -> None:
        self.log, self.outboxes, self.pieces = log, dict[str, Outbox](), dict[str, bytes]()
        self.snapshots = Snapshots("b1")

    def host(self) -> Host:
        """A host that is back."""
        self.snapshots = Snapshots("b1", self.pieces.values())
        pieces = [self.pieces[key] for key in self.snapshots.needed]
        broker = restored(pieces, SETTINGS, advice(), catalogue=CATALOGUE) if pieces else new_broker()
        return Host(broker, self.outboxes, Limits())

    def write_some(self, host: Host, random: Random) -> None:
        """Freeze the broker now and then, and store some pieces of what was frozen."""
        if random.random() < 0.2:
            self.snapshots.begin(host.broker)
        for _ in range(random.randint(0, 3)):
            piece = self.snapshots.next_piece()
            if piece is None:
                return
            self.pieces[piece[0]] = piece[1]
            if self.snapshots.note_stored():
                host.forget(self.snapshots.position)
            for key in self.snapshots.useless():
                del self.pieces[key]

    def frames(self) -> dict[str, list[bytes]]:
        return {name: list(outbox.frames) for name, outbox in self.outboxes.items()}


def undisturbed(log: Log, sizes: Iterator[int]) -> dict[str, list[bytes]]:
    disk = Disk(log)
    list(disk.host().replay(log.read(1), sizes))
    return disk.frames()


def disturbed(log: Log, random: Random, size: int) -> dict[str, list[bytes]]:
    """The same with crashes between any two of storing, step, hand-over and snapshot."""
    disk, stored = Disk(log), 1
    while True:
        host = disk.host()
        for _ in host.replay(log.read(host.position + 1, stored), _any(random, size)):
            disk.write_some(host, random)
            if random.random() < 0.05:
                break
        while host.position + 1 == stored:
            if stored == log.end:
                return disk.frames()
            stored = min(stored + random.randint(1, size), log.end)
            if random.random() < 0.05:
                break
            step = host.step(log.read(host.position + 1, stored))
            handed = random.randint(0, len(step.sends)) if random.random() < 0.1 else len(step.sends)
            for send in step.sends[:handed]:
                host.hand_over(send)
            if handed < len(step.sends):
                break
            disk.write_some(host, random)


def _any(random: Random, size: int) -> Iterator[int]:
    while True:
        yield random.randint(1, size)


def content(frames: list[bytes]) -> dict[str, list[Any]]:
    """What a peer gets to know, however it was put into frames: each frame once, in order."""
    reader = FrameReader()
    decoded = [reader.decode(data) for data in frames]
    assert [frame.sequence for frame in decoded] == list(range(1, len(decoded) + 1))
    found: dict[str, list[Any]] = {"events": [], "values": {}, "rest": []}  # type: ignore[dict-item]
    for message in (message for frame in decoded for message in frame.messages):
        if isinstance(message, (m.Published, m.Delivered)):
            ids = message.events.column("event_id").to_pylist()
            wanted = message.wanted if isinstance(message, m.Delivered) else {"": range(len(ids))}
            found["events"] += [(ids[row], name) for name, rows in sorted(wanted.items()) for row in rows]
        elif isinstance(message, m.Notified):
            for one in window_values(message):
                key = one.subscription, one.start_us, *sorted(one.group.items()), one.output
                found["values"][key] = one.exact, one.publications  # type: ignore[call-overload]
        elif not (isinstance(message, m.AdviceMessage) and message.advice == "aggregation"):
            found["rest"].append(str(message))
    found["events"].sort()
    return found


def check(seed: int) -> None:
    log, random = story(seed), Random(seed)
    calm = undisturbed(log, repeat(1))
    # Steps of one input are grouped alike, so that even the bytes are the same.
    assert disturbed(log, random, size=1) == calm, f"seed {seed}"
    together, wild = undisturbed(log, _any(random, 9)), disturbed(log, random, size=9)
    assert calm.keys() == together.keys() == wild.keys()
    for peer, frames in calm.items():
        assert content(together[peer]) == content(frames), f"seed {seed}: {peer}"
        assert content(wild[peer]) == content(frames), f"seed {seed}: {peer}"


@pytest.mark.parametrize("first", range(0, 30, 10))
def test_crashes_lose_nothing_of_what_advice_does_and_repeat_nothing(first: int) -> None:
    for seed in range(first, first + 10):
        check(seed)


@pytest.mark.long
@pytest.mark.parametrize("first", range(1_000, 2_000, 100))
def test_a_thousand_hosts_lose_nothing_of_what_advice_does(first: int) -> None:
    for seed in range(first, first + 100):
        check(seed)


def test_the_same_steps_give_the_same_bytes() -> None:
    log = story(7)
    assert undisturbed(log, _any(Random(1), 9)) == undisturbed(log, _any(Random(1), 9))


def test_a_host_that_is_back_asks_the_store_only_for_what_has_no_reply_in_its_log() -> None:
    log, voice = Log(), Voice("s")
    log.append(Attached("s"), 0)
    log.append(AdviceAttached("busy"), 0)
    for request in (1, 2):
        log.append(voice.says(m.AskAdvice(request, "busy", bytes([3]))), 0)
    asked = [one for step in Disk(log).host().replay(log.read(1)) for one in step.requests]
    assert [(one.number, one.key) for one in asked] == [(1, "busy"), (2, "busy")]
    log.append(Replied(StoreReply(1, None, 4, written=True)), 0)
    *steps, last = Disk(log).host().replay(log.read(1), repeat(1))
    assert [step.requests for step in steps] == [()] * 5
    assert [one.number for one in last.requests] == [2]


# -- log, outboxes, limits ------------------------------------------------------------------------------------------
