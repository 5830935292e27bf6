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
from pyspark.sql import DataFrame, SparkSession

from catchment.model.times import duration_us
from catchment.workloads import SubscriptionText

__all__ = ["ANSWER", "Asked", "asked", "duckdb_query", "joined", "keyed_join", "pass_through", "union_of_queries"]

ANSWER = ("subscription", "window_start", "window_end", "value")

_SHAPE = re.compile(r"SELECT (\w+)\((\w+|\*)\) FROM \w+ WHERE (.+) GROUP BY window\(ts, '(.+)', '(.+)'\)")
_CONDITION = re.compile(r"(\w+) (=|<|>|BETWEEN|IN) (\(.+?\)|\S+ AND \S+|\S+)(?: AND |$)")


@dataclass(frozen=True, slots=True)
class Asked:
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


def asked(subscriptions: Sequence[SubscriptionText]) -> list[Asked]:
    """Subscriptions of the traffic workload, taken apart."""
    found = []
    for name, _, sql in subscriptions:
        shape = _SHAPE.fullmatch(sql)
        assert shape is not None, sql
        found.append(Asked(name, *shape.groups()))
    return found


def pass_through(events: DataFrame) -> DataFrame:
    """Read everything, hand it to Python and back: what no pipeline through Python can be faster than."""
    return events.mapInArrow(lambda batches: batches, events.schema)


def union_of_queries(events: DataFrame, questions: Sequence[Asked]) -> DataFrame:
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


def joined(events: DataFrame, questions: Sequence[Asked]) -> DataFrame:
    """Events joined with the subscriptions as a table, whatever attributes these ask about; aggregated by slice.

    A bound that a subscription does not have is null in the table, a list of values is an array.
    """
    conditions = [f"({name}_in IS NULL OR array_contains({name}_in, {name}))" for name in EQUAL]
    conditions += [
        f"({name}_low IS NULL OR {name} >= {name}_low) AND ({name}_high IS NULL OR {name} <= {name}_high)"
        for name in RANGED
    ]
    return _answered(events, questions, " AND ".join(conditions))


def keyed_join(events: DataFrame, questions: Sequence[Asked]) -> DataFrame:
    """The same for one who knows that every subscription compares one of three attributes by `=` or `IN`.

    Each event is looked up by its three keys, so that Spark can hash. The ranges are checked on what that finds.
    """
    ranges = [f"{name} >= {name}_low AND {name} <= {name}_high" for name in RANGED]
    # A range that is not asked for must let null pass, which no comparison does.
    ranges = [f"(NOT {name}_asked OR ({condition}))" for name, condition in zip(RANGED, ranges, strict=True)]
    return _answered(events, questions, " AND ".join(["event_key = question_key", *ranges]), keyed=True)


def _answered(events: DataFrame, questions: Sequence[Asked], condition: str, *, keyed: bool = False) -> DataFrame:
    spark = events.sparkSession
    events.createOrReplaceTempView("bench_events")
    _question_table(spark, questions).createOrReplaceTempView("bench_questions")
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
                 CASE attribute WHEN 'speed' THEN speed WHEN 'vehicles' THEN CAST(vehicles AS DOUBLE)
                                WHEN 'travel_time' THEN CAST(travel_time AS DOUBLE) END AS x
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


def _question_table(spark: SparkSession, questions: Sequence[Asked]) -> DataFrame:
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
    return spark.createDataFrame(pa.Table.from_pylist(rows, pa.schema(columns)))


# -- DuckDB -----------------------------------------------------------------------------------------------------------


def duckdb_query(folder: Path, questions: Sequence[Asked]) -> str:
    """One scan with a filtered aggregate per question and slice, then windows from slices.

    Faster there than a join with a table of questions, up to more questions than it takes.
    """
    size_us, shift_us = duration_us(questions[0].size), duration_us(questions[0].shift)
    scan, merge, names, values = [], [], [], []
    for at, one in enumerate(questions):
        kept = {"n": "count(*)"}
        if one.operator in ("sum", "avg"):
            kept |= {"t": f"sum({one.attribute})", "k": f"count({one.attribute})"}
        elif one.operator in ("min", "max"):
            kept["m"] = one.measure
        scan += [f"({call} FILTER (WHERE {one.condition}))::DOUBLE AS {name}{at}" for name, call in kept.items()]
        merge += [f"{one.operator if name == 'm' else 'sum'}({name}{at}) AS {name}{at}" for name in kept]
        result = {"count": f"n{at}", "sum": f"t{at}", "avg": f"t{at} / k{at}"}.get(one.operator, f"m{at}")
        names.append(f"'{one.name}'")
        values.append(f"{{'n': n{at}, 'v': {result}}}")
    return f"""
        WITH slices AS (
          SELECT epoch_us(ts) // {shift_us} AS slice, {", ".join(scan)}
          FROM read_parquet('{folder}/*.parquet') WHERE topic = 'traffic' GROUP BY slice
        ), windows AS (
          SELECT number, {", ".join(merge)}
          FROM (SELECT *, unnest(range(slice - {size_us // shift_us - 1}, slice + 1)) AS number FROM slices)
          GROUP BY number
        ), answers AS (
          SELECT number, unnest([{", ".join(names)}]) AS subscription, unnest([{", ".join(values)}]) AS answer
          FROM windows
        )
        SELECT subscription, make_timestamp(number * {shift_us}) AS window_start,
               make_timestamp(number * {shift_us} + {size_us}) AS window_end, answer.v AS value
        FROM answers WHERE answer.n > 0"""
