"""How streams and subjects are named, and who may use which.

Subjects of brokers and operators only:

    catchment.link.<to>.<from>                  frames of a neighbour              ┐
    catchment.room.<to>.<from>                  a neighbour's stream is full       │ the input stream of broker <to>:
    catchment.control.<broker>                  timers, store replies, clients     │ one order, stored times
                                                that come, notices                 │
    catchment.steps.<broker>                    where its steps have ended         ┘
    catchment.sub.<subscription>                rows for whoever listens, stored nowhere
    catchment.outbox.<broker>.<user>.<name>.…   frames for a client, stored: a stream for each
    catchment.snapshot.<broker>.…               pieces of snapshots: a stream for each broker
    catchment.history.<broker>                  what a broker has accepted of its clients: a stream for each broker
    catchment.status.<broker>.…                 requests to a broker's process (`status.py`)

Subjects of a client, each with the user that the server lets publish or subscribe there:

    catchment.client.<broker>.<user>.<name>     frames of a client, and its going: in the broker's input stream too
    catchment.alive.<broker>.<user>.<name>      a sign of life, stored nowhere
    catchment.pub.<broker>.<topic>              what foreign publishers post, in the broker's input stream too
    catchment.confirm.<broker>.<user>.<name>    how far the client has taken what was delivered
    catchment.ask.<broker>.<user>               requests to a broker's process (`asking.py`)
    catchment.describe.<user>                   a request to any broker's process: what the overlay is
    catchment.deliver.<user>.<name>.<nonce>     frames for the client, pushed from its outbox
    $JS.FC.<stream>.<user>.…                    how the client lets the server push more
    _INBOX_<user>.…                             answers

A client uses nothing else of the server: no stream, consumer or bucket. A broker knows it as `<user>/<name>`, so that
no user can speak of, or for, a client of another one. Where there is no access control, the user is `anyone`.

Names are escaped: a token of a subject may have neither dots nor spaces nor wildcards, and the name of a stream no
slashes either. Whoever posts may write a name as it is, if it can be a token.
"""

from __future__ import annotations

import re

__all__ = [
    "ANYONE",
    "CONFIRMED",
    "ROOT",
    "alive_subject",
    "ask_subject",
    "client_name",
    "client_of",
    "client_subject",
    "confirm_subject",
    "control_subject",
    "deliver_subject",
    "describe_subject",
    "history_stream",
    "history_subject",
    "inbox_prefix",
    "input_stream",
    "input_subjects",
    "link_subject",
    "listen_subject",
    "outbox_stream",
    "outbox_subject",
    "outbox_subjects",
    "post_subjects",
    "room_subject",
    "snapshot_stream",
    "snapshot_subject",
    "status_subject",
    "steps_subject",
    "token",
    "untoken",
    "user_of",
]

ROOT = "catchment"
ANYONE = "anyone"
"""The user of every client where there is no access control."""
CONFIRMED = "catchment_confirmed"
"""The stream of what clients have confirmed: the newest message of each."""
_PLAIN = re.compile(r"[A-Za-z0-9-]")
_ESCAPED = re.compile(r"=([0-9A-F]{2})")
_TOKEN = re.compile(r"[^\s.*>/=\x00-\x1f\x7f$]+")
"""What a name must be to be a token as it is, of NATS and MQTT."""


def token(name: str) -> str:
    """A name as one token: letters, digits and hyphens as they are, any other byte as = and two digits."""
    return "".join(chr(byte) if byte < 128 and _PLAIN.match(chr(byte)) else f"={byte:02X}" for byte in name.encode())


def untoken(text: str) -> str:
    """The name that `token` was given, or that somebody wrote as it is."""
    if "=" not in text:
        return text
    plain = _ESCAPED.sub(lambda found: chr(int(found[1], 16)), text)
    return plain.encode("latin-1", errors="replace").decode(errors="replace")


def client_name(user: str, name: str) -> str:
    """What a broker knows a client of a user as."""
    return f"{user}/{name}"


def _client_tokens(client: str) -> str:
    """A client as two tokens; either of its parts may be the wildcard `*`."""
    return ".".join(map(_or_any, client.split("/", 1)))


def _or_any(name: str) -> str:
    return name if name == "*" else token(name)


def client_of(subject: str) -> str:
    """The client of a `catchment.<kind>.<broker>.<user>.<name>`."""
    user, name = subject.split(".")[3:5]
    return client_name(untoken(user), untoken(name))


def user_of(subject: str) -> str:
    """The user of a `catchment.ask.<broker>.<user>` or `catchment.describe.<user>`."""
    return untoken(subject.rpartition(".")[2])


def inbox_prefix(user: str) -> str:
    return f"_INBOX_{token(user)}."


def input_stream(broker: str) -> str:
    return f"{ROOT}_input_{token(broker)}"


def input_subjects(broker: str) -> list[str]:
    return [
        *(f"{ROOT}.{kind}.{token(broker)}.*" for kind in ("link", "room")),
        client_subject(broker, "*/*"),
        *post_subjects(broker),
        control_subject(broker),
        steps_subject(broker),
    ]


def post_subjects(broker: str, topic: str = "*") -> list[str]:
    """Where foreign publishers post: with the broker's name escaped, and as it is; `topic` may be a wildcard."""
    names = {token(broker): None} | ({broker: None} if _TOKEN.fullmatch(broker) else {})
    return [f"{ROOT}.pub.{name}.{_or_any(topic)}" for name in names]


def listen_subject(subscription: str) -> str:
    """Where what a named subscription brings is told to whoever listens."""
    return f"{ROOT}.sub.{subscription if _TOKEN.fullmatch(subscription) else token(subscription)}"


def link_subject(to: str, sender: str) -> str:
    return f"{ROOT}.link.{token(to)}.{token(sender)}"


def room_subject(to: str, sender: str) -> str:
    return f"{ROOT}.room.{token(to)}.{token(sender)}"


def control_subject(broker: str) -> str:
    return f"{ROOT}.control.{token(broker)}"


def steps_subject(broker: str) -> str:
    return f"{ROOT}.steps.{token(broker)}"


def outbox_stream(broker: str, client: str) -> str:
    return f"{ROOT}_outbox_{token(broker)}_{token(client)}"


def outbox_subject(broker: str, client: str, kind: str) -> str:
    return f"{ROOT}.outbox.{token(broker)}.{_client_tokens(client)}.{kind}"


def outbox_subjects(broker: str) -> str:
    """Of all clients of a broker."""
    return f"{ROOT}.outbox.{token(broker)}.>"


def history_stream(broker: str) -> str:
    return f"{ROOT}_history_{token(broker)}"


def history_subject(broker: str) -> str:
    return f"{ROOT}.history.{token(broker)}"


def snapshot_stream(broker: str) -> str:
    return f"{ROOT}_snapshot_{token(broker)}"


def snapshot_subject(broker: str, kind: str) -> str:
    return f"{ROOT}.snapshot.{token(broker)}.{kind}"


def status_subject(broker: str, what: str) -> str:
    return f"{ROOT}.status.{token(broker)}.{what}"


def client_subject(broker: str, client: str) -> str:
    return f"{ROOT}.client.{_or_any(broker)}.{_client_tokens(client)}"


def alive_subject(broker: str, client: str) -> str:
    return f"{ROOT}.alive.{_or_any(broker)}.{_client_tokens(client)}"


def confirm_subject(broker: str, client: str) -> str:
    return f"{ROOT}.confirm.{_or_any(broker)}.{_client_tokens(client)}"


def ask_subject(broker: str, user: str) -> str:
    return f"{ROOT}.ask.{_or_any(broker)}.{_or_any(user)}"


def describe_subject(user: str) -> str:
    return f"{ROOT}.describe.{_or_any(user)}"


def deliver_subject(client: str, nonce: str) -> str:
    return f"{ROOT}.deliver.{_client_tokens(client)}.{token(nonce)}"
