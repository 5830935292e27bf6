"""Whether brokers and clients kept to what they owe each other."""

from __future__ import annotations

from collections.abc import Iterator

from catchment.broker.gateway import LATE
from catchment.simulation.world import World

__all__ = ["check_answers", "check_conduct", "check_posts"]


def check_answers(world: World) -> Iterator[str]:
    """At rest, every request has been answered, unless its client was dropped."""
    for client in world.clients.values():
        for request in client.requests if not client.is_dropped else ():
            if request.answered_us is None:
                yield f"{client.name} was never answered: {request.message}"


FORGIVEN = {
    LATE,
    "partials of subscriptions that have gone",
    "clocks that disagree by more than a slice",
}
"""What a faulty network, wrong clocks and restarts bring about, and brokers take care of."""


def check_conduct(world: World) -> Iterator[str]:
    """No broker heard anything that a broker of ours should not have said, and no advice and no input has failed."""
    for node in world.nodes.values():
        for what, times in sorted(node.broker.counters.items()):
            if what not in FORGIVEN and times:
                yield f"{node.name} counted {times} {what}"
        for failure in (*node.broker.failures, *node.broker.input_failures):
            yield f"{node.name}: {failure}"


def check_posts(world: World) -> Iterator[str]:
    """At rest, every event that a foreign publisher stored was accepted, or reported as late."""
    lacking = world.posted - {one.event_id for one in world.publications}
    late = sum(node.broker.counters[LATE] for node in world.nodes.values())
    if len(lacking) != late:
        yield f"{len(lacking)} posted events were not accepted, and {late} reported as late: {sorted(lacking)[:10]}"
