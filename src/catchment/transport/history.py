"""Histories: what each broker has accepted of its clients, in a stream of its own that anybody may read from any point.

    catchment_history_<broker>    a frame for each step that accepted something (`broker/history.py`), readable alone

Rule 1: what is older than a history reaches back is dropped by its broker, which keeps the newest message for its mark;
        what is more than it may take is dropped by the server, oldest first.
Rule 2: a reader that asks for what is gone is told so (`HistoryGoneError`), and never given the rest in its place.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from catchment.broker.frames import FrameReader
from catchment.broker.history import NOTHING_RECORDED_US
from catchment.broker.messages import Recorded
from catchment.model.errors import ConfigurationError, TransportError
from catchment.model.times import timestamp_text
from catchment.transport.jetstream import JetStream, Stored, StreamState
from catchment.transport.names import history_stream, history_subject

__all__ = [
    "NOTHING_RECORDED_US",
    "HistoryGoneError",
    "Kept",
    "Recorded",
    "begin_for",
    "dropped_until",
    "forget_old",
    "history_state",
    "open_history",
    "position_after_rows",
    "recorded_in",
    "require_kept",
]

BYTES_MAX_LEAST = 4_000_000
"""Some frames: less would drop what was stored just now."""


class HistoryGoneError(TransportError):
    """Somebody asks for what a history no longer has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """How far a history reaches back, and how much it may take."""

    keep_us: int
    bytes_max: int = -1
    """-1 is no limit."""

    def __post_init__(self) -> None:
        if self.keep_us < 1_000_000:
            raise ConfigurationError(
                f"a history reaches back {self.keep_us} microseconds; accepted is a second or more"
            )
        if self.bytes_max != -1 and self.bytes_max < BYTES_MAX_LEAST:
            raise ConfigurationError(
                f"a history takes {self.bytes_max} bytes; accepted are {BYTES_MAX_LEAST} or more, or no limit"
            )

    @property
    def look_every_s(self) -> float:
        return min(max(self.keep_us / 1e6 / 20, 0.2), 60.0)


async def open_history(streams: JetStream, broker: str, kept: Kept) -> None:
    """Create the stream of a broker's history, if it is not there."""
    await streams.create(
        history_stream(broker),
        [history_subject(broker)],
        bytes_max=kept.bytes_max,
        discard="old",
        metadata={"broker": broker},
    )


async def history_state(streams: JetStream, broker: str) -> StreamState:
    """How far the history of a broker has come; a broker without one is a TransportError."""
    state = await streams.state(history_stream(broker))
    if state is None:
        raise TransportError(
            f'broker {broker!r} has no history; accepted is an overlay whose file says [history] keep = "7 days", '
            "once its brokers run"
        )
    return state


async def forget_old(streams: JetStream, broker: str, oldest_us: int, newest: int) -> None:
    """Drop what was stored before a time, but for the newest message, and the newest that is no fence."""

    async def is_kept(stored: Stored) -> bool:
        return stored.at_us >= oldest_us

    state = await history_state(streams, broker)
    first = min(await _first_where(streams, broker, state, is_kept), newest)
    while first > state.first and await _first_recorded(streams, broker, first) is None:
        # Else nothing would tell what was there before.
        first -= 1
    await streams.purge(history_stream(broker), first)


def recorded_in(stored: Stored) -> list[Recorded]:
    """What a message of a history says; nothing if it is a fence."""
    if not stored.data:
        return []
    return [one for one in FrameReader().decode(stored.data).messages if isinstance(one, Recorded)]


def require_kept(broker: str, state: StreamState, position: int) -> None:
    """Refuse to go on behind a position if the history has dropped what comes next, or is another one."""
    if position > state.last:
        raise HistoryGoneError(
            f"the history of broker {broker!r} ends at {state.last}, and {position} was read: it is another history; "
            "accepted is the server that was read before, or a new start"
        )
    if position + 1 < state.first:
        raise HistoryGoneError(
            f"the history of broker {broker!r} begins at {state.first}; {position + 1} to {state.first - 1} were "
            "dropped by its limits ([history] keep, bytes_max)"
        )


async def begin_for(streams: JetStream, broker: str, since_us: int) -> int:
    """The first position to read so that no event from a time on is missed; a HistoryGoneError if some are gone."""
    state = await history_state(streams, broker)
    gone_us = await dropped_until(streams, broker)
    if gone_us >= since_us:
        raise HistoryGoneError(
            f"the history of broker {broker!r} has dropped events of times up to {timestamp_text(gone_us)} by its "
            "limits ([history] keep, bytes_max); accepted are later times"
        )

    async def is_behind(stored: Stored) -> bool:
        found = await _first_recorded(streams, broker, stored.position)
        return found is None or found[1].latest_us >= since_us

    # The message before may have brought it.
    return max(await _first_where(streams, broker, state, is_behind) - 1, state.first)


async def dropped_until(streams: JetStream, broker: str) -> int:
    """The latest time of the events that a history has dropped; NOTHING_RECORDED_US if there are none."""
    state = await history_state(streams, broker)
    first = await _first_recorded(streams, broker, state.first)
    return NOTHING_RECORDED_US if first is None else first[1].latest_us


async def position_after_rows(streams: JetStream, broker: str, after: int, last: int, rows_max: int) -> int:
    """The last position up to which a history has about so many events behind another position; at least one message.

    The messages are looked at in steps that double, and then between the last two.
    """
    begin = await _first_recorded(streams, broker, after + 1)
    if begin is None:
        return last
    most = begin[1].number + rows_max

    async def is_enough(position: int) -> bool:
        """Whether all up to a position are so many events."""
        found = await _first_recorded(streams, broker, position + 1)
        return found is not None and found[1].number >= most

    low, step = begin[0], 1
    high = low
    while high < last and not await is_enough(high):
        low, high, step = high + 1, min(high + step, last), 2 * step
    while low < high:
        middle = (low + high) // 2
        if await is_enough(middle):
            high = middle
        else:
            low = middle + 1
    return high


async def _first_recorded(streams: JetStream, broker: str, position: int) -> tuple[int, Recorded] | None:
    """The first thing that was recorded from a position on, and where."""
    while (stored := await streams.next(history_stream(broker), position, history_subject(broker))) is not None:
        if found := recorded_in(stored):
            return stored.position, found[0]
        position = stored.position + 1
    return None


async def _first_where(
    streams: JetStream, broker: str, state: StreamState, holds: Callable[[Stored], Awaitable[bool]]
) -> int:
    """The first position from which on something holds of all messages; behind the last if of none."""
    low, high = state.first, state.last + 1
    while low < high:
        middle = (low + high) // 2
        found = await streams.next(history_stream(broker), middle, history_subject(broker))
        if found is None or await holds(found):
            high = middle
        else:
            low = found.position + 1
    return low
