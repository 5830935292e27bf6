"""A NATS server on the loopback interface, and overlays of real processes on it."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from catchment import Overlay, Schema
from catchment.broker.aggregation import AggregationOptions
from catchment.broker.gateway import GatewayOptions
from catchment.transport.client import Client
from catchment.transport.credentials import OPEN, Credentials
from catchment.transport.description import Description
from catchment.transport.history import Kept
from catchment.transport.jetstream import JetStream
from catchment.transport.running import LiveBroker
from catchment.transport.server import Server
from catchment.transport.wire import open_connection
from tests.transport.processes import BrokerProcess, warm_up

DEADLINE_S = 240.0
STORE_BYTES = 20_000_000
"""Of a server whose store is soon full."""
SCHEMAS = {"traffic": Schema({"speed": "float", "highway": "string", "vehicles": "int"})}


def run(test: Coroutine[Any, Any, None], within_s: float = DEADLINE_S) -> None:
    """Run a test's coroutine, bounded in time."""
    asyncio.run(asyncio.wait_for(test, within_s))


async def eventually(condition: Callable[[], Awaitable[bool]], within_s: float = 90.0) -> None:
    """Wait until something is so."""
    async with asyncio.timeout(within_s):
        while not await condition():
            await asyncio.sleep(0.02)


def fall_silent(client: Client) -> None:
    """Let a client give no more signs of life."""
    assert client._beating is not None
    client._beating.cancel()


async def vanish(client: Client) -> None:
    """End a client as `kill -9` would: without a word to its broker."""
    fall_silent(client)
    assert client._task is not None
    client._task.cancel()
    await client._connection.close()


class Live:
    """An overlay of processes."""

    def __init__(self, server: Server, folder: Path, links: list[tuple[str, str]], **how: Any) -> None:
        self.server, self.log = server, folder / "brokers.log"
        self.overlay = Overlay.from_links(links) if links else Overlay.single("b1")
        how = {"idle_after_us": 3_600_000_000, **how}
        self.options: dict[str, Any] = how.pop("options", {})
        self._operator: Credentials = how.pop("operator", OPEN)
        of_brokers: Credentials = how.pop("of_brokers", OPEN)
        more, schemas = how.pop("more", {}), how.pop("schemas", SCHEMAS)
        gateway = GatewayOptions(lease_us=how.pop("gateway_lease_us", 30_000_000))
        history: Kept | None = how.pop("history", None)
        self.description = Description.of(self.overlay, schemas, AggregationOptions(**how), gateway, history, **more)
        self.brokers = {
            name: BrokerProcess(name, server.url, self.log, credentials=of_brokers, **self.options)
            for name in self.overlay.brokers
        }

    @property
    def url(self) -> str:
        return self.server.url

    async def start(self, only: Iterable[str] | None = None) -> None:
        """Store what the overlay is, and start all brokers or some."""
        connection = await open_connection(self.url, "test", self._operator)
        try:
            await self.description.store(JetStream(connection))
        finally:
            await connection.close()
        for name in self.brokers if only is None else only:
            self.brokers[name].start()

    def in_process(self, name: str) -> LiveBroker:
        """A broker in the process of the test."""
        found = self.description
        return LiveBroker(name, found.neighbours(name), found.settings, found.advice, self.url)

    def stop(self) -> None:
        for broker in self.brokers.values():
            broker.stop()

    @property
    def said(self) -> str:
        """What brokers have reported."""
        return self.log.read_text() if self.log.exists() else ""


@pytest.fixture(scope="session", autouse=True)
def _compiled() -> None:
    """No test's deadline runs while something is compiled, which takes minutes where it is for the first time."""
    warm_up(within_s=900.0)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with Server(tmp_path / "server") as server:
        yield server


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Server]:
    with Server(tmp_path / "small", store_bytes_max=STORE_BYTES) as server:
        yield server


@pytest.fixture
def live(server: Server, tmp_path: Path) -> Iterator[Callable[..., Live]]:
    made: list[Live] = []

    def make(*links: tuple[str, str], **how: Any) -> Live:
        made.append(Live(server, tmp_path, list(links), **how))
        return made[-1]

    yield make
    for one in made:
        one.stop()
