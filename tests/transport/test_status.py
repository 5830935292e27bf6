"""What an operator asks the processes of an overlay: figures, and who has subscribed to what."""

import asyncio
from collections.abc import Callable
from io import StringIO

import msgspec
import pytest
from rich.console import Console

import catchment
from catchment.app.showing import LinkRates, cpu_share, link_rates, overlay_json, overlay_tables
from catchment.model.errors import TransportError
from catchment.transport.figures import Counts, LinkFigures
from catchment.transport.names import status_subject
from catchment.transport.status import figures_of, subscriptions_of
from catchment.transport.wire import open_connection
from tests.transport.conftest import Live, run


def test_an_overlay_shows_who_is_up_and_who_asks_what(
    live: Callable[..., Live], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        overlay = live(("b1", "b2"))
        await overlay.start(only=[])
        broker = overlay.in_process("b1")
        task = asyncio.create_task(broker.run())
        await broker.serving.wait()
        connection = await open_connection(overlay.url, "test")
        before = await figures_of(connection, ["b1", "b2"])
        assert before["b2"] is None
        # No neighbour is there to confirm anything: only what nobody else has to know is acknowledged.
        async with catchment.connect(overlay.url, broker="b1", name="away", durable=True) as client:
            for name in ("one", "two", "three"):
                await client.subscribe(f"SELECT * FROM traffic WHERE highway = '{name}'", name=name)
        async with catchment.connect(overlay.url, broker="b1", name="here") as client:
            await client.subscribe("SELECT * FROM traffic", name="all")
            now = await figures_of(connection, ["b1", "b2"])
            found = now["b1"]
            assert found is not None
            assert (found.state, found.clients_here, found.clients_parked, found.subscriptions) == ("serving", 1, 1, 4)
            assert found.topics == overlay.description.topics
            monkeypatch.setattr("catchment.transport.status.PAGE_COUNT", 2)
            listed = [one async for one in subscriptions_of(connection, "b1")]
            monkeypatch.setattr("catchment.transport.status.PAGE_BYTES", 1)
            assert [one async for one in subscriptions_of(connection, "b1")] == listed
        assert [(one.client, one.name, one.is_durable, one.is_parked) for one in listed] == [
            ("anyone/away", "one", True, True),
            ("anyone/away", "three", True, True),
            ("anyone/away", "two", True, True),
            ("anyone/here", "all", False, False),
        ]
        assert (listed[0].broker, listed[0].topic, listed[3].sql) == ("b1", "traffic", "SELECT * FROM traffic")
        with pytest.raises(TransportError, match="'b2' does not answer"):
            [one async for one in subscriptions_of(connection, "b2")]
        connection.publish(status_subject("b1", "figures"), b"", reply="catchment.control.b1")
        assert (await figures_of(connection, ["b1"]))["b1"] is not None
        shown = overlay_json(before, now)
        assert [one["state"] for one in shown["brokers"]] == ["serving", "down"]
        rates = link_rates(before, now)
        assert [(one.source, one.target) for one in rates] == [("b1", "b2"), ("b1", "clients")]
        assert rates[1].frames > 0
        await connection.close()
        broker.stop()
        await task

    run(test())


def test_tables_fit_into_eighty_columns() -> None:
    one = Counts("a-broker-with-a-long-name", ["b2"]).figures(123_456_789, None)
    one = msgspec.structs.replace(one, state="disconnected", inputs_waiting=123_456, lag_s=4_000.0, clients_here=1_000,
        clients_parked=100, subscriptions=100_000, snapshot_age_s=7_000.0, time_s=1.0, cpu_s=1.0)  # fmt: skip
    link = LinkFigures(frames_out=90_000, bytes_out=123_456_789, frames_waiting=12_345)
    link.messages_out = {"publications": 1_234_567, "partials": 123_456, "control": 12_345}
    later = msgspec.structs.replace(one, time_s=3.0, cpu_s=2.5, clients=link, links={"b2": link})
    before, now = {one.broker: one, "b2": None}, {one.broker: later, "b2": None}
    console = Console(width=80, file=StringIO())
    console.print(overlay_tables(before, now))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "down" in text
    assert "62 MB" in text
    assert "617k" in text
    assert "…" not in text.replace("a-broker-wi…", "")
    assert cpu_share(before, now) == {"a-broker-with-a-long-name": 0.75}
    assert link_rates(before, now)[0] == LinkRates(
        "a-broker-with-a-long-name", "b2", 617_283.5, 61_728.0, 6_172.5, 45_000.0, 61_728_394.5, 12_345
    )
    restarted = msgspec.structs.replace(later, process=later.process + 1)
    assert link_rates(before, {one.broker: restarted}) == []
