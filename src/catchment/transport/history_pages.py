"""A broker's process reads its history for clients, a page at a time, which may see some topics of it.

Rule 1: a page has the events of one topic, to which the user who asks may subscribe at that moment; of others it says
        nothing, not even how many there were.
Rule 2: nothing is kept between pages: a client names where it has come to, and may ask any process of this broker.
"""

from __future__ import annotations

import asyncio

from catchment.broker.frames import EPOCH, FrameWriter
from catchment.broker.messages import Recorded
from catchment.broker.rights import require_right_of
from catchment.transport.asking import Find, Found, Page, Read
from catchment.transport.context import LifeContext
from catchment.transport.granting import Granting
from catchment.transport.history import begin_for, history_state, recorded_in, require_kept
from catchment.transport.names import history_stream

__all__ = ["HistoryPages"]

PAGE_BYTES, PAGE_MESSAGES = 500_000, 1_000
"""Of stored messages: a page is one message, and the least that it can be is one of these."""
PAGES_MAX = 4
"""Pages that are read at a time, so that those who read the past leave time for what comes."""


class HistoryPages:
    """The history of one broker, for one life of its process."""

    def __init__(self, context: LifeContext, granting: Granting) -> None:
        self._streams, self._broker, self._granting = context.streams, context.name, granting
        self._free = asyncio.Semaphore(PAGES_MAX)

    async def find(self, user: str, asked: Find) -> Found:
        """Find where events from a time on begin; a HistoryGoneError if some of them are gone."""
        self._require(user, asked.topic)
        async with self._free:
            return Found(await begin_for(self._streams, self._broker, asked.since_us))

    async def read(self, user: str, asked: Read) -> Page:
        """Read a page; an empty one if nothing is stored behind the position yet."""
        self._require(user, asked.topic)
        async with self._free:
            return await self._page(asked)

    def _require(self, user: str, topic: str) -> None:
        require_right_of(user, self._granting.rights, "subscribe", topic)

    async def _page(self, asked: Read) -> Page:
        after, chosen, size_bytes = asked.after, list[Recorded](), 0
        is_marked = False
        found = await self._streams.several(
            history_stream(self._broker), after + 1, count=PAGE_MESSAGES, bytes_max=PAGE_BYTES
        )
        if not found or found[0].position > after + 1:
            require_kept(self._broker, await history_state(self._streams, self._broker), after)
        for stored in found:
            size_bytes += len(stored.data)
            if chosen and size_bytes > PAGE_BYTES:
                break
            after = stored.position
            for one in recorded_in(stored):
                is_mark = one.mark and one.mark == asked.mark
                if is_mark or (one.events is not None and one.topic == asked.topic):
                    # Smaller than it was, so that what was one frame is one again.
                    chosen.append(Recorded(0, 0, one.topic, one.events, one.mark))
                    is_marked = is_marked or bool(is_mark)
            if is_marked:
                # With what the same step has recorded behind the mark: the next page begins with the next step.
                break
        return Page(after, is_marked, self._frame(chosen))

    def _frame(self, chosen: list[Recorded]) -> bytes:
        if not chosen:
            return b""
        (frame,) = FrameWriter().frames(self._broker, chosen, incarnation=1, epoch=EPOCH, after=0, covers=0)
        return frame
