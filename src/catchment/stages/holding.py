"""How columns hold the states of `model.states`: a table with a row for each, and for types that need another one.

A state of numbers without a row is an error on import; states of bytes share one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from catchment.model.schema import Type
from catchment.model.states import STATES, UP, BlobState
from catchment.stages import kernels

__all__ = ["BY_CODE", "COLUMNS", "HELD", "USES", "Held"]

Ints = npt.NDArray[np.int64]
Numbers = tuple[Any, ...]

COLUMNS = ("whole", "low", "real", "rest", "blob")
"""What states share, besides a count."""


@dataclass(frozen=True, slots=True)
class Held:
    """How columns hold a state."""

    code: int
    """How the kernels treat it."""
    columns: tuple[str, ...] = ()
    """Which of COLUMNS it uses."""
    read: Callable[[Any, Ints], Numbers] | None = None
    """What its numbers are, if not those columns themselves."""
    large: Mapping[str, float] = field(default_factory=dict)
    """From which magnitude on in a column a result might pass its type, alone or merged with others."""
    choose: Callable[..., Any] | None = None
    """Which of several texts stays."""

    def numbers(self, columns: Any, rows: Ints) -> Numbers:
        """Give of some rows what `State.numbers` gives of a state, as arrays."""
        if self.read is not None:
            return self.read(columns, rows)
        return tuple(getattr(columns, name)[rows] for name in ("count", *self.columns))


def _whole_totals(columns: Any, rows: Ints) -> Numbers:
    low = columns.low[rows]
    high, low = columns.whole[rows] + (low >> 32), low & 0xFFFFFFFF
    if ((high < -(2**31)) | (high >= 2**31)).any():
        high = high.astype(np.object_)  # Python's integers have no end
    return columns.count[rows], high * 2**32 + low, 1


def _real_totals(columns: Any, rows: Ints) -> Numbers:
    is_down = columns.low[rows] > 0
    scale = np.where(is_down, UP, 1.0) if is_down.any() else 1.0
    return columns.count[rows], columns.real[rows] + columns.rest[rows], scale


_ROWS: dict[str | tuple[str, Type], Held] = {
    "tally": Held(kernels.TALLY),
    # It takes 2^22 such halves to pass 64 bits; and squares of such reals are far from the largest double.
    "whole total": Held(kernels.WHOLE_TOTAL, ("whole", "low"), _whole_totals, {"whole": 2**9}),
    "real total": Held(kernels.REAL_TOTAL, ("real", "low"), _real_totals, {"real": 1e140, "low": 1}),
    "moments": Held(kernels.MOMENTS, ("real", "rest"), large={"real": 1e140, "rest": 1e140}),
    "lowest": Held(kernels.LOWEST, ("whole",)),
    ("lowest", Type.FLOAT): Held(kernels.LOWEST_REAL, ("real",)),
    ("lowest", Type.STRING): Held(kernels.BLOB, ("blob",), choose=min),
    "highest": Held(kernels.HIGHEST, ("whole",)),
    ("highest", Type.FLOAT): Held(kernels.HIGHEST_REAL, ("real",)),
    ("highest", Type.STRING): Held(kernels.BLOB, ("blob",), choose=max),
    **{name: Held(kernels.BLOB, ("blob",)) for name, state in STATES.items() if isinstance(state, BlobState)},
}

HELD: dict[tuple[str, Type], Held] = {
    (name, kind): _ROWS[(name, kind) if (name, kind) in _ROWS else name] for name in STATES for kind in Type
}
BY_CODE: dict[int, Held] = {held.code: held for held in HELD.values()}
USES: dict[str, npt.NDArray[np.bool_]] = {
    name: np.array([name in BY_CODE[code].columns for code in range(len(BY_CODE))]) for name in COLUMNS
}
"""By column, of each state code whether it uses it."""
