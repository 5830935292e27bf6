"""Who asks what, and from which side.

What partials are made for is a *base*: one subscription where partials are for windows, one question (filter, window
and group keys) where they are for strides, whoever asks it. A base has a side for each neighbour behind which it is
asked, and one for this broker's own clients.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np

from catchment.matching import Matcher
from catchment.model.coding import filter_from_plain, filter_to_plain
from catchment.model.errors import SubscriptionError
from catchment.model.filter import Filter
from catchment.model.schema import Schema, Type
from catchment.model.states import STATES
from catchment.model.subscription import Query
from catchment.model.window import Window
from catchment.stages import COLLECTED, Layout, Part, Question, part_of

__all__ = ["Asked", "Base", "Bases", "View"]

_Plain = tuple[str, str, Any, tuple[int, int], list[str], list[tuple[str, str | None, str]]]


@dataclass(frozen=True, slots=True)
class Asked:
    """As much of an aggregate subscription as brokers on the way must know."""

    id: str
    topic: str
    where: Filter
    window: Window
    group_keys: tuple[str, ...]
    parts: tuple[Part, ...]

    @classmethod
    def of(cls, name: str, query: Query, schema: Schema) -> Asked:
        assert query.aggregate is not None
        wanted = query.aggregate
        parts = dict.fromkeys(part_of(measure, schema) for measure in wanted.measures)
        return cls(name, query.topic, query.where, wanted.window, wanted.group_keys, tuple(parts))

    @property
    def collected(self) -> tuple[Part, ...]:
        return tuple(part for part in self.parts if part.state in COLLECTED and part.attribute is not None)

    def plain(self) -> list[Any]:
        window = [self.window.size_us, self.window.shift_us]
        parts = [[part.state, part.attribute, part.kind.value] for part in self.parts]
        return [self.id, self.topic, filter_to_plain(self.where), window, self.group_keys, parts]

    @classmethod
    def from_plain(cls, plain: list[Any], schema: Schema) -> Asked:
        """What `plain` said; raises if it makes no sense for events of a schema."""
        name, topic, where, window, group_keys, parts = msgspec.convert(plain, _Plain)
        full = schema.with_implicit()
        condition = filter_from_plain(where)
        condition.within(full)
        for attribute in (*group_keys, *(attribute for _, attribute, _ in parts if attribute is not None)):
            if attribute not in full:
                raise SubscriptionError(f"there is no attribute {attribute!r}; there are {', '.join(sorted(full))}")
        found = tuple(Part(state, attribute, Type(kind)) for state, attribute, kind in parts)
        for part in found:
            if part.state not in STATES:
                raise SubscriptionError(f"there is no state {part.state!r}; there are {', '.join(STATES)}")
        return cls(name, topic, condition, Window(*window), tuple(group_keys), found)


@dataclass(frozen=True, slots=True)
class View:
    """What is asked of a base on one side."""

    parts: tuple[Part, ...]
    is_plain: bool
    """Whether somebody asks for nothing that must be collected: one message tells it all."""
    collected: tuple[Part, ...]
    """What must be collected: as many messages as there are values."""


@dataclass(slots=True)
class Base:
    key: str
    where: Filter
    window: Window
    group_keys: tuple[str, ...]
    sides: dict[str, dict[str, Asked]] = field(default_factory=dict)
    views: dict[str, View] = field(default_factory=dict)
    parts: dict[int, Part] = field(default_factory=dict)
    """All that is asked, by id."""

    def add(self, side: str, asked: Asked) -> None:
        self.sides.setdefault(side, {})[asked.id] = asked
        self._look_again()

    def remove(self, side: str, name: str) -> None:
        del self.sides[side][name]
        if not self.sides[side]:
            del self.sides[side]
        self._look_again()

    def _look_again(self) -> None:
        self.views = {side: _view(asked.values()) for side, asked in self.sides.items()}
        self.parts = {part.id: part for view in self.views.values() for part in view.parts}


def _view(several: Iterable[Asked]) -> View:
    several = list(several)
    parts = dict.fromkeys(part for asked in several for part in asked.parts)
    collected = dict.fromkeys(part for asked in several for part in asked.collected)
    return View(tuple(parts), any(not asked.collected for asked in several), tuple(collected))


class Bases:
    """All that is asked about one topic."""

    def __init__(self, schema: Schema, *, by_stride: bool) -> None:
        self.schema, self._by_stride = schema, by_stride
        self.sides: dict[str, str] = {}
        """Of each subscription, from where it is asked."""
        self.asked: dict[str, Asked] = {}
        self.by_key: dict[str, Base] = {}
        self._of_filter: dict[Filter, dict[str, Base]] = {}
        self._matcher = Matcher({}, schema.with_implicit())
        self._windows: dict[str | None, tuple[Window, ...]] = {}

    def __bool__(self) -> bool:
        return bool(self.asked)

    def key_of(self, asked: Asked) -> str:
        if not self._by_stride:
            return asked.id
        question = Question(asked.topic, asked.where, Layout(asked.window, asked.group_keys), ())
        return f"{question.id % 2**64:016x}"

    def add(self, asked: Asked, side: str) -> Base:
        key = self.key_of(asked)
        base = self.by_key.get(key)
        if base is None:
            base = self.by_key[key] = Base(key, asked.where, asked.window, asked.group_keys)
            if asked.where not in self._of_filter:
                self._of_filter[asked.where] = {}
                self._matcher.add(asked.where, asked.where)
            self._of_filter[asked.where][key] = base
        base.add(side, asked)
        self.asked[asked.id], self.sides[asked.id] = asked, side
        self._windows.clear()
        return base

    def remove(self, name: str) -> tuple[Base, str]:
        """Forget a subscription; its base, and the side it was asked from."""
        asked, side = self.asked.pop(name), self.sides.pop(name)
        base = self.by_key[self.key_of(asked)]
        base.remove(side, name)
        self._windows.clear()
        if not base.sides:
            del self.by_key[base.key]
            of_filter = self._of_filter[base.where]
            del of_filter[base.key]
            if not of_filter:
                del self._of_filter[base.where]
                self._matcher.remove(base.where)
        return base, side

    def windows_at(self, side: str) -> tuple[Window, ...]:
        """The distinct windows that are asked about on one side."""
        if side not in self._windows:
            self._windows[side] = tuple(sorted({one.window for one in self.by_key.values() if side in one.sides}))
        return self._windows[side]

    @property
    def windows(self) -> tuple[Window, ...]:
        """The distinct windows of all sides."""
        if None not in self._windows:
            self._windows[None] = tuple(sorted({one.window for one in self.by_key.values()}))
        return self._windows[None]

    def beside(self, side: str) -> Iterator[Asked]:
        """What is asked on all sides but one."""
        return (asked for name, asked in self.asked.items() if self.sides[name] != side)

    def wanting(self, events: Any) -> Iterator[tuple[list[int], list[Base]]]:
        """Rows of a batch, and the bases that want all of them."""
        rows, slots = self._matcher.match_slots(events)
        if not len(rows):
            return
        found: dict[int, list[int]] = {}
        for row, slot in zip(np.asarray(rows).tolist(), np.asarray(slots).tolist(), strict=True):
            found.setdefault(slot, []).append(row)
        # Not by slot: a broker that is brought back gives slots anew.
        of_filter = {self._matcher.id_of(slot): several for slot, several in found.items()}
        for condition in sorted(of_filter, key=lambda one: one.order):
            bases = self._of_filter[condition]
            yield of_filter[condition], [bases[key] for key in sorted(bases)]
