"""Where a stream's results go. A sink may be called again with the same batch, so sinks must be idempotent.

Each is called on the driver, once a micro-batch, before the batch is committed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from pyspark.sql import DataFrame

__all__ = ["RESULTS", "BatchResults", "ConsoleSink", "ParquetSink", "Sink", "as_sink"]

RESULTS = ("notifications", "overflows", "deliveries", "dropped", "rejected", "traffic")


@dataclass(frozen=True)
class BatchResults:
    """The results of one micro-batch; those that are known to be empty are not in `present`."""

    notifications: DataFrame
    overflows: DataFrame
    """Values beyond their type, which are not told."""
    deliveries: DataFrame
    dropped: DataFrame
    rejected: DataFrame
    traffic: DataFrame
    present: frozenset[str]


class Sink(Protocol):
    def write(self, results: BatchResults, batch_id: int) -> None: ...


@dataclass(frozen=True)
class ParquetSink:
    """A folder per result and batch; a batch that runs again replaces what it wrote."""

    path: str

    def write(self, results: BatchResults, batch_id: int) -> None:
        for name in RESULTS:
            if name in results.present:
                frame: DataFrame = getattr(results, name)
                frame.write.mode("overwrite").parquet(f"{self.path}/{name}/batch={batch_id}")


@dataclass(frozen=True)
class ConsoleSink:
    """Shows the first rows of what each batch says."""

    rows: int = 20

    def write(self, results: BatchResults, batch_id: int) -> None:
        for name in ("notifications", "overflows", "deliveries", "dropped", "rejected"):
            if name in results.present:
                getattr(results, name).show(self.rows, truncate=False)


@dataclass(frozen=True)
class FunctionSink:
    function: Callable[[BatchResults, int], None]

    def write(self, results: BatchResults, batch_id: int) -> None:
        self.function(results, batch_id)


def as_sink(given: Sink | Callable[[BatchResults, int], None]) -> Sink:
    return given if hasattr(given, "write") else FunctionSink(given)
