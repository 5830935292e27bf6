"""How sentences about processing load, delay and collection are judged: figures 7, 8(a) and 8(c)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from math import inf

from catchment.lab.debs14.described import ADAPTIVES, label_of
from catchment.lab.debs14.limits import LEAST_PERIODS, LINEAR, SIMILAR, placement_named
from catchment.lab.debs14.loads import Load, Loaded
from catchment.lab.debs14.verdicts import (
    DEVIATIONS,
    Estimate,
    Found,
    Limits,
    Measure,
    counted,
    found_from,
    from_a_line,
    mean_of,
    not_measured,
)

__all__ = [
    "Judge",
    "collecting_saves",
    "collecting_saves_no_more",
    "costs",
    "costs_alike",
    "costs_below",
    "costs_between",
    "costs_follow_messages",
    "costs_most",
    "delay_follows_collection",
    "delay_grows",
    "delays",
    "with_periods",
]

Judge = Callable[[Sequence[Loaded], str], Found]
COUNTING = "2 / √messages of the run"
OVER_NOTIFICATIONS = "2 standard errors over notifications"


def _periods(one: Loaded) -> float:
    return one.point.seconds / one.point.sampling_period_s


def _decides(one: Loaded, *placements: str) -> bool:
    """Whether a run is long enough for what these placements do: for adaptive ones it may be too short."""
    return _periods(one) >= LEAST_PERIODS or not set(placements) & set(ADAPTIVES)


def with_periods(found: Found, points: Sequence[Loaded]) -> Found:
    """Add how long runs are to what a verdict about an adaptive placement follows from."""
    needs = f"adaptive decides from {LEAST_PERIODS} sampling periods a run on, here {_periods(points[0]):.3g}"
    return replace(found, tolerance=f"{found.tolerance}; {needs}")


# -- load -------------------------------------------------------------------------------------------------------------


def _cost(load: Load, stages: Sequence[str]) -> Estimate:
    """The load, as uncertain as the number of messages that made it."""
    messages = counted(load.counted)
    cost = load.total_ms(*stages)
    return Estimate(cost, cost * messages.noise / max(messages.value, 1.0))


def _cost_ratio(one: Loaded, placement: str, other: str, stages: Sequence[str], limits: Limits) -> Measure:
    ours, theirs = (_cost(one.of[name], stages) for name in (placement, other))
    name = (
        f"{label_of(placement)} {ours.value:,.1f} / {label_of(other)} {theirs.value:,.1f} ms a second"
        f" at {one.point.at:g}:"
    )
    return Measure(name, ours / theirs, limits, decides=_decides(one, placement, other))


def costs(at: int, placement: str, others: Sequence[str], limits: Limits, stages: Sequence[str] = ()) -> Judge:
    """The load at the first (0) or last (-1) point in relation to that of others."""

    def judge(points: Sequence[Loaded], adaptive: str) -> Found:
        return _compared([points[at]], placement, others, limits, adaptive, stages)

    return judge


def costs_below(most: float, placement: str, other: str, limits: Limits) -> Judge:
    """The load at every point below a value in relation to that of another."""

    def judge(points: Sequence[Loaded], adaptive: str) -> Found:
        return _compared([one for one in points if one.point.at < most], placement, [other], limits, adaptive)

    return judge


def _compared(
    points: Sequence[Loaded],
    placement: str,
    others: Sequence[str],
    limits: Limits,
    adaptive: str,
    stages: Sequence[str] = (),
) -> Found:
    ours, *theirs = (placement_named(one, adaptive) for one in (placement, *others))
    return found_from([_cost_ratio(one, ours, other, stages, limits) for one in points for other in theirs], COUNTING)


def costs_most(at: int, placement: str, stages: Sequence[str] = ()) -> Judge:
    """The load at one point is above those of the two others."""

    def judge(points: Sequence[Loaded], adaptive: str) -> Found:
        name, three = placement_named(placement, adaptive), ("late", "early", adaptive)
        others = [other for other in three if other != name]
        return costs(at, name, others, Limits("highest", low=1.0), stages)(points, adaptive)

    return judge


def costs_between(at: int, stages: Sequence[str] = ()) -> Judge:
    """The load of ADAPTIVE at one point is above the lower of the two others, and below the higher."""

    def judge(points: Sequence[Loaded], adaptive: str) -> Found:
        one = points[at]
        low, high = sorted(("late", "early"), key=lambda name: one.of[name].total_ms(*stages))
        several = [
            _cost_ratio(one, adaptive, low, stages, Limits("above the lower", low=1.0)),
            _cost_ratio(one, adaptive, high, stages, Limits("below the higher", high=1.0)),
        ]
        return found_from(several, COUNTING)

    return judge


def costs_alike(stages: Sequence[str]) -> Judge:
    """At every point, the highest load in relation to the lowest."""

    def judge(points: Sequence[Loaded], adaptive: str) -> Found:
        several = []
        for one in points:
            loads = {name: one.of[name].total_ms(*stages) for name in ("late", "early", adaptive)}
            low, _, high = sorted(loads, key=loads.__getitem__)
            several.append(_cost_ratio(one, high, low, stages, SIMILAR))
        return found_from(several, COUNTING)

    return judge


def costs_follow_messages(*placements: str, through_zero: bool = False) -> Judge:
    """Over all points, how far the load is from a straight line over messages."""

    def judge(points: Sequence[Loaded], adaptive: str) -> Found:
        if len(points) < 3:
            return not_measured(f"{len(points)} points; a line shows from three on", LINEAR)
        several = []
        for name in placements:
            loads = [one.of[name] for one in points]
            up = [_cost(load, ()) for load in loads]
            rise, off = from_a_line([load.counted for load in loads], up, through_zero=through_zero)
            several += [
                Measure(f"{name}: rise in ms a second", Estimate(rise, up[-1].noise), Limits("grows", low=0.0), 1),
                Measure(f"{name}: farthest from the line, as a share of the rise", off, LINEAR),
            ]
        return found_from(several, COUNTING)

    return judge


# -- delay ------------------------------------------------------------------------------------------------------------


def _delay(load: Load) -> Estimate:
    return Estimate(load.delay_ms, inf if load.delay_error_ms is None else DEVIATIONS * load.delay_error_ms)


def delay_grows(points: Sequence[Loaded], adaptive: str) -> Found:
    """From the first point to the last, the delay of each of the three."""
    several = []
    for name in ("late", "early", adaptive):
        first, last = (_delay(points[at].of[name]) for at in (0, -1))
        label = f"{label_of(name)} {first.value:,.1f} to {last.value:,.1f} ms: increase of"
        rise = Measure(label, last - first, Limits("increases", low=0.0), 1, " ms", _decides(points[0], name))
        several.append(rise)
    return found_from(several, OVER_NOTIFICATIONS)


def delays(placement: str, others: Sequence[str], limits: Limits, *, above: float = -inf) -> Judge:
    """The delay, averaged over the points above a value, in relation to that of others."""

    def judge(points: Sequence[Loaded], adaptive: str) -> Found:
        chosen = [one for one in points if one.point.at > above]
        if not chosen:
            return not_measured(f"no point beyond {above:g}", limits)
        name = placement_named(placement, adaptive)
        several = []
        for other in (placement_named(one, adaptive) for one in others):
            ours, theirs = (mean_of([_delay(one.of[which]) for one in chosen]) for which in (name, other))
            label = f"{label_of(name)} {ours.value:,.1f} ms / {label_of(other)} {theirs.value:,.1f} ms:"
            several.append(Measure(label, ours / theirs, limits, decides=_decides(points[0], name, other)))
        at = ", ".join(f"{one.point.at:g}" for one in chosen)
        return found_from(several, f"{OVER_NOTIFICATIONS}, at {at}")

    return judge


# -- collection -------------------------------------------------------------------------------------------------------


def delay_follows_collection(points: Sequence[Loaded], adaptive: str) -> Found:
    """How far the delay is from a straight line over the collection delay."""
    if len(points) < 3:
        return not_measured(f"{len(points)} points; a line shows from three on", LINEAR)
    up = [_delay(one.of[adaptive]) for one in points]
    _, off = from_a_line([one.point.at for one in points], up)
    label = f"{label_of(adaptive)} {up[0].value:,.1f} to {up[-1].value:,.1f} ms: increase of"
    decides = _decides(points[0], adaptive)
    several = [
        Measure(label, up[-1] - up[0], Limits("increases", low=0.0), 1, " ms", decides),
        Measure("farthest from a straight line, as a share of its rise", off, LINEAR, decides=decides),
    ]
    return found_from(several, OVER_NOTIFICATIONS)


def _saved(points: Sequence[Loaded], adaptive: str, first: float, last: float, limits: Limits) -> Found:
    """The messages at one collection delay in relation to those at another."""
    ends = [one for at in (first, last) for one in points if one.point.at == at]
    if len(ends) < 2:
        return not_measured(f"of {first:g} and {last:g} ms at least one was left out", limits)
    before, after = (one.of[adaptive].messages for one in ends)
    ratio = Estimate(after / max(before, 1), counted(abs(after - before)).noise / max(before, 1))
    label = f"{label_of(adaptive)} {after:,} messages at {last:g} ms / {before:,} at {first:g} ms:"
    several = [Measure(label, ratio, limits, 4, decides=_decides(ends[0], adaptive))]
    return found_from(several, "2 √difference, as both runs have the same events")


collecting_saves: Judge = partial(_saved, first=1, last=20, limits=Limits("reduces by more than 3%", high=0.97))
collecting_saves_no_more: Judge = partial(
    _saved, first=20, last=50, limits=Limits("does not reduce, by more than 1%", low=0.99)
)
