"""The host: whatever crashes when, and however inputs are put into steps, every peer gets everything once."""

from collections.abc import Iterator, Sequence
from itertools import chain, pairwise, repeat
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from msgspec.structs import replace

from catchment import Overlay
from catchment.broker import messages as m
from catchment.broker.advice import Advice
from catchment.broker.aggregation import Aggregation, AggregationOptions
from catchment.broker.broker import Broker, Settings
from catchment.broker.client import Session, window_values
from catchment.broker.frames import FrameReader
from catchment.broker.hosting import Host, Limits, Log, Outbox, Snapshots, item_from_bytes, item_to_bytes
from catchment.broker.inputs import (
    AdviceAttached,
    AdviceRemoved,
    Allowed,
    Attached,
    Detached,
    Input,
    Item,
    Overrun,
    Parked,
    Received,
    Replied,
    Resumed,
    Rights,
    Room,
    Send,
    Step,
    Woken,
)
from catchment.broker.memory import freeze, restored
from catchment.broker.snapshot_pieces import SnapshotPiece
from catchment.broker.store import StoreReply
from catchment.model.errors import CheckpointError, ConfigurationError
from catchment.overlay.placement import ONLINE
from catchment.simulation.options import Options
from catchment.simulation.world import World
from tests.broker.wire import SCHEMAS, Voice

SETTINGS = Settings(schemas=SCHEMAS)
CHAIN = Overlay.from_links([("b1", "b2"), ("b2", "b3")])
SECOND_US = 1_000_000
HOW = AggregationOptions()
NO_LIMITS = Limits()
ITEMS: list[Item] = [
    Received(b"CF\x02"),
    Attached("c", 3, "ann", durable=True),
    Parked("c"),
    Resumed("c", 4, "ann"),
    Detached("c"),
    Overrun("c", 9),
    Room("b3", is_full=True),
    Rights({"ann": Allowed(("traffic",), None)}),
    Rights(None),
    AdviceAttached("count"),
    AdviceRemoved("count"),
    Replied(StoreReply(1, b"value", 2, written=True)),
    Woken(),
]


def aggregating(seed: int) -> AggregationOptions:
    """Each placement in turn, with either delivery."""
    turn, place = divmod(seed, len(ONLINE))
    delivery: Any = ("final", "revisions")[turn % 2]
    return AggregationOptions(
        placement=ONLINE[place], delivery=delivery, idle_after_us=SECOND_US, lateness_us=SECOND_US,
        sampling_period_us=SECOND_US,
    )  # fmt: skip


def advice(how: AggregationOptions) -> list[Advice]:
    return [Aggregation(how)]


def new_broker(how: AggregationOptions) -> Broker:
    return Broker("b2", ["b1", "b3"], SETTINGS, advice(how))


# -- a story: what a broker between two others is handed ------------------------------------------------------------

CONDITIONS = ("speed > {0}", "highway = 'h{0}'", "speed BETWEEN {0} AND 6", "vehicles > {0}")
SKETCHES = "approx_percentile(speed, 0.5), approx_count_distinct(highway), median(vehicles)"
WINDOWS = ("window(ts, '20 seconds', '5 seconds')", "window(ts, '5 seconds'), highway", "window(ts, '2 seconds')")


def story(seed: int) -> tuple[Log, set[str]]:
    """All inputs of b2 in a world where clients at three brokers subscribe, publish, park and read nothing.

    And the subscriptions that have ended.
    """
    random, numbers, how = Random(seed), iter(range(1, 10_000)), aggregating(seed)
    options = Options(
        step_max=5, step_delay_us_max=3_000, duplicates=0.1, in_flight_max=random.choice([1, 1_000]),
        limits=Limits(link_bytes_max=random.choice([2_000, 10**9])), snapshot_every=10**9,
    )  # fmt: skip
    world = World(CHAIN, SETTINGS, seed=seed, options=options, make_advice=lambda: advice(how), records=False)
    publishers = [world.client(broker, "p") for broker in CHAIN.brokers]
    subscribers = [world.client(broker, f"s{number}") for broker in CHAIN.brokers for number in range(2)]
    for publisher in publishers:
        world.advertise(publisher, "traffic")
    for _ in range(60):
        client = random.choice(subscribers)
        act = random.choice(["publish", "publish", "publish", "subscribe", "unsubscribe", "park", "starve"])
        if act == "publish":
            world.publish(random.choice(publishers), "traffic", _events(random, numbers, world.timeline.now_us))
        elif client.is_away:
            world.resume(client)
        elif act == "subscribe":
            what = random.choice(["*", "highway, speed", "count(*), sum(speed)", "avg(speed), max(vehicles)", SKETCHES])
            grouped = f" GROUP BY {random.choice(WINDOWS)}" if "(" in what else ""
            where = random.choice(CONDITIONS).format(random.randint(0, 3))
            world.subscribe(client, f"q{next(numbers)}", f"SELECT {what} FROM traffic WHERE {where}{grouped}")
        elif act == "unsubscribe" and client.wishes:
            world.unsubscribe(client, random.choice(sorted(client.wishes)))
        elif act == "park" and client.is_answered and client.reads:
            world.park(client)
        elif act == "starve" and client.reads:
            world.starve(client, 5 * SECOND_US)
        world.run(world.timeline.now_us + random.choice([500, 5_000, SECOND_US]))
    world.run(world.timeline.now_us + 40 * SECOND_US)
    log = world.nodes["b2"].log
    # Steps of other sizes may ask for other timers.
    for second in range(0, 60, 3):
        log.append(Woken(), world.timeline.now_us + second * SECOND_US)
    return log, {wish.name for client in subscribers for wish in client.past}


def _events(random: Random, numbers: Iterator[int], now_us: int) -> pa.RecordBatch:
    rows = range(random.randint(1, 3))
    columns: dict[str, Any] = {
        "ts": pa.array([now_us + at for at in rows], pa.timestamp("us", tz="UTC")),
        "speed": [random.randint(0, 9) / 2 for _ in rows],
        "highway": pa.array([random.choice([None, "h1", "h2"]) for _ in rows], pa.string()),
        "vehicles": [random.randint(0, 9) for _ in rows],
    }
    if random.random() < 0.7:
        columns["event_id"] = [f"e{next(numbers)}" for _ in rows]
    return pa.RecordBatch.from_pydict(columns)


class Disk:
    """What outlives a crash, and all frames that were ever handed over."""

    def __init__(self, log: Log, how: AggregationOptions) -> None:
        self.log, self.how, self.outboxes = log, how, dict[str, Outbox]()
        self.pieces: dict[str, bytes] = {}
        self.ends: list[int] = []
        self.crashes = self.unfinished = 0

    def broker(self, snapshots: Snapshots) -> Broker:
        """The broker of the last whole snapshot, or a new one."""
        pieces = [self.pieces[key] for key in snapshots.needed]
        return restored(pieces, SETTINGS, advice(self.how)) if pieces else new_broker(self.how)

    def frames(self) -> dict[str, list[bytes]]:
        return {name: list(outbox.frames) for name, outbox in self.outboxes.items()}

    @property
    def sizes(self) -> list[int]:
        """How many inputs each step had in the end."""
        return [end - begin for begin, end in pairwise(dict.fromkeys([0, *self.ends]))]


class KilledError(Exception):
    """A broker is killed."""


class Fragile(Host):
    """A host that is killed between any two of log, step, hand-over and pieces of snapshots.

    It notes where its steps ended.
    """

    def __init__(self, disk: Disk, random: Random | None) -> None:
        self._snapshots = Snapshots("b2", disk.pieces.values())
        disk.unfinished += any(key not in self._snapshots.needed for key in disk.pieces)
        super().__init__(disk.broker(self._snapshots), disk.outboxes, Limits())
        self._disk, self._random = disk, random

    def may_crash(self) -> None:
        if self._random is not None and self._random.random() < 0.02:
            raise KilledError

    def step(self, inputs: Sequence[Input]) -> Step:
        self.may_crash()
        # What comes of steps that are made again stands; steps behind them are made anew.
        self._disk.ends = [end for end in self._disk.ends if end <= self.position]
        step = super().step(inputs)
        self._disk.ends.append(self.position)
        return step

    def hand_over(self, send: Send) -> None:
        self.may_crash()
        super().hand_over(send)

    def write_some(self) -> None:
        """Freeze the broker now and then, and store some pieces of what was frozen."""
        assert self._random is not None
        if self._random.random() < 0.2:
            self._snapshots.begin(self.broker)
        for _ in range(self._random.randint(0, 3)):
            self._write_piece()

    def _write_piece(self) -> None:
        piece = self._snapshots.next_piece()
        if piece is None:
            return
        self.may_crash()
        self._disk.pieces[piece[0]] = piece[1]
        self.may_crash()
        if self._snapshots.note_stored():
            self.forget(self._snapshots.position)
            self.may_crash()
        for key in self._snapshots.useless():
            del self._disk.pieces[key]


def undisturbed(log: Log, how: AggregationOptions, sizes: Iterator[int]) -> dict[str, list[bytes]]:
    disk = Disk(log, how)
    list(Fragile(disk, None).replay(log.read(1), sizes))
    return disk.frames()


def disturbed(log: Log, how: AggregationOptions, random: Random, size: int) -> Disk:
    """The same with crashes; whenever the broker is back, sizes of steps are drawn anew."""
    disk, stored = Disk(log, how), 1
    while True:
        host = Fragile(disk, random)
        try:
            for _ in host.replay(log.read(host.position + 1, stored), _any(random, size)):
                host.write_some()
            while stored < log.end:
                stored = min(stored + random.randint(1, size), log.end)
                for send in host.step(log.read(host.position + 1, stored)).sends:
                    host.hand_over(send)
                host.write_some()
            return disk
        except KilledError:
            disk.crashes += 1


def _any(random: Random, size: int) -> Iterator[int]:
    while True:
        yield random.randint(1, size)


def content(frames: list[bytes]) -> dict[str, Any]:
    """What a peer gets to know, however it was put into frames: each frame once, in order."""
    reader = FrameReader()
    decoded = [reader.decode(data) for data in frames]
    assert [frame.sequence for frame in decoded] == list(range(1, len(decoded) + 1))
    found: dict[str, Any] = {"events": [], "values": {}, "rest": []}
    for message in (message for frame in decoded for message in frame.messages):
        if isinstance(message, (m.Published, m.Delivered)):
            ids = message.events.column("event_id").to_pylist()
            wanted = message.wanted if isinstance(message, m.Delivered) else {"": range(len(ids))}
            found["events"] += [(ids[row], name) for name, rows in sorted(wanted.items()) for row in rows]
        elif isinstance(message, m.Notified):
            for one in window_values(message):
                key = one.subscription, one.start_us, *sorted(one.group.items()), one.output
                found["values"][key] = one.exact, one.publications
        elif not (isinstance(message, m.AdviceMessage) and message.advice == "aggregation"):
            found["rest"].append(str(message))
    found["events"].sort()
    return found


def check(seed: int) -> tuple[int, int]:
    """How often the broker was killed, and how often that left an unfinished snapshot."""
    how, random = aggregating(seed), Random(seed)
    (log, ended), replay = story(seed), f"seed {seed}, {how.placement}, {how.delivery}"
    calm = undisturbed(log, how, repeat(1))
    single, wild = disturbed(log, how, random, size=1), disturbed(log, how, random, size=9)
    # Steps that are grouped alike give the same bytes, whatever crashed in between.
    assert single.frames() == calm, replay
    assert wild.frames() == undisturbed(log, how, chain(wild.sizes, repeat(1))), replay
    assert calm.keys() == wild.frames().keys(), replay
    for peer, frames in calm.items():
        expected, found = content(frames), content(wild.frames()[peer])
        for one in (expected, found):
            # Other steps handle events some milliseconds later, from which clocks and delays run: a value may be due
            # before or after its subscription ends and, with revisions, before or after a placement has chosen.
            one["values"] = {key: value for key, value in one["values"].items() if key[0] not in ended}
            if how.revises and peer in ("b1", "b3"):
                del one["events"]
        assert found == expected, f"{replay}: {peer}"
    return single.crashes + wild.crashes, single.unfinished + wild.unfinished


@pytest.mark.parametrize("first", range(0, 100, 10))
def test_crashes_and_steps_of_any_size_lose_nothing_and_repeat_nothing(first: int) -> None:
    crashes, unfinished = zip(*(check(seed) for seed in range(first, first + 10)), strict=True)
    assert sum(crashes) > 20
    assert sum(unfinished) > 5


@pytest.mark.long
@pytest.mark.parametrize("first", range(1_000, 2_000, 100))
def test_a_thousand_hosts_lose_nothing_and_repeat_nothing(first: int) -> None:
    for seed in range(first, first + 100):
        check(seed)


# -- which pieces of snapshots count --------------------------------------------------------------------------------


class Shelf:
    """The stored pieces of a broker that publishes, and a clock."""

    def __init__(self) -> None:
        self.broker, self.voice = Broker("b1", [], SETTINGS), Voice("c")
        self.pieces: dict[str, bytes] = {}
        self.snapshots = Snapshots("b1")
        self.number = 0
        self.hand(Attached("c"), self.voice.says(m.AdvertiseTopic(1, "traffic")))

    def hand(self, *items: Item, at_us: int = 0) -> None:
        self.broker.step([Input(item, at_us, self.broker.position + at) for at, item in enumerate(items, 1)])

    def publish(self, count: int, at_us: int) -> None:
        ids = [f"e{self.number + at}" for at in range(count)]
        self.number += count
        events = pa.RecordBatch.from_pydict({"event_id": ids, "speed": [1.0] * count})
        self.hand(self.voice.says(m.PublishEvents(2, "traffic", events)), at_us=at_us)

    def write(self, count: int | None = None) -> bool:
        """Store some pieces, or all; whether a snapshot is whole by that."""
        is_whole = False
        for _ in repeat(None) if count is None else repeat(None, count):
            piece = self.snapshots.next_piece()
            if piece is None:
                break
            self.pieces[piece[0]] = piece[1]
            is_whole = self.snapshots.note_stored()
            for key in self.snapshots.useless():
                del self.pieces[key]
        return is_whole

    def come_back(self) -> Broker:
        self.snapshots = Snapshots("b1", self.pieces.values())
        return restored([self.pieces[key] for key in self.snapshots.needed], SETTINGS)


def test_a_snapshot_counts_once_all_its_pieces_are_stored() -> None:
    shelf = Shelf()
    assert (shelf.snapshots.position, shelf.snapshots.needed, shelf.snapshots.next_piece()) == (0, [], None)
    shelf.snapshots.begin(shelf.broker)
    assert shelf.write()
    first = shelf.snapshots.needed
    assert (shelf.snapshots.position, first, list(shelf.pieces)) == (2, ["2/1", "2/2"], ["2/1", "2/2"])
    shelf.publish(1, 0)
    shelf.snapshots.begin(shelf.broker)
    assert not shelf.write(1)
    shelf.publish(1, 0)
    # Only one is written at a time.
    shelf.snapshots.begin(shelf.broker)
    assert (shelf.snapshots.position, shelf.snapshots.needed) == (2, first)
    assert shelf.come_back().position == 2
    assert shelf.snapshots.useless() == ["3/1"]
    del shelf.pieces["3/1"]
    shelf.snapshots.begin(shelf.broker)
    assert shelf.write()
    assert (shelf.snapshots.position, shelf.come_back().position) == (4, 4)
    assert shelf.snapshots.needed == list(shelf.pieces)


def test_a_piece_is_given_again_until_it_is_stored() -> None:
    shelf = Shelf()
    shelf.snapshots.begin(shelf.broker)
    assert shelf.snapshots.next_piece() == shelf.snapshots.next_piece()


def test_a_whole_snapshot_is_not_written_over_at_its_own_position() -> None:
    shelf = Shelf()
    for _ in range(2):
        shelf.snapshots.begin(shelf.broker)
        shelf.write()
        assert shelf.come_back().position == 2
    shelf.snapshots.begin(shelf.broker)
    assert shelf.snapshots.next_piece() is None


def test_what_is_left_of_an_unfinished_snapshot_is_not_taken_for_part_of_another_one() -> None:
    shelf = Shelf()
    shelf.snapshots.begin(shelf.broker)
    shelf.write()
    shelf.publish(9_000, 0)
    # Both stand at position 3; what a broker has sent may differ after a crash, and so may its pieces.
    shelf.snapshots.begin(shelf.broker)
    shelf.write(1)
    left = dict(shelf.pieces)
    shelf.come_back()
    shelf.broker.counters["restarts"] += 1
    shelf.snapshots.begin(shelf.broker)
    assert shelf.write()
    last = max(shelf.pieces, key=lambda key: int(key.split("/")[1]))
    head = SnapshotPiece.read(shelf.pieces[last]).head
    assert head.is_last
    shelf.pieces = {**left, last: SnapshotPiece.of(replace(head, before=b"another"), b"").data}
    assert shelf.come_back().position == 2


def test_remembered_ids_are_written_once_and_kept_while_they_count() -> None:
    shelf = Shelf()
    sizes, kept = [], []
    for minute in range(6):
        shelf.publish(2_000, minute * 60 * SECOND_US)
        before = set(shelf.pieces)
        shelf.snapshots.begin(shelf.broker)
        assert shelf.write()
        sizes.append(sum(len(data) for key, data in shelf.pieces.items() if key not in before))
        kept.append(sum(SnapshotPiece.read(data).head.ids is not None for data in shelf.pieces.values()))
        back = shelf.come_back()
        assert list(back.ingress.recent.frozen().pieces()) == list(shelf.broker.ingress.recent.frozen().pieces())
    assert max(sizes) < 45_000, "2,000 ids of 20 bytes, and little else"
    assert kept == [1, 2, 3, 3, 3, 3], "ids count for two minutes"


def test_pieces_of_another_broker_are_refused() -> None:
    with pytest.raises(CheckpointError, match="piece 1 of the snapshot of 'b2' at 0 is stored; accepted are pieces of"):
        Snapshots("b1", freeze(new_broker(HOW)).pieces())


# -- log, outboxes, limits ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("item", ITEMS, ids=lambda item: type(item).__name__)
def test_an_item_is_read_as_it_was_written(item: Item) -> None:
    data = item_to_bytes(item)
    assert item_from_bytes(data) == item
    for place in range(len(data)):
        with pytest.raises(CheckpointError, match="an entry of a log does not decode"):
            item_from_bytes(data[:place])


def test_a_log_says_what_it_has() -> None:
    log = Log()
    assert [log.append(item, at) for at, item in enumerate(ITEMS)] == list(range(1, len(ITEMS) + 1))
    assert [(one.position, one.at_us, one.item) for one in log.read(3, 5)] == [(3, 2, ITEMS[2]), (4, 3, ITEMS[3])]
    log.forget(4)
    assert [one.position for one in log.read(4)] == list(range(4, len(ITEMS) + 1))
    with pytest.raises(CheckpointError, match="a log begins at 4; accepted are positions from there on, not 3"):
        log.read(3)


def test_an_outbox_takes_frames_in_their_order_only() -> None:
    outbox = Outbox()
    outbox.put(Send("c", (b"one", b"two"), 1, 5), [5])
    with pytest.raises(CheckpointError, match="frames up to 2; accepted is the next one, not 4"):
        outbox.put(Send("c", (b"four",), 4, 6), [6])
    assert (outbox.take(), outbox.size_bytes) == (b"one", 3)
    outbox.put(Send("c", (b"anew",), 1, 7), [7])
    assert (list(outbox.frames), outbox.last, outbox.covers) == ([b"anew"], 1, 7)
    with pytest.raises(ConfigurationError, match="client_bytes_max is 0; accepted are numbers from 1 on"):
        Limits(client_bytes_max=0)


def test_full_outboxes_are_told_once_and_again_when_there_is_room() -> None:
    host = Host(new_broker(HOW), {}, Limits(link_bytes_max=10, client_bytes_max=6))
    host.broker.step([])
    host.hand_over(Send("b3", (b"12345", b"67890", b"x"), 1, 1))
    assert list(host.notices()) == [Room("b3", is_full=True)]
    assert list(host.notices()) == []
    host.outboxes["b3"].take()
    assert list(host.notices()) == []
    host.outboxes["b3"].take()
    assert list(host.notices()) == [Room("b3", is_full=False)]


def test_a_host_that_is_back_knows_what_its_log_says_of_room() -> None:
    log, before = Log(), freeze(new_broker(HOW)).pieces()
    log.append(Room("b3", is_full=True), 0)
    host = Host(restored(before, SETTINGS, advice(HOW)), {}, Limits())
    list(host.replay(log.read(1)))
    assert list(host.notices()) == [Room("b3", is_full=False)]


def test_a_client_that_does_not_read_is_dropped_with_what_waits_for_it() -> None:
    log, slow = Log(), Voice("c")
    log.append(Attached("c"), 0)
    log.append(slow.says(m.SubscribeTo(1, "s", "SELECT * FROM traffic")), 0)
    host = Host(Broker("b1", [], SETTINGS), {}, Limits(client_bytes_max=10))
    for send in host.step(log.read(1)).sends:
        host.hand_over(send)
    (notice,) = host.notices()
    assert notice == Overrun("c", 1)
    log.append(notice, 0)
    (send,) = host.step(log.read(3)).sends
    host.hand_over(send)
    (data,) = host.outboxes["c"].frames
    assert [str(one) for one in FrameReader().decode(data).messages] == ["dropped, missed 1 frames"]
    assert list(host.notices()) == []


# -- lives and limits of clients --------------------------------------------------------------------------------------


class Office:
    """A host whose log and outboxes outlive it, and the sessions of its clients."""

    def __init__(self, limits: Limits = NO_LIMITS) -> None:
        self.log, self.outboxes, self._limits = Log(), dict[str, Outbox](), limits
        self.host = Host(Broker("b1", [], SETTINGS), self.outboxes, limits)
        self._snapshot = list(freeze(self.host.broker).pieces())

    def put(self, *items: Item) -> list[str]:
        """One step with some inputs; what became of them."""
        for item in items:
            self.log.append(item, 0)
        step = self.host.step(self.log.read(self.host.position + 1))
        for send in step.sends:
            self.host.hand_over(send)
        return [one.kind for one in step.outcomes]

    def ask(self, session: Session, kind: type, *fields: Any) -> None:
        self.put(*map(Received, session.ask(kind, *fields)[1]))

    def read(self, session: Session) -> list[str]:
        """All that waits for a client."""
        outbox = self.outboxes.get(session.name, Outbox())
        found = []
        while outbox.frames:
            found += map(str, session.receive(outbox.take()))
        return found

    def restart(self) -> None:
        self.host = Host(restored(self._snapshot, SETTINGS), self.outboxes, self._limits)
        list(self.host.replay(self.log.read(1)))


def speed(name: str) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"event_id": [name], "speed": [1.0]})


def with_waiting_frames(attached: Attached, limits: Limits = NO_LIMITS) -> tuple[Office, Session, Session]:
    """A client for whom an answer and an event wait, and the publisher."""
    office, client, publisher = Office(limits), Session("c"), Session("p")
    office.put(attached, Attached("p"))
    office.ask(publisher, m.AdvertiseTopic, "traffic")
    office.ask(client, m.SubscribeTo, "all", "SELECT * FROM traffic")
    office.ask(publisher, m.PublishEvents, "traffic", speed("e1"))
    assert len(office.outboxes["c"].frames) == 2
    return office, client, publisher


@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_client_that_starts_anew_gets_nothing_of_its_old_life(is_restarted: bool) -> None:
    office, _, publisher = with_waiting_frames(Attached("c"))
    assert office.put(Attached("c", 2)) == ["taken"]
    if is_restarted:
        office.restart()
    anew = Session("c", 2)
    assert office.read(anew) == []
    office.ask(anew, m.SubscribeTo, "all", "SELECT * FROM traffic")
    office.ask(publisher, m.PublishEvents, "traffic", speed("e2"))
    if is_restarted:
        office.restart()
    assert office.read(anew) == ["acknowledged #1", "deliver traffic: all e2"]


def test_frames_of_a_new_life_outlast_a_restart() -> None:
    office, _, _ = with_waiting_frames(Attached("c"))
    anew = Session("c", 2)
    office.put(Attached("c", 2), *map(Received, anew.ask(m.SubscribeTo, "all", "SELECT * FROM traffic")[1]))
    office.restart()
    assert office.read(anew) == ["acknowledged #1"]


def test_a_client_that_was_dropped_and_starts_anew_in_one_step_hears_nothing_of_before() -> None:
    office, _, _ = with_waiting_frames(Attached("c"))
    assert office.put(Overrun("c", 2), Attached("c", 2)) == ["taken", "taken"]
    assert office.read(Session("c", 2)) == []


@pytest.mark.parametrize("item", [Attached("c"), Attached("c", 2, "bob"), Attached("c", 2)])
def test_what_waits_for_a_client_is_safe_from_others(item: Item) -> None:
    office, client, _ = with_waiting_frames(Attached("c", 1, "ann"))
    assert office.put(Parked("c"), item)[-1] != "taken"
    assert office.host.broker.peers["c"].owner == "ann"
    assert office.read(client) == ["acknowledged #1", "deliver traffic: all e1"]
    assert office.put(Attached("c", 2, "ann")) == ["taken"]


def test_a_durable_client_has_a_limit_of_its_own() -> None:
    limits = Limits(client_bytes_max=10, durable_bytes_max=2_000)
    office, client, publisher = with_waiting_frames(Attached("c", durable=True), limits)
    list(office.host.notices())  # the publisher does not read either, and is not durable
    office.put(Parked("c"))
    office.restart()
    assert [one for one in office.host.notices() if one == Overrun("c", 2)] == []
    office.put(Resumed("c", 2))
    resumed = client.resumed()
    assert office.read(resumed) == ["acknowledged #1", "deliver traffic: all e1"]
    for number in range(20):
        office.ask(publisher, m.PublishEvents, "traffic", speed(f"e{number + 2}"))
    overrun = [one for one in office.host.notices() if isinstance(one, Overrun) and one.client == "c"]
    assert overrun == [Overrun("c", 20)]
    office.put(*overrun)
    assert office.read(resumed) == ["dropped, missed 20 frames"]
    assert Limits().durable_bytes_max == 1_000_000_000
    with pytest.raises(ConfigurationError, match="durable_bytes_max is 0; accepted are numbers from 1 on"):
        Limits(durable_bytes_max=0)
