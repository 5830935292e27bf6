"""Verdicts on the paper's sentences: limits, noise, and what shorter runs make of both."""

from dataclasses import replace
from math import inf

import pytest

from catchment.lab.debs14 import judging_messages as messages
from catchment.lab.debs14.claims import CLAIMS, PLAYED, Claim, judged
from catchment.lab.debs14.described import ADAPTIVES, DESCRIBED, OURS
from catchment.lab.debs14.limits import MORE
from catchment.lab.debs14.loads import Load, Loaded
from catchment.lab.debs14.measuring import PARTS, Measured, Sent, measure
from catchment.lab.debs14.points import source_rows, workload
from catchment.lab.debs14.reproducing import QUICK
from catchment.lab.debs14.verdicts import Estimate, Limits, Verdict, counted, from_a_line, ratio_of_parts, worst

WORKLOAD = workload()
SIMILAR = Limits("similar", low=0.9, high=1.1)


def claim(figure: str, words: str) -> Claim:
    [found] = [one for one in CLAIMS if one.figure == figure and words in one.words]
    return found


def sent(*parts: int, transitions: int = 0) -> Sent:
    return Sent(sum(parts), 0, 0, 0, 0.0, transitions, parts)


def measured(figure: str, at: int = -1, *, seconds: float = 1000.0, **by_name: Sent) -> Measured:
    """A point; what is not given sends 100 in each part."""
    names = {"described": DESCRIBED, "ours": OURS}
    given = dict.fromkeys(("late", "early", *ADAPTIVES), sent(*[100] * PARTS))
    given.update({names.get(name, name): one for name, one in by_name.items()})
    return Measured(replace(WORKLOAD.of(figure)[at], seconds=seconds), 0, 0, 0, given)


def load(
    cost_ms: float = 100.0, *, messages: int = 10_000, delay_ms: float = 50.0, error_ms: float | None = 1.0
) -> Load:
    return Load({"match": cost_ms, "add": cost_ms}, 0.0, messages, float(messages), delay_ms, error_ms, 100, 0)


def loaded(figure: str, at: int = -1, *, seconds: float = 24.0, **by_name: Load) -> Loaded:
    names = {"described": DESCRIBED, "ours": OURS}
    given = dict.fromkeys(("late", "early", *ADAPTIVES), load())
    given.update({names.get(name, name): one for name, one in by_name.items()})
    point = WORKLOAD.of(WORKLOAD.simulated.like.get(figure, figure))[at]
    return Loaded(replace(point, seconds=seconds), given)


# -- limits and noise -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("estimate", "verdict"),
    [
        (Estimate(1.018, 0.017), "agrees"),
        (Estimate(1.018, 0.018), "undecided"),
        (Estimate(1.018, 0.02), "undecided"),
        (Estimate(0.98, 0.03), "undecided"),
        (Estimate(0.98, 0.01), "differs"),
        (Estimate(1.0), "undecided"),
        (Estimate(5.0, inf), "undecided"),
    ],
)
def test_more_than_is_undecided_within_the_noise(estimate: Estimate, verdict: Verdict) -> None:
    assert MORE.verdict(estimate) == verdict


@pytest.mark.parametrize(
    ("value", "verdict"),
    [(0.87, "differs"), (0.89, "undecided"), (0.91, "undecided"), (0.93, "agrees"), (1.07, "agrees"),
     (1.09, "undecided"), (1.11, "undecided"), (1.13, "differs")],
)  # fmt: skip
def test_similar_has_an_undecided_band_at_both_limits(value: float, verdict: Verdict) -> None:
    assert SIMILAR.verdict(Estimate(value, 0.02)) == verdict


def test_limits_are_told_in_words_and_numbers() -> None:
    assert str(SIMILAR) == "similar: 0.9 to 1.1"
    assert str(MORE) == "more: above 1"
    assert str(Limits("no more than 330", high=9.9)) == "no more than 330: below 9.9"


def test_a_sentence_is_as_right_as_its_weakest_part() -> None:
    assert worst(["agrees", "agrees"]) == "agrees"
    assert worst(["agrees", "undecided"]) == "undecided"
    assert worst(["undecided", "differs", "agrees"]) == "differs"
    assert worst([]) == "undecided"


def test_the_noise_of_a_ratio_is_the_spread_of_its_parts() -> None:
    assert ratio_of_parts([110] * 5, [100] * 5) == Estimate(pytest.approx(1.1), pytest.approx(0.0))
    started_late = ratio_of_parts([123, 98, 98, 98, 98], [100] * 5)
    assert started_late.value == pytest.approx(1.03)
    # The standard error of five parts, times Student's t for four degrees of freedom.
    assert started_late.noise == pytest.approx(2.78 * 0.05)
    assert ratio_of_parts([1, 2], [0, 0]).noise == inf


def test_the_noise_of_a_count_shrinks_with_what_was_counted() -> None:
    few, many = counted(25), counted(2500)
    assert few.noise / few.value == pytest.approx(0.4)
    assert many.noise / many.value == pytest.approx(0.04)
    assert counted(0) == Estimate(0, 2.0)


def test_independent_noise_adds_up_by_squares() -> None:
    assert (Estimate(10, 3) - Estimate(4, 4)) == Estimate(6, 5)
    assert (Estimate(10, 1) / Estimate(5, 0)).noise == pytest.approx(0.2)
    assert (Estimate(10, 1) / Estimate(0, 1)).noise == inf


def test_distance_from_a_line_is_a_share_of_its_rise() -> None:
    rise, off = from_a_line([0, 1, 2], [Estimate(0, 1), Estimate(10, 1), Estimate(20, 1)])
    assert (rise, off) == (20, Estimate(0, 0.05))
    _, bent = from_a_line([0, 1, 2], [Estimate(0), Estimate(20), Estimate(20)])
    assert bent.value == pytest.approx(1 / 3)
    assert from_a_line([1, 1], [Estimate(0), Estimate(20)]) == (0, Estimate(inf, inf))


# -- sentences --------------------------------------------------------------------------------------------------------


def points_of(figure: str) -> list[Measured] | list[Loaded]:
    """All points of a figure, at which nothing differs."""
    if figure in PLAYED:
        return [loaded(figure, at) for at in range(len(WORKLOAD.of(WORKLOAD.simulated.like[figure])))]
    return [measured(figure, at) for at in range(len(WORKLOAD.of(figure)))]


@pytest.mark.parametrize("one", CLAIMS, ids=lambda one: f"{one.figure} {one.words[:40]}")
def test_every_verdict_prints_its_numbers_noise_and_limits(one: Claim) -> None:
    found = judged(one, points_of(one.figure))
    assert (found.ours is not None) == one.adaptive
    for verdict in (found.found, *([found.ours] if found.ours else [])):
        assert "noise: " in verdict.tolerance
        if not verdict.figures.startswith("not measured"):
            assert "±" in verdict.figures
            assert any(side in verdict.tolerance for side in (": above ", ": below ", " to "))


@pytest.mark.parametrize("one", CLAIMS, ids=lambda one: f"{one.figure} {one.words[:40]}")
def test_a_single_point_never_decides_about_several(one: Claim) -> None:
    found = judged(one, points_of(one.figure)[:1]).found
    several = (
        "delay increases",
        "increases for",
        "diminished",
        "constant",
        "linear",
        "proportional",
        "varies",
        "total of",
        "20 ms",
    )
    if any(word in one.words for word in several):
        assert found.verdict == "undecided"


def test_sentences_about_adaptive_are_judged_on_the_one_described() -> None:
    much = sent(*[130] * PARTS)
    only_described = judged(claim("6c", "similar number"), [measured("6c", described=much)])
    only_ours = judged(claim("6c", "similar number"), [measured("6c", ours=much)])
    assert (only_described.found.verdict, only_described.ours and only_described.ours.verdict) == ("differs", "agrees")
    assert (only_ours.found.verdict, only_ours.ours and only_ours.ours.verdict) == ("agrees", "differs")
    assert only_ours.found.figures.startswith("adaptive as described / late at 810: 1.000 ± 0.000")
    assert only_ours.ours is not None
    assert only_ours.ours.figures.startswith("our adaptive / late at 810: 1.300 ± 0.000")


def test_the_one_described_changes_its_mode_far_more_often() -> None:
    point = replace(WORKLOAD.of("8b")[0], seconds=8.0, subscriptions=120)
    found = measure(point, source_rows("stock", None), ADAPTIVES)
    assert found.sent[DESCRIBED].transitions > 4 * found.sent[OURS].transitions > 0


def test_a_ratio_that_comes_from_the_first_part_alone_is_undecided() -> None:
    learning = sent(1230, 985, 985, 985, 985)
    point = measured("6a", late=sent(*[1400] * PARTS), early=sent(*[1000] * PARTS), described=learning)
    found = judged(claim("6a", "more messages than EARLY"), [point]).found
    assert found.verdict == "undecided"
    assert found.figures == "adaptive as described / early at 1033: 1.034 ± 0.136"
    assert found.tolerance == "more: above 1; noise: spread over 5 parts of 200 s"


@pytest.mark.parametrize(
    ("seconds", "transitions", "verdict"),
    [(1000, 280, "agrees"), (1000, 320, "undecided"), (1000, 400, "differs"),
     (30, 4, "agrees"), (30, 12, "undecided"), (30, 280, "differs")],
)  # fmt: skip
def test_the_papers_transitions_are_scaled_to_the_length_of_a_run(
    seconds: float, transitions: int, verdict: Verdict
) -> None:
    point = measured("6a", seconds=seconds, described=sent(*[100] * PARTS, transitions=transitions))
    found = judged(claim("6a", "no more than 330"), [point]).found
    assert found.verdict == verdict
    assert f"no more than 330: below {330 * seconds / 1000:,.4g}" in found.tolerance


def test_quick_runs_are_judged_by_scaled_limits() -> None:
    seconds = QUICK["seconds"]
    assert seconds < 1000
    for transitions, verdict in ((round(7838 * seconds / 1000), "agrees"), (7838, "differs")):
        point = measured("8b", 0, seconds=seconds, described=sent(*[100] * PARTS, transitions=transitions))
        assert judged(claim("8b", "7838"), [point]).found.verdict == verdict


def test_transitions_of_several_points_are_added() -> None:
    over = claim("6a", "over 1000 transitions")
    few = [measured("6a", at, described=sent(*[100] * PARTS, transitions=100)) for at in range(3, 9)]
    assert judged(over, few).found.verdict == "differs"
    # Points that were left out could have had the rest of them.
    assert judged(over, few[1:]).found.verdict == "undecided"
    points = [measured("6a", at, described=sent(*[100] * PARTS, transitions=200)) for at in range(3, 9)]
    found = judged(over, points).found
    assert found.verdict == "agrees"
    assert found.figures == "adaptive as described at 50, 75, 100, 150, 200, 300 together: 1,200 ± 69 transitions"


def test_a_sentence_about_a_point_that_was_left_out_is_undecided() -> None:
    found = judged(claim("6d", "remains constant"), [measured("6d", 0), measured("6d", -1)]).found
    assert (found.verdict, found.figures) == (
        "undecided", "not measured: of 360 and 540 at least one was left out"
    )  # fmt: skip


@pytest.mark.parametrize(
    ("error_ms", "last_ms", "verdict"),
    [(1.0, 82.0, "undecided"), (0.5, 82.0, "agrees"), (1.0, 90.0, "agrees"), (1.0, 75.0, "differs"),
     (None, 500.0, "undecided")],
)  # fmt: skip
def test_a_delay_increases_if_it_does_so_beyond_its_noise(
    error_ms: float | None, last_ms: float, verdict: Verdict
) -> None:
    first, last = (load(delay_ms=at, error_ms=error_ms) for at in (80.0, last_ms))
    same = {"late": first, "early": first, "described": first}
    points = [loaded("8a", 0, **same), loaded("8a", -1, **dict.fromkeys(same, last))]
    found = judged(claim("8a", "delay increases"), points).found
    assert found.verdict == verdict


def test_the_noise_of_a_load_is_that_of_its_messages() -> None:
    for count, verdict in ((1_000, "undecided"), (100_000, "agrees")):
        points = [loaded("7b", early=load(95, messages=count), late=load(100, messages=count))]
        assert judged(claim("7b", "EARLY performs better"), points).found.verdict == verdict


def test_adaptive_is_not_judged_by_runs_of_few_sampling_periods() -> None:
    similar = claim("8a", "performs similarly to EARLY")
    points = [loaded("8a", 0), loaded("8a", -1)]
    assert judged(similar, points).found.verdict == "agrees"
    short = [replace(one, point=replace(one.point, seconds=3.0)) for one in points]
    found = judged(similar, short).found
    assert found.verdict == "undecided"
    assert found.tolerance.endswith("adaptive decides from 4 sampling periods a run on, here 1.5")


def test_what_late_and_early_do_is_judged_by_short_runs_too() -> None:
    least = claim("7f", "EARLY generates")
    for cost_ms, verdict in ((50, "undecided"), (150, "differs")):
        points = [loaded("7f", seconds=3.0, early=load(cost_ms))]
        assert judged(least, points).found.verdict == verdict
    assert judged(least, [loaded("7f", seconds=24.0, early=load(50))]).found.verdict == "agrees"


@pytest.mark.parametrize(("messages", "verdict"), [(9_950, "differs"), (9_690, "undecided"), (9_600, "agrees")])
def test_saved_messages_are_uncertain_by_their_own_number(messages: int, verdict: Verdict) -> None:
    points = [loaded("8c", 0), loaded("8c", 3, described=load(messages=messages))]
    assert judged(claim("8c", "more than 3%"), points).found.verdict == verdict


def test_messages_of_the_last_hop_count_in_every_part() -> None:
    point = measured("6e", early=sent(*[50] * PARTS))
    point = replace(point, notifications=100 * PARTS)
    judge = messages.at_end(-1, "early", "late", MORE)
    assert judge([point], DESCRIBED).figures == "early / late at 1: 0.750 ± 0.000"
