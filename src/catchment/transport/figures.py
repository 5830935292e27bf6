"""What a broker's process says of itself to those who run it: counts over its lives, and how it stands now.

Rule 1: figures are read from what steps return and from what is public. To read them changes nothing.
"""

from __future__ import annotations

import os
import socket
import time
from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec

from catchment.broker.broker import Broker
from catchment.broker.inputs import Input, Send, Step, Traffic, add_traffic
from catchment.broker.peers import HERE
from catchment.broker.topics import plain
from catchment.transport.jetstream import Stored
from catchment.transport.names import client_subject, link_subject

__all__ = ["BrokerFigures", "Counts", "LinkFigures", "Standing"]

STEP_BOUNDS_S = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
"""Steps are counted by how long they took."""
LAG_MAX_S = 30.0
"""A broker whose oldest waiting input has waited longer is not well."""


class LinkFigures(msgspec.Struct, kw_only=True):
    """One neighbour of a broker, or all of its clients."""

    frames_in: int = 0
    bytes_in: int = 0
    frames_out: int = 0
    bytes_out: int = 0
    events_in: dict[str, int] = {}
    """By what became of them: accepted, late, refused, repeated."""
    messages_out: dict[str, int] = {}
    """By kind: publications are events, and partials; control is all else. Of neighbours only."""
    frames_waiting: int = 0


class BrokerFigures(msgspec.Struct, kw_only=True):
    """A broker and its process at one time."""

    broker: str
    state: str
    """starting, recovering, serving, disconnected or ended."""
    host: str
    process: int
    time_s: float
    started_s: float
    cpu_s: float
    """Of the whole process, which may be several brokers."""
    lives: int
    """How often the process has begun to be this broker: more than 1 after lost connections."""
    position: int
    """Of the last input that was handled."""
    steps: int
    step_seconds: float
    steps_within: list[int]
    """How many took at most each of `STEP_BOUNDS_S`."""
    inputs: dict[str, int]
    """By what became of them."""
    clients: LinkFigures
    links: dict[str, LinkFigures]
    inputs_waiting: int = 0
    """Stored, and not handled yet."""
    lag_s: float = 0.0
    """How long the oldest of them has waited; by the clocks of this machine and of the server's."""
    snapshot_position: int = 0
    snapshot_age_s: float | None = None
    clients_here: int = 0
    clients_parked: int = 0
    subscriptions: int = 0
    has_room: bool = True
    tables: dict[str, int] = {}
    """How large everything is that could grow."""
    counters: dict[str, int] = {}
    """What a broker should not meet."""
    topics: dict[str, dict[str, str]] = {}
    placements: dict[str, str] = {}
    """Of topics that were given one while the broker ran."""

    @property
    def problem(self) -> str:
        """Why the broker is not well; empty if it is."""
        if self.state != "serving":
            return f"it is {self.state}"
        if self.lag_s > LAG_MAX_S:
            return f"{self.inputs_waiting} inputs wait, the oldest for {self.lag_s:.0f} seconds"
        return ""


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """How a life stands now: what no step returns."""

    broker: Broker | None
    oldest_us: int | None
    """When the oldest input was stored that is not handled."""
    inputs_waiting: int
    snapshot_position: int
    snapshot_at_us: int | None
    frames_waiting: Mapping[str, int]


class Counts:
    """What one broker's process has done since it began, over all its lives."""

    def __init__(self, broker: str, neighbours: Sequence[str]) -> None:
        self._broker = broker
        self._links = {name: LinkFigures() for name in (HERE, *neighbours)}
        self._senders = {link_subject(broker, name): name for name in neighbours}
        self._of_clients = client_subject(broker, "*/*").removesuffix("*.*")
        self._events: Counter[tuple[str, str]] = Counter()
        self._traffic: Traffic = {}
        self._inputs: Counter[str] = Counter()
        self._step_count, self._step_seconds = 0, 0.0
        self._steps_within = [0] * len(STEP_BOUNDS_S)
        self._started_s = time.time()
        self.lives = 0
        self.state = "starting"

    def note_received(self, stored: Stored) -> None:
        """Count a message that has come, if it is from a neighbour or a client."""
        sender = self._senders.get(stored.subject, HERE if stored.subject.startswith(self._of_clients) else None)
        if sender is not None:
            link = self._links[sender]
            link.frames_in += 1
            link.bytes_in += len(stored.data)

    def note_step(self, inputs: Sequence[Input], step: Step, seconds: float) -> None:
        self._inputs.update(outcome.kind for outcome in step.outcomes)
        self._events.update(step.events)
        for key, (messages, size) in step.traffic.items():
            add_traffic(self._traffic, key, messages, size)
        if inputs:
            self._step_count += 1
            self._step_seconds += seconds
            for place, most in enumerate(STEP_BOUNDS_S):
                self._steps_within[place] += seconds <= most

    def note_sent(self, send: Send) -> None:
        """Count frames that are handed over."""
        link = self._links.get(send.to) or self._links[HERE]
        link.frames_out += len(send.frames)
        link.bytes_out += sum(map(len, send.frames))

    def figures(self, position: int, standing: Standing | None) -> BrokerFigures:
        """All figures; without a `standing`, those of a process that is no broker now."""
        now_s = time.time()
        found = BrokerFigures(
            broker=self._broker,
            state=self.state,
            host=socket.gethostname(),
            process=os.getpid(),
            time_s=now_s,
            started_s=self._started_s,
            cpu_s=time.process_time(),
            lives=self.lives,
            position=position,
            steps=self._step_count,
            step_seconds=self._step_seconds,
            steps_within=list(self._steps_within),
            inputs=dict(self._inputs),
            clients=self._link(HERE, standing),
            links={name: self._link(name, standing) for name in self._links if name != HERE},
        )
        if standing is not None:
            found.inputs_waiting, found.snapshot_position = standing.inputs_waiting, standing.snapshot_position
            if standing.oldest_us is not None:
                found.lag_s = max(now_s - standing.oldest_us / 1e6, 0.0)
            if standing.snapshot_at_us is not None:
                found.snapshot_age_s = max(now_s - standing.snapshot_at_us / 1e6, 0.0)
            if standing.broker is not None:
                _look(standing.broker, found)
        return found

    def _link(self, name: str, standing: Standing | None) -> LinkFigures:
        counted = self._links[name]
        return LinkFigures(
            frames_in=counted.frames_in,
            bytes_in=counted.bytes_in,
            frames_out=counted.frames_out,
            bytes_out=counted.bytes_out,
            events_in={what: count for (side, what), count in sorted(self._events.items()) if side == name},
            messages_out={kind: count for (to, kind), (count, _) in sorted(self._traffic.items()) if to == name},
            frames_waiting=0 if standing is None else standing.frames_waiting.get(name, 0),
        )


def _look(broker: Broker, found: BrokerFigures) -> None:
    """Add what a broker shows of itself."""
    parked = sum(broker.peers[client].is_parked for client in broker.clients)
    found.clients_here, found.clients_parked = len(broker.clients) - parked, parked
    found.subscriptions, found.has_room = len(broker.subscribed), broker.has_room
    found.tables, found.counters = broker.table_sizes(), dict(broker.counters)
    found.topics, found.placements = plain(broker.schemas), dict(broker.placements)
