"""Where partials grow until their time comes."""

import numpy as np
import pytest

from catchment.broker.aggregation import places
from catchment.broker.aggregation.clocks import FOR_EVER
from catchment.broker.aggregation.places import Outlet, Pairs
from catchment.broker.aggregation.questions import Questions
from catchment.stages import ByCode, described_partials
from tests.broker.aggregation.tools import COUNT, SCHEMA, SLIDING, SUM, TUMBLING, asked, events, pairs

COUNT_SLIDING = f"SELECT count(*) FROM t {SLIDING}"


class Link:
    """An outlet to `left` for some questions, numbered from 0 on."""

    def __init__(self, *several: str, by_stride: bool = False) -> None:
        self.questions = Questions("t", SCHEMA)
        self.outlet = Outlet("left", self.questions, by_stride=by_stride)
        for number, sql in enumerate(several):
            self.questions.add(asked(sql, "" if by_stride else f"b/{number}"), "left")

    @property
    def ids(self) -> list[int]:
        return list(self.questions.by_id)

    def add(self, *several: tuple[int, int], numbers: tuple[int, ...] = (0,)) -> None:
        batch = events(*several)
        windows = [one.window for one in self.questions.by_id.values() if one.number in numbers]
        self.outlet.add(pairs(batch, *numbers), min(window.next_end_us(several[0][0]) for window in windows))

    def shown(self, cells: ByCode) -> list[tuple[int, int, str]]:
        """Question by its place, number of the window or slice, and the states."""
        parts = {part.id: part for one in self.questions.by_id.values() for part in one.views["left"].question.parts}
        found = [described_partials(rows, parts) for rows in self.outlet.pieces(cells, 10**6)]
        return sorted((self.ids.index(key), number, text) for one in found for (key, number, _), text in one.items())


def test_pairs_of_several_batches_stand_together() -> None:
    first = pairs(events((1, 5), (2, 6), roads=["a", "b"]), 7)
    second = Pairs(events((3, 7)), np.array([0]), np.array([8]))
    both = Pairs.together([first, second])
    assert both.events.column("road").to_pylist() == ["a", "b", None]
    assert (both.rows.tolist(), both.numbers.tolist()) == ([0, 1, 2], [7, 7, 8])
    chosen = both.where(np.array([False, True, True]))
    assert (chosen.rows.tolist(), chosen.numbers.tolist()) == ([1, 2], [7, 8])


def test_publications_wait_as_they_came_until_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "WAITING_MAX", 3)
    link = Link(COUNT)
    link.add((1, 5), (2, 5), (3, 5))
    assert link.outlet.size == 3
    link.add((4, 5))
    assert link.outlet.size == 1  # one cell of four
    assert link.shown(link.outlet.take_until(10)) == [(0, 0, "count=4")]


def test_every_window_is_told_once() -> None:
    link = Link(COUNT, SUM)
    link.add((1, 5), (2, 6), (12, 7), numbers=(0, 1))
    assert link.outlet.first_end_us() == 10
    assert link.shown(link.outlet.take_until(10)) == [(0, 0, "count=2"), (1, 0, "count(x)=2 sum(x)=11")]
    assert link.outlet.closed_us == 10
    assert link.outlet.first_end_us() == 20
    assert link.shown(link.outlet.take_until(20)) == [(0, 1, "count=1"), (1, 1, "count(x)=1 sum(x)=7")]
    assert link.shown(link.outlet.take_until(FOR_EVER)) == []
    assert (link.outlet.size, link.outlet.first_end_us()) == (0, None)


def test_partials_that_have_come_are_merged_with_what_was_absorbed() -> None:
    above, link = Link(SUM), Link(SUM)
    above.add((1, 5))
    (rows,) = above.outlet.pieces(above.outlet.take_until(10), 10**6)
    link.add((2, 6))
    link.outlet.receive(rows)
    assert link.shown(link.outlet.take_until(10)) == [(0, 0, "count(x)=2 sum(x)=11")]


def test_windows_overlap_and_strides_do_not() -> None:
    windows, strides = Link(COUNT_SLIDING), Link(COUNT_SLIDING, by_stride=True)
    for link in (windows, strides):
        link.add((1, 5), (12, 5))
    assert windows.shown(windows.outlet.take_until(20)) == [(0, -1, "count=1"), (0, 0, "count=2")]
    assert windows.outlet.first_end_us() == 30
    assert strides.shown(strides.outlet.take_until(20)) == [(0, 0, "count=1"), (0, 1, "count=1")]
    assert strides.outlet.first_end_us() is None


@pytest.mark.parametrize("by_stride", [False, True])
def test_what_was_told_by_the_clock_is_told_again_with_nothing_but_what_came_since(by_stride: bool) -> None:
    link = Link(SUM, by_stride=by_stride)
    (key,) = link.ids
    link.add((1, 5))
    assert link.shown(link.outlet.take_items([(key, 0)])) == [(0, 0, "count(x)=1 sum(x)=5")]
    assert link.shown(link.outlet.take_items([(key, 0)])) == []
    link.add((2, 6), (12, 7))
    assert link.shown(link.outlet.take_items([(key, 0)])) == [(0, 0, "count(x)=1 sum(x)=6")]
    link.add((3, 8))
    assert link.shown(link.outlet.take_until(20)) == [(0, 0, "count(x)=1 sum(x)=8"), (0, 1, "count(x)=1 sum(x)=7")]


def test_a_question_that_has_gone_leaves_nothing_to_the_one_that_gets_its_number() -> None:
    link = Link(COUNT, SUM)
    link.add((1, 5), numbers=(0, 1))
    link.outlet.add_up()
    link.add((2, 5), numbers=(0, 1))
    gone = link.questions.remove(asked(COUNT, "b/0"), "left")
    link.outlet.timers.wake((gone.id, 0), 10)
    link.outlet.forget(gone.id, gone.number)
    assert link.outlet.timers.soonest_us() is None
    assert link.questions.add(asked(COUNT, "b/2"), "left").number == gone.number
    assert link.shown(link.outlet.take_until(10)) == [(0, 0, "count(x)=2 sum(x)=10")]


def test_every_collected_value_counts_as_a_message() -> None:
    link = Link(COUNT, f"SELECT median(x) FROM t {TUMBLING}", f"SELECT count(DISTINCT x) FROM t {TUMBLING}")
    weights = []
    for number in range(3):
        link.add((1 + 10 * number, 5), (2 + 10 * number, 5), (3 + 10 * number, 6), numbers=(number,))
        weights.append(link.outlet.weight(link.outlet.take_until(10 + 10 * number)))
    assert [messages for messages, _ in weights] == [1, 3, 2]
    assert all(size > 0 for _, size in weights)
