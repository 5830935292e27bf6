"""Partials of many batches as few rows, so that live state does not grow with the number of batches."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from catchment.stages import kernels
from catchment.stages.holding import BY_CODE, COLUMNS
from catchment.stages.merging import Cells, Instance, merge_cells
from catchment.stages.partials import PARTIAL_SCHEMA
from catchment.stages.plan import Plan

__all__ = ["compact_rows"]

Ints = npt.NDArray[np.int64]
_EMPTY: tuple[()] = ()


def compact_rows(rows: pa.Table, plan: Plan, *, words: int, oldest_us: int | None) -> list[pa.RecordBatch]:
    """Merge the rows of whole questions, without questions nobody asks and slices nobody needs after `oldest_us`."""
    instances, groups, by_code = merge_cells(rows, plan, words=words)
    return [_rows_of(cells, instances, groups, words, oldest_us) for cells in by_code.values()]


def _rows_of(
    cells: Cells, instances: list[Instance], groups: pa.Array, words: int, oldest_us: int | None
) -> pa.RecordBatch:
    edges = np.flatnonzero(np.diff(cells.instance, prepend=-1, append=-1))
    records = []
    for begin, end in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        one = instances[cells.instance[begin]]
        window = one.question.layout.window
        kept = np.arange(begin, end)
        if oldest_us is not None:
            kept = kept[window.until_us(cells.slices[begin:end]) > oldest_us]
        if len(kept):
            records.append(_record(cells, one, kept, groups, words))
    return pa.RecordBatch.from_pylist(records, PARTIAL_SCHEMA)


def _record(cells: Cells, one: Instance, kept: Ints, groups: pa.Array, words: int) -> dict[str, object]:
    grouped = bool(one.question.layout.group_keys)
    masked = words > 0 and one.position == 0
    return {
        "question": one.question.id,
        "part": one.part.id,
        "first": int(cells.slices[kept[0]]),
        "until_us": one.question.layout.window.until_us(int(cells.slices[kept].max())),
        "slices": cells.slices[kept],
        "groups": groups.take(pa.array(cells.group[kept])).to_pylist() if grouped else _EMPTY,
        "publications": cells.publications[kept],
        "origins": cells.origins[kept].view(np.int64).reshape(-1) if masked else _EMPTY,
        "count": cells.count[kept],
        **dict.fromkeys(COLUMNS, _EMPTY),
        **{name: _column(cells, name, kept) for name in BY_CODE[cells.code].columns},
    }


def _column(cells: Cells, name: str, kept: Ints) -> object:
    if name == "blob":
        return [cells.blobs[at] for at in kept.tolist()]
    column = getattr(cells, name)[kept]
    # A sum and what rounding lost of it travel as one number.
    return column + cells.rest[kept] if name == "real" and cells.code == kernels.REAL_TOTAL else column
