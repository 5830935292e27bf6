"""Rows that are no events: kept aside with their text and the reason, each once, never dropped.

Over a bounded input they are a DataFrame. Over a stream they are a query of their own beside the job's: Spark's file
sink commits the files of a micro-batch together, so that a batch which runs again replaces what it wrote. The text is
read twice; in exchange neither query can lose or repeat a row because of the other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.query import StreamingQuery

from catchment.pipeline.parsing import ASIDE_SCHEMA

__all__ = ["QUARANTINE_SCHEMA", "Opened", "Quarantine", "nothing_aside", "split", "store_aside"]

QUARANTINE_SCHEMA = pa.schema(
    [("file", pa.string()), ("line", pa.int64()), ("raw", pa.string()), ("reason", pa.string())]
)
"""Where a row stood (no line where a large file was read in pieces), what it said, and why it is no event."""


@dataclass(frozen=True, slots=True)
class Opened:
    """What a source yields; both are bounded or both are streams."""

    publications: DataFrame
    quarantined: DataFrame | None
    """Rows of QUARANTINE_SCHEMA; None where every row of the format is an event."""
    rows: DataFrame | None = None
    """What both were split from, where they were."""
    whole_from: Callable[[], int | None] | None = None
    """Of a stream whose beginning may be gone, says from which time on no event is missing; None is from the first."""

    def persist(self) -> Opened:
        """The same, kept in memory or on disk, so that a row is read once for both and for every use of them."""
        if self.rows is not None:
            return split(self.rows.persist())
        return Opened(self.publications.persist(), self.quarantined)

    def unpersist(self) -> None:
        (self.publications if self.rows is None else self.rows).unpersist()


def split(parsed: DataFrame) -> Opened:
    """Rows of `parsing.Layout.schema`, as events and as rows kept aside."""
    aside = [col(name).alias(name.removeprefix("_")) for name in ASIDE_SCHEMA.names]
    return Opened(
        parsed.where("_reason IS NULL").drop(*ASIDE_SCHEMA.names),
        parsed.where("_reason IS NOT NULL").select(*aside),
        parsed,
    )


def nothing_aside(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame([], from_arrow_schema(QUARANTINE_SCHEMA))


@dataclass(frozen=True, slots=True)
class Quarantine:
    """The rows that a stream has set aside so far."""

    spark: SparkSession
    path: str
    query: StreamingQuery

    @property
    def rows(self) -> DataFrame:
        """Those of all committed micro-batches, of this run and of the runs before it."""
        try:
            return self.spark.read.schema(from_arrow_schema(QUARANTINE_SCHEMA)).parquet(self.path)
        except AnalysisException:  # nothing was written yet
            return nothing_aside(self.spark)

    def stop(self) -> None:
        self.query.stop()


def store_aside(quarantined: DataFrame, path: str, *, checkpoint: str, available_now: bool = False) -> Quarantine:
    """Start writing a stream's quarantined rows to Parquet below `path`, or go on where `checkpoint` left off.

    Called on the driver, once a job, before or after the job itself.
    """
    writer = quarantined.writeStream.format("parquet").option("path", path).option("checkpointLocation", checkpoint)
    writer = writer.trigger(availableNow=True) if available_now else writer.trigger(processingTime="1 second")
    return Quarantine(quarantined.sparkSession, path, writer.queryName("quarantine").start())
