"""A broker as a process: its host on a log that is a stream of a NATS server.

    own stream ─► step ─► neighbours' streams, clients' streams ─► snapshot, now and then

Rule 1: all input of a broker is one stream, and the time at which a message was stored is its time. What this process
        itself has to say to its broker (timers, replies of the store, room) is stored there first.
Rule 2: a process begins with the newest whole snapshot and all that was stored behind it, after it has fenced every
        outgoing stream. A connection that is lost is such a beginning too.
Rule 3: its own stream is purged only below a snapshot that is whole, and never the newest message of a sender.
Rule 4: whatever any task of it meets ends its life; nothing goes on half.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from catchment.broker.advice import Advice
from catchment.broker.broker import Broker, Settings
from catchment.broker.hosting import Host, Limits, Outbox, item_to_bytes
from catchment.broker.inputs import Attached, Detached, Input, Item, Overrun, Replied, Room, Step, Woken
from catchment.broker.memory import restored
from catchment.broker.store import StoreRequest
from catchment.model.errors import CatchmentError, CheckpointError, ConfigurationError, TransportError
from catchment.transport.buckets import Bucket, apply_request
from catchment.transport.entries import REPLY, input_of
from catchment.transport.jetstream import (
    FullError,
    JetStream,
    MissingError,
    Reader,
    Stored,
    StreamState,
    WrongPositionError,
)
from catchment.transport.leases import Lease
from catchment.transport.marks import newest_marked
from catchment.transport.names import (
    CONFIRMED,
    confirmed_subject,
    control_subject,
    deliver_subject,
    input_stream,
    input_subjects,
    link_subject,
    room_subject,
    steps_subject,
    untoken,
)
from catchment.transport.outlets import Delivery, Link
from catchment.transport.snapshots import SnapshotStore
from catchment.transport.wire import Connection, ConnectionLostError, Message, open_connection

__all__ = ["LiveBroker", "LiveOptions"]

STORE = "catchment_store"
LIMITS = Limits(client_bytes_max=256_000_000)
"""What waits is in files, not in memory."""
TAKEOVERS_MAX = 20
"""How often a process that holds the lease begins again, as its predecessor has still stored something."""
RECONNECT_S = (0.05, 2.0)
_ends = msgspec.msgpack.Decoder(list[int])


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveOptions:
    """How a broker's process behaves."""

    step_inputs_max: int = 2_000
    step_bytes_max: int = 16_000_000
    frames_ahead_max: int = 4
    """Frames that may wait for a neighbour's stream before the next step: under load, steps grow instead."""
    snapshot_every_s: float = 10.0
    snapshot_inputs_max: int = 20_000
    """Inputs after which a snapshot is due in any case."""
    recorded_every: int = 32
    """Steps after which their ends are stored by themselves; until then every frame carries them."""
    limits: Limits = LIMITS

    def __post_init__(self) -> None:
        for name in ("step_inputs_max", "step_bytes_max", "frames_ahead_max", "snapshot_inputs_max", "recorded_every"):
            if getattr(self, name) < 1:
                raise ConfigurationError(f"{name} is {getattr(self, name)}; accepted are numbers from 1 on")


class _Stopped(Exception):  # noqa: N818  (it is asked for)
    """The process is asked to end."""


class LiveBroker:
    """One broker of an overlay against one server, from life to life.

    `report` hears a line about whatever an operator should know; `at` is called with the name of each point where a
    crash would be interesting.
    """

    def __init__(
        self,
        name: str,
        neighbours: Iterable[str],
        settings: Settings,
        make_advice: Callable[[], Iterable[Advice]],
        url: str,
        *,
        options: LiveOptions | None = None,
        report: Callable[[str], None] = lambda line: None,
        at: Callable[[str], None] = lambda point: None,
    ) -> None:
        self.name, self.neighbours, self.settings = name, tuple(sorted(set(neighbours))), settings
        self.make_advice, self.url, self.options = make_advice, url, options or LiveOptions()
        self.report, self.at = report, at
        self.position = 0
        """Of the last input that was handled in any life of this process."""
        self.serving = asyncio.Event()
        """Set while the broker takes inputs."""
        self._life: _Life | None = None
        self._is_stopping = False

    async def run(self) -> None:
        """Be this broker until `stop`, or until another process is; a lost connection is opened again."""
        self._connection = await open_connection(self.url, f"broker {self.name}")
        try:
            takeovers = 0
            while not self._is_stopping:
                before = self.position
                try:
                    await self._live_once(self._connection)
                except _Stopped:
                    return
                except WrongPositionError as error:
                    # Whoever stores something now and then where it does not belong stops nobody.
                    takeovers = 1 if self.position > before else takeovers + 1
                    if takeovers > TAKEOVERS_MAX:
                        raise
                    self.report(f"begins again, as another process has still stored something: {error}")
                except FullError as error:
                    self.report(f"begins again, as the server's store is full: {error}")
                    await asyncio.sleep(RECONNECT_S[1])
                except ConnectionLostError as error:
                    self.report(str(error))
                    await self._connection.close()
                    self._connection = await self._reopened()
        finally:
            await self._connection.close()

    async def _live_once(self, connection: Connection) -> None:
        self._life = _Life(self, connection)
        try:
            await self._life.live()
        except WrongPositionError:
            # Whoever was this broker before may not have heard of it yet; whoever is it now has the lease.
            await self._life.lease.check()
            raise
        finally:
            self.serving.clear()
            self._life.end()

    def stop(self) -> None:
        """End after the step that is under way, with a snapshot."""
        self._is_stopping = True
        if self._life is not None:
            self._life.fail(_Stopped())

    async def _reopened(self) -> Connection:
        delay_s, delay_max_s = RECONNECT_S
        while True:
            try:
                connection = await open_connection(self.url, f"broker {self.name}")
            except TransportError:
                if self._is_stopping:
                    raise
                await asyncio.sleep(delay_s)
                delay_s = min(2 * delay_s, delay_max_s)
            else:
                self.report("is connected again")
                return connection


class _Life:
    """A broker's process on one connection."""

    def __init__(self, owner: LiveBroker, connection: Connection) -> None:
        self._owner, self._options, self._connection = owner, owner.options, connection
        self.name, self._neighbours = owner.name, owner.neighbours
        self._streams = JetStream(connection)
        self._stream = input_stream(self.name)
        self.lease = Lease(self._streams, self.name, self.fail)
        self._snapshots = SnapshotStore(self._streams, self.name)
        self._store = Bucket(self._streams, STORE)
        self._links: dict[str, Link] = {}
        self._deliveries: dict[str, Delivery] = {}
        self._outboxes: dict[str, Outbox] = {}
        self._host: Host
        self._reader: Reader | None = None
        self._failure: BaseException | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._unrecorded: list[int] = []
        """Where steps have ended that is not stored by itself yet."""
        self._steps_position = 0
        self._recording: asyncio.Task[None] | None = None
        self._snapshotting: asyncio.Task[None] | None = None
        self._snapshot_s = self._snapshot_position = 0.0
        self._newest: dict[str, int] = {}
        """By sender, the position of its newest message."""
        self._timer: asyncio.TimerHandle | None = None
        self._timer_us: int | None = None
        self._woken_for_us: int | None = None
        self._ahead_us = time.time_ns() // 1_000 - self._clock_us()
        """By how much the server's clock is ahead of this process's own, which begins anywhere."""
        self._is_full = False
        self._size_bytes = 200.0
        """What a message of the own stream takes, of late."""
        self._notices: set[asyncio.Task[None]] = set()
        self._noting = asyncio.Lock()
        """So that notices are stored in their order."""
        self._forgetting: dict[str, int] = {}
        """By client, up to where its stream is being purged."""

    # -- a life -------------------------------------------------------------------------------------------------------

    async def live(self) -> None:
        await self.lease.take()
        await self._recover()
        reader = self._reader
        assert reader is not None
        self._owner.serving.set()
        self._owner.report(f"takes inputs from {self._host.position + 1} on")
        try:
            while True:
                entries = await reader.read(self._options.step_inputs_max, self._options.step_bytes_max)
                await self._step(entries)
        except _Stopped:
            await self._leave()
            raise

    async def _leave(self) -> None:
        """Store a last snapshot, so that the next process has nothing to go over again."""
        self._failure = None
        try:
            async with asyncio.timeout(5):
                if self._snapshotting is not None:
                    await asyncio.wait([self._snapshotting])
                # One that was begun, and one of now.
                await self._write_snapshot()
                self._begin_snapshot()
                await self._write_snapshot()
        except (TimeoutError, CatchmentError) as error:
            self._owner.report(f"leaves without a snapshot: {error}")
        await self._connection.close()

    def end(self) -> None:
        """Let go of all that this life has begun."""
        if self._timer is not None:
            self._timer.cancel()
        if self._reader is not None:
            self._reader.stop()
        for outlet in self._outlets:
            outlet.stop()
        for task in self._tasks:
            task.cancel()

    def fail(self, error: BaseException) -> None:
        """End this life with an error, at its next chance."""
        if self._failure is None:
            self._failure = error
        if self._reader is not None:
            self._reader.fail(error)

    @property
    def _outlets(self) -> list[Link | Delivery]:
        return [*self._links.values(), *self._deliveries.values()]

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _begin(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Do something beside the steps; if it fails, so does this life."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.fail(error)

    # -- recovery -----------------------------------------------------------------------------------------------------

    async def _recover(self) -> None:
        state = await self._open_streams()
        pieces = await self._snapshots.open()
        position = self._snapshots.position
        self._check_nothing_lost(state, position, is_first=not pieces)
        broker = self._broker(pieces)
        fence = await self._fence_steps()
        await self._fence_outlets()
        self._host = Host(broker, self._outboxes, self._options.limits)
        reader = self._reader = Reader(self._streams, self._stream, position + 1)
        await reader.start()
        self._check()
        inputs, ends = await self._stored_until(fence, reader)
        await self._replay(inputs, ends)
        self._snapshot_s, self._snapshot_position = time.monotonic(), position
        self._connection.subscribe(confirmed_subject(self.name, "*"), self._confirmed)
        if not pieces:
            # From now on, a stream that is gone is known to be.
            self._begin_snapshot()
            await self._write_snapshot()
        self._tell_room(is_full=False)

    async def _open_streams(self) -> StreamState:
        streams = self._streams
        await Bucket(streams, CONFIRMED).create()
        await self._store.create()
        for neighbour in self._neighbours:
            await _create_input(streams, neighbour)
        return await _create_input(streams, self.name)

    def _check_nothing_lost(self, state: StreamState, position: int, *, is_first: bool) -> None:
        """Refuse to begin anew in silence where something was stored before."""
        known = max(position, self._owner.position)
        if state.last < known or (is_first and self._owner.position):
            raise CheckpointError(
                f"the server has lost what it stored for broker {self.name!r}: inputs end at {state.last}, and "
                f"{known} was handled{', and there is no snapshot' if is_first else ''}; restore its store, or begin "
                "another overlay"
            )
        if is_first and state.messages and state.first > 1:
            raise CheckpointError(
                f"the inputs of broker {self.name!r} begin at {state.first}, and there is no snapshot of what was "
                "before; restore the server's store, or begin another overlay"
            )

    def _broker(self, pieces: Sequence[bytes]) -> Broker:
        owner = self._owner
        if not pieces:
            return Broker(self.name, self._neighbours, owner.settings, owner.make_advice())
        broker = restored(pieces, owner.settings, owner.make_advice())
        if tuple(broker.neighbours) != self._neighbours:
            raise CheckpointError(
                f"a snapshot of {self.name!r} has the neighbours {', '.join(broker.neighbours) or 'none'}; "
                f"accepted is one with {', '.join(self._neighbours) or 'none'}"
            )
        return broker

    async def _fence_steps(self) -> int:
        """Keep any other process from storing where steps end; the position up to which inputs are gone over again."""
        subject = steps_subject(self.name)
        while True:
            newest = await self._streams.last(self._stream, subject)
            try:
                self._steps_position = await self._streams.store(
                    subject, msgspec.msgpack.encode([]), after_of_subject=newest.position if newest else 0
                )
            except WrongPositionError:
                continue
            return self._steps_position

    async def _fence_outlets(self) -> None:
        for neighbour in self._neighbours:
            report = self._owner.report
            link = Link(self._streams, self.name, neighbour, self._ends, self.fail, self._stored, report)
            await link.fence()
            self._links[neighbour] = self._outboxes[neighbour] = link
            subject = link_subject(self.name, neighbour)
            _, newest = await newest_marked(self._streams, self._stream, subject, report)
            if newest:
                self._newest[neighbour] = newest
        prefix = deliver_subject(self.name, "", "").removesuffix("..")
        for stream in await self._streams.names(f"{prefix}.>"):
            state = await self._streams.state(stream)
            if state is not None and "client" in state.metadata:
                delivery = self._new_delivery(state.metadata["client"])
                if await delivery.fence(self._owner.report):
                    self._deliveries[delivery.client] = self._outboxes[delivery.client] = delivery

    async def _stored_until(self, fence: int, reader: Reader) -> tuple[list[tuple[Input, Stored]], set[int]]:
        """The inputs up to a position, and some behind it; and where steps have ended."""
        inputs: list[tuple[Input, Stored]] = []
        ends: set[int] = set()
        position = 0
        while position < fence:
            for stored in await reader.read(10_000):
                position = stored.position
                if stored.subject == steps_subject(self.name):
                    ends.update(self._recorded(stored))
                elif (one := self._input(stored)) is not None:
                    inputs.append((one, stored))
        return inputs, ends

    def _recorded(self, stored: Stored) -> list[int]:
        try:
            return _ends.decode(stored.data)
        except msgspec.MsgspecError as error:
            self._owner.report(f"leaves out message {stored.position} of {stored.subject}: {error}")
            return []

    async def _replay(self, inputs: Sequence[tuple[Input, Stored]], ends: set[int]) -> None:
        for link in self._links.values():
            link.start()
        entries = {one.position: stored for one, stored in inputs}
        begin = 0
        plain = [one for one, _ in inputs]
        for step, lacking in self._host.steps_again(plain, ends=ends):
            group = plain[begin : begin + len(step.outcomes)]
            begin += len(group)
            if group:
                self._unrecorded.append(self._host.position)
            await self._carry_out(group, entries, step)
            for send in lacking:
                self._host.hand_over(send)
            if len(self._unrecorded) >= self._options.recorded_every:
                await self._record()
            self._check()
        self._owner.position = max(self._owner.position, self._host.position)
        await self._record()

    # -- steps --------------------------------------------------------------------------------------------------------

    def _input(self, stored: Stored) -> Input | None:
        """What the broker is handed for a message; None for what is none of its inputs."""
        try:
            sender, item = input_of(self.name, stored)
        except CatchmentError as error:
            self._owner.report(f"leaves out message {stored.position} of {stored.subject}: {error}")
            if stored.subject.startswith(link_subject(self.name, "")):
                # Nothing else would: of a link, the newest message is kept, which its sender needs.
                self._begin(self._streams.drop(self._stream, stored.position))
            return None
        if sender in self._links:
            self._newest[sender] = stored.position
        return None if item is None else Input(item, stored.at_us, stored.position)

    async def _step(self, entries: list[Stored]) -> None:
        """Let the broker handle messages, and carry out what comes of it."""
        self._owner.at("read")
        self._ahead_us = max(self._ahead_us, entries[-1].at_us - self._clock_us())
        size = sum(one.size_bytes for one in entries)
        self._size_bytes += (size / len(entries) - self._size_bytes) * 0.1
        by_position = {one.position: one for one in entries}
        inputs = [found for one in entries if (found := self._input(one)) is not None]
        if not inputs:
            return
        step = self._host.step(inputs)
        self._owner.at("stepped")
        self._unrecorded.append(self._host.position)
        self._owner.position = self._host.position
        await self._carry_out(inputs, by_position, step)
        for send in step.sends:
            self._owner.at("sending")
            self._host.hand_over(send)
        self._owner.at("sent")
        self._record_if_due()
        self._look_at_room()
        self._snapshot_if_due()
        for link in self._links.values():
            await link.waiting_below(self._options.frames_ahead_max)
        if len(self._unrecorded) > 8 * self._options.recorded_every:
            await self._record()
        await self._connection.drain()
        self._check()

    async def _carry_out(self, inputs: Sequence[Input], entries: dict[int, Stored], step: Step) -> None:
        """All that a step asks for but its frames."""
        for one, outcome in zip(inputs, step.outcomes, strict=True):
            item = one.item
            if outcome.kind == "taken" and isinstance(item, Attached):
                await self._attach(item, one.position)
            elif outcome.kind == "taken" and isinstance(item, Detached):
                await self._detach(item.client, one.position)
            if REPLY.encode() in (stored := entries[one.position]).head:
                said = {"kind": outcome.kind, "reason": outcome.reason}
                self._connection.publish(stored.headers[REPLY], msgspec.json.encode(said))
        for request in step.requests:
            self._begin(self._ask_store(request))
        self._set_timer(step.timer_us, is_woken=any(isinstance(one.item, Woken) for one in inputs))

    def _new_delivery(self, client: str) -> Delivery:
        return Delivery(self._streams, self.name, client, self._ends, self.fail, self._overrun, self._stored)

    def _stored(self) -> None:
        self._owner.at("stored")

    async def _attach(self, item: Attached, position: int) -> None:
        """Begin a delivery stream for a client, unless a later one is there already."""
        there = self._deliveries.get(item.client)
        if there is not None and there.attached >= position:
            return
        if there is not None:
            there.stop()
        # Marks of what is deleted may be the only ones that tell where steps have ended.
        await self._record()
        delivery = self._new_delivery(item.client)
        most = self._options.limits.for_client(is_durable=item.durable)
        await delivery.create(position, item.incarnation, most)
        self._deliveries[item.client] = self._outboxes[item.client] = delivery

    async def _detach(self, client: str, position: int) -> None:
        there = self._deliveries.get(client)
        if there is None or there.attached > position:
            return
        await self._record()
        there.stop()
        await self._streams.delete(there.stream)
        del self._deliveries[client], self._outboxes[client]

    async def _ask_store(self, request: StoreRequest) -> None:
        self._note(Replied(await apply_request(self._store, request)))

    # -- what this process tells its broker ---------------------------------------------------------------------------

    def _note(self, item: Item) -> None:
        """Store something in the broker's own log."""
        self._send(control_subject(self.name), item)

    def _send(self, subject: str, item: Item) -> None:
        task = self._begin(self._store_notice(subject, item))
        self._notices.add(task)
        task.add_done_callback(self._notices.discard)

    async def _store_notice(self, subject: str, item: Item) -> None:
        async with self._noting:
            while True:
                try:
                    await self._streams.store(subject, item_to_bytes(item))
                except FullError as error:
                    self._owner.report(f"waits, as the server's store is full: {error}")
                    await asyncio.sleep(RECONNECT_S[1])
                else:
                    return

    def _overrun(self, client: str, missed: int) -> None:
        self._begin(self._tell_overrun(client, missed))

    async def _tell_overrun(self, client: str, missed: int) -> None:
        delivery = self._deliveries.get(client)
        state = None if delivery is None else await self._streams.state(delivery.stream)
        self._owner.report(f"drops client {client!r}, which does not read")
        self._note(Overrun(client, missed + (state.messages if state is not None else 0)))

    def _look_at_room(self) -> None:
        """Say when more waits in the own stream than may, and when less than half of that does."""
        most, reader = self._options.limits.link_bytes_max, self._reader
        assert reader is not None
        waiting = reader.waiting_bytes + reader.pending * self._size_bytes
        if not self._is_full and waiting > most:
            self._tell_room(is_full=True)
        elif self._is_full and waiting <= most / 2:
            self._tell_room(is_full=False)

    def _tell_room(self, *, is_full: bool) -> None:
        if is_full != self._is_full:
            self._owner.report("has no room for more publications" if is_full else "has room again")
        self._is_full = is_full
        self._note(Room(self.name, is_full))
        for neighbour in self._neighbours:
            self._send(room_subject(neighbour, self.name), Room(self.name, is_full))

    def _clock_us(self) -> int:
        return time.monotonic_ns() // 1_000

    def _set_timer(self, timer_us: int | None, *, is_woken: bool) -> None:
        """Have the broker woken at a time of the server's clock."""
        if is_woken and timer_us is not None and timer_us == self._woken_for_us:
            # It was woken too early: the server's clock is behind what it seemed to be.
            self._ahead_us = self._host.broker.now_us - self._clock_us()
        elif timer_us == self._timer_us:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._timer_us, self._woken_for_us = None, timer_us, None
        if timer_us is not None:
            delay_s = max(timer_us - self._ahead_us - self._clock_us(), 0) / 1e6
            self._timer = asyncio.get_running_loop().call_later(delay_s, self._wake)

    def _wake(self) -> None:
        self._timer, self._woken_for_us = None, self._timer_us
        if not self._connection.is_lost:
            self._note(Woken())

    def _confirmed(self, message: Message) -> None:
        """A client has confirmed what it got."""
        client = untoken(message.subject.rpartition(".")[2])
        delivery = self._deliveries.get(client)
        try:
            said = msgspec.json.decode(message.data, type=dict[str, int])
        except msgspec.MsgspecError:
            return
        if delivery is None or said.get("attached") != delivery.attached:
            return
        is_busy = client in self._forgetting
        self._forgetting[client] = said.get("confirmed", 0)
        if not is_busy:
            self._begin(self._forget(delivery))

    async def _forget(self, delivery: Delivery) -> None:
        """Drop what a client has confirmed, until it has said nothing new meanwhile."""
        done = -1
        while (confirmed := self._forgetting[delivery.client]) > done:
            try:
                await delivery.forget(confirmed)
            except MissingError:
                break  # The client has gone.
            done = confirmed
        del self._forgetting[delivery.client]

    # -- where steps have ended ---------------------------------------------------------------------------------------

    def _ends(self) -> tuple[int, ...]:
        return tuple(self._unrecorded)

    def _record_if_due(self) -> None:
        if self._recording is None and len(self._unrecorded) >= self._options.recorded_every:
            self._recording = self._begin(self._store_record())

    async def _record(self) -> None:
        """Store where steps have ended, and wait for it."""
        if self._recording is not None:
            await self._recording
        if self._unrecorded:
            await self._store_record()

    async def _store_record(self) -> None:
        ends = list(self._unrecorded)
        self._steps_position = await self._streams.store(
            steps_subject(self.name), msgspec.msgpack.encode(ends), after_of_subject=self._steps_position
        )
        self._unrecorded = self._unrecorded[len(ends) :]
        self._recording = None
        self._owner.at("recorded")

    # -- snapshots ----------------------------------------------------------------------------------------------------

    def _snapshot_if_due(self) -> None:
        handled = self._host.position - self._snapshot_position
        is_late = time.monotonic() - self._snapshot_s > self._options.snapshot_every_s
        if self._snapshotting is None and handled and (is_late or handled >= self._options.snapshot_inputs_max):
            self._begin_snapshot()
            self._snapshotting = self._begin(self._write_snapshot())

    def _begin_snapshot(self) -> None:
        """Freeze the broker, now that all that came of its last step is handed over."""
        self._snapshot_s, self._snapshot_position = time.monotonic(), self._host.position
        self._snapshots.begin(self._host.broker)

    async def _write_snapshot(self) -> None:
        """Store what was frozen, and drop what it stands for."""
        position = self._snapshots.writing
        if position is not None:
            for outlet in self._outlets:
                await outlet.flushed(position)
            if self._notices:
                await asyncio.wait(self._notices)
            self._check()
            self._owner.at("snapshot begun")
            await self._snapshots.store_pieces()
            self._owner.at("snapshot whole")
            await self._snapshots.drop_useless()
            await self._purge(position)
            self._host.forget(position)
            self._owner.at("purged")
        self._snapshotting = None

    async def _purge(self, position: int) -> None:
        """Drop the inputs that a snapshot stands for, but for the newest of each neighbour and of the steps' ends."""
        kept = {link_subject(self.name, neighbour): at for neighbour, at in self._newest.items()}
        kept[steps_subject(self.name)] = self._steps_position
        for subject, newest in kept.items():
            await self._streams.purge(self._stream, min(position + 1, newest), subject)
        for subject in input_subjects(self.name):
            if subject not in kept and not subject.startswith(link_subject(self.name, "").removesuffix(".")):
                await self._streams.purge(self._stream, position + 1, subject)


async def _create_input(streams: JetStream, broker: str) -> StreamState:
    return await streams.create(input_stream(broker), input_subjects(broker), metadata={"broker": broker})
