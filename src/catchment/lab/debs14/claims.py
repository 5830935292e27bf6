"""What the paper says in words about its figures, word for word, and how each sentence is judged.

A sentence about ADAPTIVE is judged on the placement as the paper describes it, and once more on ours beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from catchment.lab.debs14 import judging_brokers as brokers
from catchment.lab.debs14 import judging_messages as messages
from catchment.lab.debs14.described import DESCRIBED, OURS
from catchment.lab.debs14.limits import (
    ADAPTIVE,
    FEWER,
    LESS,
    MORE,
    SIGNIFICANTLY_FEWER,
    SIGNIFICANTLY_LOWER,
    SIMILAR,
    times_more,
)
from catchment.lab.debs14.loads import STAGES
from catchment.lab.debs14.verdicts import Found

__all__ = ["CLAIMS", "PLAYED", "Claim", "Judged", "judged"]

PLAYED = ("7a", "7b", "7c", "7d", "7e", "7f", "8a", "8c")
"""Figures of load and delay, for which real brokers run in virtual time."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A sentence about a figure, or the part of one that can be judged."""

    figure: str
    words: str
    """Of the paper."""
    reading: str
    """Ours: which points and which figures it is judged by."""
    judge: Callable[[Sequence[Any], str], Found]
    adaptive: bool = False
    """Whether it is about ADAPTIVE, so that there are two to judge."""


@dataclass(frozen=True, slots=True)
class Judged:
    """A sentence with its verdict."""

    figure: str
    words: str
    reading: str
    found: Found
    """On the paper's placements."""
    ours: Found | None
    """On our adaptive one in the place of the paper's."""


def judged(claim: Claim, points: Sequence[Any]) -> Judged:
    """The verdict on a sentence, by the points of its figure in order."""

    def found(adaptive: str) -> Found:
        one = claim.judge(points, adaptive)
        return brokers.with_periods(one, points) if claim.adaptive and claim.figure in PLAYED else one

    ours = found(OURS) if claim.adaptive else None
    return Judged(claim.figure, claim.words, claim.reading, found(DESCRIBED), ours)


MATCHING, AGGREGATION = STAGES["matching"], STAGES["aggregation"]
LOW, HIGH = "at the lowest rate", "at the highest rate"
EARLY_AHEAD = "wherever EARLY sends fewer messages than LATE"
LATE_LESS = "LATE generates less messages than EARLY at low publication rates"
EARLY_FEWER = (
    "When the publication rate increases, this trend is reversed and EARLY aggregation generates significantly fewer "
    "messages than LATE."
)
LOW_AS_LATE = "For low publication rates, ADAPTIVE generates a similar number of messages as LATE for both datasets."
HIGH_MORE = (
    "for higher publication rates, ADAPTIVE generates more messages than EARLY, especially for the Stock dataset"
)

CLAIMS: tuple[Claim, ...] = (
    Claim("6a", LATE_LESS, LOW, messages.at_end(0, "late", "early", LESS)),
    Claim("6a", EARLY_FEWER, HIGH, messages.at_end(-1, "early", "late", SIGNIFICANTLY_FEWER)),
    Claim("6a", LOW_AS_LATE, LOW, messages.at_end(0, ADAPTIVE, "late", SIMILAR), True),
    Claim("6a", HIGH_MORE, EARLY_AHEAD, messages.more_than_early, True),
    Claim(
        "6a", "a total of over 1000 transitions are recorded during this period",
        "the period is from 50 to 300 publications a second; all points there together",
        messages.changes_over(1000, 50, 300), True,
    ),
    Claim(
        "6a", "when the publication rate exceeds 500 pubs/s, the gap between ADAPTIVE and EARLY is diminished",
        "at the highest rate, against the largest from 50 to 500", messages.diminishes(50, 500), True,
    ),
    Claim(
        "6a", "we observe no more than 330 transitions at a rate of 1033 pubs/s", "at this rate",
        messages.changes_at_most(330), True,
    ),
    Claim("6b", LATE_LESS, LOW, messages.at_end(0, "late", "early", LESS)),
    Claim("6b", EARLY_FEWER, HIGH, messages.at_end(-1, "early", "late", SIGNIFICANTLY_FEWER)),
    Claim("6b", LOW_AS_LATE, LOW, messages.at_end(0, ADAPTIVE, "late", SIMILAR), True),
    Claim("6b", HIGH_MORE, EARLY_AHEAD, messages.more_than_early, True),
    Claim(
        "6b", "For the Traffic dataset, the adaptation engine performs better with only 284 transitions",
        "at the highest rate; the paper does not say at which", messages.changes_at_most(284), True,
    ),
    Claim(
        "6b", "which leads to performance results closer to EARLY", "than to LATE, at the highest rate",
        messages.nearer_to_early, True,
    ),
    Claim(
        "6c", "For Stock, LATE performs better than EARLY while the opposite is true for Traffic.",
        "Stock, at every point", messages.everywhere("late", "early", FEWER),
    ),
    Claim(
        "6c", "the difference in the number of messages between EARLY and LATE increases for Stock",
        "from the fewest subscriptions to the most", messages.grows("early", "late"),
    ),
    Claim(
        "6c", "with EARLY sending up to 1.8 times more messages than LATE", "at the most subscriptions",
        messages.at_end(-1, "early", "late", times_more(1.8)),
    ),
    Claim(
        "6c", "ADAPTIVE sends a similar number of messages as LATE in that situation.", "at the most subscriptions",
        messages.at_end(-1, ADAPTIVE, "late", SIMILAR), True,
    ),
    Claim(
        "6d", "EARLY aggregation performs better than LATE.", "at every point",
        messages.everywhere("early", "late", FEWER),
    ),
    Claim(
        "6d", "increasing the number of subscriptions reduces the performance advantage of EARLY",
        "from the fewest subscriptions to the most", messages.grows("early", "late"),
    ),
    Claim(
        "6d", "with 45 subscriptions, LATE sends 1.8 times more messages", "at 45",
        messages.at_end(0, "late", "early", times_more(1.8)),
    ),
    Claim(
        "6d", "at 990 subscriptions, it sends only 1.2 times more messages", "at 990",
        messages.at_end(-1, "late", "early", times_more(1.2)),
    ),
    Claim(
        "6d",
        "When increasing the number of subscriptions to 540, the number of messages remains constant for ADAPTIVE "
        "while it increases for EARLY and LATE.",
        "from 360 to 540", messages.stays_constant(360, 540), True,
    ),
    Claim(
        "6e",
        "When the proportion of aggregate subscriptions increases, LATE (shown in red with each data-point being "
        "represented by a circle) reduces the number of messages proportionally.",
        "over all points", messages.falls_linearly("late"),
    ),
    Claim(
        "6e",
        "With a mix of regular and aggregate subscriptions, ADAPTIVE achieves the most reduction by leveraging the "
        "overlap between subscriptions.",
        "against the better of the two others, at every mix", messages.fewest_in_a_mix, True,
    ),
    Claim(
        "6e", "If there are only aggregate subscriptions, the ADAPTIVE solution performs similarly to EARLY.",
        "at 100 %", messages.at_end(-1, ADAPTIVE, "early", SIMILAR), True,
    ),
    Claim(
        "7a", "the cost for LATE is proportional to the number of messages exchanged for aggregation",
        "on a straight line through zero", brokers.costs_follow_messages("late", through_zero=True),
    ),
    Claim(
        "7b", "we observe similar costs for all three approaches", "the highest against the lowest, at every point",
        brokers.costs_alike(MATCHING), True,
    ),
    Claim(
        "7b", "EARLY performs better than LATE at high publication rates", HIGH,
        brokers.costs(-1, "early", ["late"], LESS, MATCHING),
    ),
    Claim(
        "7b", "The cost of predicate matching for ADAPTIVE is between those of EARLY and LATE", HIGH,
        brokers.costs_between(-1, MATCHING), True,
    ),
    Claim(
        "7c",
        "The computation overhead for ADAPTIVE includes an additional cost due to its adaptation engine which causes "
        "the computation cost to be higher relative to those of other solutions at low publication rates.",
        LOW, brokers.costs_most(0, ADAPTIVE, AGGREGATION), True,
    ),
    Claim(
        "7d", "when the publication rate is lower than 135 pubs/s, LATE performs better than EARLY",
        "at every point below 135", brokers.costs_below(135, "late", "early", LESS),
    ),
    Claim(
        "7d",
        "In this case, the ADAPTIVE solution simulates the behavior of the LATE solution, hence, their similar costs.",
        "at every point below 135", brokers.costs_below(135, ADAPTIVE, "late", SIMILAR), True,
    ),
    Claim(
        "7d", "for higher publication rates, ADAPTIVE adopts the EARLY approach, but is less efficient", HIGH,
        brokers.costs(-1, ADAPTIVE, ["early"], MORE), True,
    ),
    Claim(
        "7d",
        "LATE sends a significantly larger amount of publications compared to the two others and, hence, has the "
        "highest computation overhead.",
        HIGH, brokers.costs_most(-1, "late"), True,
    ),
    Claim(
        "7e", "the computation cost of LATE and EARLY varies according to the number of messages exchanged",
        "on a straight line", brokers.costs_follow_messages("late", "early"),
    ),
    Claim(
        "7e", "which causes ADAPTIVE to draw the highest computation cost", "at the most subscriptions",
        brokers.costs_most(-1, ADAPTIVE), True,
    ),
    Claim(
        "7f", "EARLY generates the least overhead", "at the most subscriptions",
        brokers.costs(-1, "early", ["late", ADAPTIVE], LESS), True,
    ),
    Claim(
        "7f", "As ADAPTIVE sends fewer messages than LATE, its computation overhead lies between LATE and EARLY.",
        "at the most subscriptions", brokers.costs_between(-1), True,
    ),
    Claim(
        "8a", "A general observation is that the delay increases with the number of subscriptions.",
        "from the fewest to the most, each of the three", brokers.delay_grows, True,
    ),
    Claim(
        "8a",
        "Since LATE aggregation does not perform RPP at intermediate brokers, its delay is significantly lower than "
        "other strategies.",
        "on average over all points", brokers.delays("late", ["early", ADAPTIVE], SIGNIFICANTLY_LOWER), True,
    ),
    Claim(
        "8a",
        "ADAPTIVE is mainly aggregating at the publisher edge broker for this workload configuration and thus performs "
        "similarly to EARLY.",
        "on average over all points", brokers.delays(ADAPTIVE, ["early"], SIMILAR), True,
    ),
    Claim(
        "8a", "for more than 500 subscriptions, ADAPTIVE has a slight advantage", "over EARLY, on average beyond 500",
        brokers.delays(ADAPTIVE, ["early"], LESS, above=500), True,
    ),
    Claim(
        "8b",
        "for a sampling period lower than 5s, the number of messages decreases linearly with the sampling period",
        "up to 5 s", messages.falls_linearly_below(5), True,
    ),
    Claim(
        "8b", "Afterwards, the number of messages remains constant.", "against that at 5 s",
        messages.constant_beyond(5), True,
    ),
    Claim(
        "8b",
        "when the sampling period is below 5s, brokers frequently switch between aggregate and forward mode (up to "
        "7838 times)",
        "the most at any period below 5 s", messages.changes_up_to(7838, 5), True,
    ),
    Claim(
        "8b", "the sampling period which can lead up to 55% more messages, if not properly set",
        "the most against the fewest of all points", messages.costs_up_to(0.55), True,
    ),
    Claim(
        "8c", "the notification delay varies linearly with the collection delay", "over all points",
        brokers.delay_follows_collection, True,
    ),
    Claim(
        "8c", "increasing this delay from 1 ms to 20 ms reduces the amount of messages sent by more than 3%",
        "from 1 to 20 ms", brokers.collecting_saves, True,
    ),
    Claim(
        "8c", "a collection delay greater than 20 ms does not further reduce the number of messages",
        "from 20 to 50 ms", brokers.collecting_saves_no_more, True,
    ),
)  # fmt: skip
