"""Clients: what they asked for, what they were told, and what reached them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from catchment.broker import messages as m
from catchment.broker.frames import Frame
from catchment.model.subscription import Subscription

__all__ = ["Client", "Publication", "Request", "Wish"]


@dataclass(slots=True)
class Request:
    """What a client asked, when, and how it ended."""

    message: Any
    asked_us: int
    rested_us: int
    """When, before that, nothing was under way in the whole overlay."""
    answered_us: int | None = None
    refused: str | None = None


@dataclass(slots=True)
class Wish:
    """A subscription's life."""

    client: str
    name: str
    asked: Request
    ended: Request | None = None
    received: list[str] = field(default_factory=list)
    """Ids of events, in the order in which they came."""

    @property
    def topic(self) -> str:
        return Subscription(self.name, sql=self.asked.message.sql).query.topic


@dataclass(frozen=True, slots=True)
class Publication:
    """An event that a broker has accepted."""

    event_id: str
    client: str
    topic: str
    values: dict[str, Any]
    accepted_us: int


class Client:
    """One client at one broker. It counts what came, so that what comes twice counts once."""

    def __init__(self, name: str, broker: str) -> None:
        self.name, self.broker = name, broker
        self.requests: list[Request] = []
        self.wishes: dict[str, Wish] = {}
        self.past: list[Wish] = []
        self.advertised: set[str] = set()
        """Topics whose advertisement was acknowledged and not taken back."""
        self._latest: dict[str, int] = {}
        """The last request about each topic's advertisement."""
        self._sent = [0, 0]
        self._received = [0, 0]
        self.repeats = 0

    def ask(self, kind: type, now_us: int, rested_us: int, *fields: Any) -> Frame:
        """The frame of a new request."""
        message = kind(len(self.requests), *fields)
        request = Request(message, now_us, rested_us)
        self.requests.append(request)
        if kind is m.SubscribeTo:
            self.wishes[fields[0]] = Wish(self.name, fields[0], request)
        elif kind is m.UnsubscribeFrom:
            wish = self.wishes.pop(fields[0])
            wish.ended = request
            self.past.append(wish)
        elif kind is m.UnadvertiseTopic:
            self.advertised.discard(fields[0])
        if kind in (m.AdvertiseTopic, m.UnadvertiseTopic):
            self._latest[fields[0]] = message.request
        self._sent[message.is_event] += 1
        return Frame(self.name, self._sent[message.is_event], message)

    def receive(self, frame: Frame, now_us: int) -> None:
        message = frame.message
        if frame.sequence <= self._received[message.is_event]:
            self.repeats += 1
            return
        assert frame.sequence == self._received[message.is_event] + 1, f"{self.name} missed a frame before {frame}"
        self._received[message.is_event] = frame.sequence
        if isinstance(message, m.Delivered):
            self._delivered(message)
            return
        assert isinstance(message, (m.Acknowledged, m.Refused))
        request = self.requests[message.request]
        assert request.answered_us is None, f"{self.name} was answered twice: {frame}"
        request.answered_us = now_us
        if isinstance(message, m.Refused):
            request.refused = message.reason
        elif isinstance(request.message, m.AdvertiseTopic) and self._latest[request.message.topic] == message.request:
            # An answer from before it was taken back says nothing about the advertisement that followed.
            self.advertised.add(request.message.topic)

    def _delivered(self, message: m.Delivered) -> None:
        ids = message.events.column("event_id").to_pylist()
        known = {**{wish.name: wish for wish in self.past}, **self.wishes}
        for name, rows in sorted(message.wanted.items()):
            known[name].received += [ids[row] for row in rows]

    @property
    def all_wishes(self) -> list[Wish]:
        return [*self.past, *self.wishes.values()]


def publications_of(frame: Frame, now_us: int) -> list[Publication]:
    """The events of a request to publish that a broker has just accepted."""
    message = frame.message
    assert isinstance(message, m.PublishEvents)
    events: pa.RecordBatch = message.events
    ids = events.column("event_id").to_pylist()
    return [
        Publication(event_id, frame.sender, message.topic, values, now_us)
        for event_id, values in zip(ids, events.to_pylist(), strict=True)
    ]
