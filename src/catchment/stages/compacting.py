"""Cells as rows of partials again: so that live state does not grow with the number of batches, and to send them on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from catchment.stages import kernels
from catchment.stages.holding import BY_CODE, COLUMNS
from catchment.stages.merging import Cells, InstanceColumns, merge_cells
from catchment.stages.partials import PARTIAL_SCHEMA, list_array, lists
from catchment.stages.plan import Plan

__all__ = ["compact_rows", "rows_of"]

Ints = npt.NDArray[np.int64]


def compact_rows(rows: pa.Table, plan: Plan, *, words: int, oldest_us: int | None) -> list[pa.RecordBatch]:
    """Merge the rows of whole questions, without questions nobody asks and slices nobody needs after `oldest_us`."""
    instances, groups, by_code = merge_cells(rows, plan, words=words)
    columns = InstanceColumns.of(instances)
    kept = list(by_code.values())
    if oldest_us is not None:
        kept = [
            one.take(np.flatnonzero(columns.windows[one.instance].until_us(one.number) > oldest_us)) for one in kept
        ]
    several = [cells for cells in kept if len(cells)]
    return [rows_of(several, columns, groups, words)] if several else []


def rows_of(several: Sequence[Cells], known: InstanceColumns, groups: pa.Array, words: int = 0) -> pa.RecordBatch:
    """Give cells in order, of several state codes, as one row for each instance, question by question."""
    cells = Cells.together(several)
    edges = np.flatnonzero(np.diff(cells.instance, prepend=-1, append=-1))
    starts, lengths, instance = edges[:-1], np.diff(edges), cells.instance[edges[:-1]]
    order = np.lexsort((known.position[instance], known.question[instance]))
    starts, lengths, instance = starts[order], lengths[order], instance[order]
    places = np.repeat(starts - np.cumsum(lengths) + lengths, lengths) + np.arange(lengths.sum())
    grouped, code = known.grouped[instance], known.code[instance]
    masked = (known.position[instance] == 0) & (words > 0)
    used = {name: np.isin(code, [one for one, held in BY_CODE.items() if name in held.columns]) for name in COLUMNS}
    number, publications = cells.number[places], cells.publications[places]
    count, low = cells.count[places], cells.low[places]
    firsts = np.cumsum(lengths) - lengths
    # As `partials_of` does it: a count is there where it differs, a scale where it is one.
    differs = np.logical_or.reduceat(publications != count, firsts)
    used["low"] &= (code != kernels.REAL_TOTAL) | np.logical_or.reduceat(low != 0, firsts)
    # A sum and what rounding lost of it travel as one number.
    is_sum = np.repeat(code == kernels.REAL_TOTAL, lengths)
    real, rest = cells.real[places], cells.rest[places]
    columns: dict[str, Any] = {
        "question": pa.array(known.question[instance]),
        "part": pa.array(known.part[instance]),
        "first": pa.array(number[firsts]),
        "until_us": pa.array(known.windows[instance].until_us(np.maximum.reduceat(number, firsts))),
        "slices": lists(number, lengths),
        "groups": list_array(
            groups.take(pa.array(cells.group[places][np.repeat(grouped, lengths)])), np.where(grouped, lengths, 0)
        ),
        "publications": lists(publications, lengths),
        "origins": lists(cells.origins[places].view(np.int64), lengths, masked),
        "count": lists(count, lengths, differs),
        "whole": lists(cells.whole[places], lengths, used["whole"]),
        "low": lists(low, lengths, used["low"]),
        "real": lists(np.where(is_sum, real + rest, real), lengths, used["real"]),
        "rest": lists(rest, lengths, used["rest"]),
        "blob": list_array(
            pa.array(_blobs_by_row(several, used["blob"], starts, lengths), pa.binary()),
            np.where(used["blob"], lengths, 0),
        ),
    }
    return pa.RecordBatch.from_arrays(list(columns.values()), schema=PARTIAL_SCHEMA)


def _blobs_by_row(several: Sequence[Cells], used: Any, starts: Ints, lengths: Ints) -> list[bytes]:
    """The blobs of the rows that have some, in the order of rows."""
    found: list[bytes] = []
    first = 0
    for cells in several:
        if cells.blobs:
            break
        first += len(cells)
    else:
        return found
    for start, length in zip((starts[used] - first).tolist(), lengths[used].tolist(), strict=True):
        found += cells.blobs[start : start + length]
    return found
