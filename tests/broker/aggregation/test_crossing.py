"""Publications before links: which cross as they are, which go into partials, which wait for the end of a stride."""

import numpy as np
import pyarrow as pa
import pytest

from catchment.broker.aggregation.crossing import ADVICE, Arrived, Crossing
from catchment.broker.aggregation.deciding import Deciding
from catchment.broker.aggregation.marks import Marks
from catchment.broker.aggregation.places import Outlet
from catchment.broker.aggregation.questions import Questions
from catchment.broker.routing import Matched
from catchment.overlay.placement import MESSAGES, Strategy
from catchment.stages import described_partials
from tests.broker.aggregation.tools import COUNT, SCHEMA, SUM, TUMBLING, Ear, asked, events, pairs

MEDIAN = f"SELECT median(x) FROM t {TUMBLING}"
SIDES = ("left", "right")


class Links:
    """A broker between `left` and `right`; questions are numbered from 0 on, each asked on some sides."""

    def __init__(self, placement: str, *several: tuple[str, str]) -> None:
        strategy = Strategy(placement, 10, MESSAGES)
        by_stride = strategy.grain == "stride"
        self.questions = Questions("t", SCHEMA)
        for number, (sql, sides) in enumerate(several):
            for side in sides.split():
                self.questions.add(asked(sql, "" if by_stride else f"b/{number}"), side)
        self.outlets = {side: Outlet(side, self.questions, by_stride=by_stride) for side in SIDES}
        self.deciding = Deciding(strategy, "b", SIDES)
        self.crossing = Crossing("t", "t", self.questions, self.outlets, self.deciding)
        self.ids = list(self.questions.by_id)

    def arrived(self, batch: pa.RecordBatch, *numbers: int, marks: Marks | None = None) -> Arrived:
        """All events, wanted by each of some questions."""
        wanted = pairs(batch, *numbers)
        times_us = batch.column("ts").cast(pa.int64()).to_numpy()
        ends_us = np.asarray(self.questions.tables.windows[wanted.numbers].next_end_us(times_us[wanted.rows]))
        return Arrived(wanted, times_us, ends_us, marks or Marks.none())

    def offer(
        self, arrived: Arrived, *, regular: dict[str, list[int]] | None = None, upstream: str = "client"
    ) -> dict[str, list[int]]:
        """Which rows cross at once, by side."""
        wanted = Matched({side: np.array(rows) for side, rows in (regular or {}).items()})
        self.onwards, self.absorbed = self.crossing.offer(Ear(), arrived, wanted, upstream, {})
        return {side: rows.tolist() for side, rows in self.onwards.neighbours.items()}

    def marked(self, side: str) -> Marks:
        """The marks on what crosses at once."""
        columns = {name.removeprefix(f"{ADVICE}/"): one for name, one in self.onwards.notes[side].items()}
        return Marks.of(columns)

    def partials(self, side: str) -> list[str]:
        parts = {part.id: part for view in self.questions.views_at(side).values() for part in view.question.parts}
        pieces = self.outlets[side].pieces(self.outlets[side].take_until(100), 10**6)
        return [text for rows in pieces for text in described_partials(rows, parts).values()]


TWO = events((1, 5), (2, 6))


def test_late_lets_everything_cross_and_early_nothing() -> None:
    late, early = (Links(placement, (COUNT, "left")) for placement in ("late", "early"))
    assert late.offer(late.arrived(TWO, 0)) == {"left": [0, 1]}
    assert late.partials("left") == []
    assert early.offer(early.arrived(TWO, 0)) == {}
    assert early.partials("left") == ["count=2"]
    assert early.absorbed["left"].tolist() == [True, True]


def test_events_for_regular_subscriptions_cross_beside_those_for_aggregates() -> None:
    links = Links("late", (f"SELECT count(*) FROM t WHERE x > 5 {TUMBLING}", "left"))
    arrived = links.arrived(TWO, 0)
    second = Arrived(arrived.pairs.where(np.array([False, True])), arrived.times_us, arrived.ends_us[1:], Marks.none())
    assert links.offer(second, regular={"left": [0]}) == {"left": [0, 1]}


def test_nothing_goes_back_to_where_it_came_from() -> None:
    for placement in ("late", "early", "cover"):
        links = Links(placement, (COUNT, "left right"))
        crossed = links.offer(links.arrived(TWO, 0), upstream="left")
        assert "left" not in crossed
        assert links.partials("left") == []
        assert len(links.crossing.held["left"]) == 0


def test_what_crosses_for_a_regular_subscription_is_marked_with_the_partials_that_have_it() -> None:
    links = Links("early", (COUNT, "left"), (SUM, "left"))
    before = Marks(np.array([1]), np.array([77]))
    crossed = links.offer(links.arrived(TWO, 0, 1, marks=before), regular={"left": [1]})
    assert crossed == {"left": [1]}
    marks = links.marked("left")
    assert (marks.rows.tolist(), sorted(marks.questions.tolist())) == ([0, 0, 0], sorted([*links.ids, 77]))
    assert marks.held_us is None


def test_events_are_held_until_their_stride_has_ended_and_then_as_little_as_possible_crosses() -> None:
    links = Links("cover", (COUNT, "left"), (f"SELECT count(*) FROM t WHERE x > 5 {TUMBLING}", "left"))
    both, one = links.arrived(events((1, 7)), 0, 1), links.arrived(events((2, 5), (3, 5)), 0)
    assert links.offer(both) == links.offer(one) == {}
    assert links.crossing.held["left"].first_end_us() == 10
    early, due = Ear(), Ear()
    assert links.crossing.release(early, "left", 9) is None
    assert early.heard == []
    into = links.crossing.release(due, "left", 10)
    assert due.heard == [("left", ["e1"])]
    assert Marks.of(due.marks[0]).held_us.tolist() == [10]  # type: ignore[union-attr]
    assert into is not None
    assert links.partials("left") == ["count=2"]
    assert len(links.crossing.held["left"]) == 0


def test_what_waits_for_a_later_end_goes_on_waiting() -> None:
    links = Links("cover", (COUNT, "left"), ("SELECT count(*) FROM t GROUP BY window(ts, '30 microseconds')", "left"))
    links.offer(links.arrived(events((1, 5), (12, 5)), 0))
    links.offer(links.arrived(events((5, 5)), 1))
    ear = Ear()
    links.crossing.release(ear, "left", 10)
    assert ear.heard == [("left", ["e1"])]
    assert [len(links.crossing.held["left"]), links.crossing.held["left"].first_end_us()] == [2, 20]
    links.crossing.release(ear, "left", 20)
    links.crossing.release(ear, "left", 30)
    assert ear.heard == [("left", ["e1"]), ("left", ["e12"]), ("left", ["e5"])]
    assert links.partials("left") == []


def test_what_a_regular_subscription_or_a_median_wants_is_not_held() -> None:
    links = Links("cover", (COUNT, "left"), (MEDIAN, "right"))
    assert links.offer(links.arrived(TWO, 0), regular={"left": [0]}) == {"left": [0], "right": [0, 1]}
    assert {side: len(held) for side, held in links.crossing.held.items()} == {"left": 1, "right": 0}


def test_marks_from_further_up_stay_on_what_was_held() -> None:
    links = Links("cover", (COUNT, "left"))
    before = Marks(np.array([0]), np.array([77]), np.array([10]))
    links.offer(links.arrived(events((1, 5)), 0, marks=before))
    ear = Ear()
    links.crossing.release(ear, "left", 10)
    marks = Marks.of(ear.marks[0])
    assert (marks.rows.tolist(), marks.questions.tolist()) == ([0], [77])


def test_a_placement_that_is_sure_hears_of_what_was_decided_before_it_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    links = Links("adaptive", (COUNT, "left"))
    sample, known = links.deciding.sample, []
    monkeypatch.setattr(links.deciding, "sample", lambda time_us: known.append(len(links.deciding)) or sample(time_us))
    links.offer(links.arrived(TWO, 0))
    links.offer(links.arrived(events((3, 5)), 0))
    assert len(links.deciding) == 0  # nobody has asked it
    links.offer(links.arrived(events((11, 5)), 0))
    assert known == [0, 0, 1]


def test_a_question_that_nobody_asks_any_more_lets_nothing_wait() -> None:
    links = Links("cover", (COUNT, "left"))
    links.offer(links.arrived(TWO, 0))
    links.crossing.forget("left", 0)
    assert links.crossing.held["left"].first_end_us() is None
