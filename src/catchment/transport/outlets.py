"""Where a broker's frames go: the input stream of a neighbour, the delivery stream of a client.

Rule 1: a frame is stored on condition of the last position that this process knows, of its subject in a neighbour's
        stream, of the whole stream of a client. Whoever else has stored something there has become this broker.
Rule 2: before a process takes over it stores an empty message, a fence, behind the newest frame of each outgoing
        stream, with that frame's mark. Its predecessor can store nothing behind it; what the marks say is final.
Rule 3: the newest message of every outgoing stream stays there, whatever else is purged: its mark is needed after a
        crash.
Rule 4: what a neighbour's stream does not take waits here; what a client's stream does not take is lost to the client,
        which is told so and dropped.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial

from catchment.broker.frames import opened
from catchment.broker.hosting import Mark, Outbox
from catchment.broker.inputs import Send
from catchment.model.errors import CheckpointError
from catchment.transport.jetstream import FullError, JetStream, WrongPositionError, stored_position
from catchment.transport.marks import MARK, newest_marked
from catchment.transport.names import outbox_stream, outbox_subject
from catchment.transport.reports import Report, keep_silent
from catchment.transport.wire import Message

__all__ = ["Delivery", "Link"]

RETRY_S = 0.2
"""How long to wait for a server whose store is full."""

Failed = Callable[[BaseException], None]
OnStored = Callable[[], None]
Ends = Callable[[], tuple[int, ...]]
"""Where steps have ended since that was last stored by itself."""


def _ignore() -> None:
    """Do nothing."""


class Link(Outbox):
    """Frames for one subject of a stream, stored one after the other: each names the position of the one before."""

    def __init__(
        self,
        streams: JetStream,
        stream: str,
        subject: str,
        ends: Ends,
        failed: Failed,
        on_stored: OnStored = _ignore,
        report: Report = keep_silent,
    ) -> None:
        super().__init__()
        self._report = report
        self._streams, self._ends_now, self._failed, self._on_stored = streams, ends, failed, on_stored
        self._stream, self._subject = stream, subject
        self._marks: deque[Mark] = deque()
        self._position = 0
        self._work = asyncio.Event()
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def position(self) -> int:
        """Of the newest message."""
        return self._position

    async def fence(self) -> None:
        """Learn what is there, and keep any other process from adding to it."""
        while True:
            mark, position = await newest_marked(self._streams, self._stream, self._subject, self._report)
            try:
                self._position = await self._streams.store(
                    self._subject, b"", after_of_subject=position, headers={MARK: mark.to_text()}
                )
            except WrongPositionError:
                continue
            self.last, self.covers, self.ends = mark.last, mark.covers, list(mark.ends)
            return

    def start(self) -> None:
        self._task = asyncio.create_task(self._run())

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def put(self, send: Send, ends: Iterable[int]) -> None:
        super().put(send, ends)
        known = self._ends_now()
        self._marks.extend(Mark(number, send.covers, known) for number in range(send.first, send.last + 1))
        self._work.set()

    def clear(self) -> None:
        super().clear()
        self._marks.clear()
        self._changed.set()

    async def flushed(self, covers: int) -> None:
        """Wait until every frame of the steps up to a position is stored."""
        while self._marks and self._marks[0].covers <= covers:
            self._changed.clear()
            await self._changed.wait()

    async def waiting_below(self, count: int) -> None:
        """Wait until fewer frames than that wait."""
        while len(self.frames) >= count:
            self._changed.clear()
            await self._changed.wait()

    async def _run(self) -> None:
        try:
            while True:
                while self.frames:
                    await self._store_next()
                self._work.clear()
                await self._work.wait()
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            self._failed(error)

    async def _store_next(self) -> None:
        data, mark = self.frames[0], self._marks[0]
        try:
            self._position = await self._streams.store(
                self._subject, data, after_of_subject=self._position, headers={MARK: mark.to_text()}
            )
        except FullError:
            await asyncio.sleep(RETRY_S)
            return
        except WrongPositionError:
            _, newest = await newest_marked(self._streams, self._stream, self._subject, self._report)
            if newest != self._position:
                raise
            # What was there is of no broker, and dropped; now this frame is the next one.
            return
        if self._marks and self._marks[0] is mark:
            # Else the neighbour has begun a new life meanwhile, and what waited for it is gone.
            self.take()
            self._marks.popleft()
        self._changed.set()
        self._on_stored()


class Delivery(Outbox):
    """Frames for a client. Nobody else writes to its stream, so that positions are known before they are stored."""

    def __init__(
        self,
        streams: JetStream,
        broker: str,
        client: str,
        ends: Ends,
        failed: Failed,
        overrun: Callable[[str, int], None],
        on_stored: OnStored = _ignore,
    ) -> None:
        super().__init__()
        self.client, self._on_stored = client, on_stored
        self._streams, self._ends_now, self._failed, self._overrun = streams, ends, failed, overrun
        self.stream = outbox_stream(broker, client)
        self._frame, self._named, self._fence = (
            outbox_subject(broker, client, kind) for kind in ("frame", "named", "fence")
        )
        self._all = outbox_subject(broker, client, "*")
        self._position = 0
        """Of the last message, once all that is under way is stored."""
        self._under_way: deque[int] = deque()
        """What the steps of frames cover that are not known to be stored."""
        self._changed = asyncio.Event()
        self._marks: deque[Mark] = deque()
        self._is_full = False
        self._missed = 0
        self._purges = 0
        self._clearing: asyncio.Task[None] | None = None
        self.attached = 0
        """The position of the input by which the client came."""

    async def create(self, attached: int, incarnation: int, bytes_max: int) -> None:
        """Begin an empty stream for a client that has come, with a fence as its first message."""
        await self._streams.delete(self.stream)
        metadata = {"client": self.client, "attached": str(attached), "incarnation": str(incarnation)}
        await self._streams.create(self.stream, [self._all], bytes_max=bytes_max, metadata=metadata)
        self.attached, self._position = attached, 0
        mark = Mark(0, attached, self._ends_now())
        self._position = await self._streams.store(self._fence, b"", after=0, headers={MARK: mark.to_text()})
        self.last, self.covers = 0, attached

    async def fence(self, report: Report = keep_silent) -> bool:
        """Learn what the client's stream has, and keep any other process from adding to it; False if there is none."""
        while True:
            state = await self._streams.state(self.stream)
            if state is None:
                return False
            mark, _ = await newest_marked(self._streams, self.stream, self._all, report)
            try:
                self._position = await self._streams.store(
                    self._fence, b"", after=state.last, headers={MARK: mark.to_text()}
                )
            except WrongPositionError:
                continue
            except FullError:
                # Nothing fits behind it for its predecessor either, until the client has read.
                self._position, self._is_full = state.last, True
            self.attached = int(state.metadata.get("attached", "0"))
            self.last, self.covers, self.ends = mark.last, mark.covers, list(mark.ends)
            return True

    def stop(self) -> None:
        if self._clearing is not None:
            self._clearing.cancel()

    def put(self, send: Send, ends: Iterable[int]) -> None:
        if send.first != 1 and send.first != self.last + 1:
            raise CheckpointError(
                f"{send.to!r} has frames up to {self.last}; accepted is the next one, not {send.first}"
            )
        self.last, self.covers = send.last, send.covers
        self.ends.extend(ends)
        known = self._ends_now()
        for number, data in enumerate(send.frames, send.first):
            self.frames.append(data)
            self._marks.append(Mark(number, send.covers, known))
        self._send_waiting()

    def clear(self) -> None:
        """Drop all that the client has not read: what comes next is the last that it hears."""
        self.frames.clear()
        self._marks.clear()
        self._clearing = asyncio.create_task(self._clear())

    def end_life(self) -> None:
        """Drop what waits here: the next life has a stream of its own."""
        self.frames.clear()
        self._marks.clear()

    async def _clear(self) -> None:
        try:
            state = await self._streams.state(self.stream)
            if state is not None:
                # First make room for a fence, then leave nothing but that.
                await self._streams.purge(self.stream, state.last)
                mark, _ = await newest_marked(self._streams, self.stream, self._all, keep_silent)
                self._position = await self._streams.store(
                    self._fence, b"", after=state.last, headers={MARK: mark.to_text()}
                )
                await self._streams.purge(self.stream, self._position)
                self._is_full, self._missed = False, 0
                self._under_way.clear()
                self._purges += 1
            self._clearing = None
            self._send_waiting()
            self._changed.set()
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            self._failed(error)

    def _send_waiting(self) -> None:
        if self._clearing is not None:
            return
        while self.frames:
            data, mark = self.frames.popleft(), self._marks.popleft()
            if self._is_full:
                self._miss()
                continue
            subject = self._named if opened(data).schemas else self._frame
            answer = self._streams.send(subject, data, after=self._position, headers={MARK: mark.to_text()})
            self._position += 1
            self._under_way.append(mark.covers)
            answer.add_done_callback(partial(self._stored, self._purges))

    def _stored(self, purges: int, answer: asyncio.Future[Message]) -> None:
        if purges != self._purges:
            return
        self._under_way.popleft()
        self._changed.set()
        if answer.cancelled() or self._is_full:
            self._missed += self._is_full
            return
        try:
            stored_position(answer.result())
        except FullError:
            self._is_full = True
            self._miss()
        except BaseException as error:
            self._failed(error)
        else:
            self._on_stored()

    def _miss(self) -> None:
        """Something does not fit: the client has not read for too long."""
        self._missed += 1
        if self._missed == 1:
            self._overrun(self.client, self._missed)

    async def flushed(self, covers: int) -> None:
        """Wait until every frame of the steps up to a position is stored, or known not to fit."""
        while (self._under_way and self._under_way[0] <= covers) or self._clearing is not None:
            self._changed.clear()
            await self._changed.wait()

    async def forget(self, confirmed: int) -> None:
        """Drop what the client has confirmed, but for frames that name schemas, and the newest message."""
        stored = self._position - len(self._under_way)
        for subject in (self._frame, self._fence):
            await self._streams.purge(self.stream, min(confirmed + 1, stored), subject)
