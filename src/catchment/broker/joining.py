"""Events of one topic that wait together from one side."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec
import pyarrow as pa

from catchment.broker import messages as m

__all__ = ["Joined", "JoinedMessage"]


class JoinedMessage(msgspec.Struct, frozen=True):
    """A message with events, who sent it, and when it came."""

    sender: str
    message: m.PublishEvents | m.Published
    at_us: int


@dataclass(slots=True)
class Joined:
    """Messages whose events are matched and forwarded as one batch."""

    side: str
    """A neighbour, or HERE for all clients."""
    parts: list[JoinedMessage] = field(default_factory=list)

    def takes(self, side: str, message: m.PublishEvents | m.Published) -> bool:
        """Whether another message may be joined: from the same side, with the same columns."""
        last = self.parts[-1].message
        if side != self.side or not message.events.schema.equals(last.events.schema):
            return False
        notes = [one.notes for one in (last, message) if isinstance(one, m.Published)]
        return len(notes) < 2 or _schema(notes[0]) == _schema(notes[1])

    def notes(self) -> pa.RecordBatch | None:
        """What advice says of each event."""
        several = [one.message.notes for one in self.parts if isinstance(one.message, m.Published)]
        if not several or several[0] is None:
            return None
        return several[0] if len(several) == 1 else pa.concat_batches(several)


def _schema(notes: pa.RecordBatch | None) -> pa.Schema | None:
    return None if notes is None else notes.schema
