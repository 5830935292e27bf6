"""What a broker is handed, and what it makes of it: the types of its boundary.

Rule 1: everything that a broker acts on is an input with a position in its log and the time at which it was stored.
Rule 2: how inputs are grouped into steps changes how output is grouped into frames, and nothing else.
Rule 3: they are plain values without cycles, so the garbage collector does not track them (`gc=False`): hosts keep many
        of them for a while, and a full collection over all subscriptions takes longer than a thousand steps.
"""

from __future__ import annotations

from collections import Counter
from typing import Literal, NamedTuple

import msgspec

from catchment.broker.store import StoreReply, StoreRequest

__all__ = [
    "ALONG",
    "TAKEN",
    "AdviceAttached",
    "AdviceRemoved",
    "Allowed",
    "Attached",
    "Detached",
    "Input",
    "Item",
    "Outcome",
    "Overrun",
    "Parked",
    "Post",
    "Posted",
    "Received",
    "Replied",
    "Resumed",
    "Rights",
    "Room",
    "Send",
    "Step",
    "TopicPlaced",
    "TopicsAdded",
    "Traffic",
    "Unreadable",
    "Woken",
    "add_traffic",
]


ALONG = "along"
"""The kind of traffic that rides along on messages that were sent anyway."""


class _Item(msgspec.Struct, frozen=True, array_like=True, tag=True, gc=False):
    """The base of all that a broker may be handed."""


class Received(_Item, frozen=True):
    """A frame has come."""

    data: bytes


class Posted(_Item, frozen=True):
    """A foreign publisher, who is no client, has stored events of a topic, in a form that an advice reads."""

    topic: str
    data: bytes


class Attached(_Item, frozen=True):
    """A client has come, in a life of its own: one that was here before is gone, with all that it wanted."""

    client: str
    incarnation: int = 1
    owner: str = ""
    """Who may resume it, or begin another life of it."""
    durable: bool = False
    """Whether much may wait for it, while it is away or slow: up to `Limits.durable_bytes_max`."""


class Parked(_Item, frozen=True):
    """A client is away and will be back: what it wants is collected for it."""

    client: str
    incarnation: int = 0
    """The life that this is about; 0 for whichever it is in."""


class Resumed(_Item, frozen=True):
    """A client that was parked is back, in another life; or in the same, which was only thought to have ended."""

    client: str
    incarnation: int
    owner: str = ""


class Detached(_Item, frozen=True):
    """A client has gone, and what it wanted and advertised with it."""

    client: str
    incarnation: int = 0
    """The life that this is about; 0 for whichever it is in."""


class Overrun(_Item, frozen=True):
    """More waits for a client than may: it missed frames, is told so, and has gone."""

    client: str
    frames: int


class Unreadable(_Item, frozen=True):
    """Something has come from a client, or in its name, that is no frame: it is told so."""

    client: str
    reason: str


class Room(_Item, frozen=True):
    """What waits for a neighbour, or in the broker's own log, has reached its limit, or is well below it again."""

    neighbour: str
    is_full: bool


class Allowed(msgspec.Struct, frozen=True, array_like=True):
    """To which topics a user may publish, and to which it may subscribe; None for all."""

    publishes: tuple[str, ...] | None = ()
    subscribes: tuple[str, ...] | None = ()


class Rights(_Item, frozen=True):
    """From now on these users may do this, and nobody else anything; or, with None, everybody everything."""

    users: dict[str, Allowed] | None


class TopicsAdded(_Item, frozen=True):
    """There are these topics, with these attributes (names and types), besides what there was."""

    topics: dict[str, dict[str, str]]


class TopicPlaced(_Item, frozen=True):
    """Where aggregates of a topic are computed from now on: the name of a placement."""

    topic: str
    placement: str


class AdviceAttached(_Item, frozen=True):
    """An advice of the broker's catalogue shall be attached, behind those that are there."""

    advice: str


class AdviceRemoved(_Item, frozen=True):
    """An advice shall be removed, with all that it remembers."""

    advice: str


class Replied(_Item, frozen=True):
    """The store has answered."""

    reply: StoreReply


class Woken(_Item, frozen=True):
    """Nothing but time has passed."""


Item = (
    Received
    | Posted
    | Attached
    | Parked
    | Resumed
    | Detached
    | Overrun
    | Unreadable
    | Room
    | Rights
    | TopicsAdded
    | TopicPlaced
    | AdviceAttached
    | AdviceRemoved
    | Replied
    | Woken
)


class Input(msgspec.Struct, frozen=True, gc=False):
    """Something that has happened, as it was stored."""

    item: Item
    at_us: int
    """When it was stored; where that runs backwards, the latest so far counts."""
    position: int
    """In the broker's log of inputs, rising."""


class Post(NamedTuple):
    """What an advice sees of a `Posted` that waits."""

    data: bytes
    at_us: int
    """When it was stored."""
    number: int
    """Of the input in its step."""


class Outcome(msgspec.Struct, frozen=True, gc=False):
    """What became of an input."""

    kind: Literal["taken", "repeated", "premature", "stranger", "refused"]
    """Taken: it has had its effect. Repeated: it had it before. Premature: a frame before it is missing, so that it has
    to be handed over again. Stranger: nobody of that name is known, or not in that life. Refused: it has no effect; or
    the broker failed on it, which is counted, and the reason says so."""
    reason: str = ""


TAKEN = Outcome("taken")


class Send(msgspec.Struct, frozen=True, gc=False):
    """Frames for a peer: all of them are handed over, or none."""

    to: str
    frames: tuple[bytes, ...]
    first: int
    """The sequence of the first."""
    covers: int

    @property
    def last(self) -> int:
        return self.first + len(self.frames) - 1

    def lacking(self, covers: int, last: int) -> Send | None:
        """What a peer lacks of it that has frames up to `last`, of the step that covers `covers`; None if nothing."""
        if self.covers > covers:
            return self
        if self.covers < covers or self.last <= last:
            return None
        return Send(self.to, self.frames[last + 1 - self.first :], last + 1, self.covers)


Traffic = dict[tuple[str, ...], tuple[int, int]]
"""Messages and bytes, by what they are counted by."""


def add_traffic(counted: Traffic, key: tuple[str, ...], messages: int, size: int) -> None:
    before = counted.get(key, (0, 0))
    counted[key] = (before[0] + messages, before[1] + size)


class Step(msgspec.Struct, frozen=True, gc=False):
    """All that came of some inputs."""

    outcomes: tuple[Outcome, ...]
    sends: tuple[Send, ...]
    requests: tuple[StoreRequest, ...]
    timer_us: int | None
    """When the broker wants to be woken."""
    taken: Counter[str]
    """The messages that it took, by kind."""
    work: Counter[str]
    """How often it did what takes time: `match` an event, `send` a message, and what advice says of itself."""
    traffic: Traffic
    """Messages by neighbour and kind (publications, partials, control), and their bytes if the settings ask for it."""
    traffic_by_advice: Traffic
    """Of that, by neighbour and advice: what it sent by the kind that it declared, and what rode along on messages of
    others as kind `ALONG`."""
    events: Counter[tuple[str, str]]
    """Events by the neighbour that they came from (`HERE` for clients), and what became of them: accepted, late,
    refused, repeated."""
    begun: tuple[str, ...] = ()
    """Clients that began a life in this step: what waits for an earlier one is for nobody."""
