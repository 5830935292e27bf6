"""`catchment topics`: list them, add topics and attributes to a running overlay, and change how a topic is placed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from catchment.app.failures import reported
from catchment.app.operating import connected
from catchment.app.options import CaOption, CertificateOption, JsonOption, KeyOption, ServerOption, credentials_of
from catchment.app.printing import print_json, print_rows
from catchment.model.errors import ConfigurationError, TransportError

if TYPE_CHECKING:
    from catchment.transport.figures import BrokerFigures
    from catchment.transport.wire import Connection

__all__ = ["topics"]

topics = typer.Typer(help="The topics of a running overlay, and the attributes of their events.")
FOLLOW_S = 30.0
"""How long to wait until every broker that runs has taken in a change."""
LOOK_S = 0.05


@topics.callback(invoke_without_command=True)
@reported
def listed(
    context: typer.Context,
    server: Annotated[str | None, typer.Option(help="Address of a NATS server: nats://host:port.")] = None,
    key: KeyOption = None,
    ca: CaOption = None,
    client_certificate: CertificateOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the topics of a running overlay, and the attributes of their events; or add some."""
    if context.invoked_subcommand is not None:
        return
    if server is None:
        raise typer.BadParameter("it is missing; accepted is nats://host:port", param_hint="--server")

    async def run() -> dict[str, dict[str, str]]:
        async with connected(server, credentials_of(key, ca, client_certificate)) as (_, described):
            return described.known_topics

    found = asyncio.run(run())
    if as_json:
        print_json(found)
        return
    rows = [
        (topic if not number else "", name, kind)
        for topic, attributes in found.items()
        for number, (name, kind) in enumerate(attributes.items())
    ]
    print_rows("Topics", ("topic", "attribute", "type"), rows)


@topics.command("add")
@reported
def add(
    topic: Annotated[str, typer.Argument(help="A topic; a new one, or one that there is.")],
    attributes: Annotated[
        list[str], typer.Argument(metavar="NAME:TYPE…", help="bool, int, float, string or timestamp.")
    ],
    server: ServerOption,
    key: KeyOption = None,
    ca: CaOption = None,
    client_certificate: CertificateOption = None,
    as_json: JsonOption = False,
) -> None:
    """Add a topic, or attributes to a topic, while the overlay runs. What there is keeps its type.

    Returns once every broker that runs knows it; the others will when they start.
    """
    from catchment.transport.description import Description
    from catchment.transport.jetstream import JetStream

    asked = {topic: attributes_of(attributes)}

    async def run() -> tuple[dict[str, str], list[str]]:
        async with connected(server, credentials_of(key, ca, client_certificate)) as (connection, described):
            known = (await Description.add_topics(JetStream(connection), asked)).known_topics[topic]
            away = await _all_follow(
                connection, described.brokers, lambda one: known.items() <= one.topics.get(topic, {}).items()
            )
            return known, away

    found, away = asyncio.run(run())
    if as_json:
        print_json({"topic": topic, "attributes": found, "away": away})
        return
    print(f"{topic} has {', '.join(f'{name}:{kind}' for name, kind in found.items())}")
    if away:
        print(f"not running, and told when they start: {', '.join(away)}")


@topics.command("place")
@reported
def place(
    topic: Annotated[str, typer.Argument(help="A topic that there is.")],
    placement: Annotated[str, typer.Argument(help="late, early, adaptive, selective, coordinated or cover.")],
    server: ServerOption,
    key: KeyOption = None,
    ca: CaOption = None,
    client_certificate: CertificateOption = None,
    as_json: JsonOption = False,
) -> None:
    """Change where the aggregates of a topic are computed, while the overlay runs. Values stay the same.

    Returns once every broker that runs has changed; the others will when they start.
    """
    from catchment.transport.description import Description
    from catchment.transport.jetstream import JetStream

    async def run() -> list[str]:
        async with connected(server, credentials_of(key, ca, client_certificate)) as (connection, described):
            await Description.place(JetStream(connection), topic, placement)
            return await _all_follow(connection, described.brokers, lambda one: one.placements.get(topic) == placement)

    away = asyncio.run(run())
    if as_json:
        print_json({"topic": topic, "placement": placement, "away": away})
        return
    print(f"{topic} is placed {placement}")
    if away:
        print(f"not running, and told when they start: {', '.join(away)}")


def attributes_of(given: list[str]) -> dict[str, str]:
    """Names and types, as they are written on the command line."""
    found: dict[str, str] = {}
    for one in given:
        name, colon, kind = one.rpartition(":")
        if not (colon and name and kind):
            raise ConfigurationError(f"an attribute is given as {one!r}; accepted is name:type, as lane:int")
        if found.setdefault(name, kind) != kind:
            raise ConfigurationError(
                f"attribute {name!r} is given as {found[name]} and as {kind}; accepted is one of them"
            )
    return found


async def _all_follow(
    connection: Connection, brokers: list[str], follows: Callable[[BrokerFigures], bool]
) -> list[str]:
    """Wait until all brokers have taken in a change; those that do not run."""
    from catchment.transport.status import figures_of

    until_s = time.monotonic() + FOLLOW_S
    while True:
        found = await figures_of(connection, brokers)
        behind = [name for name, one in found.items() if one is not None and not follows(one)]
        if not behind:
            return [name for name, one in found.items() if one is None]
        if time.monotonic() > until_s:
            raise TransportError(
                f"{', '.join(behind)} run, and have not taken in the change within {FOLLOW_S:g} seconds; it is stored, "
                "and they will once they have handled their inputs"
            )
        await asyncio.sleep(LOOK_S)
