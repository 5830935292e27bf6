"""Whatever bytes somebody sends: an answer or a refusal of ours, and nothing else."""

import asyncio
import json
from contextlib import suppress

from hypothesis import example, given
from hypothesis import strategies as st

from catchment.model.errors import EventError
from catchment.transport.http_gateway import _rows
from catchment.transport.http_server import Answer, HttpError, HttpServer, Request
from catchment.transport.jetstream import Stored
from catchment.transport.names import token, untoken
from catchment.transport.posting import reply_subject
from catchment.transport.rows import event_of_line

_json = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
).map(json.dumps)
_bodies = (
    st.binary(max_size=100) | _json.map(str.encode) | st.lists(_json).map(lambda several: "\n".join(several).encode())
)


@given(_bodies)
@example(b"[" * 100_000)
@example(b'{"a":' * 100_000)
@example(b"[1]\n[2]")
@example(b"\xef\xbb\xbf{}")
@example(b"1" * 5_000)
def test_a_body_has_rows_or_is_refused(body: bytes) -> None:
    with suppress(HttpError):
        for _, row in _rows(body):
            with suppress(EventError):
                assert isinstance(row if isinstance(row, dict) else event_of_line(row), dict)


@given(st.binary(max_size=80))
def test_no_header_leads_an_answer_to_what_is_no_inbox(named: bytes) -> None:
    head = b"NATS/1.0\r\nCatchment-Reply: " + named + b"\r\n\r\n"
    found = reply_subject(Stored("catchment.pub.b1.t", b"", 1, 0, head))
    assert found is None or (found.startswith("_INBOX") and not set(found) & set(" \t\r\n*>"))


@given(st.text())
def test_any_name_is_a_token_and_back(name: str) -> None:
    if name.isprintable():
        assert untoken(token(name)) == name
        assert not set(token(name)) & set(" .*>/")


_lines = st.sampled_from(
    [
        b"GET / HTTP/1.1\r\n", b"POST /%ff%00?a=%zz&&= HTTP/1.1\r\n", b"Host: x\r\n", b"Content-Length: 3\r\n", b"abc",
        b"Transfer-Encoding: chunked\r\n", b"3\r\nabc\r\n0\r\n\r\n", b"Expect: 100-continue\r\n", b"\r\n", b"GET",
        b"Content-Length: -1\r\n", b"Content-Length: 99999999999999999999\r\n", b"Connection: close\r\n",
    ]
)  # fmt: skip


@given(st.lists(st.lists(_lines | st.binary(max_size=20), max_size=8).map(b"".join), min_size=1, max_size=5))
def test_whatever_comes_over_a_connection_is_answered_or_ended(said: list[bytes]) -> None:
    reports: list[str] = []

    async def handle(request: Request) -> Answer:
        return Answer({"path": request.path, "query": dict(request.query), "bytes": len(request.body)})

    async def test() -> None:
        server = HttpServer(handle, reports.append)
        await server.start()
        try:
            for data in said:
                reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
                writer.write(data)
                writer.write_eof()
                async with asyncio.timeout(20):
                    answer = await reader.read()
                writer.close()
                await asyncio.gather(writer.wait_closed(), return_exceptions=True)
                assert not answer or answer.startswith(b"HTTP/1.1 ")
        finally:
            await server.stop()

    asyncio.run(test())
    assert reports == []
