"""What the paper says in words about its figures, and whether it holds here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import StatisticsError, correlation
from typing import Any

from catchment.lab.debs14.loads import STAGES, Load, Loaded
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
    check: Callable[[Sequence[Any]], Found]
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
        figures = f"at most {most:,} at a point, in runs of {points[0].point.seconds:g} s"
        return Found(expected / 2 <= most <= expected * 2, figures)

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


# -- load and delay ---------------------------------------------------------------------------------------------------


def _cost(one: Loaded, placement: str, *stages: str) -> float:
    return one.of[placement].total_ms(*stages)


def _costs_less(at: int, placement: str, other: str, *stages: str) -> Callable[[Sequence[Loaded]], Found]:
    def check(points: Sequence[Loaded]) -> Found:
        less, more = (_cost(points[at], name, *stages) for name in (placement, other))
        return Found(less < more, f"{placement} {less:.0f} ms a second, {other} {more:.0f}, at {points[at].point.at:g}")

    return check


def _between(at: int, *stages: str) -> Callable[[Sequence[Loaded]], Found]:
    def check(points: Sequence[Loaded]) -> Found:
        late, early, ours = (_cost(points[at], name, *stages) for name in ("late", "early", "adaptive"))
        figures = f"late {late:.0f}, adaptive {ours:.0f}, early {early:.0f} ms a second at {points[at].point.at:g}"
        return Found(min(late, early) * 0.98 <= ours <= max(late, early) * 1.02, figures)

    return check


def _highest(at: int, placement: str, *stages: str) -> Callable[[Sequence[Loaded]], Found]:
    def check(points: Sequence[Loaded]) -> Found:
        costs = {name: _cost(points[at], name, *stages) for name in ("late", "early", "adaptive")}
        told = ", ".join(f"{name} {cost:.1f}" for name, cost in costs.items())
        return Found(costs[placement] == max(costs.values()), f"{told} ms a second at {points[at].point.at:g}")

    return check


def _proportional(points: Sequence[Loaded]) -> Found:
    found = _correlated([_cost(one, "late") for one in points], [one.of["late"].messages for one in points])
    return Found(found > 0.95, f"load and messages of late are correlated by {found:.3f}")


def _slower(points: Sequence[Loaded]) -> Found:
    told, grows = [], True
    for name in ("late", "early", "adaptive"):
        first, last = (points[at].of[name].delay_ms for at in (0, -1))
        told.append(f"{name} {first:.0f} to {last:.0f} ms")
        grows &= last > first
    return Found(grows, ", ".join(told))


def _delay(placement: str, other: str, compare: Callable[[float, float], bool]) -> Callable[[Sequence[Loaded]], Found]:
    def check(points: Sequence[Loaded]) -> Found:
        ours, theirs = (_mean([one.of[name].delay_ms for one in points]) for name in (placement, other))
        return Found(compare(ours, theirs), f"on average {placement} {ours:.0f} ms, {other} {theirs:.0f} ms")

    return check


def _correlated(one: Sequence[float], other: Sequence[float]) -> float:
    try:
        return correlation(one, other)
    except StatisticsError:  # of what does not vary at all
        return 0.0


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _only(points: Sequence[Loaded]) -> list[tuple[float, Load]]:
    return [(one.point.at, one.of["adaptive"]) for one in points]


def _linear(points: Sequence[Loaded]) -> Found:
    found = _correlated([at for at, _ in _only(points)], [load.delay_ms for _, load in _only(points)])
    first, last = _only(points)[0][1].delay_ms, _only(points)[-1][1].delay_ms
    return Found(found > 0.95, f"{first:.0f} to {last:.0f} ms, correlated by {found:.3f}")


def _collecting_saves(points: Sequence[Loaded]) -> Found:
    first, *later = _only(points)
    least = min(load.messages for _, load in later)
    saved = 1 - least / first[1].messages
    return Found(saved > 0.03, f"{saved:.1%} fewer messages than at {first[0]:g} ms, at best")


AGGREGATION = STAGES["aggregation"]
MATCHING = STAGES["matching"]

MARGIN = "A broker here changes its mode only when what that would have saved has added up: see figure 8(b)."
SWIFT = "Partials of one window come here within some milliseconds of each other: even a short delay collects them."
BEGINNING = "A broker forwards until its samples say otherwise: in a short run for much of it, and as swiftly as LATE."
LIGHT = "Adding and deciding take microseconds here; taking a publication in and matching it take hundreds."
MANY = "At this rate, beyond some hundred subscriptions, an event is in so many windows that partials outnumber events."
BALANCE = "One mode for a broker loses at some links what it gains at others; selective, by subscription, does gain."
STEADY = "Published at an even rate, a short period is no worse a sample where it holds as many ends of windows."

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
    Claim("7a", "The cost for LATE is proportional to the number of messages exchanged.", _proportional),
    Claim(
        "7b", "EARLY performs better than LATE at high publication rates.", _costs_less(-1, "early", "late", *MATCHING)
    ),
    Claim("7b", "The cost of matching for ADAPTIVE is between those of EARLY and LATE.", _between(-1, *MATCHING)),
    Claim(
        "7c",
        "At low publication rates the adaptation engine makes ADAPTIVE the dearest.",
        _highest(0, "adaptive", *AGGREGATION),
    ),
    Claim("7d", "Below 135 pubs/s LATE performs better than EARLY.", _costs_less(0, "late", "early"), LIGHT),
    Claim("7d", "For higher rates LATE has the highest overhead.", _highest(-1, "late")),
    Claim("7e", "ADAPTIVE draws the highest computation cost.", _highest(-1, "adaptive"), LIGHT),
    Claim("7f", "EARLY generates the least overhead.", _costs_less(-1, "early", "late"), LIGHT),
    Claim("7f", "The overhead of ADAPTIVE lies between LATE and EARLY.", _between(-1)),
    Claim("8a", "The delay increases with the number of subscriptions.", _slower),
    Claim("8a", "The delay of LATE is significantly lower.", _delay("late", "early", lambda a, b: a < 0.8 * b)),
    Claim(
        "8a",
        "ADAPTIVE performs similarly to EARLY.",
        _delay("adaptive", "early", lambda a, b: abs(a - b) < 0.25 * b),
        BEGINNING,
    ),
    Claim(
        "8b",
        "Short sampling periods cause up to 7,838 transitions and up to 55% more messages.",
        _short_periods_cost,
        STEADY,
    ),
    Claim("8c", "The notification delay varies linearly with the collection delay.", _linear),
    Claim("8c", "From 1 ms to 20 ms it reduces the messages by more than 3%.", _collecting_saves, SWIFT),
)
