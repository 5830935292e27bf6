"""Partials of the same cell merged, and cells put together into windows: all questions of a chunk at once.

Rule 1: cells are ordered by (instance, group, slice), an instance being one part of one question. All parts of a
        question saw the same events, so their windows are the same and in the same order.
Rule 2: a window is chosen (by the watermark, by what is fresh) before anything is merged for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from catchment.model.states import STATES, BlobState
from catchment.model.window import WindowColumns
from catchment.stages import kernels
from catchment.stages.plan import Part, Plan, Question

__all__ = [
    "Cells",
    "Instance",
    "InstanceColumns",
    "Selection",
    "cells_of_rows",
    "equal_merged",
    "flat",
    "merge_cells",
    "windows_of",
]

Ints = npt.NDArray[np.int64]
Reals = npt.NDArray[np.float64]
Rows = Any
"""A table or a batch of partials."""


@dataclass(frozen=True, slots=True)
class Instance:
    """One part of one question."""

    question: Question
    part: Part
    position: int
    """Of the part in its question."""

    @property
    def code(self) -> int:
        return self.part.held.code


@dataclass(frozen=True, slots=True, eq=False)
class InstanceColumns:
    """What is known of instances, by their numbers."""

    question: Ints
    part: Ints
    position: Ints
    code: Ints
    grouped: npt.NDArray[np.bool_]
    windows: WindowColumns

    @classmethod
    def of(cls, instances: Sequence[Instance]) -> InstanceColumns:
        return cls(
            np.array([one.question.id for one in instances], np.int64),
            np.array([one.part.id for one in instances], np.int64),
            np.array([one.position for one in instances], np.int64),
            np.array([one.code for one in instances], np.int64),
            np.array([bool(one.question.layout.group_keys) for one in instances], np.bool_),
            WindowColumns.of(one.question.layout.window for one in instances),
        )


@dataclass(frozen=True, slots=True)
class Selection:
    """Which windows are wanted: those whose end the watermark passed, or those with something fresh."""

    after_us: int | None = None
    """Only windows that end later than this."""
    until_us: int | None = None
    """Only windows that end no later than this."""
    fresh_only: bool = False


@dataclass(frozen=True, slots=True)
class Cells:
    """Cells of one state code: of slices, or of the windows that were put together from them."""

    code: int
    instance: Ints
    group: Ints
    number: Ints
    """Of the slice or window."""
    publications: Ints
    fresh: Ints
    origins: npt.NDArray[np.uint64]
    count: Ints
    whole: Ints
    low: Ints
    real: Reals
    rest: Reals
    blobs: list[bytes]
    """Empty where the state has none."""

    def __len__(self) -> int:
        return len(self.number)

    def take(self, rows: Ints) -> Cells:
        columns: dict[str, Any] = {name: getattr(self, name)[rows] for name in _NUMBERS}
        blobs = [self.blobs[at] for at in rows.tolist()] if self.blobs else []
        return Cells(code=self.code, blobs=blobs, **columns)

    def numbered(self, numbers: Ints) -> Cells:
        """Give the same cells with other numbers."""
        return replace(self, number=numbers)

    @classmethod
    def together(cls, several: Sequence[Cells]) -> Cells:
        if len(several) == 1:
            return several[0]
        columns: dict[str, Any] = {name: np.concatenate([getattr(one, name) for one in several]) for name in _NUMBERS}
        return cls(code=several[0].code, blobs=[blob for one in several for blob in one.blobs], **columns)


_NUMBERS = [field.name for field in fields(Cells)][1:-1]


def merge_cells(rows: pa.Table, plan: Plan, *, words: int) -> tuple[list[Instance], pa.Array, dict[int, Cells]]:
    """The instances of the rows, the groups in order, and by state code the cells with equal ones merged.

    Rows of questions that the plan does not know, because everyone who asked has gone, are left out.
    """
    questions = rows.column("question").to_numpy()
    parts = rows.column("part").to_numpy()
    pairs = np.stack([questions, parts], axis=1) if len(questions) else np.zeros((0, 2), np.int64)
    distinct, inverse = np.unique(pairs, axis=0, return_inverse=True)
    instances: list[Instance] = []
    number_of = np.full(len(distinct), -1, np.int64)
    for at, (question_id, part_id) in enumerate(distinct.tolist()):
        question = plan.questions.get(question_id)
        position = -1 if question is None else next((n for n, p in enumerate(question.parts) if p.id == part_id), -1)
        if question is not None and position >= 0:
            number_of[at] = len(instances)
            instances.append(Instance(question, question.parts[position], position))
    instance = number_of[inverse.reshape(-1)]
    codes = np.array([one.code for one in instances] + [-1], np.int64)[instance]
    groups = pa.array(sorted(set(flat(rows, "groups").to_pylist())), pa.string())
    merged = {}
    for code in sorted(set(codes[instance >= 0].tolist())):
        chosen = np.flatnonzero((codes == code) & (instance >= 0))
        of_code = rows.take(pa.array(chosen))
        ranks = pc.index_in(flat(of_code, "groups"), value_set=groups).to_numpy(zero_copy_only=False)
        merged[code] = equal_merged(cells_of_rows(code, of_code, instance[chosen], ranks, words), instances)
    return instances, groups, merged


def flat(rows: Rows, name: str) -> pa.Array:
    column = rows.column(name)
    if isinstance(column, pa.Array):
        return column.flatten()
    chunks = [chunk.flatten() for chunk in column.chunks]
    return pa.concat_arrays(chunks) if chunks else pa.array([], column.type.value_type)


def _ints(rows: Rows, name: str) -> Ints:
    values: Ints = flat(rows, name).to_numpy(zero_copy_only=False)
    return values


def cells_of_rows(code: int, rows: Rows, instance_of_row: Ints, groups: Ints, words: int = 0) -> Cells:
    """Give the cells that rows of partials hold, as they come; `groups` are the numbers of the groups they name."""
    lengths = pc.list_value_length(rows.column("slices")).to_numpy(zero_copy_only=False).astype(np.int64)
    instance = np.repeat(instance_of_row, lengths)
    slices, publications = _ints(rows, "slices"), _ints(rows, "publications")
    total = len(slices)

    def per_cell(name: str, kind: type, default: Ints | None = None) -> Any:
        """The flat column, with the default for the cells of rows whose list is empty."""
        given = pc.list_value_length(rows.column(name)).to_numpy()
        values = flat(rows, name).to_numpy(zero_copy_only=False)
        if len(values) == total:
            return values
        filled = np.zeros(total, kind) if default is None else default.copy()
        filled[np.repeat(given > 0, lengths)] = values
        return filled

    group = np.zeros(total, np.int64)
    if len(groups):
        grouped = pc.list_value_length(rows.column("groups")).to_numpy() > 0
        group[np.repeat(grouped, lengths)] = groups
    fresh = np.repeat(rows.column("fresh").to_numpy(), lengths) if "fresh" in rows.schema.names else np.ones(total)
    origins = np.zeros((total, words), np.uint64)
    if words:
        masks = _ints(rows, "origins")
        masked = pc.list_value_length(rows.column("origins")).to_numpy() > 0
        origins[np.repeat(masked, lengths)] = masks.view(np.uint64).reshape(-1, words)
    return Cells(
        code, instance, group, slices, publications, fresh.astype(np.int64), origins,
        per_cell("count", np.int64, publications), per_cell("whole", np.int64), per_cell("low", np.int64),
        per_cell("real", np.float64), per_cell("rest", np.float64),
        flat(rows, "blob").to_pylist() if code == kernels.BLOB else [],
    )  # fmt: skip


def _ordered(cells: Cells) -> Cells:
    steps = [np.diff(column) for column in (cells.instance, cells.group, cells.number)]
    rising = (steps[0] > 0) | ((steps[0] == 0) & ((steps[1] > 0) | ((steps[1] == 0) & (steps[2] >= 0))))
    if rising.all():
        return cells
    return cells.take(np.lexsort((cells.number, cells.group, cells.instance)))


def equal_merged(cells: Cells, instances: Sequence[Instance]) -> Cells:
    """Put cells in order, those of the same instance, group and number, of several batches or brokers, as one."""
    if not len(cells):
        return cells
    cells = _ordered(cells)
    new = np.ones(len(cells), np.bool_)
    new[1:] = (np.diff(cells.instance) != 0) | (np.diff(cells.group) != 0) | (np.diff(cells.number) != 0)
    first = np.flatnonzero(new)
    if len(first) == len(new):
        return cells
    last = np.append(first[1:], len(new))
    numbers: tuple[Any, Any, Any, Any, Any] = kernels.slide(
        cells.code, np.arange(len(first)), first, last, cells.count, cells.whole, cells.low, cells.real, cells.rest
    )
    return Cells(
        cells.code, cells.instance[first], cells.group[first], cells.number[first],
        np.add.reduceat(cells.publications, first), np.add.reduceat(cells.fresh, first),
        np.bitwise_or.reduceat(cells.origins, first, axis=0), *numbers,
        _merged_blobs(cells, first, last, instances),
    )  # fmt: skip


def _merged_blobs(cells: Cells, first: Ints, last: Ints, instances: Sequence[Instance]) -> list[bytes]:
    if not cells.blobs:
        return []
    merged = []
    for begin, end in zip(first.tolist(), last.tolist(), strict=True):
        merged.append(_one_blob(instances[cells.instance[begin]].part, cells.blobs[begin:end], cells.count[begin:end]))
    return merged


def _one_blob(part: Part, blobs: Sequence[bytes], counts: Ints) -> bytes:
    if len(blobs) == 1:
        return blobs[0]
    if part.held.choose is not None:
        texts = (blob for blob, count in zip(blobs, counts.tolist(), strict=True) if count)
        chosen: bytes = part.held.choose(texts, default=b"")  # the order of UTF-8 is that of code points
        return chosen
    state = STATES[part.state]
    assert isinstance(state, BlobState)
    return state.merge_all(blobs, part.kind)


def windows_of(cells: Cells, instances: Sequence[Instance], selection: Selection) -> Cells:
    """Put the selected windows of merged slices together."""
    starts = np.flatnonzero(np.diff(cells.instance, prepend=-1) | np.diff(cells.group, prepend=-1))
    run_instance, run_group = cells.instance[starts], cells.group[starts]
    shapes = WindowColumns.of(one.question.layout.window for one in instances)[run_instance]
    runs = np.append(starts, len(cells))
    run, number, first, last = kernels.windows_over(runs, cells.number, shapes.step, shapes.span)
    keep = _selected(cells, selection, shapes[run], number, first, last)
    if keep is not None:
        run, number, first, last = run[keep], number[keep], first[keep], last[keep]
    numbers: tuple[Any, Any, Any, Any, Any] = kernels.slide(
        cells.code, run, first, last, cells.count, cells.whole, cells.low, cells.real, cells.rest
    )
    blobs = []
    if cells.blobs:
        for at, begin, end in zip(run_instance[run].tolist(), first.tolist(), last.tolist(), strict=True):
            blobs.append(_one_blob(instances[at].part, cells.blobs[begin:end], cells.count[begin:end]))
    return Cells(
        cells.code, run_instance[run], run_group[run], number, _between(cells.publications, first, last),
        _between(cells.fresh, first, last), kernels.union_over(cells.origins, first, last), *numbers, blobs,
    )  # fmt: skip


def _between(values: Ints, first: Ints, last: Ints) -> Ints:
    sums = np.concatenate(([0], np.cumsum(values)))
    return sums[last] - sums[first]


def _selected(
    cells: Cells, selection: Selection, shapes: WindowColumns, number: Ints, first: Ints, last: Ints
) -> npt.NDArray[np.bool_] | None:
    if selection == Selection():
        return None
    end = shapes.end_us(number)
    keep = np.ones(len(number), np.bool_)
    if selection.after_us is not None:
        keep &= end > selection.after_us
    if selection.until_us is not None:
        keep &= end <= selection.until_us
    if selection.fresh_only:
        keep &= _between(cells.fresh, first, last) > 0
    return keep
