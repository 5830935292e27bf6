"""What foreign publishers, who are no clients, hear of what they posted, and what an operator does.

Rule 1: a publisher is answered where it may listen itself, in an inbox: what a broker may publish, others may not.
Rule 2: posts that were stored in vain are reported, as their publishers may not have asked: the first of each step.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec

from catchment.broker.broker import Broker
from catchment.broker.gateway import LATE, UNPUBLISHED
from catchment.broker.inputs import TAKEN, Input, Posted, Step
from catchment.transport.context import LifeContext
from catchment.transport.jetstream import Stored

__all__ = ["REPLY", "PostOutcomes", "reply_subject"]

REPLY = "Catchment-Reply"
"""The header that names an inbox where a publisher wants to hear what became of its post."""
_IN_HEAD = REPLY.encode()
_INBOX = re.compile(r"_INBOX[^\s.*>]*(\.[^\s.*>]+)+")


def reply_subject(stored: Stored) -> str | None:
    """Where a publisher wants to hear what became of its post, if that is an inbox."""
    if _IN_HEAD not in stored.head:
        return None
    named = stored.headers.get(REPLY, "")
    return named if _INBOX.fullmatch(named) else None


class PostOutcomes:
    """Answers and reports posts during one life of a broker."""

    def __init__(self, context: LifeContext) -> None:
        self._context = context
        self._reported: Counter[str] = Counter()
        """How many posted events were late, or refused by the broker, when that was last reported."""

    def settle(self, inputs: Sequence[Input], entries: Mapping[int, Stored], step: Step, broker: Broker) -> None:
        """Tell what became of the posts of a step."""
        refused: list[tuple[Stored, str]] = []
        for one, outcome in zip(inputs, step.outcomes, strict=True):
            if not isinstance(one.item, Posted):
                continue
            stored = entries[one.position]
            if outcome is not TAKEN:
                refused.append((stored, outcome.reason))
            if stored.head and (inbox := reply_subject(stored)) is not None:
                said = {"kind": outcome.kind, "reason": outcome.reason}
                self._context.streams.connection.publish(inbox, msgspec.json.encode(said))
        if refused:
            stored, reason = refused[0]
            self._context.report(
                "refuses what was posted", "warning", position=stored.position, subject=stored.subject,
                messages=len(refused), reason=reason,
            )  # fmt: skip
        for what in (LATE, UNPUBLISHED):
            count = broker.counters[what]
            if count > self._reported[what]:
                last = broker.weaver.reports.get(what, "")
                self._context.report("counts what was posted in vain", "warning", what=what, events=count, last=last)
                self._reported[what] = count
