"""What a broker does for the first time takes long: a process does it once with events of its own, before any come.

Compiled code is loaded from disk by the first call that needs it, tens of milliseconds for each kernel (seconds where
it has to be compiled first), and a collection of garbage looks at all that was ever imported. At 20,000 events a second
through three brokers, kernels that larger batches need were loaded by one broker after the other, while whatever came
behind waited: more than the slowest hundredth of a dozen seconds.
"""

from __future__ import annotations

import gc
from collections import deque
from functools import cache
from typing import Any

import pyarrow as pa

from catchment.broker import messages as m
from catchment.broker.aggregation import Aggregation, AggregationOptions
from catchment.broker.broker import Broker, Settings
from catchment.broker.client import Session
from catchment.broker.inputs import Attached, Input, Item, Received, Step
from catchment.model.schema import Schema, Type

__all__ = ["rehearse"]

TOPIC = "rehearsal"
SCHEMAS = {
    TOPIC: Schema(
        {"whole": Type.INT, "real": Type.FLOAT, "text": Type.STRING, "flag": Type.BOOL, "day": Type.TIMESTAMP}
    ),
}
SQL = (
    f"SELECT * FROM {TOPIC} WHERE whole < 5 AND text LIKE 'a%' OR text LIKE '%b%'",
    f"SELECT * FROM {TOPIC} WHERE real >= 0.5 AND flag OR day IS NOT NULL",
    f"SELECT avg(real), count(*), max(whole), approx_percentile(real, 0.5) FROM {TOPIC} WHERE whole < 9 "
    "GROUP BY window(ts, '2 seconds', '1 second')",
    f"SELECT text, sum(whole), min(real) FROM {TOPIC} GROUP BY window(ts, '1 second'), text",
)
ROWS = (1, 20, 3_000)
"""Of the batches: one event, some, and more than one call of the matcher takes."""
SECOND_US = 1_000_000


@cache
def rehearse() -> None:
    """Load all that brokers run; called by the main function of a process, before its brokers take inputs."""
    pair = _Pair()
    pair.say("left/publisher", m.AdvertiseTopic, TOPIC)
    for number, sql in enumerate(SQL):
        for client in ("left/publisher", "right/subscriber"):
            pair.say(client, m.SubscribeTo, f"s{number}", sql)
    for turn, rows in enumerate(ROWS * 2):
        events = _events(rows, turn * 5 * SECOND_US)
        pair.say("left/publisher", m.PublishEvents, TOPIC, events)
        pair.say("left/publisher", m.PublishEvents, TOPIC, _with_ids(events, turn))
    for number in range(len(SQL)):
        for client in ("left/publisher", "right/subscriber"):
            pair.say(client, m.UnsubscribeFrom, f"s{number}")
    # What is there now stays: no collection has to look at it again.
    gc.collect()
    gc.freeze()


def _events(rows: int, at_us: int) -> pa.RecordBatch:
    numbers = range(rows)
    return pa.RecordBatch.from_pydict(
        {
            "whole": pa.array([one % 10 for one in numbers], pa.int64()),
            "real": pa.array([one / rows for one in numbers], pa.float64()),
            "text": pa.array(["ab"[one % 2] for one in numbers], pa.string()),
            "flag": pa.array([one % 3 == 0 for one in numbers], pa.bool_()),
            "day": pa.array([None if one % 2 else one for one in numbers], pa.timestamp("us", "UTC")),
            "ts": pa.array([at_us + one * SECOND_US // 1_000 for one in numbers], pa.timestamp("us", "UTC")),
        }
    )


def _with_ids(events: pa.RecordBatch, turn: int) -> pa.RecordBatch:
    return events.append_column("event_id", pa.array([f"{turn}/{one}" for one in range(events.num_rows)]))


class _Pair:
    """Two brokers that are neighbours, and their clients, without a server."""

    def __init__(self) -> None:
        names = ("left", "right")
        self._brokers = {
            name: Broker(
                name, [other], Settings(schemas=SCHEMAS), [Aggregation(AggregationOptions())]
            )
            for name, other in zip(names, names[::-1], strict=True)
        }  # fmt: skip
        self._clients: dict[str, Session] = {}
        self._waiting: deque[tuple[str, Item]] = deque()

    def say(self, client: str, kind: type, *fields: Any) -> None:
        """Let a client, of the broker that its name begins with, ask for something; and all that follows happen."""
        broker = client.partition("/")[0]
        if client not in self._clients:
            self._clients[client] = Session(client)
            self._waiting.append((broker, Attached(client)))
        _, frames = self._clients[client].ask(kind, *fields)
        self._waiting.extend((broker, Received(data)) for data in frames)
        while self._waiting:
            name, item = self._waiting.popleft()
            self._deliver(self._step(self._brokers[name], item))

    def _step(self, broker: Broker, item: Item) -> Step:
        position = broker.position + 1
        return broker.step([Input(item, position, position)])

    def _deliver(self, step: Step) -> None:
        for send in step.sends:
            for data in send.frames:
                if send.to in self._clients:
                    self._clients[send.to].receive(data)
                else:
                    self._waiting.append((send.to, Received(data)))
