"""A history of all that a broker accepts from its clients, as advice.

Rule 1: an event is recorded once, in the order in which the events of this broker were accepted, with its id and time.
Rule 2: what is recorded says how many events were recorded before, and the latest time of them: so a reader finds a
        number or a time without reading all that is before it, and knows whether something before it is gone.
Rule 3: a client may ask for a mark. It is recorded at every broker before the client is answered; an event that a
        broker accepted before its mark reaches the client, if at all, before that answer, as links keep their order.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from catchment.broker.advice import Advice, At, Proceed
from catchment.broker.messages import Recorded
from catchment.broker.peers import HERE
from catchment.broker.routing import Matched
from catchment.model.errors import ConfigurationError
from catchment.model.events import event_times_us

__all__ = ["NOTHING_RECORDED_US", "History"]

NOTHING_RECORDED_US = -(2**62)
"""The latest time of no events."""
MARK_CHARACTERS_MAX = 64


class History(Advice):
    """Records what clients publish here."""

    name = "history"

    def pub_send(
        self, at: At, proceed: Proceed, topic: str, events: pa.RecordBatch, matched: Matched, upstream: str
    ) -> None:
        if upstream == HERE:
            at.record(Recorded(*_before(at), topic, events))
            number, latest_us = _before(at)
            at.state["number"] = number + events.num_rows
            at.state["latest_us"] = max(latest_us, int(event_times_us(events).max()))
        proceed()

    def on_request(self, at: At, client: str, value: Any) -> None:
        """A client asks for a mark, which has a name of its choice."""
        if not isinstance(value, str) or not 0 < len(value) <= MARK_CHARACTERS_MAX:
            raise ConfigurationError(
                f"a mark is {str(value)[:80]!r}; accepted is a text of 1 to {MARK_CHARACTERS_MAX} characters"
            )
        self._mark(at, value, "")

    def on_message(self, at: At, sender: str, value: Any) -> None:
        self._mark(at, str(value), sender)

    def _mark(self, at: At, mark: str, sender: str) -> None:
        at.record(Recorded(*_before(at), mark=mark))
        for neighbour in at.neighbours:
            if neighbour != sender:
                at.tell(neighbour, mark, confirmed=True)


def _before(at: At) -> tuple[int, int]:
    """How many events were recorded so far, and their latest time."""
    return at.state.get("number", 0), at.state.get("latest_us", NOTHING_RECORDED_US)
