"""Clients of an overlay: publish, subscribe, and get everything once, whatever breaks in between.

    async with catchment.connect("nats://127.0.0.1:4222", broker="b1") as client:
        await client.publish("traffic", {"speed": 55.0})
        async for value in await client.subscribe("SELECT avg(speed) FROM traffic GROUP BY window(ts, '20 seconds')"):
            …

Rule 1: what a client sends is stored by the server before anybody acts on it (`sending.py`); single events are gathered
        (`gathering.py`).
Rule 2: what the broker sends is in an outbox of the client's own, and pushed from the first frame that was not taken
        (`arriving.py`); frames that come twice are dropped by their number.
Rule 3: what the application has taken is confirmed (`taking.py`).
Rule 4: a client touches no stream of the server: it asks its broker's process (`asking.py`).
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import suppress
from typing import Any

import msgspec
import pyarrow as pa

from catchment.broker import messages as m
from catchment.broker.client import Session, WindowValue, window_values
from catchment.broker.hosting import item_to_bytes
from catchment.broker.inputs import Detached, Parked
from catchment.broker.interest import ADVICE as INTEREST
from catchment.model.errors import CatchmentError, ConfigurationError, TransportError
from catchment.model.rows import row_types
from catchment.model.schema import Schema
from catchment.transport.advertising import Advertising
from catchment.transport.arriving import Arrivals
from catchment.transport.asking import (
    Answer,
    Came,
    ClientDroppedError,
    Come,
    Deliver,
    Delivering,
    Find,
    Read,
    Refusal,
    RequestRefusedError,
    ask,
    described,
)
from catchment.transport.credentials import OPEN, Credentials
from catchment.transport.description import Description
from catchment.transport.gathering import Gathering, Receipt, Wait, require_wait
from catchment.transport.history import HistoryGoneError
from catchment.transport.jetstream import JetStream, Stored
from catchment.transport.marks import is_marked
from catchment.transport.names import alive_subject, client_name, client_subject, confirm_subject, deliver_subject
from catchment.transport.past import Past
from catchment.transport.presence import BEATS
from catchment.transport.rows import ColumnSets, batches_of, names_in
from catchment.transport.sending import Sending
from catchment.transport.subscribing import Subscribing
from catchment.transport.subscriptions import Subscription
from catchment.transport.taking import Taking
from catchment.transport.watching import InterestWatch, Watching
from catchment.transport.wire import AccessError, Connection, ConnectionLostError, open_connection

__all__ = ["Client", "ClientDroppedError", "Receipt", "RequestRefusedError", "Subscription", "Wait"]

CLOSE_S = 5.0
RECONNECT_S = (0.05, 2.0)


class Client:
    """A client of one broker; `open` connects it."""

    def __init__(
        self,
        url: str,
        *,
        broker: str | None = None,
        name: str | None = None,
        durable: bool = False,
        credentials: Credentials = OPEN,
    ) -> None:
        if durable and name is None:
            raise ConfigurationError("a durable client has no name; accepted is one by which it comes back")
        self.url, self.name, self.is_durable = url, name or f"client-{os.urandom(6).hex()}", durable
        self._credentials, self.user = credentials, credentials.user
        self.broker = broker or ""
        self.description: Description
        self._schemas: Mapping[str, Schema] = {}
        self._known: dict[str, frozenset[str]] = {}
        """By topic, what its events may have, as far as this client knows."""
        self._connection: Connection
        self._session: Session
        self._sending: Sending
        self._gathering: Gathering
        self._column_sets: ColumnSets
        self._taking: Taking
        self._advertising: Advertising
        self._subscribing: Subscribing
        self._watching: Watching
        self._goes_on = False
        """Whether a frame has come that no earlier life had confirmed."""
        self._failure: BaseException | None = None
        self._task: asyncio.Task[None] | None = None
        self._beating: asyncio.Task[None] | None = None
        self._is_closing = False
        self._informed: dict[str, list[Any]] = {}
        """By advice, what it has said since it was asked."""
        self._asking = asyncio.Lock()

    @property
    def full_name(self) -> str:
        """What the broker knows this client as."""
        return client_name(self.user, self.name)

    # -- coming and going ---------------------------------------------------------------------------------------------

    async def open(self) -> Client:
        """Connect, and be known to the broker."""
        self._connection = await self._connected()
        try:
            self._learn(await described(self._connection, self.user))
            self.broker = self.broker or self.description.brokers[0]
            self.description.overlay.require(self.broker)
            came = await self._come()
            self._taking = Taking(came, self._tell_confirmed, lambda: self._sending.is_asking)
            self._sending = Sending(
                self._session, client_subject(self.broker, self.full_name), self._connection,
                failed=self._end,
            )  # fmt: skip
            self._sending.on_begun = self._taking.look_again
            self._advertising = Advertising(self._sending)
            self._subscribing = Subscribing(self._sending, self._taking)
            self._watching = Watching(self._sending)
            self._column_sets = ColumnSets()
            self._gathering = Gathering(self._sending, self._schema, self._column_sets, self.description.durability)
            arrivals = await self._arrivals()
        except BaseException:
            await self._connection.close()
            raise
        self._task = asyncio.create_task(self._run(arrivals))
        self._beating = asyncio.create_task(self._say_alive())
        return self

    def _learn(self, description: Description) -> None:
        self.description, self._schemas = description, description.schemas
        self._known = {topic: frozenset(row_types(schema)) for topic, schema in self._schemas.items()}

    async def look_up(self, topic: str, names: AbstractSet[str] = frozenset()) -> None:
        """Ask what the overlay is once more if a topic, or something that its events shall have, is not known here.

        It may have been added since.
        """
        if topic not in self._known or not names <= self._known[topic]:
            await self._look_again()

    async def _look_again(self) -> None:
        while True:
            await self.connected()
            with suppress(ConnectionLostError):
                return self._learn(await described(self._connection, self.user))

    async def _say_alive(self) -> None:
        """Give the broker a sign of life, again and again."""
        subject, life = alive_subject(self.broker, self.full_name), str(self._session.incarnation).encode()
        while True:
            if not self._connection.is_lost:
                self._connection.publish(subject, life)
            await asyncio.sleep(self.description.client_lease_us / BEATS / 1e6)

    async def _connected(self) -> Connection:
        return await open_connection(self.url, f"client {self.name}", self._credentials)

    async def _come(self) -> Came:
        """Begin a life that is later than any before it."""
        incarnation = time.time_ns() // 1_000
        while True:
            self._session = Session(self.full_name, incarnation, after=incarnation)
            answer = await ask(self._connection, self.broker, self.user, Come(self.name, incarnation, self.is_durable))
            if isinstance(answer, Came):
                return answer
            if not isinstance(answer, Refusal) or not answer.life:
                reason = answer.reason if isinstance(answer, Refusal) else repr(answer)
                raise RequestRefusedError(f"broker {self.broker!r} refuses client {self.name!r}: {reason}")
            # This machine's clock has stepped back.
            incarnation = answer.life + 1

    async def _arrivals(self) -> Arrivals:
        """Have all pushed that was not read."""
        nonce = os.urandom(6).hex()
        arrivals = Arrivals(self._connection, deliver_subject(self.full_name, nonce))
        life = self._session.incarnation
        wanted = Deliver(self.name, self._taking.attached, self._taking.read + 1, nonce, life)
        try:
            answer = await ask(self._connection, self.broker, self.user, wanted)
            if not isinstance(answer, Delivering):
                raise TransportError(f"broker {self.broker!r} delivers nothing to client {self.name!r}: {answer}")
        except BaseException:
            arrivals.stop()
            raise
        return arrivals

    async def close(self) -> None:
        """Go: a durable client will be back, and what it wants is collected; of any other nothing is left."""
        self._is_closing = True
        # Whoever follows a client that was dropped may have its name.
        is_known = not isinstance(self._failure, ClientDroppedError)
        self._end(ConnectionLostError("the client is closed"))
        self._taking.stop()
        tasks = [task for task in (self._task, self._beating) if task is not None]
        for task in tasks:
            task.cancel()
        try:
            await asyncio.gather(*tasks, return_exceptions=True)
            if is_known and not self._connection.is_lost:
                await self._say_gone()
        finally:
            await self._connection.close()

    async def _say_gone(self) -> None:
        kind, life = Parked if self.is_durable else Detached, self._session.incarnation
        try:
            streams = JetStream(self._connection)
            async with asyncio.timeout(CLOSE_S):
                # Stored before it is away: its next life, wherever it is, begins with that.
                if self._taking.confirmed:
                    await streams.store(confirm_subject(self.broker, self.full_name), self._taking.said())
                item = item_to_bytes(kind(self.full_name, life))
                await streams.store(client_subject(self.broker, self.full_name), item)
        except (CatchmentError, TimeoutError):
            pass  # The server is gone as well; there is nobody to tell.

    # -- what an application asks for ---------------------------------------------------------------------------------

    async def advertise(self, topic: str) -> None:
        """Say that events of a topic will be published; `publish` does so by itself."""
        await self._advertising.add(topic)

    async def unadvertise(self, topic: str) -> None:
        """Say that no more events of a topic will be published: windows need not wait for this client."""
        await self._advertising.remove(topic)

    async def publish(self, topic: str, events: Any, *, wait: Wait = "acknowledged") -> Receipt:
        """Publish one event (names and values), or many: rows, a record batch, a table, a data frame.

        Waits until the broker has taken them or, with `wait="stored"`, until they are stored.
        """
        require_wait(wait)
        await self.advertise(topic)
        if isinstance(events, Iterator):
            events = list(events)
        await self.look_up(topic, names_in(events))
        if isinstance(events, Mapping):
            await self._sending.room()
            return await self.publish_soon(topic, events, wait=wait)
        parts = []
        schema = self._schema(topic)
        for batch in batches_of(topic, schema, events):
            await self._sending.room()
            sent = self._column_sets.fitted(topic, schema, batch)
            parts.append((batch.num_rows, *self._sending.begin(m.PublishEvents, topic, sent)))
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
        """Publish one event of a topic that is advertised, together with others that are published just now.

        An attribute that was added since this client came is known once `publish` or `look_up` has met it.
        """
        if topic not in self._advertising:
            raise ConfigurationError(
                f"topic {topic!r} is not advertised; accepted is one whose `advertise` has returned"
            )
        return self._gathering.add(topic, event, wait)

    async def drain(self) -> None:
        """Wait while more is under way than may be: for callers of `publish_soon`."""
        await self._sending.room()
        await self._gathering.room()

    async def advance_time(self, topic: str, time_us: int) -> None:
        """Say how far event time has come where no event does."""
        await self.advertise(topic)
        await self._sending.ask(m.AdvanceTime, topic, time_us)

    async def subscribe(self, sql: str, *, name: str | None = None, since: object = None) -> Subscription:
        """Ask for events or values of windows; known to all brokers that must know it when this returns.

        A durable client that is back asks the same again under the same name, and gets what was collected; anything
        else under that name is refused until it has unsubscribed. With `since`, a time or a duration before now as
        "2 hours", events from then on come first that were accepted before, and windows that begin from then on: as far
        as brokers keep them.
        """
        chosen = name or f"s-{os.urandom(6).hex()}"
        past = None
        if since is not None:
            await self._look_again()
            past = Past(self, chosen, sql, since)
            await past.find()
            sql = past.sql
        begin = None if past is None else past.begin
        return await self._subscribing.add(chosen, sql, begin, is_found_again=self.is_durable and bool(name))

    async def unsubscribe(self, subscription: Subscription | str) -> None:
        """Ask no more for something. What has come of it can still be taken, and then its iteration ends."""
        await self._subscribing.remove(subscription if isinstance(subscription, str) else subscription.name)

    async def interest(
        self, topic: str, function: str = "subscriptions", *, where: str | None = None, tolerance: float | None = None
    ) -> InterestWatch:
        """Ask about the clients of a topic: its `subscriptions`, `subscribers` or `publishers`.

        With `where`, only about subscriptions that overlap a condition. The truth is within `tolerance` of the value.
        """
        return await self._watching.add(topic, function, where, tolerance)

    async def ask_advice(self, advice: str, value: Any) -> list[Any]:
        """Ask something of an advice of the broker; what it has said until the request was acknowledged."""
        async with self._asking:
            found: list[Any] = []
            self._informed[advice] = found
            await self._sending.ask(m.AskAdvice, advice, msgspec.msgpack.encode(value))
            return found

    async def ask(self, broker: str, request: Find | Read) -> Answer:
        """Ask the process of any broker something about its history; what it refuses is raised."""
        answer = await ask(self._connection, broker, self.user, request)
        if isinstance(answer, Refusal):
            raise HistoryGoneError(answer.reason) if answer.is_gone else RequestRefusedError(answer.reason)
        return answer

    async def connected(self) -> None:
        """Wait until the server is there; raises what has ended this client, if anything has."""
        while self._failure is not None or self._connection.is_lost:
            if self._failure is not None:
                raise self._failure
            await asyncio.sleep(RECONNECT_S[0])

    def _schema(self, topic: str) -> Schema:
        if topic not in self._schemas:
            raise ConfigurationError(f"unknown topic {topic!r}; known are {', '.join(sorted(self._schemas))}")
        return self._schemas[topic]

    # -- what comes ---------------------------------------------------------------------------------------------------

    async def _run(self, arrivals: Arrivals) -> None:
        """Read what the broker sends; what has ended is begun again behind what was read."""
        try:
            while not self._is_closing:
                try:
                    while True:
                        for stored in await arrivals.read():
                            self._receive(stored)
                        await self._taking.room()
                except ConnectionLostError:
                    arrivals.stop()
                    arrivals = await self._again()
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            self._end(error)
        finally:
            arrivals.stop()

    async def _again(self) -> Arrivals:
        delay_s, delay_max_s = RECONNECT_S
        while True:
            try:
                if self._connection.is_lost:
                    self._connection = await self._connected()
                    self._sending.go_on(self._connection)
                return await self._arrivals()
            except (ClientDroppedError, AccessError):
                raise
            except TransportError:
                await asyncio.sleep(delay_s)
                delay_s = min(2 * delay_s, delay_max_s)

    def _receive(self, stored: Stored) -> None:
        self._taking.note_read(stored.position, stored.size_bytes)
        if not stored.data or not is_marked(stored):
            # A fence, or of no broker.
            return
        if stored.position <= self._taking.confirmed:
            self._session.pass_over(stored.data)
            return
        if not self._goes_on:
            self._session.go_on_before(stored.data)
            self._goes_on = True
        self._taking.begin(stored.position)
        for message in self._session.receive(stored.data):
            self._hear(message, stored.position)
        self._taking.taken(stored.position)

    def _hear(self, message: m.Message, position: int) -> None:
        if isinstance(message, m.Delivered):
            for name, rows in message.wanted.items():
                chosen = message.events if len(rows) == message.events.num_rows else message.events.take(pa.array(rows))
                self._subscribing.put(name, position, chosen, chosen.nbytes)
        elif isinstance(message, m.Notified):
            by_name: dict[str, list[WindowValue]] = {}
            for one in window_values(message):
                by_name.setdefault(one.subscription, []).append(one)
            for name, values in by_name.items():
                self._subscribing.put(name, position, values, 200 * len(values))
        elif isinstance(message, m.Informed) and message.advice == INTEREST:
            self._watching.hear(message.body)
        elif isinstance(message, m.Informed) and message.advice in self._informed:
            self._informed[message.advice].append(msgspec.msgpack.decode(message.body))
        elif isinstance(message, m.Dropped):
            self._end(ClientDroppedError(f"client {self.name!r} has not read for too long: {message}"))
        elif isinstance(message, (m.Acknowledged, m.Refused)):
            self._sending.settle(message)

    def _tell_confirmed(self, said: bytes) -> bool:
        if self._connection.is_lost:
            return False
        self._connection.publish(confirm_subject(self.broker, self.full_name), said)
        return True

    def _end(self, error: BaseException) -> None:
        """Fail whatever waits."""
        if self._failure is not None:
            return
        self._failure = error
        self._sending.end(error)
        self._gathering.end(error)
        self._subscribing.fail(error)
        self._watching.fail(error)
        self._taking.let_read()
