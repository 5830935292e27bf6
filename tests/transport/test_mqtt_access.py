"""MQTT where access is controlled: a device is known by its certificate, posts on its user's topics, no more."""

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import Empty, Queue
from typing import Any

import pytest
from paho.mqtt import client as paho
from paho.mqtt.enums import CallbackAPIVersion

from catchment.model.errors import ConfigurationError
from catchment.transport.access import Access
from catchment.transport.credentials import Credentials
from catchment.transport.jetstream import JetStream
from catchment.transport.permissions import SESSIONS_BYTES
from catchment.transport.server import server_config
from catchment.transport.wire import AccessError, open_connection
from tests.transport.conftest import eventually, run
from tests.transport.guarded import ALL, Authority, Guarded

POST = "catchment/pub/b1/traffic"


@contextmanager
def device(
    port: int, ca: Path, certificate: Path | None, prepare: Callable[[Any], None] = lambda client: None
) -> Iterator[Any]:
    """An MQTT client, and what it hears, in `heard`."""
    client = paho.Client(CallbackAPIVersion.VERSION2)
    client.heard = heard = Queue()  # type: ignore[attr-defined]
    client.tls_set(str(ca), *((None, None) if certificate is None else (str(certificate), f"{certificate}.key")))
    client.on_connect = lambda *told: heard.put(("connected", str(told[3])))
    client.on_disconnect = lambda *told: heard.put(("disconnected", str(told[3])))
    client.on_subscribe = lambda *told: heard.put(("subscribed", [str(one) for one in told[3]]))
    client.on_message = lambda *told: heard.put(("message", told[2].topic))
    prepare(client)
    try:
        client.connect("127.0.0.1", port)
        client.loop_start()
        yield client
    except OSError as error:
        heard.put(("failed", str(error)))
        yield client
    finally:
        client.disconnect()
        client.loop_stop()


class Devices:
    """A server with users that listens for MQTT, and certificates."""

    def __init__(self, folder: Path) -> None:
        self.authority, self.others = Authority(folder / "ca"), Authority(folder / "others")
        files = self.authority.server()
        self.guarded = Guarded(folder, certificates=files, mqtt_port=0, mqtt_ca=self.authority.file)
        given = self.guarded.of.items()
        self.guarded.of = {name: Credentials(key=one.key, ca=self.authority.file) for name, one in given}

    def known_as(self, user: str, **how: Any) -> Any:
        return self.device(self.authority.server(user).certificate, **how)

    def device(self, certificate: Path | None, **how: Any) -> Any:
        assert self.guarded.server.mqtt_port
        return device(self.guarded.server.mqtt_port, self.authority.file, certificate, **how)

    def subscriber(self, user: str = "bob") -> Any:
        return self.guarded.connect(user, broker="b2", ca=self.authority.file)


@pytest.fixture
def devices(tmp_path: Path) -> Iterator[Devices]:
    made = Devices(tmp_path)
    with made.guarded.server:
        yield made
        if hasattr(made.guarded, "overlay"):
            made.guarded.overlay.stop()


def test_a_device_posts_for_the_user_of_its_certificate(devices: Devices) -> None:
    async def test() -> None:
        await devices.guarded.started(("b1", "b2"))
        async with devices.subscriber() as bob:
            subscription = await bob.subscribe(ALL)
            with devices.known_as("ann") as client:
                assert await asyncio.to_thread(client.heard.get, timeout=60) == ("connected", "Success")
                for number in range(20):
                    client.publish(POST, json.dumps({"speed": number}), qos=number % 2)
                assert [(await anext(subscription))["speed"] for _ in range(20)] == [float(one) for one in range(20)]
                # More than all sessions of the user may take goes through, as nothing of it stays.
                text = "x" * 200_000
                for number in range(SESSIONS_BYTES // len(text) + 10):
                    client.publish(POST, json.dumps({"speed": number, "highway": text}), qos=1)
                    assert (await anext(subscription))["speed"] == float(number)

    run(test())


def test_a_device_can_do_nothing_else(devices: Devices) -> None:
    async def test() -> None:
        await devices.guarded.started(("b1", "b2"))
        root = await devices.guarded.opened("root")
        heard: list[Any] = []
        topics = [
            "catchment/pub/b1/stock", "catchment/control/b1", "catchment/link/b1/b2", "catchment/client/b1/ann/c",
            "catchment/client/b1/bob/c", "catchment/ask/b1/ann", "catchment/describe/ann", "catchment/deliver/bob/c/1",
            "catchment/steps/b1", "_INBOX_bob/1", "anything",
        ]  # fmt: skip
        for one in topics:
            root.subscribe(one.replace("/", "."), heard.append)
        streams = JetStream(root)
        await streams.names("catchment.>")
        before = await streams.state("KV_catchment_access")
        aims = [
            *topics,
            "$KV/catchment_access/table",
            "$KV/catchment_leases/b1",
            "$JS/API/STREAM/DELETE/KV_x",
            "$SYS/x",
        ]
        async with devices.subscriber() as bob:
            subscription = await bob.subscribe(ALL)
            last_words: Callable[[Any], None] = lambda one: one.will_set("catchment/control/b1", b"mine", qos=1)  # noqa: E731
            with devices.known_as("ann", prepare=last_words) as client:
                assert await asyncio.to_thread(client.heard.get, timeout=60) == ("connected", "Success")
                for aim in aims:
                    client.publish(aim, b"mine", qos=1)
                    client.publish(aim, b"mine", qos=0, retain=True)
                for aim in ("#", "catchment/#", POST, "catchment/sub/#", "catchment/deliver/#", "$MQTT/#", "$JS/#"):
                    client.subscribe(aim, qos=1)
                    said = await asyncio.to_thread(client.heard.get, timeout=60)
                    assert said == ("subscribed", ["Unspecified error"]), aim
                client.publish(POST, b'{"speed": 1}', qos=1)
                assert (await anext(subscription))["speed"] == 1.0
                # It vanishes, and has its last words.
                client._sock.close()

                async def are_refused() -> bool:
                    log = (devices.guarded.server.folder / "server.log").read_text()
                    return log.count('Publish Violation - Subject "catchment.control.b1"') == 3

                await eventually(are_refused)
        root.publish("anything", b"of an operator")

        async def is_heard() -> bool:
            return b"of an operator" in [one.data for one in heard]

        await eventually(is_heard)
        assert [one for one in heard if one.data == b"mine"] == []
        assert await streams.state("KV_catchment_access") == before
        await root.close()

    run(test())


def test_nobody_unknown_is_let_in(devices: Devices, tmp_path: Path) -> None:
    async def test() -> None:
        await devices.guarded.started()
        known = devices.authority.server("ann").certificate
        with devices.device(known) as client:
            assert await asyncio.to_thread(client.heard.get, timeout=60) == ("connected", "Success")

        def says_it_is_ann(client: Any) -> None:
            client.username_pw_set("ann", "")

        for certificate in (
            # Of no user, of users who publish nothing or work inside, of another authority, and none.
            *(devices.authority.server(user).certificate for user in ("nobody", "bob", "root", "brokers")),
            devices.others.server("ann").certificate,
            None,
        ):
            for prepare in (lambda client: None, says_it_is_ann):
                with devices.device(certificate, prepare=prepare) as client:
                    said = await asyncio.to_thread(client.heard.get, timeout=60)
                    assert said != ("connected", "Success"), certificate
                    client.publish(POST, b'{"speed": 1}')
        # The name alone opens nothing on the port for clients either.
        for words in ("ann", "ann:"):
            url = devices.guarded.server.url.replace("tls://", f"tls://{words}@")
            with pytest.raises(AccessError):
                await open_connection(url, "test", Credentials(ca=devices.authority.file))

    run(test())


def test_a_user_that_is_removed_has_no_devices(devices: Devices) -> None:
    async def test() -> None:
        await devices.guarded.started()
        with devices.known_as("ann") as client:
            assert await asyncio.to_thread(client.heard.get, timeout=60) == ("connected", "Success")
            devices.guarded.server.reload(devices.guarded.access.without("ann"))
            said = await asyncio.to_thread(client.heard.get, timeout=60)
            assert said[0] == "disconnected"

            async def is_refused() -> bool:
                try:
                    return bool(client.heard.get_nowait() == ("connected", "Not authorized"))
                except Empty:
                    return False

            await eventually(is_refused)

    run(test())


def test_users_without_certificates_and_certificates_without_users_are_refused(tmp_path: Path) -> None:
    files = Authority(tmp_path / "ca").server()
    for access, given, ca in (
        (Access(), None, None), (Access(), files, None), (Access(), None, files.key), (None, files, files.key),
    ):  # fmt: skip
        with pytest.raises(ConfigurationError, match="MQTT with users is asked for without certificates; accepted are"):
            server_config("127.0.0.1:0", tmp_path, access, given, mqtt="127.0.0.1:0", mqtt_ca=ca)
