"""A workload that reverses its trend whenever the strategy has adapted to it: section 8 of the paper.

A broker at one end of a chain publishes to subscribers at the other: in each period a single event that every
subscription wants, for which partials are dear, or many events that one of them wants, or some for each, for which they
are cheap. The adversary knows what the brokers have learned, and publishes what makes them send most beyond the need.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from catchment.model.window import WindowColumns
from catchment.overlay import Overlay, mask_of, topic_tree
from catchment.overlay.placement import Fold, Lots, Series, Strategy

__all__ = ["Reversed", "reversed_trend"]

OVERLAY = Overlay.from_links([("b1", "b2"), ("b2", "b3"), ("b3", "b4")])
PERIOD_US = 2_000_000
SUBSCRIPTIONS, MANY = 12, 40
TRENDS: Mapping[str, tuple[int, Sequence[Sequence[int]]]] = {
    "one for all": (1, [range(SUBSCRIPTIONS)]),
    "many for one": (MANY, [[0]]),
    "some for each": (MANY // SUBSCRIPTIONS, [[one] for one in range(SUBSCRIPTIONS)]),
}
"""How many events are in a lot, and which subscriptions want each lot."""
NEEDED: Mapping[str, int] = {"one for all": 1, "many for one": 1, "some for each": SUBSCRIPTIONS}
"""How many messages a link needs."""
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
    trends: list[str] = []
    for period in range(periods):
        fold.advance(period * PERIOD_US)
        trends.append(_worst_for(fold, period))
        fold.feed(_cell(period, trends[-1]))
    fold.finish()
    cells = [_cell(period, trend) for period, trend in enumerate(trends)]
    others = {other: Strategy(other).carried(tree, series, cells) for other in ("late", "early", "cover", "optimal")}
    sent = {other: one.publications.messages.sum() + one.partials.messages.sum() for other, one in others.items()}
    return Reversed(
        placement=name,
        messages=_sent(fold),
        reversals=sum(one != other for one, other in pairwise(trends)),
        **{other: int(count) for other, count in sent.items()},
    )


def _series() -> Series:
    """Of subscriptions that tumble with the periods; questions all differ, so strides have the same series."""
    many = np.full(SUBSCRIPTIONS, PERIOD_US, np.int64)
    brokers = np.tile(mask_of([OVERLAY.require("b4")], len(OVERLAY)), (SUBSCRIPTIONS, 1))
    sizes = np.full(SUBSCRIPTIONS, PARTIAL_BYTES, np.int64)
    return Series(brokers, WindowColumns(many, many), sizes, np.zeros(SUBSCRIPTIONS, np.bool_))


def _cell(period: int, trend: str) -> Lots:
    weight, wanted = TRENDS[trend]
    lots, edges = len(wanted), sum(map(len, wanted))
    return Lots(
        begin_us=period * PERIOD_US,
        origin=np.full(lots, OVERLAY.require("b1")),
        weights=np.full(lots, weight),
        size_bytes=np.full(lots, weight * EVENT_BYTES),
        raw_at=np.tile(mask_of([], len(OVERLAY)), (lots, 1)),
        lot=np.repeat(np.arange(lots), [len(one) for one in wanted]),
        series=np.array([number for one in wanted for number in one], np.int64),
        slices=np.full(edges, period),
    )


def _sent(fold: Fold) -> int:
    return int(fold.publications.messages.sum() + fold.partials.messages.sum())


def _worst_for(fold: Fold, period: int) -> str:
    """The trend that makes the fold send most in vain; it is tried on copies, which do not tell."""

    def wasted(trend: str) -> int:
        tried = deepcopy(fold)
        tried.feed(_cell(period, trend))
        tried.finish()
        return _sent(tried) - NEEDED[trend] * len(OVERLAY.links)

    return max(TRENDS, key=wasted)
