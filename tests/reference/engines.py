"""Ask every engine of Catchment that could answer a case, under the settings of the case."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from catchment import Run, Schema, Subscription, oracle, replay, stream
from catchment.model.errors import CatchmentError, ConfigurationError
from catchment.model.events import attribute_schema
from tests.reference.drawing import Case
from tests.reference.values import KINDS

__all__ = ["ENGINES", "OVERFLOWS", "EngineAnswer", "accepted_by", "published", "raw_publications"]

OVERFLOWS = hasattr(Run, "overflows")
"""Whether values beyond their types are reported; before that they are errors, and are not drawn."""

LATENESS = "3700000 days"
"""Longer than from year 1 to year 9999: nothing is late."""


@dataclass(frozen=True, slots=True)
class EngineAnswer:
    """What an engine said of some subscriptions."""

    engine: str
    subscriptions: frozenset[str]
    notifications: pa.Table
    deliveries: pa.Table | None = None
    rejected: list[Any] | None = None
    overflows: pa.Table | None = None
    delivered: dict[str, pa.Table] = field(default_factory=dict)


def in_files(table: pa.Table) -> pa.Table:
    """With names for files: Spark puts names into a configuration of Hadoop's, which replaces variables."""
    return table.rename_columns([name.replace("${", "#{").replace("*", "#star") for name in table.column_names])


def as_drawn(read: DataFrame, case: Case) -> DataFrame:
    """Columns with the names that were drawn for them; only those are renamed that have another one.

    What Spark infers from filters over renamed columns may grow until its memory is full.
    """
    renamed = dict(zip(read.columns, case.table.column_names, strict=True))
    return read.withColumnsRenamed({name: drawn for name, drawn in renamed.items() if name != drawn})


def spark_schema(table: pa.Table) -> T.StructType:
    kinds = {kind.arrow: kind.spark for kind in KINDS}

    def of(given: pa.DataType) -> T.DataType:
        if pa.types.is_decimal(given):
            return T.DecimalType(given.precision, given.scale)
        # What the word timestamp means depends on the session.
        return T.TimestampType() if kinds[given] == "timestamp" else T._parse_datatype_string(kinds[given])

    return T.StructType([T.StructField(one.name, of(one.type)) for one in table.schema])


@contextmanager
def published(case: Case) -> Iterator[Path]:
    """A folder with the table as Parquet, a file for each micro-batch of a stream."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "in"
        folder.mkdir()
        count = -(-max(len(case.table), 1) // case.batch_count)
        table = in_files(case.table)
        for number in range(case.batch_count):
            pq.write_table(table.slice(number * count, count), folder / f"{number}.parquet")
        yield folder


def raw_publications(spark: SparkSession, case: Case, folder: Path) -> DataFrame:
    return as_drawn(spark.read.schema(spark_schema(in_files(case.table))).parquet(str(folder)), case)


def accepted_by(case: Case) -> tuple[list[Subscription], dict[str, str]]:
    """The subscriptions that are accepted, and why the others are not."""
    kept, refused, schema = [], {}, _schema(case)
    for one in case.subscriptions:
        try:
            kept.append(Subscription(one.name, sql=one.sql))
            oracle(case.table.slice(0, 0), subscriptions=kept[-1:], schema=schema)
        except CatchmentError as error:
            refused[one.name] = str(error)
    return [one for one in kept if one.name not in refused], refused


def _schema(case: Case) -> Schema:
    """What a session would read from the columns, for the oracle, which knows no session."""
    is_strict = case.settings["spark.sql.caseSensitive"] == "true"
    return replace(attribute_schema(case.table.schema), case_sensitive=is_strict)


def by_shared_pass(spark: SparkSession, case: Case, folder: Path, asked: list[Subscription]) -> Iterator[EngineAnswer]:
    raw = raw_publications(spark, case, folder).repartition(case.partition_count)
    run = replay(spark, raw, subscriptions=asked, engine="shared", deduplicate=case.deduplicate).persist()
    regular = [one.name for one in asked if one.is_regular]
    try:
        yield EngineAnswer(
            "shared",
            frozenset(one.name for one in asked),
            run.notifications.toArrow(),
            run.deliveries.toArrow(),
            run.rejected.toArrow().column("event_id").to_pylist(),
            run.overflows.toArrow() if OVERFLOWS else None,
            {name: run.delivered(name).toArrow() for name in regular[:2]},
        )
    finally:
        run.unpersist()


def by_plain_sql(spark: SparkSession, case: Case, folder: Path, asked: list[Subscription]) -> Iterator[EngineAnswer]:
    plain = {one.name for one in case.subscriptions if one.is_plain}
    raw = raw_publications(spark, case, folder)
    yield from _halves(spark, case, raw, [one for one in asked if one.name in plain])


def _halves(spark: SparkSession, case: Case, raw: DataFrame, asked: list[Subscription]) -> Iterator[EngineAnswer]:
    """All at once; where one of them is refused to plain SQL, in halves."""
    if not asked:
        return
    try:
        run = replay(spark, raw, subscriptions=asked, engine="sql", deduplicate=case.deduplicate).persist_answers()
    except ConfigurationError:
        if len(asked) > 1:
            half = len(asked) // 2
            yield from _halves(spark, case, raw, asked[:half])
            yield from _halves(spark, case, raw, asked[half:])
        return
    try:
        overflows = run.overflows.toArrow() if OVERFLOWS else None
        names = frozenset(one.name for one in asked)
        yield EngineAnswer("sql", names, run.notifications.toArrow(), overflows=overflows)
    finally:
        run.unpersist()


def by_stream(spark: SparkSession, case: Case, folder: Path, asked: list[Subscription]) -> Iterator[EngineAnswer]:
    """Final values; for one seed in eight the last of their revisions."""
    revised = case.seed % 8 == 0
    reader = spark.readStream.schema(spark_schema(in_files(case.table))).option("maxFilesPerTrigger", 1)
    job = stream(
        spark,
        as_drawn(reader.parquet(str(folder)), case),
        checkpoint=str(folder.parent / "checkpoint"),
        subscriptions=asked,
        lateness=LATENESS,
        trigger="available now",
        deduplicate=case.deduplicate,
        delivery="revisions" if revised else "final",
    )
    job.await_termination(300)
    job.end()
    assert job.dropped.count() == 0
    names, notified = frozenset(one.name for one in asked), job.notifications.toArrow()
    overflows = job.overflows.toArrow() if OVERFLOWS else None
    if revised:
        # A revision may be beyond its type where the last value is not: such subscriptions are left to the others.
        assert overflows is not None
        names -= set(overflows.column("subscription").to_pylist())
        # HAVING may be true of what the first micro-batch brings and false in the end: what was told stays told.
        if case.batch_count > 1:
            names -= {one.name for one in case.subscriptions if one.having is not None}
        notified = _last_revisions(
            notified.filter(pc.is_in(notified.column("subscription"), pa.array(sorted(names), pa.string())))
        )
        overflows = overflows.slice(0, 0)
    rejected = job.rejected.toArrow().column("event_id").to_pylist()
    yield EngineAnswer("stream", names, notified, job.deliveries.toArrow(), rejected, overflows)


def _last_revisions(notified: pa.Table) -> pa.Table:
    last: dict[Any, tuple[int, int]] = {}
    columns = ("subscription", "window_start", "group", "output", "revision")
    # Windows may begin before year 1, where Python has no times: their starts are compared as numbers.
    at = notified.schema.get_field_index("window_start")
    notified_us = notified.set_column(at, "window_start", notified.column(at).cast(pa.int64()))
    for row, values in enumerate(zip(*(notified_us.column(name).to_pylist() for name in columns), strict=True)):
        subscription, start, group, output, revision = values
        key = subscription, start, tuple(sorted(group)), output
        last[key] = max(last.get(key, (revision, row)), (revision, row))
    return notified.take(pa.array([row for _, row in last.values()], pa.int64()))


def by_oracle(spark: SparkSession, case: Case, folder: Path, asked: Iterable[Subscription]) -> Iterator[EngineAnswer]:
    asked = list(asked)
    answer = oracle(case.table, subscriptions=asked, schema=_schema(case), deduplicate=case.deduplicate)
    names = frozenset(one.name for one in asked)
    overflows = answer.overflows if OVERFLOWS else None
    yield EngineAnswer("oracle", names, answer.notifications, answer.deliveries, overflows=overflows)


ENGINES: dict[str, Callable[[SparkSession, Case, Path, list[Subscription]], Iterator[EngineAnswer]]] = {
    "oracle": by_oracle,
    "shared": by_shared_pass,
    "sql": by_plain_sql,
    "stream": by_stream,
}
