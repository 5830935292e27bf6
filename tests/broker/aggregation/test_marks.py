"""What travels with publications, in columns."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from catchment.broker.aggregation.clocks import NEVER
from catchment.broker.aggregation.marks import Marks

IDS = st.integers(-(2**63), 2**63 - 1)


@st.composite
def marks(draw: st.DrawFn) -> tuple[Marks, int]:
    count = draw(st.integers(1, 6))
    pairs = draw(st.sets(st.tuples(st.integers(0, count - 1), IDS), max_size=8))
    rows, questions = zip(*sorted(pairs), strict=True) if pairs else ((), ())
    held = draw(st.none() | st.lists(st.sampled_from([NEVER, 5, 7]), min_size=count, max_size=count))
    held_us = None if held is None or set(held) == {NEVER} else np.array(held, np.int64)
    return Marks(np.array(rows, np.int64), np.array(questions, np.int64), held_us), count


def plain(given: Marks) -> object:
    pairs = sorted(zip(given.rows.tolist(), given.questions.tolist(), strict=True))
    return pairs, None if given.held_us is None else given.held_us.tolist()


@given(marks())
def test_marks_are_read_as_they_were_written(drawn: tuple[Marks, int]) -> None:
    given_marks, count = drawn
    columns = given_marks.columns(count)
    if columns is None:
        assert plain(given_marks) == ([], None)
    else:
        assert plain(Marks.of(columns)) == plain(given_marks)
        # Also of events that are part of a longer batch.
        longer = {name: pa.concat_arrays([column, column]).slice(count) for name, column in columns.items()}
        assert plain(Marks.of(longer)) == plain(given_marks)


@given(marks(), st.data())
def test_marks_of_some_rows(drawn: tuple[Marks, int], data: st.DataObject) -> None:
    given_marks, count = drawn
    rows = np.array(sorted(data.draw(st.sets(st.integers(0, count - 1)))), np.int64)
    taken = given_marks.taken(rows)
    expected = [(rows.tolist().index(row), one) for row, one in plain(given_marks)[0] if row in rows]  # type: ignore[index]
    assert plain(taken)[0] == expected  # type: ignore[index]
    assert given_marks.held_us is None or taken.held_us.tolist() == given_marks.held_us[rows].tolist()  # type: ignore[union-attr]


def test_nothing_is_said_where_there_is_nothing_to_say() -> None:
    assert Marks.of(None).columns(3) is None
    more = Marks.none().more(np.array([1]), np.array([9]))
    assert plain(more) == ([(1, 9)], None)


@pytest.mark.parametrize(
    "columns",
    [
        {},
        {"served": pa.array([b"x"]), "held": pa.array([None], pa.int64())},
        {"served": pa.array([b"12345678"])},
        {"served": pa.array(["é"]), "held": pa.array(["soon"])},
    ],
)
def test_what_is_no_mark_is_an_error(columns: dict[str, pa.Array]) -> None:
    with pytest.raises((KeyError, ValueError, pa.ArrowException)):
        Marks.of(columns)
