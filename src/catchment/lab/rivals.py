"""The same questions, asked of others: how a good engineer would put them to Spark SQL and to DuckDB.

Every rival answers with the columns of ANSWER. Questions are those of `traffic_subscriptions`: one measure each, over
windows that a whole number of shifts makes up.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

from catchment.model.times import duration_us
from catchment.workloads import SubscriptionText

__all__ = [
    "ANSWER",
    "PeerQuestion",
    "asked",
    "duckdb_answers",
    "joined",
    "keyed_join",
    "pass_through",
    "union_of_queries",
]

ANSWER = ("subscription", "window_start", "window_end", "value")

_SHAPE = re.compile(r"SELECT (\w+)\((\w+|\*)\) FROM \w+ WHERE (.+) GROUP BY window\(ts, '(.+)', '(.+)'\)")
_CONDITION = re.compile(r"(\w+) (=|<|>|BETWEEN|IN) (\(.+?\)|\S+ AND \S+|\S+)(?: AND |$)")


@dataclass(frozen=True, slots=True)
class PeerQuestion:
    """A subscription, taken apart."""

    name: str
    operator: str
    attribute: str
    condition: str
    size: str
    shift: str

    @property
    def measure(self) -> str:
        return f"{self.operator}({self.attribute})"


def asked(subscriptions: Sequence[SubscriptionText]) -> list[PeerQuestion]:
    """Subscriptions of the traffic workload, taken apart."""
    found = []
    for name, _, sql in subscriptions:
        shape = _SHAPE.fullmatch(sql)
        assert shape is not None, sql
        found.append(PeerQuestion(name, *shape.groups()))
    return found


def pass_through(events: DataFrame) -> DataFrame:
    """Read everything, hand it to Python and back: what no pipeline through Python can be faster than."""
    return events.mapInArrow(lambda batches: batches, events.schema)


def union_of_queries(events: DataFrame, questions: Sequence[PeerQuestion]) -> DataFrame:
    """A query each, in one union."""
    events.createOrReplaceTempView("bench_events")
    queries = [
        f"SELECT '{one.name}' AS subscription, window.start AS window_start, window.end AS window_end, "
        f"CAST({one.measure} AS DOUBLE) AS value FROM bench_events WHERE topic = 'traffic' AND {one.condition} "
        f"GROUP BY window(ts, '{one.size}', '{one.shift}')"
        for one in questions
    ]
    return events.sparkSession.sql(" UNION ALL ".join(queries))


# -- subscriptions as a table -----------------------------------------------------------------------------------------

EQUAL = ("segment", "highway", "road_type")
RANGED = ("speed", "vehicles", "travel_time")

# A range that is not asked for must let null pass, which no comparison does.
_IN_RANGES = " AND ".join(f"(NOT {n}_asked OR ({n} >= {n}_low AND {n} <= {n}_high))" for n in RANGED)
_MEASURED = " ".join(["CASE attribute", *(f"WHEN '{n}' THEN CAST({n} AS DOUBLE)" for n in RANGED), "END"])


def joined(events: DataFrame, questions: Sequence[PeerQuestion]) -> DataFrame:
    """Events joined with the subscriptions as a table, whatever attributes these ask about; aggregated by slice.

    A bound that a subscription does not have is null in the table, a list of values is an array.
    """
    conditions = [f"({name}_in IS NULL OR array_contains({name}_in, {name}))" for name in EQUAL]
    conditions += [
        f"({name}_low IS NULL OR {name} >= {name}_low) AND ({name}_high IS NULL OR {name} <= {name}_high)"
        for name in RANGED
    ]
    return _answered(events, questions, " AND ".join(conditions))


def keyed_join(events: DataFrame, questions: Sequence[PeerQuestion]) -> DataFrame:
    """The same for one who knows that every subscription compares one of three attributes by `=` or `IN`.

    Each event is looked up by its three keys, so that Spark can hash. The ranges are checked on what that finds.
    """
    return _answered(events, questions, f"event_key = question_key AND {_IN_RANGES}", keyed=True)


def _answered(
    events: DataFrame, questions: Sequence[PeerQuestion], condition: str, *, keyed: bool = False
) -> DataFrame:
    spark = events.sparkSession
    events.createOrReplaceTempView("bench_events")
    spark.createDataFrame(_question_table(questions)).createOrReplaceTempView("bench_questions")
    asked_by, asking = "bench_questions", "(SELECT * FROM bench_events WHERE topic = 'traffic')"
    if keyed:
        keys = ", ".join(f"concat('{name}=', {name})" for name in EQUAL)
        asking = f"(SELECT *, explode(array({keys})) AS event_key FROM bench_events WHERE topic = 'traffic')"
        each = ", ".join(f"transform({name}_in, x -> concat('{name}=', x))" for name in EQUAL)
        asked_by = f"(SELECT *, explode(coalesce({each})) AS question_key FROM bench_questions)"
    size_us, shift_us = duration_us(questions[0].size), duration_us(questions[0].shift)
    return spark.sql(f"""
        WITH matched AS (
          SELECT /*+ BROADCAST(q) */ subscription, operator, unix_micros(ts) DIV {shift_us} AS slice,
                 {_MEASURED} AS x
          FROM {asking} e JOIN {asked_by} q ON {condition}
        ), slices AS (
          SELECT subscription, operator, slice, count(*) AS n, count(x) AS k, sum(x) AS total, min(x) AS low,
                 max(x) AS high
          FROM matched GROUP BY subscription, operator, slice
        ), spread AS (
          SELECT *, explode(sequence(slice - {size_us // shift_us - 1}, slice)) AS number FROM slices
        )
        SELECT subscription, timestamp_micros(number * {shift_us}) AS window_start,
               timestamp_micros(number * {shift_us} + {size_us}) AS window_end,
               CASE operator WHEN 'count' THEN CAST(sum(n) AS DOUBLE) WHEN 'sum' THEN sum(total)
                             WHEN 'avg' THEN sum(total) / sum(k) WHEN 'min' THEN min(low) ELSE max(high) END AS value
        FROM spread GROUP BY subscription, operator, number""")


def _question_table(questions: Sequence[PeerQuestion]) -> pa.Table:
    rows = []
    for one in questions:
        row: dict[str, Any] = {"subscription": one.name, "operator": one.operator, "attribute": one.attribute}
        for name, sign, operand in _CONDITION.findall(one.condition):
            if sign in ("=", "IN"):
                row[f"{name}_in"] = re.findall(r"'((?:[^']|'')*)'", operand)
            elif sign == "BETWEEN":
                row[f"{name}_low"], row[f"{name}_high"] = map(float, operand.split(" AND "))
            elif sign == "<":
                row[f"{name}_high"] = math.nextafter(float(operand), -math.inf)
            else:
                row[f"{name}_low"] = math.nextafter(float(operand), math.inf)
        for name in RANGED:
            row[f"{name}_asked"] = f"{name}_low" in row or f"{name}_high" in row
            if row[f"{name}_asked"]:
                row.setdefault(f"{name}_low", -math.inf)
                row.setdefault(f"{name}_high", math.inf)
        rows.append(row)
    columns = [("subscription", pa.string()), ("operator", pa.string()), ("attribute", pa.string())]
    columns += [(f"{name}_in", pa.list_(pa.string())) for name in EQUAL]
    for name in RANGED:
        columns += [(f"{name}_low", pa.float64()), (f"{name}_high", pa.float64()), (f"{name}_asked", pa.bool_())]
    return pa.Table.from_pylist(rows, pa.schema(columns))


# -- DuckDB -----------------------------------------------------------------------------------------------------------


def duckdb_answers(connection: Any, folder: Path, questions: Sequence[PeerQuestion]) -> pa.Table:
    """The join by keys in DuckDB, which hashes each of the three attributes apart."""
    size_us, shift_us = duration_us(questions[0].size), duration_us(questions[0].shift)
    matched = " UNION ALL ".join(
        f"""SELECT number, epoch_us(ts) // {shift_us} AS slice, {_MEASURED} AS x
            FROM events JOIN (SELECT *, unnest({name}_in) AS key FROM numbered WHERE {name}_in IS NOT NULL)
            ON {name} = key AND {_IN_RANGES}"""
        for name in EQUAL
    )
    connection.register("questions", _question_table(questions))
    found: pa.Table = connection.sql(f"""
        WITH numbered AS (
          SELECT *, row_number() OVER () AS number FROM questions
        ), events AS (
          SELECT * FROM read_parquet('{folder}/*.parquet') WHERE topic = 'traffic'
        ), slices AS (
          SELECT number, slice, count(*) AS n, count(x) AS k, sum(x) AS total, min(x) AS low, max(x) AS high
          FROM ({matched}) GROUP BY number, slice
        ), windows AS (
          SELECT number, first, sum(n) AS n, sum(k) AS k, sum(total) AS total, min(low) AS low, max(high) AS high
          FROM (SELECT *, unnest(range(slice - {size_us // shift_us - 1}, slice + 1)) AS first FROM slices)
          GROUP BY number, first
        )
        SELECT subscription, make_timestamp(first * {shift_us}) AS window_start,
               make_timestamp(first * {shift_us} + {size_us}) AS window_end,
               CASE operator WHEN 'count' THEN n::DOUBLE WHEN 'sum' THEN total WHEN 'avg' THEN total / k
                             WHEN 'min' THEN low ELSE high END AS value
        FROM windows JOIN numbered USING (number)""").to_arrow_table()
    return found
