"""The topics that a client advertises.

Rule 1: a topic is asked for once, whoever waits for the answer: one that waits no more takes nothing from the others.
"""

from __future__ import annotations

import asyncio
from functools import partial

from catchment.broker import messages as m
from catchment.transport.sending import Sending

__all__ = ["Advertising"]


class Advertising:
    """What one life of a client has advertised, or is about to."""

    def __init__(self, sending: Sending) -> None:
        self._sending = sending
        self._answers: dict[str, asyncio.Future[m.Acknowledged]] = {}

    def __contains__(self, topic: str) -> bool:
        """Whether events of a topic may be published."""
        answer = self._answers.get(topic)
        return answer is not None and answer.done() and answer.exception() is None

    async def add(self, topic: str) -> None:
        """Advertise a topic, unless that is done; return once it is."""
        answer = self._answers.get(topic)
        if answer is None:
            answer = self._answers[topic] = self._sending.begin(m.AdvertiseTopic, topic)[0]
            answer.add_done_callback(partial(self._answered, topic))
        await asyncio.shield(answer)

    async def remove(self, topic: str) -> None:
        self._answers.pop(topic, None)
        await self._sending.ask(m.UnadvertiseTopic, topic)

    def _answered(self, topic: str, answer: asyncio.Future[m.Acknowledged]) -> None:
        if answer.exception() is not None and self._answers.get(topic) is answer:
            del self._answers[topic]
