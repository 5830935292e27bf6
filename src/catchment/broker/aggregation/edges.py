"""The subscriber's own broker: windows put together, finished, and told to clients."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from catchment.broker.aggregation.asking import HERE, Base
from catchment.broker.aggregation.clocks import NEVER
from catchment.broker.aggregation.outlets import Agenda, Group, Item, Wanted, shelves_from_plain, shelves_plain
from catchment.broker.aggregation.shelves import Partial, Shelf, windows_of_slice
from catchment.broker.messages import WindowValue
from catchment.model.errors import AggregateOverflowError
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


class Edge:
    """The windows of one topic that clients of this broker wait for."""

    def __init__(self, schema: Schema, *, by_stride: bool, revises: bool) -> None:
        self._schema, self._by_stride, self._revises = schema.with_implicit(), by_stride, revises
        self.locals: dict[str, Local] = {}
        """By the id of the subscription."""
        self.shelves: dict[tuple[str, Group], Shelf] = {}
        self.agenda = Agenda()
        self.told: dict[tuple[str, Group, int], tuple[int, int]] = {}
        """Of windows that were told of before they closed: with how many publications, and how often."""

    # -- something comes --------------------------------------------------------------------------------------------

    def add(self, base: Base, wanted: Wanted, values: Mapping[str, Any]) -> list[tuple[int, Item]]:
        """A publication has come; what that is due for."""
        shelf = self.shelves.setdefault((wanted.key, wanted.group), Shelf())
        is_new = shelf.add(base.window, wanted.slice, base.views[HERE].parts, values)
        if not is_new and not self._revises:
            return []
        return self._note(base, wanted.group, windows_of_slice(base.window, wanted.slice))

    def receive(self, base: Base, group: Group, number: int, slices: Mapping[int, Partial]) -> list[tuple[int, Item]]:
        """A partial has come: of a window, or of the slices of a stride."""
        shelf = self.shelves.setdefault((base.key, group), Shelf())
        parts = {part.id: part for part in base.views[HERE].parts}
        for at, partial in slices.items():
            shelf.put(shelf.received if self._by_stride else shelf.windows, at, partial, parts)
        if not self._by_stride:
            return self._note(base, group, [number])
        windows = dict.fromkeys(one for at in slices for one in windows_of_slice(base.window, at))
        return self._note(base, group, windows)

    def _note(self, base: Base, group: Group, windows: Any) -> list[tuple[int, Item]]:
        found = [(base.window.bounds_us(number)[1], (base.key, group, number)) for number in windows]
        for end_us, item in found:
            self.agenda.add(end_us, item)
        return found

    # -- something is due -------------------------------------------------------------------------------------------

    def tell(self, item: Item, base: Base) -> Iterator[tuple[str, list[WindowValue] | AggregateOverflowError, int]]:
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
            if self._revises:
                publications, revision = self.told.get((name, group, number), (0, 0))
                if publications == whole.publications:
                    continue
                self.told[name, group, number] = (whole.publications, revision + 1)
            try:
                yield local.client, self._values(local, base, group, number, whole, revision), states
            except AggregateOverflowError as error:
                yield local.client, error, states

    def _values(
        self, local: Local, base: Base, group: Group, number: int, whole: Partial, revision: int
    ) -> list[WindowValue]:
        wanted, schema = local.wanted, self._schema
        results = {}
        for measure in wanted.measures:
            part = part_of(measure, schema)
            results[measure] = measure.finish(whole.state(part), part.kind)
        if wanted.having is not None:
            facts = {str(measure): results[measure] for measure in wanted.having_measures}
            facts.update(zip(wanted.group_keys, group, strict=True))
            if not wanted.having.matches(facts):
                return []
        start_us, end_us = base.window.bounds_us(number)
        keys = {key: key_text(value, schema[key]) for key, value in zip(wanted.group_keys, group, strict=True)}
        found = []
        for output in wanted.outputs:
            attribute = output.measure.attribute
            kind = output.measure.result(Type.INT if attribute is None else schema[attribute])
            value = results[output.measure]
            shown = number_of(value, kind), exact_json(value, kind)
            found.append(
                WindowValue(local.name, start_us, end_us, keys, output.name, *shown, whole.publications, revision)
            )
        return found

    def forget_until(self, closed_us: int, bases: Mapping[str, Base]) -> None:
        for key, group in list(self.shelves):
            base = bases.get(key)
            if base is None or self.shelves[key, group].forget(base.window, closed_us):
                del self.shelves[key, group]
        for name, group, number in list(self.told):
            if name not in self.locals or self.locals[name].wanted.window.bounds_us(number)[1] <= closed_us:
                del self.told[name, group, number]

    def leave(self, name: str) -> None:
        """A subscription is no more."""
        self.locals.pop(name, None)
        self.told = {key: pair for key, pair in self.told.items() if key[0] != name}

    def forget(self, key: str) -> None:
        """Nobody here asks for a base any more."""
        for name in [name for name in self.shelves if name[0] == key]:
            del self.shelves[name]
        self.agenda.forget(key)

    # -- memory -----------------------------------------------------------------------------------------------------

    def plain(self, bases: Mapping[str, Base]) -> list[Any]:
        subscriptions = [[name, local.plain()] for name, local in self.locals.items()]
        told = [[[name, group, number], list(pair)] for (name, group, number), pair in self.told.items()]
        return [subscriptions, shelves_plain(self.shelves, bases), self.agenda.plain(), told]

    def restore(self, plain: list[Any], schemas: Mapping[str, Schema]) -> None:
        subscriptions, shelves, agenda, told = plain
        for key, (client, name, sql, since_us, is_acknowledged) in subscriptions:
            wanted = Subscription(name, sql=sql).within(schemas).aggregate
            assert wanted is not None
            self.locals[key] = Local(client, name, sql, wanted, since_us, is_acknowledged)
        self.shelves = shelves_from_plain(shelves)
        self.agenda = Agenda.from_plain(agenda)
        self.told = {(name, tuple(group), number): (pair[0], pair[1]) for (name, group, number), pair in told}
