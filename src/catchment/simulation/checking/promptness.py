"""Whether those who read got everything in time, however slow others are."""

from __future__ import annotations

from collections.abc import Iterator

from catchment.simulation.clients import Client
from catchment.simulation.world import World

__all__ = ["check_promptness"]


def check_promptness(world: World, within_us: int) -> Iterator[str]:
    """Every event reached its subscribers soon after it was accepted, unless they did not read in the meantime.

    `within_us` is what links, crashes and brokers may take. It must be shorter than the pauses of clients that do not
    read, or what these hold up would not be seen.
    """
    accepted_us = {one.event_id: one.accepted_us for one in world.publications}
    for client in world.clients.values():
        for wish in client.all_wishes:
            for event_id, came_us in zip(wish.received, wish.received_us, strict=True):
                since_us = accepted_us.get(event_id, came_us)
                due_us = since_us + within_us
                if came_us > due_us and not _has_paused(client, since_us, came_us):
                    yield f"{client.name} {wish.name} got {event_id} at {came_us}us; it was due at {due_us}us"


def _has_paused(client: Client, begin_us: int, end_us: int) -> bool:
    return any(since_us < end_us and until_us > begin_us for since_us, until_us in client.pauses_us)
