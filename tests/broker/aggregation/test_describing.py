"""One readable line for each message between brokers that aggregate."""

from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest

from catchment import Subscription
from catchment.broker import messages as m
from catchment.broker.aggregation.clocks import NEVER
from catchment.broker.aggregation.describing import Describer
from catchment.broker.aggregation.marks import Marks
from catchment.broker.aggregation.places import Outlet, Pairs
from catchment.broker.aggregation.questions import Questions
from catchment.broker.demands import AskedQuestion
from catchment.model.filter import Filter
from catchment.model.schema import Schema, Type
from catchment.stages import partials_to_bytes

SCHEMAS = {"t": Schema({"x": Type.INT, "y": Type.FLOAT, "road": Type.STRING})}
FULL = SCHEMAS["t"].with_implicit()
GROUP_BY = "FROM t GROUP BY window(ts, '10 microseconds')"
EVENTS = pa.RecordBatch.from_pydict(
    {
        "event_id": ["e1", "e2"],
        "ts": pa.array([3, 4], Type.TIMESTAMP.arrow),
        "x": [5, 7],
        "y": [0.5, 1.5],
        "road": ["a", None],
    }
)


def asked(sql: str, subscription: str = "b3/1") -> AskedQuestion:
    return AskedQuestion.of(Subscription("s", sql=sql).within(SCHEMAS), FULL, subscription)


def told(*value: Any) -> m.AdviceMessage:
    return m.AdviceMessage("aggregation", msgspec.msgpack.encode(value))


def question_id(one: AskedQuestion) -> int:
    return one.planned("t", FULL).id


def flow(*several: AskedQuestion, promise_us: int | None = None) -> m.AdviceMessage:
    """What an outlet tells of both events."""
    questions = Questions("t", SCHEMAS["t"])
    by_stride = not several[0].subscription
    outlet = Outlet("b2", questions, by_stride=by_stride)
    for one in several:
        number = questions.add(one, "b2").number
        outlet.add(Pairs(EVENTS, np.array([0, 1]), np.array([number, number])), 10)
    pieces = [partials_to_bytes(rows) for rows in outlet.pieces(outlet.take_until(10), 10**6)]
    return told("flow", "t", pieces, promise_us, 0)


COUNT = asked(f"SELECT count(*) {GROUP_BY}")


def test_questions_are_numbered_as_subs_bring_them() -> None:
    describe = Describer(SCHEMAS)
    other = asked(f"SELECT sum(x) {GROUP_BY}", "b3/2")
    sub = m.Subscribed("t", 1, (Filter.parse("x > 1"), COUNT, other))
    assert describe(sub) == (
        "SUB t [x > 1] [q1: tally of * where TRUE over 10us every 10us for b3/1]"
        " [q2: whole total of x where TRUE over 10us every 10us for b3/2]"
    )
    assert describe(m.Subscribed("t", 2, (), (other,), {"other": msgspec.msgpack.encode(7)})) == (
        "UNSUB t [q2: whole total of x where TRUE over 10us every 10us for b3/2] +other=7"
    )


def test_marks_say_which_partials_have_an_event_and_until_when_it_was_held() -> None:
    describe = Describer(SCHEMAS)
    describe(m.Subscribed("t", 1, (COUNT,)))
    ids = np.array([question_id(COUNT), question_id(COUNT)])
    columns = Marks(np.array([0, 1]), ids, np.array([NEVER, 20])).columns(2)
    assert columns is not None
    notes = pa.RecordBatch.from_pydict({f"aggregation/{name}": column for name, column in columns.items()})
    assert describe(m.Published("t", EVENTS, notes)) == "PUB t e1 e2 (e1 in q1, e2 in q1, e2 held until 20us)"
    others = pa.RecordBatch.from_pydict({"mood/is_good": [True, False]})
    assert describe(m.Published("t", EVENTS, others)) == "PUB t e1 e2 +mood/is_good"


@pytest.mark.parametrize(
    ("outputs", "shown"),
    [
        ("count(*)", "count=2"),
        ("count(road)", "count(road)=1"),
        ("sum(x)", "count(x)=2 sum(x)=12"),
        ("avg(y)", "count(y)=2 sum(y)=2.0"),
        ("var_samp(y)", "count(y)=2 mean(y)=1.0 squares(y)=0.5"),
        ("min(x), max(y)", "max(y)=1.5 min(x)=5"),
        ("max(road)", "max(road)=a"),
        ("median(x)", "values(x)=[5, 7]"),
        ("count(DISTINCT road)", "distinct values(road)=['a']"),
    ],
)
def test_a_partial_is_shown_with_its_window_and_states(outputs: str, shown: str) -> None:
    describe = Describer(SCHEMAS)
    one = asked(f"SELECT {outputs} {GROUP_BY}")
    describe(m.Subscribed("t", 1, (one,)))
    assert describe(flow(one, promise_us=10)) == f"flow t: partial q1 window=[0,10) {shown}; promise 10us"


def test_sketches_are_shown_by_their_size() -> None:
    describe = Describer(SCHEMAS)
    one = asked(f"SELECT approx_count_distinct(x) {GROUP_BY}")
    describe(m.Subscribed("t", 1, (one,)))
    assert describe(flow(one)) == "flow t: partial q1 window=[0,10) distinct sketch(x)=16 bytes"


def test_partials_of_shared_questions_are_shown_by_slice_and_group() -> None:
    describe = Describer(SCHEMAS)
    one = asked("SELECT count(*) FROM t GROUP BY window(ts, '15 microseconds', '10 microseconds'), road", "")
    describe(m.Subscribed("t", 1, (one,)))
    assert describe(flow(one)) == (
        "flow t: partial q1 slice=[0,5) road=a count=1; partial q1 slice=[0,5) road=null count=1"
    )


def test_other_news_in_words() -> None:
    describe = Describer(SCHEMAS)
    describe(m.Subscribed("t", 1, (COUNT,)))
    key = question_id(COUNT)
    assert describe(told("since", "t", [key], 90)) == "since t: q1 misses events up to 90us"
    assert describe(told("floor", "t", 80)) == "floor t: closed until 80us"
    assert describe(told("want", "t", 70, 5)) == "want t: 70us"
    assert describe(told("ahead", "t", [[[key, 0, -1, -1, None], 2]])) == "ahead t: q1 +2 links"


def test_what_nobody_has_explained_is_shown_as_it_is() -> None:
    describe = Describer(SCHEMAS)
    (part,) = COUNT.parts
    assert describe(flow(COUNT)) == f"flow t: partial {question_id(COUNT)} number=0 part {part.id}"
    assert describe(told("sing", "t")) == "TELL aggregation ['sing', 't']"
    assert describe(m.Confirmed(3)) == "CONFIRM 3"
