"""The commands of a running overlay, as a shell runs them."""

import json
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from catchment.app.serving import publish_lines
from tests.transport.conftest import Live, run

COMMAND = [str(Path(sys.executable).with_name("catchment"))]
TOML = """
[topics.traffic]
speed = "float"
highway = "string"

[overlay]
links = [["b1", "b2"]]

[options]
placement = "early"

[[subscriptions]]
name = "slow"
at = "b2"
sql = "SELECT avg(speed) FROM traffic GROUP BY window(ts, '20 seconds')"
"""


@contextmanager
def started(*arguments: str, cwd: Path | None = None) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [*COMMAND, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=cwd,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        try:
            process.communicate(timeout=120)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            raise


def line_with(stream: Any, text: str) -> str:
    """The next line that has some text; the process ends, and so the stream, if it never comes."""
    said = []
    for line in stream:
        said.append(line)
        if text in line:
            return str(line)
    raise AssertionError(f"no line with {text!r}: {''.join(said)}")


def published(url: str, *lines: object) -> dict[str, Any]:
    found = subprocess.run(
        [*COMMAND, "publish", "traffic", "--server", url, "--at", "b1", "--json"],
        input="".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines),
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    return dict(json.loads(found.stdout), code=found.returncode)


def test_lines_are_published_and_those_that_are_no_events_refused(live: Callable[..., Live], tmp_path: Path) -> None:
    overlay = live()
    run(overlay.start())
    lines = tmp_path / "events"
    lines.write_text('{"speed": 50}\n\n{"speed": 5.0}\nnonsense\n{"sped": 1}\n')
    with lines.open() as file:
        found = publish_lines("traffic", overlay.url, "b1", file.fileno(), stored=False)
    assert (found["published"], found["late"], [one["line"] for one in found["refused"]]) == (2, [], [4, 5])


@pytest.mark.long
def test_an_overlay_is_up_until_it_is_interrupted(tmp_path: Path) -> None:
    config = tmp_path / "overlay.toml"
    config.write_text(TOML)
    with started("up", str(config), "--store", str(tmp_path / "store"), "--processes", "1", "--log", "text") as up:
        url = line_with(up.stderr, "2 brokers run at").split(" at ")[1].split(": ")[0]
        with started("up", str(config), "--store", str(tmp_path / "store")) as second:
            line_with(second.stderr, "is in use by the server of process")
            assert second.wait(60) == 2
        with started(
            "subscribe", "SELECT * FROM traffic WHERE speed > 10", "--server", url, "--at", "b2"
        ) as subscriber:
            line_with(subscriber.stderr, "subscribed")
            said = published(
                url, {"speed": 50, "highway": "401", "ts": "2026-01-01 00:00:01"}, {"speed": 5.0}, "nonsense",
                {"sped": 1},
            )  # fmt: skip
            assert (said["code"], said["published"], [one["line"] for one in said["refused"]]) == (1, 2, [3, 4])
            event = json.loads(line_with(subscriber.stdout, "speed"))
            assert (event["speed"], event["highway"], event["ts"]) == (50.0, "401", "2026-01-01T00:00:01+00:00")
        assert subscriber.returncode == 0
        # The publisher has gone, and with it all that windows could wait for.
        value = json.loads(line_with(up.stdout, "slow"))
        assert (value["subscription"], value["output"], value["value"]) == ("slow", "avg(speed)", 50.0)
        server = int((tmp_path / "store").glob("nats-server_*.ports").__next__().stem.split("_")[1])
    assert up.returncode == 0
    assert not Path(f"/proc/{server}").exists() or not Path(f"/proc/{server}/cmdline").read_bytes()


@pytest.mark.long
def test_one_broker_runs_against_a_server(server: Any, tmp_path: Path) -> None:
    config = tmp_path / "overlay.toml"
    config.write_text(TOML)
    with started("broker", "b1", str(config), "--server", server.url, "--metrics", "0") as first:
        address = json.loads(line_with(first.stderr, "metrics are served"))["url"]
        said = json.loads(line_with(first.stderr, "takes inputs"))
        assert (said["broker"], said["level"], said["position"]) == ("b1", "info", 1)
        with urllib.request.urlopen(address, timeout=60) as answer:
            assert 'catchment_up{broker="b1"} 1' in answer.read().decode()
        with started("broker", "b2", "--server", server.url) as second:
            line_with(second.stderr, "takes inputs")
            assert published(server.url, {"speed": 1.0})["published"] == 1
        assert second.returncode == 0
        wrong = subprocess.run(
            [*COMMAND, "broker", "b9", "--server", server.url], capture_output=True, text=True, timeout=120, check=False
        )
        assert (wrong.returncode, "b9" in wrong.stderr) == (2, True)
    assert first.returncode == 0
