"""Where events enter the overlay: checked, stamped, and each id once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from catchment.broker.recent_ids import RecentIds
from catchment.model.errors import EventError
from catchment.model.events import value_problem
from catchment.model.schema import RESERVED_COLUMNS, Schema, Type

__all__ = ["DEDUPLICATION_US", "Accepted", "Ingress"]

DEDUPLICATION_US = 120_000_000


NO_EVENTS = pa.RecordBatch.from_arrays([pa.array([], pa.string())], names=["event_id"])


@dataclass(frozen=True, slots=True)
class Accepted:
    """The events of several requests that may go on."""

    events: pa.RecordBatch
    owners: npt.NDArray[np.int64]
    """Of each event, the request that it came by."""
    errors: dict[int, EventError] = field(default_factory=dict)
    """Of each request that is refused, why."""


class Ingress:
    """The publications of one broker's clients."""

    def __init__(self, broker: str, schemas: Mapping[str, Schema], remembered_max: int) -> None:
        self._broker, self._schemas, self._remembered_max = broker, schemas, remembered_max
        self._name, self._prefix = pa.scalar(broker, pa.string()), f"{broker}/"
        self.recent = RecentIds(DEDUPLICATION_US)
        """The ids that clients have supplied."""
        self.sequence = 0
        """Of the last id that was given here."""
        self.repeated = 0
        """Events that were left out because their id had come before."""

    def accept(self, topic: str, given: Sequence[tuple[pa.RecordBatch, int]]) -> Accepted:
        """The events of several requests, each with the time at which it came, with id, ingress broker and time stamp.

        All of them have the same columns. A request is accepted whole or not at all; repeated events are left out.
        """
        if topic not in self._schemas or not given:
            return Accepted(NO_EVENTS, np.zeros(0, np.int64))
        try:
            return self._accept(topic, given)
        except EventError as error:
            if len(given) == 1:
                return Accepted(NO_EVENTS, np.zeros(0, np.int64), {0: error})
        # One bad request is refused alone.
        found = [self.accept(topic, [one]) for one in given]
        good = [(number, one) for number, one in enumerate(found) if not one.errors]
        return Accepted(
            pa.concat_batches([one.events for _, one in good]) if good else NO_EVENTS,
            np.concatenate([np.zeros(0, np.int64), *(np.full(one.events.num_rows, number) for number, one in good)]),
            {number: one.errors[0] for number, one in enumerate(found) if one.errors},
        )

    def _accept(self, topic: str, given: Sequence[tuple[pa.RecordBatch, int]]) -> Accepted:
        batches = [batch for batch, _ in given]
        events = batches[0] if len(batches) == 1 else pa.concat_batches(batches)
        schema, rows, names = self._schemas[topic], events.num_rows, events.schema.names
        counts = [batch.num_rows for batch in batches]
        came = np.repeat(np.array([at_us for _, at_us in given], np.int64), counts)
        columns: dict[str, pa.Array] = {"broker": pa.repeat(self._name, rows)}
        columns["ts"] = _times(events.column("ts") if "ts" in names else None, came)
        for name in names:
            if name not in RESERVED_COLUMNS:
                if name not in schema:
                    known = ", ".join(sorted(schema))
                    raise EventError(f"topic {topic!r} has no attribute {name!r}; it has {known}")
                columns[name] = _typed(name, events.column(name), schema[name])
        for name in names:
            problem = value_problem(name, columns[name]) if name in columns else None
            if problem is not None:
                raise EventError(f"an event is refused: {problem}")
        supplied = events.column("event_id").cast(pa.string()) if "event_id" in names else pa.nulls(rows, pa.string())
        # Nothing is remembered or counted before everything is known to be fine.
        fresh = self._fresh(supplied, came)
        accepted = pa.RecordBatch.from_arrays([self._ids(supplied), *columns.values()], names=["event_id", *columns])
        owners = np.repeat(np.arange(len(given)), counts)
        if fresh.all():
            return Accepted(accepted, owners)
        self.repeated += int((~fresh).sum())
        return Accepted(accepted.filter(pa.array(fresh)), owners[fresh])

    def _ids(self, supplied: pa.StringArray) -> pa.StringArray:
        """The ids that were supplied, and new ones for the other events."""
        count = supplied.null_count
        if not count:
            return supplied
        first, self.sequence = self.sequence + 1, self.sequence + count
        given = pa.array([f"{self._prefix}{number}" for number in range(first, first + count)], pa.string())
        return given if count == len(supplied) else pc.replace_with_mask(supplied, supplied.is_null(), given)

    def _fresh(self, supplied: pa.StringArray, came: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Of each event, whether its id is given here or was not supplied of late; supplied ones are remembered."""
        fresh = np.ones(len(supplied), np.bool_)
        if supplied.null_count == len(supplied):
            return fresh
        there = supplied.is_valid().to_numpy(zero_copy_only=False)
        ids = supplied.drop_null()
        for one in ids.filter(pc.starts_with(ids, self._prefix)).to_pylist():
            if one[len(self._prefix) :].isdecimal():
                raise EventError(f"an event has the id {one!r}, which broker {self._broker!r} gives itself")
        known = self.recent.count_at(int(came[-1]))
        if known + len(ids) > self._remembered_max:
            raise EventError(
                f"broker {self._broker!r} remembers {known} ids of the last 120 seconds; "
                f"accepted are {self._remembered_max}: publish more slowly"
            )
        fresh[there] = self.recent.fresh(ids, came[there])
        return fresh


def _times(given: pa.Array | None, came: npt.NDArray[np.int64]) -> pa.Array:
    """When events happened; where they do not say, when they came."""
    stamps = pa.array(came).view(Type.TIMESTAMP.arrow)
    if given is None:
        return stamps
    times = _typed("ts", given, Type.TIMESTAMP)
    return pc.coalesce(times, stamps) if times.null_count else times


def _typed(name: str, column: pa.Array, kind: Type) -> pa.Array:
    if column.type == kind.arrow:
        return column
    try:
        return column.cast(kind.arrow)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise EventError(f"attribute {name!r} is of type {column.type}; accepted is {kind.value}") from None
