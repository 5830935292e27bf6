"""Windows and their slices, by formula.

Window k of size ω and shift δ is [k·δ, k·δ+ω). Between two neighbouring window edges lies a slice. When δ divides ω
there is one slice a shift; else two, the first of ω mod δ, the second of the rest. Either way

    window k  =  slices [step·k, step·k + span)

so windows are put together from slices by integer arithmetic alone.

    ω = 5, δ = 2     |0        |2        |4        |6
    slices           | 0  | 1  | 2  | 3  | 4  | 5  |          step 2, span 5
    window 0         |========================|
    window 1                   |========================|
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from catchment.model.errors import SubscriptionError

__all__ = ["Window"]

Times = npt.NDArray[np.int64]
WINDOWS_MAX = 1_000_000
"""How many windows an event may lie in: as many values would be told because of it."""


@dataclass(frozen=True, slots=True, order=True)
class Window:
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
                f"{self.size_us // self.shift_us} windows; accepted are up to {WINDOWS_MAX}: a shorter window, or a "
                f"longer shift"
            )

    @property
    def kind(self) -> str:
        if self.shift_us < self.size_us:
            return "sliding"
        return "tumbling" if self.shift_us == self.size_us else "sampling"

    @property
    def step(self) -> int:
        """Slices a shift."""
        return 2 if self.size_us % self.shift_us else 1

    @property
    def span(self) -> int:
        """Slices a window."""
        whole, rest = divmod(self.size_us, self.shift_us)
        return 2 * whole + 1 if rest else whole

    def slices_of(self, times_us: Times) -> Times:
        """The slice of each time."""
        shifts = times_us // self.shift_us
        rest = self.size_us % self.shift_us
        if not rest:
            return shifts
        return 2 * shifts + (times_us - shifts * self.shift_us >= rest)

    def until_us(self, slices: Times) -> Times:
        """The end of the last window that each slice may lie in."""
        return slices // self.step * self.shift_us + self.size_us

    def in_a_window(self, slices: Times) -> npt.NDArray[np.bool_]:
        """Whether slices belong to any window: all do, but for the gaps between sampling windows."""
        belongs = np.ones(len(slices), np.bool_)
        if self.kind == "sampling":
            np.equal(slices % 2, 0, out=belongs)
        return belongs

    def slice_starts_us(self, slices: Times) -> Times:
        shifts, second = np.divmod(slices, self.step)
        starts: Times = shifts * self.shift_us + second * (self.size_us % self.shift_us)
        return starts

    def slice_start_us(self, slice_index: int) -> int:
        shifts, second = divmod(slice_index, self.step)
        return shifts * self.shift_us + (self.size_us % self.shift_us if second else 0)

    def slice_end_us(self, slice_index: int) -> int:
        return self.slice_start_us(slice_index + 1)

    def windows_of(self, time_us: int) -> range:
        """The numbers of the windows that a time lies in."""
        first = (time_us - self.size_us) // self.shift_us + 1
        return range(first, time_us // self.shift_us + 1)

    def bounds_us(self, number: int) -> tuple[int, int]:
        start = number * self.shift_us
        return start, start + self.size_us
