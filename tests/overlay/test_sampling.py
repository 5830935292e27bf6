"""Placements that learn are sampled only where that may change them: the outcome is that of sampling every period."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from catchment.lab.debs14.described import DescribedAdaptive
from catchment.model.window import WindowColumns
from catchment.overlay import Overlay, topic_tree, word_count
from catchment.overlay.placement import Adaptive, Coordinated, Offer, Placement, Selective, Series
from catchment.overlay.placement.offers import NEVER, sampled_until

TREE = topic_tree(Overlay.from_links([("a", "b"), ("b", "c")]))
SECOND_US = 1_000_000
PERIOD_US = 2 * SECOND_US
LEARNERS = [Adaptive, DescribedAdaptive, Selective, Coordinated]


def series_of(windows: list[tuple[int, int]], collects: list[bool]) -> Series:
    everywhere = np.full((len(windows), word_count(len(TREE.brokers))), 0b111, np.uint64)
    sizes, shifts = (np.array(column, np.int64) * SECOND_US for column in zip(*windows, strict=True))
    return Series(everywhere, WindowColumns(sizes, shifts), np.full(len(windows), 40, np.int64), np.array(collects))


def offer_at(series: Series, time_us: int, link: int, wanted: list[int], weight: int, must: bool) -> Offer:
    """One lot of publications, wanted in some series."""
    columns = np.array(wanted, np.int64)
    slices = series.windows[columns].slice_of(np.asarray(time_us))
    edges = np.arange(len(columns))
    nothing = np.zeros(len(columns), np.bool_)
    lots = (np.array([weight]), np.array([weight * 50]), np.array([must]))
    return Offer(TREE.links[link][0], link, *lots, np.zeros_like(edges), edges, columns, slices, nothing)


def learned(placement: Any) -> dict[str, Any]:
    return {"facts": placement.saved(), **{name: table.tolist() for name, table in placement.tables().items()}}


@st.composite
def stories(draw: st.DrawFn) -> tuple[Series, list[Any]]:
    count = draw(st.integers(1, 4))
    windows = draw(st.lists(st.tuples(st.integers(1, 40), st.integers(1, 20)), min_size=count, max_size=count))
    collects = draw(st.lists(st.booleans(), min_size=count, max_size=count))
    wanted = st.lists(st.integers(0, count - 1), min_size=1, max_size=count, unique=True).map(sorted)
    gaps = st.one_of(st.integers(0, 3), st.integers(0, 200))
    happening = st.tuples(gaps, st.integers(0, len(TREE.links) - 1), wanted, st.integers(1, 9), st.booleans())
    return series_of(windows, collects), draw(st.lists(happening, max_size=25))


@pytest.mark.parametrize("learner", LEARNERS)
@given(story=stories())
def test_skipping_periods_changes_nothing(learner: Callable[..., Any], story: tuple[Series, list[Any]]) -> None:
    series, happenings = story
    skipping, visiting = (learner.over(TREE, series, period_us=PERIOD_US) for _ in range(2))  # type: ignore[attr-defined]
    visiting.next_sample_us = lambda after_us: Placement.next_sample_us(visiting, after_us)
    now_us, last_us = 0, {skipping: NEVER, visiting: NEVER}
    for gap, link, wanted, weight, must in happenings:
        now_us += gap * SECOND_US
        for one in (skipping, visiting):
            last_us[one] = sampled_until(one, last_us[one], now_us)
            one.absorb(offer_at(series, now_us, link, wanted, weight, must))
        assert learned(skipping) == learned(visiting)
        assert last_us[skipping] == last_us[visiting]


@pytest.mark.parametrize("learner", LEARNERS)
def test_a_year_of_daily_events_takes_few_samples(learner: Callable[..., Any]) -> None:
    day = 86_400
    series = series_of([(30 * day, 7 * day)], [False])
    placement = learner.over(TREE, series, period_us=PERIOD_US)  # type: ignore[attr-defined]
    samples: list[int] = []
    sample = placement.sample
    placement.sample = lambda now_us: (samples.append(now_us), sample(now_us))
    last_us = NEVER
    for number in range(365):
        last_us = sampled_until(placement, last_us, number * day * SECOND_US)
        placement.absorb(offer_at(series, number * day * SECOND_US, 0, [0], 1, must=False))
    assert len(samples) <= 365 + 365 // 7
