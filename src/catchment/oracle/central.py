"""What a central, all-seeing system would deliver.

Rule 1: nothing here is shared with the data plane but the model: no matcher, no slices, no partials.
Rule 2: events are taken in the order of the table, which is the order of arrival; a change of subscriptions stands
        before the event at its position.
Rule 3: a subscription sees the windows that begin after everything that arrived before it, and, once removed, only
        those that the watermark had passed by then.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from catchment.model.constraint import Constraint
from catchment.model.errors import SchemaError, SubscriptionError, require_type
from catchment.model.events import DEDUPLICATION_US, as_events, attribute_schema, problems
from catchment.model.filter import Filter
from catchment.model.operators import Measure
from catchment.model.results import exact_json, key_text, number_of
from catchment.model.schema import Schema, Type
from catchment.model.subscription import Aggregate, Query, Subscription, listed
from catchment.oracle.answer import Answer, Line
from catchment.oracle.measures import measured

__all__ = ["oracle"]

Change = tuple[int, Subscription | str]


def oracle(
    events: pa.Table,
    *,
    subscriptions: Iterable[Subscription] = (),
    changes: Sequence[Change] = (),
    schema: Schema | Mapping[str, Any] | None = None,
    lateness_us: int = 0,
    deduplicate: bool = False,
) -> Answer:
    """Notifications and deliveries for events in order of arrival.

    `changes` are pairs of a position in `events` and a subscription (from there on) or the name of one (until there).
    `schema` is one schema, or one per topic; without it the columns say the types.
    """
    require_type("events", events, pa.Table, pa.RecordBatch)
    schemas = _schemas_by_topic(schema)
    merged = _merged(schemas) if schemas is not None else _one_schema(events, schema)
    arrived = _Arrived(as_events(events, merged), schemas, lateness_us, deduplicate)
    lines: list[Line] = []
    deliveries: list[tuple[str, Any]] = []
    for life in _lives(listed(subscriptions), changes, len(arrived)):
        topic = life.subscription.query.topic
        known = {topic: merged} if schemas is None else schemas
        query = life.subscription.within(known)
        rows = arrived.matching(query, life)
        if query.aggregate is None:
            deliveries += [(life.subscription.name, arrived.ids[row]) for row in rows]
        else:
            lines += _windows(life, query.aggregate, rows, arrived, known[topic].with_implicit())
    values = [line for line in lines if line.problem is None]
    reported = [line for line in lines if line.problem is not None]
    return Answer(values, reported, deliveries, arrived.table.schema.field("event_id").type)


@dataclass(frozen=True, slots=True)
class _Life:
    """The stretch of arrivals that a subscription is there for."""

    subscription: Subscription
    begin: int
    end: int | None


class _Arrived:
    """The accepted events, and what was known at each position."""

    def __init__(
        self, table: pa.Table, schemas: Mapping[str, Schema] | None, lateness_us: int, deduplicate: bool
    ) -> None:
        refused = problems(table, schemas, None)
        self.table = table
        self.accepted = np.ones(len(table), np.bool_) if refused is None else np.asarray(refused.is_null())
        self.ids = table.column("event_id").to_pylist()
        self.topics = table.column("topic").to_pylist()
        self.brokers = table.column("broker").to_pylist()
        self.times: list[int] = table.column("ts").cast(pa.int64()).to_pylist()
        self._lateness_us = lateness_us
        self._columns: dict[str, list[Any]] = {}
        self._coded: dict[str, tuple[list[Any], npt.NDArray[np.int64]]] = {}
        if deduplicate:
            self._drop_repeats()

    def __len__(self) -> int:
        return len(self.table)

    def _drop_repeats(self) -> None:
        """The same id of a topic at the same broker at most 120 s after the last one is the same event."""
        last: dict[tuple[Any, Any, Any], int] = {}
        for row in sorted(np.flatnonzero(self.accepted), key=lambda r: self.times[r]):
            key = (self.topics[row], self.brokers[row], self.ids[row])
            if key in last and self.times[row] - last[key] <= DEDUPLICATION_US:
                self.accepted[row] = False
            last[key] = self.times[row]

    def column(self, name: str) -> list[Any]:
        if name not in self._columns:
            if name not in self.table.schema.names:
                self._columns[name] = [None] * len(self)
            else:
                values = self.table.column(name)
                plain = values.cast(pa.int64()) if pa.types.is_timestamp(values.type) else values
                self._columns[name] = plain.to_pylist()
        return self._columns[name]

    def latest_us(self, position: int) -> int | None:
        """The latest time stamp among the arrivals before a position."""
        return max((self.times[r] for r in range(position) if self.accepted[r]), default=None)

    def watermark_us(self, position: int) -> int | None:
        """The least, over the brokers heard of before a position, of their latest time stamp; less the lateness."""
        latest: dict[str, int] = {}
        for row in range(position):
            if self.accepted[row]:
                broker = self.brokers[row]
                latest[broker] = max(latest.get(broker, self.times[row]), self.times[row])
        return min(latest.values()) - self._lateness_us if latest else None

    def matching(self, query: Query, life: _Life) -> list[int]:
        mask = self.accepted & self._satisfying(query.where)
        mask[: life.begin] = False
        if life.end is not None:
            mask[life.end :] = False
        return [int(row) for row in np.flatnonzero(mask) if self.topics[row] == query.topic]

    def _satisfying(self, condition: Filter) -> npt.NDArray[np.bool_]:
        found = np.zeros(len(self), np.bool_)
        for conjunction in condition.disjuncts:
            holds = np.ones(len(self), np.bool_)
            for name, constraint in conjunction:
                holds &= self._holding(name, constraint)
            found |= holds
        return found

    def _holding(self, name: str, constraint: Constraint) -> npt.NDArray[np.bool_]:
        """Each distinct value is decided once; that is all the cleverness there is."""
        if name not in self._coded:
            numbers: dict[Any, int] = {}
            codes = [numbers.setdefault(value, len(numbers)) for value in self.column(name)]
            self._coded[name] = (list(numbers), np.array(codes, np.int64))
        values, coded = self._coded[name]
        decided = np.array([constraint.matches(value) for value in values], np.bool_)
        return decided[coded] if len(values) else np.zeros(0, np.bool_)


def _windows(life: _Life, asked: Aggregate, rows: list[int], arrived: _Arrived, schema: Schema) -> list[Line]:
    latest = arrived.latest_us(life.begin) if life.begin else None
    watermark = arrived.watermark_us(life.end) if life.end is not None else None
    members: dict[tuple[int, tuple[Any, ...]], list[int]] = defaultdict(list)
    keys = [arrived.column(key) for key in asked.group_keys]
    for row in rows:
        group = tuple(column[row] for column in keys)
        for number in asked.window.windows_of(arrived.times[row]):
            start, end = asked.window.bounds_us(number)
            began_before = latest is not None and start <= latest
            still_open = life.end is not None and (watermark is None or end > watermark)
            if not began_before and not still_open:
                members[number, group].append(row)
    lines = []
    for (number, group), inside in members.items():
        lines += _lines_of_window(life.subscription.name, asked, number, group, inside, arrived, schema)
    return lines


def _lines_of_window(
    name: str, asked: Aggregate, number: int, group: tuple[Any, ...], rows: list[int], arrived: _Arrived, schema: Schema
) -> list[Line]:
    results = {}
    for measure in asked.measures:
        values = [1] * len(rows) if measure.attribute is None else [arrived.column(measure.attribute)[r] for r in rows]
        results[measure] = measured(measure, [v for v in values if v is not None], _kind_of(measure, schema))
    start, end = asked.window.bounds_us(number)
    texts = sorted((key, key_text(value, schema[key])) for key, value in zip(asked.group_keys, group, strict=True))

    def line(output: str, measure: Measure) -> Line:
        result = results[measure]
        kind = measure.result(_kind_of(measure, schema))
        return Line(
            key=(name, start, end, tuple(texts), output),
            value=number_of(result.value, kind),
            exact=exact_json(result.value, kind),
            publications=len(rows),
            low=result.low,
            high=result.high,
            problem=result.problem,
            is_borderline=result.is_borderline,
        )

    if asked.having is not None:
        # Whether such a window is worth telling cannot be known.
        undecidable = [line(str(measure), measure) for measure in asked.having_measures if results[measure].problem]
        if undecidable:
            return undecidable[:1]
        facts = {asked.fact_of(measure): results[measure].value for measure in asked.having_measures}
        facts.update(zip(asked.group_keys, group, strict=True))
        if not asked.having.matches(facts):
            return []
    return [line(output.name, output.measure) for output in asked.outputs]


def _lives(subscriptions: Iterable[Subscription], changes: Sequence[Change], count: int) -> list[_Life]:
    open_: dict[str, tuple[Subscription, int]] = {}
    lives: list[_Life] = []

    def begin(subscription: Subscription, position: int) -> None:
        if subscription.name in open_:
            raise SubscriptionError(f"subscription {subscription.name!r} is already there; choose another name")
        open_[subscription.name] = (subscription, position)

    for subscription in subscriptions:
        begin(subscription, 0)
    for position, change in sorted(changes, key=lambda c: c[0]):
        if not 0 <= position <= count:
            raise SubscriptionError(f"a change at position {position}; accepted are 0 to {count}")
        if isinstance(change, Subscription):
            begin(change, position)
        elif change in open_:
            subscription, began = open_.pop(change)
            lives.append(_Life(subscription, began, position))
        else:
            raise SubscriptionError(f"subscription {change!r} is not there and cannot be removed")
    return lives + [_Life(subscription, began, None) for subscription, began in open_.values()]


def _kind_of(measure: Measure, schema: Schema) -> Type:
    return Type.INT if measure.attribute is None else schema[measure.attribute]


def _schemas_by_topic(schema: Any) -> dict[str, Schema] | None:
    """A schema per topic, if that is what was given."""
    if not isinstance(schema, Mapping) or not schema:
        return None
    if not all(isinstance(value, (Schema, pa.Schema, Mapping)) for value in schema.values()):
        return None
    return {topic: Schema.of(one) for topic, one in schema.items()}


def _one_schema(events: pa.Table, schema: Any) -> Schema:
    return attribute_schema(events.schema) if schema is None else Schema.of(schema)


def _merged(schemas: Mapping[str, Schema]) -> Schema:
    """All attributes of all topics, which share the columns of one table."""
    merged: dict[str, Type] = {}
    for topic, schema in schemas.items():
        for name in schema:
            if merged.setdefault(name, schema[name]) is not schema[name]:
                raise SchemaError(
                    f"attribute {name!r} is of type {schema[name].value} in topic {topic!r} and of type "
                    f"{merged[name].value} in another; accepted is one type, as topics share a column"
                )
    return Schema(merged)
