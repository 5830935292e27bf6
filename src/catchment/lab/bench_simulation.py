"""`catchment bench simulation`: how much of an overlay one core can simulate, and what covering saves.

A message is what a broker handles: an event, counted at every broker that it reaches, or a control frame. Events travel
in batches, so both are printed: messages, and the frames that carried them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import cycle
from random import Random
from typing import Any

import pyarrow as pa
from rich.console import Console
from rich.table import Table

from catchment.broker.broker import Settings
from catchment.model.schema import Schema, Type
from catchment.overlay import Overlay
from catchment.simulation.clients import Client
from catchment.simulation.options import Options
from catchment.simulation.overlays import DEBS14, overlay_of
from catchment.simulation.world import World

__all__ = ["QUICK", "print_report", "run"]

SCHEMAS = {"traffic": Schema({"speed": Type.FLOAT, "highway": Type.STRING, "vehicles": Type.INT})}
BATCHES = (1, 10, 100, 1_000)
LARGE, MESSAGES, LARGE_S = 3_200, 100_000, 60.0
MESSAGES_PER_S, SINGLES_PER_S = 50_000, 9_000
COUNTS, OVERLAPS = (10, 100, 1_000, 10_000), (0.0, 0.5, 0.9)
QUICK: dict[str, Any] = {"large": 200, "messages": 5_000, "counts": (10, 100), "seconds": 0.3}
"""What CI has time for."""
WAYS = {
    "flooding": {"forwarding": "flooded", "summary": "each"},
    "covering": {"forwarding": "advertised", "summary": "covering"},
    "bound": {"forwarding": "advertised", "summary": "bound"},
}
LARGEST = {"bound": 100}
"""A bound is worked out anew whenever someone leaves, which takes minutes where there are many."""
NO_MEMORY = Options(snapshot_every=None)
"""Nothing crashes here, so nothing needs to be written down."""


@dataclass(frozen=True, slots=True)
class Speed:
    """Messages and frames that brokers have handled, and in what processor time."""

    brokers: int
    batch: int
    messages: int
    frames: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Spread:
    """What subscriptions cost on the links of an overlay."""

    way: str
    subscriptions: int
    overlap: float
    messages: int
    """That said something of filters, when all subscribed and when half of them left again."""
    filters: int
    """That these messages carried."""
    table: int
    """Filters of neighbours that all brokers know, when all have subscribed."""
    seconds: float


def run(
    *,
    large: int = LARGE,
    messages: int = MESSAGES,
    counts: Sequence[int] = COUNTS,
    seconds: float = 3.0,
    report: Callable[[str], None] = lambda line: None,
) -> dict[str, Any]:
    """Measure everything; a dictionary that JSON can hold."""
    _speed(DEBS14, BATCHES[-1], 0.1)  # compiles what is compiled
    speeds = []
    for batch in BATCHES:
        report(f"{len(DEBS14)} brokers, {batch} events in a batch")
        speeds.append(_speed(DEBS14, batch, seconds))
    report(f"{large} brokers until {messages} messages are handled")
    begun = time.perf_counter()
    overlay = overlay_of("random tree", large, Random(1))
    wide = replace(_speed(overlay, 10, None, messages=messages), seconds=time.perf_counter() - begun)
    spreads = []
    for count in counts:
        for overlap in OVERLAPS:
            for way in WAYS:
                if count > LARGEST.get(way, count):
                    continue
                report(f"{count} subscriptions, overlap {overlap:.0%}, {way}")
                spreads.append(_spread(way, count, overlap))
    return {
        "speeds": [asdict(one) for one in speeds],
        "large": asdict(wide),
        "spreads": [asdict(one) for one in spreads],
        "targets": list(_targets(speeds, wide, spreads)),
    }


def _targets(speeds: list[Speed], wide: Speed, spreads: list[Spread]) -> Iterator[dict[str, Any]]:
    best = max(speeds, key=lambda one: one.messages / one.seconds)
    name = f"messages/s, {best.brokers} brokers, {best.batch:,} a batch"
    yield _target(name, best.messages / best.seconds, ">=", MESSAGES_PER_S)
    single = next(one for one in speeds if one.batch == 1)
    yield _target(
        f"messages/s, {single.brokers} brokers, one by one", single.messages / single.seconds, ">=", SINGLES_PER_S
    )
    yield _target(f"s for {wide.messages:,} messages, {wide.brokers:,} brokers", wide.seconds, "<=", LARGE_S)
    of = {(one.way, one.subscriptions, one.overlap): one for one in spreads}
    worst = max(
        one.messages / max(of["flooding", one.subscriptions, one.overlap].messages, 1)
        for one in spreads
        if one.way == "covering"
    )
    yield _target("covering / flooding, messages, at most", worst, "<=", 1.0)


def _target(name: str, value: float, sign: str, wanted: float) -> dict[str, Any]:
    passes = value >= wanted if sign == ">=" else value <= wanted
    return {"name": name, "value": value, "sign": sign, "wanted": wanted, "passes": passes}


# -- speed ------------------------------------------------------------------------------------------------------------


def _speed(overlay: Overlay, batch: int, seconds: float | None, messages: int | None = None) -> Speed:
    """Publish for so long, or until so many messages were handled."""
    random = Random(1)
    world = World(overlay, Settings(schemas=SCHEMAS), options=NO_MEMORY, records=False)
    tally, brokers = world.tally, overlay.brokers
    for number in range(64):
        condition = f"highway = 'h{number % 20}' AND speed > {random.randint(0, 50)}"
        subscriber = world.client(random.choice(brokers), f"s{number}")
        world.subscribe(subscriber, "q", f"SELECT * FROM traffic WHERE {condition}")
    publishers = [world.client(random.choice(brokers), f"p{number}") for number in range(12)]
    for publisher in publishers:
        world.advertise(publisher, "traffic")
    world.run()
    shapes = cycle([_events(batch, random) for _ in range(50)])
    frames, handled = (tally.frames, tally.messages) if messages is None else (0, 0)
    begun = time.process_time()
    for number, publisher in enumerate(cycle(publishers)):
        ids = pa.array([f"e{number}-{row}" for row in range(batch)], pa.string())
        world.publish(publisher, "traffic", next(shapes).append_column("event_id", ids))
        if number % len(publishers) == 0:
            world.run()
            if messages is not None and tally.messages >= messages:
                break
            if seconds is not None and time.process_time() - begun > seconds:
                break
    world.run()
    spent = time.process_time() - begun
    return Speed(len(overlay), batch, tally.messages - handled, tally.frames - frames, spent)


def _events(rows: int, random: Random) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {
            "speed": pa.array([random.uniform(0, 100) for _ in range(rows)]),
            "highway": pa.array([f"h{random.randrange(40)}" for _ in range(rows)]),
            "vehicles": pa.array([random.randrange(50) for _ in range(rows)]),
        }
    )


# -- what covering saves ----------------------------------------------------------------------------------------------


def _spread(way: str, count: int, overlap: float) -> Spread:
    """All subscribe, one after the other, and half of them leave; publishers are at a quarter of the brokers."""
    random = Random(3)
    settings: Any = WAYS[way]
    world = World(DEBS14, Settings(schemas=SCHEMAS, **settings), options=NO_MEMORY, records=False)
    brokers = DEBS14.brokers
    for broker in brokers[::4]:
        world.advertise(world.client(broker, "p"), "traffic")
    world.run()
    begun = time.perf_counter()
    clients = [world.client(broker, "s") for broker in brokers]
    asked: list[tuple[Client, str]] = []
    for number in range(count):
        client = random.choice(clients)
        world.subscribe(client, f"q{number}", f"SELECT * FROM traffic WHERE {_condition(number, overlap, random)}")
        asked.append((client, f"q{number}"))
        world.run()
    table = sum(node.broker.table_sizes()["demands of neighbours"] for node in world.nodes.values())
    random.shuffle(asked)
    for client, name in asked[: count // 2]:
        world.unsubscribe(client, name)
        world.run()
    seconds = time.perf_counter() - begun
    return Spread(way, count, overlap, world.tally.handled["Subscribed"], world.tally.filters, table, seconds)


def _condition(number: int, overlap: float, random: Random) -> str:
    """One of its own, or one that lies within one of a few wide ones, or is one of these."""
    if random.random() >= overlap:
        low = random.randint(0, 80)
        return f"highway = 'own{number}' AND speed BETWEEN {low} AND {low + 20}"
    highway, low = f"h{random.randrange(20)}", random.choice([0, 0, 20, 40])
    return f"highway = '{highway}' AND speed > {low}"


# -- printing ---------------------------------------------------------------------------------------------------------


def print_report(result: dict[str, Any], console: Console | None = None) -> None:
    """What `run` found, as tables."""
    console = console or Console()
    headings = ("brokers", "batch", "messages", "frames", "seconds", "messages/s", "frames/s")
    table = _table("What one core simulates", *headings)
    for one in [*result["speeds"], result["large"]]:
        seconds = one["seconds"]
        rates = (f"{one['messages'] / seconds:,.0f}", f"{one['frames'] / seconds:,.0f}")
        counts = (f"{one[name]:,}" for name in ("brokers", "batch", "messages", "frames"))
        table.add_row(*counts, f"{seconds:.1f}", *rates)
    console.print(table)
    console.print("A message: an event at a broker, or a control frame; a frame: a batch, or a control frame.")
    console.print("Of the large overlay, everything is counted, with setting it up.")
    table = _table(
        "Subscription traffic: all come, half of them go", "S", "overlap", "way", "messages", "filters", "table", "s"
    )
    previous = None
    for one in result["spreads"]:
        point = (one["subscriptions"], one["overlap"])
        if previous not in (None, point):
            table.add_section()
        shown = ("", "") if point == previous else (f"{point[0]:,}", f"{point[1]:.0%}")
        counts = (f"{one[name]:,}" for name in ("messages", "filters", "table"))
        table.add_row(*shown, one["way"], *counts, f"{one['seconds']:.1f}")
        previous = point
    console.print(table)
    console.print("S: subscriptions. table: demands of neighbours that all brokers know, when all have subscribed.")
    table = _table("Targets", "what", "measured", "wanted", "")
    for target in result["targets"]:
        verdict = "[green]pass[/]" if target["passes"] else "[red]fail[/]"
        sign = {">=": "≥", "<=": "≤"}[target["sign"]]
        table.add_row(target["name"], f"{target['value']:,.2f}", f"{sign} {target['wanted']:,g}", verdict)
    console.print(table)


def _table(title: str, *headings: str) -> Table:
    table = Table(title=title)
    for heading in headings:
        table.add_column(heading, justify="left" if heading in ("way", "what", "") else "right", no_wrap=True)
    return table
