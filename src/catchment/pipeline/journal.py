"""The files of a streaming job: its settings, the versions of its subscriptions, pins and ledgers."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import msgspec

from catchment.model.errors import CheckpointError, SubscriptionError
from catchment.model.subscription import Subscription
from catchment.pipeline.files import Folder
from catchment.pipeline.integrity import KnownFile, check_files, checksum, damaged, sealed, unsealed
from catchment.pipeline.ledger import Change, JobRecord, Ledger, Pin, SubscriptionText, Version
from catchment.pipeline.spark_log import check_progress, check_read, offsets_of, source_logs

__all__ = ["Journal"]

FORMAT = 3
Content = TypeVar("Content", bound=msgspec.Struct)


class Journal:
    """Reads and writes what `catchment.pipeline.ledger` describes. Versions may be added from any thread."""

    def __init__(self, folder: Folder, settings: Mapping[str, Any], declared: Iterable[Subscription]) -> None:
        self.folder = folder
        self._lock = threading.Lock()
        self._versions: list[tuple[Change, ...]] = []
        self._head = ""
        self._sources: tuple[KnownFile, ...] = ()
        self.settings = dict(settings)
        texts = tuple(_text(subscription) for subscription in declared)
        _check_names(texts)
        self._open(self.settings, texts)

    def _open(self, settings: dict[str, Any], declared: tuple[SubscriptionText, ...]) -> None:
        if not self.folder.exists("job.json"):
            if self.folder.names():
                raise CheckpointError(
                    f"{self.folder} holds {', '.join(self.folder.names()[:3])} and no Catchment job (job.json); "
                    "accepted is an empty folder or the checkpoint of this job"
                )
            self._write_record(JobRecord(FORMAT, settings, declared))
            self._add([Change(subscribe=text) for text in declared])
            return
        record = self._read_record()
        given = msgspec.json.decode(msgspec.json.encode(settings))
        different = [
            f"{key} was {record.settings.get(key)!r} and is {given.get(key)!r}"
            for key in sorted({*record.settings, *given})
            if record.settings.get(key) != given.get(key)
        ]
        if different:
            raise CheckpointError(
                f"{self.folder} is the checkpoint of another job: {'; '.join(different)}; "
                "accepted is a folder of its own, or the settings it was made with"
            )
        self._record = record
        self._read_versions(record)
        if not self._versions:
            self._add([Change(subscribe=text) for text in record.declared])
        if declared != record.declared:
            self._redeclare(record.declared, declared)
            self._write_record(msgspec.structs.replace(self._record, declared=declared))

    def _read_record(self) -> JobRecord:
        is_sealed = not self.folder.read("job.json").startswith(b"{")
        record = self._read("job.json", JobRecord) if is_sealed else None
        if record is None or record.format != FORMAT:
            found = 1 if record is None else record.format
            raise CheckpointError(
                f"{self.folder.path('job.json')} is of format {found}, and this version reads format "
                f"{FORMAT}; accepted is a new folder, or the version of Catchment that made this one"
            )
        return record

    def _read_versions(self, record: JobRecord) -> None:
        """All versions in order; refused if one is missing, which the next one or the record knows."""
        names = self.folder.names("changes")
        for name in names:
            if not name.isdigit():
                raise damaged(self.folder, f"changes/{name}", "is not one of the versions")
        for number in range(1, max(record.versions, len(names)) + 1):
            name = f"changes/{number:010d}"
            content = unsealed(self.folder, name)
            version = msgspec.json.decode(content, type=Version)
            if version.follows != self._head:
                raise damaged(self.folder, name, f"does not follow the version {number - 1} that is there")
            self._versions.append(version.changes)
            self._head = checksum(content)

    def _write_record(self, record: JobRecord) -> None:
        self._write("job.json", record)
        self._record = record

    def _read(self, name: str, kind: type[Content]) -> Content:
        return msgspec.json.decode(unsealed(self.folder, name), type=kind)

    def _write(self, name: str, content: msgspec.Struct) -> str:
        """The checksum of what was written."""
        encoded = msgspec.json.encode(content)
        self.folder.write(name, sealed(name, encoded))
        return checksum(encoded)

    def _redeclare(self, before: tuple[SubscriptionText, ...], now: tuple[SubscriptionText, ...]) -> None:
        """Apply the difference between the subscriptions declared last time and now as one change."""
        active = {name: text for name, (text, _) in self.active(self.version).items()}
        declared = {text.name for text in now}
        # What was changed while the job ran is left alone, unless its declaration has changed too.
        gone = [text.name for text in before if text.name not in declared and active.get(text.name) == text]
        different = [text for text in now if text not in before and active.get(text.name) != text]
        replaced = [text.name for text in different if text.name in active]
        changes = [Change(unsubscribe=name) for name in (*gone, *replaced)]
        changes += [Change(subscribe=text) for text in different]
        if changes:
            self._add(changes)

    # -- versions -------------------------------------------------------------------------------------------------

    @property
    def version(self) -> int:
        return len(self._versions)

    def _add(self, changes: list[Change]) -> int:
        version = len(self._versions) + 1
        self._head = self._write(f"changes/{version:010d}", Version(tuple(changes), self._head))
        self._versions.append(tuple(changes))
        self._write_record(msgspec.structs.replace(self._record, versions=version))
        return version

    def subscribe(self, subscription: Subscription) -> int:
        with self._lock:
            if subscription.name in self.active(self.version):
                raise SubscriptionError(f"subscription {subscription.name!r} is already there; choose another name")
            return self._add([Change(subscribe=_text(subscription))])

    def unsubscribe(self, name: str) -> int:
        with self._lock:
            active = self.active(self.version)
            if name not in active:
                known = ", ".join(sorted(active)[:10]) or "none"
                raise SubscriptionError(f"subscription {name!r} is not there and cannot be removed; there are {known}")
            return self._add([Change(unsubscribe=name)])

    def active(self, version: int) -> dict[str, tuple[SubscriptionText, int]]:
        """The subscriptions of a version by name, each with the version that brought it."""
        found: dict[str, tuple[SubscriptionText, int]] = {}
        for number, changes in enumerate(self._versions[:version], 1):
            for change in changes:
                if change.unsubscribe is not None:
                    found.pop(change.unsubscribe, None)
                if change.subscribe is not None:
                    found[change.subscribe.name] = (change.subscribe, number)
        return found

    # -- batches --------------------------------------------------------------------------------------------------

    def pin(self, batch: int, fresh: Pin) -> Pin:
        """The pin of a batch: the one it had, or this."""
        name = f"pins/{batch:010d}"
        if self.folder.exists(name):
            return self._read(name, Pin)
        self._check_not_begun(batch)
        self._write(name, fresh)
        return fresh

    def _check_not_begun(self, batch: int) -> None:
        """Refuse to pin a batch that has left something: it ran with a pin, and would now run with another."""
        for kind in ("seen", "state"):
            if self.folder.exists(f"{kind}/batch={batch}"):
                raise damaged(self.folder, f"pins/{batch:010d}", f"is missing, though {kind}/batch={batch} is there")

    def fresh_pin(
        self,
        batch: int,
        *,
        began_us: int,
        resumed_us: int,
        idle_after_us: int | None = None,
        whole_from_us: int | None = None,
    ) -> Pin:
        """A pin for a batch that begins now."""
        self._sources = source_logs(self.folder, self._sources)
        offsets = offsets_of(self.folder, batch)
        return Pin(self.version, began_us, resumed_us, offsets, self._sources, idle_after_us, whole_from_us)

    def pinned(self) -> int:
        """The last batch that was begun; -1 before the first."""
        names = self.folder.names("pins")
        return int(names[-1]) if names else -1

    def ledger(self, batch: int) -> Ledger:
        if batch < 0:
            return Ledger()
        name = f"ledger/{batch:010d}"
        if not self.folder.exists(name):
            raise CheckpointError(
                f"{self.folder} has no ledger of batch {batch}, though batch {batch + 1} follows; "
                "accepted is the checkpoint as the job left it"
            )
        return self._read(name, Ledger)

    def last_ledger(self) -> Ledger:
        names = self.folder.names("ledger")
        return self.ledger(int(names[-1])) if names else Ledger()

    def write_ledger(self, ledger: Ledger) -> None:
        self._write(f"ledger/{ledger.batch:010d}", ledger)

    def check(self) -> None:
        """Refuse a checkpoint that is not as the job left it. Called when a job starts; reads all that is live."""
        last = self.last_ledger()
        check_progress(self.folder, begun=self.pinned(), done=last.batch)
        for batch in range(max(0, self.pinned() - 1), self.pinned() + 1):
            if self.folder.exists(f"pins/{batch:010d}"):
                pin = self._read(f"pins/{batch:010d}", Pin)
                check_read(self.folder, batch, pin)
        if self.pinned() <= last.batch:
            self._check_not_begun(last.batch + 1)
        self.check_live(last, contents=True)

    def check_live(self, ledger: Ledger, *, contents: bool = False) -> None:
        """Refuse if a file is missing, added or changed that the batch after this ledger reads."""
        for state in ledger.live:
            check_files(self.folder, f"state/{state.folder}", state.files, contents=contents)
        if ledger.seen is not None:
            check_files(self.folder, f"seen/batch={ledger.batch}", ledger.seen, contents=contents)
        if contents:
            self.placing(ledger)

    def placing(self, ledger: Ledger) -> bytes | None:
        """What the placement had learned by the end of a batch."""
        if ledger.placing is None:
            return None
        name = f"placing/{ledger.batch:010d}"
        content = unsealed(self.folder, name)
        if checksum(content) != ledger.placing:
            raise damaged(self.folder, name, "has another checksum than the ledger knows")
        return content

    def write_placing(self, batch: int, saved: bytes) -> str:
        """Its checksum, for the ledger."""
        name = f"placing/{batch:010d}"
        self.folder.write(name, sealed(name, saved))
        return checksum(saved)

    def forget(self, before: int, live: set[str]) -> None:
        """Drop ledgers of batches that can no longer run again, and state that no ledger still needs."""
        for kind in ("pins", "ledger", "placing"):
            for name in self.folder.names(kind):
                if int(name) < before:
                    self.folder.delete(f"{kind}/{name}")
        for name in self.folder.names("state"):
            if name not in live and int(name.rsplit("=", 1)[1]) < before:
                self.folder.delete(f"state/{name}")


def _text(subscription: Subscription) -> SubscriptionText:
    return SubscriptionText(subscription.name, subscription.sql, subscription.at)


def _check_names(texts: tuple[SubscriptionText, ...]) -> None:
    names: set[str] = set()
    for text in texts:
        if text.name in names:
            raise SubscriptionError(f"two subscriptions are named {text.name!r}; each name is accepted once")
        names.add(text.name)
