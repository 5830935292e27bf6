"""The traffic that Spark reports for each placement is what walking every publication over every link counts."""

import os
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from catchment import Overlay, Subscription, oracle, replay, simulate, stream
from catchment.model.errors import ConfigurationError
from catchment.oracle import differences
from catchment.overlay.placement import PLACEMENTS, Cost, Placement
from catchment.simulation.options import Options
from catchment.workloads import TRAFFIC_SCHEMA, generate_traffic, traffic_subscriptions
from tests.stages.test_placing import TOPIC, Placing, cases
from tests.stages.walking import Walk

pytestmark = pytest.mark.spark

few = settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck))


def reported(spark: SparkSession, case: tuple[Any, ...], placement: Any) -> dict[tuple[str, str], int]:
    overlay, schema, events, asked = case
    frame = spark.createDataFrame(events).repartition(2)
    asking = {"overlay": overlay, "subscriptions": asked, "schema": {TOPIC: schema}, "sampling_period": "1 second"}
    run = replay(spark, frame, placement=placement, **asking)
    found: dict[tuple[str, str], int] = {}
    for row in run.traffic.collect():
        if row.kind != "notification":
            found[row.source, row.target] = found.get((row.source, row.target), 0) + row.messages
    return found


def without_zeros(counts: dict[tuple[str, str], int]) -> dict[tuple[str, str], int]:
    return {link: count for link, count in counts.items() if count}


@given(case=cases(one_window=True))
@few
def test_traffic_of_every_placement(spark: SparkSession, case: tuple[Any, ...]) -> None:
    overlay, schema, events, asked = case
    walk = Walk(overlay, events, asked, TOPIC, schema)
    expected = {
        "late": walk.late(),
        "early": walk.early(),
        "optimal": walk.bound(by_window=True),
        "cover": walk.bound(by_window=False),
        "adaptive": Placing(*case).carried("adaptive"),
        "selective": Placing(*case).carried("selective"),
        "coordinated": Placing(*case).carried("coordinated"),
    }
    assert set(expected) == set(PLACEMENTS)
    for placement, counts in expected.items():
        assert reported(spark, case, placement) == without_zeros(counts), placement


def test_the_same_run_under_another_placement(spark: SparkSession) -> None:
    rows = [(n, TOPIC, f"b{1 + n % 2}", datetime.fromtimestamp(n, UTC), n) for n in range(40)]
    frame = spark.createDataFrame(rows, "event_id int, topic string, broker string, ts timestamp, n int")
    sql = f"SELECT sum(n) FROM {TOPIC} WHERE n >= {{}} GROUP BY window(ts, '8 seconds', '2 seconds')"
    asked = [Subscription(f"s{n}", "b3", sql=sql.format(n)) for n in range(3)]
    overlay = Overlay.from_links([("b1", "b2"), ("b2", "b3")])
    late = replay(spark, frame, subscriptions=asked, overlay=overlay, placement="late").persist()
    totals = {}
    for placement in PLACEMENTS:
        traffic = late.under(placement).traffic.where("kind != 'notification'")  # type: ignore[arg-type]
        alone = replay(spark, frame, subscriptions=asked, overlay=overlay, placement=placement)  # type: ignore[arg-type]
        assert sorted(traffic.collect()) == sorted(alone.traffic.where("kind != 'notification'").collect())
        totals[placement] = sum(row.messages for row in traffic.collect())
    late.unpersist()
    # Those of b1 cross both links, those of b2 the second.
    assert totals["late"] == 60
    assert totals["cover"] <= totals["optimal"] <= min(totals["late"], totals["early"], totals["adaptive"])


def streamed(
    spark: SparkSession, case: tuple[Any, ...], placement: Any, files: int, stops_after: int | None = None
) -> dict[tuple[str, str], int]:
    """What a stream over so many files reports, stopped and taken up again after some of them."""
    overlay, schema, events, asked = case
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "in"
        source.mkdir()
        edges = [round(len(events) * number / files) for number in range(files + 1)]

        def run(numbers: range) -> Any:
            for number in numbers:
                begin, end = edges[number : number + 2]
                file = source / f"{number:03d}.parquet"
                pq.write_table(events.slice(begin, end - begin), file)
                os.utime(file, (number, number))  # Spark takes the oldest first
            reader = spark.readStream.schema(from_arrow_schema(events.schema)).option("maxFilesPerTrigger", 1)
            job = stream(
                spark, reader.parquet(str(source)), checkpoint=f"{folder}/checkpoint", subscriptions=asked,
                overlay=overlay, schema={TOPIC: schema}, placement=placement, trigger="available now",
                sampling_period="1 second",
            )  # fmt: skip
            job.await_termination(300)
            return job

        if stops_after is not None:
            run(range(stops_after)).stop()
        job = run(range(stops_after or 0, files))
        job.end()
        assert job.status()["dropped"] == 0
        found: dict[tuple[str, str], int] = {}
        for row in job.traffic.collect():
            if row.kind != "notification":
                found[row.source, row.target] = found.get((row.source, row.target), 0) + row.messages
        return found


@given(
    case=cases(),
    placement=st.sampled_from([one for one in PLACEMENTS if one != "optimal"]),
    stops_after=st.none() | st.integers(1, 2),
)
@settings(few, max_examples=5)
def test_a_stream_sends_what_a_replay_sends(
    spark: SparkSession, case: tuple[Any, ...], placement: str, stops_after: int | None
) -> None:
    overlay, schema, events, asked = case
    case = (overlay, schema, events.sort_by("ts"), asked)
    assert streamed(spark, case, placement, 3, stops_after) == reported(spark, case, placement)


def guided() -> type[Placement]:
    """The placement that the guide writes."""
    guide = Path(__file__).parents[2] / "docs" / "placement.md"
    code = guide.read_text(encoding="utf-8").partition("## Writing another")[2].partition("```python\n")[2]
    names: dict[str, Any] = {}
    exec(code.partition("```")[0], names)
    thrifty = names["Thrifty"]
    assert issubclass(thrifty, Placement)
    return thrifty


def test_a_placement_of_ones_own(spark: SparkSession) -> None:
    thrifty = guided()
    overlay = Overlay.from_links([("b1", "b2"), ("b2", "b3")])
    events = generate_traffic(300, seed=3, duration_us=20_000_000, brokers=["b1", "b2"]).sort_by("ts")
    drawn = traffic_subscriptions(6, seed=4, brokers=["b3"], selectivity=0.3, window=("4 seconds", "2 seconds"))
    asked = [Subscription(name, at, sql=sql) for name, at, sql in drawn]
    run = replay(spark, spark.createDataFrame(events), overlay=overlay, subscriptions=asked, placement=thrifty)
    assert run.placement == "thrifty"
    at_once = Options(delay_us_min=0, delay_us_max=0)
    found = simulate(events, overlay=overlay, subscriptions=asked, placement=thrifty, options=at_once)
    assert (
        differences(oracle(events, subscriptions=asked), found.notifications, found.deliveries, found.overflows) == []
    )
    walked = sorted(tuple(row.values()) for row in found.traffic.to_pylist() if row["kind"] != "control")
    assert sorted(tuple(row) for row in run.traffic.collect()) == walked
    assert {"publication", "partial"} <= {row[2] for row in walked}
    assert streamed(spark, (overlay, TRAFFIC_SCHEMA, events, asked), thrifty, 3, 2) == _between(walked)


def _between(rows: list[tuple[Any, ...]]) -> dict[tuple[str, str], int]:
    found: dict[tuple[str, str], int] = {}
    for source, target, kind, messages, _ in rows:
        if kind != "notification":
            found[source, target] = found.get((source, target), 0) + messages
    return found


def test_what_a_message_costs_can_be_said_and_transitions_are_counted(spark: SparkSession) -> None:
    rows = [(n, TOPIC, "b1", datetime.fromtimestamp(n, UTC), n) for n in range(60)]
    frame = spark.createDataFrame(rows, "event_id int, topic string, broker string, ts timestamp, n int")
    sql = f"SELECT avg(n), min(n), max(n), stddev_samp(n) FROM {TOPIC} GROUP BY window(ts, '2 seconds')"
    asking: dict[str, Any] = {"subscriptions": [Subscription("s", "b2", sql=sql)], "placement": "adaptive"}
    run = replay(spark, frame, overlay=Overlay.from_links([("b1", "b2")]), **asking)
    by_bytes = replay(spark, frame, overlay=Overlay.from_links([("b1", "b2")]), cost=Cost(message=0, byte=1), **asking)
    assert (run.transitions, by_bytes.transitions) == (1, 0)
    assert {row.kind for row in run.traffic.collect()} == {"publication", "partial", "notification"}
    assert {row.kind for row in by_bytes.traffic.collect()} == {"publication", "notification"}


def test_a_stream_cannot_know_the_optimum(spark: SparkSession) -> None:
    events = spark.readStream.format("rate").load().selectExpr("value AS event_id", "'t' AS topic", "'b1' AS broker")
    with pytest.raises(ConfigurationError, match=r"placement is 'optimal'; .*, cover, or a class of Placement$"):
        stream(spark, events, checkpoint="unused", placement="optimal")


def test_a_placement_that_nobody_knows(spark: SparkSession) -> None:
    frame = spark.createDataFrame([], "event_id int, topic string, broker string, ts timestamp, n int")
    asked = [Subscription("s", "b1", sql="SELECT count(*) FROM t GROUP BY window(ts, '1 second')")]
    overlay = Overlay.from_links([("b1", "b2")])
    with pytest.raises(ConfigurationError, match="placement is 'soon'; accepted are late, early, adaptive"):
        replay(spark, frame, subscriptions=asked, overlay=overlay, placement="soon")  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="sampling_period is '0 seconds'; accepted is a duration of more than"):
        replay(spark, frame, subscriptions=asked, overlay=overlay, placement="adaptive", sampling_period="0 seconds")
