"""The stages inside Spark: one pass of `mapInArrow` over the events, one over their partials.

    publications ─ mapInArrow(match, pre-aggregate) ─► rows ─ shuffle by question ─ mapInArrow(merge, finish) ─► values

Partials, not events, are shuffled, and all parts of a question meet in one task.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from catchment.model.results import NOTIFICATION_SCHEMA, OVERFLOW_SCHEMA
from catchment.pipeline.acceptance import REASON, SIZE, accepted, for_a_pass, judged, used_columns
from catchment.pipeline.columns import map_in_arrow, with_attribute_names
from catchment.pipeline.plans import SentPlan
from catchment.pipeline.publications import event_id_type
from catchment.pipeline.statistics import NOTHING_KNOWN, Known
from catchment.stages import (
    ANSWER_SCHEMA,
    PACKED_SCHEMA,
    Finished,
    Judged,
    Plan,
    Selection,
    Wanted,
    compact_rows,
    finish_rows,
    packed,
    partials_of_accepted,
    pass_rows,
    pass_schema,
    run_pass,
    unpacked,
)

__all__ = [
    "MESSAGE_SCHEMA",
    "answers_and_messages",
    "answers_of",
    "compact",
    "finish",
    "match",
    "messages",
    "messages_of",
    "notifications_of",
    "overflows_of",
    "partials",
    "partials_by_question",
]

CELLS_AT_ONCE = 1_000_000
"""Cells merged and finished together; what bounds the memory of a worker."""
ROWS_AT_ONCE = 100_000

MESSAGE_SCHEMA = pa.schema(
    [
        ("kind", pa.string()),
        ("broker", pa.int64()),
        ("origins", pa.list_(pa.int64())),
        ("messages", pa.int64()),
        ("bytes", pa.int64()),
    ]
)
"""What subscriptions cost on the links: partials by target and origins, notifications by broker."""


def match(
    publications: DataFrame,
    plan: Plan,
    sent_plan: SentPlan,
    wanted: Wanted,
    watermark_us: int | None = None,
    known: Known = NOTHING_KNOWN,
) -> DataFrame:
    """Rows of `stages.wire` for prepared publications, judged or not yet."""
    schema = pass_schema(event_id_type(publications))
    if not {REASON, *([SIZE] if wanted.sizes else [])} <= set(publications.columns):
        brokers = plan.brokers if plan.has_overlay else None
        publications = judged(publications, plan.schemas, brokers, known, measured=wanted.sizes)

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for given in batches:
            sizes = given.column(SIZE).to_numpy() if wanted.sizes else None
            found = Judged(given.column(REASON), sizes)
            batch = with_attribute_names(given.drop_columns([REASON, SIZE] if wanted.sizes else [REASON]))
            result = run_pass(sent_plan.value, batch, wanted=wanted, watermark_us=watermark_us, judged=found)
            yield from pass_rows(result, batch)

    return map_in_arrow(for_a_pass(publications, plan, wanted, watermark_us), run, schema)


def partials(publications: DataFrame, plan: Plan, sent_plan: SentPlan, known: Known = NOTHING_KNOWN) -> DataFrame:
    """The partials alone, as PACKED_SCHEMA: all that notifications need where nobody asks about traffic."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in map(with_attribute_names, batches):
            yield from map(packed, partials_of_accepted(sent_plan.value, batch))

    events = accepted(publications, plan, known).select(*used_columns(publications, plan))
    return map_in_arrow(events, run, PACKED_SCHEMA)


def partials_by_question(rows: DataFrame) -> DataFrame:
    """The partials among the rows, all of a question in one partition and side by side."""
    partials = rows.where("kind = 'partial'") if "kind" in rows.columns else rows
    partials = partials.select(*PACKED_SCHEMA.names, *(c for c in ("fresh",) if c in rows.columns))
    return partials.repartition("question").sortWithinPartitions("question", "part", "first")


def finish(partials: DataFrame, plan: SentPlan, selection: Selection, revision: int = 0) -> DataFrame:
    """Answers of the selected windows, for `notifications_of` and `overflows_of` to tell apart."""

    def of(finished: Finished) -> Iterator[pa.RecordBatch]:
        for batch in finished.answers:
            for begin in range(0, batch.num_rows, ROWS_AT_ONCE):
                yield batch.slice(begin, ROWS_AT_ONCE)

    return map_in_arrow(partials, _finisher(plan, selection, revision, 0, of), ANSWER_SCHEMA)


def messages(partials: DataFrame, plan: SentPlan, selection: Selection, words: int) -> DataFrame:
    """Partial and notification messages of the selected windows, as MESSAGE_SCHEMA."""
    run = _finisher(plan, selection, 0, words, _message_rows)
    return map_in_arrow(partials, run, MESSAGE_SCHEMA)


ANSWER_AND_MESSAGE_SCHEMA = pa.schema([*ANSWER_SCHEMA, *MESSAGE_SCHEMA])


def answers_and_messages(
    partials: DataFrame, plan: SentPlan, selection: Selection, revision: int, words: int
) -> DataFrame:
    """Answers and messages from one merge, for `answers_of` and `messages_of` to tell apart."""

    def of(finished: Finished) -> Iterator[pa.RecordBatch]:
        for batch in [*finished.answers, *_message_rows(finished)]:
            columns = [
                batch.column(field.name) if field.name in batch.schema.names else pa.nulls(batch.num_rows, field.type)
                for field in ANSWER_AND_MESSAGE_SCHEMA
            ]
            yield pa.RecordBatch.from_arrays(columns, schema=ANSWER_AND_MESSAGE_SCHEMA)

    run = _finisher(plan, selection, revision, words, of)
    return map_in_arrow(partials, run, ANSWER_AND_MESSAGE_SCHEMA)


def answers_of(both: DataFrame) -> DataFrame:
    return both.where("kind IS NULL").select(*ANSWER_SCHEMA.names)


def notifications_of(answers: DataFrame) -> DataFrame:
    """Values that subscribers receive."""
    return answers.where("problem IS NULL").select(*NOTIFICATION_SCHEMA.names)


def overflows_of(answers: DataFrame) -> DataFrame:
    """Values that are beyond their type, reported instead."""
    return answers.where("problem IS NOT NULL").select(*OVERFLOW_SCHEMA.names)


def messages_of(both: DataFrame) -> DataFrame:
    return both.where("kind IS NOT NULL").select(*MESSAGE_SCHEMA.names)


def _message_rows(finished: Finished) -> Iterator[pa.RecordBatch]:
    rows = []
    if finished.partials is not None:
        sent = finished.partials
        columns = (sent.target, sent.origins.view(np.int64), sent.messages, sent.size_bytes)
        rows += [("partial", *row) for row in zip(*(column.tolist() for column in columns), strict=True)]
    rows += [("notification", broker, [], *sent) for broker, sent in sorted(finished.notified.items())]
    if rows:
        names = MESSAGE_SCHEMA.names
        yield pa.RecordBatch.from_pylist([dict(zip(names, row, strict=True)) for row in rows], MESSAGE_SCHEMA)


def compact(partials: DataFrame, plan: SentPlan, words: int, oldest_us: int | None) -> DataFrame:
    """The same partials with equal cells merged, as PACKED_SCHEMA."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for rows in whole_questions(batches):
            yield from map(packed, compact_rows(rows, plan.value, words=words, oldest_us=oldest_us))

    return map_in_arrow(partials, run, PACKED_SCHEMA)


def _finisher(
    plan: SentPlan,
    selection: Selection,
    revision: int,
    words: int,
    of: Callable[[Finished], Iterator[pa.RecordBatch]],
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for rows in whole_questions(batches):
            yield from of(finish_rows(rows, plan.value, selection=selection, revision=revision, words=words))

    return run


def whole_questions(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Cut rows that are ordered by question into tables that end where a question ends and are not too large."""
    pending: list[pa.RecordBatch] = []
    pending_cells = 0
    for batch in map(unpacked, batches):
        if not batch.num_rows:
            continue
        questions = batch.column("question").to_numpy()
        cells = np.cumsum(pc.list_value_length(batch.column("slices")).to_numpy())
        edges = np.flatnonzero(np.diff(questions)) + 1
        begin, done = 0, -pending_cells
        for edge in edges.tolist():
            if cells[edge - 1] - done >= CELLS_AT_ONCE:
                yield pa.Table.from_batches([*pending, batch.slice(begin, edge - begin)])
                pending, begin, done = [], edge, int(cells[edge - 1])
        pending.append(batch.slice(begin))
        pending_cells = int(cells[-1]) - done
    if pending:
        yield pa.Table.from_batches(pending)
