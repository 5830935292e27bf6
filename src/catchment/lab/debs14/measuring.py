"""What each placement sends in one run, by folding its lots; many runs as one Spark job."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark import Broadcast
from pyspark.sql import SparkSession

from catchment.lab.debs14.described import DESCRIBED, OURS, placement_of
from catchment.lab.debs14.points import SCHEMAS, Data, Point, events_at, source_rows, subscriptions_at
from catchment.overlay import Overlay, Tree, topic_tree
from catchment.overlay.placement import (
    Carried,
    Choose,
    Cover,
    Fold,
    Offer,
    Strategy,
    each_link,
    minimum_cover,
)
from catchment.overlay.placement.offers import Bools, Grain
from catchment.stages import Active, LotRows, Prepared, compile_plan, lots_of, origins_of, prepared_lots
from catchment.workloads import debs14_links

__all__ = [
    "BOUND",
    "DRAWN",
    "PARTS",
    "PLACEMENTS",
    "TIMINGS",
    "Measured",
    "Sent",
    "decision_ms",
    "measure",
    "measure_all",
    "point_from",
    "rows_from",
    "shared_rows",
    "spread",
]

PLACEMENTS = ("late", "early", OURS, "selective", "coordinated", "cover")
"""Those that one can choose."""
DRAWN = ("late", "early", DESCRIBED, OURS, "selective", "cover")
"""Those of the paper's figures."""
BOUND = "bound"
PARTS = 5
"""Into how many equal parts of its time a run is divided, so that their spread tells how uncertain a count is."""
EVENTS_AT_ONCE = 65_536
PROGRESS_S = 2.0
TIMINGS = 3
"""How often each decision is made to be timed; the least counts."""


@dataclass(frozen=True, slots=True)
class Sent:
    """What all links together carried under a placement."""

    publications: int
    partials: int
    forced: int
    """Of the publications, those that a regular subscription made cross."""
    bytes: int
    seconds: float
    """What it took to fold."""
    transitions: int = 0
    parts: tuple[int, ...] = ()
    """The messages of each part of the run; empty for `cover` and the bound, which are not folded in order of time."""

    @property
    def messages(self) -> int:
        return self.publications + self.partials

    @property
    def free(self) -> int:
        """Messages that were not forced."""
        return self.messages - self.forced


@dataclass(frozen=True, slots=True)
class Measured:
    """One run."""

    point: Point
    events: int
    lots: int
    notifications: int
    """On the last hop: events for regular subscriptions, and values of windows."""
    sent: dict[str, Sent] = field(default_factory=dict)


class _Run:
    """The events of a point, in lots."""

    def __init__(self, point: Point, rows: pa.Table) -> None:
        overlay = Overlay.from_links(debs14_links().links)
        self.tree = topic_tree(overlay)
        active = [Active(one) for one in subscriptions_at(point, rows)]
        plan = compile_plan(active, {point.data: SCHEMAS[point.data]}, overlay)
        self._topic = plan.topics[point.data]
        self.lots: list[LotRows] = []
        self.delivered = 0
        events = events_at(point, rows)
        self.events = len(events)
        for batch in events.combine_chunks().to_batches(max_chunksize=EVENTS_AT_ONCE):
            matched, slots = self._topic.matcher.match_slots(batch)
            self.delivered += int(np.diff(self._topic.regular_offsets)[slots].sum())
            origins = origins_of(plan, batch)
            self.lots.append(lots_of(self._topic, batch, matched, slots, origins, point.sampling_period_us))

    def prepared(self, grain: Grain) -> Prepared:
        return prepared_lots(self._topic, len(self.tree.brokers), self.lots, grain)


def decision_ms(point: Point, rows: pa.Table) -> list[float]:
    """How long `cover` takes for each decision, about one link and one stride; the least of some timings."""
    run = _Run(point, rows)
    placement, prepared = _TimedCover(), run.prepared("stride")
    Fold(run.tree, placement, prepared.series).run(prepared.cells)
    return [spent * 1e3 for spent in placement.spent_s]


class _TimedCover(Cover):
    def __init__(self) -> None:
        self.spent_s: list[float] = []

    def absorb(self, offer: Offer) -> Bools:
        spent_s = []
        for _ in range(TIMINGS):
            begun = time.perf_counter()
            found = super().absorb(offer)
            spent_s.append(time.perf_counter() - begun)
        # What others on the machine do in between is not part of it.
        self.spent_s.append(min(spent_s))
        return found


def measure(point: Point, rows: pa.Table, placements: Sequence[str] = PLACEMENTS) -> Measured:
    """Run placements, and the bound, over a point's events; `rows` is what they are drawn from."""
    run = _Run(point, rows)
    by_window, by_stride = run.prepared("window"), run.prepared("stride")
    sent = {name: _folded(run.tree, name, point, by_window) for name in placements if name != "cover"}
    if "cover" in placements:
        sent["cover"] = _decided(run.tree, minimum_cover, by_stride, "stride")
    sent[BOUND] = _decided(run.tree, minimum_cover, by_window)
    notified = run.delivered + _windows(by_window)
    return Measured(point, run.events, sum(len(one.cell_us) for one in run.lots), notified, sent)


def _decided(tree: Tree, choose: Choose, prepared: Prepared, grain: Grain = "window") -> Sent:
    """Where decisions depend on nothing that was decided before, links need no fold."""
    begun = time.perf_counter()
    carried = each_link(tree, prepared.series, prepared.cells, choose, grain)
    return _sent(carried, time.perf_counter() - begun)


def _folded(tree: Tree, name: str, point: Point, prepared: Prepared) -> Sent:
    begun = time.perf_counter()
    placement = Strategy(placement_of(name), point.sampling_period_us).make(tree, prepared.series)
    fold = Fold(tree, placement, prepared.series)
    parts = [0] * PARTS
    for cell in prepared.cells:
        before = _messages(fold)
        fold.feed(cell)
        part = int((cell.begin_us - point.start_us) / (point.seconds * 1e6) * PARTS)
        parts[min(max(part, 0), PARTS - 1)] += _messages(fold) - before
    fold.finish()
    return replace(_sent(fold, time.perf_counter() - begun, placement.transitions), parts=tuple(parts))


def _messages(fold: Fold) -> int:
    return int(fold.publications.messages.sum() + fold.partials.messages.sum())


def _sent(carried: Carried | Fold, seconds: float, transitions: int = 0) -> Sent:
    return Sent(
        int(carried.publications.messages.sum()),
        int(carried.partials.messages.sum()),
        int(carried.forced.sum()),
        int(carried.publications.bytes.sum() + carried.partials.bytes.sum()),
        seconds,
        transitions,
    )


def _windows(prepared: Prepared) -> int:
    """How many windows of subscriptions have a value."""
    if not prepared.cells:
        return 0
    series = np.concatenate([cell.series for cell in prepared.cells])
    slices = np.concatenate([cell.slices for cell in prepared.cells])
    if not len(series):
        return 0
    order = np.lexsort((slices, series))
    series, slices = series[order], slices[order]
    first, behind = prepared.series.windows[series].windows_around(slices)
    follows = np.diff(series, prepend=-1) == 0
    counted = np.where(follows, np.roll(behind, 1), first)
    return int((behind - np.maximum(first, counted)).sum())


# -- as a Spark job ---------------------------------------------------------------------------------------------------


def measure_all(
    spark: SparkSession,
    points: Sequence[Point],
    folders: Mapping[Data, str | None],
    report: Callable[[str], None] = lambda line: None,
    placements: Sequence[str] = PLACEMENTS,
) -> list[Measured]:
    """All points, each a task; `report` hears how many are done."""
    rows = shared_rows(spark, folders)

    def run(text: str) -> str:
        point = point_from(json.loads(text))
        return json.dumps(asdict(measure(point, rows_from(rows[point.data].value), placements)))

    # The longest first, so that none of them is left to the end.
    ordered = sorted(points, key=lambda point: -point.rate * point.seconds * point.subscriptions)
    texts = spread(spark, [json.dumps(asdict(point)) for point in ordered], run, report)
    found = {one.point: one for one in (measured_from(json.loads(text)) for text in texts)}
    return [found[point] for point in points]


def shared_rows(spark: SparkSession, folders: Mapping[Data, str | None]) -> dict[Data, Broadcast[bytes]]:
    """What runs draw their events from, where every task can read it."""
    return {
        data: spark.sparkContext.broadcast(_to_bytes(source_rows(data, folder))) for data, folder in folders.items()
    }


def spread(
    spark: SparkSession,
    tasks: Sequence[str],
    work: Callable[[str], str],
    report: Callable[[str], None],
    *,
    alone: bool = False,
) -> list[str]:
    """Do some work for each of several texts as a Spark job, or one after the other as many; `report` hears of it."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for text in batch.column("task").to_pylist():
                yield pa.RecordBatch.from_pydict({"found": [work(text)]})

    found: list[str] = []
    for several in [[task] for task in tasks] if alone else [tasks]:
        texts = spark.sparkContext.parallelize([(task,) for task in several], len(several))
        job = spark.createDataFrame(texts, "task string").mapInArrow(run, "found string")
        with ThreadPoolExecutor(1) as beside:
            waiting = beside.submit(job.collect)
            done = 0
            while not waiting.done():
                time.sleep(PROGRESS_S)
                # Stages that have ended are no longer told of.
                done = max(done, _tasks_done(spark))
                report(f"{len(found) + done} of {len(tasks)} runs done")
        found += [row.found for row in waiting.result()]
    return found


def _tasks_done(spark: SparkSession) -> int:
    tracker = spark.sparkContext.statusTracker()
    stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
    return sum(stage.numCompletedTasks for stage in stages if stage is not None)


def measured_from(plain: Mapping[str, Any]) -> Measured:
    sent = {name: Sent(**{**one, "parts": tuple(one["parts"])}) for name, one in plain["sent"].items()}
    return Measured(**{**plain, "point": point_from(plain["point"]), "sent": sent})


def point_from(plain: Mapping[str, Any]) -> Point:
    return Point(**{**plain, "window": tuple(plain["window"])})


def _to_bytes(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue().to_pybytes())


@cache
def rows_from(data: bytes) -> pa.Table:
    return pa.ipc.open_stream(data).read_all()
