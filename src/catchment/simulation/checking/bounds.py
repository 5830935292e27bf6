"""Whether everything that could grow stays within what the settings allow, at every moment."""

from __future__ import annotations

from collections.abc import Iterator

from catchment.broker import messages as m
from catchment.broker.peers import CONTROL, EVENTS
from catchment.simulation.node import Node
from catchment.simulation.world import World

__all__ = ["Bounds"]

ENDS_MAX = 16
"""Ends of windows that stories leave open at a time; more would show that somebody is asked again and again."""


class Bounds:
    """Looks at a broker whenever it has been called, and keeps the first time that anything was too large."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str], str] = {}

    def __call__(self, world: World, node: Node) -> None:
        for what, size, limit in _sizes(world, node):
            if size > limit:
                said = f"{node.name} has {size} {what} at {world.timeline.now_us}us; at most {limit} are allowed"
                self._found.setdefault((node.name, what), said)

    def check(self) -> Iterator[str]:
        yield from self._found.values()


def _sizes(world: World, node: Node) -> Iterator[tuple[str, int, int]]:
    broker, most = node.broker, node.broker.settings.queue_max
    # Every open request of a client is at most a change here, and one more where an advertisement is answered. And
    # those of one more: what takes an advertisement back comes with events, maybe before earlier confirmations.
    open_changes = 2 * (most + 1) * len(world.clients)
    for name, peer in broker.peers.items():
        # What has become due goes after the batch that there was room for: held events and partials, or values.
        told = sum(isinstance(frame.message, m.Told) for frame in peer.queues[EVENTS])
        # What is left of a topic goes before its advertisement is taken back: a batch for each end, and partials.
        taken_back = sum(isinstance(frame.message, m.Unadvertised) for frame in peer.queues[EVENTS])
        left = min(2 * told, 2) + taken_back * (ENDS_MAX + 2)
        slack = len(broker.settings.schemas) if name in broker.clients else left
        yield f"batches queued for {name}", len(peer.queues[EVENTS]), most + slack
        if name in broker.clients:
            yield f"answers queued for {name}", len(peer.queues[CONTROL]), most
        else:
            yield f"changes that {name} has not confirmed", len(peer.unconfirmed), open_changes
            # An advice answers a change at most twice, and asks for a time once per end that is open.
            own = sum(isinstance(frame.message, m.Told) and not frame.message.change for frame in peer.queues[CONTROL])
            yield f"control frames queued for {name}", len(peer.queues[CONTROL]) - own, 2 * open_changes
            yield f"messages of advice queued for {name}", own, 2 * open_changes + ENDS_MAX
    yield "answers that wait for others", len(broker.waiting), open_changes * (1 + len(broker.neighbours))
    yield "remembered ids", len(broker.ingress.remembered), broker.settings.remembered_max
