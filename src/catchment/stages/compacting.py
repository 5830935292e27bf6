"""Cells as rows of partials again: so that live state does not grow with the number of batches, and to send them on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from catchment.stages import kernels
from catchment.stages.holding import USES
from catchment.stages.merging import Cells, InstanceColumns, merge_cells
from catchment.stages.partials import PARTIAL_SCHEMA, list_array
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
    edges = [np.flatnonzero(np.diff(cells.instance, prepend=-1, append=-1)) for cells in several]
    instance = np.concatenate([cells.instance[one[:-1]] for cells, one in zip(several, edges, strict=True)])
    lengths = np.concatenate([np.diff(one) for one in edges])
    order = np.lexsort((known.position[instance], known.question[instance]))
    # Of each row, as they come, its place among all.
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    instance, lengths = instance[order], lengths[order]
    code, is_first = known.code[instance], known.position[instance] == 0
    rows = np.split(place, np.cumsum([len(one) - 1 for one in edges])[:-1])
    used = {name: uses[code] for name, uses in USES.items()}
    # As `partials_of` does it: a count is there where it differs, a scale where it is one.
    differs, scaled = np.zeros(len(order), np.bool_), np.ones(len(order), np.bool_)
    for cells, one, there in zip(several, edges, rows, strict=True):
        differs[there] = np.logical_or.reduceat(cells.publications != cells.count, one[:-1])
        if cells.code == kernels.REAL_TOTAL:
            scaled[there] = np.logical_or.reduceat(cells.low != 0, one[:-1])
    used["low"] &= scaled
    layout = _Layout(several, edges, rows, lengths)
    number = layout.spread([cells.number for cells in several])
    firsts = np.cumsum(lengths) - lengths
    grouped = known.grouped[instance]
    of_groups = layout.spread([cells.group for cells in several], grouped)
    # A sum and what rounding lost of it travel as one number.
    real = [one.real + one.rest if one.code == kernels.REAL_TOTAL else one.real for one in several]
    columns: dict[str, Any] = {
        "question": pa.array(known.question[instance]),
        "part": pa.array(known.part[instance]),
        "first": pa.array(number[firsts]),
        "until_us": pa.array(known.windows[instance].until_us(np.maximum.reduceat(number, firsts))),
        "slices": list_array(pa.array(number), lengths),
        "groups": list_array(groups.take(pa.array(of_groups)), np.where(grouped, lengths, 0)),
        "publications": layout.lists([cells.publications for cells in several]),
        "origins": layout.lists([cells.origins.view(np.int64) for cells in several], is_first & (words > 0)),
        "count": layout.lists([cells.count for cells in several], differs),
        "whole": layout.lists([cells.whole for cells in several], used["whole"]),
        "low": layout.lists([cells.low for cells in several], used["low"]),
        "real": layout.lists(real, used["real"]),
        "rest": layout.lists([cells.rest for cells in several], used["rest"]),
        "blob": list_array(pa.array(layout.blobs(), pa.binary()), np.where(used["blob"], lengths, 0)),
    }
    return pa.RecordBatch.from_arrays(list(columns.values()), schema=PARTIAL_SCHEMA)


@dataclass(frozen=True, slots=True, eq=False)
class _Layout:
    """Where the cells of several state codes go, row by row."""

    several: Sequence[Cells]
    edges: Sequence[Ints]
    """Of each of several, where the cells of its rows begin, and the end."""
    rows: Sequence[Ints]
    """… and the places of these rows among all."""
    lengths: Ints
    """Of all rows."""

    def spread(self, values: Sequence[Any], used: npt.NDArray[np.bool_] | None = None) -> Any:
        """Put values of cells where they belong; of rows that do not use them there are none."""
        counts = self.lengths if used is None else np.where(used, self.lengths, 0)
        ends = np.cumsum(counts)
        found = np.empty((int(ends[-1]), *values[0].shape[1:]), values[0].dtype)
        for column, rows in zip(values, self.rows, strict=True):
            lengths = counts[rows]
            if lengths.any():
                all_used = used is None or used[rows].all()
                chosen = column if all_used else column[np.repeat(lengths > 0, self.lengths[rows])]
                starts = ends[rows] - lengths
                found[np.repeat(starts - np.cumsum(lengths) + lengths, lengths) + np.arange(len(chosen))] = chosen
        return found

    def lists(self, values: Sequence[Any], used: npt.NDArray[np.bool_] | None = None) -> pa.Array:
        """Give rows of lists."""
        counts = self.lengths if used is None else np.where(used, self.lengths, 0)
        spread = self.spread(values, used)
        width = spread.shape[1] if spread.ndim > 1 else 1
        return list_array(pa.array(spread.reshape(-1)), counts * width)

    def blobs(self) -> list[bytes]:
        """Give the blobs of the rows that have some, in the order of rows."""
        for cells, edges, rows in zip(self.several, self.edges, self.rows, strict=True):
            if cells.blobs:
                order = np.argsort(rows)
                begins, ends = edges[:-1][order].tolist(), edges[1:][order].tolist()
                return [blob for begin, end in zip(begins, ends, strict=True) for blob in cells.blobs[begin:end]]
        return []
