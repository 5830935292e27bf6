"""From a batch of publications to everything that one pass over it yields.

Called on the executor for each Arrow batch, by Spark and later by brokers: refuse, match, deliver, count, aggregate.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from catchment.model.events import problems
from catchment.stages.lots import LotRows, lots_of
from catchment.stages.measuring import event_bytes
from catchment.stages.partials import has_large_totals, partials_of
from catchment.stages.plan import Plan, TopicPlan

__all__ = [
    "Crossings",
    "Judged",
    "PassResult",
    "Wanted",
    "origins_of",
    "partials_of_accepted",
    "run_pass",
]

Ints = npt.NDArray[np.int64]
Pairs = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Judged:
    """What was found out about the publications of a batch before they came here."""

    reasons: pa.Array
    """Why each is no event; null if it is one."""
    sizes: Ints | None = None
    """How large each is on the wire, if that matters."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the pass is asked for; what nobody asked for is not computed."""

    partials: bool = True
    deliveries: bool = True
    crossings: bool = True
    origins: bool = True
    """Keep with each partial the brokers its events came from, for the traffic of `early`."""
    lots: bool = False
    """Publications in lots, for the traffic of any placement."""
    period_us: int | None = None
    """No lot goes beyond such a period."""

    @property
    def sizes(self) -> bool:
        """Whether it matters how large events are."""
        return self.crossings or self.lots


@dataclass(frozen=True, slots=True)
class Crossings:
    """Publications by where they came from and who wants them: rows of (origin, wanted at, wanted raw at)."""

    origin: Ints
    wanted_at: npt.NDArray[np.uint64]
    wanted_raw_at: npt.NDArray[np.uint64]
    messages: Ints
    size_bytes: Ints


@dataclass(frozen=True, slots=True)
class PassResult:
    """Everything that a batch yields."""

    refused: tuple[npt.NDArray[np.int64], pa.Array]
    """Rows of the batch, and the reasons."""
    late: Ints
    """Rows of the batch behind the watermark."""
    clocks: dict[str, tuple[int, int]]
    """Per broker, of the accepted events: the latest time stamp, and how many there are."""
    deliveries: list[tuple[pa.Array, pa.Array]]
    """(subscription, event id) columns."""
    partials: list[pa.RecordBatch]
    is_large: bool
    """Whether a total of the partials might pass its type."""
    crossings: list[Crossings]
    lots: dict[str, LotRows]
    """By topic."""


def run_pass(
    plan: Plan,
    batch: pa.RecordBatch,
    *,
    wanted: Wanted,
    watermark_us: int | None = None,
    judged: Judged | None = None,
) -> PassResult:
    """Match a batch of publications, cast to the plan's types, against all subscriptions at once."""
    reasons = _problems(plan, batch) if judged is None else judged.reasons
    sizes = None if judged is None else judged.sizes
    if sizes is None and wanted.sizes:
        sizes = event_bytes(batch)
    everything = np.arange(batch.num_rows)
    refused_rows, refused_reasons = everything[:0], pa.array([], pa.string())
    accepted = everything
    if reasons is not None:
        refused = reasons.is_valid().to_numpy(zero_copy_only=False)
        refused_rows, refused_reasons = everything[refused], reasons.drop_null()
        accepted = everything[~refused]
    times = batch.column("ts").cast(pa.int64())
    late = accepted[:0]
    if watermark_us is not None:
        behind = times.to_numpy(zero_copy_only=False)[accepted] < watermark_us
        late, accepted = accepted[behind], accepted[~behind]
    kept = batch if len(accepted) == batch.num_rows else batch.take(pa.array(accepted))
    sizes = sizes if sizes is None or kept is batch else sizes[accepted]
    deliveries: list[tuple[pa.Array, pa.Array]] = []
    partials: list[pa.RecordBatch] = []
    is_large = False
    crossings: list[Crossings] = []
    lots: dict[str, LotRows] = {}
    for topic, chosen in _by_topic(kept, plan):
        rows = kept if chosen is None else kept.filter(pa.array(chosen))
        sizes_of_rows = sizes if chosen is None or sizes is None else sizes[chosen]
        origins = origins_of(plan, rows)
        matched = None
        if wanted.crossings or wanted.lots or (wanted.deliveries and topic.regular):
            events, slots = topic.matcher.match_slots(rows)
            matched = topic.matcher.by_slot(events, slots) if wanted.partials else None
            if wanted.deliveries and topic.regular:
                deliveries.append(_deliveries(topic, rows, events, slots))
            if wanted.crossings:
                crossings.append(_crossings(topic, rows, events, slots, origins, sizes_of_rows))
            if wanted.lots:
                lots[topic.topic] = lots_of(topic, rows, events, slots, origins, wanted.period_us, sizes_of_rows)
        if wanted.partials:
            matched = matched or topic.matcher.rows_by_slot(rows)
            found = partials_of(topic, rows, matched, origins, len(plan.brokers) if wanted.origins else 1)
            is_large = is_large or any(has_large_totals(topic, one) for one in found)
            partials += found
    return PassResult(
        (refused_rows, refused_reasons), late, _clocks(kept), deliveries, partials, is_large, crossings, lots
    )


def _problems(plan: Plan, batch: pa.RecordBatch) -> pa.Array | None:
    topics = plan.schemas if "*" not in plan.schemas else None
    return problems(batch, topics, plan.brokers if plan.has_overlay else None)


def partials_of_accepted(plan: Plan, batch: pa.RecordBatch) -> list[pa.RecordBatch]:
    """The partials of a batch of accepted publications; `topic` may be missing where the plan has only one."""
    if not batch.num_rows:
        return []
    topics = _by_topic(batch, plan) if "topic" in batch.schema.names else [(next(iter(plan.topics.values())), None)]
    found = []
    for topic, chosen in topics:
        rows = batch if chosen is None else batch.filter(pa.array(chosen))
        found += partials_of(topic, rows, topic.matcher.rows_by_slot(rows), np.zeros(rows.num_rows, np.int64), 1)
    return found


def _by_topic(batch: pa.RecordBatch, plan: Plan) -> list[tuple[TopicPlan, npt.NDArray[np.bool_] | None]]:
    """The topics of a batch that somebody asks about, and which events are of each; None is all of them."""
    if not batch.num_rows:
        return []
    topics = batch.column("topic")
    if pa.types.is_dictionary(topics.type):
        topics = topics.cast(pa.string())
    names = pc.unique(topics).to_pylist()
    if len(names) == 1:
        return [(plan.topics[names[0]], None)] if names[0] in plan.topics else []
    return [(plan.topics[name], np.asarray(pc.equal(topics, name))) for name in sorted(names) if name in plan.topics]


def _clocks(batch: pa.RecordBatch) -> dict[str, tuple[int, int]]:
    if not batch.num_rows:
        return {}
    times = pa.table({"broker": batch.column("broker"), "ts": batch.column("ts").cast(pa.int64())})
    clocks = times.group_by("broker").aggregate([("ts", "max"), ("ts", "count")])
    columns = (clocks.column(name).to_pylist() for name in ("broker", "ts_max", "ts_count"))
    return {broker: (latest, count) for broker, latest, count in zip(*columns, strict=True)}


def origins_of(plan: Plan, batch: pa.RecordBatch) -> Ints:
    """The ingress broker of each event, by its place in the overlay."""
    if not plan.has_overlay:
        return np.zeros(batch.num_rows, np.int64)
    index = pc.index_in(batch.column("broker"), value_set=pa.array(plan.brokers, batch.column("broker").type))
    origins: Ints = index.cast(pa.int64()).to_numpy(zero_copy_only=False)
    return origins


def _deliveries(topic: TopicPlan, batch: pa.RecordBatch, events: Pairs, slots: Pairs) -> tuple[pa.Array, pa.Array]:
    counts = np.diff(topic.regular_offsets)[slots]
    rows = np.repeat(events, counts)
    starts = np.repeat(topic.regular_offsets[:-1][slots], counts)
    within = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
    members = topic.regular_members[starts + within]
    names = pa.array(topic.regular, pa.string())
    return names.take(pa.array(members)), batch.column("event_id").take(pa.array(rows))


def _crossings(
    topic: TopicPlan, batch: pa.RecordBatch, events: Pairs, slots: Pairs, origins: Ints, sizes: Ints | None
) -> Crossings:
    words = topic.wanted_at.shape[1]
    wanted = np.zeros((batch.num_rows, 2 * words), np.uint64)
    both = np.concatenate([topic.wanted_at, topic.wanted_raw_at], axis=1)
    edges = np.flatnonzero(np.diff(events, prepend=-1))
    if len(edges):
        wanted[events[edges]] = np.bitwise_or.reduceat(both[slots], edges, axis=0)
    masks = [f"mask{word}" for word in range(2 * words)]
    rows = pa.table(
        {
            "origin": origins,
            **{name: wanted[:, word].view(np.int64) for word, name in enumerate(masks)},
            "bytes": sizes,
        }
    )
    grouped = rows.group_by(["origin", *masks], use_threads=False).aggregate([("bytes", "count"), ("bytes", "sum")])
    both_masks = np.stack([grouped.column(name).to_numpy().view(np.uint64) for name in masks], axis=1)
    return Crossings(
        grouped.column("origin").to_numpy(),
        np.ascontiguousarray(both_masks[:, :words]),
        np.ascontiguousarray(both_masks[:, words:]),
        grouped.column("bytes_count").to_numpy(),
        grouped.column("bytes_sum").to_numpy(),
    )
