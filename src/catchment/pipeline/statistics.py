"""What Parquet files say about themselves: in which of their columns nothing is missing.

A condition that is known to hold needs no column to be read. Spark reads every column that a condition names, even if
the condition concerns one row in a hundred.
"""

from __future__ import annotations

from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame

__all__ = ["complete_columns"]

FILES_MAX = 64
"""Reading the footers of more files would take longer than it saves."""


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
