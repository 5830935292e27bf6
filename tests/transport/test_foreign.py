"""Publishers that know nothing of us: a NATS client of somebody else, on plain subjects."""

import json
from collections.abc import Callable
from typing import Any

import nats
import pyarrow as pa
import pytest

import catchment
from catchment.transport.jetstream import JetStream, Stored
from catchment.transport.names import post_subjects
from catchment.transport.posting import reply_subject
from catchment.transport.wire import header_bytes, open_connection
from tests.transport.conftest import Live, eventually, run
from tests.transport.test_clients import ALL, speeds, take


def body(*speeds: float) -> bytes:
    return b"\n".join(json.dumps({"speed": one}).encode() for one in speeds)


async def streams_exist(overlay: Live) -> bool:
    """Whether a broker has run, and has a stream that takes posts."""
    connection = await open_connection(overlay.url, "test")
    try:
        return bool(await JetStream(connection).names(post_subjects("b1")[0]))
    finally:
        await connection.close()


async def outcome(client: Any, subject: str, data: bytes) -> dict[str, str]:
    """What a broker says of a post."""
    inbox = client.new_inbox()
    heard = await client.subscribe(inbox)
    await client.jetstream().publish(subject, data, headers={"Catchment-Reply": inbox})
    message = await heard.next_msg(timeout=60)
    await heard.unsubscribe()
    said: dict[str, str] = json.loads(message.data)
    return said


def test_posts_are_stored_without_a_broker_and_taken_once_through_its_death(live: Callable[..., Live]) -> None:
    async def test() -> None:
        overlay = live(("b1", "b2"))
        await overlay.start()
        client = await nats.connect(overlay.url)
        streams = client.jetstream()
        async with catchment.connect(overlay.url, broker="b2") as subscriber:
            subscription = await subscriber.subscribe(ALL)
            await streams.publish("catchment.pub.b1.traffic", body(1))
            assert speeds(await take(subscription, 1)) == [1.0]
            overlay.brokers["b1"].kill()
            for one in range(2, 50):
                stored = await streams.publish("catchment.pub.b1.traffic", body(one))
                assert stored.seq
            table = pa.table({"speed": [50.0, 51.0]})
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, table.schema) as writer:
                writer.write_table(table)
            await streams.publish("catchment.pub.b1.traffic", sink.getvalue().to_pybytes())
            overlay.brokers["b1"].start(fault="stepped:1")
            await eventually(lambda: _is_dead(overlay))
            overlay.brokers["b1"].start()
            await streams.publish("catchment.pub.b1.traffic", body(52, 53))
            assert speeds(await take(subscription, 52)) == [float(one) for one in range(2, 54)]
        await client.close()

    async def _is_dead(overlay: Live) -> bool:
        return not overlay.brokers["b1"].is_alive

    run(test())


def test_who_asks_hears_what_became_of_a_post(live: Callable[..., Live]) -> None:
    async def test() -> None:
        overlay = live()
        await overlay.start()
        await eventually(lambda: streams_exist(overlay))
        client = await nats.connect(overlay.url)
        subject = "catchment.pub.b1.traffic"
        assert await outcome(client, subject, body(1, 2)) == {"kind": "taken", "reason": ""}
        said = await outcome(client, subject, b'{"speed": "fast"}')
        assert said == {"kind": "refused", "reason": "attribute 'speed' is 'fast'; accepted is float"}
        said = await outcome(client, "catchment.pub.b1.weather", body(1))
        assert said == {"kind": "refused", "reason": "unknown topic 'weather'; known are traffic"}
        # Whatever it names for a subject, a broker publishes nowhere else, and goes on.
        for named in ("$JS.API.STREAM.PURGE.catchment_input_b1", "a b c", "_INBOX.x y", "_INBOX.>", ""):
            await client.jetstream().publish(subject, b"nonsense", headers={"Catchment-Reply": named or "."})
        assert await outcome(client, subject, body(3)) == {"kind": "taken", "reason": ""}
        assert "refuses what was posted" in overlay.said
        assert "begins again" not in overlay.said
        await client.close()

    run(test())


def test_a_publisher_that_vanishes_holds_up_no_window_for_longer_than_its_lease(live: Callable[..., Live]) -> None:
    async def test() -> None:
        overlay = live(("b1", "b2"), gateway_lease_us=500_000)
        await overlay.start()
        client = await nats.connect(overlay.url)
        async with catchment.connect(overlay.url, broker="b2") as subscriber:
            sql = "SELECT count(*) FROM traffic GROUP BY window(ts, '1 day')"
            subscription = await subscriber.subscribe(sql)
            await client.jetstream().publish(
                "catchment.pub.b1.traffic", b'{"ts": "2030-01-01"}\n{"ts": 1893456001000000}'
            )
            (value,) = await take(subscription, 1)
            assert value.value == 2
        await client.close()

    run(test())


@pytest.mark.parametrize(
    ("named", "accepted"),
    [
        ("_INBOX.abc.1", True),
        ("_INBOX_alice.abc", True),
        ("_INBOX", False),
        ("_INBOX.", False),
        ("_INBOX.a b", False),
        ("_INBOX.*", False),
        ("catchment.control.b1", False),
        ("$JS.API.STREAM.PURGE.x", False),
    ],
)
def test_only_an_inbox_is_answered(named: str, accepted: bool) -> None:
    stored = Stored("catchment.pub.b1.traffic", b"", 1, 0, header_bytes({"Catchment-Reply": named}))
    assert (reply_subject(stored) == named) is accepted


def test_names_may_be_written_as_they_are() -> None:
    assert post_subjects("b1", "traffic") == ["catchment.pub.b1.traffic"]
    assert post_subjects("b_1") == ["catchment.pub.b=5F1.*", "catchment.pub.b_1.*"]
    assert post_subjects("b.1") == ["catchment.pub.b=2E1.*"]
