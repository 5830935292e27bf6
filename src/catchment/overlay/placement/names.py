"""Placements by name, and what each makes the links carry."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from catchment.overlay.placement.adaptive import PERIOD_US, Adaptive, Knowledge
from catchment.overlay.placement.folding import Fold, Lots, Series
from catchment.overlay.placement.offers import Grain, Placement
from catchment.overlay.placement.optimal import Carried, lower_bound
from catchment.overlay.placement.selective import Coordinated, Selective
from catchment.overlay.placement.strategies import Cover, Early, Late
from catchment.overlay.trees import Tree

__all__ = ["ONLINE", "OPTIMAL", "PLACEMENTS", "carried_under", "grain_of", "make_placement"]

OPTIMAL = "optimal"
"""The least that any placement could send: known only when all windows are."""

_MAKE: Mapping[str, Callable[[Tree, Series, int], Placement]] = {
    "late": lambda tree, series, period_us: Late(),
    "early": lambda tree, series, period_us: Early(),
    "adaptive": lambda tree, series, period_us: Adaptive(Knowledge.of(tree, series), period_us=period_us),
    "selective": lambda tree, series, period_us: Selective(tree, series, period_us=period_us),
    "coordinated": lambda tree, series, period_us: Coordinated(tree, series, period_us=period_us),
    "cover": lambda tree, series, period_us: Cover(),
}
ONLINE = tuple(_MAKE)
"""Those that decide as events come."""
PLACEMENTS = (*ONLINE, OPTIMAL)


def grain_of(name: str) -> Grain:
    """What a partial is for under a placement."""
    return Cover.grain if name == Cover.name else "window"


def make_placement(name: str, tree: Tree, series: Series, period_us: int = PERIOD_US) -> Placement:
    """A placement for all brokers of a tree; `series` are those of its grain."""
    return _MAKE[name](tree, series, period_us)


def carried_under(name: str, tree: Tree, series: Series, cells: Sequence[Lots], period_us: int = PERIOD_US) -> Carried:
    """What each link carries of all these lots, in the order of time."""
    if name == OPTIMAL:
        return lower_bound(tree, series, cells)
    fold = Fold(tree, make_placement(name, tree, series, period_us), series).run(cells)
    return Carried(fold.publications, fold.partials, fold.forced)
