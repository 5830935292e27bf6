"""The subscriber's own broker: it puts windows together, finishes their values, and notifies its clients."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from catchment.broker.aggregation.clocks import NEVER
from catchment.broker.aggregation.places import Place
from catchment.broker.aggregation.questions import Questions
from catchment.broker.aggregation.timers import Item
from catchment.broker.peers import HERE
from catchment.model.subscription import Aggregate, Subscription
from catchment.stages import ANSWER_SCHEMA, Asker, ByCode, finish_windows, together

__all__ = ["Edge", "Local"]

AnswersByClient = dict[str, pa.RecordBatch]
"""Of each client, answers."""


@dataclass(slots=True)
class Local:
    """An aggregate subscription of one of this broker's clients."""

    client: str
    name: str
    sql: str
    wanted: Aggregate
    question: int
    since_us: int = NEVER
    """Windows that begin earlier are left out: some events of theirs came before everyone knew of the subscription."""
    is_acknowledged: bool = False


class Edge(Place):
    """The windows of one topic that clients of this broker wait for."""

    def __init__(self, questions: Questions, *, by_stride: bool, revises: bool) -> None:
        super().__init__(HERE, questions, by_stride=by_stride)
        if by_stride:
            self._received = self._own
        self._revises = revises
        self.locals: dict[str, Local] = {}
        """By a name that no subscription had before at this broker."""
        self._sent_values: dict[tuple[str, int, str], tuple[int, int]] = {}
        """By subscription, window and group: the publications of the last value sent, and how many values were."""

    # -- something is due -------------------------------------------------------------------------------------------

    def finish_until(self, time_us: int) -> tuple[AnswersByClient, int]:
        """The answers of all windows that end up to a time, and how many there were."""
        windows = self._windows(self._closed_us, time_us)
        answers = self._answers(windows)
        self._close(time_us, windows)
        if self._sent_values:
            closed_us = self._closed_us
            ends = {name: local.wanted.window for name, local in self.locals.items()}
            self._sent_values = {
                key: one for key, one in self._sent_values.items() if key[1] + ends[key[0]].size_us > closed_us
            }
        return answers, sum(map(len, windows.values()))

    def finish_items(self, items: Sequence[Item]) -> AnswersByClient:
        """The answers of some windows, as far as they are known."""
        self.add_up()
        questions = frozenset(key for key, _ in items)
        whole = together([table.all_windows(questions) for table in self._tables()], self._names)
        wanted = set(items)
        chosen: ByCode = {}
        for code, cells in whole.items():
            ids = [self._names.instances[at].question.id for at in cells.instance.tolist()]
            found = [(key, number) in wanted for key, number in zip(ids, cells.number.tolist(), strict=True)]
            rows = np.flatnonzero(found)
            if len(rows):
                chosen[code] = cells.take(rows)
        return self._answers(chosen)

    def _answers(self, windows: ByCode) -> AnswersByClient:
        if not windows:
            return {}
        finished = finish_windows(self._names.instances, self._names.texts, windows).answers
        if not finished:
            return {}
        answers = pa.Table.from_batches(finished).sort_by([("window_end", "ascending"), ("subscription", "ascending")])
        if self._revises:
            answers = self._revised(answers)
        return dict(self._by_client(answers.combine_chunks()))

    def _revised(self, answers: pa.Table) -> pa.Table:
        """What is news, with the number of its revision."""
        names = answers.column("subscription").to_pylist()
        starts = answers.column("window_start").cast(pa.int64()).to_pylist()
        groups = [repr(sorted(group)) for group in answers.column("group").to_pylist()]
        before = dict(self._sent_values)
        kept, revisions = [], []
        rows = zip(names, starts, groups, answers.column("publications").to_pylist(), strict=True)
        for row, (name, start_us, group, publications) in enumerate(rows):
            known, revision = before.get((name, start_us, group), (0, 0))
            if publications != known:
                kept.append(row)
                revisions.append(revision)
                self._sent_values[name, start_us, group] = (publications, revision + 1)
        news = answers.take(pa.array(kept, pa.int64()))
        at = ANSWER_SCHEMA.get_field_index("revision")
        return news.set_column(at, ANSWER_SCHEMA.field(at), pa.array(revisions, pa.int32()))

    def _by_client(self, answers: pa.Table) -> Iterator[tuple[str, pa.RecordBatch]]:
        encoded = answers.column("subscription").combine_chunks().dictionary_encode()
        locals_ = [self.locals[name] for name in encoded.dictionary.to_pylist()]
        names = pa.array([one.name for one in locals_], pa.string()).take(encoded.indices)
        named = answers.set_column(0, ANSWER_SCHEMA.field(0), names)
        for client in sorted({one.client for one in locals_}):
            mine = pa.array([one.client == client for one in locals_]).take(encoded.indices)
            for batch in named.filter(mine).combine_chunks().to_batches():
                yield client, batch

    # -- subscriptions ------------------------------------------------------------------------------------------------

    def local_of(self, client: str, name: str) -> Local | None:
        """A subscription of a client."""
        return next((one for one in self.locals.values() if (one.client, one.name) == (client, name)), None)

    def acknowledge(self, client: str, name: str) -> None:
        for local in self.locals.values():
            if (local.client, local.name) == (client, name):
                local.is_acknowledged = True
                self._look_again(local.question)

    def begin_after(self, latest_us: int, question: int | None = None) -> None:
        """Skip windows that start at or before `latest_us` for unacknowledged subscriptions: to a question, or to all.

        Every event that comes in after the acknowledgement is counted, so later reports change nothing.
        """
        for local in self.locals.values():
            if question in (None, local.question) and not local.is_acknowledged and latest_us > NEVER:
                local.since_us = max(local.since_us, latest_us + 1)

    def unsubscribe(self, client: str, name: str) -> bool:
        """Forget a subscription; whether it was there."""
        keys = [key for key, one in self.locals.items() if (one.client, one.name) == (client, name)]
        for key in keys:
            local = self.locals.pop(key)
            self._sent_values = {one: pair for one, pair in self._sent_values.items() if one[0] != key}
            self._look_again(local.question)
        return bool(keys)

    def _look_again(self, question: int) -> None:
        """Let those ask a question whose subscriptions are acknowledged."""
        known = self._questions.by_id.get(question)
        view = None if known is None else known.views.get(HERE)
        if view is not None:
            view.question.askers[:] = [
                Asker.of(
                    one.wanted, view.question, self._questions.schema, key, 0,
                    None if one.since_us == NEVER else one.since_us,
                )
                for key, one in self.locals.items()
                if one.question == question and one.is_acknowledged
            ]  # fmt: skip

    # -- memory -----------------------------------------------------------------------------------------------------

    def saved(self) -> list[Any]:
        locals_ = [
            (key, one.client, one.name, one.sql, one.question, one.since_us, one.is_acknowledged)
            for key, one in self.locals.items()
        ]
        return [super().saved(), locals_, dict(self._sent_values)]

    def restore(self, saved: list[Any]) -> None:
        place, locals_, sent_values = saved
        super().restore(place)
        for key, client, name, sql, question, since_us, is_acknowledged in locals_:
            subscription = Subscription(name, sql=sql)
            wanted = subscription.within({subscription.query.topic: self._questions.schema}).aggregate
            assert wanted is not None
            self.locals[key] = Local(client, name, sql, wanted, question, since_us, is_acknowledged)
        for question in {one.question for one in self.locals.values()}:
            self._look_again(question)
        self._sent_values = {key: (count, again) for key, (count, again) in sent_values.items()}
