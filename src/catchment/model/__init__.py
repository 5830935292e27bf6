"""Frozen values: schema, event batch, filter algebra, subscription and its SQL, window, operators."""

from catchment.model.errors import (
    AggregateOverflowError,
    CatchmentError,
    CheckpointError,
    ConfigurationError,
    EventError,
    FilterError,
    OverlayError,
    SchemaError,
    SubscriptionError,
)
from catchment.model.events import as_events, attribute_schema, problems
from catchment.model.filter import EVERY_EVENT, NO_EVENT, Conjunction, Filter, least_upper_bound
from catchment.model.operators import OPERATORS, Measure, Operator
from catchment.model.results import NOTIFICATION_SCHEMA
from catchment.model.schema import Schema, Type
from catchment.model.states import STATES
from catchment.model.subscription import Aggregate, Output, Query, Subscription
from catchment.model.window import Window

__all__ = [
    "EVERY_EVENT",
    "NOTIFICATION_SCHEMA",
    "NO_EVENT",
    "OPERATORS",
    "STATES",
    "Aggregate",
    "AggregateOverflowError",
    "CatchmentError",
    "CheckpointError",
    "ConfigurationError",
    "Conjunction",
    "EventError",
    "Filter",
    "FilterError",
    "Measure",
    "Operator",
    "Output",
    "OverlayError",
    "Query",
    "Schema",
    "SchemaError",
    "Subscription",
    "SubscriptionError",
    "Type",
    "Window",
    "as_events",
    "attribute_schema",
    "least_upper_bound",
    "problems",
]
