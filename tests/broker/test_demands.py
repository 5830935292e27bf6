"""What SUB carries: filters of regular subscriptions, and questions of aggregates."""

from typing import Any

import msgspec
import pytest

from catchment import Filter, Subscription
from catchment.broker.demands import (
    AskedQuestion,
    Demand,
    demand_from_plain,
    demand_to_plain,
    in_order,
    require_fitting,
    where_of,
)
from catchment.broker.frames import DEMANDS_BYTES_MAX, fitting_messages, message_bytes
from catchment.broker.messages import Subscribed
from catchment.broker.summaries import Covering, DemandSummary
from catchment.model.errors import CatchmentError
from catchment.model.schema import Schema, Type

SCHEMA = Schema({"x": Type.INT, "road": Type.STRING})
FULL = SCHEMA.with_implicit()


def asked(measures: str, where: str = "x > 3", subscription: str = "") -> AskedQuestion:
    sql = f"SELECT {measures} FROM t WHERE {where} GROUP BY window(ts, '5 seconds')"
    return AskedQuestion.of(Subscription("s", sql=sql).within({"t": SCHEMA}), FULL, subscription)


COUNTED, SUMMED = asked("count(*)"), asked("sum(x)")
BOTH = asked("count(*), sum(x)")


@pytest.mark.parametrize(
    "demand", [Filter.parse("x > 3"), COUNTED, asked("count(DISTINCT road), avg(x)", "TRUE", "b/1")]
)
def test_a_demand_is_read_as_it_was_written(demand: Demand) -> None:
    plain = msgspec.msgpack.decode(msgspec.msgpack.encode(demand_to_plain(demand)))
    assert demand_from_plain(plain) == demand
    assert where_of(demand_from_plain(plain)) == where_of(demand)


TALLY = ["tally", None, "int"]


@pytest.mark.parametrize(
    "plain",
    [
        [],
        [1],
        "nonsense",
        [[[]], [10, 10], [], [TALLY]],
        [[[]], [0, 10], [], [TALLY], ""],
        [[[]], [10, 10], [], [], ""],
        [[[]], [10, 10], [], [TALLY, TALLY], ""],
        [[[]], [10, 10], [], [["magic", None, "int"]], ""],
        [[[]], [10, 10], [], [["tally", None, "no type"]], ""],
        [[[]], [10, 10], [], [TALLY], 7],
        [[["nowhere", []]], [10, 10], [], [TALLY], ""],
    ],
)
def test_what_is_no_demand_is_an_error(plain: Any) -> None:
    with pytest.raises((CatchmentError, msgspec.MsgspecError)):
        demand_from_plain(plain)


@pytest.mark.parametrize(
    "plain",
    [
        [[[]], [10, 10], ["nowhere"], [TALLY], ""],
        [[[]], [10, 10], [], [["values", "nowhere", "int"]], ""],
        [[[["x", "string", False, [[["a", 0], ["a", 1]]], []]]], [10, 10], [], [TALLY], ""],
    ],
)
def test_a_question_about_other_attributes_does_not_fit(plain: Any) -> None:
    with pytest.raises(CatchmentError):
        require_fitting(demand_from_plain(plain), FULL)


def test_a_shared_question_is_sent_once_with_all_parts_that_are_asked() -> None:
    summary = DemandSummary(Covering())
    assert summary.add(COUNTED) == ((COUNTED,), ())
    assert summary.add(COUNTED) == ((), ())
    assert summary.add(SUMMED) == ((BOTH,), (COUNTED,))
    assert summary.add(BOTH) == ((), ())
    assert summary.sent == (BOTH,)
    assert summary.remove(SUMMED) == ((), ())
    assert summary.remove(BOTH) == ((COUNTED,), (BOTH,))
    summary.remove(COUNTED)
    assert summary.remove(COUNTED) == ((), (COUNTED,))
    assert summary.sent == ()


def test_a_question_neither_covers_nor_is_covered() -> None:
    summary = DemandSummary(Covering())
    wide, narrow, other = Filter.parse("x > 1"), Filter.parse("x > 5"), asked("count(*)", "x > 5")
    summary.add(wide)
    assert summary.add(narrow) == ((), ())
    assert summary.add(COUNTED) == ((COUNTED,), ())
    assert summary.add(other) == ((other,), ())
    assert summary.add(asked("count(*)", "FALSE")) == ((), ())
    assert set(summary.sent) == {wide, COUNTED, other}
    back = DemandSummary(Covering())
    back.restore([other, narrow, COUNTED, wide], summary.sent)
    assert back.sent == summary.sent


def test_questions_of_one_subscription_alone_are_each_sent() -> None:
    summary = DemandSummary(Covering())
    mine, other = asked("count(*)", subscription="b1/1"), asked("count(*)", subscription="b1/2")
    assert summary.add(mine) == ((mine,), ())
    assert summary.add(other) == ((other,), ())
    assert summary.remove(mine) == ((), (mine,))


def test_many_demands_are_sent_in_several_messages() -> None:
    added = in_order([Filter.parse(f"x IN ({', '.join(str(n * m) for n in range(500))})") for m in range(1, 100)])
    dropped = (COUNTED, SUMMED)
    messages = [Subscribed("t", 2**62, *some) for some in fitting_messages("t", added, dropped)]
    assert len(messages) > 1
    assert max(map(message_bytes, messages)) <= DEMANDS_BYTES_MAX
    assert tuple(one for message in messages for one in message.added) == added
    assert tuple(one for message in messages for one in message.dropped) == dropped
