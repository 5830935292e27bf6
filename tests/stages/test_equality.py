"""The stages say what the oracle says, however the events are cut and the partials are ordered."""

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from catchment import Schema, Subscription, oracle
from catchment.oracle import differences
from tests.model import strategies
from tests.stages.local import answers

LEAST = -(2**63)


@st.composite
def cases(draw: st.DrawFn) -> tuple[object, ...]:
    topics = {
        topic: draw(strategies.schemas(names=[f"{topic} {name}" for name in strategies.NAMES]))
        for topic in draw(st.sampled_from([("traffic",), ("traffic", "stock")]))
    }
    return (
        topics,
        draw(strategies.event_tables(topics)),
        draw(strategies.subscriptions(topics, count_max=5)),
        draw(st.lists(st.integers(0, 30), max_size=3)),
        draw(st.permutations(range(4))),
        draw(st.booleans()),
    )


@given(cases())
@settings(max_examples=150, deadline=None)
def test_stages_equal_the_oracle(case: tuple) -> None:  # type: ignore[type-arg]
    topics, events, subscriptions, cuts, order, compact = case
    cuts = [cut for cut in cuts if cut < len(events)]
    got = answers(events, subscriptions, topics, cuts=cuts, order=order, compact=compact)
    expected = oracle(events, subscriptions=subscriptions, schema=topics)
    assert differences(expected, *got) == []


def test_the_least_integer_is_a_value_like_any_other() -> None:
    rows = [LEAST, LEAST + 1, LEAST, None, 2**63 - 1]
    events = pa.table(
        {
            "event_id": list(range(len(rows))),
            "topic": ["t"] * len(rows),
            "broker": ["b"] * len(rows),
            "ts": pa.array([0] * len(rows), pa.timestamp("us", "UTC")),
            "n": pa.array(rows, pa.int64()),
        }
    )
    asked = ("min(n), max(n), count(n), avg(n)", "n, count(*), min(n)", "count(distinct n), mode(n), median(n)")
    conditions = ("TRUE", "n < 0", "n IS NULL", "n < -5 OR n > 5", "n != 7", "n <= -9223372036854775806")
    subscriptions = [
        Subscription(
            f"{measures} {condition}",
            sql=f"SELECT {measures} FROM t WHERE {condition} "
            f"GROUP BY window(ts, '1 second'){', n' * measures.startswith('n')}",
        )
        for measures in asked
        for condition in conditions
    ]
    topics = {"t": Schema({"n": "int"})}
    got = answers(events, subscriptions, topics, cuts=[2], order=(0, 1, 2, 3), compact=True)
    assert differences(oracle(events, subscriptions=subscriptions, schema=topics), *got) == []
