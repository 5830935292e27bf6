"""How sentences about counted messages and transitions are judged: figures 6 and 8(b)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import inf

from catchment.lab.debs14.described import label_of
from catchment.lab.debs14.limits import (
    ABOUT,
    ADAPTIVE,
    CONSTANT,
    FALLS,
    FEWER,
    LINEAR,
    MORE,
    PAPER_SECONDS,
    placement_named,
)
from catchment.lab.debs14.measuring import PARTS, Measured
from catchment.lab.debs14.points import Point, workload
from catchment.lab.debs14.verdicts import (
    Estimate,
    Found,
    Limits,
    Measure,
    counted,
    found_from,
    from_a_line,
    not_measured,
    ratio_of_parts,
)

__all__ = [
    "Judge",
    "at_end",
    "changes_at_most",
    "changes_over",
    "changes_up_to",
    "constant_beyond",
    "costs_up_to",
    "diminishes",
    "everywhere",
    "falls_linearly",
    "falls_linearly_below",
    "fewest_in_a_mix",
    "grows",
    "messages_of",
    "more_than_early",
    "nearer_to_early",
    "stays_constant",
]

Judge = Callable[[Sequence[Measured], str], Found]
"""From the points of a figure in order, and the adaptive placement that is meant, to a verdict."""


def messages_of(one: Measured, placement: str) -> int:
    """What counts as messages at a point."""
    return one.sent[placement].messages + (one.notifications if one.point.last_hop else 0)


def _parts(one: Measured, placement: str) -> list[float]:
    notified = one.notifications / PARTS if one.point.last_hop else 0.0
    return [messages + notified for messages in one.sent[placement].parts]


def _ratio(one: Measured, placement: str, other: str) -> Estimate:
    return ratio_of_parts(_parts(one, placement), _parts(one, other))


def _measure(one: Measured, placement: str, other: str, limits: Limits) -> Measure:
    name = f"{label_of(placement)} / {label_of(other)} at {one.point.at:g}:"
    return Measure(name, _ratio(one, placement, other), limits)


def _spread(points: Sequence[Measured]) -> str:
    return f"spread over {PARTS} parts of {points[0].point.seconds / PARTS:g} s"


def at_end(at: int, placement: str, other: str, limits: Limits) -> Judge:
    """At the first (0) or last (-1) point, the ratio of their messages."""

    def judge(points: Sequence[Measured], adaptive: str) -> Found:
        one, another = (placement_named(name, adaptive) for name in (placement, other))
        return found_from([_measure(points[at], one, another, limits)], _spread(points))

    return judge


def everywhere(placement: str, other: str, limits: Limits) -> Judge:
    """At every point, the ratio of their messages."""

    def judge(points: Sequence[Measured], adaptive: str) -> Found:
        return found_from([_measure(one, placement, other, limits) for one in points], _spread(points))

    return judge


def more_than_early(points: Sequence[Measured], adaptive: str) -> Found:
    """ADAPTIVE in relation to EARLY, at every point at which EARLY sends fewer messages than LATE."""
    ahead = [one for one in points if messages_of(one, "early") < messages_of(one, "late")]
    return found_from([_measure(one, adaptive, "early", MORE) for one in ahead], _spread(points))


def grows(placement: str, other: str) -> Judge:
    """From the first point to the last, the ratio of their messages."""

    def judge(points: Sequence[Measured], adaptive: str) -> Found:
        first, last = (_measure(points[at], placement, other, Limits("")) for at in (0, -1))
        rise = Measure("difference", last.estimate - first.estimate, Limits("increases", low=0))
        found = found_from([rise], _spread(points))
        return Found(found.verdict, f"{first}; {last}; {found.figures}", found.tolerance)

    return judge


def diminishes(low: float, high: float) -> Judge:
    """How far ADAPTIVE is above EARLY at the last point, in relation to the most between two others."""

    def judge(points: Sequence[Measured], adaptive: str) -> Found:
        limits = Limits("diminished", high=0)
        before = [_measure(one, adaptive, "early", limits) for one in points if low <= one.point.at <= high]
        if not before:
            return not_measured(f"no point from {low:g} to {high:g}", limits)
        most = max(before, key=lambda one: one.estimate.value)
        last = _measure(points[-1], adaptive, "early", limits)
        found = found_from([Measure("change of the gap", last.estimate - most.estimate, limits)], _spread(points))
        return Found(found.verdict, f"{most}; {last}; {found.figures}", found.tolerance)

    return judge


def nearer_to_early(points: Sequence[Measured], adaptive: str) -> Found:
    """Where ADAPTIVE is on the way from EARLY (0) to LATE (1) at the last point."""
    ours, early, late = (_parts(points[-1], name) for name in (adaptive, "early", "late"))
    place = ratio_of_parts(_minus(ours, early), _minus(late, early))
    name = f"place of {label_of(adaptive)} between early (0) and late (1) at {points[-1].point.at:g}:"
    return found_from([Measure(name, place, Limits("closer to EARLY", high=0.5))], _spread(points))


def _minus(ones: Sequence[float], others: Sequence[float]) -> list[float]:
    return [one - other for one, other in zip(ones, others, strict=True)]


def stays_constant(low: float, high: float) -> Judge:
    """From one point to another, ADAPTIVE does not grow, and EARLY and LATE do."""

    def judge(points: Sequence[Measured], adaptive: str) -> Found:
        ends = [one for at in (low, high) for one in points if one.point.at == at]
        if len(ends) < 2:
            return not_measured(f"of {low:g} and {high:g} at least one was left out", CONSTANT)
        limits = {adaptive: CONSTANT, "early": MORE, "late": MORE}
        several = [
            Measure(
                f"{label_of(name)} at {high:g} / at {low:g}:",
                ratio_of_parts(_parts(ends[1], name), _parts(ends[0], name)),
                limit,
            )
            for name, limit in limits.items()
        ]
        return found_from(several, _spread(points))

    return judge


def falls_linearly(placement: str) -> Judge:
    """Over the whole figure."""
    return falls_linearly_below(inf, placement)


def falls_linearly_below(most: float, placement: str = ADAPTIVE) -> Judge:
    """Over the points up to a value, in relation to the first."""

    def judge(points: Sequence[Measured], adaptive: str) -> Found:
        name = placement_named(placement, adaptive)
        chosen = [one for one in points if one.point.at <= most]
        if len(chosen) < 3:
            return not_measured(f"{len(chosen)} points up to {most:g}; a line shows from three on", LINEAR)
        ratios = [ratio_of_parts(_parts(one, name), _parts(chosen[0], name)) for one in chosen]
        _, off = from_a_line([one.point.at for one in chosen], ratios)
        first, last = chosen[0].point.at, chosen[-1].point.at
        return found_from(
            [
                Measure(f"{label_of(name)} at {last:g} / at {first:g}:", ratios[-1], FALLS),
                Measure("farthest from a straight line, as a share of its fall", off, LINEAR),
            ],
            _spread(points),
        )

    return judge


def fewest_in_a_mix(points: Sequence[Measured], adaptive: str) -> Found:
    """ADAPTIVE in relation to the better of the two others, wherever there are regular and aggregate subscriptions."""
    mixed = [one for one in points if 0 < one.point.aggregates < 1]
    several = [
        _measure(one, adaptive, min("late", "early", key=lambda name, at=one: messages_of(at, name)), FEWER)  # type: ignore[misc]
        for one in mixed
    ]
    return found_from(several, _spread(points))


def costs_up_to(share: float) -> Judge:
    """How many more messages the worst point has than the best."""

    def judge(points: Sequence[Measured], adaptive: str) -> Found:
        ordered = sorted(points, key=lambda one: messages_of(one, adaptive))
        ratio = ratio_of_parts(_parts(ordered[-1], adaptive), _parts(ordered[0], adaptive))
        name = f"{label_of(adaptive)} at {ordered[-1].point.at:g} / at {ordered[0].point.at:g}:"
        limits = Limits(f"{share:.0%} more, ± a quarter of that", 1 + share * (1 - ABOUT), 1 + share * (1 + ABOUT))
        return found_from([Measure(name, ratio, limits)], _spread(points))

    return judge


def constant_beyond(least: float) -> Judge:
    """From some point on, every one in relation to the first of them."""

    def judge(points: Sequence[Measured], adaptive: str) -> Found:
        chosen = [one for one in points if one.point.at >= least]
        several = [
            Measure(
                f"{label_of(adaptive)} at {one.point.at:g} / at {chosen[0].point.at:g}:",
                ratio_of_parts(_parts(one, adaptive), _parts(chosen[0], adaptive)),
                CONSTANT,
            )
            for one in chosen[1:]
        ]
        return found_from(several, _spread(points))

    return judge


# -- transitions ------------------------------------------------------------------------------------------------------


def _scaled(points: Sequence[Measured]) -> float:
    """The share of the paper's time that a run takes."""
    return points[0].point.seconds / PAPER_SECONDS


def _counting(points: Sequence[Measured]) -> str:
    seconds = points[0].point.seconds
    return f"2 √transitions; the paper's limit, of {PAPER_SECONDS:,g} s, is taken for {seconds:,g} s"


def _transitions(chosen: Sequence[Measured], adaptive: str, limits: Limits, where: str) -> Measure:
    changes = sum(one.sent[adaptive].transitions for one in chosen)
    return Measure(f"{label_of(adaptive)} {where}:", counted(changes), limits, 0, " transitions")


def changes_over(paper: int, low: float, high: float) -> Judge:
    """The transitions of all points between two; too few of them decide nothing if points were left out."""

    def judge(points: Sequence[Measured], adaptive: str) -> Found:
        chosen = [one for one in points if low <= one.point.at <= high]
        limits = Limits(f"over {paper:,}", low=paper * _scaled(points))
        where = f"at {', '.join(f'{one.point.at:g}' for one in chosen)} together"
        total = _transitions(chosen, adaptive, limits, where)
        left_out = len(_planned(points[0].point.figure, low, high)) - len(chosen)
        decides = not left_out or total.verdict == "agrees"
        noise = f"{_counting(points)}; {left_out} points left out, which could only add some"
        return found_from([replace(total, decides=decides)], noise)

    return judge


def _planned(figure: str, low: float, high: float) -> list[Point]:
    return [point for point in workload().of(figure) if low <= point.at <= high]


def changes_at_most(paper: int) -> Judge:
    """The transitions at the last point."""

    def judge(points: Sequence[Measured], adaptive: str) -> Found:
        limits = Limits(f"no more than {paper:,}", high=paper * _scaled(points))
        where = f"at {points[-1].point.at:g}"
        return found_from([_transitions(points[-1:], adaptive, limits, where)], _counting(points))

    return judge


def changes_up_to(paper: int, below: float) -> Judge:
    """The most transitions at any point below a value."""

    def judge(points: Sequence[Measured], adaptive: str) -> Found:
        chosen = [one for one in points if one.point.at < below]
        # Of none there is no most: nothing is left to judge.
        most = sorted(chosen, key=lambda one: one.sent[adaptive].transitions)[-1:]
        low, high = (paper * _scaled(points) * (1 + side) for side in (-ABOUT, ABOUT))
        limits = Limits(f"up to {paper:,}, ± a quarter", low, high)
        several = [_transitions([one], adaptive, limits, f"at {one.point.at:g}") for one in most]
        return found_from(several, _counting(points))

    return judge
