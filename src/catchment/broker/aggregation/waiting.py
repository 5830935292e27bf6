"""When to tell something by the clock, with revisions: sections 5.2.2 and 5.2.3 of the paper.

Publications wait, after the end of their window, for as long as they took of late to come here: the waiting time.
Partials wait for others of the same window: the collection delay.
"""

from __future__ import annotations

from typing import Any

from catchment.broker.advice import At
from catchment.broker.aggregation.asking import Base
from catchment.broker.aggregation.options import AggregationOptions
from catchment.broker.aggregation.places import Due, Place, Wanted

__all__ = ["Waiting", "timer_key"]


def timer_key(what: str, topic: str, side: str) -> str:
    """The name of a timer."""
    return f"{what}\x1f{topic}\x1f{side}"


class Waiting:
    """The timers of one topic. Without revisions there are none."""

    def __init__(self, topic: str, broker: str, options: AggregationOptions) -> None:
        self._topic, self._broker, self._options = topic, broker, options
        self._took: dict[str, list[int]] = {}
        """Of each base, how long publications took at most in the last two shifts, and which the last one is."""

    def for_publication(self, at: At, place: Place, due: Due, base: Base) -> None:
        took_us = max(self._took.get(base.key, (0, 0))[:2])
        for end_us, item in due:
            self._wake(at, place, item, max(at.now_us, end_us + took_us))

    def for_partial(self, at: At, place: Place, due: Due) -> None:
        for end_us, item in due:
            delay_us = self._options.collection_delay_us(self._broker, end_us)
            self._wake(at, place, item, max(at.now_us, end_us) + delay_us)

    def _wake(self, at: At, place: Place, item: Any, due_us: int) -> None:
        if self._options.revises and place.agenda.wake(item, due_us):
            at.wake(timer_key("tell", self._topic, place.side), due_us)

    def observe(self, base: Base, time_us: int, wanted: Wanted, now_us: int, *, was_held: bool) -> None:
        """Learn how long a publication took to come here; one that was held set out when its stride had ended."""
        if self._options.revises:
            window, slice_ = base.window, wanted.slice
            set_out_us = window.stride_end_us(window.stride_of(slice_)) if was_held else time_us
            shift = window.last_window(slice_)
            took = self._took.setdefault(base.key, [0, 0, shift])
            if shift > took[2]:
                took[:] = [took[1], 0, shift]
            took[1] = max(took[1], now_us - set_out_us)

    def forget(self, key: str) -> None:
        self._took.pop(key, None)

    def plain(self) -> dict[str, list[int]]:
        return self._took

    def restore(self, plain: dict[str, list[int]]) -> None:
        self._took = plain
