"""Where a broker's frames go: the input stream of a neighbour, the delivery stream of a client.

Rule 1: a frame is stored on condition of the last position that this process knows, of its subject in a neighbour's
        stream, of the whole stream of a client. Whoever else has stored something there has become this broker.
Rule 2: before a process takes over it stores an empty message, a fence, behind the newest frame of each outgoing
        stream, with that frame's mark. Its predecessor can store nothing behind it; what the marks say is final.
Rule 3: the newest message of every outgoing stream stays there, whatever else is purged: its mark is needed after a
        crash.
Rule 4: what a server whose store is full does not take waits here. What is more than may wait for a client is lost to
        the client, which is told so and dropped.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

from catchment.broker.frames import opened
from catchment.broker.hosting import Mark, Outbox
from catchment.broker.inputs import Send
from catchment.model.errors import CheckpointError
from catchment.transport.jetstream import FullError, JetStream, WrongPositionError, stored_position
from catchment.transport.marks import MARK, newest_marked
from catchment.transport.names import outbox_stream, outbox_subject
from catchment.transport.reports import Report, keep_silent
from catchment.transport.wire import ConnectionLostError, Message

__all__ = ["BYTES_MAX", "Delivery", "Link"]

BYTES_MAX = "bytes_max"
"""What a client's stream says of how much may wait in it."""
RETRY_S = 0.2
"""How long to wait for a server whose store is full."""

Failed = Callable[[BaseException], None]
OnStored = Callable[[], None]
Ends = Callable[[], tuple[int, ...]]
"""Where steps have ended since that was last stored by itself."""


def _ignore() -> None:
    """Do nothing."""


class Link(Outbox):
    """Frames for one subject of a stream, stored one after the other: each names the position of the one before.

    Others store in the same stream, so that a position is known only once the server has answered. What waits for an
    answer is sent within the call that brings it, without a turn of the event loop between.
    """

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
        self._under_way: Mark | None = None
        """Of the frame that is on its way, or is sent again soon."""
        self._changed = asyncio.Event()
        self._retry: asyncio.TimerHandle | None = None
        self._looking: asyncio.Task[None] | None = None
        self._is_stopped = False

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

    def stop(self) -> None:
        self._is_stopped = True
        if self._retry is not None:
            self._retry.cancel()
        if self._looking is not None:
            self._looking.cancel()

    def put(self, send: Send, ends: Iterable[int]) -> None:
        super().put(send, ends)
        known = self._ends_now()
        self._marks.extend(Mark(number, send.covers, known) for number in range(send.first, send.last + 1))
        if self._under_way is None:
            self._send_next()

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

    def _send_next(self) -> None:
        """Send the first frame that waits, if there is one: nothing is on its way."""
        self._under_way = self._retry = None
        if not self.frames or self._is_stopped:
            return
        mark = self._under_way = self._marks[0]
        try:
            answer = self._streams.send(
                self._subject, self.frames[0], after_of_subject=self._position, headers={MARK: mark.to_text()}
            )
        except ConnectionLostError as error:
            self._failed(error)
        else:
            answer.add_done_callback(self._answered)

    def _answered(self, answer: asyncio.Future[Message]) -> None:
        if self._is_stopped or answer.cancelled():
            return
        try:
            self._position = stored_position(answer.result())
        except FullError:
            self._retry = asyncio.get_running_loop().call_later(RETRY_S, self._send_next)
        except WrongPositionError as error:
            self._looking = asyncio.create_task(self._look(error))
        except BaseException as error:
            self._failed(error)
        else:
            if self._marks and self._marks[0] is self._under_way:
                # Else the neighbour has begun a new life meanwhile, and what waited for it is gone.
                self.take()
                self._marks.popleft()
            self._changed.set()
            self._on_stored()
            self._send_next()

    async def _look(self, refused: WrongPositionError) -> None:
        """Send again if what was stored meanwhile is of no broker; else another process has become this broker."""
        try:
            _, newest = await newest_marked(self._streams, self._stream, self._subject, self._report)
            if newest != self._position:
                raise refused
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            self._failed(error)
        else:
            self._send_next()


@dataclass(slots=True)
class _Sent:
    """A frame that is on its way into a client's stream."""

    data: bytes
    mark: Mark


class Delivery(Outbox):
    """Frames for a client. Nobody else writes to its stream, so that positions are known before they are stored.

    How much may wait is counted here: a limit of the stream itself would reserve that much of the server's store.
    """

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
        self._under_way: deque[_Sent] = deque()
        """Frames that are not known to be stored."""
        self._changed = asyncio.Event()
        self._marks: deque[Mark] = deque()
        self.bytes_max = 0
        self._unconfirmed: deque[tuple[int, int]] = deque()
        """Position and size of what is in the stream, or on its way, and not confirmed."""
        self._unconfirmed_bytes = 0
        self._found = 0
        """The last position that was there when this process began: what is up to it is counted as one."""
        self._is_full = False
        """More than may waits: the rest is missed."""
        self._is_blocked = False
        """The server's store is full: what it did not take is sent again."""
        self._is_clearing = False
        self._missed = 0
        self._purges = 0
        self._taken_back = 0
        """How many of the frames that wait were under way when the server's store was full."""
        self._task: asyncio.Task[None] | None = None
        """Clears the stream, or waits for a server whose store is full."""
        self.attached = 0
        """The position of the input by which the client came."""

    async def create(self, attached: int, incarnation: int, bytes_max: int) -> None:
        """Begin an empty stream for a client that has come, with a fence as its first message."""
        await self._streams.delete(self.stream)
        metadata = {
            "client": self.client, "attached": str(attached), "incarnation": str(incarnation),
            BYTES_MAX: str(bytes_max),
        }  # fmt: skip
        await self._streams.create(self.stream, [self._all], metadata=metadata)
        self.attached, self._position, self.bytes_max = attached, 0, bytes_max
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
            self.attached = int(state.metadata.get("attached", "0"))
            self.bytes_max = int(state.metadata.get(BYTES_MAX, "0"))
            self._found = state.last
            self._count(state.last, state.size_bytes)
            self.last, self.covers, self.ends = mark.last, mark.covers, list(mark.ends)
            return True

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()

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
        self._is_clearing = True
        self._begin(self._clear())

    def end_life(self) -> None:
        """Drop what waits here: the next life has a stream of its own."""
        self.frames.clear()
        self._marks.clear()

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        self.stop()
        self._task = asyncio.create_task(self._until_done(work))

    async def _until_done(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
            self._task = None
            self._send_waiting()
            self._changed.set()
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            self._failed(error)

    async def _clear(self) -> None:
        state = await self._streams.state(self.stream)
        if state is None:
            return
        # First make room for a fence, then leave nothing but that.
        await self._streams.purge(self.stream, state.last)
        mark, _ = await newest_marked(self._streams, self.stream, self._all, keep_silent)
        self._position = await self._streams.store(self._fence, b"", after=state.last, headers={MARK: mark.to_text()})
        await self._streams.purge(self.stream, self._position)
        self._is_full = self._is_blocked = self._is_clearing = False
        self._missed = 0
        self._under_way.clear()
        self._unconfirmed.clear()
        self._unconfirmed_bytes = 0
        self._purges += 1

    async def _wait_for_store(self) -> None:
        """Wait for a server whose store is full, then send again what it did not take, in its order."""
        while self._under_way:
            self._changed.clear()
            await self._changed.wait()
        await asyncio.sleep(RETRY_S)
        self._is_blocked = False

    def _send_waiting(self) -> None:
        while self.frames and self._task is None:
            data, mark = self.frames.popleft(), self._marks.popleft()
            if self._unconfirmed_bytes > self.bytes_max:
                self._is_full = True
            if self._is_full:
                self._miss()
                continue
            self._send(_Sent(data, mark))

    def _send(self, sent: _Sent) -> None:
        subject = self._named if opened(sent.data).schemas else self._frame
        headers = {MARK: sent.mark.to_text()}
        answer = self._streams.send(subject, sent.data, after=self._position, headers=headers)
        self._position += 1
        self._count(self._position, len(sent.data) + len(subject) + len(headers[MARK]) + 60)
        self._under_way.append(sent)
        answer.add_done_callback(partial(self._stored, self._purges))

    def _count(self, position: int, size: int) -> None:
        self._unconfirmed.append((position, size))
        self._unconfirmed_bytes += size

    def _stored(self, purges: int, answer: asyncio.Future[Message]) -> None:
        if purges != self._purges:
            return
        sent = self._under_way.popleft()
        self._changed.set()
        if answer.cancelled() or self._is_clearing:
            return
        try:
            stored_position(answer.result())
        except FullError:
            self._take_back(sent)
        except WrongPositionError as error:
            # Behind a frame that the server did not take, no other is at its position either.
            if self._is_blocked:
                self._take_back(sent)
            else:
                self._failed(error)
        except BaseException as error:
            self._failed(error)
        else:
            self._on_stored()

    def _take_back(self, sent: _Sent) -> None:
        if not self._is_blocked:
            self._is_blocked = True
            self._taken_back = 0
            if self._task is None:
                self._begin(self._wait_for_store())
        self.frames.insert(self._taken_back, sent.data)
        self._marks.insert(self._taken_back, sent.mark)
        self._taken_back += 1
        self._position -= 1
        self._unconfirmed_bytes -= self._unconfirmed.pop()[1]

    def _miss(self) -> None:
        """Something does not fit: the client has not read for too long."""
        self._missed += 1
        if self._missed == 1:
            self._overrun(self.client, self._missed)

    async def flushed(self, covers: int) -> None:
        """Wait until every frame of the steps up to a position is stored, or known not to fit."""
        while self._is_waiting(covers):
            self._changed.clear()
            await self._changed.wait()

    def _is_waiting(self, covers: int) -> bool:
        first = self._under_way[0].mark if self._under_way else self._marks[0] if self._marks else None
        return self._task is not None or (first is not None and first.covers <= covers)

    async def forget(self, confirmed: int) -> None:
        """Drop what the client has confirmed, but for frames that name schemas, and the newest message."""
        stored = self._position - len(self._under_way)
        for subject in (self._frame, self._fence):
            await self._streams.purge(self.stream, min(confirmed + 1, stored), subject)
        while self._unconfirmed and self._unconfirmed[0][0] <= confirmed:
            self._unconfirmed_bytes -= self._unconfirmed.popleft()[1]
        if self._unconfirmed and self._unconfirmed[0][0] == self._found:
            await self._measure_found()

    async def _measure_found(self) -> None:
        """Learn how much is left of what was there when this process began."""
        state = await self._streams.state(self.stream)
        if state is not None and self._unconfirmed and self._unconfirmed[0][0] == self._found:
            later_bytes = self._unconfirmed_bytes - self._unconfirmed[0][1]
            left_bytes = max(state.size_bytes - later_bytes, 0)
            self._unconfirmed[0] = self._found, left_bytes
            self._unconfirmed_bytes = later_bytes + left_bytes
