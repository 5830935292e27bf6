"""Which filters match which events: the index behind subscriptions."""

from catchment.matching.grouping import RowsBySlot, rows_by_slot
from catchment.matching.matcher import Matcher

__all__ = ["Matcher", "RowsBySlot", "rows_by_slot"]
