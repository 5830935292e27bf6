"""Frames on their way into a neighbour's stream: stored once each and in order, whatever the server refuses."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from catchment.broker.hosting import Mark
from catchment.broker.inputs import Send
from catchment.transport.jetstream import JetStream, Stored, WrongPositionError
from catchment.transport.marks import mark_of
from catchment.transport.names import control_subject, input_stream, link_subject
from catchment.transport.outlets import Link
from catchment.transport.recovery import create_input
from catchment.transport.server import Server
from catchment.transport.wire import open_connection
from tests.transport.conftest import eventually, run
from tests.transport.test_full_store import ballast_at

STREAM, SUBJECT = input_stream("b2"), link_subject("b2", "b1")


def frames(first: int, count: int) -> Send:
    """What a step has for the neighbour, of which each frame is its number."""
    return Send("b2", tuple(str(number).encode() for number in range(first, first + count)), first, covers=first)


def new_link(streams: JetStream, failures: list[BaseException]) -> Link:
    return Link(streams, STREAM, SUBJECT, lambda: (), failures.append)


@asynccontextmanager
async def link_at(server: Server) -> AsyncIterator[tuple[JetStream, Link, list[BaseException]]]:
    connection = await open_connection(server.url, "test")
    streams, failures = JetStream(connection), list[BaseException]()
    await create_input(streams, "b2")
    link = new_link(streams, failures)
    await link.fence()
    try:
        yield streams, link, failures
    finally:
        link.stop()
        await connection.close()


async def stored_frames(streams: JetStream) -> list[tuple[int, bytes]]:
    """The numbers in the marks of all frames that are in the stream, and the frames."""
    found: list[Stored] = []
    position = 1
    while (one := await streams.next(STREAM, position, SUBJECT)) is not None:
        found.append(one)
        position = one.position + 1
    return [(mark_of(one).last, one.data) for one in found if one.data]


def numbered(first: int, last: int) -> list[tuple[int, bytes]]:
    return [(number, str(number).encode()) for number in range(first, last + 1)]


def test_frames_that_wait_are_stored_in_order_among_messages_of_others(server: Server) -> None:
    async def test() -> None:
        async with link_at(server) as (streams, link, failures):
            for first in (1, 4, 7):
                link.put(frames(first, 3), [first])
                await streams.store(control_subject("b2"), b"of somebody else")
            await link.flushed(7)
            assert await stored_frames(streams) == numbered(1, 9)
            assert failures == []

    run(test())


def test_a_frame_is_on_its_way_before_the_event_loop_turns(server: Server) -> None:
    async def test() -> None:
        async with link_at(server) as (streams, link, _):
            link.put(frames(1, 1), [1])
            written = b"".join(streams.connection._out)
            streams.connection.flush()
            assert b"HPUB " + SUBJECT.encode() in written
            assert streams.connection._out == []
            await link.flushed(1)
            assert await stored_frames(streams) == numbered(1, 1)

    run(test())


def test_what_a_stranger_stores_between_two_frames_is_dropped_and_costs_none_of_them(server: Server) -> None:
    async def test() -> None:
        async with link_at(server) as (streams, link, failures):
            link.put(frames(1, 1), [1])
            await link.flushed(1)
            garbage = await streams.store(SUBJECT, b"garbage")
            # The first is refused at its position; the others wait behind it.
            link.put(frames(2, 3), [2])
            link.put(frames(5, 2), [5])
            await link.flushed(5)
            assert await stored_frames(streams) == numbered(1, 6)
            assert await streams.at(STREAM, garbage) is None
            assert failures == []

    run(test())


def test_a_successor_stops_a_process_that_has_several_frames_waiting(server: Server) -> None:
    async def test() -> None:
        async with link_at(server) as (streams, old, failures):
            old.put(frames(1, 2), [1])
            await old.flushed(1)
            successor = new_link(streams, failures)
            await successor.fence()
            old.put(frames(3, 3), [3])

            async def has_failed() -> bool:
                return bool(failures)

            await eventually(has_failed)
            assert [type(one) for one in failures] == [WrongPositionError]
            assert (successor.last, successor.covers) == (2, 1)
            successor.put(frames(3, 3), [3])
            await successor.flushed(3)
            assert await stored_frames(streams) == numbered(1, 5)
            assert len(failures) == 1
            successor.stop()

    run(test())


def test_a_new_life_of_the_neighbour_begins_behind_a_frame_that_is_under_way(server: Server) -> None:
    async def test() -> None:
        async with link_at(server) as (streams, link, failures):
            link.put(frames(1, 3), [1])
            # Of the old life, only what is under way is stored.
            link.put(Send("b2", (b"new 1", b"new 2"), 1, covers=9), [9])
            await link.flushed(9)
            assert await stored_frames(streams) == [(1, b"1"), (1, b"new 1"), (2, b"new 2")]
            assert failures == []

    run(test())


def test_what_a_full_store_does_not_take_is_stored_later_in_order(small: Server) -> None:
    async def test() -> None:
        async with link_at(small) as (streams, link, failures), ballast_at(small.url) as (_, ballast):
            link.put(frames(1, 1), [1])
            await link.flushed(1)
            await ballast.fill()
            link.put(frames(2, 3), [2])

            async def is_refused() -> bool:
                return link._retry is not None

            await eventually(is_refused)
            link.put(frames(5, 1), [5])
            assert await stored_frames(streams) == numbered(1, 1)
            await ballast.drop()
            await link.flushed(5)
            assert await stored_frames(streams) == numbered(1, 5)
            assert failures == []

    run(test())


def test_a_link_that_is_stopped_sends_nothing_more(server: Server) -> None:
    async def test() -> None:
        async with link_at(server) as (streams, link, failures):
            link.put(frames(1, 3), [1])
            link.stop()
            # The server handles what one connection asks in its order.
            await asyncio.gather(*(streams.store(control_subject("b2"), b"") for _ in range(3)))
            assert await stored_frames(streams) == numbered(1, 1)
            assert failures == []
            follower = new_link(streams, failures)
            await follower.fence()
            assert Mark(follower.last, follower.covers) == Mark(1, 1)

    run(test())
