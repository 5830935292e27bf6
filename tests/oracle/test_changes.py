"""Subscriptions that come and go: which windows and events are theirs."""

from __future__ import annotations

import pytest

from catchment.model.errors import SubscriptionError
from catchment.model.subscription import Subscription
from catchment.oracle import oracle
from tests.oracle.tables import events, said

COUNT = Subscription("s", sql="SELECT count(*) FROM traffic GROUP BY window(ts, '5 seconds')")
SLIDING = Subscription("s", sql="SELECT count(*) FROM traffic GROUP BY window(ts, '10 seconds', '5 seconds')")
ALL = Subscription("s", sql="SELECT * FROM traffic")

# position   0   1   2   3   4   5
# seconds    1   4   6   9  12  16
TABLE = events(*((seconds, {"speed": 1}) for seconds in (1, 4, 6, 9, 12, 16)))


def test_windows_that_began_before_a_subscription_are_left_out() -> None:
    # seconds   0    5    10   15   20
    # events     1  4 6  9  12   16
    #                 ^ subscribed before the event at 9, when time stood at 6
    # [5, 10)        began before: left out
    # [10, 15)              12
    # [15, 20)                   16
    answer = oracle(TABLE, changes=[(3, COUNT)])
    assert said(answer) == ["s [10, 15) count(*) = 1 of 1", "s [15, 20) count(*) = 1 of 1"]


def test_a_window_that_begins_at_the_latest_event_began_before() -> None:
    table = events((5, {"speed": 1}), (5, {"speed": 1}), (10, {"speed": 1}))
    assert said(oracle(table, changes=[(1, COUNT)])) == ["s [10, 15) count(*) = 1 of 1"]


def test_a_subscription_before_the_first_event_misses_nothing() -> None:
    assert said(oracle(TABLE, changes=[(0, COUNT)])) == said(oracle(TABLE, subscriptions=[COUNT]))


def test_the_latest_event_counts_whatever_its_topic_and_order() -> None:
    # The event at 11 arrived first; the window [10, 15) had begun.
    table = events((11, {"topic": "weather"}), (1, {}), (12, {}), (16, {}))
    assert said(oracle(table, changes=[(2, COUNT)])) == ["s [15, 20) count(*) = 1 of 1"]


def test_when_a_subscription_is_removed_its_open_windows_are_dropped() -> None:
    # seconds   0    5    10   15   20
    # events     1  4 6  9  12   16
    #                         ^ removed before the event at 16, when the watermark stood at 12
    # [0, 10)    1  4 6  9
    # [5, 15)         6  9  12   open: dropped
    answer = oracle(TABLE, subscriptions=[SLIDING], changes=[(5, "s")])
    assert said(answer) == ["s [-5, 5) count(*) = 2 of 2", "s [0, 10) count(*) = 4 of 4"]


def test_lateness_holds_windows_open() -> None:
    answer = oracle(TABLE, subscriptions=[SLIDING], changes=[(5, "s")], lateness_us=3_000_000)
    assert said(answer) == ["s [-5, 5) count(*) = 2 of 2"]


def test_a_window_closes_when_the_watermark_reaches_its_end() -> None:
    table = events((1, {}), (5, {}), (6, {}))
    assert said(oracle(table, subscriptions=[COUNT], changes=[(2, "s")])) == ["s [0, 5) count(*) = 1 of 1"]
    assert said(oracle(table, subscriptions=[COUNT], changes=[(2, "s")], lateness_us=1)) == []


def test_the_watermark_is_that_of_the_slowest_broker() -> None:
    # b1        1        7  12       watermark of b1 at the removal: 12
    # b2           2                 of b2: 2
    table = events((1, {}), (2, {"broker": "b2"}), (7, {}), (12, {}))
    assert said(oracle(table, subscriptions=[COUNT], changes=[(4, "s")])) == []


def test_a_subscription_removed_before_any_event_gets_nothing() -> None:
    assert said(oracle(TABLE, subscriptions=[COUNT], changes=[(0, "s")])) == []


def test_regular_subscriptions_get_what_arrives_while_they_are_there() -> None:
    answer = oracle(TABLE, changes=[(1, ALL), (3, "s"), (5, ALL)])
    assert answer.delivered == [("s", 1), ("s", 2), ("s", 5)]


def test_the_same_name_may_come_again() -> None:
    # Removed and subscribed again at 9: the first life had closed [0, 5), the second begins after it.
    answer = oracle(TABLE, subscriptions=[COUNT], changes=[(4, "s"), (4, COUNT)])
    assert said(answer) == [
        "s [0, 5) count(*) = 2 of 2",
        "s [10, 15) count(*) = 1 of 1",
        "s [15, 20) count(*) = 1 of 1",
    ]


def test_changes_at_one_position_are_made_in_their_order() -> None:
    assert oracle(TABLE, changes=[(6, "s"), (0, ALL)]).delivered == [("s", number) for number in range(6)]
    with pytest.raises(SubscriptionError, match="'s' is already there"):
        oracle(TABLE, subscriptions=[ALL], changes=[(2, COUNT), (2, "s")])


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ([(0, "t")], "'t' is not there and cannot be removed"),
        ([(3, "s"), (4, "s")], "'s' is not there"),
        ([(7, "s")], "position 7; accepted are 0 to 6"),
        ([(-1, "s")], "position -1; accepted are 0 to 6"),
        ([(1, COUNT)], "'s' is already there; choose another name"),
    ],
)
def test_impossible_changes_are_refused(changes: list[tuple[int, Subscription | str]], named: str) -> None:
    with pytest.raises(SubscriptionError, match=named):
        oracle(TABLE, subscriptions=[COUNT], changes=changes)
