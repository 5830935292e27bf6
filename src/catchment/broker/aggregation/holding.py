"""Publications that wait before a link for the end of a stride."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from catchment.broker.aggregation.clocks import FOR_EVER
from catchment.broker.aggregation.marks import Marks
from catchment.broker.aggregation.places import Pairs, joined_later, rows_taken
from catchment.broker.snapshot_coding import Deferred

__all__ = ["HeldBack", "HeldPublications"]

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class HeldPublications:
    """Some publications, each with what is wanted of it beyond the link."""

    pairs: Pairs
    since_us: Ints
    """First stride end whose decision may include it: after its own time, or when a broker upstream let it go."""
    end_us: Ints
    """The first end of a stride that it is wanted in."""
    marks: Marks
    """The questions that have it in a partial of a broker upstream."""

    def __len__(self) -> int:
        return len(self.end_us)

    def taken(self, rows: Ints) -> HeldPublications:
        """Some rows, in rising order."""
        if len(rows) == len(self):
            return self
        places = np.full(len(self), -1, np.int64)
        places[rows] = np.arange(len(rows))
        place = places[self.pairs.rows]
        inside = place >= 0
        pairs = Pairs(rows_taken(self.pairs.events, rows), place[inside], self.pairs.numbers[inside])
        marks = self.marks.taken(rows)
        return HeldPublications(pairs, self.since_us[rows], self.end_us[rows], marks)

    @classmethod
    def together(cls, several: Sequence[HeldPublications]) -> HeldPublications:
        if len(several) == 1:
            return several[0]
        firsts = np.cumsum([0, *(len(one) for one in several)])[:-1].tolist()
        return cls(
            Pairs.together([one.pairs for one in several]),
            np.concatenate([one.since_us for one in several]),
            np.concatenate([one.end_us for one in several]),
            Marks(
                np.concatenate([one.marks.rows + first for one, first in zip(several, firsts, strict=True)]),
                np.concatenate([one.marks.questions for one in several]),
            ),
        )


class HeldBack:
    """All that waits before one link."""

    def __init__(self) -> None:
        self._held: list[HeldPublications] = []
        self._first_end_us = FOR_EVER

    def __len__(self) -> int:
        return sum(map(len, self._held))

    def add(self, held: HeldPublications) -> None:
        self._held.append(held)
        self._first_end_us = min(self._first_end_us, int(held.end_us.min()))

    def first_end_us(self) -> int | None:
        """The first end that something waits for."""
        return None if self._first_end_us == FOR_EVER else self._first_end_us

    def all(self) -> HeldPublications | None:
        if not self._held:
            return None
        self._held = [HeldPublications.together(self._held)]
        return self._held[0]

    def keep(self, rows: Ints) -> None:
        """Hold no others of `all` any longer."""
        self._held = [self._held[0].taken(rows)] if len(rows) else []
        self._look_again()

    def _look_again(self) -> None:
        self._first_end_us = min((int(one.end_us.min()) for one in self._held), default=FOR_EVER)

    def forget(self, number: int) -> None:
        """Forget a question that is no longer asked beyond the link."""
        left = []
        for one in self._held:
            chosen = one.pairs.numbers != number
            pairs = one.pairs.where(chosen)
            rows = np.unique(pairs.rows)
            if len(rows):
                left.append(HeldPublications(pairs, one.since_us, one.end_us, one.marks).taken(rows))
        self._held = left
        self._look_again()

    @property
    def size_bytes(self) -> int:
        return sum(one.pairs.events.nbytes + 16 * len(one.pairs.rows) for one in self._held)

    def saved(self) -> list[Deferred]:
        return joined_later(self._held, lambda one: one.pairs.events.schema, HeldPublications.together)

    def restore(self, saved: list[Any]) -> None:
        for one in (one for some in saved for one in some):
            self.add(HeldPublications(Pairs(**one["pairs"]), one["since_us"], one["end_us"], Marks(**one["marks"])))
