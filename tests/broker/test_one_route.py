"""Regular and aggregate subscriptions travel by the same SUB and are seen at the same joinpoints."""

from functools import partial
from typing import Any

import pytest

from catchment import Overlay
from catchment.broker import messages as m
from catchment.broker.advice import Advice, At, Proceed
from catchment.broker.aggregation import Aggregation, AggregationOptions
from catchment.broker.demands import AskedQuestion, Demand
from catchment.broker.inputs import Attached
from catchment.broker.routing import Before
from examples.subscriber_count import SubscriberCount
from tests.broker.wire import SCHEMAS, Voice, Wire

CHAIN = Overlay.from_links([("b1", "b2"), ("b2", "b3")])
COUNT, SUM = (
    f"SELECT {measure} FROM traffic WHERE speed < 50 GROUP BY window(ts, '10 seconds')"
    for measure in ("count(*)", "sum(vehicles)")
)


def brokers(placement: str, *advice: Any, overlay: Overlay = CHAIN) -> Wire:
    """Brokers that answer aggregates, with a publisher at b1."""
    aggregation = partial(Aggregation, AggregationOptions(placement=placement))
    wire = Wire(overlay, [*advice, aggregation])  # type: ignore[list-item]
    wire.advertise("b1/p")
    wire.run()
    return wire


def subscribe(wire: Wire, client: str, name: str, sql: str) -> list[str]:
    """The SUB and UNSUB that a subscription leads to."""
    begin = len(wire.trace)
    request = wire.ask(client, m.SubscribeTo, name, sql)
    wire.run()
    assert isinstance(wire.answer(request), m.Acknowledged)
    return _subs(wire, begin)


def unsubscribe(wire: Wire, client: str, name: str) -> list[str]:
    begin = len(wire.trace)
    wire.unsubscribe(client, name)
    wire.run()
    return _subs(wire, begin)


def _subs(wire: Wire, begin: int) -> list[str]:
    lines = (line.replace(" over 10000000us every 10000000us", "") for line in wire.trace[begin:])
    return [line.replace(" traffic", "") for line in lines if "SUB traffic" in line]


def test_an_equal_question_is_left_out_where_partials_are_shared() -> None:
    wire = brokers("cover")
    counted, both = ("[tally of * where speed < 50.0D]", "[tally of *, whole total of vehicles where speed < 50.0D]")
    assert subscribe(wire, "b3/c", "one", COUNT) == [f"b3 -> b2 SUB {counted}", f"b2 -> b1 SUB {counted}"]
    assert subscribe(wire, "b3/d", "two", COUNT) == []
    assert subscribe(wire, "b2/c", "three", COUNT) == []
    # Another part of the same question: the question is sent with both, and the old one is taken back.
    assert subscribe(wire, "b2/c", "four", SUM) == [f"b2 -> b1 SUB {both} UNSUB {counted}"]
    assert subscribe(wire, "b3/c", "five", SUM) == [f"b3 -> b2 SUB {both} UNSUB {counted}"]
    assert unsubscribe(wire, "b2/c", "four") == []
    assert unsubscribe(wire, "b3/c", "five") == [
        f"b3 -> b2 SUB {counted} UNSUB {both}",
        f"b2 -> b1 SUB {counted} UNSUB {both}",
    ]
    for client, name in (("b3/c", "one"), ("b3/d", "two"), ("b2/c", "three")):
        last = unsubscribe(wire, client, name)
    assert last == [f"b2 -> b1 UNSUB {counted}"]
    assert all(broker.is_at_rest for broker in wire.brokers.values())


@pytest.mark.parametrize("placement", ["late", "early", "adaptive"])
def test_each_subscription_travels_where_partials_are_for_windows(placement: str) -> None:
    wire = brokers(placement)
    for number, client in enumerate(("b3/c", "b3/d"), 1):
        asked = f"[tally of * where speed < 50.0D for b3/{number}]"
        assert subscribe(wire, client, "one", COUNT) == [f"b3 -> b2 SUB {asked}", f"b2 -> b1 SUB {asked}"]
    assert unsubscribe(wire, "b3/c", "one") == [
        f"b{n} -> b{n - 1} UNSUB [tally of * where speed < 50.0D for b3/1]" for n in (3, 2)
    ]


def test_filters_cover_each_other_and_no_question() -> None:
    wire = brokers("cover")
    subscribe(wire, "b3/c", "all", "SELECT * FROM traffic")
    assert subscribe(wire, "b3/c", "slow", "SELECT * FROM traffic WHERE speed < 50") == []
    assert len(subscribe(wire, "b3/c", "counted", COUNT)) == 2


class Seeing(Advice):
    """Notes at which joinpoint which kind of demand is seen."""

    name = "seeing"

    def _see(self, at: At, where: str, demand: Demand) -> None:
        kind = "question" if isinstance(demand, AskedQuestion) else "filter"
        at.state.setdefault("seen", []).append([where, kind])

    def sub_add(self, at: At, proceed: Proceed, topic: str, demand: Demand, peer: str) -> dict[str, Before]:
        self._see(at, "sub_add", demand)
        found: dict[str, Before] = proceed()
        return found

    def sub_del(self, at: At, proceed: Proceed, topic: str, demand: Demand, peer: str) -> dict[str, Before]:
        self._see(at, "sub_del", demand)
        found: dict[str, Before] = proceed()
        return found

    def sub_send(self, at: At, proceed: Proceed, topic: str, added: tuple[Demand, ...], neighbour: str) -> None:
        self._see(at, "sub_send", *added)
        proceed()

    def unsub_send(self, at: At, proceed: Proceed, topic: str, dropped: tuple[Demand, ...], neighbour: str) -> None:
        self._see(at, "unsub_send", *dropped)
        proceed()


def test_every_joinpoint_sees_both_kinds() -> None:
    wire = brokers("cover", Seeing)
    for name, sql in (("events", "SELECT * FROM traffic"), ("counted", COUNT)):
        subscribe(wire, "b3/c", name, sql)
        unsubscribe(wire, "b3/c", name)
    seen = [[one, kind] for kind in ("filter", "question") for one in ("sub_add", "sub_send", "sub_del", "unsub_send")]
    assert wire.brokers["b2"].weaver.states["seeing"]["seen"] == seen


def test_the_example_counts_all_subscriptions() -> None:
    wire = brokers("early", SubscriberCount)
    subscribe(wire, "b3/c", "events", "SELECT * FROM traffic")
    subscribe(wire, "b3/d", "counted", COUNT)
    subscribe(wire, "b2/c", "summed", SUM)
    counts = wire.brokers["b1"].weaver.states["subscriber count"]["traffic"]["from"]
    assert sum(counts.values()) == 3


def test_a_neighbour_that_starts_anew_asks_nothing() -> None:
    """What its old life asked is forgotten, and with it the open windows."""
    wire = brokers("cover", overlay=Overlay.from_links([("b1", "b2")]))
    desk, old = wire.desks["b1"], Voice("b2")
    asked = AskedQuestion.of(_query(COUNT), SCHEMAS["traffic"].with_implicit())
    assert desk.outcome(old.says(m.Subscribed("traffic", 1, (asked,)))).kind == "repeated"  # b2 has said more already
    anew = Voice("b2", incarnation=2)
    assert desk.outcome(anew.says(m.Subscribed("traffic", 1, (asked,)))).kind == "taken"
    assert desk.broker.weaver.sizes()["questions asked"] == 1
    assert desk.outcome(Voice("b2", incarnation=3).says()).kind == "taken"
    assert desk.broker.weaver.sizes()["questions asked"] == 0
    assert not desk.broker.routes("traffic").demands["b2"]


def _query(sql: str) -> Any:
    from catchment import Subscription

    return Subscription("s", sql=sql).within(SCHEMAS)


def test_thousands_of_demands_reach_a_publisher_that_comes_later() -> None:
    """More than fits into one message: it goes in several, and the advertisement is acknowledged after all of them."""
    wire = Wire(Overlay.from_links([("b1", "b2")]))
    wire.desks["b2"].hand(Attached("b2/c"))
    voice = Voice("b2/c")
    words = " OR ".join(f"highway LIKE '%{'x' * 180}{n}'" for n in range(20))
    for number in range(1, 301):
        sql = f"SELECT * FROM traffic WHERE speed = {number} AND ({words})"
        assert wire.desks["b2"].outcome(voice.says(m.SubscribeTo(number, f"s{number}", sql))).kind == "taken"
    request = wire.advertise("b1/p")
    wire.run()
    assert isinstance(wire.answer(request), m.Acknowledged)
    assert len(wire.brokers["b1"].routes("traffic").demands["b2"]) == 300


def test_a_filter_that_no_message_can_carry_is_refused_with_the_figure() -> None:
    wire = brokers("cover")
    words = ", ".join(f"'{'x' * 20}{n}'" for n in range(400))
    each = " OR ".join(f"speed = {n} AND vehicles = {n}" for n in range(60))
    sql = f"SELECT * FROM traffic WHERE highway IN ({words}) AND ({each})"
    request = wire.ask("b3/c", m.SubscribeTo, "huge", sql)
    wire.run()
    answer = wire.answer(request)
    assert isinstance(answer, m.Refused)
    assert "bytes; accepted are at most" in answer.reason
