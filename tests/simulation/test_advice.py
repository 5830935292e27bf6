"""Advice in simulations: under faults, counted by what it declares, and any that `simulate` is given."""

from random import Random
from typing import Any

import pytest

from catchment import Overlay, Subscription, simulate
from catchment.broker.advice import Advice, At, Proceed
from catchment.broker.broker import Settings
from catchment.model.errors import ConfigurationError
from catchment.simulation.checking import Bounds, check_answers, check_conduct
from catchment.simulation.options import Options
from catchment.simulation.overlays import overlay_of
from catchment.simulation.stories import SCHEMAS
from catchment.simulation.world import World
from catchment.workloads import generate_traffic
from tests.broker.test_subscriber_count import COUNT


class Board(Advice):
    """Notes that clients put up at one broker, and all brokers have."""

    name = "board"

    def on_request(self, at: At, client: str, value: Any) -> None:
        self._spread(at, value, "")
        at.subscribe(f"n{value}", f"SELECT * FROM stock WHERE price = {value}")
        at.inform(client, value)

    def on_message(self, at: At, sender: str, value: Any) -> None:
        self._spread(at, value, sender)

    def _spread(self, at: At, note: int, sender: str) -> None:
        at.state.setdefault("notes", []).append(note)
        for neighbour in at.neighbours:
            if neighbour != sender:
                at.tell(neighbour, note, confirmed=True)


@pytest.mark.parametrize("seed", range(30))
def test_what_is_acknowledged_is_known_everywhere(seed: int) -> None:
    random, bounds = Random(seed), Bounds()
    options = Options(
        duplicates=random.choice([0.0, 0.2]),
        drops=random.choice([0.0, 0.3]),
        kills=random.choice([0.0, 0.05]),
        step_max=random.choice([1, 5]),
        step_delay_us_max=random.choice([0, 3_000]),
        snapshot_every=random.choice([1, 7]),
    )
    overlay = overlay_of("random tree", 6, random)
    settings = Settings(schemas=SCHEMAS, forwarding="flooded")
    world = World(overlay, settings, seed=seed, options=options, catalogue={"board": Board}, watch=bounds)
    clients = [world.client(broker, "c") for broker in overlay.brokers[:2]]
    # Some brokers get it while messages for it are waiting there already.
    for place, broker in enumerate(overlay.brokers):
        at_us = 0 if place < 2 else random.randint(0, 200_000)
        world.timeline.at(at_us, lambda broker=broker: world.attach_advice(broker, "board"))  # type: ignore[misc]
    for note in range(20):
        world.ask_advice(random.choice(clients), "board", note)
        if random.random() < 0.2:
            world.crash(random.choice(overlay.brokers), random.randint(1, 20_000))
        world.run(world.timeline.now_us + random.randint(1, 20_000))
        _check(world)
    world.run()
    _check(world)
    for client in clients:
        asked = [one.message for one in client.requests]
        assert [value for _, value in client.informed] == [int(message.body[0]) for message in asked]
    for node in world.nodes.values():
        assert sorted(node.broker.weaver.states["board"]["notes"]) == list(range(20))
    assert [*check_answers(world), *check_conduct(world), *bounds.check()] == []


def _check(world: World) -> None:
    """Every broker that is up has the notes whose requests are answered, and the subscription that each led to."""
    for client in world.clients.values():
        for request in client.requests:
            if request.answered_us is None:
                continue
            assert request.refused is None
            note = request.message.body[0]
            for node in world.nodes.values():
                if node.is_down:
                    continue
                assert note in node.broker.weaver.states["board"]["notes"], f"{node.name} does not have {note}"
                filters = node.broker.routes("stock").demands_beside("")
                assert any(one.matches({"price": note}) for one in filters), f"{node.name} has no filter of {note}"


# -- what `simulate` is given -----------------------------------------------------------------------------------------

LINE = Overlay.from_links([("b1", "b2"), ("b2", "b3")])
SUBSCRIPTIONS = [
    Subscription("slow", "b3", sql="SELECT * FROM traffic WHERE speed < 50"),
    Subscription("all", "b3", sql="SELECT count(*) FROM traffic GROUP BY window(ts, '2 seconds', '2 seconds')"),
]


class Beacon(Advice):
    """Tells a neighbour with every advertisement, as what it says itself."""

    name = "beacon"

    def ad_send(self, at: At, proceed: Proceed, topic: str, neighbour: str) -> None:
        proceed()
        at.attach("xx")
        at.tell(neighbour, "hello", counts=("greetings", 3, 100))
        at.tell(neighbour, "plain")


def test_links_count_what_advice_sent_and_what_rode_along() -> None:
    events = generate_traffic(200, seed=1, duration_us=10_000_000, brokers=["b1"])
    plain = simulate(events, overlay=LINE, subscriptions=SUBSCRIPTIONS)
    found = simulate(events, overlay=LINE, subscriptions=SUBSCRIPTIONS, advice=[Beacon, COUNT])
    rows = {
        (row["source"], row["target"], row["advice"], row["kind"]): (row["messages"], row["bytes"])
        for row in found.advice_traffic.to_pylist()
    }
    assert {key[:2]: counts for key, counts in rows.items() if key[2:] == ("beacon", "greetings")} == {
        ("b1", "b2"): (3, 100),
        ("b2", "b3"): (3, 100),
    }
    assert rows["b1", "b2", "beacon", "along"] == (1, 3)
    assert rows["b1", "b2", "beacon", "control"][0] == 1
    # The count of subscriptions rides along when they begin and when they end.
    assert rows["b3", "b2", "subscriber count", "along"] == (2, 2)
    assert rows["b1", "b2", "aggregation", "partials"] == next(
        (row["messages"], row["bytes"])
        for row in found.traffic.to_pylist()
        if (row["source"], row["target"], row["kind"]) == ("b1", "b2", "partial")
    )
    control = [
        sum(row["messages"] for row in one.traffic.to_pylist() if (row["source"], row["kind"]) == ("b1", "control"))
        for one in (plain, found)
    ]
    assert control[1] - control[0] == 3 + 1
    assert found.deliveries == plain.deliveries
    assert found.notifications == plain.notifications


class Failing(Beacon):
    def on_subscribed(self, at: At, client: str, name: str, query: Any) -> None:
        raise KeyError(name)


@pytest.mark.parametrize(
    ("advice", "reason"),
    [
        (5, "advice is of type int; accepted is a list of functions"),
        ([Beacon()], "one of advice is <.*>; accepted are functions that make an advice"),
        ([dict], "what one of advice makes is of type dict; accepted is catchment.broker.advice.Advice"),
        ([Beacon, Beacon], "an advice is named 'beacon'; accepted is a name that no other one has"),
        ([Failing], "advice 'beacon' failed in on_subscribed at b3: KeyError: 'slow'"),
    ],
)
def test_advice_that_is_none_or_fails_is_refused_by_name(advice: Any, reason: str) -> None:
    with pytest.raises(ConfigurationError, match=reason):
        simulate(generate_traffic(5, seed=1, brokers=["b1"]), overlay=LINE, subscriptions=SUBSCRIPTIONS, advice=advice)
