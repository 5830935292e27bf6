"""The client for programs without asyncio: the same calls, each of which waits.

A thread of its own runs the event loop; any number of threads may call.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from threading import Thread
from typing import Any, TypeVar

from catchment.transport.client import Client, Receipt, Subscription, Wait
from catchment.transport.watching import InterestWatch

__all__ = ["BlockingClient", "BlockingInterest", "BlockingSubscription"]

T = TypeVar("T")


class BlockingSubscription:
    """What a subscription brings: the iteration over it waits for what comes, and ends with the subscription."""

    def __init__(self, client: BlockingClient, inner: Subscription) -> None:
        self._client, self._inner = client, inner

    @property
    def name(self) -> str:
        return self._inner.name

    def __iter__(self) -> Iterator[Any]:
        while True:
            try:
                yield self.next()
            except StopIteration:
                return

    def next(self, within_s: float | None = None) -> Any:
        """The next event or value; a TimeoutError if none comes in time, StopIteration at the end."""

        async def take() -> tuple[bool, Any]:
            try:
                async with asyncio.timeout(within_s):
                    return True, await anext(self._inner)
            except StopAsyncIteration:
                return False, None

        is_there, value = self._client._wait(take())
        if not is_there:
            raise StopIteration
        return value


class BlockingInterest:
    """A value about the clients of a topic: as it is known now, or by iteration each that follows."""

    def __init__(self, client: BlockingClient, inner: InterestWatch) -> None:
        self._client, self._inner = client, inner

    @property
    def value(self) -> Any:
        return self._inner.value

    @property
    def slack(self) -> float:
        return self._inner.slack

    def __iter__(self) -> Iterator[Any]:
        async def take() -> tuple[bool, Any]:
            try:
                return True, await anext(self._inner)
            except StopAsyncIteration:
                return False, None

        while (found := self._client._wait(take()))[0]:
            yield found[1]

    def end(self) -> None:
        """Ask no more."""
        self._client._wait(self._inner.end())

    def __enter__(self) -> BlockingInterest:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()


class BlockingClient:
    """A client of one broker."""

    def __init__(self, url: str, **options: Any) -> None:
        """Connect; `options` are those of `Client`."""
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, name="catchment client", daemon=True)
        self._thread.start()

        async def make() -> Client:
            return await Client(url, **options).open()

        try:
            self._inner = self._wait(make())
        except BaseException:
            self._stop()
            raise

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def _stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    @property
    def name(self) -> str:
        return self._inner.name

    @property
    def broker(self) -> str:
        return self._inner.broker

    def advertise(self, topic: str) -> None:
        self._wait(self._inner.advertise(topic))

    def unadvertise(self, topic: str) -> None:
        self._wait(self._inner.unadvertise(topic))

    def publish(self, topic: str, events: Any, *, wait: Wait = "acknowledged") -> Receipt:
        """Publish one event or many; see `Client.publish`."""
        return self._wait(self._inner.publish(topic, events, wait=wait))

    def advance_time(self, topic: str, time_us: int) -> None:
        self._wait(self._inner.advance_time(topic, time_us))

    def subscribe(self, sql: str, *, name: str | None = None, since: object = None) -> BlockingSubscription:
        return BlockingSubscription(self, self._wait(self._inner.subscribe(sql, name=name, since=since)))

    def unsubscribe(self, subscription: BlockingSubscription | str) -> None:
        name = subscription if isinstance(subscription, str) else subscription.name
        self._wait(self._inner.unsubscribe(name))

    def interest(
        self, topic: str, function: str = "subscriptions", *, where: str | None = None, tolerance: float | None = None
    ) -> BlockingInterest:
        """Ask about the clients of a topic; see `Client.interest`."""
        asking = self._inner.interest(topic, function, where=where, tolerance=tolerance)
        return BlockingInterest(self, self._wait(asking))

    def close(self) -> None:
        """Go; see `Client.close`."""
        if not self._loop.is_closed():
            self._wait(self._inner.close())
            self._stop()

    def __enter__(self) -> BlockingClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
