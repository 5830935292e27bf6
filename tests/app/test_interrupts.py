"""Ctrl-C ends every command with one line and exit code 130, whatever it is doing; no Java process stays behind."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

TRAFFIC = Path(__file__).parents[2] / "examples" / "traffic.toml"
SOURCE = Path(__file__).parents[2] / "src"
DEADLINE_SECONDS = 120

COMMAND = """
import signal, catchment_command
signal.signal(signal.SIGINT, signal.default_int_handler)  # which is ignored where tests run in the background
catchment_command.main()
"""

Moment = Callable[[int, Path], bool]
"""Whether a process, by its id and what it has printed so far, has come to some point."""


def is_importing(process: int, printed: Path) -> bool:
    return "libarrow" in Path(f"/proc/{process}/maps").read_text()


def has_java(process: int, printed: Path) -> bool:
    return bool(javas_of(process))


def has_printed(text: str) -> Moment:
    return lambda _, printed: text in printed.read_text()


def _command_of(process: str) -> str:
    """What a process runs; nothing if it has just ended."""
    try:
        return Path(f"/proc/{process}/comm").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def javas_of(process: int) -> list[int]:
    children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    return [int(child) for child in children if "java" in _command_of(child)]


def interrupted(arguments: list[object], moment: Moment, folder: Path) -> tuple[int, str, list[int]]:
    """Exit code, what was printed to standard error, and the Java processes there were."""
    printed = folder / "printed"
    command = [sys.executable, "-c", COMMAND, *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    with (
        printed.open("w") as errors,
        subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.DEVNULL, stderr=errors) as process,
    ):
        deadline = time.monotonic() + DEADLINE_SECONDS
        while not moment(process.pid, printed):
            assert process.poll() is None, printed.read_text()
            assert time.monotonic() < deadline
            time.sleep(0.002)
        javas = javas_of(process.pid)
        process.send_signal(signal.SIGINT)
        process.wait(DEADLINE_SECONDS)
    return process.returncode, printed.read_text(), javas


def require_clean(found: tuple[int, str, list[int]]) -> None:
    code, printed, javas = found
    lines = [line for line in printed.splitlines() if not line.startswith("✓") and "incubator modules" not in line]
    assert (code, lines) == (130, ["interrupted"])
    deadline = time.monotonic() + DEADLINE_SECONDS
    while any(Path(f"/proc/{java}").exists() for java in javas):
        assert time.monotonic() < deadline
        time.sleep(0.01)


pytestmark = pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="looks at processes through /proc")

COMMANDS: dict[str, list[object]] = {
    "replay": ["replay", TRAFFIC, "--master", "local[1]"],
    "run": ["run", TRAFFIC, "--checkpoint", "checkpoint", "--master", "local[1]"],
    "demo": ["demo", "--events", 20_000, "--master", "local[1]"],
    "bench": ["bench", "matching"],
    "reproduce": ["reproduce", "debs14", "--quick"],
    "simulate": ["simulate", "--seeds", 1_000],
}


@pytest.mark.parametrize("command", COMMANDS)
def test_while_modules_are_imported(command: str, tmp_path: Path) -> None:
    require_clean(interrupted(COMMANDS[command], is_importing, tmp_path))


@pytest.mark.spark
@pytest.mark.parametrize(
    ("command", "moment"),
    [
        ("replay", has_java),
        ("run", has_printed("Spark started")),
        pytest.param("replay", has_printed("Spark started"), marks=pytest.mark.long),
        pytest.param("replay", has_printed("Python workers started"), marks=pytest.mark.long),
        pytest.param("demo", has_printed("events made"), marks=pytest.mark.long),
    ],
)
def test_while_spark_starts_and_works(command: str, moment: Moment, tmp_path: Path) -> None:
    require_clean(interrupted(COMMANDS[command], moment, tmp_path))
