"""What was once answered wrongly in silence, each as small as it gets, on every engine that could answer."""

import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from catchment import CatchmentError, Subscription, oracle, replay, stream
from catchment.pipeline.replay import Engine
from tests.reference.engines import spark_schema
from tests.reference.spark_sql import configured
from tests.reference.values import moment_us

pytestmark = pytest.mark.spark

COUNT = "SELECT count(*) FROM t GROUP BY window(ts, '1 hour')"
ENGINES: list[Engine] = ["sql", "shared"]
HOUR_US = 3_600_000_000
SPRING_US = 1_772_949_600_000_000
"""2026-03-08 06:00 UTC, an hour before the clocks of New York change."""


def events(columns: Mapping[str, Any], **reserved: Any) -> pa.Table:
    """Publications with these attributes; of one topic at one broker and, unless said otherwise, at one time."""
    table = pa.table(dict(columns))
    count = len(table)
    data = {
        "event_id": reserved.get("event_id", pa.array(range(count), pa.int64())),
        "topic": reserved.get("topic", pa.array(["t"] * count)),
        "broker": reserved.get("broker", pa.array(["b"] * count)),
        "ts": pa.array(reserved.get("ts", [SPRING_US] * count), pa.timestamp("us", tz="UTC")),
    }
    return pa.table({**data, **{name: table.column(name) for name in table.schema.names}})


def publications(spark: SparkSession, table: pa.Table, partition_count: int = 1) -> DataFrame:
    # With its types said: without, a time without a zone would be read in that of the session.
    return spark.createDataFrame(table, spark_schema(table)).repartition(partition_count)


def asking(sql: str) -> list[Subscription]:
    return [Subscription("s", sql=sql)]


def counted(spark: SparkSession, table: pa.Table, conditions: Sequence[str], engine: Engine) -> dict[str, int | None]:
    """How many events satisfy each condition; None where it is refused."""
    asked = {}
    for condition in conditions:
        try:
            sql = f"SELECT count(*) FROM t WHERE {condition} GROUP BY window(ts, '10000 days')"
            asked[condition] = Subscription(condition, sql=sql)
            oracle(table.slice(0, 0), subscriptions=[asked[condition]])
        except CatchmentError:
            asked.pop(condition, None)
    run = replay(spark, publications(spark, table), subscriptions=asked.values(), engine=engine)
    found = {row.subscription: int(row.value) for row in run.notifications.collect()}
    return {condition: found.get(condition, 0) if condition in asked else None for condition in conditions}


def values(spark: SparkSession, table: pa.Table, sql: str, engine: Engine, partition_count: int = 1) -> list[Any]:
    """The values that one subscription with one output is told."""
    run = replay(spark, publications(spark, table, partition_count), subscriptions=asking(sql), engine=engine)
    return [row.value for row in run.notifications.orderBy("window_start").collect()]


@contextmanager
def streamed(spark: SparkSession, folder: Path, table: pa.Table, sql: str) -> Iterator[Any]:
    """A finished stream over the table."""
    (folder / "in").mkdir()
    pq.write_table(table, folder / "in" / "1.parquet")
    schema = publications(spark, table.slice(0, 0)).schema
    source = spark.readStream.schema(schema).parquet(str(folder / "in"))
    job = stream(
        spark, source, checkpoint=str(folder / "checkpoint"), subscriptions=asking(sql), trigger="available now"
    )
    job.await_termination(300)
    job.end()
    yield job


# -- groups are those that occurred ------------------------------------------------------------------------------------


def groups(notifications: DataFrame) -> list[tuple[str, ...]]:
    rows = notifications.toArrow().column("group").to_pylist()
    return sorted(tuple(value for _, value in sorted(row)) for row in rows)


def test_four_keys_with_60000_values_each_make_60000_groups(spark: SparkSession) -> None:
    count = 60_000
    table = events({name: pa.array([f"{name}{i}" for i in range(count)]) for name in "abcd"})
    sql = "SELECT count(*) FROM t GROUP BY window(ts, '1 hour'), a, b, c, d"
    found = groups(replay(spark, publications(spark, table), subscriptions=asking(sql), engine="shared").notifications)
    assert len(found) == count
    assert [group for group in found if len({text[1:] for text in group}) > 1] == []


def ten_keys(count: int) -> tuple[pa.Table, list[tuple[str, ...]], str]:
    draw = random.Random(0)
    names = [f"k{i}" for i in range(10)]
    table = events({name: pa.array([draw.randrange(100) for _ in range(count)], pa.int64()) for name in names})
    wanted = sorted({tuple(map(str, row)) for row in zip(*(table.column(n).to_pylist() for n in names), strict=True)})
    return table, wanted, f"SELECT count(*) FROM t GROUP BY window(ts, '1 hour'), {', '.join(names)}"


@pytest.mark.parametrize("engine", ENGINES)
def test_ten_keys_of_a_hundred_integers_keep_together(spark: SparkSession, engine: Engine) -> None:
    table, wanted, sql = ten_keys(20_000)
    found = replay(spark, publications(spark, table), subscriptions=asking(sql), engine=engine)
    assert groups(found.notifications) == wanted


def test_ten_keys_of_a_hundred_integers_keep_together_in_a_stream(spark: SparkSession, tmp_path: Path) -> None:
    table, wanted, sql = ten_keys(5_000)
    with streamed(spark, tmp_path, table, sql) as job:
        assert groups(job.notifications) == wanted


# -- times mean UTC unless they say otherwise --------------------------------------------------------------------------


AFTER_SPRING = [
    "ts >= TIMESTAMP '2026-03-08 06:00:00Z'",
    "ts >= TIMESTAMP '2026-03-08 06:00:00'",
    "ts >= '2026-03-08 06:00:00'",
    "ts >= '2026-03-08T01:00:00-05:00'",
    "ts BETWEEN '2026-03-08 06:00:00' AND '2026-03-08 14:59:59'",
    "ts NOT BETWEEN TIMESTAMP '2026-03-07' AND TIMESTAMP '2026-03-08 05:59:59.999999'",
    "ts IN (TIMESTAMP '2026-03-08 06:00:00') OR ts > '2026-03-08 06:00:00Z'",
    "local >= TIMESTAMP '2026-03-08 06:00:00'",
    "local >= '2026-03-08 06:00:00Z'",
]
"""All say the same of events at each hour from 03:00 to 14:00."""


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("zone", ["America/New_York", "Asia/Kolkata", "UTC"])
@pytest.mark.parametrize("default", ["TIMESTAMP_LTZ", "TIMESTAMP_NTZ"])
def test_time_literals_do_not_follow_the_session(spark: SparkSession, engine: Engine, zone: str, default: str) -> None:
    times = [SPRING_US + hour * HOUR_US for hour in range(-3, 9)]
    table = events({"local": pa.array(times, pa.timestamp("us"))}, ts=times)
    with configured(spark, {"spark.sql.session.timeZone": zone, "spark.sql.timestampType": default}):
        assert counted(spark, table, AFTER_SPRING, engine) == dict.fromkeys(AFTER_SPRING, 9)


@pytest.mark.parametrize("engine", ENGINES)
def test_days_that_an_older_calendar_leaves_out_are_found_in_files(
    spark: SparkSession, tmp_path: Path, engine: Engine
) -> None:
    """Spark hands filters to Parquet by way of a calendar in which the 15th of October 1582 follows the 4th."""
    time_us = moment_us("1582-10-14 20:00:00")
    table = events({"x": pa.array([time_us] * 3, pa.timestamp("us", tz="UTC"))}, ts=[time_us] * 3)
    pq.write_table(table, tmp_path / "1.parquet")
    literal = "TIMESTAMP '1582-10-14 20:00:00Z'"
    conditions = [f"x = {literal}", f"ts >= {literal}", f"x IN ({literal}, TIMESTAMP '2026-01-01')", f"x >= {literal}",
                  f"x BETWEEN {literal} AND '1582-10-14 21:00:00'", f"ts = {literal} AND x < '1582-10-15'"]  # fmt: skip
    asked = [
        Subscription(one, sql=f"SELECT count(*) FROM t WHERE {one} GROUP BY window(ts, '1 hour')") for one in conditions
    ]
    run = replay(spark, spark.read.parquet(str(tmp_path)), subscriptions=asked, engine=engine)
    assert {row.subscription: row.value for row in run.notifications.collect()} == dict.fromkeys(conditions, 3)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("zone", "text"),
    [
        ("America/New_York", "2026-03-08 02:30:00"),
        ("Pacific/Apia", "2011-12-30 09:42:00"),
        ("Asia/Kolkata", "1970-01-01"),
    ],
)
def test_times_without_a_zone_stay_where_the_session_has_none(
    spark: SparkSession, engine: Engine, zone: str, text: str
) -> None:
    # The clocks of New York skip an hour, those of Apia a day.
    moment = datetime.fromisoformat(text)
    day = pa.array([moment.date()], pa.date32())
    local = pa.array([moment], pa.timestamp("us"))
    table = events({"local": local, "day": day}).set_column(3, "ts", local)
    conditions = [f"{name} = '{text}'" for name in ("ts", "local")] + [f"day = DATE '{text[:10]}'"]
    with configured(spark, {"spark.sql.session.timeZone": zone}):
        assert counted(spark, table, conditions, engine) == dict.fromkeys(conditions, 1)
        run = replay(spark, publications(spark, table), subscriptions=asking(COUNT), engine=engine)
        start = run.notifications.toArrow().column("window_start").cast(pa.int64()).to_pylist()
    assert start == [moment_us(text) // HOUR_US * HOUR_US]


TEXTS_OF_TIMES = [
    "d = '2026-03-08'", "d = '2026-03-08 15:00:00'", "d >= '2026-03-09 15:00:00'", "d IN ('2026-03-08', '2026-03-09')",
    "d IN ('2026-03-08 01:00:00')", "d NOT IN ('2026-03-08 01:00:00')", "d <=> '2026-03-09 10:00:00'",
    "d != '2026-3-8'",
    "d BETWEEN '2026-03-08 12:00:00' AND '2026-03-09 12:00:00'", "d > TIMESTAMP '2026-03-08 15:00:00'", "d < '2026-03'",
    "d = DATE '2026-03-08 15:00:00'", "d < '2026-03-09T00:00:00Z'", "d <= ' 2026-03-09 '", "'2026-03-08 23:00:00' < d",
    "local >= '2026-03-08 10:00:00'", "local >= '2026-03-08 10:00:00+03:00'", "local < '2026-03-08 10:00:00Z'",
    "local >= TIMESTAMP '2026-03-08 10:00:00'", "local = '2026-03-08 10:00:00 -05:00'", "local = '2026-03-08'",
    "local BETWEEN '2026-03-08' AND '2026-03-08 10:00:00-08'", "local <=> '2026-03-08 09:00:00 UTC'",
]  # fmt: skip


@pytest.mark.parametrize("ansi", ["true", "false"])
def test_texts_of_dates_and_local_times_are_read_as_spark_reads_them(spark: SparkSession, ansi: str) -> None:
    times = [SPRING_US + hour * HOUR_US for hour in range(0, 96, 3)]
    local = pa.array(times, pa.timestamp("us"))
    table = events({"local": local, "d": local.cast(pa.date32())}, ts=times)
    with configured(spark, {"spark.sql.ansi.enabled": ansi}):
        wanted = {condition: plain_spark(spark, table, condition) for condition in TEXTS_OF_TIMES}
        for engine in ENGINES:
            found = counted(spark, table, TEXTS_OF_TIMES, engine)
            wrong = {c: (wanted[c], found[c]) for c in TEXTS_OF_TIMES if found[c] not in (None, wanted[c])}
            assert not wrong, engine
    assert sum(count is not None for count in found.values()) == 9


@pytest.mark.parametrize("having", ["max(d) = '2026-03-08 15:00:00'", "d >= '2026-03-08 15:00:00'",
                                    "min(local) < '2026-03-08 10:00:00+03:00'"])  # fmt: skip
def test_having_refuses_the_texts_of_times_that_where_refuses(having: str) -> None:
    local = pa.array([SPRING_US], pa.timestamp("us"))
    table = events({"local": local, "d": local.cast(pa.date32())})
    sql = f"SELECT count(*) FROM t GROUP BY window(ts, '1 hour'), d HAVING {having}"
    with pytest.raises(CatchmentError, match=r"is compared with '2026-03-08 1.*accepted are"):
        oracle(table, subscriptions=asking(sql))
    plain = sql.replace(" 15:00:00", "").replace("+03:00", "")
    assert oracle(table, subscriptions=asking(plain)).notifications.num_rows == 1


# -- text that Spark compares in its own ways --------------------------------------------------------------------------


def test_padded_and_collated_columns_are_refused_by_name(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "padded"
    described = "event_id BIGINT, topic STRING, broker STRING, ts TIMESTAMP, s CHAR(5), v VARCHAR(5), n INT"
    spark.sql(f"CREATE TABLE padded ({described}) USING parquet LOCATION '{path}'")
    try:
        spark.sql("INSERT INTO padded VALUES (1, 't', 'b', TIMESTAMP '2026-03-08 06:00:00', 'ab', 'ab', 1)")
        stored = spark.table("padded")
        collated = stored.selectExpr("*", "v COLLATE UTF8_LCASE AS low")
        grouped = "GROUP BY window(ts, '1 hour')"
        for engine in ENGINES:
            for column, kind in (("s", r"char\(5\)"), ("low", "string collate UTF8_LCASE")):
                for sql in (
                    f"SELECT count(*) FROM t WHERE {column} = 'ab' {grouped}",
                    f"SELECT count(*) FROM t {grouped}, {column}",
                    f"SELECT max({column}) FROM t {grouped}",
                ):
                    with pytest.raises(
                        CatchmentError, match=rf"attribute '{column}' has type {kind}; .*cast the column"
                    ):
                        replay(spark, collated, subscriptions=asking(sql), engine=engine)
            for condition in ("v = 'ab'", "n = 1"):
                sql = f"SELECT count(*) FROM t WHERE {condition} {grouped}"
                run = replay(spark, collated, subscriptions=asking(sql), engine=engine)
                assert [row.value for row in run.notifications.collect()] == [1.0]
        topics = stored.selectExpr("*", "topic COLLATE UTF8_LCASE AS other").drop("topic")
        with pytest.raises(CatchmentError, match="column 'topic' has type string collate UTF8_LCASE"):
            replay(spark, topics.withColumnRenamed("other", "topic"), subscriptions=asking(COUNT))
    finally:
        spark.sql("DROP TABLE padded")


# -- Spark's way of handing over batches -------------------------------------------------------------------------------


@pytest.mark.parametrize(("partition_count", "batch_size"), [(1, "10000"), (2, "10000"), (5, "1")])
def test_large_variable_types_change_nothing(spark: SparkSession, partition_count: int, batch_size: str) -> None:
    table = events({"s": pa.array(["a", "b", None, "", "a" * 100_000])})
    settings = {
        "spark.sql.execution.arrow.useLargeVarTypes": "true",
        "spark.sql.execution.arrow.maxRecordsPerBatch": batch_size,
    }
    with configured(spark, settings):
        assert values(spark, table, COUNT, "shared", partition_count) == [5.0]
        raw = publications(spark, table, partition_count)
        run = replay(spark, raw, subscriptions=asking("SELECT s FROM t WHERE s LIKE 'a%'"))
        assert sorted(row.event_id for row in run.deliveries.collect()) == [0, 4]
        assert sorted(row.event_id for row in run.delivered("s").collect()) == [0, 4]


# -- an event is a topic, a broker and an id ---------------------------------------------------------------------------


def test_delivered_tells_events_with_equal_ids_apart(spark: SparkSession) -> None:
    table = events(
        {"n": pa.array([1, 2, 3], pa.int64())}, event_id=pa.array([7, 7, 7]), broker=pa.array(["b", "c", "b"]),
        topic=pa.array(["t", "t", "u"]),
    )  # fmt: skip
    run = replay(spark, publications(spark, table), subscriptions=asking("SELECT * FROM t WHERE n < 3 AND n != 2"))
    assert [row.n for row in run.delivered("s").collect()] == [1]


@pytest.mark.parametrize("columns", ["event_id", "event_id, n", "n, event_id, topic, ts", "broker"])
def test_delivered_has_each_column_once(spark: SparkSession, columns: str) -> None:
    table = events({"n": pa.array([1, 2], pa.int64())})
    run = replay(spark, publications(spark, table), subscriptions=asking(f"SELECT {columns} FROM t WHERE n = 1"))
    names = run.delivered("s").columns
    assert len(names) == len(set(names))
    assert {"event_id", *columns.split(", ")} <= set(names)
    assert [row.event_id for row in run.delivered("s").collect()] == [0]


# -- decimals ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ENGINES)
def test_decimals_beyond_a_double_are_exact_or_refused(spark: SparkSession, engine: Engine) -> None:
    texts = ["12345678901234567890", "12345678901234567891", "12345678901234567892", "12345678901234567893"]
    table = events({"big": pa.array([int(text) for text in texts], pa.decimal128(20, 0))})
    sql = "SELECT count(*) FROM t WHERE big >= 12345678901234567892 GROUP BY window(ts, '1 hour')"
    try:
        found, reason = values(spark, table, sql, engine), ""
    except CatchmentError as error:
        found, reason = [], str(error)
    assert found == [2.0] or "big" in reason


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    "kind", [pa.decimal128(10, 2), pa.decimal128(15, 3), pa.decimal128(18, 0), pa.decimal128(9, 0)]
)
def test_decimals_that_fit_are_numbers(spark: SparkSession, engine: Engine, kind: pa.DataType) -> None:
    table = events({"d": pa.array([1, 2, 3, None], kind)})
    sql = "SELECT max(d) FROM t WHERE d >= 1.5 GROUP BY window(ts, '1 hour') HAVING count(d) = 2"
    assert values(spark, table, sql, engine) == [3.0]


EXACT_DECIMALS = {
    "max(d)": "max(d) = 0.3 AND min(d) = 0.1",
    "min(d)": "max(d) > 0.29 AND max(d) <= 0.30 AND mode(d) = 0.1",
    "count(d)": "max(d) IN (0.3, 7)",
    "median(d)": "max(d) = 0.3D",
}
"""What of decimals 0.1, 0.1 and 0.3 is told, and a HAVING that holds of them."""


@pytest.mark.parametrize("measure", ["sum(d)", "avg(d)", "mean(d)", "sum(D)"])
def test_sums_of_decimals_with_fractions_are_refused_by_name(spark: SparkSession, measure: str) -> None:
    table = events({"d": pa.array([1, 2], pa.decimal128(10, 2))})
    grouped = "FROM t GROUP BY window(ts, '1 hour')"
    for sql in (f"SELECT {measure} {grouped}", f"SELECT count(*) {grouped} HAVING {measure} > 0.3"):
        with pytest.raises(CatchmentError, match=r"'d' of type decimal\(10,2\).*cast to double"):
            oracle(table, subscriptions=asking(sql))
        for engine in ENGINES:
            with pytest.raises(CatchmentError, match=r"'d' of type decimal\(10,2\).*cast to double"):
                replay(spark, publications(spark, table), subscriptions=asking(sql), engine=engine)
    # Declared as a float it is one.
    run = replay(spark, publications(spark, table), subscriptions=asking(f"SELECT {measure} {grouped}"),
                 schema={"d": "float"})  # fmt: skip
    assert run.notifications.count() == 1


def test_decimals_compare_exactly_in_having(spark: SparkSession) -> None:
    table = events({"d": pa.array([Decimal("0.1"), Decimal("0.1"), Decimal("0.3")], pa.decimal128(10, 2))})
    for measure, having in EXACT_DECIMALS.items():
        sql = f"SELECT {measure} FROM t GROUP BY window(ts, '1 hour') HAVING {having}"
        raw = publications(spark, table)
        wanted = [float(row[0]) for row in spark.sql(sql.replace("FROM t", "FROM {t}"), t=raw).collect()]
        assert len(wanted) == 1, sql
        for engine in ENGINES if "median" not in sql and "mode" not in sql else ENGINES[1:]:
            assert values(spark, table, sql, engine) == wanted, (sql, engine)


# -- measures ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ENGINES)
def test_subscriptions_that_share_some_measures_are_all_answered(spark: SparkSession, engine: Engine) -> None:
    table = events({"n": pa.array([1, 2, 3], pa.int64())})
    asked = [["sum(n)"], ["sum(n)", "max(n)"], ["max(n)", "sum(n)", "min(n)", "count(*)"]]
    grouped = "FROM t GROUP BY window(ts, '1 hour') HAVING sum(n) = 6 AND avg(n) = 2 AND max(n) < 4"
    subscriptions = [Subscription(f"s{i}", sql=f"SELECT {', '.join(one)} {grouped}") for i, one in enumerate(asked)]
    run = replay(spark, publications(spark, table), subscriptions=subscriptions, engine=engine)
    wanted = {"sum(n)": 6.0, "max(n)": 3.0, "min(n)": 1.0, "count(*)": 3.0}
    found = sorted((row.subscription, row.output, row.value) for row in run.notifications.collect())
    assert found == sorted((f"s{i}", output, wanted[output]) for i, one in enumerate(asked) for output in one)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_key_may_be_named_like_a_measure(spark: SparkSession, engine: Engine) -> None:
    table = events({"count(*)": pa.array([5, 5, 1], pa.int64()), "n": pa.array([1, 1, 1], pa.int64())})
    grouped = "SELECT sum(n) FROM t GROUP BY window(ts, '1 hour'), `count(*)` HAVING"
    subscriptions = [
        Subscription("measure", sql=f"{grouped} count(*) = 2"),
        Subscription("key", sql=f"{grouped} `count(*)` = 1"),
        Subscription("both", sql=f"{grouped} count(*) = 2 AND `count(*)` = 5"),
    ]
    run = replay(spark, publications(spark, table), subscriptions=subscriptions, engine=engine)
    found = sorted((row.subscription, row.group["count(*)"]) for row in run.notifications.collect())
    assert found == [("both", "5"), ("key", "1"), ("measure", "5")]


# -- names -------------------------------------------------------------------------------------------------------------

NAMES = [
    "a.b", "a`b", "quo'te", "back\\slash", "select", "group", "window", "_question", "_slice", "_window", "_events",
    "_state0_count", "__reason", "__size", "value", "question", "kind", "ids", "速度", "${spark.app.name}",
]  # fmt: skip
"""Written with quotes, reserved in SQL, or once used inside of our own jobs."""


@pytest.mark.parametrize("reserved", ["true", "false"])
def test_any_column_name_works(spark: SparkSession, reserved: str) -> None:
    table = events({name: pa.array([at, -1, None], pa.int64()) for at, name in enumerate(NAMES)})
    subscriptions = []
    for at, name in enumerate(NAMES):
        quoted = "`" + name.replace("`", "``") + "`"
        where = f"WHERE {quoted} = {at}"
        grouped = f"GROUP BY window(ts, '1 hour'), {quoted}"
        subscriptions += [
            Subscription(f"all{at}", sql=f"SELECT * FROM t {where}"),
            Subscription(f"one{at}", sql=f"SELECT {quoted} FROM t {where}"),
            Subscription(f"sum{at}", sql=f"SELECT {quoted}, sum({quoted}) FROM t {where} {grouped}"),
        ]
    settings = {"spark.sql.ansi.enforceReservedKeywords": reserved, "spark.sql.parser.quotedRegexColumnNames": reserved}
    with configured(spark, {**settings, "spark.sql.parser.escapedStringLiterals": reserved}):
        raw = publications(spark, table)
        run = replay(spark, raw, subscriptions=subscriptions, engine="shared").persist()
        plain = replay(spark, raw, subscriptions=[s for s in subscriptions if not s.is_regular][:8], engine="sql")
        try:
            delivered = sorted((row.subscription, row.event_id) for row in run.deliveries.collect())
            told = {r.subscription: (dict(r.group), r.value) for r in run.notifications.collect()}
            told_plainly = {r.subscription: (dict(r.group), r.value) for r in plain.notifications.collect()}
            assert [run.delivered(f"one{at}").first()[name] for at, name in enumerate(NAMES[:4])] == [0, 1, 2, 3]
        finally:
            run.unpersist()
    assert told == {f"sum{at}": ({name: str(at)}, float(at)) for at, name in enumerate(NAMES)}
    assert told_plainly == {f"sum{at}": told[f"sum{at}"] for at in range(8)}
    assert delivered == sorted((f"{which}{at}", 0) for which in ("all", "one") for at in range(len(NAMES)))


def test_a_column_named_star_is_not_every_event(spark: SparkSession, tmp_path: Path) -> None:
    columns = {"*": pa.array([1, None, 3], pa.int64()), "n": pa.array([1, 2, 2], pa.int64())}
    table = events({**columns, "DISTINCT n": pa.array([1, None, None], pa.int64())})
    grouped = "FROM t GROUP BY window(ts, '1 hour')"
    asked = {
        "all": f"SELECT count(*) AS c {grouped}",
        "star": f"SELECT count(`*`) AS c {grouped}",
        "both": f"SELECT count(*) AS c, count(`*`) AS d, sum(`*`) AS e {grouped}",
        "having": f"SELECT count(*) AS c {grouped} HAVING count(*) > 2 AND count(`*`) < 3",
        "distinct": f"SELECT max(n) AS c {grouped} HAVING count(`DISTINCT n`) = 1 AND count(DISTINCT n) = 2",
    }
    subscriptions = [Subscription(name, sql=sql) for name, sql in asked.items()]
    wanted = {("all", "c"): 3, ("star", "c"): 2, ("both", "c"): 3, ("both", "d"): 2, ("both", "e"): 4}
    wanted |= {("having", "c"): 3, ("distinct", "c"): 2}
    answers = oracle(table, subscriptions=subscriptions).notifications.to_pylist()
    assert {(row["subscription"], row["output"]): row["value"] for row in answers} == wanted
    for engine, kept in (("shared", subscriptions), ("sql", subscriptions[:-1])):
        run = replay(spark, publications(spark, table), subscriptions=kept, engine=engine)
        told = {(row.subscription, row.output): row.value for row in run.notifications.collect()}
        assert told == {key: value for key, value in wanted.items() if key[0] in {one.name for one in kept}}, engine
    # Restarted without the column, a stream counts what it has counted once.
    (tmp_path / "in").mkdir()
    pq.write_table(table.rename_columns([f"c{at}" for at in range(7)]), tmp_path / "in" / "1.parquet")
    for kept in (subscriptions[:2], subscriptions[:1]):
        source = spark.readStream.schema(
            "c0 LONG, c1 STRING, c2 STRING, c3 TIMESTAMP, c4 LONG, c5 LONG, c6 LONG"
        ).parquet(str(tmp_path / "in"))
        job = stream(
            spark, source.toDF(*table.column_names), checkpoint=str(tmp_path / "checkpoint"), subscriptions=kept,
            trigger="available now",
        )  # fmt: skip
        job.await_termination(300)
    job.end()
    assert {(row.subscription, row.value) for row in job.notifications.collect()} == {("all", 3.0)}


@pytest.mark.parametrize("engine", ENGINES)
def test_a_key_may_hold_a_separator(spark: SparkSession, engine: Engine) -> None:
    names = {"a": ["p", "q"], "b": ["r", "r"], "a\x1fb": ["s", "s"]}
    table = events({name: pa.array(values) for name, values in names.items()})
    subscriptions = [
        Subscription(name, sql=f"SELECT count(*) FROM t GROUP BY window(ts, '1 hour'), {keys}")
        for name, keys in (("two", "a, b"), ("one", "`a\x1fb`"))
    ]
    run = replay(spark, publications(spark, table), subscriptions=subscriptions, engine=engine)
    found = sorted((row.subscription, sorted(row.group.items()), row.value) for row in run.notifications.collect())
    assert found == [
        ("one", [("a\x1fb", "s")], 2.0), ("two", [("a", "p"), ("b", "r")], 1.0), ("two", [("a", "q"), ("b", "r")], 1.0)
    ]  # fmt: skip


KEY_AND_ALIAS = [
    "SELECT sum(n) AS n FROM t GROUP BY window(ts, '1 hour'), n HAVING n > 3",
    "SELECT count(*) AS n FROM t GROUP BY window(ts, '1 hour'), n HAVING N = 5",
    "SELECT count(*) AS N FROM t GROUP BY window(ts, '1 hour'), n HAVING N = 5",
    "SELECT sum(n) AS m FROM t GROUP BY window(ts, '1 hour'), n HAVING m > 3",
    "SELECT sum(n) AS m FROM t GROUP BY window(ts, '1 hour') HAVING m > 3",
]
"""Of columns n and m; the last of them is no key."""


def test_in_having_a_key_comes_before_an_alias(spark: SparkSession) -> None:
    table = events({"n": pa.array([1, 1, 5, 1, 1], pa.int64()), "m": pa.array([0, 0, 0, 0, 9], pa.int64())})
    raw = publications(spark, table)
    for sql in KEY_AND_ALIAS:
        wanted = sorted(float(row[0]) for row in spark.sql(sql.replace("FROM t", "FROM {t}"), t=raw).collect())
        answers = oracle(table, subscriptions=asking(sql)).notifications.to_pylist()
        assert sorted(row["value"] for row in answers) == wanted, sql
        for engine in ENGINES:
            assert sorted(values(spark, table, sql, engine)) == wanted, (sql, engine)


# -- literals ----------------------------------------------------------------------------------------------------------

LITERALS = [
    "g = 0.1F", "g < 0.1F", "d = 0.1F", "d > 0.1F", "n = 9007199254740993F", "n = 300Y", "n < 128Y", "n = 70000S",
    "n >= 9223372036854775808", "n < 9007199254740993.0", "n < 9007199254740993.5BD", "n > -9223372036854775807.5",
    "n = 9007199254740993D", "n = 0x10", "n = 1e1", "n = .5e1", "n = 5.", "n = 5.0E0BD", "n = 1e400", "n = '5'",
    "ts = DATE '2026-03-08 15:00:00'", "ts < DATE '2026-03-08'", "ts < TIMESTAMP '2026-3-8'", "ts > '2026-03'",
    "ts = TIMESTAMP '2026-03-08 06:00:00 America/New_York'", "ts = TIMESTAMP_NTZ '2026-03-08 06:00:00'",
    "ts = TIMESTAMP_LTZ '2026-03-08 06:00:00'", "ts = '2026-03-08 06:00:00.0000009'", "ts > '20260308'",
    "ts > '2026-W10-7'", "ts > '2026-03-08T06'", "ts > '2026-03-08x06:00'", "ts = ' 2026-03-08 06:00:00 '",
    "ts = '2026-03-08 06:00:00 UTC'", "ts = '2026-03-08 6:0:0'", "ts > '2026'", "ts = '2026-03-08 06:00:00,5'",
    "s = 'a\\u0062'", "s = R'a\\nb'", "s = 'a' 'b'", "s LIKE 'a\\%%'", "s LIKE 'a\\\\%%'", "s = 'a\\%'", "s = '\\101'",
    "s = X'6162'", "s = 'a\\nb'", "s = 'a\\b'", "s LIKE 'a%' ESCAPE '/'", "s LIKE 'a/%%' ESCAPE '/'", "s ILIKE 'A%'",
    "s = 'ab ' ", "s = N'ab'", "s RLIKE 'a'",
]  # fmt: skip


@pytest.mark.parametrize("engine", ENGINES)
def test_literals_are_read_as_spark_reads_them_or_refused(spark: SparkSession, engine: Engine) -> None:
    numbers = [0, 5, 10, 16, 44, 127, 128, 300, 4464, 70_000, *range(2**53 - 1, 2**53 + 3), 2**63 - 1, -(2**63)]
    texts = ["a", "ab", "a%", "a%b", "a\\%", "a\\%b", "A", "a\\nb", "a\nb", "a\b", "a/%", "ab "]
    count = len(numbers)
    table = events(
        {
            "n": pa.array(numbers, pa.int64()),
            "g": pa.array([0.1, 0.5] * (count // 2), pa.float32()),
            "d": pa.array([0.1, 0.10000000149011612] * (count // 2), pa.float64()),
            "s": pa.array((texts * 2)[:count]),
        },
        ts=[SPRING_US + hour * HOUR_US for hour in range(-6, count - 6)],
    )
    found = counted(spark, table, LITERALS, engine)
    wanted = {condition: plain_spark(spark, table, condition) for condition in LITERALS}
    wrong = [f"{c}: Spark {wanted[c]}, {engine} {found[c]}" for c in LITERALS if found[c] not in (None, wanted[c])]
    assert not wrong, "\n".join(wrong)


def plain_spark(spark: SparkSession, table: pa.Table, condition: str) -> int | None:
    """How many events Spark finds, but integers and floats by exact value; None if Spark refuses the condition."""
    exact = {"n = 9007199254740993D": "n = 9007199254740992", "n = 9007199254740993F": "n = 9007199254740992"}
    with configured(spark, {"spark.sql.session.timeZone": "UTC"}):
        try:
            return publications(spark, table).where(exact.get(condition, condition)).count()
        except PySparkException:
            return None
