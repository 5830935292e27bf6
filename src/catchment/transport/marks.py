"""Marks: the header of every message that a broker stores in an outgoing stream (`hosting.Mark`).

A message without one is of no broker, and nobody takes it for input.
"""

from __future__ import annotations

from catchment.broker.hosting import Mark
from catchment.model.errors import CheckpointError, VersionError
from catchment.transport.jetstream import JetStream, Stored
from catchment.transport.reports import Report

__all__ = ["MARK", "is_marked", "mark_of", "newest_marked"]

MARK = "Catchment-Mark"
_BYTES = MARK.encode()


def is_marked(stored: Stored) -> bool:
    """Whether a message has a mark, whatever it says."""
    return _BYTES in stored.head


def mark_of(stored: Stored) -> Mark:
    """What a message of an outgoing stream says; one that no broker has stored is a CheckpointError."""
    text = stored.headers.get(MARK)
    if text is None:
        raise CheckpointError(f"message {stored.position} of {stored.subject} has no mark; it is of no broker")
    return Mark.from_text(text)


async def newest_marked(streams: JetStream, stream: str, subject: str, report: Report) -> tuple[Mark, int]:
    """The newest mark and its position; what somebody else has stored behind it is dropped, for it is nobody's input.

    Where nothing is stored, that is the mark of nothing, at 0.
    """
    while (newest := await streams.last(stream, subject)) is not None:
        try:
            return mark_of(newest), newest.position
        except VersionError:
            raise
        except CheckpointError as error:
            report("drops what does not belong there", "warning", reason=str(error))
            await streams.drop(stream, newest.position)
    return Mark(), 0
