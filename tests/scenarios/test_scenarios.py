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
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pytest

from catchment import Overlay
from catchment.broker.aggregation import Aggregation, AggregationOptions
from catchment.broker.aggregation.describing import Describer
from catchment.broker.broker import Settings
from catchment.model.schema import Type
from catchment.simulation.clients import Client
from catchment.simulation.options import Options
from catchment.simulation.world import World
from tests.broker.wire import SCHEMAS, Wire

FILES = sorted(Path(__file__).parent.glob("*.txt"))


class Player(Protocol):
    """Carries out the commands of a transcript."""

    @property
    def trace(self) -> list[str]: ...

    def command(self, line: str) -> None: ...

    def rest(self) -> None:
        """Deliver all that is under way."""


class Untimed:
    """Brokers that route, without time."""

    def __init__(self, overlay: Overlay, settings: Mapping[str, str]) -> None:
        self._wire = Wire(overlay, **settings)

    @property
    def trace(self) -> list[str]:
        return self._wire.trace

    def command(self, line: str) -> None:
        wire = self._wire
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

    def rest(self) -> None:
        self._wire.run()


class Timed:
    """Brokers that aggregate, in virtual time; every link takes equally long."""

    def __init__(self, overlay: Overlay, settings: Mapping[str, str]) -> None:
        given = {name: int(text) if text.isdigit() else text for name, text in settings.items()}
        self._delay_us = int(given.pop("delay_us", 10))
        aggregating = {one.name: given.pop(one.name) for one in fields(AggregationOptions) if one.name in given}
        options = AggregationOptions(**aggregating)  # type: ignore[arg-type]
        self._world = World(
            overlay,
            Settings(schemas=SCHEMAS, **given),  # type: ignore[arg-type]
            options=Options(delay_us_min=self._delay_us, delay_us_max=self._delay_us),
            make_advice=lambda: [Aggregation(SCHEMAS, options)],
            traces=True,
            describe=Describer(SCHEMAS),
            records=False,
        )

    @property
    def trace(self) -> list[str]:
        return self._world.trace

    def command(self, line: str) -> None:
        world = self._world
        what, *rest = line.split(maxsplit=3 if line.startswith("subscribe") else -1)
        if what == "run":
            world.run(int(rest[0].removeprefix("until=")))
        elif what == "advertise":
            world.advertise(self._client(rest[0]), rest[1])
        elif what == "unadvertise":
            world.unadvertise(self._client(rest[0]), rest[1])
        elif what == "subscribe":
            world.subscribe(self._client(rest[0]), rest[1], rest[2])
        elif what == "unsubscribe":
            world.unsubscribe(self._client(rest[0]), rest[1])
        elif what == "publish":
            self._publish(self._client(rest[0]), dict(word.split("=") for word in rest[1:]))
        else:
            raise ValueError(f"{what!r} is no command")

    def _client(self, name: str) -> Client:
        return self._world.clients.get(name) or self._world.client(*name.split("/"))

    def _publish(self, client: Client, given: dict[str, str]) -> None:
        schema, at_us = SCHEMAS["traffic"], int(given.pop("at"))
        values: dict[str, Any] = {name: [text] for name, text in given.items()}
        columns = {name: pa.array(text, pa.string()).cast(schema[name].arrow) for name, text in values.items()}
        event = pa.RecordBatch.from_pydict({"ts": pa.array([at_us], Type.TIMESTAMP.arrow), **columns})
        self._world.run(max(at_us, self._world.timeline.now_us))
        self._world.publish(client, "traffic", event)

    def rest(self) -> None:
        count = None
        while count != len(self.trace):
            count = len(self.trace)
            self._world.run(self._world.timeline.now_us + self._delay_us)


def player(line: str) -> Player:
    """The brokers that the line `overlay …` speaks of."""
    words = line.split()[1:]
    overlay = Overlay.from_links([tuple(word.split("-")) for word in words if "=" not in word])
    settings = dict(word.split("=") for word in words if "=" in word)
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
