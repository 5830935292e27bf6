"""The data plane without Spark: the same stages, called one after the other."""

import itertools
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pyarrow as pa

from catchment import Overlay, Subscription
from catchment.model.events import as_events
from catchment.model.results import NOTIFICATION_SCHEMA, OVERFLOW_SCHEMA
from catchment.model.schema import Schema
from catchment.stages import (
    ANSWER_SCHEMA,
    PARTIAL_SCHEMA,
    Active,
    Plan,
    Selection,
    Wanted,
    compact_rows,
    compile_plan,
    finish_rows,
    packed,
    pass_rows,
    run_pass,
    unpacked,
)


def partials_and_deliveries(events: pa.Table, plan: Plan, cuts: Iterable[int] = ()) -> tuple[list[pa.Table], pa.Table]:
    """The partials of each stretch of events between two cuts, and all deliveries."""
    edges = [0, *sorted(cuts), len(events)]
    partials, deliveries = [], []
    for begin, end in itertools.pairwise(edges):
        rows: list[pa.RecordBatch] = []
        for batch in events.slice(begin, end - begin).combine_chunks().to_batches():
            result = run_pass(plan, batch, wanted=Wanted(crossings=plan.has_overlay, origins=plan.has_overlay))
            rows += [unpacked(packed(partials)) for partials in result.partials]
            wire = pa.Table.from_batches(pass_rows(result, batch)) if pass_rows(result, batch) else None
            if wire is not None:
                deliveries.append(wire.filter(pa.compute.equal(wire.column("kind"), "delivery")))
        partials.append(pa.Table.from_batches(rows, PARTIAL_SCHEMA))
    names, ids = [], []
    for table in deliveries:
        for name, listed in zip(table.column("name").to_pylist(), table.column("ids").to_pylist(), strict=True):
            names += [name] * len(listed)
            ids += listed
    kind = events.schema.field("event_id").type
    return partials, pa.table({"subscription": pa.array(names, pa.string()), "event_id": pa.array(ids, kind)})


def answers(
    events: pa.Table,
    subscriptions: Sequence[Subscription],
    schemas: Mapping[str, Schema],
    *,
    overlay: Overlay | None = None,
    cuts: Iterable[int] = (),
    order: Sequence[int] | None = None,
    compact: bool = False,
) -> tuple[pa.Table, pa.Table, pa.Table]:
    """Notifications, deliveries and overflows; partials of the stretches are merged in any order, compacted or not."""
    plan = compile_plan([Active(one) for one in subscriptions], schemas, overlay)
    merged = Schema({name: kind for schema in schemas.values() for name, kind in schema.attributes.items()})
    partials, deliveries = partials_and_deliveries(as_events(events, merged), plan, cuts)
    if order is not None:
        partials = [partials[at] for at in np.argsort(np.resize(order, len(partials)), kind="stable")]
    rows = pa.concat_tables(partials)
    if compact:
        rows = pa.Table.from_batches(compact_rows(rows, plan, words=0, oldest_us=None), PARTIAL_SCHEMA)
    finished = finish_rows(rows, plan, selection=Selection())
    answers = pa.Table.from_batches(finished.answers, ANSWER_SCHEMA)
    has_value = answers.column("problem").is_null()
    overflows = answers.filter(pa.compute.invert(has_value)).select(OVERFLOW_SCHEMA.names)
    return answers.filter(has_value).select(NOTIFICATION_SCHEMA.names), deliveries, overflows
