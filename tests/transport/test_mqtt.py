"""Devices that speak MQTT: a client of somebody else, against the listener of the server."""

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import Queue
from typing import Any

import pytest
from paho.mqtt import client as paho
from paho.mqtt.enums import CallbackAPIVersion

import catchment
from catchment.transport.server import Server
from tests.transport.conftest import Live, eventually, run
from tests.transport.test_clients import ALL, speeds, take
from tests.transport.test_foreign import streams_exist


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with Server(tmp_path / "server", mqtt_port=0) as server:
        yield server


@contextmanager
def device(port: int) -> Iterator[paho.Client]:
    """A connected MQTT client, with a thread of its own."""
    client = paho.Client(CallbackAPIVersion.VERSION2)
    client.connect("127.0.0.1", port)
    client.loop_start()
    try:
        yield client
    finally:
        client.disconnect()
        client.loop_stop()


@pytest.mark.parametrize("qos", [0, 1])
def test_a_device_publishes(live: Callable[..., Live], server: Server, qos: int) -> None:
    async def test() -> None:
        overlay = live(("b1", "b2"))
        await overlay.start()
        await eventually(lambda: streams_exist(overlay))
        assert server.mqtt_port
        with device(server.mqtt_port) as client:
            async with catchment.connect(overlay.url, broker="b2") as subscriber:
                subscription = await subscriber.subscribe(ALL)
                for speed in range(20):
                    sent = client.publish("catchment/pub/b1/traffic", json.dumps({"speed": speed}), qos=qos)
                await asyncio.to_thread(sent.wait_for_publish, 30)
                assert speeds(await take(subscription, 20)) == [float(speed) for speed in range(20)]

    run(test())


def test_a_server_keeps_its_ports_when_it_is_back(server: Server) -> None:
    before = server.url, server.mqtt_port
    server.kill()
    server.start()
    assert (server.url, server.mqtt_port) == before
    heard: Queue[Any] = Queue()
    assert server.mqtt_port
    with device(server.mqtt_port) as client:
        client.on_message = lambda _client, _data, message: heard.put((message.topic, message.payload))
        client.on_subscribe = lambda *_: heard.put("subscribed")
        client.subscribe("catchment/sub/slow", qos=0)
        assert heard.get(timeout=30) == "subscribed"
        client.publish("catchment/sub/slow", b"x")
        assert heard.get(timeout=30) == ("catchment/sub/slow", b"x")
