"""Snapshots of a broker: frozen in one moment, written later, piece by piece; and the broker that they bring back.

Called by the host of a broker, between two steps: `freeze` now and then, once all that came of the last step is handed
over; `restored` after a crash. A broker that is brought back and is handed the same steps since then sends the same
frames, byte by byte.

Rule 1: every object that a broker remembers has one pair of methods: `saved()` gives a value that
        `snapshot_coding` can write, and `restore(saved)` takes over such a value on a new object.
Rule 2: `saved()` changes nothing and is cheap: it copies containers and shares what never changes, as filters, batches
        and arrays that are only ever replaced. Whatever takes long is done when a piece is written.
Rule 3: `restore(saved)` keeps no container of what it is given, nor changes an array: as long as an advice has not read
        what it was given, the next snapshot has the same value.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from catchment.broker.advice import NO_CATALOGUE, Advice, Catalogue, KnownSubscription
from catchment.broker.broker import Broker, Settings
from catchment.broker.inputs import Allowed
from catchment.broker.peers import Peer
from catchment.broker.recent_ids import Frozen, RecentIds
from catchment.broker.snapshot_coding import SnapshotWriter, read_value
from catchment.broker.snapshot_pieces import IdRange, PieceHead, SnapshotPiece, require_whole
from catchment.broker.topics import plain
from catchment.model.errors import CheckpointError
from catchment.model.events import DEDUPLICATION_US
from catchment.model.schema import Schema

__all__ = ["PIECE_BYTES_MAX", "Snapshot", "freeze", "restored"]

PIECE_BYTES_MAX = 1_000_000
BODY_BYTES, WORK_US = 100_000, 300
"""A piece is written when it has so many bytes, or has taken about so long."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A frozen view of one broker at one position of its input. What the broker does later does not show in it."""

    broker: str
    position: int
    _saved: Mapping[str, Any] = field(repr=False)
    _ids: Frozen = field(repr=False)

    def pieces(self, ids_after: int = 0) -> Iterator[bytes]:
        """Write the snapshot in pieces of at most 1 MB; each is worked out when it is asked for, in little time.

        With `ids_after`, only remembered ids from that position on are written: a host gives the `ids.end` of the
        newest piece with ids that it has, and keeps earlier pieces with ids as long as their `ids.end` is behind the
        `ids.oldest` of this snapshot (`hosting.Snapshots` does so).
        """
        return (piece.data for piece in self.cut(ids_after))

    def cut(self, ids_after: int = 0) -> Iterator[SnapshotPiece]:
        """Give the pieces that `pieces` writes, one by one."""
        before = b""
        for number, (ids, is_last, body) in enumerate(self._bodies(ids_after), start=1):
            piece = SnapshotPiece.of(PieceHead(self.broker, self.position, number, is_last, before, ids), body)
            before = piece.checksum
            yield piece

    def _bodies(self, ids_after: int) -> Iterator[tuple[IdRange | None, bool, bytes]]:
        for ids in self._ids.cut(BODY_BYTES, ids_after):
            yield IdRange(ids.begin, ids.end, ids.oldest), False, ids.written()
        body = b""
        for part in SnapshotWriter(BODY_BYTES, WORK_US).parts(self._saved):
            if body:
                yield None, False, body
            body = part
        yield None, True, body


def freeze(broker: Broker) -> Snapshot:
    """Take a snapshot of a broker between two steps. That changes nothing about it."""
    saved = {
        "name": broker.name,
        "incarnation": broker.incarnation,
        "neighbours": broker.neighbours,
        "now_us": broker.now_us,
        "position": broker.position,
        "is full": broker.is_full,
        "rights": _saved_rights(broker),
        "schemas": plain(broker.schemas),
        "placements": dict(broker.placements),
        "counters": dict(broker.counters),
        "peers": {name: peer.saved() for name, peer in broker.peers.items()},
        "recorded": broker.history.sent,
        "clients": frozenset(broker.clients),
        "subscribed": dict(broker.subscribed),
        "confirmations": broker.confirmations.saved(),
        "topics": {topic: routes.saved() for topic, routes in broker.topics.items()},
        "ingress": (broker.ingress.sequence, broker.ingress.repeated),
        "weaver": broker.weaver.saved(),
    }
    return Snapshot(broker.name, broker.position, saved, broker.ingress.recent.frozen())


def restored(
    pieces: Iterable[bytes],
    settings: Settings,
    advice: Iterable[Advice] = (),
    *,
    catalogue: Catalogue = NO_CATALOGUE,
) -> Broker:
    """Make the broker that was frozen, with the same settings, advice from the beginning, and catalogue.

    Given are all pieces of one snapshot, in their order, and before them the pieces with ids of earlier ones that it
    needs. What was attached while the broker ran is made anew from the catalogue; what was removed stays so.
    """
    given = [SnapshotPiece.read(data) for data in pieces]
    own = require_whole(given)
    saved: dict[str, Any] = read_value(piece.body for piece in own if piece.head.ids is None)
    broker = Broker(
        saved["name"],
        saved["neighbours"],
        settings,
        _advice(saved["weaver"], {one.name: one for one in advice}, catalogue),
        catalogue=catalogue,
        incarnation=saved["incarnation"],
    )
    broker.now_us, broker.position, broker.is_full = saved["now_us"], saved["position"], saved["is full"]
    if saved["rights"] is not None:
        broker.rights = {owner: Allowed(*map(_topics, both)) for owner, both in saved["rights"].items()}
    for topic, attributes in saved["schemas"].items():
        broker.schemas[topic] = Schema(attributes)
    broker.placements = dict(saved["placements"])
    broker.counters = Counter(saved["counters"])
    broker.peers = {name: Peer.restored(peer) for name, peer in saved["peers"].items()}
    broker.history.sent = saved["recorded"]
    broker.clients = set(saved["clients"])
    broker.subscribed = {key: KnownSubscription(*known) for key, known in saved["subscribed"].items()}
    broker.confirmations.restore(saved["confirmations"])
    for topic, routes in saved["topics"].items():
        broker.routes(topic).restore(routes)
    broker.ingress.sequence, broker.ingress.repeated = saved["ingress"]
    ids = [piece.body for piece in given if piece.head.ids is not None]
    broker.ingress.recent = RecentIds.restored(DEDUPLICATION_US, ids)
    broker.weaver.restore(saved["weaver"])
    return broker


def _saved_rights(broker: Broker) -> dict[str, Any] | None:
    if broker.rights is None:
        return None
    return {owner: (allowed.publishes, allowed.subscribes) for owner, allowed in broker.rights.items()}


def _topics(saved: list[str] | None) -> tuple[str, ...] | None:
    return None if saved is None else tuple(saved)


def _advice(saved: Mapping[str, Any], given: Mapping[str, Advice], catalogue: Catalogue) -> list[Advice]:
    """Give what was attached, in its order, and what is new since then."""
    found = []
    for name in saved["attached"]:
        if name not in given and name not in catalogue:
            known = ", ".join(sorted({*given, *catalogue})) or "none"
            raise CheckpointError(f"a snapshot has the advice {name!r}; given are {known}")
        found.append(given[name] if name in given else catalogue[name]())
    known_names = {*saved["attached"], *saved["removed"]}
    return found + [one for name, one in given.items() if name not in known_names]
