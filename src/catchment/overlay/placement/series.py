"""What a fold is fed: who asks for what, and publications in lots, as columns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from catchment.model.window import WindowColumns
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
    windows: WindowColumns
    partial_bytes: Ints
    """Of one partial, without the values that it may hold and what is shared."""
    collects: Bools
    """Whether partials hold a value of each publication: as many messages as there are values."""
    shares: Shares | None = None
    """Of series that several share, who do not all ask for the same."""

    def __len__(self) -> int:
        return len(self.windows)

    def bytes_beyond(self, tree: Tree) -> Ints:
        """[links, series]: of one partial on a link, without the values that it may hold."""
        found = np.tile(self.partial_bytes, (len(tree.links), 1))
        if self.shares is not None:
            asked = meets(tree.beyond, self.shares.brokers)
            np.add.at(found.T, self.shares.series, asked * self.shares.bytes[:, None])
        return found


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
