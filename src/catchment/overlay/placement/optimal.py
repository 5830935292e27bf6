"""The least that any placement could send, link by link, knowing all windows in advance.

On a link, publications that a regular subscription beyond it wants cross anyway. Of the others, each crosses as it is,
or all partials cross that want it: a minimum vertex cover between publications and windows. Values that an operator
must collect cost a message each, whichever way they go, so publications that bring some cross as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from catchment.overlay.masks import Words
from catchment.overlay.placement.covers import minimum_cover
from catchment.overlay.placement.folding import Lots, Series
from catchment.overlay.placement.offers import Bools, Ints
from catchment.overlay.traffic import LinkCounts, meets, members
from catchment.overlay.trees import Tree

__all__ = ["Bound", "lower_bound"]


@dataclass(frozen=True, slots=True, eq=False)
class Bound:
    """What the best placement would make each link carry, one partial for each window of a subscription."""

    publications: LinkCounts
    partials: LinkCounts
    forced: Ints
    """Of the publications, those that a regular subscription made cross."""


def lower_bound(tree: Tree, series: Series, cells: Sequence[Lots]) -> Bound:
    """The optimum of each link for itself; `series` are those of windows."""
    links = len(tree.links)
    bound = Bound(
        LinkCounts(np.zeros(links, np.int64), np.zeros(links, np.int64)),
        LinkCounts(np.zeros(links, np.int64), np.zeros(links, np.int64)),
        np.zeros(links, np.int64),
    )
    if not cells:
        return bound
    every = _Every.of(cells)
    from_here, beyond = ~members(tree), meets(tree.beyond, series.brokers)
    for link in range(links):
        _solve(link, tree, every, from_here[every.origin, link], series, beyond[:, link], bound)
    return bound


@dataclass(frozen=True, slots=True, eq=False)
class _Every:
    """The lots of all cells together."""

    origin: Ints
    weights: Ints
    size_bytes: Ints
    cell: Ints
    raw_at: Words
    lot: Ints
    series: Ints
    slices: Ints
    values: Ints

    @classmethod
    def of(cls, cells: Sequence[Lots]) -> _Every:
        counts = [len(one.weights) for one in cells]
        firsts = np.cumsum([0, *counts[:-1]])
        return cls(
            np.concatenate([one.origin for one in cells]),
            np.concatenate([one.weights for one in cells]),
            np.concatenate([one.size_bytes for one in cells]),
            np.repeat(np.arange(len(cells)), counts),
            np.concatenate([one.raw_at for one in cells]),
            np.concatenate([one.lot + first for one, first in zip(cells, firsts.tolist(), strict=True)]),
            np.concatenate([one.series for one in cells]),
            np.concatenate([one.slices for one in cells]),
            np.concatenate([one.values for one in cells]),
        )


def _solve(
    link: int, tree: Tree, every: _Every, from_here: Bools, series: Series, asked_beyond: Bools, bound: Bound
) -> None:
    must = from_here & meets(tree.beyond[link : link + 1], every.raw_at)[:, 0]
    edges = from_here[every.lot] & asked_beyond[every.series]
    crosses = must.copy()
    crosses[every.lot[edges & (every.values > 0)]] = True
    edges &= ~crosses[every.lot]
    lot, of_series, slices = every.lot[edges], every.series[edges], every.slices[edges]
    group, weights = _alike(lot, of_series, every)
    taken_groups, columns = _covered(group, of_series, slices, weights, series)
    # Of lots that were put together all cross, or none.
    crosses[lot[taken_groups[group]]] = True
    bound.publications.messages[link] = every.weights[crosses].sum()
    bound.publications.bytes[link] = every.size_bytes[crosses].sum()
    bound.forced[link] = every.weights[must].sum()
    bound.partials.messages[link] = len(columns)
    bound.partials.bytes[link] = series.partial_bytes[columns].sum()


def _alike(lot: Ints, series: Ints, every: _Every) -> tuple[Ints, Ints]:
    """For each edge a number for all lots of its cell with the same edges, and how many publications these are."""
    mixed = series.astype(np.uint64) + np.uint64(1)
    number = every.cell[lot]
    present, first = np.unique(lot, return_index=True)
    number = number[first]
    for factor in (0xBF58476D1CE4E5B9, 0x94D049BB133111EB):
        # The sums of hashes of edges tell sets of edges apart; two of them leave nothing to chance.
        mixed = (mixed ^ (mixed >> np.uint64(29))) * np.uint64(factor)
        sums = np.zeros(len(every.weights), np.uint64)
        np.add.at(sums, lot, mixed ^ (mixed >> np.uint64(31)))
        number = _numbers(number, np.unique(sums[present], return_inverse=True)[1])
    of_lot = np.zeros(len(every.weights), np.int64)
    of_lot[present] = number
    weights = np.bincount(number, every.weights[present]).astype(np.int64)
    return of_lot[lot], weights


def _covered(group: Ints, of_series: Ints, slices: Ints, weights: Ints, series: Series) -> tuple[Bools, Ints]:
    """Which groups of publications cross, and the series of each window whose partial does."""
    # Edges of lots that were put together are the same ones.
    _, first = np.unique(group * len(series) + of_series, return_index=True)
    group, of_series, slices = group[first], of_series[first], slices[first]
    begin, behind = series.windows_around(of_series, slices)
    lengths = behind - begin
    within = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    window = np.repeat(begin, lengths) + within
    oldest = window.min(initial=0)
    stretch = window.max(initial=0) - oldest + 1
    keys, column = np.unique(np.repeat(of_series, lengths) * stretch + window - oldest, return_inverse=True)
    crosses, partials = minimum_cover(np.repeat(group, lengths), column, weights, np.ones(len(keys), np.int64))
    return crosses, keys[partials] // stretch


def _numbers(one: Ints, other: Ints) -> Ints:
    """A number for each distinct pair."""
    return np.unique(one * (other.max(initial=0) + 1) + other, return_inverse=True)[1]
