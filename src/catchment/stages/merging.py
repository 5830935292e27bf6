"""Partials of the same cell merged, and cells put together into windows: all questions of a chunk at once.

Rule 1: cells are ordered by (instance, group, slice), an instance being one part of one question. All parts of a
        question saw the same events, so their windows are the same and in the same order.
Rule 2: a window is chosen (by the watermark, by what is fresh) before anything is merged for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from catchment.model.states import STATES, BlobState
from catchment.model.window import WindowColumns
from catchment.stages import kernels
from catchment.stages.plan import Part, Plan, Question

__all__ = ["Instance", "Selection", "Windows", "merge_cells", "windows_of"]

Ints = npt.NDArray[np.int64]
Reals = npt.NDArray[np.float64]


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


@dataclass(frozen=True, slots=True)
class Selection:
    """Which windows are wanted: those whose end the watermark passed, or those with something fresh."""

    after_us: int | None = None
    """Only windows that end later than this."""
    until_us: int | None = None
    """Only windows that end no later than this."""
    fresh_only: bool = False


@dataclass(frozen=True, slots=True)
class Windows:
    """The windows of all instances with one state code, by (instance, group, number)."""

    instance: Ints
    group: Ints
    number: Ints
    publications: Ints
    origins: npt.NDArray[np.uint64]
    count: Ints
    whole: Ints
    low: Ints
    real: Reals
    rest: Reals
    blobs: list[bytes]


@dataclass(slots=True)
class Cells:
    """Merged cells of one state code, in order."""

    code: int
    instance: Ints
    group: Ints
    slices: Ints
    publications: Ints
    fresh: Ints
    origins: npt.NDArray[np.uint64]
    count: Ints
    whole: Ints
    low: Ints
    real: Reals
    rest: Reals
    blobs: list[bytes]


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
    groups = pa.array(sorted(set(_flat(rows, "groups").to_pylist())), pa.string())
    merged = {}
    for code in sorted(set(codes[instance >= 0].tolist())):
        chosen = np.flatnonzero((codes == code) & (instance >= 0))
        merged[code] = _merged(code, rows.take(pa.array(chosen)), instance[chosen], instances, groups, words)
    return instances, groups, merged


def _flat(rows: pa.Table, name: str) -> pa.Array:
    column = rows.column(name)
    chunks = [chunk.flatten() for chunk in column.chunks]
    return pa.concat_arrays(chunks) if chunks else pa.array([], column.type.value_type)


def _ints(rows: pa.Table, name: str) -> Ints:
    values: Ints = _flat(rows, name).to_numpy(zero_copy_only=False)
    return values


def _merged(
    code: int, rows: pa.Table, instance_of_row: Ints, instances: Sequence[Instance], groups: pa.Array, words: int
) -> Cells:
    lengths = pc.list_value_length(rows.column("slices")).to_numpy().astype(np.int64)
    instance = np.repeat(instance_of_row, lengths)
    slices, publications = _ints(rows, "slices"), _ints(rows, "publications")
    total = len(slices)

    def per_cell(name: str, kind: type, default: Ints | None = None) -> Any:
        """The flat column, with the default for the cells of rows whose list is empty."""
        given = pc.list_value_length(rows.column(name)).to_numpy()
        flat = _flat(rows, name).to_numpy(zero_copy_only=False)
        if len(flat) == total:
            return flat
        filled = np.zeros(total, kind) if default is None else default.copy()
        filled[np.repeat(given > 0, lengths)] = flat
        return filled

    group = np.zeros(total, np.int64)
    texts = _flat(rows, "groups")
    if len(texts):
        grouped = pc.list_value_length(rows.column("groups")).to_numpy() > 0
        ranks = pc.index_in(texts, value_set=groups).to_numpy(zero_copy_only=False)
        group[np.repeat(grouped, lengths)] = ranks
    fresh = np.repeat(rows.column("fresh").to_numpy(), lengths) if "fresh" in rows.schema.names else np.ones(total)
    origins = np.zeros((total, words), np.uint64)
    if words:
        masks = _ints(rows, "origins")
        masked = pc.list_value_length(rows.column("origins")).to_numpy() > 0
        origins[np.repeat(masked, lengths)] = masks.view(np.uint64).reshape(-1, words)
    cells = Cells(
        code, instance, group, slices, publications, fresh.astype(np.int64), origins,
        per_cell("count", np.int64, publications), per_cell("whole", np.int64), per_cell("low", np.int64),
        per_cell("real", np.float64), per_cell("rest", np.float64),
        _flat(rows, "blob").to_pylist() if code == kernels.BLOB else [],
    )  # fmt: skip
    return _equal_merged(_ordered(cells), instances)


def _ordered(cells: Cells) -> Cells:
    steps = [np.diff(column) for column in (cells.instance, cells.group, cells.slices)]
    rising = (steps[0] > 0) | ((steps[0] == 0) & ((steps[1] > 0) | ((steps[1] == 0) & (steps[2] >= 0))))
    if rising.all():
        return cells
    return _taken(cells, np.lexsort((cells.slices, cells.group, cells.instance)))


def _taken(cells: Cells, order: Ints) -> Cells:
    return Cells(
        cells.code, cells.instance[order], cells.group[order], cells.slices[order], cells.publications[order],
        cells.fresh[order], cells.origins[order], cells.count[order], cells.whole[order], cells.low[order],
        cells.real[order], cells.rest[order], [cells.blobs[at] for at in order.tolist()] if cells.blobs else [],
    )  # fmt: skip


def _equal_merged(cells: Cells, instances: Sequence[Instance]) -> Cells:
    """Cells of the same instance, group and slice, which several batches or brokers made, as one."""
    if not len(cells.slices):
        return cells
    new = np.ones(len(cells.slices), np.bool_)
    new[1:] = (np.diff(cells.instance) != 0) | (np.diff(cells.group) != 0) | (np.diff(cells.slices) != 0)
    first = np.flatnonzero(new)
    if len(first) == len(new):
        return cells
    last = np.append(first[1:], len(new))
    numbers: tuple[Any, Any, Any, Any, Any] = kernels.slide(
        cells.code, np.arange(len(first)), first, last, cells.count, cells.whole, cells.low, cells.real, cells.rest
    )
    return Cells(
        cells.code, cells.instance[first], cells.group[first], cells.slices[first],
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


def windows_of(cells: Cells, instances: Sequence[Instance], selection: Selection) -> Windows:
    """The selected windows of merged cells."""
    starts = np.flatnonzero(np.diff(cells.instance, prepend=-1) | np.diff(cells.group, prepend=-1))
    run_instance, run_group = cells.instance[starts], cells.group[starts]
    shapes = WindowColumns.of(one.question.layout.window for one in instances)[run_instance]
    runs = np.append(starts, len(cells.slices))
    run, number, first, last = kernels.windows_over(runs, cells.slices, shapes.step, shapes.span)
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
    return Windows(
        run_instance[run], run_group[run], number, _between(cells.publications, first, last),
        kernels.union_over(cells.origins, first, last), *numbers, blobs,
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
