"""At rest, what a client hears about the clients of a topic is as near to the truth as it asked for."""

import math
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import msgspec
import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catchment import Filter, Overlay
from catchment.broker import messages as m
from catchment.broker.broker import Broker, Settings
from catchment.broker.interest import FUNCTIONS, Interest, InterestOptions
from catchment.broker.interest.functions import COMBINERS, InterestFunction
from catchment.broker.interest.slack import DIVISIONS
from catchment.broker.memory import freeze, restored
from tests.broker.wire import SCHEMAS, Desk, Voice, Wire

CHAIN = Overlay.from_links([("b1", "b2"), ("b2", "b3")])
FIGURE_2 = Overlay.from_links([("b1", "b4"), ("b3", "b4"), ("b2", "b4"), ("b2", "b5")])


def wire_of(overlay: Overlay, **options: Any) -> Wire:
    return Wire(overlay, [lambda: Interest(InterestOptions(**options))])  # type: ignore[list-item]


def ask(wire: Wire, client: str, name: str, function: str, **more: Any) -> int:
    return wire.ask_advice(client, "interest", {"ask": name, "function": function, "topic": "traffic", **more})


def heard(wire: Wire, client: str, name: str) -> list[Any]:
    """All that a client was informed of under a name, as value and slack."""
    return [value for asked, *value in wire.informed(client) if asked == name]


# -- examples ----------------------------------------------------------------------------------------------------------


def test_the_papers_figure_counts_two_subscribers() -> None:
    wire = wire_of(FIGURE_2)
    wire.advertise("b1/c1")
    wire.subscribe("b3/c3", "all")
    wire.subscribe("b5/c4", "all")
    wire.run()
    request = ask(wire, "b1/c1", "mine", "subscriptions")
    wire.run()
    assert isinstance(wire.answer(request), m.Acknowledged)
    assert heard(wire, "b1/c1", "mine") == [[2, 0.0]]
    wire.unsubscribe("b3/c3", "all")
    wire.run()
    assert heard(wire, "b1/c1", "mine") == [[2, 0.0], [1, 0.0]]


def test_within_the_tolerance_nothing_is_sent() -> None:
    """The paper's example: a tolerance of 2 is 1 for each side, so that one subscriber may go and another come."""
    wire = wire_of(FIGURE_2)
    wire.subscribe("b3/c3", "all")
    wire.subscribe("b5/c4", "all")
    wire.run()
    ask(wire, "b1/c1", "mine", "subscriptions", tolerance=2)
    wire.run()
    before = len(wire.trace)
    wire.unsubscribe("b3/c3", "all")
    wire.subscribe("b3/c5", "all")
    wire.run()
    assert [line for line in wire.trace[before:] if "TELL interest" in line] == []
    wire.subscribe("b3/c6", "all")
    wire.subscribe("b3/c7", "all")
    wire.run()
    assert heard(wire, "b1/c1", "mine") == [[2, 2.0], [4, 2.0]]


def test_a_value_rides_on_a_subscription_that_goes_the_same_way() -> None:
    wire = wire_of(CHAIN)
    wire.advertise("b1/p")
    ask(wire, "b1/p", "mine", "subscriptions")
    wire.run()
    before = len(wire.trace)
    wire.subscribe("b3/s", "all")
    wire.run()
    lines = wire.trace[before:]
    assert heard(wire, "b1/p", "mine") == [[0, 0.0], [1, 0.0]]
    assert [line for line in lines if "TELL interest" in line] == []
    assert sum("SUB" in line for line in lines) == 2


def test_a_filter_counts_the_subscriptions_that_overlap_it() -> None:
    wire = wire_of(CHAIN)
    ask(wire, "b1/p", "slow", "subscriptions", where="speed < 30")
    wire.subscribe("b3/s", "slow", "speed < 20")
    wire.subscribe("b3/s", "fast", "speed > 90")
    wire.subscribe("b2/s", "mean", "speed BETWEEN 25 AND 40")
    wire.run()
    assert heard(wire, "b1/p", "slow")[-1] == [2, 0.0]


def test_a_subscriber_hears_of_its_publishers() -> None:
    wire = wire_of(CHAIN)
    ask(wire, "b3/s", "who", "publishers")
    wire.run()
    for client in ("b1/p", "b1/q", "b2/r"):
        wire.advertise(client)
    wire.run()
    wire.unadvertise("b1/q")
    wire.run()
    assert [value for value, _ in heard(wire, "b3/s", "who")] == [0, 1, 2, 3, 2]


def test_what_does_not_fit_on_a_subscription_goes_by_itself() -> None:
    wire = wire_of(CHAIN)
    wire.advertise("b1/p")
    ask(wire, "b1/p", "who", "subscribers")
    wire.run()
    clients = [f"b3/{'x' * 200}{number}" for number in range(60)]
    for client in clients:
        wire.subscribe(client, "all")
    wire.run()
    value, slack = heard(wire, "b1/p", "who")[-1]
    assert value == sorted(f"b3/{client}" for client in clients)
    assert slack == 0.0
    assert any(" -> b2 TELL interest" in line for line in wire.trace)
    assert not any(broker.failures for broker in wire.brokers.values())


def test_who_goes_asks_no_more_and_leaves_nothing() -> None:
    wire = wire_of(CHAIN)
    ask(wire, "b1/p", "one", "subscriptions")
    ask(wire, "b3/q", "two", "subscriptions", tolerance=1)
    wire.run()
    wire.ask_advice("b3/q", "interest", {"end": "two"})
    wire.run()
    assert all(broker.table_sizes()["questions about interest"] for broker in wire.brokers.values())
    wire.ask_advice("b1/p", "interest", {"end": "one"})
    wire.run()
    assert not any(broker.table_sizes()["questions about interest"] for broker in wire.brokers.values())
    before = len(wire.trace)
    wire.subscribe("b3/s", "all")
    wire.run()
    assert not any("TELL interest" in line for line in wire.trace[before:])


@pytest.mark.parametrize(
    ("value", "named"),
    [
        ({"ask": "x", "function": "loves", "topic": "traffic"}, "unknown interest 'loves'; known are publishers"),
        ({"ask": "x", "function": "publishers", "topic": "t"}, "unknown topic 't'; known are stock, traffic"),
        ({"ask": "x", "function": "publishers", "topic": "traffic", "where": "speed < 1"}, "on subscriptions only"),
        ({"ask": "x", "function": "subscriptions", "topic": "traffic", "where": "colour = 1"}, "colour"),
        ({"ask": "x", "function": "subscriptions", "topic": "traffic", "where": 7}, "a condition as text"),
        ({"ask": "x", "function": "subscriptions", "topic": "traffic", "tolerance": -1}, "at least 0"),
        ({"ask": "x", "function": "subscriptions", "topic": "traffic", "tolerance": math.inf}, "at least 0"),
        ({"ask": "x", "function": "subscriptions", "topic": "traffic", "tolerance": "much"}, "at least 0"),
        ({"ask": 1, "function": "subscriptions", "topic": "traffic"}, "a name that this client does not use"),
        ({"end": "y"}, "interest 'y' is not asked; there are none"),
        ({}, "accepted are 'ask' and 'end'"),
        ([1], "accepted are 'ask' and 'end'"),
    ],
)
def test_what_makes_no_sense_is_refused_by_name(value: Any, named: str) -> None:
    wire = wire_of(CHAIN)
    request = wire.ask_advice("b1/p", "interest", value)
    wire.run()
    answer = wire.answer(request)
    assert isinstance(answer, m.Refused)
    assert named in answer.reason
    assert not wire.brokers["b1"].failures


@pytest.mark.parametrize(
    "value",
    [
        7,
        {"grants": 1},
        {"grants": [1]},
        {"grants": [[["loves", "traffic", None], 0]]},
        {"values": [[1]]},
        {"values": 5},
    ],
)
def test_a_neighbour_that_talks_nonsense_is_reported(value: Any) -> None:
    broker, voice = Broker("b2", ["b1"], Settings(schemas=SCHEMAS), [Interest()]), Voice("b1")
    Desk(broker).hand(voice.says(m.AdviceMessage("interest", msgspec.msgpack.encode(value), 0)))
    assert broker.failures == broker.input_failures == ()
    assert broker.counters == {"messages about interest that do not fit": 1}


# -- any story ---------------------------------------------------------------------------------------------------------


@st.composite
def overlays(draw: st.DrawFn) -> Overlay:
    count = draw(st.integers(1, 9))
    if count == 1:
        return Overlay.single("b0")
    tree = nx.from_prufer_sequence(draw(st.lists(st.integers(0, count - 1), min_size=count - 2, max_size=count - 2)))
    return Overlay.from_links([(f"b{one}", f"b{other}") for one, other in tree.edges])


def number_of(client: str) -> int:
    """A number that a client contributes, the same wherever it is asked for."""
    return sum(client.encode()) % 7 + 1


def contributing(combiner: str, of: Callable[[str], Any]) -> InterestFunction:
    return InterestFunction("subscriptions", COMBINERS[combiner], of)


MORE = {
    "sums": contributing("sum", lambda client: number_of(client) / 4),
    "least": contributing("min", number_of),
    "greatest": contributing("max", number_of),
    "products": contributing("product", lambda client: 1 + number_of(client) / 8),
    "common": contributing("intersection", lambda client: list(range(number_of(client)))),
    "bits": contributing("bit_or", lambda client: 1 << number_of(client)),
    "all bits": contributing("bit_and", lambda client: ~(1 << number_of(client)) & 1023),
    "parity": contributing("bit_xor", lambda client: 1 << number_of(client)),
    "means": contributing("mean", lambda client: [number_of(client), 1]),
}
CONDITIONS = ["TRUE", "speed < 30", "speed > 60", "highway = '401'"]
TOLERANCES = {"products": [None, 1, 1.5, 4.0], "means": [None, 0]}


class Story:
    """Clients come, subscribe, advertise and ask, in any order; a model says what is true."""

    def __init__(self, overlay: Overlay, division: str) -> None:
        self.wire = wire_of(overlay, division=division)
        self.subscribed: dict[tuple[str, str], str] = {}
        self.publishing: set[str] = set()
        self.asked: dict[tuple[str, str], dict[str, Any]] = {}
        self._count = 0

    def act(self, draw: st.DrawFn | Callable[..., Any], client: str) -> None:
        what = draw(st.sampled_from(["subscribe", "subscribe", "unsubscribe", "advertise", "ask", "ask", "end"]))
        self._count += 1
        if what == "subscribe":
            name, condition = f"s{self._count}", draw(st.sampled_from(CONDITIONS))
            self.subscribed[client, name] = condition
            self.wire.subscribe(client, name, condition)
        elif what == "unsubscribe":
            mine = sorted(name for owner, name in self.subscribed if owner == client)
            if mine:
                name = draw(st.sampled_from(mine))
                del self.subscribed[client, name]
                self.wire.unsubscribe(client, name)
        elif what == "advertise":
            if client in self.publishing:
                self.wire.unadvertise(client)
            else:
                self.wire.advertise(client)
            self.publishing ^= {client}
        elif what == "ask":
            function = draw(st.sampled_from(sorted(FUNCTIONS)))
            question = {
                "function": function,
                "tolerance": draw(st.sampled_from(TOLERANCES.get(function, [None, 1, 2, 5]))),
            }
            if FUNCTIONS[function].source == "subscriptions":
                question["where"] = draw(st.sampled_from([None, *CONDITIONS[1:]]))
            self.asked[client, f"q{self._count}"] = question
            ask(self.wire, client, f"q{self._count}", **question)
        else:
            mine = sorted(name for owner, name in self.asked if owner == client)
            if mine:
                name = draw(st.sampled_from(mine))
                del self.asked[client, name]
                self.wire.ask_advice(client, "interest", {"end": name})

    def truth(self, question: dict[str, Any]) -> Any:
        function = FUNCTIONS[question["function"]]
        if function.source == "publishers":
            counted = sorted(self.publishing)
        else:
            where = None if question.get("where") is None else Filter.parse(question["where"])
            counted = [
                client
                for (client, _), condition in self.subscribed.items()
                if where is None or where.overlaps(Filter.parse(condition))
            ]
        state = function.combiner.nothing
        for client in counted:
            state = function.combiner.merge(state, function.contribution(f"{client.split('/')[0]}/{client}"))
        return state

    def check(self) -> None:
        for (client, name), question in self.asked.items():
            combiner = FUNCTIONS[question["function"]].combiner
            value, slack = heard(self.wire, client, name)[-1]
            truth = self.truth(question)
            granted = combiner.sharing.none if question["tolerance"] is None else question["tolerance"]
            assert slack <= granted * (1 + 1e-12), (question, slack)
            if question["function"] == "means":
                assert value == combiner.finish(truth)
            else:
                assert combiner.distance(value, truth) <= slack + 1e-9, (question, value, truth, slack)
        for broker in self.wire.brokers.values():
            assert broker.failures == broker.input_failures == ()


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_at_rest_a_value_is_within_what_was_granted(data: st.DataObject) -> None:
    with patch.dict(FUNCTIONS, MORE):  # type: ignore[arg-type]
        story = Story(data.draw(overlays()), data.draw(st.sampled_from(DIVISIONS)))
        clients = [f"{broker}/c{number}" for broker in story.wire.brokers for number in (1, 2)]
        for _ in range(data.draw(st.integers(1, 6))):
            for _ in range(data.draw(st.integers(1, 5))):
                story.act(data.draw, data.draw(st.sampled_from(clients)))
            story.wire.run(lambda count: data.draw(st.integers(0, count - 1)))
            story.check()


def test_a_broker_that_is_restored_goes_on_with_its_questions() -> None:
    wire = wire_of(CHAIN)
    ask(wire, "b1/p", "mine", "subscriptions", where="speed < 30")
    wire.subscribe("b2/s", "slow", "speed < 20")
    wire.run()
    for desk in wire.desks.values():
        desk.broker = restored(freeze(desk.broker).pieces(), wire.settings, [Interest()])
    wire.subscribe("b3/s", "slow", "speed < 20")
    wire.unsubscribe("b2/s", "slow")
    wire.subscribe("b2/s", "slower", "speed < 10")
    wire.run()
    assert heard(wire, "b1/p", "mine")[-1] == [2, 0.0]
    assert not any(broker.failures for broker in wire.brokers.values())
