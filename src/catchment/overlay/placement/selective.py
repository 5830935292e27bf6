"""Adaptive placement subscription by subscription, coordinated between neighbours: section 8 of the paper, built.

A broker decides for each of its links which series are sent as partials there. Publications all of whose series are go
into these; the others cross as they are, and serve everyone. Which choice would have been the cheapest for the last
period is again a minimum vertex cover: between what was published, in sets that the same series want, and the series,
each as dear as its partials would have been. As `adaptive` does, it looks back over whole periods that no shift
exceeds.

If they are coordinated, neighbours tell each other how far things go: what a broker does not absorb for a series, its
neighbour may absorb on the next link; till there, each link costs the same again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np

from catchment.overlay.placement.adaptive import Adaptive, Knowledge
from catchment.overlay.placement.covers import minimum_cover
from catchment.overlay.placement.folding import tree_order
from catchment.overlay.placement.offers import FOR_EVER, MESSAGES, PERIOD_US, Bools, Cost, Ints, Offer
from catchment.overlay.placement.series import Series
from catchment.overlay.traffic import meets
from catchment.overlay.trees import Tree

__all__ = ["Coordinated", "Selective"]

MARGIN = 0.2
"""By how much, at least, a change must pay."""
Wanted = dict[tuple[int, ...], int]
"""Sets of series, as their rising numbers, and what the publications cost that they wanted."""


class Selective(Adaptive):
    """Which series to aggregate, link by link, as the last period would have had it."""

    name = "selective"
    _absorbs_forced = False

    def __init__(
        self,
        tree: Tree,
        series: Series,
        *,
        period_us: int = PERIOD_US,
        margin: float = MARGIN,
        cost: Cost = MESSAGES,
    ) -> None:
        super().__init__(Knowledge.of(tree, series), period_us=period_us, cost=cost)
        self._margin = margin
        links = len(tree.links)
        self.chosen = np.zeros((links, len(series)), np.int64)
        """By link and series, 1 if partials are sent."""
        self._wanted: list[Wanted] = [{} for _ in range(links)]

    @classmethod
    def over(cls, tree: Tree, series: Series, *, period_us: int = PERIOD_US, cost: Cost = MESSAGES) -> Self:
        return cls(tree, series, period_us=period_us, cost=cost)

    def answer(self, broker: int) -> None:
        return None

    def absorb(self, offer: Offer) -> Bools:
        self._monitor(offer)
        self._remember(offer)
        chosen = self.chosen[offer.link, offer.series][offer.column] > 0
        stays = np.bincount(offer.lot[~chosen], minlength=len(offer.weights)) == 0
        # What crosses anyway serves everyone.
        absorbed: Bools = (stays & ~offer.must)[offer.lot]
        return absorbed

    def _remember(self, offer: Offer) -> None:
        """Add up what publications cost, by the set of series that want them."""
        if not len(offer.lot):
            return
        wanted = self._wanted[offer.link]
        raw = self._raw_cost(offer)
        order = np.argsort(offer.lot, kind="stable")
        lots, begins = np.unique(offer.lot[order], return_index=True)
        series = offer.series[offer.column[order]]
        for lot, of_lot in zip(lots.tolist(), np.split(series, begins[1:]), strict=True):
            if not offer.must[lot]:
                key = tuple(np.sort(of_lot).tolist())
                wanted[key] = wanted.get(key, 0) + int(raw[lot])

    def sample(self, now_us: int) -> None:
        horizon_us = self._horizon_us()[self.known.broker_of]
        ends = now_us % horizon_us == 0
        partials, reach = self._partial_costs(now_us, horizon_us), self.reach()
        wanted = self.chosen.copy()
        for link in np.flatnonzero(ends).tolist():
            wanted[link] = self._cheapest(link, self._wanted[link], partials[link], reach[link])
            self._wanted[link] = {}
        self.known.begin(ends)
        self.transitions += int((wanted != self.chosen).sum())
        self.chosen = wanted

    def next_sample_us(self, after_us: int) -> int:
        """The first end of a link's horizon with a publication since the last: without one, the choice stays."""
        horizon_us = self._horizon_us()[self.known.broker_of]
        counted = self._has_counted() | np.array([bool(sets) for sets in self._wanted], np.bool_)
        next_us = np.where(counted, (after_us // horizon_us + 1) * horizon_us, FOR_EVER)
        return int(next_us.min(initial=FOR_EVER))

    def reach(self) -> Ints:
        """By link and series, on how many links whatever crosses as it is costs the same again; with this one."""
        return np.ones(self.chosen.shape, np.int64)

    def _cheapest(self, link: int, sets: Wanted, partials: Ints, reach: Ints) -> Ints:
        """The series to aggregate on a link; those of which nothing was heard stay as they are."""
        found: Ints = self.chosen[link].copy()
        if not sets:
            return found
        members = [np.array(key, np.int64) for key in sets]
        lengths = [len(one) for one in members]
        series = np.concatenate(members)
        columns, column = np.unique(series, return_inverse=True)
        owner = np.repeat(np.arange(len(members)), lengths)
        far = np.array([reach[one].max() for one in members])
        raw = np.fromiter(sets.values(), np.int64) * far
        # A change must be worth it.
        bias = np.where(found[columns] > 0, 1 - self._margin, 1 + self._margin)
        each = np.rint(partials[columns] * reach[columns] * bias).astype(np.int64)
        _, taken = minimum_cover(owner, column, np.maximum(raw, 1), each)
        found[columns] = taken
        return found

    def tables(self) -> dict[str, Ints]:
        return {**super().tables(), "chosen": self.chosen}

    def saved(self) -> dict[str, Any]:
        return {**super().saved(), "wanted": [tuple(one.items()) for one in self._wanted]}

    def restore(self, saved: Mapping[str, Any], places: Ints) -> None:
        super().restore(saved, places)
        self._wanted = [{} for _ in saved["wanted"]]
        for wanted, sets in zip(self._wanted, saved["wanted"], strict=True):
            for numbers, cost in sets:
                now = places[np.array(numbers, np.int64)]
                key = tuple(np.sort(now[now >= 0]).tolist())
                if key:
                    wanted[key] = wanted.get(key, 0) + cost


class Coordinated(Selective):
    """Selective, and neighbours know of each other's choices."""

    name = "coordinated"

    def __init__(self, tree: Tree, series: Series, **settings: Any) -> None:
        super().__init__(tree, series, **settings)
        self.links_beyond = np.zeros_like(self.chosen)
        """By link and series, more links that a publication crosses behind it, as the broker there has announced."""
        self._beyond = np.ascontiguousarray(meets(tree.beyond, series.brokers).T)
        self._backwards = tree_order(tree)[::-1]
        self._next = [[c for c, (s, t) in enumerate(tree.links) if s == v and t != u] for u, v in tree.links]

    def reach(self) -> Ints:
        reach = 1 + self.links_beyond
        for link in self._backwards:
            for after in self._next[link]:
                reach[link] += self._beyond[after] * (1 - self.chosen[after]) * reach[after]
        return reach

    def tables(self) -> dict[str, Ints]:
        return {**super().tables(), "links_beyond": self.links_beyond}
