"""The broker: routes, answers, and what it does with what it should not get."""

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catchment import Filter, Overlay
from catchment.broker import messages as m
from catchment.broker.broker import Broker, Settings
from catchment.broker.client import Session
from catchment.broker.frames import FRAME_BYTES_MAX, FrameWriter
from catchment.broker.inputs import Attached, Detached, Input, Overrun, Parked, Received, Resumed, Room, Woken
from catchment.model.errors import ConfigurationError
from tests.broker.wire import SCHEMAS, Desk, Voice, Wire

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
    assert {name: rows.tolist() for name, rows in events[0].wanted.items()} == {"slow": [0, 1], "fast": [1, 2]}
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
        "b3 -> b3/s acknowledged #2",
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


def desk(name: str = "b1", neighbours: tuple[str, ...] = ("b2",), **settings: Any) -> Desk:
    return Desk(Broker(name, neighbours, Settings(schemas=SCHEMAS, **settings)))


def test_frames_from_nowhere_twice_or_too_early_change_nothing() -> None:
    here, neighbour = desk(), Voice("b2")
    first = neighbour.says(m.Advertised("traffic", 1))
    skipped, third = neighbour.says(m.AdvertiseTopic(1, "traffic")), neighbour.says(m.Advertised("stock", 2))
    stranger = Voice("b9").says(m.Advertised("traffic", 1))
    step = here.hand(stranger, first, first, third, skipped, third, Received(b"CFnonsense"))
    assert [(one.kind, one.reason[:30]) for one in step.outcomes] == [
        ("stranger", "no 'b9' is at broker 'b1'; the"),
        ("taken", ""),
        ("repeated", ""),
        ("premature", "frame 2 is missing"),
        ("taken", ""),
        ("taken", ""),
        ("refused", "a frame is of version [110]; a"),
    ]
    assert here.broker.counters == {"messages out of place": 1, "frames that do not decode": 1}
    assert here.broker.routes("traffic").advertisers == here.broker.routes("stock").advertisers == {"b2"}


def test_a_frame_whose_messages_do_not_decode_does_not_stop_its_link() -> None:
    here, neighbour = desk(), Voice("b2")
    good = neighbour.says(m.Advertised("traffic", 1))
    neighbour.sequence = 0
    bad = Received(neighbour.says(m.Confirmed(1)).data.replace(b"Confirmed", b"Perfirmed"))
    assert here.outcome(bad).kind == "refused"
    assert here.outcome(good).kind == "repeated"
    assert here.outcome(neighbour.says(m.Advertised("traffic", 1))).kind == "taken"


def test_an_epoch_that_is_not_ours_is_refused() -> None:
    here, writer = desk(), FrameWriter()
    (data,) = writer.frames("b2", [m.Confirmed(1)], incarnation=1, epoch=2, after=0, covers=0)
    outcome = here.outcome(Received(data))
    assert (outcome.kind, outcome.reason) == ("refused", "a frame of 'b2' is of epoch 2; accepted is 1")


def test_there_is_room_for_clients_events_as_long_as_no_neighbour_is_full() -> None:
    here, left, right, client = desk("b2", ("b1", "b3")), Voice("b1"), Voice("b3"), Voice("c")
    step = here.hand(Attached("c"), client.says(m.AdvertiseTopic(1, "traffic")))
    changes = [message.change for message in left.hears(step) if isinstance(message, m.Advertised)]
    here.hand(left.says(*map(m.Confirmed, changes)), right.says(*map(m.Confirmed, changes)))
    events = pa.RecordBatch.from_pydict({"speed": [1.0]})
    for number, (item, reply) in enumerate(
        [
            (Woken(), "acknowledged #2"),
            (Room("b3", is_full=True), "refused #3: there is no room for more events beyond broker 'b2'; try again"),
            (right.says(m.RoomChanged(True)), "refused #4"),
            (Room("b3", is_full=False), "refused #5"),
            (right.says(m.RoomChanged(False)), "acknowledged #6"),
        ],
        2,
    ):
        step = here.hand(item, client.says(m.PublishEvents(number, "traffic", events)))
        assert str(client.hears(step)[-1]).startswith(reply)
        said = [str(message) for message in left.hears(step)]
        assert said == {3: ["FULL"], 6: ["ROOM"]}.get(number, [])
        assert right.hears(step) == []
    assert here.outcome(Room("b9", is_full=True)).reason == "'b9' is no neighbour of 'b2'; there are b1, b3"


def test_events_between_brokers_are_never_refused() -> None:
    here, left, right = desk("b2", ("b1", "b3")), Voice("b1"), Voice("b3")
    here.hand(right.says(m.Subscribed("traffic", 1, (Filter.parse("TRUE"),))), Room("b3", is_full=True))
    times = pa.array([1], pa.timestamp("us", tz="UTC"))
    events = pa.RecordBatch.from_pydict({"event_id": ["a"], "ts": times, "speed": [1.0]})
    step = here.hand(left.says(m.Published("traffic", events)))
    assert [str(message) for message in right.hears(step)] == ["PUB traffic a"]


def test_events_that_come_before_their_advertisement_is_acknowledged_are_refused() -> None:
    here, neighbour, client = desk(), Voice("b2"), Voice("c")
    events = pa.RecordBatch.from_pydict({"speed": [1.0]})
    step = here.hand(
        Attached("c"),
        client.says(m.AdvertiseTopic(1, "traffic")),
        client.says(m.PublishEvents(2, "traffic", events)),
        neighbour.says(m.Confirmed(1)),
        client.says(m.PublishEvents(3, "traffic", events)),
    )
    assert [str(one) for one in client.hears(step)] == [
        "refused #2: the advertisement of topic 'traffic' is not acknowledged yet; "
        "accepted are events that come after that",
        "acknowledged #1",
        "acknowledged #3",
    ]


def test_a_client_may_have_only_so_many_requests_that_wait() -> None:
    here, client = desk(requests_max=2), Voice("c")
    asked = [client.says(m.SubscribeTo(n, f"s{n}", f"SELECT * FROM traffic WHERE speed > {n}")) for n in (2, 3)]
    step = here.hand(
        Attached("c"),
        Voice("b2").says(m.Advertised("traffic", 1)),
        *asked,
        client.says(m.AdvertiseTopic(4, "traffic")),
    )
    assert [str(one) for one in client.hears(step)] == [
        "refused #4: 2 requests of 'c' wait for their answers; accepted are 2"
    ]


# -- events that wait together --------------------------------------------------------------------------------------


def advertising(*clients: Voice) -> Desk:
    here = desk(neighbours=())
    for client in clients:
        client.hears(here.hand(Attached(client.name), client.says(m.AdvertiseTopic(1, "traffic"))))
    return here


def speeds(*values: Any, **more: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"speed": list(values), **more})


def test_events_of_several_clients_are_matched_together_and_answered_apart() -> None:
    one, two = Voice("c1"), Voice("c2")
    here = advertising(one, two)
    here.hand(one.says(m.SubscribeTo(2, "all", "SELECT * FROM traffic")))
    step = here.hand(
        one.says(m.PublishEvents(3, "traffic", speeds(1.0))),
        two.says(m.PublishEvents(2, "traffic", speeds(2.0, 3.0)), m.PublishEvents(3, "traffic", speeds(float("nan")))),
        one.says(m.PublishEvents(4, "traffic", speeds(4.0, nonsense=[1]))),
        one.says(m.PublishEvents(5, "traffic", speeds(5.0))),
    )
    assert [str(message)[:50] for message in one.hears(step)] == [
        "acknowledged #2",
        "acknowledged #3",
        "deliver traffic: all b1/1 b1/2 b1/3",
        "refused #4: topic 'traffic' has no attribute 'nons",
        "acknowledged #5",
        "deliver traffic: all b1/4",
    ][1:]
    assert [str(message)[:50] for message in two.hears(step)] == [
        "acknowledged #2",
        "refused #3: an event is refused: speed is NaN or i",
    ]
    assert step.work["match"] == 4


def test_events_are_counted_by_where_they_came_from_and_what_became_of_them() -> None:
    client, neighbour = Voice("c"), Voice("b2")
    here = desk()
    here.hand(Attached("c"), client.says(m.AdvertiseTopic(1, "traffic")))
    wanted = m.Subscribed("traffic", 1, (Filter.parse("speed > 1"),), ())
    here.hand(neighbour.says(m.Confirmed(1), m.Advertised("traffic", 2), wanted))
    step = here.hand(
        client.says(m.PublishEvents(2, "traffic", speeds(1.0, 2.0, event_id=["x", "y"]))),
        client.says(m.PublishEvents(3, "traffic", speeds(3.0, event_id=["x"]))),
        client.says(m.PublishEvents(4, "traffic", speeds(float("nan"), 4.0))),
    )
    assert step.events == {("", "accepted"): 2, ("", "repeated"): 1, ("", "refused"): 2}
    assert step.traffic == {("b2", "publications"): (1, 0)}
    told = pa.RecordBatch.from_pydict(
        {"event_id": ["z"], "ts": pa.array([5], pa.timestamp("us", "UTC")), "speed": [5.0]}
    )
    assert here.hand(neighbour.says(m.Published("traffic", told, None))).events == {("b2", "accepted"): 1}
    assert here.hand(Woken()).events == {}


def test_a_join_ends_where_matching_or_clients_change() -> None:
    client = Voice("c")
    here = advertising(client)
    step = here.hand(
        client.says(m.PublishEvents(2, "traffic", speeds(1.0))),
        client.says(m.SubscribeTo(3, "all", "SELECT * FROM traffic")),
        client.says(m.PublishEvents(4, "traffic", speeds(2.0))),
        client.says(m.UnsubscribeFrom(5, "all")),
        client.says(m.PublishEvents(6, "traffic", speeds(3.0))),
        Detached("c"),
    )
    assert step.sends == ()
    here = advertising(client := Voice("c"))
    step = here.hand(
        client.says(m.PublishEvents(2, "traffic", speeds(1.0))),
        client.says(m.SubscribeTo(3, "all", "SELECT * FROM traffic")),
        client.says(m.PublishEvents(4, "traffic", speeds(2.0))),
        client.says(m.UnsubscribeFrom(5, "all")),
        client.says(m.PublishEvents(6, "traffic", speeds(3.0))),
    )
    assert "deliver traffic: all b1/2" in [str(message) for message in client.hears(step)]
    assert step.work["join"] == 0


def test_events_without_a_time_get_that_of_their_own_input() -> None:
    client = Voice("c")
    here = advertising(client)
    client.hears(here.hand(client.says(m.SubscribeTo(2, "all", "SELECT ts FROM traffic"))))
    inputs = [
        Input(client.says(m.PublishEvents(number, "traffic", speeds(1.0))), at_us, 10 + number)
        for number, at_us in ((3, 100), (4, 90), (5, 300))
    ]
    (delivered,) = [one for one in client.hears(here.broker.step(inputs)) if isinstance(one, m.Delivered)]
    # A clock that runs backwards stands still.
    assert delivered.events.column("ts").cast(pa.int64()).to_pylist() == [100, 100, 300]


def test_frames_longer_than_they_may_be_are_split() -> None:
    client = Voice("c")
    here = advertising(client)
    client.hears(here.hand(client.says(m.SubscribeTo(2, "all", "SELECT * FROM traffic"))))
    texts = [f"{number}" * 400 for number in range(500)]
    for number in range(3, 9):
        batch = speeds(*range(500), highway=texts, event_id=[f"{number}-{at}" for at in range(500)])
        step = here.hand(client.says(m.PublishEvents(number, "traffic", batch)))
        assert all(len(data) <= FRAME_BYTES_MAX for send in step.sends for data in send.frames)
        client.hears(step)
    parts = [client.says(m.PublishEvents(number, "traffic", speeds(*range(500), highway=texts))) for number in (9, 10)]
    step = here.hand(*parts)
    (send,) = step.sends
    assert len(send.frames) > 1
    assert (send.first, send.last) == (9, 8 + len(send.frames))
    delivered = [one for one in client.hears(step) if isinstance(one, m.Delivered)]
    assert sum(one.events.num_rows for one in delivered) == 1_000
    assert [row for one in delivered for row in one.wanted["all"].tolist()] == [
        row for one in delivered for row in range(one.events.num_rows)
    ]


# -- clients that come and go ---------------------------------------------------------------------------------------


def test_a_client_that_starts_anew_is_not_taken_for_a_repetition() -> None:
    here, before, after = desk(neighbours=()), Voice("c"), Voice("c", incarnation=2)
    here.hand(Attached("c"), before.says(m.SubscribeTo(1, "s", "SELECT * FROM traffic")))
    assert here.outcome(Attached("c")).kind == "repeated"
    assert here.outcome(after.says(m.SubscribeTo(1, "s", "SELECT * FROM traffic"))).kind == "stranger"
    after = Voice("c", incarnation=2)
    step = here.hand(Attached("c", incarnation=2), after.says(m.SubscribeTo(1, "s", "SELECT * FROM stock")))
    assert [str(message) for message in after.hears(step)] == ["acknowledged #1"]
    assert here.outcome(before.says(m.UnsubscribeFrom(2, "s"))).kind == "repeated"
    assert here.outcome(Attached("c")).reason == "client 'c' is in its life 2; accepted are later ones"
    assert list(here.broker.subscribed) == [("c", "s")]
    assert here.broker.routes("traffic").is_empty


def test_a_client_that_parks_gets_what_it_wants_and_resumes_in_another_life() -> None:
    here, away, publisher = desk(neighbours=()), Voice("c"), Voice("p")
    here.hand(
        Attached("c", owner="ann"),
        away.says(m.SubscribeTo(1, "s", "SELECT * FROM traffic")),
        Attached("p"),
        publisher.says(m.AdvertiseTopic(1, "traffic")),
    )
    assert here.outcome(Parked("c")).kind == "taken"
    step = here.hand(publisher.says(m.PublishEvents(2, "traffic", speeds(1.0))))
    assert [send.to for send in step.sends] == ["c", "p"]
    assert here.outcome(Resumed("c", 2, owner="bob")).reason == "client 'c' does not belong to 'bob'"
    assert (
        here.outcome(Resumed("c", 0, owner="ann")).reason
        == "client 'c' was in its life 1; accepted are that and later ones"
    )
    assert here.outcome(Resumed("c", 2, owner="ann")).kind == "taken"
    assert (
        here.outcome(Resumed("c", 3, owner="ann")).reason == "client 'c' is not parked; accepted are clients that are"
    )
    back = Voice("c", incarnation=2)
    step = here.hand(back.says(m.UnsubscribeFrom(1, "s")), publisher.says(m.PublishEvents(3, "traffic", speeds(2.0))))
    assert [str(message) for message in back.hears(step)] == ["acknowledged #1"]
    assert here.outcome(Parked("nobody")).reason == "no client 'nobody' is at broker 'b1'; there are c, p"


def test_a_client_that_was_thought_to_be_away_goes_on_in_the_same_life() -> None:
    here, client = desk(neighbours=()), Voice("c")
    here.hand(
        Attached("c"), client.says(m.SubscribeTo(1, "s", "SELECT * FROM traffic")),
        client.says(m.AdvertiseTopic(2, "traffic")), Parked("c", 1),
    )  # fmt: skip
    assert here.broker.peers["c"].parked_us == here.broker.now_us
    assert here.outcome(Resumed("c", 1)).kind == "taken"
    step = here.hand(client.says(m.PublishEvents(3, "traffic", speeds(1.0))))
    assert [str(one) for one in client.hears(step)][-2:] == ["acknowledged #3", "deliver traffic: s b1/1"]


def test_an_end_that_is_about_an_earlier_life_changes_nothing() -> None:
    here = desk(neighbours=())
    here.hand(Attached("c", 1), Attached("c", 2))
    for item in (Parked("c", 1), Detached("c", 1)):
        assert here.outcome(item).reason == "client 'c' is in its life 2; accepted is that, not 1"
    assert here.outcome(Detached("c", 2)).kind == "taken"


def test_a_client_for_whom_too_much_waits_is_told_so_and_has_gone() -> None:
    here, slow = desk(neighbours=()), Voice("c")
    here.hand(Attached("c"), slow.says(m.SubscribeTo(1, "s", "SELECT * FROM traffic")))
    step = here.hand(Overrun("c", 7))
    (send,) = step.sends
    assert send.first == 2
    assert here.broker.routes("traffic").is_empty
    assert here.outcome(slow.says(m.UnsubscribeFrom(2, "s"))).kind == "stranger"
    session = Session("c")
    assert [str(message) for message in session.receive(send.frames[0])] == ["dropped, missed 7 frames"]


def test_a_client_that_is_dropped_hears_what_became_of_its_last_requests() -> None:
    here, slow = desk(neighbours=()), Voice("c")
    step = here.hand(Attached("c"), slow.says(m.AdvertiseTopic(1, "traffic")), Overrun("c", 7))
    assert [str(message) for message in slow.hears(step)] == ["acknowledged #1", "dropped, missed 7 frames"]


def test_a_neighbour_that_starts_anew_is_told_everything_again() -> None:
    here, client, before, after = desk(), Voice("c"), Voice("b2"), Voice("b2", incarnation=2)
    here.hand(before.says(m.Advertised("traffic", 1), m.Subscribed("traffic", 2, (Filter.parse("speed < 5"),))))
    step = here.hand(
        Attached("c"),
        client.says(m.AdvertiseTopic(1, "traffic"), m.SubscribeTo(2, "s", "SELECT * FROM traffic WHERE speed >= 7")),
    )
    assert client.hears(step) == []  # b2 has not confirmed
    step = here.hand(after.says(m.Advertised("traffic", 1)))
    assert [str(message) for message in client.hears(step)] == ["acknowledged #1", "acknowledged #2"]
    assert [str(message) for message in after.hears(step)] == ["AD traffic", "SUB traffic [speed >= 7.0D]", "CONFIRM 1"]
    assert [(send.first, send.to) for send in step.sends if send.to == "b2"] == [(1, "b2")]
    assert not here.broker.routes("traffic").demands["b2"]
    assert here.outcome(before.says(m.Confirmed(1))).kind == "repeated"


def test_a_neighbour_that_starts_anew_gets_no_answer_to_its_old_life() -> None:
    here, other = desk(neighbours=("b2", "b3")), Voice("b3")
    here.hand(other.says(m.Advertised("traffic", 1)))
    wide = Filter.parse("speed < 9").within(SCHEMAS["traffic"])
    assert not Voice("b2").hears(here.hand(Voice("b2").says(m.Subscribed("traffic", 1, (wide,)))))
    after = Voice("b2", incarnation=2)
    after.hears(
        here.hand(after.says(m.Subscribed("traffic", 1, (Filter.parse("speed < 5").within(SCHEMAS["traffic"]),))))
    )
    # Of the three changes that b3 was told, it confirms the first, which is of the old life.
    assert not after.hears(here.hand(other.says(m.Confirmed(1))))
    step = here.hand(other.says(m.Confirmed(2), m.Confirmed(3)))
    assert after.hears(step) == [m.Confirmed(1)]


def test_impossible_settings_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="summary is 'shortest'; accepted are bound, covering, each"):
        Settings(schemas=SCHEMAS, summary="shortest")  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="requests_max is 0"):
        Settings(schemas=SCHEMAS, requests_max=0)
