"""Reading files of other people: every row becomes an event, or is kept aside with its line and the reason."""

from __future__ import annotations

import csv
import gzip
import math
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa

from catchment.model.errors import ConfigurationError, EventError

__all__ = ["REJECTED_SCHEMA", "Loaded", "Rows", "data_files", "read_rows"]

REJECTED_SCHEMA = pa.schema(
    [("file", pa.string()), ("line", pa.int64()), ("raw", pa.string()), ("reason", pa.string())]
)

Cell = str | int | float | None


@dataclass(frozen=True, slots=True, eq=False)
class Loaded:
    """What came out of some files."""

    events: pa.Table
    """Publications, in order of time."""
    rejected: pa.Table
    """The rows that are no events: file, line (the header is line 1), raw text, reason."""


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """The good rows of some files as columns of parsed cells, and the others."""

    columns: dict[str, list[Cell]]
    rejected: pa.Table

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))


def data_files(folder: str | Path, pattern: str) -> list[Path]:
    """The files of a folder that match, in order of name; none is an error, as it is nearly always a wrong folder."""
    found = sorted(Path(folder).glob(pattern))
    if not found:
        raise ConfigurationError(f"{folder} holds no file {pattern}; give the folder with the downloaded data")
    return found


def read_rows(files: Sequence[Path], fields: dict[str, Callable[[str], Cell]]) -> Rows:
    """Read the named columns of CSV files (plain or .gz), each cell through its parser.

    A parser raises ValueError with the reason for which its cell cannot be part of an event. One row is one line;
    an empty line is no row.
    """
    columns: dict[str, list[Cell]] = {name: [] for name in fields}
    rejected: list[dict[str, object]] = []
    # Cells repeat (times, ids, small numbers): a parser runs once per distinct text.
    parsers = [_remembering(parser, name) for name, parser in fields.items()]
    into = list(columns.values())
    for file in files:
        header: list[str] | None = None
        for number, line in enumerate(_lines(file), start=1):
            try:
                raw = line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
            except UnicodeDecodeError:
                raw = line.decode("utf-8", "backslashreplace").rstrip("\r\n")
                rejected.append({"file": file.name, "line": number, "raw": raw, "reason": "not UTF-8"})
                continue
            if header is None:
                header = next(csv.reader([raw]), [])
                wanted = _positions(file, header, fields)
                continue
            if not raw:
                continue
            row, reason = _split(raw, len(header))
            cells = [parsers[at](row[position]) for at, position in enumerate(wanted)] if row else []
            reason = reason or "; ".join(cell.reason for cell in cells if isinstance(cell, _Refused))
            if reason:
                rejected.append({"file": file.name, "line": number, "raw": raw, "reason": reason})
                continue
            for column, cell in zip(into, cells, strict=True):
                column.append(cell)  # type: ignore[arg-type]
    return Rows(columns, pa.Table.from_pylist(rejected, schema=REJECTED_SCHEMA))


def _lines(file: Path) -> Iterator[bytes]:
    try:
        with gzip.open(file, "rb") if file.suffix == ".gz" else file.open("rb") as lines:
            yield from lines
    except (OSError, EOFError, zlib.error) as error:
        raise EventError(f"{file} cannot be read: {error}; accepted is a whole CSV file, plain or .gz") from error


@dataclass(frozen=True, slots=True)
class _Refused:
    reason: str


def _remembering(parser: Callable[[str], Cell], name: str) -> Callable[[str], Cell | _Refused]:
    known: dict[str, Cell | _Refused] = {}

    def parse(text: str) -> Cell | _Refused:
        try:
            return known[text]
        except KeyError:
            pass
        cell: Cell | _Refused
        try:
            cell = parser(text.strip())
        except ValueError as error:
            cell = _Refused(f"{name} {text!r}: {error}")
        known[text] = cell
        return cell

    return parse


def _positions(file: Path, header: list[str], fields: dict[str, Callable[[str], Cell]]) -> list[int]:
    missing = [name for name in fields if name not in header]
    if missing:
        raise EventError(f"{file} has the columns {', '.join(header)}; missing are {', '.join(missing)}")
    return [header.index(name) for name in fields]


def _split(raw: str, width: int) -> tuple[list[str], str]:
    try:
        row = next(csv.reader([raw], strict=True))
    except csv.Error as error:
        return [], str(error)
    return (row, "") if len(row) == width else ([], f"{len(row)} fields, expected {width}")


def text(given: str) -> str | None:
    """A string; missing where empty."""
    return given or None


def required(given: str) -> str:
    """A string that tells where the event belongs, so may not be missing."""
    if not given:
        raise ValueError("missing")
    return given


def decimal(given: str) -> float | None:
    """A finite number; missing where empty."""
    if not given:
        return None
    value = _number(given)
    if not math.isfinite(value):
        raise ValueError("NaN and infinities are no values")
    return value


def integer(given: str) -> int | None:
    """A whole number of 64 bits, also written as 12.0; missing where empty."""
    if not given:
        return None
    number = _number(given)
    if not math.isfinite(number):
        raise ValueError("NaN and infinities are no values")
    if not number.is_integer():
        raise ValueError("not a whole number")
    # float() would round beyond 2^53, so digits alone are read as they stand.
    value = int(given) if given.lstrip("+-").isdigit() else int(number)
    if not -(1 << 63) <= value < 1 << 63:
        raise ValueError("does not fit 64 bits")
    return value


def time_us(given: str) -> int:
    """An ISO 8601 time or date in microseconds since the Unix epoch; UTC unless it says otherwise."""
    try:
        moment = datetime.fromisoformat(given)
    except ValueError:
        raise ValueError("not an ISO 8601 time") from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    since = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def _number(given: str) -> float:
    # float() and int() also read "1_000" and other alphabets' digits; no data file means a number by these.
    if "_" in given or not given.isascii():
        raise ValueError("not a number")
    try:
        return float(given)
    except ValueError:
        raise ValueError("not a number") from None
