"""Whether everything that could grow stays within what the settings allow, at every moment."""

from __future__ import annotations

from collections.abc import Iterator

from catchment.broker.frames import FRAME_BYTES_MAX
from catchment.broker.unclaimed import UNCLAIMED_BYTES_MAX
from catchment.simulation.node import Node
from catchment.simulation.world import World

__all__ = ["Bounds"]


class Bounds:
    """Looks at a broker whenever it has made a step, and keeps the first time that anything was too large."""

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
    broker, sizes = node.broker, node.broker.table_sizes()
    # Every open request of a client is at most a change here, and one more where an advertisement is answered.
    open_changes = 2 * (broker.settings.requests_max + 1) * len(world.clients)
    for name in broker.neighbours:
        yield f"changes that {name} has not confirmed", broker.confirmations.unconfirmed_count(name), open_changes
    for name in broker.clients:
        # A client that passes its limit is dropped in the next step.
        most = world.options.limits.for_client(is_durable=broker.peers[name].is_durable) + FRAME_BYTES_MAX
        yield f"bytes that wait for {name}", node.outboxes[name].size_bytes if name in node.outboxes else 0, most
    yield "answers that wait for others", sizes["waiting answers"], open_changes * (1 + len(broker.neighbours))
    yield "bytes for unknown advice", sizes["bytes for unknown advice"], UNCLAIMED_BYTES_MAX
    yield "remembered ids", sizes["remembered ids"], broker.settings.remembered_max
