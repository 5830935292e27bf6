"""What `up` and `http` open to those who are no clients: HTTP, and rows of named subscriptions for whoever listens."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from catchment.model.errors import TransportError
from catchment.transport.asking import described as described_by_brokers
from catchment.transport.credentials import Credentials
from catchment.transport.description import Description
from catchment.transport.http_gateway import HttpGateway
from catchment.transport.http_server import HttpServer
from catchment.transport.names import listen_subject, token
from catchment.transport.permissions import Certificates
from catchment.transport.reports import Report
from catchment.transport.rows import shown_row
from catchment.transport.wire import Connection, open_connection

__all__ = ["Ports", "RowTeller", "Web", "http_forever"]


@dataclass(frozen=True, slots=True)
class Ports:
    """Where an overlay listens besides: None is nowhere, 0 the system's choice."""

    http: int | None = None
    mqtt: int | None = None
    mqtt_ca: Path | None = None
    """Who has signed the certificates of MQTT devices, where there are users."""

    def examples(self, broker: str, topic: str, event: str, *, shows: str = "", scheme: str = "http") -> list[str]:
        """How to publish and subscribe there; `shows` is what curl has to be told besides."""
        found = []
        if self.http is not None:
            web = f"{scheme}://127.0.0.1:{self.http}"
            path = f"topics/{quote(topic, safe='')}/events?at={quote(broker, safe='')}"
            found.append(f"  curl {shows}-d '{event}' '{web}/{path}'")
            found.append(f"  curl {shows}-NG {web}/subscribe --data-urlencode 'sql=SELECT * FROM {topic}'")
        if self.mqtt is not None:
            subject = f"catchment/pub/{token(broker)}/{token(topic)}"
            known = "" if self.mqtt_ca is None else "--cafile CA.pem --cert USER.pem --key USER.pem.key "
            found.append(f"  mosquitto_pub {known}-p {self.mqtt} -q 1 -t {subject} -m '{event}'")
        return found


class RowTeller:
    """Tells what subscriptions bring, here and to whoever listens to their subjects, over NATS or MQTT."""

    def __init__(self, url: str, credentials: Credentials, tell: Callable[[dict[str, Any]], None]) -> None:
        self._url, self._credentials, self._tell = url, credentials, tell
        self._connection: Connection | None = None

    async def tell_all(self, subscription: AsyncIterator[Any], name: str) -> None:
        subject = listen_subject(name)
        async for one in subscription:
            row = shown_row(name, one)
            self._tell(row)
            # Whoever listens while the server is away hears nothing, and is promised nothing.
            with suppress(TransportError):
                connection = await self._connected()
                connection.publish(subject, json.dumps(row, ensure_ascii=False).encode())
                await connection.drain()

    async def _connected(self) -> Connection:
        if self._connection is None or self._connection.is_lost:
            self._connection = await open_connection(self._url, "catchment", self._credentials)
        return self._connection

    async def stop(self) -> None:
        if self._connection is not None:
            await self._connection.close()


class Web:
    """An overlay over HTTP."""

    def __init__(
        self,
        url: str,
        found: Description,
        credentials: Credentials,
        origins: Sequence[str] = (),
        certificates: Certificates | None = None,
    ) -> None:
        self._gateway = HttpGateway(url, found, credentials, origins)
        self._certificates = certificates
        self._server: HttpServer | None = None

    @property
    def port(self) -> int | None:
        return None if self._server is None else self._server.port

    @property
    def scheme(self) -> str:
        return "http" if self._certificates is None else "https"

    async def start(self, host: str, port: int, report: Report) -> None:
        await self._gateway.start()
        server = HttpServer(self._gateway.handle, report)
        await server.start(host, port, None if self._certificates is None else self._certificates.context())
        self._server = server

    async def stop(self) -> None:
        if self._server is not None:
            await self._server.stop()
        await self._gateway.stop()


def http_forever(
    url: str,
    host: str,
    port: int,
    origins: Sequence[str],
    report: Report,
    credentials: Credentials,
    certificates: Certificates | None = None,
) -> None:
    """Serve an overlay over HTTP until Ctrl-C."""

    async def run() -> None:
        connection = await open_connection(url, "catchment http", credentials)
        try:
            found = await described_by_brokers(connection, credentials.user)
        finally:
            await connection.close()
        stopped = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stopped.set)
        web = Web(url, found, credentials, origins, certificates)
        try:
            await web.start(host, port, report)
            report(f"listens at {web.scheme}://{host}:{web.port}. Ctrl-C stops it.")
            await stopped.wait()
        finally:
            await web.stop()

    asyncio.run(run())
