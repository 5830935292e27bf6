"""Single events of an application, gathered into batches.

Rule 1: single events that are published together travel as one request; each is answered by itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from catchment.broker import messages as m
from catchment.model.errors import CatchmentError, ConfigurationError
from catchment.model.rows import rows_to_batch
from catchment.model.schema import Schema
from catchment.transport.asking import RequestRefusedError
from catchment.transport.futures import fail
from catchment.transport.rows import ColumnSets
from catchment.transport.sending import Sending

__all__ = ["Gathering", "Receipt", "Wait", "require_wait"]

Wait = Literal["acknowledged", "stored"]
WAITS: tuple[Wait, ...] = ("acknowledged", "stored")
FRAMES_AHEAD_MAX = {"process": 8, "disk": 1}
"""Frames that are not stored yet, beyond which single events are gathered. Where each is synced, what comes meanwhile
is the next one: a group commit."""
GATHERED_MAX = 5_000


def require_wait(wait: object) -> None:
    if wait not in WAITS:
        raise ConfigurationError(f"wait is {wait!r}; accepted are {' and '.join(WAITS)}")


@dataclass(frozen=True, slots=True)
class Receipt:
    """What became of events that were published."""

    events: int
    dropped: tuple[str, ...] = ()
    """Ids of those that came too late for windows that are closed: they went nowhere."""
    is_acknowledged: bool = True
    """Whether the broker has taken them; else they are stored, and it will."""


@dataclass(slots=True)
class _Single:
    """One event that waits to be published with others."""

    row: Mapping[str, Any]
    wait: Wait
    done: asyncio.Future[Receipt]


class Gathering:
    """Events by topic that wait to be sent."""

    def __init__(
        self, sending: Sending, schema: Callable[[str], Schema], column_sets: ColumnSets, durability: str
    ) -> None:
        self._column_sets = column_sets
        self._frames_max = FRAMES_AHEAD_MAX[durability]
        self._sending, self._schema = sending, schema
        sending.on_stored = self.flush_soon
        self._waiting: dict[str, list[_Single]] = {}
        self._is_flushing = False
        self._flushed = asyncio.Event()
        self._failure: BaseException | None = None

    def add(self, topic: str, event: Mapping[str, Any], wait: Wait) -> asyncio.Future[Receipt]:
        require_wait(wait)
        if self._failure is not None:
            raise self._failure
        done: asyncio.Future[Receipt] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(topic, []).append(_Single(event, wait, done))
        self.flush_soon()
        return done

    async def room(self) -> None:
        """Wait while more events are gathered than one request takes."""
        while any(len(one) > GATHERED_MAX for one in self._waiting.values()):
            self._flushed.clear()
            await self._flushed.wait()

    def end(self, error: BaseException) -> None:
        """Fail whatever waits."""
        self._failure = error
        for singles in self._waiting.values():
            for one in singles:
                fail(one.done, error)
        self._waiting.clear()
        self._flushed.set()

    def flush_soon(self) -> None:
        """Send what is gathered in the next turn of the event loop, unless too much is on its way."""
        if self._waiting and not self._is_flushing and self._sending.frames_waiting < self._frames_max:
            self._is_flushing = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        self._is_flushing = False
        waiting, self._waiting = self._waiting, {}
        for topic, singles in waiting.items():
            for begin in range(0, len(singles), GATHERED_MAX):
                self._publish(topic, singles[begin : begin + GATHERED_MAX])
        self._flushed.set()

    def _publish(self, topic: str, singles: list[_Single]) -> None:
        try:
            schema = self._schema(topic)
            batch = self._column_sets.fitted(topic, schema, rows_to_batch(topic, schema, [one.row for one in singles]))
            answer, stored = self._sending.begin(m.PublishEvents, topic, batch)
        except CatchmentError as error:
            if len(singles) == 1:
                fail(singles[0].done, error)
            else:
                self._publish_halves(topic, singles)
            return
        stored.add_done_callback(lambda _: _tell_stored(singles))
        answer.add_done_callback(lambda answer: self._answered(topic, singles, batch, answer))

    def _publish_halves(self, topic: str, singles: list[_Single]) -> None:
        """One of them is at fault, and the others are not refused with it."""
        half = len(singles) // 2
        self._publish(topic, singles[:half])
        self._publish(topic, singles[half:])

    def _answered(
        self, topic: str, singles: list[_Single], batch: pa.RecordBatch, answer: asyncio.Future[m.Acknowledged]
    ) -> None:
        error = answer.exception()
        if isinstance(error, RequestRefusedError) and len(singles) > 1 and error.retry_s is None:
            self._publish_halves(topic, singles)
            return
        late = {} if error is not None else _late(batch, answer.result().dropped)
        for row, one in enumerate(singles):
            if error is not None:
                fail(one.done, error)
            elif not one.done.done():
                one.done.set_result(Receipt(1, (late[row],) if row in late else ()))


def _tell_stored(singles: list[_Single]) -> None:
    for one in singles:
        if one.wait == "stored" and not one.done.done():
            one.done.set_result(Receipt(1, is_acknowledged=False))


def _late(batch: pa.RecordBatch, dropped: tuple[str, ...]) -> dict[int, str]:
    """Rows whose events were dropped, and their ids: what is late is earlier than anything of the batch that is not."""
    if not dropped:
        return {}
    if "event_id" in batch.schema.names:
        ids = batch.column("event_id").to_pylist()
        if all(one in ids for one in dropped):
            return {ids.index(one): one for one in dropped}
    if "ts" not in batch.schema.names:
        return dict(enumerate(dropped))
    times = batch.column("ts").cast(pa.int64()).fill_null(2**62).to_numpy()
    rows = np.argsort(times, kind="stable")[: len(dropped)]
    return dict(zip(sorted(rows.tolist()), dropped, strict=True))
