"""The paper's adaptive placement: each broker watches what passes, and aggregates while that saves messages.

    monitor ─► analyse ─► plan ─► execute, over a shared knowledge base (section 6.2.2)

Publications and expected partials are counted per outgoing link, as that is where they cost. A broker changes its mode
only when what the other one would have saved has added up, so that one near the balance does not change back and forth.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import numpy as np

from catchment.overlay.placement.offers import (
    FOR_EVER,
    MESSAGES,
    NEVER,
    PERIOD_US,
    Bools,
    Cost,
    Ints,
    Offer,
    Placement,
)
from catchment.overlay.placement.series import VALUE_BYTES, Series
from catchment.overlay.trees import Tree

__all__ = ["PATIENCE", "Adaptive", "Knowledge"]

PATIENCE = 0.5
"""Switch once the regret, what the other mode would have saved, exceeds this share of the last cost."""


@dataclass(slots=True, eq=False)
class Knowledge:
    """What brokers have seen, by link and series; links know their broker."""

    brokers: int
    broker_of: Ints
    """Of each link, the broker on this side."""
    series: Series
    publications: Ints = field(init=False)
    """By link, what those of this period cost that only aggregate subscriptions want."""
    touched: Ints = field(init=False)
    """By link and series, the last slice that a publication was wanted in."""
    values: Ints = field(init=False)
    """By link and series that collects, how many values its partials would hold of this period's publications."""

    @classmethod
    def of(cls, tree: Tree, series: Series) -> Knowledge:
        """Nothing seen yet, at all brokers of a tree."""
        return cls(len(tree.brokers), np.array([source for source, _ in tree.links], np.int64), series)

    def __post_init__(self) -> None:
        links, series = len(self.broker_of), len(self.series)
        self.publications = np.zeros(links, np.int64)
        self.touched = np.full((links, series), NEVER, np.int64)
        self.values = np.zeros((links, series), np.int64)

    def begin(self, links: Bools) -> None:
        """A period begins on some links."""
        self.publications[links] = 0
        self.values[links] = 0


class Adaptive(Placement):
    """Aggregate or forward, broker by broker, as the last period would have had it.

    A broker decides when whole periods have passed that are together at least as long as its longest shift, so that it
    compares publications with all partials that they would have been in. With `patience` 0, and after every period, it
    is the paper's engine, which changes back and forth.
    """

    name = "adaptive"
    _absorbs_forced: ClassVar[bool] = True
    """Whether what crosses anyway is put into partials too, as the paper's marking has it."""

    def __init__(
        self,
        known: Knowledge,
        *,
        period_us: int = PERIOD_US,
        patience: float = PATIENCE,
        looks_back: bool = True,
        cost: Cost = MESSAGES,
    ) -> None:
        self.known, self.period_us = known, period_us
        self._publication_cost, self._partial_cost, self._byte_cost = cost.units()
        self._patience, self._looks_back = patience, looks_back
        self.aggregates = np.zeros(known.brokers, np.bool_)
        """The mode of each broker."""
        self._regret = np.zeros(known.brokers, np.int64)
        """How much more each mode has cost than the other would have, since it was chosen."""
        self.transitions = 0

    @classmethod
    def over(cls, tree: Tree, series: Series, *, period_us: int = PERIOD_US, cost: Cost = MESSAGES) -> Self:
        return cls(Knowledge.of(tree, series), period_us=period_us, cost=cost)

    def answer(self, broker: int) -> bool | None:
        return bool(self.aggregates[broker])

    def absorb(self, offer: Offer) -> Bools:
        self._monitor(offer)
        return np.full(len(offer.lot), self.aggregates[offer.broker])

    def sample(self, now_us: int) -> None:
        horizon_us = self._horizon_us()
        ends = now_us % horizon_us == 0
        publications, partials = self._analyse(now_us, horizon_us, ends)
        self._execute(ends & self._plan(publications, partials, ends))

    def next_sample_us(self, after_us: int) -> int:
        """The first end of a broker's horizon that saw a publication, or the end of a window that had one."""
        known, windows = self.known, self.known.series.windows
        horizon_us = self._horizon_us()[known.broker_of]
        begun_us = after_us // horizon_us * horizon_us
        next_us = np.where(self._has_counted(), begun_us + horizon_us, FOR_EVER)
        window = windows.last_ended(begun_us[:, None]) + 1
        ends_us = np.where(windows.last_window(known.touched) >= window, windows.end_us(window), FOR_EVER)
        first_us = ends_us.min(axis=1, initial=FOR_EVER)
        return int(np.minimum(next_us, -(-first_us // horizon_us) * horizon_us).min(initial=FOR_EVER))

    def _has_counted(self) -> Bools:
        """Of each link, whether anything was counted since its horizon began."""
        return (self.known.publications > 0) | self.known.values.any(axis=1)

    def tables(self) -> dict[str, Ints]:
        return {"touched": self.known.touched, "values": self.known.values}

    def saved(self) -> dict[str, Any]:
        return {
            "aggregates": self.aggregates.tolist(),
            "regret": self._regret.tolist(),
            "transitions": self.transitions,
            "publications": self.known.publications.tolist(),
        }

    def restore(self, saved: Mapping[str, Any], places: Ints) -> None:
        self.aggregates = np.array(saved["aggregates"], np.bool_)
        self._regret = np.array(saved["regret"], np.int64)
        self.transitions = saved["transitions"]
        self.known.publications[:] = saved["publications"]

    def _monitor(self, offer: Offer) -> None:
        known, link = self.known, offer.link
        known.publications[link] += self._raw_cost(offer)[offer.stands & ~offer.must].sum()
        known.touched[link, offer.series] = offer.slices
        collected = known.series.collects[offer.series][offer.column]
        if collected.any():
            collected &= self._absorbs_forced | ~offer.must[offer.lot]
            first, behind = known.series.windows[offer.series].windows_around(offer.slices)
            lot, column = offer.lot[collected], offer.column[collected]
            np.add.at(known.values[link], offer.series[column], offer.weights[lot] * (behind - first)[column])

    def _raw_cost(self, offer: Offer) -> Ints:
        """Of each lot, what it costs to let it cross as it is."""
        costs: Ints = offer.weights * self._publication_cost + offer.size_bytes * self._byte_cost
        return costs

    def _horizon_us(self) -> Ints:
        """Of each broker, how far it looks back: whole periods, and no shift is longer."""
        known = self.known
        assert self.period_us is not None
        longest = np.zeros(known.brokers, np.int64)
        if self._looks_back:
            shifts = np.where(known.touched > NEVER, known.series.windows.shift_us, 0).max(axis=1, initial=0)
            np.maximum.at(longest, known.broker_of, shifts)
        horizon: Ints = np.maximum(-(-longest // self.period_us), 1) * self.period_us
        return horizon

    def _partial_costs(self, now_us: int, horizon_us: Ints) -> Ints:
        """By link and series, what the partials cost that would have been sent within each link's horizon till now."""
        known, series = self.known, self.known.series
        first, behind = series.windows.ending_within(now_us - horizon_us[:, None], np.asarray(now_us))
        windows = np.maximum(np.minimum(behind, series.windows.last_window(known.touched) + 1) - first, 0)
        # Where values are collected, each of them is a message.
        messages = np.where(series.collects, known.values, windows)
        bytes_ = windows * series.partial_bytes + known.values * VALUE_BYTES
        costs: Ints = messages * self._partial_cost + bytes_ * self._byte_cost
        return costs

    def _analyse(self, now_us: int, horizon_us: Ints, ends: Bools) -> tuple[Ints, Ints]:
        """By broker, what the publications cost, and what the partials would have that they are in."""
        known = self.known
        per_link = self._partial_costs(now_us, horizon_us[known.broker_of]).sum(axis=1)
        costs = [np.zeros(known.brokers, np.int64), np.zeros(known.brokers, np.int64)]
        for of_brokers, of_links in zip(costs, (known.publications, per_link), strict=True):
            np.add.at(of_brokers, known.broker_of, of_links)
        known.begin(ends[known.broker_of])
        return costs[0], costs[1]

    def _plan(self, publications: Ints, partials: Ints, ends: Bools) -> Bools:
        """Which brokers should change: those whose mode has cost them too much by now."""
        now = np.where(self.aggregates, partials, publications)
        other = np.where(self.aggregates, publications, partials)
        self._regret = np.where(ends, np.maximum(self._regret + now - other, 0), self._regret)
        changes: Bools = (now > other) & (self._regret >= self._patience * np.maximum(now, other))
        return changes

    def _execute(self, changes: Bools) -> None:
        self.transitions += int(changes.sum())
        self.aggregates = self.aggregates ^ changes
        self._regret[changes] = 0
