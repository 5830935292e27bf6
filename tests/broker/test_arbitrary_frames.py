"""Whatever decodes may be said to a broker, by anyone: it goes on, and what it says itself always decodes."""

from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from catchment import Filter
from catchment.broker.aggregation import Aggregation, AggregationOptions
from catchment.broker.broker import Broker, Settings
from catchment.broker.inputs import Attached, Detached, Woken
from catchment.broker.memory import freeze, restored
from catchment.broker.messages import Published, Subscribed
from tests.broker.test_frames import MESSAGES
from tests.broker.test_subscriber_count import COUNT
from tests.broker.wire import SCHEMAS, Desk, Voice

SENDERS = st.sampled_from(["b2", "b2", "b3", "c", "stranger"])
SAID = st.tuples(SENDERS, st.lists(MESSAGES, min_size=1, max_size=3), st.integers(-1, 1))


@given(st.lists(SAID, max_size=12), st.sampled_from(["bound", "covering"]))
@settings(max_examples=200, deadline=None)
def test_a_broker_survives_arbitrary_frames(said: list[tuple[str, list[Any], int]], summary: Any) -> None:
    agreed = Settings(schemas=SCHEMAS, summary=summary)
    desk = Desk(Broker("b1", ["b2", "b3"], agreed, [COUNT()]))
    desk.hand(Attached("c"))
    voices = {name: Voice(name) for name in ("b2", "b3", "c", "stranger")}
    for now_us, (sender, messages, off) in enumerate(said):
        voice = voices[sender]
        voice.sequence = max(voice.sequence + off * (now_us % 3 == 0), 0)
        step = desk.hand(voice.says(*messages), at_us=now_us)
        for voice in voices.values():
            assert all(map(str, voice.hears(step)))
        if step.timer_us is not None:
            desk.hand(Woken(), at_us=step.timer_us)
        desk.broker = restored(freeze(desk.broker).pieces(), agreed, [COUNT()])
    desk.hand(Detached("c"), at_us=len(said))


def aggregating(name: str, *neighbours: str) -> Broker:
    return Broker(name, neighbours, Settings(schemas=SCHEMAS), [Aggregation(AggregationOptions())])


def test_events_that_do_not_fit_their_topic_are_counted_and_go_nowhere() -> None:
    desk, left, right = Desk(aggregating("b1", "b2", "b3")), Voice("b2"), Voice("b3")
    desk.hand(right.says(Subscribed("traffic", 1, (Filter.parse("speed < 5"),))))
    times = pa.array([1], pa.timestamp("us", tz="UTC"))
    for columns in (
        {"event_id": ["a"], "ts": times, "speed": ["fast"]},
        {"event_id": ["a"], "ts": times, "speed": [float("nan")]},
        {"event_id": ["a"], "speed": [1.0]},
        {"event_id": ["a"], "ts": pa.nulls(1, times.type), "speed": [1.0]},
        {"event_id": ["a"], "ts": ["now"], "speed": [1.0]},
        {"ts": times, "speed": [1.0]},
        {"event_id": [1], "ts": times, "speed": [1.0]},
        {"event_id": pa.nulls(1, pa.string()), "ts": times, "speed": [1.0]},
        {"event_id": pa.array([], pa.string()), "ts": times.slice(0, 0), "speed": pa.array([], pa.float64())},
    ):
        events = pa.RecordBatch.from_pydict(columns)
        step = desk.hand(left.says(Published("traffic", events)))
        assert [one.kind for one in step.outcomes] == ["taken"]
        assert step.sends == ()
    assert desk.broker.counters == {"batches that do not fit their topic": 9}
    assert desk.broker.failures == desk.broker.input_failures == ()


def test_events_that_wait_together_with_some_that_do_not_fit_are_forwarded() -> None:
    desk, left, right = Desk(Broker("b1", ["b2", "b3"], Settings(schemas=SCHEMAS))), Voice("b2"), Voice("b3")
    desk.hand(right.says(Subscribed("traffic", 1, (Filter.parse("speed < 5"),))))
    frames = [
        left.says(Published("traffic", pa.RecordBatch.from_pydict({"event_id": [name], "ts": times, "speed": [1.0]})))
        for name in "abc"
        for times in [pa.array([None if name == "b" else 1], pa.timestamp("us", tz="UTC"))]
    ]
    assert [str(one) for one in right.hears(desk.hand(*frames))] == ["PUB traffic a c"]
    assert desk.broker.counters == {"batches that do not fit their topic": 1}
