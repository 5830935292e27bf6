"""What a replay does besides being equal to the oracle: planning, types, traffic, bad input."""

from collections import Counter
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from catchment import Overlay, Subscription, replay
from catchment.model.errors import ConfigurationError, EventError, OverlayError, SchemaError, SubscriptionError
from catchment.overlay import topic_tree
from catchment.pipeline.statistics import finite_columns

pytestmark = pytest.mark.spark

COLUMNS = "event_id bigint, topic string, broker string, ts timestamp, highway string, speed double, vehicles bigint"
LINE = Overlay.from_links([("b1", "b2"), ("b2", "b3")])


def at(second: float) -> datetime:
    return datetime.fromtimestamp(1_400_000_000 + second, UTC)


def events(spark: SparkSession, *rows: tuple[Any, ...], columns: str = COLUMNS) -> DataFrame:
    return spark.createDataFrame(list(rows), columns)


@pytest.fixture(scope="module")
def traffic(spark: SparkSession) -> DataFrame:
    rows = [(n, "traffic", f"b{1 + n % 3}", at(n), str(400 + n % 2), 100.0 - n, n) for n in range(30)]
    return events(spark, *rows)


def counting(name: str, at: str | None = None, where: str = "speed > 0", size: str = "10 seconds") -> Subscription:
    return Subscription(name, at, sql=f"SELECT count(*) FROM traffic WHERE {where} GROUP BY window(ts, '{size}')")


def test_few_questions_are_planned_as_sql_and_many_share_a_pass(spark: SparkSession, traffic: DataFrame) -> None:
    few = replay(spark, traffic, subscriptions=[counting("one")])
    many = replay(spark, traffic, subscriptions=[counting(f"s{n}", where=f"speed > {n}") for n in range(40)])
    assert "plain Spark SQL" in few.explain()
    assert "shared pass" in many.explain()
    assert "40 distinct filters, 40 questions" in many.explain()


def test_windows_that_overlap_far_go_through_the_shared_pass(spark: SparkSession, traffic: DataFrame) -> None:
    sql = "SELECT count(*) FROM traffic GROUP BY window(ts, '1 day', '1 second')"
    run = replay(spark, traffic, subscriptions=[Subscription("s", sql=sql)])
    assert "an event lies in 86400 windows" in run.explain()
    assert "plain Spark SQL" in replay(spark, traffic, subscriptions=[counting("one")]).explain()


def test_two_thousand_columns_are_no_obstacle(spark: SparkSession, tmp_path: Path) -> None:
    count = 6
    columns = {f"c{number}": pa.array([1.0] * count) for number in range(2_000)}
    columns["c7"] = pa.array([1.0, 1.0, 1.0, float("nan"), None, 1.0])
    columns["c8"] = pa.array([float("inf"), *[1.0] * 5])
    table = pa.table(
        {
            "event_id": list(range(count)),
            "topic": ["t"] * count,
            "broker": ["b1"] * count,
            "ts": pa.array([second * 1_000_000 for second in range(count)], pa.timestamp("us", tz="UTC")),
            "x": [float(second) for second in range(count)],
            **columns,
        }
    )
    pq.write_table(table, tmp_path / "wide.parquet")
    frame = spark.read.parquet(str(tmp_path))
    assert finite_columns(frame, ["x", "c6", "c7", "c8", "topic", "missing"]) == {"x", "c6"}
    sql = "SELECT sum(x) FROM t WHERE x < 5 GROUP BY window(ts, '1 minute')"
    for engine in ("sql", "shared"):
        run = replay(spark, frame, subscriptions=[Subscription("s", "b1", sql=sql)], engine=engine)  # type: ignore[arg-type]
        assert [row.value for row in run.notifications.collect()] == [1.0 + 2.0 + 4.0]
        read = run.notifications._jdf.queryExecution().executedPlan().toString()
        assert "c9" not in read, "columns that nobody asks about and that are finite are not read"
    reasons = {row.event_id: row.reason for row in run.rejected.collect()}
    assert reasons == {0: "c8 is NaN or infinite", 3: "c7 is NaN or infinite"}


@pytest.mark.parametrize("file_format", ["csv", "json"])
def test_two_thousand_columns_of_text_files_are_no_obstacle(
    spark: SparkSession, tmp_path: Path, file_format: str
) -> None:
    kinds = "event_id BIGINT, topic STRING, broker STRING, ts TIMESTAMP, x DOUBLE, " + ", ".join(
        f"c{number} DOUBLE" for number in range(2_000)
    )
    wide = spark.range(3).selectExpr(
        "id AS event_id", "'t' AS topic", "'b' AS broker", "timestamp_micros(id) AS ts", "CAST(id AS DOUBLE) AS x",
        *(f"CAST({number} AS DOUBLE) AS c{number}" for number in range(2_000)),
    )  # fmt: skip
    wide.coalesce(1).write.format(file_format).save(str(tmp_path / "finite"))
    frame = spark.read.schema(kinds).format(file_format).load(str(tmp_path / "finite"))
    sql = "SELECT sum(x) FROM t WHERE x > 0 GROUP BY window(ts, '1 minute')"
    for engine in ("sql", "shared"):
        run = replay(spark, frame, subscriptions=[Subscription("s", sql=sql)], engine=engine)  # type: ignore[arg-type]
        assert [row.value for row in run.notifications.collect()] == [3.0]
        read = run.notifications._jdf.queryExecution().executedPlan().toString()
        assert "c9" not in read, "columns that nobody asks about and that are finite are not read"
    odd = wide.withColumn("c7", F.expr("IF(event_id = 2, DOUBLE('infinity'), c7)"))
    odd.coalesce(1).write.format(file_format).save(str(tmp_path / "infinite"))
    frame = spark.read.schema(kinds).format(file_format).load(str(tmp_path / "infinite"))
    run = replay(spark, frame, subscriptions=[Subscription("s", sql=sql)])
    assert [row.value for row in run.notifications.collect()] == [1.0]
    assert [(row.event_id, row.reason) for row in run.rejected.collect()] == [(2, "c7 is NaN or infinite")]


def constraint_count(frame: DataFrame) -> int:
    """How many conditions Spark infers on the way to what it knows of the rows of some step, at most."""
    waiting, found = [frame._jdf.queryExecution().optimizedPlan()], 0
    while waiting:
        plan = waiting.pop()
        found = max(found, plan.validConstraints().size())
        waiting += [plan.children().apply(at) for at in range(plan.children().size())]
    return found


def test_spark_infers_no_more_from_conditions_than_it_can_hold(spark: SparkSession, tmp_path: Path) -> None:
    """Each renamed column doubles what Spark infers from a condition over many: thirteen took it minutes."""
    names = [f"x{number}" for number in range(9)]
    columns = (f"CAST(id AS DOUBLE) AS {name}" for name in names)
    reserved = ("id AS event_id", "'t' AS topic", "'b' AS broker", "timestamp_micros(id) AS ts")
    spark.range(3).selectExpr(*reserved, *columns).write.parquet(str(tmp_path / "events"))
    frame = spark.read.parquet(str(tmp_path / "events"))
    sums, grouped = ", ".join(f"sum({name})" for name in names), "GROUP BY window(ts, '1 minute')"
    any_of_them = " OR ".join(f"{name} > 1" for name in names)
    for where, wanted in ((f"{names[0]} >= 0", 3.0), (any_of_them, 2.0)):
        asked = [Subscription("s", sql=f"SELECT {sums} FROM t WHERE {where} {grouped}")]
        for engine in ("sql", "shared"):
            answers = replay(spark, frame, subscriptions=asked, engine=engine).notifications  # type: ignore[arg-type]
            assert constraint_count(answers) < 100
            assert [row.value for row in answers.collect()] == [wanted] * len(names)
    run = replay(spark, frame, subscriptions=[Subscription("s", sql=f"SELECT * FROM t WHERE {any_of_them}")])
    assert constraint_count(run.delivered("s")) < 100
    assert [row.event_id for row in run.delivered("s").collect()] == [2]


def test_what_a_regular_subscription_asks_reaches_the_files(spark: SparkSession, tmp_path: Path) -> None:
    reserved = ("id AS event_id", "'t' AS topic", "'b' AS broker", "timestamp_micros(id) AS ts")
    spark.range(3).selectExpr(*reserved, "CAST(id AS DOUBLE) AS x").write.parquet(str(tmp_path / "events"))
    frame = spark.read.parquet(str(tmp_path / "events"))
    run = replay(spark, frame, subscriptions=[Subscription("s", sql="SELECT * FROM t WHERE x > 1")])
    assert [row.event_id for row in run.delivered("s").collect()] == [2]
    assert "GreaterThanOrEqual(x," in run.delivered("s")._jdf.queryExecution().executedPlan().toString()


def test_replays_leave_no_files_behind(spark: SparkSession, traffic: DataFrame) -> None:
    folder = Path(str(spark.sparkContext._temp_dir))
    before = sorted(folder.iterdir())
    for number in range(3):
        asked = [counting(f"s{n}", where=f"speed > {n + number}") for n in range(20)]
        assert replay(spark, traffic, subscriptions=asked).notifications.count() > 0
    assert sorted(folder.iterdir()) == before


@pytest.mark.parametrize(
    ("zone", "exact"),
    [("America/New_York", "2026-03-08T02:30:00.500000Z"), ("Pacific/Apia", "2011-12-30T12:00:00.000000Z")],
)
def test_times_without_a_zone_are_utc_also_where_the_clock_of_the_session_has_a_gap(
    spark: SparkSession, zone: str, exact: str
) -> None:
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        moment = f"TIMESTAMP_NTZ '{exact.removesuffix('Z')}'"
        columns = f"1L AS event_id, 't' AS topic, 'b' AS broker, {moment} AS ts, CAST({moment} AS DATE) AS day"
        asked = Subscription("s", sql="SELECT max(ts), max(day) FROM t GROUP BY window(ts, '1 hour')")
        run = replay(spark, spark.sql(f"SELECT {columns}"), subscriptions=[asked])
        found = {row.output: row.exact for row in run.notifications.collect()}
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    assert found == {"max(ts)": f'"{exact}"', "max(day)": f'"{exact[:10]}T00:00:00.000000Z"'}


def test_what_spark_cannot_say_goes_through_the_shared_pass(spark: SparkSession, traffic: DataFrame) -> None:
    sampling = Subscription("s", sql="SELECT count(*) FROM traffic GROUP BY window(ts, '1 second', '5 seconds')")
    run = replay(spark, traffic, subscriptions=[sampling])
    assert "refuses sampling windows" in run.explain()
    assert run.notifications.count() == 6
    with pytest.raises(ConfigurationError, match="engine 'sql' cannot answer"):
        replay(spark, traffic, subscriptions=[sampling], engine="sql")


def test_equal_questions_are_computed_once_and_told_to_all(spark: SparkSession, traffic: DataFrame) -> None:
    asked = ["speed > 50 AND vehicles < 20", "NOT (vehicles >= 20 OR speed <= 50)"]
    run = replay(
        spark, traffic, subscriptions=[counting(f"s{n}", where=w) for n, w in enumerate(asked)], engine="shared"
    )
    assert "2 aggregate and 0 regular subscriptions on 1 topics: 1 distinct filters, 1 questions" in run.explain()
    rows = [(r.window_start, r.value) for r in run.notifications.where("subscription = 's0'").collect()]
    same = [(r.window_start, r.value) for r in run.notifications.where("subscription = 's1'").collect()]
    assert rows
    assert sorted(rows) == sorted(same)


def test_a_regular_subscription_gets_the_columns_it_asked_for(spark: SparkSession, traffic: DataFrame) -> None:
    some = Subscription("some", sql="SELECT highway, speed FROM traffic WHERE vehicles < 2")
    everything = Subscription("all", sql="SELECT * FROM traffic WHERE vehicles < 1")
    run = replay(spark, traffic, subscriptions=[some, everything]).persist()
    assert sorted(map(tuple, run.delivered("some").collect())) == [(0, "400", 100.0), (1, "401", 99.0)]
    assert run.delivered("all").columns == ["event_id", "topic", "broker", "ts", "highway", "speed", "vehicles"]
    with pytest.raises(ConfigurationError, match="no regular subscription is named 'other'; there are some, all"):
        run.delivered("other")
    run.unpersist()


@pytest.mark.parametrize("placement", ["late", "early"])
def test_traffic_is_what_walking_every_hop_counts(spark: SparkSession, traffic: DataFrame, placement: Any) -> None:
    regular = Subscription("r", "b3", sql="SELECT * FROM traffic WHERE speed > 90")
    near, far = counting("near", "b1", "speed > 80"), counting("far", "b3", "vehicles > 3", size="7 seconds")
    run = replay(spark, traffic, subscriptions=[regular, near, far], overlay=LINE, placement=placement)
    tree = topic_tree(LINE)
    expected: Counter[tuple[str, str, str]] = Counter()

    def walk(source: str, target: str) -> list[tuple[str, str]]:
        path = tree.path(LINE.require(source), LINE.require(target))
        return [(LINE.brokers[a], LINE.brokers[b]) for a, b in pairwise(path)]

    partials: set[tuple[str, int, str, str]] = set()
    for row in traffic.collect():
        wants = [("b3", None)] * (row.speed > 90)
        for name, broker, wanted, size in (
            ("near", "b1", row.speed > 80, 10),
            ("far", "b3", row.vehicles > 3, 7),
        ):
            if wanted and placement == "late":
                wants.append((broker, None))
            elif wanted:
                window = int(row.ts.timestamp()) // size
                partials |= {(name, window, *link) for link in walk(row.broker, broker)}
        expected.update(
            (*link, "publication") for link in {link for broker, _ in wants for link in walk(row.broker, broker)}
        )
    expected.update((source, target, "partial") for _, _, source, target in partials)
    told = Counter({"b1": 0, "b3": 0})
    for row in run.notifications.collect():
        told["b1" if row.subscription == "near" else "b3"] += 1
    expected.update({(broker, "clients", "notification"): count for broker, count in told.items()})
    got = {(row.source, row.target, row.kind): row.messages for row in run.traffic.collect()}
    assert got == dict(expected)


def test_columns_of_kindred_types_are_accepted(spark: SparkSession) -> None:
    columns = (
        "event_id string, topic string, broker string, ts timestamp_ntz, day date, speed decimal(10,2), lanes int, "
        "x array<int>"
    )
    local = datetime(2014, 5, 13, 16, 53, tzinfo=UTC).replace(tzinfo=None)
    rows = [("a", "t", "b", local, date(2014, 5, 13), Decimal("12.50"), 3, [1])]
    frame = events(spark, *rows, columns=columns)
    asked = Subscription("s", sql="SELECT max(speed), max(day), sum(lanes) FROM t GROUP BY window(ts, '1 minute')")
    found = {row.output: row for row in replay(spark, frame, subscriptions=[asked]).notifications.collect()}
    assert found["max(speed)"].value == 12.5
    assert found["sum(lanes)"].exact == "3"
    assert found["max(day)"].exact == '"2014-05-13T00:00:00.000000Z"'
    assert found["max(speed)"].window_start.timestamp() == datetime(2014, 5, 13, 16, 53, tzinfo=UTC).timestamp()
    with pytest.raises(SubscriptionError, match="attribute 'x' has type array<int>; accepted are bool"):
        replay(spark, frame, subscriptions=[Subscription("s", sql="SELECT * FROM t WHERE x = 1")])


def test_repeated_ids_are_one_event_if_asked(spark: SparkSession) -> None:
    rows = [(1, "traffic", b, at(s), "401", 1.0, 1) for b, s in (("b1", 0), ("b1", 5), ("b2", 5), ("b1", 300))]
    everything = Subscription("all", sql="SELECT * FROM traffic")
    frame = events(spark, *rows)
    assert replay(spark, frame, subscriptions=[everything]).deliveries.count() == 4
    assert replay(spark, frame, subscriptions=[everything], deduplicate=True).deliveries.count() == 3


@pytest.mark.parametrize("engine", ["sql", "shared"])
def test_a_corrected_resend_and_another_topic_are_no_repeats(spark: SparkSession, engine: Any) -> None:
    rows = [
        (1, "traffic", "b1", at(0), "401", float("nan"), 1),
        (1, "traffic", "b1", at(0), "401", 1.0, 1),
        (1, "traffic", "b1", at(1), "401", 1.0, 1),
        (1, "roadworks", "b1", at(2), "401", 1.0, 1),
        (2, "roadworks", "b1", at(3), "401", 1.0, 1),
        (2, "traffic", "b1", at(4), "401", 1.0, 1),
    ]
    counted = Subscription("count", sql="SELECT count(*) FROM traffic GROUP BY window(ts, '1 day')")
    run = replay(spark, events(spark, *rows), subscriptions=[counted], deduplicate=True, engine=engine)
    assert [row.value for row in run.notifications.collect()] == [2.0]
    assert [row.event_id for row in run.rejected.collect()] == [1]


def test_rejected_events_are_listed_with_a_reason(spark: SparkSession) -> None:
    rows = [
        (1, "traffic", "b1", at(0), "401", 1.0, 1),
        (2, "traffic", "b1", at(0), "401", float("inf"), 1),
        (3, "traffic", "b9", at(0), "401", 1.0, 1),
        (4, "weather", "b1", at(0), "401", 1.0, 1),
        (5, "traffic", "b1", None, "401", 1.0, 1),
    ]
    schema = {"traffic": {"highway": "string", "speed": "float", "vehicles": "int"}}
    for engine in ("shared", "sql"):
        run = replay(
            spark,
            events(spark, *rows),
            subscriptions=[counting("c", "b2", "TRUE")],
            overlay=LINE,
            schema=schema,
            engine=engine,
        )
        assert [row.value for row in run.notifications.collect()] == [1.0], engine
    reasons = {row.event_id: row.reason for row in run.rejected.collect()}
    assert reasons == {
        2: "speed is NaN or infinite",
        3: reasons[3],
        4: "unknown topic; known are traffic",
        5: "ts is missing",
    }
    assert "overlay" in reasons[3]


@pytest.mark.parametrize(
    ("sql", "says"),
    [
        ("SELECT * FROM weather", "unknown topic 'weather'; known are traffic"),
        ("SELECT * FROM traffic WHERE colour = 'red'", "no attribute 'colour'; it has"),
        ("SELECT * FROM traffic WHERE speed = 'fast'", "'speed' is of type float"),
        ("SELECT sum(highway) FROM traffic GROUP BY window(ts, '1 hour')", "accepted are int, float"),
    ],
)
def test_subscriptions_that_do_not_fit_the_schema(spark: SparkSession, traffic: DataFrame, sql: str, says: str) -> None:
    schema = {"traffic": {"highway": "string", "speed": "float", "vehicles": "int"}}
    with pytest.raises(SubscriptionError, match=says):
        replay(spark, traffic, subscriptions=[Subscription("s", sql=sql)], schema=schema)


def test_impossible_settings_are_refused(spark: SparkSession, traffic: DataFrame) -> None:
    with pytest.raises(ConfigurationError, match="placement is 'soon'; accepted are late, early"):
        replay(spark, traffic, subscriptions=[], placement="soon")  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="engine is 'flink'"):
        replay(spark, traffic, subscriptions=[], engine="flink")  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match=r"publications is of type Row; accepted is pyspark\.sql\.\w+\.Data"):
        replay(spark, traffic.first(), subscriptions=[])  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match=r"overlay is of type list; accepted is catchment\.overlay\."):
        replay(spark, traffic, subscriptions=[], overlay=[("b1", "b2")])  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match=r"subscriptions is of type Subscription; accepted is a list of"):
        replay(spark, traffic, subscriptions=counting("c"))  # type: ignore[arg-type]
    with pytest.raises(OverlayError, match="b7"):
        replay(spark, traffic, subscriptions=[counting("c", "b7")], overlay=LINE)
    with pytest.raises(SubscriptionError, match="names no broker"):
        replay(spark, traffic, subscriptions=[counting("c")], overlay=LINE)
    with pytest.raises(EventError, match="lack the columns topic, broker"):
        replay(spark, traffic.drop("topic", "broker"), subscriptions=[])
    with pytest.raises(EventError, match="column 'ts' has type bigint"):
        replay(spark, traffic.withColumn("ts", traffic.vehicles), subscriptions=[])
    with pytest.raises(EventError, match="column 'event_id' has type double"):
        replay(spark, traffic.withColumn("event_id", traffic.speed), subscriptions=[])
    with pytest.raises(SchemaError, match="'speed' is"):
        replay(spark, traffic, subscriptions=[], schema={"a": {"speed": "float"}, "b": {"speed": "int"}})


def test_no_subscriptions_and_no_events_are_fine(spark: SparkSession, traffic: DataFrame) -> None:
    run = replay(spark, traffic, subscriptions=[])
    assert (run.notifications.count(), run.deliveries.count(), run.traffic.count()) == (0, 0, 0)
    for engine in ("shared", "sql"):
        run = replay(spark, traffic.limit(0), subscriptions=[counting("c", "b1")], overlay=LINE, engine=engine)
        assert (run.notifications.count(), run.deliveries.count(), run.traffic.count()) == (0, 0, 0)
