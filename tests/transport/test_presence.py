"""Clients that vanish without a word: the lease of each ends, and what it wanted and advertised with it."""

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

import catchment
from catchment.broker.broker import Broker
from catchment.broker.inputs import Attached, Detached, Input, Item, Parked, Resumed
from catchment.transport.client import ClientDroppedError
from catchment.transport.context import LifeContext, LiveOptions
from catchment.transport.figures import Counts
from catchment.transport.jetstream import JetStream
from catchment.transport.names import outbox_stream
from catchment.transport.notices import Notices
from catchment.transport.presence import Presence
from catchment.transport.reports import keep_silent
from catchment.transport.wire import open_connection
from tests.transport.conftest import SCHEMAS, Live, eventually, fall_silent, run, vanish
from tests.transport.processes import settings_of

ALL = "SELECT * FROM traffic"
LEASE_US = 600_000


async def is_gone(overlay: Live, broker: str, client: str) -> None:
    connection = await open_connection(overlay.url, "test")

    async def is_so() -> bool:
        return await JetStream(connection).state(outbox_stream(broker, client)) is None

    await eventually(is_so)
    await connection.close()


def test_what_a_client_that_vanished_wanted_and_advertised_ends_with_its_lease(live: Callable[..., Live]) -> None:
    async def test() -> None:
        overlay = live(("b1", "b2"), more={"client_lease_us": LEASE_US})
        await overlay.start()
        async with (
            catchment.connect(overlay.url, broker="b1") as publisher,
            catchment.connect(overlay.url, broker="b2", name="stays") as stays,
        ):
            values = await stays.subscribe("SELECT count(*) FROM traffic GROUP BY window(ts, '1 second')")
            vanishing = await catchment.connect(overlay.url, broker="b1", name="vanishing")
            await vanishing.subscribe(ALL)
            for client in (publisher, vanishing):
                await client.publish("traffic", {"speed": 1.0, "ts": 100})
            await publisher.publish("traffic", {"speed": 1.0, "ts": 5_000_000})
            await vanish(vanishing)
            # Its window waits for whoever may still publish.
            async with asyncio.timeout(60):
                assert (await anext(values)).value == 2.0
            await is_gone(overlay, "b1", "anyone/vanishing")
            assert (
                "misses a client: client anyone/vanishing, reason has said nothing for 0.6 seconds: it is gone"
                in overlay.said
            )
            assert "/stays'" not in overlay.said

    run(test())


def test_a_durable_client_that_vanished_is_collected_for_until_its_retention_is_over(live: Callable[..., Live]) -> None:
    async def test() -> None:
        overlay = live(more={"client_lease_us": LEASE_US, "client_retention_us": 4_000_000})
        await overlay.start()
        async with catchment.connect(overlay.url) as publisher:
            first = await catchment.connect(overlay.url, name="ann", durable=True)
            await first.subscribe(ALL, name="mine")
            await vanish(first)

            async def is_parked() -> bool:
                return (
                    "misses a client: client anyone/ann, reason has said nothing for 0.6 seconds: it is away"
                    in overlay.said
                )

            await eventually(is_parked)
            await publisher.publish("traffic", {"speed": 1.0})
            second = await catchment.connect(overlay.url, name="ann", durable=True)
            subscription = await second.subscribe(ALL, name="mine")
            async with asyncio.timeout(60):
                assert (await anext(subscription))["speed"] == 1.0
            await second.close()
            # A broker that comes back knows since when it is away.
            overlay.brokers["b1"].kill()
            overlay.brokers["b1"].start()
            await is_gone(overlay, "b1", "anyone/ann")
            assert (
                "misses a client: client anyone/ann, reason was away for longer than its retention, and has gone"
                in overlay.said
            )

    run(test())


def test_a_client_that_was_taken_for_gone_is_told_so(live: Callable[..., Live]) -> None:
    async def test() -> None:
        overlay = live(more={"client_lease_us": LEASE_US})
        await overlay.start()
        client = await catchment.connect(overlay.url, name="silent")
        subscription = await client.subscribe(ALL)
        fall_silent(client)
        async with asyncio.timeout(60):
            with pytest.raises(ClientDroppedError, match="broker 'b1' knows client 'anyone/silent' no more"):
                await anext(subscription)
            with pytest.raises(ClientDroppedError):
                await client.publish("traffic", {"speed": 1.0})
        await client.close()

    run(test())


def test_a_durable_client_that_is_heard_again_goes_on(live: Callable[..., Live]) -> None:
    async def test() -> None:
        overlay = live(more={"client_lease_us": LEASE_US})
        await overlay.start()
        client = await catchment.connect(overlay.url, name="ann", durable=True)
        subscription = await client.subscribe(ALL)
        fall_silent(client)

        async def is_said(text: str) -> None:
            async def is_so() -> bool:
                return text in overlay.said

            await eventually(is_so)

        await is_said("misses a client: client anyone/ann, reason has said nothing for 0.6 seconds: it is away")
        client._beating = asyncio.create_task(client._say_alive())
        await is_said("hears a client again: client anyone/ann")
        await client.publish("traffic", {"speed": 1.0})
        assert (await anext(subscription))["speed"] == 1.0
        await client.close()

    run(test())


class Clock:
    """A process's clock and the server's, set by the test; and what is noted."""

    def __init__(self) -> None:
        self.now_s, self.noted = 0.0, list[Item]()
        self.broker = Broker("b1", [], settings_of(SCHEMAS))
        options = LiveOptions(client_lease_us=10_000_000, client_retention_us=100_000_000)
        context = LifeContext(
            "b1", (), options, cast(Any, None), keep_silent, lambda point: None, cast(Any, None), Counts("b1", ())
        )
        self.presence = Presence(context, cast(Notices, self), lambda: int(self.now_s * 1e6), lambda: self.now_s)
        self._position = 0

    def note(self, item: Item) -> None:
        self.noted.append(item)

    def hand(self, item: Item) -> None:
        self._position += 1
        self.broker.step([Input(item, int(self.now_s * 1e6), self._position)])

    def pass_time(self, until_s: float, *alive: tuple[str, int]) -> list[Item]:
        """Look every second, while some clients give signs of life; what is noted."""
        while self.now_s < until_s:
            self.now_s += 1
            for client, incarnation in alive:
                self.presence.hear(self.broker, client, incarnation)
            self.presence.look(self.broker)
        noted, self.noted = self.noted, []
        for one in noted:
            self.hand(one)
        return noted


def test_the_lease_of_a_silent_client_ends_and_no_other() -> None:
    clock = Clock()
    for item in (Attached("ann", 7), Attached("bob", 8), Attached("cis", 9, durable=True)):
        clock.hand(item)
    assert clock.pass_time(10.0, ("ann", 7)) == []
    assert clock.pass_time(12.0, ("ann", 7)) == [Detached("bob", 8), Parked("cis", 9)]
    # Of another life, and of nobody.
    assert clock.pass_time(24.0, ("ann", 6), ("bob", 8)) == [Detached("ann", 7)]
    assert clock.pass_time(90.0) == []
    assert clock.pass_time(120.0) == [Detached("cis", 9)]


def test_a_client_that_came_again_has_a_lease_of_its_own() -> None:
    clock = Clock()
    clock.hand(Attached("ann", 1))
    clock.pass_time(8.0)
    clock.hand(Attached("ann", 2))
    assert clock.pass_time(15.0) == []
    assert clock.pass_time(20.0) == [Detached("ann", 2)]


def test_a_process_that_was_stopped_gives_everybody_a_new_lease() -> None:
    clock = Clock()
    clock.hand(Attached("ann", 1))
    clock.pass_time(5.0, ("ann", 1))
    clock.now_s = 100.0
    assert clock.pass_time(110.0) == []
    assert clock.pass_time(113.0) == [Detached("ann", 1)]


def test_a_parked_client_that_is_heard_is_resumed_once() -> None:
    clock = Clock()
    clock.hand(Attached("ann", 1, "owner", durable=True))
    assert clock.pass_time(12.0) == [Parked("ann", 1)]
    for _ in range(2):
        clock.presence.hear(clock.broker, "ann", 1)
    assert clock.noted == [Resumed("ann", 1, "owner")]
    assert clock.pass_time(13.0) == [Resumed("ann", 1, "owner")]
    assert not clock.broker.peers["ann"].is_parked
    assert clock.pass_time(30.0) == [Parked("ann", 1)]
