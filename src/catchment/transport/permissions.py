"""The configuration of a NATS server that keeps users to what their roles allow.

Every client's user lives in an account of its own, without JetStream, which imports the few subjects that are its own.
Permissions alone would not do: a server checks where a client publishes, but not where it wants the answer, and would
store the acknowledgement of a client's message under whatever subject the client names, be it a broker's lease or
another's inbox. From another account, an answer never leaves that account.
"""

from __future__ import annotations

import json
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from catchment.model.errors import ConfigurationError
from catchment.transport.access import BUCKET, Access, User
from catchment.transport.names import (
    ROOT,
    alive_subject,
    ask_subject,
    client_subject,
    confirm_subject,
    describe_subject,
    inbox_prefix,
    token,
)

__all__ = ["Certificates", "access_config", "tls_config"]

BROKERS = "brokers"
_EXPORTS = (
    *({"service": f"{ROOT}.{kind}.>"} for kind in ("client", "alive", "confirm", "ask", "describe", "pub")),
    {"service": "$JS.FC.>"},
    {"stream": f"{ROOT}.deliver.>"},
)
_TABLE = f"KV_{BUCKET}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificates:
    """Files of a server that speaks TLS."""

    certificate: Path
    key: Path
    client_ca: Path | None = None
    """If given, everybody who connects must have a certificate that it has signed."""

    def context(self) -> ssl.SSLContext:
        """What a server of this process needs."""
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        try:
            context.load_cert_chain(self.certificate, self.key)
        except (OSError, ssl.SSLError) as error:
            raise ConfigurationError(
                f"{self.certificate} and {self.key} are no certificate with its key: {error}; accepted are PEM files"
            ) from None
        if self.client_ca is not None:
            context.load_verify_locations(self.client_ca)
            context.verify_mode = ssl.CERT_REQUIRED
        return context


def access_config(access: Access) -> str:
    """Accounts, users and permissions, as a server reads them."""
    inside = [_inside(name, user) for name, user in sorted(access.users.items()) if user.is_inside]
    accounts: dict[str, Any] = {BROKERS: {"jetstream": "enabled", "users": inside, "exports": list(_EXPORTS)}}
    for name, user in sorted(access.users.items()):
        if not user.is_inside:
            accounts[f"user {name}"] = _account(name, user)
    return f"accounts: {json.dumps(accounts, indent=2)}\n"


def tls_config(files: Certificates) -> str:
    content: dict[str, Any] = {"cert_file": str(files.certificate.resolve()), "key_file": str(files.key.resolve())}
    if files.client_ca is not None:
        content |= {"ca_file": str(files.client_ca.resolve()), "verify": True}
    return f"tls: {json.dumps(content, indent=2)}\n"


def _inside(name: str, user: User) -> dict[str, Any]:
    return {"nkey": user.key} | ({} if "operator" in user.roles else {"permissions": _of_broker(name)})


def _of_broker(name: str) -> dict[str, Any]:
    """All but who may do what, and what others are answered."""
    changes = ("CREATE", "UPDATE", "DELETE", "PURGE", "RESTORE", "MSG.DELETE")
    denied = [f"$KV.{BUCKET}.>", *(f"$JS.API.STREAM.{change}.{_TABLE}" for change in changes)]
    return {
        "publish": {"allow": [">"], "deny": denied},
        "subscribe": {"allow": [f"{ROOT}.>", "$KV.>", f"{inbox_prefix(name)}>"]},
    }


def _account(name: str, user: User) -> dict[str, Any]:
    """The account of a client's user: the subjects of its own, as permissions and as imports."""
    own, deliveries = f"{name}/*", f"{ROOT}.deliver.{token(name)}.>"
    services = [
        client_subject("*", own),
        alive_subject("*", own),
        confirm_subject("*", own),
        ask_subject("*", name),
        describe_subject(name),
        f"$JS.FC.*.{token(name)}.*",
        *(f"{ROOT}.pub.*.{token(topic)}" for topic in user.roles.get("publisher", ())),
    ]
    permissions = {
        "publish": {"allow": services},
        "subscribe": {"allow": [f"{inbox_prefix(name)}>", deliveries]},
    }
    return {
        "users": [{"nkey": user.key, "permissions": permissions}],
        "imports": [
            *({"service": {"account": BROKERS, "subject": one}} for one in services),
            {"stream": {"account": BROKERS, "subject": deliveries}},
        ],
    }
