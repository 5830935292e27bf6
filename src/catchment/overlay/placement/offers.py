"""What a placement is asked: which publications shall cross a link as they are, and which inside partials.

Publications that nothing tells apart stand together in a lot: same origin, same slices, same questions. A series is
what a subscription (or, for placements that share, all who ask the same) gets partials for, group by group: one for
each window, or one for each stride. A stride lies between the ends of two neighbouring windows: one slice, or two.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np
import numpy.typing as npt

from catchment.model.errors import ConfigurationError
from catchment.overlay.trees import Tree

if TYPE_CHECKING:
    from catchment.overlay.placement.series import Series

__all__ = [
    "FOR_EVER",
    "MESSAGES",
    "NEVER",
    "PERIOD_US",
    "Bools",
    "Cost",
    "Grain",
    "Ints",
    "Offer",
    "Placement",
    "sampled_until",
]

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Grain = Literal["window", "stride"]
NEVER, FOR_EVER = -(2**62), 2**62
PERIOD_US = 2_000_000


@dataclass(frozen=True, slots=True)
class Cost:
    """What a message costs: itself, each of its bytes, and the next broker's work on it, in any one unit."""

    message: float = 1.0
    byte: float = 0.0
    match: float = 0.0
    """Of a publication."""
    merge: float = 0.0
    """Of a partial."""

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if isinstance(value, bool) or not (isinstance(value, (int, float, np.number)) and 0 <= value < math.inf):
                raise ConfigurationError(f"cost.{name} is {value!r}; accepted is a number from 0 on")

    def units(self) -> tuple[int, int, int]:
        """What a publication, a partial and a byte cost, in whole numbers: no sum of them depends on its order."""
        costs = self.message + self.match, self.message + self.merge, self.byte
        publication, partial, byte = (round(one * UNITS) for one in costs)
        return publication, partial, byte


UNITS = 1_000_000
"""Of the unit in which a cost is given."""
MESSAGES = Cost()
"""Nothing but messages counts."""


@dataclass(frozen=True, slots=True, eq=False)
class Offer:
    """What stands before a link within one slice or stride of each series, at the broker on this side of it.

    Edges say which lot is wanted in which series; a lot whose edges are all absorbed needs not cross.
    """

    broker: int
    link: int
    weights: Ints
    """Of each lot, how many publications it is."""
    size_bytes: Ints
    """Of each lot, all of it."""
    must: Bools
    """Of each lot, whether a regular subscription on the other side wants it, so that it crosses anyway."""
    lot: Ints
    column: Ints
    """Of each edge: its lot, and where its series is in the following columns."""
    series: Ints
    slices: Ints
    """Of each column, in rising order of series."""
    due: Bools
    """Of each column, whether its partial is known to cross anyway."""

    @property
    def stands(self) -> Bools:
        """Of each lot, whether it is here and wanted beyond the link: others of the same time may be listed as well."""
        found = np.zeros(len(self.weights), np.bool_)
        found[self.lot] = True
        return found


class Placement:
    """Decides, broker by broker and link by link, what is aggregated where.

    One object may decide for one broker or for all of them; brokers and links are told apart by their numbers.
    """

    name: ClassVar[str]
    grain: ClassVar[Grain] = "window"
    """Whether a partial is for one window of one subscription, or for one stride of all who ask the same."""
    holds: ClassVar[bool] = False
    """Whether publications wait for the end of their stride, unless a regular subscription wants them."""
    period_us: int | None = None
    """How often `sample` is called, in event time."""
    transitions: int = 0
    """How often it has changed its mind."""

    @classmethod
    def over(cls, tree: Tree, series: Series, *, period_us: int, cost: Cost) -> Self:
        """One for all brokers of a tree; who learns something by link and series needs to know of them."""
        return cls()

    def answer(self, broker: int) -> bool | None:
        """What a broker answers to every offer until the next sample, if that is sure: None if it is not.

        Then whoever asks may do so later, before the next sample, for all offers at once.
        """
        return None

    def absorb(self, offer: Offer) -> Bools:
        """Of each edge, whether the publications go into the partial here."""
        raise NotImplementedError

    def sample(self, now_us: int) -> None:
        """A period has ended."""

    def next_sample_us(self, after_us: int) -> int:
        """The first end of a period after a time at which `sample` may change anything, if nothing is offered before.

        A placement that can tell saves whoever calls it from visiting every period in which nothing happens.
        """
        assert self.period_us is not None
        return (after_us // self.period_us + 1) * self.period_us

    def tables(self) -> dict[str, Ints]:
        """What it remembers by link and series, as arrays that whoever brings it back may fill."""
        return {}

    def saved(self) -> dict[str, Any]:
        """Give what else it remembers, in plain values that it never changes."""
        return {}

    def restore(self, saved: Mapping[str, Any], places: Ints) -> None:
        """Become what one was that gave this; `places` is where each series of then is now, or below zero."""


def sampled_until(placement: Placement, last_us: int, now_us: int) -> int:
    """Let a placement sample at the ends of periods since the last one, where that may matter; return the new last."""
    period_us = placement.period_us
    if period_us is None:
        return last_us
    begun_us = now_us // period_us * period_us
    if last_us == NEVER or begun_us <= last_us:
        return max(last_us, begun_us)
    while (next_us := placement.next_sample_us(last_us)) <= begun_us:
        placement.sample(next_us)
        last_us = next_us
    return max(last_us, begun_us)
