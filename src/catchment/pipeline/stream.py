"""`stream`: the same answers over an unbounded DataFrame, with Structured Streaming."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.query import StreamingQuery

from catchment.model.errors import CheckpointError, ConfigurationError
from catchment.model.results import NOTIFICATION_SCHEMA, OVERFLOW_SCHEMA
from catchment.model.schema import RESERVED_COLUMNS
from catchment.model.subscription import Subscription, listed
from catchment.model.times import duration_us
from catchment.overlay import LINK_TRAFFIC_SCHEMA, Overlay
from catchment.overlay.placement import MESSAGES, Chosen, Cost, Strategy
from catchment.pipeline.acceptance import REASON, SIZE, judged
from catchment.pipeline.batches import HEARTBEAT, MicroBatches, StoppedError, now_us
from catchment.pipeline.columns import column_of
from catchment.pipeline.deduplication import CONTENT, with_content
from catchment.pipeline.files import Folder
from catchment.pipeline.journal import Journal
from catchment.pipeline.ledger import Step
from catchment.pipeline.publications import Catalog, event_id_type, prepared
from catchment.pipeline.replay import Delivery, check_arguments, check_options, sampling_period_us
from catchment.pipeline.sinks import BatchResults, ParquetSink, Sink, as_sink
from catchment.pipeline.workers import prepare_workers
from catchment.stages import Active, compile_plan

__all__ = ["Job", "stream"]

AVAILABLE_NOW = "available now"
AVAILABLE_NOW_FOR_ALL_SOURCES = "spark.sql.streaming.triggerAvailableNowWrapper.enabled"
_RUNNING: dict[str, Job | None] = {}
"""The jobs of this process by checkpoint; None while one is being started."""
_RUNNING_LOCK = threading.Lock()


def stream(
    spark: SparkSession,
    publications: DataFrame,
    *,
    checkpoint: str,
    subscriptions: Iterable[Subscription] = (),
    overlay: Overlay | None = None,
    placement: Chosen = "early",
    schema: Any = None,
    lateness: str = "0 seconds",
    delivery: Delivery = "final",
    deduplicate: bool = False,
    sink: Sink | Callable[[BatchResults, int], None] | None = None,
    trigger: str = "1 second",
    idle_after: str | None = "2 minutes",
    sampling_period: str = "2 seconds",
    cost: Cost = MESSAGES,
    whole_from: Callable[[], int | None] | None = None,
) -> Job:
    """Start answering subscriptions over a streaming DataFrame of publications, or go on where `checkpoint` left off.

    `trigger` is the time between micro-batches, or "available now": all there is, then stop. A checkpoint that a job of
    this process runs on is refused. A broker that is silent for `idle_after`, and for
    twice as long as it usually is, no longer holds back the watermark.
    Without a `sink`, results are Parquet below the checkpoint. `placement` is a name, or a class of
    `catchment.overlay.placement.Placement`. An adaptive one thinks again every `sampling_period` of event time, and
    weighs messages by `cost`; what it has learned is part of the checkpoint. `whole_from` is asked in the first batch
    from which time on, in microseconds, the publications are whole: windows that begin earlier are left out.
    Called on the driver; returns while the job runs.
    """
    check_arguments(publications, overlay)
    if not publications.isStreaming:
        raise ConfigurationError("publications is a bounded DataFrame; accepted by stream is one of spark.readStream")
    strategy = Strategy.online(placement, sampling_period_us(sampling_period), cost)
    lateness_us = check_options(delivery=delivery, lateness=lateness)
    idle_after_us = None if idle_after is None else duration_us(idle_after)
    if trigger != AVAILABLE_NOW and duration_us(trigger) < 0:
        raise ConfigurationError(f"trigger is {trigger!r}; accepted is a duration or {AVAILABLE_NOW!r}")
    catalog = Catalog.of(schema, publications)
    prepared(publications, catalog)
    folder = Folder(spark, checkpoint)
    declared = listed(subscriptions)
    compile_plan((Active(one) for one in declared), catalog.schemas, overlay, open_topics=catalog.is_open)
    settings = {
        "delivery": delivery,
        "lateness_us": lateness_us,
        "placement": strategy.name,
        "sampling_period_us": strategy.period_us,
        **({} if cost == MESSAGES else {"cost": asdict(cost)}),
        "deduplicate": deduplicate,
        "brokers": list(overlay.brokers) if overlay is not None else None,
        "links": [list(link) for link in overlay.links] if overlay is not None else None,
        "topics": {t: {n: k.value for n, k in s.attributes.items()} for t, s in sorted(catalog.schemas.items())},
        "event_id": str(event_id_type(publications)),
    }
    with _claimed(folder):
        journal = Journal(folder, settings, declared)
        if journal.last_ledger().ended:
            raise CheckpointError(f"the job of {folder} was ended and all its windows closed; accepted is a new folder")
        journal.check()
        results = ParquetSink(folder.path("results")) if sink is None else as_sink(sink)
        work = MicroBatches(
            spark=spark,
            journal=journal,
            catalog=catalog,
            overlay=overlay,
            strategy=strategy,
            lateness_us=lateness_us,
            idle_after_us=idle_after_us if trigger != AVAILABLE_NOW else None,
            revises=delivery == "revisions",
            deduplicate=deduplicate,
            sink=results,
            resumed_us=now_us(),
            whole_from=whole_from,
        )
        work.prepare()
        prepare_workers(spark.sparkContext)
        brokers = overlay.brokers if overlay is not None else None
        events = prepared(publications, catalog)
        if deduplicate:
            events = with_content(events)
        events = judged(events, catalog.schemas, brokers, measured=overlay is not None)
        job = Job(work, lambda attributes: _start(events, attributes, work, folder, trigger))
        _RUNNING[str(folder)] = job
        return job


@contextmanager
def _claimed(folder: Folder) -> Iterator[None]:
    """Refuse a checkpoint that a job of this process runs on: Spark would stop that job without a word."""
    checkpoint = str(folder)
    with _RUNNING_LOCK:
        for path in [path for path, job in _RUNNING.items() if job is not None and not job.is_active]:
            del _RUNNING[path]
        if checkpoint in _RUNNING:
            raise CheckpointError(
                f"{checkpoint} is the checkpoint of {_RUNNING[checkpoint] or 'a job that is being started'}; "
                "accepted once that one is stopped (job.stop()), or a folder of its own"
            )
        _RUNNING[checkpoint] = None
    try:
        yield
    finally:
        with _RUNNING_LOCK:
            if _RUNNING[checkpoint] is None:
                del _RUNNING[checkpoint]


def _start(
    events: DataFrame, attributes: Collection[str], work: MicroBatches, folder: Folder, trigger: str
) -> StreamingQuery:
    # Spark hands a micro-batch over row by row with all its columns: what nobody asks about is left out before.
    asked = {column_of(name) for name in attributes}
    kept = [name for name in events.columns if name in {*RESERVED_COLUMNS, REASON, SIZE, CONTENT, *asked}]
    source = events.select(*kept).withColumn(HEARTBEAT, F.lit(False))
    # Always, whatever the trigger: a Spark checkpoint belongs to one set of sources.
    source = source.unionByName(_heartbeats(source.drop(HEARTBEAT)))
    writer = source.writeStream.foreachBatch(work.run).option("checkpointLocation", folder.path("spark"))
    if trigger == AVAILABLE_NOW:
        # Else Spark would take all there is as one batch, as the heartbeats' source does not know this trigger.
        events.sparkSession.conf.set(AVAILABLE_NOW_FOR_ALL_SOURCES, "true")
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=trigger).start()


def _heartbeats(publications: DataFrame) -> DataFrame:
    """A row a second, so that batches run, and silent brokers are noticed, while the source is idle."""
    beats = publications.sparkSession.readStream.format("rate").option("numPartitions", 1).load()
    nothing = [F.lit(None).cast(field.dataType).alias(field.name) for field in publications.schema]
    return beats.select(*nothing, F.lit(True).alias(HEARTBEAT))


def _has_ended(query: StreamingQuery, timeout_s: float | None) -> bool:
    try:
        if timeout_s is None:
            query.awaitTermination()
            return True
        return bool(query.awaitTermination(timeout_s))  # type: ignore[arg-type]  # it takes fractions
    except StreamingQueryException as error:
        if StoppedError.__name__ in str(error):
            return True
        raise


class Job:
    """A running stream. Its methods may be called from any thread."""

    def __init__(self, work: MicroBatches, start: Callable[[Collection[str]], StreamingQuery]) -> None:
        self._work, self._start = work, start
        self._attributes = frozenset(work.attributes())
        self._query = start(self._attributes)
        self._switching, self._is_switching = threading.RLock(), False

    def __str__(self) -> str:
        state = "running" if self.is_active else "stopped"
        return f"a {state} job (query {self._query.id}, after batch {self._work.last.batch})"

    def subscribe(self, subscription: Subscription) -> int:
        """Add a subscription; the version of the snapshot that holds it. `wait_for` it to be acknowledged."""
        catalog = self._work.catalog
        compile_plan([Active(subscription)], catalog.schemas, self._work.overlay, open_topics=catalog.is_open)
        with self._switching:
            self._widen(catalog.attributes_of(subscription))
            return self._work.journal.subscribe(subscription)

    def _widen(self, attributes: Iterable[str]) -> None:
        """Go on with more columns, where a subscription asks about one that is left out so far."""
        if self._attributes.issuperset(attributes) or not self.is_active:
            return
        self._is_switching = True
        try:
            self._work.stop()
            self._query.stop()
            self._work.resume()
            self._attributes |= frozenset(attributes)
            self._query = self._start(self._attributes)
        finally:
            self._is_switching = False

    def unsubscribe(self, name: str) -> int:
        """Remove a subscription and its open windows; the version of the snapshot without it."""
        return self._work.journal.unsubscribe(name)

    def wait_for(self, version: int, timeout_s: float = 60.0) -> bool:
        """Whether a batch has run with this version or a later one, waiting for it at most so long."""
        deadline = time.monotonic() + timeout_s
        with self._work.progressed:
            while not self._has_run(version):
                rest = deadline - time.monotonic()
                if rest <= 0 or not self.is_active:
                    return self._has_run(version)
                self._work.progressed.wait(min(rest, 0.5))
        return True

    def _has_run(self, version: int) -> bool:
        return self._work.last.version >= version

    @property
    def is_active(self) -> bool:
        return self._is_switching or bool(self._query.isActive)

    @property
    def steps(self) -> tuple[Step, ...]:
        """Which batch was the first to run with which version."""
        return self._work.journal.last_ledger().steps

    def status(self) -> dict[str, Any]:
        """Where the job is."""
        last = self._work.last
        return {
            "active": self.is_active,
            "batch": last.batch,
            "version": last.version,
            "watermark_us": last.watermark_us,
            "events": last.events,
            "dropped": last.dropped,
            "rejected": last.rejected,
            "repeated": last.repeated,
            "overflows": last.overflows,
            "transitions": last.transitions,
            "live_folders": len(last.live),
            "subscriptions": len(self._work.journal.active(self._work.journal.version)),
        }

    def await_termination(self, timeout_s: float | None = None) -> bool:
        """Whether the job has stopped, waiting for it at most so long; raises what made it fail."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            query = self._query
            rest = None if deadline is None else max(deadline - time.monotonic(), 0.001)
            if not _has_ended(query, rest):
                return False
            with self._switching:
                if query is self._query:
                    return True

    def stop(self) -> None:
        """Stop after the batch under way; a later `stream` with the same checkpoint goes on from there."""
        with self._switching:
            self._work.stop()
            self._query.stop()

    def end(self, timeout_s: float = 600.0) -> None:
        """Stop, and close every open window: no more events will come. The checkpoint is then finished."""
        begun = self._work.journal.pinned()
        deadline = time.monotonic() + timeout_s
        # A batch that a killed job began may have told of some things already: it has to be completed first.
        with self._work.progressed:
            while self._work.last.batch < begun and self.is_active:
                if time.monotonic() > deadline:
                    raise ConfigurationError(f"batch {begun} was not completed within {timeout_s} seconds")
                self._work.progressed.wait(0.5)
        self.stop()
        self._work.end()

    def _delivered(self, name: str, schema: T.StructType) -> DataFrame:
        sink = self._work.sink
        if not isinstance(sink, ParquetSink):
            raise ConfigurationError(f"the job writes to {sink}; {name} can be read back from a ParquetSink only")
        folder = Folder(self._work.spark, sink.path)
        if not folder.exists(name):
            return self._work.spark.createDataFrame([], schema)
        committed = self._work.journal.last_ledger().batch
        # The schema is given, as a folder may hold no file yet; the batch is in the folders' names.
        rows = self._work.spark.read.schema(T.StructType([*schema, T.StructField("batch", T.LongType())]))
        return rows.parquet(folder.path(name)).where(F.col("batch") <= committed).drop("batch")

    @property
    def notifications(self) -> DataFrame:
        """Everything notified so far; with revisions, every one of them."""
        return self._delivered("notifications", from_arrow_schema(NOTIFICATION_SCHEMA))

    @property
    def overflows(self) -> DataFrame:
        """Values beyond their type, which are reported and not told."""
        return self._delivered("overflows", from_arrow_schema(OVERFLOW_SCHEMA))

    @property
    def deliveries(self) -> DataFrame:
        return self._delivered("deliveries", self._id_schema("subscription")).select("subscription", "event_id")

    @property
    def dropped(self) -> DataFrame:
        """Events that came behind the watermark."""
        return self._delivered("dropped", self._id_schema("broker")).select("event_id", "broker")

    @property
    def rejected(self) -> DataFrame:
        """Events that could not be accepted, and why."""
        return self._delivered("rejected", self._id_schema("reason")).select("event_id", "reason")

    @property
    def traffic(self) -> DataFrame:
        """What each link has carried so far."""
        rows = self._delivered("traffic", from_arrow_schema(LINK_TRAFFIC_SCHEMA))
        return rows.groupBy("source", "target", "kind").agg(
            F.sum("messages").alias("messages"), F.sum("bytes").alias("bytes")
        )

    def _id_schema(self, name: str) -> T.StructType:
        kinds = {"string": T.StringType(), "int64": T.LongType(), "int32": T.IntegerType()}
        kind = kinds[self._work.journal.settings["event_id"]]
        return T.StructType([T.StructField("event_id", kind), T.StructField(name, T.StringType())])
