"""The path rule: shortest, unique, symmetric, and the same whatever the history of the overlay."""

from __future__ import annotations

import pickle
from itertools import pairwise
from random import Random

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catchment.model.errors import OverlayError
from catchment.overlay import Overlay, Tree, broker_hash, mask_of, shortest_paths, topic_tree, tree_from
from tests.overlay.overlays import overlays


def graph_of(overlay: Overlay) -> nx.Graph:
    graph = nx.Graph()
    graph.add_nodes_from(overlay.brokers)
    graph.add_edges_from(overlay.links)
    return graph


def cost(names: list[str]) -> tuple[int, int]:
    return len(names) - 1, sum(broker_hash(u) + broker_hash(v) for u, v in pairwise(names))


def links(text: str) -> Overlay:
    """As the notes on the papers write them: "01 02" are the links 0-1 and 0-2."""
    return Overlay.from_links([(pair[0], pair[1]) for pair in text.split()])


def test_the_hash_is_pinned() -> None:
    # Brokers of different versions must agree on every tree: this value may never change.
    assert broker_hash("b1") == 0x992E9A7E321EFCDA
    assert broker_hash("b1") != broker_hash("b2")


@settings(deadline=None)
@given(overlays())
def test_paths_are_the_cheapest_of_all(overlay: Overlay) -> None:
    paths, graph = shortest_paths(overlay), graph_of(overlay)
    for a, source in enumerate(overlay.brokers):
        for b, target in enumerate(overlay.brokers):
            got = [overlay.brokers[index] for index in paths.path(a, b)]
            assert got == min(nx.all_shortest_paths(graph, source, target), key=cost)
            assert paths.distance[a, b] == len(got) - 1


@settings(deadline=None)
@given(overlays())
def test_paths_are_symmetric(overlay: Overlay) -> None:
    paths = shortest_paths(overlay)
    assert (paths.distance == paths.distance.T).all()
    for a in range(len(overlay)):
        for b in range(a):
            assert paths.path(a, b) == paths.path(b, a)[::-1]


@settings(deadline=None)
@given(overlays(), st.randoms())
def test_the_order_of_links_does_not_matter(overlay: Overlay, random: Random) -> None:
    shuffled = [link[::-1] for link in overlay.links]
    random.shuffle(shuffled)
    if shuffled:
        again = Overlay.from_links(shuffled)
        assert (shortest_paths(again).predecessor == shortest_paths(overlay).predecessor).all()
        assert topic_tree(again) == topic_tree(overlay)


@settings(deadline=None)
@given(overlays())
def test_per_source_trees_are_the_rows_of_the_matrix(overlay: Overlay) -> None:
    paths = shortest_paths(overlay)
    for index, broker in enumerate(overlay.brokers):
        tree = tree_from(overlay, broker)
        assert tree.root == index
        assert tree.parent == tuple(paths.predecessor[index])
        for other in range(len(overlay)):
            assert tree.path(index, other) == paths.path(index, other)


@pytest.mark.parametrize(
    "text", ["01 02 03 14 24", "01 03 04 12 23", "01 02 13 16 25 34 46 56", "01 02 03 04 12 14 23"]
)
def test_overlays_that_break_other_tie_breaks(text: str) -> None:
    # HSIENA 3.3 leaves ties open; with "smallest id" 3→4 went 3-0-2-4 and 4→3 went 4-1-0-3.
    overlay = links(text)
    paths = shortest_paths(overlay)
    for a in range(len(overlay)):
        for b in range(len(overlay)):
            assert paths.path(a, b) == paths.path(b, a)[::-1]
    assert (paths.distance == nx.floyd_warshall_numpy(graph_of(overlay), overlay.brokers)).all()


def test_sums_of_hashes_do_not_wrap() -> None:
    # A ladder of 60 rungs: path costs pass 2^64 many times over, and every rung is a tie to break.
    ladder = Overlay.from_links(
        [(f"{side}{rung:02}", f"{side}{rung + 1:02}") for side in "xy" for rung in range(60)]
        + [(f"x{rung:02}", f"y{rung:02}") for rung in range(61)]
    )
    graph, paths = graph_of(ladder), shortest_paths(ladder)
    for u, v in graph.edges:
        graph.edges[u, v]["cost"] = (1 << 200) + broker_hash(u) + broker_hash(v)
    for source, target in (("x00", "y60"), ("y07", "x55")):
        a, b = ladder.require(source), ladder.require(target)
        want = nx.dijkstra_path(graph, source, target, weight="cost")
        assert [ladder.brokers[index] for index in paths.path(a, b)] == want


@settings(deadline=None)
@given(overlays())
def test_the_topic_tree_is_rooted_at_the_smallest_id_and_spans(overlay: Overlay) -> None:
    tree = topic_tree(overlay)
    assert tree.brokers[tree.root] == min(overlay.brokers)
    grown = nx.Graph(tree.link_names)
    grown.add_nodes_from(overlay.brokers)
    assert nx.is_tree(grown)
    assert {tuple(sorted(link)) for link in tree.link_names} <= set(overlay.links)
    for a in range(len(overlay)):
        for b in range(len(overlay)):
            want = nx.shortest_path(grown, overlay.brokers[a], overlay.brokers[b])
            assert [overlay.brokers[index] for index in tree.path(a, b)] == want


@settings(deadline=None)
@given(overlays())
def test_beyond_a_link_are_those_who_are_cut_off_without_it(overlay: Overlay) -> None:
    tree = topic_tree(overlay)
    assert tree.links == tuple(sorted(tree.links))
    assert len(tree.links) == 2 * (len(overlay) - 1)
    for (source, target), beyond in zip(tree.links, tree.beyond, strict=True):
        cut = nx.Graph(tree.links)
        cut.remove_edge(source, target)
        assert (beyond == mask_of(nx.node_connected_component(cut, target), len(overlay))).all()


def test_masks_reach_past_64_brokers() -> None:
    tree = topic_tree(Overlay.from_links([(f"{index:03}", f"{index + 1:03}") for index in range(129)]))
    assert tree.beyond.shape == (258, 3)
    assert (tree.beyond[tree.links.index((63, 64))] == mask_of(range(64, 130), 130)).all()
    assert (tree.beyond[tree.links.index((128, 127))] == mask_of(range(128), 130)).all()


def test_a_tree_is_frozen_and_travels_by_pickle() -> None:
    tree = topic_tree(links("01 02 03 14 24"))
    copy = pickle.loads(pickle.dumps(tree))
    assert copy == tree
    assert (copy.beyond == tree.beyond).all()
    for value in (tree, copy):
        with pytest.raises(ValueError, match="read-only"):
            value.beyond[0] = 0


@pytest.mark.parametrize("parent", [(0, 1), (1, 0), (0, 2, 1)])
def test_parents_that_make_no_tree_are_refused(parent: tuple[int, ...]) -> None:
    with pytest.raises(OverlayError, match="no tree"):
        Tree(tuple("abc"[: len(parent)]), parent)


def test_a_broker_out_of_range_is_no_set() -> None:
    with pytest.raises(OverlayError, match=r"accepted is 0\.\.2"):
        mask_of([0, 3], 3)
    assert mask_of([], 3).tolist() == [0]
    assert mask_of(np.array([1, 1, 2]), 3).tolist() == [6]
