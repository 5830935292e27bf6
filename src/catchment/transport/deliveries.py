"""The clients of a broker's process: a delivery stream for each, from its coming to its going.

Rule 1: a stream belongs to the input by which its client came (`attached`). Steps that are made again neither replace
        the stream of a later coming nor delete it.
Rule 2: what a client has confirmed is dropped from its stream.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from catchment.broker.hosting import Outbox
from catchment.broker.inputs import Attached, Overrun
from catchment.model.errors import UNREADABLE
from catchment.transport.context import LifeContext
from catchment.transport.jetstream import MissingError
from catchment.transport.names import client_of, confirm_subject, outbox_subjects
from catchment.transport.notices import Notices
from catchment.transport.outlets import Delivery
from catchment.transport.records import StepRecords
from catchment.transport.wire import Message

__all__ = ["Deliveries"]


class Deliveries:
    """The delivery streams of one life; they are outboxes of its host too."""

    def __init__(
        self, context: LifeContext, outboxes: dict[str, Outbox], records: StepRecords, notices: Notices
    ) -> None:
        self._context, self._outboxes, self._records, self._notices = context, outboxes, records, notices
        self._of: dict[str, Delivery] = {}
        self._forgetting: dict[str, int] = {}
        """By client, up to where its stream is being purged."""

    def __iter__(self) -> Iterator[Delivery]:
        return iter(self._of.values())

    def get(self, client: str) -> Delivery | None:
        return self._of.get(client)

    async def fence(self) -> None:
        """Take over the streams that are there."""
        streams = self._context.streams
        for stream in await streams.names(outbox_subjects(self._context.name)):
            state = await streams.state(stream)
            if state is not None and "client" in state.metadata:
                delivery = self._new(state.metadata["client"])
                if await delivery.fence(self._context.report):
                    self._keep(delivery)

    def listen(self) -> None:
        """Hear what clients confirm."""
        subject = confirm_subject(self._context.name, "*/*")
        self._context.streams.connection.subscribe(subject, self._confirmed)

    async def attach(self, item: Attached, position: int) -> None:
        """Begin a stream for a client, unless a later one is there already."""
        there = self._of.get(item.client)
        if there is not None and there.attached >= position:
            return
        if there is not None:
            there.stop()
        # Marks of what is deleted may be the only ones that tell where steps have ended.
        await self._records.record()
        delivery = self._new(item.client)
        most = self._context.options.limits.for_client(is_durable=item.durable)
        await delivery.create(position, item.incarnation, most)
        self._keep(delivery)

    async def detach(self, client: str, position: int) -> None:
        there = self._of.get(client)
        if there is None or there.attached > position:
            return
        await self._records.record()
        there.stop()
        await self._context.streams.delete(there.stream)
        del self._of[client], self._outboxes[client]

    def _new(self, client: str) -> Delivery:
        context = self._context
        return Delivery(
            context.streams, context.name, client, self._records.ends, context.tasks.fail, self._overrun,
            lambda: context.at("stored"),
        )  # fmt: skip

    def _keep(self, delivery: Delivery) -> None:
        self._of[delivery.client] = self._outboxes[delivery.client] = delivery

    def _overrun(self, client: str, missed: int) -> None:
        self._context.tasks.begin(self._tell_overrun(client, missed))

    async def _tell_overrun(self, client: str, missed: int) -> None:
        delivery = self._of.get(client)
        state = None if delivery is None else await self._context.streams.state(delivery.stream)
        self._context.report("drops client, which does not read", "warning", client=client)
        self._notices.note(Overrun(client, missed + (state.messages if state is not None else 0)))

    def _confirmed(self, message: Message) -> None:
        """A client has confirmed what it got."""
        client = client_of(message.subject)
        delivery = self._of.get(client)
        try:
            said = msgspec.json.decode(message.data, type=dict[str, int])
        except UNREADABLE:
            return
        if delivery is None or said.get("attached") != delivery.attached:
            return
        is_busy = client in self._forgetting
        self._forgetting[client] = said.get("confirmed", 0)
        if not is_busy:
            self._context.tasks.begin(self._forget(delivery))

    async def _forget(self, delivery: Delivery) -> None:
        """Drop what a client has confirmed, until it has said nothing new meanwhile."""
        done = -1
        while (confirmed := self._forgetting[delivery.client]) > done:
            try:
                await delivery.forget(confirmed)
            except MissingError:
                break  # The client has gone.
            done = confirmed
        del self._forgetting[delivery.client]
