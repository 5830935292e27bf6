"""What those who run a broker can see of it: metrics, health, reports."""

import asyncio
import json
import re
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

import catchment
from catchment.transport.figures import LAG_MAX_S, BrokerFigures, Counts, LinkFigures
from catchment.transport.http_server import HttpServer
from catchment.transport.metrics import MetricsAnswers, exposition
from catchment.transport.reports import ReportLines
from tests.transport.conftest import Live, run

SAMPLE = re.compile(r'^([a-z_]+)\{((?:[a-z]+="(?:[^"\\]|\\.)*",?)*)\} (\S+)$')


async def serving(figures: Callable[[], list[BrokerFigures]]) -> HttpServer:
    server = HttpServer(MetricsAnswers(figures).handle)
    await server.start()
    return server


async def asked(server: HttpServer, request: bytes) -> tuple[int, str]:
    """The status and the body that a server answers."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(request)
    head, _, body = (await reader.read()).decode().partition("\r\n\r\n")
    writer.close()
    return int(head.split()[1]), body


def get(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n".encode()


def samples(text: str) -> dict[tuple[str, str], float]:
    """By metric and labels, what a text in the format of Prometheus says; every line must be of that format."""
    found: dict[tuple[str, str], float] = {}
    kinds: set[str] = set()
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            kinds.add(line.split()[2])
        elif not line.startswith("# HELP "):
            match = SAMPLE.match(line)
            assert match is not None, line
            assert re.sub("_(bucket|sum|count)$", "", match[1]) in kinds or match[1] in kinds, line
            found[match[1], match[2]] = float(match[3])
    return found


def figures(**changed: Any) -> BrokerFigures:
    found = Counts("b1", ["b2"]).figures(0, None)
    return msgspec.structs.replace(found, state="serving", **changed)


def test_what_a_broker_did_is_in_its_metrics(live: Callable[..., Live]) -> None:
    async def test() -> None:
        overlay = live(("b1", "b2"))
        await overlay.start(only=["b2"])
        broker = overlay.in_process("b1")
        server = await serving(lambda: [broker.figures()])
        status, body = await asked(server, get("/health"))
        assert (status, json.loads(body)["brokers"]["b1"]["problem"]) == (503, "it is starting")
        task = asyncio.create_task(broker.run())
        await broker.serving.wait()
        async with (
            catchment.connect(overlay.url, broker="b1") as here,
            catchment.connect(overlay.url, broker="b2") as there,
        ):
            subscription = await there.subscribe("SELECT * FROM traffic WHERE speed > 1")
            await here.subscribe("SELECT avg(speed) FROM traffic GROUP BY window(ts, '20 seconds')")
            await here.publish("traffic", [{"speed": 1.0}, {"speed": 2.0}, {"speed": 3.0}])
            with pytest.raises(catchment.CatchmentError):
                await here.publish("traffic", {"speed": float("nan")})
            for _ in range(2):
                await anext(subscription)
            status, body = await asked(server, get("/metrics?x=1"))
        found = samples(body)
        assert status == 200
        expected = {
            ("catchment_up", 'broker="b1"'): 1,
            ("catchment_lives_total", 'broker="b1"'): 1,
            ("catchment_events_total", 'broker="b1",peer="clients",outcome="accepted"'): 3,
            ("catchment_events_total", 'broker="b1",peer="clients",outcome="refused"'): 1,
            ("catchment_messages_out_total", 'broker="b1",peer="b2",kind="publications"'): 2,
            ("catchment_subscriptions", 'broker="b1"'): 1,
            ("catchment_clients", 'broker="b1"'): 1,
            ("catchment_table_size", 'broker="b1",table="subscriptions"'): 1,
        }
        assert {key: found.get(key) for key in expected} == expected
        for name in ("frames_in_total", "bytes_in_total", "frames_out_total", "bytes_out_total"):
            for peer in ("clients", "b2"):
                assert found[f"catchment_{name}", f'broker="b1",peer="{peer}"'] > 0
        assert found["catchment_inputs_total", 'broker="b1",outcome="taken"'] > 5
        assert 5 < found["catchment_position", 'broker="b1"'] <= broker.position
        assert 0 <= found["catchment_snapshot_age_seconds", 'broker="b1"'] < 240
        assert (
            found["catchment_step_seconds_bucket", 'broker="b1",le="+Inf"']
            == found["catchment_step_seconds_count", 'broker="b1"']
            > 0
        )
        status, body = await asked(server, get("/health"))
        assert (status, json.loads(body)["healthy"]) == (200, True)
        broker.stop()
        await task
        status, body = await asked(server, get("/health"))
        assert (status, json.loads(body)["brokers"]["b1"]["problem"]) == (503, "it is ended")
        await server.stop()

    run(test())


def test_a_broker_far_behind_is_not_healthy() -> None:
    async def test() -> None:
        lagging = figures(inputs_waiting=7, lag_s=LAG_MAX_S + 1)
        server = await serving(lambda: [figures(lag_s=LAG_MAX_S), lagging])
        status, body = await asked(server, get("/health"))
        assert (status, json.loads(body)["brokers"]["b1"]["problem"]) == (
            503,
            "7 inputs wait, the oldest for 31 seconds",
        )
        await server.stop()

    run(test())


def test_other_requests_are_refused_with_what_is_accepted() -> None:
    async def test() -> None:
        server = await serving(list)
        assert (await asked(server, get("/other")))[0] == 404
        status, body = await asked(server, b"POST /metrics HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n")
        assert (status, json.loads(body)["error"]) == (405, "method is POST; accepted is GET")
        await server.stop()

    run(test())


def test_names_are_escaped_in_metrics() -> None:
    odd = 'b"\\\n1'
    text = exposition([figures(broker=odd, links={odd: LinkFigures(frames_in=3)})])
    escaped = 'b\\"\\\\\\n1'
    assert samples(text)["catchment_frames_in_total", f'broker="{escaped}",peer="{escaped}"'] == 3


def test_a_report_is_one_line_of_json_or_of_text() -> None:
    lines: list[str] = []
    for line_format in ("json", "text"):
        report = ReportLines(lines.append, line_format, clock_s=lambda: 1_700_000_000.25)
        report.about("b1")("leaves out a message", "warning", position=3, reason="no\nmark")
        report("ends")
    assert [json.loads(line) for line in lines[:2]] == [
        {
            "time": "2023-11-14T22:13:20.250+00:00",
            "level": "warning",
            "broker": "b1",
            "event": "leaves out a message",
            "position": 3,
            "reason": "no\nmark",
        },
        {"time": "2023-11-14T22:13:20.250+00:00", "level": "info", "event": "ends"},
    ]
    assert lines[2:] == ["broker b1 leaves out a message: position 3, reason no mark", "ends"]
    assert not any("\n" in line for line in lines)
