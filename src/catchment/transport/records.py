"""Where a broker's steps have ended, stored in its own stream: a process that follows makes the same steps again.

Every frame carries the ends of the steps since the last record (`hosting.Mark`), so that a record is due only now and
then.
"""

from __future__ import annotations

import asyncio

import msgspec

from catchment.model.errors import UNREADABLE
from catchment.transport.context import LifeContext
from catchment.transport.jetstream import Stored, WrongPositionError
from catchment.transport.names import steps_subject

__all__ = ["StepRecords"]

_ends = msgspec.msgpack.Decoder(list[int])


class StepRecords:
    """The ends of steps of one life."""

    def __init__(self, context: LifeContext) -> None:
        self._context = context
        self.subject = steps_subject(context.name)
        self.position = 0
        """Of the newest record."""
        self._unrecorded: list[int] = []
        self._recording: asyncio.Task[None] | None = None

    def add(self, end: int) -> None:
        """Note where a step has ended."""
        self._unrecorded.append(end)

    def ends(self) -> tuple[int, ...]:
        """Where steps have ended that no record has yet."""
        return tuple(self._unrecorded)

    def read(self, stored: Stored) -> list[int]:
        """The ends that a record has; one that does not decode has none, which is reported."""
        try:
            return _ends.decode(stored.data)
        except UNREADABLE as error:
            self._context.report(
                "leaves out a message", "warning", position=stored.position, subject=stored.subject, reason=str(error)
            )
            return []

    async def fence(self) -> int:
        """Keep any other process from storing records; the position up to which inputs are gone over again."""
        streams = self._context.streams
        while True:
            newest = await streams.last(self._context.stream, self.subject)
            try:
                self.position = await streams.store(
                    self.subject, msgspec.msgpack.encode([]), after_of_subject=newest.position if newest else 0
                )
            except WrongPositionError:
                continue
            return self.position

    def record_if_due(self) -> None:
        if self._recording is None and len(self._unrecorded) >= self._context.options.recorded_every:
            self._recording = self._context.tasks.begin(self._store())

    async def record_if_many(self) -> None:
        """Wait for a record where they fall far behind: marks grow with what is not recorded."""
        if len(self._unrecorded) > 8 * self._context.options.recorded_every:
            await self.record()

    async def record(self) -> None:
        """Store where steps have ended, and wait for it."""
        if self._recording is not None:
            await self._recording
        if self._unrecorded:
            await self._store()

    async def _store(self) -> None:
        ends = list(self._unrecorded)
        self.position = await self._context.streams.store(
            self.subject, msgspec.msgpack.encode(ends), after_of_subject=self.position
        )
        self._unrecorded = self._unrecorded[len(ends) :]
        self._recording = None
        self._context.at("recorded")
