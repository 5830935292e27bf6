"""Where partials grow until their time comes: before each link, and for the clients here.

Rule 1: publications wait as they came until somebody needs their cells, so that many are added up at once.
Rule 2: only revisions send anything of a window again, and then only what came since.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from catchment.broker.aggregation.clocks import FOR_EVER, NEVER
from catchment.broker.aggregation.questions import Questions, View
from catchment.broker.aggregation.timers import Item, Timers
from catchment.broker.snapshot_coding import Deferred
from catchment.matching import RowsBySlot, rows_by_slot
from catchment.model.window import Window
from catchment.overlay.placement import VALUE_BYTES
from catchment.stages import (
    PARTIAL_BYTES,
    ByCode,
    Cells,
    Instance,
    Names,
    OpenCells,
    Question,
    collected_values,
    together,
)

__all__ = ["Outlet", "Pairs", "Place", "joined_later", "rows_taken"]

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

WAITING_MAX = 1 << 16
"""Pairs of publications and questions that may wait to be added up."""
JOINED_MAX = 32
"""Of batches that wait, so many are joined when they are written."""
GROUPS_SPARE = 1_000
"""Groups that may be known besides those of open cells."""


@dataclass(frozen=True, slots=True, eq=False)
class Pairs:
    """Publications, and the questions that want them."""

    events: pa.RecordBatch
    rows: Ints
    numbers: Ints
    """Of questions."""

    @classmethod
    def together(cls, several: Sequence[Pairs]) -> Pairs:
        """All events and pairs of some; a column that is not everywhere is null elsewhere."""
        if len(several) == 1:
            return several[0]
        tables = [pa.Table.from_batches([one.events]) for one in several]
        (events,) = pa.concat_tables(tables, promote_options="default").combine_chunks().to_batches()
        firsts = np.cumsum([0, *(one.events.num_rows for one in several)])[:-1].tolist()
        rows = np.concatenate([one.rows + first for one, first in zip(several, firsts, strict=True)])
        return cls(events, rows, np.concatenate([one.numbers for one in several]))

    def where(self, chosen: Bools) -> Pairs:
        return self if chosen.all() else Pairs(self.events, self.rows[chosen], self.numbers[chosen])


def rows_taken(events: pa.RecordBatch, rows: Ints) -> pa.RecordBatch:
    """Rows of a batch, in rising order; without copying them if they lie side by side."""
    if not len(rows) or rows[-1] - rows[0] < len(rows):
        return events.slice(int(rows[0]) if len(rows) else 0, len(rows))
    return events.take(pa.array(rows))


T = TypeVar("T")


def joined_later(
    several: Sequence[T], schema_of: Callable[[T], pa.Schema], together: Callable[[list[T]], T]
) -> list[Deferred]:
    """Let what waits be written into a snapshot as few large batches, which are made of the many small ones then."""

    def join(some: Sequence[T]) -> list[T]:
        return [together(list(alike)) for _, alike in groupby(some, schema_of)]

    return [
        Deferred(partial(join, tuple(several[begin : begin + JOINED_MAX])), work_us=300)
        for begin in range(0, len(several), JOINED_MAX)
    ]


class Place:
    """The partials of one topic that wait on one side."""

    def __init__(self, side: str, questions: Questions, *, by_stride: bool) -> None:
        self.side, self._questions, self._by_stride = side, questions, by_stride
        self._names = Names()
        self._own = OpenCells(self._names)
        """By slice, of publications."""
        self._received = OpenCells(self._names, by_window=not by_stride)
        """Received partials, by slice or by window; and what was absorbed after a partial of its window was sent."""
        self.timers = Timers()
        self._closed_us = NEVER
        """All that ends up to this time was sent."""
        self._waiting: list[Pairs] = []
        self._waiting_count = 0
        self._waiting_end_us = FOR_EVER
        self._cells_end_us: int | None = FOR_EVER
        """The first end that cells wait for; None if that has to be looked for."""

    # -- something comes --------------------------------------------------------------------------------------------

    def add(self, pairs: Pairs, first_end_us: int) -> None:
        """Publications have come that belong into partials here; `first_end_us` is the first end of their windows."""
        self._waiting.append(pairs)
        self._waiting_count += len(pairs.rows)
        self._waiting_end_us = min(self._waiting_end_us, first_end_us)
        if self._waiting_count > WAITING_MAX:
            self.add_up()

    def add_up(self) -> list[Cells]:
        """Make cells of the publications that wait; return them."""
        if not self._waiting:
            return []
        waiting, self._waiting = self._waiting, []
        self._waiting_count, self._waiting_end_us = 0, FOR_EVER
        plan = self._questions.plan(self.side)
        batch, rows, numbers = _joined(
            waiting, ["ts", *(name for name in plan.schema if name != "ts")], self._questions
        )
        matched: RowsBySlot = rows_by_slot(rows, numbers, len(plan.asked_offsets) - 1)
        self._cells_end_us = None
        return self._own.add_events(plan, batch, matched)

    def receive(self, rows: pa.RecordBatch) -> list[Cells]:
        """Partials have come; return their cells."""
        found = self._received.add_rows(rows, self._questions.questions_at(self.side))
        self._cells_end_us = None
        return found

    def ends_us(self, cells: Cells) -> Ints:
        """The first end that each cell of a partial that has come waits for."""
        return self._received.ends_us(cells)

    def items_of(self, cells: Cells) -> set[tuple[Item, int]]:
        """The windows or strides that some received cells belong to, and their ends."""
        return self._items(cells, by_window=not self._by_stride)

    def items_of_pairs(self, pairs: Pairs, times: Ints) -> set[tuple[Item, int]]:
        """The windows or strides that some publications belong to, and their ends."""
        tables = self._questions.tables
        slices = tables.windows[pairs.numbers].slice_of(times[pairs.rows])
        ids = tables.ids[pairs.numbers]
        distinct = set(zip(ids.tolist(), slices.tolist(), strict=True))
        return {one for key, at in distinct for one in self._items_of_slice(key, self._questions.by_id[key].window, at)}

    def _items(self, cells: Cells, *, by_window: bool) -> set[tuple[Item, int]]:
        found = set()
        for at, number in set(zip(cells.instance.tolist(), cells.number.tolist(), strict=True)):
            question = self._names.instances[at].question
            window = question.layout.window
            if by_window:
                found.add(((question.id, number), window.end_us(number)))
            else:
                found |= set(self._items_of_slice(question.id, window, number))
        return found

    def _items_of_slice(self, question: int, window: Window, number: int) -> Iterable[tuple[Item, int]]:
        """The windows that a slice lies in, and their ends."""
        return [((question, one), window.end_us(one)) for one in window.windows_of_slice(number)]

    # -- something is over ------------------------------------------------------------------------------------------

    def first_end_us(self) -> int | None:
        """The first end that something waits for."""
        if self._cells_end_us is None:
            ends = [table.first_end_us(self._closed_us) for table in self._tables()]
            self._cells_end_us = min((one for one in ends if one is not None), default=FOR_EVER)
        found = min(self._cells_end_us, self._waiting_end_us)
        return None if found == FOR_EVER else found

    def _tables(self) -> tuple[OpenCells, ...]:
        return (self._own,) if self._received is self._own else (self._own, self._received)

    def _windows(self, after_us: int, until_us: int) -> ByCode:
        self.add_up()
        return together([table.windows(after_us, until_us) for table in self._tables()], self._names)

    def _close(self, time_us: int, sent: ByCode) -> None:
        """Forget what belongs to windows that are closed."""
        if time_us == FOR_EVER:
            # Nobody publishes: what comes later belongs to later windows than those that were sent.
            time_us = self._last_end_us(sent)
        self._closed_us = max(self._closed_us, time_us)
        for table in self._tables():
            table.forget_until(self._closed_us)
        self._forget_groups()
        self.timers.drop([item for item in self.timers.items() if self._is_over(item)])
        self._cells_end_us = None

    def _last_end_us(self, windows: ByCode) -> int:
        ends: list[int] = [int(self._names.shapes[one.instance].end_us(one.number).max()) for one in windows.values()]
        return max(ends, default=NEVER)

    @property
    def closed_us(self) -> int:
        """All that ends up to this time was sent."""
        return self._closed_us

    def _is_over(self, item: Item) -> bool:
        known = self._questions.by_id.get(item[0])
        return known is not None and bool(known.window.end_us(item[1]) <= self._closed_us)

    def _forget_groups(self) -> None:
        """Forget groups that nobody has any more, now and then."""
        cells = sum(map(len, self._tables()))
        if self._names.group_count > GROUPS_SPARE + 2 * cells:
            used = np.unique(np.concatenate([table.used_groups() for table in self._tables()]))
            places = self._names.keep_groups(used)
            for table in self._tables():
                table.renumber_groups(places)

    @property
    def size_bytes(self) -> int:
        """About how much memory it takes to keep all this."""
        waiting: int = sum(one.events.nbytes for one in self._waiting)
        return sum(table.size_bytes for table in self._tables()) + waiting

    @property
    def size(self) -> int:
        """How many cells and waiting pairs there are."""
        return sum(map(len, self._tables())) + sum(len(one.rows) for one in self._waiting)

    # -- others ask than before ---------------------------------------------------------------------------------------

    def asked_for(self, question: Question, before: int) -> None:
        """Parts of a question behind the first ones are asked for from now on; called when all was added up."""
        if before:
            for table in self._tables():
                table.add_parts(question, before)

    def forget(self, question: int, number: int, kept: Iterable[int] = ()) -> None:
        """Nobody asks for a question any more on this side, or only for some of its parts."""
        parts = list(kept)
        places = self._names.forget(question, parts)
        for table in self._tables():
            table.renumber(places)
        if not parts:
            left = [pairs.where(pairs.numbers != number) for pairs in self._waiting]
            self._waiting = [pairs for pairs in left if len(pairs.rows)]
            self._waiting_count = sum(len(pairs.rows) for pairs in self._waiting)
            self.timers.forget(question)
        self._cells_end_us = None

    # -- memory -----------------------------------------------------------------------------------------------------

    def saved(self) -> list[Any]:
        return [
            self._names.saved(),
            [table.saved() for table in self._tables()],
            joined_later(self._waiting, lambda one: one.events.schema, Pairs.together),
            [self._closed_us, self._waiting_end_us],
            self.timers.saved(),
        ]

    def restore(self, saved: list[Any]) -> None:
        names, tables, waiting, (self._closed_us, self._waiting_end_us), timers = saved
        self._names.restore(names, self._questions.questions_at(self.side))
        for table, one in zip(self._tables(), tables, strict=True):
            table.restore(one)
        self._waiting = [Pairs(**one) for some in waiting for one in some]
        self._waiting_count = sum(len(pairs.rows) for pairs in self._waiting)
        self.timers.restore(timers)
        self._cells_end_us = None


class Outlet(Place):
    """The partials that wait for one neighbour."""

    def __init__(self, side: str, questions: Questions, *, by_stride: bool) -> None:
        super().__init__(side, questions, by_stride=by_stride)
        self.promised_us = NEVER
        self._plain_bytes: tuple[Any, Any, Ints] | None = None
        """Of which instances and views they are, and the bytes of one partial of each instance."""
        self._sent_items: set[Item] = set()
        """The windows of which partials were sent before they closed."""

    def _items_of_slice(self, question: int, window: Window, number: int) -> Iterable[tuple[Item, int]]:
        if not self._by_stride:
            return super()._items_of_slice(question, window, number)
        stride = window.stride_of(number)
        return [((question, stride), window.stride_end_us(stride))]

    def _is_over(self, item: Item) -> bool:
        known = self._questions.by_id.get(item[0])
        if known is None or not self._by_stride:
            return super()._is_over(item)
        return known.window.stride_end_us(item[1]) <= self._closed_us

    def add_up(self) -> list[Cells]:
        found = super().add_up()
        if self._sent_items:
            self._received.add(one for one in map(self._of_sent_windows, found) if one is not None)
        return found

    def _of_sent_windows(self, cells: Cells) -> Cells | None:
        """The cells that new slices add to windows of which partials were sent already."""
        rows, numbers = [], []
        for row, (at, number) in enumerate(zip(cells.instance.tolist(), cells.number.tolist(), strict=True)):
            question = self._names.instances[at].question
            for one in question.layout.window.windows_of_slice(number):
                if (question.id, one) in self._sent_items:
                    rows.append(row)
                    numbers.append(one)
        return cells.take(np.array(rows, np.int64)).numbered(np.array(numbers, np.int64)) if rows else None

    def _last_end_us(self, windows: ByCode) -> int:
        if not self._by_stride:
            return super()._last_end_us(windows)
        return max((int(self._own.ends_us(one).max()) for one in windows.values()), default=NEVER)

    def take_until(self, time_us: int) -> ByCode:
        """Take out all that ends up to a time and was not sent before."""
        if self._by_stride:
            self.add_up()
            found = together([table.ended(time_us) for table in self._tables()], self._names)
            for table in self._tables():
                table.forget_ended(time_us)
        else:
            self.add_up()
            own = self._own.windows(self._closed_us, time_us)
            if self._sent_items:
                own = _chosen(own, lambda cells: ~self._is_in(cells, self._sent_items))
            found = together([own, self._received.ended(time_us)], self._names)
        self._close(time_us, found)
        self._sent_items = {item for item in self._sent_items if not self._is_over(item)}
        return found

    def take_items(self, items: Sequence[Item]) -> ByCode:
        """Take out what is known of some windows or strides and was not sent before."""
        self.add_up()
        wanted = frozenset(items)
        self._cells_end_us = None
        if self._by_stride:
            found = [table.where(lambda cells: self._is_in(cells, wanted, by_stride=True)) for table in self._tables()]
            for table in self._tables():
                table.keep(lambda cells: ~self._is_in(cells, wanted, by_stride=True))
            return together(found, self._names)
        fresh = wanted - self._sent_items
        own = self._own.all_windows(frozenset(key for key, _ in fresh)) if fresh else {}
        own = _chosen(own, lambda cells: self._is_in(cells, fresh))
        late = self._received.where(lambda cells: self._is_in(cells, wanted))
        self._received.keep(lambda cells: ~self._is_in(cells, wanted))
        self._sent_items |= wanted
        return together([own, late], self._names)

    def _is_in(self, cells: Cells, items: Iterable[Item], *, by_stride: bool = False) -> Bools:
        wanted = set(items)
        found = []
        for at, number in zip(cells.instance.tolist(), cells.number.tolist(), strict=True):
            question = self._names.instances[at].question
            one = question.layout.window.stride_of(number) if by_stride else number
            found.append((question.id, one) in wanted)
        return np.array(found, np.bool_)

    def pieces(self, cells: ByCode, bytes_max: int) -> list[pa.RecordBatch]:
        """Cells as rows of partials."""
        return self._own.pieces(cells, bytes_max)

    def weight(self, cells: ByCode) -> tuple[int, int]:
        """How many messages some cells count as, and their bytes; every collected value is a message."""
        columns, views = self._names.columns, self._questions.views_at(self.side)
        if self._plain_bytes is None or self._plain_bytes[0] is not columns or self._plain_bytes[1] is not views:
            found = np.array([_plain_bytes(one, views) for one in self._names.instances], np.int64)
            self._plain_bytes = columns, views, found
        each_bytes = self._plain_bytes[2]
        messages = size = 0
        for one in cells.values():
            units = np.asarray(columns.windows[one.instance].stride_of(one.number)) if self._by_stride else one.number
            new = np.ones(len(one), np.bool_)
            new[1:] = (np.diff(one.instance) != 0) | (np.diff(one.group) != 0) | (np.diff(units) != 0)
            counts = np.bincount(one.instance[new], minlength=len(each_bytes))
            messages += int(counts[each_bytes > 0].sum())
            size += int((counts * each_bytes).sum())
            for at in np.flatnonzero(counts).tolist() if one.blobs else ():
                part = self._names.instances[at].part
                if part in views[int(columns.question[at])].collected:
                    mine = one.instance == at
                    values = _values_of(part, one.take(np.flatnonzero(mine)), np.flatnonzero(new[mine]))
                    messages += values
                    bytes_of_all = PARTIAL_BYTES * int(counts[at]) + VALUE_BYTES * values
                    size += bytes_of_all if part.state == "values" else PARTIAL_BYTES * values
        return messages, size

    # -- what a placement asks ----------------------------------------------------------------------------------------

    def sure_strides(self, end_us: int) -> tuple[list[Ints], list[Ints]]:
        """The cells that are sure to be sent: rows of (question, group, part, value, stride).

        Of what came from further up, that is known when its stride has ended.
        """
        self.add_up()
        received = self._received.ended(end_us)
        return _wants(self._own.merged(), self._names), _wants(received, self._names)

    def forget(self, question: int, number: int, kept: Iterable[int] = ()) -> None:
        parts = list(kept)
        super().forget(question, number, parts)
        if not parts:
            self._sent_items = {item for item in self._sent_items if item[0] != question}

    def saved(self) -> list[Any]:
        return [super().saved(), self.promised_us, frozenset(self._sent_items)]

    def restore(self, saved: list[Any]) -> None:
        place, self.promised_us, sent_items = saved
        super().restore(place)
        self._sent_items = {(question, number) for question, number in sent_items}


def _joined(several: Sequence[Pairs], names: Sequence[str], questions: Questions) -> tuple[pa.RecordBatch, Ints, Ints]:
    """Some columns of all events, and the pairs with rows counted through."""
    schema = pa.schema([(name, questions.schema[name].arrow) for name in names])
    batches, rows, first = [], [], 0
    for one in several:
        there = one.events.schema.names
        columns = [
            one.events.column(name).cast(kind) if name in there else pa.nulls(one.events.num_rows, kind)
            for name, kind in zip(names, schema.types, strict=True)
        ]
        batches.append(pa.RecordBatch.from_arrays(columns, schema=schema))
        rows.append(one.rows + first)
        first += one.events.num_rows
    batch = batches[0] if len(batches) == 1 else pa.concat_batches(batches)
    return batch, np.concatenate(rows), np.concatenate([one.numbers for one in several])


def _chosen(cells: ByCode, wanted: Callable[[Cells], Bools]) -> ByCode:
    found = {code: one.take(np.flatnonzero(wanted(one))) for code, one in cells.items()}
    return {code: one for code, one in found.items() if len(one)}


def _wants(cells: ByCode, names: Names) -> list[Ints]:
    """What `wants_of` would say of the publications in some cells, and the stride."""
    found = []
    for one in cells.values():
        shapes = names.shapes[one.instance]
        strides = np.asarray(shapes.stride_of(one.number))
        for at in np.unique(one.instance).tolist():
            instance = names.instances[at]
            rows = np.flatnonzero(one.instance == at)
            grouped = bool(instance.question.layout.group_keys)
            groups = names.group_hashes(one.group[rows]) if grouped else np.zeros(len(rows), np.int64)
            if instance.position == 0:
                nothing = np.full(len(rows), -1, np.int64)
                ids = np.full(len(rows), instance.question.id)
                found.append(np.column_stack([ids, groups, nothing, nothing, strides[rows]]))
            values = collected_values(instance.part)
            if values is not None:
                for row, group in zip(rows.tolist(), groups.tolist(), strict=True):
                    missing = one.count[row] < one.publications[row]
                    for value in values(one.blobs[row], bool(missing)).tolist():
                        part = instance.question.id, group, instance.part.id, value, strides[row]
                        found.append(np.array([part], np.int64))
    return found


def _plain_bytes(instance: Instance, views: Mapping[int, View]) -> int:
    """The bytes of a partial, counted once for all parts of a question; none if all of it is collected."""
    view = views[instance.question.id]
    return view.size_bytes if instance.position == 0 and view.is_plain else 0


def _values_of(part: Any, cells: Cells, starts: Ints) -> int:
    """How many values partials hold that begin at some cells; a missing one counts as well."""
    if part.state == "values":
        return int(cells.publications.sum())
    hashes = collected_values(part)
    assert hashes is not None
    total = 0
    for begin, end in zip(starts.tolist(), [*starts[1:].tolist(), len(cells)], strict=True):
        found: set[int] = set()
        for row in range(begin, end):
            found |= set(hashes(cells.blobs[row], bool(cells.count[row] < cells.publications[row])).tolist())
        total += len(found)
    return total
