"""Advice in simulations: under faults, what a client is told has happened has happened everywhere."""

from random import Random
from typing import Any

import pytest

from catchment.broker.advice import Advice, At
from catchment.broker.broker import Settings
from catchment.simulation.checking import Bounds, check_answers, check_conduct
from catchment.simulation.options import Options
from catchment.simulation.overlays import overlay_of
from catchment.simulation.stories import SCHEMAS
from catchment.simulation.world import World


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
                filters = node.broker.routes("stock").filters_beside("")
                assert any(one.matches({"price": note}) for one in filters), f"{node.name} has no filter of {note}"
