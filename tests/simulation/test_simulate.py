"""`oracle == simulate` for regular deliveries: whatever the overlay, the filters and the faults."""

from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from catchment import Overlay, Subscription, oracle, replay, simulate
from catchment.model.errors import CatchmentError, OverlayError, SubscriptionError
from catchment.oracle import differences
from catchment.simulation.options import Options
from catchment.simulation.overlays import SHAPES, overlay_of
from catchment.workloads import generate_traffic, traffic_subscriptions
from tests.model import strategies

FAULTY = Options(duplicates=0.2, drops=0.2, clock_skew_us_max=10_000, in_flight_max=3)


@st.composite
def cases(draw: st.DrawFn) -> tuple[Any, ...]:
    shape, size = draw(st.sampled_from(sorted(SHAPES))), draw(st.integers(1, 9))
    overlay = overlay_of(shape, size, Random(draw(st.integers(0, 2**32))))
    topics = {
        topic: draw(strategies.schemas(names=[f"{topic} {name}" for name in strategies.NAMES]))
        for topic in draw(st.sampled_from([("traffic",), ("traffic", "stock")]))
    }
    events = draw(strategies.event_tables(topics, brokers=overlay.brokers))
    asked = []
    for number in range(draw(st.integers(1, 6))):
        topic = draw(st.sampled_from(sorted(topics)))
        where = draw(st.just("") | strategies.conditions(topics[topic], leaves_max=3).map(" WHERE {}".format))
        sql = f"SELECT * FROM {strategies.quoted_name(topic)}{where}"
        asked.append(Subscription(f"s{number}", draw(st.sampled_from(overlay.brokers)), sql=sql))
    return overlay, topics, events, asked


def check(case: tuple[Any, ...], **options: Any) -> None:
    overlay, topics, events, asked = case
    found = simulate(events, overlay=overlay, subscriptions=asked, schema=topics, **options)
    expected = oracle(events, subscriptions=asked, schema=topics)
    assert differences(expected, found.notifications, found.deliveries, found.overflows) == []
    assert found.rejected.num_rows == 0


ways = st.fixed_dictionaries(
    {
        "forwarding": st.sampled_from(["advertised", "flooded"]),
        "summary": st.sampled_from(["bound", "covering", "each"]),
        "options": st.sampled_from([Options(), FAULTY]),
        "seed": st.integers(0, 1000),
    }
)


@given(cases(), ways)
@settings(max_examples=100, deadline=None)
def test_simulate_equals_the_oracle(case: tuple[Any, ...], way: dict[str, Any]) -> None:
    check(case, **way)


@pytest.mark.long
@given(cases(), ways)
@settings(max_examples=1_000, deadline=None)
def test_simulate_equals_the_oracle_at_length(case: tuple[Any, ...], way: dict[str, Any]) -> None:
    check(case, **way)


CHAIN = Overlay.from_links([("b1", "b2"), ("b2", "b3"), ("b2", "b4")])


@pytest.mark.spark
@pytest.mark.parametrize("summary", ["covering", "each"])
def test_links_carry_what_replay_says(spark: SparkSession, summary: Any) -> None:
    events = generate_traffic(2_000, seed=3, duration_us=60_000_000, brokers=CHAIN.brokers)
    texts = traffic_subscriptions(12, seed=4, brokers=CHAIN.brokers, regular_share=1.0)
    asked = [Subscription(name, at, sql=sql) for name, at, sql in texts]
    run = replay(spark, spark.createDataFrame(events), subscriptions=asked, overlay=CHAIN)
    found = simulate(events, overlay=CHAIN, subscriptions=asked, summary=summary)
    order = [("source", "ascending"), ("target", "ascending"), ("kind", "ascending")]
    expected = run.traffic.toArrow().sort_by(order).to_pylist()
    assert [row for row in expected if row["kind"] == "publication"]
    carried = found.traffic.filter(pc.not_equal(found.traffic["kind"], "control")).sort_by(order)
    assert carried.to_pylist() == expected
    assert (
        differences(oracle(events, subscriptions=asked), found.notifications, found.deliveries, found.overflows) == []
    )


@pytest.mark.spark
def test_links_carry_the_partials_that_replay_says(spark: SparkSession) -> None:
    events = generate_traffic(500, seed=3, duration_us=30_000_000, brokers=CHAIN.brokers).sort_by("ts")
    drawn = traffic_subscriptions(
        12, seed=4, brokers=CHAIN.brokers, selectivity=0.2, window=("6 seconds", "2 seconds"), regular_share=0.3
    )
    asked = [Subscription(name, at, sql=sql) for name, at, sql in drawn]
    run = replay(spark, spark.createDataFrame(events), overlay=CHAIN, subscriptions=asked)
    for placement in ("late", "early", "adaptive", "selective", "cover"):
        at_once = Options(delay_us_min=0, delay_us_max=0)
        found = simulate(events, overlay=CHAIN, subscriptions=asked, placement=placement, options=at_once)
        expected = sorted(tuple(row) for row in run.under(placement).traffic.collect())
        rows = sorted(tuple(row.values()) for row in found.traffic.to_pylist())
        assert [row for row in rows if row[2] != "control"] == expected, placement
        assert {row[2] for row in rows} >= {"publication", "notification", "control"}
        assert ("partial" in {row[2] for row in rows}) == (placement != "late")


def some_events(**columns: Any) -> pa.Table:
    given = {"event_id": [1, 1], "topic": ["t", "t"], "broker": ["b1", "b1"], "x": [1.0, 2.0], **columns}
    return pa.table({**given, "ts": pa.array([0, 1], pa.timestamp("us", "UTC"))})


ALL = Subscription("all", "b3", sql="SELECT * FROM t")


def test_events_that_are_none_are_told_with_their_reasons() -> None:
    events = some_events(x=[float("nan"), 2.0])
    found = simulate(events, overlay=CHAIN, subscriptions=[ALL])
    assert found.rejected.to_pylist() == [{"event_id": 1, "reason": "x is NaN or infinite"}]
    assert found.deliveries.to_pylist() == [{"subscription": "all", "event_id": 1}]


def test_ids_that_come_twice_are_delivered_twice_as_replay_does() -> None:
    found = simulate(some_events(), overlay=CHAIN, subscriptions=[ALL])
    assert found.deliveries.column("event_id").to_pylist() == [1, 1]
    publications = [row["messages"] for row in found.traffic.to_pylist() if row["kind"] == "publication"]
    assert publications == [2, 2]


def test_a_sum_beyond_64_bits_is_reported_and_stops_nobody() -> None:
    events = some_events(x=pa.array([2**62, 2**62], pa.int64()))
    asked = [
        Subscription("s", "b3", sql="SELECT sum(x) FROM t GROUP BY window(ts, '1 second')"),
        Subscription("n", "b3", sql="SELECT count(*) FROM t GROUP BY window(ts, '1 second') HAVING sum(x) > 0"),
        Subscription("c", "b3", sql="SELECT count(*) FROM t GROUP BY window(ts, '1 second')"),
    ]
    found = simulate(events, overlay=CHAIN, subscriptions=asked)
    assert found.notifications.column("subscription").to_pylist() == ["c"]
    assert sorted(found.overflows.column("subscription").to_pylist()) == ["n", "s"]
    expected = oracle(events, subscriptions=asked)
    assert differences(expected, found.notifications, found.deliveries, found.overflows) == []


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"placement": "middle"}, r"placement is 'middle'; accepted are late, .*, cover, or a class of Placement$"),
        ({"placement": "optimal"}, r"placement is 'optimal'; accepted are late, .*, cover, or a class of Placement$"),
        ({"placement": None}, r"placement is None; accepted are late, .*, cover, or a class of Placement$"),
        ({"cost": 3}, r"cost is 3; accepted is a Cost, as in Cost\(message=1.0"),
        ({"sampling_period": 2}, r"2 is no duration; accepted are whole numbers of microseconds"),
        (
            {"collection_delay": ("1 second",)},
            r"collection_delay is \('1 second',\); accepted is a duration, or a pair",
        ),
        ({"collection_delay": 5}, r"collection_delay is 5; accepted is a duration, or a pair of them"),
        ({"events": None}, r"events is of type NoneType; accepted is pyarrow\.lib\.Table or pyarrow"),
        ({"overlay": None}, r"overlay is of type NoneType; accepted is catchment\.overlay\.graph\.Overlay"),
        ({"options": None}, r"options is of type NoneType; accepted is catchment\.simulation\.\w+\.Options"),
        ({"subscriptions": ALL}, r"subscriptions is of type Subscription; accepted is a list of"),
        (
            {"subscriptions": ["all"]},
            r"one of subscriptions is of type str; accepted is catchment\.model\.\w+\.Subscription",
        ),
        ({"warm_up": "-1 seconds"}, r"warm_up is '-1 seconds'; accepted is a duration from zero on"),
    ],
)
def test_bad_settings_are_refused_by_name(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(CatchmentError, match=message):
        simulate(**{"events": some_events(), "overlay": CHAIN, "subscriptions": [], **wrong})


def test_bad_questions_are_refused_by_name() -> None:
    with pytest.raises(SubscriptionError, match="two subscriptions are named 'all'"):
        simulate(some_events(), overlay=CHAIN, subscriptions=[ALL, ALL])
    with pytest.raises(OverlayError, match="b9"):
        simulate(some_events(), overlay=CHAIN, subscriptions=[Subscription("a", "b9", sql="SELECT * FROM t")])
    with pytest.raises(SubscriptionError, match="names no broker"):
        simulate(some_events(), overlay=CHAIN, subscriptions=[Subscription("a", sql="SELECT * FROM t")])
