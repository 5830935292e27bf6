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
    otherwise: str
    """Why, if it does not hold here."""


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


def _about(at: int, placement: str, other: str, times: float) -> Callable[[Sequence[Measured]], Found]:
    """So many times as many messages, give or take a quarter."""

    def check(points: Sequence[Measured]) -> Found:
        ratio = _ratio(points[at], placement, other)
        figures = f"{placement} / {other} at {_at(points[at])}: {ratio:.2f}, in the paper {times:g}"
        return Found(times * 0.75 <= ratio <= times * 1.25, figures)

    return check


def _grows(placement: str, other: str) -> Callable[[Sequence[Measured]], Found]:
    def check(points: Sequence[Measured]) -> Found:
        first, last = (_ratio(points[at], placement, other) for at in (0, -1))
        ends = f"{first:.2f} at {_at(points[0])}, {last:.2f} at {_at(points[-1])}"
        return Found(last > first, f"{placement} / {other}: {ends}")

    return check


def _above_somewhere(least: float, placement: str, other: str) -> Callable[[Sequence[Measured]], Found]:
    def check(points: Sequence[Measured]) -> Found:
        ratios = [_ratio(one, placement, other) for one in points if one.point.at >= least]
        return Found(
            max(ratios) > 1.02, f"{placement} / {other} from {least:g} on: {min(ratios):.2f} to {max(ratios):.2f}"
        )

    return check


def _level(low: float, high: float, placement: str) -> Callable[[Sequence[Measured]], Found]:
    """As many messages at the one point as at the other; where they were left out, at the next."""

    def check(points: Sequence[Measured]) -> Found:
        ends = [min(points, key=lambda one, at=at: abs(one.point.at - at)) for at in (low, high)]  # type: ignore[misc]
        first, last = (messages_of(one, placement) for one in ends)
        figures = f"{placement} {first:,} messages at {_at(ends[0])}, {last:,} at {_at(ends[1])}"
        return Found(abs(last / max(first, 1) - 1) <= 0.05, figures)

    return check


def _described(points: Sequence[Measured], low: float, high: float) -> tuple[int, float, str]:
    """How often the paper's engine changes between two points, for how much of the paper's time, and ours."""
    inside = [one for one in points if low <= one.point.at <= high]
    changes, ours = (sum(one.sent[name].transitions for one in inside) for name in (DESCRIBED, "adaptive"))
    seconds = points[0].point.seconds
    return changes, seconds / 1000, f"as described {changes:,} in runs of {seconds:g} s; with patience {ours:,}"


def _changes_at_least(paper: int, low: float, high: float) -> Callable[[Sequence[Measured]], Found]:
    def check(points: Sequence[Measured]) -> Found:
        changes, share, figures = _described(points, low, high)
        return Found(changes >= paper * share, figures)

    return check


def _changes_at_most(paper: int, low: float, high: float) -> Callable[[Sequence[Measured]], Found]:
    def check(points: Sequence[Measured]) -> Found:
        changes, share, figures = _described(points, low, high)
        return Found(changes <= paper * share, figures)

    return check


def _falls(points: Sequence[Measured]) -> Found:
    first, last = messages_of(points[0], "late"), messages_of(points[-1], "late")
    return Found(last < first, f"late: {first:,} messages without aggregates, {last:,} with nothing else")


def _adaptive_is_best_in_the_middle(points: Sequence[Measured]) -> Found:
    mixed = points[1:-1]
    better = sum(max(_ratio(one, "adaptive", "late"), _ratio(one, "adaptive", "early")) <= 1 for one in mixed)
    return Found(better > len(mixed) / 2, f"fewest messages of the three at {better} of {len(mixed)} mixed points")


def _most_changes(paper: int) -> Callable[[Sequence[Measured]], Found]:
    """About as many at one point, give or take a half."""

    def check(points: Sequence[Measured]) -> Found:
        most, ours = (max(one.sent[name].transitions for one in points) for name in (DESCRIBED, "adaptive"))
        seconds = points[0].point.seconds
        figures = f"as described up to {most:,} in runs of {seconds:g} s; with patience {ours:,}"
        return Found(0.5 <= most / (paper * seconds / 1000) <= 1.5, figures)

    return check


def _short_periods_cost(points: Sequence[Measured]) -> Found:
    counts = [messages_of(one, DESCRIBED) for one in points]
    more = max(counts) / max(min(counts), 1) - 1
    return Found(0.4 <= more <= 0.7, f"as described up to {more:.0%} more messages than at its best")


def _constant_from(least: float) -> Callable[[Sequence[Measured]], Found]:
    def check(points: Sequence[Measured]) -> Found:
        counts = [messages_of(one, DESCRIBED) for one in points if one.point.at >= least]
        spread = max(counts) / max(min(counts), 1) - 1
        return Found(spread <= 0.05, f"as described they differ by up to {spread:.1%} from {least:g} s on")

    return check


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


def _similar(*stages: str) -> Callable[[Sequence[Loaded]], Found]:
    def check(points: Sequence[Loaded]) -> Found:
        spreads = []
        for one in points:
            costs = [_cost(one, name, *stages) for name in ("late", "early", "adaptive")]
            spreads.append(max(costs) / max(min(costs), 1e-9) - 1)
        return Found(max(spreads) <= 0.25, f"the dearest takes up to {max(spreads):.0%} more than the cheapest")

    return check


def _costs_alike(at: int, placement: str, other: str) -> Callable[[Sequence[Loaded]], Found]:
    def check(points: Sequence[Loaded]) -> Found:
        one, another = (_cost(points[at], name) for name in (placement, other))
        figures = f"{placement} {one:.0f} ms a second, {other} {another:.0f}, at {points[at].point.at:g}"
        return Found(abs(one - another) <= 0.1 * another, figures)

    return check


def _proportional(placement: str) -> Callable[[Sequence[Loaded]], Found]:
    def check(points: Sequence[Loaded]) -> Found:
        costs, counts = [_cost(one, placement) for one in points], [one.of[placement].messages for one in points]
        found = _correlated(costs, counts)
        return Found(found > 0.95, f"load and messages of {placement} are correlated by {found:.3f}")

    return check


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


def _ahead_from(least: float, placement: str, other: str) -> Callable[[Sequence[Loaded]], Found]:
    def check(points: Sequence[Loaded]) -> Found:
        chosen = [one for one in points if one.point.at > least]
        ours, theirs = (_mean([one.of[name].delay_ms for one in chosen]) for name in (placement, other))
        return Found(ours < theirs, f"beyond {least:g}, on average {placement} {ours:.0f} ms, {other} {theirs:.0f} ms")

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
    least = min(load.messages for at, load in later if at <= 20)
    saved = 1 - least / first[1].messages
    return Found(saved > 0.03, f"{saved:.1%} fewer messages than at {first[0]:g} ms, at best")


def _saves_no_more(points: Sequence[Loaded]) -> Found:
    before = min(load.messages for at, load in _only(points) if at <= 20)
    after = min((load.messages for at, load in _only(points) if at > 20), default=before)
    return Found(after > 0.99 * before, f"{1 - after / before:.1%} fewer beyond 20 ms than up to there")


AGGREGATION = STAGES["aggregation"]
MATCHING = STAGES["matching"]

EVEN = "Rows are published here at an even rate, in the order of the file, which the paper leaves open."
SHORT = "A run here is shorter than the paper's, and points may have been left out."
FEWER = "How many windows an event is in depends on filters and roads, which the paper does not give."
SWIFT = "Partials of one window come here within some milliseconds of each other: even a short delay collects them."
FRAMES = "A broker here takes half a millisecond for a frame, and microseconds for what is in it."
PATIENT = "A broker here changes its mode only when what that would have saved has added up, and forwards until then."
MANY = "At this rate, beyond some hundred subscriptions, an event is in so many windows that partials outnumber events."
BALANCE = "One mode for a broker loses at some links what it gains at others; selective, by subscription, does gain."
STEADY = "Published at an even rate, a short period is no worse a sample where it holds as many ends of windows."
ENGINE = "The paper's engine compares what it estimates per subscription; the one described counts by link."

CLAIMS: tuple[Claim, ...] = (
    Claim("6a", "LATE generates less messages than EARLY at low publication rates.", _below(0, "late", "early"), EVEN),
    Claim("6a", "When the rate increases, EARLY generates significantly fewer.", _below(-1, "early", "late"), EVEN),
    Claim("6a", "For low rates ADAPTIVE generates a similar number as LATE.", _like(0, "adaptive", "late"), PATIENT),
    Claim(
        "6a", "For higher rates ADAPTIVE generates more messages than EARLY.",
        _above_somewhere(150, "adaptive", "early"), PATIENT,
    ),
    Claim("6a", "Over 1000 transitions from 50 to 300 pubs/s.", _changes_at_least(1000, 50, 300), SHORT),
    Claim(
        "6a", "Beyond 500 pubs/s the gap between ADAPTIVE and EARLY is diminished.",
        _like(-1, "adaptive", "early", 0.05), PATIENT,
    ),
    Claim("6a", "No more than 330 transitions at a rate of 1033 pubs/s.", _changes_at_most(330, 1033, 1033), ENGINE),
    Claim("6b", "LATE generates less messages than EARLY at low publication rates.", _below(0, "late", "early"), EVEN),
    Claim("6b", "When the rate increases, EARLY generates significantly fewer.", _below(-1, "early", "late"), EVEN),
    Claim("6b", "For low rates ADAPTIVE generates a similar number as LATE.", _like(0, "adaptive", "late"), PATIENT),
    Claim("6b", "Results closer to EARLY.", _like(-1, "adaptive", "early", 0.05), PATIENT),
    Claim("6b", "Only 284 transitions.", _changes_at_most(284, 0, 10_000), ENGINE),
    Claim("6c", "LATE performs better than EARLY.", _everywhere("late", "early"), FEWER),
    Claim("6c", "The difference increases with the number of subscriptions.", _grows("early", "late"), FEWER),
    Claim("6c", "EARLY sends up to 1.8 times more messages than LATE.", _about(-1, "early", "late", 1.8), FEWER),
    Claim("6c", "ADAPTIVE sends a similar number of messages as LATE.", _like(-1, "adaptive", "late"), PATIENT),
    Claim("6d", "EARLY performs better than LATE.", _everywhere("early", "late"), MANY),
    Claim("6d", "More subscriptions reduce the advantage of EARLY.", _grows("early", "late"), FEWER),
    Claim("6d", "With 45 subscriptions LATE sends 1.8 times more messages.", _about(0, "late", "early", 1.8), FEWER),
    Claim("6d", "At 990 subscriptions it sends only 1.2 times more.", _about(-1, "late", "early", 1.2), MANY),
    Claim(
        "6d", "From 360 to 540 subscriptions the messages of ADAPTIVE remain constant.", _level(360, 540, "adaptive"),
        "The staircase comes from subscriptions that are estimated wrongly; here partials are counted by link.",
    ),
    Claim("6e", "When the share of aggregates increases, LATE reduces its messages.", _falls, FEWER),
    Claim("6e", "With a mix, ADAPTIVE achieves the most reduction.", _adaptive_is_best_in_the_middle, BALANCE),
    Claim("6e", "With only aggregates ADAPTIVE performs similarly to EARLY.", _like(-1, "adaptive", "early"), PATIENT),
    Claim("7a", "The cost for LATE is proportional to the number of messages.", _proportional("late"), FRAMES),
    Claim("7b", "Similar costs for all three approaches.", _similar(*MATCHING), FEWER),
    Claim(
        "7b", "EARLY performs better than LATE at high publication rates.",
        _costs_less(-1, "early", "late", *MATCHING), FRAMES,
    ),
    Claim("7b", "The cost for ADAPTIVE is between those of EARLY and LATE.", _between(-1, *MATCHING), PATIENT),
    Claim(
        "7c", "At low rates the adaptation engine makes ADAPTIVE the dearest.",
        _highest(0, "adaptive", *AGGREGATION), FRAMES,
    ),
    Claim("7d", "Below 135 pubs/s LATE performs better than EARLY.", _costs_less(0, "late", "early"), FRAMES),
    Claim("7d", "There ADAPTIVE behaves as LATE does.", _costs_alike(0, "adaptive", "late"), PATIENT),
    Claim("7d", "For higher rates LATE has the highest overhead.", _highest(-1, "late"), FRAMES),
    Claim("7e", "The cost of LATE varies with the number of messages.", _proportional("late"), FRAMES),
    Claim("7e", "ADAPTIVE draws the highest computation cost.", _highest(-1, "adaptive"), FRAMES),
    Claim("7f", "EARLY generates the least overhead.", _costs_less(-1, "early", "late"), MANY),
    Claim("7f", "The overhead of ADAPTIVE lies between LATE and EARLY.", _between(-1), PATIENT),
    Claim("8a", "The delay increases with the number of subscriptions.", _slower, FRAMES),
    Claim("8a", "The delay of LATE is significantly lower.", _delay("late", "early", lambda a, b: a < 0.8 * b), FRAMES),
    Claim(
        "8a", "ADAPTIVE performs similarly to EARLY.",
        _delay("adaptive", "early", lambda a, b: abs(a - b) < 0.25 * b), PATIENT,
    ),
    Claim("8a", "Beyond 500 subscriptions ADAPTIVE has an advantage.", _ahead_from(500, "adaptive", "early"), PATIENT),
    Claim("8b", "Up to 7838 transitions.", _most_changes(7838), STEADY),
    Claim("8b", "Up to 55% more messages if not properly set.", _short_periods_cost, STEADY),
    Claim("8b", "From 5 s on the number of messages remains constant.", _constant_from(5), SHORT),
    Claim("8c", "The notification delay varies linearly with the collection delay.", _linear, SWIFT),
    Claim("8c", "From 1 ms to 20 ms it reduces the messages by more than 3%.", _collecting_saves, SWIFT),
    Claim("8c", "More than 20 ms do not further reduce them.", _saves_no_more, SWIFT),
)  # fmt: skip
