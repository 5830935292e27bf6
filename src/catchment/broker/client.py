"""The client's side of the protocol, whoever carries its bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from catchment.broker import messages as m
from catchment.broker.frames import EPOCH, FrameReader, FrameWriter, fitting_batches, opened
from catchment.model.errors import FrameError
from catchment.stages import ANSWER_SCHEMA

__all__ = ["Session", "WindowValue", "window_values"]


@dataclass(frozen=True, slots=True)
class WindowValue:
    """One output of an aggregate subscription, for one window and group."""

    subscription: str
    start_us: int
    end_us: int
    group: dict[str, str | None]
    output: str
    value: float | None
    exact: str
    publications: int
    revision: int
    problem: str | None
    """Why there is no value: it is beyond its type."""


def window_values(message: m.Notified) -> list[WindowValue]:
    """What a message says, value by value."""
    answers = message.answers
    columns = [answers.column(name) for name in ANSWER_SCHEMA.names]
    plain = [one.cast(pa.int64()) if pa.types.is_timestamp(one.type) else one for one in columns]
    rows = zip(*(one.to_pylist() for one in plain), strict=True)
    return [WindowValue(name, start, end, dict(group), *rest) for name, start, end, group, *rest in rows]


class Session:
    """One life of a client at its broker: numbers what it sends, and takes what comes once."""

    def __init__(self, name: str, incarnation: int = 1, *, after: int = 0) -> None:
        """Begin with request `after` + 1: a life that knows nothing of those before it takes no number of theirs."""
        self.name, self.incarnation = name, incarnation
        self.requests = self._after = after
        """The number of the last."""
        self.open: dict[int, m.Message] = {}
        """Requests that are not answered."""
        self.received = 0
        self.repeated = 0
        self._sent = 0
        self._reader, self._writer = FrameReader(), FrameWriter()
        self._dropped: dict[int, tuple[str, ...]] = {}
        """By request, the ids of late events in the parts of an acknowledgement that have come so far."""

    def ask(self, kind: type[Any], *fields: Any) -> tuple[int, list[bytes]]:
        """A new request: its number, and the frames to send. One that no frame can carry raises and is not made."""
        number = self.requests + 1
        message = kind(number, *fields)
        try:
            frames = self._writer.frames(
                self.name, [message], incarnation=self.incarnation, epoch=EPOCH, after=self._sent, covers=0
            )
        except (UnicodeEncodeError, OverflowError) as error:
            raise FrameError(f"no frame can carry {kind.__name__}: {error}") from None
        self.requests, self.open[number] = number, message
        self._sent += len(frames)
        return number, frames

    def publish(self, topic: str, events: pa.RecordBatch) -> tuple[list[int], list[bytes]]:
        """Publish events in as many requests as it takes: their numbers, and the frames to send.

        Each request is accepted or refused by itself. If one event fits into no request, this raises and makes none.
        """
        asked = [self.ask(m.PublishEvents, topic, one) for one in list(fitting_batches(topic, events))]
        return [number for number, _ in asked], [data for _, frames in asked for data in frames]

    def resumed(self) -> Session:
        """The next life of a client that has parked, and goes on behind the last frame that it got."""
        session = Session(self.name, self.incarnation + 1, after=self._after)
        session.requests, session.open, session.received = self.requests, self.open, self.received
        session._reader, session._dropped = self._reader, self._dropped
        return session

    def pass_over(self, data: bytes) -> None:
        """Take a frame for received that an earlier life has had: later ones may use the schemas that it names."""
        envelope = opened(data)
        self._reader.learn(envelope)
        self.received = envelope.sequence

    def go_on_before(self, data: bytes) -> None:
        """Take all for received that came before a frame."""
        self.received = opened(data).sequence - 1

    def receive(self, data: bytes) -> tuple[m.Message, ...]:
        """What a frame of the broker says that is new; a frame that was missed before it is a FrameError."""
        envelope = opened(data)
        if envelope.sequence <= self.received:
            self.repeated += 1
            return ()
        messages = self._reader.messages(envelope)
        # Who did not read for too long is told so, behind what it missed.
        if envelope.sequence > self.received + 1 and not any(isinstance(one, m.Dropped) for one in messages):
            raise FrameError(f"{self.name} got frame {envelope.sequence}; the next one is {self.received + 1}")
        self.received = envelope.sequence
        return tuple(self._taken(message) for message in messages if not self._is_part(message))

    def _is_part(self, message: m.Message) -> bool:
        """Keep the late ids of an acknowledgement that goes on in another message."""
        if not isinstance(message, m.Acknowledged) or message.is_last:
            return False
        self._dropped[message.request] = self._dropped.get(message.request, ()) + message.dropped
        return True

    def _taken(self, message: m.Message) -> m.Message:
        """A message as its reader shall see it: an answer closes its request, with all parts that came before."""
        if not isinstance(message, (m.Acknowledged, m.Refused)):
            return message
        if message.request <= self._after:
            # An earlier life asked for it.
            self._dropped.pop(message.request, None)
            return message
        if message.request not in self.open:
            raise FrameError(f"{self.name} was answered what it did not ask: {str(message)[:200]}")
        del self.open[message.request]
        before = self._dropped.pop(message.request, ())
        if before and isinstance(message, m.Acknowledged):
            return m.Acknowledged(message.request, before + message.dropped)
        return message
