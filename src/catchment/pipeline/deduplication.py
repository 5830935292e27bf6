"""Which publications repeat an event: the same topic, broker and id, at most 120 s apart.

Rule 1: only accepted events count. One that is refused or late repeats nothing that comes after it, so that its
        publisher can send it again, corrected.
Rule 2: which of several repeats at one time is kept depends on all that they say, so that a batch that runs again, a
        replay, and a job with other subscriptions keep the same.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

from catchment.model.events import DEDUPLICATION_US
from catchment.pipeline.acceptance import REASON

__all__ = ["CONTENT", "REPEATED", "deduplicated", "marked_repeats", "seen_schema", "with_content"]

CONTENT = "content"
"""What all attributes of a publication say, as one number."""

REPEATED = f"repeats an event of the last {DEDUPLICATION_US // 1_000_000} seconds"
"""The reason given with a publication that is left out as a repeat."""

_EVENT = ("topic", "broker", "event_id")


def with_content(prepared: DataFrame) -> DataFrame:
    """Prepared publications with CONTENT, while all attributes are there."""
    return prepared.withColumn(CONTENT, F.xxhash64(*prepared.columns))


def deduplicated(judged: DataFrame) -> DataFrame:
    """Judged publications of a bounded table, without repeats of accepted ones."""
    return _with_repeats(_comparable(judged, None)).where("NOT repeated").select("publication.*").drop(CONTENT)


def marked_repeats(judged: DataFrame, seen: DataFrame | None, watermark_us: int | None) -> tuple[DataFrame, DataFrame]:
    """Judged publications of a batch with repeats marked as such, and what the next batch must know to do the same.

    Times of events are remembered for as long as a repeat of them could still be accepted.
    """
    rows = _comparable(judged, watermark_us)
    if seen is not None:
        known = seen.select(F.lit(None).cast(rows.schema["publication"].dataType).alias("publication"), *_EVENT, "ts")
        rows = rows.unionByName(known.select("*", F.lit(True).alias("counts"), F.lit(True).alias("known")))
    reason = F.when(F.col("repeated"), F.lit(REPEATED)).otherwise(F.col("publication").getField(REASON))
    marked = _with_repeats(rows).where("NOT known")
    marked = marked.select(F.col("publication").withField(REASON, reason).alias("publication")).select("publication.*")
    remembered = rows.where("counts").select(*_EVENT, "ts").distinct()
    if watermark_us is not None:
        remembered = remembered.where(watermark_us - DEDUPLICATION_US <= _time_us())
    return marked, remembered


def seen_schema(event_id: T.DataType) -> T.StructType:
    """What is remembered of the events of earlier batches."""
    kinds = {"topic": T.StringType(), "broker": T.StringType(), "event_id": event_id, "ts": T.TimestampType()}
    return T.StructType([T.StructField(name, kind) for name, kind in kinds.items()])


def _comparable(judged: DataFrame, watermark_us: int | None) -> DataFrame:
    """Each publication as one column beside what decides about it, so that no attribute's name is in the way."""
    counts = F.col(REASON).isNull()
    if watermark_us is not None:
        counts &= watermark_us <= _time_us()
    return judged.select(
        F.struct("*").alias("publication"), *_EVENT, "ts", counts.alias("counts"), F.lit(False).alias("known")
    )


def _with_repeats(rows: DataFrame) -> DataFrame:
    """Whether each new and accepted one lies within 120 s after one that counts, or before one that was known."""
    same = Window.partitionBy(*_EVENT).orderBy("ts", F.desc("known"), F.col("publication").getField(CONTENT))
    earlier = same.rowsBetween(Window.unboundedPreceding, -1)
    later = same.rowsBetween(1, Window.unboundedFollowing)
    since = _time_us() - F.last(F.when(F.col("counts"), _time_us()), ignorenulls=True).over(earlier)
    until = F.first(F.when(F.col("known"), _time_us()), ignorenulls=True).over(later) - _time_us()
    accepted = F.col("publication").getField(REASON).isNull()
    return rows.withColumn("repeated", ~F.col("known") & accepted & (_is_near(since) | _is_near(until)))


def _time_us() -> Column:
    return F.unix_micros("ts")


def _is_near(distance_us: Column) -> Column:
    return F.coalesce(distance_us <= DEDUPLICATION_US, F.lit(False))
