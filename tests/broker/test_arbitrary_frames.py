"""Whatever decodes may be said to a broker, by anyone: it goes on, and what it says itself always encodes."""

from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from catchment import Filter
from catchment.broker import Frame, decode, encode
from catchment.broker.broker import Broker, Settings
from catchment.broker.memory import recalled, remembered
from catchment.broker.messages import Published, Subscribed
from tests.broker.test_frames import MESSAGES
from tests.broker.test_subscriber_count import COUNT
from tests.broker.wire import SCHEMAS

SENDERS = st.sampled_from(["b2", "b2", "b3", "c", "stranger"])


@given(st.lists(st.tuples(SENDERS, MESSAGES, st.integers(-1, 1)), max_size=12), st.sampled_from(["bound", "covering"]))
@settings(max_examples=300, deadline=None)
def test_a_broker_survives_arbitrary_frames(said: list[tuple[str, Any, int]], summary: Any) -> None:
    agreed = Settings(schemas=SCHEMAS, summary=summary)
    broker = Broker("b1", ["b2", "b3"], agreed, [COUNT()])
    broker.attach("c")
    counts: dict[tuple[str, bool], int] = {}
    for now_us, (sender, message, off) in enumerate(said):
        key = (sender, message.is_event)
        counts[key] = counts.get(key, 0) + 1
        frame = Frame(sender, max(counts[key] + off * (now_us % 3 == 0), 1), message)
        assert broker.receive_bytes(encode(frame), now_us)
        for send in broker.take_output():
            assert str(decode(encode(send.frame)))
        due_us = broker.timer_us()
        if due_us is not None:
            broker.handle_timer(due_us)
        broker = recalled(remembered(broker), agreed, [COUNT()])
    broker.detach("c", len(said))
    broker.take_output()


def test_events_that_do_not_fit_their_topic_are_counted_and_go_nowhere() -> None:
    broker = Broker("b1", ["b2", "b3"], Settings(schemas=SCHEMAS))
    broker.receive(Frame("b3", 1, Subscribed("traffic", 1, (Filter.parse("speed < 5"),))), 0)
    broker.take_output()
    for sequence, speeds in enumerate((["fast"], [float("nan")]), 1):
        events = pa.RecordBatch.from_pydict({"event_id": ["a"], "speed": speeds})
        assert broker.receive(Frame("b2", sequence, Published("traffic", events)), 0)
    assert broker.counters == {"batches that do not fit their topic": 2}
    assert broker.take_output() == []
