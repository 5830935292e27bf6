"""What each placement sends in one run, by folding its lots; many runs as one Spark job."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

from catchment.lab.debs14.points import SCHEMAS, Data, Point, events_at, source_rows, subscriptions_at
from catchment.overlay import Overlay, Tree, topic_tree
from catchment.overlay.placement import Adaptive, Cover, Early, Fold, Knowledge, Late, Offer, Placement, lower_bound
from catchment.stages import Active, LotRows, Prepared, compile_plan, lots_of, origins_of, prepared_lots
from catchment.workloads import debs14_links

__all__ = ["BOUND", "PLACEMENTS", "Measured", "Sent", "measure", "measure_all"]

PLACEMENTS = ("late", "early", "adaptive", "cover")
BOUND = "bound"
EVENTS_AT_ONCE = 65_536


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
    decision_ms: tuple[float, float] = (0.0, 0.0)
    """Of one link and stride, on average and at most."""

    @property
    def messages(self) -> int:
        return self.publications + self.partials


@dataclass(frozen=True, slots=True)
class Measured:
    """One run."""

    point: Point
    events: int
    lots: int
    notifications: int
    """On the last hop: events for regular subscriptions, and values of windows."""
    sent: dict[str, Sent] = field(default_factory=dict)


def measure(point: Point, rows: pa.Table, *, with_bound: bool = True) -> Measured:
    """Run all placements over a point's events; `rows` is what they are drawn from."""
    overlay = Overlay.from_links(debs14_links().links)
    tree = topic_tree(overlay)
    active = [Active(one) for one in subscriptions_at(point, rows)]
    plan = compile_plan(active, {point.data: SCHEMAS[point.data]}, overlay)
    topic = plan.topics[point.data]
    lots: list[LotRows] = []
    delivered = 0
    events = events_at(point, rows)
    for batch in events.combine_chunks().to_batches(max_chunksize=EVENTS_AT_ONCE):
        matched, slots = topic.matcher.match_slots(batch)
        delivered += int(np.diff(topic.regular_offsets)[slots].sum())
        lots.append(lots_of(topic, batch, matched, slots, origins_of(plan, batch), point.sampling_period_us))
    by_window = prepared_lots(topic, len(overlay), lots, "window")
    by_stride = prepared_lots(topic, len(overlay), lots, "stride")
    sent = {
        "late": _folded(tree, Late(), by_window),
        "early": _folded(tree, Early(), by_window),
        "adaptive": _folded(
            tree, Adaptive(Knowledge.of(tree, by_window.series), period_us=point.sampling_period_us), by_window
        ),
        "cover": _folded(tree, _TimedCover(), by_stride),
    }
    if with_bound:
        begun = time.perf_counter()
        bound = lower_bound(tree, by_window.series, by_window.cells)
        sent[BOUND] = Sent(
            int(bound.publications.messages.sum()), int(bound.partials.messages.sum()), int(bound.forced.sum()),
            int(bound.publications.bytes.sum() + bound.partials.bytes.sum()), time.perf_counter() - begun,
        )  # fmt: skip
    notified = delivered + _windows(by_window)
    return Measured(point, len(events), sum(len(one.cell_us) for one in lots), notified, sent)


class _TimedCover(Cover):
    """How long each decision took."""

    def __init__(self) -> None:
        self.spent_s: list[float] = []

    def absorb(self, offer: Offer) -> Any:
        begun = time.perf_counter()
        found = super().absorb(offer)
        self.spent_s.append(time.perf_counter() - begun)
        return found


def _folded(tree: Tree, placement: Placement, prepared: Prepared) -> Sent:
    begun = time.perf_counter()
    fold = Fold(tree, placement, prepared.series).run(prepared.cells)
    spent = getattr(placement, "spent_s", None) or [0.0]
    return Sent(
        int(fold.publications.messages.sum()),
        int(fold.partials.messages.sum()),
        int(fold.forced.sum()),
        int(fold.publications.bytes.sum() + fold.partials.bytes.sum()),
        time.perf_counter() - begun,
        getattr(placement, "transitions", 0),
        (sum(spent) / len(spent) * 1e3, max(spent) * 1e3),
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
    first, behind = prepared.series.windows_around(series, slices)
    follows = np.diff(series, prepend=-1) == 0
    counted = np.where(follows, np.roll(behind, 1), first)
    return int((behind - np.maximum(first, counted)).sum())


# -- as a Spark job ---------------------------------------------------------------------------------------------------


def measure_all(
    spark: SparkSession, points: Sequence[Point], folders: Mapping[Data, str | None], *, with_bound: bool = True
) -> Iterator[Measured]:
    """All points, each a task, in the order in which they are done."""
    rows = {
        data: spark.sparkContext.broadcast(_to_bytes(source_rows(data, folder))) for data, folder in folders.items()
    }

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for text in batch.column("point").to_pylist():
                point = _point(json.loads(text))
                found = measure(point, _from_bytes(rows[point.data].value), with_bound=with_bound)
                yield pa.RecordBatch.from_pydict({"measured": [json.dumps(asdict(found))]})

    # The longest first, so that none of them is left to the end.
    ordered = sorted(points, key=lambda point: -point.rate * point.seconds * point.subscriptions)
    table = spark.createDataFrame([(json.dumps(asdict(point)),) for point in ordered], "point string")
    tasks = table.repartition(len(ordered)).mapInArrow(run, "measured string")
    for row in tasks.toLocalIterator(prefetchPartitions=True):
        yield measured_from(json.loads(row.measured))


def measured_from(plain: Mapping[str, Any]) -> Measured:
    sent = {name: Sent(**{**one, "decision_ms": tuple(one["decision_ms"])}) for name, one in plain["sent"].items()}
    return Measured(**{**plain, "point": _point(plain["point"]), "sent": sent})


def _point(plain: Mapping[str, Any]) -> Point:
    return Point(**{**plain, "window": tuple(plain["window"])})


def _to_bytes(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue().to_pybytes())


@cache
def _from_bytes(data: bytes) -> pa.Table:
    return pa.ipc.open_stream(data).read_all()
