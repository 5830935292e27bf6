"""Workloads: seeded generators, loaders of public data, and the subscriptions and filters that go with them."""

from catchment.workloads.debs14 import Debs14, debs14_links
from catchment.workloads.loading import REJECTED_SCHEMA, Loaded
from catchment.workloads.matching import (
    MATCHING_SCHEMA,
    MatchingProfile,
    PlainConstraint,
    condition_of,
    matching_constraints,
    matching_events,
    matching_filters,
)
from catchment.workloads.publications import publication_schema, respaced
from catchment.workloads.reports import FLIGHTS_SCHEMA, load_reports, load_true_reports
from catchment.workloads.stock import STOCK_SCHEMA, STOCK_SYMBOLS, generate_stock, load_stock, stock_batches
from catchment.workloads.subscriptions import SubscriptionText, stock_subscriptions, traffic_subscriptions
from catchment.workloads.traffic import (
    TRAFFIC_DURATION_US,
    TRAFFIC_SCHEMA,
    TRAFFIC_START_US,
    generate_traffic,
    load_traffic,
    traffic_batches,
    write_traffic,
)

__all__ = [
    "FLIGHTS_SCHEMA",
    "MATCHING_SCHEMA",
    "REJECTED_SCHEMA",
    "STOCK_SCHEMA",
    "STOCK_SYMBOLS",
    "TRAFFIC_DURATION_US",
    "TRAFFIC_SCHEMA",
    "TRAFFIC_START_US",
    "Debs14",
    "Loaded",
    "MatchingProfile",
    "PlainConstraint",
    "SubscriptionText",
    "condition_of",
    "debs14_links",
    "generate_stock",
    "generate_traffic",
    "load_reports",
    "load_stock",
    "load_traffic",
    "load_true_reports",
    "matching_constraints",
    "matching_events",
    "matching_filters",
    "publication_schema",
    "respaced",
    "stock_batches",
    "stock_subscriptions",
    "traffic_batches",
    "traffic_subscriptions",
    "write_traffic",
]
