"""Clients that are used in ways that nobody meant: an answer or an error, and never an endless wait."""

import asyncio
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

import catchment
from catchment import CatchmentError, Schema
from catchment.broker import messages as m
from catchment.model.errors import EventError
from catchment.transport.client import ClientDroppedError, RequestRefusedError
from catchment.transport.history import Kept
from catchment.transport.jetstream import JetStream
from catchment.transport.names import client_subject
from catchment.transport.rows import batches_of
from tests.transport.conftest import SCHEMAS, Live, eventually, run

ALL = "SELECT * FROM traffic"
NOON_NS = 1_767_355_200_000_000_000


def column(name: str, values: list[Any], kind: pa.DataType) -> pa.Table:
    return pa.table({name: pa.array(values, kind)})


ACCEPTED: list[Any] = [
    column("highway", ["401"], pa.large_string()),
    pa.table({"highway": pa.array(["401", "401"]).dictionary_encode()}),
    column("ts", [NOON_NS], pa.timestamp("ns", "America/Toronto")),
    column("ts", [NOON_NS // 10**6], pa.timestamp("ms", "UTC")),
    column("speed", [Decimal("55.5")], pa.decimal128(5, 1)),
    column("vehicles", [7], pa.uint64()),
    pd.DataFrame({"ts": pd.to_datetime(["2026-01-02"]), "highway": pd.Categorical(["401"]), "vehicles": [1.0]}),
]
REFUSED: list[tuple[Any, str]] = [
    (column("vehicles", [2**63], pa.uint64()), "column 'vehicles' of type uint64 does not fit int"),
    (column("ts", [1_501], pa.timestamp("ns")), "column 'ts' of type timestamp"),
    (column("speed", ["55"], pa.string()), "column 'speed' has type string; accepted is float"),
    (column("speed", [[1.0]], pa.list_(pa.float64())), "column 'speed' has type list<item: double>; accepted is float"),
    (pa.table([pa.array([1.0]), pa.array([2.0])], names=["speed", "speed"]), "several columns speed"),
    (column("sped", [1.0], pa.float64()), "an event of 'traffic' has sped; accepted are event_id, ts, speed"),
    (pd.DataFrame([[1.0, 2.0]], columns=["speed", "speed"]), "Duplicate column names"),
    (pd.DataFrame({"speed": [1.0, "fast"]}), "a data frame does not become columns"),
]


def test_columns_of_any_type_are_taken_or_refused_by_name(live: Callable[..., Live]) -> None:
    async def test() -> None:
        overlay = live()
        await overlay.start()
        async with catchment.connect(overlay.url) as client, asyncio.timeout(60):
            subscription = await client.subscribe(ALL)
            for events in ACCEPTED:
                receipt = await client.publish("traffic", events)
                assert receipt.events == len(events)
                for _ in range(receipt.events):
                    await anext(subscription)
            asked = client._session.requests
            for events, reason in REFUSED:
                with pytest.raises(EventError, match=reason):
                    await client.publish("traffic", events)
            assert client._session.requests == asked

    run(test())


def test_nothing_of_a_table_is_sent_whose_last_chunk_does_not_fit() -> None:
    chunks = pa.chunked_array([pa.array([1], pa.uint64()), pa.array([2**63], pa.uint64())])
    with pytest.raises(EventError, match="vehicles"):
        next(batches_of("traffic", SCHEMAS["traffic"], pa.table({"vehicles": chunks})))


def test_a_frame_that_the_broker_cannot_read_is_refused(live: Callable[..., Live]) -> None:
    async def test() -> None:
        overlay = live()
        await overlay.start()
        async with catchment.connect(overlay.url) as client, asyncio.timeout(60):
            await client.advertise("traffic")
            batch = pa.RecordBatch.from_pydict({"highway": pa.array(["401"], pa.large_string())})
            with pytest.raises(RequestRefusedError, match="'highway' is of type large_string, which is not accepted"):
                await client._sending.ask(m.PublishEvents, "traffic", batch)
            # A client of an older version gets a frame, whose version tells it enough.
            refused = list[Any]()
            client._sending.settle = refused.append  # type: ignore[method-assign]
            await JetStream(client._connection).store(client_subject("b1", client.full_name), b"CF\x01nonsense")

            async def is_told() -> bool:
                return bool(refused)

            await eventually(is_told)
            assert refused == [m.Refused(m.UNNUMBERED, "a frame is of version [1]; accepted is 2")]
            del client._sending.settle
            await client.publish("traffic", {"speed": 1.0})

    run(test())


async def take(subscription: Any, count: int) -> list[Any]:
    async with asyncio.timeout(60):
        return [(await anext(subscription))["speed"] for _ in range(count)]


def test_a_durable_client_goes_on_with_the_same_question_alone(live: Callable[..., Live]) -> None:
    async def test() -> None:
        overlay = live()
        await overlay.start()
        async with catchment.connect(overlay.url) as publisher, asyncio.timeout(90):
            async with catchment.connect(overlay.url, name="ann", durable=True) as first:
                await first.subscribe("SELECT * FROM traffic WHERE speed < 60", name="mine")
            await publisher.publish("traffic", [{"speed": 50.0}, {"speed": 70.0}])
            async with catchment.connect(overlay.url, name="ann", durable=True) as second:
                other = "SELECT * FROM traffic WHERE speed > 60"
                with pytest.raises(RequestRefusedError) as caught:
                    await second.subscribe(other, name="mine")
                assert str(caught.value) == (
                    "subscription 'mine' is already there and asks 'SELECT * FROM traffic WHERE speed < 60'; accepted "
                    f"is the same again, not '{other}': unsubscribe first, or take another name"
                )
                # However it is written.
                again = await second.subscribe("select * from traffic  where 60 > speed", name="mine")
                assert await take(again, 1) == [50.0]
                await second.unsubscribe("mine")
                now = await second.subscribe(other, name="mine")
                await publisher.publish("traffic", [{"speed": 51.0}, {"speed": 71.0}])
                assert await take(now, 1) == [71.0]

    run(test())


def test_what_was_not_read_before_unsubscribing_holds_up_no_confirmation(live: Callable[..., Live]) -> None:
    async def test() -> None:
        overlay = live()
        await overlay.start()
        async with catchment.connect(overlay.url, name="ann", durable=True) as client, asyncio.timeout(60):
            left, kept = await client.subscribe(ALL, name="left"), await client.subscribe(ALL, name="kept")
            await client.publish("traffic", [{"speed": 1.0}, {"speed": 2.0}])
            await client.publish("traffic", {"speed": 3.0})
            # One event of its first frame is handed out, the second frame is not.
            assert await take(left, 1) == [1.0]
            assert await take(kept, 3) == [1.0, 2.0, 3.0]
            kept.confirm()
            assert client._taking.confirmed < client._taking.read
            await client.unsubscribe(left)
            assert client._taking.confirmed == client._taking.read
            assert client._taking._untaken_bytes == 0
            # It is there for whoever wants it, and then there is no more.
            assert [one["speed"] async for one in left] == [2.0, 3.0]
            assert [one async for one in left] == []
            await client.publish("traffic", {"speed": 4.0})
            assert await take(kept, 1) == [4.0]
            kept.confirm()
            assert client._taking.confirmed == client._taking.read

    run(test())


def test_who_gives_up_waiting_takes_nothing_from_others(live: Callable[..., Live]) -> None:
    async def test() -> None:
        overlay = live(("b1", "b2"))
        await overlay.start()
        async with catchment.connect(overlay.url, broker="b1") as client, asyncio.timeout(60):
            first, second = (asyncio.create_task(client.advertise("traffic")) for _ in range(2))
            await asyncio.sleep(0)
            first.cancel()
            await second
            assert first.cancelled()
            await client.publish("traffic", {"speed": 1.0})
            refused = [asyncio.create_task(client.advertise("nothing")) for _ in range(2)]
            for one in refused:
                with pytest.raises(RequestRefusedError, match="unknown topic 'nothing'"):
                    await one
            with pytest.raises(RequestRefusedError, match="unknown topic 'nothing'"):
                await client.advertise("nothing")

    run(test())


def test_a_subscription_that_nobody_waits_for_any_more_is_not_made(live: Callable[..., Live]) -> None:
    async def test() -> None:
        overlay = live(("b1", "b2"))
        await overlay.start()
        async with catchment.connect(overlay.url, broker="b1") as client, asyncio.timeout(60):
            asking = asyncio.create_task(client.subscribe(ALL, name="mine"))
            await asyncio.sleep(0)
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking
            await client.publish("traffic", {"speed": 1.0})
            # The name is free again, and nothing of before comes.
            subscription = await client.subscribe(ALL, name="mine")
            leaving = [asyncio.create_task(client.unsubscribe(subscription)) for _ in range(2)]
            await asyncio.sleep(0)
            leaving[0].cancel()
            again = await client.subscribe(ALL, name="mine")
            assert [one async for one in subscription] == []
            await client.publish("traffic", {"speed": 2.0})
            assert await take(again, 1) == [2.0]
            again.confirm()
            assert client._taking.confirmed == client._taking.read

    run(test())


def test_a_client_may_publish_more_to_itself_than_it_reads(live: Callable[..., Live]) -> None:
    async def test() -> None:
        overlay = live()
        await overlay.start()
        async with catchment.connect(overlay.url) as client, asyncio.timeout(120):
            subscription = await client.subscribe(ALL)
            long = pa.table({"highway": ["4" * 100_000] * 500})
            assert (await client.publish("traffic", long)).events == 500
            # Nobody waits for an answer: what comes now is left where it is.
            assert client._taking._untaken_bytes > 32_000_000
            count = 0
            async for one in subscription.batches():
                count += len(one)
                if count == 500:
                    break

    run(test())


def test_a_past_goes_on_where_somebody_gave_up_waiting(live: Callable[..., Live]) -> None:
    async def test() -> None:
        overlay = live(history=Kept(keep_us=86_400_000_000))
        await overlay.start()
        async with catchment.connect(overlay.url) as client, asyncio.timeout(60):
            await client.publish("traffic", [{"speed": float(number)} for number in range(3)])
            subscription = await client.subscribe(ALL, since="1 hour")
            for _ in range(20):
                asking = asyncio.ensure_future(anext(subscription))
                await asyncio.sleep(0)
                if asking.done():
                    break
                asking.cancel()
                await asyncio.wait([asking])
            else:
                asking = asyncio.ensure_future(anext(subscription))
            assert [(await asking)["speed"], *await take(subscription, 2)] == [0.0, 1.0, 2.0]

    run(test())


@pytest.mark.parametrize("durable", [True, False])
def test_who_takes_a_name_over_is_not_disturbed_by_who_had_it(live: Callable[..., Live], durable: bool) -> None:
    async def test() -> None:
        overlay = live()
        await overlay.start()
        first = await catchment.connect(overlay.url, name="twin", durable=durable)
        await first.subscribe(ALL, name="mine")
        second = await catchment.connect(overlay.url, name="twin", durable=durable)
        await second.subscribe(ALL, name="mine")
        async with asyncio.timeout(90):
            with pytest.raises(ClientDroppedError, match=r"another process is client|knows client .* no more"):
                await first.publish("traffic", {"speed": 0.0})
            # It has heard that; one that has not says of its own life that it is over.
            await first.close()
            stale = await catchment.connect(overlay.url, name="twin", durable=durable)
            third = await catchment.connect(overlay.url, name="twin", durable=durable)
            await stale.close()
            subscription = await third.subscribe(ALL, name="mine")
            await third.publish("traffic", {"speed": 1.0})
            assert await take(subscription, 1) == [1.0]
            await third.close()
            await second.close()

    run(test())


def test_events_of_ever_other_attributes_are_taken(live: Callable[..., Live]) -> None:
    async def test() -> None:
        names = [f"a{number}" for number in range(11)]
        overlay = live(schemas={"traffic": Schema(dict.fromkeys(names, "int"))})
        await overlay.start()
        rows = [{name: number for place, name in enumerate(names) if number >> place & 1} for number in range(1, 1_300)]
        async with catchment.connect(overlay.url) as client, asyncio.timeout(120):
            subscription = await client.subscribe(ALL)
            for row in rows[:700]:
                await client.publish("traffic", row)
            for row in rows[700:]:
                await client.publish("traffic", [row])
            for row in rows:
                found = await anext(subscription)
                assert {name: found[name] for name in names if found.get(name) is not None} == row

    run(test())


@pytest.mark.parametrize(
    ("ask", "complaint"),
    [
        (lambda client: client.publish("traffic", {"speed": 1.0}, wait="seen"), "wait is 'seen'; accepted are acknow"),
        (lambda client: client.subscribe("\ud800"), "no frame can carry SubscribeTo"),
        (lambda client: client.advance_time("traffic", 10**30), "no frame can carry AdvanceTime"),
        (lambda client: client.subscribe(None), "does not decode"),
        (lambda client: client.subscribe("SELECT * FROM nothing"), "unknown topic 'nothing'; known are traffic"),
        (lambda client: client.publish("traffic", pa.table({"highway": ["", "4" * 300_000]})), "texts of 300000 bytes"),
    ],
)
def test_nonsense_is_refused(live: Callable[..., Live], ask: Callable[[Any], Any], complaint: str) -> None:
    async def test() -> None:
        overlay = live()
        await overlay.start()
        async with catchment.connect(overlay.url) as client, asyncio.timeout(60):
            with pytest.raises(CatchmentError, match=complaint):
                await ask(client)
            await client.publish("traffic", {"speed": 1.0})

    run(test())
