"""Cells as rows of partials again: so that live state does not grow with the number of batches, and to send them on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from catchment.model.window import WindowColumns
from catchment.stages import kernels
from catchment.stages.holding import BY_CODE, COLUMNS
from catchment.stages.merging import Cells, Instance, merge_cells
from catchment.stages.partials import PARTIAL_SCHEMA, list_array, lists
from catchment.stages.plan import Plan

__all__ = ["compact_rows", "rows_of"]

Ints = npt.NDArray[np.int64]


def compact_rows(rows: pa.Table, plan: Plan, *, words: int, oldest_us: int | None) -> list[pa.RecordBatch]:
    """Merge the rows of whole questions, without questions nobody asks and slices nobody needs after `oldest_us`."""
    instances, groups, by_code = merge_cells(rows, plan, words=words)
    kept = list(by_code.values())
    if oldest_us is not None:
        shapes = WindowColumns.of(one.question.layout.window for one in instances)
        kept = [one.take(np.flatnonzero(shapes[one.instance].until_us(one.number) > oldest_us)) for one in kept]
    return [rows_of(cells, instances, groups, words) for cells in kept if len(cells)]


def rows_of(cells: Cells, instances: Sequence[Instance], groups: pa.Array, words: int = 0) -> pa.RecordBatch:
    """Give cells in order as one row for each instance."""
    edges = np.flatnonzero(np.diff(cells.instance, prepend=-1, append=-1))
    starts, lengths = edges[:-1], np.diff(edges)
    several = [instances[at] for at in cells.instance[starts].tolist()]
    windows = WindowColumns.of(one.question.layout.window for one in several)
    grouped = np.array([bool(one.question.layout.group_keys) for one in several])
    masked = np.array([words > 0 and one.position == 0 for one in several])
    used = {name: np.full(len(several), name in BY_CODE[cells.code].columns) for name in COLUMNS}
    # A sum and what rounding lost of it travel as one number.
    real = cells.real + cells.rest if cells.code == kernels.REAL_TOTAL else cells.real
    columns: dict[str, Any] = {
        "question": pa.array([one.question.id for one in several], pa.int64()),
        "part": pa.array([one.part.id for one in several], pa.int64()),
        "first": pa.array(cells.number[starts]),
        "until_us": pa.array(windows.until_us(np.maximum.reduceat(cells.number, starts))),
        "slices": lists(cells.number, lengths),
        "groups": list_array(
            groups.take(pa.array(cells.group[np.repeat(grouped, lengths)])), np.where(grouped, lengths, 0)
        ),
        "publications": lists(cells.publications, lengths),
        "origins": lists(cells.origins.view(np.int64), lengths, masked),
        "count": lists(cells.count, lengths),
        "whole": lists(cells.whole, lengths, used["whole"]),
        "low": lists(cells.low, lengths, used["low"]),
        "real": lists(real, lengths, used["real"]),
        "rest": lists(cells.rest, lengths, used["rest"]),
        "blob": list_array(pa.array(cells.blobs, pa.binary()), np.where(used["blob"], lengths, 0)),
    }
    return pa.RecordBatch.from_arrays(list(columns.values()), schema=PARTIAL_SCHEMA)
