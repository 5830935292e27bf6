"""The work of a micro-batch: one pass over its events, whose rows are written once and feed every result.

    pin ─► match, pre-aggregate ─► state/batch=N ─┬─► deliveries, dropped, rejected
                                                  └─► with the live state: windows that the watermark passed ─► sink

Rule 1: everything a batch does follows from its pin and the ledger before it, so a batch that runs again does the same.
Rule 2: state is a log of partials by slice. It does not know the subscriptions: a question that comes or goes needs no
        new plan and no new checkpoint.
Rule 3: the ledger is written last. What a batch left behind before that is overwritten when it runs again; once its
        ledger is there, it does not run again.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import msgspec
import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from catchment.model.subscription import Subscription
from catchment.overlay import LINK_TRAFFIC_SCHEMA, Overlay, topic_tree, word_count
from catchment.overlay.placement import Strategy
from catchment.pipeline import shared_pass
from catchment.pipeline.deduplication import REPEATED, marked_repeats, seen_schema
from catchment.pipeline.integrity import known_files
from catchment.pipeline.journal import Journal
from catchment.pipeline.ledger import Ledger, LiveState, Pin, Step, SubscriptionText, closes_any, moved_on
from catchment.pipeline.placing import OngoingTraffic, lots_by_topic
from catchment.pipeline.plans import SentPlan
from catchment.pipeline.publications import Catalog
from catchment.pipeline.sinks import BatchResults, Sink
from catchment.pipeline.traffic import Sent, needs_lots, publications_of, traffic_of
from catchment.stages import (
    ANSWER_SCHEMA,
    LOT_KINDS,
    PACKED_SCHEMA,
    Active,
    Plan,
    Selection,
    Wanted,
    compile_plan,
    pass_schema,
)

__all__ = ["HEARTBEAT", "MicroBatches", "StoppedError", "now_us"]

_LOG = logging.getLogger(__name__)

HEARTBEAT = "heartbeat"
"""Marks the rows that only keep batches coming."""
LIVE_FOLDERS_MAX = 12
"""Beyond this many, the live state is written anew as one folder."""
_COUNTED_AS = {"late": "dropped", "refused": "rejected", "delivery": "deliveries"}
WORTH_A_WARNING = 0.01
"""The share of a broker's events in a batch beyond which dropping them is told."""
WARNING_EVERY_BATCHES = 100
STOP_WITHIN_MS = 60_000
"""How long a batch that may no longer begin waits for its query to be stopped."""


def now_us() -> int:
    return time.time_ns() // 1000


class StoppedError(RuntimeError):
    """A batch that Spark wanted to begin after the job was told to stop."""


def await_interruption(spark: SparkSession) -> None:
    """Wait for the query to be stopped: what a batch raises before that, Spark takes for a failure."""
    jvm: Any = spark.sparkContext._jvm
    try:
        jvm.java.lang.Thread.sleep(STOP_WITHIN_MS)  # in the thread of the query, which `stop` interrupts
    except Py4JJavaError:
        # Spark knows an interruption by this text, and its search overflows the stack where a Java trace follows.
        raise StoppedError(
            "py4j.protocol.Py4JJavaError: An error occurred while calling sleep: java.lang.InterruptedException"
        ) from None


@dataclass
class MicroBatches:
    """The work of a micro-batch, on the driver."""

    spark: SparkSession
    journal: Journal
    catalog: Catalog
    overlay: Overlay | None
    strategy: Strategy
    lateness_us: int
    idle_after_us: int | None
    revises: bool
    deduplicate: bool
    sink: Sink
    resumed_us: int
    whole_from: Callable[[], int | None] | None = None

    def __post_init__(self) -> None:
        self._compiled: tuple[object, Plan, SentPlan] | None = None
        self._parsed: dict[SubscriptionText, Subscription] = {}
        self.progressed = threading.Condition()
        self.last = self.journal.last_ledger()
        self._at_work = threading.Lock()
        self._stopped = False
        self._silenced_until: dict[str, int] = {}
        self._placed: str | None = None

    def prepare(self) -> None:
        """Compile what the first batch of a new job will ask for, before its events come."""
        if self.last.batch < 0 and self.journal.pinned() < 0:
            version = self.journal.version
            self._plan(version, Ledger(steps=(Step(version, 0, None),)))

    def stop(self) -> None:
        """Let the batch under way finish, and no other begin until `resume`."""
        with self._at_work:
            self._stopped = True

    def resume(self) -> None:
        self._stopped = False

    def attributes(self) -> set[str]:
        """What subscriptions ask about: those of the last version, and of the batch that may have to run again."""
        versions = {self.journal.version, self.last.version}
        if self.journal.pinned() >= 0:
            versions.add(self.journal.pin(self.journal.pinned(), Pin(0, 0, 0)).version)
        texts = {text for version in versions for text, _ in self.journal.active(version).values()}
        return {name for text in texts for name in self.catalog.attributes_of(self._subscription(text))}

    def run(self, publications: DataFrame, batch: int) -> None:
        """Called by Spark for each micro-batch, and again for the last one after a failure."""
        with self._at_work:
            if not self._stopped:
                self._run(publications, batch)
                return
        await_interruption(self.spark)
        raise StoppedError(f"batch {batch} is left for the next start")

    def _run(self, publications: DataFrame, batch: int) -> None:
        if batch == self.last.batch:
            return  # all of it was done and told; only Spark does not know yet
        fresh = self.journal.fresh_pin(
            batch,
            began_us=now_us(),
            resumed_us=self.resumed_us,
            idle_after_us=self.idle_after_us,
            whole_from_us=self.whole_from() if batch == 0 and self.whole_from is not None else None,
        )
        pin = self.journal.pin(batch, fresh)
        before = self.journal.ledger(batch - 1)
        self.journal.check_live(before)
        steps = _steps_to(pin.version, before, batch, pin.whole_from_us)
        plan, sent_plan = self._plan(pin.version, Ledger(batch=batch, steps=steps))
        folder = f"batch={batch}"
        self._write_rows(publications, plan, sent_plan, before, batch, folder)
        rows = self._rows([folder])
        heard, counts, late, crossings, is_large = self._summary(rows)
        moved = moved_on(
            before,
            pin,
            heard,
            lateness_us=self.lateness_us,
            idle_after_us=pin.idle_after_us,
            expected=self.overlay.brokers if self.overlay is not None else (),
        )
        watermark_us = moved.watermark_us
        live = self._live(before, plan, folder, heard, watermark_us, is_large=is_large)
        after = Ledger(
            batch=batch,
            clocks=moved.clocks,
            watermark_us=watermark_us,
            latest_us=moved.latest_us,
            first_heard_us=moved.first_heard_us,
            steps=steps,
            live=live,
            seen=known_files(self.journal.folder, f"seen/{folder}") if self.deduplicate else None,
            events=before.events + sum(count for _, count in heard.values()),
            dropped=before.dropped + counts["dropped"],
            rejected=before.rejected + counts["rejected"],
            repeated=before.repeated + counts["repeated"],
        )
        present = {name for name in ("dropped", "rejected", "deliveries") if counts[name]}
        selection = self._selection(before, after, plan, anything_new=bool(heard))
        partials = self._partials([*before.live, *live], folder, selection, before.watermark_us)
        self._placed = None
        traffic = self._traffic(plan, rows, crossings, before, batch, watermark_us)
        if traffic is not None:
            transitions = before.transitions + traffic.transitions
            after = msgspec.structs.replace(after, transitions=transitions, placing=self._placed)
        is_large = is_large or any(state.is_large for state in before.live)
        overflown = self._deliver(rows, traffic, partials, sent_plan, selection, batch, present, may_overflow=is_large)
        after = msgspec.structs.replace(after, overflows=before.overflows + overflown)
        after = self._compacted(after, plan, sent_plan)
        self.journal.write_ledger(after)
        self.journal.forget(batch - 1, {state.folder for state in (*before.live, *after.live)})
        with self.progressed:
            self.last = after
            self.progressed.notify_all()
        self._warn_of_drops(batch, heard, late)

    def _warn_of_drops(self, batch: int, heard: dict[str, tuple[int, int]], late: dict[str, int]) -> None:
        """Name the brokers much of whose events were dropped, each once in a while."""
        for broker, dropped in sorted(late.items()):
            came = dropped + heard.get(broker, (0, 0))[1]
            if dropped > came * WORTH_A_WARNING and batch >= self._silenced_until.get(broker, 0):
                self._silenced_until[broker] = batch + WARNING_EVERY_BATCHES
                idle = "never" if self.idle_after_us is None else f"{self.idle_after_us / 1e6:g} s"
                _LOG.warning(
                    "batch %d: %d of %d events of broker %r were behind the watermark and dropped (see job.dropped); "
                    "events that come out of order need a longer lateness (%s now), events that land in lumps a "
                    "longer idle_after (%s now)",
                    batch, dropped, came, broker, f"{self.lateness_us / 1e6:g} s", idle,
                )  # fmt: skip

    def end(self) -> None:
        """No more events will come: close every window that is still open."""
        last = self.journal.last_ledger()
        if last.ended or not last.steps:
            return
        self.journal.check_live(last)
        batch = last.batch + 1
        # Subscriptions may have gone since the last batch, and their open windows with them.
        version = self.journal.version
        last = msgspec.structs.replace(last, steps=_steps_to(version, last, batch, None))
        plan, sent_plan = self._plan(version, last)
        traffic = self._traffic(plan, None, [], last, batch, None)
        overflows = last.overflows
        if not self.revises and last.live:
            selection = Selection(after_us=last.watermark_us)
            partials = self._partials(list(last.live), "", selection, last.watermark_us)
            is_large = any(state.is_large for state in last.live)
            overflows += self._deliver(
                self._rows([]), traffic, partials, sent_plan, selection, batch, set(), may_overflow=is_large
            )
        elif traffic is not None and traffic.partials is not None:
            self._deliver(self._rows([]), traffic, None, sent_plan, None, batch, set(), may_overflow=False)
        transitions = last.transitions + (0 if traffic is None else traffic.transitions)
        counts = {"transitions": transitions, "overflows": overflows}
        ended = msgspec.structs.replace(last, batch=batch, live=(), seen=None, placing=None, ended=True, **counts)
        self.journal.write_ledger(ended)
        self.last = ended

    # -- one step each --------------------------------------------------------------------------------------------

    def _plan(self, version: int, ledger: Ledger) -> tuple[Plan, SentPlan]:
        key = (version, ledger.steps)
        if self._compiled is None or self._compiled[0] != key:
            active = [
                Active(self._subscription(text), ledger.since_us(incarnation), incarnation)
                for text, incarnation in self.journal.active(version).values()
            ]
            plan = compile_plan(active, self.catalog.schemas, self.overlay, open_topics=self.catalog.is_open)
            if self._compiled is not None:
                self._compiled[2].discard()
            self._compiled = (key, plan, SentPlan.of(self.spark.sparkContext, plan))
        return self._compiled[1], self._compiled[2]

    def _subscription(self, text: SubscriptionText) -> Subscription:
        if text not in self._parsed:
            self._parsed[text] = Subscription(text.name, text.at, sql=text.sql)
        return self._parsed[text]

    @property
    def _words(self) -> int:
        return word_count(len(self.overlay)) if self.overlay is not None and len(self.overlay) > 1 else 0

    def _write_rows(
        self, publications: DataFrame, plan: Plan, sent_plan: SentPlan, before: Ledger, batch: int, folder: str
    ) -> None:
        events = publications.where(f"NOT {HEARTBEAT}").drop(HEARTBEAT)
        if self.deduplicate:
            events = self._marked_repeats(events, before, batch)
        asked: dict[str, Any] = {"crossings": self.overlay is not None, "origins": self._words > 0}
        if self.overlay is not None and needs_lots(plan, self.strategy):
            asked = {"crossings": False, "origins": False, "lots": True, "period_us": self.strategy.period_us}
        wanted = Wanted(partials=True, deliveries=True, **asked)
        rows = shared_pass.match(events, plan, sent_plan, wanted, before.watermark_us)
        self._write_state(rows, folder)

    def _write_state(self, rows: DataFrame, folder: str) -> None:
        # Its bytes hardly ever repeat, and looking for those that do costs more than writing them.
        writer = rows.write.mode("overwrite").option("parquet.enable.dictionary", "false")
        writer.parquet(self.journal.folder.path(f"state/{folder}"))

    def _marked_repeats(self, events: DataFrame, before: Ledger, batch: int) -> DataFrame:
        path = self.journal.folder.path
        previous = f"seen/batch={batch - 1}"
        seen = None
        if before.seen is not None:
            seen = self.spark.read.schema(seen_schema(events.schema["event_id"].dataType)).parquet(path(previous))
        marked, now_seen = marked_repeats(events, seen, before.watermark_us)
        now_seen.write.mode("overwrite").parquet(path(f"seen/batch={batch}"))
        if batch >= 2:
            self.journal.folder.delete(f"seen/batch={batch - 2}")
        return marked

    @cached_property
    def _schema(self) -> Any:
        return from_arrow_schema(pass_schema(self._event_id))

    @cached_property
    def _event_id(self) -> Any:
        known = {str(kind): kind for kind in (pa.string(), pa.int64(), pa.int32())}
        settings = self.journal.settings
        return known[settings["event_id"]]

    def _rows(self, folders: list[str]) -> DataFrame:
        paths = [self.journal.folder.path(f"state/{folder}") for folder in folders]
        if not paths:
            return self.spark.createDataFrame([], self._schema)
        return self.spark.read.schema(self._schema).parquet(*paths)

    def _summary(
        self, rows: DataFrame
    ) -> tuple[dict[str, tuple[int, int]], dict[str, int], dict[str, int], list[int], bool]:
        """Clocks heard; how many events were dropped, rejected, repeated and delivered; drops by broker; crossings;
        whether a total might pass its type."""
        is_large = False
        heard: dict[str, tuple[int, int]] = {}
        counts = {"dropped": 0, "rejected": 0, "repeated": 0, "deliveries": 0}
        late: dict[str, int] = {}
        crossings: list[int] = []
        for row in (
            rows.where(~F.col("kind").isin("partial", *LOT_KINDS))
            .select("kind", "name", "numbers", F.size("ids").alias("size"))
            .collect()
        ):
            if row.kind == "clock":
                latest, count = heard.get(row.name, (row.numbers[0], 0))
                heard[row.name] = (max(latest, row.numbers[0]), count + row.numbers[1])
            elif row.kind == "large":
                is_large = True
            elif row.kind == "crossing":
                crossings += row.numbers
            elif row.kind == "refused" and row.name == REPEATED:
                counts["repeated"] += row.size
            else:
                counts[_COUNTED_AS[row.kind]] += row.size
                if row.kind == "late":
                    late[row.name] = late.get(row.name, 0) + row.size
        return heard, counts, late, crossings, is_large

    def _live(
        self,
        before: Ledger,
        plan: Plan,
        folder: str,
        heard: dict[str, tuple[int, int]],
        watermark_us: int | None,
        *,
        is_large: bool,
    ) -> tuple[LiveState, ...]:
        """The folders that windows still open need."""
        live = list(before.live)
        longest = max((question.layout.window.size_us for question in plan.questions.values()), default=0)
        if heard and longest:
            until_us = max(latest for latest, _ in heard.values()) + longest
            files = known_files(self.journal.folder, f"state/{folder}")
            live.append(LiveState(folder, until_us, files, is_large))
        return tuple(state for state in live if watermark_us is None or state.until_us > watermark_us)

    def _selection(self, before: Ledger, after: Ledger, plan: Plan, *, anything_new: bool) -> Selection | None:
        """The windows to tell of, or None if there can be none."""
        if self.revises:
            return Selection(after_us=before.watermark_us, fresh_only=True) if anything_new else None
        windows = {question.layout.window for question in plan.questions.values()}
        if not any(closes_any(window, before.watermark_us, after.watermark_us) for window in windows):
            return None
        return Selection(after_us=before.watermark_us, until_us=after.watermark_us)

    def _partials(
        self, states: list[LiveState], folder: str, selection: Selection | None, closed_us: int | None
    ) -> DataFrame | None:
        """The partials that the selected windows are made of; `fresh` says which of them this batch brought."""
        folders = list(dict.fromkeys([state.folder for state in states]))
        if selection is None or not folders:
            return None
        fresh = F.input_file_name().contains(f"/{folder}/") if folder else F.lit(False)
        rows = self._rows(folders).withColumn("fresh", fresh.cast("long"))
        if closed_us is not None:
            rows = rows.where(f"until_us > {closed_us}")
        return shared_pass.partials_by_question(rows)

    def _traffic(
        self,
        plan: Plan,
        rows: DataFrame | None,
        crossings: list[int],
        before: Ledger,
        batch: int,
        watermark_us: int | None,
    ) -> Sent | None:
        """What links carried without the partials of `early`; without a watermark, all that is still to be told."""
        if self.overlay is None:
            return None
        tree = topic_tree(self.overlay)
        publications = publications_of(tree, self.strategy, crossings)
        saved = self.journal.placing(before)
        by_lots = needs_lots(plan, self.strategy)
        if not by_lots and saved is None:
            return Sent(publications, None)
        fresh = {}
        if rows is not None and by_lots:
            lots = rows.where(F.col("kind").isin(*LOT_KINDS)).select("kind", "name", "numbers").collect()
            fresh = lots_by_topic(lots, word_count(len(tree.brokers)))
        ongoing = OngoingTraffic(tree, self.strategy, saved)
        # Where lots are no longer made, those that still wait have nothing to wait for.
        carried = ongoing.advance(plan, fresh, watermark_us if by_lots else None)
        if rows is not None:
            self._placed = self.journal.write_placing(batch, ongoing.saved())
        return Sent(publications + carried.publications, carried.partials, carried.transitions)

    def _deliver(
        self,
        rows: DataFrame,
        carried: Sent | None,
        partials: DataFrame | None,
        sent_plan: SentPlan,
        selection: Selection | None,
        batch: int,
        present: set[str],
        *,
        may_overflow: bool,
    ) -> int:
        """Hand everything that a batch yields to the sink; how many values were beyond their type."""
        answers, sent = self._empty(ANSWER_SCHEMA), None
        kept: list[DataFrame] = []
        revision = batch if self.revises else 0
        if partials is not None and selection is not None:
            present = present | {"notifications"}
            if self.overlay is None:
                answers = shared_pass.finish(partials, sent_plan, selection, revision)
                if may_overflow:
                    # To be counted before it is handed over, and not to be worked out twice.
                    kept.append(answers.persist())
            else:
                both = shared_pass.answers_and_messages(partials, sent_plan, selection, revision, self._words).persist()
                answers, sent = shared_pass.answers_of(both), shared_pass.messages_of(both)
                kept.append(both)
        overflows = shared_pass.overflows_of(answers)
        overflown = overflows.count() if kept and may_overflow else 0
        if overflown:
            present = present | {"overflows"}
        traffic = self._empty(LINK_TRAFFIC_SCHEMA)
        if self.overlay is not None and carried is not None:
            table = traffic_of(topic_tree(self.overlay), self.strategy, carried, sent)
            if table.num_rows:
                present = present | {"traffic"}
                traffic = self.spark.createDataFrame(table.to_pandas(), from_arrow_schema(LINK_TRAFFIC_SCHEMA))
        results = BatchResults(
            notifications=shared_pass.notifications_of(answers),
            overflows=overflows,
            deliveries=_listed(rows, "delivery", "subscription"),
            dropped=_listed(rows, "late", "broker"),
            rejected=_listed(rows.where(F.col("name") != REPEATED), "refused", "reason"),
            traffic=traffic,
            present=frozenset(present),
        )
        self.sink.write(results, batch)
        for frame in kept:
            frame.unpersist()
        return overflown

    def _empty(self, schema: Any) -> DataFrame:
        return self.spark.createDataFrame([], from_arrow_schema(schema))

    def _compacted(self, after: Ledger, plan: Plan, sent_plan: SentPlan) -> Ledger:
        """The ledger with its live state in one folder, if that has become many."""
        if len(after.live) <= LIVE_FOLDERS_MAX:
            return after
        folder = f"base={after.batch}"
        partials = shared_pass.partials_by_question(self._rows([state.folder for state in after.live]))
        rows = shared_pass.compact(partials, sent_plan, self._words, after.watermark_us)
        fixed = [F.lit("partial").alias("kind")]
        fixed += [F.lit(None).cast(self._schema[name].dataType).alias(name) for name in ("name", "ids", "numbers")]
        self._write_state(rows.select(*fixed, *PACKED_SCHEMA.names), folder)
        until_us = max(state.until_us for state in after.live)
        files = known_files(self.journal.folder, f"state/{folder}")
        is_large = any(state.is_large for state in after.live)
        return msgspec.structs.replace(after, live=(LiveState(folder, until_us, files, is_large),))


def _steps_to(version: int, before: Ledger, batch: int, whole_from_us: int | None) -> tuple[Step, ...]:
    """The versions up to one that a batch runs with; a new one may ask about what is behind all that has come."""
    steps = before.steps
    if before.version >= version:
        return steps
    known_us = () if before.latest_us is None else (before.latest_us + 1,)
    whole_us = steps[0].since_us if steps else whole_from_us
    since_us = max((*(() if whole_us is None else (whole_us,)), *known_us), default=None)
    return (*steps, Step(version, batch, since_us))


def _listed(rows: DataFrame, kind: str, name: str) -> DataFrame:
    chosen = rows.where(F.col("kind") == kind)
    if name == "subscription":
        return chosen.select(F.col("name").alias(name), F.explode("ids").alias("event_id"))
    return chosen.select(F.explode("ids").alias("event_id"), F.col("name").alias(name))
