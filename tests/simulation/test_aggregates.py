"""`oracle == simulate` for aggregates, and `simulate == replay` for what links carry, under every placement."""

from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catchment import Overlay, Schema, Subscription, oracle, simulate
from catchment.oracle import differences
from catchment.overlay.placement import ONLINE
from catchment.simulation.options import Options
from catchment.simulation.overlays import SHAPES, overlay_of
from catchment.simulation.service import ServiceTimes
from catchment.workloads import TRAFFIC_SCHEMA, generate_traffic, traffic_subscriptions
from tests.stages.test_placing import TOPIC, Placing, cases

ALIKE = [name for name in ONLINE if name != "coordinated"]
"""Those whose brokers need not know what others have chosen in the same moment."""
FAULTY = Options(duplicates=0.2, drops=0.2, in_flight_max=3, delay_us_max=50_000)
BUSY = Options(service=ServiceTimes(match_us=500, add_us=300, merge_us=300, send_us=1_000))
AT_ONCE = Options(delay_us_min=0, delay_us_max=0)

Case = tuple[Overlay, Schema, pa.Table, list[Subscription]]

ways = st.fixed_dictionaries(
    {
        "placement": st.sampled_from(ONLINE),
        "delivery": st.sampled_from(["final", "revisions"]),
        "forwarding": st.sampled_from(["advertised", "flooded"]),
        "summary": st.sampled_from(["bound", "covering", "each"]),
        "lateness": st.sampled_from(["0 seconds", "3 seconds", "1 day"]),
        "idle_after": st.sampled_from(["1 second", "1 day"]),
        "sampling_period": st.sampled_from(["1 second", "3 seconds"]),
        "options": st.sampled_from([Options(), FAULTY, BUSY]),
        "seed": st.integers(0, 1000),
    }
)


def check(case: Case, way: dict[str, Any]) -> None:
    overlay, schema, events, asked = case
    found = simulate(events, overlay=overlay, subscriptions=asked, schema={TOPIC: schema}, **way)
    dropped = found.dropped.column("event_id").to_pylist()
    kept = events.filter(pa.array([one not in dropped for one in events.column("event_id").to_pylist()], pa.bool_()))
    expected = oracle(kept, subscriptions=asked, schema={TOPIC: schema})
    wrong = differences(expected, found.notifications, found.deliveries, found.overflows)
    if way["delivery"] == "revisions":
        # What HAVING let pass once may be revised to what it would not, and is not taken back.
        picky = {one.name for one in asked if "HAVING" in one.sql}
        # So may a value be that is beyond its type in the end, which is reported.
        picky |= set(found.overflows.column("subscription").to_pylist())
        wrong = [one for one in wrong if not any(one.startswith(f"unexpected: ('{name}'") for name in picky)]
    assert wrong == []
    assert found.rejected.num_rows == 0


@given(cases(), ways)
@settings(max_examples=100, deadline=None)
def test_simulate_equals_the_oracle(case: Case, way: dict[str, Any]) -> None:
    check(case, way)


@pytest.mark.long
@given(cases(), ways)
@settings(max_examples=1_000, deadline=None)
def test_simulate_equals_the_oracle_at_length(case: Case, way: dict[str, Any]) -> None:
    check(case, way)


def check_links(case: Case, placement: str, summary: Any, idle_after: str = "10 seconds") -> None:
    overlay, schema, events, asked = case
    events = events.sort_by("ts")
    found = simulate(
        events, overlay=overlay, subscriptions=asked, schema={TOPIC: schema}, placement=placement,
        sampling_period="1 second", idle_after=idle_after, summary=summary, options=AT_ONCE,
    )  # fmt: skip
    assert found.dropped.num_rows == 0
    carried = [row for row in found.traffic.to_pylist() if row["kind"] in ("publication", "partial")]
    assert carried == Placing(overlay, schema, events, asked).traffic(placement)


@pytest.mark.parametrize("placement", ALIKE)
@given(cases(), st.sampled_from(["covering", "each"]), st.sampled_from(["10 seconds", "1 millisecond"]))
@settings(max_examples=100, deadline=None)
def test_links_carry_what_replay_says(placement: str, case: Case, summary: str, idle_after: str) -> None:
    check_links(case, placement, summary, idle_after)


def test_a_shared_partial_holds_only_what_is_asked_beyond_a_link() -> None:
    schema = Schema.of({"a": "int"})
    stamps = pa.array([0, 0], pa.timestamp("us", "UTC"))
    plain = {"event_id": [0, 1], "topic": [TOPIC] * 2, "broker": ["b0"] * 2, "a": pa.array([1, 2], pa.int64())}
    sql = f"SELECT {{}} FROM {TOPIC} GROUP BY window(ts, '1 second')"
    asked = [Subscription("s", "b1", sql=sql.format("count(*)")), Subscription("t", "b0", sql=sql.format("sum(a)"))]
    case = (Overlay.from_links([("b0", "b1")]), schema, pa.table({**plain, "ts": stamps}), asked)
    check_links(case, "cover", "covering")


def test_a_decision_knows_nothing_that_was_held_further_up_until_a_later_one() -> None:
    stamps = pa.array([500_000, 500_000, 500_000, 5_500_000, 5_500_000], pa.timestamp("us", "UTC"))
    events = pa.table(
        {
            "event_id": range(5), "topic": [TOPIC] * 5, "broker": ["b0", "b1", "b0", "b0", "b1"], "ts": stamps,
            "a": pa.array([1, 1, None, None, None], pa.int64()),
        }
    )  # fmt: skip
    sql = f"SELECT count(*) FROM {TOPIC} {{}} GROUP BY window(ts, '{{}} seconds')"
    asked = [Subscription("s", "b2", sql=sql.format("", 3)), Subscription("t", "b2", sql=sql.format("WHERE a > 0", 1))]
    overlay = Overlay.from_links([("b0", "b1"), ("b1", "b2")])
    check_links((overlay, Schema.of({"a": "int"}), events, asked), "cover", "covering")


@pytest.mark.long
@pytest.mark.parametrize("placement", ALIKE)
@given(cases(), st.sampled_from(["covering", "each"]), st.sampled_from(["10 seconds", "1 millisecond"]))
@settings(max_examples=1_000, deadline=None)
def test_links_carry_what_replay_says_at_length(placement: str, case: Case, summary: str, idle_after: str) -> None:
    check_links(case, placement, summary, idle_after)


def changing(seed: int) -> Case:
    """Now many events and now few, so that brokers that look back change their mind."""
    random = Random(seed)
    overlay = overlay_of(random.choice(sorted(SHAPES)), random.randint(2, 6), random)
    rates = [random.choice([1, 4, 40]) for _ in range(6)]
    times = [second * 3 + random.random() * 3 for second, rate in enumerate(rates) for _ in range(3 * rate)]
    events = generate_traffic(len(times), seed=seed, duration_us=1, brokers=overlay.brokers)
    ts = pa.array(sorted(round(time * 1e6) for time in times), pa.timestamp("us", "UTC"))
    events = events.set_column(events.schema.get_field_index("ts"), "ts", ts)
    drawn = traffic_subscriptions(
        random.randint(2, 10), seed=seed, brokers=overlay.brokers, selectivity=random.choice([0.1, 0.5]),
        window=random.choice([("2 seconds", "2 seconds"), ("4 seconds", "1 second"), ("3 seconds", "2 seconds")]),
        regular_share=random.choice([0.0, 0.3]),
    )  # fmt: skip
    return overlay, TRAFFIC_SCHEMA, events, [Subscription(name, at, sql=sql) for name, at, sql in drawn]


def check_changes(seeds: range, placement: str) -> int:
    """How often brokers changed their mind, in worlds with and without faults."""
    transitions = 0
    for seed in seeds:
        overlay, schema, events, asked = changing(seed)
        how: dict[str, Any] = {
            "overlay": overlay, "subscriptions": asked, "schema": {TOPIC: schema}, "placement": placement,
            "sampling_period": "1 second",
        }  # fmt: skip
        expected = oracle(events, subscriptions=asked, schema={TOPIC: schema})
        found = simulate(events, options=FAULTY, lateness="1 day", seed=seed, **how)
        assert differences(expected, found.notifications, found.deliveries, found.overflows) == [], seed
        calm = simulate(events, options=AT_ONCE, **how)
        assert differences(expected, calm.notifications, calm.deliveries, calm.overflows) == [], seed
        if placement in ALIKE:
            carried = [row for row in calm.traffic.to_pylist() if row["kind"] in ("publication", "partial")]
            assert carried == Placing(overlay, schema, events, asked).traffic(placement), seed
        transitions += found.transitions + calm.transitions
    return transitions


@pytest.mark.parametrize("placement", ["adaptive", "selective", "coordinated"])
def test_nothing_is_lost_when_brokers_change_their_mind(placement: str) -> None:
    assert check_changes(range(8), placement) > 20


@pytest.mark.long
@pytest.mark.parametrize("placement", ["adaptive", "selective", "coordinated"])
def test_nothing_is_lost_when_brokers_change_their_mind_at_length(placement: str) -> None:
    assert check_changes(range(8, 300), placement) > 1_000
