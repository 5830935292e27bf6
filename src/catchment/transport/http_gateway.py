"""An overlay over HTTP: publish events, and listen to what a subscription brings as server-sent events.

    GET    /topics                            topics with their attributes, and brokers
    POST   /topics/<topic>/events?at=<broker>     JSON object, array, JSON lines, or Arrow stream; answered once taken
    GET    /subscribe?sql=…&at=…&durable=…    events or values of windows, each a JSON object
    DELETE /subscribe?sql=…&at=…&durable=…    forget a durable listener

Rule 1: one client of each broker publishes for all requests of a user. It takes the advertisement of a topic back once
        nothing was posted for the gateway's lease, so that no window waits for a publisher that has gone.
Rule 2: a listener is a client of its own, which ends with its connection. A durable one is parked instead, and goes on
        behind the last event that its browser names (`http_listening.py`).
Rule 3: where access is controlled, whoever asks shows a token (`http_users.py`). All that is done for a request is done
        by clients of its user, with that user's rights, and ends once the token is no longer valid.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from catchment.broker.gateway.decoding import ARROW_HEAD, read_arrow
from catchment.broker.limits import require_sql
from catchment.model.errors import CatchmentError, ConfigurationError, EventError, SubscriptionError, TransportError
from catchment.model.subscription import Subscription as Asked
from catchment.transport.asking import described
from catchment.transport.client import Client, RequestRefusedError
from catchment.transport.credentials import OPEN, Credentials
from catchment.transport.description import Description
from catchment.transport.http_listening import RETRY_S, Kept, Listener, durable_name, listening
from catchment.transport.http_server import Answer, HttpError, Request
from catchment.transport.http_users import Asker, HttpUsers
from catchment.transport.publishing import PublishedRows
from catchment.transport.rows import event_of_line
from catchment.transport.wire import open_connection

__all__ = ["HttpGateway"]

KEPT_BYTES_MAX = 1_000_000
"""Of what one durable listener was sent last: more than its connection can hold back."""
KEPT_MAX = 1_000
"""Durable listeners of which anything is kept."""
_ACCEPTED = {
    "/topics": "GET",
    "/topics/<topic>/events": "POST",
    "/subscribe": "GET, DELETE",
}
_PREFLIGHT = {
    "access-control-allow-methods": "GET, POST, DELETE",
    "access-control-allow-headers": "authorization, content-type, last-event-id",
}
_Key = tuple[str, ...]
"""A user, a broker, and the name of a durable listener."""
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


class HttpGateway:
    """Handles the requests of an `HttpServer` for one overlay."""

    def __init__(
        self, url: str, description: Description, credentials: Credentials = OPEN, origins: Sequence[str] = ()
    ) -> None:
        self._url, self._description, self._origins = url, description, frozenset(origins)
        self._credentials, self._users = credentials, HttpUsers(url, credentials)
        self._lease_s = description.gateway_lease_us / 1e6
        self._publishers: dict[_Key, _Publisher] = {}
        self._locks: dict[_Key, asyncio.Lock] = {}
        self._kept: OrderedDict[_Key, Kept] = OrderedDict()
        self._listening: dict[_Key, Listener] = {}
        """Durable ones."""
        self._askers: dict[Listener, Asker] = {}
        """Of all listeners, who asked."""
        self._life = os.urandom(4).hex()
        """Ids of rows that another process has sent mean nothing here."""
        self._resting: asyncio.Task[None] | None = None

    async def start(self) -> None:
        await self._users.start()
        self._resting = asyncio.create_task(self._rest())

    async def stop(self) -> None:
        if self._resting is not None:
            self._resting.cancel()
            await asyncio.gather(self._resting, return_exceptions=True)
        for listener in list(self._askers):
            await listener.close()
        for publisher in self._publishers.values():
            await publisher.client.close()
        await self._users.stop()

    async def handle(self, request: Request) -> Answer:
        allowed = self._require_origin(request)
        if allowed and request.method == "OPTIONS":
            return Answer({}, headers={**allowed, **_PREFLIGHT})
        try:
            answer = await self._routed(request, await self._users.asker(request))
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

    async def _routed(self, request: Request, asker: Asker) -> Answer:
        match request.path:
            case ("topics",):
                _require_method(request, "GET")
                await self._look_again()
                return Answer({"topics": self._description.known_topics, "brokers": self._description.brokers})
            case ("topics", topic, "events"):
                _require_method(request, "POST")
                return await self._publish(topic, request, asker)
            case ("subscribe",):
                _require_method(request, "GET", "DELETE")
                act = self._forget if request.method == "DELETE" else self._subscribe
                return await act(request, asker)
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

    def _client(self, asker: Asker, broker: str, durable: str | None = None) -> Client:
        return Client(
            self._url, broker=broker, name=durable, durable=durable is not None, credentials=asker.credentials
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
    async def _locked(self, key: _Key) -> AsyncIterator[None]:
        """Let one request after the other do something about a key."""
        lock = self._locks.setdefault(key, asyncio.Lock())
        try:
            async with lock:
                yield
        finally:
            if not lock.locked() and self._locks.get(key) is lock:
                del self._locks[key]

    # -- publishing ---------------------------------------------------------------------------------------------------

    async def _publish(self, topic: str, request: Request, asker: Asker) -> Answer:
        if topic not in self._description.schemas:
            await self._look_again()
        if topic not in self._description.schemas:
            raise HttpError(404, f"unknown topic {topic!r}; known are {', '.join(sorted(self._description.schemas))}")
        asker.require("publish", topic)
        _require_query(request, "at")
        content: pa.RecordBatch | list[tuple[int, bytes | dict[str, Any]]]
        content = read_arrow(request.body) if request.body[:4] == ARROW_HEAD else _rows(request.body)
        broker = self._broker(request)
        publisher = await self._publisher(asker, broker)
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
            if self._publishers.get((asker.user, broker)) is publisher:
                del self._publishers[asker.user, broker]
                await publisher.client.close()
            raise
        refused = [{"row": number, "reason": reason} for number, reason in sorted(rows.refused)]
        if refused and all("there is no room" in reason for _, reason in rows.refused):
            status, headers = 503, {"retry-after": str(RETRY_S)}
        else:
            status, headers = 422 if refused else 200, {}
        return Answer({"published": rows.taken, "late": rows.late, "refused": refused}, status=status, headers=headers)

    async def _publisher(self, asker: Asker, broker: str) -> _Publisher:
        key = asker.user, broker
        async with self._locked(key):
            if key not in self._publishers:
                self._publishers[key] = _Publisher(await self._client(asker, broker).open())
            return self._publishers[key]

    async def _rest(self) -> None:
        """Take back advertisements of topics to which nothing is posted any more, and end listeners without a token."""
        while True:
            await asyncio.sleep(min(self._lease_s / 4, 1.0))
            await self._end_unknown()
            for publisher in list(self._publishers.values()):
                for topic in publisher.idle(self._lease_s):
                    del publisher.used_s[topic]
                    # Whoever cannot be told will find the client gone.
                    with suppress(CatchmentError):
                        await publisher.client.unadvertise(topic)

    async def _end_unknown(self) -> None:
        self._askers = {one: asker for one, asker in self._askers.items() if not one.is_closing()}
        # As long as the server is away there is nothing to listen to, and a table that cannot be read changes nothing.
        with suppress(CatchmentError):
            for asker in await self._users.invalid(set(self._askers.values())):
                for listener in [one for one, who in self._askers.items() if who == asker]:
                    await listener.close()

    # -- listening ----------------------------------------------------------------------------------------------------

    def _require_subscriber(self, sql: str, name: str, asker: Asker) -> None:
        try:
            require_sql(name, sql)
            topic = Asked(name, sql=sql).query.topic
        except CatchmentError as error:
            raise HttpError(422, str(error)) from None
        asker.require("subscribe", topic)

    async def _subscribe(self, request: Request, asker: Asker) -> Answer:
        _require_query(request, "sql", "at", "name", "durable", "last_event_id", needed=("sql",))
        sql, name, broker = request.query["sql"], request.query.get("name") or "subscription", self._broker(request)
        self._require_subscriber(sql, name, asker)
        durable = request.query.get("durable")
        if not durable:
            client = await self._client(asker, broker).open()
            listener = await listening(client, sql, name, Kept(0), "")
            self._askers[listener] = asker
            return Answer(parts=listener, headers=_EVENT_STREAM)
        own_name = durable_name(durable, sql)
        key = (asker.user, broker, own_name)
        async with self._locked(key):
            await self._end_listener(key)
            kept = self._keep(key)
            client = await self._client(asker, broker, own_name).open()
            kept.go_back(self._known_id(request))
            self._listening = {key: one for key, one in self._listening.items() if not one.is_closing()}
            listener = self._listening[key] = await listening(client, sql, name, kept, f"{self._life}-")
            self._askers[listener] = asker
        return Answer(parts=listener, headers=_EVENT_STREAM)

    def _known_id(self, request: Request) -> int | None:
        """The number of the last row that a browser says it has, if this process has sent it."""
        named = request.headers.get("last-event-id") or request.query.get("last_event_id") or ""
        life, _, number = named.partition("-")
        return int(number) if life == self._life and number.isdecimal() and len(number) < 20 else None

    async def _end_listener(self, key: _Key) -> None:
        """End the listener of the same name: a browser may be back before its old connection is known to be gone."""
        listener = self._listening.pop(key, None)
        if listener is not None:
            await listener.close()

    def _keep(self, key: _Key) -> Kept:
        kept = self._kept.setdefault(key, Kept(KEPT_BYTES_MAX))
        self._kept.move_to_end(key)
        while len(self._kept) > KEPT_MAX:
            self._kept.popitem(last=False)
        return kept

    async def _forget(self, request: Request, asker: Asker) -> Answer:
        _require_query(request, "sql", "at", "durable", needed=("sql", "durable"))
        broker, name = self._broker(request), durable_name(request.query["durable"], request.query["sql"])
        key = (asker.user, broker, name)
        async with self._locked(key):
            await self._end_listener(key)
            self._kept.pop(key, None)
            client = await self._client(asker, broker, name).open()
            client.is_durable = False
            await client.close()
        return Answer({"forgotten": request.query["durable"]})


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
