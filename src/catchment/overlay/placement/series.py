"""What a fold is fed: who asks for what, and publications in lots, as columns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from catchment.overlay.masks import Words
from catchment.overlay.placement.offers import Bools, Ints
from catchment.overlay.traffic import meets
from catchment.overlay.trees import Tree

__all__ = ["VALUE_BYTES", "Lots", "Series", "Shares"]

VALUE_BYTES = 8
"""Of a value that a partial has collected."""


@dataclass(frozen=True, slots=True, eq=False)
class Shares:
    """What some series' partials hold besides, as far as somebody beyond a link asks for it."""

    series: Ints
    brokers: Words
    """[shares, words]: who asks."""
    bytes: Ints


@dataclass(frozen=True, slots=True, eq=False)
class Series:
    """What partials are for, as columns."""

    brokers: Words
    """[series, words]: who asks."""
    size_us: Ints
    shift_us: Ints
    """Of the windows."""
    partial_bytes: Ints
    """Of one partial, without the values that it may hold and what is shared."""
    collects: Bools
    """Whether partials hold a value of each publication: as many messages as there are values."""
    shares: Shares | None = None
    """Of series that several share, who do not all ask for the same."""

    def __len__(self) -> int:
        return len(self.size_us)

    def bytes_beyond(self, tree: Tree) -> Ints:
        """[links, series]: of one partial on a link, without the values that it may hold."""
        found = np.tile(self.partial_bytes, (len(tree.links), 1))
        if self.shares is not None:
            asked = meets(tree.beyond, self.shares.brokers)
            np.add.at(found.T, self.shares.series, asked * self.shares.bytes[:, None])
        return found

    @property
    def rest_us(self) -> Ints:
        """How long after a window's start another one ends."""
        return self.size_us % self.shift_us

    @property
    def step(self) -> Ints:
        """Slices a shift."""
        return np.where(self.rest_us > 0, 2, 1)

    @property
    def span(self) -> Ints:
        """Slices a window."""
        whole = self.size_us // self.shift_us
        return np.where(self.rest_us > 0, 2 * whole + 1, whole)

    def windows_around(self, series: Ints, slices: Ints) -> tuple[Ints, Ints]:
        """The first window that each slice lies in, and the one behind the last."""
        step = self.step[series]
        return (slices - self.span[series]) // step + 1, slices // step + 1

    def strides_of(self, series: Ints, slices: Ints) -> Ints:
        """The stride that each slice lies in."""
        step = self.step[series]
        return (slices + step - 1) // step


@dataclass(frozen=True, slots=True, eq=False)
class Lots:
    """The publications of one cell."""

    begin_us: int
    origin: Ints
    weights: Ints
    size_bytes: Ints
    raw_at: Words
    """[lots, words]: the brokers with regular subscriptions that want them."""
    lot: Ints
    series: Ints
    slices: Ints
    """Of each edge, in the order of lots: the lot, and the series and slice that want it."""
