"""The stages say what the oracle says, however the events are cut and the partials are ordered."""

from hypothesis import given, settings
from hypothesis import strategies as st

from catchment import oracle
from catchment.oracle import differences
from tests.model import strategies
from tests.stages.local import answers


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
