"""How a job knows its own files again: each by length and checksum, and none more or less than it left.

Rule 1: a small file is sealed: its first line has the checksum of its name and content, so that no other can take its
        place.
Rule 2: of files that Spark writes, the ledger has the lengths and checksums. Checksums are compared when a job starts,
        names and lengths before each batch.
Rule 3: what is damaged is refused with its name; nothing is repaired or left out.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Protocol

import msgspec

from catchment.model.errors import CheckpointError

__all__ = ["AnyFolder", "KnownFile", "check_files", "checksum", "damaged", "known_files", "sealed", "unsealed"]

SEAL = b"catchment sha256 "


class AnyFolder(Protocol):
    """What is asked of the folder of a checkpoint."""

    def exists(self, name: str = "") -> bool: ...
    def names(self, name: str = "") -> list[str]: ...
    def read(self, name: str) -> bytes: ...
    def write(self, name: str, content: bytes) -> None: ...
    def delete(self, name: str) -> None: ...
    def path(self, name: str) -> str: ...
    def sizes(self, name: str) -> dict[str, int]: ...
    def digest(self, name: str) -> str: ...


class KnownFile(msgspec.Struct, frozen=True):
    name: str
    size_bytes: int
    sha256: str


def checksum(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def sealed(name: str, content: bytes) -> bytes:
    return SEAL + _seal(name, content) + b"\n" + content


def unsealed(folder: AnyFolder, name: str) -> bytes:
    """The content of a sealed file; refused if it is not what was written under this name."""
    if not folder.exists(name):
        raise damaged(folder, name, "is missing")
    stored = folder.read(name)
    first, _, content = stored.partition(b"\n")
    if first != SEAL + _seal(name, content):
        raise damaged(folder, name, f"has {len(stored)} bytes that do not fit the checksum in its first line")
    return content


def _seal(name: str, content: bytes) -> bytes:
    return checksum(name.encode() + b"\0" + content).encode()


def damaged(folder: AnyFolder, name: str, what: str) -> CheckpointError:
    return CheckpointError(f"{folder.path(name)} {what}; accepted is the checkpoint as the job left it")


def known_files(folder: AnyFolder, name: str) -> tuple[KnownFile, ...]:
    """The files of a folder that Spark has written, to be known again."""
    sizes = folder.sizes(name)
    return tuple(KnownFile(one, sizes[one], folder.digest(f"{name}/{one}")) for one in sorted(sizes))


def check_files(folder: AnyFolder, name: str, known: Iterable[KnownFile], *, contents: bool) -> None:
    """Refuse a folder that does not hold exactly the known files; with `contents`, their checksums count too."""
    sizes = folder.sizes(name)
    for file in known:
        path = f"{name}/{file.name}"
        found = sizes.pop(file.name, None)
        if found is None:
            raise damaged(folder, path, f"is missing; expected are {file.size_bytes} bytes")
        if found != file.size_bytes:
            raise damaged(folder, path, f"has {found} bytes; expected are {file.size_bytes}")
        if contents and folder.digest(path) != file.sha256:
            raise damaged(folder, path, f"has another checksum than the ledger knows, {file.sha256}")
    for extra in sorted(sizes):
        raise damaged(folder, f"{name}/{extra}", "is not known to the ledger")
