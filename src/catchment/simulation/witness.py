"""Notes which events of foreign publishers brokers accept: no answer on a link tells it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from catchment.broker.advice import Advice, At
from catchment.simulation.clients import Publication
from catchment.simulation.world import World

__all__ = ["Witness", "Witnessed"]


class Witnessed:
    """The posted events of one world; `world` is set once there is one."""

    def __init__(self) -> None:
        self.world: World
        self._known: set[str] = set()

    def note(self, broker: str, topic: str, events: pa.RecordBatch) -> None:
        """Add accepted events to what checkers look at; after a crash a broker may accept them once more."""
        times_us = events.column("ts").cast(pa.int64()).to_pylist()
        for time_us, values in zip(times_us, events.to_pylist(), strict=True):
            event_id = values["event_id"]
            if event_id in self.world.posted and event_id not in self._known:
                self._known.add(event_id)
                now_us = self.world.timeline.now_us
                self.world.publications.append(
                    Publication(event_id, f"{broker}/@gateway", topic, {**values, "ts": time_us}, now_us)
                )


class Witness(Advice):
    """Sees what every advice before it has let pass."""

    name = "witness"

    def __init__(self, witnessed: Witnessed) -> None:
        self._witnessed = witnessed

    def on_publish(self, at: At, topic: str, events: pa.RecordBatch, requests: npt.NDArray[np.int64]) -> None:
        self._witnessed.note(at.broker, topic, events)
