"""`oracle == simulate` for aggregates, and `simulate == replay` for what links carry, under every placement."""

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catchment import Overlay, Schema, Subscription, oracle, simulate
from catchment.oracle import differences
from catchment.overlay.placement import ONLINE
from catchment.simulation.options import Options
from catchment.simulation.service import ServiceTimes
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
    if way["delivery"] == "revisions":
        # What HAVING let pass once may be revised to what it would not.
        asked = [one for one in asked if "HAVING" not in one.sql]
    found = simulate(events, overlay=overlay, subscriptions=asked, schema={TOPIC: schema}, **way)
    dropped = found.dropped.column("event_id").to_pylist()
    kept = events.filter(pa.array([one not in dropped for one in events.column("event_id").to_pylist()], pa.bool_()))
    expected = oracle(kept, subscriptions=asked, schema={TOPIC: schema})
    assert differences(expected, found.notifications, found.deliveries) == []
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


def check_links(case: Case, placement: str, summary: Any) -> None:
    overlay, schema, events, asked = case
    events = events.sort_by("ts")
    found = simulate(
        events, overlay=overlay, subscriptions=asked, schema={TOPIC: schema}, placement=placement,
        sampling_period="1 second", summary=summary, options=AT_ONCE,
    )  # fmt: skip
    assert found.dropped.num_rows == 0
    carried = [row for row in found.traffic.to_pylist() if row["kind"] in ("publication", "partial")]
    assert carried == Placing(overlay, schema, events, asked).traffic(placement)


@pytest.mark.parametrize("placement", ALIKE)
@given(cases(), st.sampled_from(["covering", "each"]))
@settings(max_examples=40, deadline=None)
def test_links_carry_what_replay_says(placement: str, case: Case, summary: str) -> None:
    check_links(case, placement, summary)


@pytest.mark.long
@pytest.mark.parametrize("placement", ALIKE)
@given(cases(), st.sampled_from(["covering", "each"]))
@settings(max_examples=400, deadline=None)
def test_links_carry_what_replay_says_at_length(placement: str, case: Case, summary: str) -> None:
    check_links(case, placement, summary)
