"""Lines of CSV and JSON text as columns of publications; a line that is no event keeps its text and gets a reason.

Rule 1: every line that is not empty comes out once: as an event, or set aside with its text and the reason.
Rule 2: a row is one line. In CSV the first line of every file is its header.
Rule 3: a cell means the same however it is read: the common spellings are cast a column at a time, and all others go
        through the parser of one cell, once per distinct text.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from operator import attrgetter
from typing import Annotated, Any, Literal, TypeAlias
from urllib.parse import unquote

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from catchment.model.errors import EventError
from catchment.model.schema import RESERVED_COLUMNS, Type
from catchment.workloads import loading

__all__ = ["ASIDE_SCHEMA", "LINE_COLUMNS", "Field", "Layout", "TextFormat", "parse_lines"]

TextFormat = Literal["csv", "json"]
Reasons: TypeAlias = "npt.NDArray[np.object_]"

CELLS_AT_ONCE = 4_000_000
"""Cells parsed together; what bounds the memory of a worker."""

LINE_COLUMNS = ("value", "file", "block_start", "block_length", "file_size")
"""What `parse_lines` reads: the line as bytes, and where it stands."""

ASIDE_SCHEMA = pa.schema(
    [("_file", pa.string()), ("_line", pa.int64()), ("_raw", pa.string()), ("_reason", pa.string())]
)
"""What a parsed row has besides its publication; all null but for rows set aside."""


@dataclass(frozen=True, slots=True)
class Field:
    """A column of publications, and where in a file it comes from."""

    name: str
    kind: Type
    column: str | None
    """In the file; None is nowhere, and `otherwise` is the value of all rows."""
    otherwise: str | None = None
    """The value where the file has no such column."""


@dataclass(frozen=True)
class Layout:
    """How the files of a source are read."""

    format: TextFormat
    fields: tuple[Field, ...]
    delimiter: str = ","
    header: tuple[str, ...] | None = None
    """Of CSV files too large to be read in one piece, where only the first piece sees the file's own."""
    asked: frozenset[str] | None = None
    """Attributes to hand on; None is all. A row is set aside for what is wrong with any of them all the same."""

    @property
    def lines_at_once(self) -> int:
        return max(1, CELLS_AT_ONCE // len(self.fields))

    @cached_property
    def kept(self) -> tuple[Field, ...]:
        """The fields of parsed rows. A time may be out of range, which is not for the parser to say."""
        if self.asked is None:
            return self.fields
        named = {*RESERVED_COLUMNS, *self.asked}
        return tuple(one for one in self.fields if one.name in named or one.kind is Type.TIMESTAMP)

    @cached_property
    def schema(self) -> pa.Schema:
        return pa.schema([*((one.name, one.kind.arrow) for one in self.kept), *ASIDE_SCHEMA])


def parse_lines(batches: Iterator[pa.RecordBatch], layout: Layout) -> Iterator[pa.RecordBatch]:
    """Rows of `layout.schema` for lines in the order of their files.

    Called in each task of a job over text, once, with all of the task's lines.
    """
    place: _Place | None = None
    for batch in batches:
        for piece in _by_place(batch):
            found = _place_of(piece)
            if place is None or not place.continues_with(found):
                place = found
            lines = piece.column("value")
            if place.is_header_next and layout.format == "csv":
                place.header = _header(place, lines[0].as_py(), layout)
                place.lines_read += 1
                lines = lines[1:]
            for begin in range(0, len(lines), layout.lines_at_once):
                some = lines[begin : begin + layout.lines_at_once]
                yield _parse(some, place, layout)
                place.lines_read += len(some)


@dataclass
class _Place:
    """The part of a file that a task reads, and how far it has come."""

    file: str
    start: int
    is_whole_file: bool
    header: tuple[str, ...] | None = None
    lines_read: int = 0

    def continues_with(self, other: _Place) -> bool:
        return (self.file, self.start) == (other.file, other.start)

    @property
    def is_header_next(self) -> bool:
        return self.start == 0 and self.lines_read == 0


def _by_place(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    files = batch.column("file").dictionary_encode().indices.to_numpy()
    starts = batch.column("block_start").to_numpy()
    edges = np.flatnonzero((np.diff(files) != 0) | (np.diff(starts) != 0)) + 1
    bounds = [0, *edges.tolist(), batch.num_rows]
    for begin, end in pairwise(bounds):
        if end > begin:
            yield batch.slice(begin, end - begin)


def _place_of(piece: pa.RecordBatch) -> _Place:
    file, start, length, size = (piece.column(name)[0].as_py() for name in LINE_COLUMNS[1:])
    return _Place(unquote(file).removeprefix("file:").replace("///", "/"), start, start == 0 and length >= size)


def _header(place: _Place, line: bytes, layout: Layout) -> tuple[str, ...]:
    found = tuple(next(csv.reader([line.decode("utf-8-sig", "replace")], delimiter=layout.delimiter), []))
    if not place.is_whole_file and layout.header not in (None, found):
        raise EventError(
            f"{place.file} has the columns {', '.join(found)}; accepted in a file that is read in several pieces are "
            f"those of the first file: {', '.join(layout.header or ())}"
        )
    return found


def _parse(lines: pa.Array, place: _Place, layout: Layout) -> pa.RecordBatch:
    full = np.flatnonzero(np.asarray(pc.greater(pc.binary_length(pc.ascii_trim_whitespace(_ascii(lines))), 0)))
    numbers = full + (place.lines_read + 1)
    if len(full) < len(lines):
        lines = lines.take(pa.array(full))
    reasons: Reasons = np.full(len(lines), None, np.object_)
    if layout.format == "json":
        columns = _json_columns(lines, layout, reasons)
    else:
        columns = _csv_columns(lines, place, layout, reasons)
    bad = np.asarray(reasons != None)  # noqa: E711  (element by element)
    if not bad.any():
        nothing = [pa.nulls(len(lines), one.type) for one in ASIDE_SCHEMA]
        return pa.record_batch([*columns, *nothing], schema=layout.schema)
    good = pa.array(~bad)
    columns = [pc.if_else(good, column, pa.scalar(None, column.type)) for column in columns]
    at = np.flatnonzero(bad)
    texts: Reasons = np.full(len(lines), None, np.object_)
    for row in at:
        texts[row] = lines[int(row)].as_py().decode("utf-8", "backslashreplace").rstrip("\r\n")
    aside = [
        pa.array([place.file if one else None for one in bad.tolist()], pa.string()),
        # In the middle of a file nobody knows how many lines stand before.
        pa.array(numbers, pa.int64(), mask=~bad) if place.start == 0 else pa.nulls(len(lines), pa.int64()),
        pa.array(texts, pa.string()),
        pa.array(reasons, pa.string()),
    ]
    return pa.record_batch([*columns, *aside], schema=layout.schema)


def _ascii(lines: pa.Array) -> pa.Array:
    """The bytes under the name of text, which only functions that look at ASCII characters may be given."""
    return lines.view(pa.string())


# JSON lines --------------------------------------------------------------------------------------------------------

_JSON_TYPES: dict[Type, Any] = {
    Type.BOOL: bool | None,
    Type.INT: Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)] | None,
    Type.FLOAT: float | None,
    Type.STRING: str | None,
    Type.TIMESTAMP: str | None,
}
_EVENT_ID: Any = str | int | None


def _json_columns(lines: pa.Array, layout: Layout, reasons: Reasons) -> list[pa.Array]:
    read = [one for one in layout.fields if one.column is not None]
    row_type = msgspec.defstruct(
        "Row",
        [
            (f"f{at}", str | int | None if one.name == "event_id" else _JSON_TYPES[one.kind], None)
            for at, one in enumerate(read)
        ],
        rename={f"f{at}": str(one.column) for at, one in enumerate(read)},
    )
    decoder = msgspec.json.Decoder(row_type)
    nothing = row_type()
    rows = []
    for at, line in enumerate(lines.to_pylist()):
        try:
            rows.append(decoder.decode(line))
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            rows.append(nothing)
            reasons[at] = _json_reason(error)
    columns: dict[str, pa.Array] = {}
    names = set(layout.schema.names)
    kept = {f"f{at}": one for at, one in enumerate(read) if one.name in names}
    by_column = zip(*map(attrgetter(*kept), rows), strict=True) if rows else iter([()] * len(kept))
    for one, given in zip(kept.values(), by_column, strict=True):
        values = [None if value is None else str(value) for value in given] if one.name == "event_id" else given
        if one.kind is Type.TIMESTAMP:
            columns[one.name] = _typed(one, pa.array(values, pa.string()), reasons)
        else:
            columns[one.name] = pa.array(values, one.kind.arrow)
    return _completed(columns, layout, len(lines), reasons)


def _json_reason(error: Exception) -> str:
    if isinstance(error, UnicodeDecodeError):
        return "not UTF-8"
    text = str(error)
    return (
        text
        if isinstance(error, msgspec.ValidationError)
        else f"broken JSON: {text.removeprefix('JSON is malformed: ')}"
    )


# CSV ---------------------------------------------------------------------------------------------------------------


def _csv_columns(lines: pa.Array, place: _Place, layout: Layout, reasons: Reasons) -> list[pa.Array]:
    header = place.header if place.header is not None else layout.header
    if header is None:
        raise EventError(
            f"{place.file} is read in several pieces, and no file was there to take the header from when the job "
            "began; accepted are then files that fit one piece (spark.sql.files.maxPartitionBytes)"
        )
    positions, problem = _positions(header, layout)
    if problem is not None:
        reasons[:] = problem
        return [pa.nulls(len(lines), one.kind.arrow) for one in layout.kept]
    cells = _split(_decoded(lines, reasons), len(header), layout.delimiter, reasons)
    reals = _real_columns(cells, len(header), positions, layout)
    columns = {
        one.name: _typed(one, _every(cells, positions[one.name], len(header)), reasons)
        for one in layout.fields
        if one.name in positions and (reals is None or one.kind is not Type.FLOAT)
    }
    columns |= reals or {}
    return _completed(columns, layout, len(lines), reasons)


def _positions(header: Sequence[str], layout: Layout) -> tuple[dict[str, int], str | None]:
    """Where in a row each field stands, or why the rows of this header are no events."""
    wanted = [one for one in layout.fields if one.column is not None]
    first = {name: at for at, name in reversed(list(enumerate(header)))}
    missing = [one.column for one in wanted if one.column not in first and one.otherwise is None]
    if missing:
        return {}, f"the file has no column {', '.join(str(name) for name in missing)}; it has {', '.join(header)}"
    counts = Counter(header)
    repeated = sorted({str(one.column) for one in wanted if counts[str(one.column)] > 1})
    if repeated:
        return {}, f"the file has two columns {', '.join(repeated)}"
    return {one.name: first[str(one.column)] for one in wanted if one.column in first}, None


def _decoded(lines: pa.Array, reasons: Reasons) -> pa.Array:
    try:
        return lines.cast(pa.string())
    except pa.ArrowInvalid:
        texts = []
        for at, line in enumerate(lines.to_pylist()):
            try:
                texts.append(line.decode())
            except UnicodeDecodeError:
                texts.append("")
                reasons[at] = "not UTF-8"
        return pa.array(texts, pa.string())


def _real_columns(
    cells: pa.Array, width: int, positions: Mapping[str, int], layout: Layout
) -> dict[str, pa.Array] | None:
    """All kept columns of real numbers, once every such column was cast in one go; None where some cell is unusual.

    Arrow reads the same numbers as the parser of one cell does, and NaN and infinities, which that one refuses.
    """
    names = [one.name for one in layout.fields if one.name in positions and one.kind is Type.FLOAT]
    if not names:
        return {}
    rows = np.arange(0, len(cells), width)[:, np.newaxis]
    real = cells.take(pa.array((rows + [positions[name] for name in names]).ravel()))
    try:
        values = pc.if_else(pc.equal(real, ""), pa.scalar(None, pa.string()), real).cast(pa.float64())
    except pa.ArrowInvalid:
        return None
    if pc.all(pc.is_finite(values)).as_py() is False:
        return None
    kept = set(layout.schema.names)
    return {name: _every(values, at, len(names)) for at, name in enumerate(names) if name in kept}


def _every(values: pa.Array, first: int, step: int) -> pa.Array:
    return values.take(pa.array(np.arange(first, len(values), step)))


def _split(lines: pa.Array, width: int, delimiter: str, reasons: Reasons) -> pa.Array:
    """The cells of all rows, row by row; empty ones for rows that do not have them."""
    lines = pc.utf8_rtrim(lines, "\r")
    rows = pc.split_pattern(lines, delimiter)
    quoted = np.flatnonzero(np.asarray(pc.match_substring(lines, '"')))
    fits = np.asarray(pc.equal(pc.list_value_length(rows), width))
    if len(quoted) or not fits.all():
        listed = rows.to_pylist()
        for at in np.flatnonzero(~fits).tolist():
            listed[at] = [""] * width
        uneven = set(np.flatnonzero(~fits).tolist()) - set(quoted.tolist())
        for at in sorted(uneven):
            reasons[at] = reasons[at] or f"{len(rows[at])} fields, expected {width}"
        for at in quoted.tolist():
            listed[at] = _quoted_row(lines[at].as_py(), width, delimiter, at, reasons)
        rows = pa.array(listed, pa.list_(pa.string()))
    return rows.flatten()


def _quoted_row(line: str, width: int, delimiter: str, at: int, reasons: Reasons) -> list[str]:
    try:
        row = next(csv.reader([line], delimiter=delimiter, strict=True))
    except csv.Error as error:
        reasons[at] = reasons[at] or str(error)
        return [""] * width
    if len(row) != width:
        reasons[at] = reasons[at] or f"{len(row)} fields, expected {width}"
        return [""] * width
    return row


# Cells -------------------------------------------------------------------------------------------------------------


def _boolean(given: str) -> bool | None:
    if not given:
        return None
    if given.lower() not in ("true", "false"):
        raise ValueError("not true or false")
    return given.lower() == "true"


def _time_us(given: str) -> int | None:
    return loading.time_us(given) if given else None


_PARSERS: Mapping[Type, Callable[[str], Any]] = {
    Type.BOOL: _boolean,
    Type.INT: loading.integer,
    Type.FLOAT: loading.decimal,
    Type.TIMESTAMP: _time_us,
}
"""One cell, without the white space around it, to a value; None where it is empty. ValueError has the reason."""

_COMMON = {
    Type.INT: r"^-?\d{1,18}$",
    Type.FLOAT: r"^-?\d{1,20}(?:\.\d{1,20})?(?:[eE][-+]?\d{1,2})?$",
    Type.TIMESTAMP: r"^\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d{1,6})?(Z|\+00:00)?$",
}
"""The spellings that Arrow casts to the same value as the parser of one cell does."""


def _typed(one: Field, cells: pa.Array, reasons: Reasons) -> pa.Array:
    if one.kind is Type.STRING:
        return pc.if_else(pc.equal(cells, ""), pa.scalar(None, pa.string()), cells)
    cells = pc.fill_null(pc.utf8_trim_whitespace(cells), "")
    values, rest = _cast_common(cells, one.kind)
    if not len(rest):
        return values
    others = cells.take(pa.array(rest)).dictionary_encode()
    parsed: list[Any] = []
    refused: dict[int, str] = {}
    for code, text in enumerate(others.dictionary.to_pylist()):
        try:
            parsed.append(_PARSERS[one.kind](text))
        except ValueError as error:
            parsed.append(None)
            refused[code] = f"{one.column} {text!r}: {error}"
    codes = others.indices.to_numpy()
    for code, reason in refused.items():
        for at in rest[codes == code].tolist():
            reasons[at] = reasons[at] or reason
    replacements = pa.array(parsed, pa.int64() if one.kind is Type.TIMESTAMP else one.kind.arrow)
    mask = np.zeros(len(cells), np.bool_)
    mask[rest] = True
    return pc.replace_with_mask(values, pa.array(mask), replacements.cast(one.kind.arrow).take(others.indices))


def _cast_common(cells: pa.Array, kind: Type) -> tuple[pa.Array, npt.NDArray[np.int64]]:
    """The values of cells in a common spelling, and the rows of all others."""
    if kind in _COMMON:
        common = pc.match_substring_regex(cells, _COMMON[kind])
        plain = pc.if_else(common, cells, pa.scalar(None, pa.string()))
        try:
            if kind is Type.TIMESTAMP:
                plain = pc.replace_substring_regex(plain, r"(Z|\+00:00)$", "")
                values = plain.cast(pa.timestamp("us")).cast(pa.int64()).cast(kind.arrow)
            else:
                values = plain.cast(kind.arrow)
        except pa.ArrowInvalid:  # a date such as 31 February: let the parser say which
            pass
        else:
            return values, np.flatnonzero(~np.asarray(common))
    return pa.nulls(len(cells), kind.arrow), np.arange(len(cells))


def _completed(columns: dict[str, pa.Array], layout: Layout, count: int, reasons: Reasons) -> list[pa.Array]:
    """All kept fields in order, with their constants; an event without an id could not even be reported later."""
    for one in layout.kept:
        if one.name not in columns:
            columns[one.name] = pa.repeat(pa.scalar(one.otherwise, pa.string()), count).cast(one.kind.arrow)
        elif one.otherwise is not None:
            columns[one.name] = pc.fill_null(columns[one.name], one.otherwise)
    for at in np.flatnonzero(np.asarray(pc.is_null(columns["event_id"]))).tolist():
        reasons[at] = reasons[at] or "event_id is missing"
    return [columns[one.name] for one in layout.kept]
