"""`catchment bench pipeline`: many windowed questions over one hour of traffic, next to others who answer the same.

All engines read the same Parquet files in the same process, one after the other within each round, and their best
round counts (of many short ones, the median): the machine's mood then shows in none of the ratios. Planning (analysing
SQL, compiling subscriptions) is done once and reported apart; what is timed runs from the files to Spark's `noop` sink.
"""

from __future__ import annotations

import importlib
import importlib.util
import itertools
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from rich.console import Console
from rich.table import Table

import catchment
from catchment.lab import rivals
from catchment.lab.bench_extremes import Extreme, measure_extremes
from catchment.lab.metering import Meter
from catchment.model.subscription import Subscription
from catchment.pipeline.folders import private_folder
from catchment.workloads import SubscriptionText, traffic_batches, traffic_subscriptions

__all__ = ["EVENTS", "QUICK", "SIZES", "Measured", "answers", "print_report", "run"]

EVENTS = 2_000_000
SIZES = (1, 10, 100, 1_000, 10_000)
QUICK: dict[str, Any] = {"events": 200_000, "sizes": (1, 10, 100), "repetitions": 1}
"""What CI has time for; ratios of so short runs say little."""
HOUR_US = 3_600_000_000
WINDOW = ("20 seconds", "2 seconds")
FILES = 8
LONG_S = 60.0
"""An engine that takes longer than this is measured once; warming up is then part of it, and next to nothing."""
SHORT_S, SHORT_TIMES = 1.0, 4
"""What takes no longer than this is measured so many times as often: a twentieth of a second would show in it."""
MARGINAL_FROM = 100
"""From so many subscriptions on, it is told what one more costs."""
NOISE = 0.1
"""By how much a figure may miss its target, as two runs of the same differ by as much."""

AUTO, SHARED, UNION, JOIN, KEYED, PASS, DUCKDB, STREAM, BATCHES = (
    "catchment", "… shared pass", "union of queries", "join with table", "join by keys", "pass-through",
    "DuckDB", "… as a stream", "… in 4 batches",
)  # fmt: skip
LARGEST = {UNION: 100, JOIN: 1_000, KEYED: 1_000, DUCKDB: 1_000, STREAM: 1_000, BATCHES: 100}
"""Beyond so many questions an engine is not asked, as it would take minutes."""
FLINK = "Apache Flink is not measured: PyFlink pins other versions of py4j, pandas and pyarrow than Spark 4.3 needs"

Action = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Measured:
    """The best of some runs of one engine, or the median of many short ones."""

    engine: str
    subscriptions: int
    wall_s: float
    cpu_s: float
    """Of all processes together."""
    events_per_s: float
    peak_bytes: int
    """Of all processes together, with what earlier runs left in the JVM."""
    plan_s: float


@dataclass(frozen=True, slots=True)
class Target:
    """A figure, and what it should be."""

    name: str
    value: float
    at_least: float | None = None
    at_most: float | None = None
    unit: str = "x"

    @property
    def passes(self) -> bool:
        if self.at_least is not None:
            return self.value >= self.at_least * (1 - NOISE)
        assert self.at_most is not None
        return self.value <= self.at_most * (1 + NOISE)


def run(
    *,
    events: int = EVENTS,
    sizes: Sequence[int] = SIZES,
    repetitions: int = 3,
    spark: SparkSession | None = None,
    folder: Path | None = None,
    report: Callable[[str], None] = lambda line: None,
) -> dict[str, Any]:
    """Measure everything; a dictionary that JSON can hold.

    `folder` keeps the generated events from run to run, by default in the user's cache; `report` hears of progress.
    """
    spark = spark or catchment.spark_session("catchment bench")
    files = traffic_files(folder or private_folder(os.environ) / "bench", events)
    table = spark.read.parquet(str(files))
    measured: list[Measured] = []
    reasons: dict[int, str] = {}
    for size in sizes:
        texts = traffic_subscriptions(size, seed=2, window=WINDOW)
        actions = {}
        for engine, prepare in _engines(spark, table, files, texts, events).items():
            if size <= LARGEST.get(engine, size):
                begun = time.perf_counter()
                actions[engine] = (prepare(), time.perf_counter() - begun)
        reasons[size] = _replay(spark, table, texts, "auto").explain().splitlines()[0]
        found = _measure(actions, size, events, repetitions, report)
        for one in found:
            report(f"{size} subscriptions: {one.engine}: {one.wall_s:.2f} s, {one.cpu_s:.2f} s of CPU time")
        measured += found
    many = [size for size in sizes if size >= MARGINAL_FROM]
    marginal = _measure_sizes(spark, table, many, events, repetitions, report) if len(many) > 1 else []
    slices = _measure_slices(spark, table, min(100, max(sizes)), events, repetitions, report)
    extremes = measure_extremes(spark, files.parent, repetitions=repetitions, report=report)
    targets = [*_targets(measured, marginal, slices), *(_extreme_target(one) for one in extremes)]
    return {
        "events": events,
        "window": WINDOW,
        "cores": os.cpu_count(),
        "measured": [asdict(one) for one in measured],
        "choices": {str(size): reason for size, reason in reasons.items()},
        "marginal": [asdict(one) for one in marginal],
        "slices": slices,
        "extremes": [{**asdict(one), "ratio": one.ratio} for one in extremes],
        "targets": [{**asdict(target), "passes": target.passes} for target in targets],
        "notes": _notes(),
    }


def answers(engine: str, spark: SparkSession, files: Path, texts: Sequence[SubscriptionText]) -> Any:
    """What an engine answers, as a pyarrow.Table of rivals.ANSWER; for tests that all answer the same."""
    table = spark.read.parquet(str(files))
    if engine == DUCKDB:
        return rivals.duckdb_answers(_duckdb(), files, rivals.asked(texts))
    return _frames(spark, table, texts)[engine]().select(*rivals.ANSWER).toArrow()


def traffic_files(folder: Path, events: int) -> Path:
    """A folder of Parquet files with an hour of traffic, generated unless it is there already."""
    files = folder / f"traffic-{events}"
    if not files.exists():
        folder.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(dir=folder))
        batches = list(traffic_batches(events, seed=1, duration_us=HOUR_US))
        per_file = -(-len(batches) // FILES)
        for number, first in enumerate(range(0, len(batches), per_file)):
            pq.write_table(pa.concat_tables(batches[first : first + per_file]), made / f"part-{number}.parquet")
        # Named when complete, so that a run that is stopped leaves nothing half done.
        made.rename(files)
    return files


# -- engines ----------------------------------------------------------------------------------------------------------


def _frames(
    spark: SparkSession, table: DataFrame, texts: Sequence[SubscriptionText]
) -> dict[str, Callable[[], DataFrame]]:
    """The engines whose answer is a DataFrame."""
    questions = rivals.asked(texts)
    return {
        PASS: lambda: rivals.pass_through(table),
        AUTO: lambda: _replay(spark, table, texts, "auto").notifications,
        SHARED: lambda: _replay(spark, table, texts, "shared").notifications,
        UNION: lambda: rivals.union_of_queries(table, questions),
        JOIN: lambda: rivals.joined(table, questions),
        KEYED: lambda: rivals.keyed_join(table, questions),
    }


def _engines(
    spark: SparkSession, table: DataFrame, files: Path, texts: Sequence[SubscriptionText], events: int
) -> dict[str, Callable[[], Action]]:
    """All engines: what prepares a run, and returns what runs it."""
    engines: dict[str, Callable[[], Action]] = {
        name: partial(_noop_of, frame) for name, frame in _frames(spark, table, texts).items()
    }
    engines[STREAM] = lambda: _Streaming(spark, files, texts, events)
    engines[BATCHES] = lambda: _Streaming(spark, files, texts, events, files_a_batch=FILES // 4)
    if _has_duckdb():
        engines[DUCKDB] = lambda: lambda: rivals.duckdb_answers(_duckdb(), files, rivals.asked(texts))
    return engines


def _replay(spark: SparkSession, table: DataFrame, texts: Sequence[SubscriptionText], engine: Any) -> catchment.Run:
    subscriptions = [Subscription(name, at, sql=sql) for name, at, sql in texts]
    return catchment.replay(spark, table, subscriptions=subscriptions, engine=engine)


def _noop_of(frame: Callable[[], DataFrame]) -> Action:
    return _to_noop(frame())


def _to_noop(frame: DataFrame) -> Action:
    return lambda: frame.write.format("noop").mode("overwrite").save()


class _Streaming:
    """All files as a stream. Each run has a job of its own, which waits before its files come.

    Spark takes all the files that it finds into a micro-batch, unless it is told to take a few.
    """

    def __init__(
        self,
        spark: SparkSession,
        files: Path,
        texts: Sequence[SubscriptionText],
        events: int,
        files_a_batch: int | None = None,
    ) -> None:
        self._spark, self._files, self._events = spark, files, events
        self._options = {} if files_a_batch is None else {"maxFilesPerTrigger": files_a_batch}
        self._subscriptions = [Subscription(name, at, sql=sql) for name, at, sql in texts]
        self._schema = spark.read.parquet(str(files)).schema

    @contextmanager
    def ready(self) -> Iterator[None]:
        """Around a run: a job that has started, and later is stopped."""
        self._folder = Path(tempfile.mkdtemp(dir=self._files.parent))
        arriving = self._folder / "arriving"
        arriving.mkdir()
        self._job = catchment.stream(
            self._spark,
            self._spark.readStream.schema(self._schema).options(**self._options).parquet(str(arriving)),
            checkpoint=str(self._folder / "checkpoint"),
            subscriptions=self._subscriptions,
            trigger="0 seconds",
            idle_after=None,
            sink=lambda results, batch: results.notifications.write.format("noop").mode("overwrite").save(),
        )
        try:
            yield
        finally:
            self._job.stop()
            shutil.rmtree(self._folder)

    def __call__(self) -> None:
        for file in sorted(self._files.glob("*.parquet")):
            os.link(file, self._folder / "arriving" / file.name)
        while self._job.status()["events"] < self._events:
            if self._job.await_termination(0.02):
                raise RuntimeError("the stream stopped before it had seen all events")


def _has_duckdb() -> bool:
    return importlib.util.find_spec("duckdb") is not None


def _duckdb() -> Any:
    connection = importlib.import_module("duckdb").connect()
    # Its bar goes to where the results go.
    connection.execute("SET enable_progress_bar = false")
    return connection


# -- measuring --------------------------------------------------------------------------------------------------------


def _measure(
    actions: dict[str, tuple[Action, float]],
    size: int,
    events: int,
    repetitions: int,
    report: Callable[[str], None],
) -> list[Measured]:
    """Warm each engine up, then run all of them in turn."""
    meters: dict[str, list[Meter]] = {}
    for engine, (action, _) in actions.items():
        report(f"{size} subscriptions: {engine}, warming up")
        meters[engine] = [_metered(action)]
    for round_ in range(SHORT_TIMES * repetitions if repetitions > 1 else 1):
        for engine, (action, _) in actions.items():
            last_s = meters[engine][-1].wall_s
            if last_s <= (SHORT_S if round_ >= repetitions else LONG_S):
                report(f"{size} subscriptions: {engine}, round {round_ + 1}")
                meters[engine].append(_metered(action))
    found = []
    for engine, runs in meters.items():
        counted = runs[1:] or runs
        # Of many short runs the best is an accident; of few long ones it is the one that was disturbed least.
        typical: Callable[[Iterator[float]], float] = median if len(counted) > repetitions else min
        wall_s = typical(meter.wall_s for meter in counted)
        found.append(
            Measured(
                engine=engine,
                subscriptions=size,
                wall_s=wall_s,
                cpu_s=typical(meter.cpu_s for meter in counted),
                events_per_s=events / wall_s,
                peak_bytes=max(meter.peak_bytes for meter in runs),
                plan_s=actions[engine][1],
            )
        )
    return found


def _metered(action: Action) -> Meter:
    with action.ready() if isinstance(action, _Streaming) else nullcontext(), Meter() as meter:
        action()
    return meter


def _measure_sizes(
    spark: SparkSession,
    table: DataFrame,
    sizes: Sequence[int],
    events: int,
    repetitions: int,
    report: Callable[[str], None],
) -> list[Measured]:
    """So many subscriptions in turn: what one more costs is a small difference, which minutes in between would hide."""
    actions = {}
    for size in sizes:
        texts = traffic_subscriptions(size, seed=2, window=WINDOW)
        actions[f"{size:,} subscriptions"] = (_to_noop(_replay(spark, table, texts, "auto").notifications), 0.0)
    found = _measure(actions, max(sizes), events, repetitions + 1, report)
    return [replace(one, engine=AUTO, subscriptions=size) for one, size in zip(found, sizes, strict=True)]


def _measure_slices(
    spark: SparkSession, table: DataFrame, size: int, events: int, repetitions: int, report: Callable[[str], None]
) -> dict[str, Any]:
    """Matching and partial aggregation alone, with 10 and with 100 slices a window."""
    windows = {
        "10 slices": WINDOW,
        "100 slices": ("200 seconds", "2 seconds"),
        "100 finer slices": ("20 seconds", "200 milliseconds"),
    }
    actions = {}
    for name, window in windows.items():
        texts = traffic_subscriptions(size, seed=2, window=window)
        actions[name] = (_to_noop(_replay(spark, table, texts, "shared").partials), 0.0)
    measured = _measure(actions, size, events, repetitions, report)
    return {"subscriptions": size, "measured": [asdict(one) for one in measured]}


# -- judging ----------------------------------------------------------------------------------------------------------


def _targets(measured: Sequence[Measured], marginal: Sequence[Measured], slices: dict[str, Any]) -> Iterator[Target]:
    of = {(one.engine, one.subscriptions): one for one in measured}
    sizes = sorted({one.subscriptions for one in measured})

    def both(left: str, right: str, size: int) -> bool:
        return (left, size) in of and (right, size) in of

    if both(UNION, AUTO, 100):
        yield Target("CPU time of the union at 100", of[UNION, 100].cpu_s / of[AUTO, 100].cpu_s, at_least=25)
    if both(JOIN, AUTO, 1_000):
        yield Target("wall time of the join at 1,000", of[JOIN, 1_000].wall_s / of[AUTO, 1_000].wall_s, at_least=8)
    for size in sizes:
        if size <= 10 and both(UNION, JOIN, size):
            better = min(of[UNION, size].wall_s, of[JOIN, size].wall_s)
            yield Target(f"wall time of the better of the two at {size}", better / of[AUTO, size].wall_s, at_least=1)
    for size, share in ((100, 0.5), (1_000, 0.3), (10_000, 0.05)):
        if both(PASS, AUTO, size):
            ratio = of[AUTO, size].events_per_s / of[PASS, size].events_per_s
            yield Target(f"events/s in relation to the limit at {size:,}", ratio, at_least=share)
    for low, high in itertools.pairwise(marginal):
        more = high.subscriptions - low.subscriptions
        name = f"marginal subscription from {low.subscriptions:,} to {high.subscriptions:,}"
        yield Target(name, (high.wall_s - low.wall_s) / more * 1e3, at_most=1.3, unit="ms")
    by_slices = {one["engine"]: one["wall_s"] for one in slices["measured"]}
    for name in ("100 slices", "100 finer slices"):
        yield Target(f"{name} a window against 10", by_slices[name] / by_slices["10 slices"], at_most=1.3)
    for size in sizes:
        if (STREAM, size) in of and size >= 100:
            ratio = of[STREAM, size].events_per_s / of[SHARED, size].events_per_s
            yield Target(f"stream in relation to replay at {size:,}", ratio, at_least=0.5)
    if (AUTO, 1_000) in of:
        yield Target("memory of all processes at 1,000", of[AUTO, 1_000].peak_bytes / 1e9, at_most=4, unit="GB")


def _extreme_target(one: Extreme) -> Target:
    return Target(f"{one.name}, against {one.best}", one.ratio, at_most=one.at_most)


def _notes() -> list[str]:
    notes = [FLINK]
    if not _has_duckdb():
        notes.append("DuckDB is not installed: pip install 'catchment-pubsub[peers]'")
    return notes


# -- printing ---------------------------------------------------------------------------------------------------------


def _seconds(value: float) -> str:
    return f"{value:.2f}" if value < 100 else f"{value:.0f}"


def print_report(result: dict[str, Any], console: Console | None = None) -> None:
    """What `run` found, as tables."""
    console = console or Console()
    title = f"{result['events']:,} events, windows of {' every '.join(result['window'])}, {result['cores']} cores"
    table = Table(title=title)
    for heading in ("S", "engine", "wall s", "CPU s", "M ev/s", "share", "GB", "plan s"):
        table.add_column(heading, justify="left" if heading == "engine" else "right", no_wrap=True)
    through = {one["subscriptions"]: one["events_per_s"] for one in result["measured"] if one["engine"] == PASS}
    previous = None
    for one in result["measured"]:
        size = one["subscriptions"]
        if previous not in (None, size):
            table.add_section()
        table.add_row(
            "" if size == previous else f"{size:,}",
            one["engine"],
            _seconds(one["wall_s"]),
            _seconds(one["cpu_s"]),
            f"{one['events_per_s'] / 1e6:.2f}",
            f"{one['events_per_s'] / through[size]:.2f}",
            f"{one['peak_bytes'] / 1e9:.2f}",
            f"{one['plan_s']:.2f}",
        )
        previous = size
    console.print(table)
    console.print(f"S: subscriptions. share: of the events/s of the {PASS}. GB: of all processes together.")
    for size, choice in result["choices"].items():
        console.print(f"{int(size):,} subscriptions: {choice}")
    slices = result["slices"]
    table = Table(title=f"Matching and partial aggregation alone, {slices['subscriptions']:,} subscriptions")
    for heading in ("a window of", "wall s", "CPU s"):
        table.add_column(heading, justify="left" if heading == "a window of" else "right")
    for one in slices["measured"]:
        table.add_row(one["engine"], f"{one['wall_s']:.2f}", f"{one['cpu_s']:.2f}")
    console.print(table)
    table = Table(title="Costs that only some users meet")
    for heading in ("what", "ours, s", "compared with", "s"):
        table.add_column(heading, justify="right" if heading in ("ours, s", "s") else "left")
    for one in result["extremes"]:
        table.add_row(one["name"], f"{one['ours_s']:.3f}", one["best"], f"{one['best_s']:.3f}")
    console.print(table)
    table = Table(title=f"Targets; {NOISE:.0%} of noise is allowed for")
    for heading in ("what, in relation to ours", "measured", "wanted", ""):
        table.add_column(heading, justify="right" if heading in ("measured", "wanted") else "left")
    for target in result["targets"]:
        bound = f"≥ {target['at_least']:g}" if target["at_least"] is not None else f"≤ {target['at_most']:g}"
        verdict = "[green]pass[/]" if target["passes"] else "[red]fail[/]"
        table.add_row(target["name"], f"{target['value']:.2f} {target['unit']}", bound, verdict)
    console.print(table)
    for note in result["notes"]:
        console.print(note, markup=False)
