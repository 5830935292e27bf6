"""Topics and attributes are added while brokers run; no neighbour hears of anything that it was not told before."""

from random import Random
from typing import Any

import pyarrow as pa
import pytest

from catchment import Overlay
from catchment.broker import messages as m
from catchment.broker.aggregation import Aggregation, AggregationOptions
from catchment.broker.broker import Broker, Settings
from catchment.broker.gateway import Gateway
from catchment.broker.inputs import TAKEN, Attached, Posted, TopicPlaced, TopicsAdded
from catchment.broker.memory import freeze, restored
from catchment.broker.topics import ATTRIBUTES_MAX, TOLD_MAX, extended
from catchment.model.errors import CatchmentError
from catchment.model.schema import Schema
from tests.broker.wire import SCHEMAS, Desk, Voice, Wire

LINE = Overlay.from_links([("b1", "b2"), ("b2", "b3"), ("b3", "b4")])
LANE = TopicsAdded({"traffic": {"lane": "int"}})
WEATHER = TopicsAdded({"weather": {"rain": "float"}})


class Aggregating(Aggregation):
    def __init__(self) -> None:
        super().__init__(AggregationOptions())


def publish(wire: Wire, client: str, topic: str = "traffic", **columns: list[Any]) -> int:
    return wire.ask(client, m.PublishEvents, topic, pa.RecordBatch.from_pydict(columns))


def at_us(*times: int) -> list[Any]:
    return [pa.scalar(one, pa.timestamp("us", tz="UTC")).as_py() for one in times]


@pytest.mark.parametrize(
    ("added", "complaint"),
    [
        (
            {"traffic": {"speed": "int"}},
            "attribute 'speed' of topic 'traffic' is of type float; accepted is that, not int",
        ),
        ({"traffic": {"Speed": "float"}}, "'Speed' differs in case alone"),
        ({"traffic": {"lane": "int", "LANE": "int"}}, "'LANE' differs in case alone"),
        ({"traffic": {"ts": "timestamp"}}, "every event has event_id, topic, broker, ts"),
        ({"traffic": {"lane": "list"}}, "attribute 'lane' has type list; accepted are bool, int"),
        ({"traffic": {"": "int"}}, "accepted is a non-empty string"),
        ({"": {"lane": "int"}}, "a topic is named ''"),
        ({"new": {f"a{n}": "int" for n in range(ATTRIBUTES_MAX + 1)}}, "would have 1001 attributes"),
    ],
)
def test_what_contradicts_what_is_known_is_refused_by_name_and_changes_nothing(
    added: dict[str, dict[str, str]], complaint: str
) -> None:
    with pytest.raises(CatchmentError, match=complaint):
        extended(SCHEMAS, added)
    desk = Desk(Broker("b1", ["b2"], Settings(schemas=SCHEMAS)))
    step = desk.hand(TopicsAdded({"able": {"a": "int"}} | added))
    assert step.outcomes[0].kind == "refused"
    assert complaint in step.outcomes[0].reason
    assert step.sends == ()
    assert desk.broker.schemas == SCHEMAS


def test_what_is_known_already_is_no_news() -> None:
    assert extended(SCHEMAS, {"traffic": {"speed": "double"}}) == {}
    desk = Desk(Broker("b1", ["b2"], Settings(schemas=SCHEMAS)))
    assert len(desk.hand(LANE).sends) == 1
    assert desk.hand(LANE).sends == ()


def test_neighbours_hear_of_an_addition_before_anything_that_uses_it() -> None:
    wire = Wire(LINE, [Aggregating])
    wire.hand("b1", TopicsAdded({**LANE.topics, **WEATHER.topics}))
    asked = [
        wire.advertise("b1/p"),
        wire.advertise("b1/p", "weather"),
        wire.subscribe("b1/p", "second", "lane = 2"),
    ]
    wire.run()
    assert [wire.answer(one) for one in asked] == [m.Acknowledged(number) for number in (1, 2, 3)]
    assert wire.trace[:6] == [
        "b1 -> b2 TOPIC traffic lane:int",
        "b1 -> b2 TOPIC weather rain:float",
        "b1/p -> b1 advertise traffic",
        "b1 -> b2 AD traffic",
        "b1/p -> b1 advertise weather",
        "b1 -> b2 AD weather",
    ]
    subscribed = [
        wire.subscribe("b4/s", "third", "lane = 3"),
        wire.subscribe("b4/s", "wet", "rain > 0", topic="weather"),
        wire.ask(
            "b4/s", m.SubscribeTo, "by lane", "SELECT count(*) FROM traffic GROUP BY window(ts, '1 second'), lane"
        ),
    ]
    wire.run()
    assert [wire.answer(one) for one in subscribed] == [m.Acknowledged(number) for number in (1, 2, 3)]
    publish(wire, "b1/p", event_id=["e1", "e2"], lane=[3, 2])
    publish(wire, "b1/p", "weather", event_id=["e3"], rain=[1.5])
    wire.run()
    assert wire.delivered("b4/s", "third") == ["e1"]
    assert wire.delivered("b4/s", "wet") == ["e3"]
    assert all(not broker.counters for broker in wire.brokers.values())


@pytest.mark.parametrize("seed", range(10))
def test_whatever_order_links_deliver_in_all_brokers_know_the_same_and_miss_nothing(seed: int) -> None:
    wire, random = Wire(LINE, [Aggregating]), Random(seed)
    wire.advertise("b1/p")
    wire.subscribe("b4/s", "all")
    wire.run()
    for broker, item in random.sample([("b1", LANE), ("b4", LANE), ("b4", WEATHER), ("b2", WEATHER)], 4):
        wire.hand(broker, item)
    third = wire.subscribe("b4/s", "third", "lane = 3")
    wire.run(random.randrange)
    assert wire.answer(third) == m.Acknowledged(2)
    publish(wire, "b1/p", event_id=["e1"], lane=[3])
    wire.run(random.randrange)
    assert wire.delivered("b4/s", "third") == wire.delivered("b4/s", "all") == ["e1"]
    known = {
        **SCHEMAS,
        "weather": Schema({"rain": "float"}),
        "traffic": Schema({**SCHEMAS["traffic"].attributes, "lane": "int"}),
    }
    assert all(broker.schemas == known for broker in wire.brokers.values())
    assert all(not broker.counters for broker in wire.brokers.values())


def test_filters_and_questions_that_were_there_go_on_over_events_with_and_without_the_attribute() -> None:
    wire = Wire(LINE, [Aggregating])
    wire.advertise("b1/p")
    wire.run()
    wire.subscribe("b4/s", "slow", "speed < 50")
    wire.subscribe("b1/s", "near", "speed < 50")
    count = "SELECT count(*), sum(speed) FROM traffic GROUP BY window(ts, '1 second')"
    wire.ask("b4/s", m.SubscribeTo, "counted", count)
    wire.run()
    at = at_us(1_000_001, 1_000_002, 2_000_000)
    publish(wire, "b1/p", event_id=["e1"], ts=at[:1], speed=[10.0])
    wire.run()
    wire.hand("b2", LANE)
    wire.run()
    publish(wire, "b1/p", event_id=["e2"], ts=at[1:2], speed=[20.0], lane=[1])
    publish(wire, "b1/p", event_id=["e3"], ts=at[2:], speed=[90.0], lane=[1])
    wire.run()
    assert wire.delivered("b4/s", "slow") == wire.delivered("b1/s", "near") == ["e1", "e2"]
    (told,) = [one for one in wire.heard["b4/s"] if isinstance(one, m.Notified)]
    assert {one["output"]: one["value"] for one in told.answers.to_pylist()} == {"count(*)": 2.0, "sum(speed)": 30.0}


def test_an_attribute_is_refused_until_the_broker_knows_it_and_posts_are_read_anew() -> None:
    desk, voice = Desk(Broker("b1", [], Settings(schemas=SCHEMAS), [Gateway()])), Voice("c")
    events = pa.RecordBatch.from_pydict({"lane": [1]})
    step = desk.hand(Attached("c"), voice.says(m.AdvertiseTopic(1, "traffic"), m.PublishEvents(2, "traffic", events)))
    assert [str(one)[:50] for one in voice.hears(step)] == [
        "acknowledged #1",
        "refused #2: topic 'traffic' has no attribute 'lane",
    ]
    post = Posted("traffic", b'{"lane": 1}')
    assert desk.outcome(post).kind == "refused"
    assert desk.outcome(LANE) == TAKEN
    assert desk.outcome(post) == TAKEN
    assert voice.hears(desk.hand(voice.says(m.PublishEvents(3, "traffic", events)))) == [m.Acknowledged(3)]


def test_a_broker_that_is_brought_back_knows_what_was_added_whatever_its_settings_are() -> None:
    desk, voice = Desk(Broker("b1", ["b2"], Settings(schemas=SCHEMAS), [Aggregating()])), Voice("c")
    sql = "SELECT sum(lane) FROM traffic WHERE lane > 1 GROUP BY window(ts, '1 second'), lane"
    desk.hand(LANE, WEATHER, Attached("c"), voice.says(m.SubscribeTo(1, "s", sql)))
    again = restored(freeze(desk.broker).pieces(), Settings(schemas=SCHEMAS), [Aggregating()])
    assert again.schemas == desk.broker.schemas != SCHEMAS
    advertised = voice.says(m.AdvertiseTopic(2, "weather"))
    other = Desk(again)
    other.position = desk.position
    assert other.hand(advertised).sends == desk.hand(advertised).sends != ()


def test_a_neighbour_that_begins_without_memory_is_told_all_that_was_added() -> None:
    desk, first, second = Desk(Broker("b1", ["b2"], Settings(schemas=SCHEMAS))), Voice("b2"), Voice("b2", incarnation=2)
    desk.hand(first.says(m.Confirmed(0)), LANE, WEATHER)
    told = second.hears(desk.hand(second.says(m.Advertised("traffic", 1))))
    assert list(map(str, told)) == ["TOPIC traffic lane:int", "TOPIC weather rain:float", "CONFIRM 1"]


def test_a_neighbour_that_contradicts_is_reported_and_believed_nothing() -> None:
    desk, neighbour = Desk(Broker("b1", ["b2", "b3"], Settings(schemas=SCHEMAS))), Voice("b2")
    assert desk.hand(neighbour.says(m.TopicAdded("traffic", {"speed": "string"}))).sends == ()
    assert desk.broker.schemas == SCHEMAS
    assert desk.broker.counters == {"topics that contradict what is known": 1}


def test_many_attributes_go_in_several_messages() -> None:
    desk, neighbour = Desk(Broker("b1", ["b2"], Settings(schemas=SCHEMAS))), Voice("b2")
    names = [f"{number:03}" + "ä" * 250 for number in range(ATTRIBUTES_MAX)]
    told = neighbour.hears(desk.hand(TopicsAdded({"wide": dict.fromkeys(names, "int")})))
    assert [len(one.attributes) for one in told if isinstance(one, m.TopicAdded)] == [TOLD_MAX] * 10


def placed_at(broker: Broker) -> str:
    """What decides about the topic."""
    return str(broker.weaver._advice["aggregation"]._topics["traffic"].deciding.placement.name)  # type: ignore[attr-defined]


def test_a_placement_is_changed_at_once_refused_by_name_and_remembered() -> None:
    desk, voice = Desk(Broker("b1", ["b2"], Settings(schemas=SCHEMAS), [Aggregating()])), Voice("c")
    sql = "SELECT count(*) FROM traffic GROUP BY window(ts, '1 second')"
    desk.hand(Attached("c"), voice.says(m.SubscribeTo(1, "s", sql)))
    assert placed_at(desk.broker) == "early"
    assert desk.outcome(TopicPlaced("traffic", "late")) == TAKEN
    assert desk.outcome(TopicPlaced("traffic", "late")).kind == "repeated"
    assert desk.outcome(TopicPlaced("weather", "late")).reason == "unknown topic 'weather'; known are stock, traffic"
    for given in ("optimal", "everywhere"):
        outcome = desk.outcome(TopicPlaced("traffic", given))
        assert outcome.reason.startswith(f"placement is '{given}'; accepted are late, early, adaptive")
    assert desk.broker.placements == {"traffic": "late"}
    again = restored(freeze(desk.broker).pieces(), Settings(schemas=SCHEMAS), [Aggregating()])
    assert placed_at(desk.broker) == placed_at(again) == "late"
    assert again.placements == {"traffic": "late"}


def test_events_of_one_window_are_counted_once_whatever_decides_about_them() -> None:
    wire = Wire(LINE, [Aggregating])
    wire.advertise("b1/p")
    wire.run()
    wire.ask("b4/s", m.SubscribeTo, "s", "SELECT count(*), sum(speed) FROM traffic GROUP BY window(ts, '1 second')")
    wire.run()
    kinds = []
    for number, (broker, placement) in enumerate(
        [("b1", "early"), ("b2", "late"), ("b1", "late"), ("b2", "early"), ("b3", "adaptive"), ("b1", "early")]
    ):
        wire.hand(broker, TopicPlaced("traffic", placement))
        before = len(wire.trace)
        publish(wire, "b1/p", ts=at_us(number + 1), speed=[10.0**number])
        wire.run()
        kinds.append(any("b1 -> b2 PUB" in line for line in wire.trace[before:]))
    publish(wire, "b1/p", ts=at_us(1_000_000), speed=[0.0])
    wire.run()
    assert kinds == [False, False, True, True, True, False]
    (told,) = [one for one in wire.heard["b4/s"] if isinstance(one, m.Notified)]
    assert {one["output"]: one["value"] for one in told.answers.to_pylist()} == {
        "count(*)": 6.0,
        "sum(speed)": 111_111.0,
    }


def test_a_subscription_is_asked_in_the_other_grain_before_it_is_dropped_in_the_first() -> None:
    wire = Wire(LINE, [Aggregating])
    wire.advertise("b1/p")
    wire.run()
    sql = "SELECT count(*), sum(speed) FROM traffic GROUP BY window(ts, '10 microseconds', '5 microseconds')"
    wire.ask("b4/s", m.SubscribeTo, "s", sql)
    wire.ask("b4/s", m.SubscribeTo, "same", sql)
    wire.run()
    for number in range(60):
        if number in (12, 33, 41):
            for broker in ("b4", "b2", "b3", "b1"):
                wire.hand(broker, TopicPlaced("traffic", {12: "cover", 33: "late", 41: "cover"}[number]))
        publish(wire, "b1/p", ts=at_us(number), speed=[1.0])
        wire.run()
    told = [row for one in wire.heard["b4/s"] if isinstance(one, m.Notified) for row in one.answers.to_pylist()]
    starts = sorted((row["subscription"], row["output"], row["window_start"]) for row in told)
    assert starts == sorted(
        (name, output, at)
        for name in ("s", "same")
        for output in ("count(*)", "sum(speed)")
        for at in at_us(*range(-5, 50, 5))
    )
    assert {row["value"] for row in told if row["window_start"] >= at_us(0)[0]} == {10.0}
    subscribed = [line for line in wire.trace if line.startswith(("b4 -> b3 SUB", "b4 -> b3 UNSUB"))]
    # Two questions, one that both share, the two again, and the one.
    assert [line.split()[3] for line in subscribed] == [
        "SUB",
        "SUB",
        "SUB",
        "UNSUB",
        "UNSUB",
        "SUB",
        "SUB",
        "UNSUB",
        "SUB",
        "UNSUB",
        "UNSUB",
    ]
    assert all(not broker.counters and not broker.failures for broker in wire.brokers.values())
    wire.unsubscribe("b4/s", "s")
    wire.unsubscribe("b4/s", "same")
    wire.unadvertise("b1/p")
    wire.run()
    assert all(routes.is_empty for broker in wire.brokers.values() for routes in broker.topics.values())
