"""Streams of a NATS server: stored messages in one order, with their times; and the little of its interface we need.

Rule 1: nothing that a server acknowledges to itself is state here. Readers are fresh, acknowledge nothing, and begin at
        a position that their owner knows.
Rule 2: a message may be stored on condition of the last position, of its stream or of its subject.
"""

from __future__ import annotations

import asyncio
from base64 import b64decode
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec

from catchment.model.errors import TransportError
from catchment.transport.wire import REQUEST_S, Connection, ConnectionLostError, Message, NoAnswerError, header_bytes

__all__ = [
    "FullError",
    "JetStream",
    "MissingError",
    "Reader",
    "RefusedError",
    "Stored",
    "StreamState",
    "WrongPositionError",
    "stored_position",
]

_API = "$JS.API."
_EXPECTED_OF_SUBJECT = "Nats-Expected-Last-Subject-Sequence"
_EXPECTED = "Nats-Expected-Last-Sequence"
_NS_PER_S = 1_000_000_000
_END_OF_BATCH, _NOTHING = 204, 404


class RefusedError(TransportError):
    """The server refuses a request."""

    def __init__(self, what: str, number: int, reason: str) -> None:
        super().__init__(f"the server refuses {what}: {reason}")
        self.number = number


class WrongPositionError(RefusedError):
    """Somebody else has stored something where this message was to be the next one."""


class FullError(RefusedError):
    """A stream, or the server's store, has reached its limit."""


class MissingError(RefusedError):
    """There is no such stream, consumer or message."""


_ERRORS: Mapping[int, type[RefusedError]] = {
    10071: WrongPositionError,
    10164: WrongPositionError,
    10077: FullError,
    10047: FullError,
    10023: FullError,
    10028: FullError,
    10059: MissingError,
    10037: MissingError,
    10014: MissingError,
    10043: MissingError,
    10057: MissingError,
}


class _Problem(msgspec.Struct, frozen=True):
    code: int = 0
    err_code: int = 0
    description: str = ""


class _Acknowledgement(msgspec.Struct, frozen=True):
    seq: int = 0
    error: _Problem | None = None


_acknowledgements = msgspec.json.Decoder(_Acknowledgement)


class Stored(msgspec.Struct, frozen=True, gc=False):
    """A message of a stream."""

    subject: str
    data: bytes
    position: int
    at_us: int
    head: bytes = b""

    @property
    def headers(self) -> dict[str, str]:
        return Message("", "", b"", self.head).headers

    @property
    def size_bytes(self) -> int:
        """About what a server's file has of it."""
        return len(self.subject) + len(self.data) + len(self.head) + 34


@dataclass(frozen=True, slots=True)
class StreamState:
    """How far a stream has come."""

    first: int
    last: int
    messages: int
    size_bytes: int
    bytes_max: int
    """-1 if there is no limit."""
    metadata: Mapping[str, str]


class JetStream:
    """The streams of the server at the other end of a connection."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    # -- streams ------------------------------------------------------------------------------------------------------

    async def create(
        self,
        name: str,
        subjects: Iterable[str],
        *,
        bytes_max: int = -1,
        metadata: Mapping[str, str] | None = None,
        **config: Any,
    ) -> StreamState:
        """Create a stream in files; one that is there with the same configuration is left as it is."""
        wanted = {
            "name": name, "subjects": list(subjects), "storage": "file", "retention": "limits", "discard": "new",
            "max_bytes": bytes_max, "max_msgs": -1, "max_age": 0, "num_replicas": 1, "max_consumers": -1,
            "allow_direct": True, "metadata": dict(metadata or {}), **config,
        }  # fmt: skip
        return _state(await self.ask(f"STREAM.CREATE.{name}", wanted))

    async def state(self, name: str) -> StreamState | None:
        """How far a stream has come; None if there is none."""
        try:
            return _state(await self.ask(f"STREAM.INFO.{name}", {}))
        except MissingError:
            return None

    async def names(self, subject: str) -> list[str]:
        """The streams that have a subject."""
        found: list[str] = []
        while True:
            answer = await self.ask("STREAM.NAMES", {"subject": subject, "offset": len(found)})
            page = answer.get("streams") or []
            found += page
            if not page or len(found) >= answer["total"]:
                return sorted(found)

    async def subjects(self, name: str, wildcard: str) -> list[str]:
        """The subjects of a stream that have messages, rising."""
        answer = await self.ask(f"STREAM.INFO.{name}", {"subjects_filter": wildcard})
        return sorted(answer["state"].get("subjects") or {})

    async def delete(self, name: str) -> None:
        """Delete a stream, if it is there."""
        try:
            await self.ask(f"STREAM.DELETE.{name}", {})
        except MissingError:
            return

    async def purge(self, name: str, before: int, subject: str | None = None) -> None:
        """Drop what is stored before a position, of one subject or of all."""
        if before <= 1:
            # A server takes 0 for everything.
            return
        wanted: dict[str, Any] = {"seq": before}
        if subject is not None:
            wanted["filter"] = subject
        await self.ask(f"STREAM.PURGE.{name}", wanted)

    async def drop(self, name: str, position: int) -> None:
        """Drop one message, if it is there."""
        try:
            await self.ask(f"STREAM.MSG.DELETE.{name}", {"seq": position, "no_erase": True})
        except MissingError:
            return

    async def last(self, name: str, subject: str) -> Stored | None:
        """The newest message of a subject, which may have wildcards."""
        return await self._message(name, {"last_by_subj": subject})

    async def at(self, name: str, position: int) -> Stored | None:
        return await self._message(name, {"seq": position})

    async def next(self, name: str, position: int, subject: str) -> Stored | None:
        """The first message of a subject from a position on."""
        return await self._message(name, {"seq": max(position, 1), "next_by_subj": subject})

    async def several(self, name: str, begin: int, *, count: int, bytes_max: int) -> list[Stored]:
        """The messages from a position on that are there, at most so many, and not much more than so many bytes."""
        found: list[Stored] = []
        ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        def heard(message: Message) -> None:
            if message.status:
                if not ended.done():
                    ended.set_result(message.status)
                return
            told = message.headers
            at_us = _time_us(told["Nats-Time-Stamp"])
            found.append(Stored(told["Nats-Subject"], message.data, int(told["Nats-Sequence"]), at_us, message.head))

        inbox = self.connection.new_inbox()
        end = self.connection.subscribe(inbox, heard)
        try:
            wanted = {"seq": max(begin, 1), "next_by_subj": ">", "batch": count, "max_bytes": bytes_max}
            self.connection.publish(f"{_API}DIRECT.GET.{name}", msgspec.json.encode(wanted), reply=inbox)
            either: list[asyncio.Future[Any]] = [ended, self.connection.lost]
            await asyncio.wait(either, timeout=REQUEST_S, return_when=asyncio.FIRST_COMPLETED)
        finally:
            end()
        if self.connection.is_lost:
            raise ConnectionLostError("the connection to the server is lost")
        if not ended.done():
            raise NoAnswerError(f"reading {name} was not answered within {REQUEST_S} seconds")
        if ended.result() not in (_END_OF_BATCH, _NOTHING):
            raise MissingError(f"reading {name}", 10059, f"status {ended.result()}")
        return found

    async def _message(self, name: str, which: Mapping[str, Any]) -> Stored | None:
        try:
            found = (await self.ask(f"STREAM.MSG.GET.{name}", which))["message"]
        except MissingError:
            return None
        at_us = _time_us(found["time"])
        data, head = b64decode(found.get("data", "")), b64decode(found.get("hdrs", ""))
        return Stored(found["subject"], data, found["seq"], at_us, head)

    async def ask(self, what: str, content: Mapping[str, Any]) -> dict[str, Any]:
        """The answer to a request of the server's interface; a refusal is raised."""
        message = await self.connection.request(_API + what, msgspec.json.encode(content))
        if message.status == 503:
            raise TransportError("the server has no JetStream; accepted is one that runs with it (nats-server -js)")
        answer: dict[str, Any] = msgspec.json.decode(message.data)
        if "error" in answer:
            raise _refusal(what, msgspec.convert(answer["error"], _Problem))
        return answer

    # -- messages -----------------------------------------------------------------------------------------------------

    def send(
        self,
        subject: str,
        data: bytes,
        *,
        after_of_subject: int | None = None,
        after: int | None = None,
        headers: Mapping[str, object] | None = None,
    ) -> asyncio.Future[Message]:
        """Have a message stored; `stored_position` reads the answer.

        `after_of_subject` is what must be the last position of its subject, `after` of the whole stream.
        """
        told: dict[str, object] = dict(headers or {})
        if after_of_subject is not None:
            told[_EXPECTED_OF_SUBJECT] = after_of_subject
        if after is not None:
            told[_EXPECTED] = after
        return self.connection.ask(subject, data, head=header_bytes(told) if told else b"")

    async def store(self, subject: str, data: bytes, **conditions: Any) -> int:
        """Have a message stored; its position."""
        return stored_position(await self.send(subject, data, **conditions))


def stored_position(answer: Message) -> int:
    """The position that a server's answer names; a refusal is raised."""
    if answer.status == 503:
        raise MissingError("a message", 10059, "no stream has its subject")
    found = _acknowledgements.decode(answer.data)
    if found.error is not None:
        raise _refusal("a message", found.error)
    return found.seq


def _refusal(what: str, problem: _Problem) -> RefusedError:
    return _ERRORS.get(problem.err_code, RefusedError)(what, problem.err_code, problem.description)


def _state(info: Mapping[str, Any]) -> StreamState:
    state, config = info["state"], info["config"]
    return StreamState(
        state["first_seq"], state["last_seq"], state["messages"], state["bytes"], config["max_bytes"],
        config.get("metadata") or {},
    )  # fmt: skip


def _time_us(text: str) -> int:
    """A time of Go, which has up to nine digits behind the point, where Python reads six."""
    whole, _, rest = text.rstrip("Z").partition(".")
    return int(datetime.fromisoformat(f"{whole}.{rest[:6]:0<6}+00:00").timestamp() * 1_000_000)


class Reader:
    """Reads a stream from a position on, forever.

    Two requests are kept open, so that the next messages are under way while these are handled; no more is asked for
    while `bytes_max` wait here.
    """

    BATCH = 1_000
    PULL_BYTES = 8_000_000
    EXPIRES_S = 20

    def __init__(self, streams: JetStream, name: str, begin: int, *, bytes_max: int = 32_000_000) -> None:
        self._connection, self._streams, self._name, self._begin = streams.connection, streams, name, begin
        self._bytes_max = bytes_max
        self._waiting: deque[Stored] = deque()
        self._size_bytes = 0
        self._arrived = asyncio.Event()
        self._inbox = self._connection.new_inbox()
        self._next_subject = ""
        self._open: dict[str, int] = {}
        """Requests by the subject of their answers: how many messages each may still bring."""
        self._last_pull = 0
        self._sequence = 0
        self._problem: BaseException | None = None
        self._end: Callable[[], None] | None = None
        self.pending = 0
        """Messages that are stored behind the last one that came."""

    async def start(self) -> None:
        name = f"r{self._inbox.rpartition('.')[2]}"
        self._end = self._connection.subscribe(f"{self._inbox}.*", self._receive)
        config = {
            "name": name, "deliver_policy": "by_start_sequence", "opt_start_seq": max(self._begin, 1),
            "ack_policy": "none", "replay_policy": "instant", "inactive_threshold": 60 * _NS_PER_S,
            "mem_storage": True, "num_replicas": 1,
        }  # fmt: skip
        wanted = {"stream_name": self._name, "config": config, "action": "create"}
        await self._streams.ask(f"CONSUMER.CREATE.{self._name}.{name}", wanted)
        self._next_subject = f"{_API}CONSUMER.MSG.NEXT.{self._name}.{name}"
        self._connection.lost.add_done_callback(lambda _: self._arrived.set())
        self._pull()

    def stop(self) -> None:
        if self._end is not None:
            self._end()
            self._end = None

    async def read(self, count: int, bytes_max: int = 2**62) -> list[Stored]:
        """Wait for messages; as many as are there, at most `count`, and not much more than so many bytes."""
        while not self._waiting or self._problem is not None:
            if self._problem is not None:
                raise self._problem
            if self._connection.is_lost:
                raise ConnectionLostError("the connection to the server is lost")
            self._arrived.clear()
            await self._arrived.wait()
        found: list[Stored] = []
        size = 0
        while self._waiting and len(found) < count and size < bytes_max:
            found.append(self._waiting.popleft())
            size += found[-1].size_bytes
        self._size_bytes -= size
        self._pull()
        return found

    @property
    def waiting_bytes(self) -> int:
        return self._size_bytes

    @property
    def waiting_count(self) -> int:
        """Messages that are stored and not read yet, as far as known."""
        return len(self._waiting) + self.pending

    @property
    def oldest_us(self) -> int | None:
        """When the next message was stored, if it is here."""
        return self._waiting[0].at_us if self._waiting else None

    def _pull(self) -> None:
        while len(self._open) < 2 and self._size_bytes < self._bytes_max and not self._connection.is_lost:
            self._last_pull += 1
            reply = f"{self._inbox}.{self._last_pull}"
            self._open[reply] = self.BATCH
            wanted = {"batch": self.BATCH, "expires": self.EXPIRES_S * _NS_PER_S, "max_bytes": self.PULL_BYTES}
            self._connection.publish(self._next_subject, msgspec.json.encode(wanted), reply=reply)

    def _receive(self, message: Message) -> None:
        status = message.status
        if status:
            if status == 503 or "Deleted" in message.status_text or "Shutdown" in message.status_text:
                self._fail(f"reading {self._name} has ended: {message.status_text}")
                return
            if status != 100:
                self._open.pop(message.subject, None)
                self._pull()
            return
        fields = message.reply.split(".")
        position, sequence, time_ns, pending = fields[5:9] if len(fields) == 9 else fields[7:11]
        self._sequence += 1
        if int(sequence) != self._sequence:
            self._fail(f"reading {self._name} has missed messages before {position}")
            return
        self.pending = int(pending)
        stored = Stored(message.subject, message.data, int(position), int(time_ns) // 1_000, message.head)
        self._waiting.append(stored)
        self._size_bytes += stored.size_bytes
        # A message comes under its own subject, and answers the oldest request that is open.
        oldest = next(iter(self._open), None)
        if oldest is not None:
            self._open[oldest] -= 1
            if not self._open[oldest]:
                del self._open[oldest]
                self._pull()
        self._arrived.set()

    def fail(self, problem: BaseException) -> None:
        """Raise this to whoever reads, now or next."""
        if self._problem is None:
            self._problem = problem
        self._arrived.set()

    def _fail(self, why: str) -> None:
        self.fail(ConnectionLostError(why))
