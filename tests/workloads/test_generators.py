"""Generated events: reproducible, in order, of the shape of the real data, and within bounded memory."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from catchment.model.errors import ConfigurationError
from catchment.workloads import (
    STOCK_SCHEMA,
    TRAFFIC_SCHEMA,
    TRAFFIC_START_US,
    generate_stock,
    generate_traffic,
    publication_schema,
    respaced,
    stock_batches,
    traffic_batches,
    write_traffic,
)

BROKERS = ("e1", "e2", "e3")
DAY_US = 86_400_000_000


def microseconds(events: pa.Table) -> np.ndarray:
    return events["ts"].cast(pa.int64()).to_numpy()


@pytest.mark.parametrize(
    ("generate", "batches", "key", "schema"),
    [
        (generate_traffic, traffic_batches, "highway", TRAFFIC_SCHEMA),
        (generate_stock, stock_batches, "symbol", STOCK_SCHEMA),
    ],
)
class TestEveryGenerator:
    def test_shape(self, generate: Callable[..., pa.Table], batches: object, key: str, schema: object) -> None:
        events = generate(150_000, seed=5, brokers=BROKERS)
        assert events.schema == publication_schema(schema)
        assert events.num_rows == pc.count_distinct(events["event_id"]).as_py() == 150_000
        ts = microseconds(events)
        assert (np.diff(ts) >= 0).all()
        assert ts[-1] - ts[0] < 1_000_000_000
        homes = events.group_by(["broker", key]).aggregate([])
        assert homes.num_rows == pc.count_distinct(events[key]).as_py(), "one road, one broker"
        assert set(homes["broker"].to_pylist()) == set(BROKERS)

    def test_ids_count_per_broker_without_gaps(
        self, generate: Callable[..., pa.Table], batches: object, key: str, schema: object
    ) -> None:
        events = generate(150_000, seed=5, brokers=BROKERS)
        for broker in BROKERS:
            ids = events.filter(pc.field("broker") == broker)["event_id"].to_pylist()
            assert ids == [f"{broker}-{sequence}" for sequence in range(len(ids))]

    def test_seeds(self, generate: Callable[..., pa.Table], batches: object, key: str, schema: object) -> None:
        assert generate(1_000, seed=5).equals(generate(1_000, seed=5))
        assert not generate(1_000, seed=5).equals(generate(1_000, seed=6))

    def test_batches_are_small_and_add_up(
        self,
        generate: Callable[..., pa.Table],
        batches: Callable[..., list[pa.Table]],
        key: str,
        schema: object,
    ) -> None:
        parts = list(batches(150_000, seed=5, brokers=BROKERS))
        assert max(part.num_rows for part in parts) < 70_000
        assert pa.concat_tables(parts).equals(generate(150_000, seed=5, brokers=BROKERS))

    def test_no_events_are_a_table_too(
        self, generate: Callable[..., pa.Table], batches: object, key: str, schema: object
    ) -> None:
        assert generate(0, seed=1).schema == publication_schema(schema)

    def test_refusals(self, generate: Callable[..., pa.Table], batches: object, key: str, schema: object) -> None:
        with pytest.raises(ConfigurationError, match="events=-1"):
            generate(-1, seed=1)
        with pytest.raises(ConfigurationError, match="different broker ids"):
            generate(1, seed=1, brokers=())


def test_traffic_has_the_shape_of_aarhus() -> None:
    events = generate_traffic(200_000, seed=1, duration_us=7 * DAY_US, start_us=TRAFFIC_START_US)
    assert pc.count_distinct(events["segment"]).as_py() == 162
    assert pc.count_distinct(events["highway"]).as_py() == 60
    speed = events["speed"].drop_null().to_numpy()
    vehicles = events["vehicles"].drop_null().to_numpy()
    # Aarhus: mean speed 45, mean vehicles 4.1, 38% of the readings without a vehicle, at most 79.
    assert 35 < speed.mean() < 60
    assert 2.5 < vehicles.mean() < 6
    assert 0.2 < (vehicles == 0).mean() < 0.5
    for attribute in ("speed", "vehicles", "travel_time"):
        assert 0.001 < events[attribute].null_count / events.num_rows < 0.003
    hour = pc.hour(events["ts"]).to_numpy()
    known = events["vehicles"].is_valid().to_numpy()
    by_hour = [events["vehicles"].fill_null(0).to_numpy()[known & (hour == at)].mean() for at in range(24)]
    assert by_hour[13] > 10 * by_hour[1]
    means = dict(zip(*events.group_by("road_type").aggregate([("speed", "mean")]).to_pydict().values(), strict=True))
    assert means["MOTORWAY"] > means["MAJOR_ROAD"] > means["ROAD"] > means["STREET"]


def test_nothing_is_missing_if_so_wished() -> None:
    assert generate_traffic(5_000, seed=1, null_rate=0.0)["speed"].null_count == 0


def test_quotes_are_consistent() -> None:
    quotes = generate_stock(50_000, seed=1)
    low, high = quotes["low"].to_numpy(), quotes["high"].to_numpy()
    for name in ("open", "close"):
        assert (low <= quotes[name].to_numpy()).all()
        assert (quotes[name].to_numpy() <= high).all()
    assert pc.min(quotes["volume"]).as_py() > 0
    # A symbol's close is the next open: it is one walk, also across batches.
    ibm = generate_stock(130_000, seed=1).filter(pc.field("symbol") == "IBM")
    assert ibm["close"].to_pylist()[:-1] == ibm["open"].to_pylist()[1:]


def test_traffic_is_written_batch_by_batch(tmp_path: Path) -> None:
    write_traffic(tmp_path / "traffic.parquet", 150_000, seed=3, brokers=BROKERS)
    written = pq.ParquetFile(tmp_path / "traffic.parquet")
    assert written.num_row_groups == 3
    assert written.read().equals(generate_traffic(150_000, seed=3, brokers=BROKERS))


def test_events_can_be_spread_over_another_stretch() -> None:
    events = respaced(generate_stock(1_000, seed=1), start_us=5_000_000, duration_us=10_000_000)
    assert microseconds(events)[[0, 1, 999]].tolist() == [5_000_000, 5_010_000, 14_990_000]
    assert events["ts"].type == pa.timestamp("us", tz="UTC")


def test_the_default_start_is_the_first_morning_of_the_real_week() -> None:
    assert datetime.fromtimestamp(TRAFFIC_START_US / 1e6, UTC) == datetime(2014, 8, 11, 6, tzinfo=UTC)
