"""`stream`: the same answers over an unbounded DataFrame, with Structured Streaming.

A micro-batch is one pass over its events, whose rows are written once and feed every result:

    pin ─► match, pre-aggregate ─► state/batch=N ─┬─► deliveries, dropped, rejected
                                                  └─► with the live state: windows that the watermark passed ─► sink

State is a log of partials by slice, not of windows: it does not know the subscriptions, and a question that comes or
goes needs no new plan and no new checkpoint. Everything a batch does follows from its pin and the ledger before it, so
a batch that runs again does the same again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pyspark import Broadcast
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.query import StreamingQuery

from catchment.model.errors import CheckpointError, ConfigurationError
from catchment.model.results import NOTIFICATION_SCHEMA
from catchment.model.subscription import Subscription
from catchment.model.times import duration_us
from catchment.overlay import LINK_TRAFFIC_SCHEMA, Overlay, topic_tree, word_count
from catchment.pipeline import shared_pass
from catchment.pipeline.files import Folder
from catchment.pipeline.journal import Journal
from catchment.pipeline.ledger import Ledger, LiveState, Pin, Step, SubscriptionText, closes_any, moved_on
from catchment.pipeline.publications import Catalog, deduplicated_against, event_id_type, prepared
from catchment.pipeline.replay import Delivery, check_options
from catchment.pipeline.sinks import BatchResults, ParquetSink, Sink, as_sink
from catchment.pipeline.traffic import Placement, traffic_of
from catchment.stages import PARTIAL_SCHEMA, Active, Plan, Selection, Wanted, compile_plan, pass_schema

__all__ = ["Job", "stream"]

AVAILABLE_NOW = "available now"
HEARTBEAT = "_heartbeat"
LIVE_FOLDERS_MAX = 12
"""Beyond this many, the live state is written anew as one folder."""


def stream(
    spark: SparkSession,
    publications: DataFrame,
    *,
    checkpoint: str,
    subscriptions: Iterable[Subscription] = (),
    overlay: Overlay | None = None,
    placement: Placement = "early",
    schema: Any = None,
    lateness: str = "0 seconds",
    delivery: Delivery = "final",
    deduplicate: bool = False,
    sink: Sink | Callable[[BatchResults, int], None] | None = None,
    trigger: str = "1 second",
    idle_after: str | None = "10 seconds",
) -> Job:
    """Start answering subscriptions over a streaming DataFrame of publications, or go on where `checkpoint` left off.

    `trigger` is the time between micro-batches, or "available now": all there is, then stop. A broker that is silent
    for `idle_after` no longer holds back the watermark. Without a `sink`, results are Parquet below the checkpoint.
    Called on the driver; returns while the job runs.
    """
    if not publications.isStreaming:
        raise ConfigurationError("publications is a bounded DataFrame; accepted by stream is one of spark.readStream")
    lateness_us = check_options(placement=placement, delivery=delivery, lateness=lateness)
    idle_after_us = None if idle_after is None else duration_us(idle_after)
    if trigger != AVAILABLE_NOW and duration_us(trigger) < 0:
        raise ConfigurationError(f"trigger is {trigger!r}; accepted is a duration or {AVAILABLE_NOW!r}")
    catalog = Catalog.of(schema, publications)
    prepared(publications, catalog)
    folder = Folder(spark, checkpoint)
    declared = list(subscriptions)
    compile_plan((Active(one) for one in declared), catalog.schemas, overlay, open_topics=catalog.is_open)
    settings = {
        "delivery": delivery,
        "lateness_us": lateness_us,
        "placement": placement,
        "deduplicate": deduplicate,
        "brokers": list(overlay.brokers) if overlay is not None else None,
        "links": [list(link) for link in overlay.links] if overlay is not None else None,
        "topics": {t: {n: k.value for n, k in s.attributes.items()} for t, s in sorted(catalog.schemas.items())},
        "event_id": str(event_id_type(publications)),
    }
    journal = Journal(folder, settings, declared)
    if journal.last_ledger().ended:
        raise CheckpointError(f"the job of {folder} was ended and all its windows closed; accepted is a new folder")
    results = ParquetSink(folder.path("results")) if sink is None else as_sink(sink)
    work = _Batches(
        spark=spark,
        journal=journal,
        catalog=catalog,
        overlay=overlay,
        placement=placement,
        lateness_us=lateness_us,
        idle_after_us=idle_after_us if trigger != AVAILABLE_NOW else None,
        revises=delivery == "revisions",
        deduplicate=deduplicate,
        sink=results,
        resumed_us=_now_us(),
    )
    return Job(work, _start(publications, work, folder, trigger))


def _start(publications: DataFrame, work: _Batches, folder: Folder, trigger: str) -> StreamingQuery:
    source = publications.withColumn(HEARTBEAT, F.lit(False))
    if trigger != AVAILABLE_NOW and work.idle_after_us is not None:
        source = source.unionByName(_heartbeats(publications))
    writer = source.writeStream.foreachBatch(work.run).option("checkpointLocation", folder.path("spark"))
    if trigger == AVAILABLE_NOW:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=trigger).start()


def _heartbeats(publications: DataFrame) -> DataFrame:
    """A row a second, so that batches run, and silent brokers are noticed, while the source is idle."""
    beats = publications.sparkSession.readStream.format("rate").option("rowsPerSecond", 1).load()
    nothing = [F.lit(None).cast(field.dataType).alias(field.name) for field in publications.schema]
    return beats.select(*nothing, F.lit(True).alias(HEARTBEAT))


def _now_us() -> int:
    return time.time_ns() // 1000


@dataclass
class _Batches:
    """The work of a micro-batch, on the driver."""

    spark: SparkSession
    journal: Journal
    catalog: Catalog
    overlay: Overlay | None
    placement: Placement
    lateness_us: int
    idle_after_us: int | None
    revises: bool
    deduplicate: bool
    sink: Sink
    resumed_us: int

    def __post_init__(self) -> None:
        self._compiled: tuple[object, Plan, Broadcast[Plan]] | None = None
        self._parsed: dict[SubscriptionText, Subscription] = {}
        self.progressed = threading.Condition()
        self.last = self.journal.last_ledger()

    def run(self, publications: DataFrame, batch: int) -> None:
        fresh = Pin(self.journal.version, _now_us(), self.resumed_us)
        pin = self.journal.pin(batch, fresh)
        before = self.journal.ledger(batch - 1)
        steps = before.steps
        if before.version < pin.version:
            since_us = None if before.latest_us is None else before.latest_us + 1
            steps = (*steps, Step(pin.version, batch, since_us))
        plan, broadcast = self._plan(pin.version, Ledger(batch=batch, steps=steps))
        folder = f"batch={batch}"
        self._write_rows(publications, broadcast, before, batch, folder)
        rows = self._rows([folder])
        heard, dropped, rejected, delivered, crossings = self._summary(rows)
        clocks, watermark_us, latest_us = moved_on(
            before, pin, heard, lateness_us=self.lateness_us, idle_after_us=self.idle_after_us
        )
        live = self._live(before, plan, folder, heard, watermark_us)
        after = Ledger(
            batch=batch,
            clocks=clocks,
            watermark_us=watermark_us,
            latest_us=latest_us,
            steps=steps,
            live=live,
            events=before.events + sum(count for _, count in heard.values()),
            dropped=before.dropped + dropped,
            rejected=before.rejected + rejected,
        )
        present = {name for name, n in (("dropped", dropped), ("rejected", rejected), ("deliveries", delivered)) if n}
        selection = self._selection(before, after, plan, anything_new=bool(heard))
        partials = self._partials([*before.live, *live], folder, selection)
        self._deliver(rows, crossings, partials, broadcast, selection, batch, present)
        after = self._compacted(after, plan, broadcast)
        self.journal.write_ledger(after)
        self.journal.forget(batch - 1, {state.folder for state in (*before.live, *after.live)})
        with self.progressed:
            self.last = after
            self.progressed.notify_all()

    def end(self) -> None:
        """No more events will come: close every window that is still open."""
        last = self.journal.last_ledger()
        if last.ended or not last.steps:
            return
        batch = last.batch + 1
        plan, broadcast = self._plan(last.version, last)
        if not self.revises and last.live:
            selection = Selection(after_us=last.watermark_us)
            partials = self._partials(list(last.live), "", selection)
            self._deliver(self._rows([]), [], partials, broadcast, selection, batch, set())
        self.journal.write_ledger(
            Ledger(
                batch, last.clocks, last.watermark_us, last.latest_us, last.steps, (), last.events, last.dropped,
                last.rejected, ended=True,
            )  # fmt: skip
        )

    # -- one step each --------------------------------------------------------------------------------------------

    def _plan(self, version: int, ledger: Ledger) -> tuple[Plan, Broadcast[Plan]]:
        key = (version, ledger.steps)
        if self._compiled is None or self._compiled[0] != key:
            active = [
                Active(self._subscription(text), ledger.since_us(incarnation), incarnation)
                for text, incarnation in self.journal.active(version).values()
            ]
            plan = compile_plan(active, self.catalog.schemas, self.overlay, open_topics=self.catalog.is_open)
            if self._compiled is not None:
                self._compiled[2].unpersist()
            self._compiled = (key, plan, self.spark.sparkContext.broadcast(plan))
        return self._compiled[1], self._compiled[2]

    def _subscription(self, text: SubscriptionText) -> Subscription:
        if text not in self._parsed:
            self._parsed[text] = Subscription(text.name, text.at, sql=text.sql)
        return self._parsed[text]

    @property
    def _words(self) -> int:
        return word_count(len(self.overlay)) if self.overlay is not None and len(self.overlay) > 1 else 0

    def _write_rows(
        self, publications: DataFrame, broadcast: Broadcast[Plan], before: Ledger, batch: int, folder: str
    ) -> None:
        events = prepared(publications.where(f"NOT {HEARTBEAT}"), self.catalog)
        if self.deduplicate:
            events = self._without_repeats(events, before, batch)
        wanted = Wanted(
            partials=True, deliveries=True, crossings=self.overlay is not None, origins=self._words > 0
        )
        rows = shared_pass.match(events, broadcast, wanted, before.watermark_us)
        rows.write.mode("overwrite").parquet(self.journal.folder.path(f"state/{folder}"))

    def _without_repeats(self, events: DataFrame, before: Ledger, batch: int) -> DataFrame:
        path = self.journal.folder.path
        previous = f"seen/batch={batch - 1}"
        seen = self.spark.read.parquet(path(previous)) if self.journal.folder.exists(previous) else None
        kept, now_seen = deduplicated_against(events, seen, before.watermark_us)
        now_seen.write.mode("overwrite").parquet(path(f"seen/batch={batch}"))
        if batch >= 2:
            self.journal.folder.delete(f"seen/batch={batch - 2}")
        return kept

    @cached_property
    def _schema(self) -> Any:
        return from_arrow_schema(pass_schema(self._event_id))

    @cached_property
    def _event_id(self) -> Any:
        import pyarrow as pa

        known = {str(kind): kind for kind in (pa.string(), pa.int64(), pa.int32())}
        settings = self.journal.settings
        return known[settings["event_id"]]

    def _rows(self, folders: list[str]) -> DataFrame:
        paths = [self.journal.folder.path(f"state/{folder}") for folder in folders]
        if not paths:
            return self.spark.createDataFrame([], self._schema)
        return self.spark.read.schema(self._schema).parquet(*paths)

    def _summary(self, rows: DataFrame) -> tuple[dict[str, tuple[int, int]], int, int, int, list[int]]:
        """Clocks heard; how many events were dropped, rejected and delivered; what crossed which links."""
        heard: dict[str, tuple[int, int]] = {}
        counts = {"late": 0, "refused": 0, "delivery": 0}
        crossings: list[int] = []
        for row in rows.where("kind != 'partial'").select("kind", "name", "numbers", F.size("ids").alias("size")).collect():
            if row.kind == "clock":
                latest, count = heard.get(row.name, (row.numbers[0], 0))
                heard[row.name] = (max(latest, row.numbers[0]), count + row.numbers[1])
            elif row.kind == "crossing":
                crossings += row.numbers
            else:
                counts[row.kind] += row.size
        return heard, counts["late"], counts["refused"], counts["delivery"], crossings

    def _live(
        self, before: Ledger, plan: Plan, folder: str, heard: dict[str, tuple[int, int]], watermark_us: int | None
    ) -> tuple[LiveState, ...]:
        """The folders that windows still open need."""
        live = list(before.live)
        longest = max((question.layout.window.size_us for question in plan.questions.values()), default=0)
        if heard and longest:
            live.append(LiveState(folder, max(latest for latest, _ in heard.values()) + longest))
        return tuple(state for state in live if watermark_us is None or state.until_us > watermark_us)

    def _selection(self, before: Ledger, after: Ledger, plan: Plan, *, anything_new: bool) -> Selection | None:
        """The windows to tell of, or None if there can be none."""
        if self.revises:
            return Selection(after_us=before.watermark_us, fresh_only=True) if anything_new else None
        windows = {question.layout.window for question in plan.questions.values()}
        if not any(closes_any(window, before.watermark_us, after.watermark_us) for window in windows):
            return None
        return Selection(after_us=before.watermark_us, until_us=after.watermark_us)

    def _partials(self, states: list[LiveState], folder: str, selection: Selection | None) -> DataFrame | None:
        """The partials that the selected windows are made of; `fresh` says which of them this batch brought."""
        folders = list(dict.fromkeys([state.folder for state in states]))
        if selection is None or not folders:
            return None
        fresh = F.input_file_name().contains(f"/{folder}/") if folder else F.lit(False)
        return shared_pass.partials_by_question(self._rows(folders).withColumn("fresh", fresh.cast("long")))

    def _deliver(
        self,
        rows: DataFrame,
        crossings: list[int],
        partials: DataFrame | None,
        broadcast: Broadcast[Plan],
        selection: Selection | None,
        batch: int,
        present: set[str],
    ) -> None:
        notifications, sent = self._empty(NOTIFICATION_SCHEMA), None
        kept: list[DataFrame] = []
        revision = batch if self.revises else 0
        if partials is not None and selection is not None:
            present = present | {"notifications"}
            if self.overlay is None:
                notifications = shared_pass.finish(partials, broadcast, selection, revision)
            else:
                both = shared_pass.told(partials, broadcast, selection, revision, self._words).persist()
                notifications, sent = shared_pass.notifications_of(both), shared_pass.messages_of(both)
                kept.append(both)
        traffic = self._empty(LINK_TRAFFIC_SCHEMA)
        if self.overlay is not None:
            table = traffic_of(topic_tree(self.overlay), self.placement, crossings, sent)
            if table.num_rows:
                present = present | {"traffic"}
                traffic = self.spark.createDataFrame(table.to_pandas(), from_arrow_schema(LINK_TRAFFIC_SCHEMA))
        results = BatchResults(
            notifications=notifications,
            deliveries=_listed(rows, "delivery", "subscription"),
            dropped=_listed(rows, "late", "broker"),
            rejected=_listed(rows, "refused", "reason"),
            traffic=traffic,
            present=frozenset(present),
        )
        self.sink.write(results, batch)
        for frame in kept:
            frame.unpersist()

    def _empty(self, schema: Any) -> DataFrame:
        return self.spark.createDataFrame([], from_arrow_schema(schema))

    def _compacted(self, after: Ledger, plan: Plan, broadcast: Broadcast[Plan]) -> Ledger:
        """The ledger with its live state in one folder, if that has become many."""
        if len(after.live) <= LIVE_FOLDERS_MAX:
            return after
        folder = f"base={after.batch}"
        partials = shared_pass.partials_by_question(self._rows([state.folder for state in after.live]))
        rows = shared_pass.compact(partials, broadcast, self._words, after.watermark_us)
        fixed = [F.lit("partial").alias("kind")]
        fixed += [F.lit(None).cast(self._schema[name].dataType).alias(name) for name in ("name", "ids", "numbers")]
        path = self.journal.folder.path(f"state/{folder}")
        rows.select(*fixed, *PARTIAL_SCHEMA.names).write.mode("overwrite").parquet(path)
        until_us = max(state.until_us for state in after.live)
        return Ledger(
            after.batch, after.clocks, after.watermark_us, after.latest_us, after.steps,
            (LiveState(folder, until_us),), after.events, after.dropped, after.rejected,
        )  # fmt: skip


def _listed(rows: DataFrame, kind: str, name: str) -> DataFrame:
    chosen = rows.where(F.col("kind") == kind)
    if name == "subscription":
        return chosen.select(F.col("name").alias(name), F.explode("ids").alias("event_id"))
    return chosen.select(F.explode("ids").alias("event_id"), F.col("name").alias(name))


class Job:
    """A running stream. Its methods may be called from any thread."""

    def __init__(self, work: _Batches, query: StreamingQuery) -> None:
        self._work, self._query = work, query

    def subscribe(self, subscription: Subscription) -> int:
        """Add a subscription; the version of the snapshot that holds it. `wait_for` it to be acknowledged."""
        catalog = self._work.catalog
        compile_plan([Active(subscription)], catalog.schemas, self._work.overlay, open_topics=catalog.is_open)
        return self._work.journal.subscribe(subscription)

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
        return bool(self._query.isActive)

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
            "live_folders": len(last.live),
            "subscriptions": len(self._work.journal.active(self._work.journal.version)),
        }

    def await_termination(self, timeout_s: float | None = None) -> bool:
        """Wait for the job to stop, and raise what stopped it."""
        if timeout_s is None:
            self._query.awaitTermination()
            return True
        return bool(self._query.awaitTermination(timeout_s))

    def stop(self) -> None:
        """Stop after the batch under way; a later `stream` with the same checkpoint goes on from there."""
        self._query.stop()

    def end(self) -> None:
        """Stop, and close every open window: no more events will come. The checkpoint is then finished."""
        self.stop()
        self._work.end()

    def _delivered(self, name: str, schema: Any) -> DataFrame:
        sink = self._work.sink
        if not isinstance(sink, ParquetSink):
            raise ConfigurationError(f"the job writes to {sink}; {name} can be read back from a ParquetSink only")
        folder = Folder(self._work.spark, sink.path)
        if not folder.names(name):
            return self._work.spark.createDataFrame([], schema)
        committed = self._work.journal.last_ledger().batch
        return self._work.spark.read.parquet(folder.path(name)).where(F.col("batch") <= committed)

    @property
    def notifications(self) -> DataFrame:
        """Everything notified so far; with revisions, every one of them."""
        return self._delivered("notifications", from_arrow_schema(NOTIFICATION_SCHEMA)).drop("batch")

    @property
    def deliveries(self) -> DataFrame:
        return self._delivered("deliveries", self._id_schema("subscription string, event_id")).drop("batch")

    @property
    def dropped(self) -> DataFrame:
        """Events that came behind the watermark."""
        return self._delivered("dropped", self._id_schema("broker string, event_id")).select("event_id", "broker")

    @property
    def rejected(self) -> DataFrame:
        """Events that could not be accepted, and why."""
        return self._delivered("rejected", self._id_schema("reason string, event_id")).select("event_id", "reason")

    @property
    def traffic(self) -> DataFrame:
        """What each link has carried so far."""
        rows = self._delivered("traffic", from_arrow_schema(LINK_TRAFFIC_SCHEMA))
        return rows.groupBy("source", "target", "kind").agg(
            F.sum("messages").alias("messages"), F.sum("bytes").alias("bytes")
        )

    def _id_schema(self, text: str) -> str:
        kinds = {"string": "string", "int64": "bigint", "int32": "int"}
        return f"{text} {kinds[self._work.journal.settings['event_id']]}"
