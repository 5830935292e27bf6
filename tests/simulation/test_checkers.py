"""Checkers that can fail: each is shown a world in which something is wrong."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from catchment import Overlay
from catchment.broker.aggregation import Aggregation, AggregationOptions
from catchment.broker.broker import Settings
from catchment.broker.client import WindowValue
from catchment.broker.gateway import Gateway
from catchment.broker.hosting import Host, Limits
from catchment.broker.inputs import Input, Received
from catchment.model.errors import ConfigurationError
from catchment.model.filter import Filter
from catchment.model.schema import Type
from catchment.simulation.checking import (
    Bounds,
    check_answers,
    check_conduct,
    check_deliveries,
    check_emptiness,
    check_notifications,
    check_posts,
    check_promptness,
    check_routes,
)
from catchment.simulation.checking import bounds as bounds_module
from catchment.simulation.options import Options
from catchment.simulation.stories import SCHEMAS
from catchment.simulation.witness import Witness, Witnessed
from catchment.simulation.world import World

SECOND_US = 1_000_000
CHAIN = Overlay.from_links([("b1", "b2"), ("b2", "b3")])


def busy_world(bounds: Bounds) -> World:
    """Ten batches follow each other over links that carry one frame, and whose outboxes hold two."""
    options = Options(in_flight_max=1, limits=Limits(link_bytes_max=1_000))
    world = World(CHAIN, Settings(schemas=SCHEMAS), options=options, watch=bounds)
    publisher, subscriber = world.client("b1", "p"), world.client("b3", "s")
    world.advertise(publisher, "stock")
    world.subscribe(subscriber, "all", "SELECT * FROM stock")
    world.run()
    for number in range(10):
        events = pa.RecordBatch.from_pydict({"event_id": [f"e{number}"], "price": [number]})
        world.publish(publisher, "stock", events)
    world.run()
    return world


def test_publishers_are_refused_while_there_is_no_room_and_nothing_accepted_is_lost() -> None:
    bounds = Bounds()
    world = busy_world(bounds)
    assert list(bounds.check()) == []
    refused = [one.refused for one in world.clients["b1/p"].requests if one.refused]
    assert refused
    assert set(refused) == {"there is no room for more events beyond broker 'b1'; try again later"}
    assert len(world.clients["b3/s"].wishes["all"].received) == 10 - len(refused)


def test_an_outbox_that_grows_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds_module, "FRAME_BYTES_MAX", 0)
    monkeypatch.setattr(Host, "notices", lambda _: iter(()))
    bounds = Bounds()
    options = Options(in_flight_max=1, limits=Limits(client_bytes_max=1_000))
    world = World(CHAIN, Settings(schemas=SCHEMAS), options=options, watch=bounds)
    client = world.client("b1", "p")
    world.advertise(client, "stock")
    world.subscribe(client, "all", "SELECT * FROM stock")
    world.run()
    client.reads = False
    for number in range(10):
        world.publish(client, "stock", pa.RecordBatch.from_pydict({"event_id": [f"e{number}"], "price": [number]}))
    world.run(world.timeline.now_us + 100_000)
    assert "bytes that wait for b1/p" in "\n".join(bounds.check())


def resting_world(**settings: Any) -> World:
    world = World(CHAIN, Settings(schemas=SCHEMAS, **settings))
    world.advertise(world.client("b1", "p"), "stock")
    subscriber = world.client("b3", "s")
    for name, condition in (("wide", "price > 1"), ("narrow", "price > 5"), ("other", "symbol = 's1'")):
        world.subscribe(subscriber, name, f"SELECT * FROM stock WHERE {condition}")
    world.run()
    return world


@pytest.mark.parametrize("summary", ["bound", "covering", "each"])
@pytest.mark.parametrize("forwarding", ["advertised", "flooded"])
def test_routes_are_minimal_at_rest(summary: str, forwarding: str) -> None:
    world = resting_world(summary=summary, forwarding=forwarding)
    assert list(check_routes(world)) == []
    assert "still has routes" in next(check_emptiness(world))


def test_a_filter_too_many_and_one_too_few_are_seen() -> None:
    world = resting_world()
    wanted = world.nodes["b1"].broker.routes("stock").demands["b2"]
    narrow = Filter.parse("price > 5").within(SCHEMAS["stock"])
    assert len(wanted) == 2
    wanted[narrow] = None
    assert list(check_routes(world)) == [f"b1 about b2 and stock: [{narrow}] is covered by another one"]
    wanted.clear()
    assert sum("nothing known covers" in line for line in check_routes(world)) == 3


def test_a_publisher_who_has_gone_is_seen() -> None:
    world = resting_world()
    world.nodes["b2"].broker.routes("stock").advertisers.add("b3")
    assert list(check_routes(world)) == ["b2 about b3 and stock: knows of a publisher who has gone"]


def told_world() -> World:
    """Three events, all delivered, all answered."""
    world = resting_world()
    for number in range(3):
        events = pa.RecordBatch.from_pydict({"event_id": [f"e{number}"], "price": [number + 2]})
        world.publish(world.clients["b1/p"], "stock", events)
        world.run()
    assert [*check_deliveries(world), *check_answers(world), *check_conduct(world)] == []
    assert world.clients["b3/s"].wishes["wide"].received == ["e0", "e1", "e2"]
    return world


@pytest.mark.parametrize(
    ("received", "said"),
    [
        (["e0", "e2"], "b3/s wide did not get e1"),
        (["e0", "e1", "e1", "e2"], "b3/s wide got e1 2 times"),
        (["e0", "e2", "e1"], "b3/s wide got e1 out of b1/p's order"),
        (["e0", "e1", "e2", "e9"], "b3/s wide got e9, which it may not"),
    ],
)
def test_a_delivery_that_is_wrong_is_seen(received: list[str], said: str) -> None:
    world = told_world()
    world.clients["b3/s"].wishes["wide"].received = received
    (line,) = check_deliveries(world)
    assert line.startswith(said)


def test_a_request_without_an_answer_and_a_strange_frame_are_seen() -> None:
    world = told_world()
    world.clients["b3/s"].requests[0].answered_us = None
    assert next(check_answers(world)).startswith("b3/s was never answered: subscribe wide")
    world.nodes["b2"].broker.step([Input(Received(b"nothing"), 0, 0)])
    assert list(check_conduct(world)) == ["b2 counted 1 frames that do not decode"]


# -- values of windows ------------------------------------------------------------------------------------------------

SECONDS = "SELECT count(*) FROM stock GROUP BY window(ts, '1 second')"


def counted_world(delivery: Any = "final") -> World:
    """A subscriber was told how many events three windows have: 1, 2 and 3."""
    options = AggregationOptions(placement="early", delivery=delivery, idle_after_us=SECOND_US)
    make = lambda: [Aggregation(options)]  # noqa: E731
    world = World(CHAIN, Settings(schemas=SCHEMAS), make_advice=make)
    publisher, subscriber = world.client("b1", "p"), world.client("b3", "s")
    world.advertise(publisher, "stock")
    world.subscribe(subscriber, "counts", SECONDS)
    world.run(SECOND_US // 2)
    for second in (1, 2, 3):
        times = pa.array([second * SECOND_US + at for at in range(second)], Type.TIMESTAMP.arrow)
        ids = [f"e{second}-{at}" for at in range(second)]
        world.publish(publisher, "stock", pa.RecordBatch.from_pydict({"event_id": ids, "ts": times}))
        world.run(second * SECOND_US)
    world.run()
    assert list(check_notifications(world, revises=delivery == "revisions")) == []
    return world


def values_of(world: World) -> list[tuple[int, WindowValue]]:
    return world.clients["b3/s"].wishes["counts"].values


def changed(one: WindowValue, **fields: Any) -> tuple[int, WindowValue]:
    return 0, replace(one, **fields)


WRONG: dict[str, tuple[Callable[[WindowValue], list[tuple[int, WindowValue]]], str]] = {
    "missing": (lambda one: [], "b3/s counts was not told of"),
    "of another value": (lambda one: [changed(one, value=7.0, exact="7")], "b3/s counts was told WindowValue("),
    "of other events": (lambda one: [changed(one, publications=7)], "b3/s counts was told WindowValue("),
    "without a value": (lambda one: [changed(one, problem="beyond its type")], "b3/s counts was told WindowValue("),
    "there twice": (lambda one: [(0, one), (0, one)], "b3/s counts was told (2000000, 3000000, (), 'count(*)') again"),
    "revised": (lambda one: [(0, one), changed(one, revision=1)], "b3/s counts was told (2000000, 3000000, (), "),
    "of another revision": (lambda one: [changed(one, revision=1)], "b3/s counts was told (2000000, 3000000, (), "),
    "joined by one of a window without events": (
        lambda one: [(0, one), changed(one, start_us=8 * SECOND_US, end_us=9 * SECOND_US)],
        "b3/s counts was told of (8000000, 9000000, (), 'count(*)'), which has no events",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_value_that_is_wrong_is_seen(case: str) -> None:
    world = counted_world()
    values = values_of(world)
    assert [(one.start_us, one.exact) for _, one in values] == [
        (number * SECOND_US, str(number)) for number in (1, 2, 3)
    ]
    change, said = WRONG[case]
    values[1:2] = change(values[1][1])
    (line,) = check_notifications(world)
    assert line.startswith(said)


@pytest.mark.parametrize(("revision", "said"), [(0, "as revision 0"), (5, "as revision 5")])
def test_a_revision_out_of_turn_is_seen(revision: int, said: str) -> None:
    world = counted_world("revisions")
    values = values_of(world)
    last = values[-1][1]
    values.append(changed(last, revision=revision))
    (line,) = check_notifications(world, revises=True)
    assert line.endswith(said)
    values[-1] = changed(last, revision=last.revision + 1)
    assert list(check_notifications(world, revises=True)) == []


# -- slow subscribers -------------------------------------------------------------------------------------------------


def slow_world(limits: Limits, batches: int = 20) -> World:
    """One of two subscribers at b3 reads nothing for ten seconds, in which a publisher at b1 goes on."""
    world = World(CHAIN, Settings(schemas=SCHEMAS), options=Options(in_flight_max=1, limits=limits))
    publisher, slow, other = world.client("b1", "p"), world.client("b3", "slow"), world.client("b3", "other")
    world.advertise(publisher, "stock")
    for client in (slow, other):
        world.subscribe(client, "all", "SELECT * FROM stock")
    world.run()
    world.starve(slow, 10 * SECOND_US)
    for number in range(batches):
        world.publish(publisher, "stock", pa.RecordBatch.from_pydict({"event_id": [f"e{number}"], "price": [number]}))
        world.run(world.timeline.now_us + 100_000)
    return world


@pytest.mark.parametrize("limits", [Limits(), Limits(client_bytes_max=1_000)], ids=["parked for it", "dropped"])
def test_a_slow_subscriber_costs_nobody_else_anything(limits: Limits) -> None:
    world = slow_world(limits)
    slow, other = world.clients["b3/slow"], world.clients["b3/other"]
    everything = [f"e{number}" for number in range(20)]
    assert (slow.wishes["all"].received, other.wishes["all"].received) == ([], everything)
    assert all(request.refused is None for request in world.clients["b1/p"].requests)
    world.run()
    assert [*check_promptness(world, 100_000), *check_deliveries(world), *check_conduct(world)] == []
    # What is on its way when it is dropped reaches it all the same.
    assert slow.is_dropped == (limits != Limits())
    assert (slow.wishes["all"].received == everything) != slow.is_dropped


def test_a_subscriber_that_is_held_up_by_another_one_is_seen() -> None:
    world = slow_world(Limits())
    world.run()
    other = world.clients["b3/other"].wishes["all"]
    other.received_us[3] = world.clients["b3/slow"].wishes["all"].received_us[3]
    (line,) = check_promptness(world, SECOND_US)
    assert line.startswith("b3/other all got e3 at 10")


def test_a_client_that_parks_gets_all_that_was_collected_for_it() -> None:
    world = slow_world(Limits(), batches=0)
    publisher, away = world.clients["b1/p"], world.clients["b3/other"]
    for number in range(6):
        if number == 2:
            world.park(away)
        if number == 4:
            world.resume(away)
        world.publish(publisher, "stock", pa.RecordBatch.from_pydict({"event_id": [f"e{number}"], "price": [number]}))
        world.run(world.timeline.now_us + 100_000)
        assert len(away.wishes["all"].received) == (2 if number in (2, 3) else number + 1)
    world.unsubscribe(away, "all")
    world.run()
    assert [*check_answers(world), *check_deliveries(world), *check_conduct(world)] == []
    assert away.past[0].received == [f"e{number}" for number in range(6)]


def test_nobody_crashes_who_could_not_come_back() -> None:
    world = World(CHAIN, Settings(schemas=SCHEMAS), options=Options(snapshot_every=None))
    with pytest.raises(ConfigurationError, match="snapshot_every is None"):
        world.crash("b1", 1)


@pytest.mark.parametrize("takes_posts", [True, False])
def test_a_posted_event_that_is_lost_is_seen(takes_posts: bool) -> None:
    witnessed = Witnessed()
    makers = [Gateway] if takes_posts else []
    world = World(
        CHAIN, Settings(schemas=SCHEMAS), make_advice=lambda: [*(make() for make in makers), Witness(witnessed)]
    )
    witnessed.world = world
    world.post("b2", "traffic", [{"event_id": "e1", "speed": 1.0}, {"event_id": "e2"}])
    world.run()
    lost = [] if takes_posts else ["2 posted events were not accepted, and 0 reported as late: ['e1', 'e2']"]
    assert list(check_posts(world)) == lost
