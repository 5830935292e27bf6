"""HTTP where access is controlled: nothing without a token, and with one what its user may do."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from catchment.model.errors import ConfigurationError
from catchment.transport.access import Access, User
from catchment.transport.credentials import token_hash
from catchment.transport.http_gateway import HttpGateway
from catchment.transport.http_server import HttpServer
from catchment.transport.jetstream import JetStream
from catchment.transport.wire import AccessError
from tests.transport.conftest import run
from tests.transport.guarded import Authority, Guarded
from tests.transport.test_http import Raw, asks, opened

POST = "/topics/traffic/events"
LISTEN = "/subscribe?sql=SELECT%20*%20FROM%20traffic"


class Web:
    """A guarded overlay over HTTP, and the tokens of its users."""

    def __init__(self, guarded: Guarded) -> None:
        self.guarded, self.port = guarded, 0
        self.tls: ssl.SSLContext | None = None
        self.tokens: dict[str, str] = {}
        for user in ("ann", "bob", "eve"):
            guarded.access, self.tokens[user] = guarded.access.with_token(user)

    async def ask(self, method: str, path: str, user: str | None = None, body: str = "") -> tuple[int, Any]:
        """The answer to a request of a user, or of nobody."""
        return await self.say(method, path, {} if user is None else self.shown(user), body)

    def shown(self, user: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.tokens[user]}"}

    async def say(self, method: str, path: str, headers: dict[str, str], body: str = "") -> tuple[int, Any]:
        raw = await Raw.open(self.port, tls=self.tls)
        raw.say(asks(path, **{"Content_Length": str(len(body)), **headers}).replace("GET", method, 1) + body)
        return await raw.answer()

    async def listen(self, user: str, path: str = LISTEN) -> Raw:
        raw = await Raw.open(self.port, tls=self.tls)
        raw.say(asks(path, **self.shown(user)))
        await raw.line("retry: ")
        return raw

    async def change(self, access: Access) -> None:
        """Let the table be another one."""
        self.guarded.access = access
        connection = await self.guarded.opened("root")
        await access.store(JetStream(connection))
        await connection.close()


@asynccontextmanager
async def served(guarded: Guarded, context: ssl.SSLContext | None = None) -> AsyncIterator[Web]:
    web = Web(guarded)
    await guarded.started(("b1", "b2"))
    gateway = HttpGateway(guarded.server.url, guarded.overlay.description, guarded.of["root"])
    said: list[str] = []
    server = HttpServer(gateway.handle, said.append)
    await gateway.start()
    await server.start(tls=context)
    web.port = server.port
    try:
        yield web
    finally:
        while opened:
            await opened.pop().close()
        await server.stop()
        await gateway.stop()
        assert said == []


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[Guarded]:
    made = Guarded(tmp_path)
    with made.server:
        yield made
        made.overlay.stop()


def test_without_a_token_nothing_is_possible(guarded: Guarded) -> None:
    async def test() -> None:
        async with served(guarded) as web:
            everything = [
                ("GET", "/topics"), ("POST", POST), ("GET", LISTEN), ("DELETE", f"{LISTEN}&durable=d"), ("GET", "/x"),
            ]  # fmt: skip
            for method, path in everything:
                status, said = await web.ask(method, path, body='{"speed": 1}' if method == "POST" else "")
                assert (status, said["error"][:28]) == (401, "the request shows no token; "), (method, path)
            stored = guarded.access.users["ann"].token
            assert stored == token_hash(web.tokens["ann"])
            for shown, complaint in {
                "Bearer": "the request shows no token; accepted is `Authorization: Bearer TOKEN`",
                f"Basic {web.tokens['ann']}": "the request shows no token",
                web.tokens["ann"]: "the request shows no token",
                "Bearer nonsense": "the token is of no user",
                f"Bearer {web.tokens['ann'][:-1]}": "the token is of no user",
                # What the table has of it opens nothing.
                f"Bearer {stored}": "the token is of no user",
                f"Bearer {guarded.access.users['ann'].key}": "the token is of no user",
                'Bearer ""': "the token is of no user",
            }.items():
                status, said = await web.say("GET", "/topics", {"Authorization": shown})
                assert (status, complaint in said["error"]) == (401, True), (shown, said)
            raw = await Raw.open(web.port)
            raw.say(asks("/topics"))
            assert await raw.line("www-authenticate: Bearer")
            assert (await web.ask("GET", "/topics", "bob"))[0] == 200

    run(test())


def test_each_user_does_what_it_may_and_is_refused_the_rest(guarded: Guarded) -> None:
    async def test() -> None:
        async with served(guarded) as web:
            of_bob, of_eve = await web.listen("bob"), await web.listen("eve", f"{LISTEN}&at=b2&durable=d")
            assert await web.ask("POST", f"{POST}?at=b2", "ann", '{"speed": 1}') == (
                200, {"published": 1, "late": [], "refused": []},
            )  # fmt: skip
            for listener in (of_bob, of_eve):
                assert [row["speed"] for _, row in await listener.rows(1)] == [1.0]
            for user, method, path, complaint in (
                ("ann", "POST", "/topics/stock/events", "user 'ann' may not publish to 'stock'; accepted are traffic"),
                ("ann", "GET", LISTEN, "user 'ann' may not subscribe to 'traffic'; accepted are no topics"),
                ("bob", "POST", POST, "user 'bob' may not publish to 'traffic'; accepted are no topics"),
                (
                    "bob",
                    "GET",
                    "/subscribe?sql=SELECT%20*%20FROM%20stock",
                    "may not subscribe to 'stock'; accepted are",
                ),
                (
                    "eve",
                    "POST",
                    "/topics/stock/events",
                    "user 'eve' may not publish to 'stock'; accepted are no topics",
                ),
            ):
                status, said = await web.ask(method, path, user, '{"speed": 1, "price": 1}')
                assert (status, complaint in said["error"]) == (403, True), (user, path, said)
            # The durable listener of somebody else is out of reach under its own name.
            assert (await web.ask("DELETE", f"{LISTEN}&at=b2&durable=d", "bob"))[0] == 200
            await of_eve.close()
            await web.ask("POST", POST, "ann", '{"speed": 2}')
            mine = await web.listen("bob", f"{LISTEN}&at=b2&durable=d")
            hers = await web.listen("eve", f"{LISTEN}&at=b2&durable=d")
            await web.ask("POST", POST, "ann", '{"speed": 3}')
            assert [row["speed"] for _, row in await hers.rows(2)] == [2.0, 3.0]
            assert [row["speed"] for _, row in await mine.rows(1)] == [3.0]

    run(test())


def test_what_is_taken_back_ends(guarded: Guarded) -> None:
    async def test() -> None:
        async with served(guarded) as web:
            of_bob, of_eve = await web.listen("bob"), await web.listen("eve")
            await web.ask("POST", POST, "ann", '{"speed": 1}')
            for listener in (of_bob, of_eve):
                await listener.rows(1)
            # A new token, and the old one is worth nothing: what it had opened ends too.
            renewed, token = guarded.access.with_token("bob")
            await web.change(renewed)
            assert (await web.ask("GET", "/topics", "bob"))[0] == 401
            async with asyncio.timeout(60):
                assert b"data: " not in await of_bob.reader.read()
            web.tokens["bob"] = token
            of_bob = await web.listen("bob")
            users = renewed.users
            less = {"eve": User(users["eve"].key, {"subscriber": ("stock",)}, users["eve"].token)}
            await web.change(Access({**users, **less}))
            said = json.loads((await of_eve.line("data: "))[6:])
            assert "user 'eve' may not subscribe to 'traffic' any more" in said["error"]
            assert (await web.ask("GET", LISTEN, "eve"))[0] == 403
            await web.change(guarded.access.without("ann"))
            assert (await web.ask("POST", POST, "ann", '{"speed": 2}'))[0] == 401

    run(test())


def test_tokens_travel_through_tls(tmp_path: Path) -> None:
    async def test(guarded: Guarded, authority: Authority) -> None:
        async with served(guarded, authority.server().context()) as web:
            web.tls = ssl.create_default_context(cafile=authority.file)
            listener = await web.listen("bob")
            assert (await web.ask("POST", POST, "ann", '{"speed": 1}'))[0] == 200
            assert [row["speed"] for _, row in await listener.rows(1)] == [1.0]
            assert (await web.ask("POST", POST))[0] == 401
            # What is refused before it is read is answered through TLS as well.
            status, said = await web.say("POST", POST, {**web.shown("ann"), "Content_Length": str(10**9)})
            assert (status, "bytes; accepted are at most" in said["error"]) == (413, True)
            raw = await Raw.open(web.port)
            raw.say(asks("/topics"))
            assert await raw.reader.read() == b""

    authority, made = Authority(tmp_path / "ca"), Guarded(tmp_path)
    with made.server:
        try:
            run(test(made, authority))
        finally:
            made.overlay.stop()


@pytest.mark.parametrize("user", ["ann", "brokers"])
def test_http_is_served_by_operators(guarded: Guarded, user: str) -> None:
    async def test() -> None:
        await guarded.started()
        gateway = HttpGateway(guarded.server.url, guarded.overlay.description, guarded.of[user])
        with pytest.raises(AccessError, match=f"user '{user}' of .*key is no operator; accepted is the key of one"):
            await gateway.start()
        await gateway.stop()

    run(test())


def test_brokers_and_operators_have_no_token(guarded: Guarded) -> None:
    guarded.overlay = type("Nothing", (), {"stop": lambda self: None})()
    for user in ("brokers", "root"):
        with pytest.raises(ConfigurationError, match=r"would be known by a token over HTTP; accepted are publishers"):
            guarded.access.with_token(user)
        forced = User(guarded.access.users[user].key, guarded.access.users[user].roles, token_hash("mine"))
        assert Access({**guarded.access.users, user: forced}).user_of("mine") is None
