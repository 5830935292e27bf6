"""Who asks what, and from which side."""

import numpy as np

from catchment import Subscription
from catchment.broker.aggregation.questions import Questions
from catchment.broker.demands import AskedQuestion
from catchment.broker.peers import HERE
from catchment.model.schema import Schema, Type
from tests.broker.wire import read_back

SCHEMA = Schema({"x": Type.INT, "road": Type.STRING})
FULL = SCHEMA.with_implicit()


def asked(sql: str, subscription: str = "") -> AskedQuestion:
    return AskedQuestion.of(Subscription("s", sql=sql).within({"t": SCHEMA}), FULL, subscription)


SUM = "SELECT sum(x) FROM t WHERE x > {} GROUP BY window(ts, '10 seconds')"
MEDIAN = "SELECT median(x) FROM t WHERE x > 1 GROUP BY window(ts, '10 seconds')"
SAMPLED = "SELECT count(*) FROM t GROUP BY window(ts, '1 second', '5 seconds')"


def test_questions_are_shared_unless_they_are_of_one_subscription_alone() -> None:
    shared, own = Questions("t", SCHEMA), Questions("t", SCHEMA)
    for name, side in (("a", HERE), ("b", "left"), ("c", "left")):
        shared.add(asked(SUM.format(1)), side)
        own.add(asked(SUM.format(1), name), side)
    assert (len(shared.by_id), len(own.by_id)) == (1, 3)
    assert shared.asked_count == own.asked_count == 3
    (one,) = shared.by_id.values()
    assert {side: view.asked.total() for side, view in one.views.items()} == {HERE: 1, "left": 2}
    shared.remove(asked(SUM.format(1)), HERE)
    assert list(one.views) == ["left"]
    assert shared.remove(asked(SUM.format(1)), "left").views["left"].question.parts == one.whole.parts
    shared.remove(asked(SUM.format(1)), "left")
    assert not shared.by_id
    assert not shared


def test_a_view_knows_what_its_side_asks_for() -> None:
    questions = Questions("t", SCHEMA)
    questions.add(asked(SUM.format(1)), "left")
    known = questions.add(asked(MEDIAN), "right")
    assert [part.state for part in known.views["left"].question.parts] == ["whole total"]
    assert [part.state for part in known.whole.parts] == ["whole total", "values"]
    assert [questions.is_plain(side)[known.number] for side in ("left", "right")] == [True, False]
    assert [questions.fetches(side)[known.number] for side in ("left", "right")] == [False, True]
    assert [questions.at_side(side)[known.number] for side in ("left", "right", HERE)] == [True, True, False]
    questions.add(asked(SUM.format(1)), "right")
    assert [part.state for part in known.views["right"].question.parts] == ["values", "whole total"]
    assert questions.is_plain("right")[known.number]


def test_events_between_sampling_windows_are_wanted_by_nobody() -> None:
    questions = Questions("t", SCHEMA)
    always = questions.add(asked(SUM.format(1)), HERE).number
    sampled = questions.add(asked(SAMPLED), HERE).number
    times = np.array([0, 500_000, 1_500_000, 5_000_000])
    given = np.array([0, 1, 2, 2, 3]), np.array([sampled, sampled, sampled, always, sampled])
    rows, found = questions.matching_questions(*given, times)
    assert list(zip(rows.tolist(), found.tolist(), strict=True)) == [
        (0, sampled),
        (1, sampled),
        (2, always),
        (3, sampled),
    ]


def test_numbers_are_used_again_and_restored_as_they_were() -> None:
    questions = Questions("t", SCHEMA)
    for number in range(4):
        questions.add(asked(SUM.format(number)), HERE).since_us = number
    questions.add(asked(SUM.format(3)), HERE)
    questions.remove(asked(SUM.format(1)), HERE)
    questions.remove(asked(SUM.format(2)), HERE)
    back = Questions("t", SCHEMA)
    back.restore(read_back(questions.saved()))
    for one in (questions, back):
        assert [one.add(asked(SAMPLED, name), "left").number for name in "xyz"] == [1, 2, 4]
    assert back.saved() == questions.saved()
    assert back.plan("left").question_ids.tolist() == questions.plan("left").question_ids.tolist()
