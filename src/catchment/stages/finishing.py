"""From merged windows to what subscribers read, and to what that cost on the links."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from catchment.model.filter import Filter
from catchment.model.operators import BEYOND_DOUBLE, Measure, beyond_integer, fits_integer
from catchment.model.results import NOTIFICATION_SCHEMA, exact_json, key_from_text, number_of
from catchment.model.schema import Type
from catchment.model.states import BlobState
from catchment.model.window import WindowColumns
from catchment.stages import kernels
from catchment.stages.holding import HELD
from catchment.stages.measuring import PARTIAL_BYTES, state_bytes
from catchment.stages.merging import Cells, Instance, Selection, merge_cells, windows_of
from catchment.stages.plan import Asker, Plan, Question

__all__ = ["ANSWER_SCHEMA", "Finished", "PartialMessages", "finish_rows", "finish_windows"]

Ints = npt.NDArray[np.int64]


ANSWER_SCHEMA = pa.schema([*NOTIFICATION_SCHEMA, ("problem", pa.string())])
"""Notifications, and values that are beyond their type: these have a problem and are reported, not delivered."""


@dataclass(frozen=True, slots=True)
class PartialMessages:
    """Partials by the subscription's broker and the brokers that had something to say: grouped counts."""

    target: Ints
    origins: npt.NDArray[np.uint64]
    messages: Ints
    size_bytes: Ints


@dataclass(frozen=True, slots=True)
class Finished:
    """What a chunk of partials came to."""

    answers: list[pa.RecordBatch]
    """Rows of ANSWER_SCHEMA."""
    partials: PartialMessages | None
    notified: dict[int, tuple[int, int]]
    """Per broker, messages and bytes on the last hop."""


def finish_rows(rows: pa.Table, plan: Plan, *, selection: Selection, revision: int = 0, words: int = 0) -> Finished:
    """Merge the partials of whole questions and finish the selected windows for everyone who asked.

    Called on the executor with chunks that hold all rows of their questions. With `words` of broker masks, the
    messages of `early` are counted too.
    """
    instances, groups, cells = merge_cells(rows, plan, words=words)
    windows = {code: windows_of(merged, instances, selection) for code, merged in cells.items()}
    return finish_windows(instances, groups, windows, revision=revision, words=words)


def finish_windows(
    instances: Sequence[Instance], groups: pa.Array, windows: dict[int, Cells], *, revision: int = 0, words: int = 0
) -> Finished:
    """Finish windows, by state code and in order, for everyone who asks for them; all parts have the same ones."""
    return _Chunk(instances, groups, windows, revision).finish(words)


@dataclass(frozen=True, slots=True)
class _AskedOutput:
    """One output of one subscription over the chosen windows of an instance."""

    chosen: Ints
    name: str
    output: str


class _Chunk:
    def __init__(
        self, instances: Sequence[Instance], groups: pa.Array, windows: dict[int, Cells], revision: int
    ) -> None:
        self._instances, self._groups, self._windows, self._revision = instances, groups, windows, revision
        self._shapes = WindowColumns.of(one.question.layout.window for one in instances)
        self._begin: dict[tuple[int, int], tuple[int, int, int]] = {}
        """Question id and part position to (state code, first window, window behind the last)."""
        for number, one in enumerate(instances):
            if one.code in windows:
                begin, end = np.searchsorted(windows[one.code].instance, [number, number + 1])
                if begin < end:
                    self._begin[one.question.id, one.position] = (one.code, int(begin), int(end))
        self._outputs: dict[tuple[int, Measure, Type], list[_AskedOutput]] = defaultdict(list)
        self._messages: list[tuple[int, Ints, npt.NDArray[np.uint64], int]] = []
        self._notified: dict[int, tuple[int, int]] = defaultdict(lambda: (0, 0))

    def finish(self, words: int) -> Finished:
        for question in {one.question.id: one.question for one in self._instances}.values():
            for asker in question.askers:
                self._ask(question, asker, words)
        batches = [self._batch(*key, asked) for key, asked in self._outputs.items()]
        return Finished([b for b in batches if b.num_rows], self._partial_messages(words), dict(self._notified))

    def _ask(self, question: Question, asker: Asker, words: int) -> None:
        located = self._begin.get((question.id, 0))
        if located is None:
            return
        code, begin, end = located
        chosen = np.arange(end - begin)
        if asker.since_us is not None:
            starts = question.layout.window.start_us(self._windows[code].number[begin:end])
            chosen = chosen[starts >= asker.since_us]
        if words and len(chosen):
            size = PARTIAL_BYTES + sum(state_bytes(question.parts[part].state) for _, _, part in asker.outputs)
            self._messages.append((asker.broker, chosen, self._windows[code].origins[begin:end][chosen], size))
        reported = 0
        if asker.having is not None:
            decided = self._report_undecidable(question, asker, chosen)
            reported = len(chosen) - len(decided)
            chosen = decided[self._worth(question, asker, decided)]
        if not len(chosen) + reported:
            return
        messages, size = self._notified[asker.broker]
        size += (len(chosen) + reported) * PARTIAL_BYTES + (len(chosen) * len(asker.outputs) + reported) * 8
        self._notified[asker.broker] = (messages + len(chosen) + reported, size)
        for output, measure, position in asker.outputs:
            self._tell(question, measure, position, chosen, asker.name, output)

    def _tell(self, question: Question, measure: Measure, position: int, chosen: Ints, name: str, output: str) -> None:
        code, begin, _ = self._begin[question.id, position]
        asked = _AskedOutput(begin + chosen, name, output)
        self._outputs[code, measure, question.parts[position].kind].append(asked)

    def _report_undecidable(self, question: Question, asker: Asker, chosen: Ints) -> Ints:
        """Report the first measure of HAVING that is beyond its type; the windows where HAVING can be decided."""
        for _, measure, position in asker.having_measures:
            if measure.definition.is_bounded:
                continue
            code, begin, _ = self._begin[question.id, position]
            numbers = _numbers(self._windows[code], begin + chosen, measure, question.parts[position].kind)
            beyond = None if numbers is None else numbers.problems
            if beyond is not None:
                wrong = np.asarray(beyond.is_valid())
                self._tell(question, measure, position, chosen[wrong], asker.name, str(measure))
                chosen = chosen[~wrong]
        return chosen

    def _worth(self, question: Question, asker: Asker, chosen: Ints) -> npt.NDArray[np.bool_]:
        """Which windows satisfy HAVING."""
        assert asker.having is not None
        facts: dict[str, list[Any]] = {}
        for name, measure, position in asker.having_measures:
            code, begin, _ = self._begin[question.id, position]
            facts[name] = _values(self._windows[code], begin + chosen, measure, question.parts[position].kind)
        if question.layout.group_keys:
            code, begin, _ = self._begin[question.id, 0]
            texts = self._groups.take(pa.array(self._windows[code].group[begin + chosen])).to_pylist()
            keys = [json.loads(text) for text in texts]
            for at, (name, kind) in enumerate(zip(question.layout.group_keys, question.key_types, strict=True)):
                facts[name] = [key_from_text(key[at], kind) for key in keys]
        return _satisfied(asker.having, facts, len(chosen))

    def _batch(self, code: int, measure: Measure, kind: Type, asked: list[_AskedOutput]) -> pa.RecordBatch:
        windows = self._windows[code]
        chosen = np.concatenate([one.chosen for one in asked])
        lengths = [len(one.chosen) for one in asked]
        owner = pa.array(np.repeat(np.arange(len(asked)), lengths))
        instance = windows.instance[chosen]
        shapes, number = self._shapes[instance], windows.number[chosen]
        value, exact, problem = _columns(windows, chosen, measure, kind)
        return pa.RecordBatch.from_arrays(
            [
                pa.array([one.name for one in asked], pa.string()).take(owner),
                pa.array(shapes.start_us(number)).view(pa.timestamp("us", tz="UTC")),
                pa.array(shapes.end_us(number)).view(pa.timestamp("us", tz="UTC")),
                self._group_maps(instance, windows.group[chosen]),
                pa.array([one.output for one in asked], pa.string()).take(owner),
                value,
                exact,
                pa.array(windows.publications[chosen]),
                pa.array(np.full(len(chosen), self._revision, np.int32)),
                problem,
            ],
            schema=ANSWER_SCHEMA,
        )

    def _group_maps(self, instance: Ints, group: Ints) -> pa.Array:
        names = [one.question.layout.group_keys for one in self._instances]
        if not any(names):
            offsets = pa.array(np.zeros(len(group) + 1, np.int32))
            return pa.MapArray.from_arrays(offsets, pa.array([], pa.string()), pa.array([], pa.string()))
        width = max(len(self._groups), 1)
        distinct, inverse = np.unique(instance * width + group, return_inverse=True)
        maps = []
        for code in distinct.tolist():
            keys = names[code // width]
            maps.append(list(zip(keys, json.loads(self._groups[code % width].as_py()), strict=True)) if keys else [])
        return pa.array(maps, NOTIFICATION_SCHEMA.field("group").type).take(pa.array(inverse.reshape(-1)))

    def _partial_messages(self, words: int) -> PartialMessages | None:
        if not self._messages:
            return None
        targets = np.concatenate([np.full(len(chosen), broker) for broker, chosen, _, _ in self._messages])
        sizes = np.concatenate([np.full(len(chosen), size) for _, chosen, _, size in self._messages])
        masks = np.concatenate([origins for _, _, origins, _ in self._messages])
        keys = np.concatenate([targets.astype(np.uint64)[:, None], masks], axis=1)
        distinct, inverse = np.unique(keys, axis=0, return_inverse=True)
        inverse = inverse.reshape(-1)
        return PartialMessages(
            distinct[:, 0].astype(np.int64),
            np.ascontiguousarray(distinct[:, 1:]),
            np.bincount(inverse, minlength=len(distinct)).astype(np.int64),
            np.bincount(inverse, weights=sizes, minlength=len(distinct)).astype(np.int64),
        )


# -- the values of windows --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Numbers:
    """Results as int64 or float64, null where there is none or it is beyond its type."""

    values: pa.Array
    problems: pa.Array | None = None
    """What is wrong with those beyond their type, null for the others; None if there are none."""


def _numbers(windows: Cells, chosen: Ints, measure: Measure, kind: Type) -> _Numbers | None:
    """Finish a measure, if its results are plain numbers."""
    if measure.attribute is None:
        return _Numbers(pa.array(windows.publications[chosen]))
    operator, result = measure.definition, measure.result(kind)
    held = HELD[operator.state(kind).name, kind]
    if held.code == kernels.BLOB or result not in (Type.INT, Type.FLOAT):
        return None
    count, *numbers = held.numbers(windows, chosen)
    with np.errstate(over="ignore"):
        values = operator.formula(np.maximum(count, operator.fewest), *numbers)
    if result is Type.FLOAT:
        values = values.astype(np.float64, copy=False)  # totals beyond 64 bits are Python's integers
    is_null = count < operator.fewest
    beyond = None if operator.is_bounded else _beyond(values, is_null)
    if beyond is None:
        return _Numbers(pa.array(values, result.arrow, mask=is_null))
    problems = [_problem(value) if wrong else None for value, wrong in zip(values.tolist(), beyond, strict=True)]
    values[beyond] = 0
    return _Numbers(pa.array(values, result.arrow, mask=is_null | beyond), pa.array(problems, pa.string()))


def _beyond(values: npt.NDArray[Any], is_null: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_] | None:
    """Tell which results are beyond their type; None if there are none."""
    if values.dtype == np.object_:
        beyond = np.array([not fits_integer(value) for value in values.tolist()], np.bool_)
    else:
        beyond = ~(np.isfinite(values) | is_null)
    return beyond if beyond.any() else None


def _problem(value: int | float) -> str:
    return beyond_integer(value) if isinstance(value, int) else BEYOND_DOUBLE


def _objects(windows: Cells, chosen: Ints, measure: Measure, kind: Type) -> list[Any]:
    """Finish a measure whose results are no plain numbers, or come out of bytes."""
    if isinstance(measure.state(kind), BlobState):
        return [measure.finish(windows.blobs[at], kind) for at in chosen.tolist()]
    count = windows.count[chosen].tolist()
    is_text = kind is Type.STRING
    values = [windows.blobs[at].decode() for at in chosen.tolist()] if is_text else windows.whole[chosen].tolist()
    return [measure.finish(value if n else None, kind) for value, n in zip(values, count, strict=True)]


def _values(windows: Cells, chosen: Ints, measure: Measure, kind: Type) -> list[Any]:
    numbers = _numbers(windows, chosen, measure, kind)
    return _objects(windows, chosen, measure, kind) if numbers is None else numbers.values.to_pylist()


def _columns(windows: Cells, chosen: Ints, measure: Measure, kind: Type) -> tuple[pa.Array, pa.Array, pa.Array]:
    """The columns `value`, `exact` and `problem` of a measure's results."""
    numbers = _numbers(windows, chosen, measure, kind)
    nothing = pa.nulls(len(chosen), pa.string())
    if numbers is not None:
        value = numbers.values.cast(pa.float64(), safe=False)
        return value, number_texts(numbers.values), nothing if numbers.problems is None else numbers.problems
    result = measure.result(kind)
    values = _objects(windows, chosen, measure, kind)
    return (
        pa.array([number_of(value, result) for value in values], pa.float64()),
        pa.array([exact_json(value, result) for value in values], pa.string()),
        nothing,
    )


def number_texts(numbers: pa.Array) -> pa.Array:
    """Numbers as JSON."""
    texts = pc.fill_null(numbers.cast(pa.string()), "null")
    if not pa.types.is_floating(numbers.type):
        return texts
    values = numbers.to_numpy(zero_copy_only=False)
    # Arrow writes 1.0 as 1, which JSON would read as an integer; what is null is NaN here.
    whole = (np.abs(values) < WHOLE_TEXT_MAX) & (np.floor(values) == values)
    if whole.any():
        texts = pc.if_else(pa.array(whole), pc.binary_join_element_wise(texts, ".0", ""), texts)
    return texts


WHOLE_TEXT_MAX = 1e9
"""Below this Arrow writes no exponent."""


# -- HAVING -----------------------------------------------------------------------------------------------------------


def _satisfied(condition: Filter, facts: dict[str, list[Any]], count: int) -> npt.NDArray[np.bool_]:
    found = np.zeros(count, np.bool_)
    for conjunction in condition.disjuncts:
        holds = np.ones(count, np.bool_)
        for name, constraint in conjunction:
            holds &= np.fromiter((constraint.matches(value) for value in facts[name]), np.bool_, count)
        found |= holds
    return found
