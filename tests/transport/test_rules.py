"""Rules of the transport that no other file has a test for: takeover, room, repetition, purging."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

import catchment
from catchment.broker import messages as m
from catchment.broker.hosting import item_to_bytes
from catchment.broker.inputs import Room, Woken
from catchment.transport.client import RequestRefusedError
from catchment.transport.jetstream import JetStream
from catchment.transport.leases import Lease, LeaseLostError
from catchment.transport.names import client_subject, control_subject, input_stream, room_subject
from catchment.transport.running import LiveBroker, LiveOptions
from catchment.transport.snapshots import SnapshotStore
from catchment.transport.wire import open_connection
from tests.transport.conftest import Live, eventually, run

ALL = "SELECT * FROM traffic"


@asynccontextmanager
async def streams_of(overlay: Live) -> AsyncIterator[JetStream]:
    connection = await open_connection(overlay.url, "test")
    try:
        yield JetStream(connection)
    finally:
        await connection.close()


def broker_here(overlay: Live, **options: Any) -> LiveBroker:
    """The only broker of an overlay, to run within the test."""
    found = overlay.description
    return LiveBroker("b1", (), found.settings, found.advice, overlay.url, options=LiveOptions(**options))


def test_a_process_that_is_deaf_to_its_successor_stops_at_its_next_store(
    live: Callable[..., Live], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Lease, "_heard", lambda *_: None)

    async def test() -> None:
        overlay = live()
        async with streams_of(overlay) as streams:
            await overlay.description.store(streams)
        first, second = broker_here(overlay), broker_here(overlay)
        running = asyncio.create_task(first.run())
        await first.serving.wait()
        async with catchment.connect(overlay.url) as client:
            subscription = await client.subscribe(ALL)
            await client.publish("traffic", {"speed": 1.0})
            after = asyncio.create_task(second.run())
            await second.serving.wait()
            assert not running.done()
            # Both read it; one can store what comes of it.
            await client.publish("traffic", {"speed": 2.0})
            with pytest.raises(LeaseLostError, match="broker 'b1' runs as process"):
                await running
            await client.publish("traffic", {"speed": 3.0})
            assert [(await anext(subscription))["speed"] for _ in range(3)] == [1.0, 2.0, 3.0]
        second.stop()
        await after

    run(test())


def test_room_travels_upstream_and_only_publications_of_clients_are_refused(live: Callable[..., Live]) -> None:
    async def test() -> None:
        overlay = live(("b1", "b2"), ("b2", "b3"))
        await overlay.start()
        async with (
            streams_of(overlay) as streams,
            catchment.connect(overlay.url, broker="b1") as near,
            catchment.connect(overlay.url, broker="b3") as far,
        ):
            here = await near.subscribe(ALL)
            for client in (near, far):
                await client.advertise("traffic")

            reasons = set[str]()

            async def is_taken() -> bool:
                try:
                    return (await near.publish("traffic", {"speed": 1.0})).events == 1
                except RequestRefusedError as error:
                    reasons.add(str(error))
                    return False

            async def is_refused() -> bool:
                return not await is_taken()

            # As the process of b3 says it.
            await streams.store(room_subject("b2", "b3"), item_to_bytes(Room("b3", is_full=True)))
            await eventually(is_refused)
            # All else goes on: subscriptions, and the frames of neighbours.
            there = await near.subscribe("SELECT * FROM traffic WHERE speed = 7")
            await far.publish("traffic", {"speed": 7.0})
            assert (await anext(there))["speed"] == 7.0
            await streams.store(room_subject("b2", "b3"), item_to_bytes(Room("b3", is_full=False)))
            await eventually(is_taken)
            assert reasons == {"there is no room for more events beyond broker 'b1'; try again later"}
            await near.unsubscribe(here)

    run(test())


def test_a_frame_that_comes_again_or_from_an_earlier_life_counts_once(live: Callable[..., Live]) -> None:
    async def test() -> None:
        overlay = live()
        await overlay.start()
        async with streams_of(overlay) as streams, catchment.connect(overlay.url, name="ann") as client:
            subscription = await client.subscribe(ALL)
            await client.advertise("traffic")
            frames = list[bytes]()
            ask = client._session.ask

            def noted(kind: type, *fields: Any) -> tuple[int, list[bytes]]:
                number, made = ask(kind, *fields)
                frames.extend(made if kind is m.PublishEvents else [])
                return number, made

            client._session.ask = noted  # type: ignore[method-assign]
            await client.publish("traffic", {"speed": 1.0})
            await client.publish("traffic", {"speed": 2.0})
            for data in (frames[0], frames[1], frames[0]):
                await streams.store(client_subject("b1", "anyone/ann"), data)
            # The next life numbers its frames from 1 again; those of this one are over.
            await client.publish("traffic", {"speed": 3.0})
            assert [(await anext(subscription))["speed"] for _ in range(3)] == [1.0, 2.0, 3.0]
            await client.close()
            async with catchment.connect(overlay.url, name="ann") as again:
                subscription = await again.subscribe(ALL)
                for data in frames:
                    await streams.store(client_subject("b1", "anyone/ann"), data)
                await again.publish("traffic", {"speed": 4.0})
                assert (await anext(subscription))["speed"] == 4.0

    run(test())


def test_inputs_are_purged_only_below_a_snapshot_that_is_whole(
    live: Callable[..., Live], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        overlay = live()
        async with streams_of(overlay) as streams:
            await overlay.description.store(streams)
            broker = broker_here(overlay, snapshot_every_s=0.0)
            running = asyncio.create_task(broker.run())
            await broker.serving.wait()
            store_pieces, may_store, frozen = SnapshotStore.store_pieces, asyncio.Event(), list[int]()

            async def store_later(store: SnapshotStore) -> None:
                frozen.append(store.writing or 0)
                await may_store.wait()
                await store_pieces(store)

            monkeypatch.setattr(SnapshotStore, "store_pieces", store_later)
            stream = input_stream("b1")
            while not frozen:
                await streams.store(control_subject("b1"), item_to_bytes(Woken()))
            assert await streams.at(stream, frozen[0]) is not None
            may_store.set()

            async def is_purged() -> bool:
                await streams.store(control_subject("b1"), item_to_bytes(Woken()))
                return await streams.at(stream, frozen[0]) is None

            await eventually(is_purged)
            broker.stop()
            await running

    run(test())
