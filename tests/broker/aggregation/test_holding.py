"""Publications that wait before a link for the end of a stride."""

import numpy as np

from catchment.broker.aggregation.holding import HeldBack, HeldPublications
from catchment.broker.aggregation.marks import Marks
from catchment.broker.aggregation.places import Pairs
from tests.broker.aggregation.tools import events


def held(*several: tuple[int, int, tuple[int, ...]], served: dict[int, int] | None = None) -> HeldPublications:
    """Publications by time: until which end each waits, and which questions want it; `served` is one mark by row."""
    rows = [row for row, (_, _, numbers) in enumerate(several) for _ in numbers]
    numbers = [number for _, _, numbers in several for number in numbers]
    given = Pairs(events(*((time_us, 0) for time_us, _, _ in several)), np.array(rows), np.array(numbers))
    marks = served or {}
    return HeldPublications(
        given,
        np.array([time_us + 1 for time_us, _, _ in several]),
        np.array([end_us for _, end_us, _ in several]),
        Marks(np.array([*marks], np.int64), np.array([*marks.values()], np.int64)),
    )


def shown(back: HeldBack) -> list[tuple[str, int, int, list[int], list[int]]]:
    """Of each publication: its id, since and until when it waits, who wants it, and who has it."""
    one = back.all()
    if one is None:
        return []
    ids = one.pairs.events.column("event_id").to_pylist()
    return [
        (
            ids[row],
            int(one.since_us[row]),
            int(one.end_us[row]),
            one.pairs.numbers[one.pairs.rows == row].tolist(),
            one.marks.questions[one.marks.rows == row].tolist(),
        )
        for row in range(len(one))
    ]


def test_nothing_is_held_at_first() -> None:
    back = HeldBack()
    assert (len(back), back.first_end_us(), back.all(), back.size_bytes) == (0, None, None, 0)


def test_all_that_came_stands_together_in_its_order_with_its_marks() -> None:
    back = HeldBack()
    back.add(held((1, 20, (4,)), (2, 10, (4, 5)), served={1: 99}))
    back.add(held((3, 30, (5,)), served={0: 88}))
    assert shown(back) == [("e1", 2, 20, [4], []), ("e2", 3, 10, [4, 5], [99]), ("e3", 4, 30, [5], [88])]
    assert (len(back), back.first_end_us()) == (3, 10)


def test_what_is_not_kept_waits_no_longer() -> None:
    back = HeldBack()
    back.add(held((1, 20, (4,)), (2, 10, (4,)), (3, 30, (5,)), served={1: 99, 2: 88}))
    before = back.size_bytes
    back.all()
    back.keep(np.array([0, 2]))
    assert shown(back) == [("e1", 2, 20, [4], []), ("e3", 4, 30, [5], [88])]
    assert back.first_end_us() == 20
    assert back.size_bytes < before
    back.keep(np.array([], np.int64))
    assert (len(back), back.first_end_us()) == (0, None)


def test_a_question_that_nobody_asks_any_more_holds_nothing() -> None:
    back = HeldBack()
    back.add(held((1, 10, (4,)), (2, 20, (4, 5)), served={1: 99}))
    back.add(held((3, 10, (4,))))
    back.forget(4)
    assert shown(back) == [("e2", 3, 20, [5], [99])]
    assert back.first_end_us() == 20
    back.forget(5)
    assert (len(back), back.first_end_us()) == (0, None)
