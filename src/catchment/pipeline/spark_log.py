"""What Spark's own checkpoint says about batches, compared with the pins and ledgers beside it.

Spark writes `offsets/N` before batch N runs and `commits/N` after it; its file source lists what it has read under
`sources/`. Where one of them is gone, Spark would begin again somewhere else: read events twice, or not at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from uuid import UUID

import msgspec

from catchment.pipeline.integrity import AnyFolder, KnownFile, checksum, damaged
from catchment.pipeline.ledger import Pin

__all__ = ["check_progress", "check_read", "offsets_of", "source_logs"]

FOLDER = "spark"
SOURCES = f"{FOLDER}/sources"
COMPACT = ".compact"


def offsets_of(folder: AnyFolder, batch: int) -> str | None:
    """The checksum of what Spark has noted down to read in a batch."""
    name = f"{FOLDER}/offsets/{batch}"
    return checksum(folder.read(name)) if folder.exists(name) else None


def source_logs(folder: AnyFolder, known: Iterable[KnownFile] = ()) -> tuple[KnownFile, ...]:
    """The files that Spark's sources would start from, as `0/12`: those since the last that sums up all before it.

    They never change, so those that are `known` are not read again.
    """
    found = {file.name: file for file in known}
    return tuple(
        found.get(name) or _known(folder, name)
        for source in folder.names(SOURCES)
        for name in _since_compact(source, folder.names(f"{SOURCES}/{source}"))
    )


def _since_compact(source: str, names: list[str]) -> list[str]:
    numbered = sorted((_number(name), name) for name in names if _number(name) >= 0)
    compact = max((number for number, name in numbered if name.endswith(COMPACT)), default=-1)
    return [f"{source}/{name}" for number, name in numbered if number > compact or name == f"{compact}{COMPACT}"]


def _known(folder: AnyFolder, name: str) -> KnownFile:
    content = folder.read(f"{SOURCES}/{name}")
    return KnownFile(name, len(content), checksum(content))


def check_progress(folder: AnyFolder, *, begun: int, done: int) -> None:
    """Refuse a checkpoint of Spark that is behind the batches begun and done here, or ahead of them."""
    offsets, committed = _last(folder, "offsets"), _last(folder, "commits")
    if offsets < max(begun, done):
        raise damaged(folder, f"{FOLDER}/offsets/{max(begun, done)}", "is missing, though that batch was begun")
    if committed > done:
        raise damaged(folder, f"ledger/{committed:010d}", "is missing, though Spark has committed that batch")
    if committed < done - 1:
        raise damaged(folder, f"{FOLDER}/commits/{done - 1}", "is missing, though a batch after it is done")
    if offsets >= 0:
        _check_readable(folder, f"{FOLDER}/metadata", _is_identity)
    if committed >= 0:
        _check_readable(folder, f"{FOLDER}/commits/{committed}", _is_log)


def check_read(folder: AnyFolder, batch: int, pin: Pin) -> None:
    """Refuse if Spark would no longer read in a batch what it noted down when the batch was pinned."""
    name = f"{FOLDER}/offsets/{batch}"
    if pin.offsets is not None and pin.offsets != offsets_of(folder, batch):
        raise damaged(folder, name, "is missing or not what it was when the batch was begun")
    for known in pin.sources:
        path = f"{SOURCES}/{known.name}"
        if folder.exists(path):
            if checksum(folder.read(path)) != known.sha256:
                raise damaged(folder, path, "is not what it was when the last batch was begun")
        elif not _is_summed_up(folder, known.name):
            raise damaged(folder, path, "is missing, though the last batch read what it lists")


def _is_summed_up(folder: AnyFolder, name: str) -> bool:
    source, _, last = name.partition("/")
    names = folder.names(f"{SOURCES}/{source}")
    return any(one.endswith(COMPACT) and _number(one) > _number(last) for one in names)


def _check_readable(folder: AnyFolder, name: str, is_whole: Callable[[bytes], bool]) -> None:
    """Refuse a file that Spark could not read, as Spark would not name it."""
    if not folder.exists(name):
        raise damaged(folder, name, "is missing")
    try:
        is_readable = is_whole(folder.read(name))
    except ValueError:
        is_readable = False
    if not is_readable:
        raise damaged(folder, name, "cannot be read as what Spark writes there")


def _is_identity(content: bytes) -> bool:
    """As `{"id":"…"}`."""
    return bool(UUID(msgspec.json.decode(content, type=dict[str, str]).get("id", "")))


def _is_log(content: bytes) -> bool:
    """A version, and then lines of JSON."""
    first, *rest = content.decode().split("\n")
    return first.startswith("v") and bool([msgspec.json.decode(line) for line in rest])


def _last(folder: AnyFolder, kind: str) -> int:
    return max((_number(name) for name in folder.names(f"{FOLDER}/{kind}")), default=-1)


def _number(name: str) -> int:
    """The batch that a file of Spark's is about: `12`, or `19.compact`; -1 for another."""
    first = name.partition(".")[0]
    return int(first) if first.isdigit() else -1
