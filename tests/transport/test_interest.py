"""Who is listening? Asked of a running overlay."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable

import pytest

import catchment
from catchment.transport.asking import RequestRefusedError
from tests.transport.conftest import Live, eventually, run

LINKS = (("b1", "b2"), ("b2", "b3"))


def test_a_publisher_hears_of_subscriptions_as_they_come_and_go(live: Callable[..., Live]) -> None:
    overlay = live(*LINKS)

    async def test() -> None:
        await overlay.start()
        async with (
            catchment.connect(overlay.url, broker="b1") as publisher,
            catchment.connect(overlay.url, broker="b3") as reader,
        ):
            slow = await publisher.interest("traffic", where="speed < 30")
            every = await publisher.interest("traffic", tolerance=1)
            assert (slow.value, slow.slack, every.value, every.slack) == (0, 0.0, 0, 1.0)
            mine = await reader.subscribe("SELECT * FROM traffic WHERE speed < 10")
            # A subscription is acknowledged once everybody who counts it knows of it.
            await eventually(lambda: _is(slow.value, 1))
            await reader.subscribe("SELECT count(*) FROM traffic WHERE speed > 90 GROUP BY window(ts, '1 second')")
            await eventually(lambda: _is(every.value, 2))
            await reader.unsubscribe(mine)
            await eventually(lambda: _is(slow.value, 0))
            assert [await anext(slow), slow.value] == [0, 0]
            await slow.end()
            with pytest.raises(StopAsyncIteration):
                await anext(slow)
            assert await (await reader.interest("traffic", "publishers")).__anext__() == 0
            await publisher.advertise("traffic")
            watch = await reader.interest("traffic", "publishers")
            assert watch.value == 1

    run(test())


async def _is(value: object, expected: object) -> bool:
    return value == expected


def test_values_are_right_after_brokers_were_killed(live: Callable[..., Live]) -> None:
    overlay = live(*LINKS)

    async def test() -> None:
        await overlay.start()
        async with (
            catchment.connect(overlay.url, broker="b1") as publisher,
            catchment.connect(overlay.url, broker="b3") as reader,
        ):
            found = await publisher.interest("traffic")
            for number, name in enumerate(("b2", "b1", "b3"), 1):
                overlay.brokers[name].kill()
                asking = asyncio.create_task(reader.subscribe("SELECT * FROM traffic", name=f"s{number}"))
                overlay.brokers[name].start()
                await asking

                async def is_counted(number: int = number) -> bool:
                    return found.value == number

                await eventually(is_counted)

    run(test())


@pytest.mark.parametrize(
    ("asked", "named"),
    [
        ({"topic": "t"}, "unknown topic 't'"),
        ({"topic": "traffic", "function": "loves"}, "unknown interest 'loves'"),
        ({"topic": "traffic", "where": "colour = 1"}, "colour"),
        ({"topic": "traffic", "tolerance": -1}, "at least 0"),
    ],
)
def test_what_makes_no_sense_is_refused(live: Callable[..., Live], asked: dict[str, object], named: str) -> None:
    overlay = live()

    async def test() -> None:
        await overlay.start()
        async with catchment.connect(overlay.url) as client:
            with pytest.raises(RequestRefusedError, match=named):
                await client.interest(**asked)  # type: ignore[arg-type]

    run(test())


def test_the_command_prints_what_is_known(live: Callable[..., Live]) -> None:
    overlay = live()

    async def test() -> None:
        await overlay.start()
        async with catchment.connect(overlay.url) as client:
            await client.subscribe("SELECT * FROM traffic WHERE speed < 50")
            command = [sys.executable, "-m", "catchment_command", "interest", "traffic", "--where", "speed < 10"]
            done = await asyncio.to_thread(
                subprocess.run, [*command, "--server", overlay.url], capture_output=True, text=True, timeout=120
            )
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout) == {"topic": "traffic", "function": "subscriptions", "value": 1, "slack": 0.0}

    run(test())


def test_a_program_without_asyncio_asks_too(live: Callable[..., Live]) -> None:
    overlay = live()
    asyncio.run(overlay.start())
    with catchment.connect(overlay.url) as client, client.interest("traffic") as found:
        assert (found.value, found.slack) == (0, 0.0)
        client.subscribe("SELECT * FROM traffic")
        values = iter(found)
        assert next(value for value in values if value) == 1
