"""Overlays to simulate: shapes by name, and those of the papers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise
from random import Random

import networkx as nx

from catchment.model.errors import ConfigurationError
from catchment.overlay import Overlay

__all__ = ["ASIA_FIGURE_2", "DEBS14", "SHAPES", "overlay_of"]


def _names(graph: nx.Graph) -> Overlay:
    width = len(str(len(graph)))
    names = {node: f"b{number:0{width}d}" for number, node in enumerate(sorted(graph), 1)}
    if len(graph) == 1:
        return Overlay.single(*names.values())
    return Overlay.from_links((names[one], names[other]) for one, other in graph.edges)


def _regular(size: int, random: Random) -> nx.Graph:
    degree = min(3 if size % 2 == 0 else 4, size - 1)
    if size * degree % 2:
        degree -= 1
    while True:
        graph = nx.random_regular_graph(max(degree, 1), size, seed=random.randrange(2**32))
        if nx.is_connected(graph):
            return graph


SHAPES: Mapping[str, Callable[[int, Random], nx.Graph]] = {
    "chain": lambda size, random: nx.path_graph(size),
    "star": lambda size, random: nx.star_graph(size - 1),
    "random tree": lambda size, random: nx.random_labeled_tree(size, seed=random.randrange(2**32)),
    "random regular": lambda size, random: _regular(size, random) if size > 2 else nx.path_graph(size),
    "power law": lambda size, random: (
        nx.barabasi_albert_graph(size, 2, seed=random.randrange(2**32)) if size > 2 else nx.path_graph(size)
    ),
}

ASIA_FIGURE_2 = Overlay.from_links([("b1", "b4"), ("b3", "b4"), ("b2", "b4"), ("b2", "b5")])

_CORE = [f"core{number}" for number in range(1, 5)]
DEBS14 = Overlay.from_links(
    [
        *pairwise(_CORE),
        *((_CORE[(number - 1) // 3], f"edge{number:02d}") for number in range(1, 13)),
    ]
)
"""Four core brokers in a chain, with three edge brokers each."""


def overlay_of(shape: str, size: int, random: Random) -> Overlay:
    """An overlay of a shape; brokers are named b1, b2, …"""
    if shape not in SHAPES:
        raise ConfigurationError(f"shape is {shape!r}; accepted are {', '.join(SHAPES)}")
    if size < 1:
        raise ConfigurationError(f"an overlay has {size} brokers; accepted are 1 or more")
    return _names(SHAPES[shape](size, random))
