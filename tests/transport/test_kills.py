"""`kill -9` of brokers, clients and the server: nothing acknowledged is lost, nothing comes twice, values are right."""

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from catchment import Subscription, oracle
from catchment.broker.client import WindowValue
from catchment.model.errors import TransportError
from catchment.model.results import NOTIFICATION_SCHEMA, OVERFLOW_SCHEMA
from catchment.oracle.answer import differences
from catchment.transport.client import Client
from tests.transport.conftest import SCHEMAS, Live, run, vanish

SQL = {
    "all": "SELECT * FROM traffic WHERE speed > 20",
    "slow": "SELECT avg(speed), count(*) FROM traffic WHERE speed < 80 GROUP BY window(ts, '20 seconds', '5 seconds')",
    "by highway": "SELECT highway, sum(vehicles), max(speed) FROM traffic GROUP BY window(ts, '10 seconds'), highway",
}
KILLS_MAX = 4
CLIENT_LIVES = 10
"""Batches that a publisher sends before it is killed."""
CLIENTS = {"client_lease_us": 10_000_000}
"""Long enough for a machine that is busy, on which a test gives signs of life late."""
CHAIN = (("b1", "b2"), ("b2", "b3"))
OFTEN = {"snapshot_every_s": 0.2, "recorded_every": 4, "step_inputs_max": 7}
POINTS = {
    "read": 9, "stepped": 9, "sending": 9, "sent": 9, "stored": 9, "recorded": 30,
    "snapshot begun": 2, "snapshot whole": 2, "purged": 2,
}  # fmt: skip
"""Where a broker is killed, and at most at which time that it comes there."""
SOME_POINTS = {"stored", "snapshot whole"}
"""Those that every run has."""


def events_of(random: Random, broker: str, number: int) -> list[dict[str, Any]]:
    """Events of one batch, whose times rise from batch to batch."""
    return [
        {
            "event_id": f"{broker}-{number}-{place}",
            "ts": number * 1_000_000 + place,
            "speed": random.randint(0, 120) / 2 + 10,
            "highway": random.choice(["401", "407", None]),
            "vehicles": random.randint(0, 9),
        }
        for place in range(random.randint(1, 4))
    ]


async def collect(client: Client, found: dict[str, list[Any]]) -> list[asyncio.Task[None]]:
    async def read(name: str, sql: str) -> asyncio.Task[None]:
        subscription = await client.subscribe(sql, name=name)

        async def take() -> None:
            async for one in subscription:
                found[name].append(one)

        return asyncio.create_task(take())

    return [await read(name, sql) for name, sql in SQL.items()]


def wrong(events: list[tuple[str, dict[str, Any]]], found: dict[str, list[Any]]) -> list[str]:
    """How what came differs from what the oracle says."""
    table = pa.table(
        {
            "event_id": [one["event_id"] for _, one in events],
            "topic": ["traffic"] * len(events),
            "broker": [broker for broker, _ in events],
            "ts": pa.array([one["ts"] for _, one in events], pa.timestamp("us", tz="UTC")),
            "speed": pa.array([one["speed"] for _, one in events], pa.float64()),
            "highway": pa.array([one["highway"] for _, one in events], pa.string()),
            "vehicles": pa.array([one["vehicles"] for _, one in events], pa.int64()),
        }
    )
    expected = oracle(table, subscriptions=[Subscription(name, sql=sql) for name, sql in SQL.items()], schema=SCHEMAS)
    values: list[WindowValue] = found["slow"] + found["by highway"]
    rows = [
        {
            "subscription": one.subscription, "window_start": one.start_us, "window_end": one.end_us,
            "group": sorted(one.group.items()), "output": one.output, "value": one.value, "exact": one.exact,
            "publications": one.publications, "revision": one.revision,
        }
        for one in values
    ]  # fmt: skip
    ids = [one["event_id"] for one in found["all"]]
    deliveries = pa.table(
        {"subscription": pa.array(["all"] * len(ids), pa.string()), "event_id": pa.array(ids, pa.string())}
    )
    notifications = pa.Table.from_pylist(rows, NOTIFICATION_SCHEMA)
    keys = [(one.subscription, one.start_us, *sorted(one.group.items()), one.output) for one in values]
    twice = [f"twice: {key}" for key in set(keys) if keys.count(key) > 1]
    return twice + differences(expected, notifications, deliveries, OVERFLOW_SCHEMA.empty_table())


async def opened(live: Live, broker: str) -> Client:
    """A client of a broker, once the server is there."""
    while True:
        try:
            return await Client(live.url, broker=broker).open()
        except TransportError:
            await asyncio.sleep(0.1)


async def publish_all(live: Live, client: Client, broker: str, seed: int, count: int, sent: list[Any]) -> Client:
    """Publish, and be killed now and then with events under way; who follows publishes them again."""
    random = Random(f"{seed} {broker}")
    for number in range(count):
        rows = events_of(random, broker, number)
        if number % CLIENT_LIVES == CLIENT_LIVES - 1:
            successor = await opened(live, broker)
            await successor.advertise("traffic")
            unanswered = asyncio.create_task(client.publish("traffic", rows))
            await asyncio.sleep(0)
            await vanish(client)
            unanswered.cancel()
            client = successor
        receipt = await client.publish("traffic", rows)
        assert receipt.dropped == ()
        sent += [(broker, row) for row in rows]
    return client


async def everything(live: Live, seed: int, count: int, disturb: Callable[[], Any]) -> None:
    """Publish at both ends while something is done to the overlay; compare what came in the end."""
    await live.start()
    ends = sorted({min(live.brokers), max(live.brokers)})
    subscriber = await Client(live.url, broker=max(live.brokers)).open()
    found: dict[str, list[Any]] = {name: [] for name in SQL}
    readers = await collect(subscriber, found)
    publishers = {broker: await Client(live.url, broker=broker).open() for broker in ends}
    for publisher in publishers.values():
        await publisher.advertise("traffic")
    sent: list[Any] = []
    disturbing = asyncio.create_task(disturb())
    last = await asyncio.gather(
        *(publish_all(live, publisher, broker, seed, count, sent) for broker, publisher in publishers.items())
    )
    disturbing.cancel()
    await asyncio.gather(disturbing, return_exceptions=True)
    for broker in live.brokers.values():
        # Once more, and from now on undisturbed.
        broker.kill()
        broker.start()
    for publisher in last:
        await publisher.unadvertise("traffic")
    try:
        async with asyncio.timeout(120):
            while wrong(sent, found):
                await asyncio.sleep(0.2)
    except TimeoutError:
        pass
    assert wrong(sent, found) == [], f"seed {seed}\n{live.said}"
    for reader in readers:
        assert not reader.done()
        reader.cancel()
    for client in (*last, subscriber):
        await client.close()


@pytest.mark.parametrize(
    "point", [one if one in SOME_POINTS else pytest.param(one, marks=pytest.mark.long) for one in POINTS]
)
def test_one_broker_is_killed_at_each_point_of_its_work(live: Callable[..., Live], point: str) -> None:
    overlay = live(options=OFTEN, more=CLIENTS)
    broker = overlay.brokers["b1"]
    random = Random(point)

    async def kill_again_and_again() -> None:
        # Not for ever: on a busy machine, a broker that is killed at its first chance gets nowhere.
        while broker.kills < KILLS_MAX:
            await asyncio.sleep(0.02)
            if not broker.is_alive:
                broker.kills += 1
                broker.start(f"{point}:{random.randint(1, POINTS[point])}" if broker.kills < KILLS_MAX else None)

    async def disturb() -> None:
        broker.kill()
        await kill_again_and_again()

    run(everything(overlay, seed=len(point), count=25, disturb=disturb))
    assert broker.kills >= 3, overlay.said


@pytest.mark.long
@pytest.mark.parametrize("placement", ["late", "early", "adaptive", "cover"])
def test_brokers_of_a_chain_are_killed_at_random(live: Callable[..., Live], placement: str) -> None:
    overlay = live(*CHAIN, placement=placement, options=OFTEN, more=CLIENTS)
    random = Random(placement)

    async def disturb() -> None:
        for _ in range(30):
            await asyncio.sleep(random.uniform(0.05, 0.4))
            broker = overlay.brokers[random.choice(sorted(overlay.brokers))]
            broker.kill()
            broker.start()

    run(everything(overlay, seed=7, count=100, disturb=disturb))
    assert sum(one.kills for one in overlay.brokers.values()) >= 3, overlay.said


def test_the_server_is_killed_and_comes_back(live: Callable[..., Live]) -> None:
    overlay = live(*CHAIN, options=OFTEN, more=CLIENTS)
    kills = 0

    async def disturb() -> None:
        nonlocal kills
        while kills < 2:
            # The first time at once, before everything is published; later, brokers need some time to be back.
            await asyncio.sleep(0.3 * kills)
            overlay.server.kill()
            kills += 1
            await asyncio.to_thread(overlay.server.start)

    run(everything(overlay, seed=3, count=30, disturb=disturb))
    assert kills >= 1, overlay.said


SEVEN = (("b1", "b2"), ("b2", "b3"), ("b2", "b4"), ("b4", "b5"), ("b4", "b6"), ("b6", "b7"))


@pytest.mark.parametrize("placement", ["late", "early", "adaptive", "cover"])
def test_each_broker_of_seven_is_killed_while_clients_and_the_server_are(
    live: Callable[..., Live], placement: str
) -> None:
    overlay = live(*SEVEN, placement=placement, options=OFTEN, more=CLIENTS)

    async def disturb() -> None:
        for name in sorted(overlay.brokers):
            await asyncio.sleep(0.1)
            overlay.brokers[name].kill()
            overlay.brokers[name].start()
            if name == "b4":
                overlay.server.kill()
                await asyncio.to_thread(overlay.server.start)

    run(everything(overlay, seed=8, count=25, disturb=disturb))
    assert all(one.kills >= 1 for one in overlay.brokers.values())


@pytest.mark.long
@pytest.mark.parametrize("placement", ["late", "early", "adaptive", "cover"])
def test_fifty_kills_of_brokers_and_of_the_server_and_more_of_clients(
    live: Callable[..., Live], placement: str
) -> None:
    """Each broker of seven in turn, and now and then the server, while both ends publish."""
    overlay = live(*SEVEN, placement=placement, options=OFTEN, more=CLIENTS)
    random, kills = Random(placement), 0

    async def disturb() -> None:
        nonlocal kills
        while kills < 50:
            await asyncio.sleep(random.uniform(0.02, 0.2))
            if kills % 10 == 9:
                overlay.server.kill()
                await asyncio.to_thread(overlay.server.start)
            else:
                broker = overlay.brokers[f"b{kills % 7 + 1}"]
                broker.kill()
                broker.start()
            kills += 1

    run(everything(overlay, seed=11, count=400, disturb=disturb), within_s=600.0)
    assert kills >= 50, overlay.said
