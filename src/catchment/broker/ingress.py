"""Where events enter the overlay: checked, stamped, and each id once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from catchment.broker.limits import require_event_sizes
from catchment.broker.recent_ids import RecentIds
from catchment.model.errors import EventError
from catchment.model.events import DEDUPLICATION_US, value_problem
from catchment.model.rows import typed_column
from catchment.model.schema import RESERVED_COLUMNS, Schema, Type

__all__ = ["Accepted", "Ingress"]

FEW_IDS = 150
"""Up to so many, Python writes them quicker than Arrow."""
NO_EVENTS = pa.RecordBatch.from_arrays([pa.array([], pa.string())], names=["event_id"])


@dataclass(frozen=True, slots=True)
class Accepted:
    """The events of several requests that may go on."""

    events: pa.RecordBatch
    owners: npt.NDArray[np.int64]
    """Of each event, the request that it came by."""
    errors: dict[int, EventError] = field(default_factory=dict)
    """Of each request that is refused, why."""


@dataclass(frozen=True, slots=True)
class _Plan:
    """How events of one schema become publications of a topic."""

    given: pa.Schema
    typed_schema: pa.Schema
    """Time and attributes, as they are published."""
    places: list[int | None]
    """Of these, their columns; None is that there is no time."""
    fits: bool
    """Whether all columns are there and of their types already."""
    is_in_order: bool
    event_id: int | None
    """Its column, if there is one."""
    checked: list[tuple[str, int]]
    """Columns of which some values are refused, and their places among time and attributes."""

    @classmethod
    def of(cls, topic: str, schema: Schema, given: pa.Schema) -> _Plan:
        kinds = {"ts": Type.TIMESTAMP}
        for name in given.names:
            if name not in RESERVED_COLUMNS:
                if name not in schema:
                    known = ", ".join(sorted(schema))
                    raise EventError(f"topic {topic!r} has no attribute {name!r}; it has {known}")
                kinds[name] = schema[name]
        at = {name: place for place, name in enumerate(given.names)}
        places = [at.get(name) for name in kinds]
        typed = pa.schema([(name, kind.arrow) for name, kind in kinds.items()])
        there = pa.schema([given.field(place) for place in places if place is not None], given.metadata)
        return cls(
            given,
            typed,
            places,
            there.equals(typed, check_metadata=True),
            given.names == typed.names,
            at.get("event_id"),
            [(name, typed.names.index(name)) for name in at if kinds.get(name) in (Type.FLOAT, Type.TIMESTAMP)],
        )

    def typed(self, events: pa.RecordBatch, came: npt.NDArray[np.int64]) -> pa.RecordBatch:
        """Time and attributes of events that came at some times."""
        if self.fits and not events.column("ts").null_count:
            return events if self.is_in_order else events.select(self.places)
        times = _times(None if self.places[0] is None else events.column(self.places[0]), came)
        attributes = zip(self.typed_schema.names[1:], self.typed_schema.types[1:], self.places[1:], strict=True)
        columns = [typed_column(name, Type.of(kind), events.column(place)) for name, kind, place in attributes]
        return pa.RecordBatch.from_arrays([times, *columns], schema=self.typed_schema)


class Ingress:
    """The publications of one broker's clients."""

    def __init__(self, broker: str, schemas: Mapping[str, Schema], remembered_max: int) -> None:
        self._broker, self._schemas, self._remembered_max = broker, schemas, remembered_max
        self._name, self._prefix = pa.scalar(broker, pa.string()), f"{broker}/"
        self._names, self._plans = pa.repeat(self._name, 1_000), dict[str, _Plan]()
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
        events = given[0][0] if len(given) == 1 else pa.concat_batches([batch for batch, _ in given])
        rows, counts = events.num_rows, [batch.num_rows for batch, _ in given]
        came = np.array([at_us for _, at_us in given]).repeat(counts)
        known, supplied = self.checked(topic, events, came)
        # Nothing is remembered or counted before everything is known to be fine.
        fresh = self._fresh(supplied, came) if supplied is not None else None
        accepted = known.add_column(0, "event_id", self._ids(supplied, rows)).add_column(
            1, "broker", self._brokers(rows)
        )
        owners = np.arange(len(given)).repeat(counts)
        if fresh is None or fresh.all():
            return Accepted(accepted, owners)
        self.repeated += int((~fresh).sum())
        return Accepted(accepted.filter(pa.array(fresh)), owners[fresh])

    def checked(
        self, topic: str, events: pa.RecordBatch, came: npt.NDArray[np.int64]
    ) -> tuple[pa.RecordBatch, pa.StringArray | None]:
        """Time and attributes of events that came at some times, and the ids that they have; or an EventError."""
        plan = self._plan(topic, events.schema)
        known = plan.typed(events, came)
        for name, place in plan.checked:
            problem = value_problem(name, known.column(place))
            if problem is not None:
                raise EventError(f"an event is refused: {problem}")
        supplied = (
            None if plan.event_id is None else typed_column("event_id", Type.STRING, events.column(plan.event_id))
        )
        if supplied is not None and supplied.null_count < len(supplied):
            self._require_foreign(supplied)
        require_event_sizes(known, supplied)
        return known, supplied

    def _require_foreign(self, ids: pa.StringArray) -> None:
        """Refuse ids that this broker gives itself."""
        for one in ids.filter(pc.starts_with(ids, self._prefix)).to_pylist():
            if one is not None and one[len(self._prefix) :].isdecimal():
                raise EventError(f"an event has the id {one!r}, which broker {self._broker!r} gives itself")

    def _plan(self, topic: str, given: pa.Schema) -> _Plan:
        """What is to be done with events of a schema; the last one of each topic is remembered."""
        plan = self._plans.get(topic)
        if plan is None or not plan.given.equals(given):
            plan = self._plans[topic] = _Plan.of(topic, self._schemas[topic], given)
        return plan

    def _brokers(self, rows: int) -> pa.StringArray:
        if rows > len(self._names):
            self._names = pa.repeat(self._name, rows)
        return self._names.slice(0, rows)

    def _ids(self, supplied: pa.StringArray | None, rows: int) -> pa.StringArray:
        """The ids that were supplied, and new ones for the other events."""
        count = rows if supplied is None else supplied.null_count
        if supplied is not None and not count:
            return supplied
        first, self.sequence = self.sequence + 1, self.sequence + count
        if count <= FEW_IDS:
            given = pa.array([f"{self._prefix}{number}" for number in range(first, first + count)], pa.string())
        else:
            numbers = pa.array(np.arange(first, first + count)).cast(pa.string())
            given = pc.binary_join_element_wise(self._prefix, numbers, "")
        return given if supplied is None or count == rows else pc.replace_with_mask(supplied, supplied.is_null(), given)

    def _fresh(self, supplied: pa.StringArray, came: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Of each event, whether its id is given here or was not supplied of late; supplied ones are remembered."""
        fresh = np.ones(len(supplied), np.bool_)
        if supplied.null_count == len(supplied):
            return fresh
        there = supplied.is_valid().to_numpy(zero_copy_only=False)
        ids = supplied.drop_null()
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
    times = None if given is None else typed_column("ts", Type.TIMESTAMP, given)
    if times is not None and not times.null_count:
        return times
    stamps = pa.array(came).view(Type.TIMESTAMP.arrow)
    return stamps if times is None else pc.coalesce(times, stamps)
