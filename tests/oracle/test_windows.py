"""What must be delivered, by hand: windows of all kinds, groups, HAVING, nulls, topics, regular subscriptions."""

from __future__ import annotations

import math
import sys
from fractions import Fraction

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catchment.model.errors import EventError, SchemaError, SubscriptionError
from catchment.model.results import NOTIFICATION_SCHEMA
from catchment.model.subscription import Subscription
from catchment.oracle import Answer, differences, oracle
from tests.model.strategies import event_tables, schemas, subscriptions
from tests.oracle.tables import events, said


def ask(table: pa.Table, sql: str, **options: object) -> Answer:
    return oracle(table, subscriptions=[Subscription("s", sql=sql)], **options)  # type: ignore[arg-type]


# seconds   0   1   2   3   4   5   6   7   8   9  10  11
# events       20          40 30                  10
SPEEDS = events((1, {"speed": 20}), (4, {"speed": 40}), (4.5, {"speed": 30}), (10, {"speed": 10}))


def test_tumbling_windows() -> None:
    # [0, 5)    20          40 30
    # [10, 15)                                        10      and nothing for [5, 10)
    answer = ask(SPEEDS, "SELECT sum(speed), avg(speed) AS mean FROM traffic GROUP BY window(ts, '5 seconds')")
    assert said(answer) == [
        "s [0, 5) mean = 30.0 of 3",
        "s [0, 5) sum(speed) = 90 of 3",
        "s [10, 15) mean = 10.0 of 1",
        "s [10, 15) sum(speed) = 10 of 1",
    ]


def test_sliding_windows() -> None:
    # [-3, 2)   20
    # [0, 5)    20          40 30
    # [3, 8)                40 30
    # [6, 11)                                         10
    # [9, 14)                                         10
    answer = ask(SPEEDS, "SELECT max(speed) FROM traffic GROUP BY window(ts, '5 seconds', '3 seconds')")
    assert said(answer) == [
        "s [-3, 2) max(speed) = 20 of 1",
        "s [0, 5) max(speed) = 40 of 3",
        "s [3, 8) max(speed) = 40 of 2",
        "s [6, 11) max(speed) = 10 of 1",
        "s [9, 14) max(speed) = 10 of 1",
    ]


def test_sampling_windows() -> None:
    # [0, 2)    20
    # [4, 6)                40 30
    # [8, 10)                                             10 lies in the gap [10, 12)
    answer = ask(SPEEDS, "SELECT count(*) FROM traffic GROUP BY window(ts, '2 seconds', '4 seconds')")
    assert said(answer) == ["s [0, 2) count(*) = 1 of 1", "s [4, 6) count(*) = 2 of 2"]


def test_an_event_on_an_edge_belongs_to_the_window_that_begins() -> None:
    table = events((5, {"speed": 1}), (4.999999, {"speed": 2}), (-5, {"speed": 3}), (-0.000001, {"speed": 4}))
    answer = ask(table, "SELECT min(speed) FROM traffic GROUP BY window(ts, '5 seconds')")
    assert said(answer) == [
        "s [-5, 0) min(speed) = 3 of 2",
        "s [0, 5) min(speed) = 2 of 1",
        "s [5, 10) min(speed) = 1 of 1",
    ]


def test_groups_and_null_keys() -> None:
    table = events(
        (1, {"highway": "401", "speed": 10}),
        (2, {"highway": None, "speed": 20}),
        (3, {"highway": "401", "speed": 30}),
        (4, {"highway": "", "speed": 40}),
        (4, {"speed": 50}),
    )
    answer = ask(table, "SELECT highway, sum(speed) FROM traffic GROUP BY window(ts, '5 seconds'), highway")
    assert said(answer) == [
        "s [0, 5) highway= sum(speed) = 40 of 1",
        "s [0, 5) highway=401 sum(speed) = 40 of 2",
        "s [0, 5) highway=None sum(speed) = 70 of 2",
    ]


def test_two_group_keys_are_given_in_the_order_of_their_names() -> None:
    table = events((1, {"highway": "401", "speed": 10}))
    answer = ask(table, "SELECT count(*) FROM traffic GROUP BY speed, highway, window(ts, '5 seconds')")
    assert answer.lines[0].key[3] == (("highway", "401"), ("speed", "10"))


def test_both_zeros_are_one_group() -> None:
    table = events((1, {"x": -0.0}), (2, {"x": 0.0}), types={"x": "float"})
    assert said(ask(table, "SELECT count(*) FROM traffic GROUP BY window(ts, '5 seconds'), x")) == [
        "s [0, 5) x=0.0 count(*) = 2 of 2"
    ]


def test_null_attributes_are_not_aggregated_but_their_events_count() -> None:
    table = events((1, {"speed": None}), (2, {"speed": 4}), (6, {}))
    answer = ask(
        table, "SELECT count(*), count(speed), avg(speed), max(speed) FROM traffic GROUP BY window(ts, '5 seconds')"
    )
    assert said(answer) == [
        "s [0, 5) avg(speed) = 4.0 of 2",
        "s [0, 5) count(*) = 2 of 2",
        "s [0, 5) count(speed) = 1 of 2",
        "s [0, 5) max(speed) = 4 of 2",
        "s [5, 10) avg(speed) = null of 1",
        "s [5, 10) count(*) = 1 of 1",
        "s [5, 10) count(speed) = 0 of 1",
        "s [5, 10) max(speed) = null of 1",
    ]


def test_where_and_null() -> None:
    table = events((1, {"speed": None}), (2, {"speed": 4}), (3, {"speed": 9}))
    assert said(ask(table, "SELECT count(*) FROM traffic WHERE NOT speed > 5 GROUP BY window(ts, '5 seconds')")) == [
        "s [0, 5) count(*) = 1 of 1"
    ]


@pytest.mark.parametrize(
    ("having", "starts"),
    [
        ("count(*) > 1", [0]),
        ("n = 1", [10]),
        ("min(speed) < 15 OR max(speed) > 35", [0, 10]),
        ("sum(speed) IS NULL", []),
        ("max(ts) >= '1970-01-01T00:00:10'", [10]),
    ],
)
def test_having_decides_which_values_are_worth_a_notification(having: str, starts: list[int]) -> None:
    answer = ask(SPEEDS, f"SELECT count(*) AS n FROM traffic GROUP BY window(ts, '5 seconds') HAVING {having}")
    assert [line.key[1] // 1_000_000 for line in answer.lines] == starts


def test_having_a_group_key() -> None:
    table = events((1, {"highway": "401", "speed": 1}), (2, {"highway": None, "speed": 1}))
    answer = ask(
        table, "SELECT count(*) FROM traffic GROUP BY window(ts, '5 seconds'), highway HAVING highway IS NOT NULL"
    )
    assert said(answer) == ["s [0, 5) highway=401 count(*) = 1 of 1"]


def test_regular_subscriptions_get_events() -> None:
    answer = oracle(
        SPEEDS,
        subscriptions=[
            Subscription("slow", sql="SELECT * FROM traffic WHERE speed < 25"),
            Subscription("all", sql="SELECT speed FROM traffic"),
            Subscription("at b2", sql="SELECT * FROM traffic WHERE broker = 'b2'"),
            Subscription("early", sql="SELECT * FROM traffic WHERE ts < '1970-01-01 00:00:02'"),
        ],
    )
    assert answer.delivered == [
        ("slow", 0), ("slow", 3), ("all", 0), ("all", 1), ("all", 2), ("all", 3), ("early", 0),
    ]  # fmt: skip
    assert answer.deliveries.to_pylist()[0] == {"subscription": "slow", "event_id": 0}
    assert answer.notifications.num_rows == 0


def test_several_topics_with_a_schema_each() -> None:
    table = events(
        (1, {"topic": "traffic", "speed": 10}),
        (2, {"topic": "weather", "rain": 0.5}),
        (3, {"topic": "gossip", "speed": 99}),
        (4, {"topic": "weather", "rain": 1.5}),
        types={"speed": "int", "rain": "float"},
    )
    schema = {"traffic": {"speed": "int"}, "weather": {"rain": "float"}}
    answer = oracle(
        table,
        schema=schema,
        subscriptions=[
            Subscription("t", sql="SELECT sum(speed) FROM traffic GROUP BY window(ts, '5 seconds')"),
            Subscription("w", sql="SELECT sum(rain) FROM weather GROUP BY window(ts, '5 seconds')"),
        ],
    )
    assert said(answer) == ["t [0, 5) sum(speed) = 10 of 1", "w [0, 5) sum(rain) = 2.0 of 2"]
    for sql, named in (
        ("SELECT * FROM gossip", "unknown topic 'gossip'; known are traffic, weather"),
        ("SELECT rain FROM traffic", "topic 'traffic' has no attribute 'rain'"),
    ):
        with pytest.raises(SubscriptionError, match=named):
            ask(table, sql, schema=schema)
    # Without schemas every topic is known and the columns say the types.
    assert said(ask(table, "SELECT sum(speed) FROM gossip GROUP BY window(ts, '5 seconds')")) == [
        "s [0, 5) sum(speed) = 99 of 1"
    ]


def test_topics_cannot_disagree_about_a_column() -> None:
    with pytest.raises(SchemaError, match="'x' is of type float in topic 'b' and of type int in another"):
        oracle(SPEEDS, schema={"a": {"x": "int"}, "b": {"x": "float"}})


def test_a_schema_holds_even_where_there_are_no_events() -> None:
    answer = ask(
        SPEEDS.slice(0, 0).drop_columns(["speed"]),
        "SELECT sum(speed) FROM traffic GROUP BY window(ts, '5 seconds')",
        schema={"speed": "int"},
    )
    assert answer.lines == []
    assert answer.notifications.schema == NOTIFICATION_SCHEMA


def test_a_topic_that_never_came_is_silent() -> None:
    assert said(ask(SPEEDS, "SELECT sum(speed) FROM weather GROUP BY window(ts, '5 seconds')")) == []


def test_what_is_no_event_is_left_out() -> None:
    table = events(
        (1, {"x": 1.0}),
        (2, {"x": math.nan}),
        (3, {"x": math.inf}),
        (None, {"x": 1.0}),  # type: ignore[arg-type]
        (4, {"x": 1.0, "broker": None}),
        (4, {"x": 1.0, "topic": None}),
        (4, {"x": 1.0, "event_id": None}),
        types={"x": "float"},
    )
    sql = "SELECT count(*), sum(x) FROM traffic GROUP BY window(ts, '5 seconds')"
    assert said(ask(table, sql)) == ["s [0, 5) count(*) = 1 of 1", "s [0, 5) sum(x) = 1.0 of 1"]
    assert ask(table, "SELECT * FROM traffic").delivered == [("s", 0)]


def test_an_overflow_is_reported_of_its_output_alone() -> None:
    table = events((1, {"speed": 2**62}), (2, {"speed": 2**62}), (6, {"speed": 1}))
    answer = ask(table, "SELECT sum(speed), count(*) FROM traffic GROUP BY window(ts, '5 seconds')")
    assert said(answer) == [
        "s [0, 5) count(*) = 2 of 2",
        "s [5, 10) count(*) = 1 of 1",
        "s [5, 10) sum(speed) = 1 of 1",
    ]
    assert [(line.key[4], line.problem) for line in answer.overflown] == [
        ("sum(speed)", "it is 9223372036854775808, beyond 64 bits")
    ]


def test_a_window_whose_having_is_beyond_its_type_is_reported_and_not_told() -> None:
    table = events((1, {"speed": 2**62}), (2, {"speed": 2**62}), (6, {"speed": 1}))
    answer = ask(table, "SELECT count(*) FROM traffic GROUP BY window(ts, '5 seconds') HAVING sum(speed) > 0")
    assert said(answer) == ["s [5, 10) count(*) = 1 of 1"]
    assert [line.key[4] for line in answer.overflown] == ["sum(speed)"]


@pytest.mark.parametrize(("more", "is_beyond"), [(1e290, False), (1e292, True)])
def test_a_sum_that_rounds_to_the_largest_double_is_told(more: float, is_beyond: bool) -> None:
    table = events((1, {"x": sys.float_info.max}), (2, {"x": more}), types={"x": "float"})
    answer = ask(table, "SELECT sum(x) FROM traffic GROUP BY window(ts, '5 seconds')")
    assert said(answer) == ([] if is_beyond else [f"s [0, 5) sum(x) = {sys.float_info.max!r} of 2"])
    assert len(answer.overflown) == is_beyond


def test_columns_are_required() -> None:
    with pytest.raises(EventError, match="lack the column ts"):
        oracle(SPEEDS.drop_columns(["ts"]))


# -- the same event again ---------------------------------------------------------------------------------------------


def test_deduplication() -> None:
    # seconds  0         100        119 120            300
    # b1       7 kept    7 again                        7 kept: the last one was more than 120 s ago
    # b2                            7 kept: another broker
    #                                   8 kept
    # roadworks         7 kept: another topic, and nobody asks for it
    table = events(
        (0, {"event_id": 7}),
        (99, {"event_id": 7, "topic": "roadworks"}),
        (100, {"event_id": 7}),
        (119, {"event_id": 7, "broker": "b2"}),
        (120, {"event_id": 8}),
        (300, {"event_id": 7}),
        (500, {"event_id": 9, "topic": "roadworks"}),
        (501, {"event_id": 9}),
    )
    sql = "SELECT count(*) FROM traffic GROUP BY window(ts, '1000 seconds')"
    assert said(ask(table, sql, deduplicate=True)) == ["s [0, 1000) count(*) = 5 of 5"]
    assert said(ask(table, sql)) == ["s [0, 1000) count(*) = 6 of 6"]
    delivered = ask(table, "SELECT * FROM traffic", deduplicate=True).delivered
    assert delivered == [("s", 7), ("s", 7), ("s", 8), ("s", 7), ("s", 9)]


def test_deduplication_reaches_120_seconds_and_not_a_microsecond_further() -> None:
    sql = "SELECT * FROM traffic"
    near, far = (events((0, {"event_id": 7}), (seconds, {"event_id": 7})) for seconds in (120, 120.000001))
    assert len(ask(near, sql, deduplicate=True).delivered) == 1
    assert len(ask(far, sql, deduplicate=True).delivered) == 2


# -- every question has an answer --------------------------------------------------------------------------------------


@given(st.data())
@settings(max_examples=50)
def test_every_operator_window_and_type(data: st.DataObject) -> None:
    schema_by_topic = {topic: data.draw(schemas(names=(topic, "shared"))) for topic in ("a", "b")}
    shared = [schema["shared"] for schema in schema_by_topic.values() if "shared" in schema]
    if len(set(shared)) > 1:
        with pytest.raises(SchemaError, match="'shared' is of type"):
            oracle(SPEEDS, schema=schema_by_topic)
        return
    table = data.draw(event_tables(schema_by_topic, brokers=("b1", "b2")))
    asked = data.draw(subscriptions(schema_by_topic, brokers=("b1", "b2")))
    answer = oracle(table, subscriptions=asked, schema=schema_by_topic)
    assert differences(answer, answer.notifications, answer.deliveries) == []
    assert answer.notifications.schema == NOTIFICATION_SCHEMA
    for line in answer.lines:
        assert line.accepts(line.value, line.exact)
    whole = oracle(table, subscriptions=[], changes=[(0, one) for one in asked], schema=schema_by_topic)
    assert differences(whole, answer.notifications, answer.deliveries) == []


# -- against a second, even plainer computation -----------------------------------------------------------------------


@given(st.data())
@settings(max_examples=50)
def test_sums_and_counts_by_definition(data: st.DataObject) -> None:
    """For every window and group, a loop over all events; no index, no mask, no slice."""
    schema = data.draw(schemas())
    table = data.draw(event_tables({"traffic": schema}))
    asked = data.draw(subscriptions({"traffic": schema}, operators=("count", "sum", "max")))
    answer = oracle(table, subscriptions=asked, schema=schema)
    assert differences(answer, answer.notifications, answer.deliveries) == []
    rows = table.set_column(3, "ts", table.column("ts").cast(pa.int64())).to_pylist()
    for name in schema:
        if pa.types.is_timestamp(table.schema.field(name).type):
            for row, value in zip(rows, table.column(name).cast(pa.int64()).to_pylist(), strict=True):
                row[name] = value
    for subscription in asked:
        query = subscription.within({"traffic": schema})
        matching = [row for row in rows if query.where.matches({name: row[name] for name in schema})]
        if query.aggregate is None:
            delivered = [event for name, event in answer.delivered if name == subscription.name]
            assert delivered == [row["event_id"] for row in matching]
            continue
        if query.aggregate.having is not None:
            continue
        window, keys = query.aggregate.window, query.aggregate.group_keys
        lines = [*answer.lines, *answer.overflown]
        found = {line.key: line for line in lines if line.key[0] == subscription.name}
        groups = {
            (k, tuple(row[key] for key in keys)) for row in matching for k in range(-200, 200)
            if k * window.shift_us <= row["ts"] < k * window.shift_us + window.size_us
        }  # fmt: skip
        assert len(found) == len(groups) * len(query.aggregate.outputs)
        counts = sorted(
            sum(
                window.bounds_us(k)[0] <= r["ts"] < window.bounds_us(k)[1] and tuple(r[x] for x in keys) == g
                for r in matching
            )
            for k, g in groups
            for _ in query.aggregate.outputs
        )
        assert sorted(line.publications for line in found.values()) == counts
        for output in query.aggregate.outputs:
            beyond = any(line.problem is not None for line in found.values())
            if output.measure.operator == "sum" and output.measure.attribute is not None and not beyond:
                total = sum(
                    Fraction(r[output.measure.attribute] or 0) * len(window.windows_of(r["ts"])) for r in matching
                )
                got = sum(Fraction(line.value or 0) for key, line in found.items() if key[4] == output.name)
                size = sum(abs(Fraction(line.value or 0)) for line in found.values())
                assert abs(got - total) <= Fraction(1, 10**9) * max(size, 1)
