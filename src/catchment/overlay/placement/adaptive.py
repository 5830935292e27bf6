"""The paper's adaptive placement: each broker watches what passes, and aggregates while that saves messages.

    monitor ─► analyse ─► plan ─► execute, over a shared knowledge base (section 6.2.2)

Publications and expected partials are counted per outgoing link, as that is where they cost. A broker changes its mode
only if the other mode would have been cheaper by a margin, so that one near the balance does not change back and forth.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from catchment.overlay.placement.folding import NEVER, Series
from catchment.overlay.placement.offers import Bools, Floats, Ints, Offer, Placement
from catchment.overlay.trees import Tree

__all__ = ["MARGIN", "MESSAGES", "PERIOD_US", "Adaptive", "Cost", "Knowledge"]

PERIOD_US = 2_000_000
MARGIN = 0.2


@dataclass(frozen=True, slots=True)
class Cost:
    """What a message costs: itself, each of its bytes, and the next broker's work on it, in any one unit."""

    message: float = 1.0
    byte: float = 0.0
    match: float = 0.0
    """Of a publication."""
    merge: float = 0.0
    """Of a partial."""


MESSAGES = Cost()
"""Nothing but messages counts."""


@dataclass(slots=True, eq=False)
class Knowledge:
    """What brokers have seen, by link and series; links know their broker."""

    brokers: int
    broker_of: Ints
    """Of each link, the broker on this side."""
    size_us: Ints
    shift_us: Ints
    """Of the windows of each series."""
    partial_bytes: Ints
    publications: Floats = field(init=False)
    """By link, what those of this period cost that only aggregate subscriptions want."""
    touched: Ints = field(init=False)
    """By link and series, the last slice that a publication was wanted in."""

    @classmethod
    def of(cls, tree: Tree, series: Series) -> Knowledge:
        """Nothing seen yet, at all brokers of a tree."""
        sources = np.array([source for source, _ in tree.links], np.int64)
        return cls(len(tree.brokers), sources, series.size_us, series.shift_us, series.partial_bytes)

    def __post_init__(self) -> None:
        links, series = len(self.broker_of), len(self.size_us)
        self.publications = np.zeros(links)
        self.touched = np.full((links, series), NEVER, np.int64)


class Adaptive(Placement):
    """Aggregate or forward, broker by broker, as the last period would have had it."""

    name = "adaptive"

    def __init__(
        self, known: Knowledge, *, period_us: int = PERIOD_US, margin: float = MARGIN, cost: Cost = MESSAGES
    ) -> None:
        self.known, self.period_us, self.margin, self.cost = known, period_us, margin, cost
        self.aggregates = np.zeros(known.brokers, np.bool_)
        """The mode of each broker."""
        self.transitions = 0

    def absorb(self, offer: Offer) -> Bools:
        self._monitor(offer)
        return np.full(len(offer.lot), self.aggregates[offer.broker])

    def sample(self, now_us: int) -> None:
        publications, partials = self._analyse(now_us)
        self._execute(self._plan(publications, partials))

    def tables(self) -> dict[str, Ints]:
        return {"touched": self.known.touched}

    def facts(self) -> dict[str, Any]:
        return {
            "aggregates": self.aggregates.tolist(),
            "transitions": self.transitions,
            "publications": self.known.publications.tolist(),
        }

    def recall(self, facts: Mapping[str, Any], places: Ints) -> None:
        self.aggregates = np.array(facts["aggregates"], np.bool_)
        self.transitions = facts["transitions"]
        self.known.publications[:] = facts["publications"]

    def _monitor(self, offer: Offer) -> None:
        known, link = self.known, offer.link
        offered = np.zeros(len(offer.weights), np.bool_)
        offered[offer.lot] = True
        known.publications[link] += self._raw_cost(offer)[offered & ~offer.must].sum()
        known.touched[link, offer.series] = offer.slices

    def _raw_cost(self, offer: Offer) -> Floats:
        """Of each lot, what it costs to let it cross as it is."""
        return offer.weights * (self.cost.message + self.cost.match) + offer.size_bytes * self.cost.byte

    def _partial_costs(self, now_us: int) -> Floats:
        """By link and series, what partials would have cost in the period that ends now."""
        known = self.known
        assert self.period_us is not None
        step = np.where(known.size_us % known.shift_us, 2, 1)
        first = (now_us - self.period_us - known.size_us) // known.shift_us + 1
        last = (now_us - known.size_us) // known.shift_us
        windows = np.minimum(last, known.touched // step) - first + 1
        each = self.cost.message + self.cost.merge + known.partial_bytes * self.cost.byte
        costs: Floats = np.maximum(windows, 0) * each
        return costs

    def _analyse(self, now_us: int) -> tuple[Floats, Floats]:
        """By broker, what the publications of the period cost, and what the partials would have that they are in."""
        known = self.known
        per_link = self._partial_costs(now_us).sum(axis=1)
        costs = [np.zeros(known.brokers), np.zeros(known.brokers)]
        for of_brokers, of_links in zip(costs, (known.publications, per_link), strict=True):
            np.add.at(of_brokers, known.broker_of, of_links)
        known.publications[:] = 0
        return costs[0], costs[1]

    def _plan(self, publications: Floats, partials: Floats) -> Bools:
        """The mode that each broker should have."""
        margin = np.where(self.aggregates, 1 - self.margin, 1 + self.margin)
        return publications > partials * margin

    def _execute(self, wanted: Bools) -> None:
        self.transitions += int((wanted != self.aggregates).sum())
        self.aggregates = wanted
