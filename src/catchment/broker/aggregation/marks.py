"""What travels with publications, in columns: who has them in a partial already, and until when they were held."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from catchment.broker.advice import At
from catchment.broker.aggregation.clocks import NEVER

__all__ = ["Marks", "heard_marks"]

Ints = npt.NDArray[np.int64]
SERVED, HELD = "served", "held"


@dataclass(frozen=True, slots=True, eq=False)
class Marks:
    """Of some publications: pairs of row and question that need them no more, and the ends that rows were held for.

    What was held goes on for aggregates alone; whoever wants it as it is has it already.
    """

    rows: Ints
    questions: Ints
    held_us: Ints | None = None
    """Of each row; NEVER if it was not held."""

    @classmethod
    def none(cls) -> Marks:
        return cls(np.zeros(0, np.int64), np.zeros(0, np.int64))

    @classmethod
    def of(cls, columns: Mapping[str, pa.Array] | None) -> Marks:
        """Those that have come with publications; raises if they are none."""
        if columns is None:
            return cls.none()
        served = columns[SERVED].cast(pa.binary())
        offsets = np.frombuffer(served.buffers()[1], np.int32)[served.offset : served.offset + len(served) + 1]
        data = served.buffers()[2]
        if (offsets % 8).any():
            raise ValueError("marks that are no numbers of questions")
        values = np.frombuffer(b"" if data is None else data, np.int64, -1 if data is None else data.size // 8)
        first, last = int(offsets[0]) // 8, int(offsets[-1]) // 8
        rows = np.repeat(np.arange(len(served)), np.diff(offsets) // 8)
        held = columns[HELD].cast(pa.int64())
        held_us = None
        if held.null_count < len(held):
            held_us = held.fill_null(NEVER).to_numpy(zero_copy_only=False)
        return cls(rows, values[first:last].copy(), held_us)

    def taken(self, rows: Ints) -> Marks:
        """Give those of some rows."""
        place_of = np.full(max(self.rows.max(initial=-1), rows.max(initial=-1)) + 1, -1, np.int64)
        place_of[rows] = np.arange(len(rows))
        place = place_of[self.rows]
        inside = place >= 0
        return Marks(place[inside], self.questions[inside], None if self.held_us is None else self.held_us[rows])

    def more(self, rows: Ints, questions: Ints) -> Marks:
        return Marks(np.concatenate([self.rows, rows]), np.concatenate([self.questions, questions]), self.held_us)

    def columns(self, count: int) -> dict[str, pa.Array] | None:
        """As they travel with as many publications; None if there is nothing to say."""
        if not len(self.rows) and self.held_us is None:
            return None
        order = np.lexsort((self.questions, self.rows))
        lengths = np.bincount(self.rows, minlength=count)
        offsets = np.concatenate(([0], np.cumsum(lengths * 8))).astype(np.int32)
        data = np.ascontiguousarray(self.questions[order], "<i8")
        served = pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(data)])
        held = pa.nulls(count, pa.int64())
        if self.held_us is not None:
            held = pa.array(self.held_us, pa.int64(), mask=self.held_us == NEVER)
        return {SERVED: served, HELD: held}


def heard_marks(at: At, upstream: str) -> Marks | None:
    """What a neighbour says of publications, if it says anything."""
    if upstream not in at.neighbours or at.notes is None:
        return None
    try:
        return Marks.of(at.notes)
    except Exception as error:  # whatever a neighbour says: nothing of it is taken
        at.report("marks that do not fit", f"from {upstream}: {type(error).__name__}: {error}")
        return Marks.none()
