"""Clients: what they asked for, what they were told, and what reached them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pyarrow as pa

from catchment.broker import messages as m
from catchment.broker.client import Session, WindowValue, window_values
from catchment.model.subscription import Subscription

__all__ = ["Client", "Publication", "Request", "Wish", "publications_of"]


@dataclass(slots=True)
class Request:
    """What a client asked, when, and how it ended."""

    message: Any
    asked_us: int
    rested_us: int
    """When, before that, nothing was under way in the whole overlay."""
    answered_us: int | None = None
    refused: str | None = None
    dropped: tuple[str, ...] = ()
    """Ids of events that came too late."""


@dataclass(slots=True)
class Wish:
    """A subscription's life."""

    client: str
    name: str
    asked: Request
    ended: Request | None = None
    received: list[str] = field(default_factory=list)
    """Ids of events, in the order in which they came."""
    received_us: list[int] = field(default_factory=list)
    """When they came."""
    values: list[tuple[int, WindowValue]] = field(default_factory=list)
    """Values of windows, and when they came."""

    @property
    def subscription(self) -> Subscription:
        return Subscription(self.name, sql=self.asked.message.sql)

    @property
    def topic(self) -> str:
        return self.subscription.query.topic

    @property
    def is_regular(self) -> bool:
        return self.subscription.is_regular


@dataclass(frozen=True, slots=True)
class Publication:
    """An event that a broker has accepted."""

    event_id: str
    client: str
    topic: str
    values: dict[str, Any]
    """With the time stamp, in microseconds, that it has or was given."""
    accepted_us: int


class Client:
    """One client at one broker, and all that happened to it."""

    def __init__(self, name: str, broker: str) -> None:
        self.name, self.broker = name, broker
        self._session = Session(name)
        self.reads = True
        """Whether it takes what comes; else that waits with its broker."""
        self.is_away = False
        """Whether it has parked."""
        self.pauses_us: list[tuple[int, int]] = []
        """From when to when it did not read."""
        self.missed: int | None = None
        """How many frames it missed, once it was dropped for not reading."""
        self.informed: list[tuple[str, Any]] = []
        """What advice has told it, in the order in which it came."""
        self.requests: list[Request] = []
        self.wishes: dict[str, Wish] = {}
        self.past: list[Wish] = []
        self.advertised: set[str] = set()
        """Topics whose advertisement was acknowledged and not taken back."""
        self._latest: dict[str, int] = {}
        """The last request about each topic's advertisement."""

    def ask(self, kind: type, now_us: int, rested_us: int, *fields: Any) -> list[bytes]:
        """The frames of a new request."""
        number, frames = self._session.ask(kind, *fields)
        request = Request(self._session.open[number], now_us, rested_us)
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
            self._latest[fields[0]] = number
        return frames

    @property
    def is_answered(self) -> bool:
        """Whether none of its requests is under way."""
        return not self._session.open

    @property
    def is_dropped(self) -> bool:
        """Whether its broker knows it no more."""
        return self.missed is not None

    def resume(self) -> int:
        """Begin another life; which one it is."""
        self._session = self._session.resumed()
        return self._session.incarnation

    def receive(self, data: bytes, now_us: int) -> tuple[m.Message, ...]:
        """What a frame of its broker says that is new."""
        messages = self._session.receive(data)
        for message in messages:
            if isinstance(message, m.Delivered):
                self._delivered(message, now_us)
            elif isinstance(message, m.Notified):
                self._notified(message, now_us)
            elif isinstance(message, m.Informed):
                self.informed.append((message.advice, msgspec.msgpack.decode(message.body)))
            elif isinstance(message, m.Dropped):
                self.missed = message.frames
            else:
                assert isinstance(message, (m.Acknowledged, m.Refused))
                self._answered(message, now_us)
        return messages

    def _answered(self, message: m.Acknowledged | m.Refused, now_us: int) -> None:
        request = self.requests[message.request - 1]
        request.answered_us = now_us
        if isinstance(message, m.Refused):
            request.refused = message.reason
            return
        request.dropped = message.dropped
        if isinstance(request.message, m.AdvertiseTopic) and self._latest[request.message.topic] == message.request:
            # An answer from before it was taken back says nothing about the advertisement that followed.
            self.advertised.add(request.message.topic)

    def _delivered(self, message: m.Delivered, now_us: int) -> None:
        ids = message.events.column("event_id").to_pylist()
        known = {**{wish.name: wish for wish in self.past}, **self.wishes}
        for name, rows in sorted(message.wanted.items()):
            known[name].received += [ids[row] for row in rows.tolist()]
            known[name].received_us += [now_us] * len(rows)

    def _notified(self, message: m.Notified, now_us: int) -> None:
        known = {**{wish.name: wish for wish in self.past}, **self.wishes}
        for one in window_values(message):
            known[one.subscription].values.append((now_us, one))

    @property
    def all_wishes(self) -> list[Wish]:
        return [*self.past, *self.wishes.values()]


def publications_of(
    client: str, message: m.PublishEvents, now_us: int, local_us: int, dropped: Collection[str]
) -> list[Publication]:
    """The events of a request to publish that a broker has just accepted, at some time by its own clock."""
    events: pa.RecordBatch = message.events
    ids = events.column("event_id").to_pylist()
    times = events.column("ts").cast(pa.int64()).to_pylist() if "ts" in events.schema.names else [local_us] * len(ids)
    return [
        Publication(event_id, client, message.topic, {**values, "ts": time_us}, now_us)
        for event_id, time_us, values in zip(ids, times, events.to_pylist(), strict=True)
        if event_id not in dropped
    ]
