"""Subscriptions about topics that no event has: usually a slip of the pen, and always silence."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Iterable

from pyspark.sql import DataFrame

from catchment.model.subscription import Subscription
from catchment.pipeline.statistics import text_bounds

__all__ = ["AbsentTopicWarning", "absent_topics", "warn_of_absent_topics"]

_NAMED_MAX = 5


class AbsentTopicWarning(UserWarning):
    """A subscription is about a topic that none of the events has."""


def absent_topics(subscriptions: Iterable[Subscription], there: Collection[str], events: str = "event") -> list[str]:
    """A line for each topic that is asked about but not `there`."""
    return _lines(subscriptions, lambda topic: topic in there, _some(sorted(there)) or "none", events)


def warn_of_absent_topics(subscriptions: Iterable[Subscription], publications: DataFrame) -> None:
    """Warn where files say without being read that a topic cannot be in them.

    Called on the driver when a replay is planned: only Parquet files of this machine tell so much.
    """
    bounds = text_bounds(publications, "topic")
    if bounds is None:
        return
    low, high = bounds
    there = low if low == high else f"from {low} to {high}"
    for line in _lines(subscriptions, lambda topic: low <= topic <= high, there, "event"):
        warnings.warn(line, AbsentTopicWarning, stacklevel=3)  # the caller of `replay`


def _lines(
    subscriptions: Iterable[Subscription], is_there: Callable[[str], bool], there: str, events: str
) -> list[str]:
    askers: dict[str, list[str]] = {}
    for one in subscriptions:
        askers.setdefault(one.query.topic, []).append(one.name)
    return [
        f"no {events} has the topic {topic!r}, which {_some(names)} ask{'s' * (len(names) == 1)} about; "
        f"topics there: {there}"
        for topic, names in sorted(askers.items())
        if not is_there(topic)
    ]


def _some(names: list[str]) -> str:
    more = len(names) - _NAMED_MAX
    return ", ".join(names[:_NAMED_MAX]) + (f" and {more} more" if more > 0 else "")
