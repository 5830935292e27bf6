"""The binary form of messages: `CF`, a version, then MessagePack of sender, sequence and message.

Rule 1: decoding never trusts its input. What is no frame is a FrameError that says why, and nothing else.
Rule 2: one version says everything the same way; another one is refused, not guessed at.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, get_args, get_type_hints

import msgspec
import pyarrow as pa

from catchment.broker.messages import Message
from catchment.model.coding import filter_from_plain, filter_to_plain
from catchment.model.errors import CatchmentError, FrameError
from catchment.model.filter import Filter
from catchment.model.packing import batch_from_plain, batch_to_plain

__all__ = ["FRAME_BYTES_MAX", "VERSION", "Frame", "decode", "encode"]

MAGIC = b"CF"
VERSION = 1
FRAME_BYTES_MAX = 64 * 2**20


class Frame(msgspec.Struct, frozen=True):
    """A message on a link. Control and events count apart, each from 1 on, without gaps."""

    sender: str
    sequence: int
    message: Message

    def __str__(self) -> str:
        return f"{self.sender}#{self.sequence} {self.message}"


_Writer = Callable[[Any], Any]
_Reader = Callable[[Any], Any]


def _plainly(kind: Any) -> tuple[_Writer, _Reader]:
    """How a field of a type is written as plain values, and read back."""
    if kind is pa.RecordBatch:
        return batch_to_plain, batch_from_plain
    if kind == tuple[Filter, ...]:
        return (
            lambda filters: [filter_to_plain(one) for one in filters],
            lambda plain: tuple(filter_from_plain(one) for one in msgspec.convert(plain, list[Any])),
        )
    return (lambda value: value), partial(msgspec.convert, type=kind, strict=True)


_FIELDS: dict[str, tuple[type, list[tuple[str, _Writer, _Reader]]]] = {
    kind.__name__: (kind, [(name, *_plainly(hint)) for name, hint in get_type_hints(kind).items()])
    for kind in get_args(Message)
}
"""The kinds of messages, and the fields of each in order."""


def encode(frame: Frame) -> bytes:
    kind = type(frame.message).__name__
    fields = [write(getattr(frame.message, name)) for name, write, _ in _FIELDS[kind][1]]
    return MAGIC + bytes([VERSION]) + msgspec.msgpack.encode([frame.sender, frame.sequence, kind, fields])


def decode(data: bytes) -> Frame:
    """The frame that `encode` was given; anything else is a FrameError."""
    if len(data) > FRAME_BYTES_MAX:
        raise FrameError(f"a frame has {len(data)} bytes; accepted are at most {FRAME_BYTES_MAX}")
    if data[:2] != MAGIC:
        raise FrameError(f"a frame begins with {bytes(data[:2])!r}; accepted is {MAGIC!r}")
    if data[2:3] != bytes([VERSION]):
        raise FrameError(f"a frame is of version {list(data[2:3])}; accepted is {VERSION}")
    try:
        sender, sequence, kind, fields = _outer.decode(memoryview(data)[3:])
        if sequence < 1:
            raise FrameError(f"a frame has the sequence {sequence}; accepted are numbers from 1 on")
        if kind not in _FIELDS:
            raise FrameError(f"a frame holds a {kind[:80]!r}; accepted are {', '.join(_FIELDS)}")
        message, known = _FIELDS[kind]
        if len(fields) != len(known):
            raise FrameError(f"a {kind} has {len(fields)} fields; accepted are {len(known)}")
        values = [read(value) for value, (_, _, read) in zip(fields, known, strict=True)]
        return Frame(sender, sequence, message(*values))
    except (msgspec.MsgspecError, CatchmentError, UnicodeDecodeError, RecursionError) as error:
        raise FrameError(f"a frame does not decode: {str(error)[:200]}") from None


_outer = msgspec.msgpack.Decoder(tuple[str, int, str, list[Any]])
