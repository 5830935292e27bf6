"""What the paper says in words about its figures, and whether it holds here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from catchment.lab.debs14.measuring import DESCRIBED, Measured

__all__ = ["CLAIMS", "Claim", "Found", "messages_of"]


@dataclass(frozen=True, slots=True)
class Found:
    """Whether a claim holds, and by what figures."""

    holds: bool
    figures: str


@dataclass(frozen=True, slots=True)
class Claim:
    """A sentence about a figure."""

    figure: str
    words: str
    check: Callable[[Sequence[Measured]], Found]
    """Called with the figure's points in order."""
    otherwise: str = ""
    """Why it may not hold here."""


def messages_of(one: Measured, placement: str) -> int:
    """What counts as messages at a point."""
    return one.sent[placement].messages + (one.notifications if one.point.last_hop else 0)


def _ratio(one: Measured, placement: str, other: str) -> float:
    return messages_of(one, placement) / max(messages_of(one, other), 1)


def _at(one: Measured) -> str:
    return f"{one.point.at:g}"


def _below(at: int, placement: str, other: str) -> Callable[[Sequence[Measured]], Found]:
    """At one end of the sweep, the one sends fewer messages than the other."""

    def check(points: Sequence[Measured]) -> Found:
        ratio = _ratio(points[at], placement, other)
        return Found(ratio < 1, f"{placement} / {other} at {_at(points[at])}: {ratio:.2f}")

    return check


def _like(at: int, placement: str, other: str, within: float = 0.1) -> Callable[[Sequence[Measured]], Found]:
    def check(points: Sequence[Measured]) -> Found:
        ratio = _ratio(points[at], placement, other)
        return Found(abs(ratio - 1) <= within, f"{placement} / {other} at {_at(points[at])}: {ratio:.2f}")

    return check


def _everywhere(placement: str, other: str) -> Callable[[Sequence[Measured]], Found]:
    def check(points: Sequence[Measured]) -> Found:
        ratios = [_ratio(one, placement, other) for one in points]
        return Found(max(ratios) < 1, f"{placement} / {other}: {min(ratios):.2f} to {max(ratios):.2f}")

    return check


def _early_grows_over_late(points: Sequence[Measured]) -> Found:
    first, last = (_ratio(points[at], "early", "late") for at in (0, -1))
    return Found(last > first, f"early / late: {first:.2f} at {_at(points[0])}, {last:.2f} at {_at(points[-1])}")


def _late_loses_its_disadvantage(points: Sequence[Measured]) -> Found:
    first, last = (_ratio(points[at], "late", "early") for at in (0, -1))
    return Found(first > last, f"late / early: {first:.2f} at {_at(points[0])}, {last:.2f} at {_at(points[-1])}")


def _transitions(paper: int) -> Callable[[Sequence[Measured]], Found]:
    """About as many changes of mode as the paper counts, in runs as long as its own."""

    def check(points: Sequence[Measured]) -> Found:
        most = max(one.sent["adaptive"].transitions for one in points)
        expected = paper * points[0].point.seconds / 1000
        return Found(most >= expected / 2, f"at most {most:,} at a point, in runs of {points[0].point.seconds:g} s")

    return check


def _falls(points: Sequence[Measured]) -> Found:
    first, last = messages_of(points[0], "late"), messages_of(points[-1], "late")
    return Found(last < first, f"late: {first:,} messages without aggregates, {last:,} with nothing else")


def _adaptive_is_best_in_the_middle(points: Sequence[Measured]) -> Found:
    mixed = points[1:-1]
    better = sum(max(_ratio(one, "adaptive", "late"), _ratio(one, "adaptive", "early")) <= 1 for one in mixed)
    return Found(better > len(mixed) / 2, f"fewest messages of the three at {better} of {len(mixed)} mixed points")


def _short_periods_cost(points: Sequence[Measured]) -> Found:
    short, long = (messages_of(points[at], DESCRIBED) for at in (0, -1))
    most = max(one.sent[DESCRIBED].transitions for one in points)
    ours = max(one.sent["adaptive"].transitions for one in points)
    return Found(
        short > 1.05 * long,
        f"as described {short / max(long, 1):.2f} times the messages at {_at(points[0])} s of those at "
        f"{_at(points[-1])} s, up to {most:,} transitions; with patience up to {ours:,}",
    )


MARGIN = "A broker here changes its mode only if that is worth a fifth, by what windows really ended in the period."
MANY = "At this rate, beyond some hundred subscriptions, an event is in so many windows that partials outnumber events."
BALANCE = "One mode for a broker loses at some links what it gains at others; selective, by subscription, does gain."
STEADY = "Published at an even rate, and counted by the windows that really ended, a short period is no worse a sample."

CLAIMS: tuple[Claim, ...] = (
    Claim("6a", "At low publication rates LATE generates fewer messages than EARLY.", _below(0, "late", "early")),
    Claim("6a", "When the rate increases, EARLY generates significantly fewer.", _below(-1, "early", "late")),
    Claim("6a", "At low rates ADAPTIVE generates a similar number as LATE.", _like(0, "adaptive", "late")),
    Claim("6a", "Beyond 500 pubs/s the gap between ADAPTIVE and EARLY is diminished.", _like(-1, "adaptive", "early")),
    Claim("6a", "Over 1000 transitions between 50 and 300 pubs/s, at most 330 at 1033.", _transitions(1000), MARGIN),
    Claim("6b", "At low publication rates LATE generates fewer messages than EARLY.", _below(0, "late", "early")),
    Claim("6b", "When the rate increases, EARLY generates significantly fewer.", _below(-1, "early", "late")),
    Claim("6b", "For high rates ADAPTIVE is close to EARLY.", _like(-1, "adaptive", "early")),
    Claim("6b", "Only 284 transitions.", _transitions(284), MARGIN),
    Claim("6c", "LATE performs better than EARLY.", _everywhere("late", "early")),
    Claim(
        "6c", "The difference increases with subscriptions; EARLY sends up to 1.8 times LATE.", _early_grows_over_late
    ),
    Claim("6c", "ADAPTIVE sends a similar number of messages as LATE.", _like(-1, "adaptive", "late")),
    Claim("6d", "EARLY performs better than LATE.", _everywhere("early", "late"), MANY),
    Claim(
        "6d", "With 45 subscriptions LATE sends 1.8 times more, at 990 only 1.2 times.", _late_loses_its_disadvantage
    ),
    Claim("6e", "When the share of aggregates increases, LATE reduces its messages.", _falls),
    Claim("6e", "With a mix, ADAPTIVE achieves the most reduction.", _adaptive_is_best_in_the_middle, BALANCE),
    Claim("6e", "With only aggregates ADAPTIVE performs similarly to EARLY.", _like(-1, "adaptive", "early")),
    Claim(
        "8b",
        "Short sampling periods cause up to 7,838 transitions and up to 55% more messages.",
        _short_periods_cost,
        STEADY,
    ),
)
