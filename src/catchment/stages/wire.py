"""What a pass yields as rows of one schema, so that one scan of the events can feed every result.

kind       name            ids               numbers
partial    –               –                 – (the columns of PACKED_SCHEMA)
delivery   subscription    events delivered  –
refused    reason          events refused    –
late       broker          events dropped    –
clock      broker          –                 latest time stamp, accepted events
crossing   –               –                 per row: origin, wanted at, wanted raw at, messages, bytes
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from catchment.stages.matching import Crossings, PassResult
from catchment.stages.packing import PACKED_SCHEMA, packed

__all__ = ["crossings_from", "pass_rows", "pass_schema"]

Ints = npt.NDArray[np.int64]


def pass_schema(event_id: pa.DataType) -> pa.Schema:
    return pa.schema(
        [
            ("kind", pa.string()),
            ("name", pa.string()),
            ("ids", pa.list_(event_id)),
            ("numbers", pa.list_(pa.int64())),
            *PACKED_SCHEMA,
        ]
    )


def pass_rows(result: PassResult, batch: pa.RecordBatch) -> list[pa.RecordBatch]:
    """The rows of one batch's results."""
    ids = batch.column("event_id")
    schema = pass_schema(ids.type)
    rows = [_partial_rows(packed(partials), schema) for partials in result.partials]
    for names, delivered in result.deliveries:
        rows += _grouped(schema, "delivery", names, delivered)
    refused, reasons = result.refused
    rows += _grouped(schema, "refused", reasons, ids.take(pa.array(refused)))
    late = pa.array(result.late)
    rows += _grouped(schema, "late", batch.column("broker").take(late), ids.take(late))
    clocks = sorted(result.clocks.items())
    rows += [_row(schema, "clock", broker, numbers=list(clock)) for broker, clock in clocks]
    rows += [_row(schema, "crossing", None, numbers=_flat_crossings(one)) for one in result.crossings]
    return rows


def crossings_from(numbers: Iterable[int], words: int) -> Crossings:
    """The crossings that rows of kind `crossing` hold, put together."""
    table = np.fromiter(numbers, np.int64).reshape(-1, 3 + 2 * words)
    masks = np.ascontiguousarray(table[:, 1 : 1 + 2 * words]).view(np.uint64)
    return Crossings(
        table[:, 0],
        np.ascontiguousarray(masks[:, :words]),
        np.ascontiguousarray(masks[:, words:]),
        table[:, -2],
        table[:, -1],
    )


def _flat_crossings(one: Crossings) -> list[int]:
    masks = np.concatenate([one.wanted_at, one.wanted_raw_at], axis=1).view(np.int64)
    columns = [one.origin[:, None], masks, one.messages[:, None], one.size_bytes[:, None]]
    flat: list[int] = np.concatenate(columns, axis=1).reshape(-1).tolist()
    return flat


def _partial_rows(partials: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    count = partials.num_rows
    fixed = [
        pa.array(["partial"] * count, pa.string()),
        *(pa.nulls(count, schema.field(name).type) for name in ("name", "ids", "numbers")),
    ]
    return pa.RecordBatch.from_arrays([*fixed, *partials.columns], schema=schema)


def _row(schema: pa.Schema, kind: str, name: str | None, *, numbers: list[int]) -> pa.RecordBatch:
    given = {"kind": kind, "name": name, "numbers": numbers}
    return pa.RecordBatch.from_pylist([given], schema=schema)


def _grouped(schema: pa.Schema, kind: str, names: pa.Array, ids: pa.Array) -> list[pa.RecordBatch]:
    """One row per name, with all of its event ids in order."""
    if not len(names):
        return []
    encoded = names.dictionary_encode()
    codes = encoded.indices.to_numpy(zero_copy_only=False)
    order = np.argsort(codes, kind="stable")
    lengths = np.bincount(codes, minlength=len(encoded.dictionary))
    offsets = pa.array(np.concatenate(([0], np.cumsum(lengths))).astype(np.int32))
    lists = pa.ListArray.from_arrays(offsets, ids.take(pa.array(order)))
    count = len(lists)
    columns = {
        "kind": pa.array([kind] * count, pa.string()),
        "name": encoded.dictionary,
        "ids": lists,
    }
    arrays = [columns.get(field.name, pa.nulls(count, field.type)) for field in schema]
    return [pa.RecordBatch.from_arrays(arrays, schema=schema)]
