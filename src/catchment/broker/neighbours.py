"""What neighbours say. They are trusted to be brokers, not to be right: what does not fit is counted and left out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from catchment.broker import messages as m
from catchment.model.errors import CatchmentError
from catchment.model.filter import Filter

if TYPE_CHECKING:
    from catchment.broker.broker import Broker

__all__ = ["HANDLERS"]


def _advertised(broker: Broker, message: m.Advertised, neighbour: str) -> None:
    # Control and events travel apart: what took an advertisement back may come before it, or after the next one.
    if _is_known(broker, message.topic):
        routes = broker.routes(message.topic)
        if message.generation > routes.ended.get(neighbour, 0):
            broker.weaver.attached = message.extras
            routes.heard[neighbour] = message.generation
            if neighbour in routes.advertisers:
                broker.weaver.call("ad_add", message.topic, neighbour)
            else:
                broker.start_advertising(message.topic, neighbour)
    broker.when_confirmed(neighbour, m.Confirmed(message.change))


def _unadvertised(broker: Broker, message: m.Unadvertised, neighbour: str) -> None:
    if _is_known(broker, message.topic):
        broker.weaver.attached = message.extras
        routes = broker.routes(message.topic)
        routes.ended[neighbour] = max(routes.ended.get(neighbour, 0), message.generation)
        if routes.heard.get(neighbour) == message.generation:
            broker.stop_advertising(message.topic, neighbour)
    broker.when_confirmed(neighbour, m.Confirmed(message.change))


def _subscribed(broker: Broker, message: m.Subscribed, neighbour: str) -> None:
    topic = message.topic
    if _is_known(broker, topic):
        broker.weaver.attached = message.extras
        wanted = broker.routes(topic).wanted[neighbour]
        befores = [
            broker.weaver.call("sub_add", topic, condition, neighbour)
            for condition in dict.fromkeys(message.added)
            if condition not in wanted and _fits(broker, topic, condition)
        ]
        for condition in message.dropped:
            if condition in wanted:
                befores.append(broker.weaver.call("sub_del", topic, condition, neighbour))
            else:
                broker.counters["filters dropped that were never added"] += 1
        broker.tell_neighbours(topic, befores)
    broker.when_confirmed(neighbour, m.Confirmed(message.change))


def _published(broker: Broker, message: m.Published, neighbour: str) -> None:
    if _is_known(broker, message.topic):
        broker.weaver.attached = message.extras
        try:
            broker.forward(message.topic, message.events, neighbour)
        except CatchmentError:
            # The broker where they came in has checked them: this one was not said by a broker of ours.
            broker.counters["batches that do not fit their topic"] += 1


def _confirmed(broker: Broker, message: m.Confirmed, neighbour: str) -> None:
    if message.change not in broker.peers[neighbour].unconfirmed:
        broker.counters["confirmations of what was never asked"] += 1
        return
    broker.peers[neighbour].unconfirmed.remove(message.change)
    for one in broker.waiting:
        one.needs.discard((neighbour, message.change))
    ready = [one for one in broker.waiting if not one.needs]
    broker.waiting = [one for one in broker.waiting if one.needs]
    for one in ready:
        broker.answer(one)


def _told(broker: Broker, message: m.Told, neighbour: str) -> None:
    broker.weaver.deliver(message, neighbour)
    if message.change:
        broker.when_confirmed(neighbour, m.Confirmed(message.change))


def _is_known(broker: Broker, topic: str) -> bool:
    if topic not in broker.settings.schemas:
        broker.counters["messages about unknown topics"] += 1
        return False
    return True


def _fits(broker: Broker, topic: str, condition: Filter) -> bool:
    try:
        condition.within(broker.routes(topic).schema)
    except CatchmentError:
        broker.counters["filters that do not fit their topic"] += 1
        return False
    return True


HANDLERS: Mapping[type, Callable[..., None]] = {
    m.Advertised: _advertised,
    m.Unadvertised: _unadvertised,
    m.Subscribed: _subscribed,
    m.Published: _published,
    m.Confirmed: _confirmed,
    m.Told: _told,
}
