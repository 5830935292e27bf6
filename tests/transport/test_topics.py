"""Topics and attributes are added to an overlay that runs, and to one that is started again with a longer file."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner

from catchment.app.main import app
from catchment.model.errors import CatchmentError
from catchment.transport.client import Client, Subscription
from catchment.transport.description import Description
from catchment.transport.history import Kept
from catchment.transport.http_gateway import HttpGateway
from catchment.transport.http_server import Request
from catchment.transport.jetstream import JetStream
from catchment.transport.status import figures_of
from catchment.transport.wire import open_connection
from tests.transport.conftest import Live, eventually, run


async def command(overlay: Live, *arguments: str, code: int = 0) -> str:
    """What a command prints, run beside the overlay."""
    given = [*arguments, "--server", overlay.url]
    found = await asyncio.to_thread(CliRunner().invoke, app, given, env={"COLUMNS": "200"})
    assert found.exit_code == code, found.output
    return found.output


async def taken(subscription: Subscription, count: int) -> list[Any]:
    async with asyncio.timeout(60):
        return [await anext(subscription) for _ in range(count)]


def test_what_is_added_is_used_at_once_and_survives_kills(live: Callable[..., Live]) -> None:
    async def test() -> None:
        overlay = live(("b1", "b2"), ("b2", "b3"))
        await overlay.start()
        publisher = await Client(overlay.url, broker="b1").open()
        subscriber = await Client(overlay.url, broker="b3").open()
        everything = await subscriber.subscribe("SELECT * FROM traffic", name="all")
        counted = await subscriber.subscribe("SELECT count(*) FROM traffic GROUP BY window(ts, '1 second')")
        await publisher.publish("traffic", {"ts": 1_000_000, "speed": 1.0})
        with pytest.raises(CatchmentError, match="has lane"):
            await publisher.publish("traffic", {"speed": 2.0, "lane": 1})
        said = await command(overlay, "topics", "add", "traffic", "lane:int")
        assert said == "traffic has speed:float, highway:string, vehicles:int, lane:int\n"
        await publisher.publish("traffic", {"ts": 1_000_001, "speed": 2.0, "lane": 1})
        second = await subscriber.subscribe("SELECT lane FROM traffic WHERE lane = 2", name="second")
        by_lane = await subscriber.subscribe("SELECT sum(lane) FROM traffic GROUP BY window(ts, '1 second'), lane")
        for name in ("b1", "b2", "b3"):
            overlay.brokers[name].kill()
            overlay.brokers[name].start()
        await publisher.publish("traffic", [{"ts": 3_000_000, "lane": 2}, {"ts": 3_000_001, "speed": 9.0}])
        await publisher.publish("traffic", {"ts": 5_000_000, "lane": 3})
        found = await taken(everything, 5)
        assert [one.get("lane") for one in found] == [None, 1, 2, None, 3]
        assert [one["lane"] for one in await taken(second, 1)] == [2]
        assert [(one.start_us, one.value) for one in await taken(counted, 2)] == [(1_000_000, 2), (3_000_000, 2)]
        assert sorted((one.group["lane"] or "", one.value) for one in await taken(by_lane, 2)) == [("", None), ("2", 2)]
        await publisher.close()
        await subscriber.close()

    run(test())


def test_a_new_topic_is_published_and_subscribed_to_by_clients_that_were_there(live: Callable[..., Live]) -> None:
    async def test() -> None:
        overlay = live(("b1", "b2"), history=Kept(keep_us=3_600_000_000))
        await overlay.start()
        publisher = await Client(overlay.url, broker="b1").open()
        subscriber = await Client(overlay.url, broker="b2").open()
        with pytest.raises(CatchmentError, match="unknown topic 'weather'; known are traffic"):
            await publisher.publish("weather", {"rain": 1.5})
        await command(overlay, "topics", "add", "weather", "rain:float")
        wet = await subscriber.subscribe("SELECT rain FROM weather WHERE rain > 1")
        await publisher.publish("weather", [{"rain": 1.5}, {"rain": 0.5}])
        await command(overlay, "topics", "add", "weather", "place:string")
        await publisher.publish("weather", {"rain": 2.5, "place": "here"})
        assert [one["rain"] for one in await taken(wet, 2)] == [1.5, 2.5]
        past = await subscriber.subscribe("SELECT * FROM weather WHERE place = 'here' OR rain < 1", since="1 hour")
        assert [one["rain"] for one in await taken(past, 2)] == [0.5, 2.5]
        gateway = HttpGateway(overlay.url, overlay.description)
        await gateway.start()
        listed = await gateway.handle(Request("GET", ("topics",), {}, {}, b""))
        assert listed.value["topics"]["weather"] == {"rain": "float", "place": "string"}
        answer = await gateway.handle(Request("POST", ("topics", "weather", "events"), {}, {}, b'{"rain": 3.0}'))
        await command(overlay, "topics", "add", "weather", "snow:bool")
        body = b'{"rain": 4.0, "snow": true}'
        again = await gateway.handle(Request("POST", ("topics", "weather", "events"), {}, {}, body))
        assert (answer.status, again.status) == (200, 200)
        assert [one["rain"] for one in await taken(wet, 2)] == [3.0, 4.0]
        await gateway.stop()
        await publisher.close()
        await subscriber.close()

    run(test())


def test_a_broker_that_was_down_knows_before_it_takes_what_uses_it(live: Callable[..., Live]) -> None:
    async def test() -> None:
        overlay = live(("b1", "b2"))
        await overlay.start(only=["b1"])
        publisher = await Client(overlay.url, broker="b1").open()
        said = json.loads(await command(overlay, "topics", "add", "traffic", "lane:int", "--json"))
        assert said["away"] == ["b2"]
        overlay.brokers["b2"].start()
        subscriber = await Client(overlay.url, broker="b2").open()
        first = await subscriber.subscribe("SELECT * FROM traffic WHERE lane = 1")
        await publisher.publish("traffic", [{"lane": 1}, {"lane": 2}])
        assert [one["lane"] for one in await taken(first, 1)] == [1]
        await publisher.close()
        await subscriber.close()

    run(test())


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["traffic", "speed:int"], "attribute 'speed' of topic 'traffic' is of type float"),
        (["traffic", "SPEED:float"], "'SPEED' differs in case alone"),
        (["traffic", "lane"], "an attribute is given as 'lane'; accepted is name:type"),
        (["traffic", "lane:list"], "attribute 'lane' has type list"),
        (["traffic", "lane:int", "lane:float"], "is given as int and as float"),
    ],
)
def test_what_cannot_be_added_is_refused_by_name(
    live: Callable[..., Live], arguments: list[str], complaint: str
) -> None:
    async def test() -> None:
        overlay = live()
        await overlay.start(only=[])
        said = await command(overlay, "topics", "add", *arguments, code=2)
        assert complaint in " ".join(said.split())
        assert json.loads(await command(overlay, "topics", "--json")) == overlay.description.topics

    run(test())


def test_a_longer_description_is_applied_a_shorter_one_keeps_what_is_there_another_type_is_refused(
    live: Callable[..., Live],
) -> None:
    async def test() -> None:
        overlay = live(("b1", "b2"))
        await overlay.start()
        more = {**overlay.description.topics, "weather": {"rain": "float"}}
        more["traffic"] = {**more["traffic"], "lane": "int"}
        connection = await open_connection(overlay.url, "test")
        streams = JetStream(connection)

        async def stored(topics: dict[str, dict[str, str]]) -> Description:
            return await msgspec.structs.replace(overlay.description, topics=topics).store(streams)

        longer = await stored(more)
        assert longer.known_topics == more
        assert longer.topics == overlay.description.topics

        async def is_known() -> bool:
            found = await figures_of(connection, ["b1", "b2"])
            return all(one is not None and one.topics == more for one in found.values())

        await eventually(is_known)
        assert (await overlay.description.store(streams)).known_topics == more
        with pytest.raises(
            CatchmentError, match="attribute 'lane' of topic 'traffic' is of type int; accepted is that"
        ):
            await stored({"traffic": {"lane": "string"}})
        assert (await Description.read(streams)).known_topics == more
        await connection.close()

    run(test())


def test_a_topic_is_placed_anew_while_events_come_and_brokers_are_killed(live: Callable[..., Live]) -> None:
    async def test() -> None:
        overlay = live(("b1", "b2"), ("b2", "b3"), placement="late")
        await overlay.start()
        publisher = await Client(overlay.url, broker="b1").open()
        subscriber = await Client(overlay.url, broker="b3").open()
        sql = "SELECT count(*), sum(speed) FROM traffic GROUP BY window(ts, '10 seconds', '5 seconds')"
        values = await subscriber.subscribe(sql)
        sent = 0

        async def publish() -> None:
            nonlocal sent
            rows = [{"ts": (sent + n) * 1_000_000, "speed": 1.0} for n in range(7)]
            await publisher.publish("traffic", rows)
            sent += len(rows)

        await publish()
        for number, placement in enumerate(("early", "cover", "adaptive", "cover", "late", "early")):
            changing = asyncio.create_task(command(overlay, "topics", "place", "traffic", placement))
            await publish()
            overlay.brokers[f"b{number % 3 + 1}"].kill()
            overlay.brokers[f"b{number % 3 + 1}"].start()
            await publish()
            assert (await changing).startswith(f"traffic is placed {placement}\n")
            await publish()
        found = await taken(values, 2 * (sent // 5 - 2))
        assert {one.value for one in found if one.start_us >= 0} == {10.0}
        assert len({(one.start_us, one.output) for one in found}) == len(found)
        connection = await open_connection(overlay.url, "test")

        async def is_early() -> bool:
            found = await figures_of(connection, overlay.brokers)
            return all(one is not None and one.placements == {"traffic": "early"} for one in found.values())

        await eventually(is_early)
        before = (await figures_of(connection, ["b2"]))["b2"]
        for _ in range(3):
            await publish()
        assert {one.value for one in await taken(values, 2 * (sent // 5 - 2) - len(found))} == {10.0}
        after = (await figures_of(connection, ["b2"]))["b2"]
        assert before is not None
        assert after is not None
        sent_by = [one.links["b3"].messages_out for one in (before, after)]
        assert sent_by[0].get("publications", 0) == sent_by[1].get("publications", 0)
        assert sent_by[0].get("partials", 0) < sent_by[1]["partials"]
        await connection.close()
        said = await command(overlay, "topics", "place", "traffic", "optimal", code=2)
        assert "placement is 'optimal'; accepted are late, early" in " ".join(said.split())
        await publisher.close()
        await subscriber.close()

    run(test())
