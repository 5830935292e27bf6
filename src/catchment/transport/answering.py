"""A broker's process answers what clients ask of it (`asking.py`).

Rule 1: who asks is the user of the subject, which the server has let it publish on; nothing in a request says so.
Rule 2: an answer goes to an inbox of that user, or to where the server itself returns it to another account; what is to
        be answered elsewhere is left out, or the process would publish there for somebody who may not.
Rule 3: that a client has come is stored in the broker's log first, and answered once the broker has taken it.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from weakref import WeakValueDictionary

import msgspec

from catchment.broker.hosting import item_to_bytes
from catchment.broker.inputs import Attached, Item, Outcome, Parked, Resumed
from catchment.broker.peers import Peer
from catchment.model.errors import UNREADABLE, ConfigurationError, FrameError, TransportError
from catchment.transport.asking import (
    HEARTBEAT_S,
    Answer,
    Came,
    Come,
    Deliver,
    Delivering,
    Describe,
    Described,
    Find,
    Read,
    Refusal,
    Request,
    answer_bytes,
)
from catchment.transport.context import LifeContext
from catchment.transport.deliveries import Deliveries
from catchment.transport.description import Description
from catchment.transport.granting import Granting
from catchment.transport.history import HistoryGoneError
from catchment.transport.history_pages import HistoryPages
from catchment.transport.jetstream import MissingError, Stored
from catchment.transport.names import (
    CONFIRMED,
    ask_subject,
    client_name,
    confirm_subject,
    control_subject,
    deliver_subject,
    describe_subject,
    inbox_prefix,
    token,
    user_of,
)
from catchment.transport.wire import Message

__all__ = ["Answering", "request_from_bytes"]

UNREAD_S = 30.0
"""After which the server forgets how far it has pushed frames to a client that is not there."""
ASKED = "Catchment-Asked"
"""The header of what is stored because of a request, whose value only this process knows."""
_ASKED = ASKED.encode()
ASKS_MAX = 1_000
"""Requests that are worked on; more are left out, and asked again."""
RETURNED = "_R_."
"""Where a server expects the answer to a request that comes from another account; no client may publish there."""
_requests: msgspec.json.Decoder[Request] = msgspec.json.Decoder(Request)


def request_from_bytes(data: bytes) -> Request:
    """What a client asks; anything else is a FrameError."""
    try:
        return _requests.decode(data)
    except UNREADABLE as error:
        raise FrameError(f"a request does not decode: {str(error)[:200]}") from None


class Answering:
    """Answers clients, for one life of a broker's process. `peers` are those that the broker knows now."""

    def __init__(
        self,
        context: LifeContext,
        deliveries: Deliveries,
        granting: Granting,
        peers: Callable[[], Mapping[str, Peer]],
    ) -> None:
        self._streams, self._broker, self._tasks = context.streams, context.name, context.tasks
        self._deliveries, self._peers = deliveries, peers
        self._pages = HistoryPages(context, granting)
        self._outcomes: dict[str, asyncio.Future[Outcome]] = {}
        self._coming: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._asks = 0

    def start(self) -> None:
        connection = self._streams.connection
        connection.subscribe(ask_subject(self._broker, "*"), self._heard)
        connection.subscribe(describe_subject("*"), self._heard, group="catchment")

    def settle(self, stored: Stored, outcome: Outcome) -> None:
        """Note what became of an input, if a request has caused it."""
        if _ASKED in stored.head and stored.subject == control_subject(self._broker):
            waiting = self._outcomes.pop(stored.headers[ASKED], None)
            if waiting is not None and not waiting.done():
                waiting.set_result(outcome)

    def _heard(self, message: Message) -> None:
        user = user_of(message.subject)
        if self._asks < ASKS_MAX and message.reply.startswith((RETURNED, inbox_prefix(user))):
            self._asks += 1
            self._tasks.begin(self._answer(user, message))

    async def _answer(self, user: str, message: Message) -> None:
        try:
            answer = await self._answered(user, message.data)
            answered, head = answer_bytes(answer)
            self._streams.connection.publish(message.reply, answered, head=head)
        finally:
            self._asks -= 1

    async def _answered(self, user: str, data: bytes) -> Answer:
        try:
            asked = request_from_bytes(data)
        except FrameError as error:
            return Refusal(str(error))
        try:
            if isinstance(asked, Describe):
                return Described(await Description.read(self._streams))
            if isinstance(asked, Come):
                client = client_name(user, asked.client)
                async with self._coming.setdefault(client, asyncio.Lock()):
                    return await self._come(user, client, asked)
            if isinstance(asked, Find):
                return await self._pages.find(user, asked)
            if isinstance(asked, Read):
                return await self._pages.read(user, asked)
            return await self._deliver(user, asked)
        except ConfigurationError as error:
            return Refusal(str(error))
        except HistoryGoneError as error:
            return Refusal(str(error), is_gone=True)
        except TransportError as error:
            if self._streams.connection.is_lost:
                raise
            return Refusal(str(error), is_passing=True)

    # -- a client comes -----------------------------------------------------------------------------------------------

    async def _come(self, user: str, client: str, asked: Come) -> Answer:
        peer = self._peers().get(client)
        if peer is not None and peer.incarnation > asked.incarnation:
            return Refusal(f"client {client!r} is in its life {peer.incarnation}", life=peer.incarnation)
        is_here = peer is not None and peer.incarnation == asked.incarnation and not peer.is_parked
        if not is_here and not (asked.durable and peer is not None and await self._is_resumed(user, client, asked)):
            outcome = await self._say(Attached(client, asked.incarnation, owner=user, durable=asked.durable))
            if outcome.kind not in ("taken", "repeated"):
                return Refusal(outcome.reason)
        delivery = self._deliveries.get(client)
        state = None if delivery is None else await self._streams.state(delivery.stream)
        if delivery is None or state is None:
            return Refusal(f"client {client!r} has gone meanwhile", is_passing=True)
        return Came(delivery.attached, await self._confirmed(client, delivery.attached), delivery.bytes_max)

    async def _is_resumed(self, user: str, client: str, asked: Come) -> bool:
        # Its life before may have vanished without a word.
        await self._say(Parked(client))
        return (await self._say(Resumed(client, asked.incarnation, owner=user))).kind == "taken"

    async def _say(self, item: Item) -> Outcome:
        """Store something in the broker's log; what became of it."""
        name = os.urandom(8).hex()
        outcome: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self._outcomes[name] = outcome
        try:
            await self._streams.store(control_subject(self._broker), item_to_bytes(item), headers={ASKED: name})
            return await outcome
        finally:
            self._outcomes.pop(name, None)

    async def _confirmed(self, client: str, attached: int) -> int:
        """How far a client has confirmed what is in its outbox."""
        said = await self._streams.last(CONFIRMED, confirm_subject(self._broker, client))
        try:
            found = {} if said is None else msgspec.json.decode(said.data, type=dict[str, int])
        except UNREADABLE:
            return 0
        return found.get("confirmed", 0) if found.get("attached") == attached else 0

    # -- and gets what is for it --------------------------------------------------------------------------------------

    async def _deliver(self, user: str, asked: Deliver) -> Answer:
        client = client_name(user, asked.client)
        delivery = self._deliveries.get(client)
        if delivery is None or delivery.attached != asked.attached:
            return Refusal(f"broker {self._broker!r} knows client {client!r} no more", is_dropped=True)
        peer = self._peers().get(client)
        if peer is not None and asked.incarnation not in (0, peer.incarnation):
            return Refusal(f"another process is client {client!r} now, in its life {peer.incarnation}", is_dropped=True)
        # Named after the user, who may let the server push more to consumers of that name alone.
        name, stream = token(user), delivery.stream
        config = {
            "name": name, "deliver_subject": deliver_subject(client, asked.nonce),
            "deliver_policy": "by_start_sequence", "opt_start_seq": max(asked.begin, 1),
            "ack_policy": "none", "replay_policy": "instant", "flow_control": True,
            "idle_heartbeat": int(HEARTBEAT_S * 1e9), "inactive_threshold": int(UNREAD_S * 1e9),
            "mem_storage": True, "num_replicas": 1,
        }  # fmt: skip
        with suppress(MissingError):
            await self._streams.ask(f"CONSUMER.DELETE.{stream}.{name}", {})
        wanted = {"stream_name": stream, "config": config, "action": "create"}
        await self._streams.ask(f"CONSUMER.CREATE.{stream}.{name}", wanted)
        return Delivering()
