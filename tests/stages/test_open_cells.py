"""Cells that wait at brokers: windows that close one after the other are those of all events at once."""

import itertools
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catchment import Schema, Subscription, oracle
from catchment.model.events import as_events, event_times_us
from catchment.model.results import NOTIFICATION_SCHEMA, OVERFLOW_SCHEMA
from catchment.oracle import differences
from catchment.stages import (
    ANSWER_SCHEMA,
    Active,
    ByCode,
    Names,
    OpenCells,
    Plan,
    Question,
    compile_plan,
    finish_windows,
    misfits,
    open_cells,
    partials_from_bytes,
    partials_to_bytes,
)
from tests.broker.wire import read_back, written
from tests.model import strategies

EVER = 2**62


class Broker:
    """Cells of slices at one broker, and of windows at the next, which gets them as rows of partials."""

    def __init__(self, plan: Plan) -> None:
        (self._topic,) = plan.topics.values()
        self._questions: dict[int, Question] = plan.questions
        self._here, self._there = OpenCells(Names()), OpenCells(Names(), by_window=True)
        self._closed_us = -EVER
        self.answers: list[pa.RecordBatch] = []
        self.saved: list[tuple[Any, bytes]] = []
        """What cells gave and were given, and how it was written then."""

    def take(self, batch: pa.RecordBatch) -> None:
        if batch.num_rows:
            self._here.add_events(self._topic, batch, self._topic.matcher.rows_by_slot(batch))

    def close(self, until_us: int, bytes_max: int) -> None:
        first_us = self._here.first_end_us(self._closed_us)
        windows = self._here.windows(self._closed_us, until_us)
        assert bool(windows) == (first_us is not None and first_us <= until_us)
        self._pass_on(windows, bytes_max)
        self._here.forget_until(until_us)
        windows = self._there.windows(self._closed_us, until_us)
        self._closed_us = until_us
        if windows:
            names = self._there.names
            self.answers += finish_windows(names.instances, names.texts, windows).answers
        self._there.forget_until(until_us)
        assert not len(self._there)

    def _pass_on(self, windows: ByCode, bytes_max: int) -> None:
        for piece in self._here.pieces(windows, bytes_max):
            rows = partials_from_bytes(partials_to_bytes(piece))
            assert misfits(rows, self._questions) == {}
            self._there.add_rows(rows, self._questions)

    def restart(self) -> None:
        """Go on from what was saved."""
        names = Names()
        saved, of_names = self._here.saved(), self._here.names.saved()
        names.restore(read_back(of_names), self._questions)
        back = OpenCells(names)
        given = read_back(saved)
        back.restore(given)
        self.saved += [(one, written(one)) for one in (saved, given)]
        self._here = back


@st.composite
def cases(draw: st.DrawFn) -> tuple[Any, ...]:
    topics = {"traffic": draw(strategies.schemas(names=strategies.NAMES))}
    return (
        topics,
        draw(strategies.event_tables(topics)),
        draw(strategies.subscriptions(topics, count_max=5)),
        sorted(draw(st.lists(st.integers(0, 30), max_size=3))),
        draw(st.booleans()),
        draw(st.sampled_from([200, 10_000_000])),
        draw(st.sampled_from([2, open_cells.FEW_CELLS])),
    )


@given(cases())
@settings(max_examples=80, deadline=None)
def test_windows_one_after_the_other_are_those_of_all_events(case: tuple[Any, ...]) -> None:
    *_, few_cells = case
    with patch.object(open_cells, "FEW_CELLS", few_cells):
        _check(case)


def _check(case: tuple[Any, ...]) -> None:
    topics, events, subscriptions, cuts, restarts, bytes_max, _ = case
    asked = [one for one in subscriptions if not one.is_regular]
    if not asked:
        return
    plan = compile_plan([Active(one) for one in asked], topics, None)
    if len(plan.topics) != 1:
        return
    events = events.sort_by("ts")
    accepted = _accepted(events, topics)
    broker = Broker(plan)
    for begin, end in itertools.pairwise([0, *(cut for cut in cuts if cut < len(accepted)), len(accepted)]):
        stretch = accepted.slice(begin, end - begin).combine_chunks()
        for batch in stretch.to_batches():
            broker.take(batch)
        if restarts:
            broker.restart()
        if len(stretch):
            broker.close(int(event_times_us(stretch.to_batches()[-1])[-1]), bytes_max)
    broker.close(EVER, bytes_max)
    assert all(written(value) == before for value, before in broker.saved)
    answers = pa.Table.from_batches(broker.answers, ANSWER_SCHEMA)
    has_value = answers.column("problem").is_null()
    overflows = answers.filter(pa.compute.invert(has_value)).select(OVERFLOW_SCHEMA.names)
    expected = oracle(events, subscriptions=asked, schema=topics)
    nothing = pa.table({"subscription": pa.array([], pa.string()), "event_id": events.column("event_id").slice(0, 0)})
    assert differences(expected, answers.filter(has_value).select(NOTIFICATION_SCHEMA.names), nothing, overflows) == []


def _accepted(events: pa.Table, topics: dict[str, Schema]) -> pa.Table:
    """The events that are none to be refused."""
    prepared = as_events(events, topics["traffic"])
    answer = oracle(events, subscriptions=[Subscription("all", sql="SELECT * FROM traffic")], schema=topics)
    kept = set(answer.deliveries.column("event_id").to_pylist())
    return prepared.filter(pa.array([one in kept for one in prepared.column("event_id").to_pylist()], pa.bool_()))


def test_groups_that_nobody_has_any_more_are_forgotten() -> None:
    names = Names()
    numbers = names.groups(pa.array(["a", "b", "c", "a"]))
    assert numbers.tolist() == [0, 1, 2, 0]
    assert names.keep_groups(np.array([1, 2])).tolist() == [-1, 0, 1]
    assert names.texts.to_pylist() == ["b", "c"]
    assert names.groups(pa.array(["d", "c"])).tolist() == [2, 1]


def test_equal_cells_are_merged_before_they_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many batches come while a window is open, there are about as many cells as slices and groups."""
    monkeypatch.setattr(open_cells, "FEW_CELLS", 100)
    schema = Schema({"x": "int", "road": "string"})
    asked = Subscription("s", sql="SELECT sum(x), mode(x) FROM t GROUP BY window(ts, '1 hour'), road")
    (topic,) = compile_plan([Active(asked)], {"t": schema}, None).topics.values()
    cells = OpenCells(Names())
    for number in range(100):
        batch = pa.RecordBatch.from_pydict(
            {
                "ts": pa.array([number] * 10, pa.timestamp("us", tz="UTC")),
                "x": [number] * 10,
                "road": [f"r{one}" for one in range(10)],
            }
        )
        cells.add_events(topic, batch, topic.matcher.rows_by_slot(batch))
    assert len(cells) <= 2 * 110
    windows = cells.windows(-EVER, EVER)
    (whole,) = [one for one in windows.values() if not one.blobs]
    assert whole.low.tolist() == [sum(range(100))] * 10
    assert whole.publications.tolist() == [100] * 10
