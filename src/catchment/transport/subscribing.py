"""The subscriptions of a client: made, found again, and ended.

Rule 1: what comes is kept by the name of its subscription, also before anybody asks for it: a durable client that is
        back gets what was collected before it has asked again.
Rule 2: a name that is being unsubscribed from is free once that is answered; who subscribes to it waits for that.
Rule 3: a subscription that nobody waits for any more is taken back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from catchment.broker import messages as m
from catchment.transport.asking import RequestRefusedError
from catchment.transport.sending import Sending
from catchment.transport.subscriptions import Content, Subscription
from catchment.transport.taking import Taking

__all__ = ["Subscribing"]


class Subscribing:
    """What one life of a client has subscribed to, by name."""

    def __init__(self, sending: Sending, taking: Taking) -> None:
        self._sending, self._taking = sending, taking
        self._subscriptions: dict[str, Subscription] = {}
        self._ending: dict[str, asyncio.Future[m.Acknowledged]] = {}
        """By name, the answer that will end a subscription."""
        self._failure: BaseException | None = None

    async def add(
        self, name: str, sql: str, begin: Callable[[Subscription], Awaitable[None]] | None, *, is_found_again: bool
    ) -> Subscription:
        """Subscribe; `begin` is called once all brokers know it.

        If the caller gives up waiting, the subscription is taken back, unless it can be found again by its name.
        """
        while name in self._ending:
            await asyncio.wait([self._ending[name]])
        is_new = name not in self._subscriptions
        subscription = self._get(name)
        try:
            await self._sending.ask(m.SubscribeTo, name, sql)
            if begin is not None:
                await begin(subscription)
        except RequestRefusedError:
            # What was collected under its name waits for whoever asks the right thing.
            if is_new and not subscription.waiting:
                self._subscriptions.pop(name, None)
            raise
        except asyncio.CancelledError:
            if is_new and not is_found_again and self._failure is None:
                subscription.end()
                self._unsubscribed(name)
            raise
        return subscription

    async def remove(self, name: str) -> None:
        await asyncio.shield(self._unsubscribed(name))

    def put(self, name: str, position: int, content: Content, size: int) -> None:
        """Keep what a frame has for a subscription."""
        self._get(name).put(position, content, size)

    def fail(self, error: BaseException) -> None:
        """Let all iterations end with an error."""
        self._failure = error
        for subscription in self._subscriptions.values():
            subscription.fail(error)

    def _get(self, name: str) -> Subscription:
        if name not in self._subscriptions:
            self._subscriptions[name] = Subscription(name, self._taking)
            if self._failure is not None:
                self._subscriptions[name].fail(self._failure)
        return self._subscriptions[name]

    def _unsubscribed(self, name: str) -> asyncio.Future[m.Acknowledged]:
        """Ask to unsubscribe, once for all who wait for the answer."""
        if name in self._ending:
            return self._ending[name]
        answer = self._ending[name] = self._sending.begin(m.UnsubscribeFrom, name)[0]

        def answered(answer: asyncio.Future[m.Acknowledged]) -> None:
            del self._ending[name]
            there = self._subscriptions.get(name)
            if there is not None and (answer.exception() is None or there.is_ended):
                del self._subscriptions[name]
                there.end()

        answer.add_done_callback(answered)
        return answer
