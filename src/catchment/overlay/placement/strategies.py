"""The placements that need no memory."""

from __future__ import annotations

import numpy as np

from catchment.overlay.placement.covers import minimum_cover
from catchment.overlay.placement.offers import Bools, Offer, Placement

__all__ = ["Cover", "Early", "Late"]


class Late(Placement):
    """Publications travel as they are; only the subscription's own broker aggregates."""

    name = "late"

    def answer(self, broker: int) -> bool:
        return False

    def absorb(self, offer: Offer) -> Bools:
        return np.zeros(len(offer.lot), np.bool_)


class Early(Placement):
    """The publisher's own broker aggregates; brokers on the way merge."""

    name = "early"

    def answer(self, broker: int) -> bool:
        return True

    def absorb(self, offer: Offer) -> Bools:
        return np.ones(len(offer.lot), np.bool_)


class Cover(Placement):
    """The cheapest mix on each link, found exactly when a stride ends; one partial for all who ask the same."""

    name = "cover"
    grain = "stride"
    holds = True

    def absorb(self, offer: Offer) -> Bools:
        # What must cross anyway serves everyone on the other side.
        free = ~offer.must[offer.lot]
        crosses, _ = minimum_cover(offer.lot[free], offer.column[free], offer.weights, np.where(offer.due, 0, 1))
        return free & ~crosses[offer.lot]
