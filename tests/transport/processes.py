"""Brokers as processes that a test may kill."""

import asyncio
import multiprocessing
import os
import signal
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from catchment import CatchmentError, Schema
from catchment.broker.broker import Settings
from catchment.broker.hosting import Limits
from catchment.model.errors import TransportError
from catchment.transport.credentials import OPEN, Credentials
from catchment.transport.description import Description
from catchment.transport.jetstream import JetStream
from catchment.transport.leases import LeaseLostError
from catchment.transport.reports import ReportLines
from catchment.transport.running import LiveBroker
from catchment.transport.wire import ConnectionLostError, open_connection

LEASE_LOST = 3
# Modules are imported once, by a process that forks whenever a broker is started.
_processes = multiprocessing.get_context("forkserver")
_processes.set_forkserver_preload(["tests.transport.warm"])


def settings_of(schemas: Mapping[str, Schema]) -> Settings:
    return Settings(schemas=schemas)


def killed_at(fault: str | None) -> Callable[[str], None]:
    """What is called at every point of a broker's work: kills the process when it comes to one for the n-th time."""
    if fault is None:
        return lambda point: None
    wanted, _, times = fault.partition(":")
    left = int(times or 1)

    def at(point: str) -> None:
        nonlocal left
        if point == wanted:
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    return at


def be_broker(
    name: str, url: str, fault: str | None, log: str, options: Mapping[str, Any], credentials: Credentials
) -> None:
    """The main function of a broker's process."""

    def write(line: str) -> None:
        with Path(log).open("a") as file:
            file.write(f"{line}\n")

    report = ReportLines(write, "text", name)

    has_lived = False

    async def run() -> None:
        nonlocal has_lived
        connection = await open_connection(url, name, credentials)
        description = await Description.read(JetStream(connection))
        await connection.close()
        given = dict(options)
        limits = Limits(**{"client_bytes_max": 256_000_000, **given.pop("limits", {})})
        broker = LiveBroker(
            name, description.neighbours(name), description.settings, description.advice, url,
            options=replace(description.options, limits=limits, **given), credentials=credentials,
            report=report, at=killed_at(fault),
        )  # fmt: skip
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, broker.stop)
        try:
            await broker.run()
        finally:
            has_lived = broker._life is not None

    async def run_supervised() -> None:
        """Start again, as a supervisor would, where the server was not there at the first connection."""
        while True:
            try:
                return await run()
            except TransportError as error:
                if has_lived or type(error) not in (TransportError, ConnectionLostError):
                    raise
                report(f"is started again: {error}")
                await asyncio.sleep(0.05)

    try:
        asyncio.run(run_supervised())
    except LeaseLostError as error:
        report(str(error))
        os._exit(LEASE_LOST)
    except CatchmentError as error:
        report(f"{type(error).__name__}: {error}")
        os._exit(2)


def _nothing() -> None:
    """Be a process that ends at once."""


def warm_up(within_s: float) -> None:
    """Start the process that forks brokers, and wait until all is compiled that they need."""
    process = _processes.Process(target=_nothing, daemon=True)
    process.start()
    process.join(within_s)
    assert process.exitcode == 0


class BrokerProcess:
    """A broker that is started, killed and started again."""

    def __init__(self, name: str, url: str, log: Path, *, credentials: Credentials = OPEN, **options: Any) -> None:
        self.name, self.kills = name, 0
        self._url, self._log, self._options, self._credentials = url, log, options, credentials
        self._process: Any = None

    def start(self, fault: str | None = None) -> None:
        arguments = (self.name, self._url, fault, str(self._log), self._options, self._credentials)
        self._process = _processes.Process(target=be_broker, args=arguments, daemon=True)
        self._process.start()

    @property
    def is_alive(self) -> bool:
        return bool(self._process.is_alive())

    @property
    def exit_code(self) -> int | None:
        self._process.join(90)
        code: int | None = self._process.exitcode
        return code

    def kill(self) -> None:
        self._process.kill()
        self._process.join(20)
        self.kills += 1

    def stop(self) -> None:
        if self._process is not None and self._process.is_alive():
            self._process.terminate()
            self._process.join(20)
            if self._process.is_alive():
                self._process.kill()
