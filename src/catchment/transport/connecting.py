"""`connect`: the one call by which an application becomes a client."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import Any

from catchment.transport.blocking import BlockingClient
from catchment.transport.client import Client
from catchment.transport.credentials import Credentials

__all__ = ["Connecting", "connect"]


class Connecting:
    """A client that is about to connect: with asyncio (`async with`, `await`), or without (`with`, `blocking()`)."""

    def __init__(self, **options: Any) -> None:
        self._options = options
        self._client: Client | None = None
        self._blocking: BlockingClient | None = None

    def __await__(self) -> Generator[Any, None, Client]:
        return Client(**self._options).open().__await__()

    async def __aenter__(self) -> Client:
        self._client = await self
        return self._client

    async def __aexit__(self, *_: object) -> None:
        if self._client is not None:
            await self._client.close()

    def blocking(self) -> BlockingClient:
        """A client whose calls wait; `close` it."""
        return BlockingClient(**self._options)

    def __enter__(self) -> BlockingClient:
        self._blocking = self.blocking()
        return self._blocking

    def __exit__(self, *_: object) -> None:
        if self._blocking is not None:
            self._blocking.close()


def connect(
    url: str,
    *,
    broker: str | None = None,
    name: str | None = None,
    durable: bool = False,
    key: str | Path | None = None,
    ca: str | Path | None = None,
    certificate: str | Path | None = None,
) -> Connecting:
    """Become a client of a running overlay.

        async with catchment.connect("nats://127.0.0.1:4222", broker="b1") as client: …
        with catchment.connect("nats://127.0.0.1:4222", broker="b1") as client: …

    `broker` is the nearest one; without it, the first of the overlay. A `durable` client has a name: what it subscribes
    to is collected while it is away, and it goes on where it had come to.

    Where access is controlled, `key` is the file that `catchment access add` wrote for the user, and `ca` a file with
    the certificate that has signed the server's; `certificate`, with its key, is for servers that want one.
    """
    credentials = Credentials.of_files({"key": key, "ca": ca, "certificate": certificate})
    return Connecting(url=url, broker=broker, name=name, durable=durable, credentials=credentials)
