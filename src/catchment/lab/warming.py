"""Starting Python workers before the clock of a measurement does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame, SparkSession

import catchment
from catchment.model.schema import Schema
from catchment.model.subscription import Subscription

__all__ = ["start_workers"]

_EVENTS = 1_000
_SUBSCRIPTIONS = 10


def start_workers(
    spark: SparkSession,
    publications: DataFrame,
    subscriptions: Sequence[Subscription],
    schema: Mapping[str, Schema] | None,
) -> None:
    """Answer some subscriptions over few events, so that a worker for each core runs and has loaded compiled code.

    Called on the driver, once a command: workers do this once in their lives, which is not what events cost.
    """
    cores = spark.sparkContext.defaultParallelism
    few = publications.limit(_EVENTS * cores).repartition(cores)
    run = catchment.replay(spark, few, subscriptions=subscriptions[:_SUBSCRIPTIONS], schema=schema, engine="shared")
    run.notifications.count()
