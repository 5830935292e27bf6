"""What links carry if each is decided for itself, knowing all windows in advance; the least of it is the lower bound.

On a link, publications that a regular subscription beyond it wants cross anyway. Of the others, each crosses as it is,
or all partials cross that want it: a minimum vertex cover between publications and partials is the cheapest choice.
Values that an operator must collect cost a message each, whichever way they go: publications that bring some cross as
they are.

With one partial for each window of a subscription that is the paper's optimum, which no placement of its kind can beat.
With one for each stride of a question it is what `cover` sends, hop by hop, where all strides end together: who is
absorbed on a link would be absorbed on all links behind it too, as taking partials away, or adding publications, leaves
no publication exhausted that was not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from catchment.overlay.masks import Words
from catchment.overlay.placement.covers import minimum_cover
from catchment.overlay.placement.offers import Bools, Grain, Ints
from catchment.overlay.placement.series import Lots, Series
from catchment.overlay.traffic import LinkCounts, meets, members
from catchment.overlay.trees import Tree

__all__ = ["Carried", "Choose", "each_link", "lower_bound"]

Choose = Callable[[Ints, Ints, Ints, Ints], tuple[Bools, Bools]]
"""From edges (publication, partial) and the weights of both ends to which of them cross."""


@dataclass(frozen=True, slots=True, eq=False)
class Carried:
    """What each link carries."""

    publications: LinkCounts
    partials: LinkCounts
    forced: Ints
    """Of the publications, those that a regular subscription made cross."""
    transitions: int = 0
    """How often brokers have changed their mind."""

    @classmethod
    def none(cls, links: int) -> Carried:
        return cls(LinkCounts.none(links), LinkCounts.none(links), np.zeros(links, np.int64))

    def __add__(self, other: Carried) -> Carried:
        return Carried(
            self.publications + other.publications,
            self.partials + other.partials,
            self.forced + other.forced,
            self.transitions + other.transitions,
        )


def lower_bound(tree: Tree, series: Series, cells: Sequence[Lots]) -> Carried:
    """The optimum of each link, one partial for each window of a subscription."""
    return each_link(tree, series, cells, minimum_cover, "window")


def each_link(
    tree: Tree, series: Series, cells: Sequence[Lots], choose: Choose, grain: Grain, *, forced_too: bool = False
) -> Carried:
    """Decide about each link for itself. `series` and `cells` are those of the grain.

    With `forced_too`, publications that cross anyway are put into partials as well, as the paper's marking has it.
    """
    links = len(tree.links)
    carried = Carried.none(links)
    if not cells:
        return carried
    every = _Every.of(cells)
    from_here, beyond, sizes = ~members(tree), meets(tree.beyond, series.brokers), series.bytes_beyond(tree)
    for link in range(links):
        here = from_here[every.origin, link]
        asked = _LinkProblem(every, series, here, beyond[:, link], sizes[link], choose, grain, forced_too)
        asked.decide(meets(tree.beyond[link : link + 1], every.raw_at)[:, 0], carried, link)
    return carried


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
        )


@dataclass(frozen=True, slots=True, eq=False)
class _LinkProblem:
    """The decision about one link."""

    every: _Every
    series: Series
    from_here: Bools
    """Of each lot, whether it comes from this side."""
    beyond: Bools
    """Of each series, whether somebody beyond wants it."""
    partial_bytes: Ints
    choose: Choose
    grain: Grain
    forced_too: bool

    def decide(self, wanted_raw: Bools, carried: Carried, link: int) -> None:
        every = self.every
        must = self.from_here & wanted_raw
        edges = self.from_here[every.lot] & self.beyond[every.series]
        crosses = np.zeros(len(must), np.bool_) if self.forced_too else must.copy()
        crosses[every.lot[edges & self.series.collects[every.series]]] = True
        edges &= ~crosses[every.lot]
        crosses |= must
        lot, series, slices = every.lot[edges], every.series[edges], every.slices[edges]
        group, weights = self._alike(lot, series)
        taken, columns = self._chosen(group, series, slices, weights)
        # Of lots that were put together all cross, or none.
        crosses[lot[taken[group]]] = True
        carried.publications.messages[link] = every.weights[crosses].sum()
        carried.publications.bytes[link] = every.size_bytes[crosses].sum()
        carried.forced[link] = every.weights[must].sum()
        carried.partials.messages[link] = len(columns)
        carried.partials.bytes[link] = self.partial_bytes[columns].sum()

    def _alike(self, lot: Ints, series: Ints) -> tuple[Ints, Ints]:
        """For each edge a number for all lots of its cell with the same edges, and how many publications these are."""
        every = self.every
        present = np.unique(lot)
        number = every.cell[present]
        mixed = series.astype(np.uint64) + np.uint64(1)
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

    def _chosen(self, group: Ints, series: Ints, slices: Ints, weights: Ints) -> tuple[Bools, Ints]:
        """Which groups of publications cross, and the series of each partial that does."""
        # Edges of lots that were put together are the same ones.
        _, first = np.unique(group * len(self.series) + series, return_index=True)
        group, series, slices = group[first], series[first], slices[first]
        windows = self.series.windows[series]
        begin, behind = windows.windows_around(slices)
        if self.grain == "stride":
            begin = windows.stride_of(slices)
            behind = begin + 1
        lengths = behind - begin
        within = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        number = np.repeat(begin, lengths) + within
        oldest = number.min(initial=2**62) if len(number) else 0
        stretch = int(number.max(initial=0) - oldest) + 1 if len(number) else 1
        keys, column = np.unique(np.repeat(series, lengths) * stretch + number - oldest, return_inverse=True)
        crosses, partials = self.choose(np.repeat(group, lengths), column, weights, np.ones(len(keys), np.int64))
        return crosses, keys[partials] // stretch


def _numbers(one: Ints, other: Ints) -> Ints:
    """A number for each distinct pair."""
    return np.unique(one * (other.max(initial=0) + 1) + other, return_inverse=True)[1]
