"""Partials as columns: what crosses from matching to merging, and how matched events become them.

One row is one part of one question over the cells that a batch of events touched: parallel lists, rising by slice.
Lists that a state does not use are empty; `count` is empty where it equals `publications`. No window needs the row once
the watermark has reached `until_us`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from catchment.matching import RowsBySlot
from catchment.model.schema import Type
from catchment.model.states import STATES, BlobState
from catchment.model.window import WindowColumns
from catchment.overlay import word_count
from catchment.stages import kernels
from catchment.stages.coding import Coded
from catchment.stages.holding import BY_CODE, USES
from catchment.stages.plan import CellPlan, Part, TopicPlan

__all__ = ["PARTIAL_SCHEMA", "has_large_totals", "list_array", "lists", "partials_of", "touched_by"]

PARTIAL_SCHEMA = pa.schema(
    [
        ("question", pa.int64()),
        ("part", pa.int64()),
        ("first", pa.int64()),
        ("until_us", pa.int64()),
        ("slices", pa.list_(pa.int64())),
        ("groups", pa.list_(pa.string())),
        ("publications", pa.list_(pa.int64())),
        ("origins", pa.list_(pa.int64())),
        ("count", pa.list_(pa.int64())),
        ("whole", pa.list_(pa.int64())),
        ("low", pa.list_(pa.int64())),
        ("real", pa.list_(pa.float64())),
        ("rest", pa.list_(pa.float64())),
        ("blob", pa.list_(pa.binary())),
    ]
)

LAYOUTS_AT_ONCE = 16
"""Layouts whose codes are held per event together; more of them go in several passes."""

Ints = npt.NDArray[np.int64]


def partials_of(
    plan: CellPlan, batch: pa.RecordBatch, matched: RowsBySlot, origins: Ints, broker_count: int
) -> list[pa.RecordBatch]:
    """The partials of the events of a batch that satisfy each slot.

    Called on the executor for each batch of events of a plan. `origins` is the ingress broker of each event, by index.
    """
    found = _cells_by_layout(plan, batch, matched, origins, broker_count)
    return [_rows(plan, cells, coded, first, blobs) for cells, coded, first, blobs in found]


@dataclass(frozen=True, slots=True)
class Touched:
    """The cells that some events fall into, by part and, within a part, in the order of groups and slices."""

    part: Ints
    """The place of each cell's part in the plan's table."""
    slices: Ints
    groups: Ints
    """The place of each cell's group among the texts; below zero for none."""
    texts: pa.Array
    publications: Ints
    count: Ints
    whole: Ints
    low: Ints
    real: npt.NDArray[np.float64]
    rest: npt.NDArray[np.float64]
    blobs: list[bytes]
    """Of the parts that have some, in the same order."""


def touched_by(plan: CellPlan, batch: pa.RecordBatch, matched: RowsBySlot) -> Iterator[Touched]:
    """Give what `partials_of` gives, for those who keep it here: what sums lost by rounding is still apart."""
    origins = np.zeros(batch.num_rows, np.int64)
    for cells, coded, first, blobs in _cells_by_layout(plan, batch, matched, origins, 1):
        part = np.repeat(np.arange(len(plan.parts.parts)), np.diff(cells.firsts))
        slices, groups = np.zeros(len(part), np.int64), np.full(len(part), -1, np.int64)
        texts: list[pa.Array] = []
        layouts = plan.parts.layouts[part] - first
        for number, one in enumerate(coded):
            here = np.flatnonzero(layouts == number)
            slices[here] = one.slices[cells.codes[here]]
            if one.groups is not None and len(here):
                encoded = one.groups.dictionary_encode()
                groups[here] = sum(map(len, texts)) + encoded.indices.to_numpy(zero_copy_only=False)[cells.codes[here]]
                texts.append(encoded.dictionary)
        # What counts events alone has met one value each.
        count = np.where(plan.parts.attributes[part] < 0, cells.publications, cells.count)
        yield Touched(
            part, slices, groups, pa.concat_arrays(texts) if texts else pa.array([], pa.string()),
            cells.publications, count, cells.whole, cells.low, cells.real, cells.rest, blobs,
        )  # fmt: skip


def _cells_by_layout(
    plan: CellPlan, batch: pa.RecordBatch, matched: RowsBySlot, origins: Ints, broker_count: int
) -> Iterator[tuple[_Cells, list[Coded], int, list[bytes]]]:
    """Give the cells of some layouts at a time, how events are coded in them, the first layout, and the blobs."""
    if not plan.parts.parts or not len(matched.rows):
        return
    columns = _Columns.of(plan, batch)
    times = batch.column("ts").cast(pa.int64()).to_numpy(zero_copy_only=False)
    for first in range(0, len(plan.layouts), LAYOUTS_AT_ONCE):
        coded = [Coded.of(layout, times, batch, plan) for layout in plan.layouts[first : first + LAYOUTS_AT_ONCE]]
        cells = _Cells.of(plan, columns, coded, first, matched, origins, broker_count)
        yield cells, coded, first, _blobs(plan, columns, coded, first, matched)


def has_large_totals(topic: TopicPlan, partials: pa.RecordBatch) -> bool:
    """Tell whether a sum or variance of these partials might pass its type, alone or merged with others."""
    places = np.searchsorted(topic.parts.ids, partials.column("part").to_numpy(), sorter=topic.by_id)
    codes = topic.parts.codes[topic.by_id[places]]
    for code in np.unique(codes).tolist():
        for name, limit in BY_CODE[code].large.items():
            if _largest(partials.column(name), codes == code) >= limit:
                return True
    return False


def _largest(lists: pa.Array, rows: npt.NDArray[np.bool_]) -> float:
    """The largest magnitude in some rows of lists."""
    values = lists.filter(pa.array(rows)).flatten().to_numpy(zero_copy_only=False)
    return max(abs(float(values.max())), abs(float(values.min()))) if len(values) else 0.0


@dataclass(frozen=True, slots=True)
class _Columns:
    """The attributes that parts read, as matrices [attribute, event]."""

    arrays: list[pa.Array]
    ints: Ints
    reals: npt.NDArray[np.float64]
    valid: npt.NDArray[np.bool_]

    @classmethod
    def of(cls, plan: CellPlan, batch: pa.RecordBatch) -> _Columns:
        count, rows = max(len(plan.measured), 1), batch.num_rows
        ints, reals = np.zeros((count, rows), np.int64), np.zeros((count, rows))
        valid = np.ones((count, rows), np.bool_)
        arrays = []
        for index, (name, kind) in enumerate(plan.measured.items()):
            array = batch.column(name) if name in batch.schema.names else pa.nulls(rows, kind.arrow)
            arrays.append(array)
            if array.null_count:
                valid[index] = array.is_valid().to_numpy(zero_copy_only=False)
            if kind is Type.FLOAT:
                reals[index] = pc.fill_null(array, 0.0).to_numpy(zero_copy_only=False)
            elif kind is not Type.STRING:
                ints[index] = pc.fill_null(array.cast(pa.int64()), 0).to_numpy(zero_copy_only=False)
                reals[index] = ints[index]
        return cls(arrays, ints, reals, valid)


@dataclass(frozen=True, slots=True)
class _Cells:
    """The touched cells of some layouts, by part and code."""

    firsts: Ints
    """Where each part begins, and the end."""
    codes: npt.NDArray[np.int32]
    publications: Ints
    masks: npt.NDArray[np.uint64]
    count: Ints
    whole: Ints
    low: Ints
    real: npt.NDArray[np.float64]
    rest: npt.NDArray[np.float64]

    @classmethod
    def of(
        cls,
        plan: CellPlan,
        columns: _Columns,
        coded: list[Coded],
        first_layout: int,
        matched: RowsBySlot,
        origins: Ints,
        broker_count: int,
    ) -> _Cells:
        parts = plan.parts
        words = word_count(broker_count) if broker_count > 1 else 0
        firsts, *cells = kernels.accumulate(
            *matched, parts.slots, parts.codes, parts.attributes, _layouts(plan, first_layout, len(coded)),
            parts.is_first & (words > 0), np.stack([one.codes for one in coded]),
            np.array([len(one.slices) for one in coded]), origins, words, columns.ints, columns.reals, columns.valid,
        )  # fmt: skip
        # Events mostly come in the order of time, and then cells are in theirs.
        part = np.repeat(np.arange(len(parts.parts)), np.diff(firsts))
        if ((np.diff(cells[0]) < 0) & (np.diff(part) == 0)).any():
            order = np.lexsort((cells[0], part))
            cells = [column[order] if len(column) else column for column in cells]
        return cls(firsts, *cells)


def _layouts(plan: CellPlan, first: int, count: int) -> Ints:
    """The layout of each part, counted from the first of `count`; below zero if it is none of them."""
    layouts = plan.parts.layouts - first
    return np.where(layouts < count, layouts, -1)


def _rows(plan: CellPlan, cells: _Cells, coded: list[Coded], first_layout: int, blobs: list[bytes]) -> pa.RecordBatch:
    """One row per part that was touched."""
    lengths = np.diff(cells.firsts)
    parts = np.flatnonzero(lengths)
    lengths, starts = lengths[parts], cells.firsts[parts]
    code, layout = plan.parts.codes[parts], plan.parts.layouts[parts] - first_layout
    slices, groups = _meaning(cells, coded, np.repeat(layout, lengths))
    grouped = np.array([one.groups is not None for one in coded])[layout]
    differs = _any_in(cells.publications != cells.count, starts)
    # A sum and what rounding lost of it travel as one number: a batch is small enough for that.
    is_sum = np.repeat(code == kernels.REAL_TOTAL, lengths)
    words = cells.masks.shape[1] if len(cells.masks) else 0
    masked = plan.parts.is_first[parts] & (words > 0)
    uses = {name: of_codes[code] for name, of_codes in USES.items()}
    uses["low"] &= (code != kernels.REAL_TOTAL) | _any_in(cells.low != 0, starts)
    columns = {
        "question": pa.array(plan.parts.questions[parts]),
        "part": pa.array(plan.parts.ids[parts]),
        "first": pa.array(slices[starts]),
        "until_us": pa.array(_until_us(slices, starts, plan.parts.layouts[parts], plan)),
        "slices": lists(slices, lengths),
        "groups": lists(groups, lengths, grouped),
        "publications": lists(cells.publications, lengths),
        "origins": lists(cells.masks.view(np.int64), lengths, masked),
        "count": lists(cells.count, lengths, differs & (plan.parts.attributes[parts] >= 0)),
        "whole": lists(cells.whole, lengths, uses["whole"]),
        "low": lists(cells.low, lengths, uses["low"]),
        "real": lists(np.where(is_sum, cells.real + cells.rest, cells.real), lengths, uses["real"]),
        "rest": lists(cells.rest, lengths, uses["rest"]),
        "blob": list_array(pa.array(blobs, pa.binary()), np.where(uses["blob"], lengths, 0)),
    }
    return pa.RecordBatch.from_arrays(list(columns.values()), schema=PARTIAL_SCHEMA)


def _any_in(holds: npt.NDArray[np.bool_], starts: Ints) -> npt.NDArray[np.bool_]:
    """Whether it holds for some cell of each stretch."""
    return np.logical_or.reduceat(holds, starts) if len(starts) else np.zeros(0, np.bool_)


def _until_us(slices: Ints, starts: Ints, layouts: Ints, plan: CellPlan) -> Ints:
    last = np.maximum.reduceat(slices, starts) if len(starts) else starts
    return WindowColumns.of(layout.window for layout in plan.layouts)[layouts].until_us(last)


def _meaning(cells: _Cells, coded: list[Coded], layouts: Ints) -> tuple[Ints, npt.NDArray[Any]]:
    """Slice and group of each cell."""
    if len(coded) == 1 and coded[0].groups is None:
        return coded[0].slices[cells.codes], np.zeros(0, np.object_)
    slices = np.zeros(len(layouts), np.int64)
    groups = np.full(len(layouts), None, np.object_)
    for number, one in enumerate(coded):
        here = np.flatnonzero(layouts == number)
        slices[here] = one.slices[cells.codes[here]]
        if one.groups is not None:
            groups[here] = one.groups.to_numpy(zero_copy_only=False)[cells.codes[here]]
    return slices, groups


def _blobs(
    plan: CellPlan, columns: _Columns, coded: list[Coded], first_layout: int, matched: RowsBySlot
) -> list[bytes]:
    """What travels as bytes, by part and code."""
    found: list[bytes] = []
    layouts = _layouts(plan, first_layout, len(coded))
    for at in np.flatnonzero((plan.parts.codes == kernels.BLOB) & (layouts >= 0)).tolist():
        slot = plan.parts.slots[at]
        stretches = zip(matched.begin[:, slot].tolist(), matched.end[:, slot].tolist(), strict=True)
        rows = np.concatenate([matched.rows[begin:end] for begin, end in stretches])
        codes = coded[layouts[at]].codes[rows]
        rows, codes = rows[codes >= 0], codes[codes >= 0]
        order = np.argsort(codes, kind="stable")
        values = columns.arrays[plan.parts.attributes[at]].take(pa.array(rows[order]))
        edges = np.flatnonzero(np.diff(codes[order], prepend=-1, append=-1)).tolist()
        part = plan.parts.parts[at]
        found += [_blob(part, values.slice(begin, end - begin).drop_null()) for begin, end in pairwise(edges)]
    return found


def _blob(part: Part, values: pa.Array) -> bytes:
    if part.held.choose is not None:
        text: str = part.held.choose(values.to_pylist(), default="")
        return text.encode()
    state = STATES[part.state]
    assert isinstance(state, BlobState)
    if part.kind is Type.STRING:
        return state.collect(values.to_pylist(), part.kind)
    numbers = values if part.kind is Type.FLOAT else values.cast(pa.int64())
    return state.collect(numbers.to_numpy(zero_copy_only=False), part.kind)


def lists(values: npt.NDArray[Any], lengths: Ints, used: npt.NDArray[np.bool_] | None = None) -> pa.Array:
    """Rows of lists over consecutive stretches of values, which may have several columns; empty where not used."""
    kind = pa.string() if values.dtype == np.object_ else pa.from_numpy_dtype(values.dtype)
    if used is None or used.all():
        kept, counts = values, lengths
    elif not used.any():
        kept, counts = values[:0], np.zeros_like(lengths)
    else:
        kept, counts = values[np.repeat(used, lengths)], np.where(used, lengths, 0)
    width = values.shape[1] if values.ndim > 1 else 1
    return list_array(pa.array(kept.reshape(-1), kind), counts * width)


def list_array(values: pa.Array, lengths: Ints) -> pa.Array:
    offsets = np.concatenate(([0], np.cumsum(lengths))).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), values)
