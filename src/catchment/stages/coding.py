"""Which cell of a layout each event of a batch falls into."""

from __future__ import annotations

import json
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from catchment.model.results import key_text
from catchment.model.schema import Type
from catchment.stages.plan import CellPlan, Layout

__all__ = ["Coded", "groups_of"]

Ints = npt.NDArray[np.int64]

CODES_MAX = 2**62
"""How many combinations of group keys are numbered without looking which of them occur."""


_json = json.JSONEncoder(ensure_ascii=False).encode


@dataclass(frozen=True, slots=True)
class Coded:
    """The cell of each event in one layout: a small code, and what slice and group a code stands for."""

    codes: npt.NDArray[np.int32]
    """Per event; below zero for the gaps of sampling windows."""
    slices: Ints
    groups: pa.Array | None

    @classmethod
    def of(cls, layout: Layout, times: Ints, batch: pa.RecordBatch, plan: CellPlan) -> Coded:
        slices = layout.window.slice_of(times)
        inside = layout.window.in_a_window(slices)
        if not layout.group_keys:
            first, last = int(slices.min()), int(slices.max())
            if last - first <= 2 * len(slices) + 1024:
                codes = np.where(inside, slices - first, -1).astype(np.int32)
                return cls(codes, np.arange(first, last + 1), None)
            distinct, inverse = np.unique(slices, return_inverse=True)
            return cls(np.where(inside, inverse, -1).astype(np.int32), distinct, None)
        group_codes, texts = groups_of(layout, batch, plan)
        distinct_slices, slice_codes = np.unique(slices, return_inverse=True)
        combined = group_codes * len(distinct_slices) + slice_codes
        distinct, inverse = np.unique(combined, return_inverse=True)
        codes = np.where(inside, inverse, -1).astype(np.int32)
        group_of, slice_of = np.divmod(distinct, len(distinct_slices))
        return cls(codes, distinct_slices[slice_of], texts.take(pa.array(group_of)))


def groups_of(layout: Layout, batch: pa.RecordBatch, plan: CellPlan) -> tuple[Ints, pa.Array]:
    """Per event the number of its group, and the groups as JSON lists of their keys' texts, in the order of texts."""
    keys = [_key(name, batch, plan.schema[name]) for name in layout.group_keys]
    codes, distinct_max = np.zeros(batch.num_rows, np.int64), 1
    for of_key, texts_of_key in keys:
        if distinct_max * len(texts_of_key) > CODES_MAX:
            # Number anew what occurs, or the product of many keys would be beyond 64 bits.
            codes = np.unique(codes, return_inverse=True)[1]
            distinct_max = batch.num_rows
        codes = codes * len(texts_of_key) + of_key
        distinct_max *= len(texts_of_key)
    _, example, inverse = np.unique(codes, return_index=True, return_inverse=True)
    columns = [[texts_of_key[code] for code in of_key[example].tolist()] for of_key, texts_of_key in keys]
    texts = [_json(group) for group in zip(*columns, strict=True)]
    order = sorted(range(len(texts)), key=texts.__getitem__)
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    return rank[inverse], pa.array([texts[index] for index in order], pa.string())


def _key(name: str, batch: pa.RecordBatch, kind: Type) -> tuple[Ints, list[str | None]]:
    """Per event the number of its value of one group key, and the texts of the values."""
    array = batch.column(name) if name in batch.schema.names else pa.nulls(batch.num_rows, kind.arrow)
    if kind is Type.FLOAT:
        array = pc.add(array, 0.0)  # -0.0 and 0.0 are one group
    encoded = array.dictionary_encode(null_encoding="encode")
    values = encoded.dictionary.cast(pa.int64()) if kind is Type.TIMESTAMP else encoded.dictionary
    texts = [key_text(value, kind) for value in values.to_pylist()]
    return encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64), texts
