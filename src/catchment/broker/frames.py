"""The binary form of what one peer sends another: `CF`, a version, then MessagePack.

    frame    sender, incarnation, epoch, sequence, covers, schemas, messages
    events   name of their schema, body of an Arrow IPC record batch

A writer names each Arrow schema once, in the first frame that uses it; the reader at the other end remembers it. Both
belong to one link and one life of the sender.

Rule 1: decoding never trusts its input. What is no frame is a FrameError that says why, and nothing else.
Rule 2: one version says everything the same way; another one is refused, not guessed at.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Annotated, Any, Union, get_args

import msgspec
import numpy as np
import pyarrow as pa

from catchment.broker.demands import Demand, demand_from_plain, demand_to_plain
from catchment.broker.limits import text_bytes
from catchment.broker.messages import (
    Acknowledged,
    AdviceMessage,
    Delivered,
    Extras,
    Message,
    Notified,
    Published,
    PublishEvents,
    Recorded,
    Subscribed,
)
from catchment.model.errors import UNREADABLE, CatchmentError, FrameError, SubscriptionError
from catchment.model.events import event_times_us
from catchment.model.results import NOTIFICATION_SCHEMA
from catchment.model.schema import Type

__all__ = [
    "EPOCH",
    "FRAME_BYTES_MAX",
    "MAGIC",
    "MESSAGE_BYTES_MAX",
    "VERSION",
    "BatchCoder",
    "Envelope",
    "Frame",
    "FrameReader",
    "FrameWriter",
    "carried",
    "fitting_batches",
    "fitting_messages",
    "fitting_parts",
    "message_bytes",
    "opened",
    "require_forwardable",
    "require_sendable",
]

MAGIC = b"CF"
VERSION = 2
HEAD = MAGIC + bytes([VERSION])
EPOCH = 1
"""The version of the overlay, until there are others."""
FRAME_BYTES_MAX = 1_000_000
"""Longer ones are split between messages, and between the events of a message."""
ROWS_MAX = 1_000_000
COLUMNS_MAX = 4096
MESSAGE_BYTES_MAX = FRAME_BYTES_MAX - 1_000 - COLUMNS_MAX * 64
"""Of one message, so that its envelope and the schemas that it names fit into the same frame."""
DEMANDS_BYTES_MAX = MESSAGE_BYTES_MAX // 2
"""Of the demands in one message, so that there is room for what advice attaches."""
SCHEMAS_MAX = 1_000
"""Schemas that one peer may name in one life."""
_ACCEPTED = frozenset(
    [
        *(kind.arrow for kind in Type),
        pa.int8(),
        pa.int16(),
        pa.int32(),
        pa.float32(),
        pa.date32(),
        pa.timestamp("us"),
        pa.binary(),
        NOTIFICATION_SCHEMA.field("group").type,
    ]
)

_ROWS = np.dtype("<i4")
_Number = Annotated[int, msgspec.Meta(ge=1, le=2**62)]
_Position = Annotated[int, msgspec.Meta(ge=0, le=2**62)]


class Envelope(msgspec.Struct, frozen=True, array_like=True):
    """A frame whose messages are not decoded yet."""

    sender: str
    incarnation: _Number
    """Which life of the sender: one that starts anew, without its memory, counts from 1 again."""
    epoch: _Number
    sequence: _Number
    """Of the frames to this receiver, from 1 on, without gaps."""
    covers: _Position
    """The position in the sender's log of inputs up to which its effects on the receiver have now been sent."""
    schemas: dict[str, bytes]
    messages: msgspec.Raw


@dataclass(frozen=True, slots=True)
class Frame:
    """Messages of one sender to one receiver, in order."""

    sender: str
    messages: tuple[Message, ...]
    incarnation: int = 1
    epoch: int = 1
    sequence: int = 1
    covers: int = 0

    def __str__(self) -> str:
        return f"{self.sender}#{self.sequence} {'; '.join(map(str, self.messages))}"


def opened(data: bytes) -> Envelope:
    """The envelope of a frame; anything else is a FrameError."""
    if len(data) > FRAME_BYTES_MAX:
        raise FrameError(f"a frame has {len(data)} bytes; accepted are at most {FRAME_BYTES_MAX}")
    if data[:2] != MAGIC:
        raise FrameError(f"a frame begins with {bytes(data[:2])!r}; accepted is {MAGIC!r}")
    if data[2:3] != HEAD[2:]:
        raise FrameError(f"a frame is of version {list(data[2:3])}; accepted is {VERSION}")
    try:
        return _envelopes.decode(memoryview(data)[3:])
    except UNREADABLE as error:
        raise FrameError(f"a frame does not decode: {str(error)[:200]}") from None


class _Subscribed(msgspec.Struct, frozen=True, array_like=True, tag="Subscribed"):
    """How a change of demands travels: MessagePack would take a filter apart in ways of its own."""

    topic: str
    change: int
    added: list[Any]
    dropped: list[Any]
    extras: Extras


_envelopes = msgspec.msgpack.Decoder(Envelope)


def _schema_name(serialized: bytes) -> str:
    return blake2b(serialized, digest_size=8).hexdigest()


class BatchCoder:
    """Encodes batches, each once for all receivers of one sender."""

    def __init__(self) -> None:
        self._schemas: list[tuple[pa.Schema, str, bytes]] = []
        """Schemas that were used of late, their names, and how they are written."""
        self._last: tuple[pa.RecordBatch, str, bytes, memoryview] | None = None

    def encoded(self, batch: pa.RecordBatch) -> tuple[str, bytes, memoryview]:
        """The name of a batch's schema, how that is written, and the rows; the last batch is remembered."""
        last = self._last
        if last is None or last[0] is not batch:
            last = self._last = (batch, *self._schema(batch.schema), memoryview(batch.serialize()))
        return last[1:]

    def _schema(self, schema: pa.Schema) -> tuple[str, bytes]:
        for known, name, written in self._schemas:
            if known.equals(schema, check_metadata=True):
                return name, written
        written = schema.serialize().to_pybytes()
        name = _schema_name(written)
        # A topic has one schema, or a few; more are not worth remembering.
        self._schemas = [(schema, name, written), *self._schemas[:7]]
        return name, written

    def forget(self) -> None:
        """Hold no batch any longer."""
        self._last = None


@dataclass(slots=True)
class FrameWriter:
    """Encodes the frames of one sender to one receiver."""

    named: frozenset[str] = frozenset()
    """The schemas that the receiver knows."""
    is_remembered: bool = True
    """Whether a receiver remembers them; else each frame names all that it uses, and can be read alone."""
    _coder: BatchCoder = field(default_factory=BatchCoder)
    _fresh: dict[str, bytes] = field(default_factory=dict)
    """Schemas that the next frame has to name."""
    _encoder: msgspec.msgpack.Encoder = field(init=False)
    _buffer: bytearray = field(default_factory=lambda: bytearray(HEAD))
    """Where frames are written, again and again."""

    def __post_init__(self) -> None:
        self._encoder = msgspec.msgpack.Encoder(enc_hook=self._plainly)

    def _plainly(self, value: Any) -> Any:
        if isinstance(value, np.ndarray):
            return value.astype(_ROWS, copy=False).tobytes()
        if isinstance(value, pa.RecordBatch):
            name, schema, rows = self._coder.encoded(value)
            if name not in self.named:
                self._fresh[name] = schema
            return name, rows
        raise NotImplementedError(f"a frame cannot carry a {type(value).__name__}")

    def frames(
        self,
        sender: str,
        messages: Iterable[Message],
        *,
        incarnation: int,
        epoch: int,
        after: int,
        covers: int,
        coder: BatchCoder | None = None,
    ) -> list[bytes]:
        """Messages as frames, numbered from `after` on; as many as it takes to keep each within its size.

        If it raises, nothing is written, and the next frames name the schemas that these would have named. `coder` is
        one that the sender shares between its receivers.
        """
        known, self._coder = self.named, coder or self._coder
        travelling = [_travelling(message) for message in messages]
        of_advice = [len(one.body) for one in travelling if type(one) is AdviceMessage]
        found: list[bytes] = []
        try:
            if not of_advice or sum(of_advice) <= FRAME_BYTES_MAX:
                envelope = (sender, incarnation, epoch, after + 1, covers, self._fresh, travelling)
                self._encoder.encode_into(envelope, self._buffer, len(HEAD))
                if self._fresh:
                    # Schemas are written before the messages that use them, and were met behind that place.
                    self._encoder.encode_into(envelope, self._buffer, len(HEAD))
                if len(self._buffer) <= FRAME_BYTES_MAX:
                    self._named()
                    return [bytes(self._buffer)]
            for bodies in self._packed(travelling):
                envelope = (sender, incarnation, epoch, after + len(found) + 1, covers, self._named(), bodies)
                self._encoder.encode_into(envelope, self._buffer, len(HEAD))
                found.append(bytes(self._buffer))
            return found
        except Exception:
            self.named = known
            raise
        finally:
            self._fresh = {}

    def _named(self) -> dict[str, bytes]:
        """Take the schemas that the next frame has to name."""
        fresh = self._fresh
        if fresh and self.is_remembered:
            self.named, self._fresh = self.named | fresh.keys(), {}
        return fresh

    def _packed(self, messages: Iterable[Any]) -> Iterator[list[Any]]:
        bodies: list[Any] = []
        size = 0
        for message in messages:
            for body, length in self._bodies(message):
                fresh = sum(map(len, self._fresh.values()))
                if bodies and size + fresh + length > FRAME_BYTES_MAX - _OVERHEAD_BYTES:
                    # A schema that is first used by the next body may be named one frame early.
                    yield bodies
                    bodies, size = [], 0
                bodies.append(body)
                size += length
        if bodies:
            yield bodies

    def _bodies(self, message: Any) -> Iterator[tuple[Any, int]]:
        """Give what travels as a message, or as several that are not too long, with how long each is at most."""
        if isinstance(message, AdviceMessage):
            # Nothing else of it is long, so that it need not be written to know that it fits.
            most = len(message.body) + 4 * len(message.advice) + 100
            if most <= MESSAGE_BYTES_MAX:
                yield message, most
                return
        body = self._encoder.encode(message)
        if len(body) <= MESSAGE_BYTES_MAX:
            yield msgspec.Raw(body), len(body)
            return
        for half in _halves(message):
            yield from self._bodies(half)


_OVERHEAD_BYTES = 1_000
"""Of an envelope, without schemas and messages."""


def _halves(message: Message) -> Sequence[Message]:
    """A message about many events, ids or subscriptions as two about fewer."""
    if isinstance(message, Notified) and message.answers.num_rows > 1:
        half = message.answers.num_rows // 2
        return Notified(message.answers.slice(0, half)), Notified(message.answers.slice(half))
    if isinstance(message, Acknowledged) and len(message.dropped) > 1:
        half = len(message.dropped) // 2
        first_part = Acknowledged(message.request, message.dropped[:half], is_last=False)
        return first_part, Acknowledged(message.request, message.dropped[half:], message.is_last)
    if isinstance(message, Delivered) and message.events.num_rows == 1 and len(message.names) > 1:
        wanted, middle = message.wanted, message.names[len(message.names) // 2]
        parts = [{name: rows for name, rows in wanted.items() if (name < middle) is first} for first in (True, False)]
        return [Delivered.of(message.topic, message.events, one) for one in parts]
    if isinstance(message, Recorded) and message.events is not None and message.events.num_rows > 1:
        half = message.events.num_rows // 2
        first, second = message.events.slice(0, half), message.events.slice(half)
        latest_us = max(message.latest_us, int(event_times_us(first).max()))
        return (
            Recorded(message.number, message.latest_us, message.topic, first),
            Recorded(message.number + half, latest_us, message.topic, second),
        )
    if not isinstance(message, (Published, Delivered)) or message.events.num_rows < 2:
        raise FrameError(
            f"a message does not fit into a frame of {FRAME_BYTES_MAX} bytes: {str(message)[:100]}; "
            "accepted are smaller events"
        )
    half = message.events.num_rows // 2
    first, second = message.events.slice(0, half), message.events.slice(half)
    if isinstance(message, Delivered):
        before = {name: rows[rows < half] for name, rows in message.wanted.items()}
        behind = {name: rows[rows >= half] - half for name, rows in message.wanted.items()}
        return Delivered.of(message.topic, first, before), Delivered.of(message.topic, second, behind)
    notes = [None, None] if message.notes is None else [message.notes.slice(0, half), message.notes.slice(half)]
    return [Published(message.topic, *one) for one in zip((first, second), notes, strict=True)]


def carried(message: Message) -> Message:
    """A message as its receiver would decode it; one that no frame can carry is a FrameError."""
    data = FrameWriter().frames("", [message], incarnation=1, epoch=1, after=0, covers=0)
    return FrameReader().decode(data[0]).messages[0]


def fitting_parts(message: Message) -> tuple[list[Message], list[Message]]:
    """Cut a message into parts that frames can carry, and parts that none can."""
    try:
        if message_bytes(message) <= MESSAGE_BYTES_MAX:
            return [message], []
        halves = [fitting_parts(half) for half in _halves(message)]
    except MemoryError:
        raise
    except Exception:  # whatever it has that no frame can carry
        return [], [message]
    return [one for fits, _ in halves for one in fits], [one for _, rest in halves for one in rest]


def fitting_batches(topic: str, events: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Cut events into batches that each fit into a request to publish them; an event that fits into none raises."""
    fits = events.num_rows <= ROWS_MAX and message_bytes(PublishEvents(2**62, topic, events)) <= MESSAGE_BYTES_MAX
    if fits:
        yield events
    elif events.num_rows > 1:
        half = events.num_rows // 2
        yield from fitting_batches(topic, events.slice(0, half))
        yield from fitting_batches(topic, events.slice(half))
    else:
        raise FrameError(f"an event does not fit into a message; accepted are at most {MESSAGE_BYTES_MAX} bytes")


_Demands = tuple[Demand, ...]


def fitting_messages(topic: str, added: _Demands, dropped: _Demands) -> Iterator[tuple[_Demands, _Demands]]:
    """Cut a change of demands so that each part fits into a message; what is added stays before what is dropped."""
    count = len(added) + len(dropped)
    if count > 1 and message_bytes(Subscribed(topic, 2**62, added, dropped)) > DEMANDS_BYTES_MAX:
        half = count // 2
        yield from fitting_messages(topic, added[:half], dropped[: max(half - len(added), 0)])
        yield from fitting_messages(topic, added[half:], dropped[max(half - len(added), 0) :])
    elif count:
        yield added, dropped


def require_sendable(topic: str, demand: Demand) -> None:
    """Raise if no message can carry a demand."""
    size = message_bytes(Subscribed(topic, 2**62, (demand,)))
    if size > DEMANDS_BYTES_MAX:
        raise SubscriptionError(f"its filter takes {size} bytes; accepted are at most {DEMANDS_BYTES_MAX}")


def require_forwardable(events: pa.RecordBatch, notes: pa.RecordBatch | None) -> None:
    """Raise if no message can carry some events with what is noted of each."""
    given = [events] if notes is None else [events, notes]
    for column in (column for batch in given for column in batch.schema):
        if column.type not in _ACCEPTED:
            raise FrameError(f"column {column.name!r} is of type {column.type}, which no frame can carry")
    if notes is not None and notes.num_rows != events.num_rows:
        raise FrameError(f"{notes.num_rows} notes are about {events.num_rows} events; accepted are as many")
    most = MESSAGE_BYTES_MAX - _COLUMN_BYTES * sum(batch.num_columns for batch in given)
    if sum(batch.get_total_buffer_size() for batch in given) > most:
        largest = int(np.sum([text_bytes(batch) for batch in given], axis=0).max(initial=0))
        if largest > most:
            raise FrameError(f"an event has with its notes texts of {largest} bytes; accepted are at most {most}")


_COLUMN_BYTES = 100
"""Of one value in a message, besides its text."""


def message_bytes(message: Message) -> int:
    """How long a message is."""
    return len(FrameWriter()._encoder.encode(_travelling(message)))


def _travelling(message: Message) -> Any:
    if not isinstance(message, Subscribed):
        return message
    added, dropped = ([demand_to_plain(one) for one in several] for several in (message.added, message.dropped))
    return _Subscribed(message.topic, message.change, added, dropped, message.extras)


def _arrived(message: Any) -> Message:
    if isinstance(message, Delivered) and len(message.names) != len(message.ends):
        raise FrameError(f"its rows are of {len(message.ends)} subscriptions; {len(message.names)} are named")
    if isinstance(message, Published):
        notes, events = message.notes, message.events
        if notes is not None and notes.num_rows != events.num_rows:
            raise FrameError(f"it has {notes.num_rows} notes about {events.num_rows} events")
    if not isinstance(message, _Subscribed):
        found: Message = message
        return found
    added, dropped = (tuple(demand_from_plain(one) for one in plain) for plain in (message.added, message.dropped))
    return Subscribed(message.topic, message.change, added, dropped, message.extras)


_KINDS: Any = Union[(_Subscribed, *(kind for kind in get_args(Message) if kind is not Subscribed))]


@dataclass(slots=True)
class FrameReader:
    """Decodes the frames of one sender to one receiver."""

    schemas: dict[str, pa.Schema] = field(default_factory=dict)
    """What the sender has named."""
    _decoder: msgspec.msgpack.Decoder[Any] = field(init=False)

    def __post_init__(self) -> None:
        self._decoder = msgspec.msgpack.Decoder(tuple[_KINDS, ...], dec_hook=self._read)

    def decode(self, data: bytes) -> Frame:
        """The whole frame; anything else is a FrameError."""
        envelope = opened(data)
        return Frame(
            envelope.sender, self.messages(envelope), envelope.incarnation, envelope.epoch, envelope.sequence,
            envelope.covers,
        )  # fmt: skip

    def messages(self, envelope: Envelope) -> tuple[Message, ...]:
        """What is in an envelope; anything that is none of ours is a FrameError."""
        try:
            self._learn_all(envelope)
            found = tuple(map(_arrived, self._decoder.decode(envelope.messages)))
        except (*UNREADABLE, CatchmentError, pa.ArrowException) as error:
            raise FrameError(f"a frame of {envelope.sender!r} does not decode: {str(error)[:200]}") from None
        return found

    def learn(self, envelope: Envelope) -> None:
        """Learn the schemas that a frame names, and nothing else; what is no schema is a FrameError."""
        try:
            self._learn_all(envelope)
        except (CatchmentError, pa.ArrowException) as error:
            raise FrameError(f"a frame of {envelope.sender!r} does not decode: {str(error)[:200]}") from None

    def _learn_all(self, envelope: Envelope) -> None:
        for name, serialized in envelope.schemas.items():
            self._learn(name, serialized)

    def _learn(self, name: str, serialized: bytes) -> None:
        if len(self.schemas) >= SCHEMAS_MAX and name not in self.schemas:
            raise FrameError(f"it names a schema more than {SCHEMAS_MAX}, which are accepted")
        if name != _schema_name(serialized):
            raise FrameError(f"its schema {name[:40]!r} is named {_schema_name(serialized)!r}")
        schema = pa.ipc.read_schema(pa.py_buffer(serialized))
        if len(schema) > COLUMNS_MAX or len(set(schema.names)) < len(schema):
            raise FrameError(f"its schema has {len(schema)} columns; accepted are {COLUMNS_MAX} of different names")
        for column in schema:
            if column.type not in _ACCEPTED:
                raise FrameError(f"its column {column.name!r} is of type {column.type}, which is not accepted")
        self.schemas[name] = schema

    def _read(self, kind: type, value: Any) -> Any:
        if kind is pa.RecordBatch:
            return self._batch(value)
        if kind is np.ndarray:
            if not isinstance(value, bytes) or len(value) % 4:
                raise FrameError("its rows are no list of 32-bit numbers")
            return np.frombuffer(value, "<i4")
        raise NotImplementedError(kind)

    def _batch(self, value: Any) -> pa.RecordBatch:
        match value:
            case [str(name), bytes(body)]:
                schema = self.schemas.get(name)
            case _:
                raise FrameError(f"its events are {str(value)[:40]!r}; accepted are the name of a schema and a body")
        if schema is None:
            raise FrameError(f"it has events of the schema {name[:40]!r}, which was not named before")
        try:
            batch = pa.ipc.read_record_batch(pa.py_buffer(body), schema)
            if batch.num_rows > ROWS_MAX:
                raise FrameError(f"it has {batch.num_rows} events; accepted are at most {ROWS_MAX}")
            batch.validate(full=True)
        except (pa.ArrowException, OSError, ValueError, MemoryError) as error:
            raise FrameError(f"its events do not fit their schema {name}: {str(error)[:100]}") from None
        return batch
