"""The topic `traffic`: readings of road sensors, made up by seed or read from the Aarhus files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from catchment.model.errors import ConfigurationError
from catchment.model.schema import Schema, Type
from catchment.workloads import loading
from catchment.workloads.loading import Loaded, data_files, read_rows
from catchment.workloads.publications import assign_brokers, publication_schema, publications
from catchment.workloads.roads import HIGHWAY_COUNT, SENSOR_COUNT, road_network

__all__ = [
    "TRAFFIC_DURATION_US",
    "TRAFFIC_SCHEMA",
    "TRAFFIC_START_US",
    "generate_traffic",
    "load_traffic",
    "traffic_batches",
    "write_traffic",
]

TRAFFIC_SCHEMA = Schema(
    {
        "highway": Type.STRING,
        "segment": Type.STRING,
        "road_type": Type.STRING,
        "city": Type.STRING,
        "status": Type.STRING,
        "distance": Type.INT,  # metres between the two ends of the segment
        "normal_speed": Type.INT,  # km/h
        "speed": Type.FLOAT,  # km/h
        "vehicles": Type.INT,
        "travel_time": Type.INT,  # seconds
    }
)
"""With topic and ts the 12 fields of the DEBS'14 paper's traffic publications."""

TRAFFIC_START_US = 1_407_736_800_000_000
"""Monday, 11 August 2014, 06:00 UTC: the first day of the Aarhus week, in the morning rush."""
TRAFFIC_DURATION_US = 1_000_000_000
"""1,000 seconds, as each experiment of the paper."""

_ROUNDS_PER_BATCH = 400
_INCIDENT_SLOT_US = 600_000_000
_INCIDENT_SHARE = 0.02
# Means of the Aarhus week by hour of day (UTC), relative to the mean of all hours.
# fmt: off
_VEHICLES_BY_HOUR = np.array([
    0.32, 0.21, 0.35, 0.96, 3.37, 6.22, 7.38, 6.15, 6.9, 7.11, 7.02, 7.27,
    7.89, 8.48, 8.04, 6.02, 4.18, 2.91, 2.09, 2.04, 1.62, 1.13, 0.48, 0.48,
]) / 4.1
_SPEED_BY_HOUR = np.array([
    48.6, 49.0, 49.5, 49.2, 47.3, 43.7, 42.3, 43.8, 42.7, 41.9, 41.5, 41.5,
    40.8, 39.0, 38.8, 42.1, 44.2, 46.1, 46.7, 46.2, 45.6, 46.1, 47.8, 48.4,
]) / 44.7
# fmt: on


def generate_traffic(
    events: int,
    *,
    seed: int,
    duration_us: int = TRAFFIC_DURATION_US,
    start_us: int = TRAFFIC_START_US,
    brokers: Sequence[str] = ("b0",),
    null_rate: float = 0.002,
) -> pa.Table:
    """Readings of 162 sensors on 60 highways, in order of time: rush hours, incidents, and some missing values.

    All sensors of a highway publish at one broker. The same arguments give the same table, also in batches.
    """
    batches = traffic_batches(
        events, seed=seed, duration_us=duration_us, start_us=start_us, brokers=brokers, null_rate=null_rate
    )
    return pa.concat_tables(batches).combine_chunks()


def traffic_batches(
    events: int,
    *,
    seed: int,
    duration_us: int = TRAFFIC_DURATION_US,
    start_us: int = TRAFFIC_START_US,
    brokers: Sequence[str] = ("b0",),
    null_rate: float = 0.002,
) -> Iterator[pa.Table]:
    """As generate_traffic, about 65,000 events at a time; at least one table, which may be empty."""
    if events < 0 or duration_us < 1:
        raise ConfigurationError(f"events={events}, duration_us={duration_us}; accepted are 0 and 1 or more")
    roads = road_network()
    home = assign_brokers(roads.highway, brokers)
    broker_of = np.array([home[highway] for highway in roads.highway], dtype=np.int64)
    sensors_of = np.bincount(broker_of, minlength=len(brokers))
    slots = duration_us // _INCIDENT_SLOT_US + 1
    incidents = np.random.default_rng([seed, 1 << 32]).random((slots, HIGHWAY_COUNT)) < _INCIDENT_SHARE
    named = {name: pa.array(getattr(roads, name)) for name in ("highway", "segment", "road_type", "city")}
    per_batch = _ROUNDS_PER_BATCH * SENSOR_COUNT
    for batch, first in enumerate(range(0, max(1, events), per_batch)):
        random = np.random.default_rng([seed, batch])
        count = min(per_batch, events - first)
        # Every sensor reports once a round, in an order of its own each time.
        turns = np.tile(np.arange(SENSOR_COUNT), (_ROUNDS_PER_BATCH, 1))
        sensor = random.permuted(turns, axis=1).reshape(-1)[:count]
        offset = ((first + np.arange(count) + random.random(count)) * (duration_us / max(1, events))).astype(np.int64)
        offset = np.minimum(offset, duration_us - 1)
        ts_us = start_us + offset
        incident = incidents[offset // _INCIDENT_SLOT_US, roads.highway_index[sensor]]
        pace = _by_hour(_SPEED_BY_HOUR, ts_us) * random.normal(1.0, 0.15, count) * np.where(incident, 0.4, 1.0)
        speed = np.round(np.maximum(roads.normal_speed[sensor] * pace, 3.0), 1)
        busy = _by_hour(_VEHICLES_BY_HOUR, ts_us) * np.where(_is_weekend(ts_us), 0.7, 1.0)
        # Neighbouring readings vary more than a Poisson process alone would let them.
        vehicles = random.poisson(roads.vehicles_mean[sensor] * busy * random.gamma(2.0, 0.5, count))
        travel_time = np.rint(roads.distance_m[sensor] / (speed / 3.6)).astype(np.int64)
        yield publications(
            "traffic",
            TRAFFIC_SCHEMA,
            brokers=brokers,
            broker=broker_of[sensor],
            ts_us=ts_us,
            sequence_start=sensors_of * (batch * _ROUNDS_PER_BATCH),
            attributes={
                **{name: values.take(pa.array(sensor)) for name, values in named.items()},
                "status": pa.repeat("OK", count),
                "distance": pa.array(roads.distance_m[sensor]),
                "normal_speed": pa.array(roads.normal_speed[sensor]),
                "speed": pa.array(speed, mask=random.random(count) < null_rate),
                "vehicles": pa.array(vehicles, mask=random.random(count) < null_rate),
                "travel_time": pa.array(travel_time, mask=random.random(count) < null_rate),
            },
        )


def write_traffic(
    path: str | Path,
    events: int,
    *,
    seed: int,
    duration_us: int = TRAFFIC_DURATION_US,
    start_us: int = TRAFFIC_START_US,
    brokers: Sequence[str] = ("b0",),
    null_rate: float = 0.002,
) -> None:
    """Write generate_traffic's table to a Parquet file, batch by batch: memory does not grow with `events`."""
    batches = traffic_batches(
        events, seed=seed, duration_us=duration_us, start_us=start_us, brokers=brokers, null_rate=null_rate
    )
    with pq.ParquetWriter(str(path), publication_schema(TRAFFIC_SCHEMA)) as writer:
        for batch in batches:
            writer.write_table(batch)


def load_traffic(folder: str | Path, *, brokers: Sequence[str] = ("b0",)) -> Loaded:
    """Read aarhus-*.csv.gz and sensors.csv; all sensors of a street publish at one broker.

    Repeated reports of one sensor at one time stay: whether they are one event is for the pipeline to say.
    """
    sensors = read_rows(
        data_files(folder, "sensors.csv"),
        {
            "REPORT_ID": loading.required,
            "POINT_1_STREET": loading.text,
            "ROAD_TYPE": loading.text,
            "POINT_1_CITY": loading.text,
            "DISTANCE_IN_METERS": loading.integer,
            "NDT_IN_KMH": loading.integer,
        },
    )
    place = {str(report): index for index, report in enumerate(sensors.columns["REPORT_ID"])}

    def known(given: str) -> int:
        if given not in place:
            raise ValueError("no such sensor in sensors.csv")
        return place[given]

    rows = read_rows(
        data_files(folder, "aarhus-*.csv*"),
        {
            "REPORT_ID": known,
            "TIMESTAMP": loading.time_us,
            "status": loading.text,
            "avgSpeed": loading.decimal,
            "vehicleCount": loading.integer,
            "avgMeasuredTime": loading.integer,
        },
    )
    sensor = np.array(rows.columns["REPORT_ID"], dtype=np.int64)
    ts_us = np.array(rows.columns["TIMESTAMP"], dtype=np.int64)
    order = np.argsort(ts_us, kind="stable")
    sensor, taken = sensor[order], pa.array(order)
    # A few sensors have no street on file: each is then a road of its own.
    roads = [
        str(street or report)
        for street, report in zip(sensors.columns["POINT_1_STREET"], sensors.columns["REPORT_ID"], strict=True)
    ]
    # Only roads with readings take a turn, or the brokers' loads would depend on silent ones.
    home = assign_brokers([roads[index] for index in np.unique(sensor)], brokers)
    broker_of = np.array([home.get(road, 0) for road in roads], dtype=np.int64)

    def of_sensor(column: str, kind: Type) -> pa.Array:
        return pa.array(sensors.columns[column], kind.arrow).take(pa.array(sensor))

    def of_row(column: str, kind: Type) -> pa.Array:
        return pa.array(rows.columns[column], kind.arrow).take(taken)

    events = publications(
        "traffic",
        TRAFFIC_SCHEMA,
        brokers=brokers,
        broker=broker_of[sensor],
        ts_us=ts_us[order],
        attributes={
            "highway": of_sensor("POINT_1_STREET", Type.STRING),
            "segment": of_sensor("REPORT_ID", Type.STRING),
            "road_type": of_sensor("ROAD_TYPE", Type.STRING),
            "city": of_sensor("POINT_1_CITY", Type.STRING),
            "status": of_row("status", Type.STRING),
            "distance": of_sensor("DISTANCE_IN_METERS", Type.INT),
            "normal_speed": of_sensor("NDT_IN_KMH", Type.INT),
            "speed": of_row("avgSpeed", Type.FLOAT),
            "vehicles": of_row("vehicleCount", Type.INT),
            "travel_time": of_row("avgMeasuredTime", Type.INT),
        },
    )
    return Loaded(events, pa.concat_tables([sensors.rejected, rows.rejected]))


def _by_hour(profile: npt.NDArray[np.float64], ts_us: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    hour = (ts_us % 86_400_000_000) / 3_600_000_000
    return np.interp(hour, np.arange(24) + 0.5, profile, period=24)


def _is_weekend(ts_us: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    # The Unix epoch was a Thursday: day 2 and 3 of its weeks are Saturday and Sunday.
    day = (ts_us // 86_400_000_000) % 7
    return np.isin(day, (2, 3))
