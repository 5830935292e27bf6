"""Windowed aggregation in the overlay, as advice on the broker: section 5 of DEBS'14.

publications ─► match ─► at each link: absorb, hold or let cross ─► partials when slices close ─► merge ─► notify
"""

from catchment.broker.aggregation.advice import Aggregation
from catchment.broker.aggregation.options import COLLECTION_US, AggregationOptions

__all__ = ["COLLECTION_US", "Aggregation", "AggregationOptions"]
