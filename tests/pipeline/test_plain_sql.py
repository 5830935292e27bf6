"""Plain Spark SQL finishes operators by the same formulas, over columns of its own."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from catchment import Subscription, replay
from catchment.model.operators import BEYOND_DOUBLE, OPERATORS, Operator, beyond_integer
from catchment.model.schema import Type
from catchment.model.states import REAL_TOTAL, STATES, WHOLE_TOTAL, State
from catchment.pipeline.plain_sql import PLAIN_STATES


@pytest.mark.parametrize("name", PLAIN_STATES)
def test_plain_states_are_states_of_numbers(name: str) -> None:
    state = STATES[name]
    assert isinstance(state, State)
    count, *numbers = state.numbers(state.create(Type.INT))
    assert count == 0
    assert len(PLAIN_STATES[name].numbers) == len(numbers)


@pytest.mark.spark
def test_a_new_operator_over_a_plain_state_is_one_row(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    row = Operator(
        "double_sum", "self-decomposable", (Type.INT, Type.FLOAT), "the same", WHOLE_TOTAL,
        lambda n, total, scale: 2 * total * scale, travels_of_floats=REAL_TOTAL, fewest=2,
    )  # fmt: skip
    monkeypatch.setitem(OPERATORS, row.name, row)
    given = {"n": [1, -4], "m": [2**62, 5], "x": [1e308, 1.0], "y": [1.5, 1.0], "z": [None, 1.0]}
    table = pa.table({"event_id": [1, 2], "topic": ["t"] * 2, "broker": ["b"] * 2, "ts": [1, 2], **given})
    events = spark.createDataFrame(table.to_pandas()).selectExpr("*", "timestamp_micros(ts) AS at").drop("ts")
    asked = Subscription(
        "one", sql=f"SELECT {', '.join(f'double_sum({name})' for name in given)} FROM t GROUP BY window(ts, '1 second')"
    )
    run = replay(spark, events.withColumnRenamed("at", "ts"), subscriptions=[asked], engine="sql")
    found = {row["output"]: row["exact"] for row in run.notifications.collect()}
    found |= {row["output"]: row["problem"] for row in run.overflows.collect()}
    assert found == {
        "double_sum(n)": "-6",
        "double_sum(m)": beyond_integer(2 * (2**62 + 5)),
        "double_sum(x)": BEYOND_DOUBLE,
        "double_sum(y)": "5.0",
        "double_sum(z)": "null",
    }


@pytest.mark.spark
@pytest.mark.parametrize("where", ["x = 0", "x IN (0, 5)", "x >= 0", "x BETWEEN 0 AND 1", "NOT (x < 0)", "x > -1"])
def test_a_negative_zero_in_a_parquet_file_is_zero(spark: SparkSession, tmp_path: Path, where: str) -> None:
    """To the filters of Parquet, which Spark hands conditions to, it is less than zero."""
    named = {"event_id": [1], "topic": ["t"], "broker": ["b"], "ts": pa.array([1], pa.timestamp("us", "UTC"))}
    table = pa.table({**named, "x": [-0.0]})
    pq.write_table(table, tmp_path / "events.parquet")
    events = spark.read.parquet(str(tmp_path))
    aggregate = Subscription("a", sql=f"SELECT count(*) FROM t WHERE {where} GROUP BY window(ts, '1 second')")
    run = replay(spark, events, subscriptions=[aggregate], engine="sql")
    assert [one.value for one in run.notifications.collect()] == [1.0]
    run = replay(spark, events, subscriptions=[Subscription("r", sql=f"SELECT * FROM t WHERE {where}")])
    assert [one.event_id for one in run.delivered("r").collect()] == [1]
