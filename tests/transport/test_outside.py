"""`catchment up` for those who have no Catchment: what docs/live.md says, run as it stands there."""

import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from queue import Queue
from typing import Any

import pytest

from tests.transport.test_commands import COMMAND, TOML, line_with, started
from tests.transport.test_mqtt import device

SECTION = "## From anything: HTTP, MQTT, NATS"


def documented(tool: str, ports: dict[str, str]) -> list[list[str]]:
    """The commands of the documentation that use a tool, with other ports, in their order."""
    text = (Path(__file__).parents[2] / "docs" / "live.md").read_text()
    lines = [line.strip() for line in text.partition(SECTION)[2].partition("\n## ")[0].splitlines()]
    found = [line for line in lines if line.startswith(f"{tool} ")]
    assert found, tool
    for there, here in ports.items():
        found = [re.sub(rf"(?<=[ :]){there}\b", here, line) for line in found]
    return [shlex.split(line) for line in found]


def test_an_overlay_takes_events_of_anything(tmp_path: Path) -> None:
    (tmp_path / "overlay.toml").write_text(TOML.replace("[options]\n", '[options]\ngateway_lease = "1 second"\n'))
    (tmp_path / "events.jsonl").write_text('{"speed": 50}\n{"speed": 70}\n{"sped": 1}\n')
    with started(
        "up", str(tmp_path / "overlay.toml"), "--http", "0", "--mqtt", "0", "--processes", "1", "--log", "text"
    ) as up:
        url = line_with(up.stderr, "2 brokers run at").split(" at ")[1].split(": ")[0]
        http = line_with(up.stderr, "/events?at=b1").rpartition("127.0.0.1:")[2].partition("/")[0]
        mqtt = line_with(up.stderr, "mosquitto_pub").partition("-p ")[2].split()[0]
        ports = {"8080": http, "1883": mqtt, "4222": url.rpartition(":")[2]}
        curls = documented("curl", ports) if shutil.which("curl") else []
        with device(int(mqtt)) as client:
            heard: Queue[Any] = Queue()
            client.on_subscribe = lambda *_: heard.put("subscribed")
            client.on_message = lambda _client, _data, message: heard.put(json.loads(message.payload))
            client.subscribe("catchment/sub/slow")
            assert heard.get(timeout=60) == "subscribed"
            with subprocess.Popen(curls[3], stdout=subprocess.PIPE, text=True) as listening:
                line_with(listening.stdout, "retry: ")
                answers = [
                    json.loads(subprocess.run(one, cwd=tmp_path, capture_output=True, timeout=60, check=True).stdout)
                    for one in curls[:3]
                ]
                assert [one.get("published") for one in answers] == [1, 2, None]
                assert [one["row"] for one in answers[1]["refused"]] == [3]
                assert answers[2]["brokers"] == ["b1", "b2"]
                (publish,) = documented("mosquitto_pub", ports)
                topic, event = publish[publish.index("-t") + 1], publish[publish.index("-m") + 1]
                if shutil.which("mosquitto_pub"):
                    subprocess.run(publish, timeout=60, check=True)
                else:
                    client.publish(topic, event, qos=1).wait_for_publish(60)
                if shutil.which("nats"):
                    for one in documented("nats", ports):
                        subprocess.run(one, timeout=60, check=True)
                rows = [json.loads(line_with(listening.stdout, "data: ")[6:]) for _ in range(3)]
                assert [row["speed"] for row in rows] == [55.0, 50.0, 55.0]
                listening.terminate()
            # Nobody posts any more, and the window closes once the lease has ended.
            value = heard.get(timeout=60)
            assert (value["subscription"], value["output"]) == ("slow", "avg(speed)")
            assert json.loads(line_with(up.stdout, "slow")) == value
    assert up.returncode == 0


def test_nobody_unknown_is_let_in_where_users_are_known(tmp_path: Path) -> None:
    (tmp_path / "overlay.toml").write_text(TOML)
    (tmp_path / "access.json").write_text("{}")
    found = subprocess.run(
        [*COMMAND, "up", "overlay.toml", "--access", "access.json", "--mqtt", "0"],
        cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert found.returncode == 2
    assert "a device is known by its certificate" in found.stderr


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_users_come_over_http_with_their_tokens(tmp_path: Path) -> None:
    (tmp_path / "overlay.toml").write_text(TOML)

    def done(*words: str) -> str:
        return subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=True).stdout

    added = done(*COMMAND, "access", "add", "ann", "--role", "publisher", "--topic", "traffic", "--http")
    assert added.splitlines() == ["the key of ann is in ann.key", "the token of ann is in ann.token"]
    assert (tmp_path / "ann.token").stat().st_mode & 0o777 == 0o600
    token = (tmp_path / "ann.token").read_text().strip()
    assert token not in (tmp_path / "access.json").read_text()
    # Who has one keeps it.
    assert done(*COMMAND, "access", "add", "ann", "--role", "subscriber", "--topic", "traffic", "--http") == ""
    with started(
        "up", "overlay.toml", "--access", "access.json", "--http", "0", "--processes", "1", "--log", "text",
        cwd=tmp_path,
    ) as up:  # fmt: skip
        publish = shlex.split(line_with(up.stderr, "/events?at=b1").replace("$(cat USER.token)", token))
        assert publish[:3] == ["curl", "-H", f"Authorization: Bearer {token}"]
        assert json.loads(done(*publish))["published"] == 1
        assert "the request shows no token" in json.loads(done("curl", *publish[3:]))["error"]
        (tmp_path / "access.json").write_text('{"users": {}}')
        line_with(up.stderr, "users are as the file says now")
        assert "the token is of no user" in json.loads(done(*publish))["error"]
    assert up.returncode == 0


@pytest.mark.long
def test_http_serves_an_overlay_that_is_there(tmp_path: Path) -> None:
    (tmp_path / "overlay.toml").write_text(TOML)
    with started("up", str(tmp_path / "overlay.toml"), "--processes", "1", "--log", "text") as up:
        url = line_with(up.stderr, "2 brokers run at").split(" at ")[1].split(": ")[0]
        with started("http", "--server", url, "--port", "0") as http:
            address = line_with(http.stderr, "listens at").split(" at ")[1].split(". ")[0]
            if (curl := shutil.which("curl")) is not None:
                told = subprocess.run([curl, "-s", f"{address}/topics"], capture_output=True, timeout=60, check=True)
                assert json.loads(told.stdout)["brokers"] == ["b1", "b2"]
        assert http.returncode == 0
