"""A shared store that is slow, asked twice and out of reach: what advice keeps there is right all the same."""

from random import Random
from typing import Any

import msgspec
import pytest

from catchment.broker.advice import Advice, At, Proceed, Reply
from catchment.broker.broker import Settings
from catchment.broker.store import KEYS_MAX, DeleteKey, ListKeys, ReadKey, StoreReply, WriteKey
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

    def on_reply(self, at: At, reply: Reply) -> None:
        known = reply.value or {}
        if known.get(at.broker) != at.state["count"]:
            at.write(reply.key, {**known, at.broker: at.state["count"]}, reply.version)


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
    reply = world.store.apply(ReadKey(0, KEY))
    assert msgspec.msgpack.decode(reply.value or b"") == expected
    assert list(check_conduct(world)) == []


def test_a_write_over_another_version_is_not_written() -> None:
    store = Store()
    assert store.apply(WriteKey(1, "k", b"a", 0)) == StoreReply(1, b"a", 1, written=True)
    assert store.apply(WriteKey(2, "k", b"b", 0)) == StoreReply(2, b"a", 1)
    assert store.apply(WriteKey(3, "k", b"b", 1)) == StoreReply(3, b"b", 2, written=True)
    assert store.apply(ReadKey(4, "other")) == StoreReply(4, None, 0)


def test_a_deleted_key_never_has_an_old_version_again() -> None:
    store = Store()
    store.apply(WriteKey(1, "k", b"a", 0))
    assert store.apply(DeleteKey(2, "k", 7)) == StoreReply(2, b"a", 1)
    assert store.apply(DeleteKey(3, "k", 1)) == StoreReply(3, None, 0, written=True)
    assert store.apply(DeleteKey(4, "k", 1)) == StoreReply(4, None, 0)
    assert store.apply(DeleteKey(5, "k", 0)) == StoreReply(5, None, 0)
    assert store.apply(WriteKey(6, "k", b"b", 0)) == StoreReply(6, b"b", 3, written=True)


def test_keys_are_listed_by_prefix_in_their_order_and_in_pages() -> None:
    store = Store()
    for number in range(KEYS_MAX + 2):
        store.apply(WriteKey(number, f"k/{number:05}", b"", 0))
    store.apply(WriteKey(0, "l", b"", 0))
    first = store.apply(ListKeys(1, "k/"))
    assert len(first.keys) == KEYS_MAX
    assert first.keys[0] == ("k/00000", 1)
    rest = store.apply(ListKeys(2, "k/", first.keys[-1][0]))
    assert rest.keys == ((f"k/{KEYS_MAX:05}", KEYS_MAX + 1), (f"k/{KEYS_MAX + 1:05}", KEYS_MAX + 2))
    assert str(ListKeys(2, "k/", "k/3")) == "list k/* after k/3"


class Roll(Advice):
    """Every client has a key while it is there; `census` counts them from the store alone."""

    name = "roll"

    def on_client_attached(self, at: At, client: str) -> None:
        at.state[client] = at.write(f"clients/{client}", 1, 0)

    def on_client_detached(self, at: At, client: str) -> None:
        at.state[client] = at.read(f"clients/{client}")

    def on_request(self, at: At, client: str, value: Any) -> None:
        at.state["census"] = [at.list_keys("clients/"), client]

    def on_reply(self, at: At, reply: Reply) -> None:
        client = reply.key.removeprefix("clients/")
        if at.state.get("census", [0])[0] == reply.request:
            at.inform(at.state["census"][1], [key for key, _ in reply.keys])
        elif client not in at.clients and reply.version:
            at.state[client] = at.delete(reply.key, reply.version)


@pytest.mark.parametrize("seed", range(10))
def test_an_advice_deletes_and_lists_and_knows_which_request_was_answered(seed: int) -> None:
    options = Options(duplicates=0.2, drops=0.3, snapshot_every=3)
    overlay = overlay_of("chain", 3, Random(seed))
    world = World(overlay, Settings(schemas=SCHEMAS), seed=seed, options=options, make_advice=lambda: [Roll()])
    clients = [world.client(broker, name) for broker in overlay.brokers for name in ("c", "d")]
    world.run()
    for client in clients[:3]:
        world.detach(client)
        world.crash(client.broker, 5_000)
    world.run()
    world.ask_advice(clients[-1], "roll", "census")
    world.run()
    assert clients[-1].informed == [("roll", sorted(f"clients/{one.name}" for one in clients[3:]))]
    assert list(check_conduct(world)) == []
