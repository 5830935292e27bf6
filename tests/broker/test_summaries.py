"""What a broker sends a neighbour of the demands on all its other sides."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catchment.broker.summaries import SUMMARIES, DemandSummary
from catchment.model.filter import NO_EVENT, Filter
from tests.broker.aggregation.tools import COUNT, SUM, TUMBLING, asked

CONDITIONS = ["x < 10", "x < 20", "x > 5", "x BETWEEN 3 AND 7", "road = 'a'", "road = 'a' AND x < 5", "TRUE"]
FILTERS = [Filter.parse(text) for text in CONDITIONS]
EVENTS = [{"x": value, "road": road} for value in (0, 4, 6, 15, 30) for road in ("a", "b", None)]
NOTHING = Filter.parse("x < 1 AND x > 2")


def matched(filters: tuple[Filter, ...]) -> list[bool]:
    return [any(one.matches(event) for one in filters) for event in EVENTS]


@pytest.mark.parametrize("name", sorted(SUMMARIES))
@given(st.lists(st.tuples(st.booleans(), st.sampled_from(FILTERS)), max_size=12))
def test_a_summary_loses_no_event_and_says_what_it_changes(name: str, steps: list[tuple[bool, Filter]]) -> None:
    summary, there, known = SUMMARIES[name](), [], set()
    for adds, condition in steps:
        if not adds and condition not in there:
            continue
        shift = summary.add(condition) if adds else summary.remove(condition)
        (there.append if adds else there.remove)(condition)
        assert known.isdisjoint(shift.risen)
        assert known.issuperset(shift.sunk)
        known = known - set(shift.sunk) | set(shift.risen)
        assert known == set(summary.sent)
        wanted, sent = matched(tuple(there)), matched(summary.sent)
        assert all(passes for passes, needed in zip(sent, wanted, strict=True) if needed)
        assert name == "bound" or sent == wanted
    for condition in there:
        summary.remove(condition)
    assert summary.sent == ()


def test_how_many_filters_each_summary_sends() -> None:
    sent = {}
    for name, make in SUMMARIES.items():
        summary = make()
        for text in ("x < 10", "x < 20", "x > 50"):
            summary.add(Filter.parse(text))
        sent[name] = list(map(str, summary.sent))
    assert {name: len(filters) for name, filters in sent.items()} == {"bound": 1, "covering": 2, "each": 3}
    assert sent["covering"] == ["x < 20", "x > 50"]


@pytest.mark.parametrize("name", sorted(SUMMARIES))
def test_a_demand_that_no_event_satisfies_is_not_sent(name: str) -> None:
    assert NOTHING == NO_EVENT
    summary = DemandSummary(SUMMARIES[name]())
    nobody = asked(f"SELECT count(*) FROM t WHERE x < 1 AND x > 2 {TUMBLING}")
    for demand in (NOTHING, nobody):
        assert not summary.add(demand)
        assert summary.sent == ()
        assert not summary.remove(demand)


def test_a_question_is_sent_once_with_the_parts_that_any_side_asks_of_it() -> None:
    summary = DemandSummary(SUMMARIES["covering"]())
    count, total, both = asked(COUNT), asked(SUM), asked(f"SELECT count(*), sum(x) FROM t {TUMBLING}")
    assert tuple(summary.add(count)) == ((count,), ())
    assert not summary.add(count)
    assert tuple(summary.add(total)) == ((both,), (count,))
    assert summary.sent == (both,)
    assert not summary.remove(count)
    assert tuple(summary.remove(count)) == ((total,), (both,))
    assert tuple(summary.remove(total)) == ((), (total,))
    assert summary.sent == ()


def test_filters_and_questions_leave_each_other_alone() -> None:
    summary = DemandSummary(SUMMARIES["covering"]())
    everything, count, own = Filter.parse("TRUE"), asked(COUNT), asked(COUNT, "b/1")
    for demand in (own, everything, count):
        assert tuple(summary.add(demand)) == ((demand,), ())
    assert summary.sent == (everything, count, own)
