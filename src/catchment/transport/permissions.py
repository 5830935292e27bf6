"""The configuration of a NATS server that keeps users to what their roles allow.

Clients live in an account of their own, without JetStream, which imports the few subjects that they need. Permissions
alone would not do: a server checks where a client publishes, but not where it wants the answer, and would store the
acknowledgement of a client's message under whatever subject the client names, be it a broker's lease. From another
account, an answer never leaves that account.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from catchment.transport.access import BUCKET, Access, User
from catchment.transport.names import (
    ROOT,
    ask_subject,
    client_subject,
    confirm_subject,
    describe_subject,
    inbox_prefix,
    token,
)

__all__ = ["Certificates", "access_config", "tls_config"]

BROKERS, CLIENTS = "BROKERS", "CLIENTS"
_SERVICES = (*(f"{ROOT}.{kind}.>" for kind in ("client", "confirm", "ask", "describe", "pub")), "$JS.FC.>")
_STREAMS = (f"{ROOT}.deliver.>",)
_TABLE = f"KV_{BUCKET}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificates:
    """Files of a server that speaks TLS."""

    certificate: Path
    key: Path
    client_ca: Path | None = None
    """If given, everybody who connects must have a certificate that it has signed."""


def access_config(access: Access) -> str:
    """Accounts, users and permissions, as a server reads them."""
    inside = {name: user for name, user in access.users.items() if user.is_inside}
    outside = {name: user for name, user in access.users.items() if not user.is_inside}
    accounts = {
        BROKERS: {
            "jetstream": "enabled",
            "users": _users(inside),
            "exports": [*({"service": one} for one in _SERVICES), *({"stream": one} for one in _STREAMS)],
        },
        CLIENTS: {
            "users": _users(outside),
            "imports": [
                *({"service": {"account": BROKERS, "subject": one}} for one in _SERVICES),
                *({"stream": {"account": BROKERS, "subject": one}} for one in _STREAMS),
            ],
        },
    }
    return f"accounts: {json.dumps(accounts, indent=2)}\n"


def tls_config(files: Certificates) -> str:
    content: dict[str, Any] = {"cert_file": str(files.certificate.resolve()), "key_file": str(files.key.resolve())}
    if files.client_ca is not None:
        content |= {"ca_file": str(files.client_ca.resolve()), "verify": True}
    return f"tls: {json.dumps(content, indent=2)}\n"


def _users(users: Mapping[str, User]) -> list[dict[str, Any]]:
    return [_user(name, user) for name, user in sorted(users.items())]


def _user(name: str, user: User) -> dict[str, Any]:
    if "operator" in user.roles:
        return {"nkey": user.key}
    if "broker" in user.roles:
        return {"nkey": user.key, "permissions": _of_broker(name)}
    return {"nkey": user.key, "permissions": _of_client(name, user.roles.get("publisher", ()))}


def _of_broker(name: str) -> dict[str, Any]:
    """All but who may do what, and what others are answered."""
    changes = ("CREATE", "UPDATE", "DELETE", "PURGE", "RESTORE", "MSG.DELETE")
    denied = [f"$KV.{BUCKET}.>", *(f"$JS.API.STREAM.{change}.{_TABLE}" for change in changes)]
    return {
        "publish": {"allow": [">"], "deny": denied},
        "subscribe": {"allow": [f"{ROOT}.>", "$KV.>", f"{inbox_prefix(name)}>"]},
    }


def _of_client(name: str, publishes: Iterable[str]) -> dict[str, Any]:
    own, user = f"{name}/*", token(name)
    subjects = [
        client_subject("*", own),
        confirm_subject("*", own),
        ask_subject("*", name),
        describe_subject(name),
        f"$JS.FC.*.{user}.*",
        *(f"{ROOT}.pub.*.{token(topic)}" for topic in sorted(publishes)),
    ]
    return {
        "publish": {"allow": subjects},
        "subscribe": {"allow": [f"{inbox_prefix(name)}>", f"{ROOT}.deliver.{user}.>"]},
    }
