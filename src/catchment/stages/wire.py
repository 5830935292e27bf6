"""What a pass yields as rows of one schema, so that one scan of the events can feed every result.

kind       name            ids               numbers
partial    –               –                 – (the columns of PACKED_SCHEMA)
delivery   subscription    events delivered  –
refused    reason          events refused    –
late       broker          events dropped    –
clock      broker          –                 latest time stamp, accepted events
large      –               –                 – (a total of the partials might pass its type)
crossing   –               –                 per row: origin, wanted at, wanted raw at, messages, bytes
lot        topic           –                 per lot: cell, origin, signature (2), messages, bytes
signature  topic           –                 per signature: itself (2), wanted raw at
want       topic           –                 per want: signature (2), question, group, part, value
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from catchment.stages.lots import LotRows
from catchment.stages.matching import Crossings, PassResult
from catchment.stages.packing import PACKED_SCHEMA, packed

__all__ = ["LOT_KINDS", "crossings_from", "lot_tables", "lots_from", "pass_rows", "pass_schema"]

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
    rows += [_row(schema, "large", None, numbers=[])] * result.is_large
    rows += [_row(schema, "crossing", None, numbers=_flat_crossings(one)) for one in result.crossings]
    for topic, lots in result.lots.items():
        tables = zip(LOT_KINDS, lot_tables(lots), strict=True)
        rows += [_row(schema, kind, topic, numbers=table.reshape(-1).tolist()) for kind, table in tables]
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


LOT_KINDS = ("lot", "signature", "want")


def lot_tables(lots: LotRows) -> tuple[Ints, Ints, Ints]:
    """Lots as tables of numbers, in the order of LOT_KINDS."""
    counted = np.column_stack([lots.cell_us, lots.origin, lots.signature, lots.messages, lots.size_bytes])
    owner = np.repeat(lots.known, np.diff(lots.wants_begin), axis=0)
    return counted, np.column_stack([lots.known, lots.raw_at.view(np.int64)]), np.column_stack([owner, lots.wants])


def lots_from(tables: Mapping[str, Ints], words: int) -> LotRows:
    """The lots that rows of LOT_KINDS hold, by kind all of their numbers; what is known twice is kept once."""
    counted = tables["lot"].reshape(-1, 6)
    known = np.unique(tables["signature"].reshape(-1, 2 + words), axis=0)
    wants = np.unique(tables["want"].reshape(-1, 6), axis=0)
    # Both are in the order of signatures, so that each one's wants lie side by side.
    place = {tuple(key): at for at, key in enumerate(known[:, :2].tolist())}
    owner = np.array([place[tuple(key)] for key in wants[:, :2].tolist()], np.int64)
    lengths = np.bincount(owner, minlength=len(known))
    return LotRows(
        counted[:, 0],
        counted[:, 1],
        counted[:, 2:4],
        counted[:, 4],
        counted[:, 5],
        known[:, :2],
        np.ascontiguousarray(known[:, 2:]).view(np.uint64),
        np.concatenate(([0], np.cumsum(lengths))).astype(np.int64),
        wants[:, 2:],
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
