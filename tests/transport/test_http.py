"""An overlay over HTTP, for curl and for whoever writes bytes to a socket."""

import asyncio
import json
import shutil
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import pyarrow as pa
import pytest

import catchment
from catchment.transport import http_listening, http_server
from catchment.transport.http_gateway import HttpGateway
from catchment.transport.http_server import HttpServer
from tests.transport.conftest import Live, eventually, run
from tests.transport.test_clients import ALL, speeds, take

CURL = shutil.which("curl")
needs_curl = pytest.mark.skipif(CURL is None, reason="curl is not installed")


opened: list["Raw"] = []
"""Connections that the test which runs has made."""


@asynccontextmanager
async def web(overlay: Live, **how: Any) -> AsyncIterator[int]:
    """The port of an HTTP server for an overlay that is started here."""
    await overlay.start()
    gateway = HttpGateway(overlay.url, overlay.description, **how)
    said: list[str] = []
    server = HttpServer(gateway.handle, said.append)
    await server.start()
    await gateway.start()
    try:
        yield server.port
    finally:
        while opened:
            await opened.pop().close()
        await server.stop()
        await gateway.stop()
        assert said == []


async def curl(port: int, path: str, *arguments: str, data: bytes | None = None) -> tuple[int, Any]:
    """The status and the JSON that curl gets."""
    assert CURL is not None
    given = ["--data-binary", "@-"] if data is not None else []
    process = await asyncio.create_subprocess_exec(
        CURL, "-sS", "-m", "60", "-w", "\n%{http_code}", *given, *arguments, f"http://127.0.0.1:{port}{path}",
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    told, problem = await process.communicate(data)
    assert process.returncode == 0, problem
    body, _, status = told.decode().rpartition("\n")
    return int(status), json.loads(body)


class Raw:
    """A connection that says whatever it is told to."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    @classmethod
    async def open(cls, port: int, tls: ssl.SSLContext | None = None) -> "Raw":
        opened.append(cls(*await asyncio.open_connection("127.0.0.1", port, ssl=tls)))
        return opened[-1]

    async def close(self) -> None:
        self.writer.close()
        with suppress(OSError):
            await self.writer.wait_closed()

    def say(self, text: str | bytes) -> None:
        self.writer.write(text.encode() if isinstance(text, str) else text)

    async def answer(self) -> tuple[int, Any]:
        """The status and the JSON of the next answer."""
        async with asyncio.timeout(60):
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode().lower()
            length = int(head.partition("content-length: ")[2].partition("\r\n")[0])
            return int(head.split()[1]), json.loads(await self.reader.readexactly(length))

    async def rows(self, count: int) -> list[tuple[str, Any]]:
        """The ids and rows of so many server-sent events."""
        found: list[tuple[str, Any]] = []
        identity = ""
        async with asyncio.timeout(60):
            while len(found) < count:
                line = (await self.reader.readline()).decode().strip()
                if line.startswith("id: "):
                    identity = line[4:]
                elif line.startswith("data: "):
                    found.append((identity, json.loads(line[6:])))
        return found

    async def line(self, begin: str) -> str:
        async with asyncio.timeout(60):
            while not (line := (await self.reader.readline()).decode()).startswith(begin):
                assert line
        return line.strip()


def asks(path: str, **headers: str) -> str:
    named = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    return f"GET {path} HTTP/1.1\r\nHost: x\r\n{named}\r\n"


@needs_curl
def test_events_are_published_in_every_form(live: Callable[..., Live]) -> None:
    async def test() -> None:
        overlay = live(("b1", "b2"))
        async with web(overlay) as port, catchment.connect(overlay.url, broker="b2") as subscriber:
            subscription = await subscriber.subscribe(ALL)
            path = "/topics/traffic/events?at=b1"
            table = pa.table({"speed": [6.0, 7.0]})
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, table.schema) as writer:
                writer.write_table(table)
            bodies = [b'{"speed": 1}', b'[{"speed": 2}, {"speed": 3}]', b'{"speed": 4}\n\n{"speed": 5}\n']
            for count, data in zip((1, 2, 2, 2), [*bodies, sink.getvalue().to_pybytes()], strict=True):
                assert await curl(port, path, data=data) == (200, {"published": count, "late": [], "refused": []})
            assert speeds(await take(subscription, 7)) == [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]
            status, said = await curl(port, path, data=b'{"speed": 8}\nnonsense\n{"sped": 1}\n{"speed": "x"}\n')
            assert (status, said["published"], [one["row"] for one in said["refused"]]) == (422, 1, [2, 3, 4])
            assert said["refused"][2]["reason"] == "attribute 'speed' is 'x'; accepted is float"
            # Much, in parts, and only after it was asked whether it may.
            many = b"\n".join(b'{"speed": 1}' for _ in range(100_000))
            status, said = await curl(port, path, "-H", "Transfer-Encoding: chunked", data=many)
            assert (status, said["published"]) == (200, 100_000)
            assert await curl(port, "/topics") == (
                200,
                {"topics": {"traffic": {"speed": "float", "highway": "string", "vehicles": "int"}},
                 "brokers": ["b1", "b2"]},
            )  # fmt: skip

    run(test())


BAD = [
    ("/nowhere", b"", 404, "there is no /nowhere; accepted are GET /topics, POST /topics/<topic>/events"),
    ("/topics", b"", 405, "the method is POST; accepted here are GET"),
    ("/topics/weather/events", b"{}", 404, "unknown topic 'weather'; known are traffic"),
    ("/topics/traffic/events?at=b9", b"{}", 404, "there is no broker 'b9'; there are b1"),
    ("/topics/traffic/events?to=b1", b"{}", 400, "the parameter 'to' is unknown; accepted are at"),
    ("/topics/traffic/events", b"", 400, "the body has no events"),
    ("/topics/traffic/events", b"nonsense", 400, "accepted are a JSON object, an array of them, JSON lines, or an Arr"),
    ("/topics/traffic/events", b"[1]", 400, "row 1 is '1'; accepted are JSON objects"),
    ("/topics/traffic/events", b"[" * 100_000, 400, "accepted is an array of objects"),
    ("/topics/traffic/events", b"{" * 100_000, 400, "the body has no events"),
    ("/topics/traffic/events", b"\xff\xff\xff\xffnonsense", 400, "an Arrow stream does not decode"),
    ("/topics/traffic/events", b"x" * 17_000_000, 413, "accepted are at most 16000000"),
    ("/subscribe", b"", 405, "the method is POST; accepted here are GET, DELETE"),
]


@needs_curl
def test_what_is_wrong_is_said_with_what_is_accepted(live: Callable[..., Live]) -> None:
    async def test() -> None:
        async with web(live()) as port:
            for path, data, status, reason in BAD:
                got, said = await curl(port, path, data=data)
                assert (got, reason in said["error"]) == (status, True), (path, data[:20], got, said)
            for query, status, reason in [
                ("", 400, "the parameter 'sql' is missing; accepted are sql, at, name, durable, last_event_id"),
                ("?sql=nonsense", 422, "is no SELECT; accepted is SELECT"),
                ("?sql=nonsense&durable=d", 422, "is no SELECT; accepted is SELECT"),
                ("?sql=x&at=b9", 404, "there is no broker 'b9'; there are b1"),
            ]:
                got, said = await curl(port, f"/subscribe{query}")
                assert (got, reason in said["error"]) == (status, True), (query, got, said)
            raw = await Raw.open(port)
            raw.say("nonsense\r\n\r\n")
            assert (await raw.answer())[0] == 400
            raw = await Raw.open(port)
            raw.say(b"GET /topics HTTP/1.1\r\nHost: x\r\nX: " + b"x" * 100_000 + b"\r\n\r\n")
            assert (await raw.answer())[0] == 431
            # One connection, many requests, some at once.
            raw = await Raw.open(port)
            raw.say(asks("/topics") + asks("/none") + asks("/topics"))
            assert [(await raw.answer())[0] for _ in range(3)] == [200, 404, 200]

    run(test())


def test_a_listener_gets_events_and_values_and_its_client_ends_with_it(
    live: Callable[..., Live], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_listening, "HEARTBEAT_S", 0.2)

    async def test() -> None:
        overlay = live(("b1", "b2"), idle_after_us=200_000)
        async with web(overlay) as port, catchment.connect(overlay.url, broker="b1") as publisher:
            events, values = await Raw.open(port), await Raw.open(port)
            events.say(asks("/subscribe?sql=SELECT%20*%20FROM%20traffic&at=b2&name=all"))
            values.say(asks("/subscribe?sql=SELECT+count(*)+FROM+traffic+GROUP+BY+window(ts,'1+second')"))
            for one in (events, values):
                assert await one.line("HTTP") == "HTTP/1.1 200 OK"
                await one.line("retry: ")
            await events.line(": still there")
            receipt = await publisher.publish("traffic", {"speed": 1.5, "highway": "é", "ts": "2026-01-01 00:00:01"})
            assert receipt.events == 1
            ((identity, event),) = await events.rows(1)
            assert identity == ""
            assert (event["subscription"], event["speed"], event["highway"]) == ("all", 1.5, "é")
            assert event["ts"] == "2026-01-01T00:00:01+00:00"
            ((_, value),) = await values.rows(1)
            assert (value["output"], value["value"], value["window_end"]) == (
                "count(*)", 1, "2026-01-01T00:00:02+00:00"
            )  # fmt: skip
            assert await delivery_streams(overlay) == 3
            for one in (events, values):
                one.writer.close()
            await eventually(lambda: are_left(overlay, 1))

    run(test())


async def delivery_streams(overlay: Live) -> int:
    from catchment.transport.jetstream import JetStream
    from catchment.transport.wire import open_connection

    connection = await open_connection(overlay.url, "test")
    try:
        return len(await JetStream(connection).names("catchment.outbox.>"))
    finally:
        await connection.close()


async def are_left(overlay: Live, count: int) -> bool:
    return await delivery_streams(overlay) == count


def test_a_durable_listener_goes_on_where_it_was(live: Callable[..., Live]) -> None:
    async def test() -> None:
        overlay = live()
        path = "/subscribe?sql=SELECT+*+FROM+traffic&durable=me"
        async with web(overlay) as port, catchment.connect(overlay.url, broker="b1") as publisher:
            first = await Raw.open(port)
            first.say(asks(path))
            await first.line("retry: ")
            await publisher.publish("traffic", [{"speed": float(one)} for one in range(10)])
            seen = await first.rows(10)
            assert [row["speed"] for _, row in seen] == [float(one) for one in range(10)]
            # It says that it has only some of them; and comes before the other connection is known to be gone.
            second = await Raw.open(port)
            second.say(asks(path, last_event_id=seen[3][0]))
            assert await second.rows(6) == seen[4:]
            second.writer.close()
            await publisher.publish("traffic", {"speed": 10.0})
            third = await Raw.open(port)
            third.say(asks(path, last_event_id=seen[9][0]))
            await publisher.publish("traffic", {"speed": 11.0})
            assert [row["speed"] for _, row in await third.rows(2)] == [10.0, 11.0]
            third.writer.close()
            # Of an id that another process has given, nothing is known; what it had is not sent again.
            fourth = await Raw.open(port)
            fourth.say(asks(path, last_event_id="0-5"))
            await fourth.line("retry: ")
            await publisher.publish("traffic", {"speed": 12.0})
            assert (await fourth.rows(1))[0][1]["speed"] == 12.0
            fourth.writer.close()
            ended = await Raw.open(port)
            ended.say("DELETE" + asks(path)[3:])
            assert await ended.answer() == (200, {"forgotten": "me"})
            await eventually(lambda: are_left(overlay, 1))

    run(test())


def test_windows_do_not_wait_for_publishers_that_have_gone(live: Callable[..., Live]) -> None:
    async def test() -> None:
        overlay = live(gateway_lease_us=300_000)
        async with web(overlay) as port, catchment.connect(overlay.url, broker="b1") as subscriber:
            subscription = await subscriber.subscribe("SELECT count(*) FROM traffic GROUP BY window(ts, '1 day')")
            raw = await Raw.open(port)
            raw.say("POST /topics/traffic/events HTTP/1.1\r\nHost: x\r\nContent-Length: 20\r\n\r\n")
            raw.say('{"ts": "2030-01-01"}')
            assert (await raw.answer())[1]["published"] == 1
            (value,) = await take(subscription, 1)
            assert value.value == 1

    run(test())


def test_a_listener_that_does_not_read_is_dropped_and_holds_little(
    live: Callable[..., Live], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_server, "SLOW_S", 0.5)

    async def test() -> None:
        overlay = live()
        async with web(overlay) as port, catchment.connect(overlay.url, broker="b1") as publisher:
            slow = await Raw.open(port)
            slow.say(asks("/subscribe?sql=SELECT+*+FROM+traffic"))
            await slow.line("retry: ")
            slow.writer.transport.pause_reading()  # type: ignore[attr-defined]
            row = {"highway": "x" * 10_000}
            for _ in range(50):
                await publisher.publish("traffic", [row] * 40)
                if await are_left(overlay, 1):
                    break
            await eventually(lambda: are_left(overlay, 1))
            slow.writer.close()

    run(test())


@needs_curl
def test_pages_of_other_sites_may_not_ask_unless_they_are_accepted(live: Callable[..., Live]) -> None:
    async def test() -> None:
        async with web(live(), origins=["http://good.example"]) as port:
            path = "/topics/traffic/events"
            status, said = await curl(port, path, "-H", "Origin: http://evil.example", data=b"{}")
            assert (status, said["error"]) == (
                403, "a page of http://evil.example asks; accepted besides this server's own are http://good.example"
            )  # fmt: skip
            for origin in ("http://good.example", f"http://127.0.0.1:{port}"):
                assert (await curl(port, path, "-H", f"Origin: {origin}", data=b"{}"))[0] == 200
            assert (await curl(port, path, "-X", "OPTIONS", "-H", "Origin: http://good.example"))[0] == 200

    run(test())


class Coming:
    """A client and its subscription, of which one row comes just when it is closed."""

    name = "s"

    def __init__(self) -> None:
        self.confirmed, self.closed, self.row = 0, 0, asyncio.Event()

    async def batches(self) -> AsyncIterator[list[Any]]:
        await self.row.wait()
        yield [{"speed": 1.0}]

    def confirm(self) -> None:
        self.confirmed += 1

    async def close(self) -> None:
        self.closed += 1


def test_a_row_that_comes_just_when_its_listener_ends_is_kept_for_the_next_one() -> None:
    async def test() -> None:
        kept, coming = http_listening.Kept(1_000), Coming()
        listener = http_listening.Listener(coming, coming, kept, "x-")  # type: ignore[arg-type]
        parts = aiter(listener)
        assert (await anext(parts)).startswith("retry: ")
        waiting = asyncio.create_task(anext(parts))  # type: ignore[arg-type]
        await asyncio.sleep(0)
        coming.row.set()
        while listener._coming is None or not listener._coming.done():
            await asyncio.sleep(0)
        await asyncio.gather(listener.close(), listener.close())
        with pytest.raises(StopAsyncIteration):
            await waiting
        assert (coming.confirmed, coming.closed) == (1, 1)
        assert [json.loads(text) for _, text in kept.behind(kept.written)] == [{"subscription": "s", "speed": 1.0}]

    run(test())
