"""What a client has asked about the clients of a topic, and the newest that it was told of it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from typing import Any

import msgspec

from catchment.broker import messages as m
from catchment.broker.interest import ADVICE
from catchment.transport.sending import Sending

__all__ = ["InterestWatch", "Watching"]


class InterestWatch:
    """A value about the subscribers or publishers of a topic, as it is known now.

    Iterate over it for the value that is known, and for each that follows; of several that came meanwhile, the newest.
    """

    def __init__(self, name: str, watching: Watching) -> None:
        self._name, self._watching = name, watching
        self.value: Any = None
        self.slack: float = 0.0
        """How far the truth may be from the value."""
        self._version = self._seen = 0
        self._changed = asyncio.Event()
        self._failure: BaseException | None = None
        self._is_ended = False

    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    async def __anext__(self) -> Any:
        while self._seen == self._version:
            if self._is_ended:
                raise StopAsyncIteration
            if self._failure is not None:
                raise self._failure
            self._changed.clear()
            await self._changed.wait()
        self._seen = self._version
        return self.value

    async def end(self) -> None:
        """Ask no more."""
        await self._watching.remove(self._name)

    async def __aenter__(self) -> InterestWatch:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.end()

    def put(self, value: Any, slack: float) -> None:
        self.value, self.slack = value, slack
        self._version += 1
        self._changed.set()

    def finish(self, failure: BaseException | None = None) -> None:
        self._is_ended, self._failure = failure is None, failure
        self._changed.set()


class Watching:
    """All that one life of a client asks about interest, by names of its own making."""

    def __init__(self, sending: Sending) -> None:
        self._sending = sending
        self._watches: dict[str, InterestWatch] = {}

    async def add(self, topic: str, function: str, where: str | None, tolerance: float | None) -> InterestWatch:
        """Ask; the first value is there when this returns."""
        name = os.urandom(6).hex()
        watch = self._watches[name] = InterestWatch(name, self)
        asked = {"ask": name, "function": function, "topic": topic, "where": where, "tolerance": tolerance}
        try:
            await self._sending.ask(m.AskAdvice, ADVICE, msgspec.msgpack.encode(asked))
        except BaseException:
            self._watches.pop(name, None)
            raise
        return watch

    async def remove(self, name: str) -> None:
        watch = self._watches.pop(name, None)
        if watch is not None:
            watch.finish()
            await self._sending.ask(m.AskAdvice, ADVICE, msgspec.msgpack.encode({"end": name}))

    def hear(self, body: bytes) -> None:
        """The broker tells a value; one that nobody waits for any more is left out."""
        name, value, slack = msgspec.msgpack.decode(body)
        if name in self._watches:
            self._watches[name].put(value, slack)

    def fail(self, error: BaseException) -> None:
        for watch in self._watches.values():
            watch.finish(error)
