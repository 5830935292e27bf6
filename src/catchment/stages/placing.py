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

from catchment.model.states import COLLECTED, VALUES
from catchment.model.window import WindowColumns
from catchment.overlay import mask_of, word_count
from catchment.overlay.placement import Lots, Series, Shares
from catchment.overlay.placement.offers import Grain
from catchment.stages.lots import NOTHING, LotRows
from catchment.stages.measuring import PARTIAL_BYTES, state_bytes
from catchment.stages.plan import Asker, Part, Question, TopicPlan

__all__ = ["Prepared", "SeriesName", "collects_values", "partial_bytes", "prepared_lots"]

Ints = npt.NDArray[np.int64]


SeriesName = tuple[int, int, int, int, tuple[str, int] | None]
"""Question, group, part, value; and the subscription and its incarnation, where partials of a question are for windows
of one of those who share it."""


@dataclass(frozen=True, slots=True, eq=False)
class Prepared:
    """All that a fold needs."""

    series: Series
    names: list[SeriesName]
    cells: list[Lots]


def prepared_lots(
    topic: TopicPlan,
    broker_count: int,
    batches: Iterable[LotRows],
    grain: Grain,
    also: Iterable[SeriesName] = (),
) -> Prepared:
    """The lots of some batches in the order of time, with their wants as series, and the series named besides."""
    rows = _Together.of(list(batches))
    table = _SeriesTable(topic, broker_count, grain)
    for name in also:
        table.add(name)
    begins: list[int] = [0]
    series: list[int] = []
    for begin, end in zip(rows.wants_begin[:-1].tolist(), rows.wants_begin[1:].tolist(), strict=True):
        series += sorted(table.of(rows.wants[begin:end].tolist()))
        begins.append(len(series))
    columns = table.columns()
    cells = list(_cells(rows, columns, np.array(begins), np.array(series, np.int64)))
    return Prepared(columns, list(table.numbers), cells)


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
            for at, key in enumerate(map(tuple, batch.known.tolist())):
                if key not in numbers:
                    numbers[key] = len(numbers)
                    raw_at.append(batch.raw_at[at])
                    begin, end = batch.wants_begin[at : at + 2]
                    wants.append(batch.wants[begin:end])
                    lengths.append(end - begin)
            signature.append(np.array([numbers[tuple(key)] for key in batch.signature.tolist()], np.int64))
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


def partial_bytes(part: int, parts: Iterable[Part]) -> int:
    """Of a partial of a series that is about a part or, if that is NOTHING, about all these."""
    return PARTIAL_BYTES + (sum(state_bytes(one.state) for one in parts) if part == NOTHING else 0)


def collects_values(part: int, parts: Iterable[Part]) -> bool:
    """Whether partials of a series about a part hold a value of each publication."""
    return any(one.id == part and one.state == VALUES.name for one in parts)


class _SeriesTable:
    """Numbers series as they are met."""

    def __init__(self, topic: TopicPlan, broker_count: int, grain: Grain) -> None:
        self._questions = {question.id: question for question in topic.questions}
        self._askers = {one.id: [(asker, _series_parts(asker, one)) for asker in one.askers] for one in topic.questions}
        self._broker_count, self._grain = broker_count, grain
        self.numbers: dict[SeriesName, int] = {}
        self._rows: list[tuple[set[int], Question, int, bool]] = []

    def of(self, wants: list[list[int]]) -> set[int]:
        """The series that want a publication; none of questions that are asked no more."""
        found = set()
        for question, group, part, value in wants:
            for asker, parts in self._askers.get(question, ()):
                if part in parts:
                    who = (asker.name, asker.incarnation) if self._grain == "window" else None
                    number = self.add((question, group, part, value, who))
                    assert number is not None
                    found.add(number)
        return found

    def add(self, name: SeriesName) -> int | None:
        """The number of a series; None if nobody asks for it any more."""
        if name in self.numbers:
            return self.numbers[name]
        question, _, part, _, who = name
        several = self._askers.get(question, ())
        askers = [one for one, parts in several if part in parts and who in (None, (one.name, one.incarnation))]
        if not askers:
            return None
        asked = self._questions[question]
        size = self._size(asked, part, askers[0])
        self._rows.append(({one.broker for one in askers}, asked, size, collects_values(part, asked.parts)))
        self.numbers[name] = len(self.numbers)
        return self.numbers[name]

    def _size(self, asked: Question, part: int, asker: Asker) -> int:
        # What several share is counted link by link.
        shared = self._grain == "stride"
        return partial_bytes(part, () if shared else [asked.parts[at] for at in _parts_of(asker)])

    def _shares(self) -> Shares | None:
        """Where several share a series, a partial holds on a link what they ask for beyond it."""
        if self._grain == "window":
            return None
        asking = {question: self._asking(question) for question in {name[0] for name in self.numbers}}
        found = [
            (number, mask_of(brokers, self._broker_count), state_bytes(self._questions[question].parts[at].state))
            for (question, _, part, _, _), number in self.numbers.items()
            if part == NOTHING
            for at, brokers in asking[question].items()
        ]
        return Shares(
            np.array([number for number, _, _ in found], np.int64),
            np.array([mask for _, mask, _ in found], np.uint64).reshape(len(found), word_count(self._broker_count)),
            np.array([size for _, _, size in found], np.int64),
        )

    def _asking(self, question: int) -> dict[int, set[int]]:
        """Of each part of a question, the brokers where somebody asks for it."""
        brokers: dict[int, set[int]] = {}
        for asker, _ in self._askers[question]:
            for at in _parts_of(asker):
                brokers.setdefault(at, set()).add(asker.broker)
        return brokers

    def columns(self) -> Series:
        masks = [mask_of(brokers, self._broker_count) for brokers, _, _, _ in self._rows]
        return Series(
            np.array(masks, np.uint64).reshape(len(masks), word_count(self._broker_count)),
            WindowColumns.of(question.layout.window for _, question, _, _ in self._rows),
            np.array([size for _, _, size, _ in self._rows], np.int64),
            np.array([collects for _, _, _, collects in self._rows], np.bool_),
            self._shares(),
        )


def _series_parts(asker: Asker, asked: Question) -> set[int]:
    """The parts that somebody has series for: those that collect values, or else one that stands for all."""
    collected = {asked.parts[at].id for at in _parts_of(asker) if asked.parts[at].state in COLLECTED}
    return collected or {NOTHING}


def _parts_of(asker: Asker) -> set[int]:
    return {part for _, _, part in (*asker.outputs, *asker.having_measures)}


def _cells(rows: _Together, columns: Series, begins: Ints, series: Ints) -> Iterator[Lots]:
    order = np.lexsort((rows.signature, rows.origin, rows.cell_us))
    edges = np.flatnonzero(np.diff(rows.cell_us[order])) + 1
    for lots in np.split(order, edges) if len(order) else ():
        begin_us = int(rows.cell_us[lots[0]])
        signature = rows.signature[lots]
        lengths = np.diff(begins)[signature]
        within = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        of_edges = series[np.repeat(begins[:-1][signature], lengths) + within]
        slices = columns.windows[of_edges].slice_of(np.asarray(begin_us))
        yield Lots(
            begin_us, rows.origin[lots], rows.messages[lots], rows.size_bytes[lots], rows.raw_at[signature],
            np.repeat(np.arange(len(lots)), lengths), of_edges, slices,
        )  # fmt: skip
