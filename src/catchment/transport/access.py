"""Who may do what: the users of an overlay, their public keys and their roles, in a file.

    publisher of topics     publishes events of these topics
    subscriber of topics    subscribes to these topics
    broker                  is any broker of the overlay
    operator                does everything, and changes this table

The server keeps users to the subjects of their roles (`permissions.py`). Brokers keep clients to their topics: each
gets the table from the server's store as an input (`granting.py`).
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import msgspec

from catchment.broker.inputs import Allowed
from catchment.broker.limits import require_name
from catchment.model.errors import UNREADABLE, ConfigurationError
from catchment.transport.buckets import Bucket
from catchment.transport.credentials import new_seed, new_token, public_key, token_hash
from catchment.transport.jetstream import JetStream

__all__ = ["BUCKET", "KEY", "ROLES", "Access", "User"]

BUCKET, KEY = "catchment_access", "table"
ROLES = {"publisher": True, "subscriber": True, "broker": False, "operator": False}
"""By role, whether it is a role of some topics."""


class User(msgspec.Struct, frozen=True, omit_defaults=True):
    """A public key, and what its owner may do."""

    key: str
    roles: dict[str, tuple[str, ...]]
    """By role, its topics."""
    token: str = ""
    """The hash of what the user shows over HTTP; empty if it may not come that way."""

    @property
    def is_inside(self) -> bool:
        """Whether the user works on the overlay itself, and is no mere client of it."""
        return "broker" in self.roles or "operator" in self.roles

    @property
    def allowed(self) -> Allowed:
        if "operator" in self.roles:
            return Allowed(None, None)
        return Allowed(self.roles.get("publisher", ()), self.roles.get("subscriber", ()))


class Access(msgspec.Struct, frozen=True):
    """All users of an overlay, by name."""

    users: dict[str, User] = {}
    version: int = 1

    @classmethod
    def read(cls, path: Path) -> Access:
        """The table of a file; an empty one if there is no file."""
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return cls()
        except OSError as error:
            raise ConfigurationError(f"cannot read {path}: {error.strerror}") from None
        return cls.from_bytes(data, str(path))

    @classmethod
    def from_bytes(cls, data: bytes, where: str) -> Access:
        try:
            found = msgspec.json.decode(data, type=cls)
        except UNREADABLE as error:
            raise ConfigurationError(
                f"{where} is no table of users: {error}; accepted is what `catchment access add` writes"
            ) from None
        if found.version != 1:
            raise ConfigurationError(f"{where} has version {found.version}; accepted is 1")
        for name, user in found.users.items():
            _require_user(name)
            for role, topics in user.roles.items():
                _require_role(role, topics)
        return found

    def write(self, path: Path) -> None:
        """Write the table; whoever reads the file at that moment reads the one before, or this one."""
        beside = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            beside.write_bytes(msgspec.json.format(msgspec.json.encode(self), indent=2) + b"\n")
            beside.replace(path)
        except OSError as error:
            raise ConfigurationError(f"cannot write {path}: {error.strerror}") from None

    def with_role(self, name: str, role: str, topics: Iterable[str]) -> tuple[Access, bytes | None]:
        """The table with one more role, or more topics, of a user; and the seed of its key, if the user is new."""
        _require_user(name)
        wanted = tuple(sorted(set(topics)))
        _require_role(role, wanted)
        known = self.users.get(name)
        seed = new_seed() if known is None else None
        user = User(public_key(seed), {}) if seed is not None else known
        assert user is not None
        roles = {**user.roles, role: tuple(sorted({*user.roles.get(role, ()), *wanted}))}
        if {"broker", "operator"} & roles.keys() and len(roles) > 1:
            raise ConfigurationError(
                f"user {name!r} would be {' and '.join(sorted(roles))}; accepted is broker or operator alone, or "
                "publisher and subscriber together"
            )
        return Access({**self.users, name: User(user.key, roles, user.token)}), seed

    def with_token(self, name: str) -> tuple[Access, str]:
        """The table with a new token of a user, in place of any before; and the token, which is kept nowhere."""
        user = self._known(name)
        if user.is_inside:
            raise ConfigurationError(
                f"user {name!r} is {' and '.join(user.roles)}, and would be known by a token over HTTP; accepted are "
                "publishers and subscribers"
            )
        token = new_token()
        return Access({**self.users, name: User(user.key, user.roles, token_hash(token))}), token

    def with_key(self, name: str) -> tuple[Access, bytes]:
        """The table with a new key of a user, in place of the one before; and its seed."""
        user, seed = self._known(name), new_seed()
        return Access({**self.users, name: User(public_key(seed), user.roles, user.token)}), seed

    def user_of(self, token: str) -> str | None:
        """Whose token it is; it opens nothing for those who work on the overlay itself, whatever a file says."""
        shown = token_hash(token)
        return next((name for name, user in self.users.items() if user.token == shown and not user.is_inside), None)

    def _known(self, name: str) -> User:
        if name not in self.users:
            known = ", ".join(sorted(self.users)) or "none"
            raise ConfigurationError(f"there is no user {name!r}; there are {known}")
        return self.users[name]

    def without(self, name: str) -> Access:
        self._known(name)
        return Access({one: user for one, user in self.users.items() if one != name})

    @property
    def rights(self) -> dict[str, Allowed]:
        return {name: user.allowed for name, user in sorted(self.users.items())}

    async def store(self, streams: JetStream) -> None:
        """Hand the table to all brokers, now and when they start."""
        bucket = Bucket(streams, BUCKET)
        await bucket.create()
        await bucket.write(KEY, msgspec.json.encode(self))


def _require_user(name: str) -> None:
    require_name("a user", name)
    if "/" in name or name != name.strip():
        raise ConfigurationError(f"a user is named {name!r}; accepted are names without / and without spaces around")


def _require_role(role: str, topics: tuple[str, ...]) -> None:
    if role not in ROLES:
        raise ConfigurationError(f"role is {role!r}; accepted are {', '.join(ROLES)}")
    if ROLES[role] and not topics:
        raise ConfigurationError(f"a {role} has no topics; accepted is at least one --topic")
    if not ROLES[role] and topics:
        raise ConfigurationError(f"a {role} has the topics {', '.join(topics)}; accepted are none: it has all of them")
    for topic in topics:
        require_name("a topic", topic)
