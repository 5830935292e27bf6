"""Subscriptions that begin in the past: first what histories tell, then what comes, without a gap or a repeat.

    subscribe ─► acknowledged ─► mark ─► histories up to the mark ─► what has come meanwhile ─► what comes

Rule 1: histories are a neighbour. A broker of the client's own, in memory, is told what they have recorded, and answers
        the subscription as any broker would.
Rule 2: a mark is asked for once all brokers know the subscription: an event that is recorded behind it comes by itself.
Rule 3: what came before the mark was answered may be recorded before it as well; those events are left out by id.
Rule 4: of windows, those are told from histories that begin before all brokers knew the subscription, each once the
        subscriber's broker says that its time has passed their end. All others come by themselves.
Rule 5: a history is read by the process of its broker (`history_pages.py`), which gives a user the topics that it may
        subscribe to.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa

from catchment.broker import messages as m
from catchment.broker.aggregation import Aggregation, AggregationOptions
from catchment.broker.broker import Broker, Settings
from catchment.broker.client import Session, window_values
from catchment.broker.frames import EPOCH, FrameReader, FrameWriter
from catchment.broker.history import History
from catchment.broker.inputs import Attached, Input, Item, Received
from catchment.model.errors import ConfigurationError, TransportError
from catchment.model.events import event_times_us
from catchment.model.schema import Schema
from catchment.model.sql import also_selecting
from catchment.model.subscription import Subscription as Asked
from catchment.model.times import since_us
from catchment.transport.asking import ClientDroppedError, Find, Found, Page, Read
from catchment.transport.history import HistoryGoneError
from catchment.transport.subscriptions import Content, Subscription
from catchment.transport.wire import AccessError

if TYPE_CHECKING:
    from catchment.transport.client import Client

__all__ = ["Past"]

ASK_AGAIN_S = 0.5
READ_AGAIN_S = 0.05
_READER, _HISTORIES, _BROKER = "reader", "histories", "past"


class Past:
    """What a subscription gets of the past."""

    def __init__(self, client: Client, name: str, sql: str, since: object) -> None:
        if client.is_durable:
            raise ConfigurationError(
                f"subscription {name!r} of a durable client is to begin in the past; accepted is a client that is not "
                "durable, or a subscription without since"
            )
        if client.description.history is None:
            raise ConfigurationError(
                f"subscription {name!r} is to begin in the past, and the overlay keeps no history; accepted is one "
                'whose file says [history] keep = "7 days"'
            )
        self._client, self._name = client, name
        self._since_us = since_us(since, time.time_ns() // 1_000)
        schemas = client.description.schemas
        self._query = Asked(name, sql=sql).within(schemas)
        self._hides_broker = self._query.columns is not None and "broker" not in self._query.columns
        self.sql = also_selecting(sql, "broker") if self._hides_broker else sql
        """What the brokers are asked: an event is told from others by its broker and id."""
        self._brokers = tuple(client.description.brokers)
        self._after: dict[str, int] = {}
        """By broker, the position up to which its history was read."""
        self._answering = _Answering(name, self.sql, self._query.topic, schemas)
        self._mark = ""
        self._held: set[tuple[str, str]] = set()
        """Events that came before the mark was answered."""
        self._repeated: set[tuple[str, str]] = set()
        self._held_contents = 0

    async def find(self) -> None:
        """Find where to begin; a HistoryGoneError if something is gone that is asked for."""
        for broker in self._brokers:
            found = await self._client.ask(broker, Find(self._query.topic, self._since_us))
            if not isinstance(found, Found):
                raise TransportError(f"broker {broker!r} answers {found!r}; accepted is a position")
            self._after[broker] = found.position - 1

    async def begin(self, subscription: Subscription) -> None:
        """Let a subscription that all brokers know begin with the past."""
        contents = self._windows() if self._query.aggregate is not None else self._events(subscription)
        if self._query.aggregate is None:
            await self._ask_for_mark()
            held = subscription.waiting
            self._held = {one for content in held if isinstance(content, pa.RecordBatch) for one in _ids(content)}
            self._held_contents = len(held)
        subscription.begin_with(contents, ("broker",) if self._hides_broker else ())

    async def _ask_for_mark(self) -> None:
        self._mark = os.urandom(12).hex()
        await self._client.ask_advice(History.name, self._mark)

    # -- events -------------------------------------------------------------------------------------------------------

    async def _events(self, subscription: Subscription) -> AsyncIterator[Content]:
        async for message in self._answers():
            if isinstance(message, m.Delivered):
                self._repeated.update(self._held.intersection(_ids(message.events)) if self._held else ())
                yield message.events
        if self._repeated:
            subscription.leave_out(self._held_contents, self._is_new)

    def _is_new(self, events: pa.RecordBatch) -> list[bool]:
        return [one not in self._repeated for one in _ids(events)]

    async def _answers(self) -> AsyncIterator[m.Message]:
        """What comes of all that is recorded up to the mark."""
        for broker in self._brokers:
            async for recorded in self._recorded(broker):
                for message in self._answering.tell(recorded):
                    yield message

    async def _recorded(self, broker: str) -> AsyncIterator[pa.RecordBatch]:
        """The events of one history behind what was read, up to the mark."""
        while True:
            page = await self._page(broker)
            is_new, self._after[broker] = page.after > self._after[broker], page.after
            for one in FrameReader().decode(page.frame).messages if page.frame else ():
                if not isinstance(one, m.Recorded):
                    continue
                if one.mark and self._query.aggregate is None:
                    # What was recorded behind it comes by itself.
                    return
                if one.events is not None:
                    chosen = event_times_us(one.events) >= self._since_us
                    if chosen.any():
                        yield one.events if chosen.all() else one.events.filter(pa.array(chosen))
            if page.is_marked:
                return
            if not is_new:
                # The mark is about to be stored.
                await asyncio.sleep(READ_AGAIN_S)

    async def _page(self, broker: str) -> Page:
        """The next of a history, once its broker is there."""
        while True:
            await self._client.connected()
            try:
                page = await self._client.ask(broker, Read(self._query.topic, self._after[broker], self._mark))
            except (HistoryGoneError, ClientDroppedError, AccessError):
                raise
            except TransportError:
                await asyncio.sleep(READ_AGAIN_S)
                continue
            if not isinstance(page, Page):
                raise TransportError(f"broker {broker!r} answers {page!r}; accepted is a page of its history")
            return page

    # -- windows ------------------------------------------------------------------------------------------------------

    async def _windows(self) -> AsyncIterator[Content]:
        assert self._query.aggregate is not None
        window = self._query.aggregate.window
        passed_us, asked_us = self._since_us, window.next_end_us(self._since_us)
        while True:
            whole_us, last_us, time_us = await self._time(asked_us)
            if last_us - window.size_us < self._since_us:
                return
            if time_us > passed_us and last_us > passed_us:
                await self._ask_for_mark()
                # What is asked after time has passed an end finds every event before it.
                messages = [message async for message in self._answers()]
                messages += self._answering.promise(time_us)
                for message in messages:
                    if isinstance(message, m.Notified):
                        told = window_values(message)
                        yield [one for one in told if self._since_us <= one.start_us < whole_us]
                passed_us = time_us
            if passed_us >= last_us:
                return
            asked_us = min(window.next_end_us(passed_us), last_us)
            await asyncio.sleep(ASK_AGAIN_S)

    async def _time(self, end_us: int) -> tuple[int, int, int]:
        """From when on windows come by themselves, the end of the last that does not, and the end that has passed."""
        informed = await self._client.ask_advice(Aggregation.name, [self._name, end_us])
        found = next(times for name, *times in informed if name == self._name)
        whole_us, last_us, passed_us = found
        return whole_us, last_us, passed_us


class _Answering:
    """A broker in memory with one client, which has one subscription, and histories for a neighbour."""

    def __init__(self, name: str, sql: str, topic: str, schemas: dict[str, Schema]) -> None:
        self._topic, self._name = topic, name
        advice = Aggregation(AggregationOptions())
        self._broker = Broker(_BROKER, [_HISTORIES], Settings(schemas=schemas), [advice])
        self._session, self._writer = Session(_READER), FrameWriter()
        self._position = self._sent = 0
        self._hand(Attached(_READER))
        for data in self._session.ask(m.SubscribeTo, name, sql)[1]:
            self._hand(Received(data))
        self._say(m.Advertised(topic, 1))

    def tell(self, events: pa.RecordBatch) -> list[m.Message]:
        """What comes of events."""
        return self._say(m.Published(self._topic, events))

    def promise(self, time_us: int) -> list[m.Message]:
        """What comes of time that has passed."""
        return self._say(
            m.AdviceMessage(Aggregation.name, msgspec.msgpack.encode(["flow", self._topic, [], time_us, 0]))
        )

    def _say(self, message: m.Message) -> list[m.Message]:
        frames = self._writer.frames(_HISTORIES, [message], incarnation=1, epoch=EPOCH, after=self._sent, covers=0)
        self._sent += len(frames)
        return [one for data in frames for one in self._hand(Received(data))]

    def _hand(self, item: Item) -> list[m.Message]:
        self._position += 1
        step = self._broker.step([Input(item, 0, self._position)])
        frames = (data for send in step.sends if send.to == _READER for data in send.frames)
        return [message for data in frames for message in self._session.receive(data)]


def _ids(events: pa.RecordBatch) -> Iterator[tuple[str, str]]:
    return zip(events.column("broker").to_pylist(), events.column("event_id").to_pylist(), strict=True)
