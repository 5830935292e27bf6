"""What each link carries, from the grouped counts that the passes yield.

Masks of brokers tell what `late` and `early` send, where every publication that matches is wanted and every partial is
one message; lots of publications tell it for any placement.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame

from catchment.overlay import (
    LinkCounts,
    Tree,
    count_notifications,
    count_partials,
    count_publications,
    traffic_table,
    word_count,
)
from catchment.overlay.placement import Carried, Strategy
from catchment.pipeline.placing import lots_by_topic
from catchment.stages import COLLECTED, Plan, crossings_from, prepared_lots

__all__ = ["Sent", "carried_by_lots", "needs_lots", "publications_of", "traffic_of"]


def needs_lots(plan: Plan, strategy: Strategy) -> bool:
    """Whether masks of brokers do not tell enough."""
    questions = plan.questions.values()
    if strategy.placement not in ("late", "early"):
        return bool(questions)
    collects = any(part.state in COLLECTED for question in questions for part in question.parts)
    return collects or any(question.layout.window.kind == "sampling" for question in questions)


@dataclass(frozen=True, slots=True)
class Sent:
    """What the links of a tree carried between brokers; partials are None where they are notified by who had a say."""

    publications: LinkCounts
    partials: LinkCounts | None
    transitions: int = 0


def publications_of(tree: Tree, strategy: Strategy, crossings: Iterable[int]) -> LinkCounts:
    """What masks tell of publications; `crossings` are the numbers of rows of that kind."""
    crossed = crossings_from(crossings, word_count(len(tree.brokers)))
    wanted = crossed.wanted_at if strategy.placement == "late" else crossed.wanted_raw_at
    return count_publications(tree, crossed.origin, wanted, crossed.messages, crossed.size_bytes)


def carried_by_lots(tree: Tree, plan: Plan, strategy: Strategy, rows: Iterable[Any]) -> Sent:
    """Folds the lots of each topic over the tree's links. `rows` are those of LOT_KINDS."""
    total = Carried.none(len(tree.links))
    for topic, lots in lots_by_topic(rows, word_count(len(tree.brokers))).items():
        prepared = prepared_lots(plan.topics[topic], len(tree.brokers), [lots], strategy.grain)
        total += strategy.carried(tree, prepared.series, prepared.cells)
    return Sent(total.publications, total.partials, total.transitions)


def traffic_of(tree: Tree, strategy: Strategy, carried: Sent, messages: DataFrame | None) -> pa.Table:
    """The table of what links carried, with the partials and notifications that `messages` tell of."""
    words = word_count(len(tree.brokers))
    rows = [] if messages is None else messages.collect()
    notified = [row for row in rows if row.kind == "notification"]
    partials = carried.partials
    if partials is None:
        sent = [row for row in rows if row.kind == "partial"] if strategy.placement == "early" else []
        partials = count_partials(
            tree,
            np.array([row.broker for row in sent], np.int64),
            np.array([row.origins for row in sent], np.int64).reshape(-1, words).view(np.uint64),
            np.array([row.messages for row in sent], np.int64),
            np.array([row.bytes for row in sent], np.int64),
        )
    notifications = count_notifications(
        tree,
        np.array([row.broker for row in notified], np.int64),
        np.array([row.messages for row in notified], np.int64),
        np.array([row.bytes for row in notified], np.int64),
    )
    return traffic_table(tree, publications=carried.publications, partials=partials, notifications=notifications)
