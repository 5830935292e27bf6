"""A broker's process hands its broker the table of rights, as an input: at its start, and whenever it changes.

Rule 1: where a process has shown a key, access is controlled: as long as there is no table, nobody may do anything.
Rule 2: a table that cannot be read changes nothing.
Rule 3: what the process itself does for a user (`history_pages.py`) follows the newest table, which its broker may not
        have been handed yet.
"""

from __future__ import annotations

from collections.abc import Mapping

from catchment.broker.inputs import Allowed, Rights
from catchment.model.errors import ConfigurationError
from catchment.transport.access import BUCKET, KEY, Access
from catchment.transport.buckets import Bucket
from catchment.transport.context import LifeContext
from catchment.transport.notices import Notices
from catchment.transport.wire import Message

__all__ = ["Granting"]


class Granting:
    """The rights of one life of a process."""

    def __init__(self, context: LifeContext, notices: Notices) -> None:
        self._context, self._notices = context, notices
        self._bucket = Bucket(context.streams, BUCKET)
        self.rights: Mapping[str, Allowed] | None = {}
        """By user; None where access is not controlled."""

    async def start(self, known: Mapping[str, Allowed] | None) -> None:
        """Store the rights of now, unless the broker knows them; called before any client may come."""
        connection = self._context.streams.connection
        wanted = Rights(None)
        if connection.has_key:
            connection.subscribe(self._bucket.subject(KEY), self._heard)
            entry = await self._bucket.read(KEY)
            told = Rights({}) if entry.value is None else self._rights(entry.value)
            wanted = Rights(dict(known or {})) if told is None else told
        self.rights = wanted.users
        if wanted.users != known:
            self._notices.note(wanted)
            await self._notices.stored()

    def _heard(self, message: Message) -> None:
        rights = self._rights(message.data)
        if rights is not None:
            self.rights = rights.users
            self._notices.note(rights)

    def _rights(self, data: bytes) -> Rights | None:
        try:
            return Rights(Access.from_bytes(data, "the server's store").rights)
        except ConfigurationError as error:
            self._context.report("changes no rights", "warning", reason=str(error))
            return None
