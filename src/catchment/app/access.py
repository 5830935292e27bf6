"""`catchment access`: who may do what in an overlay."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from catchment.app.failures import reported
from catchment.app.printing import print_json, print_rows

__all__ = ["access"]

access = typer.Typer(help="Users of an overlay, their keys and roles.", no_args_is_help=True)

FileOption = Annotated[Path, typer.Option("--access", help="The file of users; it holds no secrets.")]
DEFAULT = Path("access.json")


@access.command("add")
@reported
def add(
    name: Annotated[str, typer.Argument(help="The user, new or known.")],
    role: Annotated[str, typer.Option(help="publisher, subscriber, broker or operator.")],
    topic: Annotated[list[str] | None, typer.Option(help="Of a publisher or subscriber; may be repeated.")] = None,
    key: Annotated[Path | None, typer.Option(help="Where a new user's key goes; NAME.key unless given.")] = None,
    http: Annotated[bool, typer.Option("--http", help="Let the user come over HTTP, by a token.")] = False,
    token: Annotated[Path | None, typer.Option(help="Where the token goes; NAME.token unless given.")] = None,
    file: FileOption = DEFAULT,
) -> None:
    """Give a user a role; a new user gets a key, which is written once, to a file that only you can read."""
    from catchment.transport.access import Access
    from catchment.transport.credentials import write_key, write_token

    changed, seed = Access.read(file).with_role(name, role, topic or ())
    shown = None
    if http and not changed.users[name].token:
        changed, shown = changed.with_token(name)
    if seed is not None:
        place = key or Path(f"{name}.key")
        write_key(place, name, seed)
        print(f"the key of {name} is in {place}")
    if shown is not None:
        place = token or Path(f"{name}.token")
        write_token(place, shown)
        print(f"the token of {name} is in {place}")
    changed.write(file)


@access.command("list")
@reported
def list_users(file: FileOption = DEFAULT, as_json: Annotated[bool, typer.Option("--json")] = False) -> None:
    """Tell who may do what."""
    from catchment.transport.access import Access

    users = sorted(Access.read(file).users.items())
    if as_json:
        print_json(
            [{"user": name, "key": user.key, "roles": user.roles, "http": bool(user.token)} for name, user in users]
        )
        return
    rows = [
        (name, role, ", ".join(topics) or "all", user.key)
        for name, user in users
        for role, topics in sorted(user.roles.items())
    ]
    print_rows("Users", ("user", "role", "topics", "public key"), rows)


@access.command("remove")
@reported
def remove(name: Annotated[str, typer.Argument(help="The user.")], file: FileOption = DEFAULT) -> None:
    """Remove a user with all its roles: its key opens nothing any more."""
    from catchment.transport.access import Access

    Access.read(file).without(name).write(file)


@access.command("renew")
@reported
def renew(
    name: Annotated[str, typer.Argument(help="The user.")],
    key: Annotated[Path | None, typer.Option(help="Where its key is; NAME.key unless given.")] = None,
    token: Annotated[Path | None, typer.Option(help="Where its token is, if it has one; NAME.token.")] = None,
    file: FileOption = DEFAULT,
) -> None:
    """Give a user a new key, and a new token if it has one: the old ones open nothing any more; all else stays."""
    from catchment.transport.access import Access
    from catchment.transport.credentials import replace_key, replace_token

    changed, seed = Access.read(file).with_key(name)
    # Before the table: whoever is disconnected by it comes back with the new one.
    place = key or Path(f"{name}.key")
    replace_key(place, name, seed)
    print(f"the new key of {name} is in {place}")
    if changed.users[name].token:
        changed, shown = changed.with_token(name)
        place = token or Path(f"{name}.token")
        replace_token(place, shown)
        print(f"the new token of {name} is in {place}")
    changed.write(file)


@access.command("server-config")
@reported
def server_configuration(
    store: Annotated[Path, typer.Option(help="Where the server keeps its streams.")],
    listen: Annotated[str, typer.Option(help="host:port.")] = "127.0.0.1:4222",
    certificate: Annotated[Path | None, typer.Option(help="Of the server, PEM: with it, it speaks TLS.")] = None,
    certificate_key: Annotated[Path | None, typer.Option(help="The key of the certificate.")] = None,
    client_ca: Annotated[Path | None, typer.Option(help="Who must have signed certificates of clients.")] = None,
    mqtt: Annotated[str | None, typer.Option(help="host:port to listen at for MQTT, with TLS.")] = None,
    mqtt_ca: Annotated[Path | None, typer.Option(help="Who has signed certificates of MQTT devices.")] = None,
    file: FileOption = DEFAULT,
) -> None:
    """Print the configuration of a NATS server that lets these users do what their roles say, and nothing else."""
    from catchment.app.guarded import certificates_of
    from catchment.transport.access import Access
    from catchment.transport.server import server_config

    files = certificates_of(certificate, certificate_key, client_ca)
    print(server_config(listen, store.resolve(), Access.read(file), files, mqtt=mqtt, mqtt_ca=mqtt_ca), end="")


@access.command("apply")
@reported
def apply(
    server: Annotated[str, typer.Option(help="Address of the NATS server.")],
    key: Annotated[Path, typer.Option(help="The key of an operator.")],
    ca: Annotated[Path | None, typer.Option(help="Certificates that have signed the server's.")] = None,
    file: FileOption = DEFAULT,
) -> None:
    """Tell all brokers of an overlay which topics these users may publish and subscribe to, from now on."""
    from catchment.transport.access import Access
    from catchment.transport.credentials import Credentials
    from catchment.transport.jetstream import JetStream
    from catchment.transport.wire import open_connection

    async def run() -> None:
        connection = await open_connection(server, "catchment access", Credentials(key=key, ca=ca))
        try:
            await Access.read(file).store(JetStream(connection))
        finally:
            await connection.close()

    asyncio.run(run())
