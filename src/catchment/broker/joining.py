"""Events of one topic that wait together from one side."""

from __future__ import annotations

from dataclasses import dataclass, field

from catchment.broker import messages as m

__all__ = ["Joined", "Published"]


@dataclass(frozen=True, slots=True)
class Published:
    """A message with events, who sent it, and when it came."""

    sender: str
    message: m.PublishEvents | m.Published
    at_us: int


@dataclass(slots=True)
class Joined:
    """Messages whose events are matched and forwarded as one batch."""

    side: str
    """A neighbour, or HERE for all clients."""
    parts: list[Published] = field(default_factory=list)

    def takes(self, side: str, message: m.PublishEvents | m.Published) -> bool:
        """Whether another message may be joined: from the same side, with the same columns, and without extras."""
        last = self.parts[-1].message
        if side != self.side or not message.events.schema.equals(last.events.schema):
            return False
        return not any(isinstance(one, m.Published) and one.extras for one in (last, message))
