"""Made-up events of the traffic and stock workloads, by number: the same over a table and over a stream.

Event n depends on the description and on n alone. So a bounded source is a range of numbers, a stream is Spark's
`rate-micro-batch` source of numbers, and a micro-batch or task that runs again makes the same events again. What is
numbered in Spark are chunks of events, small enough to share out between tasks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from catchment.model.errors import ConfigurationError
from catchment.model.schema import Schema
from catchment.pipeline.columns import map_in_arrow
from catchment.workloads import (
    STOCK_SCHEMA,
    TRAFFIC_SCHEMA,
    TRAFFIC_START_US,
    generate_stock,
    generate_traffic,
    publication_schema,
)

__all__ = ["WORKLOADS", "Generated", "Workload", "chunk_of", "generated_batch", "generated_stream"]

Workload = Literal["traffic", "stock"]
WORKLOADS: dict[str, Schema] = {"traffic": TRAFFIC_SCHEMA, "stock": STOCK_SCHEMA}

BLOCK_EVENTS = 64_800
"""As many as the traffic generator makes in one go, where it is fastest."""
_CHUNK_EVENTS_MAX = 16_200


@dataclass(frozen=True, slots=True, kw_only=True)
class Generated:
    """A seeded workload."""

    workload: Workload
    seed: int = 1
    events: int | None = None
    """How many; None is no end, for streams."""
    rate: int = 1_000
    """Events a second of event time; a stream makes a second of event time each micro-batch."""
    start_us: int = TRAFFIC_START_US
    brokers: tuple[str, ...] = ("b0",)

    def __post_init__(self) -> None:
        if self.workload not in WORKLOADS:
            raise ConfigurationError(f"workload is {self.workload!r}; accepted are {', '.join(WORKLOADS)}")
        if self.rate < 1 or (self.events is not None and self.events < 0):
            raise ConfigurationError(f"events={self.events}, rate={self.rate}; accepted are 0 or more, and 1 or more")

    @property
    def schema(self) -> Schema:
        return WORKLOADS[self.workload]

    @property
    def chunk_events(self) -> int:
        """A quarter of a second, so that tasks can share a micro-batch; more would only cost memory."""
        return max(1, min(_CHUNK_EVENTS_MAX, self.rate // 4))

    @property
    def chunks_per_second(self) -> int:
        return max(1, round(self.rate / self.chunk_events))


def chunk_of(source: Generated, number: int) -> pa.Table:
    """The events of one chunk, in order of time; ids are unique over all chunks."""
    begin, end = number * source.chunk_events, (number + 1) * source.chunk_events
    if source.events is not None:
        begin, end = min(begin, source.events), min(end, source.events)
    pieces = [
        _block(source, block).slice(max(0, begin - block * BLOCK_EVENTS), end - max(begin, block * BLOCK_EVENTS))
        for block in range(begin // BLOCK_EVENTS, -(-end // BLOCK_EVENTS))
    ]
    return pa.concat_tables(pieces) if pieces else publication_schema(source.schema).empty_table()


@lru_cache(maxsize=4)
def _block(source: Generated, number: int) -> pa.Table:
    """The events that the workload's generator makes at once; kept, as the chunks of a block are asked for in turn."""
    first = number * BLOCK_EVENTS
    begin_us = source.start_us + first * 1_000_000 // source.rate
    end_us = source.start_us + (first + BLOCK_EVENTS) * 1_000_000 // source.rate
    generate = generate_traffic if source.workload == "traffic" else generate_stock
    events = generate(
        BLOCK_EVENTS,
        # Any two blocks of any two seeds differ.
        seed=int(np.random.SeedSequence([source.seed, number]).generate_state(1, np.uint64)[0]),
        start_us=begin_us,
        duration_us=end_us - begin_us,
        brokers=source.brokers,
    )
    order = pa.array(np.arange(first, first + BLOCK_EVENTS)).cast(pa.string())
    return events.set_column(0, "event_id", pc.binary_join_element_wise(events.column("broker"), order, "-"))


def generated_batch(spark: SparkSession, source: Generated) -> DataFrame:
    """All events of a bounded description, made by as many tasks as the cluster has room for."""
    if source.events is None:
        raise ConfigurationError("a generated source without a number of events never ends; accepted is events = …")
    chunks = -(-source.events // source.chunk_events)
    numbers = spark.range(0, chunks, 1, max(1, min(chunks, spark.sparkContext.defaultParallelism)))
    return _mapped(numbers.selectExpr("id AS chunk"), source)


def generated_stream(spark: SparkSession, source: Generated) -> DataFrame:
    """An endless stream, a second of event time each micro-batch; past `events` it goes on without any."""
    rows = (
        spark.readStream.format("rate-micro-batch")
        .option("rowsPerBatch", source.chunks_per_second)
        .option("numPartitions", min(source.chunks_per_second, spark.sparkContext.defaultParallelism))
        .load()
    )
    return _mapped(rows.selectExpr("value AS chunk"), source)


def _mapped(chunks: DataFrame, source: Generated) -> DataFrame:
    def make(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield from _chunks(source, batch.column("chunk").to_pylist())

    return map_in_arrow(chunks, make, publication_schema(source.schema))


def _chunks(source: Generated, numbers: Sequence[int]) -> Iterator[pa.RecordBatch]:
    for number in numbers:
        yield from chunk_of(source, number).combine_chunks().to_batches()
