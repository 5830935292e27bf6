"""What Spark's own checkpoint says about batches, compared with the pins and ledgers beside it.

Spark writes `offsets/N` before batch N runs and `commits/N` after it; its file source lists what it has read under
`sources/`. Where one of them is gone, Spark would begin again somewhere else: read events twice, or not at all.
"""

from __future__ import annotations

from catchment.pipeline.integrity import AnyFolder, KnownFile, checksum, damaged
from catchment.pipeline.ledger import Pin

__all__ = ["check_progress", "check_read", "newest_sources", "offsets_of"]

FOLDER = "spark"


def offsets_of(folder: AnyFolder, batch: int) -> str | None:
    """The checksum of what Spark has noted down to read in a batch."""
    name = f"{FOLDER}/offsets/{batch}"
    return checksum(folder.read(name)) if folder.exists(name) else None


def newest_sources(folder: AnyFolder) -> tuple[KnownFile, ...]:
    """The last file of each source's own log."""
    found = []
    for source in folder.names(f"{FOLDER}/sources"):
        path = f"{FOLDER}/sources/{source}"
        numbered = {_number(name): name for name in folder.names(path) if _number(name) >= 0}
        if numbered:
            name = numbered[max(numbered)]
            content = folder.read(f"{path}/{name}")
            found.append(KnownFile(f"{source}/{name}", len(content), checksum(content)))
    return tuple(found)


def check_progress(folder: AnyFolder, *, begun: int, done: int) -> None:
    """Refuse a checkpoint of Spark that is behind the batches begun and done here, or ahead of them."""
    offsets, committed = _last(folder, "offsets"), _last(folder, "commits")
    if offsets < max(begun, done):
        raise damaged(folder, f"{FOLDER}/offsets/{max(begun, done)}", "is missing, though that batch was begun")
    if committed > done:
        raise damaged(folder, f"ledger/{committed:010d}", "is missing, though Spark has committed that batch")
    if committed < done - 1:
        raise damaged(folder, f"{FOLDER}/commits/{done - 1}", "is missing, though a batch after it is done")


def check_read(folder: AnyFolder, batch: int, pin: Pin) -> None:
    """Refuse if Spark would no longer read in a batch what it noted down when the batch was pinned."""
    name = f"{FOLDER}/offsets/{batch}"
    if pin.offsets is not None and pin.offsets != offsets_of(folder, batch):
        raise damaged(folder, name, "is missing or not what it was when the batch was begun")
    for known in pin.sources:
        source, _, last = known.name.partition("/")
        path = f"{FOLDER}/sources/{known.name}"
        if folder.exists(path):
            if checksum(folder.read(path)) != known.sha256:
                raise damaged(folder, path, "is not what it was when the last batch was begun")
        elif max(map(_number, folder.names(f"{FOLDER}/sources/{source}")), default=-1) <= _number(last):
            raise damaged(folder, path, "is missing, though the last batch read what it lists")


def _last(folder: AnyFolder, kind: str) -> int:
    return max((_number(name) for name in folder.names(f"{FOLDER}/{kind}")), default=-1)


def _number(name: str) -> int:
    """The batch that a file of Spark's is about: `12`, or `19.compact`; -1 for another."""
    first = name.partition(".")[0]
    return int(first) if first.isdigit() else -1
