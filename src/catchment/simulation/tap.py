"""Reads along on links: what the bytes of frames say, for traces, records and counts."""

from __future__ import annotations

from catchment.broker import messages as m
from catchment.broker.frames import FrameReader, opened

__all__ = ["Tap"]


class Tap:
    """A reader for each directed link and life of its sender."""

    def __init__(self) -> None:
        self._readers: dict[tuple[str, str, int], FrameReader] = {}

    def messages(self, source: str, target: str, data: bytes) -> tuple[m.Message, ...]:
        """What a frame says; frames of one link must pass in the order in which they were sent."""
        envelope = opened(data)
        key = source, target, envelope.incarnation
        if key not in self._readers:
            self._readers[key] = FrameReader()
        return self._readers[key].messages(envelope)
