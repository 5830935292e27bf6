"""The broker: routes, answers, and what it does with what it should not get."""

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catchment import Filter, Overlay
from catchment.broker import messages as m
from catchment.broker.broker import Broker, Settings
from catchment.broker.frames import Frame
from catchment.model.errors import ConfigurationError
from tests.broker.wire import SCHEMAS, Wire

LINE = Overlay.from_links([("b1", "b2"), ("b2", "b3")])
PAIR = Overlay.from_links([("b1", "b2")])
RING = Overlay.from_links([("b1", "b2"), ("b2", "b3"), ("b3", "b4"), ("b4", "b1")])


def test_events_go_where_they_are_wanted_and_nowhere_else() -> None:
    wire = Wire(LINE)
    asked = [wire.advertise("b1/p"), wire.subscribe("b3/s", "slow", "speed < 50"), wire.subscribe("b2/s", "all")]
    wire.run()
    wire.publish("b1/p", 40, 60)
    wire.run()
    assert all(isinstance(wire.answer(one), m.Acknowledged) for one in asked)
    assert wire.delivered("b3/s", "slow") == ["b1/1"]
    assert wire.delivered("b2/s", "all") == ["b1/1", "b1/2"]
    assert "b2 -> b3 PUB traffic b1/1" in wire.trace


def test_both_sides_advertise_and_want_the_same() -> None:
    # One bound for all directions would tell b1 nothing new, and b1 would never hear of b2's client.
    wire = Wire(PAIR, summary="bound")
    for client in ("b1/c", "b2/c"):
        wire.advertise(client)
        wire.run()
        wire.subscribe(client, "a", "speed < 50")
        wire.run()
    wire.publish("b1/c", 10)
    wire.publish("b2/c", 20)
    wire.run()
    assert wire.delivered("b1/c", "a") == ["b1/1", "b2/1"]
    assert sorted(wire.delivered("b2/c", "a")) == ["b1/1", "b2/1"]


def test_subscribing_before_anyone_advertises() -> None:
    wire = Wire(PAIR)
    wire.subscribe("b2/s", "all")
    wire.run()
    assert not any("SUB" in line for line in wire.trace)
    wire.advertise("b1/p")
    wire.run()
    wire.publish("b1/p", 10)
    wire.run()
    assert wire.delivered("b2/s", "all") == ["b1/1"]


def test_two_subscriptions_of_one_client_are_one_delivery() -> None:
    wire = Wire(PAIR)
    wire.advertise("b1/p")
    wire.subscribe("b2/s", "slow", "speed < 50")
    wire.subscribe("b2/s", "fast", "speed > 20")
    wire.run()
    wire.publish("b1/p", 10, 30, 60)
    wire.run()
    events = [message for message in wire.heard["b2/s"] if isinstance(message, m.Delivered)]
    assert len(events) == 1
    assert events[0].wanted == {"slow": (0, 1), "fast": (1, 2)}
    assert sum("PUB" in line for line in wire.trace) == 1


def test_only_columns_that_were_asked_for_are_delivered() -> None:
    wire = Wire(PAIR)
    wire.advertise("b1/p")
    wire.ask("b2/s", m.SubscribeTo, "speeds", "SELECT speed FROM traffic")
    wire.ask("b2/t", m.SubscribeTo, "speeds", "SELECT speed FROM traffic")
    wire.ask("b2/t", m.SubscribeTo, "all", "SELECT * FROM traffic")
    wire.run()
    wire.publish("b1/p", 10)
    wire.run()
    columns = {
        client: message.events.schema.names
        for client in ("b2/s", "b2/t")
        for message in wire.heard[client]
        if isinstance(message, m.Delivered)
    }
    assert columns == {"b2/s": ["event_id", "speed"], "b2/t": ["event_id", "broker", "ts", "speed"]}


def test_a_covered_subscription_is_not_told() -> None:
    wire = Wire(LINE)
    wire.advertise("b1/p")
    wire.run()
    wire.subscribe("b3/s", "wide", "speed < 90")
    wire.run()
    before = len(wire.trace)
    wire.subscribe("b3/s", "narrow", "speed < 50")
    wire.run()
    assert wire.trace[before:] == [
        "b3/s -> b3 subscribe narrow: SELECT * FROM traffic WHERE speed < 50",
        "b3 -> b3/s acknowledged #3",
    ]
    wire.unsubscribe("b3/s", "wide")
    wire.run()
    assert "b3 -> b2 SUB traffic [speed < 50.0D] UNSUB traffic [speed < 90.0D]" in wire.trace


@pytest.mark.parametrize("summary", ["bound", "covering", "each"])
@pytest.mark.parametrize("forwarding", ["advertised", "flooded"])
@given(st.data())
@settings(max_examples=25, deadline=None)
def test_deliveries_are_what_a_central_system_would_deliver(summary: str, forwarding: str, data: st.DataObject) -> None:
    wire = Wire(data.draw(st.sampled_from([LINE, PAIR, RING])), summary=summary, forwarding=forwarding)
    brokers = sorted(wire.brokers)
    living: dict[tuple[str, str], Filter] = {}
    advertising: set[str] = set()
    expected: dict[tuple[str, str], list[str]] = {}
    names = iter(range(1000))

    def choose(count: int) -> int:
        return data.draw(st.integers(0, count - 1))

    for _ in range(data.draw(st.integers(1, 8))):
        for _ in range(data.draw(st.integers(1, 3))):
            client = f"{data.draw(st.sampled_from(brokers))}/c"
            step = data.draw(st.sampled_from(["advertise", "unadvertise", "subscribe", "unsubscribe"]))
            if step == "advertise" and client not in advertising:
                advertising.add(client)
                wire.advertise(client)
            elif step == "unadvertise" and client in advertising:
                advertising.remove(client)
                wire.unadvertise(client)
            elif step == "subscribe":
                low, width = data.draw(st.integers(0, 9)), data.draw(st.integers(1, 9))
                condition = f"speed >= {low} AND speed < {low + width}"
                name = f"s{next(names)}"
                living[client, name] = Filter.parse(condition)
                wire.subscribe(client, name, condition)
            elif step == "unsubscribe" and living:
                owner, name = data.draw(st.sampled_from(sorted(living)))
                del living[owner, name]
                wire.unsubscribe(owner, name)
        wire.run(choose)
        for client in sorted(advertising):
            speeds = data.draw(st.lists(st.integers(0, 20).map(float), min_size=1, max_size=3))
            ids = [f"{client}/{next(names)}" for _ in speeds]
            wire.publish(client, *speeds, ids=ids)
            for key, condition in living.items():
                wanted = [one for one, speed in zip(ids, speeds, strict=True) if condition.matches({"speed": speed})]
                expected.setdefault(key, []).extend(wanted)
        wire.run(choose)
    for (client, name), ids in expected.items():
        got = wire.delivered(client, name)
        assert sorted(got) == sorted(ids)
        for publisher in {one.rsplit("/", 1)[0] for one in ids}:
            mine = [one for one in ids if one.rsplit("/", 1)[0] == publisher]
            assert [one for one in got if one.rsplit("/", 1)[0] == publisher] == mine
    for client, name in sorted(living):
        wire.unsubscribe(client, name)
    for client in sorted(advertising):
        wire.unadvertise(client)
    wire.run(choose)
    for broker in wire.brokers.values():
        assert broker.is_at_rest
        assert all(broker.routes(topic).is_empty for topic in SCHEMAS)
        assert not broker.counters


def test_requests_that_make_no_sense_are_refused_with_a_reason() -> None:
    wire = Wire(PAIR)
    wire.advertise("b1/p")
    wire.subscribe("b1/p", "mine")
    wire.run()
    wanted = {
        wire.ask("b1/p", m.UnsubscribeFrom, "other"): "'other' is not there; there are mine",
        wire.subscribe("b1/p", "mine"): "'mine' is already there",
        wire.ask("b1/p", m.SubscribeTo, "bad", "SELECT * FROM weather"): "unknown topic 'weather'",
        wire.ask("b1/p", m.SubscribeTo, "bad", "DELETE FROM traffic"): "bad",
        wire.unadvertise("b1/p", "stock"): "'stock' is not advertised by 'b1/p'; advertised: traffic",
        wire.publish("b1/p", 1.0, topic="stock"): "'stock' is not advertised",
        wire.publish("b2/q", 1.0): "'traffic' is not advertised by 'b2/q'; advertised: none",
        wire.publish("b1/p", 1.0, float("nan")): "speed is NaN or infinite",
        wire.advertise("b1/p", "weather"): "unknown topic 'weather'; known are stock, traffic",
    }
    wire.run()
    for request, reason in wanted.items():
        answer = wire.answer(request)
        assert isinstance(answer, m.Refused), request
        assert reason in answer.reason


def test_an_id_that_comes_again_is_the_same_event() -> None:
    wire = Wire(PAIR)
    wire.advertise("b1/p")
    wire.subscribe("b2/s", "all")
    wire.run()
    wire.publish("b1/p", 1.0, 2.0, ids=["x", "y"])
    wire.publish("b1/p", 2.0, 3.0, ids=["y", "z"])
    wire.run()
    assert wire.delivered("b2/s", "all") == ["x", "y", "z"]
    wire.now_us += 121_000_000
    wire.publish("b1/p", 1.0, ids=["x"])
    wire.run()
    assert wire.delivered("b2/s", "all") == ["x", "y", "z", "x"]


def test_frames_from_nowhere_twice_or_too_early_change_nothing() -> None:
    broker = Broker("b1", ["b2"], Settings(schemas=SCHEMAS))
    stranger = Frame("b9", 1, m.Advertised("traffic", 1, 1))
    first, third = Frame("b2", 1, m.Advertised("traffic", 1, 1)), Frame("b2", 3, m.Advertised("stock", 2, 1))
    for frame in (stranger, first, first, third, Frame("b2", 2, m.AdvertiseTopic(1, "traffic"))):
        assert broker.receive(frame, 1)
    assert broker.receive_bytes(b"CFnonsense", 1)
    assert broker.counters == {
        "frames of strangers": 1,
        "frames that came again": 1,
        "frames that came too early": 1,
        "messages out of place": 1,
        "frames that do not decode": 1,
    }
    assert broker.routes("traffic").advertisers == {"b2"}


def test_a_full_queue_holds_back_what_would_fill_it() -> None:
    broker = Broker("b2", ["b1", "b3"], Settings(schemas=SCHEMAS, queue_max=2))
    broker.receive(Frame("b3", 1, m.Subscribed("traffic", 1, (Filter.parse("TRUE"),))), 0)
    broker.attach("c")
    broker.receive(Frame("c", 1, m.AdvertiseTopic(1, "traffic")), 0)
    for send in broker.take_output():
        if isinstance(send.frame.message, m.Advertised):
            broker.receive(Frame(send.to, 1 + (send.to == "b3"), m.Confirmed(send.frame.message.change)), 0)
    broker.take_output()
    wire = Wire(PAIR)
    wire.publish("b1/x", 1.0)
    events = next(iter(wire._links.values()))[0].message.events  # type: ignore[union-attr]
    published = [Frame("b1", n, m.Published("traffic", events)) for n in (1, 2, 3)]
    assert [broker.receive(frame, 0) for frame in published] == [True, True, False]
    assert broker.receive(Frame("c", 1, m.PublishEvents(2, "traffic", events)), 0)
    sent = broker.take_output()
    assert [str(one.frame.message) for one in sent if one.to == "c"][-1].startswith(
        "refused #2: a queue of broker 'b2'"
    )
    assert broker.receive(published[2], 0)


def test_events_that_come_before_their_advertisement_is_acknowledged_are_refused() -> None:
    broker = Broker("b1", ["b2"], Settings(schemas=SCHEMAS))
    broker.attach("c")
    broker.receive(Frame("c", 1, m.AdvertiseTopic(1, "traffic")), 0)
    events = pa.RecordBatch.from_pydict({"speed": [1.0]})
    broker.receive(Frame("c", 1, m.PublishEvents(2, "traffic", events)), 0)
    broker.receive(Frame("b2", 1, m.Confirmed(1)), 0)
    broker.receive(Frame("c", 2, m.PublishEvents(3, "traffic", events)), 0)
    assert [str(one.frame.message) for one in broker.take_output("c")] == [
        "refused #2: the advertisement of topic 'traffic' is not acknowledged yet; "
        "accepted are events that come after that",
        "acknowledged #1",
        "acknowledged #3",
    ]


def test_a_client_that_does_not_take_its_answers_has_to_wait() -> None:
    broker = Broker("b1", [], Settings(schemas=SCHEMAS, queue_max=2))
    broker.attach("c")
    asked = [Frame("c", n, m.AdvertiseTopic(n, "traffic")) for n in (1, 2, 3)]
    assert [broker.receive(frame, 0) for frame in asked] == [True, True, False]
    assert len(broker.take_output("c")) == 2
    assert broker.receive(asked[2], 0)


def test_a_publisher_that_does_not_take_its_own_events_is_refused_more() -> None:
    broker = Broker("b1", [], Settings(schemas=SCHEMAS, queue_max=2))
    broker.attach("c")
    broker.receive(Frame("c", 1, m.AdvertiseTopic(1, "traffic")), 0)
    broker.receive(Frame("c", 2, m.SubscribeTo(2, "mine", "SELECT * FROM traffic")), 0)
    events = pa.RecordBatch.from_pydict({"speed": [1.0]})
    answers = []
    for number in (1, 2, 3):
        answers += broker.take_output("c", (9, 0))
        assert broker.receive(Frame("c", number, m.PublishEvents(2 + number, "traffic", events)), 0)
    answers += broker.take_output("c", (9, 0))
    said = [str(one.frame.message) for one in answers]
    assert said[:4] == [f"acknowledged #{number}" for number in (1, 2, 3, 4)]
    assert said[4].startswith("refused #5: a queue of broker 'b1' is full with 2 frames")


def test_impossible_settings_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="summary is 'shortest'; accepted are bound, covering, each"):
        Settings(schemas=SCHEMAS, summary="shortest")  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="queue_max is 0"):
        Settings(schemas=SCHEMAS, queue_max=0)
