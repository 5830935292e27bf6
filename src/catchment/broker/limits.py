"""What a client may ask for: how long names, SQL, events and reasons may be, and how much of everything.

Rule 1: what a client says is refused where it comes in, with the limit that it passes; nothing that was accepted turns
        out too long for a message later.
Rule 2: a reason quotes what it was given only up to its own limit.
Rule 3: how much a client publishes is measured by the times at which its requests were stored.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from catchment.model.errors import ConfigurationError, EventError, SubscriptionError

__all__ = [
    "DEFAULT_LIMITS",
    "EVENT_BYTES_MAX",
    "NAME_CHARACTERS_MAX",
    "REASON_CHARACTERS_MAX",
    "SQL_CHARACTERS_MAX",
    "BusyError",
    "ClientLimits",
    "require_event_sizes",
    "require_name",
    "require_sql",
    "shortened",
    "text_bytes",
]

NAME_CHARACTERS_MAX = 256
SQL_CHARACTERS_MAX = 100_000
"""A broker reads SQL within a step, in which everybody waits for it."""
EVENT_BYTES_MAX = 250_000
"""Of the texts of one event, its id among them: a third of a message, the rest is for columns, names and notes."""
REASON_CHARACTERS_MAX = 1_000
REQUEST_BYTES_MAX = 1_000_000
BURST_US = 1_000_000
"""A client that was silent for so long may publish at once what it might have published meanwhile."""


class BusyError(ConfigurationError):
    """A request is refused now, and may be accepted after `retry_us`."""

    def __init__(self, reason: str, retry_us: int) -> None:
        super().__init__(reason)
        self.retry_us = retry_us


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientLimits:
    """How much one client may ask for."""

    request_bytes: int = REQUEST_BYTES_MAX
    events_per_second: int | None = None
    """None if there is no limit."""
    subscriptions: int = 100_000
    topics: int = 10_000

    def __post_init__(self) -> None:
        for name in ("request_bytes", "events_per_second", "subscriptions", "topics"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigurationError(f"{name} is {value}; accepted are numbers from 1 on")

    def require_request(self, client: str, size: int) -> None:
        if size > self.request_bytes:
            raise ConfigurationError(
                f"a request of {client!r} has {size} bytes; accepted are at most {self.request_bytes} "
                "(limits.request_bytes)"
            )

    def require_subscriptions(self, client: str, count: int) -> None:
        if count >= self.subscriptions:
            raise ConfigurationError(
                f"{client!r} has {count} subscriptions; accepted are at most {self.subscriptions} "
                "(limits.subscriptions)"
            )

    def require_topics(self, client: str, count: int) -> None:
        if count >= self.topics:
            raise ConfigurationError(
                f"{client!r} advertises {count} topics; accepted are at most {self.topics} (limits.topics)"
            )

    def spent(self, client: str, spent: int, events: int, now_us: int) -> int:
        """What a client has spent after some events, of which each costs as many microseconds as make up the rate.

        Spent is a time, `events_per_second` times finer than a microsecond. A client may be ahead of now by a burst; a
        batch larger than that is accepted when nothing is spent, and is paid off later.
        """
        rate = self.events_per_second
        if rate is None:
            return 0
        ahead = max(spent - now_us * rate, 0)
        over = ahead + min(events * 1_000_000, BURST_US * rate) - BURST_US * rate
        if over > 0:
            retry_us = -(-over // rate)
            raise BusyError(
                f"{client!r} publishes more than {rate} events a second (limits.events_per_second); accepted again "
                f"in {retry_us / 1_000:.0f} ms",
                retry_us,
            )
        return now_us * rate + ahead + events * 1_000_000


DEFAULT_LIMITS = ClientLimits()


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
