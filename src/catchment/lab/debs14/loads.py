"""What brokers have to do, and how long notifications take: real brokers in virtual time, at the paper's points."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from math import sqrt
from statistics import mean, stdev
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from catchment.broker.aggregation.options import Delivery
from catchment.lab.debs14.described import ADAPTIVES, DESCRIBED, OURS, placement_of
from catchment.lab.debs14.measuring import point_from, rows_from, shared_rows, spread
from catchment.lab.debs14.points import SCHEMAS, Data, Point, Simulated, events_at, subscriptions_at
from catchment.model.subscription import Subscription
from catchment.overlay import Overlay
from catchment.simulation.options import Options
from catchment.simulation.simulate import simulate
from catchment.simulation.world import World
from catchment.workloads import debs14_links

__all__ = ["BOTH", "PAPERS", "SIMULATED", "STAGES", "Load", "Loaded", "load_all", "load_of"]

PAPERS = ("late", "early", DESCRIBED)
"""What the paper compares."""
BOTH = (*PAPERS, OURS)
SIMULATED = ("late", "early", OURS, "cover")
"""Those that one can choose, of which `bench placement` tells."""
LEARNING_S = 8.0
"""After how long brokers aggregate where that pays."""
STAGES: Mapping[str, tuple[str, ...]] = {"matching": ("match",), "aggregation": ("add", "merge", "decide")}
"""The two groups that the paper splits its processing load into; the rest is taking in and sending on."""


@dataclass(frozen=True, slots=True)
class Load:
    """What a placement made the brokers do, per second of the run."""

    spent_ms: dict[str, float]
    """Of one core, by what it was spent on, as the service times have it."""
    cpu_ms: float
    """Of one core, as measured."""
    messages: int
    """Publications and partials on all links, in the whole run."""
    counted: float
    """How many of these are in the part of the run that load is told of, if they come evenly."""
    delay_ms: float
    """From the end of a window to its notification, on average."""
    delay_error_ms: float | None
    """The standard error of that, over notifications; None if there are fewer than two."""
    notifications: int
    transitions: int

    def total_ms(self, *stages: str) -> float:
        return sum(self.spent_ms.get(stage, 0.0) for stage in stages or self.spent_ms)


@dataclass(frozen=True, slots=True)
class Loaded:
    """One point, under each placement."""

    point: Point
    of: dict[str, Load]


def load_of(
    point: Point,
    rows: pa.Table,
    fixed: Simulated,
    placements: Sequence[str] = SIMULATED,
    delivery: Delivery = "revisions",
) -> Loaded:
    """Run real brokers over a point's events; the paper's tell partial results as they become known."""
    events, asked = events_at(point, rows), subscriptions_at(point, rows)
    return Loaded(
        point, {placement: _run(point, events, asked, fixed, placement, delivery) for placement in placements}
    )


def _run(
    point: Point,
    events: pa.Table,
    asked: Sequence[Subscription],
    fixed: Simulated,
    placement: str,
    delivery: Delivery,
) -> Load:
    collected = fixed.collection_ms if point.collection_ms is None else (point.collection_ms,) * 2
    low, high = (f"{round(one * 1e3)} microseconds" for one in collected)
    found = simulate(
        events,
        overlay=Overlay.from_links(debs14_links().links),
        subscriptions=asked,
        schema={point.data: SCHEMAS[point.data]},
        placement=placement_of(placement),
        delivery=delivery,
        sampling_period=f"{point.sampling_period_us} microseconds",
        collection_delay=(low, high),
        options=Options(delay_us_min=fixed.network_us[0], delay_us_max=fixed.network_us[1], service=fixed.service),
        warm_up=f"{round(point.seconds * fixed.warm_up * 1e6)} microseconds",
        seed=point.seed,
    )
    seconds = point.seconds * (1 - fixed.warm_up)
    spent: Counter[str] = Counter()
    for node in found.world.nodes.values():
        spent.update(node.load_us)
    delays = _delays_us(found.world, point, fixed)
    messages = sum(row["messages"] for row in found.traffic.to_pylist() if row["kind"] in ("publication", "partial"))
    return Load(
        spent_ms={stage: us / 1e3 / seconds for stage, us in sorted(spent.items())},
        cpu_ms=sum(node.cpu_s for node in found.world.nodes.values()) * 1e3 / seconds,
        messages=messages,
        counted=messages * (1 - fixed.warm_up),
        delay_ms=mean(delays) / 1e3 if delays else 0.0,
        delay_error_ms=stdev(delays) / 1e3 / sqrt(len(delays)) if len(delays) > 1 else None,
        notifications=len(delays),
        transitions=found.transitions,
    )


def _delays_us(world: World, point: Point, fixed: Simulated) -> list[int]:
    """Of each notification about a window that ended within the run and after its warm-up, how long after the end."""
    first_us, last_us = (point.start_us + round(point.seconds * share * 1e6) for share in (fixed.warm_up, 1.0))
    return [
        came_us + world.epoch_us - value.end_us
        for client in world.clients.values()
        for wish in client.all_wishes
        for came_us, value in wish.values
        if first_us <= value.end_us < last_us
    ]


def load_all(
    spark: SparkSession,
    points: Sequence[Point],
    folders: Mapping[Data, str | None],
    fixed: Simulated,
    placements: Sequence[str] = SIMULATED,
    report: Callable[[str], None] = lambda line: None,
    *,
    delivery: Delivery = "revisions",
    alone: bool = False,
) -> list[Loaded]:
    """All points, each a task; if processor time shall be told, one after the other."""
    rows = shared_rows(spark, folders)

    def run(text: str) -> str:
        point = point_from(json.loads(text))
        some = ADAPTIVES if point.vary == "collection_ms" else placements
        return json.dumps(asdict(load_of(point, rows_from(rows[point.data].value), fixed, some, delivery)))

    # How long partials are collected shows only once brokers have begun to send any.
    longer = max(fixed.seconds, LEARNING_S)
    short = [replace(one, seconds=longer if one.vary == "collection_ms" else fixed.seconds) for one in points]
    # The longest first, so that none of them is left to the end.
    ordered = sorted(short, key=lambda point: -point.rate * (1 + point.subscriptions / 500))
    texts = spread(spark, [json.dumps(asdict(point)) for point in ordered], run, report, alone=alone)
    found = {one.point: one for one in (loaded_from(json.loads(text)) for text in texts)}
    return [found[point] for point in short]


def loaded_from(plain: Mapping[str, Any]) -> Loaded:
    return Loaded(point_from(plain["point"]), {name: Load(**load) for name, load in plain["of"].items()})
