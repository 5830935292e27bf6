"""What clients ask of their broker, and how it answers: once all has taken effect, or with the reason why not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import msgspec

from catchment.broker import messages as m
from catchment.broker.advice import OWN, KnownSubscription
from catchment.broker.demands import Demand
from catchment.broker.frames import require_sendable
from catchment.broker.joining import JoinedMessage
from catchment.broker.limits import BusyError, require_name, require_sql, shortened
from catchment.broker.peers import HERE
from catchment.broker.rights import require_right
from catchment.model.errors import CatchmentError, ConfigurationError
from catchment.model.filter import NO_EVENT
from catchment.model.subscription import Query, Subscription

if TYPE_CHECKING:
    from catchment.broker.broker import Broker

__all__ = ["HANDLERS", "publish", "refuse_too_large", "refuse_unreadable", "unsubscribe"]

TIME_US_MAX = 2**62
NO_ROOM_RETRY_US = 100_000
"""When to try again where there is no room, though nobody knows when there will be."""


def _answer(broker: Broker, client: str, request: int, act: Callable[[], None], subscription: str = "") -> None:
    """Acknowledge a request once all has taken effect that it set off; or say why it has none."""
    try:
        waiting = broker.confirmations.waiting_count(client)
        if waiting >= broker.settings.requests_max:
            raise ConfigurationError(
                f"{waiting} requests of {client!r} wait for their answers; accepted are {broker.settings.requests_max}"
            )
        act()
    except CatchmentError as error:
        broker.send(client, _refused(request, error))
        return
    broker.when_confirmed(client, m.Acknowledged(request), subscription)


def _refused(request: int, error: CatchmentError) -> m.Refused:
    return m.Refused(request, shortened(str(error)), error.retry_us if isinstance(error, BusyError) else -1)


def refuse_too_large(broker: Broker, messages: Sequence[m.Message], client: str, size: int) -> str:
    """Refuse all requests of a frame that is larger than a client's may be; why, or an empty text if it is not."""
    try:
        broker.settings.limits.require_request(client, size)
    except CatchmentError as error:
        for message in messages:
            if (request := getattr(message, "request", None)) is not None:
                broker.send(client, _refused(request, error))
        return str(error)
    return ""


class _Asked(msgspec.Struct, frozen=True, array_like=True):
    """What all requests begin with, whatever else they say."""

    kind: str
    request: Annotated[int, msgspec.Meta(ge=0, le=2**62)]


_asked: msgspec.msgpack.Decoder[list[_Asked]] = msgspec.msgpack.Decoder(list[_Asked])


def refuse_unreadable(broker: Broker, client: str, messages: msgspec.Raw, reason: str) -> None:
    """Refuse requests that do not decode, by their numbers if these do: nobody shall wait for their answers."""
    try:
        numbers = [one.request for one in _asked.decode(messages)]
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        numbers = [m.UNNUMBERED]
    for number in numbers:
        broker.send(client, m.Refused(number, shortened(reason)))


def _advertise_topic(broker: Broker, message: m.AdvertiseTopic, client: str) -> None:
    def act() -> None:
        _require_topic(broker, message.topic)
        require_right(broker, client, "publish", message.topic)
        topics = broker.peers[client].topics
        if message.topic not in topics:
            broker.settings.limits.require_topics(client, len(topics))
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
    there = broker.subscribed.get((client, message.name))
    if there is not None:
        _answer(broker, client, message.request, lambda: _require_same(broker, message, client, there.sql))
        return

    def act() -> None:
        if not client.startswith(OWN):
            broker.settings.limits.require_subscriptions(client, broker.peers[client].subscription_count)
        require_name("a subscription", message.name)
        require_sql(message.name, message.sql)
        query = _query(broker, message.name, message.sql)
        require_right(broker, client, "subscribe", query.topic)
        require_sendable(query.topic, query.where)
        demand: Demand | None = query.where
        if query.aggregate is not None:
            demand = broker.weaver.asked_question(client, message.name, message.sql, query)
        if demand is None:
            raise ConfigurationError(f"subscription {message.name!r} aggregates; accepted here are regular ones")
        broker.add_subscription(query.topic, demand, client, message.name, query.columns)
        broker.subscribed[client, message.name] = KnownSubscription(query.topic, message.sql)
        broker.peers[client].subscription_count += 1
        broker.weaver.happened("on_subscribed", client, message.name, query)

    _answer(broker, client, message.request, act, message.name)


def _query(broker: Broker, name: str, sql: str) -> Query:
    return Subscription(name, broker.name, sql=sql).within(broker.schemas)


def _require_same(broker: Broker, message: m.SubscribeTo, client: str, sql: str) -> None:
    """Let a durable client that is back go on with a subscription; raise if it asks for anything else by that name."""
    name = message.name
    if not broker.peers[client].is_durable:
        raise ConfigurationError(f"subscription {name!r} is already there; accepted is another name")
    require_sql(name, message.sql)
    if _query(broker, name, message.sql) != _query(broker, name, sql):
        raise ConfigurationError(
            f"subscription {name!r} is already there and asks {sql!r}; accepted is the same again, not "
            f"{message.sql!r}: unsubscribe first, or take another name"
        )


def _unsubscribe_from(broker: Broker, message: m.UnsubscribeFrom, client: str) -> None:
    def act() -> None:
        if (client, message.name) not in broker.subscribed:
            known = ", ".join(sorted(name for owner, name in broker.subscribed if owner == client)) or "none"
            raise ConfigurationError(f"subscription {message.name!r} is not there; there are {known}")
        unsubscribe(broker, client, message.name)

    _answer(broker, client, message.request, act)


def unsubscribe(broker: Broker, client: str, name: str) -> None:
    """Take a subscription out that is there."""
    topic, _ = broker.subscribed.pop((client, name))
    broker.peers[client].subscription_count -= 1
    demand, _ = broker.routes(topic).subscriptions.get((client, name), (NO_EVENT, None))
    broker.remove_subscription(topic, demand, client, name)
    broker.weaver.happened("on_unsubscribed", client, name)


def _advance_time(broker: Broker, message: m.AdvanceTime, client: str) -> None:
    def act() -> None:
        _require_publisher(broker, message.topic, client)
        if abs(message.time_us) >= TIME_US_MAX:
            raise ConfigurationError(
                f"time has come to {message.time_us}; accepted are microseconds between plus and minus {TIME_US_MAX}"
            )
        broker.weaver.happened("on_advance", client, message.topic, message.time_us)

    _answer(broker, client, message.request, act)


def _ask_advice(broker: Broker, message: m.AskAdvice, client: str) -> None:
    def act() -> None:
        broker.weaver.request(message.advice, client, message.body)

    _answer(broker, client, message.request, act)


def publish(broker: Broker, topic: str, parts: Sequence[JoinedMessage]) -> None:
    """Accept the events of clients, answer each request, and forward what is new and in time."""
    refused: dict[int, CatchmentError] = {}
    reasons: dict[str, CatchmentError | None] = {}
    asked = []
    for number, one in enumerate(parts):
        if one.sender not in reasons:
            reasons[one.sender] = _refusal(broker, topic, one.sender)
        reason = reasons[one.sender] or _too_many(broker, one)
        if reason is None:
            asked.append(number)
        else:
            refused[number] = reason
    repeated = broker.ingress.repeated
    accepted = broker.ingress.accept(topic, [(parts[n].message.events, parts[n].at_us) for n in asked])
    refused |= {asked[place]: error for place, error in accepted.errors.items()}
    events, late = broker.weaver.admit(topic, accepted.events, accepted.owners)
    broker.events += Counter(
        {
            (HERE, "accepted"): events.num_rows,
            (HERE, "late"): len(late),
            (HERE, "refused"): sum(parts[number].message.events.num_rows for number in refused),
            (HERE, "repeated"): broker.ingress.repeated - repeated,
        }
    )
    dropped: dict[int, list[str]] = {}
    for row in late:
        dropped.setdefault(asked[accepted.owners[row]], []).append(accepted.events.column("event_id")[row].as_py())
    for number, one in enumerate(parts):
        assert isinstance(one.message, m.PublishEvents)
        request = one.message.request
        if number in refused:
            broker.send(one.sender, _refused(request, refused[number]))
        else:
            broker.send(one.sender, m.Acknowledged(request, tuple(dropped.get(number, ()))))
    if events.num_rows:
        broker.forward(topic, events, HERE)


def _refusal(broker: Broker, topic: str, client: str) -> CatchmentError | None:
    """Why a client may not publish now, if it may not."""
    try:
        _require_publisher(broker, topic, client)
        if not broker.has_room and not client.startswith(OWN):
            raise BusyError(
                f"there is no room for more events beyond broker {broker.name!r}; try again later", NO_ROOM_RETRY_US
            )
    except CatchmentError as error:
        return error
    return None


def _too_many(broker: Broker, one: JoinedMessage) -> CatchmentError | None:
    """Count the events of a request against what its client may publish; why they are too many, if they are."""
    if one.sender.startswith(OWN):
        return None
    peer, rows = broker.peers[one.sender], one.message.events.num_rows
    try:
        peer.spent = broker.settings.limits.spent(one.sender, peer.spent, rows, one.at_us)
    except CatchmentError as error:
        return error
    return None


def _require_publisher(broker: Broker, topic: str, client: str) -> None:
    _require_topic(broker, topic)
    _require_advertised(broker, topic, client)
    _require_acknowledged(broker, topic, client)


def _require_topic(broker: Broker, topic: str) -> None:
    schemas = broker.schemas
    if topic not in schemas:
        raise ConfigurationError(f"unknown topic {topic!r}; known are {', '.join(sorted(schemas))}")


def _require_advertised(broker: Broker, topic: str, client: str) -> None:
    topics = broker.peers[client].topics
    if topic not in topics:
        advertised = ", ".join(sorted(topics)) or "none"
        raise ConfigurationError(f"topic {topic!r} is not advertised by {client!r}; advertised: {advertised}")


def _require_acknowledged(broker: Broker, topic: str, client: str) -> None:
    """Until then some broker may not know whom to ask, and events would pass its subscribers by."""
    if broker.confirmations.is_waiting(client, broker.peers[client].topics[topic]):
        raise ConfigurationError(
            f"the advertisement of topic {topic!r} is not acknowledged yet; accepted are events that come after that"
        )


HANDLERS: Mapping[type, Callable[..., None]] = {
    m.AdvertiseTopic: _advertise_topic,
    m.UnadvertiseTopic: _unadvertise_topic,
    m.SubscribeTo: _subscribe_to,
    m.UnsubscribeFrom: _unsubscribe_from,
    m.AdvanceTime: _advance_time,
    m.AskAdvice: _ask_advice,
}
