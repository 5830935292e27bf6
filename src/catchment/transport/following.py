"""A broker's process hands its broker what operators change about the overlay while it runs, as inputs.

Rule 1: only what is stored counts. A description that lost against another one's test-and-set is never heard of.
Rule 2: a process that starts hands over what its broker does not know yet, before any client may come.
Rule 3: a description that cannot be read changes nothing.
"""

from __future__ import annotations

from catchment.broker.broker import Broker
from catchment.broker.inputs import TopicPlaced, TopicsAdded
from catchment.broker.topics import extended, plain
from catchment.model.errors import CatchmentError
from catchment.transport.buckets import Bucket
from catchment.transport.context import LifeContext
from catchment.transport.description import BUCKET, KEY, Description
from catchment.transport.jetstream import Reader
from catchment.transport.notices import Notices

__all__ = ["Following"]


class Following:
    """The description of the overlay, as one life of a process follows it."""

    def __init__(self, context: LifeContext, notices: Notices) -> None:
        self._context, self._notices = context, notices
        self._bucket = Bucket(context.streams, BUCKET)
        self._reader: Reader | None = None
        self._placements: dict[str, str] = {}
        """What the broker knows, or will when it has handled what is noted."""

    async def start(self, broker: Broker) -> None:
        """Store what the broker does not know, and go on with what is changed from now on."""
        self._placements = dict(broker.placements)
        await self._bucket.create()
        entry = await self._bucket.read(KEY)
        if entry.value is not None:
            self._note(entry.value, broker)
            await self._notices.stored()
        self._reader = Reader(self._context.streams, self._bucket.stream, entry.version + 1)
        await self._reader.start()
        self._context.tasks.begin(self._follow(self._reader, broker))

    def stop(self) -> None:
        if self._reader is not None:
            self._reader.stop()

    async def _follow(self, reader: Reader, broker: Broker) -> None:
        while True:
            for stored in await reader.read(1):
                self._note(stored.data, broker)

    def _note(self, data: bytes, broker: Broker) -> None:
        try:
            description = Description.from_bytes(data)
            news = extended(broker.schemas, description.known_topics)
        except CatchmentError as error:
            self._context.report("changes no topics", "warning", reason=str(error))
            return
        if news:
            self._notices.note(TopicsAdded(plain(news)))
        for topic, placement in sorted(description.placements.items()):
            if self._placements.get(topic) != placement:
                self._placements[topic] = placement
                self._notices.note(TopicPlaced(topic, placement))
