"""Stories: what happens in a random world, all of it drawn from a seed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import chain
from random import Random
from typing import Any

import pyarrow as pa

from catchment.broker.aggregation import COLLECTION_US, Aggregation, AggregationOptions
from catchment.broker.aggregation.describing import Describer
from catchment.broker.broker import Settings
from catchment.broker.gateway import Gateway, GatewayOptions
from catchment.broker.hosting import Limits
from catchment.model.schema import Schema, Type
from catchment.overlay.placement import ONLINE
from catchment.simulation.checking import (
    Bounds,
    check_answers,
    check_conduct,
    check_deliveries,
    check_emptiness,
    check_notifications,
    check_posts,
    check_promptness,
    check_routes,
)
from catchment.simulation.clients import Client
from catchment.simulation.options import Options
from catchment.simulation.overlays import SHAPES, overlay_of
from catchment.simulation.service import FREE, ServiceTimes
from catchment.simulation.witness import Witness, Witnessed
from catchment.simulation.world import World

__all__ = ["SCHEMAS", "Story", "play"]

SCHEMAS = {
    "traffic": Schema({"speed": Type.FLOAT, "highway": Type.STRING}),
    "stock": Schema({"price": Type.INT, "symbol": Type.STRING, "rises": Type.BOOL}),
}
ADDED = {
    "traffic": {"lane": "int"},
    "stock": {"market": "string"},
    "weather": {"rain": "float", "place": "string"},
}
"""What may be added while a story is told."""
_CONDITIONS = {
    "traffic": ("speed < {0}", "speed BETWEEN {0} AND {1}", "highway = 'h{2}'", "highway LIKE 'h%' AND speed > {0}"),
    "stock": ("price >= {0}", "symbol IN ('s{2}', 's0')", "price < {1} OR symbol = 's{2}'", "symbol IS NULL"),
    "weather": ("rain > {0}", "place = 'p{2}' OR rain < {1}"),
}
_ADDED_CONDITIONS = {
    "traffic": ("lane = {2}", "lane > {2} AND speed < {1}"),
    "stock": ("market = 'm{2}'", "market IS NULL OR price < {0}"),
}
_MEASURES = {
    "traffic": (
        "count(*), avg(speed)",
        "max(speed)",
        "median(speed), count(*)",
        "count(DISTINCT highway), min(highway)",
        "percentile(speed, 0.9), stddev_samp(speed)",
        "approx_percentile(speed, 0.5), approx_top_k(highway, 2)",
    ),
    "stock": (
        "sum(price)",
        "count(price), var_samp(price)",
        "mode(symbol)",
        "approx_count_distinct(symbol)",
        "bool_and(rises), bool_or(rises)",
    ),
    "weather": ("sum(rain), count(*)", "max(place)"),
}
_ADDED_MEASURES = {"traffic": ("sum(lane), max(speed)",), "stock": ("count(DISTINCT market), count(*)",)}
_KEYS = {"traffic": ("", "", ", highway"), "stock": ("", "", ", symbol"), "weather": ("", ", place")}
_ADDED_KEYS = {"traffic": (", lane",), "stock": (", market", ", symbol, market")}
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
PROMPT_US, STARVED_US = 5_000_000, 20_000_000
"""What everything that goes wrong may hold an event up, and how long a client may not read, which holds up nobody."""
_WINDOWS = ((20, 20), (50, 20), (60, 20), (200, 50), (10, 30), (1_000, 1_000))
"""Size and shift in milliseconds."""


@dataclass(slots=True)
class Story:
    """A world after its story, and what was wrong in it."""

    seed: int
    world: World
    summary: str
    problems: list[str] = field(default_factory=list)


def play(seed: int, *, steps: int = 60, traces: bool = False, placement: str | None = None) -> Story:
    """Play the story of a seed: clients come and ask, things break, and in the end everybody goes.

    The seed draws the placement as well, unless one is given.
    """
    random = Random(seed)
    shape, size = random.choice(sorted(SHAPES)), random.randint(1, 9)
    options = Options(
        delay_us_max=random.choice([500, 5_000]),
        bytes_per_s=random.choice([None, None, 1_000_000]),
        in_flight_max=random.choice([1, 3, 1_000]),
        service=random.choice([FREE, FREE, ServiceTimes(match_us=20, send_us=30)]),
        duplicates=random.choice([0.0, 0.2]),
        drops=random.choice([0.0, 0.2]),
        crashes=random.choice([0.0, 0.05]),
        partitions=random.choice([0.0, 0.05, 0.2]),
        clock_skew_us_max=random.choice([0, 100_000]),
        snapshot_every=random.choice([1, 5, 50]),
        kills=random.choice([0.0, 0.0, 0.02]),
        step_max=random.choice([1, 3, 100]),
        step_delay_us_max=random.choice([0, 3_000]),
        limits=random.choice([Limits(), Limits(link_bytes_max=2_000), Limits(client_bytes_max=1_000)]),
    )
    settings = Settings(
        schemas=SCHEMAS,
        forwarding=random.choice(["advertised", "advertised", "flooded"]),
        summary=random.choice(["bound", "covering", "each"]),
    )
    drawn = random.choice(ONLINE)
    aggregating = AggregationOptions(
        placement=placement or drawn,
        delivery=random.choice(["final", "final", "revisions"]),
        lateness_us=random.choice([0, 0, 30_000]),
        idle_after_us=random.choice([20_000, 500_000]),
        sampling_period_us=random.choice([10_000, 40_000]),
        collection_us=random.choice([COLLECTION_US, (1_000, 1_000)]),
    )
    gateway = GatewayOptions(lease_us=random.choice([1_000, 20_000, 300_000]))
    bounds, witnessed = Bounds(), Witnessed()
    overlay = overlay_of(shape, size, random)
    world = World(
        overlay,
        settings,
        seed=seed,
        options=options,
        make_advice=lambda: [Aggregation(aggregating), Gateway(gateway), Witness(witnessed)],
        traces=traces,
        describe=Describer(SCHEMAS),
        watch=bounds,
    )
    witnessed.world = world
    teller = _Teller(world, random, ONLINE)
    for _ in range(steps):
        teller.step()
        if random.random() < 0.6:
            world.run(world.timeline.now_us + random.randint(1, 20_000))
    teller.everybody_is_back()
    world.run()
    problems = [*check_answers(world), *check_deliveries(world), *check_conduct(world), *check_routes(world)]
    problems += check_notifications(world, revises=aggregating.revises)
    problems += chain(check_promptness(world, PROMPT_US), check_posts(world))
    teller.everybody_goes()
    world.run()
    problems += chain(check_answers(world), check_emptiness(world), bounds.check())
    summary = f"{shape} of {size}, {settings.forwarding}, {settings.summary}; {options}; {aggregating}"
    return Story(seed, world, summary, problems)


class _Teller:
    def __init__(self, world: World, random: Random, placements: Sequence[str]) -> None:
        self._world, self._random, self._placements = world, random, placements
        self._number = 0
        self._behind_us = random.choice([None, 0, 40_000])
        """How old events may be when they are published; None is that brokers say when they came."""
        names = world.overlay.brokers
        self._clients = [world.client(random.choice(names), f"c{n}") for n in range(random.randint(1, 6))]

    def step(self) -> None:
        acts = {
            self._advertise: 8,
            self._unadvertise: 4,
            self._subscribe: 10,
            self._unsubscribe: 4,
            self._publish: 20,
            self._burst: 5,
            self._post: 8,
            self._add_topics: 2,
            self._place: 3,
            self._park: 1,
            self._starve: 1,
        }
        self._replace_dropped()
        if self._random.random() < 0.1:
            self.everybody_is_back()
        act = self._random.choices([*acts], [*acts.values()])[0]
        here = [client for client in self._clients if not client.is_away]
        if not here:
            return
        client, topic = self._random.choice(here), self._random.choice(sorted(self._world.schemas))
        for _ in range(self._random.choice([1, 1, 1, 5]) if act == self._publish else 1):
            act(client, topic)
        self._break()

    def _next(self) -> int:
        self._number += 1
        return self._number

    def _advertise(self, client: Client, topic: str) -> None:
        self._world.advertise(client, topic)

    def _unadvertise(self, client: Client, topic: str) -> None:
        if topic in client.advertised:
            self._world.unadvertise(client, topic)
            if self._random.random() < 0.5:
                self._world.advertise(client, topic)

    def _subscribe(self, client: Client, topic: str) -> None:
        low = self._random.randint(0, 9)
        grown = topic in SCHEMAS and len(self._world.schemas[topic]) > len(SCHEMAS[topic])
        text = self._random.choice(_CONDITIONS[topic] + (_ADDED_CONDITIONS[topic] if grown else ()))
        condition = text.format(low, low + self._random.randint(0, 5), self._random.randint(0, 2))
        sql = f"SELECT * FROM {topic} WHERE {condition}"
        if self._random.random() < 0.5:
            measures = self._random.choice(_MEASURES[topic] + (_ADDED_MEASURES[topic] if grown else ()))
            key = self._random.choice(_KEYS[topic] + (_ADDED_KEYS[topic] if grown else ()))
            size, shift = self._random.choice(_WINDOWS)
            window = f"window(ts, '{size} milliseconds', '{shift} milliseconds'){key}"
            having = self._random.choice(["", "", "", " HAVING count(*) > 1"])
            sql = f"SELECT {measures} FROM {topic} WHERE {condition} GROUP BY {window}{having}"
        self._world.subscribe(client, f"s{self._next()}", sql)

    def _add_topics(self, client: Client, topic: str) -> None:
        """Tell one broker, or all in any order, of a new topic or attribute, or of one that they know."""
        added, names = self._random.choice(sorted(ADDED)), list(self._world.overlay.brokers)
        told = self._random.choice([1, len(names)])
        self._world.add_topics(self._random.sample(names, told), {added: ADDED[added]})

    def _place(self, client: Client, topic: str) -> None:
        """Tell some brokers, in any order, of another placement of a topic; the others stay with theirs."""
        names = list(self._world.overlay.brokers)
        some = self._random.sample(names, self._random.randint(1, len(names)))
        if topic in SCHEMAS:
            self._world.place(some, topic, self._random.choice(self._placements))

    def _unsubscribe(self, client: Client, topic: str) -> None:
        if client.wishes:
            self._world.unsubscribe(client, self._random.choice(sorted(client.wishes)))

    def _publish(self, client: Client, topic: str) -> None:
        self._publish_rows(client, topic, self._random.randint(1, 4))

    def _burst(self, client: Client, topic: str) -> None:
        """Publish more events at once than a quantile sketch holds without compacting them."""
        self._publish_rows(client, topic, self._random.randint(250, 400))

    def _post(self, client: Client, topic: str) -> None:
        """Let some foreign publishers store something, one right after the other."""
        broker = self._random.choice(self._world.overlay.brokers)
        known = self._known_at(broker)
        for _ in range(self._random.choice([1, 1, 4]) if topic in known else 0):
            rows = self._columns(topic, self._random.randint(1, 3), known).to_pylist()
            said = [{name: value for name, value in row.items() if value is not None} for row in rows]
            for row in said:
                if "ts" in row and self._random.random() < 0.5:
                    row["ts"] = (row["ts"] - EPOCH) // timedelta(microseconds=1)
            self._world.post(broker, topic, said, as_array=self._random.random() < 0.3)

    def _publish_rows(self, client: Client, topic: str, rows: int) -> None:
        if topic in client.advertised:
            self._world.publish(client, topic, self._columns(topic, rows, self._world.schemas))

    def _known_at(self, broker: str) -> Mapping[str, Schema]:
        """Topics that a broker is sure to know: what foreign publishers post is otherwise refused."""
        node = self._world.nodes[broker]
        return SCHEMAS if node.is_down else node.broker.schemas

    def _columns(self, topic: str, rows: int, known: Mapping[str, Schema]) -> pa.RecordBatch:
        columns = {"event_id": pa.array([f"e{self._next()}" for _ in range(rows)], pa.string())}
        if self._behind_us is not None:
            now_us = self._world.timeline.now_us
            times_us = [now_us - self._random.randint(0, self._behind_us) for _ in range(rows)]
            columns["ts"] = pa.array(times_us, Type.TIMESTAMP.arrow)
        for name, kind in known[topic].attributes.items():
            if name in ADDED.get(topic, ()) and self._random.random() < 0.3:
                continue
            columns[name] = pa.array([self._value(name, kind) for _ in range(rows)], kind.arrow)
        return pa.RecordBatch.from_pydict(columns)

    def _value(self, name: str, kind: Type) -> Any:
        if kind == Type.BOOL:
            return self._random.choice([None, True, False])
        if kind == Type.STRING:
            return self._random.choice([None, f"{name[0]}0", f"{name[0]}1", f"{name[0]}2"])
        return self._random.choice([None, *range(12)])

    def _break(self) -> None:
        options = self._world.options
        if self._random.random() < options.crashes:
            broker = self._random.choice(self._world.overlay.brokers)
            self._world.crash(broker, self._random.randint(1, options.down_us_max))
        if self._world.links and self._random.random() < options.partitions:
            self._world.cut(*self._random.choice(self._world.links), self._random.randint(1, options.down_us_max))

    def _park(self, client: Client, topic: str) -> None:
        if client.is_answered and client.reads:
            self._world.park(client)

    def _starve(self, client: Client, topic: str) -> None:
        if client.reads:
            self._world.starve(client, self._random.choice([10_000, STARVED_US]))

    def _replace_dropped(self) -> None:
        """Whoever was dropped comes back under another name, and knows nothing of before."""
        for place, client in enumerate(self._clients):
            if client.is_dropped:
                self._clients[place] = self._world.client(client.broker, f"c{self._next()}-again")

    def everybody_is_back(self) -> None:
        for client in self._clients:
            if client.is_away:
                self._world.resume(client)

    def everybody_goes(self) -> None:
        for client in self._clients:
            if client.is_dropped:
                continue
            for name in sorted(client.wishes):
                if client.wishes[name].asked.refused is None:
                    self._world.unsubscribe(client, name)
            for topic in sorted(client.advertised):
                self._world.unadvertise(client, topic)
