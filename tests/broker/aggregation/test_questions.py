"""Who asks what, and from which side."""

from typing import Any

import numpy as np
import pytest

from catchment import Subscription
from catchment.broker.aggregation.questions import Asked, Questions
from catchment.broker.peers import HERE
from catchment.model.errors import SubscriptionError
from catchment.model.schema import Schema, Type

SCHEMA = Schema({"x": Type.INT, "road": Type.STRING})
FULL = SCHEMA.with_implicit()


def asked(name: str, sql: str) -> Asked:
    return Asked.of(name, Subscription(name, sql=sql).within({"t": SCHEMA}), FULL)


SUM = "SELECT sum(x) FROM t WHERE x > {} GROUP BY window(ts, '10 seconds')"
MEDIAN = "SELECT median(x) FROM t WHERE x > 1 GROUP BY window(ts, '10 seconds')"
SAMPLED = "SELECT count(*) FROM t GROUP BY window(ts, '1 second', '5 seconds')"


def test_questions_are_shared_by_stride_and_each_ones_own_by_window() -> None:
    shared, own = (Questions("t", SCHEMA, by_stride=by_stride) for by_stride in (True, False))
    for questions in (shared, own):
        for name, side in (("a", HERE), ("b", "left"), ("c", "left")):
            questions.add(asked(name, SUM.format(1)), side)
    assert (len(shared.by_id), len(own.by_id)) == (1, 3)
    (one,) = shared.by_id.values()
    assert {side: sorted(view.asked) for side, view in one.views.items()} == {HERE: ["a"], "left": ["b", "c"]}
    shared.remove("a")
    assert list(one.views) == ["left"]
    assert shared.remove("b")[0].views["left"].question.parts == one.whole.parts
    shared.remove("c")
    assert not shared.by_id
    assert not shared


def test_a_view_knows_what_its_side_asks_for() -> None:
    questions = Questions("t", SCHEMA, by_stride=True)
    questions.add(asked("a", SUM.format(1)), "left")
    known = questions.add(asked("b", MEDIAN), "right")
    assert [part.state for part in known.views["left"].question.parts] == ["whole total"]
    assert [part.state for part in known.whole.parts] == ["whole total", "values"]
    assert [questions.is_plain(side)[known.number] for side in ("left", "right")] == [True, False]
    assert [questions.fetches(side)[known.number] for side in ("left", "right")] == [False, True]
    assert [questions.at_side(side)[known.number] for side in ("left", "right", HERE)] == [True, True, False]
    questions.add(asked("c", SUM.format(1)), "right")
    assert [part.state for part in known.views["right"].question.parts] == ["values", "whole total"]
    assert questions.is_plain("right")[known.number]


def test_events_between_sampling_windows_are_wanted_by_nobody() -> None:
    questions = Questions("t", SCHEMA, by_stride=False)
    always = questions.add(asked("a", SUM.format(1)), HERE).number
    sampled = questions.add(asked("c", SAMPLED), HERE).number
    times = np.array([0, 500_000, 1_500_000, 5_000_000])
    given = np.array([0, 1, 2, 2, 3]), np.array([sampled, sampled, sampled, always, sampled])
    rows, found = questions.wanting(*given, times)
    assert list(zip(rows.tolist(), found.tolist(), strict=True)) == [
        (0, sampled),
        (1, sampled),
        (2, always),
        (3, sampled),
    ]


def test_numbers_are_used_again_and_restored_as_they_were() -> None:
    questions = Questions("t", SCHEMA, by_stride=False)
    for name in "abcd":
        questions.add(asked(name, SUM.format(ord(name))), HERE)
    questions.remove("b")
    questions.remove("c")
    back = Questions("t", SCHEMA, by_stride=False)
    back.restore(questions.saved())
    for one in (questions, back):
        assert [one.add(asked(name, SAMPLED), "left").number for name in "xyz"] == [1, 2, 4]
    assert back.saved() == questions.saved()
    assert back.plan("left").question_ids.tolist() == questions.plan("left").question_ids.tolist()


@pytest.mark.parametrize(
    "plain",
    [
        ["a", "t", [[]], [0, 10], [], []],
        ["a", "t", [[]], [10, 10], ["nowhere"], []],
        ["a", "t", [[]], [10, 10], [], [["magic", None, "int"]]],
        ["a", "t", [[]], [10, 10], [], [["tally", "nowhere", "int"]]],
        ["a", "t", [["nowhere", []]], [10, 10], [], []],
        [1],
        "nonsense",
    ],
)
def test_what_makes_no_sense_for_the_topic_is_an_error(plain: Any) -> None:
    with pytest.raises((SubscriptionError, ValueError, TypeError)):
        Asked.from_plain(plain, FULL)


def test_a_question_is_read_as_it_was_written() -> None:
    given = asked("a", "SELECT count(DISTINCT road), avg(x) FROM t WHERE x > 3 GROUP BY window(ts, '5 seconds'), road")
    assert Asked.from_plain(given.plain(), FULL) == given
