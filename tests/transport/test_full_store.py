"""A server whose store is full: whoever publishes waits, nothing is dropped, and all goes on once there is room."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import catchment
from catchment.broker.frames import FrameWriter
from catchment.broker.inputs import Send
from catchment.broker.messages import Acknowledged
from catchment.transport.jetstream import FullError, JetStream
from catchment.transport.outlets import Delivery
from catchment.transport.server import Server
from catchment.transport.wire import open_connection
from tests.transport.conftest import Live, eventually, run


class Ballast:
    """Somebody else's stream, that takes all that is left of the store."""

    def __init__(self, streams: JetStream) -> None:
        self._streams = streams

    async def fill(self) -> None:
        await self._streams.create("ballast", ["ballast"])
        for size in (500_000, 5_000, 1):
            try:
                while True:
                    await self._streams.store("ballast", bytes(size))
            except FullError:
                continue

    async def drop(self) -> None:
        await self._streams.delete("ballast")


@asynccontextmanager
async def ballast_at(url: str) -> AsyncIterator[tuple[JetStream, Ballast]]:
    connection = await open_connection(url, "ballast")
    try:
        yield JetStream(connection), Ballast(JetStream(connection))
    finally:
        await connection.close()


def test_publishers_wait_while_the_store_is_full_and_nothing_is_dropped(small: Server, tmp_path: Path) -> None:
    overlay = Live(small, tmp_path, [("b1", "b2")], options={"snapshot_every_s": 0.2, "recorded_every": 4})

    async def test() -> None:
        await overlay.start()
        async with (
            ballast_at(small.url) as (_, ballast),
            catchment.connect(overlay.url, broker="b1") as publisher,
            catchment.connect(overlay.url, broker="b2") as subscriber,
        ):
            subscription = await subscriber.subscribe("SELECT * FROM traffic")
            await publisher.advertise("traffic")
            rows: list[dict[str, Any]] = [{"speed": 1.0, "highway": "x" * 200}] * 50
            publishing = [asyncio.create_task(publisher.publish("traffic", rows)) for _ in range(20)]
            await ballast.fill()

            async def is_blocked() -> bool:
                if not publisher._sending._is_blocked:
                    publishing.append(asyncio.create_task(publisher.publish("traffic", rows)))
                    # What subscribers have read makes room.
                    await ballast.fill()
                return publisher._sending._is_blocked

            await eventually(is_blocked)
            assert not all(one.done() for one in publishing)
            await ballast.drop()
            receipts = await asyncio.gather(*publishing)
            assert sum(one.events for one in receipts) == 50 * len(publishing)
            async with asyncio.timeout(60):
                for _ in range(50 * len(publishing)):
                    await anext(subscription)
            assert "drops client" not in overlay.said
            assert all(broker.is_alive for broker in overlay.brokers.values()), overlay.said

    try:
        run(test())
    finally:
        overlay.stop()


def test_what_a_full_store_does_not_take_for_a_client_is_stored_later_in_order(small: Server) -> None:
    async def test() -> None:
        overrun, failures = list[Any](), list[BaseException]()
        async with ballast_at(small.url) as (streams, ballast):
            delivery = Delivery(streams, "b1", "c", lambda: (), failures.append, lambda *one: overrun.append(one))
            await delivery.create(1, 1, 1_000_000)
            writer = FrameWriter()
            frames = [
                writer.frames("b1", [Acknowledged(number)], incarnation=1, epoch=1, after=number - 1, covers=number)[0]
                for number in range(1, 8)
            ]
            delivery.put(Send("c", tuple(frames[:1]), 1, 1), [1])
            await delivery.flushed(1)
            await ballast.fill()
            delivery.put(Send("c", tuple(frames[1:4]), 2, 2), [2])
            delivery.put(Send("c", tuple(frames[4:6]), 5, 3), [3])

            async def is_blocked() -> bool:
                return delivery._is_blocked

            await eventually(is_blocked)
            delivery.put(Send("c", tuple(frames[6:]), 7, 4), [4])
            await ballast.drop()
            await delivery.flushed(4)
            stored = [await streams.at(delivery.stream, position) for position in range(2, 9)]
            assert [one.data for one in stored if one is not None] == frames
            assert (overrun, failures) == ([], [])

    run(test())


def test_many_clients_reserve_nothing_of_the_store(small: Server, tmp_path: Path) -> None:
    overlay = Live(small, tmp_path, [])

    async def test() -> None:
        await overlay.start()
        clients = [await catchment.connect(overlay.url, name=f"c{number}", durable=True) for number in range(5)]
        for client in clients:
            await client.close()

    try:
        run(test())
    finally:
        overlay.stop()
