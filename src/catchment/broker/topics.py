"""The topics that a broker knows, which grow while it runs.

Rule 1: a topic is never removed, and an attribute keeps its type. So whatever was asked, published or recorded before
        stays right, and brokers that learn of several additions in different orders end up with the same topics.
Rule 2: a broker tells its neighbours of an addition before anything else that uses it, and links keep their order: no
        broker hears an advertisement, a demand or an event of something that its neighbour has not told it.
Rule 3: a broker accepts from its clients what it knows itself. It need not wait for brokers further on, by rule 2.
Rule 4: which placement a topic has is remembered here, and judged by the advice that aggregates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from catchment.broker import messages as m
from catchment.broker.inputs import TAKEN, Outcome, TopicPlaced, TopicsAdded
from catchment.broker.limits import require_name
from catchment.model.errors import ConfigurationError, SchemaError
from catchment.model.schema import RESERVED_COLUMNS, Schema, Type

if TYPE_CHECKING:
    from catchment.broker.broker import Broker

__all__ = ["HANDLERS", "PlainTopics", "add", "announce", "extended", "plain"]

PlainTopics = Mapping[str, Mapping[str, str]]
"""By topic, attributes and the names of their types."""
ATTRIBUTES_MAX = 1_000
"""Of one topic: each is a column of every frame with events that have it."""
TOLD_MAX = 100
"""Attributes in one message, so that it fits into a frame whatever their names are."""


def plain(schemas: Mapping[str, Schema]) -> dict[str, dict[str, str]]:
    """Topics in plain values."""
    return {topic: {name: schema[name].value for name in schema} for topic, schema in schemas.items()}


def extended(known: Mapping[str, Schema], added: PlainTopics) -> dict[str, Schema]:
    """The topics that additions change, as they are then; an addition that contradicts what is known is refused."""
    found = {}
    for topic, attributes in sorted(added.items()):
        require_name("a topic", topic)
        before = known.get(topic)
        fresh = dict(_fresh(topic, before, attributes))
        if before is None or fresh:
            found[topic] = Schema({**({} if before is None else before.attributes), **fresh})
            if len(found[topic]) > ATTRIBUTES_MAX:
                raise SchemaError(
                    f"topic {topic!r} would have {len(found[topic])} attributes; accepted are at most {ATTRIBUTES_MAX}"
                )
    return found


def _fresh(topic: str, known: Schema | None, attributes: Mapping[str, str]) -> Iterator[tuple[str, Type]]:
    there = {} if known is None else known.attributes
    alike = {name.lower(): name for name in there}
    for name, given in attributes.items():
        require_name(f"an attribute of topic {topic!r}", name)
        if name in RESERVED_COLUMNS:
            raise SchemaError(
                f"topic {topic!r} would have an attribute {name!r}; every event has {', '.join(RESERVED_COLUMNS)} "
                "without saying so"
            )
        kind = Type.of(given, attribute=name)
        if name in there:
            if kind != there[name]:
                raise SchemaError(
                    f"attribute {name!r} of topic {topic!r} is of type {there[name].value}; accepted is that, not "
                    f"{kind.value}"
                )
        elif name.lower() in alike:
            raise SchemaError(
                f"topic {topic!r} has an attribute {alike[name.lower()]!r}; {name!r} differs in case alone, and "
                "subscriptions that are there could mean either"
            )
        else:
            alike[name.lower()] = name
            yield name, kind


def add(broker: Broker, added: PlainTopics, told_by: str = "") -> None:
    """Know more topics or attributes, and tell all neighbours but the one that has told this."""
    for topic, schema in extended(broker.schemas, added).items():
        before = broker.schemas.get(topic)
        broker.schemas[topic] = schema
        if topic in broker.topics:
            broker.topics[topic].extend(schema.with_implicit())
        broker.weaver.happened("on_topic_added", topic, schema)
        fresh = {name: schema[name].value for name in schema if before is None or name not in before}
        for neighbour in broker.neighbours:
            if neighbour != told_by:
                _tell(broker, neighbour, topic, fresh)


def announce(broker: Broker, neighbour: str) -> None:
    """Tell a neighbour that begins a life without memory of all that was added to what brokers begin with."""
    for topic, schema in sorted(broker.schemas.items()):
        first = broker.settings.schemas.get(topic)
        fresh = {name: schema[name].value for name in schema if first is None or name not in first}
        if first is None or fresh:
            _tell(broker, neighbour, topic, fresh)


def _tell(broker: Broker, neighbour: str, topic: str, attributes: Mapping[str, str]) -> None:
    told = list(attributes.items())
    for begin in range(0, max(len(told), 1), TOLD_MAX):
        broker.send(neighbour, m.TopicAdded(topic, dict(told[begin : begin + TOLD_MAX])))


def _added(broker: Broker, item: TopicsAdded) -> Outcome:
    add(broker, item.topics)
    return TAKEN


def _placed(broker: Broker, item: TopicPlaced) -> Outcome:
    if item.topic not in broker.schemas:
        raise ConfigurationError(f"unknown topic {item.topic!r}; known are {', '.join(sorted(broker.schemas))}")
    if broker.placements.get(item.topic) == item.placement:
        return Outcome("repeated")
    broker.weaver.happened("on_topic_placed", item.topic, item.placement)
    broker.placements[item.topic] = item.placement
    return TAKEN


HANDLERS: Mapping[type, Callable[[Broker, Any], Outcome]] = {TopicsAdded: _added, TopicPlaced: _placed}
