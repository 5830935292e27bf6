"""Clients of live brokers: in any form, gone and back, too slow; each event once."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

import catchment
from catchment import CatchmentError
from catchment.broker.limits import ClientLimits
from catchment.transport import arriving, asking
from catchment.transport.arriving import Arrivals
from catchment.transport.client import Client, ClientDroppedError, RequestRefusedError
from catchment.transport.jetstream import JetStream
from catchment.transport.names import outbox_stream
from catchment.transport.wire import Message
from tests.transport.conftest import Live, run

ALL = "SELECT * FROM traffic"


async def take(subscription: Any, count: int) -> list[Any]:
    async with asyncio.timeout(60):
        return [await anext(subscription) for _ in range(count)]


def speeds(events: list[Any]) -> list[float]:
    return [one["speed"] for one in events]


def test_events_in_any_form_arrive_in_order(live: Callable[..., Live]) -> None:
    async def test() -> None:
        overlay = live(("b1", "b2"))
        await overlay.start()
        async with (
            catchment.connect(overlay.url, broker="b1") as publisher,
            catchment.connect(overlay.url, broker="b2") as subscriber,
        ):
            subscription = await subscriber.subscribe(ALL)
            forms: list[Any] = [
                {"speed": 1, "ts": "2026-01-01 00:00:01"},
                [{"speed": 2.0, "ts": datetime(2026, 1, 1, 0, 0, 2, tzinfo=UTC)}, {"speed": 3.0}],
                pa.RecordBatch.from_pydict({"speed": [4.0]}),
                pa.table({"speed": [5.0, 6.0], "highway": ["401", None]}),
                pd.DataFrame({"speed": [7.0]}),
            ]
            assert [(await publisher.publish("traffic", one)).events for one in forms] == [1, 2, 1, 2, 1]
            stored = await publisher.publish("traffic", {"speed": 8.0}, wait="stored")
            assert not stored.is_acknowledged
            events = await take(subscription, 8)
            assert speeds(events) == [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]
            assert [one["ts"].second for one in events[:2]] == [1, 2]
            await subscriber.unsubscribe(subscription)
            with pytest.raises(StopAsyncIteration):
                await anext(subscription)

    run(test())


def test_single_events_are_gathered_and_answered_one_by_one(live: Callable[..., Live]) -> None:
    async def test() -> None:
        overlay = live()
        await overlay.start()
        async with catchment.connect(overlay.url) as client:
            subscription = await client.subscribe("SELECT count(*) FROM traffic GROUP BY window(ts, '1 second')")
            await client.advertise("traffic")
            await client.publish("traffic", {"speed": 1.0, "ts": 10_000_000})
            rows: list[Any] = [{"speed": float(number), "ts": 10_000_000 + number} for number in range(500)]
            rows[17] = {"speed": "fast"}
            rows[33] = {"sped": 1.0}
            rows[44] = {"speed": float("nan"), "ts": 10_000_044}
            rows[99]["ts"] = 99
            outcomes = await asyncio.gather(
                *(client.publish_soon("traffic", row) for row in rows), return_exceptions=True
            )
            refused = {place: str(one) for place, one in enumerate(outcomes) if isinstance(one, CatchmentError)}
            assert sorted(refused) == [17, 33, 44]
            assert "attribute 'speed' is 'fast'; accepted is float" in refused[17]
            assert "an event of 'traffic' has sped; accepted are" in refused[33]
            assert "speed is NaN or infinite" in refused[44]
            late = [place for place, one in enumerate(outcomes) if getattr(one, "dropped", ())]
            assert late == [99]
            await client.unadvertise("traffic")
            ((value),) = await take(subscription, 1)
            assert (value.value, value.publications) == (497.0, 497)

    run(test())


@pytest.mark.parametrize(("durability", "ahead"), [("process", 8), ("disk", 1)])
def test_single_events_are_gathered_while_frames_are_being_stored(
    live: Callable[..., Live], durability: str, ahead: int
) -> None:
    async def test() -> None:
        overlay = live(more={"durability": durability})
        await overlay.start()
        async with catchment.connect(overlay.url) as client:
            await client.advertise("traffic")
            sent, send = list[Any](), client._sending._send
            client._sending._send = sent.append  # type: ignore[method-assign]
            done = []
            for number in range(500):
                done.append(client.publish_soon("traffic", {"speed": float(number)}))
                await asyncio.sleep(0)
            assert len(sent) == ahead
            client._sending._send = lambda frame: (sent.append(frame), send(frame))[1]  # type: ignore[method-assign]
            for frame in list(sent):
                send(frame)
            await asyncio.gather(*done)
            # All that came meanwhile left as soon as there was room for one more frame.
            assert len(sent) == ahead + 1

    run(test())


def test_limits_of_a_client_are_those_of_the_description(live: Callable[..., Live]) -> None:
    async def test() -> None:
        overlay = live(more={"limits": ClientLimits(events_per_second=100, subscriptions=1)})
        await overlay.start()
        async with catchment.connect(overlay.url) as client:
            await client.advertise("traffic")
            outcomes = await asyncio.gather(
                *(client.publish_soon("traffic", {"speed": 1.0}) for _ in range(150)),
                client.publish("traffic", [{"speed": 1.0}] * 50),
                return_exceptions=True,
            )
            refused = [one for one in outcomes if isinstance(one, RequestRefusedError)]
            assert refused
            assert all(one.retry_s is not None and "limits.events_per_second" in str(one) for one in refused)
            await client.subscribe(ALL)
            with pytest.raises(RequestRefusedError, match=r"at most 1 \(limits\.subscriptions\)") as caught:
                await client.subscribe(ALL)
            assert caught.value.retry_s is None

    run(test())


def test_a_durable_client_gets_what_was_collected_and_nothing_twice(live: Callable[..., Live]) -> None:
    async def test() -> None:
        overlay = live(("b1", "b2"))
        await overlay.start()
        publisher = await catchment.connect(overlay.url, broker="b1")
        first = await catchment.connect(overlay.url, broker="b2", name="ann", durable=True)
        subscription = await first.subscribe(ALL, name="mine")
        await publisher.publish("traffic", {"speed": 1.0})
        assert speeds(await take(subscription, 1)) == [1.0]
        subscription.confirm()
        # Not before: what comes in one frame is confirmed together.
        await publisher.publish("traffic", {"speed": 2.0})
        await first.close()
        for number in (3.0, 4.0):
            await publisher.publish("traffic", {"speed": number})
        second = await catchment.connect(overlay.url, broker="b2", name="ann", durable=True)
        subscription = await second.subscribe(ALL, name="mine")
        # The second event was never confirmed.
        assert speeds(await take(subscription, 3)) == [2.0, 3.0, 4.0]
        subscription.confirm()
        second._taking.tell()
        # This one vanishes without a word, and so does its broker.
        assert second._task is not None
        second._task.cancel()
        await second._connection.close()
        overlay.brokers["b2"].kill()
        await publisher.publish("traffic", {"speed": 5.0})
        overlay.brokers["b2"].start()
        third = await catchment.connect(overlay.url, broker="b2", name="ann", durable=True)
        subscription = await third.subscribe(ALL, name="mine")
        await publisher.publish("traffic", {"speed": 6.0})
        assert speeds(await take(subscription, 2)) == [5.0, 6.0]
        await third.close()
        await publisher.close()

    run(test())


def test_a_client_goes_on_when_the_server_is_back(live: Callable[..., Live]) -> None:
    async def test() -> None:
        overlay = live()
        await overlay.start()
        async with catchment.connect(overlay.url) as client:
            subscription = await client.subscribe(ALL)
            await client.publish("traffic", {"speed": 0.0})
            overlay.server.kill()
            waiting = [client.publish_soon("traffic", {"speed": float(number)}) for number in range(1, 50)]
            await asyncio.to_thread(overlay.server.start)
            await asyncio.gather(*waiting)
            assert speeds(await take(subscription, 50)) == [float(number) for number in range(50)]

    run(test())


def test_a_subscriber_that_does_not_read_is_dropped_while_others_are_served(live: Callable[..., Live]) -> None:
    async def test() -> None:
        overlay = live(options={"limits": {"client_bytes_max": 100_000}})
        await overlay.start()
        slow = await catchment.connect(overlay.url)
        unread = await slow.subscribe(ALL)
        assert slow._task is not None
        slow._task.cancel()
        async with catchment.connect(overlay.url) as quick, catchment.connect(overlay.url) as publisher:
            read = await quick.subscribe(ALL)
            for number in range(60):
                rows = [{"speed": float(number), "highway": "x" * 100}] * 50
                assert (await publisher.publish("traffic", rows)).events == 50
                assert speeds(await take(read, 50)) == [float(number)] * 50
            slow._task = asyncio.create_task(slow._run(await slow._arrivals()))
            with pytest.raises(ClientDroppedError, match="has not read for too long: dropped, missed"):
                await take(unread, 10**6)
            assert "drops client" in overlay.said
        await slow.close()

    run(test())


def test_the_blocking_client_does_the_same(live: Callable[..., Live]) -> None:
    overlay = live()
    run(overlay.start())
    with catchment.connect(overlay.url, name="plain") as client:
        subscription = client.subscribe(ALL, name="mine")
        assert client.publish("traffic", {"speed": 1.0}).events == 1
        assert subscription.next(within_s=10)["speed"] == 1.0
        with pytest.raises(TimeoutError):
            subscription.next(within_s=0.05)
        with pytest.raises(RequestRefusedError, match="subscription 'mine' is already there"):
            client.subscribe(ALL, name="mine")
        client.unsubscribe(subscription)
        assert list(subscription) == []


@pytest.mark.parametrize(
    ("ask", "complaint"),
    [
        (lambda client: client.publish("trafic", {}), "unknown topic 'trafic'; known are traffic"),
        (lambda client: client.publish("traffic", 7), "events are a int; accepted are"),
        (lambda client: client.subscribe("SELECT nothing FROM traffic"), "nothing"),
        (lambda client: client.unsubscribe("it"), "subscription 'it' is not there; there are none"),
    ],
)
def test_what_cannot_be_is_refused_with_the_reason(live: Callable[..., Live], ask: Any, complaint: str) -> None:
    async def test() -> None:
        overlay = live()
        await overlay.start()
        async with catchment.connect(overlay.url) as client:
            with pytest.raises(CatchmentError, match=complaint):
                await ask(client)

    run(test())


def test_a_server_that_is_not_there_or_has_no_overlay_is_told(
    live: Callable[..., Live], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asking, "ANSWER_S", 0.3)

    async def test() -> None:
        with pytest.raises(CatchmentError, match=r"cannot reach a NATS server at 127\.0\.0\.1:1: "):
            await catchment.connect("nats://127.0.0.1:1")
        overlay = live()
        with pytest.raises(
            CatchmentError, match=r"an overlay has not answered within 0\.3 seconds; start one with `catchment up`"
        ):
            await catchment.connect(overlay.url)
        with pytest.raises(CatchmentError, match="accepted are nats://host:port and tls://host:port"):
            await catchment.connect("http://example")
        with pytest.raises(CatchmentError, match="a durable client has no name"):
            Client(overlay.url, durable=True)

    run(test())


def test_a_client_asks_again_where_a_message_is_missing_or_the_server_is_silent(
    live: Callable[..., Live], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        overlay = live()
        await overlay.start()
        async with catchment.connect(overlay.url) as client:
            subscription = await client.subscribe(ALL)
            await client.publish("traffic", {"speed": 0.0})
            received, lost = Arrivals._receive, list[Message]()

            def lose_one(arrivals: Arrivals, message: Message) -> None:
                if b"Catchment-Mark" in message.head and not lost:
                    lost.append(message)
                else:
                    received(arrivals, message)

            monkeypatch.setattr(Arrivals, "_receive", lose_one)
            overlay.server.kill()
            await asyncio.to_thread(overlay.server.start)
            for number in range(1, 10):
                await client.publish("traffic", {"speed": float(number)})
            assert speeds(await take(subscription, 10)) == [float(number) for number in range(10)]
            assert len(lost) == 1
            # The outbox is pushed to nobody any more, and nobody says so.
            monkeypatch.setattr(arriving, "SILENCE_S", 0.5)
            streams = JetStream(client._connection)
            await streams.ask(f"CONSUMER.DELETE.{outbox_stream('b1', client.full_name)}.anyone", {})
            await client.publish("traffic", {"speed": 10.0})
            assert speeds(await take(subscription, 1)) == [10.0]

    run(test())
