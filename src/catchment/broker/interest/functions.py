"""What can be asked about the clients of a topic: one row of a table each.

An interest function takes a contribution of every subscription or publisher, and merges contributions in any order.
States are plain values, as they travel; sets are sorted lists.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from catchment.broker.interest.slack import ADDED, MULTIPLIED, UNSHARED, WHOLE, Sharing

__all__ = ["COMBINERS", "FUNCTIONS", "Combiner", "InterestFunction", "Source"]

Source = Literal["subscriptions", "publishers"]


@dataclass(frozen=True, slots=True)
class Combiner:
    """An associative and commutative way to put states together; `nothing` is the state of no contribution."""

    nothing: Any
    merge: Callable[[Any, Any], Any]
    distance: Callable[[Any, Any], float]
    sharing: Sharing
    is_whole: bool = False
    """Whether distances are whole numbers."""
    finish: Callable[[Any], Any] = lambda state: state


def _difference(one: float, other: float) -> float:
    return abs(one - other)


def _ratio(one: float, other: float) -> float:
    if one == other:
        return 1.0
    return max(one / other, other / one) if one * other > 0 else math.inf


def _apart(one: list[Any], other: list[Any]) -> float:
    return float(len(set(one) ^ set(other)))


def _bits_apart(one: int, other: int) -> float:
    return float((one ^ other).bit_count())


def _of_something(distance: Callable[[Any, Any], float]) -> Callable[[Any, Any], float]:
    """Between nothing and anything there is no bound."""
    return lambda one, other: (
        (0.0 if one is other else math.inf) if one is None or other is None else distance(one, other)
    )


def _chosen(choose: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Of two states of which one may be nothing."""
    return lambda one, other: other if one is None else one if other is None else choose(one, other)


COMBINERS: Mapping[str, Combiner] = {
    "count": Combiner(0, lambda a, b: a + b, _difference, ADDED, is_whole=True),
    "sum": Combiner(0.0, lambda a, b: a + b, _difference, ADDED),
    "min": Combiner(None, _chosen(min), _of_something(_difference), WHOLE),
    "max": Combiner(None, _chosen(max), _of_something(_difference), WHOLE),
    "product": Combiner(1.0, lambda a, b: a * b, _ratio, MULTIPLIED),
    "union": Combiner([], lambda a, b: sorted({*a, *b}), _apart, ADDED, is_whole=True),
    "intersection": Combiner(
        None, _chosen(lambda a, b: sorted({*a} & {*b})), _of_something(_apart), ADDED, is_whole=True
    ),
    "bit_or": Combiner(0, lambda a, b: a | b, _bits_apart, ADDED, is_whole=True),
    "bit_and": Combiner(None, _chosen(lambda a, b: a & b), _of_something(_bits_apart), ADDED, is_whole=True),
    "bit_xor": Combiner(0, lambda a, b: a ^ b, _bits_apart, ADDED, is_whole=True),
    "mean": Combiner(
        [0.0, 0], lambda a, b: [a[0] + b[0], a[1] + b[1]], lambda a, b: 0.0 if a == b else math.inf, UNSHARED,
        finish=lambda state: state[0] / state[1] if state[1] else None,
    ),
}  # fmt: skip
"""Ways to put contributions together. What is an extreme or an intersection of nothing is nothing (null)."""


@dataclass(frozen=True, slots=True)
class InterestFunction:
    """What is asked: of which clients, what each of them contributes, and how that is put together."""

    source: Source
    combiner: Combiner
    contribution: Callable[[str], Any]
    """Of a subscription or a publisher, given the client's full name: its broker, a slash, and its name."""
    names_clients: bool = False
    """Whether the value names clients, which not everybody may see."""


FUNCTIONS: Mapping[str, InterestFunction] = {
    "subscriptions": InterestFunction("subscriptions", COMBINERS["count"], lambda client: 1),
    "publishers": InterestFunction("publishers", COMBINERS["count"], lambda client: 1),
    "subscribers": InterestFunction("subscriptions", COMBINERS["union"], lambda client: [client], names_clients=True),
}
