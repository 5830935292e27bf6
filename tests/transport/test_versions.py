"""What another version, another overlay or another clock has left on a server."""

import asyncio
from collections.abc import Callable
from typing import Any, cast

import msgspec
import pytest

import catchment
from catchment.broker.hosting import Mark
from catchment.broker.inputs import Item, Woken
from catchment.broker.snapshot_pieces import FORMAT, SnapshotPiece
from catchment.model.errors import CatchmentError, CheckpointError, VersionError
from catchment.transport import notices
from catchment.transport.buckets import Bucket
from catchment.transport.context import LifeContext, LiveOptions
from catchment.transport.description import BUCKET, KEY, Description
from catchment.transport.figures import Counts
from catchment.transport.jetstream import JetStream
from catchment.transport.marks import MARK, newest_marked
from catchment.transport.names import input_stream, link_subject, snapshot_stream, snapshot_subject
from catchment.transport.notices import Notices, Timer
from catchment.transport.reports import keep_silent
from catchment.transport.wire import open_connection
from tests.transport.conftest import Live, run


def test_a_description_of_another_version_is_refused_by_name(live: Callable[..., Live]) -> None:
    async def test() -> None:
        overlay = live()
        connection = await open_connection(overlay.url, "test")
        streams = JetStream(connection)
        bucket = Bucket(streams, BUCKET)
        await bucket.create()
        later = msgspec.json.decode(msgspec.json.encode(overlay.description)) | {"version": 2}
        await bucket.write(KEY, msgspec.json.encode(later), 0)
        for attempt in (Description.read(streams), overlay.description.store(streams)):
            with pytest.raises(CatchmentError, match="the server's overlay is described in version 2; accepted is 1"):
                await attempt
        await connection.close()

    run(test())


async def edited(overlay: Live, edit: Callable[[JetStream], Any]) -> str:
    """What a broker says that finds something else than it has stored."""
    await overlay.start()
    async with catchment.connect(overlay.url, broker="b1") as client:
        await client.advertise("traffic")
    broker = overlay.brokers["b1"]
    broker.stop()
    connection = await open_connection(overlay.url, "test")
    await edit(JetStream(connection))
    await connection.close()
    broker.start()
    assert await asyncio.to_thread(lambda: broker.exit_code) == 2
    return overlay.said.splitlines()[-1]


def test_a_snapshot_of_another_version_is_refused_by_name(live: Callable[..., Live]) -> None:
    async def edit(streams: JetStream) -> None:
        for subject in await streams.subjects(snapshot_stream("b1"), snapshot_subject("b1", "*")):
            piece = await streams.last(snapshot_stream("b1"), subject)
            if piece is not None and piece.data:
                await streams.store(subject, piece.data[:4] + (FORMAT + 1).to_bytes(2, "big") + piece.data[6:])

    async def test() -> None:
        said = await edited(live(), edit)
        assert f"CheckpointError: a piece of a snapshot has the format {FORMAT + 1}; accepted is {FORMAT}" in said

    run(test())


def test_a_snapshot_of_another_broker_is_refused_by_name(live: Callable[..., Live]) -> None:
    async def edit(streams: JetStream) -> None:
        for subject in await streams.subjects(snapshot_stream("b1"), snapshot_subject("b1", "*")):
            found = await streams.last(snapshot_stream("b1"), subject)
            if found is not None and found.data:
                piece = SnapshotPiece.read(found.data)
                other = SnapshotPiece.of(msgspec.structs.replace(piece.head, broker="b7"), piece.body)
                await streams.store(subject, other.data)

    async def test() -> None:
        said = await edited(live(), edit)
        assert "of the snapshot of 'b7' at" in said
        assert said.endswith("is stored; accepted are pieces of 'b1'")

    run(test())


def test_a_mark_of_another_version_is_refused_by_name_and_stays(live: Callable[..., Live]) -> None:
    subject = link_subject("b2", "b1")

    async def edit(streams: JetStream) -> None:
        overlay.brokers["b2"].stop()
        await streams.store(subject, b"", headers={MARK: "v2 anything"})

    async def test() -> None:
        said = await edited(overlay, edit)
        assert "VersionError: a frame is marked in version v2; accepted is v1" in said
        # Whoever reads its link finds it as well, and deletes nothing.
        overlay.brokers["b2"].start()
        assert await asyncio.to_thread(lambda: overlay.brokers["b2"].exit_code) == 2
        connection = await open_connection(overlay.url, "test")
        with pytest.raises(VersionError):
            await newest_marked(JetStream(connection), input_stream("b2"), subject, lambda line: None)
        await connection.close()

    overlay = live(("b1", "b2"))
    run(test())


@pytest.mark.parametrize("text", ["v2 1 2 3", "v10"])
def test_a_mark_says_its_version(text: str) -> None:
    assert Mark(1, 2, (2,)).to_text() == "v1 1 2 2"
    with pytest.raises(VersionError, match=f"in version {text.split(maxsplit=1)[0]}; accepted is v1"):
        Mark.from_text(text)
    with pytest.raises(CheckpointError, match="accepted are v1, two numbers, and ends"):
        Mark.from_text("1 2 2")


def test_a_server_whose_clock_steps_back_does_not_have_its_broker_woken_again_and_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    noted = list[Item]()

    class Noting:
        def note(self, item: Item) -> None:
            noted.append(item)

    class Connected:
        is_lost = False

        @property
        def connection(self) -> Any:
            return self

    context = LifeContext(
        "b1",
        (),
        LiveOptions(),
        cast(Any, Connected()),
        keep_silent,
        lambda point: None,
        cast(Any, None),
        Counts("b1", ()),
    )
    monkeypatch.setattr(notices, "_clock_us", lambda: 0)

    async def test() -> None:
        timer = Timer(context, cast(Notices, Noting()))
        timer._ahead_us = 0

        def delay_s() -> float:
            assert timer._handle is not None
            return timer._handle.when() - asyncio.get_running_loop().time()

        timer.heard(100_000_000)
        timer.set(100_500_000)
        assert 0.3 < delay_s() < 0.6
        timer._wake()
        assert noted == [Woken()]
        # That is stored when the server's clock was set back by a minute, which is to be waited for.
        timer.set(100_500_000, woken_us=40_500_000)
        assert 59 < delay_s() < 61
        timer.cancel()

    run(test())
