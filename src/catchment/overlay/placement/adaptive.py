"""The paper's adaptive placement: each broker watches what passes, and aggregates while that saves messages.

    monitor ─► analyse ─► plan ─► execute, over a shared knowledge base (section 6.2.2)

Publications and expected partials are counted per outgoing link, as that is where they cost. A partial that crosses
anyway, because one has come from further up, costs nothing more. A broker changes its mode only if the other mode would
have been cheaper by a margin: without one, brokers near the balance change back and forth.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from catchment.overlay.placement.folding import Series
from catchment.overlay.placement.offers import Bools, Ints, Offer, Placement
from catchment.overlay.trees import Tree

__all__ = ["Adaptive", "Knowledge"]

NEVER = -(2**62)
PERIOD_US = 2_000_000
MARGIN = 0.2


@dataclass(slots=True, eq=False)
class Knowledge:
    """What brokers have seen, by link and series; links know their broker."""

    brokers: int
    broker_of: Ints
    """Of each link, the broker on this side."""
    size_us: Ints
    shift_us: Ints
    """Of the windows of each series."""
    publications: Ints = field(init=False)
    """By link, those of this period that only aggregate subscriptions want."""
    touched: Ints = field(init=False)
    """By link and series, the last slice that a publication was wanted in."""
    due: Ints = field(init=False)
    """… and the last one whose partial crosses anyway."""

    @classmethod
    def of(cls, tree: Tree, series: Series) -> Knowledge:
        """Nothing seen yet, at all brokers of a tree."""
        sources = np.array([source for source, _ in tree.links], np.int64)
        return cls(len(tree.brokers), sources, series.size_us, series.shift_us)

    def __post_init__(self) -> None:
        links, series = len(self.broker_of), len(self.size_us)
        self.publications = np.zeros(links, np.int64)
        self.touched = np.full((links, series), NEVER, np.int64)
        self.due = np.full((links, series), NEVER, np.int64)


class Adaptive(Placement):
    """Aggregate or forward, broker by broker, as the last period would have had it."""

    name = "adaptive"

    def __init__(self, known: Knowledge, *, period_us: int = PERIOD_US, margin: float = MARGIN) -> None:
        self.known, self.period_us, self.margin = known, period_us, margin
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
        return {"touched": self.known.touched, "due": self.known.due}

    def facts(self) -> dict[str, Any]:
        return {
            "aggregates": self.aggregates.tolist(),
            "transitions": self.transitions,
            "publications": self.known.publications.tolist(),
        }

    def recall(self, facts: Mapping[str, Any]) -> None:
        self.aggregates = np.array(facts["aggregates"], np.bool_)
        self.transitions = facts["transitions"]
        self.known.publications[:] = facts["publications"]

    def _monitor(self, offer: Offer) -> None:
        known, link = self.known, offer.link
        offered = np.zeros(len(offer.weights), np.bool_)
        offered[offer.lot] = True
        known.publications[link] += offer.weights[offered & ~offer.must].sum()
        known.touched[link, offer.series] = offer.slices
        known.due[link, offer.series[offer.due]] = offer.slices[offer.due]

    def _analyse(self, now_us: int) -> tuple[Ints, Ints]:
        """By broker, the publications of the period, and the partials that would have been sent for them."""
        known = self.known
        assert self.period_us is not None
        step = np.where(known.size_us % known.shift_us, 2, 1)
        first = (now_us - self.period_us - known.size_us) // known.shift_us + 1
        last = (now_us - known.size_us) // known.shift_us
        partials = np.minimum(last, known.touched // step) - np.maximum(first, known.due // step + 1) + 1
        per_link = np.maximum(partials, 0).sum(axis=1)
        counts = [np.bincount(known.broker_of, of, known.brokers) for of in (known.publications, per_link)]
        known.publications[:] = 0
        return counts[0].astype(np.int64), counts[1].astype(np.int64)

    def _plan(self, publications: Ints, partials: Ints) -> Bools:
        """The mode that each broker should have."""
        margin = np.where(self.aggregates, 1 - self.margin, 1 + self.margin)
        return publications > partials * margin

    def _execute(self, wanted: Bools) -> None:
        self.transitions += int((wanted != self.aggregates).sum())
        self.aggregates = wanted
