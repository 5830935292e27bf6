"""Transcripts: commands, a line of dashes, and every message that follows, until all is at rest.

    overlay b1-b2 b2-b3 [summary=bound] [forwarding=flooded]
    advertise b1/c1 traffic
    subscribe b3/c3 slow speed < 50
    publish b1/c1 10 20
    ----
    b1/c1 -> b1 advertise traffic
    …

A block ends with an empty line; the next one goes on with the same brokers. REWRITE=1 writes what came out into the
files instead, to be read before it is committed.
"""

import os
from pathlib import Path

import pytest

from catchment import Overlay
from tests.broker.wire import Wire

FILES = sorted(Path(__file__).parent.glob("*.txt"))


def command(wire: Wire, line: str) -> None:
    what, client, *rest = line.split(maxsplit=3 if line.startswith("subscribe") else -1)
    if what == "advertise":
        wire.advertise(client, *rest)
    elif what == "unadvertise":
        wire.unadvertise(client, *rest)
    elif what == "subscribe":
        wire.subscribe(client, *rest)
    elif what == "unsubscribe":
        wire.unsubscribe(client, *rest)
    elif what == "publish":
        wire.publish(client, *map(float, rest))
    else:
        raise ValueError(f"{what!r} is no command")


def overlay(line: str) -> Wire:
    links = [tuple(word.split("-")) for word in line.split()[1:] if "=" not in word]
    return Wire(Overlay.from_links(links), **dict(word.split("=") for word in line.split() if "=" in word))


def played(text: str) -> str:
    """The transcript as it comes out."""
    wire: Wire | None = None
    blocks = []
    for block in text.strip().split("\n\n"):
        said = block.split("\n----")[0]
        for line in said.splitlines():
            if line.startswith("overlay"):
                wire = overlay(line)
            elif not line.startswith("#"):
                assert wire is not None
                command(wire, line)
        assert wire is not None
        before = len(wire.trace)
        wire.run()
        blocks.append("\n".join([said, "----", *wire.trace[before:]]) if wire.trace[before:] else said)
    return "\n\n".join(blocks) + "\n"


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_scenario(file: Path) -> None:
    got = played(file.read_text())
    if os.environ.get("REWRITE"):
        file.write_text(got)
    assert got == file.read_text()
