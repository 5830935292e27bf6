"""How long names, SQL, events and reasons may be, so that every message about them fits into a frame.

Rule 1: what a client says is refused where it comes in, with the limit that it passes; nothing that was accepted turns
        out too long for a message later.
Rule 2: a reason quotes what it was given only up to its own limit.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from catchment.model.errors import ConfigurationError, EventError, SubscriptionError

__all__ = [
    "EVENT_BYTES_MAX",
    "NAME_CHARACTERS_MAX",
    "REASON_CHARACTERS_MAX",
    "SQL_CHARACTERS_MAX",
    "require_event_sizes",
    "require_name",
    "require_sql",
    "shortened",
    "text_bytes",
]

NAME_CHARACTERS_MAX = 256
SQL_CHARACTERS_MAX = 10_000
"""Joining alternatives takes time that grows with the square of their number: at this length, half a second."""
EVENT_BYTES_MAX = 250_000
"""Of the texts of one event, its id among them: a third of a message, the rest is for columns, names and notes."""
REASON_CHARACTERS_MAX = 1_000


def require_name(what: str, name: object) -> None:
    """Refuse a name that is empty, too long, or has control characters, which routes and timers use themselves."""
    if not isinstance(name, str) or not name:
        raise ConfigurationError(f"{what} is named {str(name)[:40]!r}; accepted is a non-empty string")
    if len(name) > NAME_CHARACTERS_MAX:
        raise ConfigurationError(
            f"{what} has a name of {len(name)} characters, {name[:40]!r}…; accepted are at most {NAME_CHARACTERS_MAX}"
        )
    if not name.isprintable() and any(ord(one) < 32 or 127 <= ord(one) < 160 for one in name):
        raise ConfigurationError(f"{what} is named {name!r}; accepted are names without control characters")


def require_sql(name: str, sql: str) -> None:
    if len(sql) > SQL_CHARACTERS_MAX:
        raise SubscriptionError(
            f"subscription {name!r}: its SQL has {len(sql)} characters; accepted are at most {SQL_CHARACTERS_MAX}"
        )


def require_event_sizes(events: pa.RecordBatch, ids: pa.StringArray | None) -> None:
    """Refuse an event that not every message could carry."""
    # Of all events together, without looking at any: single ones must be cheap.
    if events.get_total_buffer_size() + (0 if ids is None else ids.get_total_buffer_size()) <= EVENT_BYTES_MAX:
        return
    all_texts = events if ids is None else events.append_column("event_id", ids)
    largest = int(text_bytes(all_texts).max(initial=0))
    if largest > EVENT_BYTES_MAX:
        raise EventError(f"an event has texts of {largest} bytes; accepted are at most {EVENT_BYTES_MAX} in all")


def text_bytes(rows: pa.RecordBatch) -> npt.NDArray[np.int64]:
    """Of each row, how long its texts and binary values are."""
    sizes = np.zeros(rows.num_rows, np.int64)
    for column in rows.columns:
        if pa.types.is_string(column.type) or pa.types.is_binary(column.type):
            sizes += pc.fill_null(pc.binary_length(column), 0).to_numpy(zero_copy_only=False)
    return sizes


def shortened(reason: str) -> str:
    """A reason that fits into a message, whatever it quotes."""
    if len(reason) <= REASON_CHARACTERS_MAX:
        return reason
    half = REASON_CHARACTERS_MAX // 2 - 2
    return f"{reason[:half]} … {reason[-half:]}"
