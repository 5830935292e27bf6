"""Small files of a job beside its checkpoint, on whatever file system Spark can reach."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

__all__ = ["Folder"]

ASIDE = ".writing"
"""The end of the name of what is being written, or was when a crash came."""


class Folder:
    """A folder on any Hadoop file system. Used on the driver, a few times a micro-batch."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        jvm: Any = spark._jvm
        self._jvm = jvm
        self._configuration = spark._jsc.hadoopConfiguration()
        given = jvm.org.apache.hadoop.fs.Path(path)
        self._files = given.getFileSystem(self._configuration)
        self._root = self._files.makeQualified(given)
        uri = self._root.toUri()
        # On this machine Python itself writes: Hadoop would start a program for each file, to set its permissions.
        self._local = Path(uri.getPath()) if uri.getScheme() == "file" else None
        hadoop = jvm.org.apache.hadoop.fs
        self._context = hadoop.FileContext.getFileContext(uri, self._configuration)
        self._overwrite = spark.sparkContext._gateway.new_array(hadoop.Options.Rename, 1)  # type: ignore[union-attr]
        self._overwrite[0] = hadoop.Options.Rename.OVERWRITE

    def __str__(self) -> str:
        return str(self._root.toString())

    def path(self, name: str) -> str:
        return f"{self}/{name}"

    def _at(self, name: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self._root, name) if name else self._root

    def exists(self, name: str = "") -> bool:
        if self._local is not None:
            return (self._local / name).exists()
        return bool(self._files.exists(self._at(name)))

    def names(self, name: str = "") -> list[str]:
        """What lies whole in a folder, in order; nothing if it is not there."""
        if not self.exists(name):
            return []
        if self._local is not None:
            found = [entry.name for entry in (self._local / name).iterdir()]
        else:
            found = [status.getPath().getName() for status in self._files.listStatus(self._at(name))]
        return sorted(one for one in found if not one.startswith(".") and not one.endswith(ASIDE))

    def sizes(self, name: str) -> dict[str, int]:
        """The files of a folder with their lengths, without those that Spark does not read either (`_…`, `.…`)."""
        if not self.exists(name):
            return {}
        if self._local is not None:
            with os.scandir(self._local / name) as entries:
                files = (entry for entry in entries if _is_read(entry.name) and entry.is_file())
                return {file.name: file.stat().st_size for file in files}
        listed = ((status.getPath().getName(), status) for status in self._files.listStatus(self._at(name)))
        return {one: int(status.getLen()) for one, status in listed if _is_read(one) and status.isFile()}

    def digest(self, name: str) -> str:
        """The SHA-256 of a file, in hexadecimal."""
        if self._local is not None:
            with (self._local / name).open("rb") as file:
                return hashlib.file_digest(file, "sha256").hexdigest()
        stream = self._files.open(self._at(name))
        try:
            return str(self._jvm.org.apache.commons.codec.digest.DigestUtils.sha256Hex(stream))
        finally:
            stream.close()

    def read(self, name: str) -> bytes:
        if self._local is not None:
            return (self._local / name).read_bytes()
        stream = self._files.open(self._at(name))
        try:
            return bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream))
        finally:
            stream.close()

    def write(self, name: str, content: bytes) -> None:
        """All of it or nothing: written aside, then renamed into place."""
        if self._local is not None:
            _write_local(self._local / name, content)
            return
        target, aside = self._at(name), self._at(f"{name}{ASIDE}")
        stream = self._files.create(aside, True)
        try:
            stream.write(bytearray(content))
            stream.hsync()
        finally:
            stream.close()
        self._context.rename(aside, target, self._overwrite)

    def delete(self, name: str) -> None:
        self._files.delete(self._at(name), True)


def _is_read(name: str) -> bool:
    return not name.startswith(("_", ".")) and not name.endswith(ASIDE)


def _write_local(target: Path, content: bytes) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    aside = target.with_name(f"{target.name}{ASIDE}")
    with aside.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    aside.replace(target)
