"""Folders that may be written in, and those that may be executed from as well.

Compiled code, the wrapper around Java and the native libraries that the JVM unpacks need both, and either may be
missing: a home is read-only in many containers, `/tmp` is mounted `noexec` on many servers.
"""

import os
import stat
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from catchment.model.errors import ConfigurationError

__all__ = ["private_folder", "temporary_folder", "writable_folder"]


def private_folder(environ: Mapping[str, str]) -> Path:
    """The cache folder of this user, made if need be; others cannot write in it.

    Called on the driver, once or twice a session.
    """
    candidates = list(_private_candidates(environ))
    for folder in candidates:
        if _make_private(folder) and _runs_programs(folder):
            return folder
    raise ConfigurationError(
        f"none of {', '.join(map(str, candidates))} can be written in and executed from; "
        "set XDG_CACHE_HOME to a folder of yours that can"
    )


def temporary_folder(environ: Mapping[str, str]) -> Path:
    """Where the JVM may unpack native libraries: TMPDIR if that works, else a part of the private folder.

    Called on the driver, once a session. The JVM itself never looks at TMPDIR.
    """
    folder = _system_temporary(environ)
    if _runs_programs(folder):
        return folder
    folder = private_folder(environ) / "tmp"
    folder.mkdir(exist_ok=True)
    return folder


def writable_folder(folder: Path, what: str) -> Path:
    """The folder that `what` will be written to: made if need be, and found writable, before the work begins."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return folder
    except OSError as error:
        raise ConfigurationError(
            f"{what} cannot be written to {str(folder)!r} ({error.strerror}); "
            "accepted is a folder that can be made and written to"
        ) from error


def _private_candidates(environ: Mapping[str, str]) -> Iterator[Path]:
    if Path(environ.get("XDG_CACHE_HOME", "")).is_absolute():
        yield Path(environ["XDG_CACHE_HOME"]) / "catchment"
    if Path(environ.get("HOME", "")).is_absolute():
        yield Path(environ["HOME"]) / ".cache" / "catchment"
    yield _system_temporary(environ) / f"catchment-{os.getuid()}"


def _system_temporary(environ: Mapping[str, str]) -> Path:
    return Path(environ.get("TMPDIR") or tempfile.gettempdir())


def _make_private(folder: Path) -> bool:
    """False if the folder cannot be made, or if another user made it first: what we run from it must be ours."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.lstat()
    except OSError:
        return False
    writable_by_others = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not writable_by_others


def _runs_programs(folder: Path) -> bool:
    """Found out by trying: permission bits do not tell of `noexec` or read-only mounts."""
    try:
        with tempfile.TemporaryDirectory(prefix="probe-", dir=folder) as probe:
            program = Path(probe) / "program"
            program.write_text("#!/bin/sh\n")
            program.chmod(0o700)
            return subprocess.run([program], check=False, timeout=60).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False
