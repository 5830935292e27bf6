"""A value beyond its type is reported of its subscription, told by no engine, and stops nobody else."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from catchment import Overlay, Subscription, oracle, replay, simulate, stream
from catchment.oracle import differences
from catchment.pipeline.stream import Job

pytestmark = pytest.mark.spark

LARGEST = 1.7e308
INTEGERS = [2**62, 2**62, 5, -7, None, 2**63 - 1, 1, -1]
REALS = [LARGEST, LARGEST, -LARGEST, -LARGEST, 1.0, LARGEST, LARGEST, None]
"""By second: within each pair of seconds some sums are beyond their type, over all but the last two on the way only."""

EVENTS = pa.table(
    {
        "event_id": pa.array(range(8)),
        "topic": ["t"] * 8,
        "broker": [f"b{1 + second % 2}" for second in range(8)],
        "ts": pa.array([second * 1_000_000 for second in range(8)], pa.timestamp("us", tz="UTC")),
        "n": pa.array(INTEGERS, pa.int64()),
        "x": pa.array(REALS, pa.float64()),
    }
)
OVERLAY = Overlay.from_links([("b1", "b2")])


def asked(**windows: str) -> list[Subscription]:
    outputs = {
        "whole": "sum(n), count(*)",
        "real": "sum(x), avg(x), max(x)",
        "both": "sum(n), sum(x)",
        "fine": "count(*), min(n)",
        "having": "count(*)",
    }
    return [
        Subscription(
            f"{name} {window}",
            "b1",
            sql=f"SELECT {select} FROM t GROUP BY window(ts, {sizes})"
            + " HAVING sum(n) > 0 OR sum(x) > 0" * (name == "having"),
        )
        for name, select in outputs.items()
        for window, sizes in windows.items()
    ]


PLAIN = asked(pairs="'2 seconds'", fours="'4 seconds', '1 second'", all="'8 seconds'")
SPREAD = "SELECT var_samp(x), stddev_samp(x), median(x) FROM t GROUP BY window(ts, '4 seconds')"
MORE = [*PLAIN, Subscription("spread", "b2", sql=SPREAD)]


def check(found: Any, subscriptions: list[Subscription]) -> None:
    expected = oracle(EVENTS, subscriptions=subscriptions)
    assert len(expected.overflown) > 5
    tables = (found.notifications, found.deliveries, found.overflows)
    assert differences(expected, *(one if isinstance(one, pa.Table) else one.toArrow() for one in tables)) == []


@pytest.mark.parametrize("engine", ["shared", "sql"])
def test_a_replay_reports_what_the_oracle_does(spark: SparkSession, engine: Any) -> None:
    subscriptions = PLAIN if engine == "sql" else MORE
    for overlay in (None, OVERLAY):
        events = spark.createDataFrame(EVENTS)
        check(replay(spark, events, subscriptions=subscriptions, overlay=overlay, engine=engine), subscriptions)


@pytest.mark.parametrize("placement", ["late", "early", "adaptive", "cover"])
def test_brokers_report_what_the_oracle_does(placement: Any) -> None:
    check(simulate(EVENTS, overlay=OVERLAY, subscriptions=MORE, placement=placement), MORE)


def run_stream(spark: SparkSession, folder: Path, subscriptions: list[Subscription], **options: Any) -> Job:
    source = spark.readStream.schema(spark.createDataFrame(EVENTS).schema).option("maxFilesPerTrigger", 1)
    job = stream(
        spark,
        source.parquet(str(folder / "in")),
        checkpoint=str(folder / "checkpoint"),
        subscriptions=subscriptions,
        trigger="available now",
        **options,
    )
    job.await_termination(300)
    return job


@pytest.mark.parametrize("overlay", [None, OVERLAY])
def test_a_stream_reports_what_the_oracle_does_and_goes_on(
    spark: SparkSession, tmp_path: Path, overlay: Overlay | None
) -> None:
    (tmp_path / "in").mkdir()
    pq.write_table(EVENTS.slice(0, 3), tmp_path / "in" / "1.parquet")
    job = run_stream(spark, tmp_path, MORE, overlay=overlay, lateness="10 seconds")
    pq.write_table(EVENTS.slice(3), tmp_path / "in" / "2.parquet")
    # Started again, also after a batch with values beyond their type.
    job = run_stream(spark, tmp_path, MORE, overlay=overlay, lateness="10 seconds")
    job.end()
    check(job, MORE)
    assert job.status()["events"] == len(EVENTS)
    assert job.status()["overflows"] == job.overflows.count()
