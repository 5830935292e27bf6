"""Where events enter the overlay: checked, stamped, and each id once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from catchment.model.errors import EventError
from catchment.model.events import value_problem
from catchment.model.schema import RESERVED_COLUMNS, Schema, Type

__all__ = ["Ingress"]

DEDUPLICATION_US = 120_000_000


class Ingress:
    """The publications of one broker's clients."""

    def __init__(self, broker: str, schemas: Mapping[str, Schema], remembered_max: int) -> None:
        self._broker, self._schemas, self._remembered_max = broker, schemas, remembered_max
        self._name = pa.scalar(broker, pa.string())
        self.remembered: dict[str, int] = {}
        """When each id of the last 120 seconds came, oldest first."""
        self.sequence = 0
        """Of the last id that was given here."""
        self.repeated = 0
        """Events that were left out because their id had come before."""

    def accepted(self, topic: str, given: pa.RecordBatch, now_us: int) -> pa.RecordBatch:
        """The events with id, ingress broker and time stamp, without repeats; all of them or an EventError."""
        schema, rows, names = self._schemas[topic], given.num_rows, given.schema.names
        columns: dict[str, pa.Array] = {"broker": pa.repeat(self._name, rows)}
        now = pa.scalar(now_us, Type.TIMESTAMP.arrow)
        columns["ts"] = _times(given.column("ts"), now) if "ts" in names else pa.repeat(now, rows)
        for name in names:
            if name not in RESERVED_COLUMNS:
                if name not in schema:
                    known = ", ".join(sorted(schema))
                    raise EventError(f"topic {topic!r} has no attribute {name!r}; it has {known}")
                columns[name] = _typed(name, given.column(name), schema[name])
        for name in names:
            problem = value_problem(name, columns[name]) if name in columns else None
            if problem is not None:
                raise EventError(f"an event is refused: {problem}")
        supplied = given.column("event_id").to_pylist() if "event_id" in names else [None] * rows
        self._forget(now_us, rows)
        # Nothing is remembered or counted before everything is known to be fine.
        events = pa.RecordBatch.from_arrays([self._ids(supplied), *columns.values()], names=["event_id", *columns])
        return self._without_repeats(events, now_us)

    def _ids(self, supplied: list[Any]) -> pa.Array:
        ids = []
        for one in supplied:
            self.sequence += one is None
            ids.append(f"{self._broker}/{self.sequence}" if one is None else str(one))
        return pa.array(ids, pa.string())

    def _forget(self, now_us: int, rows: int) -> None:
        while self.remembered:
            oldest = next(iter(self.remembered))
            if now_us - self.remembered[oldest] <= DEDUPLICATION_US:
                break
            del self.remembered[oldest]
        if len(self.remembered) + rows > self._remembered_max:
            raise EventError(
                f"broker {self._broker!r} remembers {len(self.remembered)} ids of the last 120 seconds; "
                f"accepted are {self._remembered_max}: publish more slowly"
            )

    def _without_repeats(self, events: pa.RecordBatch, now_us: int) -> pa.RecordBatch:
        fresh = []
        for row, one in enumerate(events.column("event_id").to_pylist()):
            if one in self.remembered:
                self.repeated += 1
            else:
                self.remembered[one] = now_us
                fresh.append(row)
        return events if len(fresh) == events.num_rows else events.take(pa.array(fresh, pa.int64()))


def _times(given: pa.Array, now: pa.Scalar) -> pa.Array:
    times = _typed("ts", given, Type.TIMESTAMP)
    return times.fill_null(now) if times.null_count else times


def _typed(name: str, column: pa.Array, kind: Type) -> pa.Array:
    if column.type == kind.arrow:
        return column
    try:
        return column.cast(kind.arrow)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise EventError(f"attribute {name!r} is of type {column.type}; accepted is {kind.value}") from None
