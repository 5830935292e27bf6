"""The cheapest cover is one, and no other is cheaper; it depends on the graph alone."""

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from catchment.overlay.placement.covers import minimum_cover

Graph = tuple[list[tuple[int, int]], list[int], list[int]]


@st.composite
def graphs(draw: st.DrawFn, *, side_max: int = 6, weight_max: int = 4) -> Graph:
    left, right = draw(st.integers(1, side_max)), draw(st.integers(1, side_max))
    edges = draw(st.sets(st.tuples(st.integers(0, left - 1), st.integers(0, right - 1)), max_size=left * right))
    weights = draw(st.lists(st.integers(1, weight_max), min_size=left, max_size=left))
    others = draw(st.lists(st.integers(0, weight_max), min_size=right, max_size=right))
    return draw(st.permutations(sorted(edges))), weights, others


def covered(graph: Graph) -> tuple[list[bool], list[bool]]:
    edges, weights, others = graph
    left, right = (np.array([edge[at] for edge in edges], np.int64) for at in range(2))
    publications, partials = minimum_cover(left, right, np.array(weights), np.array(others))
    return publications.tolist(), partials.tolist()


def cost(graph: Graph, publications: list[bool], partials: list[bool]) -> int:
    _, weights, others = graph
    return sum(itertools.compress(weights, publications)) + sum(itertools.compress(others, partials))


@given(graphs())
def test_no_cover_is_cheaper(graph: Graph) -> None:
    edges, weights, others = graph
    publications, partials = covered(graph)
    assert all(publications[left] or partials[right] for left, right in edges)
    cheapest = min(
        cost(
            graph,
            list(chosen),
            [any(r == right and not chosen[left] for left, r in edges) for right in range(len(others))],
        )
        for chosen in itertools.product([False, True], repeat=len(weights))
    )
    assert cost(graph, publications, partials) == cheapest


@given(graphs(), st.randoms())
def test_the_order_of_edges_does_not_matter(graph: Graph, random: object) -> None:
    edges, weights, others = graph
    shuffled = list(edges)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert covered(graph) == covered((shuffled, weights, others))


@given(graphs(weight_max=3))
def test_alike_publications_may_stand_together(graph: Graph) -> None:
    edges, weights, others = graph
    firsts = np.cumsum([0, *weights]).tolist()
    apart = [(firsts[left] + copy, right) for left, right in edges for copy in range(weights[left])]
    publications, partials = covered((apart, [1] * firsts[-1], others))
    together = covered(graph)
    assert partials == together[1]
    assert publications == [chosen for chosen, weight in zip(together[0], weights, strict=True) for _ in range(weight)]


@given(graphs())
def test_whoever_has_no_edge_stays(graph: Graph) -> None:
    edges, _, _ = graph
    publications, partials = covered(graph)
    assert not any(chosen for at, chosen in enumerate(publications) if at not in {left for left, _ in edges})
    assert not any(chosen for at, chosen in enumerate(partials) if at not in {right for _, right in edges})


def test_equal_costs_are_paid_for_publications() -> None:
    assert covered(([(0, 0)], [1], [1])) == ([True], [False])
    assert covered(([(0, 0), (1, 0)], [1, 1], [1])) == ([False, False], [True])
    assert covered(([(0, 0), (0, 1), (0, 2)], [1], [1, 1, 1])) == ([True], [False, False, False])
