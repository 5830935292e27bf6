"""From lots of publications to what a placement makes the links carry.

Which series there are depends on the placement's grain: one for each subscription and group where partials are for
windows, one for each question and group where they are for strides. Values that an operator must collect have series of
their own: as many messages as there are values.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from catchment.overlay import mask_of, word_count
from catchment.overlay.placement import Lots, Series
from catchment.overlay.placement.offers import Grain
from catchment.stages.finishing import PARTIAL_BYTES, STATE_BYTES
from catchment.stages.lots import COLLECTED, LotRows
from catchment.stages.plan import Asker, Question, TopicPlan

__all__ = ["Prepared", "prepared_lots"]

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Prepared:
    """All that a fold needs."""

    series: Series
    names: list[tuple[int, ...]]
    """What each series is: question, group, part, value, and with windows the place of the asker."""
    cells: list[Lots]


def prepared_lots(topic: TopicPlan, broker_count: int, batches: Iterable[LotRows], grain: Grain) -> Prepared:
    """The lots of some batches in the order of time, with their wants as series."""
    rows = _Together.of(list(batches))
    table = _SeriesTable(topic, broker_count, grain)
    begins, series, values = [0], [], []
    for begin, end in zip(rows.wants_begin[:-1].tolist(), rows.wants_begin[1:].tolist(), strict=True):
        found = table.of(rows.wants[begin:end].tolist())
        series += [number for number, _ in found]
        values += [value for _, value in found]
        begins.append(len(series))
    columns = table.columns()
    edges = np.array(begins), np.array(series, np.int64), np.array(values, np.int64)
    return Prepared(columns, list(table.numbers), list(_cells(rows, columns, *edges)))


@dataclass(frozen=True, slots=True, eq=False)
class _Together:
    """The lots of several batches, with one number for each signature."""

    cell_us: Ints
    origin: Ints
    signature: Ints
    messages: Ints
    size_bytes: Ints
    raw_at: npt.NDArray[np.uint64]
    wants_begin: Ints
    wants: Ints

    @classmethod
    def of(cls, batches: Sequence[LotRows]) -> _Together:
        numbers: dict[tuple[int, int], int] = {}
        raw_at, wants, lengths, signature = [], [], [], []
        for batch in batches:
            places = []
            for at, key in enumerate(map(tuple, batch.known.tolist())):
                if key not in numbers:
                    numbers[key] = len(numbers)
                    raw_at.append(batch.raw_at[at])
                    begin, end = batch.wants_begin[at : at + 2]
                    wants.append(batch.wants[begin:end])
                    lengths.append(end - begin)
                places.append(numbers[key])
            place = {tuple(key): number for key, number in zip(batch.known.tolist(), places, strict=True)}
            signature.append(np.array([place[tuple(key)] for key in batch.signature.tolist()], np.int64))
        words = batches[0].raw_at.shape[1] if batches else 1
        return cls(
            np.concatenate([np.zeros(0, np.int64), *(batch.cell_us for batch in batches)]),
            np.concatenate([np.zeros(0, np.int64), *(batch.origin for batch in batches)]),
            np.concatenate([np.zeros(0, np.int64), *signature]),
            np.concatenate([np.zeros(0, np.int64), *(batch.messages for batch in batches)]),
            np.concatenate([np.zeros(0, np.int64), *(batch.size_bytes for batch in batches)]),
            np.array(raw_at, np.uint64).reshape(-1, words),
            np.concatenate(([0], np.cumsum(np.array(lengths, np.int64)))),
            np.concatenate([np.zeros((0, 4), np.int64), *wants]),
        )


class _SeriesTable:
    """Numbers series as they are met."""

    def __init__(self, topic: TopicPlan, broker_count: int, grain: Grain) -> None:
        self._topic, self._broker_count, self._grain = topic, broker_count, grain
        self._collected = [
            {at for at, part in enumerate(question.parts) if part.state in COLLECTED} for question in topic.questions
        ]
        self.numbers: dict[tuple[int, ...], int] = {}
        self._rows: list[tuple[list[int], Question, int]] = []

    def of(self, wants: list[list[int]]) -> list[tuple[int, int]]:
        """The series that want a publication, each once, and how many values each has of it."""
        found: dict[int, int] = {}
        for question, group, part, value in wants:
            asked = self._topic.questions[question]
            for place, asker in enumerate(asked.askers):
                collected = _parts_of(asker) & self._collected[question]
                if part in collected or (part < 0 and not collected):
                    number = self._number(question, group, part, value, place, asker)
                    found[number] = int(part >= 0 and asked.parts[part].state == "values")
        return sorted(found.items())

    def _number(self, question: int, group: int, part: int, value: int, place: int, asker: Asker) -> int:
        key = (question, group, part, value, *((place,) if self._grain == "window" else ()))
        if key not in self.numbers:
            self.numbers[key] = len(self.numbers)
            self._rows.append(([], self._topic.questions[question], self._size(question, part, asker)))
        brokers = self._rows[self.numbers[key]][0]
        if asker.broker not in brokers:
            brokers.append(asker.broker)
        return self.numbers[key]

    def _size(self, question: int, part: int, asker: Asker) -> int:
        asked = self._topic.questions[question]
        if part >= 0:
            return PARTIAL_BYTES if asked.parts[part].state == "values" else PARTIAL_BYTES + 8
        parts = _parts_of(asker) if self._grain == "window" else set(range(len(asked.parts)))
        return PARTIAL_BYTES + sum(STATE_BYTES.get(asked.parts[at].state, 64) for at in parts)

    def columns(self) -> Series:
        windows = [question.layout.window for _, question, _ in self._rows]
        masks = [mask_of(brokers, self._broker_count) for brokers, _, _ in self._rows]
        return Series(
            np.array(masks, np.uint64).reshape(len(masks), word_count(self._broker_count)),
            np.array([window.size_us for window in windows], np.int64),
            np.array([window.shift_us for window in windows], np.int64),
            np.array([size for _, _, size in self._rows], np.int64),
        )


def _parts_of(asker: Asker) -> set[int]:
    return {part for _, _, part in asker.outputs} | {part for _, part in asker.having_measures}


def _cells(rows: _Together, columns: Series, begins: Ints, series: Ints, values: Ints) -> Iterator[Lots]:
    order = np.lexsort((rows.signature, rows.origin, rows.cell_us))
    edges = np.flatnonzero(np.diff(rows.cell_us[order], prepend=np.nan)) if len(order) else order
    for lots in np.split(order, edges[1:]):
        if not len(lots):
            continue
        begin_us = int(rows.cell_us[lots[0]])
        signature = rows.signature[lots]
        lengths = np.diff(begins)[signature]
        within = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        at = np.repeat(begins[:-1][signature], lengths) + within
        of_edges = series[at]
        shifts = begin_us // columns.shift_us[of_edges]
        rest = columns.size_us[of_edges] % columns.shift_us[of_edges]
        second = (rest > 0) & (begin_us - shifts * columns.shift_us[of_edges] >= rest)
        yield Lots(
            begin_us, rows.origin[lots], rows.messages[lots], rows.size_bytes[lots], rows.raw_at[signature],
            np.repeat(np.arange(len(lots)), lengths), of_edges, np.where(rest > 0, 2 * shifts + second, shifts),
            values[at],
        )  # fmt: skip
