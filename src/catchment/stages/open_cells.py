"""Cells that wait for the ends of their windows, at a broker that gets events and partials as they come.

events, partials ─► cells of slices ─► windows that have ended
partials of windows ─► cells of windows ─┘
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from catchment.matching import RowsBySlot
from catchment.model.states import STATES, BlobState
from catchment.model.window import WindowColumns
from catchment.stages import cell_kernels, kernels
from catchment.stages.compacting import rows_of
from catchment.stages.lots import text_hashes
from catchment.stages.merging import (
    Cells,
    Instance,
    InstanceColumns,
    Selection,
    cells_of_rows,
    equal_merged,
    flat,
    windows_of,
)
from catchment.stages.partials import touched_by
from catchment.stages.plan import CellPlan, Question

__all__ = ["CELL_BYTES", "ByCode", "Names", "OpenCells", "in_pieces", "together"]

Ints = npt.NDArray[np.int64]
ByCode = dict[int, Cells]
"""Cells in order, by state code."""
CELL_BYTES = 80
"""About what a cell takes, besides blobs and the text of its group."""
FEW_CELLS = 1 << 16
"""Up to so many, equal cells of one state code are not merged before they are needed."""
NEVER, FOR_EVER = -(2**62), 2**62


class Names:
    """Numbers for the instances and groups that cells are of."""

    def __init__(self) -> None:
        self.instances: list[Instance] = []
        self._instances: dict[tuple[int, int], int] = {}
        self._groups: dict[str, int] = {}
        self._texts: pa.Array | None = None
        self._columns: InstanceColumns | None = None

    def instance(self, question: Question, position: int) -> int:
        key = question.id, question.parts[position].id
        number = self._instances.get(key)
        if number is None:
            number = self._instances[key] = len(self.instances)
            self.instances.append(Instance(question, question.parts[position], position))
            self._columns = None
        return number

    def groups(self, texts: pa.Array) -> Ints:
        """Give the number of each group, also of those that are met for the first time."""
        encoded = texts.dictionary_encode()
        known = self._groups
        before = len(known)
        numbers = np.array([known.setdefault(text, len(known)) for text in encoded.dictionary.to_pylist()], np.int64)
        if len(known) > before:
            self._texts = None
        found: Ints = numbers[encoded.indices.to_numpy(zero_copy_only=False)]
        return found

    @property
    def texts(self) -> pa.Array:
        """The groups by number."""
        if self._texts is None:
            self._texts = pa.array(list(self._groups), pa.string())
        return self._texts

    @property
    def columns(self) -> InstanceColumns:
        """What is known of instances."""
        if self._columns is None:
            self._columns = InstanceColumns.of(self.instances)
        return self._columns

    @property
    def shapes(self) -> WindowColumns:
        """The windows by instance."""
        return self.columns.windows

    def forget(self, question: int, kept: Iterable[int] = ()) -> Ints:
        """Forget a question but for some of its parts; return the new number of each instance, or -1."""
        parts = set(kept)
        places = np.full(len(self.instances), -1, np.int64)
        left = [n for n, one in enumerate(self.instances) if one.question.id != question or one.part.id in parts]
        places[left] = np.arange(len(left))
        self.instances = [self.instances[at] for at in left]
        self._renumber()
        return places

    def _renumber(self) -> None:
        self._columns = None
        for number, one in enumerate(self.instances):
            position = next(at for at, part in enumerate(one.question.parts) if part.id == one.part.id)
            self.instances[number] = Instance(one.question, one.part, position)
        self._instances = {(one.question.id, one.part.id): at for at, one in enumerate(self.instances)}

    @property
    def group_count(self) -> int:
        return len(self._groups)

    def keep_groups(self, used: Ints) -> Ints:
        """Forget all groups but some; return the new number of each."""
        places = np.full(len(self._groups), -1, np.int64)
        places[used] = np.arange(len(used))
        texts = list(self._groups)
        self._groups = {texts[at]: number for number, at in enumerate(used.tolist())}
        self._texts = None
        return places

    def saved(self) -> list[Any]:
        return [tuple(self._instances), tuple(self._groups)]

    def restore(self, saved: list[Any], questions: Mapping[int, Question]) -> None:
        instances, groups = saved
        for question_id, part_id in instances:
            question = questions[question_id]
            self.instance(question, next(at for at, part in enumerate(question.parts) if part.id == part_id))
        self._groups = {text: number for number, text in enumerate(groups)}

    def group_hashes(self, groups: Ints) -> Ints:
        """Give what `wants_of` says of groups."""
        distinct, inverse = np.unique(groups, return_inverse=True)
        hashes: Ints = text_hashes(self.texts.take(pa.array(distinct)).to_pylist())[inverse]
        return hashes


class _Table:
    """The cells of one state code, in the order in which they came."""

    def __init__(self, code: int) -> None:
        self.code, self.count = code, 0
        self._columns: dict[str, Any] = {name: np.empty(64, _KINDS.get(name, np.int64)) for name in _COLUMNS}
        self.blobs: list[bytes] = []
        self.crowded_at = FEW_CELLS
        """From how many cells on equal ones are merged."""
        self._is_shared = False
        self._forget_rows()

    def _forget_rows(self) -> None:
        self.rows = 0
        self.row_instance, self.row_group = np.empty(64, np.int64), np.empty(64, np.int64)
        self._slots = np.full(256, -1, np.int64)
        self._order: Ints | None = None

    def __getitem__(self, name: str) -> Any:
        return self._columns[name][: self.count]

    def add(self, cells: Cells) -> None:
        rows = self._numbered(cells.instance, cells.group)
        end = self.count + len(cells)
        if end > len(self._columns["row"]):
            for name, column in self._columns.items():
                self._columns[name] = np.concatenate([column[: self.count], np.empty(end, column.dtype)])
        for name in _COLUMNS:
            self._columns[name][self.count : end] = rows if name == "row" else getattr(cells, name)
        self.blobs += cells.blobs
        self.count = end

    def _numbered(self, instance: Ints, group: Ints) -> Ints:
        """The row of each pair of instance and group."""
        most = self.rows + len(instance)
        if most > len(self.row_instance):
            room = np.empty(2 * most - self.rows, np.int64)
            self.row_instance = np.concatenate([self.row_instance[: self.rows], room])
            self.row_group = np.concatenate([self.row_group[: self.rows], room])
        if 2 * most > len(self._slots):
            self._slots = np.full(1 << (4 * most).bit_length(), -1, np.int64)
            kept = self.row_instance[: self.rows].copy(), self.row_group[: self.rows].copy()
            cell_kernels.numbered(*kept, self._slots, self.row_instance, self.row_group, 0)
        before = self.rows
        rows, self.rows = cell_kernels.numbered(
            instance, group, self._slots, self.row_instance, self.row_group, self.rows
        )
        if self.rows > before:
            self._order = None
        found: Ints = rows
        return found

    def least(self, bounds: Ints) -> tuple[Ints, int]:
        """The least number of each instance that is not below its bound, and how many cells are."""
        found: tuple[Ints, int] = cell_kernels.least_numbers(
            self["row"], self["number"], self.row_instance, bounds, FOR_EVER
        )
        return found

    def order(self) -> Ints:
        """The rows in the order of instances and groups."""
        if self._order is None:
            # Neither instances nor groups are as many as 2^31.
            self._order = np.argsort((self.row_instance[: self.rows] << 32) + self.row_group[: self.rows])
        return self._order

    def cells(self, chosen: Ints | None = None) -> Cells:
        """Some cells, or all of them, as they came."""
        at = slice(0, self.count) if chosen is None else chosen
        read = {name: self[name][at] for name in _COLUMNS}
        rows = read.pop("row")
        blobs = self.blobs if chosen is None else [self.blobs[one] for one in chosen.tolist()] if self.blobs else []
        nothing = np.zeros(len(rows), np.int64)
        return Cells(
            code=self.code, instance=self.row_instance[rows], group=self.row_group[rows], fresh=nothing,
            origins=np.zeros((len(rows), 0), np.uint64), blobs=list(blobs), **read,
        )  # fmt: skip

    def become(self, cells: Cells) -> None:
        """Hold these cells and no others; in other arrays if what was saved is in these."""
        if self._is_shared:
            self._columns = {name: np.empty(0, column.dtype) for name, column in self._columns.items()}
            self._is_shared = False
        self.count, self.blobs = 0, []
        self._forget_rows()
        self.add(cells)

    def saved(self) -> dict[str, Any]:
        """Give the arrays as far as they are filled, which is never written to again."""
        self._is_shared = True
        return {
            "row_instance": self.row_instance[: self.rows],
            "row_group": self.row_group[: self.rows],
            "columns": {name: self[name] for name in _COLUMNS},
            "blobs": tuple(self.blobs),
            "crowded_at": self.crowded_at,
        }

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Hold what another one held; called on an empty one."""
        self._numbered(saved["row_instance"], saved["row_group"])
        # There is no room behind their values, so nothing is written into them until others take their place.
        self._columns, self._is_shared = dict(saved["columns"]), True
        self.count, self.blobs = len(self._columns["row"]), list(saved["blobs"])
        self.crowded_at = saved["crowded_at"]

    def window(self, numbers: Ints, first: Ints, behind: Ints) -> Cells:
        """One window of each instance, of that number, put together from a range of slices."""
        merge: Any = cell_kernels.window_over
        found, *columns = merge(
            self.code, *(self[name] for name in _COLUMNS), self.row_instance, first, behind, self.rows
        )
        order = self.order()
        rows = order[found[order] > 0]
        count, whole, low, real, rest = (column[rows] for column in columns)
        instance = self.row_instance[rows]
        where = self.code, instance, self.row_group[rows], numbers[instance]
        return _plain_cells(where, (found[rows], count), (whole, low, real, rest, []))


_COLUMNS = ("row", "number", "publications", "count", "whole", "low", "real", "rest")
_KINDS: dict[str, Any] = {"real": np.float64, "rest": np.float64}


class OpenCells:
    """The cells of some questions on one side of a broker, by slice or by window."""

    def __init__(self, names: Names, *, by_window: bool = False) -> None:
        self.names, self._by_window = names, by_window
        self._tables: dict[int, _Table] = {}
        self._closed_us = NEVER
        """Cells that no window after this time needs may be there, or not."""
        self._least: dict[int, Ints] = {}
        """By state code the least number of each instance that is not closed, as far as that is known."""
        self._instances_of: tuple[CellPlan, Ints] | None = None

    def __len__(self) -> int:
        return sum(table.count for table in self._tables.values())

    # -- something comes --------------------------------------------------------------------------------------------

    def add_events(self, plan: CellPlan, batch: pa.RecordBatch, matched: RowsBySlot) -> list[Cells]:
        """Add the events of a batch that satisfy each slot; return what was added."""
        numbers = self._instances(plan)
        found = []
        for touched in touched_by(plan, batch, matched):
            groups = np.append(self.names.groups(touched.texts), 0)[touched.groups]
            codes = plan.parts.codes[touched.part]
            for code in np.flatnonzero(np.bincount(codes)).tolist():
                chosen = np.flatnonzero(codes == code)
                blobs = touched.blobs if code == kernels.BLOB else []
                found.append(
                    _plain_cells(
                        (code, numbers[touched.part[chosen]], groups[chosen], touched.slices[chosen]),
                        (touched.publications[chosen], touched.count[chosen]),
                        (touched.whole[chosen], touched.low[chosen], touched.real[chosen], touched.rest[chosen], blobs),
                    )
                )
        self.add(found)
        return found

    def _instances(self, plan: CellPlan) -> Ints:
        """The instance of each part of a plan."""
        if self._instances_of is None or self._instances_of[0] is not plan:
            places = {(one.id, part.id): (one, at) for one in plan.questions for at, part in enumerate(one.parts)}
            keys = zip(plan.parts.questions.tolist(), plan.parts.ids.tolist(), strict=True)
            self._instances_of = plan, np.array([self.names.instance(*places[key]) for key in keys], np.int64)
        return self._instances_of[1]

    def add_rows(self, rows: pa.RecordBatch, questions: Mapping[int, Question]) -> list[Cells]:
        """Add rows of partials, as far as their questions and parts are asked for here; return what was added.

        Parts that are asked for and do not come have met no value.
        """
        found: list[Cells] = []
        asked = rows.column("question").to_numpy()
        parts = rows.column("part").to_numpy()
        present: dict[int, dict[int, None]] = {}
        instance = np.full(rows.num_rows, -1, np.int64)
        for at, (question_id, part_id) in enumerate(zip(asked.tolist(), parts.tolist(), strict=True)):
            question = questions.get(question_id)
            if question is not None:
                present.setdefault(question_id, {})[part_id] = None
                place = next((n for n, part in enumerate(question.parts) if part.id == part_id), None)
                if place is not None:
                    instance[at] = self.names.instance(question, place)
        codes = np.append(self.names.columns.code, -1)[instance]
        for code in sorted(set(codes[instance >= 0].tolist())):
            chosen = np.flatnonzero(codes == code)
            of_code = rows.take(pa.array(chosen))
            found.append(cells_of_rows(code, of_code, instance[chosen], self.names.groups(flat(of_code, "groups"))))
        for question_id, given in present.items():
            question = questions[question_id]
            missing = [place for place, part in enumerate(question.parts) if part.id not in given]
            if missing:
                first = next(iter(given))
                of_first = rows.take(pa.array(np.flatnonzero((asked == question_id) & (parts == first))))
                seen = cells_of_rows(
                    kernels.TALLY, of_first, np.zeros(of_first.num_rows, np.int64),
                    self.names.groups(flat(of_first, "groups")),
                )  # fmt: skip
                found += [_without_values(seen, question, place, self.names) for place in missing]
        self.add(found)
        return found

    def add(self, several: Iterable[Cells]) -> None:
        for cells in several:
            if len(cells):
                if cells.code not in self._tables:
                    self._tables[cells.code] = _Table(cells.code)
                table = self._tables[cells.code]
                table.add(cells)
                self._add_least(cells)
                if table.count > table.crowded_at:
                    # Else they would grow with the batches that come while a window is open, not with its cells.
                    table.become(equal_merged(table.cells(self._open(table)), self.names.instances))
                    table.crowded_at = max(FEW_CELLS, 2 * table.count)

    def _add_least(self, cells: Cells) -> None:
        least, bounds = self._least.get(cells.code), self._bounds()
        if least is not None and len(least) == len(bounds):
            cell_kernels.lower(least, cells.instance, cells.number, bounds)
        else:
            self._least.pop(cells.code, None)

    def add_parts(self, question: Question, before: int) -> None:
        """Parts of a question behind the first ones are asked for from now on: they have met no value yet."""
        first = self.names.instance(question, 0)
        merged = self.merged().get(self.names.instances[first].code)
        if merged is not None:
            seen = merged.take(np.flatnonzero(merged.instance == first))
            self.add(_without_values(seen, question, place, self.names) for place in range(before, len(question.parts)))

    # -- something has ended ------------------------------------------------------------------------------------------

    def merged(self) -> ByCode:
        """Give all cells, in order and each once."""
        return self.where(lambda cells: np.ones(len(cells), np.bool_))

    def windows(self, after_us: int, until_us: int) -> ByCode:
        """Give the windows that end after one time, up to another."""
        if self._by_window:
            return self.where(lambda cells: _between(self.ends_us(cells), after_us, until_us))
        shapes = self.names.shapes
        first, behind = (np.asarray(one) for one in shapes.ending_within(np.asarray(after_us), np.asarray(until_us)))
        found = {}
        for code, table in sorted(self._tables.items()):
            if code == kernels.BLOB or (behind - first).max(initial=0) > 1:
                merged = equal_merged(table.cells(self._open(table)), self.names.instances)
                selection = Selection(after_us=after_us, until_us=until_us)
                found[code] = windows_of(merged, self.names.instances, selection) if len(merged) else merged
            else:
                begin = shapes.step * first
                end = np.where(behind > first, begin + shapes.span, begin)
                found[code] = table.window(first, begin, end)
        return {code: cells for code, cells in found.items() if len(cells)}

    def all_windows(self, questions: frozenset[int]) -> ByCode:
        """Give all windows of some questions."""
        asked = np.array([one.question.id in questions for one in self.names.instances], np.bool_)
        found = self.where(lambda cells: asked[cells.instance])
        if self._by_window:
            return found
        return {code: windows_of(cells, self.names.instances, Selection()) for code, cells in found.items()}

    def where(self, wanted: Callable[[Cells], npt.NDArray[np.bool_]]) -> ByCode:
        """Give the cells that are wanted, in order and each once."""
        found = {}
        for code, table in sorted(self._tables.items()):
            cells = table.cells(self._open(table))
            chosen = wanted(cells)
            if chosen.any():
                found[code] = equal_merged(cells.take(np.flatnonzero(chosen)), self.names.instances)
        return found

    def _bounds(self) -> Ints:
        """Find of each instance the first slice or window that is not closed."""
        shapes = self.names.shapes
        window = np.asarray(shapes.last_ended(np.asarray(self._closed_us))) + 1
        return window if self._by_window else np.asarray(shapes.step * window)

    def _open(self, table: _Table) -> Ints | None:
        """Find the cells that are not closed; None is all."""
        if self._closed_us == NEVER:
            return None
        is_open = table["number"] >= self._bounds()[table.row_instance[table["row"]]]
        return None if is_open.all() else np.flatnonzero(is_open)

    def pieces(self, cells: ByCode, bytes_max: int) -> list[pa.RecordBatch]:
        """Give cells of these names as rows of partials, in pieces of about a size."""
        return in_pieces(cells, self.names, bytes_max)

    def ended(self, until_us: int) -> ByCode:
        """Give the cells that have ended up to a time: slices whose stride has, or windows."""
        return self.where(lambda cells: self.ends_us(cells) <= until_us)

    def ends_us(self, cells: Cells) -> Ints:
        """Find of each cell the end of its window, or the first end of a window that its slice lies in."""
        shapes = self.names.shapes[cells.instance]
        if self._by_window:
            return np.asarray(shapes.end_us(cells.number))
        return np.asarray(shapes.next_end_us(shapes.slice_start_us(cells.number)))

    def first_end_us(self, after_us: int) -> int | None:
        """Find the first end after a time that a cell waits for."""
        shapes, bounds = self.names.shapes, self._bounds()
        ends = []
        for code, table in self._tables.items():
            if len(self._least.get(code, ())) != len(bounds):
                self._least[code], _ = table.least(bounds)
            least = self._least[code]
            some = np.flatnonzero(least < FOR_EVER)
            if len(some):
                of = shapes[some]
                if self._by_window:
                    ends_us = of.end_us(least[some])
                else:
                    starts_us = of.slice_start_us(least[some])
                    ends_us = np.maximum(of.next_end_us(starts_us), of.next_end_us(np.asarray(after_us)))
                ends.append(int(np.min(ends_us)))
        return min(ends, default=None)

    def keep(self, wanted: Callable[[Cells], npt.NDArray[np.bool_]]) -> None:
        """Forget all cells but those that are wanted."""
        self._least = {}
        for code, table in list(self._tables.items()):
            cells = table.cells(self._open(table))
            chosen = wanted(cells)
            if not chosen.any():
                del self._tables[code]
            elif len(cells) < table.count or not chosen.all():
                table.become(cells.take(np.flatnonzero(chosen)))

    def forget_until(self, closed_us: int) -> None:
        """Forget what belongs to windows that are closed, now and then."""
        self._closed_us = max(self._closed_us, closed_us)
        bounds = self._bounds()
        for code, table in list(self._tables.items()):
            self._least[code], below = table.least(bounds)
            if below == table.count:
                del self._tables[code]
            elif 2 * below > table.count:
                table.become(table.cells(self._open(table)))

    def forget_ended(self, until_us: int) -> None:
        """Forget the cells that `ended` gives."""
        self.keep(lambda cells: self.ends_us(cells) > until_us)

    def renumber(self, instances: Ints) -> None:
        """Give instances other numbers; those below zero are forgotten. Called when the names have changed."""
        self._instances_of, self._least = None, {}
        for code, table in list(self._tables.items()):
            cells = table.cells()
            kept = np.flatnonzero(instances[cells.instance] >= 0)
            if len(kept):
                left = cells.take(kept)
                table.become(replace(left, instance=instances[left.instance]))
            else:
                del self._tables[code]

    def renumber_groups(self, groups: Ints) -> None:
        for table in self._tables.values():
            cells = table.cells()
            table.become(replace(cells, group=groups[cells.group]))

    def used_groups(self) -> Ints:
        several = [table.row_group[table["row"]] for table in self._tables.values()]
        return np.unique(np.concatenate([np.zeros(0, np.int64), *several]))

    @property
    def size_bytes(self) -> int:
        """About how much memory the cells take."""
        return len(self) * CELL_BYTES + sum(len(blob) for table in self._tables.values() for blob in table.blobs)

    def saved(self) -> list[Any]:
        return [self._closed_us, {code: table.saved() for code, table in self._tables.items()}]

    def restore(self, saved: list[Any]) -> None:
        self._closed_us, tables = saved
        self._least = {}
        for code, table in tables.items():
            self._tables[code] = _Table(code)
            self._tables[code].restore(table)


def _plain_cells(
    where: tuple[int, Ints, Ints, Ints], seen: tuple[Ints, Ints], values: tuple[Ints, Ints, Any, Any, list[bytes]]
) -> Cells:
    """Give cells of which nobody asks where their events came in."""
    (publications, count), (whole, low, real, rest, blobs) = seen, values
    nothing, nowhere = np.zeros(len(count), np.int64), np.zeros((len(count), 0), np.uint64)
    return Cells(*where, publications, nothing, nowhere, count, whole, low, real, rest, blobs)


def _without_values(seen: Cells, question: Question, place: int, names: Names) -> Cells:
    """Give the cells of a part that has met no value in them."""
    part = question.parts[place]
    state, nothing, zero = STATES[part.state], np.zeros(len(seen), np.int64), np.zeros(len(seen))
    blobs = []
    if part.held.code == kernels.BLOB:
        empty = state.create(part.kind) if isinstance(state, BlobState) else b""
        blobs = [empty] * len(seen)
    count = seen.publications if part.attribute is None else nothing
    instance = np.full(len(seen), names.instance(question, place))
    return _plain_cells(
        (part.held.code, instance, seen.group, seen.number),
        (seen.publications, count),
        (nothing, nothing, zero, zero, blobs),
    )


def _between(times_us: Ints, after_us: int, until_us: int) -> npt.NDArray[np.bool_]:
    found: npt.NDArray[np.bool_] = (times_us > after_us) & (times_us <= until_us)
    return found


def together(several: Sequence[ByCode], names: Names) -> ByCode:
    """Merge what several hold."""
    found: dict[int, list[Cells]] = {}
    for one in several:
        for code, cells in one.items():
            found.setdefault(code, []).append(cells)
    return {
        code: cells[0] if len(cells) == 1 else equal_merged(Cells.together(cells), names.instances)
        for code, cells in sorted(found.items())
    }


def in_pieces(cells: ByCode, names: Names, bytes_max: int) -> list[pa.RecordBatch]:
    """Give cells as rows of partials, in pieces of about a size; a piece has all parts of the cells that it has."""
    if not cells:
        return []
    rows = rows_of(list(cells.values()), names.columns, names.texts)
    questions = rows.column("question").to_numpy()
    starts = np.flatnonzero(np.diff(questions, prepend=questions[0] ^ 1))
    sizes = np.add.reduceat(_row_bytes(rows), starts)
    if sizes.max() > bytes_max and max(int(_ranks(one).max()) for one in cells.values()):
        # A question that is too large alone: the first half of all cells of each, and the second.
        return [piece for half in _halves(cells) for piece in in_pieces(half, names, bytes_max)]
    pieces, begin, size = [], 0, 0
    for start, one in zip(starts.tolist(), sizes.tolist(), strict=True):
        if size and size + one > bytes_max:
            pieces.append(rows.slice(begin, start - begin))
            begin, size = start, 0
        size += one
    return [*pieces, rows.slice(begin)]


def _row_bytes(rows: pa.RecordBatch) -> Ints:
    """About how large each row of partials is."""
    sizes: Ints = np.diff(rows.column("slices").offsets.to_numpy()).astype(np.int64) * CELL_BYTES
    for name in ("groups", "blob"):
        lists = rows.column(name)
        ends = np.concatenate(([0], np.cumsum(pc.binary_length(lists.values).to_numpy(zero_copy_only=False))))
        offsets = lists.offsets.to_numpy()
        sizes += ends[offsets[1:]] - ends[offsets[:-1]]
    return sizes


def _ranks(cells: Cells) -> Ints:
    """Find the place of each cell within its instance."""
    starts = np.flatnonzero(np.diff(cells.instance, prepend=-1))
    lengths = np.diff(np.append(starts, len(cells)))
    return np.arange(len(cells)) - np.repeat(starts, lengths)


def _halves(cells: ByCode) -> list[ByCode]:
    ranks = {code: _ranks(one) for code, one in cells.items()}
    lengths = {code: np.bincount(one.instance)[one.instance] for code, one in cells.items()}
    halves = []
    for is_first in (True, False):
        chosen = {
            code: one.take(np.flatnonzero((2 * ranks[code] < lengths[code]) == is_first)) for code, one in cells.items()
        }
        halves.append({code: one for code, one in chosen.items() if len(one)})
    return halves
