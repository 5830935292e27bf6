"""What each link carries, from the grouped counts that the passes yield."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame

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


def traffic_of(tree: Tree, placement: Placement, crossings: Iterable[int], messages: DataFrame | None) -> pa.Table:
    """Spreads the counts, which are few, over the tree's links. `crossings` are the numbers of rows of that kind."""
    words = word_count(len(tree.brokers))
    crossed = crossings_from(crossings, words)
    wanted = crossed.wanted_at if placement == "late" else crossed.wanted_raw_at
    publications = count_publications(tree, crossed.origin, wanted, crossed.messages, crossed.size_bytes)
    rows = [] if messages is None else messages.collect()
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
