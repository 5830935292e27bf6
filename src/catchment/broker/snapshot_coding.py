"""What a broker remembers as bytes, written a little at a time, and read back.

A remembered value is None, a truth value, a number, a text or bytes; a demand; an array of NumPy, a batch or a schema
of Arrow; or a list, tuple, dictionary, set or frozen dataclass of such values. It is written as MessagePack. Read back,
a tuple is a list (or a tuple again, as the key of a dictionary), a set is a sorted list, and a dataclass a dictionary.

Rule 1: whoever gives a value never changes it, nor anything in it, while it is being written: objects give copies of
        their containers, and arrays that nobody writes into any more.
Rule 2: the writer stops after a limited amount of work, so that a large value holds nobody up for long.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from itertools import islice
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from catchment.broker.demands import AskedQuestion, demand_from_plain, demand_to_plain
from catchment.model.errors import UNREADABLE, CatchmentError, CheckpointError
from catchment.model.filter import Filter

__all__ = ["Deferred", "SnapshotWriter", "read_value"]

CHUNK_BYTES = 64_000
"""At most so many bytes are written between two looks at how much has been done."""
TOGETHER = 128
"""So many simple values are encoded at once."""
_SIMPLE = frozenset([type(None), bool, int, float, str, bytes])
_DEMAND, _ARRAY, _BATCH, _SCHEMA = 1, 2, 3, 4
_LIST, _DICTIONARY = 0xDD, 0xDF
_EXTENSION = 0xC9


@dataclass(frozen=True, slots=True)
class Deferred:
    """A value that is made when it is written, from what nobody changes any more."""

    make: Callable[[], Any]
    work_us: int
    """About how long that takes."""


class SnapshotWriter:
    """Writes one value into a buffer, which the caller empties whenever the writer pauses."""

    def __init__(self, bytes_max: int, work_max: int) -> None:
        self._bytes_max, self._work_max = bytes_max, work_max
        self._buffer = bytearray()
        self._work = 0
        """Since the last pause; a unit takes about a microsecond."""

    def parts(self, value: Any) -> Iterator[bytes]:
        """Write a value in parts of at most `bytes_max`, each after at most about `work_max` microseconds."""
        for _ in self._write(value):
            while self._is_full:
                yield self._take()
        while len(self._buffer) > self._bytes_max:
            yield self._take()
        yield self._take()

    @property
    def _is_full(self) -> bool:
        return self._work >= self._work_max or len(self._buffer) >= self._bytes_max

    def _take(self) -> bytes:
        part = bytes(self._buffer[: self._bytes_max])
        del self._buffer[: self._bytes_max]
        self._work = 0
        return part

    def _write(self, value: Any) -> Iterator[None]:
        """Write a value, and pause after each part of it that may take long."""
        if isinstance(value, (list, tuple)):
            yield from self._write_list(value)
        elif isinstance(value, dict):
            yield from self._write_dictionary(value)
        elif isinstance(value, (set, frozenset)):
            yield from self._write_list(sorted(value))
        elif isinstance(value, np.ndarray):
            yield from self._write_array(value)
        elif isinstance(value, pa.RecordBatch):
            yield from self._write_batch(value)
        elif isinstance(value, msgspec.Raw):
            yield from self._write_bytes(memoryview(value))
        elif isinstance(value, Deferred):
            self._work += value.work_us
            yield from self._write(value.make())
        elif isinstance(value, (Filter, AskedQuestion)):
            self._encode(msgspec.msgpack.Ext(_DEMAND, msgspec.msgpack.encode(demand_to_plain(value))), 12)
            yield
        elif is_dataclass(value):
            kind: Any = type(value)
            yield from self._write_dictionary({name: getattr(value, name) for name in _field_names(kind)})
        else:
            self._encode(value, 1 if type(value) in _SIMPLE else 10)
            yield

    def _encode(self, value: Any, work: int) -> None:
        _encoder.encode_into(value, self._buffer, len(self._buffer))
        self._work += work

    def _write_list(self, values: list[Any] | tuple[Any, ...]) -> Iterator[None]:
        if len(values) <= TOGETHER and _SIMPLE.issuperset(map(type, values)):
            self._encode(values, 1 + len(values) // 16)
            yield
            return
        self._head(_LIST, len(values))
        for begin in range(0, len(values), TOGETHER):
            some = values[begin : begin + TOGETHER]
            if _SIMPLE.issuperset(map(type, some)):
                self._append(some)
                yield
            else:
                for one in some:
                    yield from self._write(one)

    def _write_dictionary(self, values: dict[Any, Any]) -> Iterator[None]:
        self._head(_DICTIONARY, len(values))
        items = iter(values.items())
        while some := dict(islice(items, TOGETHER)):
            if _SIMPLE.issuperset(map(type, some)) and _SIMPLE.issuperset(map(type, some.values())):
                self._append(some)
                yield
            else:
                for key, one in some.items():
                    yield from self._write(key)
                    yield from self._write(one)

    def _append(self, some: Any) -> None:
        """Write simple values without the head of what holds them."""
        encoded = _encoder.encode(some)
        self._buffer += memoryview(encoded)[1 if len(some) < 16 else 3 :]
        self._work += 2 + len(some) // 16

    def _write_array(self, array: np.ndarray[Any, Any]) -> Iterator[None]:
        head = msgspec.msgpack.encode([array.dtype.str, array.shape])
        self._extension(_ARRAY, 1 + len(head) + array.nbytes)
        self._buffer.append(len(head))
        self._buffer += head
        yield from self._write_bytes(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)

    def _write_batch(self, batch: pa.RecordBatch) -> Iterator[None]:
        schema = batch.schema.serialize()
        rows = max(1, CHUNK_BYTES * batch.num_rows // max(batch.nbytes, 1))
        slices = [batch.slice(begin, rows) for begin in range(0, max(batch.num_rows, 1), rows)]
        self._extension(_BATCH, schema.size + sum(map(pa.ipc.get_record_batch_size, slices)))
        self._buffer += schema
        for one in slices:
            self._work += 50
            yield from self._write_bytes(memoryview(one.serialize()))

    def _write_bytes(self, data: memoryview) -> Iterator[None]:
        for begin in range(0, len(data), CHUNK_BYTES):
            self._buffer += data[begin : begin + CHUNK_BYTES]
            self._work += 10
            yield

    def _head(self, kind: int, count: int) -> None:
        self._buffer.append(kind)
        self._buffer += count.to_bytes(4, "big")

    def _extension(self, code: int, size: int) -> None:
        self._head(_EXTENSION, size)
        self._buffer.append(code)
        self._work += 5


_OF_COLUMNS = (CatchmentError, ValueError, TypeError, IndexError, SyntaxError, OSError, pa.ArrowException)
"""What NumPy, Arrow and our own decoders raise of columns and demands that are none."""


def read_value(parts: Iterable[bytes]) -> Any:
    """Read the value that a writer was given; anything else is a CheckpointError."""
    try:
        return _decoder.decode(b"".join(parts))
    except (*UNREADABLE, *_OF_COLUMNS) as error:
        raise CheckpointError(f"a snapshot does not decode: {str(error)[:200]}") from None


@cache
def _field_names(kind: Any) -> tuple[str, ...]:
    return tuple(one.name for one in fields(kind))


def _encoded(value: Any) -> Any:
    if isinstance(value, pa.Schema):
        return msgspec.msgpack.Ext(_SCHEMA, value.serialize().to_pybytes())
    if isinstance(value, np.generic):
        return value.item()
    raise CheckpointError(f"a snapshot cannot hold a {type(value).__name__}; accepted are plain values and columns")


def _decoded(code: int, data: memoryview) -> Any:
    if code == _DEMAND:
        return demand_from_plain(msgspec.msgpack.decode(data))
    if code == _SCHEMA:
        return pa.ipc.read_schema(pa.py_buffer(bytes(data)))
    if code == _BATCH:
        batches = list(pa.ipc.open_stream(pa.py_buffer(bytes(data))))
        return batches[0] if len(batches) == 1 else pa.concat_batches(batches)
    if code == _ARRAY:
        return _array(data)
    raise CheckpointError(f"a snapshot has a value of the unknown kind {code}")


def _array(data: memoryview) -> Any:
    """Read an array, as a copy: numba would compile another version for one that is read-only."""
    begin = 1 + data[0]
    kind, shape = msgspec.msgpack.decode(data[1:begin])
    return np.frombuffer(data, kind, offset=begin).reshape(shape).copy()


_encoder = msgspec.msgpack.Encoder(enc_hook=_encoded)
_decoder = msgspec.msgpack.Decoder(ext_hook=_decoded)
