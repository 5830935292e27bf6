"""Transcripts: commands, a line of dashes, and every message that follows, until all is at rest.

    overlay b1-b2 b2-b3 [summary=bound] [forwarding=flooded]
    advertise b1/c1 traffic
    subscribe b3/c3 slow speed < 50
    publish b1/c1 10 20
    ----
    b1/c1 -> b1 advertise traffic
    …

With a placement, brokers aggregate and time passes: each message is shown with the microsecond of its arrival.

    overlay b1-b2 b2-b3 placement=early [delay_us=10] [delivery=revisions] [idle_after_us=5000] …
    subscribe b3/s mean SELECT avg(speed) FROM traffic GROUP BY window(ts, '1 millisecond')
    publish b1/p speed=20 highway=401 at=100
    run until=2000

`publish` lets time pass until the event happens, and publishes it then; one that has happened already is published
now. `run until=` lets time pass. Partials, marks and promises name questions q1, q2, … as the first SUB shows them.

A block ends with an empty line; the next one goes on with the same brokers. REWRITE=1 writes what came out into the
files instead, to be read before it is committed.
"""

import os
from pathlib import Path

import pytest

from tests.scenarios.playing import FILES, Player, Timed, Untimed, setting


def player(line: str) -> Player:
    """The brokers that the line `overlay …` speaks of."""
    overlay, settings = setting(line)
    return Timed(overlay, settings) if "placement" in settings else Untimed(overlay, settings)


def played(text: str) -> str:
    """The transcript as it comes out."""
    brokers: Player | None = None
    blocks = []
    for block in text.strip().split("\n\n"):
        said = block.split("\n----")[0]
        before = 0 if brokers is None else len(brokers.trace)
        for line in said.splitlines():
            if line.startswith("overlay"):
                brokers = player(line)
            elif not line.startswith("#"):
                assert brokers is not None
                brokers.command(line)
        assert brokers is not None
        brokers.rest()
        shown = brokers.trace[before:]
        blocks.append("\n".join([said, "----", *shown]) if shown else said)
    return "\n\n".join(blocks) + "\n"


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_scenario(file: Path) -> None:
    got = played(file.read_text())
    if os.environ.get("REWRITE"):
        file.write_text(got)
    assert got == file.read_text()
