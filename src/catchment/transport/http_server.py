"""HTTP/1.1 on asyncio, its bytes read and written by h11: requests with bounded bodies, answers that may go on.

Rule 1: all that a peer sends is bounded in size and time: the head, the body, how many are connected, how slowly one
        reads.
Rule 2: a request that fails is answered with a status and a JSON object `{"error": …}`; what is not ours to say, with
        500 and no details.
Rule 3: whoever answers for ever is cancelled once its peer has gone.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Protocol
from urllib.parse import parse_qsl, unquote, urlsplit

import h11

from catchment.model.errors import TransportError
from catchment.transport.reports import Report, keep_silent

__all__ = ["Answer", "HttpError", "HttpServer", "Parts", "Request"]

HEAD_BYTES_MAX = 64_000
BODY_BYTES_MAX = 16_000_000
CONNECTIONS_MAX = 1_000
IDLE_S = 60.0
"""How long a peer may take for a request, from its first byte or from the end of the one before."""
CLOSE_S = 2.0
SLOW_S = 30.0
"""How long a peer may take nothing of what it is sent."""
WRITE_BYTES_MAX = 64_000
"""What waits in this process for a peer that does not read."""


class HttpError(Exception):
    """A request is answered with a status and a reason."""

    def __init__(self, status: int, reason: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(reason)
        self.status, self.headers = status, dict(headers or {})


@dataclass(frozen=True, slots=True)
class Request:
    """What a peer asks for."""

    method: str
    path: tuple[str, ...]
    query: Mapping[str, str]
    headers: Mapping[str, str]
    """By lower-case names."""
    body: bytes


class Parts(Protocol):
    """Text that goes on, and what is to be done once nobody wants more."""

    def __aiter__(self) -> AsyncGenerator[str, None]: ...

    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Answer:
    """What a peer is told: a value as JSON, a text as it is, or parts of text that go on."""

    value: Any = None
    text: str | None = None
    parts: Parts | None = None
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


Handle = Callable[[Request], Awaitable[Answer]]


class HttpServer:
    """Answers requests by calling `handle`."""

    def __init__(self, handle: Handle, report: Report = keep_silent) -> None:
        self._handle, self._report = handle, report
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = 0

    async def start(self, host: str = "127.0.0.1", port: int = 0, tls: ssl.SSLContext | None = None) -> None:
        """Listen; port 0 is the system's choice, which `port` then says."""
        try:
            self._server = await asyncio.start_server(self._accept, host, port, ssl=tls)
        except OSError as error:
            raise TransportError(f"cannot listen at {host}:{port}: {error.strerror}") from None
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Listen no more, and end what is under way."""
        if self._server is not None:
            self._server.close()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        writer.transport.set_write_buffer_limits(WRITE_BYTES_MAX)
        connection = _Connection(reader, writer)
        try:
            if len(self._tasks) > CONNECTIONS_MAX:
                await connection.refuse(HttpError(503, f"{CONNECTIONS_MAX} are connected; accepted are no more"))
            else:
                await self._converse(connection)
        except (OSError, TimeoutError, h11.RemoteProtocolError, asyncio.CancelledError):
            pass  # It has gone, is too slow, or this server ends.
        finally:
            self._tasks.discard(task)
            await connection.close()

    async def _converse(self, connection: _Connection) -> None:
        """Answer the requests of one connection, one after the other."""
        while True:
            try:
                request = await connection.request()
            except h11.RemoteProtocolError as error:
                await connection.refuse(HttpError(error.error_status_hint, f"it is no HTTP request: {error}"))
                return
            except HttpError as error:
                await connection.refuse(error)
                return
            if request is None:
                return
            await connection.send(request, await self._answer(request))
            if not connection.goes_on():
                return

    async def _answer(self, request: Request) -> Answer:
        try:
            return await self._handle(request)
        except HttpError as error:
            return Answer({"error": str(error)}, status=error.status, headers=error.headers)
        except Exception as error:
            path, reason = "/" + "/".join(request.path), f"{type(error).__name__}: {error}"
            self._report("failed on a request", "error", method=request.method, path=path, reason=reason)
            return Answer({"error": "the server failed on it, and has reported why"}, status=500)


class _Connection:
    """One connection of a peer."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._state = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_BYTES_MAX)

    async def request(self) -> Request | None:
        """The next request with its body; None if there is no more."""
        async with asyncio.timeout(IDLE_S):
            head = await self._next()
            if not isinstance(head, h11.Request):
                return None
            headers = {name.decode(): value.decode("latin-1") for name, value in head.headers}
            declared = headers.get("content-length", "0")
            self._require_size(int(declared) if declared.isdigit() else 0)
            if self._state.they_are_waiting_for_100_continue:
                await self._write(h11.InformationalResponse(status_code=100, headers=[]))
            body = bytearray()
            while isinstance(event := await self._next(), h11.Data):
                body += event.data
                self._require_size(len(body))
        if not isinstance(event, h11.EndOfMessage):
            return None
        target = urlsplit(head.target.decode("latin-1"))
        path = tuple(unquote(part) for part in target.path.strip("/").split("/"))
        query = dict(parse_qsl(target.query, keep_blank_values=True))
        return Request(head.method.decode(), path, query, headers, bytes(body))

    def _require_size(self, size: int) -> None:
        if size > BODY_BYTES_MAX:
            raise HttpError(413, f"a body has {size} bytes; accepted are at most {BODY_BYTES_MAX}")

    async def _next(self) -> Any:
        while (event := self._state.next_event()) is h11.NEED_DATA:
            self._state.receive_data(await self._reader.read(1 << 16))
        return event

    async def refuse(self, error: HttpError) -> None:
        """Answer what is no request, or too large, and say that this was all."""
        if self._state.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            headers = {**error.headers, "connection": "close"}
            await self._send_whole(Answer({"error": str(error)}, status=error.status, headers=headers))
            # To close with something unread would take the answer back.
            if self._writer.can_write_eof():
                # TLS has no such thing.
                self._writer.write_eof()
            async with asyncio.timeout(CLOSE_S):
                while await self._reader.read(1 << 16):
                    pass

    async def close(self) -> None:
        """Send what is written, and end."""
        self._writer.close()
        try:
            async with asyncio.timeout(CLOSE_S):
                await self._writer.wait_closed()
        except (OSError, TimeoutError):
            self._writer.transport.abort()

    async def send(self, request: Request, answer: Answer) -> None:
        if answer.parts is None:
            await self._send_whole(answer, with_body=request.method != "HEAD")
        else:
            await self._send_parts(answer, answer.parts)

    async def _send_whole(self, answer: Answer, *, with_body: bool = True) -> None:
        if answer.text is None:
            kind, body = "application/json", json.dumps(answer.value, ensure_ascii=False).encode() + b"\n"
        else:
            kind, body = "text/plain; charset=utf-8", answer.text.encode()
        headers = {"content-type": kind, "content-length": str(len(body)), **answer.headers}
        await self._write(_head(answer.status, headers))
        if with_body:
            await self._write(h11.Data(data=body))
        await self._write(h11.EndOfMessage())

    async def _send_parts(self, answer: Answer, parts: Parts) -> None:
        """Send what goes on, until it ends or the peer has gone."""
        sending = asyncio.create_task(self._send_all(answer, parts))
        # Nothing that a peer may say now would be answered: it has gone, or has nothing to say.
        gone = asyncio.create_task(self._reader.read(1))
        try:
            await asyncio.wait([sending, gone], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (sending, gone):
                task.cancel()
            await asyncio.gather(sending, gone, return_exceptions=True)
            await parts.close()
        if not sending.cancelled() and (error := sending.exception()) is not None:
            raise error

    async def _send_all(self, answer: Answer, parts: Parts) -> None:
        headers = {"connection": "close", **answer.headers}
        await self._write(_head(answer.status, headers))
        async with aclosing(aiter(parts)) as several:
            async for part in several:
                await self._write(h11.Data(data=part.encode()))
        await self._write(h11.EndOfMessage())

    async def _write(self, event: Any) -> None:
        data = self._state.send(event)
        if data:
            self._writer.write(data)
            async with asyncio.timeout(SLOW_S):
                await self._writer.drain()

    def goes_on(self) -> bool:
        """Begin another request, if the peer may make one."""
        if self._state.our_state is not h11.DONE or self._state.their_state is not h11.DONE:
            return False
        with suppress(h11.LocalProtocolError):
            self._state.start_next_cycle()
            return True
        return False


def _head(status: int, headers: Mapping[str, str]) -> h11.Response:
    return h11.Response(status_code=status, headers=list(headers.items()), reason=HTTPStatus(status).phrase.encode())
