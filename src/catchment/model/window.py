"""Windows, their slices and strides: all of the arithmetic, by formula.

Window k of size ω and shift δ is [k·δ, k·δ+ω). Between two neighbouring window edges lies a slice. When δ divides ω
there is one slice a shift; else two, the first of ω mod δ, the second of the rest. Either way

    window k  =  slices [step·k, step·k + span)
    stride k  =  slices (step·(k-1), step·k], between two neighbouring window ends

so windows and strides are put together from slices by integer arithmetic alone.

    ω = 5, δ = 2     |0        |2        |4        |6
    slices           | 0  | 1  | 2  | 3  | 4  | 5  |          step 2, span 5
    window 0         |========================|
    window 1                   |========================|
    stride 1              |=========|
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypeVar, overload

import numpy as np
import numpy.typing as npt

from catchment.model.errors import SubscriptionError

__all__ = ["Window", "WindowColumns"]

Times = npt.NDArray[np.int64]
N = TypeVar("N", int, Times)
WINDOWS_MAX = 1_000_000
"""How many windows an event may lie in: as many values would be told because of it."""


class _Arithmetic:
    """Holds the formulas, which take and give a number or an array of them, negative ones too."""

    __slots__ = ()
    size_us: int
    shift_us: int

    @property
    def rest_us(self) -> int:
        """How long after the start of a window an earlier one ends."""
        return self.size_us % self.shift_us

    @property
    def step(self) -> int:
        """Slices a shift."""
        return 1 + (self.size_us % self.shift_us > 0)

    @property
    def span(self) -> int:
        """Slices a window."""
        step = self.step
        return self.size_us // self.shift_us * step + step - 1

    # -- windows, by number -----------------------------------------------------------------------------------------

    def start_us(self, windows: N) -> N:
        return windows * self.shift_us

    def end_us(self, windows: N) -> N:
        return windows * self.shift_us + self.size_us

    def last_ended(self, times_us: N) -> N:
        """Find the last window that ends no later than a time."""
        return (times_us - self.size_us) // self.shift_us

    def last_end_us(self, times_us: N) -> N:
        """Find the last end of a window up to a time."""
        return self.end_us(self.last_ended(times_us))

    def next_end_us(self, times_us: N) -> N:
        """Find the first end of a window after a time."""
        return self.last_end_us(times_us) + self.shift_us

    def ending_within(self, after_us: N, until_us: N) -> tuple[N, N]:
        """Find the windows that end after one time, up to another: the first, and the one behind the last."""
        return self.last_ended(after_us) + 1, self.last_ended(until_us) + 1

    # -- slices -----------------------------------------------------------------------------------------------------

    def slice_of(self, times_us: N) -> N:
        """Find the slice of a time; the gaps between sampling windows are numbered as well."""
        step, shifts = self.step, times_us // self.shift_us
        return shifts * step + (step - 1) * (times_us - shifts * self.shift_us >= self.rest_us)

    @overload
    def in_a_window(self, slices: int) -> bool: ...
    @overload
    def in_a_window(self, slices: Times) -> npt.NDArray[np.bool_]: ...
    def in_a_window(self, slices: Any) -> Any:
        """Tell whether a slice belongs to a window: all do, but for the gaps, which are every other one."""
        return slices & (self.shift_us > self.size_us) == 0

    def slice_start_us(self, slices: N) -> N:
        step = self.step
        shifts = slices // step
        return shifts * self.shift_us + (slices - shifts * step) * self.rest_us

    def slice_end_us(self, slices: N) -> N:
        return self.slice_start_us(slices + 1)

    def last_window(self, slices: N) -> N:
        """Find the last window that a slice lies in."""
        return slices // self.step

    def windows_around(self, slices: N) -> tuple[N, N]:
        """Find the windows that a slice lies in: the first, and the one behind the last."""
        step = self.step
        return (slices - self.span) // step + 1, slices // step + 1

    def until_us(self, slices: N) -> N:
        """Say until when a slice is needed: up to the end of the last window that it may lie in."""
        return self.end_us(self.last_window(slices))

    # -- strides ----------------------------------------------------------------------------------------------------

    def stride_of(self, slices: N) -> N:
        """Find the stride that a slice lies in."""
        return -(-slices // self.step)

    def stride_end_us(self, strides: N) -> N:
        """Find the end of a stride, which is the first end of a window after its slices."""
        return self.slice_end_us(strides * self.step)


@dataclass(frozen=True, slots=True, order=True)
class Window(_Arithmetic):
    """Windows of one size, one every shift, aligned to the Unix epoch."""

    size_us: int
    shift_us: int

    def __post_init__(self) -> None:
        for what, given in (("size", self.size_us), ("shift", self.shift_us)):
            if not 0 < given < 2**53:
                raise SubscriptionError(
                    f"the window's {what} is {given} microseconds; accepted is a positive duration of up to 285 years"
                )
        if self.size_us > self.shift_us * WINDOWS_MAX:
            raise SubscriptionError(
                f"the window of {self.size_us} microseconds every {self.shift_us} has each event in "
                f"{self.overlap} windows; accepted are up to {WINDOWS_MAX}: a shorter window, or a "
                f"longer shift"
            )

    @property
    def kind(self) -> str:
        if self.shift_us < self.size_us:
            return "sliding"
        return "tumbling" if self.shift_us == self.size_us else "sampling"

    @property
    def overlap(self) -> int:
        """How many windows any time lies in, at least."""
        return self.size_us // self.shift_us

    @property
    def shortest_slice_us(self) -> int:
        return min(self.rest_us or self.shift_us, self.shift_us - self.rest_us)

    def windows_of(self, time_us: int) -> range:
        """The numbers of the windows that a time lies in."""
        first = (time_us - self.size_us) // self.shift_us + 1
        return range(first, time_us // self.shift_us + 1)

    def bounds_us(self, number: int) -> tuple[int, int]:
        return self.start_us(number), self.end_us(number)

    def windows_of_slice(self, number: int) -> range:
        return range(*self.windows_around(number))

    def slices_of_window(self, number: int) -> range:
        first = self.step * number
        return range(first, first + self.span)

    def slices_of_stride(self, number: int) -> range:
        step = self.step
        return range(step * (number - 1) + 1, step * number + 1)


@dataclass(frozen=True, slots=True, eq=False)
class WindowColumns(_Arithmetic):
    """Holds many windows as columns, with the same formulas row by row; numbers and times are given as arrays."""

    size_us: Any
    shift_us: Any

    @classmethod
    def of(cls, windows: Iterable[Window]) -> WindowColumns:
        given = np.array([(window.size_us, window.shift_us) for window in windows], np.int64).reshape(-1, 2)
        return cls(given[:, 0], given[:, 1])

    def __len__(self) -> int:
        return len(self.size_us)

    def __getitem__(self, rows: Any) -> WindowColumns:
        return WindowColumns(self.size_us[rows], self.shift_us[rows])
