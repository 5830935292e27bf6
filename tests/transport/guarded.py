"""A server with users, and certificates."""

from pathlib import Path
from typing import Any

import trustme

import catchment
from catchment import Schema
from catchment.transport.access import Access
from catchment.transport.credentials import Credentials, write_key
from catchment.transport.jetstream import JetStream
from catchment.transport.permissions import Certificates
from catchment.transport.server import Server
from catchment.transport.wire import Connection, open_connection
from tests.transport.conftest import SCHEMAS, Live

TOPICS = {**SCHEMAS, "stock": Schema({"price": "float"})}
ROLES = {
    "ann": ("publisher", ("traffic",)),
    "bob": ("subscriber", ("traffic",)),
    "eve": ("subscriber", ("traffic", "stock")),
    "brokers": ("broker", ()),
    "root": ("operator", ()),
}
ALL = "SELECT * FROM traffic"


class Guarded:
    """A server with users, and what each of them shows it."""

    def __init__(self, folder: Path, **server: Any) -> None:
        self.folder, self.access = folder, Access()
        self.of: dict[str, Credentials] = {}
        for name, (role, topics) in ROLES.items():
            self.access, seed = self.access.with_role(name, role, topics)
            assert seed is not None
            write_key(folder / f"{name}.key", name, seed)
            self.of[name] = Credentials(key=folder / f"{name}.key")
        self.server = Server(folder / "guarded", access=self.access, **server)

    async def opened(self, user: str) -> Connection:
        return await open_connection(self.server.url, user, self.of[user])

    def connect(self, user: str, **options: Any) -> Any:
        return catchment.connect(self.server.url, key=self.of[user].key, **options)

    async def started(self, *links: tuple[str, str], **how: Any) -> Live:
        root = await self.opened("root")
        await self.access.store(JetStream(root))
        await root.close()
        overlay = Live(
            self.server, self.folder, list(links), schemas=TOPICS, operator=self.of["root"],
            of_brokers=self.of["brokers"], **how,
        )  # fmt: skip
        self.overlay = overlay
        await overlay.start()
        return overlay


class Authority:
    """Certificates in files."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._ca = folder, trustme.CA()
        folder.mkdir()
        self.file = folder / "ca.pem"
        self._ca.cert_pem.write_to_path(str(self.file))

    def server(self, host: str = "127.0.0.1", *, client_ca: Path | None = None, **how: Any) -> Certificates:
        made, place = self._ca.issue_cert(host, **how), self._folder / f"{len(list(self._folder.iterdir()))}.pem"
        made.cert_chain_pems[0].write_to_path(str(place))
        made.private_key_pem.write_to_path(f"{place}.key")
        return Certificates(certificate=place, key=Path(f"{place}.key"), client_ca=client_ca)

    def client(self) -> Path:
        place = self._folder / "client.pem"
        self._ca.issue_cert("ann@example.org").private_key_and_cert_chain_pem.write_to_path(str(place))
        return place
