"""The configuration of a NATS server that keeps users to what their roles allow.

Every client's user lives in an account of its own, without JetStream, which imports the few subjects that are its own.
Permissions alone would not do: a server checks where a client publishes, but not where it wants the answer, and would
store the acknowledgement of a client's message under whatever subject the client names, be it a broker's lease or
another's inbox. From another account, an answer never leaves that account.

A device that speaks MQTT cannot sign with a key. It shows a certificate, whose name is that of its user, and is let
into one more account of that user, from where it can post on the subjects of its topics and do nothing else. MQTT
sessions are streams: that account has JetStream for them, of a bounded size.
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

__all__ = ["Certificates", "access_config", "mqtt_config", "tls_config"]

BROKERS = "brokers"
_EXPORTS = (
    *({"service": f"{ROOT}.{kind}.>"} for kind in ("client", "alive", "confirm", "ask", "describe", "pub")),
    {"service": "$JS.FC.>"},
    {"stream": f"{ROOT}.deliver.>"},
)
_TABLE = f"KV_{BUCKET}"
SESSIONS_BYTES, SESSIONS_STREAMS = 16_000_000, 5
"""Of the MQTT sessions of one user's devices, and of what they ask the server to retain."""


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


def access_config(access: Access, *, with_mqtt: bool = False) -> str:
    """Accounts, users and permissions, as a server reads them."""
    inside = [_inside(name, user) for name, user in sorted(access.users.items()) if user.is_inside]
    accounts: dict[str, Any] = {BROKERS: {"jetstream": "enabled", "users": inside, "exports": list(_EXPORTS)}}
    for name, user in sorted(access.users.items()):
        if not user.is_inside:
            accounts[f"user-{token(name)}"] = _account(name, user)
            if with_mqtt and "publisher" in user.roles:
                accounts[f"devices-{token(name)}"] = _account_of_devices(name, user)
    return f"accounts: {json.dumps(accounts, indent=2)}\n"


def tls_config(files: Certificates) -> str:
    content: dict[str, Any] = {"cert_file": str(files.certificate.resolve()), "key_file": str(files.key.resolve())}
    if files.client_ca is not None:
        content |= {"ca_file": str(files.client_ca.resolve()), "verify": True}
    return f"tls: {json.dumps(content, indent=2)}\n"


def mqtt_config(listen: str, devices: Certificates | None = None) -> str:
    """Where a server listens for MQTT; `devices` are known by certificates that its `client_ca` has signed."""
    content: dict[str, Any] = {"listen": listen}
    if devices is not None:
        content["tls"] = {
            "cert_file": str(devices.certificate.resolve()), "key_file": str(devices.key.resolve()),
            "ca_file": str(devices.client_ca and devices.client_ca.resolve()), "verify_and_map": True,
        }  # fmt: skip
    # Sessions need a server of a fixed name.
    return f"server_name: catchment\nmqtt: {json.dumps(content, indent=2)}\n"


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
        *_posts(user),
    ]
    permissions = {
        "publish": {"allow": services},
        "subscribe": {"allow": [f"{inbox_prefix(name)}>", deliveries]},
    }
    return {
        "users": [{"nkey": user.key, "permissions": permissions}],
        "imports": [*map(_service, services), {"stream": {"account": BROKERS, "subject": deliveries}}],
    }


def _account_of_devices(name: str, user: User) -> dict[str, Any]:
    """The account of those who post for a user by MQTT."""
    posts = _posts(user)
    permissions = {"publish": {"allow": posts}, "subscribe": {"deny": [">"]}}
    return {
        "jetstream": {"max_mem": 0, "max_store": SESSIONS_BYTES, "max_streams": SESSIONS_STREAMS},
        "users": [{"user": name, "permissions": permissions, "allowed_connection_types": ["MQTT"]}],
        "imports": [*map(_service, posts)],
    }


def _posts(user: User) -> list[str]:
    """Where a user may post as foreign publishers do."""
    return [f"{ROOT}.pub.*.{token(topic)}" for topic in user.roles.get("publisher", ())]


def _service(subject: str) -> dict[str, Any]:
    return {"service": {"account": BROKERS, "subject": subject}}
