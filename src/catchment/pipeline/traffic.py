"""What each link carries, from the grouped counts that the passes yield."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from catchment.overlay import (
    Tree,
    count_notifications,
    count_partials,
    count_publications,
    traffic_table,
    word_count,
)
from catchment.stages import crossings_from

__all__ = ["PLACEMENTS", "Placement", "traffic_of"]

Placement = Literal["late", "early"]
PLACEMENTS: tuple[Placement, ...] = ("late", "early")


def traffic_of(tree: Tree, placement: Placement, crossings: DataFrame, messages: DataFrame) -> pa.Table:
    """Collects the counts, which are few, and spreads them over the tree's links."""
    words = word_count(len(tree.brokers))
    numbers = (n for row in crossings.select("numbers").toLocalIterator() for n in row.numbers)
    crossed = crossings_from(numbers, words)
    wanted = crossed.wanted_at if placement == "late" else crossed.wanted_raw_at
    publications = count_publications(tree, crossed.origin, wanted, crossed.messages, crossed.size_bytes)
    summed = messages.groupBy("kind", "broker", "origins").agg(
        F.sum("messages").alias("messages"), F.sum("bytes").alias("bytes")
    )
    rows = summed.collect()
    told = [row for row in rows if row.kind == "notification"]
    sent = [row for row in rows if row.kind == "partial"] if placement == "early" else []
    return traffic_table(
        tree,
        publications=publications,
        partials=count_partials(
            tree,
            np.array([row.broker for row in sent], np.int64),
            np.array([row.origins for row in sent], np.int64).reshape(-1, words).view(np.uint64),
            np.array([row.messages for row in sent], np.int64),
            np.array([row.bytes for row in sent], np.int64),
        ),
        notifications=count_notifications(
            tree,
            np.array([row.broker for row in told], np.int64),
            np.array([row.messages for row in told], np.int64),
            np.array([row.bytes for row in told], np.int64),
        ),
    )
