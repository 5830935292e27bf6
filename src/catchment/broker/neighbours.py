"""What neighbours say. They are trusted to be brokers, not to be right: what does not fit is counted and left out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import pyarrow as pa

from catchment.broker import messages as m
from catchment.broker import topics
from catchment.broker.demands import Demand, require_fitting
from catchment.broker.joining import Joined
from catchment.model.errors import CatchmentError

if TYPE_CHECKING:
    from catchment.broker.broker import Broker

__all__ = ["HANDLERS", "confirm", "forward"]

UNFITTING = "batches that do not fit their topic"


def _topic_added(broker: Broker, message: m.TopicAdded, neighbour: str) -> None:
    try:
        topics.add(broker, {message.topic: message.attributes}, neighbour)
    except CatchmentError as error:
        broker.weaver.report("topics that contradict what is known", f"from {neighbour}: {error}")


def _advertised(broker: Broker, message: m.Advertised, neighbour: str) -> None:
    if _is_known(broker, message.topic):
        broker.weaver.attached = message.extras
        broker.start_advertising(message.topic, neighbour)
    broker.when_confirmed(neighbour, m.Confirmed(message.change))


def _unadvertised(broker: Broker, message: m.Unadvertised, neighbour: str) -> None:
    if _is_known(broker, message.topic):
        broker.weaver.attached = message.extras
        broker.stop_advertising(message.topic, neighbour)
    broker.when_confirmed(neighbour, m.Confirmed(message.change))


def _subscribed(broker: Broker, message: m.Subscribed, neighbour: str) -> None:
    topic = message.topic
    if _is_known(broker, topic):
        broker.weaver.attached = message.extras
        demands = broker.routes(topic).demands[neighbour]
        broker.work["demand"] += len(message.added) + len(message.dropped)
        befores = [
            broker.weaver.call("sub_add", topic, demand, neighbour)
            for demand in dict.fromkeys(message.added)
            if demand not in demands and _fits(broker, topic, demand)
        ]
        for demand in message.dropped:
            if demand in demands:
                befores.append(broker.weaver.call("sub_del", topic, demand, neighbour))
            else:
                broker.counters["demands dropped that were never added"] += 1
        broker.update_neighbours(topic, befores)
    broker.when_confirmed(neighbour, m.Confirmed(message.change))


def forward(broker: Broker, topic: str, joined: Joined) -> None:
    """Forward the events of messages that came from one neighbour."""
    if _is_known(broker, topic):
        are_events = broker.routes(topic).are_events
        fitting = Joined(joined.side, [one for one in joined.parts if are_events(one.message.events)])
        if len(fitting.parts) < len(joined.parts):
            broker.counters[UNFITTING] += len(joined.parts) - len(fitting.parts)
        batches = [one.message.events for one in fitting.parts]
        if not batches:
            return
        events = pa.concat_batches(batches) if len(batches) > 1 else batches[0]
        broker.events[joined.side, "accepted"] += events.num_rows
        broker.weaver.notes = fitting.notes()
        try:
            broker.forward(topic, events, joined.side)
        except CatchmentError:
            # The broker where they came in has checked them: this one was not said by a broker of ours.
            broker.counters[UNFITTING] += 1
        finally:
            broker.weaver.notes = None


def _confirmed(broker: Broker, message: m.Confirmed, neighbour: str) -> None:
    if not confirm(broker, neighbour, message.change):
        broker.counters["confirmations of what was never asked"] += 1


def confirm(broker: Broker, neighbour: str, change: int) -> bool:
    """Give the answers that waited for a change alone; whether anybody had asked for its confirmation."""
    due = broker.confirmations.confirm(neighbour, change)
    for one in due or ():
        broker.answer(one)
    return due is not None


def _advice_message(broker: Broker, message: m.AdviceMessage, neighbour: str) -> None:
    broker.weaver.deliver(message, neighbour)


def _room_changed(broker: Broker, message: m.RoomChanged, neighbour: str) -> None:
    broker.peers[neighbour].says_full = message.is_full
    broker.send_room()


def _is_known(broker: Broker, topic: str) -> bool:
    if topic not in broker.schemas:
        broker.counters["messages about unknown topics"] += 1
        return False
    return True


def _fits(broker: Broker, topic: str, demand: Demand) -> bool:
    try:
        require_fitting(demand, broker.routes(topic).schema)
    except CatchmentError:
        broker.counters["demands that do not fit their topic"] += 1
        return False
    return True


HANDLERS: Mapping[type, Callable[..., None]] = {
    m.TopicAdded: _topic_added,
    m.Advertised: _advertised,
    m.Unadvertised: _unadvertised,
    m.Subscribed: _subscribed,
    m.Confirmed: _confirmed,
    m.RoomChanged: _room_changed,
    m.AdviceMessage: _advice_message,
}
