"""The last guard: a bug of the broker itself costs the input that meets it, and nothing else."""

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from catchment import Overlay
from catchment.broker import clients, neighbours, requests
from catchment.broker import messages as m
from catchment.broker.broker import Broker, Settings
from catchment.broker.frames import FRAME_BYTES_MAX
from catchment.broker.hosting import Host, Limits, Log, Outbox
from catchment.broker.inputs import Attached, Item, Parked, Received, Room
from catchment.broker.memory import freeze, restored
from catchment.broker.routing import Routes
from catchment.model.filter import EVERY_EVENT
from catchment.simulation.checking import check_conduct
from catchment.simulation.stories import SCHEMAS as STORY_SCHEMAS
from catchment.simulation.world import World
from tests.broker.wire import SCHEMAS, Desk, Voice

SETTINGS = Settings(schemas=SCHEMAS)
EVERYTHING = "SELECT * FROM traffic"
REASON = "the broker failed on it, and it may have taken effect in part: KeyError: 'a bug'"


def bug(*_: Any, **__: Any) -> Any:
    raise KeyError("a bug")


def events(*ids: str) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {"event_id": [*ids], "ts": pa.array([1] * len(ids), pa.timestamp("us", tz="UTC")), "speed": [1.0] * len(ids)}
    )


def failed(desk: Desk) -> list[str]:
    """Where inputs failed, as often as it was counted."""
    found = [one.where for one in desk.broker.input_failures]
    assert desk.broker.counters["inputs that failed"] == len(found)
    return found


def test_a_request_that_fails_is_refused_and_the_next_one_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    desk, client = Desk(Broker("b1", [], SETTINGS)), Voice("c")
    desk.hand(Attached("c"))
    with monkeypatch.context() as patch:
        patch.setattr(Broker, "start_advertising", bug)
        step = desk.hand(client.says(m.AdvertiseTopic(1, "traffic"), m.SubscribeTo(2, "all", EVERYTHING)))
    assert [one.kind for one in step.outcomes] == ["refused"]
    assert step.outcomes[0].reason.startswith(REASON)
    refused, acknowledged = client.hears(step)
    assert isinstance(refused, m.Refused)
    assert (refused.request, refused.reason[: len(REASON)]) == (1, REASON)
    assert acknowledged == m.Acknowledged(2)
    assert failed(desk) == ["AdvertiseTopic"]
    assert desk.broker.input_failures[0].error == "KeyError: 'a bug' in bug"


def test_a_subscription_that_fails_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    desk, client = Desk(Broker("b1", [], SETTINGS)), Voice("c")
    desk.hand(Attached("c"), client.says(m.AdvertiseTopic(1, "traffic")))
    with monkeypatch.context() as patch:
        patch.setattr(Broker, "update_neighbours", bug)
        desk.hand(client.says(m.SubscribeTo(2, "all", EVERYTHING)))
    assert failed(desk)[0] == "SubscribeTo"
    assert desk.broker.subscribed == {}
    assert desk.broker.routes("traffic").subscriptions == {}
    step = desk.hand(client.says(m.SubscribeTo(3, "all", EVERYTHING), m.PublishEvents(4, "traffic", events("e"))))
    assert [type(one) for one in client.hears(step)] == [m.Acknowledged, m.Acknowledged, m.Delivered]


def test_events_that_fail_are_refused_and_their_acknowledgement_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    desk, client, other = Desk(Broker("b1", [], SETTINGS)), Voice("c"), Voice("d")
    desk.hand(Attached("c"), Attached("d"), client.says(m.AdvertiseTopic(1, "traffic")))
    with monkeypatch.context() as patch:
        patch.setattr(Routes, "match", bug)
        step = desk.hand(
            client.says(m.PublishEvents(2, "traffic", events("e"))), other.says(m.SubscribeTo(1, "all", EVERYTHING))
        )
    assert [one.kind for one in step.outcomes] == ["taken", "taken"]
    (answer,) = [one for one in Voice("c").hears(step) if getattr(one, "request", 0) == 2]
    assert isinstance(answer, m.Refused)
    assert other.hears(step) == [m.Acknowledged(1)]
    assert failed(desk) == ["events of traffic"]


@pytest.mark.parametrize(
    ("kind", "handler", "message"),
    [
        (m.Advertised, "start_advertising", m.Advertised("traffic", 1)),
        (m.Subscribed, "update_neighbours", m.Subscribed("traffic", 1, (EVERY_EVENT,))),
    ],
)
def test_a_change_that_fails_is_confirmed(
    monkeypatch: pytest.MonkeyPatch, kind: type, handler: str, message: m.Message
) -> None:
    desk, left = Desk(Broker("b1", ["b0", "b2"], SETTINGS)), Voice("b0")
    with monkeypatch.context() as patch:
        patch.setattr(Broker, handler, bug)
        step = desk.hand(left.says(message))
    assert left.hears(step) == [m.Confirmed(1)]
    assert failed(desk) == [kind.__name__]


def test_a_neighbour_whose_new_life_fails_is_heard_nevertheless(monkeypatch: pytest.MonkeyPatch) -> None:
    desk = Desk(Broker("b1", ["b0"], SETTINGS))
    desk.hand(Voice("b0").says(m.Advertised("traffic", 1)))
    anew = Voice("b0", 2)
    with monkeypatch.context() as patch:
        patch.setattr(Broker, "stop_advertising", bug)
        step = desk.hand(anew.says(m.Advertised("traffic", 1)), anew.says(m.Advertised("stock", 2)))
    assert [one.kind for one in step.outcomes] == ["taken", "taken"]
    assert [send.first for send in step.sends] == [1]
    assert anew.hears(step) == [m.Confirmed(1), m.Confirmed(2)]
    assert failed(desk) == ["a neighbour's old life"]


def test_other_inputs_and_timers_that_fail_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    desk = Desk(Broker("b1", ["b0"], SETTINGS))
    with monkeypatch.context() as patch:
        patch.setattr(Broker, "send_room", bug)
        assert desk.outcome(Room("b0", is_full=True)).reason.startswith(REASON)
    desk.broker.weaver.set_timer("any", "due", 7)
    with monkeypatch.context() as patch:
        patch.setattr(Broker, "_pass_time", bug)
        assert desk.outcomes(Attached("c"), Parked("c"), at_us=7) == ["taken", "taken"]
    assert desk.broker.now_us == 7
    assert failed(desk) == ["Room", "timers", "timers"]


def test_a_message_that_fits_no_frame_is_left_out_and_nobody_waits_for_it() -> None:
    desk, client, left = Desk(Broker("b1", ["b0"], SETTINGS)), Voice("c"), Voice("b0")
    desk.hand(Attached("c"))
    broker = desk.broker
    large = m.Advertised("traffic", broker.change_for("b0"), {"x": b"x" * FRAME_BYTES_MAX})
    broker.send("b0", large)
    broker.when_confirmed("c", m.Acknowledged(9))
    step = desk.hand(left.says(m.RoomChanged(is_full=False)), client.says(m.AdvertiseTopic(1, "stock")))
    assert [str(one) for one in left.hears(step)] == ["AD stock"]
    assert client.hears(step) == [m.Acknowledged(9)]
    assert failed(desk) == ["frames for b0"]
    assert "no frame can carry" in broker.input_failures[0].error
    assert [str(one) for one in client.hears(desk.hand(left.says(m.Confirmed(2))))] == ["acknowledged #1"]


def test_running_out_of_memory_is_not_the_fault_of_an_input(monkeypatch: pytest.MonkeyPatch) -> None:
    def exhausted(*_: Any) -> None:
        raise MemoryError

    monkeypatch.setattr(Broker, "send_room", exhausted)
    desk = Desk(Broker("b1", ["b0"], SETTINGS))
    with pytest.raises(MemoryError):
        desk.hand(Room("b0", is_full=True))


BUGS: list[tuple[Any, str]] = [
    (Broker, "start_advertising"),
    (Broker, "update_neighbours"),
    (Routes, "match"),
    (requests, "publish"),
    (neighbours, "forward"),
    (Broker, "_neighbour_begins"),
    (clients, "_client"),
]


@pytest.mark.parametrize(("owner", "name"), BUGS, ids=[name for _, name in BUGS])
def test_replay_fails_in_the_same_way(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> None:
    real: Callable[..., Any] = getattr(owner, name)
    calls = {"count": 0}

    def every_third(*arguments: Any) -> Any:
        calls["count"] += 1
        return bug() if calls["count"] % 3 == 0 else real(*arguments)

    monkeypatch.setattr(owner, name, every_third)
    c, d, left = Voice("c"), Voice("d"), Voice("b0")
    items: list[Item] = [Attached("c"), Attached("d")]
    items += [c.says(m.AdvertiseTopic(1, "traffic")), d.says(m.SubscribeTo(1, "all", EVERYTHING))]
    items += [
        left.says(m.Subscribed("traffic", 1, (EVERY_EVENT,)), m.Confirmed(1)),
        c.says(m.AdvertiseTopic(2, "stock")),
    ]
    items += [left.says(m.Advertised("traffic", 2)), d.says(m.SubscribeTo(2, "more", EVERYTHING))]
    for number in range(6):
        items += [c.says(m.PublishEvents(10 + number, "traffic", events(f"c{number}"))), Parked("c")]
        items += [left.says(m.Published("traffic", events(f"b{number}")))]
    items += [Voice("b0", life).says(m.Advertised("traffic", 1)) for life in (2, 3, 4)]
    log, outboxes = Log(), dict[str, Outbox]()
    broker = Broker("b1", ["b0"], SETTINGS)
    host, snapshot = Host(broker, outboxes, Limits()), list(freeze(broker).pieces())
    for item in items:
        log.append(item, 0)
        for send in host.step(log.read(host.position + 1)).sends:
            host.hand_over(send)
    assert broker.counters["inputs that failed"] > 0
    calls["count"] = 0
    again = dict[str, Outbox]()
    replayed = Host(restored(snapshot, SETTINGS), again, Limits())
    list(replayed.replay(log.read(1), iter(lambda: 1, 0)))
    assert replayed.broker.counters == broker.counters
    for peer, outbox in outboxes.items():
        assert [*again[peer].frames] == [*outbox.frames]


def test_checkers_see_inputs_that_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(Overlay.from_links([("b1", "b2")]), Settings(schemas=STORY_SCHEMAS))
    assert list(check_conduct(world)) == []
    monkeypatch.setattr(Broker, "start_advertising", bug)
    world.advertise(world.client("b1", "p"), "stock")
    world.run()
    counted, kept = check_conduct(world)
    assert counted == "b1 counted 1 inputs that failed"
    assert "AdvertiseTopic" in kept
    assert world.clients["b1/p"].requests[0].refused


def test_frames_that_are_nothing_fail_nothing() -> None:
    desk = Desk(Broker("b1", ["b0"], SETTINGS))
    assert desk.outcomes(Received(b""), Received(b"CF\x02\x97")) == ["refused", "refused"]
    assert failed(desk) == []
