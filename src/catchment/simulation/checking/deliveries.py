"""Who got what."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from catchment.model.filter import Filter
from catchment.model.subscription import Subscription
from catchment.simulation.clients import Publication, Wish
from catchment.simulation.world import World

__all__ = ["check_deliveries"]


def check_deliveries(world: World) -> Iterator[str]:
    """Every subscription got what it must, nothing that it may not, each event once and in its publisher's order.

    It must get what was accepted between its acknowledgement and its end, and may get what was under way when it was
    asked for. What is under way when it ends, or when its client is dropped, may be lost to it.
    """
    for client in world.clients.values():
        for wish in client.all_wishes:
            yield from _check_wish(world, wish, has_ended=wish.ended is not None or client.is_dropped)


def _check_wish(world: World, wish: Wish, *, has_ended: bool) -> Iterator[str]:
    if not wish.is_regular:
        return
    who = f"{wish.client} {wish.name}"
    condition = _condition(world, wish)
    if condition is None:
        if wish.received:
            yield f"{who} was refused and got {wish.received}"
        return
    matching = [one for one in world.publications if one.topic == wish.topic and condition.matches(one.values)]
    received = Counter(wish.received)
    for event_id, times in received.items():
        if times > 1:
            yield f"{who} got {event_id} {times} times"
    acknowledged_us = wish.asked.answered_us
    may = {one.event_id for one in matching if one.accepted_us >= wish.asked.rested_us}
    for event_id in received.keys() - may:
        yield f"{who} got {event_id}, which it may not"
    if not has_ended and acknowledged_us is not None:
        for one in matching:
            if one.accepted_us > acknowledged_us and one.event_id not in received:
                yield f"{who} did not get {one.event_id}, accepted at {one.accepted_us}us"
    yield from _check_order(who, wish, matching)


def _check_order(who: str, wish: Wish, matching: list[Publication]) -> Iterator[str]:
    place = {one.event_id: (one.client, number) for number, one in enumerate(matching)}
    last: dict[str, int] = {}
    for event_id in wish.received:
        if event_id in place:
            publisher, number = place[event_id]
            if number < last.get(publisher, -1):
                yield f"{who} got {event_id} out of {publisher}'s order"
            last[publisher] = number


def _condition(world: World, wish: Wish) -> Filter | None:
    if wish.asked.refused is not None:
        return None
    subscription = Subscription(wish.name, sql=wish.asked.message.sql)
    return subscription.within(world.schemas).where
