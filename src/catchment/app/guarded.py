"""A server that `up` starts with users: those of a file, and two of its own, whose keys live as long as it does."""

from __future__ import annotations

from pathlib import Path

from catchment.model.errors import CatchmentError, ConfigurationError, TransportError
from catchment.transport.access import Access
from catchment.transport.credentials import Credentials, write_key
from catchment.transport.jetstream import JetStream
from catchment.transport.permissions import Certificates
from catchment.transport.reports import Report
from catchment.transport.server import Server
from catchment.transport.wire import open_connection

__all__ = ["GuardedServer", "certificates_of"]

BROKER, OPERATOR = "brokers of up", "up"


def certificates_of(certificate: Path | None, key: Path | None, client_ca: Path | None) -> Certificates | None:
    """The files of a server that speaks TLS; None if it does not."""
    if certificate is None and key is None and client_ca is None:
        return None
    if certificate is None or key is None:
        raise ConfigurationError("accepted are both --certificate and --certificate-key, or none of them")
    for file in (certificate, key, client_ca):
        if file is not None and not file.exists():
            raise ConfigurationError(f"there is no {file}; accepted is a PEM file")
    return Certificates(certificate=certificate, key=key, client_ca=client_ca)


class GuardedServer:
    """A server whose users are those of a file, and change with it."""

    def __init__(
        self,
        folder: Path,
        file: Path,
        keys: Path,
        certificates: Certificates | None,
        ca: Path | None,
        *,
        durability: str = "process",
        mqtt_port: int | None = None,
        mqtt_ca: Path | None = None,
    ) -> None:
        if not file.exists():
            raise ConfigurationError(f"there is no {file}; accepted is a file that `catchment access add` has written")
        self._file = file
        self._read: tuple[int, int] | None = _state(file)
        """Of the file whose users all brokers know."""
        self._own = Access()
        for name, role in ((BROKER, "broker"), (OPERATOR, "operator")):
            self._own, seed = self._own.with_role(name, role, ())
            assert seed is not None
            write_key(keys / role, name, seed)
        self.of_brokers = Credentials(key=keys / "broker", ca=ca)
        self.of_operator = Credentials(key=keys / "operator", ca=ca)
        self._access = self._with_own()
        self.server = Server(
            folder, access=self._access, certificates=certificates, durability=durability, mqtt_port=mqtt_port,
            mqtt_ca=mqtt_ca,
        )  # fmt: skip

    def _with_own(self) -> Access:
        given = Access.read(self._file).users
        for name in sorted(given.keys() & self._own.users.keys()):
            raise ConfigurationError(f"{self._file} has a user {name!r}; accepted are other names than those of `up`")
        return Access({**given, **self._own.users})

    async def store(self, url: str) -> None:
        """Hand the table to all brokers."""
        connection = await open_connection(url, "catchment up", self.of_operator)
        try:
            await self._access.store(JetStream(connection))
        finally:
            await connection.close()

    async def reload_if_changed(self, url: str, report: Report) -> None:
        """Let the server and the brokers know what has changed; what cannot be read changes nothing."""
        now = _state(self._file)
        if now == self._read:
            return
        self._read = now
        try:
            self._access = self._with_own()
            self.server.reload(self._access)
            await self.store(url)
        except TransportError as error:
            self._read = None
            report("users are not known to all brokers yet; this is tried again", "warning", reason=str(error))
        except CatchmentError as error:
            report("users stay as they were", "warning", reason=str(error))
        else:
            users = len(self._access.users) - len(self._own.users)
            report("users are as the file says now", file=str(self._file), users=users)


def _state(file: Path) -> tuple[int, int]:
    """Changes with a file; by its size too, as one that is read while it is written may have the same time after it."""
    try:
        found = file.stat()
    except FileNotFoundError:
        return 0, 0
    return found.st_mtime_ns, found.st_size
