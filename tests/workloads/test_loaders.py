"""Loaders: every row is an event, or kept aside with its line and reason."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from catchment.model.errors import ConfigurationError, EventError
from catchment.workloads import (
    FLIGHTS_SCHEMA,
    REJECTED_SCHEMA,
    STOCK_SCHEMA,
    TRAFFIC_SCHEMA,
    Loaded,
    load_reports,
    load_stock,
    load_traffic,
    load_true_reports,
    publication_schema,
)
from tests.workloads.tools import REAL_DATA, needs_real_data

SENSORS = """POINT_1_STREET,ROAD_TYPE,POINT_1_CITY,DISTANCE_IN_METERS,NDT_IN_KMH,REPORT_ID
Søftenvej,MAJOR_ROAD,Aarhus,1505,70,1
Grenåvej,STREET,Risskov,813,53,2
Søftenvej,MAJOR_ROAD,Aarhus,900,70,3
,ROAD,Aarhus,700,40,4
"""
READINGS = """status,avgMeasuredTime,avgSpeed,TIMESTAMP,vehicleCount,REPORT_ID
OK,81,45,2014-08-11T00:05:00,0,1
OK,82,46.5,2014-08-11T00:00:00,3,2
OK,,,2014-08-11T00:05:00,,3
OK,80,NaN,2014-08-11T00:05:00,1,1
OK,80,-inf,2014-08-11T00:05:00,1,1
OK,80,fast,2014-08-11T00:05:00,1,1
OK,80,40,yesterday,1,1
OK,80,40,2014-02-31T00:00:00,1,1
OK,80,40,2014-08-11T00:05:00,1.5,1
OK,80,40,2014-08-11T00:05:00,99999999999999999999,1
OK,80,40,2014-08-11T00:05:00,1,77
OK,80,40
OK,x,y,2014-08-11T00:05:00,1,1

OK,80,1_000,2014-08-11T00:05:00,1,1
OK,80,40,2014-08-11T02:10:00+02:00,12.0,4
"""


def traffic_folder(folder: Path, readings: bytes) -> Path:
    (folder / "sensors.csv").write_text(SENSORS, encoding="utf-8")
    (folder / "aarhus-week.csv.gz").write_bytes(gzip.compress(readings))
    return folder


def test_malformed_rows_are_kept_aside_with_line_and_reason(tmp_path: Path) -> None:
    loaded = load_traffic(traffic_folder(tmp_path, READINGS.encode()), brokers=("e1", "e2"))
    assert loaded.rejected.schema == REJECTED_SCHEMA
    assert {(row["line"], row["reason"]) for row in loaded.rejected.to_pylist()} == {
        (5, "avgSpeed 'NaN': NaN and infinities are no values"),
        (6, "avgSpeed '-inf': NaN and infinities are no values"),
        (7, "avgSpeed 'fast': not a number"),
        (8, "TIMESTAMP 'yesterday': not an ISO 8601 time"),
        (9, "TIMESTAMP '2014-02-31T00:00:00': not an ISO 8601 time"),
        (10, "vehicleCount '1.5': not a whole number"),
        (11, "vehicleCount '99999999999999999999': does not fit 64 bits"),
        (12, "REPORT_ID '77': no such sensor in sensors.csv"),
        (13, "3 fields, expected 6"),
        (14, "avgSpeed 'y': not a number; avgMeasuredTime 'x': not a number"),
        (16, "avgSpeed '1_000': not a number"),
    }
    raw = {row["line"]: row["raw"] for row in loaded.rejected.to_pylist()}
    assert raw[8] == "OK,80,40,yesterday,1,1"


def test_good_rows_become_events_in_order_of_time(tmp_path: Path) -> None:
    loaded = load_traffic(traffic_folder(tmp_path, READINGS.encode()), brokers=("e1", "e2"))
    shown = loaded.events.select(["event_id", "highway", "segment", "speed", "vehicles", "travel_time", "distance"])
    assert [tuple(row.values()) for row in shown.to_pylist()] == [
        ("e2-0", "Grenåvej", "2", 46.5, 3, 82, 813),
        ("e1-0", "Søftenvej", "1", 45.0, 0, 81, 1505),
        ("e1-1", "Søftenvej", "3", None, None, None, 900),
        ("e1-2", None, "4", 40.0, 12, 80, 700),
    ]
    assert loaded.events["ts"].cast(pa.int64()).to_pylist()[-1] == 1_407_715_800_000_000


def test_bytes_that_are_no_text_are_a_reason(tmp_path: Path) -> None:
    readings = READINGS.splitlines()[0].encode() + b"\r\nO\xffK,80,40,2014-08-11T00:05:00,1,1\r\n"
    loaded = load_traffic(traffic_folder(tmp_path, readings))
    assert loaded.events.num_rows == 0
    assert loaded.rejected.to_pylist() == [
        {"file": "aarhus-week.csv.gz", "line": 2, "raw": "O\\xffK,80,40,2014-08-11T00:05:00,1,1", "reason": "not UTF-8"}
    ]


def test_quotes_of_stock_are_read_by_column_name(tmp_path: Path) -> None:
    (tmp_path / "yahoo-x.csv").write_text(
        "Date,Symbol,Open,High,Low,Close,Volume,Adj Close\n"
        "2008-01-03,B,1,2,0.5,1.5,100.0,1.4\n"
        "2008-01-02,A,1,2,0.5,1.5,,1.4\n"
        "2008-01-02,,1,2,0.5,1.5,7,1.4\n"
        '2008-01-02,"A,1,2,0.5,1.5,7,1.4\n'
    )
    loaded = load_stock(tmp_path)
    assert loaded.events["symbol"].to_pylist() == ["A", "B"]
    assert loaded.events["volume"].to_pylist() == [None, 100]
    assert loaded.events["adj_close"].to_pylist() == [1.4, 1.4]
    assert loaded.rejected["reason"].to_pylist() == ["Symbol '': missing", "unexpected end of data"]


def test_a_wrong_folder_or_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"holds no file yahoo-\*"):
        load_stock(tmp_path)
    (tmp_path / "yahoo-x.csv").write_text("Symbol,Date\nA,2008-01-02\n")
    with pytest.raises(EventError, match="missing are Volume, Open"):
        load_stock(tmp_path)


@pytest.mark.parametrize(
    "content",
    [gzip.compress(READINGS.encode())[:100], READINGS.encode(), b"\x1f\x8b\x08" + b"x" * 50],
    ids=["breaks off", "no gzip", "damaged gzip"],
)
def test_a_broken_file_is_named(tmp_path: Path, content: bytes) -> None:
    (traffic_folder(tmp_path, b"") / "aarhus-week.csv.gz").write_bytes(content)
    with pytest.raises(EventError, match=r"aarhus-week.csv.gz cannot be read: .+; accepted is a whole CSV file"):
        load_traffic(tmp_path)


def check_real(loaded: Loaded, schema: object, rows: int) -> None:
    events = loaded.events
    assert loaded.rejected.to_pylist() == []
    assert events.schema == publication_schema(schema)
    assert events.num_rows == pc.count_distinct(events["event_id"]).as_py() == rows
    assert (np.diff(events["ts"].cast(pa.int64()).to_numpy()) >= 0).all()


@needs_real_data
def test_the_real_traffic() -> None:
    loaded = load_traffic(REAL_DATA / "traffic", brokers=("e1", "e2", "e3"))
    check_real(loaded, TRAFFIC_SCHEMA, 274_301)
    events = loaded.events
    assert pc.count_distinct(events["segment"]).as_py() == 162
    homes = events.group_by(["broker", "highway"]).aggregate([])
    assert homes.num_rows == pc.count_distinct(events["highway"]).as_py() == 28
    assert pc.mean(events["speed"]).as_py() == pytest.approx(44.706, abs=1e-3)


@needs_real_data
def test_the_real_quotes() -> None:
    loaded = load_stock(REAL_DATA / "stock", brokers=("e1", "e2"))
    check_real(loaded, STOCK_SCHEMA, 31_310)
    assert pc.count_distinct(loaded.events["symbol"]).as_py() == 62


@needs_real_data
def test_the_real_reports_and_the_truth() -> None:
    loaded = load_reports(REAL_DATA / "reports", brokers=("e1", "e2"))
    check_real(loaded, FLIGHTS_SCHEMA, 2_376)
    assert pc.count_distinct(loaded.events["src"]).as_py() == 38
    assert pc.count_distinct(loaded.events["flight"]).as_py() == 100
    assert sum(loaded.events[name].null_count for name in FLIGHTS_SCHEMA) == 2_312
    truth = load_true_reports(REAL_DATA / "reports", brokers=("e1", "e2"))
    assert truth.events["event_id"].equals(loaded.events["event_id"])
    assert truth.events["flight"].equals(loaded.events["flight"])
