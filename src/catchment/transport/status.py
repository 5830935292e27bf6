"""What a broker's process answers to those who run the overlay, on subjects of brokers and operators only.

    catchment.status.<broker>.figures          its figures, as in /metrics
    catchment.status.<broker>.subscriptions    a page of what its clients have subscribed to

Rule 1: an answer is read off what is there between two steps. It changes nothing, and is bounded in size.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from heapq import nsmallest

import msgspec

from catchment.broker.advice import OWN
from catchment.broker.broker import Broker
from catchment.model.errors import UNREADABLE, TransportError
from catchment.transport.figures import BrokerFigures
from catchment.transport.names import status_subject
from catchment.transport.wire import Connection, Message

__all__ = ["ListedSubscription", "StatusAnswers", "figures_of", "subscriptions_of"]

ASK_S = 2.0
"""A process that has not answered within this time is taken for one that is not there."""
PAGE_COUNT = 500
PAGE_BYTES = 400_000
"""A server takes messages of 1 MB unless it is told otherwise."""
INBOX = "_INBOX"


class ListedSubscription(msgspec.Struct, frozen=True, kw_only=True):
    """Who has subscribed to what."""

    broker: str
    client: str
    name: str
    topic: str
    sql: str
    is_durable: bool
    is_parked: bool


class Page(msgspec.Struct, frozen=True):
    """Some subscriptions of one broker, in the order of clients and names."""

    subscriptions: list[ListedSubscription]
    is_last: bool


class After(msgspec.Struct, frozen=True):
    """Where a page begins: behind this subscription."""

    client: str = ""
    name: str = ""


class StatusAnswers:
    """Answers for one broker's process, for as long as it has a connection. `broker` gives None while there is none."""

    def __init__(
        self,
        name: str,
        connection: Connection,
        figures: Callable[[], BrokerFigures],
        broker: Callable[[], Broker | None],
    ) -> None:
        self._name, self._connection, self._figures, self._broker = name, connection, figures, broker
        self.stop = connection.subscribe(status_subject(name, "*"), self._heard)

    def _heard(self, message: Message) -> None:
        what = message.subject.rpartition(".")[2]
        # The answer goes where the asker's own answers go, and nowhere else.
        if message.reply.startswith(INBOX):
            if what == "figures":
                self._connection.publish(message.reply, msgspec.json.encode(self._figures()))
            elif what == "subscriptions":
                self._connection.publish(message.reply, msgspec.json.encode(self._page(message.data)))

    def _page(self, data: bytes) -> Page:
        broker = self._broker()
        try:
            after = msgspec.json.decode(data, type=After)
        except UNREADABLE:
            after = After()
        if broker is None:
            return Page([], is_last=True)
        behind = (after.client, after.name)
        keys = nsmallest(
            PAGE_COUNT + 1, (key for key in broker.subscribed if key > behind and not key[0].startswith(OWN))
        )
        found: list[ListedSubscription] = []
        size = 0
        for client, name in keys[:PAGE_COUNT]:
            known, peer = broker.subscribed[client, name], broker.peers.get(client)
            size += len(known.sql) + 200
            if found and size > PAGE_BYTES:
                break
            found.append(
                ListedSubscription(
                    broker=self._name,
                    client=client,
                    name=name,
                    topic=known.topic,
                    sql=known.sql,
                    is_durable=peer is not None and peer.is_durable,
                    is_parked=peer is not None and peer.is_parked,
                )
            )
        return Page(found, is_last=len(found) == len(keys))


async def figures_of(connection: Connection, brokers: Iterable[str]) -> dict[str, BrokerFigures | None]:
    """Of each broker its figures; None for one that does not answer."""
    names = list(brokers)
    answers = await asyncio.gather(*(_asked(connection, name, "figures", b"") for name in names))
    return {
        name: None if answer is None else msgspec.json.decode(answer, type=BrokerFigures)
        for name, answer in zip(names, answers, strict=True)
    }


async def subscriptions_of(connection: Connection, broker: str) -> AsyncIterator[ListedSubscription]:
    """All subscriptions of a broker, in the order of clients and names."""
    after = After()
    while True:
        answer = await _asked(connection, broker, "subscriptions", msgspec.json.encode(after))
        if answer is None:
            raise TransportError(f"broker {broker!r} does not answer")
        page = msgspec.json.decode(answer, type=Page)
        for one in page.subscriptions:
            yield one
        if page.is_last:
            return
        after = After(page.subscriptions[-1].client, page.subscriptions[-1].name)


async def _asked(connection: Connection, broker: str, what: str, data: bytes) -> bytes | None:
    try:
        answer = await connection.request(status_subject(broker, what), data, within_s=ASK_S)
    except TransportError:
        if connection.is_lost:
            raise
        return None
    return None if answer.status == 503 else answer.data
