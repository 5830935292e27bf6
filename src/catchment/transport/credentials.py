"""How a process shows a server who it is, and knows that it is the right server.

A key file is what `catchment access add` writes: a line with the user's name behind `# `, and the seed of its nkey,
which other NATS tools read from it as well. The key signs what the server makes up anew for each connection; it never
leaves this process. A token is what a user shows over HTTP, where nothing can be signed: whoever issued it keeps its
hash.
"""

from __future__ import annotations

import base64
import hashlib
import os
import secrets
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import nkeys

from catchment.model.errors import ConfigurationError
from catchment.transport.names import ANYONE

__all__ = [
    "OPEN",
    "Credentials",
    "Identity",
    "new_seed",
    "new_token",
    "public_key",
    "replace_key",
    "replace_token",
    "token_hash",
    "write_key",
    "write_token",
]

_ACCEPTED = "accepted is a file that `catchment access add` has written"


@dataclass(frozen=True, slots=True)
class Identity:
    """A user and its key."""

    user: str
    seed: bytes = field(repr=False)

    @property
    def public_key(self) -> str:
        return public_key(self.seed)

    def signed(self, nonce: str) -> str:
        """What a server is shown for what it has made up."""
        signature = nkeys.from_seed(bytearray(self.seed)).sign(nonce.encode())
        return base64.urlsafe_b64encode(signature).rstrip(b"=").decode()


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """Files; they are read whenever a connection is opened."""

    key: Path | None = None
    """Of the user; without one, the server must be open to anyone."""
    ca: Path | None = None
    """Certificates of those whom this process trusts to know the server; else those that the system trusts. With it, a
    server without TLS is refused."""
    certificate: Path | None = None
    """Of this process, with its key in the same file, for servers that ask for one."""
    acts_for: str | None = None
    """The user whose clients this process has, if it is not the one of the key: operators may act for others."""

    @classmethod
    def of_files(cls, names: Mapping[str, str | Path | None]) -> Credentials:
        """Those that are given of the files `key`, `ca` and `certificate`."""
        key, ca, certificate = (
            None if (name := names.get(which)) is None else Path(name) for which in ("key", "ca", "certificate")
        )
        return cls(key=key, ca=ca, certificate=certificate)

    @property
    def user(self) -> str:
        if self.acts_for is not None:
            return self.acts_for
        identity = self.identity()
        return ANYONE if identity is None else identity.user

    def identity(self) -> Identity | None:
        if self.key is None:
            return None
        lines = [line.strip() for line in _text(self.key, "key file").splitlines()]
        users = [line[2:].strip() for line in lines if line.startswith("# ")]
        seeds = [line.encode() for line in lines if line.startswith("SU")]
        if len(users) != 1 or len(seeds) != 1 or not _is_seed(seeds[0]):
            raise ConfigurationError(f"{self.key} has no user's name and seed; {_ACCEPTED}")
        return Identity(users[0], seeds[0])

    def context(self) -> ssl.SSLContext:
        """What TLS needs."""
        for file, what in ((self.ca, "file of certificates"), (self.certificate, "certificate")):
            if file is not None:
                _text(file, what)
        try:
            context = ssl.create_default_context(cafile=None if self.ca is None else str(self.ca))
        except ssl.SSLError as error:
            raise ConfigurationError(f"{self.ca} has no certificate: {error}; accepted is a PEM file") from None
        if self.certificate is not None:
            try:
                context.load_cert_chain(self.certificate)
            except ssl.SSLError as error:
                raise ConfigurationError(
                    f"{self.certificate} is no certificate with its key: {error}; accepted is a PEM file with both"
                ) from None
        return context


OPEN = Credentials()
"""Of anyone."""


def new_seed() -> bytes:
    """The seed of a new user's key."""
    seed: bytes = nkeys.encode_seed(os.urandom(32), nkeys.PREFIX_BYTE_USER)
    return seed


def public_key(seed: bytes) -> str:
    key: bytes = nkeys.from_seed(bytearray(seed)).public_key
    return key.decode()


def new_token() -> str:
    """What a user shows over HTTP: of so many random bits that its plain hash tells nobody what it is."""
    return secrets.token_urlsafe(32)


def token_hash(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def write_key(path: Path, user: str, seed: bytes) -> None:
    """Write a key file that nobody else may read; one that is there is not touched."""
    _write_secret(path, b"# %s\n%s\n" % (user.encode(), seed), "key")


def write_token(path: Path, token: str) -> None:
    """Write a token to a file that nobody else may read; one that is there is not touched."""
    _write_secret(path, f"{token}\n".encode(), "token")


def replace_key(path: Path, user: str, seed: bytes) -> None:
    """Write a key file in place of another key of the same user, or where there is none; any other is not touched."""
    if path.exists() and (found := Credentials(key=path).user) != user:
        raise ConfigurationError(f"{path} has a key of {found!r}; accepted is one of {user!r}, or a new file")
    _replace_secret(path, lambda beside: write_key(beside, user, seed))


def replace_token(path: Path, token: str) -> None:
    """Write a token in place of another."""
    _replace_secret(path, lambda beside: write_token(beside, token))


def _replace_secret(path: Path, write: Callable[[Path], None]) -> None:
    """Replace a file at once: whoever reads it reads the one before, or the new one."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    write(beside)
    beside.replace(path)


def _write_secret(path: Path, data: bytes, what: str) -> None:
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise ConfigurationError(
            f"cannot write the {what} to {path}: {error.strerror}; accepted is a new file"
        ) from None
    with os.fdopen(file, "wb") as opened:
        opened.write(data)


def _is_seed(seed: bytes) -> bool:
    try:
        prefix, raw = nkeys.decode_seed(bytearray(seed))
        # The library does not look at the checksum.
        return bool(prefix == nkeys.PREFIX_BYTE_USER and nkeys.encode_seed(bytes(raw), prefix) == seed)
    except Exception:
        return False


def _text(path: Path, what: str) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError as error:
        raise ConfigurationError(f"cannot read the {what} {path}: {error.strerror}; accepted is a file") from None
