"""Where to aggregate: placements, what they are asked, and what each makes the links carry."""

from catchment.overlay.placement.adaptive import Adaptive, Knowledge
from catchment.overlay.placement.choosing import (
    ONLINE,
    OPTIMAL,
    PLACEMENTS,
    Chosen,
    PlacementName,
    Strategy,
)
from catchment.overlay.placement.covers import minimum_cover
from catchment.overlay.placement.folding import Fold
from catchment.overlay.placement.offers import MESSAGES, PERIOD_US, Cost, Offer, Placement
from catchment.overlay.placement.optimal import Carried, Choose, each_link, lower_bound
from catchment.overlay.placement.selective import Coordinated, Selective
from catchment.overlay.placement.series import VALUE_BYTES, Lots, Series, Shares
from catchment.overlay.placement.strategies import Cover, Early, Late

__all__ = [
    "MESSAGES",
    "ONLINE",
    "OPTIMAL",
    "PERIOD_US",
    "PLACEMENTS",
    "VALUE_BYTES",
    "Adaptive",
    "Carried",
    "Choose",
    "Chosen",
    "Coordinated",
    "Cost",
    "Cover",
    "Early",
    "Fold",
    "Knowledge",
    "Late",
    "Lots",
    "Offer",
    "Placement",
    "PlacementName",
    "Selective",
    "Series",
    "Shares",
    "Strategy",
    "each_link",
    "lower_bound",
    "minimum_cover",
]
