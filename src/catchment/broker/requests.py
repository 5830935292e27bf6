"""What clients ask of their broker, and how it answers: once all has taken effect, or with the reason why not."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from catchment.broker import messages as m
from catchment.model.errors import CatchmentError, ConfigurationError
from catchment.model.filter import NO_EVENT
from catchment.model.subscription import Subscription

if TYPE_CHECKING:
    from catchment.broker.broker import Broker

__all__ = ["HANDLERS", "unsubscribe"]


def _answer(broker: Broker, client: str, request: int, act: Callable[[], None], subscription: str = "") -> None:
    """Acknowledge a request once all has taken effect that it set off; or say why it has none."""
    try:
        act()
    except CatchmentError as error:
        broker.send(client, m.Refused(request, str(error)))
        return
    broker.when_confirmed(client, m.Acknowledged(request), subscription)


def _advertise_topic(broker: Broker, message: m.AdvertiseTopic, client: str) -> None:
    def act() -> None:
        _require_topic(broker, message.topic)
        topics = broker.peers[client].topics
        if message.topic not in topics:
            topics[message.topic] = message.request
            broker.start_advertising(message.topic, client)

    _answer(broker, client, message.request, act)


def _unadvertise_topic(broker: Broker, message: m.UnadvertiseTopic, client: str) -> None:
    def act() -> None:
        _require_advertised(broker, message.topic, client)
        del broker.peers[client].topics[message.topic]
        broker.stop_advertising(message.topic, client)

    _answer(broker, client, message.request, act)


def _subscribe_to(broker: Broker, message: m.SubscribeTo, client: str) -> None:
    def act() -> None:
        if (client, message.name) in broker.subscribed:
            raise ConfigurationError(f"subscription {message.name!r} is already there; accepted is another name")
        query = Subscription(message.name, broker.name, sql=message.sql).within(broker.settings.schemas)
        if query.aggregate is None:
            broker.add_subscription(query.topic, query.where, client, message.name, query.columns)
        elif not broker.weaver.subscribe(client, message.name, message.sql, query):
            raise ConfigurationError(f"subscription {message.name!r} aggregates; accepted here are regular ones")
        broker.subscribed[client, message.name] = query.topic

    _answer(broker, client, message.request, act, message.name)


def _unsubscribe_from(broker: Broker, message: m.UnsubscribeFrom, client: str) -> None:
    def act() -> None:
        if (client, message.name) not in broker.subscribed:
            known = ", ".join(sorted(name for owner, name in broker.subscribed if owner == client)) or "none"
            raise ConfigurationError(f"subscription {message.name!r} is not there; there are {known}")
        unsubscribe(broker, client, message.name)

    _answer(broker, client, message.request, act)


def unsubscribe(broker: Broker, client: str, name: str) -> None:
    """Take a subscription out that is there."""
    topic = broker.subscribed.pop((client, name))
    if broker.weaver.unsubscribe(client, name):
        return
    condition, _ = broker.routes(topic).subscriptions.get((client, name), (NO_EVENT, None))
    broker.remove_subscription(topic, condition, client, name)


def _publish_events(broker: Broker, message: m.PublishEvents, client: str) -> None:
    try:
        _require_topic(broker, message.topic)
        _require_advertised(broker, message.topic, client)
        _require_acknowledged(broker, message.topic, client)
        if not broker.has_room_for_events(client):
            raise ConfigurationError(
                f"a queue of broker {broker.name!r} is full with {broker.settings.queue_max} frames; try again later"
            )
        events = broker.ingress.accepted(message.topic, message.events, broker.now_us)
    except CatchmentError as error:
        broker.send(client, m.Refused(message.request, str(error)))
        return
    events, dropped = broker.weaver.admit(message.topic, events)
    broker.send(client, m.Acknowledged(message.request, dropped))
    if events.num_rows:
        broker.forward(message.topic, events, client)


def _require_topic(broker: Broker, topic: str) -> None:
    schemas = broker.settings.schemas
    if topic not in schemas:
        raise ConfigurationError(f"unknown topic {topic!r}; known are {', '.join(sorted(schemas))}")


def _require_advertised(broker: Broker, topic: str, client: str) -> None:
    topics = broker.peers[client].topics
    if topic not in topics:
        advertised = ", ".join(sorted(topics)) or "none"
        raise ConfigurationError(f"topic {topic!r} is not advertised by {client!r}; advertised: {advertised}")


def _require_acknowledged(broker: Broker, topic: str, client: str) -> None:
    """Until then some broker may not know whom to ask, and events would pass its subscribers by."""
    answer = m.Acknowledged(broker.peers[client].topics[topic])
    if any(one.peer == client and one.answer == answer for one in broker.waiting):
        raise ConfigurationError(
            f"the advertisement of topic {topic!r} is not acknowledged yet; accepted are events that come after that"
        )


HANDLERS: Mapping[type, Callable[..., None]] = {
    m.AdvertiseTopic: _advertise_topic,
    m.UnadvertiseTopic: _unadvertise_topic,
    m.SubscribeTo: _subscribe_to,
    m.UnsubscribeFrom: _unsubscribe_from,
    m.PublishEvents: _publish_events,
}
