"""Partials as columns: what crosses from matching to merging, and how matched events become them.

One row is one part of one question over the cells that a batch of events touched: parallel lists, rising by slice.
Lists that a state does not use are empty; `count` is empty where it equals `publications`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from catchment.model.results import key_text
from catchment.model.schema import Type
from catchment.model.states import STATES, BlobState
from catchment.overlay import word_count
from catchment.stages import kernels
from catchment.stages.plan import Layout, Part, TopicPlan

__all__ = ["PARTIAL_SCHEMA", "partials_of"]

PARTIAL_SCHEMA = pa.schema(
    [
        ("question", pa.int64()),
        ("part", pa.int64()),
        ("first", pa.int64()),
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
CELLS_MAX = 4_000_000
"""Cells that may lie side by side; beyond that, only those that are touched are kept."""
UPDATES_AT_ONCE = 4_000_000

Ints = npt.NDArray[np.int64]

_USES = {
    kernels.TALLY: (),
    kernels.WHOLE_TOTAL: ("whole", "low"),
    kernels.REAL_TOTAL: ("real",),
    kernels.MOMENTS: ("real", "rest"),
    kernels.LOWEST: ("whole",),
    kernels.HIGHEST: ("whole",),
    kernels.LOWEST_REAL: ("real",),
    kernels.HIGHEST_REAL: ("real",),
    kernels.BLOB: ("blob",),
}


def state_code(part: Part) -> int:
    """How the kernels treat a part."""
    if part.state in ("lowest", "highest"):
        if part.kind is Type.STRING:
            return kernels.BLOB
        return kernels.CODES[f"{part.state} real" if part.kind is Type.FLOAT else part.state]
    return kernels.CODES.get(part.state, kernels.BLOB)


def partials_of(
    topic: TopicPlan, batch: pa.RecordBatch, events: Ints, slots: Ints, origins: Ints, broker_count: int
) -> list[pa.RecordBatch]:
    """The partials of matched (event, slot) pairs of a batch.

    Called on the executor for each batch of events of a topic. `origins` is the ingress broker of each event, by index.
    """
    if not topic.parts or not len(events):
        return []
    columns = _Columns.of(topic, batch)
    times = batch.column("ts").cast(pa.int64()).to_numpy(zero_copy_only=False)
    found: list[pa.RecordBatch] = []
    for begin in range(0, len(topic.layouts), LAYOUTS_AT_ONCE):
        layouts = topic.layouts[begin : begin + LAYOUTS_AT_ONCE]
        coded = [_Coded.of(layout, times, batch, topic) for layout in layouts]
        found += _Builder(topic, columns, coded, begin, origins, broker_count).build(events, slots)
    return found


@dataclass(frozen=True, slots=True)
class _Columns:
    """The attributes that parts read, as matrices [attribute, event]."""

    names: dict[str, int]
    arrays: list[pa.Array]
    ints: Ints
    reals: npt.NDArray[np.float64]
    valid: npt.NDArray[np.bool_]

    @classmethod
    def of(cls, topic: TopicPlan, batch: pa.RecordBatch) -> _Columns:
        used = {part.attribute: part.kind for _, part, _, _ in topic.parts if part.attribute is not None}
        count, rows = max(len(used), 1), batch.num_rows
        ints, reals = np.zeros((count, rows), np.int64), np.zeros((count, rows))
        valid = np.zeros((count, rows), np.bool_)
        arrays = []
        for index, (name, kind) in enumerate(used.items()):
            array = batch.column(name) if name in batch.schema.names else pa.nulls(rows, kind.arrow)
            arrays.append(array)
            valid[index] = array.is_valid().to_numpy(zero_copy_only=False)
            if kind is Type.FLOAT:
                reals[index] = pc.fill_null(array, 0.0).to_numpy(zero_copy_only=False)
            elif kind is not Type.STRING:
                ints[index] = pc.fill_null(array.cast(pa.int64()), 0).to_numpy(zero_copy_only=False)
                reals[index] = ints[index]
        return cls({name: index for index, name in enumerate(used)}, arrays, ints, reals, valid)


@dataclass(frozen=True, slots=True)
class _Coded:
    """The cell of each event in one layout: a small code, and what slice and group a code stands for."""

    codes: npt.NDArray[np.int32]
    """Per event; below zero for the gaps of sampling windows."""
    slices: Ints
    groups: pa.Array | None

    @classmethod
    def of(cls, layout: Layout, times: Ints, batch: pa.RecordBatch, topic: TopicPlan) -> _Coded:
        slices = layout.window.slices_of(times)
        inside = layout.window.in_a_window(slices)
        if not layout.group_keys:
            first, last = int(slices.min()), int(slices.max())
            if last - first <= 2 * len(slices) + 1024:
                codes = np.where(inside, slices - first, -1).astype(np.int32)
                return cls(codes, np.arange(first, last + 1), None)
            distinct, inverse = np.unique(slices, return_inverse=True)
            return cls(np.where(inside, inverse, -1).astype(np.int32), distinct, None)
        group_codes, texts = _groups(layout, batch, topic)
        distinct_slices, slice_codes = np.unique(slices, return_inverse=True)
        combined = group_codes * len(distinct_slices) + slice_codes
        distinct, inverse = np.unique(combined, return_inverse=True)
        codes = np.where(inside, inverse, -1).astype(np.int32)
        group_of, slice_of = np.divmod(distinct, len(distinct_slices))
        return cls(codes, distinct_slices[slice_of], texts.take(pa.array(group_of)))


def _groups(layout: Layout, batch: pa.RecordBatch, topic: TopicPlan) -> tuple[Ints, pa.Array]:
    """Per event the number of its group, and the groups as JSON lists of their keys' texts, in the order of texts."""
    codes = np.zeros(batch.num_rows, np.int64)
    keys: list[list[str | None]] = []
    for name in layout.group_keys:
        kind = topic.schema[name]
        array = batch.column(name) if name in batch.schema.names else pa.nulls(batch.num_rows, kind.arrow)
        if kind is Type.FLOAT:
            array = pc.add(array, 0.0)  # -0.0 and 0.0 are one group
        encoded = array.dictionary_encode(null_encoding="encode")
        values = encoded.dictionary.cast(pa.int64()) if kind is Type.TIMESTAMP else encoded.dictionary
        keys.append([key_text(value, kind) for value in values.to_pylist()])
        codes = codes * len(keys[-1]) + encoded.indices.to_numpy(zero_copy_only=False)
    distinct, inverse = np.unique(codes, return_inverse=True)
    texts = []
    for code in distinct.tolist():
        group: list[str | None] = []
        for values_of_key in reversed(keys):
            code, index = divmod(code, len(values_of_key))
            group.append(values_of_key[index])
        texts.append(json.dumps(group[::-1], ensure_ascii=False))
    order = sorted(range(len(texts)), key=texts.__getitem__)
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    return rank[inverse], pa.array([texts[index] for index in order], pa.string())


class _Builder:
    """Fills the cells of some layouts and writes those that were touched as rows."""

    def __init__(
        self,
        topic: TopicPlan,
        columns: _Columns,
        coded: list[_Coded],
        first_layout: int,
        origins: Ints,
        broker_count: int,
    ) -> None:
        self._topic, self._columns, self._coded = topic, columns, coded
        parts = topic.parts
        layout = np.array([number - first_layout for _, _, number, _ in parts], np.int64)
        self._layout = np.where((layout >= 0) & (layout < len(coded)), layout, -1)
        self._code = np.array([state_code(part) for _, part, _, _ in parts], np.int64)
        self._column = np.array([columns.names.get(part.attribute or "", -1) for _, part, _, _ in parts], np.int64)
        self._words = word_count(broker_count) if broker_count > 1 else 0
        self._masked = np.array([first and self._words > 0 for _, _, _, first in parts], np.bool_)
        self._origins = origins
        self._codes = np.stack([one.codes for one in coded])

    def build(self, events: Ints, slots: Ints) -> list[pa.RecordBatch]:
        sizes = np.array([len(self._coded[at].slices) if at >= 0 else 0 for at in self._layout], np.int64)
        if int(sizes.sum()) <= max(CELLS_MAX, len(events)):
            return [self._dense(events, slots, sizes)]
        return [
            self._sparse(events[begin : begin + UPDATES_AT_ONCE], slots[begin : begin + UPDATES_AT_ONCE])
            for begin in range(0, len(events), UPDATES_AT_ONCE)
        ]

    def _dense(self, events: Ints, slots: Ints, sizes: Ints) -> pa.RecordBatch:
        base = np.concatenate(([0], np.cumsum(sizes)))
        cells = _Cells(int(base[-1]), self._words)
        kernels.accumulate(
            events, slots, self._topic.part_offsets, self._code, self._column, self._layout, self._masked, base,
            self._codes, self._origins, self._columns.ints, self._columns.reals, self._columns.valid, *cells.arrays,
        )  # fmt: skip
        touched = np.flatnonzero(cells.publications)
        parts = np.searchsorted(base, touched, side="right") - 1
        blobs = self._blobs(events, slots, lambda part, code: base[part] + code)
        return self._rows(parts, touched - base[parts], touched, cells, blobs)

    def _sparse(self, events: Ints, slots: Ints) -> pa.RecordBatch:
        parts, codes, rows = kernels.expand(events, slots, self._topic.part_offsets, self._layout, self._codes)
        width = int(self._codes.max(initial=0)) + 1
        keys, cell_of = np.unique(parts * width + codes, return_inverse=True)
        cells = _Cells(len(keys), self._words)
        kernels.update_cells(
            cell_of, parts, rows, self._code, self._column, self._masked, self._origins,
            self._columns.ints, self._columns.reals, self._columns.valid, *cells.arrays,
        )  # fmt: skip
        blobs = self._blobs(events, slots, lambda part, code: np.searchsorted(keys, part * width + code))
        return self._rows(keys // width, keys % width, np.arange(len(keys)), cells, blobs)

    def _blobs(self, events: Ints, slots: Ints, cell_of: Any) -> dict[int, tuple[bytes, int]]:
        """Per cell of a part that travels as bytes: the bytes, and how many values are in them."""
        wanted = np.where(self._code == kernels.BLOB, self._layout, -1)
        if not (wanted >= 0).any():
            return {}
        parts, codes, rows = kernels.expand(events, slots, self._topic.part_offsets, wanted, self._codes)
        cells = cell_of(parts, codes)
        order = np.argsort(cells, kind="stable")
        cells, parts, rows = cells[order], parts[order], rows[order]
        edges = np.flatnonzero(np.diff(cells, prepend=-1, append=-1))
        found = {}
        for begin, end in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
            part = self._topic.parts[parts[begin]][1]
            column = self._columns.arrays[self._column[parts[begin]]]
            values = column.take(pa.array(rows[begin:end])).drop_null()
            found[int(cells[begin])] = (_blob(part, values), len(values))
        return found

    def _rows(
        self, parts: Ints, codes: Ints, touched: Ints, cells: _Cells, blobs: dict[int, tuple[bytes, int]]
    ) -> pa.RecordBatch:
        slices, groups = self._meaning(parts, codes)
        edges = np.flatnonzero(np.diff(parts, prepend=-1, append=-1))
        starts, lengths = edges[:-1], np.diff(edges)
        row_parts = parts[starts]
        if blobs:
            for at, cell in enumerate(touched.tolist()):
                if cell in blobs:
                    cells.count[touched[at]] = blobs[cell][1]
        publications, count = cells.publications[touched], cells.count[touched]
        differs = np.add.reduceat(publications != count, starts) > 0 if len(starts) else np.zeros(0, np.bool_)
        code = self._code[row_parts]
        # A sum and what rounding lost of it travel as one number: a batch is small enough for that.
        real = np.where(self._code[parts] == kernels.REAL_TOTAL, cells.real[touched] + cells.rest[touched], cells.real[touched])
        uses = {name: np.array([name in _USES[c] for c in range(len(_USES))]) for name in ("whole", "low", "real", "rest", "blob")}
        grouped = np.array([bool(self._topic.layouts[self._topic.parts[part][2]].group_keys) for part in row_parts], np.bool_)
        has_count = differs & (self._column[row_parts] >= 0)
        blob_values = pa.array([blobs[cell][0] for cell in touched.tolist() if cell in blobs], pa.binary())
        lists = {
            "slices": _lists(slices, lengths, None),
            "groups": _text_lists(groups, lengths, grouped),
            "publications": _lists(publications, lengths, None),
            "origins": self._origin_lists(cells, touched, lengths, row_parts),
            "count": _lists(count, lengths, has_count),
            "whole": _lists(cells.whole[touched], lengths, uses["whole"][code]),
            "low": _lists(cells.low[touched], lengths, uses["low"][code]),
            "real": _lists(real, lengths, uses["real"][code]),
            "rest": _lists(cells.rest[touched], lengths, uses["rest"][code]),
            "blob": _list_array(blob_values, np.where(uses["blob"][code], lengths, 0)),
        }
        question = np.array([self._topic.parts[part][0] for part in row_parts], np.int64)
        part_id = np.array([self._topic.parts[part][1].id for part in row_parts], np.int64)
        first = slices[starts] if len(starts) else np.zeros(0, np.int64)
        return pa.RecordBatch.from_arrays(
            [pa.array(question), pa.array(part_id), pa.array(first), *lists.values()], schema=PARTIAL_SCHEMA
        )

    def _meaning(self, parts: Ints, codes: Ints) -> tuple[Ints, pa.Array | None]:
        """Slice and group of each touched cell."""
        layouts = self._layout[parts]
        slices = np.zeros(len(parts), np.int64)
        texts: list[str | None] | None = None
        for number, one in enumerate(self._coded):
            here = np.flatnonzero(layouts == number)
            slices[here] = one.slices[codes[here]]
            if one.groups is not None and len(here):
                if texts is None:
                    texts = [None] * len(parts)
                for at, text in zip(here.tolist(), one.groups.take(pa.array(codes[here])).to_pylist(), strict=True):
                    texts[at] = text
        return slices, None if texts is None else pa.array(texts, pa.string())

    def _origin_lists(self, cells: _Cells, touched: Ints, lengths: Ints, row_parts: Ints) -> pa.Array:
        used = self._masked[row_parts]
        if not self._words or not used.any():
            return _list_array(pa.array([], pa.int64()), np.zeros(len(lengths), np.int64))
        kept = cells.masks[touched[np.repeat(used, lengths)]]
        return _list_array(pa.array(kept.reshape(-1).view(np.int64)), np.where(used, lengths * self._words, 0))


class _Cells:
    """The columns of cells side by side, as the kernels fill them."""

    def __init__(self, size: int, words: int) -> None:
        self.publications = np.zeros(size, np.int64)
        self.masks = np.zeros((size if words else 0, max(words, 1)), np.uint64)
        self.count = np.zeros(size, np.int64)
        self.whole = np.zeros(size, np.int64)
        self.low = np.zeros(size, np.int64)
        self.real = np.zeros(size)
        self.rest = np.zeros(size)

    @property
    def arrays(self) -> tuple[Any, ...]:
        return (self.publications, self.masks, self.count, self.whole, self.low, self.real, self.rest)


def _blob(part: Part, values: pa.Array) -> bytes:
    if part.state in ("lowest", "highest"):
        texts = values.to_pylist()
        return (min(texts) if part.state == "lowest" else max(texts)).encode() if texts else b""
    state = STATES[part.state]
    assert isinstance(state, BlobState)
    if part.kind is Type.STRING:
        return state.collect(values.to_pylist(), part.kind)
    numbers = values if part.kind is Type.FLOAT else values.cast(pa.int64())
    return state.collect(numbers.to_numpy(zero_copy_only=False), part.kind)


def _lists(values: npt.NDArray[Any], lengths: Ints, used: npt.NDArray[np.bool_] | None) -> pa.Array:
    """Rows of lists over consecutive stretches of values; empty where not used."""
    if used is None or used.all():
        return _list_array(pa.array(values), lengths)
    return _list_array(pa.array(values[np.repeat(used, lengths)]), np.where(used, lengths, 0))


def _text_lists(texts: pa.Array | None, lengths: Ints, used: npt.NDArray[np.bool_]) -> pa.Array:
    if texts is None:
        return _list_array(pa.array([], pa.string()), np.zeros(len(lengths), np.int64))
    return _list_array(texts.filter(pa.array(np.repeat(used, lengths))), np.where(used, lengths, 0))


def _list_array(values: pa.Array, lengths: Ints) -> pa.Array:
    offsets = np.concatenate(([0], np.cumsum(lengths))).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), values)
