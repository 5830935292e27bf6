"""Costs that only some users meet, each next to the best without us; a part of `catchment bench pipeline`.

Windows that overlap far, tables of thousands of columns, long lists of literals, and thousands of subscriptions before
the first event is read. All sides of a comparison run in turn in one process.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import sqlglot
from pyspark.sql import DataFrame, SparkSession

import catchment
from catchment.model.dialect import SubscriptionSql
from catchment.model.schema import Schema, Type
from catchment.model.subscription import Subscription
from catchment.model.times import timestamp_text
from catchment.pipeline.sources import Files, open_batch
from catchment.stages import Active, compile_plan

__all__ = ["Extreme", "measure_extremes"]

Action = Callable[[], object]

EVENTS = 20_000
"""Of the tables with long windows and with many columns."""
OVERLAPS = (10, 100, 1_000, 86_400)
"""How many windows of a second's shift an event lies in."""
PLAIN_OVERLAP_MAX = 1_000
"""Beyond this, plain SQL would take minutes."""
COLUMNS = 2_000
TEXTS: tuple[Literal["csv", "json"], ...] = ("csv", "json")
TEXT_EVENTS = 5_000
"""Of text files with many columns, which take ten times the room of Parquet."""
LITERALS = 5_000
SUBSCRIPTIONS = 20_000
SHARE_OF_QUICK = 10
"""A quick run has so many times fewer columns, literals and subscriptions."""


@dataclass(frozen=True, slots=True)
class Extreme:
    """One cost, and what it is compared with."""

    name: str
    ours_s: float
    best_s: float
    best: str
    at_most: float

    @property
    def ratio(self) -> float:
        return self.ours_s / self.best_s


def measure_extremes(
    spark: SparkSession, folder: Path, *, repetitions: int, report: Callable[[str], None]
) -> list[Extreme]:
    """All of them; `folder` keeps the generated tables from run to run."""
    share = 1 if repetitions > 1 else SHARE_OF_QUICK
    folder.mkdir(parents=True, exist_ok=True)
    found = _long_windows(spark, folder, repetitions, report)
    found.append(_many_columns(spark, folder, COLUMNS // share, repetitions, report))
    found += [_many_columns_of_text(spark, folder, kind, COLUMNS // share, repetitions, report) for kind in TEXTS]
    found.append(_long_lists(LITERALS // share, repetitions, report))
    return found + _many_subscriptions(SUBSCRIPTIONS // share, report)


def _long_windows(spark: SparkSession, folder: Path, repetitions: int, report: Callable[[str], None]) -> list[Extreme]:
    path = folder / f"seconds-{EVENTS}.parquet"
    if not path.exists():
        pq.write_table(_events({"speed": np.random.default_rng(1).normal(60, 20, EVENTS)}), path)
    table = spark.read.parquet(str(path))
    found = []
    for overlap in OVERLAPS if repetitions > 1 else OVERLAPS[:2]:
        sql = f"SELECT avg(speed) FROM traffic GROUP BY window(ts, '{overlap} seconds', '1 second')"
        engines: tuple[Literal["auto", "shared", "sql"], ...] = ("auto", "shared", "sql")
        actions: dict[str, Action] = {
            engine: _to_noop(catchment.replay(spark, table, subscriptions=_asking(sql), engine=engine).notifications)
            for engine in (engines if overlap <= PLAIN_OVERLAP_MAX else engines[:2])
        }
        report(f"an event in {overlap:,} windows")
        seconds = _in_turn(actions, repetitions)
        best = min((engine for engine in seconds if engine != "auto"), key=seconds.__getitem__)
        name = f"a question whose events lie in {overlap:,} windows each"
        found.append(Extreme(name, seconds["auto"], seconds[best], f"engine={best!r}", at_most=2))
    return found


def _many_columns(
    spark: SparkSession, folder: Path, count: int, repetitions: int, report: Callable[[str], None]
) -> Extreme:
    path = folder / f"columns-{count}-{EVENTS}.parquet"
    if not path.exists():
        random = np.random.default_rng(2)
        pq.write_table(_events({f"x{number}": random.random(EVENTS) for number in range(count)}), path)
    table = spark.read.parquet(str(path))
    sql = "SELECT avg(x0) FROM traffic WHERE x1 < 0.5 GROUP BY window(ts, '1 minute')"
    report(f"a table of {count:,} columns")
    actions: dict[str, Action] = {
        "ours": lambda: _run(catchment.replay(spark, table, subscriptions=_asking(sql)).notifications),
        "plain": lambda: _run(
            table.where("topic = 'traffic' AND x1 < 0.5").groupBy(_spark_window("1 minute")).agg({"x0": "avg"})
        ),
    }
    seconds = _in_turn(actions, repetitions)
    return Extreme(f"{count:,} columns, two used, with planning", seconds["ours"], seconds["plain"], "plain Spark", 3)


def _many_columns_of_text(
    spark: SparkSession,
    folder: Path,
    kind: Literal["csv", "json"],
    count: int,
    repetitions: int,
    report: Callable[[str], None],
) -> Extreme:
    """As `catchment replay` reads them: every cell is looked at, and rows that are no events are set aside."""
    attributes = {f"x{number}": Type.FLOAT for number in range(count)}
    path = folder / f"columns-{count}-{TEXT_EVENTS}.{kind}"
    if not path.exists():
        _write_text(path, kind, list(attributes))
    sql = "SELECT avg(x0) FROM traffic WHERE x1 < 0.5 GROUP BY window(ts, '1 minute')"
    topics = {"traffic": Schema(attributes)}
    files = Files(format=kind, path=str(path), topics=topics)
    columns = "event_id STRING, topic STRING, broker STRING, ts TIMESTAMP, "
    columns += ", ".join(f"{name} DOUBLE" for name in attributes)
    report(f"{kind} with {count:,} columns")

    def ours() -> None:
        opened = open_batch(spark, files, asked=("x0", "x1")).persist()
        _run(catchment.replay(spark, opened.publications, subscriptions=_asking(sql), schema=topics).notifications)
        opened.unpersist()

    def plain() -> None:
        table = spark.read.schema(columns).options(header=True).format(kind).load(str(path))
        _run(table.where("topic = 'traffic' AND x1 < 0.5").groupBy(_spark_window("1 minute")).agg({"x0": "avg"}))

    seconds = _in_turn({"ours": ours, "plain": plain}, repetitions)
    name = f"{kind.upper()} with {count:,} columns, two used, checked throughout"
    return Extreme(name, seconds["ours"], seconds["plain"], "plain Spark", at_most=3)


def _write_text(path: Path, kind: Literal["csv", "json"], names: list[str]) -> None:
    random = np.random.default_rng(3)
    whole = path.with_suffix(".writing")
    with whole.open("w", encoding="utf-8") as file:
        if kind == "csv":
            file.write(",".join(("event_id", "topic", "broker", "ts", *names)) + "\n")
        for number in range(TEXT_EVENTS):
            values = map(repr, random.random(len(names)).tolist())
            fixed = (f"e{number}", "traffic", "b1", timestamp_text(number * 1_000_000))
            if kind == "csv":
                file.write(",".join((*fixed, *values)) + "\n")
            else:
                reserved = zip(("event_id", "topic", "broker", "ts"), map(json.dumps, fixed), strict=True)
                pairs = (*reserved, *zip(names, values, strict=True))
                file.write("{" + ",".join(f'"{name}":{value}' for name, value in pairs) + "}\n")
    whole.rename(path)


def _long_lists(count: int, repetitions: int, report: Callable[[str], None]) -> Extreme:
    literals = ", ".join(str(3 * number) for number in range(count))
    report(f"lists of {count:,} literals")
    actions: dict[str, Action] = {
        "NOT IN": lambda: _asking(f"SELECT * FROM traffic WHERE lanes NOT IN ({literals})"),
        "IN": lambda: _asking(f"SELECT * FROM traffic WHERE lanes IN ({literals})"),
    }
    seconds = _in_turn(actions, repetitions)
    return Extreme(f"reading NOT IN with {count:,} literals", seconds["NOT IN"], seconds["IN"], "IN", at_most=2)


def _many_subscriptions(count: int, report: Callable[[str], None]) -> list[Extreme]:
    texts = [
        f"SELECT avg(speed), count(*) FROM traffic WHERE highway = '{number % 3_000}' AND speed < {number} "
        "GROUP BY window(ts, '20 seconds', '2 seconds')"
        for number in range(count)
    ]
    schema = {"traffic": Schema({"highway": Type.STRING, "speed": Type.FLOAT})}
    report(f"{count:,} subscriptions")
    compile_plan([Active(_asking(texts[0])[0])], schema, None)  # compiled code is loaded
    parsed_s, _ = _timed(lambda: [sqlglot.parse_one(text, dialect=SubscriptionSql) for text in texts])
    read_s, subscriptions = _timed(lambda: [Subscription(text, sql=text) for text in texts])
    planned_s, _ = _timed(lambda: compile_plan([Active(one) for one in subscriptions], schema, None))
    return [
        Extreme(f"reading {count:,} subscriptions", read_s, parsed_s, "sqlglot alone", at_most=2.5),
        Extreme(f"planning {count:,} subscriptions", planned_s, parsed_s, "sqlglot alone", at_most=1),
    ]


def _events(attributes: Mapping[str, Any]) -> pa.Table:
    seconds = np.arange(EVENTS, dtype=np.int64) * 1_000_000
    return pa.table(
        {
            "event_id": pa.array(np.arange(EVENTS)),
            "topic": pa.array(["traffic"] * EVENTS),
            "broker": pa.array(["b1"] * EVENTS),
            "ts": pa.array(seconds, pa.timestamp("us", tz="UTC")),
            **{name: pa.array(values) for name, values in attributes.items()},
        }
    )


def _asking(sql: str) -> list[Subscription]:
    return [Subscription("s", sql=sql)]


def _spark_window(size: str) -> Any:
    from pyspark.sql.functions import window

    return window("ts", size)


def _to_noop(frame: DataFrame) -> Action:
    return lambda: _run(frame)


def _run(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def _timed(action: Callable[[], Any]) -> tuple[float, Any]:
    begun = time.perf_counter()
    result = action()
    return time.perf_counter() - begun, result


def _in_turn(actions: Mapping[str, Action], repetitions: int) -> dict[str, float]:
    """The median seconds of each, after a warm-up."""
    found: dict[str, list[float]] = {name: [] for name in actions}
    for round_ in range(repetitions + 1):
        for name, action in actions.items():
            seconds, _ = _timed(action)
            if round_ or repetitions == 1:
                found[name].append(seconds)
    return {name: median(seconds) for name, seconds in found.items()}
