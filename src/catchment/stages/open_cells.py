"""Cells that wait for the ends of their windows, at a broker that is told of events and partials as they come.

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

from catchment.matching import RowsBySlot
from catchment.model.states import STATES, BlobState
from catchment.model.window import WindowColumns
from catchment.stages import kernels
from catchment.stages.compacting import rows_of
from catchment.stages.lots import text_hashes
from catchment.stages.merging import Cells, Instance, Selection, cells_of_rows, equal_merged, flat, windows_of
from catchment.stages.partials import touched_by
from catchment.stages.plan import CellPlan, Question

__all__ = ["CELL_BYTES", "ByCode", "Names", "OpenCells", "in_pieces", "together"]

Ints = npt.NDArray[np.int64]
ByCode = dict[int, Cells]
"""Cells in order, by state code."""
CELL_BYTES = 80
"""About what a cell takes, besides blobs and the text of its group."""


class Names:
    """Numbers for the instances and groups that cells are of."""

    def __init__(self) -> None:
        self.instances: list[Instance] = []
        self._instances: dict[tuple[int, int], int] = {}
        self._groups: dict[str, int] = {}
        self._texts: pa.Array | None = None
        self._shapes: WindowColumns | None = None

    def instance(self, question: Question, position: int) -> int:
        key = question.id, question.parts[position].id
        number = self._instances.get(key)
        if number is None:
            number = self._instances[key] = len(self.instances)
            self.instances.append(Instance(question, question.parts[position], position))
            self._shapes = None
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
    def shapes(self) -> WindowColumns:
        """The windows by instance."""
        if self._shapes is None:
            self._shapes = WindowColumns.of(one.question.layout.window for one in self.instances)
        return self._shapes

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
        self._shapes = None
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
        return [[[one.question.id, one.part.id] for one in self.instances], list(self._groups)]

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


class OpenCells:
    """The cells of some questions on one side of a broker, by slice or by window."""

    def __init__(self, names: Names, *, by_window: bool = False) -> None:
        self.names, self._by_window = names, by_window
        self._cells: dict[int, list[Cells]] = {}
        self._unmerged: set[int] = set()
        """The codes of cells that have come since they were last merged."""

    def __len__(self) -> int:
        return sum(len(one) for several in self._cells.values() for one in several)

    # -- something comes --------------------------------------------------------------------------------------------

    def add_events(self, plan: CellPlan, batch: pa.RecordBatch, matched: RowsBySlot) -> list[Cells]:
        """Add the events of a batch that satisfy each slot; return what was added."""
        places = {(one.id, part.id): (one, at) for one in plan.questions for at, part in enumerate(one.parts)}
        keys = zip(plan.parts.questions.tolist(), plan.parts.ids.tolist(), strict=True)
        numbers = np.array([self.names.instance(*places[key]) for key in keys], np.int64)
        found = []
        for touched in touched_by(plan, batch, matched):
            groups = np.append(self.names.groups(touched.texts), 0)[touched.groups]
            codes = plan.parts.codes[touched.part]
            for code in np.unique(codes).tolist():
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

    def add_rows(self, rows: pa.RecordBatch, questions: Mapping[int, Question]) -> list[Cells]:
        """Add rows of partials, as far as their questions and parts are asked for here; return what was added.

        Parts that are asked for and were not told have met no value.
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
        codes = np.array([one.code for one in self.names.instances] + [-1], np.int64)[instance]
        for code in sorted(set(codes[instance >= 0].tolist())):
            chosen = np.flatnonzero(codes == code)
            of_code = rows.take(pa.array(chosen))
            found.append(cells_of_rows(code, of_code, instance[chosen], self.names.groups(flat(of_code, "groups"))))
        for question_id, told in present.items():
            question = questions[question_id]
            missing = [place for place, part in enumerate(question.parts) if part.id not in told]
            if missing:
                first = next(iter(told))
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
                self._cells.setdefault(cells.code, []).append(cells)
                self._unmerged.add(cells.code)

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
        for code in self._unmerged & self._cells.keys():
            self._cells[code] = [equal_merged(Cells.together(self._cells[code]), self.names.instances)]
        self._unmerged.clear()
        return {code: several[0] for code, several in sorted(self._cells.items())}

    def windows(self, after_us: int, until_us: int) -> ByCode:
        """Give the windows that end after one time, up to another."""
        selection = Selection(after_us=after_us, until_us=until_us)
        if not self._by_window:
            found = {code: windows_of(cells, self.names.instances, selection) for code, cells in self.merged().items()}
        else:
            found = self.where(lambda cells: _between(self.ends_us(cells), after_us, until_us))
        return {code: cells for code, cells in found.items() if len(cells)}

    def all_windows(self, questions: frozenset[int]) -> ByCode:
        """Give all windows of some questions."""
        asked = np.array([one.question.id in questions for one in self.names.instances], np.bool_)
        chosen = {code: cells.take(np.flatnonzero(asked[cells.instance])) for code, cells in self.merged().items()}
        found = {code: cells for code, cells in chosen.items() if len(cells)}
        if self._by_window:
            return found
        return {code: windows_of(cells, self.names.instances, Selection()) for code, cells in found.items()}

    def where(self, wanted: Callable[[Cells], npt.NDArray[np.bool_]]) -> ByCode:
        """Give the cells that are wanted."""
        chosen = {code: np.flatnonzero(wanted(cells)) for code, cells in self.merged().items()}
        return {code: self._cells[code][0].take(rows) for code, rows in chosen.items() if len(rows)}

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
        found = []
        for several in self._cells.values():
            for cells in several:
                shapes = self.names.shapes[cells.instance]
                ends_us = self.ends_us(cells)
                if not self._by_window:
                    ends_us = np.maximum(ends_us, shapes.next_end_us(np.asarray(after_us)))
                found.append(int(ends_us.min()))
        return min(found, default=None)

    def keep(self, wanted: Callable[[Cells], npt.NDArray[np.bool_]]) -> None:
        """Forget all cells but those that are wanted."""
        kept: dict[int, list[Cells]] = {}
        for code, several in self._cells.items():
            for cells in several:
                chosen = wanted(cells)
                left = cells if chosen.all() else cells.take(np.flatnonzero(chosen))
                if len(left):
                    kept.setdefault(code, []).append(left)
        self._cells = kept

    def forget_until(self, closed_us: int) -> None:
        """Forget what belongs to windows that are closed."""

        def is_open(cells: Cells) -> npt.NDArray[np.bool_]:
            shapes = self.names.shapes[cells.instance]
            until_us = shapes.end_us(cells.number) if self._by_window else shapes.until_us(cells.number)
            return np.asarray(until_us > closed_us)

        self.keep(is_open)

    def forget_ended(self, until_us: int) -> None:
        """Forget the cells that `ended` gives."""
        self.keep(lambda cells: self.ends_us(cells) > until_us)

    def renumber(self, instances: Ints) -> None:
        """Give instances other numbers; those below zero are forgotten."""
        self.keep(lambda cells: instances[cells.instance] >= 0)
        self._cells = {
            code: [replace(cells, instance=instances[cells.instance]) for cells in several]
            for code, several in self._cells.items()
        }

    def renumber_groups(self, groups: Ints) -> None:
        self._cells = {
            code: [replace(cells, group=groups[cells.group]) for cells in several]
            for code, several in self._cells.items()
        }
        self._unmerged = set(self._cells)

    def used_groups(self) -> Ints:
        several = [cells.group for some in self._cells.values() for cells in some]
        return np.unique(np.concatenate([np.zeros(0, np.int64), *several]))

    @property
    def size_bytes(self) -> int:
        """About how much memory the cells take."""
        blobs = sum(len(blob) for several in self._cells.values() for cells in several for blob in cells.blobs)
        return len(self) * CELL_BYTES + blobs

    def saved(self) -> list[Any]:
        tables = [
            [code, [[[getattr(cells, name).tobytes() for name in _SAVED], cells.blobs] for cells in several]]
            for code, several in self._cells.items()
        ]
        return [tables, sorted(self._unmerged)]

    def restore(self, saved: list[Any]) -> None:
        tables, unmerged = saved
        self._cells, self._unmerged = {}, set(unmerged)
        for code, several in tables:
            self._cells[code] = []
            for columns, blobs in several:
                read: dict[str, Any] = {
                    name: np.frombuffer(data, np.float64 if name in ("real", "rest") else np.int64)
                    for name, data in zip(_SAVED, columns, strict=True)
                }
                count = len(read["number"])
                nothing: dict[str, Any] = {
                    "fresh": np.zeros(count, np.int64),
                    "origins": np.zeros((count, 0), np.uint64),
                }
                self._cells[code].append(Cells(code=code, blobs=blobs, **read, **nothing))


_SAVED = ("instance", "group", "number", "publications", "count", "whole", "low", "real", "rest")


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
    questions = {one.question.id: None for one in names.instances}
    place = {question: at for at, question in enumerate(questions)}
    question_of = np.array([place[one.question.id] for one in names.instances], np.int64)
    ranks = {code: _ranks(one) for code, one in cells.items()}
    lengths = np.zeros(len(questions), np.int64)
    for code, one in cells.items():
        np.maximum.at(lengths, question_of[one.instance], ranks[code] + 1)
    offsets = np.concatenate(([0], np.cumsum(lengths)))
    sizes = np.zeros(offsets[-1], np.int64)
    texts = np.append(np.array([len(text) for text in names.texts.to_pylist()], np.int64), 0)
    position = {code: offsets[question_of[one.instance]] + ranks[code] for code, one in cells.items()}
    for code, one in cells.items():
        each = CELL_BYTES + texts[one.group] + np.array([len(blob) for blob in one.blobs] or [0], np.int64)
        np.add.at(sizes, position[code], each)
    piece = np.cumsum(sizes) // bytes_max
    if not piece[-1]:
        return [_rows(cells, names)]
    found = []
    for number in np.unique(piece).tolist():
        chosen = {code: one.take(np.flatnonzero(piece[position[code]] == number)) for code, one in cells.items()}
        found.append(_rows({code: one for code, one in chosen.items() if len(one)}, names))
    return found


def _ranks(cells: Cells) -> Ints:
    """Find the place of each cell within its instance."""
    starts = np.flatnonzero(np.diff(cells.instance, prepend=-1))
    lengths = np.diff(np.append(starts, len(cells)))
    return np.arange(len(cells)) - np.repeat(starts, lengths)


def _rows(cells: ByCode, names: Names) -> pa.RecordBatch:
    return pa.concat_batches([rows_of(one, names.instances, names.texts) for one in cells.values()])
