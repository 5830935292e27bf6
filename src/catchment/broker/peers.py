"""What a broker keeps of a neighbour or a client: how far the frames of both directions have come."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from catchment.broker.frames import Envelope, FrameReader, FrameWriter
from catchment.broker.inputs import TAKEN, Outcome

__all__ = ["HERE", "HISTORY", "Peer"]

HERE = ""
"""The side of a broker's own clients; no neighbour is named so."""
HISTORY = "\x1fhistory"
"""The receiver of what a broker records; nobody else has a control character in its name."""


@dataclass(slots=True)
class Peer:
    """A neighbour or a client."""

    incarnation: int = 0
    """The life that it is in; 0 if nothing was heard of it."""
    received: int = 0
    """The last sequence that came in this life."""
    sent: int = 0
    reader: FrameReader = field(default_factory=FrameReader)
    writer: FrameWriter = field(default_factory=FrameWriter)
    is_full: bool = False
    """Of a neighbour: what is parked for it has reached its limit."""
    says_full: bool = False
    """Of a neighbour: it says that there is no room beyond it."""
    sent_full: bool = False
    """Of a neighbour: the last that it was sent is that there is no room on the sides beyond this broker."""
    owner: str = ""
    is_durable: bool = False
    """Of a client: whether its limit of what may wait for it is that of durable ones."""
    is_parked: bool = False
    topics: dict[str, int] = field(default_factory=dict)
    """Of a client, what it advertises, and by which request."""
    parked_us: int = 0
    """Of a client that is parked: since when."""
    subscription_count: int = 0
    spent: int = 0
    """Of a client: what its events have cost (`ClientLimits.spent`)."""

    def judge(self, envelope: Envelope) -> Outcome:
        """Whether a frame is the next one of the life that the peer is in."""
        if envelope.incarnation < self.incarnation:
            return Outcome("repeated", f"it is of the life {envelope.incarnation}; that is over")
        if envelope.incarnation > self.incarnation:
            return Outcome("stranger", f"it is of the life {envelope.incarnation}; known is {self.incarnation}")
        if envelope.sequence <= self.received:
            return Outcome("repeated")
        if envelope.sequence > self.received + 1:
            return Outcome("premature", f"frame {self.received + 1} is missing")
        return TAKEN

    def begin(self, incarnation: int) -> None:
        """Begin a new life: frames count from 1 again, and no schema is known."""
        self.incarnation, self.received, self.reader = incarnation, 0, FrameReader()

    def saved(self) -> tuple[Any, ...]:
        return (
            self.incarnation, self.received, self.sent, dict(self.reader.schemas), self.writer.named,
            self.is_full, self.says_full, self.sent_full, self.owner, self.is_durable, self.is_parked,
            dict(self.topics), self.parked_us, self.subscription_count, self.spent,
        )  # fmt: skip

    @classmethod
    def restored(cls, saved: list[Any]) -> Peer:
        incarnation, received, sent, schemas, named, *others = saved
        reader, writer = FrameReader(schemas), FrameWriter(frozenset(named))
        return cls(incarnation, received, sent, reader, writer, *others)
