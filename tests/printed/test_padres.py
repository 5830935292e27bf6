"""What the code of the DEBS'14 paper's authors does wrong, done right here: two halves of a window, merged."""

import pyarrow as pa
import pytest

from catchment import Overlay, Schema, Subscription, oracle, simulate
from catchment.model.schema import Type
from catchment.oracle import differences
from catchment.overlay.placement import ONLINE
from tests.stages.local import answers

SCHEMA = Schema({"n": Type.INT, "m": Type.INT})
OVERLAY = Overlay.from_links([("b1", "b2"), ("b2", "b3")])
WINDOW = "GROUP BY window(ts, '10 seconds')"


def events(*values: tuple[int, int]) -> pa.Table:
    """One event a second, at two brokers in turn, all in one window."""
    return pa.table(
        {
            "event_id": list(range(len(values))),
            "topic": ["t"] * len(values),
            "broker": [f"b{1 + number % 2}" for number in range(len(values))],
            "ts": pa.array([number * 1_000_000 for number in range(len(values))], pa.timestamp("us", "UTC")),
            "n": [n for n, _ in values],
            "m": [m for _, m in values],
        }
    )


def told(asked: list[Subscription], table: pa.Table) -> dict[tuple[str, str], float | None]:
    """What comes of a table whose halves are aggregated apart and merged, in stages and in brokers; each value once."""
    notifications, deliveries, _ = answers(table, asked, {"t": SCHEMA}, overlay=OVERLAY, cuts=[len(table) // 2])
    right = oracle(table, subscriptions=asked, schema={"t": SCHEMA})
    assert differences(right, notifications, deliveries) == []
    for placement in ONLINE:
        ran = simulate(table, overlay=OVERLAY, subscriptions=asked, schema={"t": SCHEMA}, placement=placement)
        assert differences(right, ran.notifications, ran.deliveries) == [], placement
        assert ran.notifications.num_rows == notifications.num_rows, "one window, one notification"
    rows = notifications.to_pylist()
    found = {(row["subscription"], row["output"]): row["value"] for row in rows}
    assert len(found) == len(rows), "one window, one notification"
    return found


def asking(what: str, name: str = "s", where: str = "TRUE") -> Subscription:
    return Subscription(name, "b3", sql=f"SELECT {what} FROM t WHERE {where} {WINDOW}")


NEGATIVE = events((-5, 1), (-3, 2), (-8, 3), (-3, 4), (-7, 5))


def test_counts_are_merged_by_adding_them_up() -> None:
    # There: by counting the partials, of which there are two.
    assert told([asking("count(*)")], NEGATIVE) == {("s", "count(*)"): 5.0}


def test_the_largest_of_negative_numbers_is_negative() -> None:
    # There: the largest starts at 0.
    assert told([asking("max(n), min(n)")], NEGATIVE) == {("s", "max(n)"): -3.0, ("s", "min(n)"): -8.0}


def test_negative_numbers_are_as_distinct_as_others() -> None:
    # There: range and distinct break on them.
    assert told([asking("count(DISTINCT n)")], NEGATIVE) == {("s", "count(DISTINCT n)"): 4.0}


@pytest.mark.parametrize(("what", "value"), [("avg(n)", -5.2), ("median(n)", -5.0)])
def test_averages_and_medians_are_there(what: str, value: float) -> None:
    # There: declared and missing.
    assert told([asking(what)], NEGATIVE)["s", what] == pytest.approx(value)


def test_questions_with_the_same_filter_and_window_do_not_collide() -> None:
    # There: another operator, or another field, is the same question.
    asked = [asking("sum(n)", "a"), asking("max(n)", "b"), asking("sum(m)", "c"), asking("sum(n)", "d")]
    assert told(asked, NEGATIVE) == {
        ("a", "sum(n)"): -26.0,
        ("b", "max(n)"): -3.0,
        ("c", "sum(m)"): 15.0,
        ("d", "sum(n)"): -26.0,
    }
