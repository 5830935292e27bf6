"""The NATS protocol over one TCP connection: all that the rest of this package knows of sockets.

A socket read is handled whole, and all that is written in one turn of the event loop leaves in one write: measured with
raw JetStream, five to ten times the messages a second of a client that awaits each.

Rule 1: a connection has one life. It is never mended: whoever uses it opens another one, and decides by itself what has
        to be said again.
Rule 2: what is published leaves in the order in which it was published.
Rule 3: a callback gets each message of its subscription in order, and must not block.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urlsplit

import msgspec

from catchment.model.errors import TransportError
from catchment.transport.names import ANYONE, inbox_prefix

__all__ = ["Connection", "ConnectionLostError", "Message", "NoAnswerError", "header_bytes", "open_connection"]

PORT = 4222
CONNECT_S = 5.0
REQUEST_S = 10.0
PING_S = 10.0
PINGS_MAX = 3
"""Pings without an answer after which a server is taken for dead."""
HEADER = b"NATS/1.0\r\n"


class ConnectionLostError(TransportError):
    """The connection to the server has ended; what was not answered may or may not have happened."""


class NoAnswerError(TransportError):
    """A request was not answered in time; it may or may not have had its effect."""


@dataclass(frozen=True, slots=True)
class Message:
    """What a subscription gets."""

    subject: str
    reply: str
    data: bytes
    head: bytes = b""
    """Headers as they came; `headers` reads them."""

    @property
    def status(self) -> int:
        """Of a message from the server itself: 100, 404, 408, 409, 503; else 0."""
        first = self.head[9:12]
        return int(first) if first.isdigit() else 0

    @property
    def headers(self) -> dict[str, str]:
        lines = self.head.decode(errors="replace").split("\r\n")[1:]
        pairs = (line.partition(":") for line in lines if ":" in line)
        return {name: value.strip() for name, _, value in pairs}

    @property
    def status_text(self) -> str:
        return self.head.split(b"\r\n", 1)[0][9:].decode(errors="replace")


Callback = Callable[[Message], None]


class Connection(asyncio.Protocol):
    """One connection to a server. `lost` is done once it has ended."""

    def __init__(self, name: str, user: str | None, password: str | None) -> None:
        self._name, self._user, self._password = name, user, password
        self._transport: asyncio.Transport | None = None
        self._loop = asyncio.get_running_loop()
        self._buffer = b""
        self._out: list[bytes] = []
        self._callbacks: dict[bytes, Callback] = {}
        self._last_sid = 0
        self._inboxes = inbox_prefix(ANYONE)
        self._inbox = f"{self.new_inbox()}."
        self._replies: dict[str, asyncio.Future[Message]] = {}
        self._last_reply = 0
        self._unanswered_pings = 0
        self._pinging: asyncio.TimerHandle | None = None
        self._may_write = asyncio.Event()
        self._may_write.set()
        self.ready: asyncio.Future[None] = self._loop.create_future()
        self.lost: asyncio.Future[None] = self._loop.create_future()
        self.problem = ""
        """What the server said last that was an error."""
        self.info: dict[str, Any] = {}

    # -- what users call ----------------------------------------------------------------------------------------------

    def publish(self, subject: str, data: bytes, *, reply: str = "", head: bytes = b"") -> None:
        """Send a message; `head` comes from `header_bytes`."""
        if self._transport is None:
            raise ConnectionLostError(f"the connection to the server is lost{self._said()}")
        if not self._out:
            self._loop.call_soon(self._flush)
        if head:
            line = f"HPUB {subject} {reply} {len(head)} {len(head) + len(data)}\r\n".encode()
            self._out += (line, head, data, b"\r\n")
        else:
            self._out += (f"PUB {subject} {reply} {len(data)}\r\n".encode(), data, b"\r\n")

    def ask(self, subject: str, data: bytes, *, head: bytes = b"") -> asyncio.Future[Message]:
        """Send a request; the answer, once it is there."""
        answer: asyncio.Future[Message] = self._loop.create_future()
        self._last_reply += 1
        reply = f"{self._inbox}{self._last_reply}"
        self.publish(subject, data, reply=reply, head=head)
        self._replies[reply] = answer
        return answer

    async def request(self, subject: str, data: bytes, *, head: bytes = b"", within_s: float = REQUEST_S) -> Message:
        """Send a request and wait for its answer."""
        try:
            async with asyncio.timeout(within_s):
                return await self.ask(subject, data, head=head)
        except TimeoutError:
            raise NoAnswerError(f"{subject} was not answered within {within_s} seconds") from None

    def subscribe(self, subject: str, callback: Callback, *, group: str = "") -> Callable[[], None]:
        """Have every message of a subject handed over, or one of each `group`; what is returned ends it."""
        self._last_sid += 1
        sid = str(self._last_sid).encode()
        self._callbacks[sid] = callback
        self._write(b"SUB %s %s %s\r\n" % (subject.encode(), group.encode(), sid))

        def end() -> None:
            if self._callbacks.pop(sid, None) is not None and self._transport is not None:
                self._write(b"UNSUB %s\r\n" % sid)

        return end

    def new_inbox(self) -> str:
        return f"{self._inboxes}{os.urandom(12).hex()}"

    async def drain(self) -> None:
        """Wait while the server takes less than it is sent."""
        await self._may_write.wait()

    async def close(self) -> None:
        """Send what is written, and end."""
        if self._transport is not None:
            self._flush()
            self._transport.close()
        await self.lost

    @property
    def is_lost(self) -> bool:
        return self.lost.done()

    # -- what the event loop calls ------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.set_write_buffer_limits(high=4_000_000)

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self._may_write.set()
        if self._pinging is not None:
            self._pinging.cancel()
        reason = ConnectionLostError(f"the connection to the server is lost{self._said()}")
        for answer in self._replies.values():
            if not answer.done():
                answer.set_exception(reason)
                # Whoever does not wait any more has no use for it.
                answer.exception()
        self._replies.clear()
        if not self.ready.done():
            self.ready.set_exception(reason)
        self.lost.set_result(None)

    def pause_writing(self) -> None:
        self._may_write.clear()

    def resume_writing(self) -> None:
        self._may_write.set()

    def data_received(self, data: bytes) -> None:
        buffer = self._buffer + data if self._buffer else data
        place, end = 0, len(buffer)
        while (line_end := buffer.find(b"\r\n", place)) >= 0:
            line = buffer[place:line_end]
            begin = line_end + 2
            if line.startswith((b"MSG ", b"HMSG ")):
                fields = line.split()
                finish = begin + int(fields[-1])
                if finish + 2 > end:
                    break
                self._arrived(fields, buffer[begin:finish])
                place = finish + 2
            else:
                place = begin
                self._handle(line)
        self._buffer = buffer[place:]

    def _arrived(self, fields: list[bytes], payload: bytes) -> None:
        callback = self._callbacks.get(fields[2])
        if callback is None:
            return
        if fields[0] == b"MSG":
            reply = fields[3].decode() if len(fields) == 5 else ""
            callback(Message(fields[1].decode(), reply, payload))
        else:
            reply = fields[3].decode() if len(fields) == 6 else ""
            head_size = int(fields[-2])
            callback(Message(fields[1].decode(), reply, payload[head_size:], payload[:head_size]))

    def _handle(self, line: bytes) -> None:
        if line == b"PING":
            self._write(b"PONG\r\n")
        elif line == b"PONG":
            self._unanswered_pings = 0
            if not self.ready.done():
                self.ready.set_result(None)
        elif line.startswith(b"INFO "):
            self._greet(line[5:])
        elif line.startswith(b"-ERR"):
            self.problem = line[4:].decode(errors="replace").strip(" '")

    def _greet(self, info: bytes) -> None:
        is_first = not self.info
        self.info = msgspec.json.decode(info)
        if not is_first:
            return
        said = {
            "verbose": False, "pedantic": False, "lang": "python", "version": "1", "protocol": 1,
            "name": self._name, "headers": True, "no_responders": True,
        }  # fmt: skip
        if self._user is not None and self._password is None:
            said["auth_token"] = self._user
        elif self._user is not None:
            said |= {"user": self._user, "pass": self._password}
        self._write(b"CONNECT " + msgspec.json.encode(said) + b"\r\n")
        self.subscribe(f"{self._inbox}*", self._replied)
        self._write(b"PING\r\n")
        self._pinging = self._loop.call_later(PING_S, self._ping)

    def _replied(self, message: Message) -> None:
        answer = self._replies.pop(message.subject, None)
        if answer is not None and not answer.done():
            answer.set_result(message)

    def _ping(self) -> None:
        self._unanswered_pings += 1
        if self._unanswered_pings > PINGS_MAX and self._transport is not None:
            self.problem = "it does not answer"
            self._transport.abort()
            return
        self._write(b"PING\r\n")
        self._pinging = self._loop.call_later(PING_S, self._ping)

    def _write(self, line: bytes) -> None:
        if not self._out:
            self._loop.call_soon(self._flush)
        self._out.append(line)

    def _flush(self) -> None:
        out, self._out = self._out, []
        if self._transport is not None and out:
            self._transport.write(b"".join(out))

    def _said(self) -> str:
        return f": {self.problem}" if self.problem else ""


def header_bytes(headers: Mapping[str, object]) -> bytes:
    """Headers of a message, for `publish`."""
    return HEADER + "".join(f"{name}: {value}\r\n" for name, value in headers.items()).encode() + b"\r\n"


async def open_connection(url: str, name: str, *, within_s: float = CONNECT_S) -> Connection:
    """A connection to a server that has said that it is there; `url` is nats://[user:password@]host[:port]."""
    parts = urlsplit(url if "://" in url else f"nats://{url}")
    try:
        host, port = parts.hostname, parts.port or PORT
    except ValueError as error:
        raise TransportError(f"{url!r} is no address of a server: {error}") from None
    if parts.scheme != "nats" or not host:
        raise TransportError(f"{url!r} is no address of a server; accepted is nats://host:port")
    user = None if parts.username is None else unquote(parts.username)
    password = None if parts.password is None else unquote(parts.password)
    try:
        async with asyncio.timeout(within_s):
            loop = asyncio.get_running_loop()
            _, connection = await loop.create_connection(lambda: Connection(name, user, password), host, port)
            await connection.ready
    except (OSError, TimeoutError) as error:
        reason = getattr(error, "strerror", None) or str(error) or f"no answer within {within_s} seconds"
        raise TransportError(f"cannot reach a NATS server at {host}:{port}: {reason}") from None
    return connection
