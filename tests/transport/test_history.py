"""Histories of accepted events: each once whatever is killed, kept as long as asked; subscriptions from there on."""

import asyncio
from collections.abc import Callable
from random import Random
from types import SimpleNamespace
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from catchment import CatchmentError, connect
from catchment.broker.frames import EPOCH, FrameReader, FrameWriter
from catchment.broker.inputs import Allowed
from catchment.broker.messages import Recorded
from catchment.transport.answering import request_from_bytes
from catchment.transport.asking import Find, Page, Read
from catchment.transport.client import Client, RequestRefusedError
from catchment.transport.history import (
    HistoryGoneError,
    Kept,
    begin_for,
    open_history,
    position_after_rows,
    recorded_in,
)
from catchment.transport.history_pages import HistoryPages
from catchment.transport.jetstream import JetStream, Reader
from catchment.transport.names import history_stream, history_subject
from catchment.transport.server import Server
from catchment.transport.wire import open_connection
from tests.transport.conftest import Live, eventually, run

WEEK = Kept(keep_us=7 * 86_400_000_000)
OFTEN = {"snapshot_every_s": 0.2, "recorded_every": 4, "step_inputs_max": 7}


async def recorded(streams: JetStream, broker: str) -> list[dict[str, Any]]:
    """All events of a broker's history, in order; each message is read alone."""
    state = await streams.state(history_stream(broker))
    assert state is not None
    reader = Reader(streams, history_stream(broker), 1)
    await reader.start()
    found: list[dict[str, Any]] = []
    position = 0
    while position < state.last:
        for stored in await reader.read(1_000):
            position = stored.position
            for one in recorded_in(stored):
                if one.events is not None:
                    assert one.number == len(found)
                    found += [{"topic": one.topic, **row} for row in one.events.to_pylist()]
    reader.stop()
    return found


def row(number: int, **more: Any) -> dict[str, Any]:
    return {"event_id": f"e{number}", "ts": number * 1_000_000, "speed": float(number), **more}


@pytest.mark.parametrize("point", ["sending", "stored", "snapshot whole"])
def test_what_is_accepted_is_recorded_once_whatever_is_killed(live: Callable[..., Live], point: str) -> None:
    async def test() -> None:
        overlay = live(("b1", "b2"), options=OFTEN, history=WEEK)
        await overlay.start()
        random, broker = Random(point), overlay.brokers["b1"]
        async with connect(overlay.url, broker="b1") as client:
            await client.advertise("traffic")
            for number in range(60):
                if number in (10, 30):
                    broker.kill()
                    broker.start(f"{point}:{random.randint(1, 3)}")
                if not broker.is_alive:
                    broker.start()
                publishing = asyncio.create_task(client.publish("traffic", [row(number), row(number)]))
                while not publishing.done():
                    await asyncio.wait([publishing], timeout=0.2)
                    if not broker.is_alive:
                        broker.start()
                await publishing
            with pytest.raises(RequestRefusedError):
                await client.publish("traffic", {"event_id": "b1/7", "speed": 1.0})
        connection = await open_connection(overlay.url, "test")

        async def is_all_there() -> bool:
            return len(await recorded(JetStream(connection), "b1")) >= 60

        await eventually(is_all_there)
        found = await recorded(JetStream(connection), "b1")
        assert [one["event_id"] for one in found] == [f"e{number}" for number in range(60)]
        assert {(one["topic"], one["broker"]) for one in found} == {("traffic", "b1")}
        assert await recorded(JetStream(connection), "b2") == []
        await connection.close()

    run(test())


async def some(subscription: Any, count: int) -> list[Any]:
    """The next contents of a subscription."""
    async with asyncio.timeout(60):
        return [await anext(subscription) for _ in range(count)]


async def publish_on(client: Client, begin: int, until: asyncio.Event) -> int:
    """Publish one event after the other until told to stop; the number behind the last."""
    while not until.is_set():
        await client.publish("traffic", row(begin, highway="401"))
        begin += 1
    return begin


@pytest.mark.parametrize(
    "sql", ["SELECT * FROM traffic WHERE speed >= 5", "SELECT speed FROM traffic WHERE speed >= 5"]
)
def test_a_subscription_begins_in_the_past_and_goes_on_without_gap_or_repeat(
    live: Callable[..., Live], sql: str
) -> None:
    async def test() -> None:
        overlay = live(("b1", "b2"), ("b2", "b3"), history=WEEK)
        await overlay.start()
        stop = asyncio.Event()
        clients = [await connect(overlay.url, broker=broker) for broker in ("b1", "b3", "b2")]
        await clients[0].publish("traffic", [row(number, highway="401") for number in range(30)])
        writing = [
            asyncio.create_task(publish_on(client, begin, stop))
            for client, begin in zip(clients[:2], (30, 1_000_000), strict=True)
        ]
        found = []
        for number in range(3):
            subscription = await clients[2].subscribe(sql, since=0, name=f"s{number}")
            found.append(subscription)
        first = [await some(one, 60) for one in found]
        stop.set()
        behind = [await task for task in writing]
        expected = [f"e{n}" for n in range(5, behind[0])] + [f"e{n}" for n in range(1_000_000, behind[1])]
        for one, begun in zip(found, first, strict=True):
            rows = begun + await some(one, len(expected) - 60)
            ids = [each["event_id"] for each in rows]
            assert sorted(ids) == sorted(expected)
            of_b1 = [int(each[1:]) for each in ids if int(each[1:]) < 1_000_000]
            assert of_b1 == sorted(of_b1)
            assert ("broker" in rows[0]) == ("*" in sql)
        for client in clients:
            await client.close()

    run(test())


def test_windows_that_began_before_a_subscription_are_told_from_the_history_each_once_and_whole(
    live: Callable[..., Live],
) -> None:
    async def test() -> None:
        overlay = live(("b1", "b2"), ("b2", "b3"), history=WEEK)
        await overlay.start()
        publishers = [await connect(overlay.url, broker=broker) for broker in ("b1", "b3")]
        subscriber = await connect(overlay.url, broker="b2")
        sql = "SELECT count(*), sum(speed) FROM traffic GROUP BY window(ts, '10 seconds', '5 seconds')"
        for number in range(33):
            for publisher in publishers:
                await publisher.publish("traffic", row(number))
        subscription = await subscriber.subscribe(sql, since=7_000_000)
        early = await some(subscription, 2)
        for number in range(33, 60):
            for publisher in publishers:
                await publisher.publish("traffic", row(number))
        for publisher in publishers:
            await publisher.unadvertise("traffic")
        values = early + await some(subscription, 2 * 10 - 2)
        told = {(one.start_us // 1_000_000, one.output): one.value for one in values}
        assert len(told) == len(values)
        for start in range(10, 60, 5):
            seconds = range(start, min(start + 10, 60))
            assert told[start, "count(*)"] == 2 * len(seconds)
            assert told[start, "sum(speed)"] == 2 * sum(seconds)
        for client in (*publishers, subscriber):
            await client.close()

    run(test())


def test_what_is_older_than_a_history_reaches_back_is_dropped_and_refused_by_name(live: Callable[..., Live]) -> None:
    async def test() -> None:
        overlay = live(history=Kept(keep_us=1_000_000))
        await overlay.start()
        connection = await open_connection(overlay.url, "test")
        streams = JetStream(connection)
        async with connect(overlay.url, broker="b1") as client:
            for number in range(5):
                await client.publish("traffic", row(number))
            assert await begin_for(streams, "b1", 3_000_000) > await begin_for(streams, "b1", 0)

            async def is_short() -> bool:
                state = await streams.state(history_stream("b1"))
                return state is not None and state.messages == 1

            await eventually(is_short)
            with pytest.raises(HistoryGoneError, match="'b1' has dropped events of times up to 1970-01-01 00:00:03"):
                await client.subscribe("SELECT * FROM traffic", since=3_000_000)
            # The newest message stays, whatever its age: the broker needs its mark, or would record e4 again.
            overlay.brokers["b1"].kill()
            overlay.brokers["b1"].start()
            await client.publish("traffic", row(5))

            async def is_recorded() -> bool:
                last = await streams.last(history_stream("b1"), history_subject("b1"))
                assert last is not None
                return [one.number for one in recorded_in(last)] == [5]

            await eventually(is_recorded)
        await connection.close()

    run(test())


def test_a_past_that_is_dropped_while_it_is_read_is_refused_by_name(live: Callable[..., Live]) -> None:
    async def test() -> None:
        overlay = live(history=WEEK)
        await overlay.start()
        streams = JetStream(await open_connection(overlay.url, "test"))
        async with connect(overlay.url) as client:
            for number in range(5):
                await client.publish("traffic", row(number))
            subscription = await client.subscribe("SELECT * FROM traffic", since=0)
            state = await streams.state(history_stream("b1"))
            assert state is not None
            await streams.purge(history_stream("b1"), state.last)
            with pytest.raises(HistoryGoneError, match="the history of broker 'b1' begins at"):
                await anext(subscription)
        await streams.connection.close()

    run(test())


def test_a_past_is_read_in_pages_whatever_is_killed_meanwhile(live: Callable[..., Live]) -> None:
    """Messages of up to a page, more than one page, and a broker and a server that come back while it is read."""

    async def test() -> None:
        overlay = live(history=WEEK)
        await overlay.start()
        async with connect(overlay.url) as client:
            for first in range(0, 12, 3):
                rows = [row(number, highway="x" * 230_000) for number in range(first, first + 3)]
                await client.publish("traffic", rows)
            subscription = await client.subscribe("SELECT speed FROM traffic", since=0)
            begun = await some(subscription, 2)
            overlay.brokers["b1"].kill()
            overlay.server.kill()
            reading = asyncio.create_task(some(subscription, 11))
            await asyncio.to_thread(overlay.server.start)
            overlay.brokers["b1"].start()
            await client.publish("traffic", row(12))
            assert [one["speed"] for one in begun + await reading] == [float(number) for number in range(13)]

    run(test())


def test_a_page_has_one_topic_and_the_whole_step_of_the_mark(server: Server) -> None:
    async def test() -> None:
        streams = JetStream(await open_connection(server.url, "test"))
        await open_history(streams, "b1", WEEK)
        events = [
            pa.record_batch({"speed": [float(number)], "ts": pa.array([number], pa.timestamp("us"))})
            for number in range(4)
        ]
        steps = [
            [Recorded(0, 0, "traffic", events[0]), Recorded(1, 0, "stock", events[1]), Recorded(2, 0, mark="other")],
            [Recorded(2, 0, "traffic", events[2]), Recorded(3, 0, mark="m"), Recorded(3, 0, "traffic", events[3])],
            [Recorded(4, 0, "traffic", events[0])],
        ]
        for step in steps:
            (frame,) = FrameWriter().frames("b1", step, incarnation=1, epoch=EPOCH, after=0, covers=0)
            await streams.store(history_subject("b1"), frame)
        granting: Any = SimpleNamespace(rights={"bob": Allowed((), ("traffic",))})
        context: Any = SimpleNamespace(streams=streams, name="b1")
        pages = HistoryPages(context, granting)
        page = await pages.read("bob", Read("traffic", 0, "m"))
        told = FrameReader().decode(page.frame).messages
        assert (page.after, page.is_marked) == (2, True)
        assert [(one.topic, one.mark) for one in told] == [("traffic", ""), ("traffic", ""), ("", "m"), ("traffic", "")]
        assert {one.number for one in told} == {0}
        behind = await pages.read("bob", Read("traffic", page.after, "n"))
        assert (behind.after, behind.is_marked, behind.frame != b"") == (3, False, True)
        assert await pages.read("bob", Read("traffic", 3, "n")) == Page(3, False)
        granting.rights = {"bob": Allowed((), ("stock",))}
        for request in (Read("traffic", 0, "m"), Read("nothing", 0, "m")):
            with pytest.raises(CatchmentError, match=r"user 'bob' may not subscribe to .*; accepted are stock"):
                await pages.read("bob", request)
        await streams.connection.close()

    run(test())


@pytest.mark.parametrize("request_", [Read("traffic", -1, "m"), Read("traffic", 2**63, "m"), Find("traffic", 2**63)])
def test_positions_and_times_that_no_history_has_are_no_requests(request_: Read | Find) -> None:
    with pytest.raises(CatchmentError, match="a request does not decode: Expected `int`"):
        request_from_bytes(msgspec.json.encode(request_))


def test_a_history_that_may_take_no_more_drops_its_oldest(live: Callable[..., Live]) -> None:
    async def test() -> None:
        overlay = live(history=Kept(keep_us=WEEK.keep_us, bytes_max=4_000_000))
        await overlay.start()
        connection = await open_connection(overlay.url, "test")
        streams = JetStream(connection)
        async with connect(overlay.url, broker="b1") as client:
            for number in range(30):
                await client.publish("traffic", row(number, highway="x" * 200_000))
        state = await streams.state(history_stream("b1"))
        assert state is not None
        assert state.first > 1
        assert 2_000_000 < state.size_bytes <= 4_000_000
        with pytest.raises(HistoryGoneError, match=r"'b1' has dropped events .* keep, bytes_max\); accepted are later"):
            await begin_for(streams, "b1", 1_000_000)
        await connection.close()

    run(test())


def test_positions_are_found_by_numbers_of_events(live: Callable[..., Live]) -> None:
    async def test() -> None:
        overlay = live(history=WEEK)
        await overlay.start()
        connection = await open_connection(overlay.url, "test")
        streams, sizes = JetStream(connection), [3, 1, 4, 1, 5, 9, 2, 6]
        async with connect(overlay.url, broker="b1") as client:
            for number, size in enumerate(sizes):
                await client.publish("traffic", [row(100 * number + place) for place in range(size)])
            overlay.brokers["b1"].kill()
            overlay.brokers["b1"].start()
            await client.publish("traffic", [row(1_000 + place) for place in range(7)])
        state = await streams.state(history_stream("b1"))
        assert state is not None
        counts = {}
        for position in range(state.first, state.last + 1):
            stored = await streams.at(history_stream("b1"), position)
            assert stored is not None
            counts[position] = sum(one.events.num_rows for one in recorded_in(stored) if one.events is not None)
        assert [one for one in counts.values() if one] == [*sizes, 7]
        for after in range(state.first - 1, state.last):
            for rows_max in (1, 3, 4, 10, 100):
                reached = await position_after_rows(streams, "b1", after, state.last, rows_max)
                assert after < reached <= state.last
                before = sum(counts[one] for one in range(after + 1, reached))
                assert before < rows_max or reached == after + 1
                assert sum(counts[one] for one in range(after + 1, reached + 1)) >= rows_max or reached == state.last
        await connection.close()

    run(test())


def test_what_cannot_begin_in_the_past_is_refused_by_name(live: Callable[..., Live]) -> None:
    async def test() -> None:
        overlay = live(history=WEEK)
        await overlay.start()
        async with connect(overlay.url, name="d", durable=True) as client:
            with pytest.raises(CatchmentError, match="a durable client is to begin in the past"):
                await client.subscribe("SELECT * FROM traffic", since="2 hours")
        async with connect(overlay.url) as client:
            for since in ("soon", True, 1.5):
                with pytest.raises(CatchmentError, match=f"since is {since!r}; accepted are a time"):
                    await client.subscribe("SELECT * FROM traffic", since=since)
            with pytest.raises(CatchmentError, match="unknown topic 'nothing'"):
                await client.subscribe("SELECT * FROM nothing", since="2 hours")
            with pytest.raises(RequestRefusedError, match="a mark is '3'; accepted is a text of 1 to 64 characters"):
                await client.ask_advice("history", 3)
            with pytest.raises(RequestRefusedError, match="no aggregate subscription 'other'"):
                await client.ask_advice("aggregation", ["other", 0])

    run(test())


def test_an_overlay_without_history_says_so(live: Callable[..., Live]) -> None:
    async def test() -> None:
        overlay = live()
        await overlay.start()
        async with connect(overlay.url) as client:
            with pytest.raises(CatchmentError, match="the overlay keeps no history; accepted is one whose file says"):
                await client.subscribe("SELECT * FROM traffic", since="2 hours")

    run(test())


def test_what_foreign_publishers_post_is_recorded_too(live: Callable[..., Live]) -> None:
    async def test() -> None:
        overlay = live(history=WEEK)
        await overlay.start()
        streams = JetStream(await open_connection(overlay.url, "test"))
        async with connect(overlay.url) as client:
            await streams.store("catchment.pub.b1.traffic", b'{"speed": 7.0}')
            subscription = await client.subscribe("SELECT speed FROM traffic", since=0)
            assert [one["speed"] for one in await some(subscription, 1)] == [7.0]

            async def is_recorded() -> bool:
                return len(await recorded(streams, "b1")) == 1

            await eventually(is_recorded)
        await streams.connection.close()

    run(test())


@pytest.mark.parametrize("wrong", [{"keep_us": 0}, {"keep_us": 10**9, "bytes_max": 1}])
def test_limits_of_a_history_are_checked(wrong: dict[str, int]) -> None:
    with pytest.raises(CatchmentError, match=r"a history .* accepted"):
        Kept(**wrong)
