"""Options that several commands have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

__all__ = ["CaOption", "CertificateOption", "JsonOption", "KeyOption", "ServerOption", "credentials_of"]

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]
ServerOption = Annotated[str, typer.Option(help="Address of a NATS server: nats://host:port.")]
KeyOption = Annotated[Path | None, typer.Option(help="Your key, as `catchment access add` wrote it.")]
CaOption = Annotated[Path | None, typer.Option(help="Certificates that have signed the server's: TLS is a must.")]
CertificateOption = Annotated[
    Path | None,
    typer.Option("--client-certificate", help="Yours, and its key, in one file, if the server asks."),
]


def credentials_of(key: Path | None, ca: Path | None, certificate: Path | None) -> Any:
    from catchment.transport.credentials import Credentials

    return Credentials(key=key, ca=ca, certificate=certificate)
