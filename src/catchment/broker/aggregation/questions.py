"""Who asks what, and from which side.

Partials are made for a question: that of one subscription where they are for windows, one that all share who ask it
(filter, window and group keys) where they are for strides. A question has a view for each neighbour behind which it is
asked, and one for this broker's own clients.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Any

import numpy as np
import numpy.typing as npt

from catchment.broker.aggregation.clocks import NEVER
from catchment.broker.demands import AskedQuestion
from catchment.model.filter import Filter
from catchment.model.schema import Schema
from catchment.model.window import Window, WindowColumns
from catchment.stages import COLLECTED, PARTIAL_BYTES, CellPlan, Part, Question, state_bytes

__all__ = ["KnownQuestion", "Questions", "View", "collected_parts"]

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


def collected_parts(asked: AskedQuestion) -> tuple[Part, ...]:
    """The parts that are lists of values."""
    return tuple(part for part in asked.parts if part.state in COLLECTED and part.attribute is not None)


@dataclass(slots=True)
class View:
    """What is asked of a question on one side."""

    question: Question
    """With the parts that are asked for there."""
    asked: Counter[AskedQuestion] = field(default_factory=Counter)
    """With which parts it is asked, and how often."""
    is_plain: bool = False
    """Whether a subscription asks for nothing that must be collected: one message carries its partial."""
    collected: tuple[Part, ...] = ()
    """What must be collected: as many messages as there are values."""

    def look_again(self) -> None:
        self.question.parts[:] = dict.fromkeys(part for one in self.asked for part in one.parts)
        self.is_plain = any(not collected_parts(one) for one in self.asked)
        self.collected = tuple(dict.fromkeys(part for one in self.asked for part in collected_parts(one)))

    @property
    def fetches(self) -> bool:
        """Whether all values must be collected."""
        return any(part.state == "values" for part in self.collected)

    @property
    def size_bytes(self) -> int:
        """Of a partial, without the values that it may have collected."""
        return PARTIAL_BYTES + sum(state_bytes(part.state) for part in self.question.parts)


@dataclass(slots=True)
class KnownQuestion:
    """A question that is asked."""

    id: int
    number: int
    """By which arrays know it; others may have it later."""
    where: Filter
    window: Window
    views: dict[str, View] = field(default_factory=dict)
    """By side."""
    since_us: int = NEVER
    """Events up to this time came in before all brokers knew the question: windows that begin by then miss some."""

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

    def __init__(self, topic: str, schema: Schema) -> None:
        self._topic = topic
        self.schema = schema.with_implicit()
        self.by_id: dict[int, KnownQuestion] = {}
        self._by_number: list[KnownQuestion | None] = []
        self._free: list[int] = []
        self._window_counts: dict[str, Counter[Window]] = {}
        """By side, how many questions have each window."""
        self._windows: dict[str | None, tuple[Window, ...]] = {}
        """The distinct ones of a side, or of all, once somebody has looked."""
        self._plans: dict[str, CellPlan] = {}
        self._views: dict[str, dict[int, View]] = {}
        self._tables: _Tables | None = None

    def __bool__(self) -> bool:
        return bool(self.by_id)

    @property
    def asked_count(self) -> int:
        """How often anything is asked, on all sides."""
        return sum(view.asked.total() for known in self.by_id.values() for view in known.views.values())

    def extend(self, schema: Schema) -> None:
        """Questions may be about more attributes from now on."""
        self.schema = schema.with_implicit()
        self._forget_tables()

    def id_of(self, asked: AskedQuestion) -> int:
        return asked.planned(self._topic, self.schema).id

    def add(self, asked: AskedQuestion, side: str) -> KnownQuestion:
        question = asked.planned(self._topic, self.schema)
        known = self.by_id.get(question.id)
        if known is None:
            known = KnownQuestion(question.id, self._free_number(), asked.where, asked.layout.window)
            self.by_id[question.id] = self._by_number[known.number] = known
        if side not in known.views:
            known.views[side] = View(question)
            self._count_window(side, known.window, 1)
        view = known.views[side]
        view.asked[asked] += 1
        if view.asked[asked] == 1:
            view.look_again()
            self._forget_tables()
        return known

    def _free_number(self) -> int:
        """Take the least number that nobody has."""
        if self._free:
            return heappop(self._free)
        self._by_number.append(None)
        return len(self._by_number) - 1

    def is_asked(self, asked: AskedQuestion, side: str) -> bool:
        known = self.by_id.get(self.id_of(asked))
        return known is not None and side in known.views and asked in known.views[side].asked

    def remove(self, asked: AskedQuestion, side: str) -> KnownQuestion:
        """Forget that something was asked once on a side."""
        known = self.by_id[self.id_of(asked)]
        view = known.views[side]
        view.asked[asked] -= 1
        if view.asked[asked]:
            return known
        del view.asked[asked]
        if view.asked:
            view.look_again()
        else:
            del known.views[side]
            self._count_window(side, known.window, -1)
        if not known.views:
            del self.by_id[known.id]
            self._by_number[known.number] = None
            heappush(self._free, known.number)
        self._forget_tables()
        return known

    def _forget_tables(self) -> None:
        self._tables = None
        self._plans.clear()
        self._views = {}

    # -- memory -----------------------------------------------------------------------------------------------------

    def saved(self) -> list[Any]:
        asked = [
            (side, one, count)
            for known in self.by_id.values()
            for side, view in known.views.items()
            for one, count in view.asked.items()
        ]
        numbers = [None if one is None else one.id for one in self._by_number]
        return [asked, numbers, {known.id: known.since_us for known in self.by_id.values()}]

    def restore(self, saved: list[Any]) -> None:
        """Take over what others had; called on empty ones."""
        asked, numbers, since_us = saved
        for side, one, count in asked:
            for _ in range(count):
                self.add(one, side)
        for key, known in self.by_id.items():
            known.since_us = since_us[key]
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
            self._windows[side] = tuple(sorted(self._window_counts.get(side, ())))
        return self._windows[side]

    def _count_window(self, side: str, window: Window, change: int) -> None:
        """Count one question more or less; this must not take longer the more questions there are."""
        counts = self._window_counts.setdefault(side, Counter())
        counts[window] += change
        if counts[window] == max(change, 0):
            self._windows.pop(side, None)
            self._windows.pop(None, None)
        if not counts[window]:
            del counts[window]

    @property
    def windows(self) -> tuple[Window, ...]:
        """The distinct windows of all sides."""
        if None not in self._windows:
            self._windows[None] = tuple(sorted({one for counts in self._window_counts.values() for one in counts}))
        return self._windows[None]

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

    def matching_questions(self, rows: Ints, numbers: Ints, times: Ints) -> tuple[Ints, Ints]:
        """Of rows and the numbers of questions whose filters they satisfy, those that lie in a window."""
        tables = self.tables
        if tables.has_gaps:
            windows = tables.windows[numbers]
            inside = windows.in_a_window(windows.slice_of(times[rows]))
            rows, numbers = rows[inside], numbers[inside]
        return rows, numbers


_ANY = Window(1, 1)
