"""What Spark users type, with the meaning that Spark gives it; or a refusal that names it."""

import pytest

from catchment import Filter, Schema, Subscription
from catchment.model.errors import CatchmentError, SubscriptionError
from catchment.model.subscription import Query
from catchment.model.times import microseconds

SCHEMA = Schema({"speed": "float", "lanes": "int", "segment": "string", "due": "timestamp", "wet": "bool"})


def query(sql: str, schema: Schema = SCHEMA) -> Query:
    return Subscription("s", sql=sql).within({"traffic": schema})


def grouped(select: str, *, rest: str = "") -> str:
    return f"SELECT {select} FROM traffic GROUP BY window(ts, '1 minute'){rest}"


@pytest.mark.parametrize(
    ("spelled", "meant", "name"),
    [
        ("count(1)", "count(*)", "count(1)"),
        ("COUNT('x')", "count(*)", "count('x')"),
        ("mean(speed)", "avg(speed)", "mean(speed)"),
        ("stddev( speed )", "stddev_samp(speed)", "stddev(speed)"),
        ("std(speed)", "stddev_samp(speed)", "std(speed)"),
        ("VARIANCE(speed)", "var_samp(speed)", "variance(speed)"),
        ("every(wet)", "bool_and(wet)", "every(wet)"),
        ("some(wet)", "bool_or(wet)", "some(wet)"),
        ("any(Wet)", "bool_or(wet)", "any(Wet)"),
        ("avg(SPEED)", "avg(speed)", "avg(SPEED)"),
        ("approx_percentile(Speed, 0.5)", "approx_percentile(speed, 0.5)", "approx_percentile(Speed, 0.5)"),
        ("count(DISTINCT Lanes)", "count(DISTINCT lanes)", "count(DISTINCT Lanes)"),
        ("traffic.speed", None, None),
    ],
)
def test_other_names_of_an_aggregate_mean_the_same_and_name_the_output(
    spelled: str, meant: str | None, name: str | None
) -> None:
    if meant is None:
        with pytest.raises(SubscriptionError, match="neither an aggregate nor a GROUP BY attribute"):
            query(grouped(spelled))
        return
    (output,) = query(grouped(spelled)).aggregate.outputs
    (plain,) = query(grouped(meant)).aggregate.outputs
    assert (output.measure, output.name) == (plain.measure, name)


@pytest.mark.parametrize(
    ("sql", "same"),
    [
        ("SELECT t.* FROM traffic AS t WHERE t.speed > 3", "SELECT * FROM traffic WHERE speed > 3"),
        ("SELECT T.speed FROM traffic t WHERE traffic.lanes = 1", "SELECT speed FROM traffic WHERE lanes = 1"),
        ("SELECT Speed, EVENT_ID FROM traffic WHERE WET", "SELECT speed, event_id FROM traffic WHERE wet"),
        ("SELECT * FROM traffic WHERE SPEED > 1 AND speed < 5", "SELECT * FROM traffic WHERE speed > 1 AND speed < 5"),
        (
            "SELECT window.start, window.end AS window_end, t.Segment, max(t.speed) AS Top FROM traffic t "
            "GROUP BY window(t.TS, '1 minute'), segment HAVING top > 3 AND SEGMENT != 'a'",
            "SELECT max(speed) AS Top FROM traffic GROUP BY window(ts, '1 minute'), segment "
            "HAVING max(speed) > 3 AND segment != 'a'",
        ),
        ("SELECT * FROM traffic WHERE lanes <=> 3", "SELECT * FROM traffic WHERE lanes = 3"),
        ("SELECT * FROM traffic WHERE NOT lanes <=> 3", "SELECT * FROM traffic WHERE lanes != 3 OR lanes IS NULL"),
        ("SELECT * FROM traffic WHERE NULL <=> lanes", "SELECT * FROM traffic WHERE lanes IS NULL"),
        ("SELECT * FROM traffic WHERE NOT lanes <=> NULL", "SELECT * FROM traffic WHERE lanes IS NOT NULL"),
        ("SELECT * FROM traffic WHERE ts < '2026-03-08' OR ts > '2026-03-08T06:00:00Z'",
         "SELECT * FROM traffic WHERE ts < TIMESTAMP '2026-03-08 00:00:00' OR ts > TIMESTAMP '2026-03-08 06:00:00'"),
        ("SELECT * FROM traffic WHERE ts IN ('2026-03-08', TIMESTAMP '2026-03-08 06:00:00')",
         "SELECT * FROM traffic WHERE ts IN ('2026-03-08', '2026-03-08 06:00:00')"),
    ],
)  # fmt: skip
def test_aliases_cases_and_null_safe_equality_change_nothing_else(sql: str, same: str) -> None:
    assert query(sql) == query(same)


@pytest.mark.parametrize(
    "selected",
    ["window.start AS ws", "(window.start)", "window AS w", "SEGMENT AS segment", "segment AS s, Window.END AS e"],
)
def test_the_window_and_the_keys_may_be_renamed_which_changes_nothing(selected: str) -> None:
    grouped_by = "FROM traffic GROUP BY window(ts, '1 minute'), segment"
    assert query(f"SELECT {selected}, count(*) {grouped_by}") == query(f"SELECT count(*) {grouped_by}")


def test_having_knows_keys_by_the_names_that_select_gives_them() -> None:
    grouped_by = "FROM traffic GROUP BY window(ts, '1 minute'), segment HAVING"
    renamed = query(f"SELECT segment AS place, count(*) {grouped_by} Place = 'a'")
    assert renamed == query(f"SELECT count(*) {grouped_by} segment = 'a'")


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT A, count(*) FROM traffic GROUP BY window(ts, '1 minute'), a",
        "SELECT count(*) FROM traffic GROUP BY window(TS, '1 minute')",
        "SELECT count(*) FROM traffic AS u WHERE U.a = 1 GROUP BY window(ts, '1 minute')",
        "SELECT Window.start, count(*) FROM traffic GROUP BY window(ts, '1 minute')",
        "SELECT * FROM traffic WHERE TRAFFIC.a = 1",
    ],
)
def test_another_case_is_refused_where_the_schema_is_strict(sql: str) -> None:
    with pytest.raises(CatchmentError):
        query(sql, Schema({"a": "int", "A": "string"}, case_sensitive=True))


def test_names_are_strict_where_the_schema_says_so() -> None:
    strict = Schema({"a": "int", "A": "string"}, case_sensitive=True)
    assert query("SELECT * FROM traffic WHERE a = 1 AND A = 'x'", strict).attributes == ("A", "a")
    for sql in ("SELECT B FROM traffic", "SELECT * FROM traffic WHERE a = 'x'"):
        with pytest.raises(CatchmentError):
            query(sql, strict)
    with pytest.raises(SubscriptionError, match="HAVING uses 'A'"):
        query("SELECT count(*) FROM traffic GROUP BY window(ts, '1 minute'), a HAVING A = 1", strict)
    with pytest.raises(SubscriptionError, match="'Ab' may mean 'AB' or 'ab'"):
        query("SELECT Ab FROM traffic", Schema({"ab": "int", "AB": "int"}))


def test_a_group_key_may_have_the_text_of_an_aggregate_as_its_name() -> None:
    schema = Schema({"count(*)": "bool", "n": "int"})
    sql = "SELECT count(*) FROM traffic GROUP BY window(ts, '1 minute'), `count(*)` HAVING `count(*)` AND count(*) > 2"
    having = query(sql, schema).aggregate.having
    assert having is not None
    assert having.matches({"count(*)": True, "count(*)()": 3})
    assert not having.matches({"count(*)": False, "count(*)()": 3})
    assert not having.matches({"count(*)": True, "count(*)()": 2})


@pytest.mark.parametrize(
    ("literal", "value"),
    [
        ("0.1F", 0.10000000149011612),
        ("16777217F", 16777216.0),
        ("1E-50F", 0.0),
        ("-128Y", -128),
        ("32767S", 32767),
        ("2.5BD", 2.5),
        ("9007199254740993.0", 9007199254740993),
        ("-9007199254740993.000", -9007199254740993),
        ("12345678901234567892BD", 12345678901234567892),
        ("9007199254740993D", 9007199254740992.0),
        ("1e3", 1000.0),
        ("CAST(1.5 AS DECIMAL(2, 1))", 1.5),
    ],
)
def test_numbers_are_those_of_spark(literal: str, value: float) -> None:
    assert Filter.parse(f"x = {literal}") == Filter.parse(f"x = {value!r}")
    assert Filter.parse(f"x = {literal}").matches({"x": value})


@pytest.mark.parametrize(
    ("literal", "reason"),
    [
        ("300Y", "beyond 8 bits"),
        ("128Y", "beyond 8 bits"),
        ("70000S", "beyond 16 bits"),
        ("9223372036854775808L", "beyond 64 bits"),
        ("1e39F", "32 bits"),
        ("0.99999999999999999999", "more digits than a double"),
        ("-9223372036854775807.5", "more digits than a double"),
        ("CAST(1.77 AS DECIMAL(2, 1))", "no literal"),
        ("CAST(1.5 AS INT)", "no literal"),
    ],
)
def test_numbers_that_spark_refuses_or_rounds_are_refused(literal: str, reason: str) -> None:
    with pytest.raises(CatchmentError, match=reason):
        Filter.parse(f"x = {literal}")


@pytest.mark.parametrize(
    ("literal", "moment"),
    [
        ("DATE '2026-03-08 15:00:00'", "2026-03-08 00:00:00"),
        ("DATE '2026-3-8'", "2026-03-08 00:00:00"),
        ("DATE '2026-03'", "2026-03-01 00:00:00"),
        ("TIMESTAMP '2026-3-8 5:4:3'", "2026-03-08 05:04:03"),
        ("TIMESTAMP '2026-03-08 06:00:00.1234567'", "2026-03-08 06:00:00.123456"),
        ("TIMESTAMP '2026-03-08T06:00:00+05:30'", "2026-03-08 00:30:00"),
        ("TIMESTAMP '2026-03-08 06:00-0800'", "2026-03-08 14:00:00"),
        ("TIMESTAMP '2026-03-08 06:00:00 UTC'", "2026-03-08 06:00:00"),
        ("TIMESTAMP_NTZ '2026-03-08 06:00:00'", "2026-03-08 06:00:00"),
    ],
)
def test_times_are_those_of_spark_in_utc(literal: str, moment: str) -> None:
    assert Filter.parse(f"due = {literal}", SCHEMA).matches({"due": microseconds(moment)})


@pytest.mark.parametrize(
    "literal", ["TIMESTAMP '20260308'", "TIMESTAMP '2026-W10-1'", "DATE '20260308'", "TIMESTAMP '2026-03-08 25:00:00'",
                "TIMESTAMP '2026-03-08 06:00:00+19:00'", "DATE '2026-13-01'", "DATE 'x'"]
)  # fmt: skip
def test_times_that_spark_reads_otherwise_are_refused(literal: str) -> None:
    with pytest.raises(CatchmentError, match="'due' is compared with the time"):
        Filter.parse(f"due = {literal}", SCHEMA)


def test_not_in_is_the_complement_of_in() -> None:
    values = ", ".join(str(number) for number in range(0, 10_000, 2))
    found = Filter.parse(f"lanes NOT IN ({values})", SCHEMA)
    assert [number for number in range(10) if found.matches({"lanes": number})] == [1, 3, 5, 7, 9]
    assert not found.matches({"lanes": None})
    assert Filter.parse("segment NOT IN ('a', 'b')", SCHEMA) == Filter.parse(
        "segment != 'a' AND segment != 'b'", SCHEMA
    )
