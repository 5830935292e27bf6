"""The files of a streaming job: its settings, the versions of its subscriptions, pins and ledgers."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from catchment.model.errors import CheckpointError, SubscriptionError
from catchment.model.subscription import Subscription
from catchment.pipeline.files import Folder
from catchment.pipeline.ledger import Change, JobRecord, Ledger, Pin, SubscriptionText

__all__ = ["Journal"]

FORMAT = 2


class Journal:
    """Reads and writes what `catchment.pipeline.ledger` describes. Versions may be added from any thread."""

    def __init__(self, folder: Folder, settings: Mapping[str, Any], declared: Iterable[Subscription]) -> None:
        self.folder = folder
        self._lock = threading.Lock()
        self._versions: list[list[Change]] = []
        self.settings = dict(settings)
        texts = tuple(_text(subscription) for subscription in declared)
        _check_names(texts)
        self._open(self.settings, texts)

    def _open(self, settings: dict[str, Any], declared: tuple[SubscriptionText, ...]) -> None:
        if not self.folder.exists("job.json"):
            if self.folder.names():
                raise CheckpointError(
                    f"{self.folder} holds {', '.join(self.folder.names()[:3])} and no Catchment job; "
                    "accepted is an empty folder or the checkpoint of this job"
                )
            self._write_record(settings, declared)
            self._add([Change(subscribe=text) for text in declared])
            return
        record = msgspec.json.decode(self.folder.read("job.json"), type=JobRecord)
        given = msgspec.json.decode(msgspec.json.encode(settings))
        different = [
            f"{key} was {record.settings.get(key)!r} and is {given.get(key)!r}"
            for key in sorted({*record.settings, *given})
            if record.settings.get(key) != given.get(key)
        ]
        if record.format != FORMAT:
            different.append(f"its format is {record.format} and this version writes {FORMAT}")
        if different:
            raise CheckpointError(
                f"{self.folder} is the checkpoint of another job: {'; '.join(different)}; "
                "accepted is a folder of its own, or the settings it was made with"
            )
        for name in self.folder.names("changes"):
            self._versions.append(msgspec.json.decode(self.folder.read(f"changes/{name}"), type=list[Change]))
        if not self._versions:
            self._add([Change(subscribe=text) for text in record.declared])
        if declared != record.declared:
            self._redeclare(record.declared, declared)
            self._write_record(settings, declared)

    def _write_record(self, settings: dict[str, Any], declared: tuple[SubscriptionText, ...]) -> None:
        self.folder.write("job.json", msgspec.json.encode(JobRecord(FORMAT, settings, declared)))

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
        self.folder.write(f"changes/{version:010d}", msgspec.json.encode(changes))
        self._versions.append(changes)
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
            return msgspec.json.decode(self.folder.read(name), type=Pin)
        self.folder.write(name, msgspec.json.encode(fresh))
        return fresh

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
        return msgspec.json.decode(self.folder.read(name), type=Ledger)

    def last_ledger(self) -> Ledger:
        names = self.folder.names("ledger")
        return self.ledger(int(names[-1])) if names else Ledger()

    def write_ledger(self, ledger: Ledger) -> None:
        self.folder.write(f"ledger/{ledger.batch:010d}", msgspec.json.encode(ledger))

    def placing(self, batch: int) -> bytes | None:
        """What the placement had learned by the end of a batch."""
        name = f"placing/{batch:010d}"
        return self.folder.read(name) if batch >= 0 and self.folder.exists(name) else None

    def write_placing(self, batch: int, saved: bytes) -> None:
        self.folder.write(f"placing/{batch:010d}", saved)

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
