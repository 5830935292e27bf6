"""Who asks over HTTP: where access is controlled, the user whose token a request shows.

Rule 1: without a valid token nothing is possible; every request is held against the table that is stored by then.
Rule 2: the process of the gateway is an operator, which may act for others. A client that it opens for a user has that
        user's rights, which brokers know, and no others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from catchment.broker.inputs import Allowed
from catchment.broker.rights import Deed, require_right_of
from catchment.model.errors import ConfigurationError
from catchment.transport.access import BUCKET, KEY, Access
from catchment.transport.buckets import Bucket
from catchment.transport.credentials import Credentials
from catchment.transport.http_server import HttpError, Request
from catchment.transport.jetstream import JetStream
from catchment.transport.wire import AccessError, Connection, NoAnswerError, open_connection

__all__ = ["Asker", "HttpUsers"]

_CHALLENGE = {"www-authenticate": 'Bearer realm="catchment"'}
_ACCEPTED = "accepted is `Authorization: Bearer TOKEN` with what `catchment access add … --http` has written"


@dataclass(frozen=True, slots=True)
class Asker:
    """Who asks, as whom its clients connect, and the hash of the token that it has shown."""

    user: str
    credentials: Credentials
    token: str = ""
    allowed: Allowed | None = None
    """None is everything."""

    def require(self, deed: Deed, topic: str) -> None:
        """Refuse what the user may not do."""
        rights: Mapping[str, Allowed] | None = None if self.allowed is None else {self.user: self.allowed}
        try:
            require_right_of(self.user, rights, deed, topic)
        except ConfigurationError as error:
            raise HttpError(403, str(error)) from None


class HttpUsers:
    """The users of an overlay, as its server has them stored."""

    def __init__(self, url: str, credentials: Credentials) -> None:
        self._url, self._credentials = url, credentials
        self._connection: Connection | None = None
        self._connecting = asyncio.Lock()
        self._is_controlled = True

    async def start(self) -> None:
        """Find out whether access is controlled, and whether this process may act for others if it is."""
        self._is_controlled = (await self._connected()).has_key
        if not self._is_controlled:
            return
        user = self._credentials.user
        try:
            known = (await self._table()).users.get(user)
        except NoAnswerError:
            known = None
        if known is None or "operator" not in known.roles:
            raise AccessError(
                f"user {user!r} of {self._credentials.key} is no operator; accepted is the key of one: HTTP is served "
                "for all users, each known by its token"
            )

    async def stop(self) -> None:
        if self._connection is not None:
            await self._connection.close()

    async def asker(self, request: Request) -> Asker:
        """Who asks; whoever shows no valid token is refused."""
        if not self._is_controlled:
            return Asker(self._credentials.user, self._credentials)
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            raise HttpError(401, f"the request shows no token; {_ACCEPTED}", _CHALLENGE)
        access = await self._table()
        user = access.user_of(token.strip())
        if user is None:
            raise HttpError(401, f"the token is of no user; {_ACCEPTED}", _CHALLENGE)
        known = access.users[user]
        return Asker(user, replace(self._credentials, acts_for=user), known.token, known.allowed)

    async def invalid(self, askers: Iterable[Asker]) -> list[Asker]:
        """Those whose tokens are no longer valid."""
        shown = [one for one in askers if one.token]
        users = (await self._table()).users if shown else {}
        return [one for one in shown if one.user not in users or users[one.user].token != one.token]

    async def _table(self) -> Access:
        entry = await Bucket(JetStream(await self._connected()), BUCKET).read(KEY)
        return Access() if entry.value is None else Access.from_bytes(entry.value, "the server's store")

    async def _connected(self) -> Connection:
        # One request after the other, or some would open connections that nobody closes.
        async with self._connecting:
            if self._connection is None or self._connection.is_lost:
                self._connection = await open_connection(self._url, "catchment http", self._credentials)
            return self._connection
