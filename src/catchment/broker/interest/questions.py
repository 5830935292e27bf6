"""What a client asks about a topic, as it travels between brokers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import msgspec

from catchment.broker.interest.functions import FUNCTIONS, InterestFunction
from catchment.broker.interest.slack import UNSHARED
from catchment.model.coding import filter_from_plain, filter_to_plain
from catchment.model.errors import ConfigurationError, SubscriptionError
from catchment.model.filter import Filter
from catchment.model.schema import Schema

__all__ = ["InterestQuestion"]


@dataclass(frozen=True, slots=True)
class InterestQuestion:
    """A function, over the clients of a topic whose subscriptions overlap a filter."""

    function: str
    topic: str
    where: Filter | None
    """None is every subscription, and every publisher."""

    @classmethod
    def asked(cls, function: Any, topic: Any, where: Any, schemas: Mapping[str, Schema]) -> InterestQuestion:
        """What a client asks for in words; raises what is wrong with it."""
        if not isinstance(function, str) or function not in FUNCTIONS:
            raise ConfigurationError(f"unknown interest {function!r}; known are {', '.join(sorted(FUNCTIONS))}")
        if not isinstance(topic, str) or topic not in schemas:
            raise SubscriptionError(f"unknown topic {topic!r}; known are {', '.join(sorted(schemas))}")
        if where is None:
            return cls(function, topic, None)
        if FUNCTIONS[function].source == "publishers":
            raise ConfigurationError(f"{function} where {where!r}; accepted is a filter on subscriptions only")
        if not isinstance(where, str):
            raise ConfigurationError(f"where is {where!r}; accepted is a condition as text")
        return cls(function, topic, Filter.parse(where).within(schemas[topic].with_implicit()))

    @property
    def of(self) -> InterestFunction:
        return FUNCTIONS[self.function]

    @property
    def key(self) -> str:
        """Equal for equal questions, at every broker."""
        return blake2b(msgspec.msgpack.encode(self.plain), digest_size=8).hexdigest()

    @property
    def plain(self) -> list[Any]:
        return [self.function, self.topic, None if self.where is None else filter_to_plain(self.where)]

    @classmethod
    def from_plain(cls, plain: Any, schemas: Mapping[str, Schema]) -> InterestQuestion:
        """Read back what a neighbour has sent."""
        function, topic, where = plain
        question = cls.asked(function, topic, None, schemas)
        if where is None:
            return question
        return cls(function, topic, filter_from_plain(where).within(schemas[topic].with_implicit()))

    def slack(self, tolerance: Any) -> float:
        """What a client that tolerates so much grants; raises what is wrong with it."""
        none = self.of.combiner.sharing.none
        if tolerance is None:
            return none
        is_number = isinstance(tolerance, int | float) and not isinstance(tolerance, bool)
        if not is_number or not math.isfinite(tolerance) or tolerance < none:
            raise ConfigurationError(f"tolerance is {tolerance!r}; accepted is a number of at least {none:g}")
        if self.of.combiner.sharing is UNSHARED and tolerance > none:
            raise ConfigurationError(f"tolerance is {tolerance!r} of {self.function}, which is exact; accepted is 0")
        return float(tolerance)

    def concerns(self, where: Filter | None) -> bool:
        """Whether a subscription with this filter, or a publisher, counts."""
        return self.where is None or (where is not None and self.where.overlaps(where))
