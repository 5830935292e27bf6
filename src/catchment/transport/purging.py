"""When a broker's process stores a snapshot, and what of its stream that makes useless.

Rule 1: a snapshot is stored after every frame and notice of the steps that it stands for: replay begins behind it.
Rule 2: the stream is purged only below a snapshot that is whole, and never the newest message of a neighbour or the
        newest record of steps, which are needed after a crash.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable

from catchment.broker.hosting import Host
from catchment.transport.context import LifeContext
from catchment.transport.jetstream import Stored
from catchment.transport.names import input_subjects, link_subject
from catchment.transport.notices import Notices
from catchment.transport.outlets import Delivery, Link
from catchment.transport.records import StepRecords
from catchment.transport.snapshots import SnapshotStore

__all__ = ["SnapshotSchedule"]


class SnapshotSchedule:
    """The snapshots of one life."""

    def __init__(
        self,
        context: LifeContext,
        store: SnapshotStore,
        records: StepRecords,
        notices: Notices,
        outlets: Callable[[], Iterable[Link | Delivery]],
    ) -> None:
        self._context, self._store, self._records, self._notices = context, store, records, notices
        self._outlets = outlets
        self._writing: asyncio.Task[None] | None = None
        self._at_s, self._at_position = time.monotonic(), store.position
        self._bytes = 0
        """Of inputs since the last snapshot."""
        self._newest: dict[str, int] = {}
        """By neighbour, the position of its newest message."""

    @property
    def is_writing(self) -> bool:
        return self._writing is not None

    def note_newest(self, neighbour: str, position: int) -> None:
        """Note where the newest message of a neighbour is."""
        self._newest[neighbour] = position

    def start_from(self, position: int) -> None:
        """Count from the snapshot that the broker was brought back from."""
        self._at_s, self._at_position, self._bytes = time.monotonic(), position, 0

    def heard(self, entries: Iterable[Stored]) -> None:
        """Count inputs."""
        self._bytes += sum(one.size_bytes for one in entries)

    def write_if_due(self, host: Host) -> None:
        options = self._context.options
        handled = host.position - self._at_position
        is_late = time.monotonic() - self._at_s > options.snapshot_every_s
        are_many = handled >= options.snapshot_inputs_max or self._bytes >= options.snapshot_bytes_max
        if self._writing is None and handled and (is_late or are_many):
            self._freeze(host)
            self._writing = self._context.tasks.begin(self._write(host))

    async def write_now(self, host: Host) -> None:
        """Store a snapshot of this position, after one that was begun."""
        if self._writing is not None:
            await asyncio.wait([self._writing])
        await self._write(host)
        self._freeze(host)
        await self._write(host)

    def _freeze(self, host: Host) -> None:
        """Freeze the broker, now that all that came of its last step is handed over."""
        self.start_from(host.position)
        self._store.begin(host.broker)

    async def _write(self, host: Host) -> None:
        """Store what was frozen, and drop what it stands for."""
        position, context = self._store.writing, self._context
        if position is not None:
            for outlet in self._outlets():
                await outlet.flushed(position)
            await self._notices.stored()
            context.tasks.check()
            context.at("snapshot begun")
            await self._store.store_pieces()
            context.at("snapshot whole")
            await self._store.drop_useless()
            await self._purge(position)
            host.forget(position)
            context.at("purged")
        self._writing = None

    async def _purge(self, position: int) -> None:
        """Drop the inputs that a snapshot stands for, but for the newest of each neighbour and of the steps' ends."""
        context = self._context
        kept = {link_subject(context.name, neighbour): at for neighbour, at in self._newest.items()}
        kept[self._records.subject] = self._records.position
        for subject, newest in kept.items():
            await context.streams.purge(context.stream, min(position + 1, newest), subject)
        for subject in input_subjects(context.name):
            if subject not in kept and not subject.startswith(link_subject(context.name, "").removesuffix(".")):
                await context.streams.purge(context.stream, position + 1, subject)
