"""A running overlay as a Spark source: each event once, both planes with the same values, refusals by name."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.datasource import ReadMaxRows

from catchment import CatchmentError, OverlaySource, Subscription, connect, oracle, stream
from catchment.app.config import load_configuration
from catchment.app.running import run_job
from catchment.lab.progress import Steps
from catchment.model.results import NOTIFICATION_SCHEMA
from catchment.oracle import differences
from catchment.pipeline.sources import FromOverlay, open_stream
from catchment.transport.description import Description
from catchment.transport.history import HistoryGoneError, Kept
from catchment.transport.jetstream import JetStream
from catchment.transport.names import history_stream
from catchment.transport.server import Server
from catchment.transport.status import figures_of
from catchment.transport.wire import open_connection
from tests.transport.conftest import SCHEMAS, Live, eventually
from tests.transport.test_kills import SQL, events_of, wrong

WEEK = Kept(keep_us=7 * 86_400_000_000)
DEADLINE_S = 240


@pytest.fixture
def overlay(tmp_path: Path) -> Iterator[Live]:
    with Server(tmp_path / "server") as server:
        made = Live(server, tmp_path, [("b1", "b2"), ("b2", "b3")], history=WEEK)
        asyncio.run(made.start())
        yield made
        made.stop()


def rows(begin: int, end: int) -> list[dict[str, Any]]:
    return [
        {"event_id": f"e{n}", "ts": n * 1_000_000, "speed": float(n % 7), "highway": str(n % 3)}
        for n in range(begin, end)
    ]


def publish(overlay: Live, broker: str, some: list[dict[str, Any]], size: int = 10) -> None:
    with connect(overlay.url, broker=broker) as client:
        for begin in range(0, len(some), size):
            assert client.publish("traffic", some[begin : begin + size]).dropped == ()


async def add_topics(overlay: Live, topics: dict[str, dict[str, str]]) -> None:
    """Add to an overlay, and wait until all of its brokers know."""
    connection = await open_connection(overlay.url, "test")
    try:
        known = (await Description.add_topics(JetStream(connection), topics)).known_topics

        async def is_known() -> bool:
            found = await figures_of(connection, overlay.brokers)
            return all(one is not None and one.topics == known for one in found.values())

        await eventually(is_known)
    finally:
        await connection.close()


def wait_for(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


@pytest.mark.spark
def test_all_that_was_accepted_is_read_once_in_batches_of_the_size_that_is_asked_for(
    spark: SparkSession, overlay: Live, tmp_path: Path
) -> None:
    publish(overlay, "b1", rows(0, 100))
    publish(overlay, "b3", rows(100, 130))
    batch = spark.read.format("catchment").option("server", overlay.url).load()
    assert batch.columns == ["event_id", "topic", "broker", "ts", "speed", "highway", "vehicles"]
    found = batch.toArrow().to_pylist()
    assert sorted(one["event_id"] for one in found) == sorted(f"e{n}" for n in range(130))
    assert {(one["topic"], one["broker"]) for one in found} == {("traffic", "b1"), ("traffic", "b3")}
    assert all(one["speed"] == int(one["event_id"][1:]) % 7 and one["vehicles"] is None for one in found)
    sizes: list[int] = []

    def take(frame: DataFrame, number: int) -> None:
        sizes.append(frame.count())

    frame = spark.readStream.format("catchment").option("server", overlay.url).option("maxRowsPerBatch", 40).load()
    for more in (0, 7):
        if more:
            asyncio.run(add_topics(overlay, {"traffic": {"lane": "int"}, "weather": {"rain": "float"}}))
            publish(overlay, "b2", [{**row, "lane": 1} for row in rows(130, 130 + more)])
        query = frame.writeStream.foreachBatch(take).option("checkpointLocation", str(tmp_path / "c"))
        query.trigger(availableNow=True).start().awaitTermination(DEADLINE_S)
    assert sum(sizes) == 137
    assert len(sizes) >= 4
    assert max(sizes) <= 40
    again = spark.read.format("catchment").option("server", overlay.url).load()
    assert again.columns == [*batch.columns, "lane", "rain"]
    assert again.where("lane = 1").count() == 7
    assert again.where("lane IS NULL").count() == 130


JOB = """
[topics.traffic]
speed = "float"
highway = "string"
vehicles = "int"

[overlay]
links = [["b1", "b2"], ["b2", "b3"]]

[source]
format = "overlay"
server = "{url}"

[sink]
path = "results"

[options]
checkpoint = "checkpoint"
trigger = "100 milliseconds"
idle_after = "never"
master = "local[2]"

[history]
keep = "7 days"
"""


@pytest.mark.spark
def test_both_planes_tell_the_same_also_of_a_job_that_was_killed(
    spark: SparkSession, overlay: Live, tmp_path: Path
) -> None:
    asked = "".join(
        f'[[subscriptions]]\nname = "{n}"\nat = "b2"\nplane = "spark"\nsql = """{s}"""\n' for n, s in SQL.items()
    )
    file, results, sent = tmp_path / "job.toml", tmp_path / "results", list[tuple[str, dict[str, Any]]]()
    file.write_text(JOB.format(url=overlay.url) + asked)
    told: dict[str, list[Any]] = {name: [] for name in SQL}
    publishers = {broker: connect(overlay.url, broker=broker).blocking() for broker in ("b1", "b3")}
    random = Random(7)
    with connect(overlay.url, broker="b2") as client:
        subscriptions = {name: client.subscribe(sql, name=name) for name, sql in SQL.items()}
        numbers = iter(range(1_000))

        def publish_some(count: int) -> None:
            for number in (next(numbers) for _ in range(count)):
                for broker, publisher in publishers.items():
                    some = events_of(random, broker, number)
                    assert publisher.publish("traffic", some).dropped == ()
                    sent.extend((broker, one) for one in some)

        publish_some(20)
        command = [str(Path(sys.executable).with_name("catchment")), "run", str(file)]
        with (tmp_path / "log").open("wb") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
            try:
                wait_for((results / "deliveries").exists, "no results")
                publish_some(15)
            finally:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        publish_some(15)
        for publisher in publishers.values():
            publisher.unadvertise("traffic")
            publisher.close()
        deadline = time.monotonic() + DEADLINE_S
        while wrong(sent, told) and time.monotonic() < deadline:
            for name, subscription in subscriptions.items():
                told[name] += rest_of(subscription)
        assert wrong(sent, told) == []
    expected = oracle(
        published(sent), subscriptions=[Subscription(name, sql=sql) for name, sql in SQL.items()], schema=SCHEMAS
    )

    def is_all_read() -> bool:
        """Everything was read, and windows have closed although b2 has never said anything."""
        assert time.monotonic() < deadline + DEADLINE_S
        try:
            counts = [len(written(results, name)) for name in ("deliveries", "notifications")]
        except (KeyError, OSError):
            # A folder is about to be written.
            return False
        return counts[0] == len(expected.delivered) and counts[1] > len(expected.lines) // 2

    ran = run_job(load_configuration(file), seconds=None, end=True, steps=Steps(), until=is_all_read, spark=spark)
    assert ran.status["dropped"] == ran.status["rejected"] == 0
    assert ran.status["events"] == len(sent)
    assert differences(expected, written(results, "notifications"), written(results, "deliveries")) == []


def rest_of(subscription: Any) -> list[Any]:
    """What a subscription has brought, until nothing comes for a while."""
    found: list[Any] = []
    try:
        while True:
            found.append(subscription.next(within_s=0.5))
    except TimeoutError:
        return found


def written(results: Path, name: str) -> pa.Table:
    found = ds.dataset(results / name, format="parquet", partitioning="hive").to_table()
    if name == "deliveries":
        return found.select(["subscription", "event_id"])
    for column in ("window_start", "window_end"):
        # Spark writes nanoseconds.
        place = found.schema.get_field_index(column)
        found = found.set_column(place, column, found.column(column).cast(pa.timestamp("us", tz="UTC")))
    return found.select(NOTIFICATION_SCHEMA.names)


def published(sent: list[tuple[str, dict[str, Any]]]) -> pa.Table:
    kinds = {"event_id": pa.string(), "ts": pa.timestamp("us", tz="UTC"), "speed": pa.float64(), "highway": pa.string()}
    columns = {name: pa.array([one[name] for _, one in sent], kind) for name, kind in kinds.items()}
    columns["vehicles"] = pa.array([one["vehicles"] for _, one in sent], pa.int64())
    return pa.table({**columns, "topic": ["traffic"] * len(sent), "broker": [broker for broker, _ in sent]})


def test_a_history_that_has_dropped_what_comes_next_is_refused_by_name(
    overlay: Live, caplog: pytest.LogCaptureFixture
) -> None:
    publish(overlay, "b1", rows(0, 50))
    source = OverlaySource({"server": overlay.url})
    reader = source.streamReader(source.schema())
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadMaxRows(60))
    (stretch,) = (one for one in reader.partitions(start, end) if one.broker == "b1")
    assert sum(batch.num_rows for batch in reader.read(stretch)) == 20

    async def purge(before: int) -> None:
        connection = await open_connection(overlay.url, "test")
        await JetStream(connection).purge(history_stream("b1"), before)
        await connection.close()

    asyncio.run(purge(end["b1"] + 2))
    gone = rf"'b1' begins at {end['b1'] + 2}; {end['b1'] + 1} to {end['b1'] + 1} were dropped .* failOnDataLoss"
    with pytest.raises(HistoryGoneError, match=gone):
        reader.latestOffset(end, ReadMaxRows(20))
    with pytest.raises(HistoryGoneError, match=rf"'b1' begins at {end['b1'] + 2}; 1 to .* were dropped"):
        list(reader.read(stretch))
    late = OverlaySource({"server": overlay.url, "since": "1970-01-01 00:00:29"})
    with pytest.raises(HistoryGoneError, match="'b1' has dropped events of times up to 1970-01-01 00:00:29"):
        late.streamReader(late.schema()).initialOffset()
    patient = OverlaySource({"server": overlay.url, "failOnDataLoss": "false"})
    reader = patient.streamReader(patient.schema())
    later = reader.latestOffset(end, ReadMaxRows(1_000))
    found = [batch for stretch in reader.partitions(end, later) for batch in reader.read(stretch)]
    assert pa.Table.from_batches(found).column("event_id").to_pylist() == [f"e{n}" for n in range(30, 50)]
    assert "were dropped by its limits" in caplog.text
    with pytest.raises(HistoryGoneError, match=r"ends at \d+, and 1000 was read: it is another history"):
        reader.latestOffset({"b1": 1_000, "b2": 0, "b3": 0}, ReadMaxRows(1))


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({}, "option 'server' is missing"),
        ({"server": "{url}", "sevrer": "x"}, "option 'sevrer' is unknown; accepted are server, topic"),
        ({"server": "{url}", "maxRowsPerBatch": "-1"}, "option 'maxRowsPerBatch' is '-1'; accepted is a whole number"),
        ({"server": "{url}", "failOnDataLoss": "maybe"}, "option 'failOnDataLoss' is 'maybe'; accepted are true"),
        ({"server": "{url}", "since": "soon"}, "since is 'soon'; accepted are a time"),
        ({"server": "{url}", "timeout": "soon"}, "'soon' is no duration"),
        ({"server": "{url}", "topics": "traffic, nothing"}, "unknown topic 'nothing'; the overlay has traffic"),
        (
            {"server": "nats://127.0.0.1:1", "timeout": "1 second"},
            "the server nats://127.0.0.1:1 was away for 1 seconds",
        ),
    ],
)
def test_options_that_cannot_be_are_refused_by_name(
    overlay_for_options: str, options: dict[str, str], reason: str
) -> None:
    given = {name: value.replace("{url}", overlay_for_options) for name, value in options.items()}
    with pytest.raises(CatchmentError) as raised:
        OverlaySource(given).schema()
    assert reason in str(raised.value)


@pytest.fixture(scope="module")
def overlay_for_options(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("options")
    with Server(folder / "server") as server:
        made = Live(server, folder, [], history=WEEK)

        async def describe() -> None:
            connection = await open_connection(server.url, "test")
            await made.description.store(JetStream(connection))
            await connection.close()

        asyncio.run(describe())
        yield server.url


def test_a_server_that_comes_back_is_waited_for(overlay: Live) -> None:
    publish(overlay, "b1", rows(0, 20))
    source = OverlaySource({"server": overlay.url, "timeout": "60 seconds"})
    reader = source.reader(source.schema())
    partitions = reader.partitions()
    overlay.server.kill()
    back = asyncio.new_event_loop()
    back.run_in_executor(None, lambda: (time.sleep(1.0), overlay.server.start()))
    found = [batch for one in partitions for batch in reader.read(one)]
    assert sum(batch.num_rows for batch in found) == 20
    back.run_until_complete(back.shutdown_default_executor())
    back.close()


@pytest.mark.spark
def test_windows_whose_beginning_is_dropped_are_left_out(spark: SparkSession, overlay: Live, tmp_path: Path) -> None:
    publish(overlay, "b1", rows(0, 60))

    async def purge() -> None:
        connection = await open_connection(overlay.url, "test")
        streams = JetStream(connection)
        state = await streams.state(history_stream("b1"))
        assert state is not None
        await streams.purge(history_stream("b1"), state.last - 3)
        await connection.close()

    asyncio.run(purge())
    sql = "SELECT count(*) FROM traffic GROUP BY window(ts, '10 seconds', '5 seconds')"
    opened = open_stream(spark, FromOverlay(server=overlay.url))
    job = stream(
        spark,
        opened.publications,
        checkpoint=str(tmp_path / "checkpoint"),
        subscriptions=[Subscription("s", sql=sql)],
        schema=SCHEMAS,
        trigger="available now",
        whole_from=opened.whole_from,
    )
    assert job.await_termination(DEADLINE_S)
    job.end()
    found = {row.window_start.timestamp(): row.value for row in job.notifications.collect()}
    assert job.status()["events"] == 40
    assert found == {20.0: 10.0, 25.0: 10.0, 30.0: 10.0, 35.0: 10.0, 40.0: 10.0, 45.0: 10.0, 50.0: 10.0, 55.0: 5.0}
