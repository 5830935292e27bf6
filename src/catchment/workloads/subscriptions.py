"""Subscriptions in SQL for the traffic and stock workloads, each of about a wanted selectivity.

A filter is drawn as a shape (a road, a list of segments, a road type, …) and then narrowed by a numeric condition,
whose bounds are quantiles of a sample of the events: so every shape meets the selectivity, whatever its roads carry.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from catchment.model.errors import ConfigurationError
from catchment.workloads.drawing import Drawing
from catchment.workloads.stock import generate_stock
from catchment.workloads.traffic import generate_traffic

__all__ = ["SubscriptionText", "stock_subscriptions", "traffic_subscriptions"]

_SAMPLE_EVENTS = 50_000
_TRIES_MAX = 1_000

Shape = Callable[[Drawing], str]


class SubscriptionText(NamedTuple):
    """What `Subscription(name, at=…, sql=…)` takes."""

    name: str
    at: str
    sql: str


def traffic_subscriptions(
    count: int,
    *,
    seed: int,
    selectivity: float = 0.01,
    window: tuple[str, str] = ("20 seconds", "2 seconds"),
    brokers: Sequence[str] = ("b0",),
    regular_share: float = 0.0,
    distinct_filters: int | None = None,
    sample: pa.Table | None = None,
) -> list[SubscriptionText]:
    """Subscriptions to `traffic`, spread over the brokers in turn.

    `regular_share` of them want the events, the others an aggregate per window (size, shift). All filters differ,
    unless `distinct_filters` says from how many they are drawn (by Zipf's law). `sample` is what selectivity is
    measured on: by default generated events of the default stretch of time.
    """
    events = generate_traffic(_SAMPLE_EVENTS, seed=0) if sample is None else sample
    drawing = Drawing(events, np.random.default_rng([seed, 1]), selectivity)
    return _subscriptions(
        drawing,
        [_segment_and_speed, _highway_and_speed, _road_type_and_vehicles, _segments_and_travel_time],
        topic="traffic",
        measures=("speed", "vehicles", "travel_time"),
        count=count,
        window=window,
        brokers=brokers,
        regular_share=regular_share,
        distinct_filters=distinct_filters,
    )


def stock_subscriptions(
    count: int,
    *,
    seed: int,
    selectivity: float = 0.02,
    window: tuple[str, str] = ("2 seconds", "2 seconds"),
    brokers: Sequence[str] = ("b0",),
    regular_share: float = 0.0,
    distinct_filters: int | None = None,
    sample: pa.Table | None = None,
) -> list[SubscriptionText]:
    """Subscriptions to `stock`; the arguments are those of traffic_subscriptions."""
    events = generate_stock(_SAMPLE_EVENTS, seed=0) if sample is None else sample
    drawing = Drawing(events, np.random.default_rng([seed, 2]), selectivity)
    return _subscriptions(
        drawing,
        [_symbol_and_close, _symbols_and_volume, _close_and_volume],
        topic="stock",
        measures=("close", "high", "low", "volume"),
        count=count,
        window=window,
        brokers=brokers,
        regular_share=regular_share,
        distinct_filters=distinct_filters,
    )


def _segment_and_speed(draw: Drawing) -> str:
    share = draw.target()
    segment, rows = draw.one_of("segment", least=share)
    return f"segment = {_quoted(segment)} AND speed < {draw.below('speed', rows, share):.2f}"


def _highway_and_speed(draw: Drawing) -> str:
    share = draw.target()
    highway, rows = draw.one_of("highway", least=share)
    low, high = draw.between("speed", rows, share)
    return f"highway = {_quoted(highway)} AND speed BETWEEN {low:.2f} AND {high:.2f}"


def _road_type_and_vehicles(draw: Drawing) -> str:
    share = draw.target()
    road_type, rows = draw.one_of("road_type", least=share)
    vehicles = draw.numbers("vehicles")
    floors = [floor for floor in range(60) if np.count_nonzero(rows & (vehicles > floor)) >= share * draw.rows]
    floor = int(draw.random.choice(floors)) if floors else 0
    speed = draw.below("speed", rows & (vehicles > floor), share)
    return f"road_type = {_quoted(road_type)} AND vehicles > {floor} AND speed < {speed:.2f}"


def _segments_and_travel_time(draw: Drawing) -> str:
    share = draw.target()
    segments, rows = draw.some_of("segment", least=share * float(draw.random.uniform(1.5, 4.0)))
    low, high = draw.between("travel_time", rows, share)
    listed = ", ".join(_quoted(segment) for segment in segments)
    return f"segment IN ({listed}) AND travel_time BETWEEN {round(low)} AND {round(high)}"


def _symbol_and_close(draw: Drawing) -> str:
    share = draw.target()
    symbol, rows = draw.one_of("symbol", least=share)
    return f"symbol = {_quoted(symbol)} AND close < {draw.below('close', rows, share):.2f}"


def _symbols_and_volume(draw: Drawing) -> str:
    share = draw.target()
    symbols, rows = draw.some_of("symbol", least=share * float(draw.random.uniform(1.5, 3.0)))
    low, high = draw.between("volume", rows, share)
    listed = ", ".join(_quoted(symbol) for symbol in symbols)
    return f"symbol IN ({listed}) AND volume BETWEEN {round(low)} AND {round(high)}"


def _close_and_volume(draw: Drawing) -> str:
    share = draw.target()
    everywhere = np.ones(draw.rows, dtype=np.bool_)
    low, high = draw.between("close", everywhere, min(0.5, share * float(draw.random.uniform(2.0, 6.0))))
    low, high = float(f"{low:.2f}"), float(f"{high:.2f}")
    close = draw.numbers("close")
    volume = draw.below("volume", (close >= low) & (close <= high), share)
    return f"close BETWEEN {low:.2f} AND {high:.2f} AND volume < {round(volume)}"


def _subscriptions(
    draw: Drawing,
    shapes: Sequence[Shape],
    *,
    topic: str,
    measures: Sequence[str],
    count: int,
    window: tuple[str, str],
    brokers: Sequence[str],
    regular_share: float,
    distinct_filters: int | None,
) -> list[SubscriptionText]:
    if count < 0 or not 0.0 <= regular_share <= 1.0 or not brokers:
        raise ConfigurationError(
            f"count={count}, regular_share={regular_share}, brokers={tuple(brokers)!r}; accepted are 0 or more, "
            "0 to 1, and at least one broker"
        )
    filters = _distinct(draw, shapes, count if distinct_filters is None else distinct_filters)
    if distinct_filters is not None:
        weights = 1.0 / np.arange(1, distinct_filters + 1)
        drawn = draw.random.choice(distinct_filters, count, p=weights / weights.sum())
        filters = [filters[index] for index in drawn]
    # Exactly the share, at random places: brokers take turns, so a run of one kind would land on few of them.
    regular = draw.random.permutation(count) < round(regular_share * count)
    width = len(str(max(0, count - 1)))
    return [
        SubscriptionText(
            f"{topic}-{index:0{width}}",
            brokers[index % len(brokers)],
            f"SELECT * FROM {topic} WHERE {condition}"
            if regular[index]
            else f"SELECT {_aggregate(draw, measures)} FROM {topic} WHERE {condition} "
            f"GROUP BY window(ts, '{window[0]}', '{window[1]}')",
        )
        for index, condition in enumerate(filters)
    ]


def _distinct(draw: Drawing, shapes: Sequence[Shape], count: int) -> list[str]:
    found: dict[str, None] = {}
    idle = 0
    while len(found) < count:
        before = len(found)
        found[shapes[int(draw.random.integers(len(shapes)))](draw)] = None
        idle = 0 if len(found) > before else idle + 1
        if idle > _TRIES_MAX:
            raise ConfigurationError(f"the sample gives {len(found)} different filters, wanted are {count}")
    return list(found)


def _aggregate(draw: Drawing, measures: Sequence[str]) -> str:
    operator = ("avg", "count", "sum", "min", "max")[int(draw.random.integers(5))]
    return "count(*)" if operator == "count" else f"{operator}({measures[int(draw.random.integers(len(measures)))]})"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
