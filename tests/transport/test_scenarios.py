"""The transcripts of `tests/scenarios/` over a real server: the same messages on every link, the same for subscribers.

Here and in the simulation that this is held to, each command is carried out when nothing is under way any more: what
happens at once comes in any order over a network. Where a transcript depends on the clock, its microseconds are
milliseconds here, and only what subscribers get in the end is compared.
"""

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

import catchment
from catchment.broker.aggregation.describing import Describer
from catchment.broker.client import WindowValue
from catchment.simulation.tap import Tap
from catchment.transport.client import Client
from catchment.transport.jetstream import JetStream
from catchment.transport.names import input_stream, link_subject
from catchment.transport.status import figures_of
from catchment.transport.wire import Connection, open_connection
from tests.scenarios.playing import FILES, Timed, commands, event_of, setting
from tests.transport.conftest import SCHEMAS, Live, eventually, run
from tests.transport.streams import everything

CLOCKED = ("windows-revisions", "windows-silence")
UNTIMED = [file for file in FILES if file.stem not in CLOCKED]
SLOWER = 1000
"""How much slower a transcript is played that depends on the clock."""

Lines = Mapping[tuple[str, str], list[str]]
"""What was sent, by sender and receiver, in order."""
Received = Mapping[tuple[str, str], list[Any]]
"""By client and subscription: ids of events, or values of windows."""


def simulated(text: str, placement: str) -> tuple[Lines, Received]:
    """What happens when one command after the other is carried out in a simulation."""
    overlay, *rest = commands(text)
    links, settings = setting(overlay)
    world = Timed(
        links, {name: value for name, value in settings.items() if name != "summary"} | {"placement": placement}
    )
    for line in rest:
        world.command(line)
        world.rest()
    lines = defaultdict[tuple[str, str], list[str]](list)
    for line in world.trace:
        _, source, _, target, message = line.split(" ", maxsplit=4)
        if source in links.brokers and target in links.brokers:
            lines[source, target].append(message)
    received = {
        (name, wish.name): [*wish.received, *(value for _, value in wish.values)]
        for name, client in world.clients.items()
        for wish in (*client.past, *client.wishes.values())
    }
    return lines, received


class Player:
    """Carries out commands with clients of a running overlay."""

    def __init__(self, overlay: Live, connection: Connection, stack: AsyncExitStack, begin_us: int = 0) -> None:
        self._overlay, self._connection, self._stack = overlay, connection, stack
        self._begin_us, self._scale = begin_us, SLOWER if begin_us else 1
        self._clients: dict[str, Client] = {}
        self.received: dict[tuple[str, str], list[Any]] = {}

    async def command(self, line: str) -> None:
        what, *rest = line.split(maxsplit=3 if line.startswith("subscribe") else -1)
        if what == "run":
            await self._wait(int(rest[0].removeprefix("until=")))
            return
        name = rest[0]
        if name not in self._clients:
            connecting = catchment.connect(self._overlay.url, broker=name.split("/")[0])
            self._clients[name] = await self._stack.enter_async_context(connecting)
        client = self._clients[name]
        if what == "advertise":
            await client.advertise(rest[1])
        elif what == "unadvertise":
            await client.unadvertise(rest[1])
        elif what == "subscribe":
            sql = rest[2].replace("millisecond", "second") if self._begin_us else rest[2]
            subscription = await client.subscribe(sql, name=rest[1])
            got = self.received[name, rest[1]] = []
            self._stack.callback(asyncio.create_task(_read(subscription, got)).cancel)
        elif what == "unsubscribe":
            await client.unsubscribe(rest[1])
        elif what == "publish":
            given = dict(word.split("=") for word in rest[1:])
            at = int(given.pop("at"))
            await self._wait(at)
            await client.publish("traffic", event_of(given, self._begin_us + at * self._scale))
        else:
            raise ValueError(f"{what!r} is no command")

    async def _wait(self, until: int) -> None:
        """Let time pass, where it matters."""
        if self._begin_us:
            due_us = self._begin_us + until * self._scale
            await asyncio.sleep(max(due_us - time.time_ns() // 1000, 0) / 1e6)

    async def rest(self) -> None:
        """Wait until all that was sent has been handled, by brokers and by subscribers."""

        async def is_at_rest() -> bool:
            brokers = self._overlay.overlay.brokers
            before = await self._bytes_sent(brokers)
            return before is not None and before == await self._bytes_sent(brokers)

        await eventually(is_at_rest)

    async def _bytes_sent(self, brokers: Iterable[str]) -> list[int] | None:
        """How much was sent over each link; None if something of it has not been handled."""
        found = await figures_of(self._connection, brokers)
        counts = []
        for name, figures in found.items():
            if figures is None or figures.state != "serving" or figures.inputs_waiting:
                return None
            for neighbour, link in figures.links.items():
                other = found[neighbour]
                if link.frames_waiting or other is None or other.links[name].bytes_in != link.bytes_out:
                    return None
                counts.append(link.bytes_out)
        return counts


async def _read(subscription: Any, into: list[Any]) -> None:
    async for one in subscription:
        into.append(one if isinstance(one, WindowValue) else one["event_id"])  # noqa: PERF401  (read while it grows)


async def sent(connection: Connection, overlay: Live) -> Lines:
    """What brokers have sent to each other, as transcripts show it."""
    streams, tap, describe = JetStream(connection), Tap(), Describer(SCHEMAS)
    senders = {
        link_subject(name, other): (other, name)
        for name in overlay.overlay.brokers
        for other in overlay.description.neighbours(name)
    }
    stored = [one for name in overlay.overlay.brokers for one in await everything(streams, input_stream(name))]
    lines = defaultdict[tuple[str, str], list[str]](list)
    # The describer numbers questions as they come.
    for one in sorted(stored, key=lambda one: one.at_us):
        if one.subject in senders and one.data:
            source, target = senders[one.subject]
            lines[source, target] += [describe(message) for message in tap.messages(source, target, one.data)]
    return lines


@pytest.mark.parametrize("file", UNTIMED, ids=lambda file: file.stem)
def test_links_carry_what_the_transcript_says(live: Callable[..., Live], file: Path) -> None:
    overlay_line, *rest = commands(file.read_text())
    overlay, settings = setting(overlay_line)
    placement = settings.get("placement", "late")
    expected, expected_values = simulated(file.read_text(), placement)
    running = live(*overlay.links, placement=placement)

    async def test() -> None:
        await running.start()
        connection = await open_connection(running.url, "test")
        async with AsyncExitStack() as stack:
            player = Player(running, connection, stack)
            await player.rest()  # Brokers do not count what came before they served.
            for line in rest:
                await player.command(line)
                await player.rest()
            assert await sent(connection, running) == expected

            async def all_is_there() -> bool:
                return player.received == expected_values

            await eventually(all_is_there)
        await connection.close()

    run(test())


@pytest.mark.parametrize("name", CLOCKED)
def test_windows_close_by_the_clock_as_the_transcript_says(live: Callable[..., Live], name: str) -> None:
    text = next(file for file in FILES if file.stem == name).read_text()
    overlay_line, *rest = commands(text)
    overlay, settings = setting(overlay_line)
    while rest[-1].startswith("run"):
        rest.pop()  # The test waits for what is expected instead.
    expected = last_values(simulated(text, settings["placement"])[1])
    slower = {of: int(value) * SLOWER for of, value in settings.items() if of in ("idle_after_us", "lateness_us")}
    running = live(
        *overlay.links, placement=settings["placement"], delivery=settings.get("delivery", "final"), **slower
    )

    async def test() -> None:
        await running.start()
        connection = await open_connection(running.url, "test")
        async with AsyncExitStack() as stack:
            preparing = [line for line in rest if not line.startswith(("publish", "run"))]
            player = Player(running, connection, stack, begin_us=1)
            for line in preparing:
                await player.command(line)
            # The windows of the transcript begin at the next second but one, which is in time for its first event.
            begin_us = player._begin_us = (time.time_ns() // 10**9 + 2) * 1_000_000
            for line in rest:
                if line not in preparing:
                    await player.command(line)

            async def all_is_there() -> bool:
                return last_values(player.received, begin_us) == expected

            await eventually(all_is_there)
        await connection.close()

    run(test())


def last_values(received: Received, begin_us: int | None = None) -> set[tuple[Any, ...]]:
    """The last revision of every value, in the time of the transcript."""
    last: dict[tuple[Any, ...], WindowValue] = {}
    for key, values in received.items():
        for value in values:
            start = value.start_us if begin_us is None else (value.start_us - begin_us) // SLOWER
            last[*key, start, value.output] = value
    return {(*key, value.value, value.publications) for key, value in last.items()}
