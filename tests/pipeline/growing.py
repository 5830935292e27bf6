"""A source that grows file by file, and waiting for a stream, for the tests of streams."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from catchment.pipeline.stream import Job

SCHEMA = "event_id string, topic string, broker string, ts timestamp, speed double, vehicles bigint"
DEADLINE_S = 300
FIRST_FILE_S = 1_700_000_000


class Source:
    """A folder that grows, one file a micro-batch."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._folder = folder / "in"
        self._folder.mkdir()
        self.spark = spark
        self._files = 0

    def publish(self, *events: tuple[str, float] | dict[str, Any], broker: str = "b1") -> None:
        """Events as (id, second), or with everything spelled out."""
        rows = []
        for event in events:
            given = event if isinstance(event, dict) else {"event_id": event[0], "second": event[1]}
            row = {"topic": "traffic", "broker": broker, "speed": 1.0, "vehicles": 1, **given}
            row["ts"] = None if row.get("second") is None else int(row.pop("second") * 1_000_000)
            rows.append(row)
        schema = pa.schema(
            [("event_id", pa.string()), ("topic", pa.string()), ("broker", pa.string()),
             ("ts", pa.timestamp("us", tz="UTC")), ("speed", pa.float64()), ("vehicles", pa.int64())]
        )  # fmt: skip
        aside = self._folder.parent / "aside.parquet"
        pq.write_table(pa.Table.from_pylist(rows, schema), aside)
        self._files += 1
        # Spark reads files in the order of their times, which the clock of a file system cannot always tell apart.
        os.utime(aside, (FIRST_FILE_S + self._files, FIRST_FILE_S + self._files))
        aside.rename(self._folder / f"{self._files:05d}.parquet")

    @property
    def stream(self) -> DataFrame:
        reader = self.spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
        return reader.parquet(str(self._folder))


def until(condition: Callable[[], bool], job: Job) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert job.is_active, "the job has stopped"
        assert time.monotonic() < deadline, f"not in time: {job.status()}"
        time.sleep(0.05)


def until_read(job: Job, events: int) -> None:
    until(lambda: job.status()["events"] == events, job)


def finished(job: Job) -> Job:
    assert job.await_termination(DEADLINE_S), f"not in time: {job.status()}"
    return job
