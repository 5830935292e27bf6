"""The deployment of the DEBS'14 paper's experiments (section 7.1)."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Debs14", "debs14_links"]


class Debs14(NamedTuple):
    """16 brokers: a chain of 4 core brokers with 3 edge brokers each."""

    links: tuple[tuple[str, str], ...]
    publishers: tuple[str, ...]
    """The 9 edge brokers with publishers."""
    subscribers: tuple[str, ...]
    """The 9 edge brokers with subscribers; 6 of them have publishers too."""


# The paper gives only the numbers: 3 edge brokers with publishers, 3 with subscribers, 6 with both. Here each core
# broker has as even a share of each kind as these numbers allow.
_EDGES = ("PSB", "PBB", "SBB", "PSB")


def debs14_links() -> Debs14:
    """The overlay's links, and which brokers have publishers and subscribers."""
    links = [(f"core{at}", f"core{at + 1}") for at in range(1, 4)]
    publishers, subscribers = [], []
    number = 0
    for core, kinds in enumerate(_EDGES, start=1):
        for kind in kinds:
            number += 1
            edge = f"edge{number:02}"
            links.append((f"core{core}", edge))
            if kind in "PB":
                publishers.append(edge)
            if kind in "SB":
                subscribers.append(edge)
    return Debs14(tuple(links), tuple(publishers), tuple(subscribers))
