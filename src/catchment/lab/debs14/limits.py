"""What the paper's words are taken to mean in numbers, the same in every sentence."""

from __future__ import annotations

from catchment.lab.debs14.verdicts import Limits

__all__ = [
    "ABOUT",
    "ADAPTIVE",
    "CONSTANT",
    "FALLS",
    "FEWER",
    "LEAST_PERIODS",
    "LESS",
    "LINEAR",
    "MORE",
    "PAPER_SECONDS",
    "SIGNIFICANTLY_FEWER",
    "SIGNIFICANTLY_LOWER",
    "SIMILAR",
    "placement_named",
    "times_more",
]

ADAPTIVE = "ADAPTIVE"
"""Stands for the one of the two adaptive placements that a sentence is judged on."""
PAPER_SECONDS = 1000.0
"""How long the paper's runs are, to which its counts of transitions belong."""
LEAST_PERIODS = 4
"""How many sampling periods a run with real brokers needs before it shows what an adaptive placement does."""
ABOUT = 0.25
"""By which share a number that the paper gives may be missed."""

FEWER = Limits("fewer", high=1.0)
LESS = Limits("less", high=1.0)
MORE = Limits("more", low=1.0)
FALLS = Limits("decreases", high=1.0)
SIGNIFICANTLY_FEWER = Limits("significantly fewer", high=0.9)
SIGNIFICANTLY_LOWER = Limits("significantly lower", high=0.9)
SIMILAR = Limits("similar", low=0.9, high=1.1)
CONSTANT = Limits("constant", low=0.95, high=1.05)
LINEAR = Limits("linear, off the line", high=0.1)


def times_more(times: float) -> Limits:
    """So many times as many messages, give or take a quarter."""
    return Limits(f"{times:g} times, ± a quarter", low=times * (1 - ABOUT), high=times * (1 + ABOUT))


def placement_named(name: str, adaptive: str) -> str:
    """The placement that a sentence names."""
    return adaptive if name == ADAPTIVE else name
