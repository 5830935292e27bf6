"""The NATS protocol over one TCP connection, plain or with TLS: all that the rest of this package knows of sockets.

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
import ssl
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import SplitResult, unquote, urlsplit

import msgspec

from catchment.model.errors import UNREADABLE, TransportError
from catchment.transport.credentials import OPEN, Credentials, Identity
from catchment.transport.names import inbox_prefix

__all__ = [
    "AccessError",
    "Connection",
    "ConnectionLostError",
    "Message",
    "NoAnswerError",
    "header_bytes",
    "open_connection",
]

PORT = 4222
CONNECT_S = 5.0
REQUEST_S = 10.0
PING_S = 10.0
PINGS_MAX = 3
"""Pings without an answer after which a server is taken for dead."""
HEADER = b"NATS/1.0\r\n"


class ConnectionLostError(TransportError):
    """The connection to the server has ended; what was not answered may or may not have happened."""


class AccessError(TransportError):
    """The server does not let this user in, or not do that."""


class NoAnswerError(TransportError):
    """A request was not answered in time; it may or may not have had its effect."""


class Message(msgspec.Struct, frozen=True, gc=False):
    """What a subscription gets. A struct, as one is made for every message that comes."""

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

    def __init__(self, name: str, user: str) -> None:
        self._name, self.user = name, user
        self._transport: asyncio.Transport | None = None
        self._loop = asyncio.get_running_loop()
        self._buffer = b""
        self._out: list[bytes] = []
        self._callbacks: dict[bytes, Callback] = {}
        self._last_sid = 0
        self._inboxes = inbox_prefix(user)
        self._inbox = f"{self.new_inbox()}."
        self._replies: dict[str, asyncio.Future[Message]] = {}
        self._last_reply = 0
        self._unanswered_pings = 0
        self._pinging: asyncio.TimerHandle | None = None
        self._may_write = asyncio.Event()
        self._may_write.set()
        self.greeted: asyncio.Future[None] = self._loop.create_future()
        """Done once the server has said what it is: `info`."""
        self.ready: asyncio.Future[None] = self._loop.create_future()
        self.lost: asyncio.Future[None] = self._loop.create_future()
        self.problem = ""
        """What the server said last that was an error."""
        self.info: dict[str, Any] = {}
        self.has_key = False
        """Whether the user has shown that it has a key."""

    # -- what users call ----------------------------------------------------------------------------------------------

    def publish(self, subject: str, data: bytes, *, reply: str = "", head: bytes = b"") -> None:
        """Send a message; `head` comes from `header_bytes`."""
        if self._transport is None:
            raise ConnectionLostError(f"the connection to the server is lost{self._said()}")
        if not self._out:
            self._loop.call_soon(self.flush)
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

    def flush(self) -> None:
        """Write what was published in this turn of the event loop, instead of at its end."""
        out, self._out = self._out, []
        if self._transport is not None and out:
            self._transport.write(b"".join(out))

    async def drain(self) -> None:
        """Wait while the server takes less than it is sent."""
        await self._may_write.wait()

    async def close(self) -> None:
        """Send what is written, and end."""
        if self._transport is not None:
            self.flush()
            self._transport.close()
        await self.lost

    def abandon(self) -> None:
        """End at once, whatever is under way."""
        if self._transport is not None:
            self._transport.abort()

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
        for waiting in (self.greeted, self.ready):
            if not waiting.done():
                waiting.set_exception(reason)
                waiting.exception()
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
                try:
                    finish = begin + _payload_bytes(fields)
                except ValueError:
                    self._give_up(f"it says {bytes(line[:80])!r}")
                    return
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
        # Anybody may publish on a subject that is no text, and name such a one for the answer.
        subject = fields[1].decode(errors="replace")
        if fields[0] == b"MSG":
            reply = fields[3].decode(errors="replace") if len(fields) == 5 else ""
            callback(Message(subject, reply, payload))
        else:
            reply = fields[3].decode(errors="replace") if len(fields) == 6 else ""
            head_size = int(fields[-2])
            callback(Message(subject, reply, payload[head_size:], payload[:head_size]))

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

    def _give_up(self, why: str) -> None:
        self.problem = f"it is no NATS server: {why}"
        self.abandon()

    def _greet(self, info: bytes) -> None:
        try:
            self.info = msgspec.json.decode(info, type=dict[str, Any])
        except UNREADABLE as error:
            self._give_up(str(error))
            return
        if not self.greeted.done():
            self.greeted.set_result(None)

    async def encrypt(self, context: ssl.SSLContext, host: str) -> None:
        """Go on with TLS; called once, between `greeted` and `log_in`."""
        assert self._transport is not None
        transport = await self._loop.start_tls(self._transport, self, context, server_hostname=host)
        if transport is None:
            raise ConnectionResetError("the connection has ended")
        self.connection_made(transport)

    def log_in(self, proof: Mapping[str, str]) -> None:
        """Tell the server who this is; it is `ready` once it has answered."""
        self.has_key = "nkey" in proof
        said = {
            "verbose": False, "pedantic": False, "lang": "python", "version": "1", "protocol": 1,
            "name": self._name, "headers": True, "no_responders": True, **proof,
        }  # fmt: skip
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
        if self._unanswered_pings > PINGS_MAX:
            self.problem = "it does not answer"
            self.abandon()
            return
        self._write(b"PING\r\n")
        self._pinging = self._loop.call_later(PING_S, self._ping)

    def _write(self, line: bytes) -> None:
        if not self._out:
            self._loop.call_soon(self.flush)
        self._out.append(line)

    def _said(self) -> str:
        return f": {self.problem}" if self.problem else ""


def _payload_bytes(fields: list[bytes]) -> int:
    """How long what follows a line `MSG …` or `HMSG …` is; a ValueError if the line is none."""
    with_head = fields[0] == b"HMSG"
    size = int(fields[-1])
    if len(fields) - with_head not in (4, 5) or not 0 <= (int(fields[-2]) if with_head else 0) <= size:
        raise ValueError
    return size


def header_bytes(headers: Mapping[str, object]) -> bytes:
    """Headers of a message, for `publish`."""
    return HEADER + "".join(f"{name}: {value}\r\n" for name, value in headers.items()).encode() + b"\r\n"


async def open_connection(
    url: str, name: str, credentials: Credentials = OPEN, *, within_s: float = CONNECT_S
) -> Connection:
    """A connection to a server that has let this user in; `url` is nats:// or tls://[user:password@]host[:port].

    Whatever the URL says, a server that asks for TLS gets it; tls:// and a file of certificates insist on it.
    """
    parts = urlsplit(url if "://" in url else f"nats://{url}")
    try:
        host, port = parts.hostname, parts.port or PORT
    except ValueError as error:
        raise TransportError(f"{url!r} is no address of a server: {error}") from None
    if parts.scheme not in ("nats", "tls") or not host:
        raise TransportError(f"{url!r} is no address of a server; accepted are nats://host:port and tls://host:port")
    identity = credentials.identity()
    wants_tls = parts.scheme == "tls" or credentials.ca is not None
    where = f"{host}:{port}"
    connection: Connection | None = None
    try:
        async with asyncio.timeout(within_s):
            user = credentials.user
            _, connection = await asyncio.get_running_loop().create_connection(
                lambda: Connection(name, user), host, port
            )
            await connection.greeted
            if wants_tls and not connection.info.get("tls_required") and not connection.info.get("tls_available"):
                raise AccessError(f"the server at {where} has no TLS, which was asked for; accepted is one that has")
            if wants_tls or connection.info.get("tls_required"):
                await connection.encrypt(credentials.context(), host)
            connection.log_in(_proof(connection, identity, parts))
            await connection.ready
    except ssl.SSLCertVerificationError as error:
        given = "the system trusts" if credentials.ca is None else f"{credentials.ca} has signed"
        raise AccessError(
            f"the certificate of the server at {where} is refused: {error.verify_message}; accepted is one for {host} "
            f"that {given}"
        ) from None
    except ConnectionLostError as error:
        assert connection is not None
        raise _refused(connection, where, credentials, identity) or error from None
    except (OSError, TimeoutError) as error:
        reason = getattr(error, "strerror", None) or str(error) or f"no answer within {within_s} seconds"
        raise TransportError(f"cannot reach a NATS server at {where}: {reason}") from None
    finally:
        if connection is not None and not (connection.ready.done() and not connection.ready.exception()):
            connection.abandon()
    return connection


def _proof(connection: Connection, identity: Identity | None, parts: SplitResult) -> dict[str, str]:
    """What the server is told of the user."""
    if identity is not None:
        nonce = connection.info.get("nonce")
        if nonce is None:
            # A server that knows no keys lets anyone in.
            return {}
        return {"nkey": identity.public_key, "sig": identity.signed(nonce)}
    if parts.username is None:
        return {}
    if parts.password is None:
        return {"auth_token": unquote(parts.username)}
    return {"user": unquote(parts.username), "pass": unquote(parts.password)}


def _refused(
    connection: Connection, where: str, credentials: Credentials, identity: Identity | None
) -> AccessError | None:
    """Why a server has ended a connection, if it does not let this user in."""
    problem = connection.problem
    if connection.info.get("tls_verify") and not problem:
        # It says nothing: it ends the connection when it has seen the certificate.
        given = "none" if credentials.certificate is None else str(credentials.certificate)
        return AccessError(
            f"the server at {where} wants a certificate of this process that it trusts; given is {given}, accepted is "
            "a PEM file with the certificate and its key"
        )
    if not problem.startswith(("Authorization", "Authentication", "User Authentication")):
        return None
    if identity is None:
        return AccessError(f"the server at {where} lets nobody in without a key, and none was given; accepted is --key")
    return AccessError(
        f"the server at {where} does not know the key {identity.public_key} of {identity.user!r}, from "
        f"{credentials.key}; accepted are those of its `catchment access list`"
    )
