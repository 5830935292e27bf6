"""Publications in lots: those that no placement can tell apart, counted together.

A lot is made of the publications of one cell of time (between two neighbouring edges of any window), from one origin,
that satisfy the same things: its signature, a hash of what its publications are wanted for. That is told as rows of
(question, group, part, value), where part and value are NOTHING unless the part collects values. Questions and parts
are told by their ids, which outlive the version of the plan.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from catchment.model.schema import Type
from catchment.model.states import COLLECTED, DISTINCT_VALUES
from catchment.model.window import Window
from catchment.stages.coding import Coded
from catchment.stages.measuring import event_bytes
from catchment.stages.plan import CellPlan, Part, TopicPlan

__all__ = [
    "NOTHING",
    "LotRows",
    "cells_of",
    "collected_values",
    "lots_of",
    "mixed",
    "text_hashes",
    "value_hashes",
    "wants_of",
]

Ints = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.uint64]
Pairs = npt.NDArray[np.int32]

NOTHING = -1


@dataclass(frozen=True, slots=True)
class LotRows:
    """The lots of some publications, and what their signatures mean."""

    cell_us: Ints
    origin: Ints
    signature: Ints
    """[lots, 2]"""
    messages: Ints
    size_bytes: Ints
    known: Ints
    """[signatures, 2]: those that occur."""
    raw_at: Hashes
    """[signatures, words]: the brokers with regular subscriptions."""
    wants_begin: Ints
    """Where the wants of each known signature begin, and the end."""
    wants: Ints
    """[wants, 4]: question, group, part, value."""


def lots_of(
    topic: TopicPlan,
    batch: pa.RecordBatch,
    events: Pairs,
    slots: Pairs,
    origins: Ints,
    period_us: int | None = None,
    sizes: Ints | None = None,
) -> LotRows:
    """The lots of a batch of publications, given the pairs that match, by event; no period divides a lot."""
    times = batch.column("ts").cast(pa.int64()).to_numpy(zero_copy_only=False)
    event, wants = wants_of(topic, batch, events, slots, times)
    has_regular = np.diff(topic.regular_offsets) > 0
    raw = has_regular[slots]
    signature = np.zeros((batch.num_rows, 2), np.uint64)
    for salt in range(2):
        column = signature[:, salt]
        np.add.at(column, event, mixed(wants, salt))
        np.add.at(column, events[raw], mixed(slots[raw].astype(np.int64)[:, None], salt + 2))
    wanted = np.zeros(batch.num_rows, np.bool_)
    wanted[event] = wanted[events[raw]] = True
    cells = cells_of(times, (layout.window for layout in topic.layouts), period_us)
    signed = signature.view(np.int64)
    rows = pa.table(
        {
            "cell": cells, "origin": origins, "one": signed[:, 0], "two": signed[:, 1],
            "bytes": event_bytes(batch) if sizes is None else sizes, "row": np.arange(batch.num_rows),
        }
    ).filter(pa.array(wanted))  # fmt: skip
    lots = rows.group_by(["cell", "origin", "one", "two"], use_threads=False).aggregate(
        [("bytes", "count"), ("bytes", "sum")]
    )
    first = rows.group_by(["one", "two"], use_threads=False).aggregate([("row", "min")])
    example = first.column("row_min").to_numpy()
    begin, of_examples = _of_rows(event, wants, example)
    raw_at = np.zeros((batch.num_rows, topic.wanted_raw_at.shape[1]), np.uint64)
    np.bitwise_or.at(raw_at, events[raw], topic.wanted_raw_at[slots[raw]])
    return LotRows(
        lots.column("cell").to_numpy(), lots.column("origin").to_numpy(),
        np.stack([lots.column("one").to_numpy(), lots.column("two").to_numpy()], axis=1),
        lots.column("bytes_count").to_numpy(), lots.column("bytes_sum").to_numpy(),
        signed[example], raw_at[example], begin, of_examples,
    )  # fmt: skip


def cells_of(times: Ints, windows: Iterable[Window], period_us: int | None) -> Ints:
    """When the cell of each time begins: at the last edge of any window, or end of a period, before."""
    begin = np.full(len(times), -(2**62), np.int64)
    for window in set(windows):
        np.maximum(begin, window.slice_start_us(window.slice_of(times)), out=begin)
    if period_us is not None:
        np.maximum(begin, times // period_us * period_us, out=begin)
    return begin


def wants_of(plan: CellPlan, batch: pa.RecordBatch, events: Any, slots: Any, times: Ints) -> tuple[Ints, Ints]:
    """Give events, and what each is wanted for: rows of (question, group, part, value)."""
    counts = np.diff(plan.asked_offsets)[slots]
    starts = np.repeat(plan.asked_offsets[:-1][slots], counts)
    within = np.arange(len(starts)) - np.repeat(np.cumsum(counts) - counts, counts)
    question = plan.asked_members[starts + within]
    event = np.repeat(events, counts).astype(np.int64)
    found_events, found = [event[:0]], [np.zeros((0, 4), np.int64)]
    for number, layout in enumerate(plan.layouts):
        here = plan.question_layouts[question] == number
        if not here.any():
            continue
        coded = Coded.of(layout, times, batch, plan)
        inside = here & (coded.codes[event] >= 0)
        rows, asked = event[inside], question[inside]
        group = _group_hashes(coded)[coded.codes[rows]]
        nothing = np.full(len(rows), NOTHING, np.int64)
        found_events.append(rows)
        found.append(np.stack([plan.question_ids[asked], group, nothing, nothing], axis=1))
        for one in np.unique(asked).tolist():
            for part in plan.questions[one].parts:
                if part.state in COLLECTED and part.attribute is not None:
                    chosen = asked == one
                    of_one = rows[chosen]
                    value = np.zeros(len(of_one), np.int64)
                    if part.state == DISTINCT_VALUES.name:
                        value = _value_hashes(_attribute(batch, part))[of_one]
                    found_events.append(of_one)
                    known = [np.full(len(of_one), number, np.int64) for number in (plan.questions[one].id, part.id)]
                    found.append(np.stack([known[0], group[chosen], known[1], value], axis=1))
    return np.concatenate(found_events), np.concatenate(found)


def _attribute(batch: pa.RecordBatch, part: Part) -> pa.Array:
    assert part.attribute is not None
    if part.attribute in batch.schema.names:
        return batch.column(part.attribute)
    return pa.nulls(batch.num_rows, part.kind.arrow)


def _group_hashes(coded: Coded) -> Ints:
    """Of each code, a number for its group."""
    if coded.groups is None:
        return np.zeros(len(coded.slices), np.int64)
    encoded = coded.groups.dictionary_encode()
    hashes: Ints = text_hashes(encoded.dictionary.to_pylist())[encoded.indices.to_numpy(zero_copy_only=False)]
    return hashes


def _value_hashes(column: pa.Array) -> Ints:
    """Of each event, a number for its value; equal values have equal ones, in every batch."""
    encoded = column.dictionary_encode(null_encoding="encode")
    values = encoded.dictionary
    plain = values.cast(pa.int64()) if pa.types.is_timestamp(values.type) else values
    hashes: Ints = value_hashes(plain.to_pylist())[encoded.indices.to_numpy(zero_copy_only=False)]
    return hashes


def value_hashes(values: list[Any]) -> Ints:
    """Give a number for each of some values; times are in microseconds."""
    return text_hashes([repr(value + 0.0) if isinstance(value, float) else repr(value) for value in values])


def collected_values(part: Part) -> Callable[[bytes, bool], Ints] | None:
    """Give what tells the hashes of the distinct values in a blob, and of a missing one; None if it holds none."""
    if part.state != DISTINCT_VALUES.name or part.attribute is None:
        return None

    def hashes(blob: bytes, is_one_missing: bool) -> Ints:
        values = DISTINCT_VALUES.values(blob, part.kind)
        plain = [bool(value) for value in values] if part.kind is Type.BOOL else values
        return value_hashes([*plain, *([None] if is_one_missing else [])])

    return hashes


def text_hashes(texts: list[str]) -> Ints:
    found = [int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little", signed=True) for text in texts]
    return np.array(found, np.int64)


def mixed(rows: Ints, salt: int) -> Hashes:
    """A hash of each row, whose sums over rows tell sets of rows apart."""
    mixed = np.full(len(rows), 0x9E3779B97F4A7C15 * (salt + 1) % 2**64, np.uint64)
    for column in range(rows.shape[1]):
        mixed ^= rows[:, column].astype(np.uint64)
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
        mixed ^= mixed >> np.uint64(31)
        mixed += np.uint64(0x9E3779B97F4A7C15)
    return mixed


def _of_rows(event: Ints, wants: Ints, examples: Ints) -> tuple[Ints, Ints]:
    """The wants of some events, one after the other, and where those of each begin."""
    place = np.full(int(max(examples.max(initial=-1), event.max(initial=-1))) + 1, -1, np.int64)
    place[examples] = np.arange(len(examples))
    chosen = place[event] >= 0
    order = np.argsort(place[event[chosen]], kind="stable")
    lengths = np.bincount(place[event[chosen]], minlength=len(examples))
    begin = np.concatenate(([0], np.cumsum(lengths))).astype(np.int64)
    return begin, wants[chosen][order]
