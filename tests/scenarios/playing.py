"""Carry out the commands of a transcript with brokers in a simulation (`test_scenarios.py` tells what they are)."""

from collections.abc import Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Protocol

import pyarrow as pa

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
            make_advice=lambda: [Aggregation(options)],
            traces=True,
            describe=Describer(SCHEMAS),
            records=False,
        )

    @property
    def trace(self) -> list[str]:
        return self._world.trace

    @property
    def clients(self) -> Mapping[str, Client]:
        return self._world.clients

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
        at_us = int(given.pop("at"))
        self._world.run(max(at_us, self._world.timeline.now_us))
        self._world.publish(client, "traffic", event_of(given, at_us))

    def rest(self) -> None:
        count = None
        while count != len(self.trace):
            count = len(self.trace)
            self._world.run(self._world.timeline.now_us + self._delay_us)


def event_of(given: Mapping[str, str], at_us: int) -> pa.RecordBatch:
    """One event with the values that a command gives it."""
    schema = SCHEMAS["traffic"]
    columns = {name: pa.array([text], pa.string()).cast(schema[name].arrow) for name, text in given.items()}
    return pa.RecordBatch.from_pydict({"ts": pa.array([at_us], Type.TIMESTAMP.arrow), **columns})


def setting(line: str) -> tuple[Overlay, dict[str, str]]:
    """What a line `overlay …` says."""
    words = line.split()[1:]
    overlay = Overlay.from_links([tuple(word.split("-")) for word in words if "=" not in word])
    return overlay, dict(word.split("=") for word in words if "=" in word)


def commands(text: str) -> Iterator[str]:
    """All commands of a transcript, without what follows from them, as `Timed` knows them."""
    is_timed = False
    for block in text.strip().split("\n\n"):
        for line in block.split("\n----")[0].splitlines():
            is_timed = is_timed or "placement=" in line
            if not line.startswith("#"):
                yield from [line] if is_timed else _timed(line)


def _timed(line: str) -> Iterator[str]:
    """Of a command without time, those with it."""
    what, client, *rest = line.split(maxsplit=3 if line.startswith("subscribe") else -1)
    if what == "subscribe":
        yield f"subscribe {client} {rest[0]} SELECT * FROM traffic WHERE {rest[1]}"
    elif what == "publish":
        yield from (f"publish {client} speed={speed} at=0" for speed in rest)
    else:
        yield line
