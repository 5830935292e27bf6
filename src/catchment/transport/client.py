"""Clients of an overlay: publish, subscribe, and get everything once, whatever breaks in between.

    async with catchment.connect("nats://127.0.0.1:4222", broker="b1") as client:
        await client.publish("traffic", {"speed": 55.0})
        async for value in await client.subscribe("SELECT avg(speed) FROM traffic GROUP BY window(ts, '20 seconds')"):
            …

Rule 1: a frame is sent until it, and every one before it, is stored; the broker drops what comes twice by its number.
Rule 2: what the broker sends is in a stream of the client's own, read from the first frame that was not taken; frames
        that come twice are dropped by their number.
Rule 3: a frame is confirmed once the application has taken all that it holds. A durable client that comes back, in
        whatever process, goes on behind the last frame that was confirmed.
Rule 4: single events that are published together travel as one batch; each is answered by itself.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import deque
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import msgspec
import numpy as np
import pyarrow as pa

from catchment.broker import messages as m
from catchment.broker.client import Session, WindowValue, window_values
from catchment.broker.hosting import item_to_bytes
from catchment.broker.inputs import Attached, Detached, Item, Parked, Resumed
from catchment.model.errors import CatchmentError, ConfigurationError, TransportError
from catchment.transport.description import Description
from catchment.transport.entries import REPLY
from catchment.transport.jetstream import (
    FullError,
    JetStream,
    MissingError,
    Reader,
    Stored,
    StreamState,
    stored_position,
)
from catchment.transport.marks import is_marked
from catchment.transport.names import alive_subject, client_subject, confirmed_subject, deliver_stream
from catchment.transport.outlets import BYTES_MAX
from catchment.transport.presence import BEATS
from catchment.transport.rows import batches_of, rows_to_batch
from catchment.transport.wire import Connection, ConnectionLostError, Message, open_connection

__all__ = ["Client", "ClientDroppedError", "Receipt", "RequestRefusedError", "Subscription", "Wait"]

Wait = Literal["acknowledged", "stored"]
ANSWER_S = 30.0
ASK_AGAIN_S = 1.0
CLOSE_S = 5.0
CONFIRM_S = 0.1
CONFIRM_BYTES = 1_000_000
OPEN_BYTES_MAX = 16_000_000
"""Of requests that are not answered: publishing waits beyond that."""
FRAMES_AHEAD_MAX = {"process": 8, "disk": 1}
"""Frames that are not stored yet, beyond which single events are gathered. Where each is synced, what comes meanwhile
is the next one: a group commit."""
GATHERED_MAX = 5_000
UNTAKEN_BYTES_MAX = 32_000_000
"""What waits for the application; the rest stays in the client's stream."""
RECONNECT_S = (0.05, 2.0)


class RequestRefusedError(CatchmentError):
    """The broker refuses a request, and says why; after `retry_s` it may accept the same one, unless that is None."""

    def __init__(self, reason: str, retry_s: float | None = None) -> None:
        super().__init__(reason)
        self.retry_s = retry_s


class ClientDroppedError(TransportError):
    """The client has not read for too long: its broker knows it no more."""


@dataclass(frozen=True, slots=True)
class Receipt:
    """What became of events that were published."""

    events: int
    dropped: tuple[str, ...] = ()
    """Ids of those that came too late for windows that are closed: they went nowhere."""
    is_acknowledged: bool = True
    """Whether the broker has taken them; else they are stored, and it will."""


@dataclass(slots=True)
class _Frame:
    data: bytes
    is_stored: bool = False
    stored: asyncio.Future[None] | None = None


@dataclass(slots=True)
class _Single:
    """One event that waits to be published with others."""

    row: Mapping[str, Any]
    wait: Wait
    done: asyncio.Future[Receipt]


@dataclass(slots=True)
class _Request:
    answer: asyncio.Future[m.Acknowledged]
    size_bytes: int


class Subscription:
    """What a subscription brings, in order: events as dictionaries, or values of windows.

    Iterate over it, or over `batches()`. What was handed out is confirmed when more is asked for, or by `confirm()`.
    """

    def __init__(self, client: Client, name: str) -> None:
        self._client, self.name = client, name
        self._waiting: deque[tuple[int, pa.RecordBatch | list[WindowValue], int]] = deque()
        self._arrived = asyncio.Event()
        self._is_ended = False
        self._rows: deque[Any] = deque()
        self._taken: int | None = None
        """The frame whose content is being handed out."""

    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    async def __anext__(self) -> Any:
        """The next event or value."""
        while not self._rows:
            content = await self._next()
            self._rows.extend(content.to_pylist() if isinstance(content, pa.RecordBatch) else content)
        return self._rows.popleft()

    def confirm(self) -> None:
        """Confirm what was handed out, without asking for more. Events that came together are confirmed together."""
        if self._taken is not None and not self._rows:
            self._client._taken(self._taken)
            self._taken = None

    async def batches(self) -> AsyncIterator[pa.RecordBatch | list[WindowValue]]:
        """Events as record batches, or values of windows in lists, as they came."""
        try:
            while True:
                yield await self._next()
        except StopAsyncIteration:
            return

    async def _next(self) -> pa.RecordBatch | list[WindowValue]:
        self.confirm()
        while not self._waiting:
            if self._is_ended:
                raise StopAsyncIteration
            if self._client._failure is not None:
                raise self._client._failure
            self._arrived.clear()
            await self._arrived.wait()
        self._taken, content, size = self._waiting.popleft()
        self._client._untake(size)
        return content

    def _put(self, position: int, content: pa.RecordBatch | list[WindowValue], size: int) -> None:
        self._waiting.append((position, content, size))
        self._arrived.set()

    def _end(self) -> None:
        self._is_ended = True
        self._arrived.set()


class Client:
    """A client of one broker; `open` connects it."""

    def __init__(self, url: str, *, broker: str | None = None, name: str | None = None, durable: bool = False) -> None:
        if durable and name is None:
            raise ConfigurationError("a durable client has no name; accepted is one by which it comes back")
        self.url, self.name, self.is_durable = url, name or f"client-{os.urandom(6).hex()}", durable
        self.broker = broker or ""
        self.description: Description
        self._connection: Connection
        self._streams: JetStream
        self._session: Session
        self._frames: deque[_Frame] = deque()
        """Those that are not stored, or behind one that is not."""
        self._is_blocked = False
        self._requests: dict[int, _Request] = {}
        self._open_bytes = 0
        self._room = asyncio.Event()
        self._room.set()
        self._gathered: dict[str, list[_Single]] = {}
        self._is_flushing = False
        self._topics: dict[str, asyncio.Future[None]] = {}
        """What is advertised, or about to be."""
        self._subscriptions: dict[str, Subscription] = {}
        self._read = 0
        """The position of the last frame that was read."""
        self._goes_on = False
        """Whether a frame has come that no earlier life had confirmed."""
        self._attached = 0
        self._untaken: dict[int, int] = {}
        """By position, how much of a frame the application has not taken; in order."""
        self._untaken_bytes = 0
        self._taking = asyncio.Event()
        self._taking.set()
        self._confirmed = self._told_confirmed = 0
        self._confirming: asyncio.TimerHandle | None = None
        self._confirm_bytes = CONFIRM_BYTES
        self._read_bytes = 0
        """Since anything was last said to be confirmed."""
        self._failure: BaseException | None = None
        self._task: asyncio.Task[None] | None = None
        self._beating: asyncio.Task[None] | None = None
        self._is_closing = False
        self._schemas: dict[str, Any] = {}

    # -- coming and going ---------------------------------------------------------------------------------------------

    async def open(self) -> Client:
        """Connect, and be known to the broker."""
        self._connection = await open_connection(self.url, f"client {self.name}")
        self._streams = JetStream(self._connection)
        try:
            self.description = await Description.read(self._streams)
            self._schemas = self.description.schemas
            self.broker = self.broker or self.description.brokers[0]
            self.description.overlay.require(self.broker)
            reader = await self._come()
        except BaseException:
            await self._connection.close()
            raise
        self._task = asyncio.create_task(self._run(reader))
        self._beating = asyncio.create_task(self._say_alive())
        return self

    async def _say_alive(self) -> None:
        """Give the broker a sign of life, again and again."""
        subject, life = alive_subject(self.broker, self.name), str(self._session.incarnation).encode()
        while True:
            if not self._connection.is_lost:
                self._connection.publish(subject, life)
            await asyncio.sleep(self.description.client_lease_us / BEATS / 1e6)

    async def _come(self) -> Reader:
        """Attach, or resume; a reader of what is there and not confirmed."""
        stream = deliver_stream(self.broker, self.name)
        state = await self._streams.state(stream)
        before = 0 if state is None else int(state.metadata.get("incarnation", "0"))
        incarnation = max(time.time_ns() // 1_000, before + 1)
        self._session = Session(self.name, incarnation, after=incarnation)
        if self.is_durable and state is not None:
            await self._say(Parked(self.name))
            kind, reason = await self._say(Resumed(self.name, incarnation))
            if kind == "taken":
                return await self._resumed(stream)
        kind, reason = await self._say(Attached(self.name, incarnation, durable=self.is_durable))
        if kind not in ("taken", "repeated"):
            raise RequestRefusedError(f"broker {self.broker!r} refuses client {self.name!r}: {reason}")
        state = await self._streams.state(stream)
        if state is None:
            raise TransportError(f"broker {self.broker!r} has no stream for client {self.name!r}")
        self._know(state)
        return await self._reader(1)

    def _know(self, state: StreamState) -> None:
        self._attached = int(state.metadata["attached"])
        # Confirmed in time, what was taken never fills the stream.
        self._confirm_bytes = max(int(state.metadata[BYTES_MAX]) // 8, 1)

    async def _resumed(self, stream: str) -> Reader:
        state = await self._streams.state(stream)
        assert state is not None
        self._know(state)
        said = await self._streams.last("KV_catchment_confirmed", confirmed_subject(self.broker, self.name))
        if said is not None:
            found = msgspec.json.decode(said.data, type=dict[str, int])
            if found.get("attached") == self._attached:
                self._confirmed = self._told_confirmed = found["confirmed"]
        return await self._reader(1)

    async def _reader(self, begin: int) -> Reader:
        reader = Reader(self._streams, deliver_stream(self.broker, self.name), begin, bytes_max=4_000_000)
        await reader.start()
        return reader

    async def _say(self, item: Item) -> tuple[str, str]:
        """Store something in the broker's log, again and again until it says what became of it."""
        heard: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        inbox = self._connection.new_inbox()

        def hear(message: Message) -> None:
            if not heard.done():
                heard.set_result(message)

        end = self._connection.subscribe(inbox, hear)
        until_s = time.monotonic() + ANSWER_S
        try:
            while time.monotonic() < until_s:
                try:
                    await self._streams.store(
                        client_subject(self.broker, self.name), item_to_bytes(item), headers={REPLY: inbox}
                    )
                except MissingError:
                    # It has never run, or is about to for the first time.
                    await asyncio.sleep(RECONNECT_S[0])
                    continue
                try:
                    async with asyncio.timeout(ASK_AGAIN_S):
                        message = await asyncio.shield(heard)
                except TimeoutError:
                    continue
                said = msgspec.json.decode(message.data, type=dict[str, str])
                return said["kind"], said["reason"]
        finally:
            end()
        raise TransportError(f"broker {self.broker!r} has not answered within {ANSWER_S} seconds: does it run?")

    async def close(self) -> None:
        """Go: a durable client will be back, and what it wants is collected; of any other nothing is left."""
        self._is_closing = True
        for task in (self._task, self._beating):
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        self._end(ConnectionLostError("the client is closed"))
        if self._connection.is_lost:
            return
        try:
            item = Parked(self.name) if self.is_durable else Detached(self.name)
            async with asyncio.timeout(CLOSE_S):
                # Stored before it is away: its next life, wherever it is, begins with that.
                await self._store_confirmed()
                await self._streams.store(client_subject(self.broker, self.name), item_to_bytes(item))
        except (CatchmentError, TimeoutError):
            pass  # The server is gone as well; there is nobody to tell.
        finally:
            await self._connection.close()

    # -- what an application asks for ---------------------------------------------------------------------------------

    async def advertise(self, topic: str) -> None:
        """Say that events of a topic will be published; `publish` does so by itself."""
        known = self._topics.get(topic)
        if known is None:
            known = self._topics[topic] = asyncio.get_running_loop().create_future()
            try:
                await self._ask(m.AdvertiseTopic, topic)
            except BaseException as error:
                del self._topics[topic]
                known.set_exception(error)
                known.exception()
                raise
            known.set_result(None)
        await asyncio.shield(known)

    async def unadvertise(self, topic: str) -> None:
        """Say that no more events of a topic will be published: windows need not wait for this client."""
        self._topics.pop(topic, None)
        await self._ask(m.UnadvertiseTopic, topic)

    async def publish(self, topic: str, events: Any, *, wait: Wait = "acknowledged") -> Receipt:
        """Publish one event (names and values), or many: rows, a record batch, a table, a data frame.

        Waits until the broker has taken them or, with `wait="stored"`, until they are stored.
        """
        await self.advertise(topic)
        if isinstance(events, Mapping):
            while not self._room.is_set():
                await self._room.wait()
            return await self.publish_soon(topic, events, wait=wait)
        parts = []
        for batch in batches_of(topic, self._schema(topic), events):
            while not self._room.is_set():
                await self._room.wait()
            parts.append((batch.num_rows, *self._begin(m.PublishEvents, topic, batch)))
        if wait == "stored":
            for _, _, stored in parts:
                await asyncio.shield(stored)
            return Receipt(sum(rows for rows, _, _ in parts), is_acknowledged=False)
        answers = await asyncio.gather(*(answer for _, answer, _ in parts), return_exceptions=True)
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer
        dropped = tuple(one for answer in answers for one in answer.dropped)  # type: ignore[union-attr]
        return Receipt(sum(rows for rows, _, _ in parts), dropped)

    def publish_soon(
        self, topic: str, event: Mapping[str, Any], *, wait: Wait = "acknowledged"
    ) -> asyncio.Future[Receipt]:
        """Publish one event of a topic that is advertised, together with others that are published just now."""
        if topic not in self._topics or not self._topics[topic].done():
            raise ConfigurationError(
                f"topic {topic!r} is not advertised; accepted is one whose `advertise` has returned"
            )
        if self._failure is not None:
            raise self._failure
        done: asyncio.Future[Receipt] = asyncio.get_running_loop().create_future()
        self._gathered.setdefault(topic, []).append(_Single(event, wait, done))
        self._flush_soon()
        return done

    async def drain(self) -> None:
        """Wait while more is under way than may be: for callers of `publish_soon`."""
        while not self._room.is_set() or any(len(one) > GATHERED_MAX for one in self._gathered.values()):
            self._room.clear()
            await self._room.wait()

    async def advance_time(self, topic: str, time_us: int) -> None:
        """Say how far event time has come where no event does."""
        await self.advertise(topic)
        await self._ask(m.AdvanceTime, topic, time_us)

    async def subscribe(self, sql: str, *, name: str | None = None) -> Subscription:
        """Ask for events or values of windows; known to all brokers that must know it when this returns.

        A durable client that is back asks again under the same name, and gets what was collected.
        """
        chosen = name or f"s-{os.urandom(6).hex()}"
        is_new = chosen not in self._subscriptions
        subscription = self._subscription(chosen)
        try:
            await self._ask(m.SubscribeTo, chosen, sql)
        except RequestRefusedError as error:
            if not (self.is_durable and "is already there" in str(error)):
                if is_new:
                    self._subscriptions.pop(chosen, None)
                raise
        return subscription

    async def unsubscribe(self, subscription: Subscription | str) -> None:
        name = subscription if isinstance(subscription, str) else subscription.name
        await self._ask(m.UnsubscribeFrom, name)
        if name in self._subscriptions:
            self._subscriptions.pop(name)._end()

    def _subscription(self, name: str) -> Subscription:
        if name not in self._subscriptions:
            self._subscriptions[name] = Subscription(self, name)
        return self._subscriptions[name]

    def _schema(self, topic: str) -> Any:
        if topic not in self._schemas:
            raise ConfigurationError(f"unknown topic {topic!r}; known are {', '.join(sorted(self._schemas))}")
        return self._schemas[topic]

    # -- requests -----------------------------------------------------------------------------------------------------

    async def _ask(self, kind: type, *fields: Any) -> m.Acknowledged:
        return await self._begin(kind, *fields)[0]

    def _begin(self, kind: type, *fields: Any) -> tuple[asyncio.Future[m.Acknowledged], asyncio.Future[None]]:
        """Send a request: its answer, and when it is stored."""
        if self._failure is not None:
            raise self._failure
        loop = asyncio.get_running_loop()
        number, frames = self._session.ask(kind, *fields)
        answer: asyncio.Future[m.Acknowledged] = loop.create_future()
        stored: asyncio.Future[None] = loop.create_future()
        size = sum(map(len, frames))
        self._requests[number] = _Request(answer, size)
        self._open_bytes += size
        if self._open_bytes > OPEN_BYTES_MAX:
            self._room.clear()
        for place, data in enumerate(frames, 1):
            frame = _Frame(data, stored=stored if place == len(frames) else None)
            self._frames.append(frame)
            self._send(frame)
        return answer, stored

    def _send(self, frame: _Frame) -> None:
        if self._is_blocked or self._connection.is_lost:
            return
        answer = self._streams.send(client_subject(self.broker, self.name), frame.data)
        answer.add_done_callback(lambda answer: self._stored(frame, answer))

    def _stored(self, frame: _Frame, answer: asyncio.Future[Message]) -> None:
        try:
            stored_position(answer.result())
        except ConnectionLostError:
            return
        except FullError:
            if not self._is_blocked:
                self._is_blocked = True
                asyncio.get_running_loop().call_later(RECONNECT_S[1], self._send_again)
            return
        except BaseException as error:
            self._end(error)
            return
        frame.is_stored = True
        while self._frames and self._frames[0].is_stored:
            first = self._frames.popleft()
            if first.stored is not None and not first.stored.done():
                first.stored.set_result(None)
        if self._gathered:
            self._flush_soon()

    def _send_again(self) -> None:
        """Send all that is not known to be stored, and what is behind it: the broker takes frames in order only."""
        self._is_blocked = False
        for frame in self._frames:
            frame.is_stored = False
            self._send(frame)

    # -- single events ------------------------------------------------------------------------------------------------

    def _flush_soon(self) -> None:
        if not self._is_flushing and len(self._frames) < FRAMES_AHEAD_MAX[self.description.durability]:
            self._is_flushing = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        self._is_flushing = False
        gathered, self._gathered = self._gathered, {}
        for topic, singles in gathered.items():
            for begin in range(0, len(singles), GATHERED_MAX):
                self._publish_together(topic, singles[begin : begin + GATHERED_MAX])
        self._room.set()

    def _publish_together(self, topic: str, singles: list[_Single]) -> None:
        try:
            batch = rows_to_batch(topic, self._schema(topic), [one.row for one in singles])
            answer, stored = self._begin(m.PublishEvents, topic, batch)
        except CatchmentError as error:
            if len(singles) == 1:
                _fail(singles[0].done, error)
                return
            half = len(singles) // 2
            self._publish_together(topic, singles[:half])
            self._publish_together(topic, singles[half:])
            return
        stored.add_done_callback(lambda _: _tell_stored(singles))
        answer.add_done_callback(lambda answer: self._answered(topic, singles, batch, answer))

    def _answered(
        self, topic: str, singles: list[_Single], batch: pa.RecordBatch, answer: asyncio.Future[m.Acknowledged]
    ) -> None:
        error = answer.exception()
        if isinstance(error, RequestRefusedError) and len(singles) > 1 and error.retry_s is None:
            # One of them is at fault, and the others are not refused with it.
            half = len(singles) // 2
            self._publish_together(topic, singles[:half])
            self._publish_together(topic, singles[half:])
            return
        late = {} if error is not None else _late(batch, answer.result().dropped)
        for row, one in enumerate(singles):
            if error is not None:
                _fail(one.done, error)
            elif not one.done.done():
                one.done.set_result(Receipt(1, (late[row],) if row in late else ()))

    # -- what comes ---------------------------------------------------------------------------------------------------

    async def _run(self, reader: Reader) -> None:
        """Read what the broker sends; a lost connection is opened again."""
        try:
            while not self._is_closing:
                try:
                    await self._read_all(reader)
                except ConnectionLostError:
                    reader = await self._reopen()
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            self._end(error)

    async def _read_all(self, reader: Reader) -> None:
        while True:
            for stored in await reader.read(1_000):
                self._receive(stored)
            while not self._taking.is_set():
                await self._taking.wait()

    async def _reopen(self) -> Reader:
        delay_s, delay_max_s = RECONNECT_S
        while True:
            try:
                await self._connection.close()
                self._connection = await open_connection(self.url, f"client {self.name}")
                self._streams = JetStream(self._connection)
                reader = await self._reader(self._read + 1)
            except MissingError as error:
                raise ClientDroppedError(
                    f"broker {self.broker!r} knows client {self.name!r} no more: {error}"
                ) from None
            except TransportError:
                await asyncio.sleep(delay_s)
                delay_s = min(2 * delay_s, delay_max_s)
            else:
                self._send_again()
                return reader

    def _receive(self, stored: Stored) -> None:
        self._read = stored.position
        self._read_bytes += stored.size_bytes
        if not stored.data or not is_marked(stored):
            # A fence, or of no broker.
            return
        if stored.position <= self._confirmed:
            self._session.pass_over(stored.data)
            return
        if not self._goes_on:
            self._session.go_on_before(stored.data)
            self._goes_on = True
        self._untaken[stored.position] = 1
        for message in self._session.receive(stored.data):
            self._hear(message, stored)
        self._taken(stored.position)

    def _hear(self, message: m.Message, stored: Stored) -> None:
        if isinstance(message, m.Delivered):
            for name, rows in message.wanted.items():
                chosen = message.events if len(rows) == message.events.num_rows else message.events.take(pa.array(rows))
                self._put(name, chosen, stored.position, chosen.nbytes)
        elif isinstance(message, m.Notified):
            by_name: dict[str, list[WindowValue]] = {}
            for one in window_values(message):
                by_name.setdefault(one.subscription, []).append(one)
            for name, values in by_name.items():
                self._put(name, values, stored.position, 200 * len(values))
        elif isinstance(message, m.Dropped):
            self._end(ClientDroppedError(f"client {self.name!r} has not read for too long: {message}"))
        elif isinstance(message, (m.Acknowledged, m.Refused)):
            self._settle(message)

    def _put(self, name: str, content: Any, position: int, size: int) -> None:
        self._untaken[position] += 1
        self._untaken_bytes += size
        if self._untaken_bytes > UNTAKEN_BYTES_MAX:
            self._taking.clear()
        self._subscription(name)._put(position, content, size)

    def _settle(self, message: m.Acknowledged | m.Refused) -> None:
        request = self._requests.pop(message.request, None)
        if request is None:
            return
        self._open_bytes -= request.size_bytes
        if self._open_bytes <= OPEN_BYTES_MAX // 2:
            self._room.set()
        if request.answer.done():
            return
        if isinstance(message, m.Refused):
            retry_s = None if message.retry_us < 0 else message.retry_us / 1e6
            _fail(request.answer, RequestRefusedError(message.reason, retry_s))
        else:
            request.answer.set_result(message)

    # -- what was taken -----------------------------------------------------------------------------------------------

    def _untake(self, size: int) -> None:
        self._untaken_bytes -= size
        if self._untaken_bytes <= UNTAKEN_BYTES_MAX // 2:
            self._taking.set()

    def _taken(self, position: int) -> None:
        """A part of a frame needs no more attention."""
        self._untaken[position] -= 1
        before = self._confirmed
        while self._untaken and not (first := next(iter(self._untaken.items())))[1]:
            self._confirmed = first[0]
            del self._untaken[first[0]]
        if self._confirmed > before and self._read_bytes >= self._confirm_bytes:
            self._tell_confirmed()
        elif self._confirmed > before and self._confirming is None:
            self._confirming = asyncio.get_running_loop().call_later(CONFIRM_S, self._tell_confirmed)

    def _tell_confirmed(self) -> None:
        """Say how far the application has come; it is said again with what comes next."""
        if self._confirming is not None:
            self._confirming.cancel()
        self._confirming = None
        if self._confirmed > self._told_confirmed and not self._connection.is_lost:
            self._connection.publish(confirmed_subject(self.broker, self.name), self._said_confirmed())
            self._told_confirmed, self._read_bytes = self._confirmed, 0

    async def _store_confirmed(self) -> None:
        if self._confirming is not None:
            self._confirming.cancel()
        if self._confirmed:
            await self._streams.store(confirmed_subject(self.broker, self.name), self._said_confirmed())

    def _said_confirmed(self) -> bytes:
        return msgspec.json.encode({"attached": self._attached, "confirmed": self._confirmed})

    def _end(self, error: BaseException) -> None:
        """Fail whatever waits."""
        if self._failure is None:
            self._failure = error
        for request in self._requests.values():
            _fail(request.answer, self._failure)
        for frame in self._frames:
            if frame.stored is not None:
                _fail(frame.stored, self._failure)
        for singles in self._gathered.values():
            for one in singles:
                _fail(one.done, self._failure)
        for subscription in self._subscriptions.values():
            subscription._arrived.set()
        self._room.set()
        self._taking.set()


def _fail(future: asyncio.Future[Any], error: BaseException) -> None:
    if not future.done():
        future.set_exception(error)
        # Nobody may wait for it.
        future.exception()


def _tell_stored(singles: list[_Single]) -> None:
    for one in singles:
        if one.wait == "stored" and not one.done.done():
            one.done.set_result(Receipt(1, is_acknowledged=False))


def _late(batch: pa.RecordBatch, dropped: tuple[str, ...]) -> dict[int, str]:
    """Rows whose events were dropped, and their ids: what is late is earlier than anything of the batch that is not."""
    if not dropped:
        return {}
    if "event_id" in batch.schema.names:
        ids = batch.column("event_id").to_pylist()
        if all(one in ids for one in dropped):
            return {ids.index(one): one for one in dropped}
    if "ts" not in batch.schema.names:
        return dict(enumerate(dropped))
    times = batch.column("ts").cast(pa.int64()).fill_null(2**62).to_numpy()
    rows = np.argsort(times, kind="stable")[: len(dropped)]
    return dict(zip(sorted(rows.tolist()), dropped, strict=True))
