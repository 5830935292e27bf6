"""What all parts of a broker's process share during one life: its names, options, connection and tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from catchment.broker.hosting import Limits
from catchment.model.errors import ConfigurationError
from catchment.transport.figures import Counts
from catchment.transport.history import Kept
from catchment.transport.jetstream import JetStream
from catchment.transport.names import input_stream
from catchment.transport.reports import Report

__all__ = ["CLIENT_LEASE_US", "CLIENT_RETENTION_US", "LifeContext", "LiveOptions", "Tasks"]

LIMITS = Limits(client_bytes_max=256_000_000)
"""What waits is in files, not in memory."""
CLIENT_LEASE_US = 30_000_000
CLIENT_RETENTION_US = 7 * 86_400_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveOptions:
    """How a broker's process behaves."""

    step_inputs_max: int = 2_000
    step_bytes_max: int = 16_000_000
    frames_ahead_max: int = 4
    """Frames that may wait for a neighbour's stream before the next step: under load, steps grow instead."""
    snapshot_every_s: float = 10.0
    snapshot_inputs_max: int = 20_000
    """Inputs after which a snapshot is due in any case."""
    snapshot_bytes_max: int = 64_000_000
    """Bytes of inputs after which it is due as well: so much more than what waits is in the server's store."""
    recorded_every: int = 32
    """Steps after which their ends are stored by themselves; until then every frame carries them."""
    limits: Limits = LIMITS
    history: Kept | None = None
    """What the broker keeps of what it accepts, if it keeps any."""
    client_lease_us: int = CLIENT_LEASE_US
    """How long a client that says nothing is taken for alive; then it is parked if it is durable, else gone."""
    client_retention_us: int = CLIENT_RETENTION_US
    """How long a durable client may be away before it is gone as well."""

    def __post_init__(self) -> None:
        for name in (
            "step_inputs_max", "step_bytes_max", "frames_ahead_max", "snapshot_inputs_max", "snapshot_bytes_max",
            "recorded_every", "client_lease_us", "client_retention_us",
        ):  # fmt: skip
            if getattr(self, name) < 1:
                raise ConfigurationError(f"{name} is {getattr(self, name)}; accepted are numbers from 1 on")


class Tasks:
    """The tasks of one life: the first that fails ends all of it. `on_failure` hears of that at once."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[None]] = set()
        self.failure: BaseException | None = None
        self.on_failure: Callable[[BaseException], None] = lambda error: None

    def begin(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Do something beside the steps; if it fails, so does this life."""
        task = asyncio.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._ended)
        return task

    def fail(self, error: BaseException) -> None:
        """End this life with an error, at its next chance."""
        if self.failure is None:
            self.failure = error
        self.on_failure(error)

    def check(self) -> None:
        """Raise what has ended this life, if anything has."""
        if self.failure is not None:
            raise self.failure

    def cancel(self) -> None:
        for task in self._running:
            task.cancel()

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.fail(error)


@dataclass(frozen=True, slots=True)
class LifeContext:
    """One life of one broker's process.

    `report` hears whatever an operator should know; `at` is called with the name of each point where a
    crash would be interesting.
    """

    name: str
    neighbours: tuple[str, ...]
    options: LiveOptions
    streams: JetStream
    report: Report
    at: Callable[[str], None]
    tasks: Tasks
    counts: Counts

    @property
    def stream(self) -> str:
        """The stream of all inputs of this broker."""
        return input_stream(self.name)
