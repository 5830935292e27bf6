"""What a message of a broker's input stream is to the broker.

Rule 1: a sender says only what is its own. The server lets nobody but a sender write to its subject; whose frame it is,
        and about whom, is checked here, by the subject alone. What has come over a link without a mark is nobody's.
Rule 2: in whose name anything else is said hears that (`Unreadable`): a client of another version waits for an answer.
Rule 3: that a client has come, and whose it is, is said by the broker's process alone, whom the client has asked.
"""

from __future__ import annotations

from catchment.broker.frames import MAGIC, opened
from catchment.broker.hosting import item_from_bytes
from catchment.broker.inputs import Detached, Item, Parked, Posted, Received, Room, Unreadable
from catchment.model.errors import CatchmentError, FrameError
from catchment.transport.jetstream import Stored
from catchment.transport.marks import mark_of
from catchment.transport.names import client_of, untoken

__all__ = ["input_of"]

_OF_CLIENTS = (Parked, Detached)


def input_of(broker: str, stored: Stored) -> tuple[str, Item | None]:
    """Who says it, and what the broker is handed; None for a message that means nothing to it.

    Anything that does not belong there is a CatchmentError.
    """
    fields = stored.subject.split(".")
    kind, sender = fields[1], untoken(fields[3]) if len(fields) > 3 else ""
    if kind == "pub":
        return "", Posted(sender, stored.data)
    if kind == "client":
        client = client_of(stored.subject)
        return client, _of_client(client, stored.data)
    if kind == "steps":
        return "", None
    if kind == "control":
        return "", item_from_bytes(stored.data)
    if kind == "link":
        mark_of(stored)
        if not stored.data:
            return sender, None
        if stored.data[:2] == MAGIC:
            return sender, _own_frame(sender, stored.data)
    item = item_from_bytes(stored.data)
    if kind == "room" and isinstance(item, Room) and item.neighbour == sender:
        return "", item
    raise FrameError(f"{sender!r} says {item!r}; accepted is what is its own")


def _of_client(client: str, data: bytes) -> Item:
    try:
        if data[:2] == MAGIC:
            return _own_frame(client, data)
        item = item_from_bytes(data)
        if isinstance(item, _OF_CLIENTS) and item.client == client:
            return item
        raise FrameError(f"{client!r} says {item!r}; accepted is what is its own")
    except CatchmentError as error:
        return Unreadable(client, str(error))


def _own_frame(sender: str, data: bytes) -> Received:
    said = opened(data).sender
    if said != sender:
        raise FrameError(f"a frame of {said!r} has come from {sender!r}; accepted are its own")
    return Received(data)
