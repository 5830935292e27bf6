"""Subscriptions: what their SQL means, what it may not say, and that they are values."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catchment.model.errors import SubscriptionError
from catchment.model.filter import EVERY_EVENT, Filter
from catchment.model.operators import Measure
from catchment.model.schema import Schema
from catchment.model.subscription import Aggregate, Output, Query, Subscription
from catchment.model.window import Window
from tests.model.strategies import queries, schemas

HOUR_US, MINUTE_US, SECOND_US = 3_600_000_000, 60_000_000, 1_000_000
TRAFFIC = Schema.of(
    {"highway": "string", "speed": "int", "segment": "string", "ok": "bool", "due": "timestamp", "lat": "float"}
)
SCHEMAS = {"traffic": TRAFFIC}
WINDOWED = "FROM traffic GROUP BY window(ts, '1 hour')"


def query(sql: str) -> Query:
    return Subscription("s", sql=sql).query


def aggregate(sql: str) -> Aggregate:
    found = query(sql).aggregate
    assert found is not None
    return found


# -- what is accepted -------------------------------------------------------------------------------------------------


def test_a_regular_subscription() -> None:
    found = Subscription("slow", "b3", sql="SELECT * FROM traffic WHERE highway = '401' AND speed < 60")
    assert found.is_regular
    assert found.query == Query("traffic", Filter.parse("highway = '401' AND speed < 60"))
    assert found.query.attributes == ("highway", "speed")
    some = query("SELECT speed, event_id, speed FROM traffic")
    assert some == Query("traffic", EVERY_EVENT, columns=("speed", "event_id"))


def test_an_aggregate_subscription() -> None:
    found = Subscription(
        "slow",
        sql="SELECT avg(speed), count(*) FROM traffic WHERE highway = '401' "
        "GROUP BY window(ts, '1 hour', '10 minutes') HAVING avg(speed) < 30",
    )
    assert not found.is_regular
    assert found.query == Query(
        "traffic",
        Filter.parse("highway = '401'"),
        aggregate=Aggregate(
            Window(HOUR_US, 10 * MINUTE_US),
            (Output("avg(speed)", Measure("avg", "speed")), Output("count(*)", Measure("count"))),
            having=Filter.parse("`avg(speed)` < 30"),
            having_measures=(Measure("avg", "speed"),),
        ),
    )


def test_group_keys_and_aliases() -> None:
    found = aggregate(
        "SELECT segment, max(speed) AS fastest FROM traffic GROUP BY window(ts, '20 seconds', '2 seconds'), segment"
    )
    assert found == Aggregate(
        Window(20 * SECOND_US, 2 * SECOND_US), (Output("fastest", Measure("max", "speed")),), ("segment",)
    )


def test_the_example_of_the_public_interface() -> None:
    slow = Subscription(
        "slow",
        at="b3",
        sql="SELECT avg(speed) FROM traffic WHERE highway = '401' GROUP BY window(ts, '20 seconds', '2 seconds')",
    )
    assert slow.within(SCHEMAS).aggregate == Aggregate(
        Window(20 * SECOND_US, 2 * SECOND_US), (Output("avg(speed)", Measure("avg", "speed")),)
    )


@pytest.mark.parametrize(
    ("selected", "name", "measure"),
    [
        ("count(*)", "count(*)", Measure("count")),
        ("COUNT(*)", "count(*)", Measure("count")),
        ("count(speed)", "count(speed)", Measure("count", "speed")),
        ("count(DISTINCT speed)", "count(DISTINCT speed)", Measure("count_distinct", "speed")),
        ("sum(speed)", "sum(speed)", Measure("sum", "speed")),
        ("min(speed)", "min(speed)", Measure("min", "speed")),
        ("max(speed)", "max(speed)", Measure("max", "speed")),
        ("AVG( speed )", "avg(speed)", Measure("avg", "speed")),
        ("bool_and(ok)", "bool_and(ok)", Measure("bool_and", "ok")),
        ("bool_or(ok)", "bool_or(ok)", Measure("bool_or", "ok")),
        ("var_samp(speed)", "var_samp(speed)", Measure("var_samp", "speed")),
        ("stddev_samp(speed)", "stddev_samp(speed)", Measure("stddev_samp", "speed")),
        ("median(speed)", "median(speed)", Measure("median", "speed")),
        ("mode(segment)", "mode(segment)", Measure("mode", "segment")),
        ("percentile(speed, 0.25)", "percentile(speed, 0.25)", Measure("percentile", "speed", (0.25,))),
        ("approx_percentile(speed, 1)", "approx_percentile(speed, 1)", Measure("approx_percentile", "speed", (1.0,))),
        ("approx_count_distinct(speed)", "approx_count_distinct(speed)", Measure("approx_count_distinct", "speed")),
        ("approx_top_k(segment, 5)", "approx_top_k(segment, 5)", Measure("approx_top_k", "segment", (5.0,))),
        ("avg(speed) AS `the mean`", "the mean", Measure("avg", "speed")),
        ("window, avg(speed) mean", "mean", Measure("avg", "speed")),
        ("max(ts)", "max(ts)", Measure("max", "ts")),
        ("count(DISTINCT broker)", "count(DISTINCT broker)", Measure("count_distinct", "broker")),
    ],
)
def test_outputs_are_named_by_alias_or_text(selected: str, name: str, measure: Measure) -> None:
    subscription = Subscription("s", sql=f"SELECT {selected} {WINDOWED}")
    assert subscription.query.aggregate is not None
    assert subscription.query.aggregate.outputs == (Output(name, measure),)
    subscription.within(SCHEMAS)


@pytest.mark.parametrize(
    ("grouped", "window"),
    [
        ("window(ts, '1 hour')", Window(HOUR_US, HOUR_US)),
        ("WINDOW(ts, '1 hour', '10 minutes')", Window(HOUR_US, 10 * MINUTE_US)),
        ("window(ts, '10 minutes', '1 hour')", Window(10 * MINUTE_US, HOUR_US)),
        ("window(ts, INTERVAL 1 HOUR)", Window(HOUR_US, HOUR_US)),
        ("window(ts, INTERVAL '1 hour 30 minutes', INTERVAL '7' SECONDS)", Window(90 * MINUTE_US, 7 * SECOND_US)),
    ],
)
def test_windows(grouped: str, window: Window) -> None:
    assert aggregate(f"SELECT count(*) FROM traffic GROUP BY {grouped}").window == window


@pytest.mark.parametrize(
    ("having", "condition", "measures"),
    [
        ("avg(speed) < 30", "`avg(speed)` < 30", (Measure("avg", "speed"),)),
        ("mean < 30", "`avg(speed)` < 30", (Measure("avg", "speed"),)),
        ("max(speed) > 3 AND mean < 30", "`max(speed)` > 3 AND `avg(speed)` < 30",
         (Measure("max", "speed"), Measure("avg", "speed"))),
        ("count(*) > 5 OR count(*) = 1", "`count(*)` > 5 OR `count(*)` = 1", (Measure("count"),)),
        ("segment LIKE 'a%'", "segment LIKE 'a%'", ()),
        ("NOT (segment IS NULL OR count(DISTINCT speed) > 2)",
         "segment IS NOT NULL AND `count(DISTINCT speed)` <= 2", (Measure("count_distinct", "speed"),)),
        ("bool_and(ok)", "`bool_and(ok)`", (Measure("bool_and", "ok"),)),
    ],
)  # fmt: skip
def test_having(having: str, condition: str, measures: tuple[Measure, ...]) -> None:
    subscription = Subscription("s", sql=f"SELECT avg(speed) AS mean {WINDOWED}, segment HAVING {having}")
    found = subscription.query.aggregate
    assert found is not None
    assert found.having == Filter.parse(condition)
    assert found.having_measures == measures
    assert found.measures == tuple(dict.fromkeys((Measure("avg", "speed"), *measures)))
    subscription.within(SCHEMAS)


@pytest.mark.parametrize(
    "having",
    ["count(*) = 0", "count(*) < 1", "0 >= count(*)", "count(*) BETWEEN 0 AND 0", "n = 0", "NOT n > 0", "n IN (0, -1)",
     "count(*) = 0 AND avg(speed) > 3", "n < 1 OR n = 0 AND segment = 3", "n < 1 AND n > -1"],
)  # fmt: skip
def test_having_that_only_an_empty_window_fulfils_is_refused(having: str) -> None:
    with pytest.raises(SubscriptionError, match=r"'s': HAVING is never true: windows without an event yield nothing"):
        Subscription("s", sql=f"SELECT avg(speed), count(*) AS n {WINDOWED}, segment HAVING {having}")


@pytest.mark.parametrize(
    "having", ["n IS NULL", "n = -1", "n > 0 AND n < 1", "n = 1.5", "count(*) > 1 AND count(*) < 2"]
)
def test_having_that_no_count_fulfils_is_refused(having: str) -> None:
    with pytest.raises(
        SubscriptionError, match=r"HAVING is never true: no number of events is what it says of count\(\*\)"
    ):
        Subscription("s", sql=f"SELECT avg(speed), count(*) AS n {WINDOWED}, segment HAVING {having}")


@pytest.mark.parametrize(
    "having", ["count(*) <= 1", "count(*) = 0 OR avg(speed) > 3", "count(speed) = 0", "n != 0", "n BETWEEN 0 AND 1"]
)
def test_having_that_some_window_with_events_fulfils_is_accepted(having: str) -> None:
    Subscription("s", sql=f"SELECT avg(speed), count(*) AS n {WINDOWED}, segment HAVING {having}").within(SCHEMAS)


# -- with a schema ----------------------------------------------------------------------------------------------------


def test_within_a_schema_filters_use_the_domains_of_its_types() -> None:
    sql = f"SELECT count(*), max(speed) {WINDOWED.replace('GROUP', 'WHERE speed > 2.5 GROUP')} HAVING max(speed) > 3.5"
    typed = Subscription("s", sql=sql).within(SCHEMAS)
    assert typed.where == Filter.parse("speed >= 3", TRAFFIC)
    assert typed.aggregate is not None
    assert typed.aggregate.having == Filter.parse("`max(speed)` >= 4", {"max(speed)": "int"})


def test_times_as_text_are_times_whatever_their_form() -> None:
    sql = (
        "SELECT max(due) AS latest FROM traffic "
        "WHERE due > '2014-08-11T07:00:00+05:00' AND due < '2014-08-11 06:00:00' AND ts >= '2014-08-11' "
        "GROUP BY window(ts, '1 hour'), due "
        "HAVING latest > '2014-08-11T07:00:00+05:00' AND max(due) < '2014-08-11 06:00:00' AND due != '2014-08-11T03:00'"
    )
    typed = Subscription("s", sql=sql).within(SCHEMAS)
    assert typed.where == Filter.parse(
        "due > TIMESTAMP '2014-08-11 02:00:00' AND due < TIMESTAMP '2014-08-11 06:00:00' "
        "AND ts >= TIMESTAMP '2014-08-11'"
    )
    assert typed.aggregate is not None
    assert typed.aggregate.having == Filter.parse(
        "`max(due)` > TIMESTAMP '2014-08-11 02:00:00' AND `max(due)` < TIMESTAMP '2014-08-11 06:00:00' "
        "AND due != TIMESTAMP '2014-08-11 03:00:00'"
    )


@pytest.mark.parametrize(
    ("sql", "named"),
    [
        ("SELECT * FROM weather", "unknown topic 'weather'; known are traffic"),
        ("SELECT price FROM traffic", "topic 'traffic' has no attribute 'price'; it has broker, due, highway"),
        ("SELECT * FROM traffic WHERE price > 1", "no attribute 'price'"),
        (f"SELECT sum(price) {WINDOWED}", "no attribute 'price'"),
        (f"SELECT count(*) {WINDOWED}, price", "no attribute 'price'"),
        (f"SELECT count(*) {WINDOWED}, event_id", "no attribute 'event_id'"),
        (f"SELECT count(*) {WINDOWED} HAVING max(price) > 1", "no attribute 'price'"),
        ("SELECT * FROM traffic WHERE speed = 'fast'", "'speed' is of type int and is compared with a string"),
        ("SELECT * FROM traffic WHERE ts > 'yesterday'", "'ts' is a time stamp and is compared with 'yesterday'"),
        (
            "SELECT * FROM traffic WHERE speed > -9223372036854775808",
            "accepted are integers from -9223372036854775806",
        ),
        (f"SELECT avg(highway) {WINDOWED}", r"avg\(highway\) .* type string; accepted are int, float"),
        (f"SELECT bool_and(speed) {WINDOWED}", r"bool_and\(speed\) .* type int; accepted are bool"),
        (f"SELECT sum(due) {WINDOWED}", r"sum\(due\) .* type timestamp; accepted are int, float"),
        ("SELECT * FROM traffic WHERE due > DATE '11.8.2014'", "'due' is compared with the time '11.8.2014'"),
        (f"SELECT count(*) {WINDOWED} HAVING max(due) > DATE 'soon'", r"'max\(due\)' is compared with the time 'soon'"),
        (f"SELECT count(*) {WINDOWED} HAVING count(*) = 'none'", r"'count\(\*\)' is of type int and is compared"),
        (f"SELECT count(*) {WINDOWED} HAVING max(highway) > 3", "'max\\(highway\\)' is of type string"),
        (f"SELECT count(*) {WINDOWED} HAVING approx_top_k(speed, 2) = 3", "approx_top_k.* is a list"),
    ],
)
def test_what_the_schema_refuses(sql: str, named: str) -> None:
    with pytest.raises(SubscriptionError, match=f"subscription 'mine': .*{named}"):
        Subscription("mine", sql=sql).within(SCHEMAS)


# -- what is refused --------------------------------------------------------------------------------------------------

CLAUSES = [
    ("SELECT DISTINCT a FROM t", "SELECT DISTINCT"),
    ("SELECT a FROM t ORDER BY a", "ORDER BY"),
    ("SELECT a FROM t SORT BY a", "SORT BY"),
    ("SELECT a FROM t CLUSTER BY a", "CLUSTER BY"),
    ("SELECT a FROM t DISTRIBUTE BY a", "DISTRIBUTE BY"),
    ("SELECT a FROM t LIMIT 1", "LIMIT"),
    ("SELECT a FROM t OFFSET 1", "OFFSET"),
    ("SELECT a FROM t QUALIFY a > 1", "QUALIFY"),
    ("WITH u AS (SELECT 1) SELECT a FROM u", "WITH"),
    ("SELECT a FROM t JOIN u ON t.a = u.a", "JOIN"),
    ("SELECT a FROM t, u", "JOIN"),
    ("SELECT a FROM t LATERAL VIEW explode(x) y", "LATERAL VIEW"),
    ("SELECT /*+ BROADCAST(t) */ a FROM t", "hint"),
    ("SELECT a FROM t UNION SELECT a FROM u", "UNION"),
    ("SELECT a FROM t; SELECT b FROM t", "2 statements"),
    ("DELETE FROM t", "DELETE"),
    ("INSERT INTO t VALUES (1)", "INSERT"),
    ("SELECT 1", "FROM is missing"),
    ("SELECT FROM traffic", "SELECT names nothing"),
    ("", "0 statements"),
    ("   ", "0 statements"),
    ("nonsense", "no SELECT"),
    ("SELECT FROM WHERE", "cannot read"),
    ("SELECT a FROM t WHERE", "cannot read"),
    ("SELECT 'a FROM t", "cannot read"),
    ("SELECT a FROM db.t", "FROM db.t"),
    ("SELECT a FROM t AS u (b)", r"FROM t AS u"),
    ("SELECT a FROM (SELECT a FROM t)", r"FROM \(SELECT a FROM t\) is no topic"),
    ("SELECT a FROM range(10)", r"FROM RANGE\(10\) is no topic"),
    ("SELECT a FROM t TABLESAMPLE (10 PERCENT)", "TABLESAMPLE"),
    ("SELECT a FROM t VERSION AS OF 1", "VERSION AS OF"),
    ("SELECT a FROM t PIVOT (sum(a) FOR b IN (1))", "PIVOT"),
    ("SELECT a AS b FROM t", "SELECT a AS b"),
    ("SELECT a + 1 FROM t", r"SELECT a \+ 1"),
    ("SELECT *, a FROM t", r"SELECT \*"),
    ("SELECT * EXCEPT (a) FROM t", r"SELECT \* EXCEPT"),
    ("SELECT u.a FROM t", "SELECT u.a"),
    ("SELECT avg(a) FROM t", r"SELECT AVG\(a\) aggregates without GROUP BY window"),
    ("SELECT a FROM t HAVING a > 1", "HAVING without GROUP BY window"),
    ("SELECT a FROM t WHERE a = b", "WHERE: 'b' is no literal"),
    ("SELECT a FROM t WHERE avg(a) > 1", r"WHERE: 'AVG\(a\) > 1'"),
    ("SELECT a FROM t WHERE a IN (SELECT b FROM u)", "WHERE: .*IN"),
    ("SELECT avg(a) FROM t GROUP BY a", "GROUP BY lacks window"),
    ("SELECT avg(a) FROM t GROUP BY ALL", "GROUP BY ALL"),
    ("SELECT avg(a) FROM t GROUP BY window(ts, '1 hour') WITH ROLLUP", "GROUP BY ROLLUP"),
    ("SELECT avg(a) FROM t GROUP BY window(ts, '1 hour'), CUBE(a)", "GROUP BY CUBE"),
    ("SELECT avg(a) FROM t GROUP BY window(ts, '1 hour'), a + 1", r"GROUP BY a \+ 1"),
    ("SELECT avg(a) FROM t GROUP BY window(ts, '1 hour'), window(ts, '2 hours')", "two windows"),
    ("SELECT avg(a) FROM t GROUP BY session_window(ts, '1 hour')", "SESSION_WINDOW"),
    ("SELECT avg(a) FROM t GROUP BY window(b, '1 hour')", r"WINDOW\(b, '1 hour'\)"),
    ("SELECT avg(a) FROM t GROUP BY window(ts)", r"WINDOW\(ts\)"),
    ("SELECT avg(a) FROM t GROUP BY window(ts, '1 hour', '1 hour', '5 minutes')", "'5 minutes'"),
    ("SELECT avg(a) FROM t GROUP BY window(ts, 3600)", "duration 3600"),
    ("SELECT avg(a) FROM t GROUP BY window(ts, '1 month')", "'1 month' is no duration"),
    ("SELECT avg(a) FROM t GROUP BY window(ts, '0 seconds')", "window's size is 0"),
    ("SELECT avg(a) FROM t GROUP BY window(ts, '1 hour', '-1 hour')", "window's shift is -3600000000"),
    ("SELECT a FROM t GROUP BY window(ts, '1 hour')", "SELECT a is neither an aggregate nor a GROUP BY attribute"),
    ("SELECT * FROM t GROUP BY window(ts, '1 hour')", r"SELECT \*"),
    ("SELECT a FROM t GROUP BY window(ts, '1 hour'), a", "SELECT has no aggregate"),
    ("SELECT a AS b, count(*) AS b FROM t GROUP BY window(ts, '1 hour'), a", "two outputs named 'b'"),
    ("SELECT n FROM t |> LIMIT 2", "the pipe |> is not accepted"),
    ("SELECT n FROM t |> WHERE n = 3", "the pipe |> is not accepted"),
    ("SELECT n FROM t WHERE x = 1.5e", "cannot use '1.5e' as a value; accepted are numbers like"),
    ("SELECT avg(a), avg(a) FROM t GROUP BY window(ts, '1 hour')", r"two outputs named 'avg\(a\)'"),
    ("SELECT avg(a) AS x, max(a) AS x FROM t GROUP BY window(ts, '1 hour')", "two outputs named 'x'"),
    ("SELECT avg(a) FROM t GROUP BY window(ts, '1 hour') HAVING b > 1", "HAVING uses 'b'"),
    ("SELECT avg(a) FROM t GROUP BY window(ts, '1 hour') HAVING avg(a) > max(a)", "HAVING: .*MAX"),
    ("SELECT avg(a) FROM t GROUP BY window(ts, '1 hour') HAVING first(a) > 1", "HAVING: .*FIRST"),
]
AGGREGATES = [
    ("first(a)", "FIRST"),
    ("var_pop(a)", "VAR_POP"),
    ("avg(a) + 1", r"AVG\(a\) \+ 1"),
    ("avg(a + 1)", r"AVG\(a \+ 1\)"),
    ("avg(a, b)", "cannot read"),
    ("avg()", "cannot read"),
    ("sum(DISTINCT a)", r"SUM\(DISTINCT a\)"),
    ("count(DISTINCT a, b)", r"write count\(DISTINCT attribute\)"),
    ("count(NULL)", r"COUNT\(NULL\)"),
    ("count()", r"COUNT\(\)"),
    ("count_distinct(a)", r"COUNT_DISTINCT\(a\)"),
    ("max(a, b)", r"write max\(attribute\)"),
    ("avg(a) FILTER (WHERE b > 1)", "FILTER"),
    ("avg(a) OVER ()", "OVER"),
    ("max(a) IGNORE NULLS", "IGNORE NULLS"),
    ("mode(a, true)", r"MODE\(a, TRUE\)"),
    ("percentile(a)", "PERCENTILE|cannot read"),
    ("percentile(a, 2)", "the fraction is 2; accepted is a number from 0 to 1"),
    ("percentile(a, -0.5)", "fraction is -0.5; accepted is a number"),
    ("percentile(a, 0.5, b)", r"percentile\(attribute, fraction\)"),
    ("approx_percentile(a, 0.5, 100)", r"write approx_percentile\(attribute, fraction\)"),
    ("approx_count_distinct(a, 0.1)", r"write approx_count_distinct\(attribute\)"),
    ("approx_top_k(a)", r"write approx_top_k\(attribute, k\)"),
    ("approx_top_k(a, 0)", "k is 0; accepted is a whole number from 1 to 1000"),
    ("approx_top_k(a, 2.5)", "k is 2.5; accepted is a whole number"),
    ("approx_top_k(a, 1e999)", "k is 1e999; accepted is a whole number"),
    ("approx_top_k(a, 5, 100)", r"write approx_top_k\(attribute, k\)"),
]


@pytest.mark.parametrize(
    ("sql", "named"), [*CLAUSES, *((f"SELECT {text} {WINDOWED}", named) for text, named in AGGREGATES)]
)
def test_a_refusal_names_the_clause_and_says_what_is_accepted(sql: str, named: str) -> None:
    with pytest.raises(SubscriptionError, match=f"subscription 'mine': .*(?:{named})") as caught:
        Subscription("mine", sql=sql)
    assert "accepted" in str(caught.value) or "write " in str(caught.value)
    assert "\x1b" not in str(caught.value)


def test_nesting_beyond_the_stack_is_an_error_of_ours() -> None:
    with pytest.raises(SubscriptionError, match=r"nested too deeply|cannot read"):
        Subscription("mine", sql=f"SELECT a FROM t WHERE {'(' * 5000}a = 1{')' * 5000}")


@pytest.mark.parametrize("name", ["", None, 5])
def test_names_are_not_empty(name: str) -> None:
    with pytest.raises(SubscriptionError, match="accepted is a non-empty string"):
        Subscription(name, sql="SELECT * FROM traffic")
    if name is not None:
        with pytest.raises(SubscriptionError, match="accepted is the name of a broker, or None"):
            Subscription("mine", name, sql="SELECT * FROM traffic")
        if name != "":
            with pytest.raises(SubscriptionError, match="accepted is a string of SQL"):
                Subscription("mine", sql=name)


# -- values -----------------------------------------------------------------------------------------------------------


@given(st.data())
@settings(max_examples=50)
def test_subscriptions_are_values(data: st.DataObject) -> None:
    schema = data.draw(schemas())
    sql = data.draw(queries(schema))
    found = Subscription("s", "b1", sql=sql)
    again: Subscription = pickle.loads(pickle.dumps(found))
    assert again == found
    assert hash(again) == hash(found)
    assert again.query == found.query
    assert found != Subscription("s", "b2", sql=sql)
    assert found.within({"traffic": schema}) == again.within({"traffic": schema})
    with pytest.raises(AttributeError):
        found.name = "other"  # type: ignore[misc]


def test_a_query_without_a_schema_may_be_given_one_later() -> None:
    found = query("SELECT * FROM traffic WHERE speed > 2.5")
    assert found.within(TRAFFIC).where == Filter.parse("speed >= 3", TRAFFIC)
