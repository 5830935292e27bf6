"""The processes of a bench: a server, brokers, workers that publish and subscribe; and what each takes of a core."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import tempfile
from collections.abc import Callable, Coroutine
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from types import TracebackType
from typing import Any

from catchment.broker.aggregation import AggregationOptions
from catchment.model.errors import CatchmentError, TransportError
from catchment.model.schema import Schema
from catchment.overlay import Overlay
from catchment.transport.description import Description
from catchment.transport.jetstream import JetStream
from catchment.transport.rehearsal import rehearse
from catchment.transport.running import LiveBroker
from catchment.transport.server import Server
from catchment.transport.wire import open_connection

__all__ = ["RunningOverlay", "Worker", "cpu_s", "memory_bytes"]

STOP_S = 20.0
_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["catchment.lab.live.loads", "catchment.lab.live.raw"])


class RunningOverlay:
    """A server and a process for each broker, on loopback, in a folder of its own; `with` starts and stops them."""

    def __init__(
        self, overlay: Overlay, topics: dict[str, Schema], how: AggregationOptions, durability: str = "process"
    ) -> None:
        self._described = Description.of(overlay, topics, how, durability=durability)
        self.brokers = overlay.brokers

    def __enter__(self) -> RunningOverlay:
        self._folder = tempfile.TemporaryDirectory(prefix="catchment-bench-")
        self._server = Server(Path(self._folder.name), durability=self._described.durability)
        self._server.start()
        self.url = self._server.url
        asyncio.run(self._describe())
        self._processes = {
            name: _context.Process(target=_broker_process, args=(name, self.url, self._described), daemon=True)
            for name in self.brokers
        }
        for process in self._processes.values():
            process.start()
        return self

    async def _describe(self) -> None:
        connection = await open_connection(self.url, "bench")
        try:
            await self._described.store(JetStream(connection))
        finally:
            await connection.close()

    @property
    def process_ids(self) -> dict[str, int]:
        brokers = {name: process.pid or 0 for name, process in self._processes.items()}
        return {"server": self._server.process_id, **brokers}

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self._processes.values():
            process.terminate()
        for process in self._processes.values():
            process.join(STOP_S)
            if process.is_alive():
                process.kill()
        self._server.stop()
        self._folder.cleanup()


def _broker_process(name: str, url: str, described: Description) -> None:
    """The main function of a broker's process."""

    async def run() -> None:
        broker = LiveBroker(
            name, described.neighbours(name), described.settings, described.advice, url, options=described.options
        )
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, broker.stop)
        await broker.run()

    # Here, and not where all are forked: a load is an application like any other, and has rehearsed nothing.
    rehearse()
    try:
        asyncio.run(run())
    except CatchmentError as error:
        os.write(2, f"broker {name}: {error}\n".encode())
        os._exit(2)


class Worker:
    """A process that carries out one load after the other; what each returns comes back."""

    def __init__(self) -> None:
        self._pipe, other = _context.Pipe()
        self._process = _context.Process(target=_work, args=(other,), daemon=True)
        self._process.start()

    def begin(self, load: Callable[..., Coroutine[Any, Any, Any]], *arguments: Any) -> None:
        """Begin a load, which is handed a function that tells that it is ready, and then the arguments."""
        self._pipe.send((load, arguments))

    def ready(self, within_s: float) -> None:
        """Wait until the load says that it is ready."""
        self._receive("ready", within_s)

    def result(self, within_s: float) -> Any:
        return self._receive("done", within_s)

    def _receive(self, wanted: str, within_s: float) -> Any:
        if not self._pipe.poll(within_s):
            raise TransportError(f"a load is not {wanted} within {within_s:g} seconds")
        kind, value = self._pipe.recv()
        if kind != wanted:
            raise TransportError(f"a load has failed: {value}")
        return value

    @property
    def process_id(self) -> int:
        return self._process.pid or 0

    def stop(self) -> None:
        self._process.terminate()
        self._process.join(STOP_S)


def _work(pipe: Pipe) -> None:
    while True:
        load, arguments = pipe.recv()
        try:
            result = asyncio.run(load(lambda: pipe.send(("ready", None)), *arguments))
            pipe.send(("done", result))
        except Exception as error:
            pipe.send(("failed", f"{type(error).__name__}: {error}"))


def cpu_s(process_id: int) -> float:
    """User and system time of a process, of all its threads."""
    fields = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory_bytes(process_id: int) -> int:
    """What of a process is in memory."""
    pages = int(Path(f"/proc/{process_id}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
