"""Commands of those who run an overlay: `overlay show`, `subscriptions`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.live import Live

from catchment.app.failures import reported
from catchment.app.options import CaOption, CertificateOption, JsonOption, KeyOption, ServerOption, credentials_of
from catchment.app.printing import print_json, print_rows

if TYPE_CHECKING:
    from catchment.transport.description import Description
    from catchment.transport.wire import Connection

__all__ = ["connected", "overlay", "subscriptions"]

overlay = typer.Typer(help="A running overlay as a whole.", no_args_is_help=True)
BETWEEN_S = 1.0
"""Rates are of so long a time, unless one watches."""


@asynccontextmanager
async def connected(url: str, credentials: Any) -> AsyncIterator[tuple[Connection, Description]]:
    """A connection to a server, and the overlay that it has."""
    from catchment.transport.description import Description
    from catchment.transport.jetstream import JetStream
    from catchment.transport.wire import open_connection

    connection = await open_connection(url, "catchment", credentials)
    try:
        yield connection, await Description.read(JetStream(connection))
    finally:
        await connection.close()


@overlay.command("show")
@reported
def show(
    server: ServerOption,
    watch: Annotated[bool, typer.Option("--watch", help="Go on until Ctrl-C.")] = False,
    every: Annotated[float, typer.Option(help="Seconds between two looks.", min=0.1)] = BETWEEN_S,
    key: KeyOption = None,
    ca: CaOption = None,
    client_certificate: CertificateOption = None,
    as_json: JsonOption = False,
) -> None:
    """Brokers and how they stand, and what links carry each second. With --watch and --json, a line for each look."""
    from catchment.app.showing import overlay_json, overlay_tables
    from catchment.transport.status import figures_of

    async def looks() -> AsyncIterator[tuple[Any, Any]]:
        async with connected(server, credentials_of(key, ca, client_certificate)) as (connection, described):
            before = await figures_of(connection, described.brokers)
            while True:
                await asyncio.sleep(every)
                now = await figures_of(connection, described.brokers)
                yield before, now
                before = now

    async def run() -> None:
        if not watch:
            async for both in looks():
                print_json(overlay_json(*both)) if as_json else Console(highlight=False).print(overlay_tables(*both))
                return
        elif as_json:
            async for both in looks():
                print(json.dumps(overlay_json(*both), ensure_ascii=False), flush=True)
        else:
            with Live(console=Console(highlight=False), screen=False, auto_refresh=False) as shown:
                async for both in looks():
                    shown.update(overlay_tables(*both), refresh=True)

    try:
        asyncio.run(run())
    except KeyboardInterrupt:
        return


def subscriptions(
    server: ServerOption,
    key: KeyOption = None,
    ca: CaOption = None,
    client_certificate: CertificateOption = None,
    as_json: JsonOption = False,
) -> None:
    """Who asks what, at which broker: all subscriptions of all clients."""
    import msgspec

    from catchment.transport.status import ListedSubscription, subscriptions_of

    async def run() -> list[ListedSubscription]:
        async with connected(server, credentials_of(key, ca, client_certificate)) as (connection, described):
            return [one for broker in described.brokers async for one in subscriptions_of(connection, broker)]

    found = asyncio.run(run())
    if as_json:
        print_json(msgspec.to_builtins(found))
        return
    kinds = ("", "durable", "durable, away")
    rows = [(one.broker, one.client, one.name, kinds[one.is_durable + one.is_parked], one.sql) for one in found]
    print_rows("Subscriptions", ("broker", "client", "name", "kind", "SQL"), rows)
