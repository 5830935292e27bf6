"""Pieces of snapshots: bytes that say which piece of which snapshot they are, and whether they are whole.

    piece     magic, format, checksum of the rest, length of the head, head, body

Rule 1: a snapshot stands for one position of the input of one broker. Its pieces are numbered from 1 on, and each has
        the checksum of the one before, so that pieces of different attempts at the same position are told apart.
Rule 2: first come pieces with remembered ids, then those with all the rest. Only ids that came since an earlier
        snapshot need be written; then the pieces with the ids of that one are needed as well.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import msgspec

from catchment.model.errors import UNREADABLE, CheckpointError

__all__ = ["FORMAT", "IdRange", "PieceHead", "SnapshotPiece", "require_whole"]

FORMAT = 6
_MAGIC = b"CSNP"
_PREFIX = struct.Struct(">4sH32sI")
_CHECKED_FROM = _PREFIX.size - 4
"""The checksum is over all that follows it."""


class IdRange(msgspec.Struct, frozen=True, array_like=True):
    """The positions [begin, end) of remembered ids that a piece has; the snapshot needs all from `oldest` on."""

    begin: int
    end: int
    oldest: int


class PieceHead(msgspec.Struct, frozen=True, array_like=True):
    """Which piece of which snapshot it is."""

    broker: str
    position: int
    number: int
    is_last: bool
    before: bytes
    """The checksum of the piece before; empty for the first."""
    ids: IdRange | None = None

    def __str__(self) -> str:
        return f"piece {self.number} of the snapshot of {self.broker!r} at {self.position}"


_heads = msgspec.msgpack.Decoder(PieceHead)


@dataclass(frozen=True, slots=True)
class SnapshotPiece:
    """One piece, with what it holds."""

    head: PieceHead
    checksum: bytes
    body: bytes = field(repr=False)

    @classmethod
    def of(cls, head: PieceHead, body: bytes) -> SnapshotPiece:
        return cls(head, hashlib.sha256(_checked(head, body)).digest(), body)

    @property
    def data(self) -> bytes:
        """The piece as it is stored."""
        return b"".join([_MAGIC, FORMAT.to_bytes(2, "big"), self.checksum, _checked(self.head, self.body)])

    def without_body(self) -> SnapshotPiece:
        return replace(self, body=b"")

    @classmethod
    def read(cls, data: bytes) -> SnapshotPiece:
        """Decode what `written` gave; anything else is a CheckpointError."""
        if len(data) < _PREFIX.size or not data.startswith(_MAGIC):
            raise CheckpointError(
                f"{len(data)} bytes are no piece of a snapshot; accepted is what `Snapshot.pieces` gives"
            )
        _, format_, checksum, head_bytes = _PREFIX.unpack_from(data)
        if format_ != FORMAT:
            raise CheckpointError(f"a piece of a snapshot has the format {format_}; accepted is {FORMAT}")
        if hashlib.sha256(data[_CHECKED_FROM:]).digest() != checksum:
            raise CheckpointError(f"a piece of a snapshot, {len(data)} bytes, does not fit its checksum")
        body_at = _PREFIX.size + head_bytes
        try:
            head = _heads.decode(data[_PREFIX.size : body_at])
        except UNREADABLE as error:
            raise CheckpointError(f"the head of a piece of a snapshot does not decode: {error}") from None
        return cls(head, checksum, data[body_at:])

    def follows(self, before: SnapshotPiece | None) -> bool:
        """Tell whether this is the next piece of the same snapshot; None is before the first one."""
        head = self.head
        if before is None:
            return head.number == 1
        same = (head.broker, head.position) == (before.head.broker, before.head.position)
        return same and head.number == before.head.number + 1 and head.before == before.checksum


def _checked(head: PieceHead, body: bytes) -> bytes:
    """What a checksum is over."""
    encoded = msgspec.msgpack.encode(head)
    return b"".join([len(encoded).to_bytes(4, "big"), encoded, body])


def require_whole(pieces: Sequence[SnapshotPiece]) -> list[SnapshotPiece]:
    """Give the pieces of the snapshot that these end with; raise if one is missing, repeated or of another snapshot.

    Before them may stand pieces with ids of earlier snapshots of the same broker.
    """
    if not pieces:
        raise CheckpointError("no pieces of a snapshot are given; accepted are all pieces of one")
    last = pieces[-1].head
    own: list[SnapshotPiece] = []
    for piece in pieces:
        head = piece.head
        if head.broker != last.broker:
            raise CheckpointError(f"{head} is given; accepted are pieces of {last.broker!r}")
        if not own and head.position != last.position:
            if head.ids is None:
                raise CheckpointError(f"{head} is given before those of another; accepted there are pieces with ids")
            continue
        before = own[-1] if own else None
        if not piece.follows(before):
            given = f"{head} is given"
            if before is not None and head.number == before.head.number + 1:
                raise CheckpointError(f"{given}, of which piece {before.head.number} is another than the one before")
            expected = 1 if before is None else before.head.number + 1
            raise CheckpointError(f"{given}; accepted is piece {expected} of the one at {last.position}")
        own.append(piece)
    if not last.is_last:
        raise CheckpointError(
            f"{last} is the last that is given, and more belong to it; accepted are all pieces of one"
        )
    return own
