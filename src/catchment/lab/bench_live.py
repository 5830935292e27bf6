"""`catchment bench live`: events a second through running brokers, how late they come, and what each process takes.

A server, a process for each broker of a chain, one that publishes at the first and one that subscribes at the last, all
on this machine; raw JetStream with messages of the same size runs on the same server. Every other event matches a
subscription. *Stored* is when the ingress stream has the events, *acknowledged* when the broker's step took them,
*delivered* when the subscriber has the last of them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from typing import Any

from rich.console import Console
from rich.table import Table

from catchment.broker.aggregation import AggregationOptions
from catchment.lab.live import loads
from catchment.lab.live.processes import RunningOverlay, Worker, cpu_s, memory_bytes
from catchment.lab.live.raw import raw_messages
from catchment.model.errors import ConfigurationError
from catchment.overlay import Overlay
from catchment.simulation.overlays import DEBS14

__all__ = ["CHOICES", "QUICK", "print_report", "run"]

CHAINS = (1, 3)
ASKED = (("regular", 1), ("regular", 100), ("regular", 1_000), ("aggregate", 100))
CHOICES = ("throughput", "paced", "disk", "crowd")
ROWS = 10_000
"""Of the batches that count; smaller ones are printed beside."""
SMALL_ROWS = 1_000
SINGLE_BYTES, ROW_BYTES = 100, 34
"""About what an event takes by itself, and as a row of a batch."""
WITHIN_S = 180.0
QUICK: dict[str, Any] = {
    "singles": 4_000, "batches": 10, "paced_s": 1.5, "asked": ASKED[:1], "crowd": 32, "crowd_s": 2.0,
}  # fmt: skip
"""What CI has time for."""
PACED = ((20_000, 1), (20_000, 3), (2_000, 3))
DISK_RATE = 20_000
CROWD, CROWD_TOPICS, CROWD_ASKED = 1_600, 500, 5
"""Clients, topics, and subscriptions of each client: those of the ASIA paper's table 2."""
CROWD_RATES = (0.1, 0.2, 0.5, 1.0)
"""Events a second of each client."""
SUSTAINED_MS, SUSTAINED_S = 1_000.0, 1.0
"""A rate is sustained if events are delivered within that, and the last is answered so soon after it was due."""

WANTED: dict[tuple[str, int], float] = {
    ("singles, acknowledged", 1): 100_000,
    ("single JSON messages, stored", 1): 30_000,
    (f"batches of {ROWS:,}, acknowledged", 1): 1_500_000,
    (f"batches of {ROWS:,}, acknowledged", 3): 800_000,
}
"""Events a second with one subscription, by what is done and the length of the chain."""
WANTED_DISK = f"batches of {ROWS:,} on disk, acknowledged", 1_000_000
WANTED_MS = {(20_000, 1): ("p99", 10.0), (20_000, 3): ("p99", 25.0), (2_000, 3): ("p50", 1.5)}


@dataclass(frozen=True, slots=True)
class Through:
    """How fast events went through a chain of brokers."""

    what: str
    brokers: int
    kind: str
    subscriptions: int
    events: int
    per_s: float
    """Until they were stored or acknowledged."""
    delivered_per_s: float | None
    """Until the subscriber had the last of them."""
    raw_per_s: float
    """Events a second in raw messages of the same size."""
    cpu_us: dict[str, float] = field(default_factory=dict)
    """Processor time by process, for each event."""


@dataclass(frozen=True, slots=True)
class Paced:
    """How long events took at a rate."""

    rate: int
    brokers: int
    events: int
    p50_ms: float
    p99_ms: float
    behind_s: float
    """By how much the publisher missed its pace."""
    cpu_us: dict[str, float] = field(default_factory=dict)
    durability: str = "process"


@dataclass(frozen=True, slots=True)
class Crowd:
    """How many clients fared at a rate."""

    clients: int
    brokers: int
    rate: float
    """Of each client."""
    events: int
    delivered: int
    p50_ms: float
    p99_ms: float
    answered_s: float
    """How long after it was due the last event was answered."""
    cores: float
    """Of all brokers and the server."""
    memory_bytes: int
    """Of all brokers and the server, at its end."""

    @property
    def is_sustained(self) -> bool:
        return self.p99_ms <= SUSTAINED_MS and self.answered_s <= SUSTAINED_S


def run(
    *,
    only: Sequence[str] | None = None,
    singles: int = 200_000,
    batches: int = 300,
    paced_s: float = 12.0,
    asked: Sequence[tuple[str, int]] = ASKED,
    crowd: int = CROWD,
    crowd_s: float = 75.0,
    report: Callable[[str], None] = lambda line: None,
) -> dict[str, Any]:
    """Measure everything; a dictionary that JSON can hold.

    `paced_s` has a snapshot in it if it is over ten seconds; `crowd_s` is how long each rate of the crowd lasts.
    """
    chosen = tuple(only or CHOICES)
    for one in chosen:
        if one not in CHOICES:
            raise ConfigurationError(f"only is {one!r}; accepted are {', '.join(CHOICES)}")
    through: list[Through] = []
    paced: list[Paced] = []
    if "throughput" in chosen:
        for length in CHAINS:
            for kind, count in asked:
                report(f"{length} brokers, {count} {kind} subscriptions")
                through += _throughput(length, kind, count, singles, batches)
    if "paced" in chosen:
        for rate, length in PACED:
            report(f"{rate:,} events a second through {length} brokers")
            paced.append(_paced(rate, length, paced_s))
    if "disk" in chosen:
        report("durability disk")
        paced.append(_paced(DISK_RATE, 1, paced_s, "disk"))
        through.append(_disk_batches(batches))
    crowds: list[Crowd] = []
    if "crowd" in chosen:
        report(f"{crowd:,} clients of {len(DEBS14)} brokers")
        crowds = _crowds(crowd, crowd_s)
    return {
        "through": [asdict(one) for one in through],
        "paced": [asdict(one) for one in paced],
        "crowds": [{**asdict(one), "is_sustained": one.is_sustained} for one in crowds],
        "targets": list(_targets(through, paced)),
    }


def _chain(length: int) -> Overlay:
    names = [f"b{number}" for number in range(1, length + 1)]
    return Overlay(tuple(names), tuple(pairwise(names)))


class _Bench:
    """A running chain with a publisher and a subscriber."""

    def __init__(self, length: int, durability: str = "process") -> None:
        topics = {loads.TOPIC: loads.SCHEMA}
        self._overlay = RunningOverlay(_chain(length), topics, AggregationOptions(), durability)
        self.first, self.last = "b1", f"b{length}"

    def __enter__(self) -> _Bench:
        self._overlay.__enter__()
        self.url = self._overlay.url
        self.publisher, self.subscriber = Worker(), Worker()
        return self

    def __exit__(self, *reason: Any) -> None:
        self.publisher.stop()
        self.subscriber.stop()
        self._overlay.__exit__(*reason)

    def cpu(self) -> dict[str, float]:
        ids = {
            **self._overlay.process_ids,
            "publisher": self.publisher.process_id,
            "subscriber": self.subscriber.process_id,
        }
        return {name: cpu_s(one) for name, one in ids.items()}

    def measure(
        self, asked: list[str], expected: int | None, events: int, load: Callable[..., Any], *arguments: Any
    ) -> tuple[Any, dict[str, Any], float, dict[str, float]]:
        """What the publisher and the subscriber found, when publishing began, and processor time by process."""
        self.subscriber.begin(loads.subscriber, self.url, self.last, asked, expected)
        self.subscriber.ready(WITHIN_S)
        before = self.cpu()
        self.publisher.begin(load, self.url, self.first, *arguments)
        self.publisher.ready(WITHIN_S)
        begun = time.monotonic()
        published = self.publisher.result(WITHIN_S)
        heard = self.subscriber.result(WITHIN_S)
        after = self.cpu()
        return published, heard, begun, {name: (after[name] - before[name]) * 1e6 / events for name in before}

    def raw_per_s(self, count: int, size: int) -> float:
        """Raw messages a second."""
        self.publisher.begin(raw_messages, self.url, count, size)
        self.publisher.ready(WITHIN_S)
        return count / float(self.publisher.result(WITHIN_S))


def _throughput(length: int, kind: str, count: int, singles: int, batches: int) -> Iterator[Through]:
    asked, is_first = loads.questions(count, kind), (kind, count) == ASKED[0]
    with _Bench(length) as bench:
        raw_single = bench.raw_per_s(singles, SINGLE_BYTES)
        raw_batch = bench.raw_per_s(batches, ROWS * ROW_BYTES) * ROWS

        def one(what: str, events: int, raw: float, load: Callable[..., Any], *arguments: Any) -> Through:
            expected = events // 2 if kind == "regular" else None
            spent, heard, begun, cpu = bench.measure(asked, expected, events, load, *arguments)
            delivered = events / (heard["ended"] - begun) if kind == "regular" else None
            return Through(what, length, kind, count, events, events / spent, delivered, raw, cpu)

        yield one("singles, acknowledged", singles, raw_single, loads.singles, singles, count, "acknowledged")
        if is_first:
            yield one("singles, stored", singles, raw_single, loads.singles, singles, count, "stored")
            if length == 1:
                yield one("single JSON messages, stored", singles, raw_single, loads.foreign, singles, count)
        rows = batches * ROWS
        what = f"batches of {ROWS:,}, acknowledged"
        yield one(what, rows, raw_batch, loads.batches, batches, ROWS, count, "acknowledged")
        if is_first:
            small = rows // SMALL_ROWS // 4
            what = f"batches of {SMALL_ROWS:,}, acknowledged"
            raw_small = bench.raw_per_s(small, SMALL_ROWS * ROW_BYTES) * SMALL_ROWS
            events = small * SMALL_ROWS
            yield one(what, events, raw_small, loads.batches, small, SMALL_ROWS, count, "acknowledged")


def _disk_batches(batches: int) -> Through:
    events = batches * ROWS
    with _Bench(1, "disk") as bench:
        raw = bench.raw_per_s(batches, ROWS * ROW_BYTES) * ROWS
        asked = loads.questions(1, "regular")
        spent, heard, begun, cpu = bench.measure(
            asked, events // 2, events, loads.batches, batches, ROWS, 1, "acknowledged"
        )
    what = WANTED_DISK[0]
    return Through(what, 1, "regular", 1, events, events / spent, events / (heard["ended"] - begun), raw, cpu)


def _crowds(clients: int, seconds: float) -> list[Crowd]:
    """Many clients, half of them in each of two processes, at each rate in turn."""
    topics = [f"topic{number}" for number in range(CROWD_TOPICS)]
    found: list[Crowd] = []
    with RunningOverlay(DEBS14, dict.fromkeys(topics, loads.SCHEMA), AggregationOptions()) as overlay:
        workers = [Worker(), Worker()]
        try:
            for rate in CROWD_RATES:
                for seed, worker in enumerate(workers):
                    half = clients // 2, CROWD_ASKED, seed, rate, seconds
                    worker.begin(loads.crowd, overlay.url, overlay.brokers, topics, *half)
                for worker in workers:
                    worker.ready(3 * WITHIN_S)
                ids = overlay.process_ids.values()
                before, begun = sum(map(cpu_s, ids)), time.monotonic()
                halves = [worker.result(WITHIN_S + 3 * seconds) for worker in workers]
                cores = (sum(map(cpu_s, ids)) - before) / (time.monotonic() - begun)
                found.append(
                    Crowd(
                        clients, len(overlay.brokers), rate,
                        sum(one["events"] for one in halves), sum(one["delivered"] for one in halves),
                        max(one["p50_ms"] for one in halves), max(one["p99_ms"] for one in halves),
                        max(one["answered_s"] for one in halves), cores, sum(map(memory_bytes, ids)),
                    )
                )  # fmt: skip
                if not found[-1].is_sustained:
                    break
        finally:
            for worker in workers:
                worker.stop()
    return found


def _paced(rate: int, length: int, seconds: float, durability: str = "process") -> Paced:
    total = round(rate * seconds)
    with _Bench(length, durability) as bench:
        # What is compiled is loaded, and connections are warm.
        bench.measure(loads.questions(1, "regular"), 100, 200, loads.paced, 2_000, 0.1, 1)
        asked = loads.questions(1, "regular")
        published, heard, _, cpu = bench.measure(asked, total // 2, total, loads.paced, rate, seconds, 1)
    return Paced(rate, length, total, heard["p50"], heard["p99"], published["behind_s"], cpu, durability)


def _targets(through: Sequence[Through], paced: Sequence[Paced]) -> Iterator[dict[str, Any]]:
    for one in through:
        wanted = WANTED_DISK[1] if one.what == WANTED_DISK[0] else WANTED.get((one.what, one.brokers))
        if wanted is not None and (one.kind, one.subscriptions) == ASKED[0]:
            name = f"{one.what}, {one.brokers} broker{'s' * (one.brokers > 1)}, events/s"
            yield {"name": name, "value": one.per_s, "sign": ">=", "wanted": wanted, "passes": one.per_s >= wanted}
    for late in paced:
        share, most = ("p99", 10.0) if late.durability == "disk" else WANTED_MS[late.rate, late.brokers]
        value = late.p50_ms if share == "p50" else late.p99_ms
        on_disk = " on disk" if late.durability == "disk" else ""
        name = f"{late.rate:,}/s{on_disk} through {late.brokers}, {share} in ms"
        yield {"name": name, "value": value, "sign": "<=", "wanted": most, "passes": value <= most}


# -- printing ---------------------------------------------------------------------------------------------------------


def print_report(result: dict[str, Any], console: Console | None = None) -> None:
    """What `run` found, as tables."""
    console = console or Console()
    if result["through"]:
        table = Table(title="Events a second, next to raw JetStream with messages of the same size")
        for heading in ("brokers", "subscriptions", "what", "events/s", "delivered/s", "of raw"):
            table.add_column(heading, justify="left" if heading in ("what", "subscriptions") else "right")
        for one in result["through"]:
            delivered = "" if one["delivered_per_s"] is None else f"{one['delivered_per_s']:,.0f}"
            table.add_row(
                str(one["brokers"]), f"{one['subscriptions']:,} {one['kind']}", one["what"],
                f"{one['per_s']:,.0f}", delivered, f"{one['per_s'] / one['raw_per_s']:.2f}",
            )  # fmt: skip
        console.print(table)
        _print_cpu(console, "Processor time, µs an event", [(_title(one), one["cpu_us"]) for one in result["through"]])
    if result["paced"]:
        table = Table(title="From publish to the subscriber, ms")
        for heading in ("brokers", "events/s", "p50", "p99", "s behind its pace"):
            table.add_column(heading, justify="right")
        for one in result["paced"]:
            figures = (f"{one['p50_ms']:.2f}", f"{one['p99_ms']:.2f}", f"{max(one['behind_s'], 0):.2f}")
            table.add_row(str(one["brokers"]), f"{one['rate']:,}{' on disk' * (one['durability'] == 'disk')}", *figures)
        console.print(table)
        titled = [(f"{one['brokers']}: {one['rate']:,}/s", one["cpu_us"]) for one in result["paced"]]
        _print_cpu(console, "Processor time, µs an event, paced", titled)
    if result["crowds"]:
        _print_crowds(console, result["crowds"])
    table = Table(title="Targets, for two free cores")
    for heading in ("what", "measured", "wanted", ""):
        table.add_column(heading, justify="right" if heading in ("measured", "wanted") else "left")
    for target in result["targets"]:
        verdict = "[green]pass[/]" if target["passes"] else "[red]fail[/]"
        sign = "≥" if target["sign"] == ">=" else "≤"
        table.add_row(target["name"], f"{target['value']:,.6g}", f"{sign} {target['wanted']:,g}", verdict)
    console.print(table)


def _print_crowds(console: Console, crowds: Sequence[dict[str, Any]]) -> None:
    first = crowds[0]
    table = Table(title=f"{first['clients']:,} clients of {first['brokers']} brokers, {CROWD_ASKED} subscriptions each")
    for heading in ("events/s each", "events", "delivered", "p50 ms", "p99 ms", "cores", "memory", ""):
        table.add_column(heading, justify="right")
    for one in crowds:
        table.add_row(
            f"{one['rate']:g}", f"{one['events']:,}", f"{one['delivered']:,}", f"{one['p50_ms']:.1f}",
            f"{one['p99_ms']:.1f}", f"{one['cores']:.2f}", f"{one['memory_bytes'] / 1e6:,.0f} MB",
            "sustained" if one["is_sustained"] else "too much",
        )  # fmt: skip
    console.print(table)


def _title(one: dict[str, Any]) -> str:
    return f"{one['brokers']}: {one['what']}, {one['subscriptions']:,} {one['kind']}"


def _print_cpu(console: Console, title: str, rows: Sequence[tuple[str, dict[str, float]]]) -> None:
    names = list(dict.fromkeys(name for _, cpu in rows for name in cpu))
    table = Table(title=title)
    table.add_column("brokers: what")
    for name in names:
        table.add_column(name, justify="right")
    for shown, cpu in rows:
        table.add_row(shown, *(f"{cpu[name]:.2f}" if name in cpu else "" for name in names))
    console.print(table)
