"""How a broker's process begins: the streams that it needs, and whether they hold what was stored before.

Nothing begins anew in silence where something was stored: a server that has lost a stream, or has a snapshot of
another broker, is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from catchment.broker.advice import Advice
from catchment.broker.broker import Broker, Settings
from catchment.broker.memory import restored
from catchment.model.errors import CheckpointError
from catchment.transport.buckets import Bucket
from catchment.transport.jetstream import JetStream, StreamState
from catchment.transport.names import CONFIRMED, confirm_subject, input_stream, input_subjects

__all__ = ["STORE", "brought_back", "create_input", "open_streams", "require_nothing_lost"]

STORE = "catchment_store"
"""The bucket of what brokers share."""


async def create_input(streams: JetStream, broker: str) -> StreamState:
    return await streams.create(input_stream(broker), input_subjects(broker), metadata={"broker": broker})


async def open_streams(streams: JetStream, broker: str, neighbours: Iterable[str]) -> StreamState:
    """Create what is not there yet; how far the broker's own stream has come."""
    await streams.create(CONFIRMED, [confirm_subject("*", "*/*")], max_msgs_per_subject=1)
    await Bucket(streams, STORE).create()
    for neighbour in neighbours:
        await create_input(streams, neighbour)
    return await create_input(streams, broker)


def require_nothing_lost(broker: str, state: StreamState, *, snapshot: int | None, handled: int) -> None:
    """Refuse a stream that lacks inputs behind a snapshot (None if there is none), or that this process has handled."""
    known = max(snapshot or 0, handled)
    if state.last < known or (snapshot is None and handled):
        raise CheckpointError(
            f"the server has lost what it stored for broker {broker!r}: inputs end at {state.last}, and "
            f"{known} was handled{', and there is no snapshot' if snapshot is None else ''}; restore its store, or "
            "begin another overlay"
        )
    if snapshot is None and state.messages and state.first > 1:
        raise CheckpointError(
            f"the inputs of broker {broker!r} begin at {state.first}, and there is no snapshot of what was "
            "before; restore the server's store, or begin another overlay"
        )


def brought_back(
    name: str,
    neighbours: tuple[str, ...],
    settings: Settings,
    make_advice: Callable[[], Iterable[Advice]],
    pieces: Sequence[bytes],
) -> Broker:
    """The broker of a snapshot; a new one where there are no pieces."""
    if not pieces:
        return Broker(name, neighbours, settings, make_advice())
    broker = restored(pieces, settings, make_advice())
    if tuple(broker.neighbours) != neighbours:
        raise CheckpointError(
            f"a snapshot of {name!r} has the neighbours {', '.join(broker.neighbours) or 'none'}; "
            f"accepted is one with {', '.join(neighbours) or 'none'}"
        )
    return broker
