"""Every decoder of bytes that come from elsewhere, with samples of what it reads.

A target raises nothing: what its decoder may raise by its own documentation is caught here, and nothing else.
"""

import asyncio
import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Any

import msgspec
import pyarrow as pa

from catchment import Overlay, Subscription
from catchment.broker import messages as m
from catchment.broker.aggregation import Aggregation, AggregationOptions
from catchment.broker.broker import Broker, Settings
from catchment.broker.frames import FrameReader
from catchment.broker.gateway import Gateway
from catchment.broker.hosting import Mark, item_from_bytes, item_to_bytes
from catchment.broker.inputs import Attached, Detached, Item, Overrun, Parked, Posted, Received, Room, Woken
from catchment.broker.memory import freeze
from catchment.broker.snapshot_coding import read_value
from catchment.broker.snapshot_pieces import SnapshotPiece
from catchment.model.errors import CatchmentError, CheckpointError, EventError, FrameError
from catchment.transport.access import Access
from catchment.transport.answering import request_from_bytes
from catchment.transport.asking import Come, Deliver, Describe
from catchment.transport.description import Description
from catchment.transport.entries import input_of
from catchment.transport.http_gateway import _rows
from catchment.transport.http_server import Answer, HttpError, HttpServer, Request
from catchment.transport.jetstream import Stored
from catchment.transport.names import client_subject, input_subjects, link_subject, post_subjects
from catchment.transport.rows import event_of_line
from catchment.transport.wire import Connection
from tests.broker.wire import SCHEMAS, Desk, Wire


@dataclass(frozen=True)
class Target:
    """A decoder: what it reads, and how it is called."""

    samples: Callable[[], Sequence[bytes]]
    take: Callable[[bytes], object]


WINDOW = "GROUP BY window(ts, '4 seconds', '2 seconds')"
SQL = [
    "SELECT * FROM traffic WHERE speed < 60 AND highway IN ('401', '4''03')",
    f"SELECT highway, avg(speed) AS a, count(*) FROM traffic WHERE NOT (vehicles BETWEEN 1 AND 2.5D) {WINDOW}, highway "
    "HAVING avg(speed) < 30 OR a IS NULL",
    f"SELECT approx_percentile(speed, 0.5), approx_count_distinct(highway) FROM traffic {WINDOW} -- that is all",
    "select `speed` from traffic as t where t.highway like '40%' or ts >= TIMESTAMP '2026-05-01 08:00:00Z'",
]


# -- frames ------------------------------------------------------------------------------------------------------------


class Conversation(Wire):
    """Brokers that aggregate; keeps all that was handed to one of them."""

    def __init__(self, of: str) -> None:
        super().__init__(Overlay.from_links([("b1", "b2"), ("b2", "b3")]), [aggregation])  # type: ignore[list-item]
        self.items: list[Item] = []
        desk = self.desks[of]
        hand = desk.hand

        def kept(*items: Item, at_us: int = 0) -> Any:
            self.items += items
            return hand(*items, at_us=at_us)

        desk.hand = kept  # type: ignore[method-assign]


def aggregation() -> Aggregation:
    return Aggregation(AggregationOptions(placement="early"))


@cache
def said_to(broker: str) -> tuple[Item, ...]:
    """What a broker is handed in a conversation: clients come, advertise, subscribe, publish, go."""
    talk = Conversation(broker)
    for client in ("b1/p", "b2/p"):
        talk.advertise(client)
    for number, sql in enumerate(SQL):
        talk.ask("b3/s", m.SubscribeTo, f"s{number}", sql)
        talk.ask("b2/s", m.SubscribeTo, f"s{number}", sql)
    talk.run()
    for second in range(12):
        for client in ("b1/p", "b2/p"):
            columns = {"speed": [20.0 + second, 70.5], "highway": ["401", "é"], "vehicles": [second, None]}
            times = pa.array([second * 1_000_000, second * 1_000_000 + 5], pa.timestamp("us", tz="UTC"))
            talk.ask(client, m.PublishEvents, "traffic", pa.RecordBatch.from_pydict({"ts": times, **columns}))
        talk.run()
    talk.unsubscribe("b3/s", "s1")
    talk.unadvertise("b1/p")
    talk.run()
    return tuple(talk.items)


def frames() -> list[bytes]:
    return [item.data for item in said_to("b2") if isinstance(item, Received)]


def take_frame(data: bytes) -> None:
    with suppress(FrameError):
        assert all(map(str, FrameReader().decode(data).messages))


def take_in_conversation(data: bytes) -> None:
    """A broker gets a damaged frame among whole ones: nothing in it fails, and it goes on."""
    items = said_to("b2")
    # Where the damaged frame stands follows from its bytes, so that a failure comes again.
    places = [place for place, item in enumerate(items) if isinstance(item, Received)]
    place = places[sum(data) % len(places)]
    broker = Broker("b2", ["b1", "b3"], Settings(schemas=SCHEMAS), [aggregation()])
    desk = Desk(broker)
    for now_us, item in enumerate((*items[:place], Received(data), *items[place + 1 :])):
        desk.hand(item, at_us=now_us)
    desk.hand(Woken(), at_us=10**9)
    assert not broker.input_failures, broker.input_failures
    assert not broker.failures, broker.failures


# -- what hosts store --------------------------------------------------------------------------------------------------

ITEMS: list[Item] = [
    Attached("user/c", 3, "user", True), Parked("user/c"), Detached("user/c"), Overrun("user/c", 7), Room("b3", False),
]  # fmt: skip


def take_item(data: bytes) -> None:
    with suppress(CheckpointError):
        item_from_bytes(data)


def take_input(data: bytes) -> None:
    """A message of an input stream, on each of its subjects, with headers and without."""
    subjects = [link_subject("b2", "b1"), client_subject("b2", "user/c")]
    subjects += post_subjects("b2", "traffic")
    subjects += [one.replace("*", "x") for one in input_subjects("b2")]
    mark = b"NATS/1.0\r\nCatchment-Mark: v1 1 2 3+4\r\n\r\n"
    for subject in subjects:
        for head, body in ((mark, data), (b"", data), (data, b""), (data, ITEM_BYTES[0])):
            with suppress(CatchmentError):
                input_of("b2", Stored(subject, body, 1, 0, head))


ITEM_BYTES = [item_to_bytes(item) for item in ITEMS]
MARKS = [b"v1 1 2 3+4", b"v1 0 0 ", b"NATS/1.0\r\nCatchment-Mark: v1 1 2 3+4+5\r\nNats-Msg-Id: 7\r\n\r\n"]


def take_mark(data: bytes) -> None:
    with suppress(CheckpointError):
        Mark.from_text(data.decode(errors="replace"))


@cache
def pieces() -> list[bytes]:
    broker = Broker("b2", ["b1", "b3"], Settings(schemas=SCHEMAS), [aggregation()])
    desk = Desk(broker)
    for now_us, item in enumerate(said_to("b2")[:60]):
        desk.hand(item, at_us=now_us)
    return list(freeze(broker).pieces())


def bodies() -> list[bytes]:
    return [SnapshotPiece.read(data).body for data in pieces()]


def take_piece(data: bytes) -> None:
    with suppress(CheckpointError):
        SnapshotPiece.read(data)


def take_snapshot_body(data: bytes) -> None:
    with suppress(CheckpointError):
        read_value([data])


# -- what foreign clients say ------------------------------------------------------------------------------------------


def posts() -> list[bytes]:
    rows = [{"speed": 1.5, "highway": "é", "ts": "2026-05-01T08:00:00Z"}, {"vehicles": None, "event_id": "x"}]
    table = pa.Table.from_pylist([{"speed": 1.5, "highway": "401", "vehicles": 2}] * 3)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    lines = "\n".join(map(json.dumps, rows))
    return [json.dumps(rows[0]).encode(), json.dumps(rows).encode(), lines.encode(), sink.getvalue().to_pybytes()]


def take_post(data: bytes) -> None:
    broker = Broker("b1", [], Settings(schemas=SCHEMAS), [Gateway()])
    step = Desk(broker).hand(Posted("traffic", data))
    assert not broker.failures, broker.failures
    assert not broker.input_failures, broker.input_failures
    assert [(one.kind, bool(one.reason)) for one in step.outcomes] in ([("taken", False)], [("refused", True)])


def take_http_body(data: bytes) -> None:
    with suppress(HttpError):
        for _, row in _rows(data):
            with suppress(EventError):
                assert isinstance(row if isinstance(row, dict) else event_of_line(row), dict)


HTTP = [
    b"POST /publish/b1/traffic?wait=stored HTTP/1.1\r\nHost: x\r\nContent-Length: 15\r\n\r\n" + b'{"speed": 1.50}',
    b"GET /subscribe?sql=SELECT%20* HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\nGET / HTTP/1.1\r\n\r\n",
]


def take_http_connection(data: bytes) -> None:
    reports: list[str] = []

    async def handle(request: Request) -> Answer:
        return Answer({"path": request.path, "query": dict(request.query), "bytes": len(request.body)})

    async def talk() -> None:
        server = HttpServer(handle, reports.append)
        await server.start()
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(data)
            writer.write_eof()
            with suppress(ConnectionError):  # The server may end it with our bytes unread.
                async with asyncio.timeout(20):
                    answer = await reader.read()
                assert not answer or answer.startswith(b"HTTP/1.1 ")
            writer.close()
            await asyncio.gather(writer.wait_closed(), return_exceptions=True)
        finally:
            await server.stop()

    asyncio.run(talk())
    assert reports == []


def take_sql(data: bytes) -> None:
    with suppress(CatchmentError):
        Subscription("s", sql=data.decode(errors="replace"))


# -- what is said over the server --------------------------------------------------------------------------------------

SERVER = [
    b'INFO {"server_id": "x", "headers": true, "max_payload": 1048576, "nonce": "n"}\r\nPING\r\nPONG\r\n',
    b"MSG a.b 1 5\r\nhello\r\nMSG a.b 1 _INBOX.1 0\r\n\r\n-ERR 'Authorization Violation'\r\n",
    b"HMSG a.b 1 _INBOX.1 12 17\r\nNATS/1.0\r\n\r\nhello\r\nHMSG a 1 30 30\r\nNATS/1.0 503\r\nA: b\r\nC: d\r\n\r\n\r\n",
]


def take_from_server(data: bytes) -> None:
    """A connection reads what is no NATS: it says so and ends, or takes it for messages."""

    async def read() -> None:
        connection = Connection("fuzz", "user")
        ended: list[bool] = []
        connection.abandon = lambda: ended.append(True)  # type: ignore[method-assign]
        heard: list[Any] = []
        connection.subscribe("a.b", lambda message: heard.append((message.status, message.headers, message.data)))
        for begin in range(0, len(data), 7):
            connection.data_received(data[begin : begin + 7])
        assert connection.problem or not ended, "it ends without a word"
        connection.connection_lost(None)

    asyncio.run(read())


REQUESTS = [msgspec.json.encode(one) for one in (Describe(), Come("c", 3, True), Deliver("c", 1, 2, "n"))]


def take_request(data: bytes) -> None:
    with suppress(CatchmentError):
        request_from_bytes(data)


DESCRIPTION = msgspec.json.encode(
    Description.of(Overlay.from_links([("b1", "b2")]), SCHEMAS, AggregationOptions(), client_lease_us=1)
)
ACCESS = json.dumps(
    {"users": {"ann": {"key": "U", "roles": {"publisher": ["traffic"], "subscriber": ["*"]}}}, "version": 1}
).encode()


def take_description(data: bytes) -> None:
    with suppress(CatchmentError):
        found = Description.from_bytes(data)
        assert found.settings.schemas is not None
        assert found.advice()


def take_access(data: bytes) -> None:
    with suppress(CatchmentError):
        Access.from_bytes(data, "a file")


TARGETS: dict[str, Target] = {
    "frame": Target(frames, take_frame),
    "frame-in-conversation": Target(frames, take_in_conversation),
    "item": Target(lambda: ITEM_BYTES, take_item),
    "input": Target(lambda: [*ITEM_BYTES, *MARKS, *frames()[:9]], take_input),
    "mark": Target(lambda: MARKS, take_mark),
    "snapshot-piece": Target(pieces, take_piece),
    "snapshot-body": Target(bodies, take_snapshot_body),
    "post": Target(posts, take_post),
    "http-body": Target(posts, take_http_body),
    "http-connection": Target(lambda: HTTP, take_http_connection),
    "sql": Target(lambda: [one.encode() for one in SQL], take_sql),
    "server": Target(lambda: SERVER, take_from_server),
    "request": Target(lambda: REQUESTS, take_request),
    "description": Target(lambda: [DESCRIPTION], take_description),
    "access": Target(lambda: [ACCESS], take_access),
}
