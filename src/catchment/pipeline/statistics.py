"""What is known of files before Spark reads them: in which columns nothing is missing or no number, and where values
lie.

A condition that is known to hold needs no column to be read. Spark reads every column that a condition names, even if
the condition concerns one row in a hundred.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from pyspark.sql.types import DoubleType, FloatType

__all__ = ["NOTHING_KNOWN", "Known", "complete_columns", "finite_columns", "known_columns", "text_bounds"]

FILES_MAX = 64
"""Reading the footers of more files would take longer than it saves."""


FINITE_FROM = 100
"""Beyond so many columns of real numbers they are looked through here: Spark reads so wide a table row by row, which
takes ten times as long as all the rest."""
COLUMNS_AT_ONCE = 256


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of columns before Spark reads them, by their names in the publications."""

    complete: frozenset[str] = frozenset()
    """Columns without a null."""
    finite: frozenset[str] = frozenset()
    """Columns without a NaN or an infinity."""


NOTHING_KNOWN = Known()


def known_columns(table: DataFrame) -> Known:
    """All that files tell of a table. Called on the driver when a result is used for the first time."""
    real = [field.name for field in table.schema if isinstance(field.dataType, (DoubleType, FloatType))]
    source = _source_of(table)
    finite = _finite_columns(table, source, real) if len(real) > FINITE_FROM else frozenset()
    return Known(_complete_columns(source), finite)


def finite_columns(table: DataFrame, names: Sequence[str]) -> frozenset[str]:
    """Those of some columns that come as they are from some files of this machine, and in which numbers are finite.

    Parquet files do not tell of NaN, so that their values are read, some columns at a time; texts are searched.
    """
    return _finite_columns(table, _source_of(table), names)


def _finite_columns(table: DataFrame, source: _Source, names: Sequence[str]) -> frozenset[str]:
    if source.is_text:
        double = {field.name for field in table.schema if isinstance(field.dataType, DoubleType)}
        return source.columns & double.intersection(names) if may_name_only_finite(source.paths) else frozenset()
    # Parquet takes a dot for the border between a group and its field.
    found = [name for name in names if "." not in name and name in source.columns]
    try:
        for path in source.paths:
            file = pq.ParquetFile(path)
            for group in range(file.num_row_groups):
                found = [name for some in _batched(found, COLUMNS_AT_ONCE) for name in _finite_in(file, group, some)]
    except (OSError, pa.ArrowInvalid):
        return frozenset()
    return frozenset(found)


_NOT_FINITE = r"(?i)(^|[^a-z])(nan|inf|infinity)($|[^a-z])|e\+?[0-9]{3}|0x|[0-9]{200}|\\u|\x00"
"""What a text needs to name a double that is none or infinite, be it as CSV or as JSON; few others have it."""
_BYTES_AT_ONCE = 2**23
_PIECES_AT_ONCE = 8


def may_name_only_finite(paths: Sequence[str]) -> bool:
    """Whether nothing in some text files, wherever it stands, would be read as a NaN or as an infinity."""
    try:
        with ThreadPoolExecutor() as pool:
            pieces = (piece for path in paths for piece in _pieces(path))
            while some := list(islice(pieces, _PIECES_AT_ONCE)):
                if any(pool.map(_is_suspicious, some)):
                    return False
            return True
    except OSError:
        return False


def _pieces(path: str) -> Iterator[bytes]:
    """A file in pieces that end where a line does."""
    with Path(path).open("rb") as file:
        while piece := file.read(_BYTES_AT_ONCE):
            yield piece + file.readline()


def _is_suspicious(piece: bytes) -> bool:
    return bool(pc.match_substring_regex(pa.array([piece], pa.large_binary()), _NOT_FINITE)[0].as_py())


def _finite_in(file: pq.ParquetFile, group: int, names: Sequence[str]) -> Iterator[str]:
    """A column that is not in this file, or is no number there, is left to Spark."""
    values = file.read_row_group(group, columns=list(names))
    for name, column in zip(values.schema.names, values.columns, strict=True):
        if pa.types.is_floating(column.type) and _are_finite(column):
            yield name


def _are_finite(column: pa.ChunkedArray) -> bool:
    # A sum is finite only of numbers that are; that it is not tells nothing, as it may pass the largest double.
    total = pc.sum(column).as_py()
    return total is None or math.isfinite(total) or pc.all(pc.is_finite(column)).as_py() is not False


def _batched(names: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    return (names[begin : begin + size] for begin in range(0, len(names), size))


def complete_columns(table: DataFrame) -> frozenset[str]:
    """The columns without a null that come as they are from some Parquet files of this machine; else none.

    Called on the driver when a job is planned. Spark has listed the files already, and will read the same ones.
    """
    return _complete_columns(_source_of(table))


def _complete_columns(source: _Source) -> frozenset[str]:
    if source.is_text:
        return frozenset()
    found = source.columns
    try:
        for path in source.paths:
            found &= _complete_in(pq.read_metadata(path))
    except (OSError, pa.ArrowInvalid):
        return frozenset()  # Spark will say what is wrong with the file, if it is
    return found


def text_bounds(table: DataFrame, column: str) -> tuple[str, str] | None:
    """Two texts between which all of a column lie, under the same conditions; None where the files do not say."""
    source = _source_of(table)
    if source.is_text or column not in source.columns:
        return None
    try:
        footers = [pq.read_metadata(path) for path in source.paths]
    except (OSError, pa.ArrowInvalid):
        return None
    bounds = [one for footer in footers for one in _bounds_in(footer, column)]
    known = [one for one in bounds if one is not None]
    if not known or len(known) < len(bounds):
        return None
    return min(low for low, _ in known), max(high for _, high in known)


def _bounds_in(footer: pq.FileMetaData, column: str) -> list[tuple[str, str] | None]:
    """Those of each row group with rows."""
    position = next((n for n in range(footer.num_columns) if footer.schema.column(n).path == column), None)
    groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
    if position is None:
        return [None for _ in groups]
    found = (group.column(position).statistics for group in groups if group.num_rows)
    return [
        (one.min, one.max) if one is not None and one.has_min_max and isinstance(one.min, str) else None
        for one in found
    ]


@dataclass(frozen=True, slots=True)
class _Source:
    """The files that all rows of a table come from, and the columns that are the same there."""

    paths: tuple[str, ...] = ()
    columns: frozenset[str] = frozenset()
    is_text: bool = False
    """CSV or JSON, not Parquet."""


_PASSING = frozenset(
    ("Project", "Filter", "SubqueryAlias", "View", "Repartition", "RepartitionByExpression", "Sort", "GlobalLimit",
     "LocalLimit", "Sample", "Distinct", "Deduplicate")
)  # fmt: skip
"""Steps of Spark's plans whose rows have in each column that they keep a value that came in."""


def _source_of(table: DataFrame) -> _Source:
    top = plan = table._jdf.queryExecution().analyzed()
    while plan.getClass().getSimpleName() in _PASSING:
        plan = plan.children().head()
    if plan.getClass().getSimpleName() != "LogicalRelation" or plan.isStreaming():
        return _Source()
    relation = plan.relation()
    if relation.getClass().getSimpleName() != "HadoopFsRelation":
        return _Source()
    kind = relation.fileFormat().getClass().getSimpleName()
    is_text = kind in ("CSVFileFormat", "JsonFileFormat")
    if kind != "ParquetFileFormat" and not is_text:
        return _Source()
    parts = [urlsplit(name) for name in table.inputFiles()]
    if not parts or len(parts) > FILES_MAX or any(part.scheme != "file" for part in parts):
        return _Source()
    paths = tuple(unquote(part.path) for part in parts)
    if is_text and any(Path(path).suffix not in _PLAIN_TEXT for path in paths):
        return _Source()
    if is_text and _may_spell_numbers_otherwise(relation):
        return _Source()
    # A folder's name may say the value of a column that no file has.
    in_folders = {field["name"] for field in json.loads(relation.partitionSchema().json())["fields"]}
    return _Source(paths, _kept_columns(plan, top).intersection(table.columns) - in_folders, is_text)


_PLAIN_TEXT = frozenset(("", ".csv", ".tsv", ".txt", ".json", ".jsonl", ".ndjson"))
"""Endings of names of which Spark does not conclude that a file is compressed."""
_PLAIN_OPTIONS = frozenset(
    ("path", "header", "mode", "columnnameofcorruptrecord", "inferschema", "timestampformat", "dateformat", "nullvalue",
     "pathglobfilter", "recursivefilelookup", "multiline")
)  # fmt: skip
"""Options of readers that leave the spelling of numbers alone."""
_SEPARATORS = frozenset(("sep", "delimiter"))


def _may_spell_numbers_otherwise(relation: Any) -> bool:
    """Whether the reader was told of other spellings of numbers, or of letters that separate them."""
    given = relation.options()
    names = str(given.keySet().mkString("\n")).splitlines()
    letters = any(str(given.apply(name)).isalpha() for name in names if name.lower() in _SEPARATORS)
    return letters or not {name.lower() for name in names} <= _PLAIN_OPTIONS | _SEPARATORS


def _kept_columns(relation: Any, top: Any) -> frozenset[str]:
    """The columns of a relation that a plan above it has as they are: Spark gives a changed one another id."""
    all_columns = frozenset(field["name"] for field in json.loads(relation.schema().json())["fields"])
    below, above = relation.outputSet(), top.outputSet()
    kept, lost = below.intersect(above), getattr(below, "$minus$minus")(above)
    # Each name is a call to Java, so that the fewer are asked for.
    if lost.size() < kept.size():
        return all_columns - _names(lost)
    return all_columns & _names(kept)


def _names(attributes: Any) -> set[str]:
    listed = attributes.toSeq()
    return {str(listed.apply(at).name()) for at in range(listed.size())}


def _complete_in(footer: pq.FileMetaData) -> set[str]:
    found = set()
    for column in range(footer.num_columns):
        path = footer.schema.column(column).path
        chunks = (footer.row_group(group).column(column).statistics for group in range(footer.num_row_groups))
        if all(one is not None and one.has_null_count and one.null_count == 0 for one in chunks):
            found.add(path)
    return found
