"""What the tests of single modules share: one topic, its events and questions, and an `At` that keeps what it hears."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from catchment import Subscription
from catchment.broker.advice import At
from catchment.broker.aggregation.places import Pairs
from catchment.broker.demands import AskedQuestion
from catchment.model.filter import Filter
from catchment.model.schema import Schema, Type

SCHEMA = Schema({"x": Type.INT, "road": Type.STRING})
FULL = SCHEMA.with_implicit()
TUMBLING = "GROUP BY window(ts, '10 microseconds')"
SLIDING = "GROUP BY window(ts, '20 microseconds', '10 microseconds')"
COUNT = f"SELECT count(*) FROM t {TUMBLING}"
SUM = f"SELECT sum(x) FROM t {TUMBLING}"


def asked(sql: str, subscription: str = "") -> AskedQuestion:
    """What a subscription asks; with a name, a question of its own."""
    return AskedQuestion.of(Subscription("s", sql=sql).within({"t": SCHEMA}), FULL, subscription)


def events(*several: tuple[int, int], roads: Sequence[str | None] | None = None) -> pa.RecordBatch:
    """Events with a time and a value each."""
    columns = {
        "event_id": pa.array([f"e{time_us}" for time_us, _ in several], pa.string()),
        "ts": pa.array([time_us for time_us, _ in several], Type.TIMESTAMP.arrow),
        "x": pa.array([value for _, value in several], pa.int64()),
    }
    if roads is not None:
        columns["road"] = pa.array(roads, pa.string())
    return pa.RecordBatch.from_pydict(columns)


def pairs(batch: pa.RecordBatch, *numbers: int) -> Pairs:
    """All events of a batch, wanted by each of some questions."""
    rows = np.tile(np.arange(batch.num_rows), len(numbers))
    return Pairs(batch, rows, np.repeat(np.array(numbers, np.int64), batch.num_rows))


class Ear(At):
    """Stands in for a broker: it knows who advertises, and keeps all that it is asked to do, in order."""

    def __init__(
        self, advertisers: Collection[str] = (), neighbours: Sequence[str] = ("left", "right"), now_us: int = 0
    ) -> None:
        self.broker, self.neighbours, self.now_us = "b", tuple(neighbours), now_us
        self.notes = None
        self.topics_of = frozenset(advertisers)
        self.heard: list[tuple[str, Any]] = []
        """What neighbours are sent: messages of the advice, and ids of events that were held."""
        self.marks: list[Mapping[str, pa.Array]] = []
        """What is said of events that were held."""
        self.timers: dict[str, int] = {}
        self.watched: dict[int, Filter] = {}
        self.values: dict[str, list[tuple[str, int, str, str, int]]] = {}
        """Of clients: subscription, beginning of the window, output, value and revision."""
        self.reports: dict[str, str] = {}
        self.spent: Counter[str] = Counter()
        self.counted: list[tuple[str, int, int] | None] = []

    def advertisers(self, topic: str) -> frozenset[str]:
        return self.topics_of

    def tell(
        self, neighbour: str, value: Any, *, confirmed: bool = False, counts: tuple[str, int, int] | None = None
    ) -> None:
        self.heard.append((neighbour, value))
        self.counted.append(counts)

    def forward(self, neighbour: str, topic: str, events: pa.RecordBatch, notes: Mapping[str, pa.Array]) -> None:
        self.heard.append((neighbour, events.column("event_id").to_pylist()))
        self.marks.append(notes)

    def wake(self, key: str, at_us: int) -> None:
        self.timers[key.split("\x1f", maxsplit=1)[0]] = at_us

    def watch(self, topic: str, number: int, condition: Filter) -> None:
        assert number not in self.watched, "it is matched already"
        self.watched[number] = condition

    def unwatch(self, topic: str, number: int) -> None:
        self.watched.pop(number, None)

    def notify(self, client: str, answers: pa.RecordBatch) -> None:
        self.values.setdefault(client, []).extend(plain(answers))

    def report(self, what: str, detail: str) -> None:
        self.reports[what] = detail

    def spend(self, work: str, times: int) -> None:
        self.spent[work] += times


def plain(answers: pa.RecordBatch) -> list[tuple[str, int, str, str, int]]:
    """Of answers: subscription, beginning of the window, output, value and revision."""
    starts = answers.column("window_start").cast(pa.int64()).to_pylist()
    names = ("subscription", "output", "exact", "revision")
    name, output, exact, revision = (answers.column(one).to_pylist() for one in names)
    return list(zip(name, starts, output, exact, revision, strict=True))
