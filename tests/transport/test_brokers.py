"""Live brokers among themselves: one process each, links, room, and what does not belong into their streams."""

import asyncio
import os
from collections.abc import Callable
from typing import Any

import pytest

import catchment
from catchment.broker.frames import FrameWriter
from catchment.broker.hosting import Mark, item_to_bytes
from catchment.broker.inputs import Attached, Room, Send, Woken
from catchment.broker.messages import RoomChanged
from catchment.broker.snapshot_pieces import SnapshotPiece
from catchment.model.errors import CheckpointError, ConfigurationError
from catchment.transport.client import Client, RequestRefusedError
from catchment.transport.description import Description
from catchment.transport.jetstream import JetStream, WrongPositionError
from catchment.transport.marks import MARK
from catchment.transport.names import (
    client_subject,
    control_subject,
    input_stream,
    link_subject,
    outbox_subject,
    room_subject,
    snapshot_stream,
    snapshot_subject,
    steps_subject,
    token,
    untoken,
)
from catchment.transport.outlets import Delivery, Link
from catchment.transport.recovery import create_input
from catchment.transport.running import LiveBroker, LiveOptions
from catchment.transport.server import Server
from catchment.transport.wire import open_connection
from tests.transport.conftest import Live, eventually, run
from tests.transport.processes import LEASE_LOST, BrokerProcess

ALL = "SELECT * FROM traffic"


def test_the_older_of_two_processes_with_one_id_stops_and_says_so(live: Callable[..., Live]) -> None:
    async def test() -> None:
        overlay = live(("b1", "b2"))
        await overlay.start()
        async with catchment.connect(overlay.url, broker="b1") as client:
            subscription = await client.subscribe(ALL)
            await client.publish("traffic", {"speed": 1.0})
            second = BrokerProcess("b1", overlay.url, overlay.log)
            second.start()
            try:
                assert await asyncio.to_thread(lambda: overlay.brokers["b1"].exit_code) == LEASE_LOST
                assert "broker 'b1' runs as process" in overlay.said
                await client.publish("traffic", {"speed": 2.0})
                assert [(await anext(subscription))["speed"] for _ in range(2)] == [1.0, 2.0]
            finally:
                second.stop()

    run(test())


def test_a_process_that_does_not_hear_of_its_successor_fails_at_the_position_it_expects(server: Server) -> None:
    async def test() -> None:
        connection = await open_connection(server.url, "test")
        streams, failures = JetStream(connection), list[BaseException]()
        await create_input(streams, "b2")
        old, new = (
            Link(streams, input_stream("b2"), link_subject("b2", "b1"), lambda: (1,), failures.append) for _ in range(2)
        )
        await old.fence()
        old.put(Send("b2", (b"CF one",), 1, 5), [5])
        await old.flushed(5)
        await new.fence()
        assert (new.last, new.covers, new.ends) == (1, 5, [1])
        old.put(Send("b2", (b"CF two",), 2, 6), [6])

        async def has_failed() -> bool:
            return bool(failures)

        await eventually(has_failed)
        assert isinstance(failures[0], WrongPositionError)
        old.stop()
        told, failed = list[tuple[str, int]](), list[BaseException]()
        first, second = (
            Delivery(streams, "b1", "c", lambda: (), failed.append, lambda *one: told.append(one)) for _ in range(2)
        )
        await first.create(3, 1, 10_000)
        assert await second.fence()
        first.put(Send("c", (b"CF\x02\x97\xa1b\x01\x01\x01\x00\x80\x90",), 1, 4), [4])
        await first.flushed(4)
        assert [type(one) for one in failed] == [WrongPositionError]
        await connection.close()

    run(test())


def test_two_neighbours_at_their_bounds_refuse_publications_and_drain(live: Callable[..., Live]) -> None:
    async def test() -> None:
        overlay = live(("b1", "b2"), options={"limits": {"link_bytes_max": 20_000}, "step_inputs_max": 2})
        await overlay.start()
        clients = [await catchment.connect(overlay.url, broker=broker) for broker in ("b1", "b2")]
        subscriptions = [await client.subscribe(ALL) for client in clients]
        for client in clients:
            await client.advertise("traffic")
        rows = [{"speed": 1.0, "highway": "x" * 100}] * 20
        outcomes: list[Any] = []

        async def publish(client: Client) -> None:
            for _ in range(20):
                outcomes.extend(await asyncio.gather(client.publish("traffic", rows), return_exceptions=True))

        await asyncio.gather(*(publish(client) for _ in range(30) for client in clients))
        refused = [str(one) for one in outcomes if isinstance(one, RequestRefusedError)]
        assert refused
        assert all("there is no room" in one for one in refused)

        async def is_taken() -> bool:
            try:
                return (await clients[0].publish("traffic", rows)).events == 20
            except RequestRefusedError:
                return False

        await eventually(is_taken)
        taken = 20 * (1 + len(outcomes) - len(refused))
        for subscription in subscriptions:
            async with asyncio.timeout(60):
                for _ in range(taken):
                    await anext(subscription)
        for client in clients:
            await client.close()

    run(test())


def test_what_does_not_belong_into_a_stream_changes_nothing(live: Callable[..., Live]) -> None:
    async def test() -> None:
        overlay = live(("b1", "b2"))
        await overlay.start()
        async with catchment.connect(overlay.url, broker="b1") as client:
            subscription = await client.subscribe(ALL)
            await client.advertise("traffic")
            connection = await open_connection(overlay.url, "stranger")
            streams = JetStream(connection)
            own = client._session.ask(catchment.broker.messages.UnsubscribeFrom, subscription.name)[1][0]
            client._session._sent -= 1
            garbage = [os.urandom(40), b"CF", b"CF\x09" + bytes(30), b"\x92", own[:30]]
            for subject in (
                client_subject("b1", "anyone/stranger"), client_subject("b1", client.full_name),
                link_subject("b1", "b2"), link_subject("b2", "b1"), link_subject("b1", "nobody"),
                room_subject("b1", "b2"), control_subject("b1"), steps_subject("b1"),
                outbox_subject("b1", client.full_name, "frame"),
            ):  # fmt: skip
                for data in garbage:
                    await streams.store(subject, data)
            # What is somebody else's to say.
            await streams.store(client_subject("b1", "anyone/stranger"), own)
            await streams.store(
                client_subject("b1", "anyone/stranger"), item_to_bytes(Attached(client.full_name, 2**60))
            )
            await streams.store(client_subject("b1", "anyone/stranger"), item_to_bytes(Attached("anyone/stranger", 1)))
            await streams.store(client_subject("b1", "anyone/stranger"), item_to_bytes(Woken()))
            await streams.store(room_subject("b1", "nobody"), item_to_bytes(Room("b2", is_full=True)))
            # A frame as the neighbour might have sent it, and one with a mark that is none.
            frame = FrameWriter().frames("b2", [RoomChanged(True)], incarnation=1, epoch=1, after=0, covers=0)[0]
            await streams.store(link_subject("b1", "b2"), frame)
            await streams.store(link_subject("b1", "b2"), frame, headers={MARK: "1 x"})
            # Both brokers go on, in either direction, whoever sends first.
            async with catchment.connect(overlay.url, broker="b2") as other, asyncio.timeout(60):
                there = await other.subscribe(ALL)
                for number in range(3):
                    await client.publish("traffic", {"speed": 2.0 * number})
                    await other.publish("traffic", {"speed": 2.0 * number + 1})
                for one in (subscription, there):
                    assert sorted([(await anext(one))["speed"] for _ in range(6)]) == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
            assert all(broker.is_alive for broker in overlay.brokers.values()), overlay.said
            for to, sender in (("b1", "b2"), ("b2", "b1"), ("b1", "nobody")):
                assert f" of {link_subject(to, sender)} has no mark" in overlay.said
            await is_gone(streams)
            # They also come back with what is stored.
            for broker in overlay.brokers.values():
                broker.kill()
                broker.start()
            await client.publish("traffic", {"speed": 6.0})
            assert (await anext(subscription))["speed"] == 6.0
            await connection.close()

    async def is_gone(streams: JetStream) -> None:
        async def is_so() -> bool:
            return not await streams.subjects(input_stream("b1"), link_subject("b1", "nobody"))

        await eventually(is_so)

    run(test())


async def flood(streams: JetStream, subject: str) -> None:
    while True:
        await streams.store(subject, os.urandom(40))
        await asyncio.sleep(0.05)


def test_a_stranger_who_goes_on_storing_what_does_not_belong_stops_nobody(live: Callable[..., Live]) -> None:
    async def test() -> None:
        overlay = live(("b1", "b2"))
        await overlay.start()
        async with (
            catchment.connect(overlay.url, broker="b1") as one,
            catchment.connect(overlay.url, broker="b2") as other,
            asyncio.timeout(60),
        ):
            subscription = await other.subscribe(ALL)
            await one.advertise("traffic")
            connection = await open_connection(overlay.url, "stranger")
            stranger = asyncio.create_task(flood(JetStream(connection), link_subject("b2", "b1")))
            for number in range(30):
                await one.publish("traffic", {"speed": float(number)})
                await asyncio.sleep(0.02)
            assert [(await anext(subscription))["speed"] for _ in range(30)] == [float(one) for one in range(30)]
            stranger.cancel()
            await connection.close()
        assert all(broker.is_alive for broker in overlay.brokers.values()), overlay.said

    run(test())


def test_a_server_that_comes_back_empty_is_refused(live: Callable[..., Live], tmp_path: Any) -> None:
    async def test() -> None:
        overlay = live()
        await overlay.start()
        client = await catchment.connect(overlay.url)
        await client.publish("traffic", {"speed": 1.0})
        await client.close()
        overlay.server.kill()
        (tmp_path / "server" / "streams").rename(tmp_path / "lost")
        await asyncio.to_thread(overlay.server.start)
        assert await asyncio.to_thread(lambda: overlay.brokers["b1"].exit_code) == 2
        assert "CheckpointError: the server has lost what it stored for broker 'b1'" in overlay.said

    run(test())


def test_a_snapshot_of_another_overlay_is_refused_by_name(live: Callable[..., Live]) -> None:
    async def test() -> None:
        overlay = live(("b1", "b2"))
        await overlay.start()
        async with catchment.connect(overlay.url, broker="b1"):
            pass
        other = Live(overlay.server, overlay.log.parent, [("b1", "b3")])
        with pytest.raises(ConfigurationError, match="the server has another overlay: brokers is"):
            await other.start()

    run(test())


@pytest.mark.parametrize("mark", [Mark(), Mark(3, 17, (17,)), Mark(4, 20, (3, 9, 20)), Mark(1, 2, ())])
def test_a_mark_is_read_as_it_was_written(mark: Mark) -> None:
    assert Mark.from_text(mark.to_text()) == mark


@pytest.mark.parametrize("text", ["", "v1", "v1 1 x", "v1 1 2 3+x", "1 2 3"])
def test_a_mark_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(CheckpointError, match="accepted are v1, two numbers, and ends"):
        Mark.from_text(text)


@pytest.mark.parametrize("name", ["b1", "a.b c>*/\\", "Zürich", "=2E", "x_y", "日本"])
def test_names_are_tokens_and_back(name: str) -> None:
    assert untoken(token(name)) == name
    assert not set(token(name)) & set(". *>/\\_")


def test_a_description_says_all_that_brokers_agree_on(live: Callable[..., Live]) -> None:
    overlay = live(("b1", "b2"), ("b2", "b3"), placement="cover", lateness_us=5)
    found: Description = overlay.description
    assert found.neighbours("b2") == ("b1", "b3")
    assert found.overlay == overlay.overlay


def test_a_snapshot_is_whole_only_after_all_its_frames_are_stored(
    live: Callable[..., Live], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Replay begins behind a snapshot: a frame of before that was not stored would be lost."""

    async def test() -> None:
        overlay = live(("b1", "b2"))
        connection = await open_connection(overlay.url, "test")
        streams, held_links = JetStream(connection), list[Link]()
        send_next = Link._send_next
        found = overlay.description
        await found.store(streams)
        broker = LiveBroker(
            "b1", found.neighbours("b1"), found.settings, found.advice, overlay.url,
            options=LiveOptions(snapshot_every_s=0.0),
        )  # fmt: skip
        running = asyncio.create_task(broker.run())
        await broker.serving.wait()
        monkeypatch.setattr(Link, "_send_next", lambda link: held_links.append(link))  # noqa: PLW0108  (a method)
        client = await catchment.connect(overlay.url, broker="b1")
        advertising = asyncio.create_task(client.advertise("traffic"))

        async def is_sent() -> bool:
            # A snapshot may have been whole before there was a frame: the next one begins after another step.
            await streams.store(control_subject("b1"), item_to_bytes(Woken()))
            life = broker._life
            return life is not None and bool(life._links["b2"].frames) and life._snapshots.is_writing

        await eventually(is_sent)
        held = broker.position
        for _ in range(20):
            await streams.store(control_subject("b1"), item_to_bytes(Woken()))

        async def position() -> int:
            """Of the newest snapshot that is whole."""
            subjects = await streams.subjects(snapshot_stream("b1"), snapshot_subject("b1", "*"))
            found = [await streams.last(snapshot_stream("b1"), one) for one in subjects]
            pieces = [SnapshotPiece.read(one.data).head for one in found if one is not None and one.data]
            # Pieces may be dropped between the two questions, as a newer snapshot is whole.
            return max((head.position for head in pieces if head.is_last), default=0)

        assert await position() < held
        monkeypatch.setattr(Link, "_send_next", send_next)
        held_links[0]._send_next()

        async def is_whole() -> bool:
            await streams.store(control_subject("b1"), item_to_bytes(Woken()))
            return await position() >= held

        await eventually(is_whole)
        advertising.cancel()
        await client.close()
        broker.stop()
        await running
        await connection.close()

    run(test())
