"""One life of a broker's process, on one connection: recovery, then steps until something ends it.

    own stream ─► step ─► neighbours' streams, clients' streams ─► snapshot, now and then

Rule 1: all input of a broker is one stream, and the time at which a message was stored is its time. What this process
        itself has to say to its broker (timers, replies of the store, room) is stored there first.
Rule 2: a life begins with the newest whole snapshot and all that was stored behind it, after it has fenced every
        outgoing stream.
Rule 3: whatever any task of it meets ends a life; nothing goes on half.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence

from catchment.broker.advice import Advice
from catchment.broker.broker import Broker, Settings
from catchment.broker.hosting import Host, Outbox
from catchment.broker.inputs import Attached, Detached, Input, Replied, Step, Unreadable, Woken
from catchment.broker.peers import HISTORY
from catchment.broker.store import StoreRequest
from catchment.model.errors import CatchmentError, VersionError
from catchment.transport.answering import Answering
from catchment.transport.buckets import Bucket, apply_request
from catchment.transport.context import LifeContext
from catchment.transport.deliveries import Deliveries
from catchment.transport.entries import input_of
from catchment.transport.figures import Standing
from catchment.transport.following import Following
from catchment.transport.granting import Granting
from catchment.transport.history import Kept, forget_old, open_history
from catchment.transport.jetstream import Reader, Stored
from catchment.transport.leases import Lease
from catchment.transport.marks import newest_marked
from catchment.transport.names import history_stream, history_subject, input_stream, link_subject
from catchment.transport.notices import Notices, RoomWatch, Timer
from catchment.transport.outlets import Delivery, Link
from catchment.transport.posting import PostOutcomes
from catchment.transport.presence import Presence
from catchment.transport.purging import SnapshotSchedule
from catchment.transport.records import StepRecords
from catchment.transport.recovery import STORE, brought_back, open_streams, require_nothing_lost
from catchment.transport.snapshots import SnapshotStore

__all__ = ["Life", "Stopped"]

LEAVE_S = 5.0


class Stopped(Exception):  # noqa: N818  (it is asked for)
    """The process is asked to end."""


class Life:
    """A broker's process from its lease to its end; `handled` is the position up to which earlier lives have come."""

    def __init__(
        self, context: LifeContext, settings: Settings, make_advice: Callable[[], Iterable[Advice]], handled: int
    ) -> None:
        self._context, self._settings, self._make_advice = context, settings, make_advice
        self._streams, self._tasks, self._options = context.streams, context.tasks, context.options
        self.handled = handled
        """The position of the last input that was handled, in this life or before."""
        self.lease = Lease(self._streams, context.name, self._tasks.fail)
        self._store = Bucket(self._streams, STORE)
        self._links: dict[str, Link] = {}
        self._outboxes: dict[str, Outbox] = {}
        self._records = StepRecords(context)
        self._notices = Notices(context)
        self._room, self._timer = RoomWatch(context, self._notices), Timer(context, self._notices)
        self._deliveries = Deliveries(context, self._outboxes, self._records, self._notices)
        self._presence = Presence(context, self._notices, self._timer.now_us)
        self._pieces = SnapshotStore(self._streams, context.name)
        self._snapshots = SnapshotSchedule(context, self._pieces, self._records, self._notices, self._outlets)
        self._granting = Granting(context, self._notices)
        self._answering = Answering(context, self._deliveries, self._granting, lambda: self._host.broker.peers)
        self._following = Following(context, self._notices)
        self._posts = PostOutcomes(context)
        self._host: Host
        self.broker: Broker | None = None
        """Once it is brought back."""
        self._reader: Reader | None = None
        self._handling: Sequence[Stored] = ()
        """What the step that is under way has been handed."""

    async def live(self, on_serving: Callable[[], None]) -> None:
        """Be the broker until something ends that; `on_serving` is called once it takes inputs."""
        await self.lease.take()
        reader = await self._recover()
        on_serving()
        self._context.report("takes inputs", position=self._host.position + 1)
        try:
            while True:
                entries = await reader.read(self._options.step_inputs_max, self._options.step_bytes_max)
                self._handling = entries
                await self._step(entries, reader)
                self._handling = ()
        except Stopped:
            await self._leave()
            raise

    async def _leave(self) -> None:
        """Store a last snapshot, so that the next process has nothing to go over again."""
        self._tasks.failure = None
        try:
            async with asyncio.timeout(LEAVE_S):
                await self._snapshots.write_now(self._host)
        except (TimeoutError, CatchmentError) as error:
            self._context.report("leaves without a snapshot", "warning", reason=str(error))
        else:
            self._context.report("leaves", position=self._host.position)
        await self._streams.connection.close()

    def end(self) -> None:
        """Let go of all that this life has begun."""
        self._timer.cancel()
        if self._reader is not None:
            self._reader.stop()
        self._following.stop()
        for outlet in self._outlets():
            outlet.stop()
        self._tasks.cancel()

    def standing(self) -> Standing:
        """How this life stands now."""
        reader = self._reader
        oldest_us = self._handling[0].at_us if self._handling else None if reader is None else reader.oldest_us
        return Standing(
            broker=self.broker,
            oldest_us=oldest_us,
            inputs_waiting=len(self._handling) + (0 if reader is None else reader.waiting_count),
            snapshot_position=self._pieces.position,
            snapshot_at_us=self._pieces.whole_at_us,
            frames_waiting={name: len(link.frames) for name, link in self._links.items()},
        )

    def _outlets(self) -> list[Link | Delivery]:
        return [*self._links.values(), *self._deliveries]

    # -- recovery -----------------------------------------------------------------------------------------------------

    async def _recover(self) -> Reader:
        name, neighbours = self._context.name, self._context.neighbours
        state = await open_streams(self._streams, name, neighbours)
        if self._options.history is not None:
            await open_history(self._streams, name, self._options.history)
        pieces = await self._pieces.open()
        position = self._pieces.position
        require_nothing_lost(name, state, snapshot=position if pieces else None, handled=self.handled)
        broker = brought_back(name, neighbours, self._settings, self._make_advice, pieces)
        fence = await self._records.fence()
        await self._fence_links()
        await self._deliveries.fence()
        self._host, self.broker = Host(broker, self._outboxes, self._options.limits), broker
        reader = self._reader = Reader(self._streams, self._context.stream, position + 1)
        self._tasks.on_failure = reader.fail
        await reader.start()
        self._tasks.check()
        await self._replay(*await self._stored_until(fence, reader))
        self._snapshots.start_from(position)
        self._deliveries.listen()
        await self._following.start(broker)
        await self._granting.start(self._host.broker.rights)
        self._answering.start()
        if self._options.history is not None:
            self._tasks.begin(self._forget_history(self._options.history))
        if not pieces:
            # From now on, a stream that is gone is known to be.
            await self._snapshots.write_now(self._host)
        self._room.tell(is_full=False)
        self._presence.start(broker)
        return reader

    async def _fence_links(self) -> None:
        context = self._context
        for neighbour in context.neighbours:
            await self._fence_link(neighbour, input_stream(neighbour), link_subject(neighbour, context.name))
            subject = link_subject(context.name, neighbour)
            _, newest = await newest_marked(self._streams, context.stream, subject, context.report)
            if newest:
                self._snapshots.note_newest(neighbour, newest)
        if self._options.history is not None:
            await self._fence_link(HISTORY, history_stream(context.name), history_subject(context.name))

    async def _fence_link(self, name: str, stream: str, subject: str) -> None:
        context = self._context
        link = Link(
            self._streams, stream, subject, self._records.ends, self._tasks.fail, lambda: context.at("stored"),
            context.report,
        )  # fmt: skip
        await link.fence()
        self._links[name] = self._outboxes[name] = link

    async def _stored_until(self, fence: int, reader: Reader) -> tuple[list[tuple[Input, Stored]], set[int]]:
        """The inputs up to a position, and some behind it; and where steps have ended."""
        inputs: list[tuple[Input, Stored]] = []
        ends: set[int] = set()
        position = 0
        while position < fence:
            for stored in await reader.read(10_000):
                position = stored.position
                if stored.subject == self._records.subject:
                    ends.update(self._records.read(stored))
                elif (one := self._input(stored)) is not None:
                    inputs.append((one, stored))
        return inputs, ends

    async def _replay(self, inputs: Sequence[tuple[Input, Stored]], ends: set[int]) -> None:
        entries = {one.position: stored for one, stored in inputs}
        begin = 0
        plain = [one for one, _ in inputs]
        for step, lacking in self._host.steps_again(plain, ends=ends):
            group = plain[begin : begin + len(step.outcomes)]
            begin += len(group)
            if group:
                self._records.add(self._host.position)
            await self._carry_out(group, entries, step)
            for send in lacking:
                self._host.hand_over(send)
            if len(self._records.ends()) >= self._options.recorded_every:
                await self._records.record()
            self._tasks.check()
        self.handled = max(self.handled, self._host.position)
        await self._records.record()

    # -- steps --------------------------------------------------------------------------------------------------------

    def _input(self, stored: Stored) -> Input | None:
        """What the broker is handed for a message; None for what is none of its inputs."""
        context = self._context
        try:
            sender, item = input_of(context.name, stored)
        except VersionError:
            raise
        except CatchmentError as error:
            self._leave_out(stored, str(error))
            if stored.subject.startswith(link_subject(context.name, "")):
                # Nothing else would: of a link, the newest message is kept, which its sender needs.
                self._tasks.begin(self._streams.drop(context.stream, stored.position))
            return None
        if sender in self._links:
            self._snapshots.note_newest(sender, stored.position)
        if isinstance(item, Unreadable):
            self._leave_out(stored, item.reason)
        return None if item is None else Input(item, stored.at_us, stored.position)

    def _leave_out(self, stored: Stored, reason: str) -> None:
        self._context.report(
            "leaves out a message", "warning", position=stored.position, subject=stored.subject, reason=reason
        )

    async def _step(self, entries: list[Stored], reader: Reader) -> None:
        """Let the broker handle messages, and carry out what comes of it."""
        at, counts = self._context.at, self._context.counts
        at("read")
        for one in entries:
            counts.note_received(one)
        self._timer.heard(entries[-1].at_us)
        self._room.heard(entries)
        self._snapshots.heard(entries)
        by_position = {one.position: one for one in entries}
        inputs = [found for one in entries if (found := self._input(one)) is not None]
        if not inputs:
            return
        begun_s = time.perf_counter()
        step = self._host.step(inputs)
        counts.note_step(inputs, step, time.perf_counter() - begun_s)
        at("stepped")
        self._records.add(self._host.position)
        self.handled = self._host.position
        await self._carry_out(inputs, by_position, step)
        for send in step.sends:
            at("sending")
            counts.note_sent(send)
            self._host.hand_over(send)
        self._streams.connection.flush()
        at("sent")
        self._records.record_if_due()
        self._room.look(reader)
        self._snapshots.write_if_due(self._host)
        for link in self._links.values():
            await link.waiting_below(self._options.frames_ahead_max)
        await self._records.record_if_many()
        await self._streams.connection.drain()
        self._tasks.check()

    async def _carry_out(self, inputs: Sequence[Input], entries: dict[int, Stored], step: Step) -> None:
        """All that a step asks for but its frames."""
        for one, outcome in zip(inputs, step.outcomes, strict=True):
            item = one.item
            if outcome.kind == "taken" and isinstance(item, Attached):
                await self._deliveries.attach(item, one.position)
            elif outcome.kind == "taken" and isinstance(item, Detached):
                await self._deliveries.detach(item.client, one.position)
            self._answering.settle(entries[one.position], outcome)
        self._posts.settle(inputs, entries, step, self._host.broker)
        for request in step.requests:
            self._tasks.begin(self._ask_store(request))
        woken = [one.at_us for one in inputs if isinstance(one.item, Woken)]
        self._timer.set(step.timer_us, woken_us=woken[-1] if woken else None)

    async def _forget_history(self, kept: Kept) -> None:
        """Drop what is older than the history reaches back, as long as this life lasts; its newest message stays."""
        while True:
            oldest_us, newest = self._timer.now_us() - kept.keep_us, self._links[HISTORY].position
            await forget_old(self._streams, self._context.name, oldest_us, newest)
            await asyncio.sleep(kept.look_every_s)

    async def _ask_store(self, request: StoreRequest) -> None:
        self._notices.note(Replied(await apply_request(self._store, request)))
