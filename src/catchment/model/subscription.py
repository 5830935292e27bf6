"""Subscriptions: a name, an edge broker, and a question in SQL."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

from catchment.model.errors import CatchmentError, ConfigurationError, SubscriptionError, require_type
from catchment.model.filter import Filter
from catchment.model.operators import Measure
from catchment.model.schema import RESERVED_COLUMNS, TYPES_ACCEPTED, Schema, Type
from catchment.model.states import REAL_TOTAL
from catchment.model.window import Window

__all__ = ["Aggregate", "Output", "Plane", "Query", "Subscription", "listed"]

Plane = Literal["brokers", "spark"]
PLANES: tuple[Plane, ...] = ("brokers", "spark")


@dataclass(frozen=True, slots=True)
class Output:
    """A named value of an aggregate subscription."""

    name: str
    measure: Measure


@dataclass(frozen=True, slots=True)
class Aggregate:
    """What an aggregate subscription wants of each window."""

    window: Window
    outputs: tuple[Output, ...]
    group_keys: tuple[str, ...] = ()
    having: Filter | None = None
    """Over measures and group keys, by their text: `avg(speed) < 30`."""
    having_measures: tuple[Measure, ...] = ()

    def fact_of(self, measure: Measure) -> str:
        """What HAVING calls a measure: its text with quotes, unless a group key has that name."""
        name = measure.quoted
        while name in self.group_keys:
            name += "()"
        return name

    @property
    def measures(self) -> tuple[Measure, ...]:
        """All that must be computed, for the outputs and for HAVING, each once."""
        return tuple(dict.fromkeys([*(output.measure for output in self.outputs), *self.having_measures]))


@dataclass(frozen=True, slots=True)
class Query:
    """The meaning of a subscription's SQL."""

    topic: str
    where: Filter
    columns: tuple[str, ...] | None = None
    """Of a regular subscription, the attributes wanted; None is all of them."""
    aggregate: Aggregate | None = None
    texts: tuple[str, ...] = field(default=(), compare=False)
    """Attributes compared with text, which only a schema can tell from times."""

    @property
    def attributes(self) -> tuple[str, ...]:
        """The attributes that matching and aggregating read."""
        used = set(self.where.attributes)
        if self.aggregate is not None:
            used.update(self.aggregate.group_keys)
            used.update(m.attribute for m in self.aggregate.measures if m.attribute is not None)
        return tuple(sorted(used))

    def within(self, schema: Schema) -> Query:
        """The same over a topic's schema: attributes known, types fitting, filters over the domains of the types."""
        full = schema.with_implicit()
        wanted = [column for column in self.columns or () if column not in RESERVED_COLUMNS]
        for attribute in (*self.attributes, *wanted):
            if attribute in full.unusable:
                raise SubscriptionError(
                    f"attribute {attribute!r} has type {full.unusable[attribute]}; accepted are {TYPES_ACCEPTED}: "
                    "cast the column"
                )
            if attribute not in full:
                known = ", ".join(sorted(full))
                raise SubscriptionError(f"topic {self.topic!r} has no attribute {attribute!r}; it has {known}")
        typed = replace(self, where=self.where.within(full))
        for conjunction in typed.where.disjuncts:
            for name, constraint in conjunction:
                if full[name] is Type.INT:
                    constraint.require_codable(name)
        if self.aggregate is None:
            return typed
        for measure in self.aggregate.measures:
            _check_operator(measure, full)
        return replace(typed, aggregate=_typed_having(self.aggregate, full))


def _check_operator(measure: Measure, schema: Schema) -> None:
    if measure.attribute is None:
        return
    kind, accepted = schema[measure.attribute], measure.definition.accepts
    if kind not in accepted:
        raise SubscriptionError(
            f"{measure} asks for {measure.operator} of an attribute of type {kind.value}; "
            f"accepted are {', '.join(t.value for t in accepted)}"
        )
    column = schema.column_types.get(measure.attribute, "")
    if column.startswith("decimal") and measure.state(kind) is REAL_TOTAL:
        # In Spark the sum is a decimal. In doubles it would be rounded, and differently on each engine.
        raise SubscriptionError(
            f"{measure} adds up the column {measure.attribute!r} of type {column}, which sums of doubles would round; "
            "accepted is the column cast to double, or multiplied until it is whole and cast to bigint"
        )


def _typed_having(aggregate: Aggregate, schema: Schema) -> Aggregate:
    if aggregate.having is None:
        return aggregate
    results: dict[str, Type] = {key: schema[key] for key in aggregate.group_keys}
    for measure in aggregate.having_measures:
        result = measure.result(Type.INT if measure.attribute is None else schema[measure.attribute])
        if result is None:
            raise SubscriptionError(f"HAVING compares {measure}, which is a list; accepted are single values")
        results[aggregate.fact_of(measure)] = result
    return replace(aggregate, having=aggregate.having.within(Schema(results)))


@dataclass(frozen=True)
class Subscription:
    """Who wants what, and where. Its SQL is read when it is made, so that an error shows where it was written."""

    name: str
    at: str | None = None
    """The edge broker; None where there is no overlay."""
    sql: str = field(kw_only=True)
    plane: Plane = field(default="brokers", kw_only=True)
    """Who answers it in a running overlay: its brokers, or a Spark job over their histories."""

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise SubscriptionError(f"a subscription is named {self.name!r}; accepted is a non-empty string")
        if self.at is not None and (not isinstance(self.at, str) or not self.at):
            raise SubscriptionError(
                f"subscription {self.name!r} is at {self.at!r}; accepted is the name of a broker, or None"
            )
        if not isinstance(self.sql, str):
            raise SubscriptionError(f"subscription {self.name!r} asks {self.sql!r}; accepted is a string of SQL")
        if self.plane not in PLANES:
            raise SubscriptionError(
                f"subscription {self.name!r}: plane is {self.plane!r}; accepted are {' and '.join(map(repr, PLANES))}"
            )
        _ = self.query

    @cached_property
    def query(self) -> Query:
        from catchment.model.sql import parse_query

        try:
            return parse_query(self.sql)
        except SubscriptionError as error:
            raise SubscriptionError(f"subscription {self.name!r}: {error}") from None

    @property
    def is_regular(self) -> bool:
        return self.query.aggregate is None

    def within(self, schemas: Mapping[str, Schema]) -> Query:
        """The query over the schema of its topic."""
        topic = self.query.topic
        if topic not in schemas:
            known = ", ".join(sorted(schemas)) or "none"
            raise SubscriptionError(f"subscription {self.name!r}: unknown topic {topic!r}; known are {known}")
        try:
            return self._read_with(schemas[topic]).within(schemas[topic])
        except CatchmentError as error:
            raise SubscriptionError(f"subscription {self.name!r}: {error}") from None

    def _read_with(self, schema: Schema) -> Query:
        from catchment.model.sql import parse_query

        full = schema.with_implicit()
        query = self.query
        names = {*query.attributes, *(query.columns or ())}.difference(RESERVED_COLUMNS)
        is_plain = names.issubset(full.attributes) and not any(full.get(n) is Type.TIMESTAMP for n in query.texts)
        if is_plain and not full.case_sensitive:
            return query
        # The order of texts is not that of the times they mean, and a name may be written in another case than it has:
        # such SQL is read again, now with its types and names.
        known = {**dict.fromkeys(RESERVED_COLUMNS, Type.STRING), **full.attributes}
        return parse_query(self.sql, replace(full, attributes=known))

    def __getstate__(self) -> dict[str, object]:
        return {"name": self.name, "at": self.at, "sql": self.sql, "plane": self.plane}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)


def listed(subscriptions: Any) -> list[Subscription]:
    """All of them; one alone, or anything else, is refused by name."""
    if not isinstance(subscriptions, Iterable):
        given = type(subscriptions).__qualname__
        raise ConfigurationError(f"subscriptions is of type {given}; accepted is a list of catchment.Subscription")
    found = list(subscriptions)
    for one in found:
        require_type("one of subscriptions", one, Subscription)
    return found
