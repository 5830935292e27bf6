"""The oracle next to a job's results: the subscriptions shared out between tasks, as the oracle is slow by design."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from catchment.model.schema import Schema
from catchment.model.subscription import Subscription
from catchment.oracle import differences, oracle
from catchment.overlay import Overlay

__all__ = ["Verification", "verify"]

_TASKS_PER_CORE = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """How a job's results compare with what the oracle says."""

    subscriptions: int
    values: int
    """Values of windows that the oracle expects, each compared."""
    deliveries: int
    differences: tuple[str, ...]


def verify(
    spark: SparkSession,
    events: pa.Table,
    subscriptions: Sequence[Subscription],
    *,
    notifications: pa.Table,
    deliveries: pa.Table,
    overflows: pa.Table,
    schema: Mapping[str, Schema] | Schema | None = None,
    overlay: Overlay | None = None,
    deduplicate: bool = False,
) -> Verification:
    """Compare results with the oracle's over the same events. Called on the driver; the work is done by Spark tasks."""
    if overlay is not None:
        events = events.filter(pc.is_in(events.column("broker"), value_set=pa.array(overlay.brokers)))
    context = spark.sparkContext
    shipped = context.broadcast(_packed(events))
    count = max(1, min(len(subscriptions), _TASKS_PER_CORE * max(context.defaultParallelism, os.cpu_count() or 1)))
    parts = []
    for at in range(count):
        asked = list(subscriptions[at::count])
        names = pa.array([one.name for one in asked], pa.string())
        results = [
            _packed(table.filter(pc.is_in(table.column("subscription"), value_set=names)))
            for table in (notifications, deliveries, overflows)
        ]
        parts.append((asked, results))

    def compare(part: tuple[list[Subscription], list[bytes]]) -> tuple[int, int, list[str]]:
        asked, results = part
        answer = oracle(_unpacked(shipped.value), subscriptions=asked, schema=schema, deduplicate=deduplicate)
        return len(answer.lines), len(answer.delivered), differences(answer, *map(_unpacked, results))

    compared = context.parallelize(parts, count).map(compare).collect()
    shipped.unpersist()
    return Verification(
        subscriptions=len(subscriptions),
        values=sum(values for values, _, _ in compared),
        deliveries=sum(delivered for _, delivered, _ in compared),
        differences=tuple(one for _, _, found in compared for one in found),
    )


def _packed(table: pa.Table) -> bytes:
    stream = pa.BufferOutputStream()
    with pa.ipc.new_stream(stream, table.schema) as writer:
        writer.write_table(table)
    return bytes(stream.getvalue())


def _unpacked(content: bytes) -> pa.Table:
    return pa.ipc.open_stream(content).read_all()
