"""Where to aggregate: placements, what they are asked, and what each makes the links carry."""

from catchment.overlay.placement.adaptive import PERIOD_US, Adaptive, Cost, Knowledge
from catchment.overlay.placement.covers import minimum_cover
from catchment.overlay.placement.folding import Fold, Lots, Series
from catchment.overlay.placement.names import ONLINE, OPTIMAL, PLACEMENTS, carried_under, grain_of, make_placement
from catchment.overlay.placement.offers import Offer, Placement
from catchment.overlay.placement.optimal import Carried, Choose, each_link, lower_bound
from catchment.overlay.placement.selective import Coordinated, Selective
from catchment.overlay.placement.strategies import Cover, Early, Late

__all__ = [
    "ONLINE",
    "OPTIMAL",
    "PERIOD_US",
    "PLACEMENTS",
    "Adaptive",
    "Carried",
    "Choose",
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
    "Selective",
    "Series",
    "carried_under",
    "each_link",
    "grain_of",
    "lower_bound",
    "make_placement",
    "minimum_cover",
]
