"""The two adaptive placements that are drawn and judged side by side, and the names that they go by."""

from __future__ import annotations

from typing import Self

from catchment.overlay import Tree
from catchment.overlay.placement import MESSAGES, PERIOD_US, Adaptive, Chosen, Cost, Knowledge, Series

__all__ = ["ADAPTIVES", "DESCRIBED", "OURS", "DescribedAdaptive", "label_of", "placement_of"]

OURS = "adaptive"
"""The placement of that name: it looks back over whole shifts, and has patience."""
DESCRIBED = "adaptive as described"
"""The paper's, which its sentences about ADAPTIVE are judged on."""
ADAPTIVES = (DESCRIBED, OURS)


class DescribedAdaptive(Adaptive):
    """Change the mode after every sampling period in which the other one would have sent less (section 6.2.2).

    The paper does not say how partials are estimated, nor how often a publication counts that leaves by several links.
    Both are counted exactly here, once for each link.
    """

    name = DESCRIBED

    @classmethod
    def over(cls, tree: Tree, series: Series, *, period_us: int = PERIOD_US, cost: Cost = MESSAGES) -> Self:
        return cls(Knowledge.of(tree, series), period_us=period_us, patience=0.0, looks_back=False, cost=cost)


def placement_of(name: str) -> Chosen | str:
    """What `Strategy` and `simulate` accept for a name of this package."""
    return DescribedAdaptive if name == DESCRIBED else name


def label_of(name: str) -> str:
    """How legends and verdicts call a placement."""
    return "our adaptive" if name == OURS else name
