"""`catchment bench broker`: CPU time that one broker takes for an event, with the codec, next to the bare stages.

Three brokers in a chain: publishers are at the first (ingress), ten subscribers at the last (egress). Each broker is
handed frames as bytes and gives frames as bytes. Its steps are timed alone, one broker after the other, and divided by
the events that reach it. A round is ten seconds of event time, or two where events come alone: five windows of every
aggregate subscription close in it, or one. The best round counts.

Besides, how long taking a snapshot holds each of them up: to freeze it, and to write the piece that takes longest.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from statistics import median
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.table import Table

from catchment.broker import messages as m
from catchment.broker.aggregation import Aggregation, AggregationOptions
from catchment.broker.broker import Broker, Settings
from catchment.broker.gateway import Gateway
from catchment.broker.inputs import Input, Item, Posted, Received, Step
from catchment.broker.memory import freeze
from catchment.model.errors import ConfigurationError
from catchment.model.schema import Schema, Type
from catchment.model.subscription import Subscription
from catchment.overlay import Overlay
from catchment.simulation.options import Options
from catchment.simulation.world import World
from catchment.stages import Active, compile_plan, partials_of

__all__ = ["BATCHES", "CHOICES", "KINDS", "QUICK", "SIZES", "Measured", "MeasuredSnapshot", "print_report", "run"]

TOPIC = "readings"
SCHEMA = Schema(
    {
        "area": Type.STRING,
        "road": Type.STRING,
        "sensor": Type.STRING,
        "weather": Type.STRING,
        "speed": Type.FLOAT,
        "load": Type.FLOAT,
        "level": Type.FLOAT,
        "vehicles": Type.INT,
        "delay": Type.INT,
        "lane": Type.INT,
        "is_open": Type.BOOL,
    }
)
"""With `ts` the 12 columns that clients publish; the first broker adds the id and its own name."""
AREAS, ROADS = 50, 20
SELECTIVITY = 0.01
BROKERS = ("b1", "b2", "b3")
ROLES = ("ingress", "transit", "egress")
CLIENTS = 10
"""Publishers at the first broker, and subscribers at the last."""
SIZES, BATCHES = (100, 1_000), (1, 100, 1_000)
PLACEMENTS = ("late", "early", "adaptive", "cover")
SINGLES = ("waiting", "posts")
KINDS = ("regular", *PLACEMENTS, *SINGLES)
"""Of subscriptions; `waiting` is regular ones and frames with one event each that wait together, `posts` the same with
JSON messages of foreign publishers."""
SNAPSHOTS = "snapshots"
CHOICES = (*KINDS, SNAPSHOTS)
WAITING = 1_000
EVENTS_PER_S, WARM_S = 1_000, 24
ROUND_S, SINGLES_S = 10, 2
"""Event time of a round, and of one of single events: windows close in each, in proportion."""
WINDOW = "window(ts, '20 seconds', '2 seconds')"
START_US = 3_600_000_000
"""When events begin: long after all subscriptions are known."""
LIMIT_S = 30.0
"""CPU time after which a cell ends with what it has measured."""
QUICK: dict[str, Any] = {"rounds": 2, "limit_s": 3.0}
"""What one has time for between two changes."""

WANTED_REGULAR: dict[tuple[int, int], tuple[float, float, float]] = {
    (100, 1): (160, 65, 80),
    (100, 100): (4, 1, 10),
    (100, 1_000): (0.7, 0.3, 1.3),
    (1_000, 1): (230, 70, 130),
    (1_000, 100): (4, 2, 13),
    (1_000, 1_000): (0.9, 0.6, 3.5),
}
"""Microseconds an event, by subscriptions and batch: of ingress, transit and egress."""
WANTED_AGGREGATE = {
    (100, 1): 400.0, (100, 100): 12.0, (100, 1_000): 3.0,
    (1_000, 1): 600.0, (1_000, 100): 25.0, (1_000, 1_000): 5.0,
}  # fmt: skip
WANTED_WAITING, WANTED_POSTS = 30.0, 10.0
SNAPSHOT_IDS = 100_000
"""Remembered ids in a snapshot."""
SNAPSHOT_ROUNDS = 5
WANTED_SNAPSHOT_MS = 2.0
"""For which a snapshot may hold a broker up at most, at 1,000 subscriptions."""


@dataclass(frozen=True, slots=True)
class Measured:
    """What one broker takes for an event. Times are CPU microseconds of the best round, and of the median one."""

    kind: str
    subscriptions: int
    broker: str
    """Its place in the chain."""
    batch: int
    events: int
    us: float
    median_us: float
    wanted_us: float | None
    match_us: float
    """Of the bare match of the same batches."""
    partials_us: float | None
    """Of `partials_of` behind it, where subscriptions aggregate."""
    is_cut: bool
    """Whether the time limit came before the last round."""

    @property
    def passes(self) -> bool | None:
        return None if self.wanted_us is None else self.us <= self.wanted_us


@dataclass(frozen=True, slots=True)
class MeasuredSnapshot:
    """How long a snapshot of one broker holds it up, in CPU milliseconds. Half of all subscriptions aggregate."""

    subscriptions: int
    broker: str
    """Its place in the chain."""
    ids: int
    freeze_ms: float
    piece_ms: float
    """Of the piece that takes longest."""
    pieces: int
    bytes: int
    wanted_ms: float | None

    @property
    def passes(self) -> bool | None:
        return None if self.wanted_ms is None else max(self.freeze_ms, self.piece_ms) <= self.wanted_ms


def run(
    *,
    only: Sequence[str] = CHOICES,
    sizes: Sequence[int] = SIZES,
    batches: Sequence[int] = BATCHES,
    rounds: int | None = None,
    limit_s: float = LIMIT_S,
    report: Callable[[str], None] = lambda line: None,
) -> dict[str, Any]:
    """Measure everything that is chosen; a dictionary that JSON can hold."""
    for one in only:
        if one not in CHOICES:
            raise ConfigurationError(f"only is {one!r}; accepted are {', '.join(CHOICES)}")
    measured: list[Measured] = []
    for kind in (one for one in KINDS if one in only):
        for size in sizes:
            for batch in [1] if kind in SINGLES else batches:
                report(f"{kind}, {size:,} subscriptions, {_batch_name(kind, batch)}")
                measured += _measure(kind, size, batch, rounds or 6, limit_s)
    frozen: list[MeasuredSnapshot] = []
    if SNAPSHOTS in only:
        report(f"snapshots, {max(sizes):,} subscriptions, {SNAPSHOT_IDS:,} ids")
        frozen = _measure_snapshots(max(sizes))
    return {
        "measured": [{**asdict(one), "passes": one.passes} for one in measured],
        "snapshots": [{**asdict(one), "passes": one.passes} for one in frozen],
    }


def _batch_name(kind: str, batch: int) -> str:
    together = {"waiting": f"{WAITING:,} frames of 1 event in a step", "posts": f"{WAITING:,} JSON messages in a step"}
    return together.get(kind, f"{batch:,} events in a frame")


# -- the workload -----------------------------------------------------------------------------------------------------


def _events(number: int, rows: int) -> pa.RecordBatch:
    """Events from one number on; the same number gives the same event, whatever the batch."""
    random = np.random.default_rng(number)
    words = {"area": AREAS, "road": ROADS, "sensor": 500, "weather": 5}
    columns: dict[str, Any] = {
        "ts": pa.array(START_US + (number + np.arange(rows)) * (1_000_000 // EVENTS_PER_S), Type.TIMESTAMP.arrow),
        **{name: pa.array([f"{name}-{one}" for one in random.integers(0, most, rows)]) for name, most in words.items()},
        **{name: random.uniform(0, 100, rows) for name in ("speed", "load", "level")},
        **{name: random.integers(0, 100, rows) for name in ("vehicles", "delay", "lane")},
        "is_open": random.random(rows) < 0.5,
    }
    return pa.RecordBatch.from_pydict(columns)


def _questions(kind: str, size: int) -> Iterator[str]:
    """Subscriptions of which each matches about a hundredth of all events; every other aggregate has a group key."""
    random = np.random.default_rng(size)
    measures = ("avg(speed), count(*)", "sum(vehicles)", "max(load)", "min(delay), max(delay)", "stddev_samp(level)")
    for number in range(size):
        share = SELECTIVITY if number % 2 else SELECTIVITY * ROADS
        low = random.uniform(0, 100 * (1 - share))
        attribute = ("speed", "load", "level")[int(random.integers(3))]
        where = f"{attribute} BETWEEN {low:.3f} AND {low + 100 * share:.3f}"
        if not number % 2:
            where += f" AND road = 'road-{random.integers(ROADS)}'"
        if kind in PLACEMENTS:
            key = ", area" if number % 4 < 2 else ""
            yield f"SELECT {measures[number % 5]} FROM {TOPIC} WHERE {where} GROUP BY {WINDOW}{key}"
        else:
            yield f"SELECT * FROM {TOPIC} WHERE {where}"


class _Chain:
    """Three brokers that know their subscriptions, and frames of publishers for the first."""

    def __init__(self, kind: str, questions: Sequence[str]) -> None:
        schemas = {TOPIC: SCHEMA}
        options = AggregationOptions(placement=kind if kind in PLACEMENTS else "early")
        world = World(
            Overlay.from_links(pairwise(BROKERS)),
            Settings(schemas=schemas),
            options=Options(snapshot_every=None),
            make_advice=lambda: [
                *([Aggregation(options)] if kind in PLACEMENTS else []),
                *([Gateway()] if kind == "posts" else []),
            ],
            records=False,
        )
        self._publishers = [world.client(BROKERS[0], f"p{number}") for number in range(CLIENTS)]
        subscribers = [world.client(BROKERS[-1], f"s{number}") for number in range(CLIENTS)]
        for publisher in self._publishers:
            world.advertise(publisher, TOPIC)
        world.run(START_US // 2)
        for number, sql in enumerate(questions):
            world.subscribe(subscribers[number % CLIENTS], f"q{number}", sql)
        world.run(START_US - 1_000_000)
        for request in (one for client in world.clients.values() for one in client.requests):
            assert request.answered_us is not None
            assert request.refused is None, request.refused
        self.brokers = [world.nodes[name].broker for name in BROKERS]
        self._kind, self._turn = kind, 0

    def published(self, batches: Sequence[pa.RecordBatch]) -> list[tuple[int, Item]]:
        """What publishers say, who take turns, and when it comes: at the time of their last event."""
        found: list[tuple[int, Item]] = []
        for events in batches:
            if self._kind == "posts":
                found.append((events.column("ts")[-1].value, Posted(TOPIC, _json_lines(events))))
                continue
            self._turn += 1
            at_us = events.column("ts")[-1].value
            frames = self._publishers[self._turn % CLIENTS].ask(m.PublishEvents, at_us, 0, TOPIC, events)
            found += [(at_us, Received(data)) for data in frames]
        return found


def _json_lines(events: pa.RecordBatch) -> bytes:
    plain = events.set_column(events.schema.names.index("ts"), "ts", events.column("ts").cast(pa.int64()))
    return b"\n".join(map(msgspec.json.encode, plain.to_pylist()))


# -- measuring --------------------------------------------------------------------------------------------------------


def _measure(kind: str, size: int, batch: int, rounds: int, limit_s: float) -> list[Measured]:
    questions = list(_questions(kind, size))
    chain = _Chain(kind, questions)
    # Of aggregates only the ingress has a target, and the others would take long.
    roles = ROLES[:1] if kind in (*PLACEMENTS, *SINGLES) else ROLES
    spent = _Spent(limit_s)
    per_round = WAITING if kind in SINGLES else EVENTS_PER_S * (SINGLES_S if batch == 1 else ROUND_S)
    warm = (WARM_S if kind in PLACEMENTS else 4) * EVENTS_PER_S
    # Windows have to be open, and code compiled, before the first round; large batches get there soonest.
    for first in range(0, warm, 1_000):
        _pass_along(chain, roles, [_events(first, 1_000)], 1, _Spent(float("inf")))
    shown = []
    for number in range(rounds):
        batches = [
            _events(first, batch) for first in range(warm + number * per_round, warm + (number + 1) * per_round, batch)
        ]
        shown += batches[: max(1, 1_000 // batch)] if not number else []
        gc.collect()
        if not _pass_along(chain, roles, batches, WAITING if kind in SINGLES else 1, spent):
            break
    match_us, partials_us = _bare(questions, shown, is_aggregate=kind in PLACEMENTS)
    found = []
    for place, role in enumerate(roles):
        times = spent.us[role]
        found.append(
            Measured(
                kind, size, role, batch, spent.events[role], min(times), median(times),
                _wanted(kind, size, batch, place), match_us, partials_us, spent.is_over,
            )
        )  # fmt: skip
    return found


def _wanted(kind: str, size: int, batch: int, place: int) -> float | None:
    if kind in SINGLES:
        return WANTED_POSTS if kind == "posts" else WANTED_WAITING
    if kind in PLACEMENTS:
        return WANTED_AGGREGATE.get((size, batch))
    return WANTED_REGULAR[size, batch][place] if (size, batch) in WANTED_REGULAR else None


class _Spent:
    """What rounds have taken: microseconds an event of each, by role."""

    def __init__(self, limit_s: float) -> None:
        self._left_s = limit_s
        self.us: dict[str, list[float]] = {role: [] for role in ROLES}
        self.events = dict.fromkeys(ROLES, 0)

    @property
    def is_over(self) -> bool:
        return self._left_s <= 0

    def steps(self, role: str, broker: Broker, groups: Sequence[list[Input]]) -> list[Step]:
        """Let a broker handle groups of inputs, as many as there is time for."""
        found: list[Step] = []
        begun_s, until_s = time.process_time(), time.perf_counter() + self._left_s
        for inputs in groups:
            found.append(broker.step(inputs))
            if time.perf_counter() > until_s:
                break
        seconds, events = time.process_time() - begun_s, sum(step.work["match"] for step in found)
        self._left_s = 0.0 if len(found) < len(groups) else self._left_s - seconds
        self.us[role].append(seconds * 1e6 / events)
        self.events[role] += events
        return found


def _pass_along(
    chain: _Chain, roles: Sequence[str], batches: Sequence[pa.RecordBatch], at_once: int, spent: _Spent
) -> bool:
    """Let events pass brokers, so many frames in a step; whether there was time for all of them."""
    waiting = chain.published(batches)
    for role, broker, after in zip(roles, chain.brokers, (*BROKERS[1:], None), strict=False):
        inputs = [Input(item, at_us, at) for at, (at_us, item) in enumerate(waiting, broker.position + 1)]
        groups = [inputs[first : first + at_once] for first in range(0, len(inputs), at_once)]
        steps = spent.steps(role, broker, groups)
        waiting = [
            (group[-1].at_us, Received(data))
            for group, step in zip(groups, steps, strict=False)
            for send in step.sends
            if send.to == after
            for data in send.frames
        ]
    return not spent.is_over


def _bare(
    questions: Sequence[str], batches: Sequence[pa.RecordBatch], *, is_aggregate: bool
) -> tuple[float, float | None]:
    """Microseconds an event for the match and for `partials_of` alone, the best of some rounds."""
    asked = [Active(Subscription(f"q{number}", BROKERS[-1], sql=sql)) for number, sql in enumerate(questions)]
    (topic,) = compile_plan(asked, {TOPIC: SCHEMA}, None).topics.values()
    events = sum(len(batch) for batch in batches)
    here = [np.zeros(batch.num_rows, np.int64) for batch in batches]

    def best_us(act: Callable[[], Any]) -> float:
        found: list[float] = []
        for _ in range(6):
            begun_s = time.process_time()
            act()
            found.append(time.process_time() - begun_s)
        return min(found) * 1e6 / events

    match_us = best_us(lambda: [topic.matcher.match_slots(batch) for batch in batches])
    if not is_aggregate:
        return match_us, None
    matched = [topic.matcher.rows_by_slot(batch) for batch in batches]
    rows = list(zip(batches, matched, here, strict=True))
    return match_us, best_us(lambda: [partials_of(topic, batch, of, origins, 1) for batch, of, origins in rows])


def _measure_snapshots(size: int) -> list[MeasuredSnapshot]:
    """Take snapshots of brokers whose windows are open."""
    halves = zip(_questions("early", size // 2), _questions("regular", size // 2), strict=True)
    chain = _Chain("early", [question for pair in halves for question in pair])
    for first in range(0, WARM_S * EVENTS_PER_S, 1_000):
        _pass_along(chain, ROLES, [_events(first, 1_000)], 1, _Spent(float("inf")))
    ids = pa.array([f"id-{number}" for number in range(SNAPSHOT_IDS)])
    found = []
    for role, broker in zip(ROLES, chain.brokers, strict=True):
        broker.ingress.recent.fresh(ids, np.full(SNAPSHOT_IDS, broker.now_us))
        gc.collect()
        # Collections of garbage take as long as the heap is large, whoever causes them.
        gc.disable()
        try:
            rounds = [_snapshot_ms(broker) for _ in range(SNAPSHOT_ROUNDS)]
        finally:
            gc.enable()
        freeze_ms = min(one[0] for one in rounds)
        piece_ms = np.min([one[1] for one in rounds], axis=0).max()
        wanted_ms = WANTED_SNAPSHOT_MS if size <= 1_000 else None
        pieces, size_bytes = len(rounds[0][1]), rounds[0][2]
        found.append(
            MeasuredSnapshot(size, role, SNAPSHOT_IDS, freeze_ms, float(piece_ms), pieces, size_bytes, wanted_ms)
        )
    return found


def _snapshot_ms(broker: Broker) -> tuple[float, list[float], int]:
    """How long it takes to freeze a broker and to write each piece, and the bytes of all pieces."""
    begun_s = time.process_time()
    pieces = freeze(broker).pieces()
    freeze_ms = (time.process_time() - begun_s) * 1e3
    each_ms, size_bytes, begun_s = [], 0, time.process_time()
    for data in pieces:
        each_ms.append((time.process_time() - begun_s) * 1e3)
        size_bytes += len(data)
        begun_s = time.process_time()
    return freeze_ms, each_ms, size_bytes


# -- printing ---------------------------------------------------------------------------------------------------------


def print_report(result: dict[str, Any], console: Console | None = None) -> None:
    """Print what `run` found: a table, and a line for each snapshot."""
    console = console or Console()
    if result["measured"]:
        _print_table(result, console)
    for one in result["snapshots"]:
        verdict = {True: " [green]pass[/]", False: " [red]fail[/]", None: ""}[one["passes"]]
        wanted = "" if one["wanted_ms"] is None else f", wanted ≤ {one['wanted_ms']:g}"
        console.print(
            f"Snapshot at the {one['broker']}, {one['subscriptions']:,} subscriptions, half of them aggregates, "
            f"{one['ids']:,} ids: freeze {one['freeze_ms']:.2f} ms, longest of {one['pieces']:,} pieces "
            f"{one['piece_ms']:.2f} ms{wanted}{verdict}"
        )


def _print_table(result: dict[str, Any], console: Console) -> None:
    table = Table(title="CPU microseconds of one broker for an event, codec included")
    headings = ("subscriptions", "batch", "broker", "us/event", "median", "wanted", "", "match", "partials")
    for heading in headings:
        table.add_column(
            heading, justify="left" if heading in ("subscriptions", "broker", "") else "right", no_wrap=True
        )
    before = None
    for one in result["measured"]:
        kind = "regular" if one["kind"] in SINGLES else one["kind"]
        if before not in (None, (one["kind"], one["subscriptions"])):
            table.add_section()
        before = (one["kind"], one["subscriptions"])
        verdict = {True: "[green]pass[/]", False: "[red]fail[/]", None: ""}[one["passes"]]
        table.add_row(
            f"{one['subscriptions']:,} {kind}",
            {"waiting": f"{WAITING:,} x 1", "posts": f"{WAITING:,} JSON"}.get(one["kind"], f"{one['batch']:,}"),
            one["broker"],
            _figure(one["us"]) + "~" * one["is_cut"],
            _figure(one["median_us"]),
            "" if one["wanted_us"] is None else f"≤ {one['wanted_us']:g}",
            verdict,
            _figure(one["match_us"]),
            "" if one["partials_us"] is None else _figure(one["partials_us"]),
        )
    console.print(table)
    console.print("Best round and median of all; match and partials: the bare stages on the same batches.")
    console.print(f"{WAITING:,} x 1: so many frames with one event each, from {CLIENTS} clients, in one step.")
    console.print(f"{WAITING:,} JSON: so many messages of foreign publishers, one event each, in one step.")
    if any(one["is_cut"] for one in result["measured"]):
        console.print("~ : the time limit came first.")


def _figure(us: float) -> str:
    return f"{us:,.0f}" if us >= 100 else f"{us:.1f}" if us >= 10 else f"{us:.2f}"
