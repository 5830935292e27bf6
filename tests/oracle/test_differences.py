"""`differences` finds each way in which an engine's answer may be wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from catchment.model.results import NOTIFICATION_SCHEMA, OVERFLOW_SCHEMA
from catchment.model.subscription import Subscription
from catchment.oracle import differences, oracle
from tests.oracle.tables import events

TABLE = events(
    (1, {"speed": 20, "highway": "401"}),
    (2, {"speed": 31, "highway": "400"}),
    (3, {"speed": 40, "highway": "401"}),
    (7, {"speed": 10, "highway": None}),
)
ANSWER = oracle(
    TABLE,
    subscriptions=[
        Subscription("mean", sql="SELECT avg(speed) FROM traffic GROUP BY window(ts, '5 seconds')"),
        Subscription(
            "text", sql="SELECT max(highway), count(*) FROM traffic GROUP BY window(ts, '5 seconds'), speed, highway"
        ),
        Subscription("all", sql="SELECT * FROM traffic"),
    ],
)
Rows = list[dict[str, Any]]


def compared(change: Callable[[Rows], Rows], deliver: Callable[[Rows], Rows] = list) -> list[str]:
    notifications = pa.Table.from_pylist(change(ANSWER.notifications.to_pylist()), NOTIFICATION_SCHEMA)
    deliveries = pa.Table.from_pylist(deliver(ANSWER.deliveries.to_pylist()), ANSWER.deliveries.schema)
    return differences(ANSWER, notifications, deliveries)


def changed(row: int, **values: Any) -> Callable[[Rows], Rows]:
    return lambda rows: [{**r, **values} if i == row else r for i, r in enumerate(rows)]


def test_the_same_answer_in_another_order_has_none() -> None:
    assert compared(lambda rows: rows[::-1], lambda rows: rows[::-1]) == []
    assert compared(lambda rows: [{**r, "group": r["group"][::-1]} for r in rows]) == []


def test_a_later_revision_replaces_an_earlier_one() -> None:
    wrong = {"value": 999.0, "exact": "999", "publications": 1, "revision": 0}
    assert compared(lambda rows: [{**r, **wrong} for r in rows] + [{**r, "revision": 1} for r in rows]) == []
    assert compared(lambda rows: [{**r, "revision": 1} for r in rows] + [{**r, **wrong} for r in rows]) == []
    assert compared(lambda rows: [*rows, {**rows[0], **wrong, "revision": 1}]) != []


def test_what_is_near_enough_is_right() -> None:
    mean = ANSWER.notifications.to_pylist()[0]["value"]
    assert compared(changed(0, value=mean * (1 + 1e-12), exact=repr(mean * (1 + 1e-12)))) == []


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        (lambda rows: rows[1:], "missing"),
        (lambda rows: rows + rows[:1], "notified twice"),
        (lambda rows: [*rows, {**rows[0], "output": "other"}], "unexpected"),
        (lambda rows: [*rows, {**rows[0], "subscription": "other"}], "unexpected"),
        (changed(0, window_start=0, window_end=1), "unexpected"),
        (changed(2, group=[("highway", "9"), ("speed", "20")]), "unexpected"),
        (changed(0, value=30.4), "expected"),
        (changed(0, exact="30.4"), "expected"),
        (changed(0, exact="null"), "expected"),
        (changed(0, exact="true"), "expected"),
        (changed(0, value=None), "expected"),
        (changed(0, value=float("nan")), "expected"),
        (changed(0, publications=7), "expected"),
        (changed(2, value=2.0), "expected"),
        (changed(2, exact="2"), "expected"),
        (changed(3, exact='"other"'), "expected"),
    ],
)
def test_each_difference_of_a_notification_is_found(change: Callable[[Rows], Rows], kind: str) -> None:
    found = compared(change)
    assert found
    assert all(line.startswith((kind, "missing")) for line in found)
    assert any(line.startswith(kind) for line in found)


@pytest.mark.parametrize(
    ("deliver", "kind"),
    [
        (lambda rows: rows[1:], "not delivered"),
        (lambda rows: rows + rows[:1], "delivered too often"),
        (lambda rows: [*rows, {"subscription": "other", "event_id": 1}], "delivered too often"),
        (lambda rows: [*rows, {"subscription": "all", "event_id": 99}], "delivered too often"),
    ],
)
def test_each_difference_of_a_delivery_is_found(deliver: Callable[[Rows], Rows], kind: str) -> None:
    (found,) = compared(list, deliver)
    assert found.startswith(kind)


def test_what_is_beyond_its_type_is_reported_and_not_told() -> None:
    table = events((1, {"x": 1.7e308}), (2, {"x": 1.7e308}), types={"x": "float"})
    sql = "SELECT sum(x), avg(x) FROM traffic GROUP BY window(ts, '5 seconds')"
    answer = oracle(table, subscriptions=[Subscription("s", sql=sql)])
    told = answer.notifications
    assert told.column("output").to_pylist() == ["avg(x)"]
    assert answer.overflows.select(["output", "problem"]).to_pylist() == [
        {"output": "sum(x)", "problem": "it is beyond the largest double"}
    ]
    assert differences(answer, told, answer.deliveries, answer.overflows) == []
    (missing,) = differences(answer, told, answer.deliveries, answer.overflows.slice(0, 0))
    assert missing.startswith("not reported")
    one = told.slice(0, 1).to_pylist()[0]
    for_nothing = pa.Table.from_pylist([{**one, "output": "sum(x)"}, one], NOTIFICATION_SCHEMA)
    (unexpected,) = differences(answer, for_nothing, answer.deliveries, answer.overflows)
    assert unexpected.startswith("unexpected")
    other = pa.Table.from_pylist(
        [{**answer.overflows.to_pylist()[0], "output": "avg(x)"}, *answer.overflows.to_pylist()], OVERFLOW_SCHEMA
    )
    (reported,) = differences(answer, told, answer.deliveries, other)
    assert reported.startswith("reported")
