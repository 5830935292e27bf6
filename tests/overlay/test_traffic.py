"""Traffic by masks equals traffic by walking, message by message."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catchment.model.errors import OverlayError
from catchment.overlay import (
    CLIENTS,
    LinkCounts,
    Overlay,
    Tree,
    count_notifications,
    count_partials,
    count_publications,
    mask_of,
    masks_of,
    topic_tree,
    traffic,
    traffic_table,
)
from tests.overlay.overlays import overlays

Row = tuple[int, list[int], int, int]


def walked_publications(tree: Tree, rows: list[Row]) -> dict[tuple[int, int], tuple[int, int]]:
    """Every publication walks to each destination, and leaves one message on each link it sets foot on."""
    messages: Counter[tuple[int, int]] = Counter()
    sizes: Counter[tuple[int, int]] = Counter()
    for origin, destinations, count, size in rows:
        for link in {link for end in destinations for link in pairwise(tree.path(origin, end))}:
            messages[link] += count
            sizes[link] += size
    return {link: (messages[link], sizes[link]) for link in messages}


def walked_partials(tree: Tree, rows: list[Row]) -> dict[tuple[int, int], tuple[int, int]]:
    """Every origin's partial walks to the target; those that meet at a broker go on as one."""
    messages: Counter[tuple[int, int]] = Counter()
    sizes: Counter[tuple[int, int]] = Counter()
    for target, origins, count, size in rows:
        for link in {link for start in origins for link in pairwise(tree.path(start, target))}:
            messages[link] += count
            sizes[link] += size
    return {link: (messages[link], sizes[link]) for link in messages}


def columns(tree: Tree, rows: list[Row]) -> tuple[np.ndarray, ...]:
    brokers = len(tree.brokers)
    pairs = [(index, broker) for index, row in enumerate(rows) for broker in row[1]]
    row, broker = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    masks = masks_of(row, broker, row_count=len(rows), broker_count=brokers)
    ends, messages, sizes = (np.array([row[at] for row in rows], dtype=np.int64) for at in (0, 2, 3))
    return ends, masks, messages, sizes


def by_link(tree: Tree, counts: LinkCounts) -> dict[tuple[int, int], tuple[int, int]]:
    pairs = zip(tree.links, zip(counts.messages.tolist(), counts.bytes.tolist(), strict=True), strict=True)
    return {link: pair for link, pair in pairs if pair[0]}


@st.composite
def trees_and_rows(draw: st.DrawFn) -> tuple[Tree, list[Row]]:
    tree = topic_tree(draw(overlays(brokers_max=20)))
    broker = st.integers(0, len(tree.brokers) - 1)
    row = st.tuples(broker, st.lists(broker, max_size=6), st.integers(1, 50), st.integers(0, 1 << 50))
    return tree, draw(st.lists(row, max_size=25))


@settings(deadline=None)
@given(trees_and_rows(), st.sampled_from([1, 40, 1 << 20]))
def test_masks_count_what_walking_counts(case: tuple[Tree, list[Row]], cells: int) -> None:
    tree, rows = case
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(traffic, "_CHUNK_CELLS", cells)
        assert by_link(tree, count_publications(tree, *columns(tree, rows))) == walked_publications(tree, rows)
        assert by_link(tree, count_partials(tree, *columns(tree, rows))) == walked_partials(tree, rows)


def test_more_than_64_brokers() -> None:
    random = np.random.default_rng(7)
    tree = topic_tree(
        Overlay.from_links([(f"{index:03}", f"{random.integers(0, index):03}") for index in range(1, 200)])
    )
    rows: list[Row] = [
        (int(random.integers(200)), random.integers(0, 200, random.integers(0, 9)).tolist(), index, index * 100)
        for index in range(1, 300)
    ]
    assert by_link(tree, count_publications(tree, *columns(tree, rows))) == walked_publications(tree, rows)
    assert by_link(tree, count_partials(tree, *columns(tree, rows))) == walked_partials(tree, rows)


def test_example_7_of_the_aggregation_paper() -> None:
    # Publishers at B1 and B2 with two publications each, the subscriber at B4, all through B3: 8 messages become 3.
    overlay = Overlay.from_links([("B1", "B3"), ("B2", "B3"), ("B3", "B4")])
    tree = topic_tree(overlay)
    b1, b2, _, b4 = range(4)
    ends = np.array([b1, b2])
    both, weights = np.stack([mask_of([b4], 4)] * 2), np.array([2, 2])

    late = traffic_table(tree, publications=count_publications(tree, ends, both, weights, 20 * weights))
    assert late.to_pylist() == [
        {"source": "B1", "target": "B3", "kind": "publication", "messages": 2, "bytes": 40},
        {"source": "B2", "target": "B3", "kind": "publication", "messages": 2, "bytes": 40},
        {"source": "B3", "target": "B4", "kind": "publication", "messages": 4, "bytes": 80},
    ]
    early = traffic_table(
        tree,
        publications=count_publications(tree, ends, np.zeros_like(both), weights, 20 * weights),
        partials=count_partials(tree, np.array([b4]), mask_of([b1, b2], 4)[None], np.array([1]), np.array([16])),
        notifications=count_notifications(tree, np.array([b4]), np.array([1]), np.array([8])),
    )
    assert early.to_pylist() == [
        {"source": "B1", "target": "B3", "kind": "partial", "messages": 1, "bytes": 16},
        {"source": "B2", "target": "B3", "kind": "partial", "messages": 1, "bytes": 16},
        {"source": "B3", "target": "B4", "kind": "partial", "messages": 1, "bytes": 16},
        {"source": "B4", "target": CLIENTS, "kind": "notification", "messages": 1, "bytes": 8},
    ]


def test_one_publication_crosses_a_link_once_for_all_who_want_it_behind() -> None:
    tree = topic_tree(Overlay.from_links([("a", "m"), ("m", "x"), ("m", "y")]))
    counts = count_publications(tree, np.array([0]), mask_of([2, 3], 4)[None], np.array([1]), np.array([5]))
    assert by_link(tree, counts) == {(0, 1): (1, 5), (1, 2): (1, 5), (1, 3): (1, 5)}


def test_what_stays_at_its_broker_crosses_nothing() -> None:
    tree = topic_tree(Overlay.from_links([("a", "b")]))
    own = (np.array([1]), mask_of([1], 2)[None], np.array([9]), np.array([9]))
    assert (
        traffic_table(tree, publications=count_publications(tree, *own), partials=count_partials(tree, *own)).num_rows
        == 0
    )
    alone = topic_tree(Overlay.single("a"))
    one = (np.array([0]), mask_of([0], 1)[None], np.array([9]), np.array([9]))
    assert traffic_table(alone, publications=count_publications(alone, *one)).num_rows == 0


def test_counts_add_up_over_batches_and_do_not_round() -> None:
    tree = topic_tree(Overlay.from_links([("a", "b")]))
    huge = (1 << 53) + 1
    batch = (np.array([0]), mask_of([1], 2)[None], np.array([1]), np.array([huge]))
    total = count_publications(tree, *batch) + count_publications(tree, *batch)
    assert total.bytes.tolist() == [2 * huge, 0]
    twice = count_notifications(tree, np.array([1, 1]), np.array([2, 3]), np.array([1, 1]))
    assert (twice + twice).messages.tolist() == [0, 10]


def test_columns_that_do_not_fit_are_refused() -> None:
    tree = topic_tree(Overlay.from_links([("a", "b")]))
    one, sets = np.array([1]), mask_of([1], 2)[None]
    with pytest.raises(OverlayError, match="equally long"):
        count_publications(tree, one, sets, np.array([1, 2]), one)
    with pytest.raises(OverlayError, match=r"uint64 of shape \(1, 1\)"):
        count_publications(tree, one, mask_of([1], 65)[None], one, one)
    with pytest.raises(OverlayError, match=r"accepted is 0\.\.1"):
        count_partials(tree, np.array([2]), sets, one, one)
