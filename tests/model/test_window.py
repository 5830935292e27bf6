"""Windows, slices and strides against their definitions, looked up among all windows of some stretch of time."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from catchment.model.errors import SubscriptionError
from catchment.model.window import Window, WindowColumns
from tests.model.strategies import windows

TIMES = st.lists(st.integers(-300, 300), min_size=1, max_size=20)
REACH = range(-700, 701)
"""Numbers of windows that are sure to surround these times."""


def windows_by_definition(window: Window, time_us: int) -> list[int]:
    return [k for k in REACH if k * window.shift_us <= time_us < k * window.shift_us + window.size_us]


@given(windows(), TIMES)
def test_the_windows_of_a_time(window: Window, times: list[int]) -> None:
    for time_us in times:
        assert list(window.windows_of(time_us)) == windows_by_definition(window, time_us)


@given(windows(), st.integers(-100, 100))
def test_bounds(window: Window, number: int) -> None:
    start, end = window.bounds_us(number)
    assert (start, end) == (number * window.shift_us, number * window.shift_us + window.size_us)
    assert number in window.windows_of(start)
    assert number in window.windows_of(end - 1)
    assert number not in window.windows_of(start - 1)
    assert number not in window.windows_of(end)


def edges_of(window: Window) -> list[int]:
    return sorted({edge for k in REACH for edge in window.bounds_us(k)})


def ends_of(window: Window) -> list[int]:
    return [window.bounds_us(k)[1] for k in REACH]


@given(windows(), TIMES)
def test_a_slice_lies_between_two_neighbouring_edges(window: Window, times: list[int]) -> None:
    edges = edges_of(window)
    for time_us in times:
        number = window.slice_of(time_us)
        assert window.slice_start_us(number) == max(edge for edge in edges if edge <= time_us)
        assert window.slice_end_us(number) == min(edge for edge in edges if edge > time_us)
        assert window.slice_of(window.slice_end_us(number)) == number + 1
    lengths = {later - earlier for earlier, later in pairwise(edges) if earlier < 300 and later > -300}
    assert window.shortest_slice_us == min(lengths)
    assert window.overlap == min(len(windows_by_definition(window, time_us)) for time_us in range(window.shift_us))


@given(windows(), TIMES)
def test_the_windows_around_a_slice(window: Window, times: list[int]) -> None:
    for time_us in times:
        number, expected = window.slice_of(time_us), windows_by_definition(window, time_us)
        assert list(window.windows_of_slice(number)) == expected
        assert [k for k in REACH if number in window.slices_of_window(k)] == expected
        assert window.in_a_window(number) == bool(expected)
        assert window.in_a_window(number) or window.kind == "sampling"
        # A gap is needed no longer than the window before it.
        last = max(k for k in REACH if k * window.shift_us <= time_us)
        assert window.last_window(number) == last
        assert window.until_us(number) == window.bounds_us(last)[1]


@given(windows(), st.integers(-30, 30))
def test_a_window_is_a_run_of_slices(window: Window, number: int) -> None:
    slices = window.slices_of_window(number)
    edges = [window.slice_start_us(one) for one in slices]
    assert [*edges, window.slice_end_us(slices[-1])] == [
        edge for edge in edges_of(window) if window.start_us(number) <= edge <= window.end_us(number)
    ]
    assert len(slices) == window.span


@given(windows(), TIMES)
def test_a_stride_lies_between_two_neighbouring_ends(window: Window, times: list[int]) -> None:
    ends = ends_of(window)
    for time_us in times:
        number = window.slice_of(time_us)
        stride = window.stride_of(number)
        end_us = min(end for end in ends if end > time_us)
        assert window.stride_end_us(stride) == end_us
        slices = window.slices_of_stride(stride)
        assert number in slices
        assert window.slice_start_us(slices[0]) == end_us - window.shift_us
        assert window.slice_end_us(slices[-1]) == end_us
        assert window.next_end_us(time_us) == end_us
        # The window of the same number begins with the last slice.
        assert slices[-1] == window.slices_of_window(stride)[0]


@given(windows(), TIMES, st.integers(0, 300))
def test_the_windows_that_end_within_a_stretch(window: Window, times: list[int], length_us: int) -> None:
    ends = ends_of(window)
    for time_us in times:
        ended = [k for k, end in zip(REACH, ends, strict=True) if end <= time_us]
        assert window.last_ended(time_us) == ended[-1]
        assert window.last_end_us(time_us) == max(end for end in ends if end <= time_us)
        within = [k for k, end in zip(REACH, ends, strict=True) if time_us < end <= time_us + length_us]
        assert list(range(*window.ending_within(time_us, time_us + length_us))) == within


FORMULAS = [name for name, one in vars(Window.__base__).items() if callable(one) and not name.startswith("_")]
FORMULAS.remove("ending_within")


@given(st.lists(st.tuples(windows(), st.integers(-300, 300)), min_size=1, max_size=20))
def test_arrays_and_columns_give_what_single_numbers_give(rows: list[tuple[Window, int]]) -> None:
    columns, given_ = WindowColumns.of(window for window, _ in rows), np.array([number for _, number in rows], np.int64)
    first = rows[0][0]
    for formula in FORMULAS:
        singles = [getattr(window, formula)(number) for window, number in rows]
        of_one = [getattr(first, formula)(number) for _, number in rows]
        for several, expected in ((getattr(columns, formula), singles), (getattr(first, formula), of_one)):
            assert np.array(several(given_)).T.tolist() == np.array(expected).tolist()
    until = given_ + 50
    singles = [window.ending_within(number, number + 50) for window, number in rows]
    assert np.array(columns.ending_within(given_, until)).T.tolist() == np.array(singles).tolist()
    assert [columns.step.tolist(), columns.span.tolist()] == [  # type: ignore[attr-defined]
        [window.step for window, _ in rows],
        [window.span for window, _ in rows],
    ]
    assert columns[[0]].size_us.tolist() == [first.size_us]
    assert len(columns) == len(rows)


def test_no_windows_are_columns_too() -> None:
    nothing = np.zeros(0, np.int64)
    assert len(WindowColumns.of([])) == 0
    assert WindowColumns.of([]).until_us(nothing).dtype == np.int64


@pytest.mark.parametrize(
    ("size", "shift", "kind", "step", "span"),
    [(10, 2, "sliding", 1, 5), (5, 2, "sliding", 2, 5), (4, 4, "tumbling", 1, 1), (3, 7, "sampling", 2, 1)],
)
def test_kinds(size: int, shift: int, kind: str, step: int, span: int) -> None:
    window = Window(size, shift)
    assert (window.kind, window.step, window.span) == (kind, step, span)


def test_the_cost_of_a_time_does_not_grow_with_the_overlap() -> None:
    hour = Window(3_600_000_000, 1_000_000)
    assert len(hour.windows_of(0)) == 3600
    assert (hour.step, hour.span) == (1, 3600)
    assert len(set(hour.slice_of(np.arange(0, 1_000_000, 1000, np.int64)).tolist())) == 1


def test_the_first_and_the_last_year() -> None:
    window = Window(7_000_003, 2_000_001)
    times = [-62_135_596_800_000_000, 253_402_300_799_999_999]
    for time_us, number in zip(times, window.slice_of(np.array(times, np.int64)).tolist(), strict=True):
        assert window.slice_start_us(number) <= time_us < window.slice_end_us(number)


@pytest.mark.parametrize(("size", "shift"), [(0, 1), (1, 0), (-5, 1), (1, -5), (2**53, 1), (1, 2**53)])
def test_a_window_needs_a_positive_size_and_shift(size: int, shift: int) -> None:
    with pytest.raises(SubscriptionError, match="accepted is a positive duration"):
        Window(size, shift)
