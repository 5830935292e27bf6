"""Repeats of events across batches, against a plain reading of the rule; each id is a story of its own."""

import math
import random
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from catchment import Overlay, Subscription, replay, stream
from catchment.pipeline.acceptance import REASON
from catchment.pipeline.deduplication import CONTENT, REPEATED, marked_repeats, with_content
from tests.pipeline.growing import finished

pytestmark = pytest.mark.spark

SCHEMA = f"event_id bigint, topic string, broker string, ts timestamp, known string, {REASON} string"
LIMIT_S = 120
Row = tuple[int, str, str, int, str, str | None]
"""Id, topic, broker, second, an attribute whose name is also used inside, what is wrong."""


def frame(spark: SparkSession, rows: list[Row]) -> DataFrame:
    timed = spark.createDataFrame(rows, SCHEMA.replace("ts timestamp", "ts bigint"))
    return with_content(timed.withColumn("ts", timed.ts.cast("timestamp")))


def outcome(frame: DataFrame) -> list[tuple[Any, ...]]:
    rows = frame.selectExpr("event_id", "topic", "broker", "unix_seconds(ts)", f"coalesce({REASON}, '')").collect()
    return sorted(map(tuple, rows))


def expected(rows: list[Row], known: set[tuple[Any, ...]], watermark_s: int | None) -> list[tuple[Any, ...]]:
    """The rule, one publication at a time; adds to what is known."""
    found = []
    fresh: list[tuple[Any, ...]] = []
    for row in sorted(rows, key=lambda row: row[3]):
        event, second, reason = row[:3], row[3], row[5]
        before = [at for *same, at in [*known, *fresh] if tuple(same) == event and at <= second]
        after = [at for *same, at in known if tuple(same) == event and at >= second]
        near = (before and second - max(before) <= LIMIT_S) or (after and min(after) - second <= LIMIT_S)
        found.append((*event, second, reason or (REPEATED if near else "")))
        if reason is None and (watermark_s is None or second >= watermark_s):
            fresh.append((*event, second))
    known.update(fresh)
    return sorted(found)


def story(chance: random.Random, event_id: int, from_s: int) -> list[Row]:
    """Some publications of one id in one batch."""
    return [
        (
            event_id,
            chance.choice(["traffic", "traffic", "roadworks"]),
            chance.choice(["b1", "b1", "b2"]),
            from_s + chance.randrange(0, 400, 20),
            "an attribute",
            chance.choice([None, None, None, "speed is NaN or infinite"]),
        )
        for _ in range(chance.randrange(4))
    ]


def test_repeats_before_and_after_in_time_in_one_batch_and_in_later_ones(spark: SparkSession) -> None:
    chance = random.Random(13)
    known: set[tuple[Any, ...]] = set()
    seen: DataFrame | None = None
    repeats = 0
    for watermark_s in (None, None, 100, 250):
        rows = [row for event_id in range(150) for row in story(chance, event_id, watermark_s or 0)]
        marked, remembered = marked_repeats(
            frame(spark, rows), seen, None if watermark_s is None else watermark_s * 1_000_000
        )
        want = expected(rows, known, watermark_s)
        assert outcome(marked) == want
        assert marked.columns == ["event_id", "topic", "broker", "ts", "known", REASON, CONTENT]
        repeats += sum(row[-1] == REPEATED for row in want)
        seen = spark.createDataFrame(remembered.collect(), remembered.schema)
    assert repeats > 100
    assert seen is not None
    assert seen.where("unix_seconds(ts) < 130").isEmpty(), "what no event can repeat any more is forgotten"


def test_a_late_repeat_is_a_repeat_and_a_late_event_is_none_to_repeat(spark: SparkSession) -> None:
    first, remembered = marked_repeats(frame(spark, [(1, "traffic", "b1", 100, "", None)]), None, None)
    assert [row[-1] for row in outcome(first)] == [""]
    rows: list[Row] = [
        (1, "traffic", "b1", 100, "", None),
        (2, "traffic", "b1", 100, "", None),
        (2, "traffic", "b1", 160, "", None),
    ]
    marked, _ = marked_repeats(frame(spark, rows), remembered, 150_000_000)
    assert [row[-1] for row in outcome(marked)] == [REPEATED, "", ""]


IDS = 30
CONTRADICTING = "event_id bigint, topic string, broker string, ts timestamp, n bigint, x double, y double"


def contradicting(spark: SparkSession) -> DataFrame:
    """Each id three times at the same time: with two values, with both exchanged, and with a NaN."""
    at = datetime(2026, 1, 1, tzinfo=UTC)
    said = [(n, x, y) for n in range(IDS) for x, y in ((n, -n - 0.5), (-n - 0.5, n), (n, math.nan))]
    rows = [(n, "t", "b1", at, n, float(x), float(y)) for n, x, y in said]
    return spark.createDataFrame(rows, CONTRADICTING)


@pytest.mark.parametrize("engine", ["sql", "shared"])
def test_which_of_two_repeats_is_kept_does_not_depend_on_what_is_asked(spark: SparkSession, engine: Any) -> None:
    events = contradicting(spark)
    whole = replay(spark, events, subscriptions=[Subscription("all", sql="SELECT * FROM t")], deduplicate=True)
    kept = {row.event_id: (row.x, row.y) for row in whole.delivered("all").collect()}
    assert len(kept) == IDS
    assert len({x < 0 for x, _ in kept.values()}) == 2, "by what they say: sometimes the one, sometimes the other"
    for at, name in enumerate("xy"):
        asked = [Subscription(name, sql=f"SELECT sum({name}) FROM t GROUP BY window(ts, '1 day'), n")]
        run = replay(spark, events, subscriptions=asked, deduplicate=True, engine=engine)
        answers = {int(row.group["n"]): row.value for row in run.notifications.collect()}
        assert answers == {one: values[at] for one, values in kept.items()}


def test_a_stream_keeps_the_same_of_two_repeats_as_a_replay(spark: SparkSession, tmp_path: Path) -> None:
    contradicting(spark).coalesce(1).write.parquet(str(tmp_path / "events"))
    asked = [Subscription("s", "b1", sql="SELECT sum(x) FROM t GROUP BY window(ts, '1 day'), n")]
    overlay = Overlay.from_links([("b1", "b2")])
    replayed = replay(
        spark,
        spark.read.parquet(str(tmp_path / "events")),
        subscriptions=asked,
        overlay=overlay,
        deduplicate=True,
    )
    job = stream(
        spark,
        spark.readStream.schema(CONTRADICTING).parquet(str(tmp_path / "events")),
        checkpoint=str(tmp_path / "checkpoint"),
        subscriptions=asked,
        overlay=overlay,
        deduplicate=True,
        trigger="available now",
    )
    finished(job).end()
    told = {row.group["n"]: row.value for row in job.notifications.collect()}
    assert told == {row.group["n"]: row.value for row in replayed.notifications.collect()}
    assert len(told) == IDS


def test_many_columns_that_may_be_wrong_are_no_burden_to_plain_sql(spark: SparkSession) -> None:
    """What Spark infers from one condition over many computed columns once filled its memory."""
    names = [f"x{at}" for at in range(14)]
    row = {"event_id": "a", "topic": "t", "broker": "b", "ts": datetime(2026, 1, 1, tzinfo=UTC)}
    rows = [{**row, **dict.fromkeys(names, 1.5)}, {**row, "event_id": "b", **dict.fromkeys(names, math.nan)}]
    many = spark.createDataFrame([*rows, rows[0]])
    where = " AND ".join(f"{name} > 1" for name in names)
    sql = f"SELECT sum({names[0]}) FROM t WHERE {where} GROUP BY window(ts, '1 second')"
    run = replay(spark, many, subscriptions=[Subscription("s", sql=sql)], deduplicate=True, engine="sql")
    assert [one.value for one in run.notifications.collect()] == [1.5]
    regular = Subscription("r", sql="SELECT * FROM t")
    run = replay(spark, many, subscriptions=[regular], deduplicate=True)
    assert [one.event_id for one in run.delivered("r").collect()] == ["a"]
    assert sorted(run.delivered("r").columns) == sorted(["event_id", "topic", "broker", "ts", *names])
    assert [(one.event_id, one.reason) for one in run.rejected.collect()] == [("b", "x0 is NaN or infinite")]
