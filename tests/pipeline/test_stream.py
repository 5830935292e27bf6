"""What a stream does besides being equal to the oracle: changes, idleness, restarts, bad input."""

import queue
import threading
import traceback
from pathlib import Path
from typing import Any

import pytest
from pyspark import InheritableThread
from pyspark.sql import SparkSession

from catchment import ConsoleSink, Overlay, ParquetSink, Subscription, stream
from catchment.model.errors import CheckpointError, ConfigurationError, EventError, OverlayError, SubscriptionError
from catchment.pipeline import batches
from catchment.pipeline.batches import StoppedError, await_interruption
from catchment.pipeline.sinks import BatchResults
from catchment.pipeline.stream import Job
from tests.pipeline.growing import DEADLINE_S, FIRST_FILE_S, SCHEMA, Source, finished, until, until_read

pytestmark = pytest.mark.spark

COUNT = Subscription("count", "b1", sql="SELECT count(*) FROM traffic GROUP BY window(ts, '10 seconds')")
EVERYTHING = Subscription("everything", "b1", sql="SELECT * FROM traffic")
TWO_BROKERS = Overlay.from_links([("b1", "b2")])


@pytest.fixture
def source(spark: SparkSession, tmp_path: Path) -> Source:
    return Source(spark, tmp_path)


def counts(job: Job) -> list[tuple[str, int, float]]:
    rows = job.notifications.orderBy("window_start", "subscription").collect()
    return [(row.subscription, int(row.window_start.timestamp()), row.value) for row in rows]


def test_windows_close_while_the_source_is_idle(spark: SparkSession, source: Source, tmp_path: Path) -> None:
    # b1  ──a──b──────────────────── silent: its time goes on, the window [0, 10) closes
    source.publish(("a", 1), ("b", 4))
    job = stream(
        spark,
        source.stream,
        checkpoint=str(tmp_path / "checkpoint"),
        subscriptions=[COUNT],
        trigger="300 milliseconds",
        idle_after="1 second",
    )
    try:
        until(lambda: job.status()["batch"] >= 0 and bool(counts(job)), job)
        assert counts(job) == [("count", 0, 2.0)]
    finally:
        job.stop()


class SetClock:
    """The driver's clock, set by hand; batches are run by Spark's own."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, second: int) -> None:
        self.second = second
        for module in ("catchment.pipeline.stream.now_us", "catchment.pipeline.batches.now_us"):
            monkeypatch.setattr(module, lambda: self.second * 1_000_000)

    def advance(self, seconds: int, job: Job) -> None:
        """Let time pass, and a batch that began after it."""
        self.second += seconds
        under_way = job.status()["batch"] + 1
        until(lambda: job.status()["batch"] > under_way, job)


def test_nothing_is_dropped_by_default_where_files_land_by_the_minute(
    spark: SparkSession, source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # driver  0s    60s    120s    180s   each file has the events of the minute before it; batches run in between
    start = FIRST_FILE_S // 60 * 60
    clock = SetClock(monkeypatch, start)
    checkpoint = str(tmp_path / "checkpoint")
    job = stream(spark, source.stream, checkpoint=checkpoint, subscriptions=[COUNT], trigger="100 milliseconds")
    try:
        for minute in range(4):
            begun = start + (minute - 1) * 60
            source.publish(*((f"{minute}-{second}", begun + second) for second in (0.5, 30, 59.5)))
            until_read(job, 3 * (minute + 1))
            clock.advance(58, job)
            clock.second += 2
        assert job.status()["dropped"] == 0
        clock.advance(300, job)
        until(lambda: job.status()["watermark_us"] > (start + 180) * 1_000_000, job)
    finally:
        job.stop()
    windows = (0, 30, 50, 60, 90, 110, 120, 150, 170, 180, 210, 230)
    assert counts(job) == [("count", start - 60 + second, 1.0) for second in windows]


def test_a_batch_that_wants_to_begin_while_a_job_stops_is_no_failure(
    spark: SparkSession, source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = stream(spark, source.stream, checkpoint=str(tmp_path / "ck"), subscriptions=[COUNT])
    job._work.stop()
    wanted = threading.Event()

    def wait(session: SparkSession) -> None:
        wanted.set()
        await_interruption(session)

    monkeypatch.setattr(batches, "await_interruption", wait)
    source.publish(("a", 1), ("b", 12))
    assert wanted.wait(DEADLINE_S)
    assert job.is_active
    job.stop()
    assert job._query.exception() is None
    later = stream(spark, source.stream, checkpoint=str(tmp_path / "ck"))
    try:
        until(lambda: later.status()["events"] == 2, later)
    finally:
        later.stop()


def test_subscriptions_come_and_go_while_the_stream_runs(spark: SparkSession, source: Source, tmp_path: Path) -> None:
    job = stream(
        spark,
        source.stream,
        checkpoint=str(tmp_path / "checkpoint"),
        subscriptions=[COUNT, EVERYTHING],
        trigger="200 milliseconds",
        idle_after=None,
    )
    try:
        source.publish(("a", 1), ("b", 12))
        until(lambda: job.status()["events"] == 2, job)
        late = Subscription("late", "b1", sql="SELECT count(*) FROM traffic GROUP BY window(ts, '10 seconds')")
        version = job.subscribe(late)
        with pytest.raises(SubscriptionError, match="'late' is already there"):
            job.subscribe(late)
        with pytest.raises(SubscriptionError, match="no attribute 'colour'"):
            job.subscribe(Subscription("bad", sql="SELECT * FROM traffic WHERE colour = 'red'"))
        with pytest.raises(SubscriptionError, match="'nobody' is not there"):
            job.unsubscribe("nobody")
        source.publish(("c", 15), ("d", 23))
        until(lambda: job.status()["events"] == 4, job)
        assert job.wait_for(version, 1)
        job.unsubscribe("everything")
        source.publish(("e", 31))
        until(lambda: job.status()["events"] == 5, job)
    finally:
        job.end()
    # The window [10, 20) began before `late` came and is left out of its answers.
    assert counts(job) == [
        ("count", 0, 1.0),
        ("count", 10, 2.0),
        ("count", 20, 1.0),
        ("late", 20, 1.0),
        ("count", 30, 1.0),
        ("late", 30, 1.0),
    ]
    assert sorted(row.event_id for row in job.deliveries.collect()) == ["a", "b", "c", "d"]


def test_a_subscription_may_ask_about_columns_left_out_so_far(
    spark: SparkSession, source: Source, tmp_path: Path
) -> None:
    def started() -> Job:
        return stream(
            spark,
            source.stream,
            checkpoint=str(tmp_path / "checkpoint"),
            subscriptions=[COUNT],
            trigger="200 milliseconds",
            idle_after=None,
        )

    job = started()
    try:
        source.publish(("a", 1))
        until(lambda: job.status()["events"] == 1, job)
        sql = "SELECT sum(vehicles) FROM traffic WHERE speed > 2 GROUP BY window(ts, '10 seconds')"
        version = job.subscribe(Subscription("fast", "b1", sql=sql))
        assert job.wait_for(version - 1, 1)
        source.publish(
            {"event_id": "b", "second": 11, "vehicles": 5, "speed": 3.0}, {"event_id": "c", "second": 12, "vehicles": 7}
        )
        until(lambda: job.status()["events"] == 3, job)
    finally:
        job.stop()
    assert job.await_termination(1)
    # Started again without knowing of it: the journal does.
    job = started()
    try:
        source.publish({"event_id": "d", "second": 21, "vehicles": 9, "speed": 3.0})
        until(lambda: job.status()["events"] == 4, job)
    finally:
        job.end()
    assert [row for row in counts(job) if row[0] == "fast"] == [("fast", 10, 5.0), ("fast", 20, 9.0)]


def test_events_behind_the_watermark_are_dropped_and_named(
    spark: SparkSession, source: Source, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source.publish(("a", 5), ("b", 25))
    source.publish(("c", 24), ("late", 3))
    job = stream(
        spark,
        source.stream,
        checkpoint=str(tmp_path / "checkpoint"),
        subscriptions=[COUNT, EVERYTHING],
        lateness="2 seconds",
        trigger="available now",
    )
    finished(job).end()
    assert [(row.event_id, row.broker) for row in job.dropped.collect()] == [("late", "b1")]
    assert job.status()["dropped"] == 1
    [warning] = [record.getMessage() for record in caplog.records if record.name == "catchment.pipeline.batches"]
    assert "1 of 2 events of broker 'b1' were behind the watermark and dropped" in warning
    assert "lateness (2 s now)" in warning
    assert counts(job) == [("count", 0, 1.0), ("count", 20, 2.0)]
    assert sorted(row.event_id for row in job.deliveries.collect()) == ["a", "b", "c"]


def test_bad_events_are_rejected_with_a_reason(spark: SparkSession, source: Source, tmp_path: Path) -> None:
    source.publish(
        ("good", 1),
        {"event_id": "nan", "second": 1, "speed": float("nan")},
        {"event_id": "timeless", "second": None},
        {"event_id": "stranger", "second": 1, "broker": "b9"},
        {"event_id": "ancient", "second": -99_000_000_000},
        {"event_id": None, "second": 1},
    )
    job = stream(
        spark,
        source.stream,
        checkpoint=str(tmp_path / "checkpoint"),
        subscriptions=[EVERYTHING],
        overlay=TWO_BROKERS,
        trigger="available now",
    )
    finished(job)
    reasons = {row.event_id: row.reason for row in job.rejected.collect()}
    assert reasons.keys() == {"nan", "timeless", "stranger", "ancient", None}
    assert "speed is NaN" in reasons["nan"]
    assert "ts is missing" in reasons["timeless"]
    assert "broker is not in the overlay" in reasons["stranger"]
    assert "years 1 to 9999" in reasons["ancient"]
    assert "event_id is missing" in reasons[None]
    assert [row.event_id for row in job.deliveries.collect()] == ["good"]
    assert job.status()["rejected"] == 5


def test_a_job_goes_on_where_it_left_off(spark: SparkSession, source: Source, tmp_path: Path) -> None:
    def start(*subscriptions: Subscription) -> Job:
        return stream(
            spark,
            source.stream,
            checkpoint=str(tmp_path / "checkpoint"),
            subscriptions=subscriptions,
            trigger="available now",
        )

    source.publish(("a", 1), ("b", 12))
    finished(start(COUNT))
    source.publish(("c", 13), ("d", 21))
    other = Subscription("other", "b1", sql="SELECT sum(vehicles) FROM traffic GROUP BY window(ts, '10 seconds')")
    job = finished(start(other))  # declared anew: `count` is gone, `other` is there
    source.publish(("e", 35))
    job = finished(start(other))
    job.end()
    assert counts(job) == [("count", 0, 1.0), ("other", 20, 1.0), ("other", 30, 1.0)]
    with pytest.raises(CheckpointError, match="was ended"):
        start(other)


def test_a_declared_subscription_replaces_one_of_its_name_that_was_added_while_running(
    spark: SparkSession, source: Source, tmp_path: Path
) -> None:
    def start(*subscriptions: Subscription) -> Job:
        checkpoint = str(tmp_path / "checkpoint")
        return stream(spark, source.stream, checkpoint=checkpoint, subscriptions=subscriptions, trigger="available now")

    def asked(output: str) -> Subscription:
        return Subscription("x", "b1", sql=f"SELECT {output} FROM traffic GROUP BY window(ts, '10 seconds')")

    source.publish({"event_id": "a", "second": 1, "vehicles": 3})
    job = finished(start())
    job.subscribe(asked("sum(vehicles)"))
    source.publish({"event_id": "b", "second": 12, "vehicles": 3}, {"event_id": "c", "second": 13, "vehicles": 4})
    source.publish({"event_id": "d", "second": 22, "vehicles": 3})
    finished(start())  # nothing is declared, as before: what was added while the job ran goes on
    source.publish({"event_id": "e", "second": 31, "vehicles": 3}, {"event_id": "f", "second": 32, "vehicles": 4})
    job = finished(start(asked("max(vehicles)")))
    job.end()
    values = [(row.output, row.value) for row in job.notifications.orderBy("window_start").collect()]
    assert values == [("sum(vehicles)", 7.0), ("max(vehicles)", 4.0)], "the window [20, 30) was open and is dropped"


def test_one_that_goes_after_the_last_batch_is_told_nothing_at_the_end(
    spark: SparkSession, source: Source, tmp_path: Path
) -> None:
    asked = [
        Subscription(name, "b1", sql="SELECT count(*) FROM traffic GROUP BY window(ts, '10 seconds')")
        for name in ("stays", "goes")
    ]
    source.publish({"event_id": "a", "second": 1, "vehicles": 3})
    checkpoint = str(tmp_path / "checkpoint")
    job = finished(stream(spark, source.stream, checkpoint=checkpoint, subscriptions=asked, trigger="available now"))
    job.unsubscribe("goes")
    job.end()
    assert [row.subscription for row in job.notifications.collect()] == ["stays"]


def test_repeated_ids_are_one_event_across_batches(spark: SparkSession, source: Source, tmp_path: Path) -> None:
    nan, other = {"speed": float("nan")}, {"topic": "roadworks"}
    source.publish(("a", 1), ("a", 1), ("b", 2), {"event_id": "c", "second": 3, **nan})
    source.publish(("a", 1), ("b", 60), ("a", 200), {"event_id": "a", "second": 2, **other}, ("c", 3))
    source.publish(("c", 3), ("a", 1), {"event_id": "a", "second": 2, **nan}, ("late", -5000))
    source.publish(("late", 4), ("late", 4))
    job = stream(
        spark,
        source.stream,
        checkpoint=str(tmp_path / "checkpoint"),
        subscriptions=[EVERYTHING, Subscription("works", "b1", sql="SELECT * FROM roadworks")],
        lateness="1 hour",
        deduplicate=True,
        trigger="available now",
    )
    finished(job)
    found = sorted((row.subscription, row.event_id) for row in job.deliveries.collect())
    assert found == [*(("everything", name) for name in ("a", "a", "b", "c", "late")), ("works", "a")]
    assert [row.event_id for row in job.dropped.collect()] == ["late"]
    assert sorted(row.event_id for row in job.rejected.collect()) == ["a", "c"], "repeats are not among them"
    status = job.status()
    counted = {name: status[name] for name in ("events", "repeated", "rejected", "dropped")}
    assert counted == {"events": 6, "repeated": 6, "rejected": 2, "dropped": 1}


def test_the_checkpoint_of_another_job_is_refused(spark: SparkSession, source: Source, tmp_path: Path) -> None:
    def start(**options: Any) -> Job:
        checkpoint = str(tmp_path / "checkpoint")
        return stream(
            spark, source.stream, checkpoint=checkpoint, subscriptions=[COUNT], trigger="available now", **options
        )

    source.publish(("a", 1))
    finished(start())
    with pytest.raises(CheckpointError, match="another job: lateness_us was 0 and is 5000000"):
        start(lateness="5 seconds")
    with pytest.raises(CheckpointError, match="brokers was None"):
        start(overlay=TWO_BROKERS)
    foreign = tmp_path / "foreign"
    (foreign / "offsets").mkdir(parents=True)
    with pytest.raises(CheckpointError, match="holds offsets and no Catchment job"):
        stream(spark, source.stream, checkpoint=str(foreign), subscriptions=[COUNT])


def test_one_checkpoint_under_every_trigger(spark: SparkSession, source: Source, tmp_path: Path) -> None:
    """Every change from one way of running to another: Spark refuses a checkpoint whose set of sources changed."""
    now: dict[str, Any] = {"trigger": "available now"}
    beating: dict[str, Any] = {"trigger": "100 milliseconds"}
    silent: dict[str, Any] = {"trigger": "100 milliseconds", "idle_after": None}
    for number, options in enumerate([now, beating, silent, now, silent, beating, now], 1):
        source.publish((f"e{number}", number * 10))
        checkpoint = str(tmp_path / "checkpoint")
        job = stream(spark, source.stream, checkpoint=checkpoint, subscriptions=[COUNT], **options)
        try:
            if options is now:
                assert job.await_termination(DEADLINE_S), "all there is, then stop"
            else:
                until_read(job, number)
        finally:
            job.stop()
        assert job.status()["events"] == number
    job.end()
    assert counts(job) == [("count", number * 10, 1.0) for number in range(1, 8)]


def test_a_second_job_on_the_checkpoint_of_a_running_one_is_refused(
    spark: SparkSession, source: Source, tmp_path: Path
) -> None:
    def start(checkpoint: str) -> Job:
        return stream(spark, source.stream, checkpoint=str(tmp_path / checkpoint), subscriptions=[COUNT])

    first = start("one")
    other = start("two")
    try:
        with pytest.raises(CheckpointError, match=f"one is the checkpoint of a running job .query {first._query.id}"):
            start("one/")
        assert first.is_active
        assert other.is_active
    finally:
        first.stop()
        other.stop()
    with pytest.raises(CheckpointError, match="another job"):
        stream(spark, source.stream, checkpoint=str(tmp_path / "one"), lateness="5 seconds")
    start("one").stop()


def test_results_can_be_read_before_there_are_any(spark: SparkSession, source: Source, tmp_path: Path) -> None:
    source.publish(("a", 1))
    job = stream(
        spark,
        source.stream,
        checkpoint=str(tmp_path / "checkpoint"),
        subscriptions=[COUNT, EVERYTHING],
        overlay=TWO_BROKERS,
        trigger="available now",
    )
    names = ("notifications", "deliveries", "dropped", "rejected", "traffic")
    schemas = {name: getattr(job, name).dtypes for name in names}
    finished(job)
    results = tmp_path / "checkpoint" / "results"
    for name in names:
        # As a batch leaves it that is under way, or was cut off.
        (results / name / "_temporary").mkdir(parents=True, exist_ok=True)
        (results / name / "batch=9").mkdir()
    assert [getattr(job, name).count() for name in names] == [0, 1, 0, 0, 0]
    assert {name: getattr(job, name).dtypes for name in names} == schemas


def test_sinks_are_called_once_a_batch(spark: SparkSession, source: Source, tmp_path: Path, capsys: Any) -> None:
    told: list[tuple[int, int]] = []

    def sink(results: BatchResults, batch_id: int) -> None:
        told.append((batch_id, results.deliveries.count()))

    source.publish(("a", 1))
    source.publish(("b", 2), ("c", 3))
    common: dict[str, Any] = {"subscriptions": [EVERYTHING], "trigger": "available now"}
    job = finished(stream(spark, source.stream, checkpoint=str(tmp_path / "one"), sink=sink, **common))
    assert told == [(0, 1), (1, 2)]
    with pytest.raises(ConfigurationError, match="from a ParquetSink only"):
        _ = job.deliveries
    finished(stream(spark, source.stream, checkpoint=str(tmp_path / "two"), sink=ConsoleSink(), **common))
    assert "everything" in capsys.readouterr().out
    folder = tmp_path / "results"
    finished(stream(spark, source.stream, checkpoint=str(tmp_path / "three"), sink=ParquetSink(str(folder)), **common))
    assert spark.read.parquet(str(folder / "deliveries")).count() == 3


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        ({"placement": "nowhere"}, ConfigurationError, "placement is 'nowhere'; accepted are late, early"),
        ({"delivery": "sometimes"}, ConfigurationError, "delivery is 'sometimes'"),
        ({"lateness": "a while"}, SubscriptionError, "'a while' is no duration"),
        ({"lateness": "-1 seconds"}, ConfigurationError, "lateness is '-1 seconds'"),
        ({"trigger": "now"}, SubscriptionError, "'now' is no duration"),
        ({"schema": {"speed": "string"}}, EventError, "column 'speed' has type double; accepted for string"),
        ({"overlay": Overlay.single("b7")}, OverlayError, "b1"),
        ({"subscriptions": [COUNT, COUNT]}, SubscriptionError, "two subscriptions are named 'count'"),
    ],
)
def test_impossible_settings_are_refused(
    spark: SparkSession, source: Source, tmp_path: Path, options: dict[str, Any], error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        stream(
            spark, source.stream, **{"checkpoint": str(tmp_path / "checkpoint"), "subscriptions": [COUNT], **options}
        )


def test_a_bounded_table_is_no_stream(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="bounded DataFrame"):
        stream(spark, spark.createDataFrame([], SCHEMA), checkpoint=str(tmp_path), subscriptions=[COUNT])


def test_names_in_another_case_are_the_same_columns(spark: SparkSession, source: Source, tmp_path: Path) -> None:
    # A stream reads only columns that somebody asks about; the second is asked about while it runs.
    asked = [
        Subscription(name, "b1", sql=f"SELECT max({name}) FROM traffic GROUP BY window(ts, '10 seconds')")
        for name in ("SPEED", "Vehicles")
    ]
    job = stream(spark, source.stream, checkpoint=str(tmp_path / "checkpoint"), subscriptions=asked[:1])
    job.subscribe(asked[1])
    source.publish(("a", 1), ("b", 12))
    until(lambda: job.status()["events"] == 2, job)
    job.end()
    assert {(row.output, row.value) for row in job.notifications.collect()} == {
        ("max(SPEED)", 1.0),
        ("max(Vehicles)", 1.0),
    }


def test_what_a_stopped_batch_raises_is_short_enough_for_spark_to_search(spark: SparkSession) -> None:
    # Spark looks for an interruption in all that a batch raises, by a pattern that recurses for every character.
    raised: list[BaseException] = []
    thread_ids: queue.Queue[int] = queue.Queue()
    jvm: Any = spark.sparkContext._jvm

    def wait() -> None:
        thread_ids.put(jvm.java.lang.Thread.currentThread().getId())
        try:
            await_interruption(spark)
        except StoppedError as error:
            raised.append(error)

    waiting = InheritableThread(target=wait)
    waiting.start()
    number = thread_ids.get(timeout=30)
    while waiting.is_alive():
        for thread in jvm.java.lang.Thread.getAllStackTraces().keySet().toArray():
            if thread.getId() == number:
                thread.interrupt()
        waiting.join(0.1)
    assert "java.lang.InterruptedException" in str(raised[0])
    assert len("".join(traceback.format_exception(raised[0]))) < 2_000


def test_a_batch_that_runs_again_counts_silence_as_when_it_began(
    spark: SparkSession, source: Source, tmp_path: Path
) -> None:
    # Told of b1 alone, b2 is waited for as long as `idle_after` says: a batch that was cut off behind its sink must not
    # close other windows when it runs again, or what it had handed over would be told twice.
    source.publish(("a", 1), ("b", 14))
    seen: list[tuple[int, int]] = []

    def fail_once(results: BatchResults, batch: int) -> None:
        seen.append((batch, results.notifications.count()))
        if len(seen) == 1:
            raise RuntimeError("cut off")

    def begin(idle_after: str | None) -> Job:
        return stream(
            spark,
            source.stream,
            checkpoint=str(tmp_path / "checkpoint"),
            subscriptions=[COUNT],
            overlay=TWO_BROKERS,
            sink=fail_once,
            trigger="300 milliseconds",
            idle_after=idle_after,
        )

    with pytest.raises(Exception, match="cut off"):
        begin(None).await_termination(DEADLINE_S)
    job = begin("1 hour")
    try:
        until(lambda: job.status()["batch"] >= 0, job)
    finally:
        job.stop()
    assert seen[:2] == [(0, 1), (0, 1)]
