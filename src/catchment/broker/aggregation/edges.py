"""The subscriber's own broker: windows put together, finished, and told to clients."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from catchment.broker.aggregation.asking import Base
from catchment.broker.aggregation.clocks import NEVER
from catchment.broker.aggregation.places import Group, Item, Place
from catchment.broker.aggregation.shelves import Partial
from catchment.broker.messages import WindowValue
from catchment.broker.peers import HERE
from catchment.model.errors import AggregateOverflowError
from catchment.model.operators import Measure
from catchment.model.results import exact_json, key_text, number_of
from catchment.model.schema import Schema, Type
from catchment.model.subscription import Aggregate, Subscription
from catchment.stages import part_of

__all__ = ["Edge", "Local"]


@dataclass(slots=True)
class Local:
    """An aggregate subscription of one of this broker's clients."""

    client: str
    name: str
    sql: str
    wanted: Aggregate
    since_us: int = NEVER
    """Windows that begin earlier are left out: some events of theirs came before everyone knew of the subscription."""
    is_acknowledged: bool = False

    def plain(self) -> list[Any]:
        return [self.client, self.name, self.sql, self.since_us, self.is_acknowledged]


class Edge(Place):
    """The windows of one topic that clients of this broker wait for."""

    def __init__(self, schema: Schema, *, by_stride: bool, revises: bool) -> None:
        super().__init__(HERE, by_stride=by_stride)
        self._schema, self._tells_again = schema.with_implicit(), revises
        self.locals: dict[str, Local] = {}
        """By the id of the subscription."""
        self.told: dict[tuple[str, Group, int], tuple[int, int]] = {}
        """Of windows that were told of before they closed: with how many publications, and how often."""

    # -- something is due -------------------------------------------------------------------------------------------

    def tell(self, item: Item, base: Base) -> Iterator[tuple[str, list[WindowValue], int]]:
        """Of each subscription, its client, what is new of a window, and how many states it took to know it."""
        key, group, number = item
        shelf = self.shelves.get((key, group))
        if shelf is None:
            return
        whole, states = shelf.of_window(base.window, number, base.parts)
        if whole is None:
            return
        start_us, _ = base.window.bounds_us(number)
        for name in base.sides.get(HERE, {}):
            local = self.locals[name]
            if not local.is_acknowledged or start_us < local.since_us:
                continue
            revision = 0
            if self._tells_again:
                publications, revision = self.told.get((name, group, number), (0, 0))
                if publications == whole.publications:
                    continue
                self.told[name, group, number] = (whole.publications, revision + 1)
            yield local.client, self._values(local, base, group, number, whole, revision), states

    def _values(
        self, local: Local, base: Base, group: Group, number: int, whole: Partial, revision: int
    ) -> list[WindowValue]:
        wanted, schema = local.wanted, self._schema
        start_us, end_us = base.window.bounds_us(number)
        keys = {key: key_text(value, schema[key]) for key, value in zip(wanted.group_keys, group, strict=True)}
        results: dict[Measure, Any] = {}
        problems: dict[Measure, str] = {}
        for measure in wanted.measures:
            part = part_of(measure, schema)
            try:
                results[measure] = measure.finish(whole.state(part), part.kind)
            except AggregateOverflowError as error:
                results[measure], problems[measure] = None, str(error)

        def value_of(output: str, measure: Measure) -> WindowValue:
            kind = measure.result(Type.INT if measure.attribute is None else schema[measure.attribute])
            value = results[measure]
            shown = number_of(value, kind), exact_json(value, kind), whole.publications, revision
            return WindowValue(local.name, start_us, end_us, keys, output, *shown, problems.get(measure))

        if wanted.having is not None:
            undecidable = [measure for measure in wanted.having_measures if measure in problems]
            if undecidable:
                return [value_of(str(undecidable[0]), undecidable[0])]
            facts = {wanted.fact_of(measure): results[measure] for measure in wanted.having_measures}
            facts.update(zip(wanted.group_keys, group, strict=True))
            if not wanted.having.matches(facts):
                return []
        return [value_of(output.name, output.measure) for output in wanted.outputs]

    def forget_until(self, closed_us: int, bases: Mapping[str, Base]) -> None:
        super().forget_until(closed_us, bases)
        for name, group, number in list(self.told):
            if self.locals[name].wanted.window.bounds_us(number)[1] <= closed_us:
                del self.told[name, group, number]

    def begin_after(self, latest_us: int, name: str | None = None) -> None:
        """Leave windows out that begin no later than an event which came in before everyone knew; of one, or of all.

        Who publishes again later is asked again; but once a subscription is acknowledged, whatever comes in is counted.
        """
        for key, local in self.locals.items():
            if name in (None, key) and not local.is_acknowledged and latest_us > NEVER:
                local.since_us = max(local.since_us, latest_us + 1)

    def leave(self, name: str) -> None:
        """A subscription is no more."""
        self.locals.pop(name, None)
        self.told = {key: pair for key, pair in self.told.items() if key[0] != name}

    # -- memory -----------------------------------------------------------------------------------------------------

    def plain(self, bases: Mapping[str, Base]) -> list[Any]:
        subscriptions = [[name, local.plain()] for name, local in self.locals.items()]
        told = [[[name, group, number], list(pair)] for (name, group, number), pair in self.told.items()]
        return [super().plain(bases), subscriptions, told]

    def restore(self, plain: list[Any], schemas: Mapping[str, Schema]) -> None:
        shelves, subscriptions, told = plain
        self.restore_shelves(shelves)
        for key, (client, name, sql, since_us, is_acknowledged) in subscriptions:
            wanted = Subscription(name, sql=sql).within(schemas).aggregate
            assert wanted is not None
            self.locals[key] = Local(client, name, sql, wanted, since_us, is_acknowledged)
        self.told = {(name, tuple(group), number): (pair[0], pair[1]) for (name, group, number), pair in told}
