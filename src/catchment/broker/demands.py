"""What a peer wants of a topic, as SUB carries it: the filter of regular subscriptions, or a question with its parts.

Rule 1: regular and aggregate subscriptions travel by the same message and meet in the same tables.
Rule 2: a filter may cover filters. A question covers nothing, and nothing covers it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import msgspec

from catchment.model.coding import filter_from_plain, filter_to_plain
from catchment.model.errors import SubscriptionError
from catchment.model.filter import Filter
from catchment.model.schema import Schema, Type
from catchment.model.subscription import Query
from catchment.model.window import Window
from catchment.stages import Layout, Part, Question, part_of

__all__ = [
    "AskedQuestion",
    "Demand",
    "demand_from_plain",
    "demand_to_plain",
    "in_order",
    "require_fitting",
    "where_of",
]


@dataclass(frozen=True, slots=True)
class AskedQuestion:
    """A question, and the parts that are asked of it: as much of aggregate subscriptions as brokers on the way need."""

    where: Filter
    layout: Layout
    parts: tuple[Part, ...]
    """In the order of their ids."""
    subscription: str = ""
    """Whose it is alone, if partials are not shared."""

    @classmethod
    def of(cls, query: Query, schema: Schema, subscription: str = "") -> AskedQuestion:
        """What a query asks of events of a schema."""
        assert query.aggregate is not None
        wanted = query.aggregate
        parts = in_order_of_ids(part_of(measure, schema) for measure in wanted.measures)
        return cls(query.where, Layout(wanted.window, wanted.group_keys), parts, subscription)

    @property
    def question(self) -> AskedQuestion:
        """The same without parts: equal for all who ask the same question."""
        return replace(self, parts=())

    def with_parts(self, parts: Iterable[Part]) -> AskedQuestion:
        return replace(self, parts=in_order_of_ids(parts))

    def planned(self, topic: str, schema: Schema) -> Question:
        """The question as the stages know it, without parts."""
        key_types = tuple(schema[key] for key in self.layout.group_keys)
        return Question(topic, self.where, self.layout, key_types, [], [], self.subscription)

    @property
    def order(self) -> tuple[object, ...]:
        return self.where.order, self.layout, self.subscription, tuple(part.id for part in self.parts)

    def __str__(self) -> str:
        asked = ", ".join(sorted(f"{part.state} of {part.attribute or '*'}" for part in self.parts))
        window, keys = self.layout.window, self.layout.group_keys
        by = f" by {', '.join(keys)}" if keys else ""
        whose = f" for {self.subscription}" if self.subscription else ""
        return f"{asked} where {self.where} over {window.size_us}us every {window.shift_us}us{by}{whose}"


Demand = Filter | AskedQuestion
_AnyDemand = TypeVar("_AnyDemand", bound=Demand)
_Parts = list[tuple[str, str | None, Type]]
_PlainQuestion = tuple[Any, tuple[int, int], tuple[str, ...], _Parts, str]


def in_order_of_ids(parts: Iterable[Part]) -> tuple[Part, ...]:
    return tuple(sorted(set(parts), key=lambda part: part.id))


def in_order(demands: Iterable[_AnyDemand]) -> tuple[_AnyDemand, ...]:
    """Sort in a canonical order, which does not depend on the order of insertion: filters before questions."""
    return tuple(sorted(demands, key=lambda one: (isinstance(one, AskedQuestion), one.order)))


def where_of(demand: Demand) -> Filter:
    """The events that a demand is about."""
    return demand.where if isinstance(demand, AskedQuestion) else demand


def require_fitting(demand: Demand, schema: Schema) -> None:
    """Raise if a demand makes no sense for events of a schema."""
    where_of(demand).within(schema)
    if isinstance(demand, AskedQuestion):
        measured = (part.attribute for part in demand.parts if part.attribute is not None)
        for attribute in (*demand.layout.group_keys, *measured):
            if attribute not in schema:
                raise SubscriptionError(f"there is no attribute {attribute!r}; there are {', '.join(sorted(schema))}")


def demand_to_plain(demand: Demand) -> list[Any]:
    """A filter as a list of one, a question as a list of five."""
    if not isinstance(demand, AskedQuestion):
        return [filter_to_plain(demand)]
    window = demand.layout.window
    parts = [[part.state, part.attribute, part.kind.value] for part in demand.parts]
    sizes = [window.size_us, window.shift_us]
    return [filter_to_plain(demand.where), sizes, demand.layout.group_keys, parts, demand.subscription]


def demand_from_plain(plain: Any) -> Demand:
    """The demand that `demand_to_plain` was given; anything else raises."""
    if not isinstance(plain, (list, tuple)) or len(plain) not in (1, 5):
        raise SubscriptionError("a demand is no list of a filter, or of the five fields of a question")
    if len(plain) == 1:
        return filter_from_plain(plain[0])
    where, sizes, group_keys, parts, subscription = msgspec.convert(plain, _PlainQuestion)
    found = tuple(Part(state, attribute, kind) for state, attribute, kind in parts)
    for part in found:
        part.require_known()
    if not found or found != in_order_of_ids(found):
        raise SubscriptionError("the parts of a question are none, or not in the order of their ids")
    return AskedQuestion(filter_from_plain(where), Layout(Window(*sizes), group_keys), found, subscription)
