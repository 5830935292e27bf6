"""`catchment topics`: list them, and add topics and attributes to a running overlay."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from catchment.app.failures import reported
from catchment.app.operating import connected
from catchment.app.options import CaOption, CertificateOption, JsonOption, KeyOption, ServerOption, credentials_of
from catchment.app.printing import print_json, print_rows
from catchment.model.errors import ConfigurationError

if TYPE_CHECKING:
    from catchment.transport.figures import BrokerFigures
    from catchment.transport.wire import Connection

__all__ = ["topics"]

topics = typer.Typer(help="The topics of a running overlay, and the attributes of their events.")
KNOWN_S = 30.0
"""How long to wait until every broker that runs knows what was added."""
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
            found = await Description.add_topics(JetStream(connection), asked)
            away = await _known_by_all(connection, described.brokers, topic, found.known_topics[topic])
            return found.known_topics[topic], away

    found, away = asyncio.run(run())
    if as_json:
        print_json({"topic": topic, "attributes": found, "away": away})
        return
    print(f"{topic} has {', '.join(f'{name}:{kind}' for name, kind in found.items())}")
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


async def _known_by_all(
    connection: Connection, brokers: list[str], topic: str, attributes: Mapping[str, str]
) -> list[str]:
    """Wait until all brokers know a topic with these attributes; those that do not run."""
    from catchment.transport.status import figures_of

    def knows(figures: BrokerFigures) -> bool:
        return attributes.items() <= figures.topics.get(topic, {}).items()

    until_s = time.monotonic() + KNOWN_S
    while True:
        found = await figures_of(connection, brokers)
        unaware = [name for name, one in found.items() if one is not None and not knows(one)]
        if not unaware:
            return [name for name, one in found.items() if one is None]
        if time.monotonic() > until_s:
            raise ConfigurationError(
                f"{', '.join(unaware)} run, and do not know topic {topic!r} as it is now after {KNOWN_S:g} seconds; it "
                "is stored, and they take it in once they have handled their inputs"
            )
        await asyncio.sleep(LOOK_S)
