"""An overlay over HTTP: publish events, and listen to what a subscription brings as server-sent events.

    GET    /topics                            topics with their attributes, and brokers
    POST   /topics/<topic>/events?at=<broker>     JSON object, array, JSON lines, or Arrow stream; answered once taken
    GET    /subscribe?sql=…&at=…&durable=…    events or values of windows, each a JSON object
    DELETE /subscribe?sql=…&at=…&durable=…    forget a durable listener

Rule 1: one client of each broker publishes for all. It takes the advertisement of a topic back once nothing was posted
        for the gateway's lease, so that no window waits for a publisher that has gone.
Rule 2: a listener is a client of its own, which ends with its connection. A durable one is parked instead, and goes on
        behind the last event that its browser names, out of what is kept here of what was sent last.
Rule 3: what a listener was sent is confirmed once the next is asked for, after it was written.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections import OrderedDict, deque
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Any

import pyarrow as pa

from catchment.broker.client import WindowValue
from catchment.broker.gateway.decoding import ARROW_HEAD, read_arrow
from catchment.model.errors import CatchmentError, ConfigurationError, EventError, SubscriptionError, TransportError
from catchment.transport.asking import described
from catchment.transport.client import Client, RequestRefusedError, Subscription
from catchment.transport.credentials import OPEN, Credentials
from catchment.transport.description import Description
from catchment.transport.http_server import Answer, HttpError, Request
from catchment.transport.publishing import PublishedRows
from catchment.transport.rows import event_of_line, shown_row
from catchment.transport.wire import open_connection

__all__ = ["HttpGateway"]

HEARTBEAT_S = 15.0
KEPT_BYTES_MAX = 1_000_000
"""Of what one durable listener was sent last: more than its connection can hold back."""
KEPT_MAX = 1_000
"""Durable listeners of which anything is kept."""
RETRY_S = 5
_ACCEPTED = {
    "/topics": "GET",
    "/topics/<topic>/events": "POST",
    "/subscribe": "GET, DELETE",
}
_PREFLIGHT = {
    "access-control-allow-methods": "GET, POST, DELETE",
    "access-control-allow-headers": "content-type, last-event-id",
}
_EVENT_STREAM = {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-store"}


@dataclass(slots=True)
class _Publisher:
    """The client that publishes at one broker."""

    client: Client
    used_s: dict[str, float] = field(default_factory=dict)
    """By topic that is advertised, when something was last posted."""
    under_way: dict[str, int] = field(default_factory=dict)

    @contextmanager
    def posting(self, topic: str) -> Iterator[None]:
        self.under_way[topic] = self.under_way.get(topic, 0) + 1
        try:
            yield
        finally:
            self.under_way[topic] -= 1
            self.used_s[topic] = time.monotonic()

    def idle(self, lease_s: float) -> list[str]:
        """Topics to which nothing was posted for a lease."""
        now_s = time.monotonic()
        return [
            topic for topic, used_s in self.used_s.items() if now_s - used_s >= lease_s and not self.under_way[topic]
        ]


@dataclass(slots=True)
class _Kept:
    """What a durable listener was sent last, and what it is about to be sent."""

    bytes_max: int
    rows: deque[tuple[int, str]] = field(default_factory=deque)
    size_bytes: int = 0
    last: int = 0
    """The number of the newest row."""
    written: int = 0
    """The number of the last row that was sent to anybody."""

    def add(self, text: str) -> None:
        self.last += 1
        self.rows.append((self.last, text))
        self.size_bytes += len(text)
        while self.size_bytes > self.bytes_max and self.rows[0][0] <= self.written:
            self.size_bytes -= len(self.rows.popleft()[1])

    def go_back(self, number: int | None) -> None:
        """Go on behind a row that its listener has, if that is known."""
        if number is not None:
            self.written = min(number, self.last)

    @property
    def missing(self) -> int:
        """How many rows would be next, and are not kept any more."""
        return max((self.rows[0][0] if self.rows else self.last + 1) - self.written - 1, 0)

    def behind(self, number: int) -> list[tuple[int, str]]:
        return [row for row in self.rows if row[0] > number]


class HttpGateway:
    """Handles the requests of an `HttpServer` for one overlay."""

    def __init__(
        self, url: str, description: Description, credentials: Credentials = OPEN, origins: Sequence[str] = ()
    ) -> None:
        self._url, self._description, self._origins = url, description, frozenset(origins)
        self._credentials = credentials
        self._lease_s = description.gateway_lease_us / 1e6
        self._publishers: dict[str, _Publisher] = {}
        self._locks: dict[str, asyncio.Lock] = {}
        self._kept: OrderedDict[str, _Kept] = OrderedDict()
        self._listening: dict[str, _Listener] = {}
        """Durable ones."""
        self._life = os.urandom(4).hex()
        """Ids of rows that another process has sent mean nothing here."""
        self._resting: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self._resting = asyncio.create_task(self._rest())

    async def stop(self) -> None:
        if self._resting is not None:
            self._resting.cancel()
            await asyncio.gather(self._resting, return_exceptions=True)
        for listener in list(self._listening.values()):
            await listener.close()
        for publisher in self._publishers.values():
            await publisher.client.close()

    async def handle(self, request: Request) -> Answer:
        allowed = self._require_origin(request)
        if allowed and request.method == "OPTIONS":
            return Answer({}, headers={**allowed, **_PREFLIGHT})
        try:
            answer = await self._routed(request)
        except HttpError as error:
            error.headers.update(allowed)
            raise
        except TransportError as error:
            raise HttpError(503, str(error), {**allowed, "retry-after": str(RETRY_S)}) from None
        except RequestRefusedError as error:
            status = 503 if "there is no room" in str(error) else 422
            raise HttpError(status, str(error), allowed) from None
        except (ConfigurationError, SubscriptionError, EventError) as error:
            raise HttpError(400, str(error), allowed) from None
        return replace(answer, headers={**answer.headers, **allowed})

    async def _routed(self, request: Request) -> Answer:
        match request.path:
            case ("topics",):
                _require_method(request, "GET")
                await self._look_again()
                return Answer({"topics": self._description.known_topics, "brokers": self._description.brokers})
            case ("topics", topic, "events"):
                _require_method(request, "POST")
                return await self._publish(topic, request)
            case ("subscribe",):
                _require_method(request, "GET", "DELETE")
                return await (self._forget(request) if request.method == "DELETE" else self._subscribe(request))
        accepted = ", ".join(f"{methods} {path}" for path, methods in _ACCEPTED.items())
        raise HttpError(404, f"there is no /{'/'.join(request.path)}; accepted are {accepted}")

    def _require_origin(self, request: Request) -> dict[str, str]:
        """Refuse what a page of another site asks for; headers that let a page of an accepted one read the answer."""
        origin = request.headers.get("origin")
        if origin is None or origin.partition("://")[2] == request.headers.get("host"):
            return {}
        if origin not in self._origins:
            accepted = ", ".join(sorted(self._origins)) or "none"
            raise HttpError(403, f"a page of {origin} asks; accepted besides this server's own are {accepted}")
        return {"access-control-allow-origin": origin, "vary": "origin"}

    def _client(self, broker: str, durable: str | None = None) -> Client:
        return Client(
            self._url, broker=broker, name=durable, durable=durable is not None, credentials=self._credentials
        )

    async def _look_again(self) -> None:
        """Ask what the overlay is: topics may have been added."""
        connection = await open_connection(self._url, "catchment http", self._credentials)
        try:
            self._description = await described(connection, self._credentials.user)
        finally:
            await connection.close()

    def _broker(self, request: Request) -> str:
        name = request.query.get("at") or self._description.brokers[0]
        if name not in self._description.brokers:
            raise HttpError(404, f"there is no broker {name!r}; there are {', '.join(self._description.brokers)}")
        return name

    @asynccontextmanager
    async def _locked(self, key: str) -> AsyncIterator[None]:
        """Let one request after the other do something about a key."""
        lock = self._locks.setdefault(key, asyncio.Lock())
        try:
            async with lock:
                yield
        finally:
            if not lock.locked() and self._locks.get(key) is lock:
                del self._locks[key]

    # -- publishing ---------------------------------------------------------------------------------------------------

    async def _publish(self, topic: str, request: Request) -> Answer:
        if topic not in self._description.schemas:
            await self._look_again()
        if topic not in self._description.schemas:
            raise HttpError(404, f"unknown topic {topic!r}; known are {', '.join(sorted(self._description.schemas))}")
        _require_query(request, "at")
        content: pa.RecordBatch | list[tuple[int, bytes | dict[str, Any]]]
        content = read_arrow(request.body) if request.body[:4] == ARROW_HEAD else _rows(request.body)
        broker = self._broker(request)
        publisher = await self._publisher(broker)
        try:
            with publisher.posting(topic):
                if isinstance(content, pa.RecordBatch):
                    receipt = await publisher.client.publish(topic, content)
                    taken = receipt.events - len(receipt.dropped)
                    return Answer({"published": taken, "late": list(receipt.dropped), "refused": []})
                await publisher.client.advertise(topic)
                rows = await _published(publisher.client, topic, content)
                if rows.problem is not None:
                    raise rows.problem
        except TransportError:
            # Its next request has another client.
            if self._publishers.get(broker) is publisher:
                del self._publishers[broker]
            raise
        refused = [{"row": number, "reason": reason} for number, reason in sorted(rows.refused)]
        if refused and all("there is no room" in reason for _, reason in rows.refused):
            status, headers = 503, {"retry-after": str(RETRY_S)}
        else:
            status, headers = 422 if refused else 200, {}
        return Answer({"published": rows.taken, "late": rows.late, "refused": refused}, status=status, headers=headers)

    async def _publisher(self, broker: str) -> _Publisher:
        async with self._locked(broker):
            if broker not in self._publishers:
                self._publishers[broker] = _Publisher(await self._client(broker).open())
            return self._publishers[broker]

    async def _rest(self) -> None:
        """Take back the advertisements of topics to which nothing is posted any more."""
        while True:
            await asyncio.sleep(min(self._lease_s / 4, 1.0))
            for publisher in list(self._publishers.values()):
                for topic in publisher.idle(self._lease_s):
                    del publisher.used_s[topic]
                    # Whoever cannot be told will find the client gone.
                    with suppress(CatchmentError):
                        await publisher.client.unadvertise(topic)

    # -- listening ----------------------------------------------------------------------------------------------------

    async def _subscribe(self, request: Request) -> Answer:
        _require_query(request, "sql", "at", "name", "durable", "last_event_id", needed=("sql",))
        sql, name, broker = request.query["sql"], request.query.get("name") or "subscription", self._broker(request)
        durable = request.query.get("durable")
        if not durable:
            client = await self._client(broker).open()
            return Answer(parts=await _listener(client, sql, name, _Kept(0), ""), headers=_EVENT_STREAM)
        own_name = _durable_name(durable, sql)
        key = f"{broker} {own_name}"
        async with self._locked(key):
            await self._end_listener(key)
            kept = self._keep(key)
            client = await self._client(broker, own_name).open()
            kept.go_back(self._known_id(request))
            self._listening = {key: one for key, one in self._listening.items() if not one.is_closing()}
            listener = self._listening[key] = await _listener(client, sql, name, kept, f"{self._life}-")
        return Answer(parts=listener, headers=_EVENT_STREAM)

    def _known_id(self, request: Request) -> int | None:
        """The number of the last row that a browser says it has, if this process has sent it."""
        named = request.headers.get("last-event-id") or request.query.get("last_event_id") or ""
        life, _, number = named.partition("-")
        return int(number) if life == self._life and number.isdecimal() and len(number) < 20 else None

    async def _end_listener(self, key: str) -> None:
        """End the listener of the same name: a browser may be back before its old connection is known to be gone."""
        listener = self._listening.pop(key, None)
        if listener is not None:
            await listener.close()

    def _keep(self, key: str) -> _Kept:
        kept = self._kept.setdefault(key, _Kept(KEPT_BYTES_MAX))
        self._kept.move_to_end(key)
        while len(self._kept) > KEPT_MAX:
            self._kept.popitem(last=False)
        return kept

    async def _forget(self, request: Request) -> Answer:
        _require_query(request, "sql", "at", "durable", needed=("sql", "durable"))
        broker, name = self._broker(request), _durable_name(request.query["durable"], request.query["sql"])
        key = f"{broker} {name}"
        async with self._locked(key):
            await self._end_listener(key)
            self._kept.pop(key, None)
            client = await self._client(broker, name).open()
            client.is_durable = False
            await client.close()
        return Answer({"forgotten": request.query["durable"]})


async def _listener(client: Client, sql: str, name: str, kept: _Kept, prefix: str) -> _Listener:
    try:
        return _Listener(client, await client.subscribe(sql, name=name), kept, prefix)
    except BaseException as error:
        # Of one that asked for nonsense nothing is left.
        client.is_durable = client.is_durable and not isinstance(error, RequestRefusedError)
        await client.close()
        raise


class _Listener:
    """What a subscription brings as server-sent events; `prefix` is what their ids begin with, if they have any."""

    def __init__(self, client: Client, subscription: Subscription, kept: _Kept, prefix: str) -> None:
        self._client, self._subscription, self._kept, self._prefix = client, subscription, kept, prefix
        self._coming: asyncio.Future[Any] | None = None
        self._closing: asyncio.Task[None] | None = None

    async def __aiter__(self) -> AsyncGenerator[str, None]:
        kept, batches = self._kept, self._subscription.batches()
        yield f"retry: {RETRY_S * 1_000}\n\n"
        if kept.missing:
            yield f"event: missed\ndata: {kept.missing}\n\n"
        while not self.is_closing():
            for number, text in kept.behind(kept.written):
                identity = f"id: {self._prefix}{number}\n" if self._prefix else ""
                yield f"{identity}data: {text}\n\n"
                kept.written = number
            if self.is_closing():
                return
            if self._coming is None:
                self._coming = asyncio.ensure_future(anext(batches))
            await asyncio.wait([self._coming], timeout=HEARTBEAT_S)
            if not self._coming.done():
                yield ": still there\n\n"
            elif not self.is_closing():
                coming, self._coming = self._coming, None
                try:
                    content = coming.result()
                except TransportError as error:
                    yield f"event: error\ndata: {json.dumps({'error': str(error)})}\n\n"
                    return
                self._keep(content)

    def is_closing(self) -> bool:
        return self._closing is not None

    async def close(self) -> None:
        """End the client, or park it; what was not sent yet is kept. Whoever calls it next waits for the same end."""
        if self._closing is None:
            self._closing = asyncio.create_task(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        if self._coming is not None:
            self._coming.cancel()
            await asyncio.wait([self._coming])
            if not self._coming.cancelled() and self._coming.exception() is None:
                # It had come, and nobody has asked for it yet.
                self._keep(self._coming.result())
        if self._prefix:
            self._subscription.confirm()
        await self._client.close()

    def _keep(self, content: pa.RecordBatch | list[WindowValue]) -> None:
        for one in content.to_pylist() if isinstance(content, pa.RecordBatch) else content:
            self._kept.add(json.dumps(shown_row(self._subscription.name, one), ensure_ascii=False))


def _durable_name(durable: str, sql: str) -> str:
    """The name of the client that listens: another question is another listener."""
    return f"http-{durable}-{blake2b(sql.encode(), digest_size=8).hexdigest()}"


def _rows(body: bytes) -> list[tuple[int, bytes | dict[str, Any]]]:
    """The events of a JSON text, numbered from 1 on; of JSON lines, the lines."""
    if body.lstrip()[:1] == b"[":
        try:
            found = json.loads(body)
        except (ValueError, RecursionError) as error:
            raise HttpError(400, f"the body is no JSON: {error}; accepted is an array of objects") from None
        for number, row in enumerate(found, 1):
            if not isinstance(row, dict):
                raise HttpError(400, f"row {number} is {str(row)[:40]!r}; accepted are JSON objects")
        return list(enumerate(found, 1))
    try:
        return [(1, event_of_line(body))]
    except EventError as error:
        lines = [(number, line) for number, line in enumerate(body.split(b"\n"), 1) if line.strip()]
        if len(lines) < 2:
            accepted = "accepted are a JSON object, an array of them, JSON lines, or an Arrow stream"
            raise HttpError(400, f"the body has no events: {error}; {accepted}") from None
        return list(lines)


async def _published(
    client: Client, topic: str, content: Sequence[tuple[int, bytes | dict[str, Any]]]
) -> PublishedRows:
    rows = PublishedRows(client, topic)
    for number, one in content:
        try:
            await rows.add(number, one if isinstance(one, dict) else event_of_line(one))
        except EventError as error:
            rows.refuse(number, str(error))
    await rows.settle()
    return rows


def _require_method(request: Request, *accepted: str) -> None:
    if request.method not in accepted:
        reason = f"the method is {request.method}; accepted here are {', '.join(accepted)}"
        raise HttpError(405, reason, {"allow": ", ".join(accepted)})


def _require_query(request: Request, *accepted: str, needed: Sequence[str] = ()) -> None:
    for name in request.query:
        if name not in accepted:
            raise HttpError(400, f"the parameter {name!r} is unknown; accepted are {', '.join(accepted)}")
    for name in needed:
        if not request.query.get(name):
            raise HttpError(400, f"the parameter {name!r} is missing; accepted are {', '.join(accepted)}")
