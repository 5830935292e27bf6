"""What brokers know of each other at rest: all that is needed, and nothing else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import replace

from catchment.broker.demands import AskedQuestion, Demand
from catchment.model.filter import NO_EVENT, Filter
from catchment.model.subscription import Subscription
from catchment.simulation.clients import Client
from catchment.simulation.world import World
from catchment.stages import Part

__all__ = ["check_emptiness", "check_routes"]


def check_routes(world: World) -> Iterator[str]:
    """At rest, every broker knows of each side who publishes there, and just what is wanted there.

    The truth is worked out from the clients, who know nothing of brokers.
    """
    ignorant = [name for name, node in world.nodes.items() if node.broker.schemas != world.schemas]
    if ignorant:
        yield f"{', '.join(ignorant)} do not know all topics"
        return
    for one, other in world.links:
        there = _side_of(other, one, world)
        here = [name for name in world.nodes if name not in there]
        for topic in world.schemas:
            routes = world.nodes[one].broker.routes(topic)
            who = f"{one} about {other} and {topic}"
            publishes = any(topic in client.advertised for client in _clients_at(there, world))
            if publishes != (other in routes.advertisers):
                yield f"{who}: {'knows of no publisher' if publishes else 'knows of a publisher who has gone'}"
            is_asked = world.settings.forwarding == "flooded" or any(
                topic in client.advertised for client in _clients_at(here, world)
            )
            wanted = _wanted_at(there, topic, world) if is_asked else []
            filters = [one for one in wanted if not isinstance(one, AskedQuestion)]
            known = [one for one in routes.demands[other] if not isinstance(one, AskedQuestion)]
            yield from _compare_filters(who, known, filters, world.settings.summary)
            questions = [one for one in wanted if isinstance(one, AskedQuestion)]
            asked = [one for one in routes.demands[other] if isinstance(one, AskedQuestion)]
            yield from _compare_questions(who, asked, questions)


def _compare_questions(who: str, known: list[AskedQuestion], wanted: list[AskedQuestion]) -> Iterator[str]:
    """Shared questions are known once, with all parts that anyone asks for; others once for each subscription."""
    own = [one for one in known if one.subscription]
    if len({one.subscription for one in own}) < len(own):
        yield f"{who}: a subscription is known twice"
    asked_apart = Counter(replace(one, subscription="") for one in own)
    parts: dict[AskedQuestion, set[Part]] = {}
    for one in (Counter(wanted) - asked_apart).elements():
        parts.setdefault(one.question, set()).update(one.parts)
    expected = (Counter(wanted) & asked_apart) + Counter(question.with_parts(of) for question, of in parts.items())
    found = Counter(replace(one, subscription="") for one in known)
    for one in (expected - found).elements():
        yield f"{who}: not known is [{one}]"
    for one in (found - expected).elements():
        yield f"{who}: nobody asks [{one}]"


def _compare_filters(who: str, known: Collection[Filter], wanted: list[Filter], summary: str) -> Iterator[str]:
    for condition in wanted:
        if not any(one.covers(condition) for one in known):
            yield f"{who}: nothing known covers [{condition}]"
    for one in known:
        if summary == "bound":
            if len(known) > 1 or not wanted:
                yield f"{who}: [{one}] stands for nothing"
        elif one not in wanted:
            yield f"{who}: nobody wants [{one}]"
        elif summary == "covering" and any(other != one and other.covers(one) for other in known):
            yield f"{who}: [{one}] is covered by another one"


def _side_of(broker: str, without: str, world: World) -> set[str]:
    """The brokers that are reached through a broker, from a neighbour of it."""
    found, ahead = {broker}, [broker]
    while ahead:
        here = ahead.pop()
        for source, target in world.links:
            if source == here and target not in found and target != without:
                found.add(target)
                ahead.append(target)
    return found


def _clients_at(brokers: Collection[str], world: World) -> list[Client]:
    return [client for client in world.clients.values() if client.broker in brokers and not client.is_dropped]


def _wanted_at(brokers: Collection[str], topic: str, world: World) -> list[Demand]:
    found: list[Demand] = []
    for client in _clients_at(brokers, world):
        for wish in client.wishes.values():
            if wish.topic == topic and wish.asked.refused is None:
                query = Subscription(wish.name, sql=wish.asked.message.sql).within(world.schemas)
                if query.where == NO_EVENT:
                    continue
                schema = world.schemas[topic].with_implicit()
                found.append(query.where if query.aggregate is None else AskedQuestion.of(query, schema))
    return found


def check_emptiness(world: World) -> Iterator[str]:
    """When everybody has gone and all is at rest, nothing is left of anyone."""
    for node in world.nodes.values():
        if not node.broker.is_at_rest:
            yield f"{node.name} is not at rest: {node.broker.table_sizes()}"
        for topic, routes in node.broker.topics.items():
            if not routes.is_empty:
                yield f"{node.name} still has routes of {topic}: {node.broker.table_sizes()}"
        for what, size in node.broker.weaver.sizes().items():
            if size:
                yield f"{node.name} still has {size} {what}"
