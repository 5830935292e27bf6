"""A running overlay: `up`, `broker`, and the clients of the shell."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from catchment.app.config import Configuration
from catchment.app.guarded import GuardedServer
from catchment.app.outside import Ports, RowTeller, Web
from catchment.app.stopping import until_stopped
from catchment.broker.aggregation import AggregationOptions
from catchment.broker.gateway import GatewayOptions
from catchment.model.errors import CatchmentError, ConfigurationError, EventError
from catchment.model.subscription import Subscription
from catchment.model.times import duration_us
from catchment.overlay import Overlay
from catchment.transport.client import Client
from catchment.transport.credentials import OPEN, Credentials
from catchment.transport.description import Description
from catchment.transport.history import Kept
from catchment.transport.http_server import HttpServer
from catchment.transport.jetstream import JetStream
from catchment.transport.leases import LeaseLostError
from catchment.transport.metrics import MetricsAnswers
from catchment.transport.permissions import Certificates
from catchment.transport.publishing import PublishedRows
from catchment.transport.rehearsal import rehearse
from catchment.transport.reports import LineFormat, ReportLines
from catchment.transport.rows import event_of_line, shown_row
from catchment.transport.running import LiveBroker
from catchment.transport.server import Server
from catchment.transport.wire import open_connection

__all__ = ["broker_forever", "described", "publish_lines", "stderr_lines", "subscribe_lines", "up"]

STOP_S = 20.0
KEPT = "7 days"
"""How far histories reach back where a subscription needs them, and the file does not say."""
WATCH_S = 0.2
READ_BYTES = 1 << 18
NO_PORTS = Ports()


def described(job: Configuration) -> Description:
    """The overlay of a configuration."""
    if not job.topics:
        raise ConfigurationError(f"{job.file}: topics is missing; accepted is a table for each topic")
    options = job.options
    idle_after = options.idle_after or "10 seconds"
    how = AggregationOptions(
        placement=options.placement,
        delivery=options.delivery,  # type: ignore[arg-type]
        lateness_us=duration_us(options.lateness),
        idle_after_us=duration_us(idle_after),
        sampling_period_us=duration_us(options.sampling_period),
        cost=options.cost,
    )
    gateway = GatewayOptions(lease_us=duration_us(options.gateway_lease))
    history = job.history
    if history is None and any(one.plane == "spark" for one in job.subscriptions):
        history = Kept(keep_us=duration_us(KEPT))
    return Description.of(
        job.overlay or Overlay.single("b0"),
        job.topics,
        how,
        gateway,
        history,
        durability=job.live.durability,
        limits=job.limits,
        client_lease_us=duration_us(job.live.client_lease),
        client_retention_us=duration_us(job.live.client_retention),
    )


async def stored_description(
    url: str, described: Description | None, credentials: Credentials, report: ReportLines
) -> Description:
    """The overlay of a server, which is the one that is described here, if any is, and has what was added to it."""
    connection = await open_connection(url, "catchment", credentials)
    try:
        streams = JetStream(connection)
        if described is not None:
            found = await described.store(streams)
            for topic, attributes in found.known_topics.items():
                lacking = [name for name in attributes if name not in described.topics.get(topic, ())]
                if lacking or topic not in described.topics:
                    report("keeps what was added to the overlay", topic=topic, not_in_file=", ".join(lacking))
            return found
        return await Description.read(streams)
    finally:
        await connection.close()


# -- brokers ----------------------------------------------------------------------------------------------------------


async def run_brokers(
    names: Sequence[str],
    url: str,
    described: Description,
    credentials: Credentials,
    report: ReportLines,
    metrics: int | None = None,
) -> None:
    """Be some brokers until SIGTERM or Ctrl-C; one that fails ends all. `metrics` is a port, 0 for any."""
    rehearse()
    brokers = [
        LiveBroker(
            name,
            described.neighbours(name),
            described.settings,
            described.advice,
            url,
            options=described.options,
            credentials=credentials,
            report=report.about(name),
        )
        for name in names
    ]

    def stop() -> None:
        for one in brokers:
            one.stop()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    server = HttpServer(MetricsAnswers(lambda: [one.figures() for one in brokers]).handle, report)
    if metrics is not None:
        await server.start(port=metrics)
        report("metrics are served", brokers=", ".join(names), url=f"http://127.0.0.1:{server.port}/metrics")
    tasks = [asyncio.create_task(one.run()) for one in brokers]
    done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
    stop()
    await asyncio.wait(tasks)
    await server.stop()
    for task in done:
        task.result()


def stderr_lines(line_format: LineFormat | None) -> ReportLines:
    """Reports on standard error: text for a terminal, JSON for anything else, unless it is said which."""

    def write(line: str) -> None:
        # In one call, so that lines of several processes stay whole.
        os.write(2, f"{line}\n".encode())

    return ReportLines(write, line_format or ("text" if os.isatty(2) else "json"))


def broker_forever(
    name: str,
    url: str,
    job: Configuration | None,
    report: ReportLines,
    credentials: Credentials = OPEN,
    metrics: int | None = None,
) -> None:
    """One broker against a server; returns once it was asked to stop."""

    async def run() -> None:
        found = await stored_description(url, described(job) if job is not None else None, credentials, report)
        _tell_durability(url, found, report)
        await run_brokers([name], url, found, credentials, report, metrics)

    asyncio.run(run())


def _tell_durability(url: str, found: Description, report: ReportLines) -> None:
    """Say what somebody else's server has to be told: a client cannot see how it syncs."""
    if found.durability == "disk":
        report(
            "must trust the server to sync",
            "warning",
            server=url,
            reason="with durability disk it must run with `sync_interval: always`; it does not tell its clients "
            "whether it does, and without it what is acknowledged survives processes, not the machine",
        )


def _brokers_process(
    names: Sequence[str],
    url: str,
    described: Description,
    credentials: Credentials,
    line_format: LineFormat,
    metrics: int | None,
) -> None:
    """The main function of a process of `up`."""
    report = stderr_lines(line_format)
    try:
        asyncio.run(run_brokers(names, url, described, credentials, report, metrics))
    except LeaseLostError as error:
        report("ends", "warning", reason=str(error))
        os._exit(3)
    except CatchmentError as error:
        report("ends", "error", reason=str(error))
        os._exit(2)


class _Fleet:
    """The processes of an overlay, forked from one that has imported and rehearsed everything."""

    def __init__(
        self,
        groups: Sequence[Sequence[str]],
        url: str,
        described: Description,
        credentials: Credentials,
        line_format: LineFormat,
        metrics: int | None,
    ) -> None:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["catchment.app.serving", "catchment.transport.rehearsed"])
        self.processes = [
            context.Process(
                target=_brokers_process,
                args=(group, url, described, credentials, line_format, metrics and metrics + number),
                daemon=True,
            )
            for number, group in enumerate(groups)
        ]

    def start(self) -> None:
        # Ctrl-C is answered here, and nowhere else.
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            for process in self.processes:
                process.start()
        finally:
            signal.signal(signal.SIGINT, before)

    def stop(self) -> None:
        for process in self.processes:
            if process.is_alive():
                process.terminate()
        until_s = time.monotonic() + STOP_S
        for process in self.processes:
            process.join(max(until_s - time.monotonic(), 0.1))
            if process.is_alive():
                process.kill()


def up(
    job: Configuration,
    *,
    url: str | None,
    folder: Path | None,
    processes: int | None,
    report: ReportLines,
    tell: Callable[[dict[str, Any]], None],
    credentials: Credentials = OPEN,
    access: Path | None = None,
    certificates: Certificates | None = None,
    ports: Ports = NO_PORTS,
    metrics: int | None = None,
) -> None:
    """Run a whole overlay until Ctrl-C; `tell` gets what the subscriptions of the file bring.

    `access` and `certificates` are for the server that is started; `credentials` for one that is there. `metrics` is
    the port of the first process, whose successors have the next ones; 0 for any.
    """
    found = described(job)
    brokers = found.brokers
    count = min(processes or len(brokers), len(brokers))
    groups = [brokers[first::count] for first in range(count)]
    with ExitStack() as stack:
        of_brokers = of_clients = credentials
        guarded: GuardedServer | None = None
        if url is None:
            place = folder or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="catchment-")))
            if access is not None:
                keys = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="catchment-keys-")))
                guarded = GuardedServer(
                    place, access, keys, certificates, credentials.ca, durability=found.durability,
                    mqtt_port=ports.mqtt, mqtt_ca=ports.mqtt_ca,
                )  # fmt: skip
                of_brokers, of_clients = guarded.of_brokers, guarded.of_operator
                server = stack.enter_context(guarded.server)
                asyncio.run(guarded.store(server.url))
            else:
                server = stack.enter_context(
                    Server(place, certificates=certificates, durability=found.durability, mqtt_port=ports.mqtt)
                )
            url, ports = server.url, replace(ports, mqtt=server.mqtt_port)
        else:
            _tell_durability(url, found, report)
        found = asyncio.run(stored_description(url, found, of_clients, report))
        fleet = _Fleet(groups, url, found, of_brokers, report.line_format, metrics)
        stack.callback(fleet.stop)
        fleet.start()
        web = Web(url, found, of_clients, certificates=certificates)
        asyncio.run(_subscriptions(url, found, job.subscriptions, ports, fleet, report, tell, of_clients, guarded, web))


async def _subscriptions(
    url: str,
    found: Description,
    subscriptions: Iterable[Subscription],
    ports: Ports,
    fleet: _Fleet,
    report: ReportLines,
    tell: Callable[[dict[str, Any]], None],
    credentials: Credentials,
    guarded: GuardedServer | None,
    web: Web,
) -> None:
    """Ask for what the file asks for, and tell what comes, until Ctrl-C or until a broker has ended."""
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    clients: dict[str, Client] = {}
    tasks: list[asyncio.Task[None]] = []
    teller = RowTeller(url, credentials, tell)

    async def begin() -> None:
        for broker in found.brokers:
            here = [one for one in subscriptions if one.plane == "brokers"]
            asked = [one for one in here if (one.at or found.brokers[0]) == broker]
            client = clients[broker] = await Client(url, broker=broker, credentials=credentials).open()
            for one in asked:
                subscription = await client.subscribe(one.sql, name=one.name)
                tasks.append(asyncio.create_task(teller.tell_all(subscription, one.name)))
        if ports.http is not None:
            await web.start("127.0.0.1", ports.http, report)
        shows = "" if guarded is None else '-H "Authorization: Bearer $(cat USER.token)" '
        examples = {"shows": shows, "scheme": web.scheme}
        _print_how(url, found, replace(ports, http=web.port), report, examples)

    async def watch() -> None:
        while all(process.is_alive() for process in fleet.processes):
            await asyncio.sleep(WATCH_S)
            if guarded is not None:
                await guarded.reload_if_changed(url, report)
        report("a broker has ended", "error")
        stopped.set()

    tasks += [asyncio.create_task(begin()), asyncio.create_task(watch())]
    tasks[0].add_done_callback(lambda task: stopped.set() if not task.cancelled() and task.exception() else None)
    await stopped.wait()
    failed = tasks[0].exception() if tasks[0].done() and not tasks[0].cancelled() else None
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await web.stop()
    for client in clients.values():
        await client.close()
    await teller.stop()
    if failed is not None:
        raise failed


def _print_how(url: str, found: Description, ports: Ports, report: ReportLines, examples: Mapping[str, str]) -> None:
    if report.line_format == "json":
        report("overlay runs", server=url, brokers=found.brokers, http=ports.http, mqtt=ports.mqtt)
        return
    broker, topic = found.brokers[0], next(iter(found.topics))
    event = json.dumps({name: _example(kind) for name, kind in found.known_topics[topic].items()})
    report(f"{len(found.brokers)} brokers run at {url}: {', '.join(found.brokers)}. Ctrl-C stops them.")
    report(f"  echo '{event}' | catchment publish {topic} --server {url} --at {broker}")
    report(f"  catchment subscribe 'SELECT * FROM {topic}' --server {url} --at {found.brokers[-1]}")
    for line in ports.examples(broker, topic, event, **examples):
        report(line)


def _example(kind: str) -> Any:
    return {"int": 1, "float": 1.5, "bool": True, "string": "a", "timestamp": "2026-01-01 00:00:00"}[kind]


# -- clients of the shell ---------------------------------------------------------------------------------------------


def publish_lines(
    topic: str, url: str, at: str | None, file: int, *, stored: bool, credentials: Credentials = OPEN
) -> dict[str, Any]:
    """Publish JSON lines of an open file as they come; how many were taken, came late, or were refused, and why."""

    async def run() -> dict[str, Any]:
        client = await Client(url, broker=at, credentials=credentials).open()
        try:
            await client.advertise(topic)
            rows = PublishedRows(client, topic, "stored" if stored else "acknowledged")
            async for number, line in _lines(file):
                try:
                    row = event_of_line(line)
                except EventError as error:
                    rows.refuse(number, str(error))
                else:
                    await rows.add(number, row)
            await rows.settle()
        finally:
            await client.close()
        refused = [{"line": number, "reason": reason} for number, reason in sorted(rows.refused)]
        return {"published": rows.taken, "late": rows.late, "refused": refused}

    return asyncio.run(run())


async def _lines(file: int) -> AsyncIterator[tuple[int, bytes]]:
    """The lines of an open file that are not empty, numbered, as they come: whoever writes may take its time."""
    number, rest = 0, b""
    while True:
        data = await asyncio.to_thread(os.read, file, READ_BYTES)
        *lines, rest = (rest + (data or b"\n")).split(b"\n")
        for line in lines:
            number += 1
            if line.strip():
                yield number, line
        if not data:
            return


def subscribe_lines(
    sql: str,
    url: str,
    at: str | None,
    *,
    name: str | None,
    durable: str | None,
    count: int | None,
    since: str | None = None,
    credentials: Credentials = OPEN,
) -> None:
    """Print what a subscription brings as JSON lines, until Ctrl-C or so many."""

    async def run() -> None:
        client = await Client(url, broker=at, name=durable, durable=durable is not None, credentials=credentials).open()
        try:
            subscription = await client.subscribe(sql, name=name, since=since)
            sys.stderr.write("subscribed\n")
            sys.stderr.flush()

            async def read() -> None:
                left = count
                async for one in subscription:
                    sys.stdout.write(json.dumps(shown_row(subscription.name, one), ensure_ascii=False) + "\n")
                    sys.stdout.flush()
                    left = None if left is None else left - 1
                    if left == 0:
                        subscription.confirm()
                        return

            await until_stopped(read())
        finally:
            await client.close()

    asyncio.run(run())
