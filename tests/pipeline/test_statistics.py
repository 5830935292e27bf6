"""Columns that Parquet files say are complete are not read to find out; whatever is in doubt is."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from catchment import Subscription, oracle, replay
from catchment.oracle import differences
from catchment.pipeline.statistics import (
    FINITE_FROM,
    NOTHING_KNOWN,
    complete_columns,
    known_columns,
    may_name_only_finite,
    text_bounds,
)

pytestmark = pytest.mark.spark


def events(ids: list[int | None]) -> pa.Table:
    count = len(ids)
    return pa.table(
        {
            "event_id": pa.array(ids, pa.int64()),
            "topic": ["t"] * count,
            "broker": ["b"] * count,
            "ts": pa.array(range(count), pa.timestamp("us", "UTC")),
            "x": pa.array([1.0, *[None] * (count - 1)], pa.float64()),
        }
    )


def written(folder: Path, *tables: pa.Table, **options: Any) -> str:
    for number, table in enumerate(tables):
        pq.write_table(table, folder / f"{number} ä.parquet", **options)
    return str(folder)


def test_only_what_all_files_say_counts(spark: SparkSession, tmp_path: Path) -> None:
    table = spark.read.parquet(written(tmp_path, events([1, 2]), events([3, None])))
    assert complete_columns(table) == {"topic", "broker", "ts"}


def test_files_that_say_nothing_and_tables_that_are_no_files_are_in_doubt(spark: SparkSession, tmp_path: Path) -> None:
    silent = spark.read.parquet(written(tmp_path, events([1, 2]), write_statistics=False))
    assert complete_columns(silent) == frozenset()
    assert complete_columns(spark.createDataFrame(events([1, 2]))) == frozenset()
    other = tmp_path / "other"
    other.mkdir()
    told = spark.read.parquet(written(other, events([1, 2])))
    assert complete_columns(told) == {"event_id", "topic", "broker", "ts"}
    changed = told.selectExpr("nullif(event_id, 1) AS event_id", "topic", "broker", "ts", "x")
    assert complete_columns(changed) == {"topic", "broker", "ts"}


@pytest.mark.parametrize("engine", ["sql", "shared"])
@pytest.mark.parametrize("ids", [[1, 2, 3], [1, None, 3]])
def test_what_is_missing_is_still_refused(
    spark: SparkSession, tmp_path: Path, engine: Any, ids: list[int | None]
) -> None:
    given = events(ids)
    asked = [Subscription("n", sql="SELECT count(*), sum(x) FROM t GROUP BY window(ts, '1 second')")]
    run = replay(spark, spark.read.parquet(written(tmp_path, given)), subscriptions=asked, engine=engine)
    expected = oracle(given.filter(given.column("event_id").is_valid()), subscriptions=asked)
    assert differences(expected, run.notifications.toArrow(), run.deliveries.toArrow()) == []
    read = run.notifications._jdf.queryExecution().executedPlan().toString()
    assert ("event_id" in read) == (None in ids)


def test_columns_are_known_through_steps_that_keep_them(spark: SparkSession, tmp_path: Path) -> None:
    reals = {f"x{at}": pa.array([1.0, 2.0]) for at in range(FINITE_FROM + 2)}
    pq.write_table(pa.table({"topic": pa.array(["t", "t"]), **reals}), tmp_path / "1.parquet")
    table = spark.read.parquet(str(tmp_path))
    kept = table.withColumn("y", F.col("x0") / 0.5).where("x1 < 9").withColumn("x2", F.lit(float("nan")))
    known = known_columns(kept.withColumnRenamed("x3", "z3"))
    assert known.finite == set(reals) - {"x2", "x3"}
    assert known.complete == {"topic", *reals} - {"x2", "x3"}
    assert text_bounds(kept, "topic") == ("t", "t")
    # The rows of a union have values of another table under the same id.
    assert known_columns(table.union(kept.drop("y"))) == NOTHING_KNOWN


@pytest.mark.parametrize(
    "text",
    [
        *(
            "1,NaN",
            "1,-Infinity\n",
            "inf",
            '{"x": "+INF"}',
            "1e400",
            "1E+308",
            "0x1p1024",
            "9" * 300,
            "9" * 250 + "e99",
        ),
        *("\\u004eaN", "1\0", "2_NaN_3"),
    ],
)
def test_texts_that_may_name_infinities_are_not_taken_for_finite(tmp_path: Path, text: str) -> None:
    path = tmp_path / "events.csv"
    path.write_bytes(f"1,2.5\n{text}\n3,4".encode())
    assert not may_name_only_finite([str(path)])


def test_texts_with_numbers_and_words_name_only_finite_ones(tmp_path: Path) -> None:
    path = tmp_path / "events.csv"
    path.write_text("id,topic,x\n1,finance information,1e-05\n2,b1,-9.5E22\n3,,-1e-300\n")
    assert may_name_only_finite([str(path)])
    assert not may_name_only_finite([str(path), str(tmp_path / "missing.csv")])


def test_readers_that_were_told_of_other_numbers_are_in_doubt(spark: SparkSession, tmp_path: Path) -> None:
    names = [f"x{at}" for at in range(FINITE_FROM + 1)]
    (tmp_path / "events.csv").write_text("\n".join(";".join(["-"] * len(names)) for _ in range(2)))
    kinds = ", ".join(f"{name} DOUBLE" for name in names)
    doubtful: list[dict[str, str]] = [{"sep": ";", "nanValue": "-"}, {"delimiter": "a"}, {"sep": ";", "escape": "a"}]
    plain = {"sep": ";", "mode": "PERMISSIVE"}
    for options, finite in ((plain, set(names)), *((one, set()) for one in doubtful)):
        table = spark.read.schema(kinds).options(**options).csv(str(tmp_path))
        assert known_columns(table).finite == finite, options
