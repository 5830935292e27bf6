"""A workload that reverses its trend whenever the strategy has adapted to it: section 8 of the paper.

A broker at one end of a chain publishes to subscribers at the other: in each period a single event that every
subscription wants, for which partials are dear, or many events that only one of them wants, for which they are cheap.
The adversary knows what the brokers have learned, and publishes what makes them send more.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from catchment.overlay import Overlay, mask_of, topic_tree
from catchment.overlay.placement import Fold, Lots, Series, Strategy

__all__ = ["Reversed", "reversed_trend"]

OVERLAY = Overlay.from_links([("b1", "b2"), ("b2", "b3"), ("b3", "b4")])
PERIOD_US = 2_000_000
SUBSCRIPTIONS, MANY = 12, 40
EVENT_BYTES, PARTIAL_BYTES = 100, 48


@dataclass(frozen=True, slots=True)
class Reversed:
    """What the adversary made a placement send, and what others would have sent of the same events."""

    placement: str
    messages: int
    late: int
    early: int
    cover: int
    optimal: int
    reversals: int
    """How often the trend was reversed."""


def reversed_trend(name: str, periods: int = 200) -> Reversed:
    """Play against a placement for so many sampling periods."""
    tree, series = topic_tree(OVERLAY), _series()
    fold = Fold(tree, Strategy(name, PERIOD_US).make(tree, series), series)
    cells: list[Lots] = []
    for period in range(periods):
        fold.advance(period * PERIOD_US)
        cells.append(_worst_for(fold, period))
        fold.feed(cells[-1])
    fold.finish()
    others = {other: Strategy(other).carried(tree, series, cells) for other in ("late", "early", "cover", "optimal")}
    sent = {other: one.publications.messages.sum() + one.partials.messages.sum() for other, one in others.items()}
    return Reversed(
        placement=name,
        messages=_sent(fold),
        reversals=sum(len(one.lot) != len(other.lot) for one, other in pairwise(cells)),
        **{other: int(count) for other, count in sent.items()},
    )


def _series() -> Series:
    """Of subscriptions that tumble with the periods; questions all differ, so strides have the same series."""
    many = np.full(SUBSCRIPTIONS, PERIOD_US, np.int64)
    brokers = np.tile(mask_of([OVERLAY.require("b4")], len(OVERLAY)), (SUBSCRIPTIONS, 1))
    sizes = np.full(SUBSCRIPTIONS, PARTIAL_BYTES, np.int64)
    return Series(brokers, many, many, sizes, np.zeros(SUBSCRIPTIONS, np.bool_))


def _cell(period: int, *, many: bool) -> Lots:
    weight, wanted = (MANY, 1) if many else (1, SUBSCRIPTIONS)
    return Lots(
        begin_us=period * PERIOD_US,
        origin=np.array([OVERLAY.require("b1")]),
        weights=np.array([weight]),
        size_bytes=np.array([weight * EVENT_BYTES]),
        raw_at=mask_of([], len(OVERLAY))[None, :],
        lot=np.zeros(wanted, np.int64),
        series=np.arange(wanted),
        slices=np.full(wanted, period),
    )


def _sent(fold: Fold) -> int:
    return int(fold.publications.messages.sum() + fold.partials.messages.sum())


def _worst_for(fold: Fold, period: int) -> Lots:
    """The cell that makes the fold send most; it is tried on copies, which do not tell."""

    def costs(cell: Lots) -> int:
        tried = deepcopy(fold)
        tried.feed(cell)
        tried.finish()
        return _sent(tried)

    return max((_cell(period, many=many) for many in (True, False)), key=costs)
