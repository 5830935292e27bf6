"""Slack: how far a value may be from the truth, and how brokers divide it along the tree.

Rule 1: what a broker reports upwards errs by its own slack and by the slacks of what it was reported. A way of sharing
        says how slacks add up, and so how much a broker may keep and grant.
Rule 2: `leaves` gives all slack to the brokers without further branches, where most clients are; a broker in between
        reports every change. `even` is the paper's heuristic: each of n branches and the broker itself get a share.
Rule 3: whole numbers differ by whole numbers, so that their slack goes in whole units: 2 is 1 + 1, not 4 times 0.5.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

__all__ = ["ADDED", "DIVISIONS", "MULTIPLIED", "UNSHARED", "WHOLE", "Division", "Sharing"]

Division = Literal["leaves", "even"]
DIVISIONS: tuple[Division, ...] = get_args(Division)


@dataclass(frozen=True, slots=True)
class Sharing:
    """How the slacks of several parts make up the slack of the whole."""

    name: str
    none: float
    """The slack of what is exact."""

    def total(self, slacks: Sequence[float]) -> float:
        """The slack of a value that is merged from values with these."""
        if self is ADDED:
            return math.fsum(slacks)
        if self is MULTIPLIED:
            return math.prod(slacks)
        return max(slacks, default=self.none)

    def divided(self, slack: float, branches: int, *, whole: bool, division: Division) -> tuple[float, list[float]]:
        """What a broker keeps of a slack that it is granted, and what it grants to each of its branches."""
        if not branches:
            return slack, []
        if self is UNSHARED:
            return self.none, [self.none] * branches
        if division == "leaves":
            return self.none, self._parts(slack, branches, whole=whole)
        own, *granted = self._parts(slack, branches + 1, whole=False) if self is not WHOLE else [slack / 2] * 2
        return own, granted * branches if self is WHOLE else granted

    def _parts(self, slack: float, count: int, *, whole: bool) -> list[float]:
        if self is WHOLE:
            return [slack] * count
        if self is MULTIPLIED:
            # Rounded down, so that the product is never more than what was granted.
            return [max(math.nextafter(slack ** (1 / count), 0.0), self.none)] * count
        if whole:
            units, more = divmod(math.floor(slack), count)
            return [float(units + (place < more)) for place in range(count)]
        return [slack / count] * count


ADDED = Sharing("added", 0.0)
"""Slacks add up: counts, sums, sets by what is in one of two alone, bits that differ."""
WHOLE = Sharing("whole", 0.0)
"""Each branch may have the whole: the least, the greatest."""
MULTIPLIED = Sharing("multiplied", 1.0)
"""Slacks are factors: products."""
UNSHARED = Sharing("unshared", 0.0)
"""Nobody knows how they add up: values are exact."""
