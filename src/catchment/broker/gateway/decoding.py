"""Reads what was posted: a JSON object, an array of objects, JSON lines, or an Arrow stream.

Rule 1: a post is taken whole or refused whole, and no other post with it.
Rule 2: posts that wait together become one batch. Only where that fails is the one that is at fault looked for, by
        halves.
Rule 3: what is read depends on the bytes and on when they were stored alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from catchment.broker.frames import COLUMNS_MAX, ROWS_MAX
from catchment.broker.inputs import Post
from catchment.broker.limits import shortened
from catchment.model.errors import UNREADABLE, CatchmentError, EventError
from catchment.model.rows import column_of, row_types, rows_to_batch
from catchment.model.schema import Schema, Type

__all__ = ["ARROW_HEAD", "Decoded", "TopicDecoder", "read_arrow"]

Check = Callable[[pa.RecordBatch, npt.NDArray[np.int64]], pa.RecordBatch]
"""What gives events as they may be published, which came at some times; or raises an EventError."""
ACCEPTED = "accepted are a JSON object, an array of them, JSON lines, or an Arrow stream"
ARROW_HEAD = b"\xff\xff\xff\xff"
"""How every message of an Arrow stream begins, and no JSON text."""
ARROW_BYTES_MAX = 16_000_000
"""Of an Arrow stream once it is read: a compressed one may be small."""
_VALUES: dict[Type, Any] = {
    Type.BOOL: bool | None,
    Type.INT: int | None,
    Type.FLOAT: int | float | None,
    Type.STRING: str | None,
    Type.TIMESTAMP: int | str | None,
}


@dataclass(slots=True)
class Decoded:
    """What some posts say."""

    batches: list[pa.RecordBatch] = field(default_factory=list)
    """Events as they may be published, in the order of their posts."""
    refused: dict[int, str] = field(default_factory=dict)
    """By the places of posts, why they are refused."""


class TopicDecoder:
    """Reads the posts of one topic."""

    def __init__(self, topic: str, schema: Schema) -> None:
        self._topic, self._schema, self._types = topic, schema, row_types(schema)
        # Attributes may have names that Python does not know as such.
        fields = {f"a{number}": name for number, name in enumerate(self._types)}
        kinds = [_VALUES[kind] for kind in self._types.values()]
        kinds[0] = str | int | None
        self._row = msgspec.defstruct(
            "Row",
            [(name, kind, None) for name, kind in zip(fields, kinds, strict=True)],
            rename=fields,
            forbid_unknown_fields=True,
            gc=False,
        )
        self._values = attrgetter(*fields)
        self._one = msgspec.json.Decoder(self._row)
        self._several = msgspec.json.Decoder(list[self._row])  # type: ignore[name-defined]

    def decode(self, posts: Sequence[Post], check: Check) -> Decoded:
        """Read posts that wait together."""
        found, decode_one = Decoded(), self._one.decode
        rows: list[Any] = []
        owners: list[int] = []
        for place, post in enumerate(posts):
            try:
                rows.append(decode_one(post.data))
                owners.append(place)
                continue
            except UNREADABLE:
                pass
            try:
                read = self._read(post.data)
            except EventError as error:
                found.refused[place] = shortened(str(error))
                continue
            if isinstance(read, list):
                rows += read
                owners += [place] * len(read)
            else:
                self._add_rows(posts, rows, owners, check, found)
                rows, owners = [], []
                self._add_batch(place, read, post.at_us, check, found)
        self._add_rows(posts, rows, owners, check, found)
        return found

    def _read(self, data: bytes) -> list[Any] | pa.RecordBatch:
        """Read a post that is more than one plain object: rows, or columns."""
        if data[:4] == ARROW_HEAD:
            return read_arrow(data)
        begin = data[:100].lstrip()[:1]
        if not data.strip():
            raise EventError(f"a post to {self._topic!r} is empty; {ACCEPTED}")
        try:
            return self._several.decode(data) if begin == b"[" else self._one.decode_lines(data)
        except UNREADABLE:
            # Some values are accepted in other forms too; else this says what is wrong.
            return rows_to_batch(self._topic, self._schema, _plain_rows(self._topic, data, begin))

    def _add_rows(
        self, posts: Sequence[Post], rows: list[Any], owners: list[int], check: Check, found: Decoded
    ) -> None:
        if not rows:
            return
        try:
            came = np.array([posts[owner].at_us for owner in owners])
            found.batches.append(check(self._columns(rows), came))
        except CatchmentError as error:
            first, last = owners[0], owners[-1]
            if first == last:
                found.refused[first] = shortened(str(error))
                return
            middle = next(n for n, owner in enumerate(owners) if owner > (first + last) // 2)
            self._add_rows(posts, rows[:middle], owners[:middle], check, found)
            self._add_rows(posts, rows[middle:], owners[middle:], check, found)

    def _columns(self, rows: Sequence[Any]) -> pa.RecordBatch:
        """Rows as columns, without those that no row has."""
        values = zip(*map(self._values, rows), strict=True)
        columns = {
            name: column_of(name, kind, column)
            for (name, kind), column in zip(self._types.items(), values, strict=True)
            if name == "ts" or any(value is not None for value in column)
        }
        return pa.RecordBatch.from_pydict(columns)

    def _add_batch(self, place: int, batch: pa.RecordBatch, at_us: int, check: Check, found: Decoded) -> None:
        try:
            if batch.num_rows:
                found.batches.append(check(batch, np.full(batch.num_rows, at_us)))
        except CatchmentError as error:
            found.refused[place] = shortened(str(error))


def _plain_rows(topic: str, data: bytes, begin: bytes) -> list[dict[str, Any]]:
    """The events of a JSON text as they are; what is no JSON, or has no events, is an EventError."""
    try:
        try:
            value = msgspec.json.decode(data)
        except msgspec.DecodeError:
            if begin != b"{":
                raise
            value = list(_lines(data))
    except UNREADABLE as error:
        said = f"a post to {topic!r} begins with {data[:40]!r} and does not decode"
        raise EventError(f"{said}: {str(error) or type(error).__name__}; {ACCEPTED}") from None
    rows = value if isinstance(value, list) else [value]
    for row in rows:
        if not isinstance(row, dict):
            raise EventError(f"a post to {topic!r} has {str(row)[:40]!r} for an event; {ACCEPTED}")
    return rows


def _lines(data: bytes) -> Iterator[Any]:
    for number, line in enumerate(data.split(b"\n"), 1):
        if line.strip():
            try:
                yield msgspec.json.decode(line)
            except msgspec.DecodeError as error:
                raise msgspec.DecodeError(f"line {number}: {error}") from None


def read_arrow(data: bytes) -> pa.RecordBatch:
    """The events of an Arrow stream."""
    try:
        with pa.ipc.open_stream(pa.py_buffer(data)) as reader:
            schema = reader.schema
            if len(schema) > COLUMNS_MAX or len(set(schema.names)) < len(schema):
                raise EventError(
                    f"an Arrow stream has {len(schema)} columns; accepted are {COLUMNS_MAX} of different names"
                )
            batches = list(_bounded(reader))
        return pa.Table.from_batches(batches, schema).combine_chunks().to_batches()[0] if batches else _empty(schema)
    except EventError:
        raise
    except (pa.ArrowException, OSError, ValueError, KeyError, TypeError, IndexError, OverflowError) as error:
        raise EventError(f"an Arrow stream does not decode: {str(error)[:200]}; {ACCEPTED}") from None


def _bounded(reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
    rows = size = 0
    for batch in reader:
        rows += batch.num_rows
        size += batch.get_total_buffer_size()
        if rows > ROWS_MAX or size > ARROW_BYTES_MAX:
            raise EventError(
                f"an Arrow stream has {rows} rows of {size} bytes; accepted are {ROWS_MAX} of {ARROW_BYTES_MAX}"
            )
        batch.validate(full=True)
        if batch.num_rows:
            yield batch


def _empty(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([], one.type) for one in schema], schema=schema)
