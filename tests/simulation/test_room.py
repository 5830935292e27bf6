"""Room: neighbours that overload each other refuse publications, lose nothing that they accepted, and drain."""

import pyarrow as pa
import pytest

from catchment import Overlay
from catchment.broker.broker import Settings
from catchment.broker.hosting import Limits
from catchment.simulation.checking import Bounds, check_answers, check_conduct, check_deliveries
from catchment.simulation.node import Node
from catchment.simulation.options import Options
from catchment.simulation.stories import SCHEMAS
from catchment.simulation.world import World

LIMIT_BYTES = 4_000
SLACK_BYTES = 8_000
"""Events that are accepted, here or upstream, before a broker hears that there is no room for them."""
TURNS = 150
PAIR = Overlay.from_links([("b1", "b2")])
CHAIN = Overlay.from_links([("b1", "b2"), ("b2", "b3"), ("b3", "b4")])


class Fullest:
    """The most bytes that waited for a neighbour, by link."""

    def __init__(self) -> None:
        self.bytes: dict[tuple[str, str], int] = {}

    def __call__(self, world: World, node: Node) -> None:
        for name in node.broker.neighbours:
            size = node.outboxes[name].size_bytes if name in node.outboxes else 0
            self.bytes[node.name, name] = max(size, self.bytes.get((node.name, name), 0))


def publish(world: World, broker: str, number: int) -> None:
    ids = [f"{broker}-{number}-{row}" for row in range(5)]
    events = pa.RecordBatch.from_pydict({"event_id": ids, "price": [number] * 5})
    world.publish(world.clients[f"{broker}/p"], "stock", events)


def overloaded(overlay: Overlay, seed: int, **faults: float) -> tuple[World, Fullest]:
    """Clients at all brokers publish far more than links carry, and want all that the others publish."""
    fullest = Fullest()
    options = Options(
        delay_us_min=10_000, delay_us_max=20_000, in_flight_max=1, limits=Limits(link_bytes_max=LIMIT_BYTES),
        step_max=1 + seed % 3, snapshot_every=5, **faults,
    )  # fmt: skip
    world = World(overlay, Settings(schemas=SCHEMAS), seed=seed, options=options, watch=fullest)
    for broker in overlay.brokers:
        world.advertise(world.client(broker, "p"), "stock")
        world.subscribe(world.client(broker, "s"), "all", "SELECT * FROM stock")
    world.run()
    for number in range(TURNS):
        for broker in overlay.brokers:
            publish(world, broker, number)
        world.run(world.timeline.now_us + 4_000)
    return world, fullest


@pytest.mark.parametrize("overlay", [PAIR, CHAIN], ids=["pair", "chain"])
@pytest.mark.parametrize("faults", [{}, {"duplicates": 0.2, "drops": 0.2, "kills": 0.01}], ids=["calm", "faulty"])
def test_neighbours_that_overload_each_other_drain(overlay: Overlay, faults: dict[str, float]) -> None:
    for seed in range(3):
        world, fullest = overloaded(overlay, seed, **faults)
        for broker in overlay.brokers:
            refused = [one.refused for one in world.clients[f"{broker}/p"].requests if one.refused]
            assert refused, f"seed {seed}: {broker} was never overloaded"
            assert set(refused) == {f"there is no room for more events beyond broker {broker!r}; try again later"}
        assert LIMIT_BYTES < max(fullest.bytes.values()) < LIMIT_BYTES + SLACK_BYTES, f"seed {seed}"
        world.run()
        for node in world.nodes.values():
            assert node.broker.has_room, f"seed {seed}: {node.name}"
            assert not any(outbox.frames for outbox in node.outboxes.values()), f"seed {seed}: {node.name}"
        for broker in overlay.brokers:
            publish(world, broker, TURNS)
        world.run()
        assert all(world.clients[f"{broker}/p"].requests[-1].refused is None for broker in overlay.brokers)
        assert [*check_answers(world), *check_deliveries(world), *check_conduct(world)] == [], f"seed {seed}"


@pytest.mark.parametrize("is_away", [False, True], ids=["slow", "parked"])
def test_a_durable_client_loses_nothing_that_another_would_be_dropped_for(is_away: bool) -> None:
    for seed in range(2):
        bounds = Bounds()
        options = Options(
            in_flight_max=1, limits=Limits(client_bytes_max=LIMIT_BYTES), step_max=3, snapshot_every=5, kills=0.01,
            duplicates=0.2,
        )  # fmt: skip
        world = World(PAIR, Settings(schemas=SCHEMAS), seed=seed, options=options, watch=bounds)
        plain, durable = world.client("b2", "plain"), world.client("b2", "durable", durable=True)
        world.advertise(world.client("b1", "p"), "stock")
        for client in (plain, durable):
            world.subscribe(client, "all", "SELECT * FROM stock")
        world.run()
        for client in (plain, durable):
            if is_away:
                world.park(client)
            else:
                world.starve(client, 10_000_000)
        for number in range(60):
            publish(world, "b1", number)
            world.run(world.timeline.now_us + 4_000)
        waiting = world.nodes["b2"].outboxes["b2/durable"].size_bytes
        assert waiting > LIMIT_BYTES, f"seed {seed}"
        if is_away:
            for client in (durable, plain):
                world.resume(client)
        world.run()
        assert (plain.is_dropped, durable.is_dropped) == (True, False), f"seed {seed}"
        assert len(durable.wishes["all"].received) == 300, f"seed {seed}"
        found = [*check_answers(world), *check_deliveries(world), *check_conduct(world), *bounds.check()]
        assert found == [], f"seed {seed}"
