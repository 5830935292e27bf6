"""A placement at one broker, over the star of the broker and its neighbours."""

import numpy as np
import pytest

from catchment.broker.aggregation import deciding
from catchment.broker.aggregation.deciding import Deciding, Standing
from catchment.broker.aggregation.questions import Questions
from catchment.overlay.placement import MESSAGES, Strategy
from catchment.stages import NOTHING, SeriesName, mixed
from tests.broker.aggregation.tools import COUNT, SCHEMA, asked

PERIOD_US = 10


class Star:
    """A broker between `left` and `right`, and questions that both ask."""

    def __init__(self, placement: str, questions: int = 1) -> None:
        self.deciding = Deciding(Strategy(placement, PERIOD_US, MESSAGES), "b", ["left", "right"])
        self.questions = Questions("t", SCHEMA)
        for number in range(questions):
            for side in ("left", "right"):
                self.questions.add(asked(COUNT, f"b/{number}"), side)
        self.ids = list(self.questions.by_id)

    def series(self, question: int = 0, group: int = 0) -> SeriesName:
        return self.ids[question], group, NOTHING, NOTHING, None

    def absorb(self, side: str, *wants: tuple[int, SeriesName], slices: int = 0, must: bool = False) -> list[bool]:
        """Ask about publications: of each want, which one it is of, and the series."""
        count = max(lot for lot, _ in wants) + 1
        names = np.array([series[:4] for _, series in wants])
        standing = Standing(
            np.ones(count, np.int64),
            np.full(count, 50),
            np.full(count, must),
            np.array([lot for lot, _ in wants]),
            names,
            mixed(names, 0),
            np.full(len(wants), slices),
            np.zeros(len(wants), np.bool_) if self.deciding.placement.holds else None,
        )
        absorbed: list[bool] = self.deciding.absorb(side, standing, self.questions.by_id).tolist()
        return absorbed


@pytest.mark.parametrize(("placement", "answer"), [("late", False), ("early", True)])
def test_late_and_early_answer_every_offer_alike(placement: str, answer: bool) -> None:
    star = Star(placement)
    assert star.deciding.answer() is answer
    assert star.absorb("left", (0, star.series()), (1, star.series())) == [answer, answer]
    assert not star.deciding.ponders
    assert not star.deciding.sample(100)


def test_cover_lets_cross_what_several_questions_want_and_absorbs_the_rest() -> None:
    star = Star("cover", questions=2)
    one, other = star.series(0), star.series(1)
    assert star.deciding.answer() is None
    # Publication 0 for both questions, 1 and 2 for the first: one event and one partial, not two partials.
    assert star.absorb("left", (0, one), (0, other), (1, one), (2, one)) == [False, False, True, True]
    assert star.absorb("left", (0, one), (1, one), must=True) == [False, False]
    assert star.deciding.ponders


def test_adaptive_learns_which_is_cheaper_and_changes_at_the_end_of_a_period() -> None:
    """Ten events for one partial a window: whoever forwards them should begin to aggregate."""
    star = Star("adaptive")
    before = star.deciding.answer()
    assert before is not None
    many = [(number, star.series()) for number in range(10)]
    few = [(0, star.series(group=group)) for group in range(1, 11)]
    offered = few if before else many
    for period in range(40):
        assert not star.deciding.would_sample(period * PERIOD_US)
        star.deciding.sample(period * PERIOD_US)
        star.absorb("left", *offered, slices=period)
        assert star.deciding.would_sample((period + 1) * PERIOD_US)
        if star.deciding.sample((period + 1) * PERIOD_US) and star.deciding.answer() is not before:
            break
    assert star.deciding.answer() is (not before)
    assert star.deciding.transitions == 1
    star.absorb("left", *((0, star.series(group=group)) for group in range(100, 200)), slices=41)
    assert star.deciding.answer() is (not before)  # also with more series than there was room for
    assert star.deciding.transitions == 1


def test_series_are_forgotten_with_their_questions() -> None:
    star = Star("selective", questions=2)
    for group in range(70):  # more than there is room for at first
        star.absorb("left", (0, star.series(0, group)), (0, star.series(1, group)))
    assert len(star.deciding) == 140
    for side in ("left", "right"):
        star.questions.remove(asked(COUNT, "b/0"), side)
    star.deciding.forget(star.questions.by_id)
    assert len(star.deciding) == 70
    star.absorb("left", (0, star.series(1, 69)))
    assert len(star.deciding) == 70


def test_series_whose_windows_are_long_closed_are_forgotten_when_there_are_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(deciding, "_MANY", 5)
    star = Star("selective")
    star.deciding.sample(0)
    star.absorb("left", *((0, star.series(group=group)) for group in range(4)))
    star.deciding.sample(100)
    assert len(star.deciding) == 4
    star.absorb("left", *((0, star.series(group=group)) for group in (98, 99)), slices=10)
    star.deciding.sample(110)
    assert len(star.deciding) == 2


def test_neighbours_that_coordinate_hear_what_changes_for_them_once() -> None:
    star = Star("coordinated")
    star.absorb("left", (0, star.series()))
    star.absorb("right", (0, star.series()))
    first = star.deciding.news(star.questions.by_id)
    assert star.deciding.news(star.questions.by_id) == {}
    costs = {side: dict(news) for side, news in first.items()}
    star.deciding.hear("right", star.series(), 3)
    changed = star.deciding.news(star.questions.by_id)
    # What crosses to the right costs three links more: only the left has to know.
    assert list(changed) == ["left"]
    (series, links) = changed["left"][0]
    assert series == star.series()
    assert links == costs.get("left", {}).get(series, 0) + 3
    assert Star("selective").deciding.news({}) == {}
