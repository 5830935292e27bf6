"""Windows and slices, against their definition: window k is [k·δ, k·δ+ω), a slice lies between two window edges."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from catchment.model.errors import SubscriptionError
from catchment.model.window import Window
from tests.model.strategies import windows

TIMES = st.lists(st.integers(-300, 300), min_size=1, max_size=50)


def windows_by_definition(window: Window, time_us: int) -> list[int]:
    reach = range(-700, 701)
    return [k for k in reach if k * window.shift_us <= time_us < k * window.shift_us + window.size_us]


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


@given(windows(), TIMES)
def test_a_window_is_a_run_of_slices(window: Window, times: list[int]) -> None:
    slices = window.slices_of(np.array(times, np.int64))
    assert slices.dtype == np.int64
    for time_us, number in zip(times, slices.tolist(), strict=True):
        inside = [k for k in range(-700, 701) if window.step * k <= number < window.step * k + window.span]
        assert inside == windows_by_definition(window, time_us)


@given(windows(), TIMES)
def test_two_times_share_a_slice_if_no_window_edge_lies_between_them(window: Window, times: list[int]) -> None:
    slices = window.slices_of(np.array(times, np.int64)).tolist()
    edges = {edge for k in range(-700, 701) for edge in window.bounds_us(k)}
    for time_us, number in zip(times, slices, strict=True):
        start, end = window.slice_start_us(number), window.slice_end_us(number)
        assert start <= time_us < end
        assert {start, end} <= edges
        assert not any(start < edge < end for edge in edges)


@given(windows(), TIMES)
def test_only_sampling_windows_leave_times_out(window: Window, times: list[int]) -> None:
    belongs = window.in_a_window(window.slices_of(np.array(times, np.int64)))
    assert belongs.dtype == np.bool_
    assert belongs.tolist() == [bool(windows_by_definition(window, time_us)) for time_us in times]
    if window.kind != "sampling":
        assert belongs.all()


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
    assert len(set(hour.slices_of(np.arange(0, 1_000_000, 1000, np.int64)).tolist())) == 1


def test_the_first_and_the_last_year() -> None:
    window = Window(7_000_003, 2_000_001)
    times = [-62_135_596_800_000_000, 253_402_300_799_999_999]
    for time_us, number in zip(times, window.slices_of(np.array(times, np.int64)).tolist(), strict=True):
        assert window.slice_start_us(number) <= time_us < window.slice_end_us(number)


@pytest.mark.parametrize(("size", "shift"), [(0, 1), (1, 0), (-5, 1), (1, -5), (2**53, 1), (1, 2**53)])
def test_a_window_needs_a_positive_size_and_shift(size: int, shift: int) -> None:
    with pytest.raises(SubscriptionError, match="accepted is a positive duration"):
        Window(size, shift)
