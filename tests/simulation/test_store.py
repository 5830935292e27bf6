"""A shared store that is slow, asked twice and out of reach: what advice keeps there is right all the same."""

from random import Random
from typing import Any

import msgspec
import pytest

from catchment.broker.advice import Advice, At, Proceed
from catchment.broker.broker import Settings
from catchment.broker.store import StoreReply, StoreRequest
from catchment.model.filter import Filter
from catchment.simulation.checking import check_conduct
from catchment.simulation.options import Options
from catchment.simulation.overlays import overlay_of
from catchment.simulation.store import STORE, Store
from catchment.simulation.stories import SCHEMAS
from catchment.simulation.world import World

KEY = "subscriptions"


class Register(Advice):
    """Every broker keeps the number of its clients' subscriptions in one shared value."""

    name = "register"

    def sub_add(self, at: At, proceed: Proceed, topic: str, condition: Filter, peer: str) -> Any:
        if peer not in at.neighbours:
            at.state["count"] = at.state.get("count", 0) + 1
            at.read(KEY)
        return proceed()

    def on_reply(self, at: At, key: str, value: Any, version: int, written: bool) -> None:
        known = value or {}
        if known.get(at.broker) != at.state["count"]:
            at.write(key, {**known, at.broker: at.state["count"]}, version)


@pytest.mark.parametrize("seed", range(30))
def test_everyone_writes_the_same_value_and_nothing_is_lost(seed: int) -> None:
    random = Random(seed)
    options = Options(duplicates=0.2, drops=0.3, snapshot_every=random.choice([1, 7]))
    overlay = overlay_of("random tree", 5, random)
    world = World(overlay, Settings(schemas=SCHEMAS), seed=seed, options=options, make_advice=lambda: [Register()])
    expected: dict[str, int] = {}
    for number in range(20):
        broker = random.choice(overlay.brokers)
        client = world.clients.get(f"{broker}/c") or world.client(broker, "c")
        world.subscribe(client, f"s{number}", f"SELECT * FROM stock WHERE price > {number}")
        expected[broker] = expected.get(broker, 0) + 1
        if random.random() < 0.2:
            world.crash(random.choice(overlay.brokers), random.randint(1, 20_000))
        if random.random() < 0.2:
            world.cut(random.choice(overlay.brokers), STORE, random.randint(1, 20_000))
        world.run(world.timeline.now_us + random.randint(1, 5_000))
    world.run()
    reply = world.store.apply(StoreRequest(0, KEY))
    assert msgspec.msgpack.decode(reply.value or b"") == expected
    assert list(check_conduct(world)) == []


def test_a_write_over_another_version_is_not_written() -> None:
    store = Store()
    assert store.apply(StoreRequest(1, "k", b"a")) == StoreReply(1, b"a", 1, written=True)
    assert store.apply(StoreRequest(2, "k", b"b")) == StoreReply(2, b"a", 1)
    assert store.apply(StoreRequest(3, "k", b"b", 1)) == StoreReply(3, b"b", 2, written=True)
    assert store.apply(StoreRequest(4, "other")) == StoreReply(4, None, 0)
