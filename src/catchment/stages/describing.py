"""Partials in words: what their states hold, for traces."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import pyarrow as pa

from catchment.model.states import STATES, CollectedValues
from catchment.stages.merging import Cells, cells_of_rows
from catchment.stages.plan import Part

__all__ = ["PartialKey", "described_partials"]

PartialKey = tuple[int, int, str]
"""The question, the number of the slice or window, and the group as text (empty if there are no group keys)."""

_NUMBERS = {
    "tally": ("count",),
    "whole total": ("count", "sum"),
    "real total": ("count", "sum"),
    "moments": ("count", "mean", "squares"),
    "lowest": ("", "min"),
    "highest": ("", "max"),
}
"""Names of what `Held.numbers` gives, by state; what has none is left out."""


def described_partials(rows: pa.RecordBatch, parts: Mapping[int, Part]) -> dict[PartialKey, str]:
    """Describe the states of each partial, in the order of their names; `parts` are the known ones by id."""
    found: dict[PartialKey, list[str]] = {}
    questions, of_parts = rows.column("question").to_pylist(), rows.column("part").to_pylist()
    for row, (question, part_id) in enumerate(zip(questions, of_parts, strict=True)):
        part = parts.get(part_id)
        numbers, groups = rows.column("slices")[row].as_py(), rows.column("groups")[row].as_py()
        if part is None:
            states = [f"part {part_id}"] * len(numbers)
        else:
            no_groups = np.zeros(0, np.int64)
            cells = cells_of_rows(part.held.code, rows.slice(row, 1), np.zeros(1, np.int64), no_groups)
            states = [*_states(cells, part)]
        for number, group, state in zip(numbers, groups or [""] * len(numbers), states, strict=True):
            found.setdefault((question, number, group), []).append(state)
    return {key: " ".join(sorted(states)) for key, states in found.items()}


def _states(cells: Cells, part: Part) -> Iterator[str]:
    """The state of each cell, in numbers or values where it has some."""
    of = f"({part.attribute})" if part.attribute is not None else ""
    for at in range(len(cells)):
        if cells.blobs:
            name = _NUMBERS[part.state][-1] if part.state in _NUMBERS else part.state
            yield f"{name}{of}={_contents(cells.blobs[at], part)}"
        else:
            named = zip(_NUMBERS[part.state], part.held.numbers(cells, np.array([at])), strict=False)
            has_values = cells.count[at] > 0
            yield " ".join(f"{name}{of}={number[0] if has_values else 'none'}" for name, number in named if name)


def _contents(blob: bytes, part: Part) -> str:
    state = STATES[part.state]
    if part.held.choose is not None:
        return blob.decode()
    return str(state.values(blob, part.kind)) if isinstance(state, CollectedValues) else f"{len(blob)} bytes"
