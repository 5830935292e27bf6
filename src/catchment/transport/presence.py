"""Which clients of a broker are alive: each says so now and then, and one that is silent for too long has gone.

Rule 1: signs of life are plain messages, stored nowhere. Only that a client has gone, or is back, is an input.
Rule 2: every client has a whole lease from when this process begins, or goes on after it was stopped for a while: what
        was said meanwhile is unknown.
Rule 3: an end names the life that it is about: a client that comes again meanwhile is not ended by it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from catchment.broker.advice import OWN
from catchment.broker.broker import Broker
from catchment.broker.inputs import Detached, Parked, Resumed
from catchment.transport.context import LifeContext
from catchment.transport.names import alive_subject, client_of
from catchment.transport.notices import Notices
from catchment.transport.wire import Message

__all__ = ["BEATS", "Presence"]

BEATS = 3
"""Signs of life that a client gives within its lease."""
LOOKS = 10
"""How often within a lease somebody looks for clients that are silent."""


class Presence:
    """The leases of one broker's clients, during one life; `now_us` is the server's time."""

    def __init__(
        self,
        context: LifeContext,
        notices: Notices,
        now_us: Callable[[], int],
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._context, self._notices, self._now_us, self._clock_s = context, notices, now_us, clock_s
        self._lease_s = context.options.client_lease_us / 1e6
        self._heard: dict[str, tuple[int, float]] = {}
        """By client, its life, and when it last gave a sign of it."""
        self._looked_s = clock_s()
        self._noted: dict[str, float] = {}
        """By client, when its end was noted: once more only if that has not come to its effect within a lease."""
        self._resuming: dict[str, int] = {}
        """By client that is heard again, since when it was parked."""

    def start(self, broker: Broker) -> None:
        """Listen and look, for as long as this life lasts."""
        subject = alive_subject(self._context.name, "*/*")
        self._context.streams.connection.subscribe(subject, lambda message: self._hear(broker, message))
        self._context.tasks.begin(self._look_again_and_again(broker))

    async def _look_again_and_again(self, broker: Broker) -> None:
        while True:
            await asyncio.sleep(self._lease_s / LOOKS)
            self.look(broker)

    def _hear(self, broker: Broker, message: Message) -> None:
        if message.data.isdigit():
            self.hear(broker, client_of(message.subject), int(message.data))

    def hear(self, broker: Broker, client: str, incarnation: int) -> None:
        """A client is alive."""
        peer = broker.peers.get(client)
        if client not in broker.clients or peer is None or peer.incarnation != incarnation:
            return
        self._heard[client] = incarnation, self._clock_s()
        if peer.is_parked and self._resuming.get(client) != peer.parked_us:
            self._resuming[client] = peer.parked_us
            self._context.report("hears a client again", client=client)
            self._notices.note(Resumed(client, incarnation, peer.owner))

    def look(self, broker: Broker) -> None:
        """End the leases that have run out, and the retention of clients that are away."""
        now_s = self._clock_s()
        was_stopped = now_s - self._looked_s > self._lease_s / 2
        self._looked_s = now_s
        clients = sorted(one for one in broker.clients if not one.startswith(OWN))
        self._heard = {} if was_stopped else {one: self._heard[one] for one in clients if one in self._heard}
        self._noted = {one: at_s for one, at_s in self._noted.items() if now_s - at_s <= self._lease_s}
        for client in (one for one in clients if one not in self._noted):
            peer = broker.peers[client]
            incarnation, heard_s = self._heard.setdefault(client, (peer.incarnation, now_s))
            if incarnation != peer.incarnation:
                self._heard[client] = peer.incarnation, now_s
            elif peer.is_parked:
                if self._now_us() - peer.parked_us > self._context.options.client_retention_us:
                    self._end(Detached(client, incarnation), "was away for longer than its retention, and has gone")
            elif now_s - heard_s > self._lease_s:
                item = Parked(client, incarnation) if peer.is_durable else Detached(client, incarnation)
                self._end(item, f"has said nothing for {self._lease_s:g} seconds: it is {_WORDS[type(item)]}")

    def _end(self, item: Parked | Detached, why: str) -> None:
        self._context.report("misses a client", "warning", client=item.client, reason=why)
        self._notices.note(item)
        self._noted[item.client] = self._clock_s()


_WORDS = {Parked: "away", Detached: "gone"}
