"""Overlays of brokers: graphs, trees, and what each link carries. Pure functions over frozen values."""

from catchment.overlay.graph import Overlay
from catchment.overlay.masks import mask_of, masks_of, word_count
from catchment.overlay.traffic import (
    CLIENTS,
    LINK_TRAFFIC_SCHEMA,
    EdgeCounts,
    LinkCounts,
    count_notifications,
    count_partials,
    count_publications,
    traffic_table,
)
from catchment.overlay.trees import Paths, Tree, broker_hash, shortest_paths, topic_tree, tree_from

__all__ = [
    "CLIENTS",
    "LINK_TRAFFIC_SCHEMA",
    "EdgeCounts",
    "LinkCounts",
    "Overlay",
    "Paths",
    "Tree",
    "broker_hash",
    "count_notifications",
    "count_partials",
    "count_publications",
    "mask_of",
    "masks_of",
    "shortest_paths",
    "topic_tree",
    "traffic_table",
    "tree_from",
    "word_count",
]
