"""Publications in lots: those that no placement can tell apart, counted together.

A lot is made of the publications of one cell of time (between two neighbouring edges of any window), from one origin,
that satisfy the same things: its signature, a hash of what its publications are wanted for. Its wants are rows of
(question, group, part, value), where part and value are NOTHING unless the part collects values. Questions and parts
are named by their ids, which outlive the version of the plan.
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
from catchment.model.states import DISTINCT_VALUES
from catchment.model.window import Window
from catchment.stages import cell_kernels
from catchment.stages.coding import groups_of
from catchment.stages.measuring import event_bytes
from catchment.stages.plan import CellPlan, Part, TopicPlan

__all__ = [
    "NOTHING",
    "LotRows",
    "WantedLots",
    "Wants",
    "cells_of",
    "collected_values",
    "lots_of",
    "lots_of_wants",
    "mixed",
    "numbered",
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
    wants = wants_of(topic, batch, events, slots, times)
    has_regular = np.diff(topic.regular_offsets) > 0
    raw = has_regular[slots]
    of_slots = mixed(slots[raw].astype(np.int64)[:, None], 2)
    wanting, keys = np.concatenate([wants.event, events[raw]]), np.concatenate([wants.keys(), of_slots])
    signature = cell_kernels.signatures(wanting, keys, batch.num_rows)
    wanted = np.zeros(batch.num_rows, np.bool_)
    wanted[wanting] = True
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
    begin, of_examples = _of_rows(wants.event, wants.names, example)
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


@dataclass(frozen=True, slots=True, eq=False)
class Wants:
    """What publications are wanted for."""

    event: Ints
    pair: Ints
    """Of each want, its publication, and the pair that it is of."""
    names: Ints
    """[wants, 4]: question, group, part, value."""

    def keys(self) -> Hashes:
        """Hash the name of each want."""
        return mixed(self.names, 0)


def wants_of(plan: CellPlan, batch: pa.RecordBatch, events: Any, slots: Any, times: Ints) -> Wants:
    """Give what publications are wanted for, from pairs of an event and a slot that it satisfies."""
    counts = np.diff(plan.asked_offsets)[slots]
    pair = np.repeat(np.arange(len(slots)), counts)
    within = np.arange(len(pair)) - np.repeat(np.cumsum(counts) - counts, counts)
    question = plan.asked_members[plan.asked_offsets[:-1][slots][pair] + within]
    event = events[pair].astype(np.int64, copy=False)
    group = np.zeros(len(pair), np.int64)
    outside = np.zeros(len(pair), np.bool_)
    for number, layout in enumerate(plan.layouts):
        has_gaps = layout.window.shift_us > layout.window.size_us
        if not layout.group_keys and not has_gaps:
            continue
        here = np.flatnonzero(plan.question_layouts[question] == number)
        if has_gaps:
            outside[here] = ~layout.window.in_a_window(layout.window.slice_of(times))[event[here]]
        if layout.group_keys and len(here):
            codes, texts = groups_of(layout, batch, plan)
            group[here] = text_hashes(texts.to_pylist())[codes[event[here]]]
    if outside.any():
        pair, question, event, group = (column[~outside] for column in (pair, question, event, group))
    names = np.full((len(pair), 4), NOTHING, np.int64)
    names[:, 0], names[:, 1] = plan.question_ids[question], group
    found = [Wants(event, pair, names)]
    for asked, part in plan.collecting:
        chosen = np.flatnonzero(question == asked)
        collected = names[chosen]
        collected[:, 2], collected[:, 3] = part.id, 0
        if part.state == DISTINCT_VALUES.name and len(chosen):
            collected[:, 3] = _value_hashes(_attribute(batch, part))[event[chosen]]
        found.append(Wants(event[chosen], pair[chosen], collected))
    if len(found) == 1:
        return found[0]
    columns = ([getattr(one, name) for one in found] for name in ("event", "pair", "names"))
    return Wants(*map(np.concatenate, columns))


@dataclass(frozen=True, slots=True, eq=False)
class WantedLots:
    """Publications in lots, with an edge for each thing that a lot is wanted for."""

    weights: Ints
    size_bytes: Ints
    apart: Ints
    """Of each lot, what kept its publications apart from others."""
    lot: Ints
    want: Ints
    """Of each edge, its lot, and a want that it stands for."""
    edge: Ints
    """Of each want, its edge."""


def lots_of_wants(event: Ints, keys: Hashes, sizes: Ints, apart: Ints) -> WantedLots:
    """Put publications together that are wanted for the same, and that nothing else keeps apart."""
    is_wanted = np.zeros(len(sizes), np.bool_)
    is_wanted[event] = True
    rows = np.flatnonzero(is_wanted)
    alike = mixed(np.column_stack([cell_kernels.signatures(event, keys, len(sizes)).view(np.int64), apart])[rows], 0)
    _, first, lots = np.unique(alike, return_index=True, return_inverse=True)
    lot_of = np.full(len(sizes), -1, np.int64)
    lot_of[rows] = lots
    weights, size_bytes = np.bincount(lots), np.zeros(len(first), np.int64)
    np.add.at(size_bytes, lots, sizes[rows])
    examples = rows[first]
    if len(first) == len(rows):
        every = np.arange(len(event))
        return WantedLots(weights, size_bytes, apart[examples], lot_of[event], every, every)
    # Publications of a lot have as many wants, and in the order of their keys the same ones.
    order = np.lexsort((keys, event))
    ordered = event[order]
    begin = np.searchsorted(ordered, ordered)
    want = order[np.isin(ordered, examples)]
    lot = lot_of[event[want]]
    edge_begin = np.zeros(len(first), np.int64)
    edge_begin[lot[::-1]] = np.arange(len(lot))[::-1]
    edge = np.empty(len(event), np.int64)
    edge[order] = edge_begin[lot_of[ordered]] + np.arange(len(order)) - begin
    return WantedLots(weights, size_bytes, apart[examples], lot, want, edge)


def numbered(keys: Hashes) -> tuple[Ints, Ints]:
    """Number equal keys alike: of each number one place where its key is, and of each place its number."""
    order = np.argsort(keys)
    is_new = np.ones(len(keys), np.bool_)
    is_new[1:] = np.diff(keys[order]) != 0
    numbers = np.empty(len(keys), np.int64)
    numbers[order] = np.cumsum(is_new) - 1
    return order[is_new], numbers


def _attribute(batch: pa.RecordBatch, part: Part) -> pa.Array:
    assert part.attribute is not None
    if part.attribute in batch.schema.names:
        return batch.column(part.attribute)
    return pa.nulls(batch.num_rows, part.kind.arrow)


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
    found: Hashes = cell_kernels.mixed(rows, np.uint64(0x9E3779B97F4A7C15 * (salt + 1) % 2**64))
    return found


def _of_rows(event: Ints, wants: Ints, examples: Ints) -> tuple[Ints, Ints]:
    """The wants of some events, one after the other, and where those of each begin."""
    place = np.full(int(max(examples.max(initial=-1), event.max(initial=-1))) + 1, -1, np.int64)
    place[examples] = np.arange(len(examples))
    chosen = place[event] >= 0
    order = np.argsort(place[event[chosen]], kind="stable")
    lengths = np.bincount(place[event[chosen]], minlength=len(examples))
    begin = np.concatenate(([0], np.cumsum(lengths))).astype(np.int64)
    return begin, wants[chosen][order]
