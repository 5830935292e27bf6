"""Whether partials that somebody else has made are what they say: nothing of one that is not may be merged."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from catchment.model.results import key_from_text
from catchment.model.states import STATES, BlobState, CollectedValues
from catchment.stages import kernels
from catchment.stages.holding import COLUMNS
from catchment.stages.lots import mixed, text_hashes
from catchment.stages.partials import PARTIAL_SCHEMA
from catchment.stages.plan import Part, Question

__all__ = ["misfits", "partials_from_bytes", "partials_to_bytes"]

Ints = npt.NDArray[np.int64]

LARGEST = 2**62
"""No time, count or number of a window may be beyond it."""


def partials_to_bytes(rows: pa.RecordBatch) -> memoryview:
    return memoryview(rows.serialize())


def partials_from_bytes(data: bytes | memoryview) -> pa.RecordBatch:
    """What `partials_to_bytes` was given; raises if it can be none of that."""
    rows = pa.ipc.read_record_batch(pa.py_buffer(data), PARTIAL_SCHEMA)
    rows.validate(full=True)
    for name, column in zip(rows.schema.names, rows.columns, strict=True):
        values = column.flatten() if pa.types.is_list(column.type) else column
        if column.null_count or values.null_count:
            raise ValueError(f"its {name} are not all there")
    return rows


def misfits(rows: pa.RecordBatch, questions: Mapping[int, Question]) -> dict[int, str]:
    """Say of each question whose rows cannot be merged why; of questions that are not known nothing is said."""
    lengths = {
        name: _lengths(rows, name) for name in ("slices", "groups", "publications", "origins", "count", *COLUMNS)
    }
    asked = rows.column("question").to_numpy().tolist()
    parts = rows.column("part").to_numpy().tolist()
    ends = np.cumsum(lengths["slices"])
    flat = {name: rows.column(name).flatten().to_numpy(zero_copy_only=False) for name in ("slices", "publications")}
    found: dict[int, str] = {}
    for row, (question_id, part_id) in enumerate(zip(asked, parts, strict=True)):
        question = questions.get(question_id)
        if question is None or question_id in found:
            continue
        part = next((one for one in question.parts if one.id == part_id), None)
        try:
            _require_lengths(question, part, {name: int(of[row]) for name, of in lengths.items()})
            if len(flat["slices"]) != len(flat["publications"]):
                raise ValueError("numbers of slices and of publications differ")
            cells = slice(int(ends[row] - lengths["slices"][row]), int(ends[row]))
            _require_within(question, flat["slices"][cells], flat["publications"][cells])
            _require_groups(question, rows.column("groups")[row].values)
            if part is not None:
                _require_state(part, rows, row, flat["publications"][cells])
        except Exception as error:  # whatever somebody says: it does not fit
            found[question_id] = f"{type(error).__name__}: {str(error)[:200]}"
    return found | _out_of_line(rows, questions, found)


def _lengths(rows: pa.RecordBatch, name: str) -> Ints:
    lengths: Ints = pc.list_value_length(rows.column(name)).to_numpy(zero_copy_only=False).astype(np.int64)
    return lengths


def _require_lengths(question: Question, part: Part | None, given: Mapping[str, int]) -> None:
    cells = given["slices"]
    used = {"publications", *(["groups"] if question.layout.group_keys else [])}
    may = {"count"}
    if part is not None:
        used |= set(part.held.columns)
        if part.held.code == kernels.REAL_TOTAL:
            used -= {"low"}
            may |= {"low"}
    for name, length in given.items():
        accepted = {cells} if name in used | {"slices"} else {0, cells} if name in may or part is None else {0}
        if length not in accepted or not cells:
            raise ValueError(f"{length} {name} of {cells} cells")


def _require_within(question: Question, numbers: Ints, publications: Ints) -> None:
    window = question.layout.window
    most = LARGEST // max(window.size_us, window.shift_us)
    if numbers.min() < -most or numbers.max() > most:
        raise ValueError(f"a slice or window numbered {numbers.min()} or {numbers.max()}")
    if publications.min() < 1 or publications.max() > LARGEST:
        raise ValueError(f"{publications.min()} or {publications.max()} publications")


def _require_groups(question: Question, texts: pa.Array | None) -> None:
    keys = question.layout.group_keys
    for text in texts.unique().to_pylist() if keys and texts is not None else ():
        values = json.loads(text)
        if not isinstance(values, list) or len(values) != len(keys):
            raise ValueError(f"a group of {text[:80]}")
        for value, kind in zip(values, question.key_types, strict=True):
            if value is not None and not isinstance(value, str):
                raise ValueError(f"a group of {text[:80]}")
            key_from_text(value, kind)


def _require_state(part: Part, rows: pa.RecordBatch, row: int, publications: Ints) -> None:
    def column(name: str) -> Any:
        return rows.column(name)[row].values

    count = column("count").to_numpy(zero_copy_only=False)
    if len(count) and ((count < 0) | (count > publications)).any():
        raise ValueError("a count below zero, or of more values than publications")
    # Squares may be beyond a double, which is reported when they are finished.
    for name in ("real", "rest") if part.held.code != kernels.MOMENTS else ():
        if not np.isfinite(column(name).to_numpy(zero_copy_only=False)).all():
            raise ValueError(f"{name} is no number")
    if part.held.code != kernels.BLOB:
        return
    state = STATES[part.state]
    for blob in column("blob").to_pylist():
        if isinstance(state, CollectedValues):
            state.values(blob, part.kind)
        elif isinstance(state, BlobState):
            state.merge(state.create(part.kind), blob, part.kind)
        else:
            blob.decode()


def _out_of_line(rows: pa.RecordBatch, questions: Mapping[int, Question], known: Mapping[int, str]) -> dict[int, str]:
    """Find questions whose parts are not of the same cells."""
    sums: dict[int, dict[int, int]] = {}
    for row, (question, part) in enumerate(
        zip(rows.column("question").to_pylist(), rows.column("part").to_pylist(), strict=True)
    ):
        if question in questions and question not in known:
            numbers, publications = (rows.column(name)[row].values.to_numpy() for name in ("slices", "publications"))
            texts = rows.column("groups")[row].values
            groups = text_hashes(texts.to_pylist()) if len(texts) else np.zeros(len(numbers), np.int64)
            of_cells = int(mixed(np.column_stack([numbers, groups, publications]), 0).sum(dtype=np.uint64))
            of_parts = sums.setdefault(question, {})
            of_parts[part] = (of_parts.get(part, 0) + of_cells) % 2**64
    return {
        question: "its parts are about different cells"
        for question, of_parts in sums.items()
        if len(set(of_parts.values())) > 1
    }
