"""The subscriber's own broker: it puts windows together, finishes their values, and notifies its clients."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from catchment.broker.aggregation.clocks import FOR_EVER, NEVER
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
    until_us: int = FOR_EVER
    """Windows that begin from then on are answered by the same subscription in another grain."""
    own: str = ""
    """The subscription of the advice itself by which it is asked, if the client's own was asked in another grain."""
    is_moving: bool = False
    """Whether it was asked in another grain as well."""
    first_us: int | None = None
    """From when on its client gets windows, if some of them were answered in another grain."""

    @property
    def whole_us(self) -> int:
        """From when on its client gets windows."""
        return self.since_us if self.first_us is None else self.first_us

    @property
    def last_end_us(self) -> int:
        """The end of the last window that is answered here."""
        window = self.wanted.window
        return int(window.end_us((self.until_us - 1) // window.shift_us))


class Edge(Place):
    """The windows of one topic that clients of this broker wait for."""

    def __init__(self, questions: Questions, *, by_stride: bool, revises: bool) -> None:
        super().__init__(HERE, questions, by_stride=by_stride)
        if by_stride:
            self._received = self._own
        self._revises = revises
        self.locals: dict[str, Local] = {}
        """By a name that no subscription had before at this broker."""
        self._leaving: dict[str, None] = {}
        """Those whose later windows another grain answers."""
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
        answers = self._answered_here(answers)
        if not answers.num_rows:
            return {}
        if self._revises:
            answers = self._revised(answers)
        return dict(self._by_client(answers.combine_chunks()))

    def _answered_here(self, answers: pa.Table) -> pa.Table:
        """Leave out windows that another grain answers."""
        if not self._leaving:
            return answers
        until = {key: self.locals[key].until_us for key in self._leaving}
        keys = answers.column("subscription").to_pylist()
        starts = answers.column("window_start").cast(pa.int64()).to_pylist()
        return answers.filter(
            pa.array([start < until.get(key, FOR_EVER) for key, start in zip(keys, starts, strict=True)])
        )

    def leaving_us(self) -> int | None:
        """The first end up to which a subscription is still answered here, and then by another grain."""
        return min((self.locals[key].last_end_us for key in self._leaving), default=None)

    def left_until(self, time_us: int) -> list[str]:
        """The subscriptions whose last windows here have ended up to a time."""
        return [key for key in self._leaving if self.locals[key].last_end_us <= time_us]

    def leave_at(self, key: str, until_us: int) -> None:
        """Leave windows that begin from a time on to another grain."""
        self.locals[key].until_us = until_us
        self._leaving[key] = None

    def begin_whole(self, key: str, since_us: int) -> None:
        """Answer a subscription from now on, for windows that begin from a time on."""
        local = self.locals[key]
        local.since_us, local.is_acknowledged = max(local.since_us, since_us), True
        self._look_again(local.question)

    def drop(self, key: str) -> Local:
        """Answer a subscription no more."""
        local = self.locals.pop(key)
        self._leaving.pop(key, None)
        self._sent_values = {one: pair for one, pair in self._sent_values.items() if one[0] != key}
        self._look_again(local.question)
        return local

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

    def acknowledge(self, client: str, name: str) -> bool:
        """Answer a subscription from now on; whether it is there."""
        is_there = False
        for local in self.locals.values():
            if (local.client, local.name, local.own) == (client, name, ""):
                local.is_acknowledged = is_there = True
                self._look_again(local.question)
        return is_there

    def begin_after(self, latest_us: int, question: int | None = None) -> None:
        """Skip windows that start at or before `latest_us` for unacknowledged subscriptions: to a question, or to all.

        Every event that comes in after the acknowledgement is counted, so later reports change nothing.
        """
        for local in self.locals.values():
            if question in (None, local.question) and not local.is_acknowledged and latest_us > NEVER:
                local.since_us = max(local.since_us, latest_us + 1)

    def unsubscribe(self, client: str, name: str) -> list[Local]:
        """Forget a subscription; what was there of it."""
        return [self.drop(key) for key, one in list(self.locals.items()) if (one.client, one.name) == (client, name)]

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
            (
                key,
                one.client,
                one.name,
                one.sql,
                one.question,
                one.since_us,
                one.is_acknowledged,
                one.until_us,
                one.own,
                one.is_moving,
                one.first_us,
            )
            for key, one in self.locals.items()
        ]
        return [super().saved(), locals_, dict(self._sent_values)]

    def restore(self, saved: list[Any]) -> None:
        place, locals_, sent_values = saved
        super().restore(place)
        for key, client, name, sql, question, *more in locals_:
            subscription = Subscription(name, sql=sql)
            wanted = subscription.within({subscription.query.topic: self._questions.schema}).aggregate
            assert wanted is not None
            self.locals[key] = Local(client, name, sql, wanted, question, *more)
        self._leaving = {key: None for key, one in self.locals.items() if one.until_us < FOR_EVER}
        for question in {one.question for one in self.locals.values()}:
            self._look_again(question)
        self._sent_values = {key: (count, again) for key, (count, again) in sent_values.items()}
