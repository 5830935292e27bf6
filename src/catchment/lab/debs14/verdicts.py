"""Verdicts on a sentence: what was measured, how uncertain that is, and the limits that the sentence sets.

Rule 1: a sentence *agrees* if all of value ± noise lies within its limits, and *differs* if all of that lies outside;
        else it is *undecided*.
Rule 2: limits and noise are printed next to every verdict.
Rule 3: noise comes from what was measured, so that a shorter run has more of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import hypot, inf, isfinite, sqrt
from statistics import linear_regression
from typing import Literal

__all__ = [
    "CONFIDENCE",
    "Estimate",
    "Found",
    "Limits",
    "Measure",
    "Verdict",
    "counted",
    "found_from",
    "from_a_line",
    "mean_of",
    "not_measured",
    "ratio_of_parts",
    "worst",
]

Verdict = Literal["agrees", "differs", "undecided"]
CONFIDENCE = {1: 12.71, 2: 4.30, 3: 3.18, 4: 2.78}
"""Student's t at 95 %, both sides, by degrees of freedom: noise in standard errors where few parts tell it."""
DEVIATIONS = 2.0
"""Noise in standard errors where many things were counted."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A measured value, and how far it may be off."""

    value: float
    noise: float = 0.0

    @property
    def low(self) -> float:
        return self.value - self.noise

    @property
    def high(self) -> float:
        return self.value + self.noise

    def __sub__(self, other: Estimate) -> Estimate:
        return Estimate(self.value - other.value, hypot(self.noise, other.noise))

    def __truediv__(self, other: Estimate) -> Estimate:
        """Of two that were measured independently."""
        if not self.value or not other.value:
            return Estimate(self.value / other.value if other.value else inf, inf)
        ratio = self.value / other.value
        return Estimate(ratio, abs(ratio) * hypot(self.noise / self.value, other.noise / other.value))

    def shown(self, digits: int = 3) -> str:
        noise = f"{self.noise:,.{digits}f}" if isfinite(self.noise) else "∞"
        return f"{self.value:,.{digits}f} ± {noise}"


@dataclass(frozen=True, slots=True)
class Limits:
    """Between which values a sentence is right, and by which of its words."""

    word: str
    low: float = -inf
    high: float = inf

    def verdict(self, estimate: Estimate) -> Verdict:
        if self.low < estimate.low and estimate.high < self.high:
            return "agrees"
        return "differs" if estimate.high < self.low or estimate.low > self.high else "undecided"

    def __str__(self) -> str:
        if isfinite(self.low) and isfinite(self.high):
            return f"{self.word}: {self.low:,.4g} to {self.high:,.4g}"
        side, limit = ("above", self.low) if isfinite(self.low) else ("below", self.high)
        return f"{self.word}: {side} {limit:,.4g}"


@dataclass(frozen=True, slots=True)
class Found:
    """A verdict, and all that it follows from."""

    verdict: Verdict
    figures: str
    tolerance: str
    """The limits, and where the noise comes from."""


@dataclass(frozen=True, slots=True)
class Measure:
    """One value that a sentence is about."""

    name: str
    estimate: Estimate
    limits: Limits
    digits: int = 3
    unit: str = ""
    decides: bool = True
    """Whether the run could show it at all."""

    @property
    def verdict(self) -> Verdict:
        return self.limits.verdict(self.estimate) if self.decides else "undecided"

    def __str__(self) -> str:
        return f"{self.name} {self.estimate.shown(self.digits)}{self.unit}"


def found_from(measures: Sequence[Measure], noise: str) -> Found:
    """The verdict on a sentence that is right if it is so about each of several values."""
    if not measures:
        return Found("undecided", "not measured: no point that the sentence is about", f"noise: {noise}")
    limits = dict.fromkeys(str(one.limits) for one in measures)
    return Found(
        worst(one.verdict for one in measures),
        "; ".join(map(str, measures)),
        f"{'; '.join(limits)}; noise: {noise}",
    )


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """What several verdicts come to, if the sentence says all of it."""
    given = set(verdicts)
    return "differs" if "differs" in given else "undecided" if "undecided" in given or not given else "agrees"


def not_measured(why: str, limits: Limits) -> Found:
    """The verdict on a sentence about points that were left out."""
    return Found("undecided", f"not measured: {why}", str(limits))


# -- estimates --------------------------------------------------------------------------------------------------------


def counted(count: float) -> Estimate:
    """Of things that happen independently of each other; of none at all, as if it were one."""
    return Estimate(count, DEVIATIONS * sqrt(max(count, 1.0)))


def mean_of(several: Sequence[Estimate]) -> Estimate:
    return Estimate(
        sum(one.value for one in several) / len(several), hypot(*(one.noise for one in several)) / len(several)
    )


def ratio_of_parts(ones: Sequence[float], others: Sequence[float]) -> Estimate:
    """The ratio of two sums over the same parts of time; its noise is how much the parts differ in it."""
    if sum(others) == 0 or len(others) < 2:
        return Estimate(inf if sum(ones) else 1.0, inf)
    ratio, parts = sum(ones) / sum(others), len(others)
    residuals = [one - ratio * other for one, other in zip(ones, others, strict=True)]
    error = sqrt(sum(one * one for one in residuals) / (parts * (parts - 1))) / abs(sum(others) / parts)
    return Estimate(ratio, CONFIDENCE.get(parts - 1, DEVIATIONS) * error)


def from_a_line(
    across: Sequence[float], up: Sequence[Estimate], *, through_zero: bool = False
) -> tuple[float, Estimate]:
    """The rise of the straight line through points, and how far the farthest is from it, as a share of that rise."""
    values = [one.value for one in up]
    if min(across) == max(across):
        return 0.0, Estimate(inf, inf)
    fit = linear_regression(across, values, proportional=through_zero)
    rise = fit.slope * (max(across) - min(across))
    if rise == 0:
        return 0.0, Estimate(inf, inf)
    off = max(abs(one - fit.slope * at - fit.intercept) for at, one in zip(across, values, strict=True))
    return rise, Estimate(off / abs(rise), max(one.noise for one in up) / abs(rise))
