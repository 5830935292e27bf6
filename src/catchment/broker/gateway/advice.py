"""The gateway of a broker: a client of it that publishes for all who are none.

Rule 1: the gateway advertises a topic when the first good post of it comes, holds the events until the advertisement is
        confirmed, and takes it back once nothing was posted for a lease. Then no window waits for it any more.
Rule 2: a post that is not understood, or that the broker would not take, is refused alone, with the reason.
Rule 3: a post was stored before the broker sees it, and is not refused because there is no room beyond the broker.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pyarrow as pa

from catchment.broker import messages as m
from catchment.broker.advice import Advice, At
from catchment.broker.frames import fitting_batches
from catchment.broker.gateway.decoding import TopicDecoder
from catchment.broker.gateway.options import GatewayOptions
from catchment.broker.inputs import Post
from catchment.model.schema import Schema

__all__ = ["LATE", "UNPUBLISHED", "Gateway"]

LATE = "posted events that came too late"
UNPUBLISHED = "posted events that were refused"
BATCH_BYTES = 1_000
"""What a batch that is held takes besides its values."""


@dataclass(slots=True)
class _Topic:
    """A topic that the gateway advertises."""

    advertising: int
    """The request that is not acknowledged yet; 0 once it is."""
    posted_us: int = 0
    """When something was last posted."""
    held: list[pa.RecordBatch] = field(default_factory=list)
    """Events that wait for the acknowledgement."""
    held_bytes: int = 0

    def hold(self, batches: Sequence[pa.RecordBatch]) -> None:
        self.held += batches
        self.held_bytes += sum(batch.get_total_buffer_size() + BATCH_BYTES for batch in batches)

    def release(self) -> list[pa.RecordBatch]:
        held, self.held, self.held_bytes = self.held, [], 0
        return held


class Gateway(Advice):
    """Publishes what is posted to one broker."""

    name = "gateway"

    def __init__(self, options: GatewayOptions | None = None) -> None:
        self._options = options or GatewayOptions()
        self._decoders: dict[str, TopicDecoder] = {}
        self._topics: dict[str, _Topic] = {}

    def on_posted(self, at: At, topic: str, posts: Sequence[Post]) -> Mapping[int, str] | None:
        if topic not in at.schemas:
            reason = f"unknown topic {topic!r}; known are {', '.join(sorted(at.schemas))}"
            return dict.fromkeys(range(len(posts)), reason)
        found = self._decoder(at, topic).decode(posts, partial(at.checked, topic))
        if not found.batches:
            return found.refused
        state = self._topics.get(topic)
        if state is None:
            state = self._topics[topic] = _Topic(at.advertise(topic))
            at.wake(topic, at.now_us + self._options.lease_us)
        state.posted_us = at.now_us
        if not state.advertising:
            self._publish(at, topic, found.batches)
            return found.refused
        if state.held_bytes > self._options.held_bytes_max:
            reason = (
                f"{state.held_bytes} bytes of topic {topic!r} wait for its advertisement to be confirmed; "
                f"accepted are {self._options.held_bytes_max}"
            )
            return dict.fromkeys(range(len(posts)), reason) | found.refused
        state.hold(found.batches)
        return found.refused

    def _decoder(self, at: At, topic: str) -> TopicDecoder:
        if topic not in self._decoders:
            self._decoders[topic] = TopicDecoder(topic, at.schemas[topic])
        return self._decoders[topic]

    def on_topic_added(self, at: At, topic: str, schema: Schema) -> None:
        self._decoders.pop(topic, None)

    def _publish(self, at: At, topic: str, batches: Sequence[pa.RecordBatch]) -> None:
        for batch in batches:
            for part in fitting_batches(topic, batch):
                at.publish(topic, part)

    def on_received(self, at: At, message: m.ForClient) -> None:
        if not isinstance(message, (m.Acknowledged, m.Refused)):
            return
        topic = next((name for name, one in self._topics.items() if one.advertising == message.request), None)
        if isinstance(message, m.Refused):
            if topic is not None:
                del self._topics[topic]
            at.report(UNPUBLISHED, message.reason)
        elif topic is not None:
            state = self._topics[topic]
            state.advertising = 0
            self._publish(at, topic, state.release())
        for event_id in message.dropped if isinstance(message, m.Acknowledged) else ():
            at.report(LATE, event_id)

    def on_timer(self, at: At, key: str) -> None:
        state = self._topics.get(key)
        if state is None:
            return
        # One that is not confirmed yet may have events to publish.
        since_us = at.now_us if state.advertising else state.posted_us
        if at.now_us < since_us + self._options.lease_us:
            at.wake(key, since_us + self._options.lease_us)
            return
        del self._topics[key]
        at.unadvertise(key)

    def sizes(self) -> dict[str, int]:
        return {"bytes that the gateway holds": sum(one.held_bytes for one in self._topics.values())}

    def saved(self) -> Any:
        return {
            name: (one.advertising, one.posted_us, list(one.held), one.held_bytes) for name, one in self._topics.items()
        }

    def restore(self, at: At, saved: Any) -> None:
        self._topics = {name: _Topic(*fields) for name, fields in saved.items()}
