"""Who asks what, and from which side.

Partials are made for a question: that of one subscription where they are for windows, one that all share who ask it
(filter, window and group keys) where they are for strides. A question has a view for each neighbour behind which it is
asked, and one for this broker's own clients.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from catchment.model.coding import filter_from_plain, filter_to_plain
from catchment.model.errors import SubscriptionError
from catchment.model.filter import Filter
from catchment.model.schema import Schema, Type
from catchment.model.subscription import Query
from catchment.model.window import Window, WindowColumns
from catchment.stages import COLLECTED, PARTIAL_BYTES, CellPlan, Layout, Part, Question, part_of, state_bytes

__all__ = ["Asked", "Known", "Questions", "View"]

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
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
        condition = filter_from_plain(where)
        condition.within(schema)
        for attribute in (*group_keys, *(attribute for _, attribute, _ in parts if attribute is not None)):
            if attribute not in schema:
                raise SubscriptionError(f"there is no attribute {attribute!r}; there are {', '.join(sorted(schema))}")
        found = tuple(Part(state, attribute, Type(kind)) for state, attribute, kind in parts)
        for part in found:
            part.require_known()
        return cls(name, topic, condition, Window(*window), tuple(group_keys), found)


@dataclass(slots=True)
class View:
    """What is asked of a question on one side."""

    question: Question
    """With the parts that are asked for there."""
    asked: dict[str, Asked] = field(default_factory=dict)
    is_plain: bool = False
    """Whether somebody asks for nothing that must be collected: one message tells it all."""
    collected: tuple[Part, ...] = ()
    """What must be collected: as many messages as there are values."""

    def look_again(self) -> None:
        self.question.parts[:] = dict.fromkeys(part for one in self.asked.values() for part in one.parts)
        self.is_plain = any(not one.collected for one in self.asked.values())
        self.collected = tuple(dict.fromkeys(part for one in self.asked.values() for part in one.collected))

    @property
    def fetches(self) -> bool:
        """Whether all values must be collected."""
        return any(part.state == "values" for part in self.collected)

    @property
    def size_bytes(self) -> int:
        """Of a partial, without the values that it may have collected."""
        return PARTIAL_BYTES + sum(state_bytes(part.state) for part in self.question.parts)


@dataclass(slots=True)
class Known:
    """A question that is asked."""

    id: int
    number: int
    """By which arrays know it; others may have it later."""
    where: Filter
    window: Window
    views: dict[str, View] = field(default_factory=dict)
    """By side."""

    @property
    def whole(self) -> Question:
        """The question with all parts that are asked for on any side."""
        several = [view.question for view in self.views.values()]
        if len(several) == 1:
            return several[0]
        parts = dict.fromkeys(part for one in several for part in one.parts)
        first = several[0]
        return Question(first.topic, first.where, first.layout, first.key_types, list(parts), [], first.subscription)


@dataclass(frozen=True, slots=True, eq=False)
class _Tables:
    """What is known of questions, by their numbers."""

    ids: Ints
    windows: WindowColumns
    has_gaps: bool
    """Whether some windows leave time out."""
    at: dict[str, Bools]
    """By side, whether each is asked there."""
    plain: dict[str, Bools]
    """By side, whether somebody there asks for nothing that must be collected."""
    fetches: dict[str, Bools]
    """By side, whether somebody there asks for all values."""


class Questions:
    """All that is asked about one topic."""

    def __init__(self, topic: str, schema: Schema, *, by_stride: bool) -> None:
        self._topic, self._by_stride = topic, by_stride
        self.schema = schema.with_implicit()
        self.sides: dict[str, str] = {}
        """Of each subscription, from where it is asked."""
        self.asked: dict[str, Asked] = {}
        self.by_id: dict[int, Known] = {}
        self._by_number: list[Known | None] = []
        self._free: list[int] = []
        self._windows: dict[str | None, tuple[Window, ...]] = {}
        self._plans: dict[str, CellPlan] = {}
        self._views: dict[str, dict[int, View]] = {}
        self._tables: _Tables | None = None

    def __bool__(self) -> bool:
        return bool(self.asked)

    def question_of(self, asked: Asked) -> Question:
        key_types = tuple(self.schema[key] for key in asked.group_keys)
        owner = "" if self._by_stride else asked.id
        return Question(asked.topic, asked.where, Layout(asked.window, asked.group_keys), key_types, [], [], owner)

    def add(self, asked: Asked, side: str) -> Known:
        question = self.question_of(asked)
        known = self.by_id.get(question.id)
        if known is None:
            known = self.by_id[question.id] = Known(question.id, self._free_number(), asked.where, asked.window)
            self._by_number[known.number] = known
        view = known.views.setdefault(side, View(question))
        view.asked[asked.id] = asked
        view.look_again()
        self.asked[asked.id], self.sides[asked.id] = asked, side
        self._forget_tables()
        return known

    def _free_number(self) -> int:
        """Take the least number that nobody has."""
        if self._free:
            return heappop(self._free)
        self._by_number.append(None)
        return len(self._by_number) - 1

    def remove(self, name: str) -> tuple[Known, str]:
        """Forget a subscription; give the question, and the side it was asked from."""
        asked, side = self.asked.pop(name), self.sides.pop(name)
        known = self.by_id[self.question_of(asked).id]
        view = known.views[side]
        del view.asked[name]
        if view.asked:
            view.look_again()
        else:
            del known.views[side]
        if not known.views:
            del self.by_id[known.id]
            self._by_number[known.number] = None
            heappush(self._free, known.number)
        self._forget_tables()
        return known, side

    def _forget_tables(self) -> None:
        self._tables = None
        self._windows.clear()
        self._plans.clear()
        self._views = {}

    # -- memory -----------------------------------------------------------------------------------------------------

    def saved(self) -> list[Any]:
        asked = [[self.sides[name], one.plain()] for name, one in self.asked.items()]
        return [asked, [None if one is None else one.id for one in self._by_number]]

    def restore(self, saved: list[Any]) -> None:
        """Become what others were; called on empty ones."""
        asked, numbers = saved
        for side, plain in asked:
            self.add(Asked.from_plain(plain, self.schema), side)
        self._by_number = [None if key is None else self.by_id[key] for key in numbers]
        self._free = [number for number, key in enumerate(numbers) if key is None]
        for number, one in enumerate(self._by_number):
            if one is not None:
                one.number = number
        self._forget_tables()

    # -- to look at -------------------------------------------------------------------------------------------------

    def windows_at(self, side: str) -> tuple[Window, ...]:
        """The distinct windows that are asked about on one side."""
        if side not in self._windows:
            self._windows[side] = tuple(sorted({one.window for one in self.by_id.values() if side in one.views}))
        return self._windows[side]

    @property
    def windows(self) -> tuple[Window, ...]:
        """The distinct windows of all sides."""
        if None not in self._windows:
            self._windows[None] = tuple(sorted({one.window for one in self.by_id.values()}))
        return self._windows[None]

    def beside(self, side: str) -> Iterator[Asked]:
        """What is asked on all sides but one."""
        return (asked for name, asked in self.asked.items() if self.sides[name] != side)

    def views_at(self, side: str) -> dict[int, View]:
        if side not in self._views:
            self._views[side] = {known.id: known.views[side] for known in self.by_id.values() if side in known.views}
        return self._views[side]

    def questions_at(self, side: str) -> dict[int, Question]:
        return {key: view.question for key, view in self.views_at(side).items()}

    def plan(self, side: str) -> CellPlan:
        """What events must update for one side, by the numbers of questions."""
        if side not in self._plans:
            asked = [(one.number, one.views[side].question) for one in self.by_id.values() if side in one.views]
            self._plans[side] = CellPlan.of(asked, self.schema, len(self._by_number))
        return self._plans[side]

    @property
    def tables(self) -> _Tables:
        if self._tables is None:
            self._tables = self._make_tables()
        return self._tables

    def _make_tables(self) -> _Tables:
        known = [one for one in self._by_number if one is not None]
        ids = np.array([0 if one is None else one.id for one in self._by_number], np.int64)
        windows = WindowColumns.of(_ANY if one is None else one.window for one in self._by_number)
        sides = {side for one in known for side in one.views}
        views = {side: [None if one is None else one.views.get(side) for one in self._by_number] for side in sides}
        at = {side: np.array([view is not None for view in of]) for side, of in views.items()}
        plain = {side: np.array([view is not None and view.is_plain for view in of]) for side, of in views.items()}
        fetches = {side: np.array([view is not None and view.fetches for view in of]) for side, of in views.items()}
        gaps = any(one.window.shift_us > one.window.size_us for one in known)
        return _Tables(ids, windows, gaps, at, plain, fetches)

    def at_side(self, side: str) -> Bools:
        """Of each number, whether it is asked on a side."""
        return self._none() if side not in self.tables.at else self.tables.at[side]

    def is_plain(self, side: str) -> Bools:
        """Of each number, whether somebody on a side asks for nothing that must be collected."""
        return self._none() if side not in self.tables.plain else self.tables.plain[side]

    def fetches(self, side: str) -> Bools:
        """Of each number, whether somebody on a side asks for all values."""
        return self._none() if side not in self.tables.fetches else self.tables.fetches[side]

    def _none(self) -> Bools:
        return np.zeros(len(self._by_number), np.bool_)

    def wanting(self, rows: Ints, numbers: Ints, times: Ints) -> tuple[Ints, Ints]:
        """Of rows and the numbers of questions whose filters they satisfy, those that lie in a window."""
        tables = self.tables
        if tables.has_gaps:
            windows = tables.windows[numbers]
            inside = windows.in_a_window(windows.slice_of(times[rows]))
            rows, numbers = rows[inside], numbers[inside]
        return rows, numbers


_ANY = Window(1, 1)
