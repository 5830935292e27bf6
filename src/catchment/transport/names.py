"""How streams and subjects are named.

    catchment.link.<to>.<from>             frames of a neighbour            ┐
    catchment.room.<to>.<from>             a neighbour's stream is full     │ the input stream of broker <to>:
    catchment.client.<broker>.<client>     frames of a client, its coming   │ one order, stored times
    catchment.control.<broker>             timers, store replies, notices   │
    catchment.steps.<broker>               where its steps have ended       ┘
    catchment.deliver.<broker>.<client>.…  frames for a client: a stream for each
    catchment.snapshot.<broker>.…          pieces of snapshots: a stream for each broker
    catchment.alive.<broker>.<client>      a client is alive: stored nowhere
    $KV.catchment_confirmed.<broker>.<client>   how far a client has taken what is in its delivery stream

Names of brokers and clients are escaped: a token of a subject may have neither dots nor spaces nor wildcards, and the
name of a stream no slashes either.
"""

from __future__ import annotations

import re

__all__ = [
    "CONFIRMED",
    "alive_subject",
    "client_subject",
    "confirmed_subject",
    "control_subject",
    "deliver_stream",
    "deliver_subject",
    "input_stream",
    "input_subjects",
    "link_subject",
    "room_subject",
    "snapshot_stream",
    "snapshot_subject",
    "steps_subject",
    "token",
    "untoken",
]

ROOT = "catchment"
CONFIRMED = "catchment_confirmed"
"""The bucket of what clients have confirmed."""
_PLAIN = re.compile(r"[A-Za-z0-9-]")
_ESCAPED = re.compile(r"=([0-9A-F]{2})")


def token(name: str) -> str:
    """A name as one token: letters, digits and hyphens as they are, any other byte as = and two digits."""
    return "".join(chr(byte) if byte < 128 and _PLAIN.match(chr(byte)) else f"={byte:02X}" for byte in name.encode())


def untoken(text: str) -> str:
    """The name that `token` was given."""
    plain = _ESCAPED.sub(lambda found: chr(int(found[1], 16)), text)
    return plain.encode("latin-1", errors="replace").decode(errors="replace")


def input_stream(broker: str) -> str:
    return f"{ROOT}_input_{token(broker)}"


def input_subjects(broker: str) -> list[str]:
    one = token(broker)
    return [f"{ROOT}.{kind}.{one}.*" for kind in ("link", "room", "client")] + [
        control_subject(broker),
        steps_subject(broker),
    ]


def link_subject(to: str, sender: str) -> str:
    return f"{ROOT}.link.{token(to)}.{token(sender)}"


def room_subject(to: str, sender: str) -> str:
    return f"{ROOT}.room.{token(to)}.{token(sender)}"


def client_subject(broker: str, client: str) -> str:
    return f"{ROOT}.client.{token(broker)}.{token(client)}"


def alive_subject(broker: str, client: str) -> str:
    """`client` may be a wildcard."""
    return f"{ROOT}.alive.{token(broker)}.{client if client == '*' else token(client)}"


def confirmed_subject(broker: str, client: str) -> str:
    """`client` may be a wildcard."""
    return f"$KV.{CONFIRMED}.{token(broker)}.{client if client == '*' else token(client)}"


def control_subject(broker: str) -> str:
    return f"{ROOT}.control.{token(broker)}"


def steps_subject(broker: str) -> str:
    return f"{ROOT}.steps.{token(broker)}"


def deliver_stream(broker: str, client: str) -> str:
    return f"{ROOT}_deliver_{token(broker)}_{token(client)}"


def deliver_subject(broker: str, client: str, kind: str) -> str:
    return f"{ROOT}.deliver.{token(broker)}.{token(client)}.{kind}"


def snapshot_stream(broker: str) -> str:
    return f"{ROOT}_snapshot_{token(broker)}"


def snapshot_subject(broker: str, kind: str) -> str:
    return f"{ROOT}.snapshot.{token(broker)}.{kind}"
