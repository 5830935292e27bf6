"""Which placement decides, by name or by class, and what it makes the links carry."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from catchment.model.errors import ConfigurationError
from catchment.overlay.placement.adaptive import Adaptive
from catchment.overlay.placement.folding import Fold
from catchment.overlay.placement.offers import MESSAGES, PERIOD_US, Cost, Grain, Placement
from catchment.overlay.placement.optimal import Carried, lower_bound
from catchment.overlay.placement.selective import Coordinated, Selective
from catchment.overlay.placement.series import Lots, Series
from catchment.overlay.placement.strategies import Cover, Early, Late
from catchment.overlay.trees import Tree

__all__ = ["ONLINE", "OPTIMAL", "PLACEMENTS", "Chosen", "PlacementName", "Strategy"]

PlacementName = Literal["late", "early", "adaptive", "selective", "coordinated", "cover", "optimal"]
PLACEMENTS: tuple[PlacementName, ...] = get_args(PlacementName)
OPTIMAL: PlacementName = "optimal"
"""The least that any placement could send: known only when all windows are."""
ONLINE = tuple(name for name in PLACEMENTS if name != OPTIMAL)
"""Those that decide as events come."""
Chosen = PlacementName | type[Placement]
"""One of ours, or a class of one's own."""

_OURS: Mapping[str, type[Placement]] = {one.name: one for one in (Late, Early, Adaptive, Selective, Coordinated, Cover)}


@dataclass(frozen=True, slots=True)
class Strategy:
    """Which placement decides, how often it thinks again, and what it weighs."""

    placement: Chosen | str
    period_us: int = PERIOD_US
    cost: Cost = MESSAGES

    def __post_init__(self) -> None:
        _require(self.placement, PLACEMENTS)
        if not isinstance(self.cost, Cost):
            raise ConfigurationError(f"cost is {self.cost!r}; accepted is a Cost, as in {MESSAGES}")
        if self.period_us <= 0:
            raise ConfigurationError(f"the sampling period is {self.period_us} µs; accepted are numbers from 1 on")

    @classmethod
    def online(cls, placement: Chosen | str, period_us: int, cost: Cost) -> Strategy:
        """One that decides as events come; others are refused."""
        _require(placement, ONLINE)
        return cls(placement, period_us, cost)

    @property
    def name(self) -> str:
        return self.placement if isinstance(self.placement, str) else self.placement.name

    @property
    def grain(self) -> Grain:
        """What a partial is for."""
        return "window" if self.placement == OPTIMAL else self._class.grain

    @property
    def _class(self) -> type[Placement]:
        return _OURS[self.placement] if isinstance(self.placement, str) else self.placement

    def make(self, tree: Tree, series: Series) -> Placement:
        """The placement of all brokers of a tree; `series` are those of its grain."""
        return self._class.over(tree, series, period_us=self.period_us, cost=self.cost)

    def carried(self, tree: Tree, series: Series, cells: Sequence[Lots]) -> Carried:
        """What each link carries of all these lots, in the order of time."""
        if self.placement == OPTIMAL:
            return lower_bound(tree, series, cells)
        placement = self.make(tree, series)
        fold = Fold(tree, placement, series).run(cells)
        return Carried(fold.publications, fold.partials, fold.forced, placement.transitions)


def _require(given: object, accepted: Sequence[str]) -> None:
    if not (isinstance(given, type) and issubclass(given, Placement)) and given not in accepted:
        raise ConfigurationError(f"placement is {given!r}; accepted are {', '.join(accepted)}, or a class of Placement")
