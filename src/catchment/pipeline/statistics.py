"""What is known of Parquet files before Spark reads them: in which columns nothing is missing or no number, and where
values lie.

A condition that is known to hold needs no column to be read. Spark reads every column that a condition names, even if
the condition concerns one row in a hundred.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
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
    return Known(complete_columns(table), finite_columns(table, real) if len(real) > FINITE_FROM else frozenset())


def finite_columns(table: DataFrame, names: Sequence[str]) -> frozenset[str]:
    """Those of some columns in which every number is finite, under the same conditions as `complete_columns`.

    Files do not tell of NaN, so that their values are read, some columns at a time.
    """
    paths = _local_paths(table)
    # Parquet takes a dot for the border between a group and its field.
    found = [name for name in names if "." not in name] if paths else []
    try:
        for path in paths:
            file = pq.ParquetFile(path)
            for group in range(file.num_row_groups):
                found = [name for some in _batched(found, COLUMNS_AT_ONCE) for name in _finite_in(file, group, some)]
    except (OSError, pa.ArrowInvalid):
        return frozenset()
    return frozenset(found)


def _finite_in(file: pq.ParquetFile, group: int, names: Sequence[str]) -> Iterator[str]:
    """A column that is not in this file, or is no number there, is left to Spark."""
    values = file.read_row_group(group, columns=list(names))
    for name in names:
        column = values.column(name) if name in values.schema.names else None
        if (
            column is not None
            and pa.types.is_floating(column.type)
            and pc.all(pc.is_finite(column)).as_py() is not False
        ):
            yield name


def _batched(names: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    return (names[begin : begin + size] for begin in range(0, len(names), size))


def complete_columns(table: DataFrame) -> frozenset[str]:
    """The columns without a null, where a table is nothing but some Parquet files of this machine; else none.

    Called on the driver when a job is planned. Spark has listed the files already, and will read the same ones.
    """
    paths = _local_paths(table)
    found: set[str] | None = None
    try:
        for path in paths:
            complete = _complete_in(pq.read_metadata(path))
            found = complete if found is None else found & complete
    except (OSError, pa.ArrowInvalid):
        return frozenset()  # Spark will say what is wrong with the file, if it is
    return frozenset(found or ())


def text_bounds(table: DataFrame, column: str) -> tuple[str, str] | None:
    """Two texts between which all of a column lie, under the same conditions; None where the files do not say."""
    try:
        footers = [pq.read_metadata(path) for path in _local_paths(table)]
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


def _local_paths(table: DataFrame) -> list[str]:
    plan = table._jdf.queryExecution().analyzed()
    if plan.getClass().getSimpleName() != "LogicalRelation" or plan.isStreaming():
        return []
    relation = plan.relation()
    if relation.getClass().getSimpleName() != "HadoopFsRelation":
        return []
    if relation.fileFormat().getClass().getSimpleName() != "ParquetFileFormat":
        return []
    parts = [urlsplit(name) for name in table.inputFiles()]
    if len(parts) > FILES_MAX or any(part.scheme != "file" for part in parts):
        return []
    return [unquote(part.path) for part in parts]


def _complete_in(footer: pq.FileMetaData) -> set[str]:
    found = set()
    for column in range(footer.num_columns):
        path = footer.schema.column(column).path
        chunks = (footer.row_group(group).column(column).statistics for group in range(footer.num_row_groups))
        if all(one is not None and one.has_null_count and one.null_count == 0 for one in chunks):
            found.add(path)
    return found
