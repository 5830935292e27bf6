"""Events as plain values, and back: for those that are added up one by one, or held back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

import pyarrow as pa

from catchment.model.schema import Schema
from catchment.overlay.placement import Placement
from catchment.stages import cells_of

__all__ = ["Rows", "batch_of", "marks_by_row", "marks_of"]


class Rows:
    """The events of a batch, read column by column as they are looked at."""

    def __init__(self, events: pa.RecordBatch) -> None:
        self._events = events
        self._columns: dict[str, list[Any]] = {}
        self.times: list[int] = self.column("ts")

    def column(self, name: str) -> list[Any]:
        if name not in self._columns:
            if name in self._events.schema.names:
                column = self._events.column(name)
                plain = column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column
                self._columns[name] = plain.to_pylist()
            else:
                self._columns[name] = [None] * self._events.num_rows
        return self._columns[name]

    def values(self, row: int, names: Sequence[str]) -> dict[str, Any]:
        return {name: self.column(name)[row] for name in names}

    def whole(self, row: int) -> dict[str, Any]:
        return self.values(row, self._events.schema.names)

    def group(self, row: int, keys: Sequence[str]) -> tuple[Any, ...]:
        found = (self.column(key)[row] for key in keys)
        return tuple(one + 0.0 if isinstance(one, float) else one for one in found)  # -0.0 is 0.0

    def runs(self, windows: Sequence[Any], placement: Placement) -> Iterator[tuple[int, range]]:
        """Neighbouring rows that lie in one cell of time, and when that begins."""
        if placement.period_us is None or not windows:
            yield self.times[0], range(len(self.times))
            return
        cells = cells_of(self._events.column("ts").cast(pa.int64()).to_numpy(), windows, placement.period_us).tolist()
        for begin_us, found in groupby(enumerate(cells), key=lambda pair: pair[1]):
            rows = [row for row, _ in found]
            yield begin_us, range(rows[0], rows[-1] + 1)


def batch_of(several: Sequence[Mapping[str, Any]], schema: Schema) -> pa.RecordBatch:
    """The batch of some events with all their values."""
    full = schema.with_implicit()
    names = list(dict.fromkeys(name for values in several for name in values))
    columns = {
        name: pa.array([values.get(name) for values in several], full[name].arrow if name in full else pa.string())
        for name in names
    }
    return pa.RecordBatch.from_pydict(columns)


def marks_of(marks: Mapping[int, Sequence[str]], held_until_us: int | None = None) -> dict[str, Any] | None:
    """Which bases each event has been absorbed for already, as it travels with them; None if there is nothing to say.

    Events that were held until the end of a stride go on for aggregates alone; whoever wants them as they are has them
    already.
    """
    together: dict[tuple[str, ...], list[int]] = {}
    for row, keys in marks.items():
        if keys:
            together.setdefault(tuple(sorted(keys)), []).append(row)
    if not together and held_until_us is None:
        return None
    return {"held": held_until_us, "served": [[keys, rows] for keys, rows in together.items()]}


def marks_by_row(attached: Mapping[str, Any] | None) -> dict[int, tuple[str, ...]]:
    if attached is None:
        return {}
    return {row: tuple(keys) for keys, rows in attached["served"] for row in rows}
