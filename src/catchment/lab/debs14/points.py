"""The points of the paper's sweeps, as `workload.toml` fixes them: which events, which subscriptions."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from importlib.resources import files
from typing import Any, Literal

import pyarrow as pa

from catchment.model.errors import EventError
from catchment.model.schema import Schema
from catchment.model.subscription import Subscription
from catchment.simulation.service import ServiceTimes
from catchment.workloads import (
    STOCK_SCHEMA,
    TRAFFIC_SCHEMA,
    SubscriptionText,
    debs14_links,
    generate_stock,
    generate_traffic,
    load_stock,
    load_traffic,
    respaced,
    stock_subscriptions,
    traffic_subscriptions,
)

__all__ = ["DATA", "Point", "Simulated", "Workload", "events_at", "source_rows", "subscriptions_at", "workload"]

Data = Literal["stock", "traffic"]
DATA: tuple[Data, ...] = ("stock", "traffic")
SCHEMAS: dict[str, Schema] = {"stock": STOCK_SCHEMA, "traffic": TRAFFIC_SCHEMA}
GENERATED_ROWS = {"stock": 62 * 505, "traffic": 162 * 288 * 7}
"""As many as the real data have."""
MEDIAN_OF = {"stock": "close", "traffic": "speed"}
_AGGREGATE = re.compile(r"SELECT \w+\([^)]*\)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One run of an experiment."""

    figure: str
    data: Data
    vary: str
    rate: float
    subscriptions: int
    aggregates: float = 0.5
    """The share of subscriptions that aggregate."""
    filters: int | None = None
    """From how many filters they are drawn; None if all differ."""
    collecting: float = 0.0
    """The share of aggregate subscriptions that ask for a median."""
    last_hop: bool = False
    """Whether notifications from the last broker to the subscriber count."""
    window: tuple[str, str]
    selectivity: float
    seconds: float
    sampling_period_s: float
    collection_ms: float | None = None
    """None is between the two bounds of the file."""
    seed: int
    start_us: int

    @property
    def sampling_period_us(self) -> int:
        return round(self.sampling_period_s * 1e6)

    @property
    def at(self) -> float:
        """Where on its figure's axis it is."""
        found: float = getattr(self, self.vary)
        return found


@dataclass(frozen=True, slots=True)
class Simulated:
    """What is fixed for runs with real brokers."""

    seconds: float
    warm_up: float
    """The share of a run that is not told of."""
    like: Mapping[str, str]
    """Of each figure, at whose points it is."""
    network_us: tuple[int, int]
    collection_ms: tuple[float, float]
    service: ServiceTimes


@dataclass(frozen=True, slots=True)
class Workload:
    """All points, in the order of the file."""

    points: tuple[Point, ...]
    simulated: Simulated

    def of(self, figure: str) -> list[Point]:
        return [point for point in self.points if point.figure == figure]

    def shortened(self, seconds: float) -> Workload:
        """The same points, each for a shorter time."""
        return replace(self, points=tuple(replace(point, seconds=seconds) for point in self.points))


def workload() -> Workload:
    """What the project's own file says."""
    text = files("catchment.lab.debs14").joinpath("workload.toml").read_text(encoding="utf-8")
    given = tomllib.loads(text)
    asked = dict(given["simulated"])
    low, high = asked.pop("network_ms")
    collected = given["collection_delay_ms"]
    simulated = Simulated(
        seconds=asked.pop("seconds"),
        warm_up=asked.pop("warm_up"),
        like=asked.pop("like"),
        network_us=(round(low * 1e3), round(high * 1e3)),
        collection_ms=(collected[0], collected[1]),
        service=ServiceTimes(**asked),
    )
    return Workload(tuple(point for sweep in given["sweep"] for point in _points(sweep, given)), simulated)


def _points(sweep: Mapping[str, Any], given: Mapping[str, Any]) -> Iterator[Point]:
    start: datetime = given["start"]
    common = {
        "window": tuple(given[sweep["data"]]["window"]),
        "selectivity": given[sweep["data"]]["selectivity"],
        "seconds": float(given["seconds"]),
        "sampling_period_s": given["sampling_period_s"],
        "seed": given["seed"],
        "start_us": round(start.timestamp() * 1e6),
    }
    varied = sweep["vary"]
    for value in sweep[varied]:
        yield Point(**{**common, **sweep, varied: value})


def source_rows(data: Data, folder: str | None) -> pa.Table:
    """The rows that runs draw on: of the real data in a folder, or as many generated ones."""
    publishers = debs14_links().publishers
    if folder is not None:
        load = load_stock if data == "stock" else load_traffic
        loaded = load(folder, brokers=publishers)
        if not len(loaded.events):
            raise EventError(
                f"{folder} holds no event, and {len(loaded.rejected)} rows that are none; accepted is at least one"
            )
        return loaded.events
    generate = generate_stock if data == "stock" else generate_traffic
    return generate(GENERATED_ROWS[data], seed=1, brokers=publishers)


def events_at(point: Point, rows: pa.Table) -> pa.Table:
    """The publications of a run: rows one after the other, at the point's rate."""
    count = round(point.rate * point.seconds)
    repeated = pa.concat_tables([rows] * -(-count // len(rows))).slice(0, count) if count else rows.slice(0, 0)
    return respaced(repeated, start_us=point.start_us, duration_us=round(point.seconds * 1e6))


def subscriptions_at(point: Point, rows: pa.Table) -> list[Subscription]:
    """Who asks what."""
    draw = stock_subscriptions if point.data == "stock" else traffic_subscriptions
    drawn = draw(
        point.subscriptions,
        seed=point.seed,
        selectivity=point.selectivity,
        window=point.window,
        brokers=debs14_links().subscribers,
        regular_share=1.0 - point.aggregates,
        distinct_filters=point.filters,
        sample=rows,
    )
    return [Subscription(name, at, sql=sql) for name, at, sql in _collecting(drawn, point)]


def _collecting(drawn: Iterable[SubscriptionText], point: Point) -> Iterator[SubscriptionText]:
    """Evenly among those that aggregate, some that ask for a median."""
    aggregates = 0
    for one in drawn:
        operator = _AGGREGATE.match(one.sql)
        aggregates += operator is not None
        before, now = (int(number * point.collecting) for number in (aggregates - 1, aggregates))
        if operator is None or now == before:
            yield one
        else:
            yield one._replace(sql=f"SELECT median({MEDIAN_OF[point.data]}){one.sql[operator.end() :]}")
