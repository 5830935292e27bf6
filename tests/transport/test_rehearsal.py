"""A process that has rehearsed has loaded all compiled code that events need."""

import gc
import multiprocessing
import sys
from typing import Any

import pyarrow as pa
from numba.core.dispatcher import Dispatcher

from catchment import Overlay
from catchment.broker import messages as m
from catchment.broker.aggregation import Aggregation, AggregationOptions
from catchment.transport.rehearsal import rehearse
from tests.broker.wire import Wire


class _Aggregation(Aggregation):
    def __init__(self) -> None:
        super().__init__(AggregationOptions())


def loaded() -> set[str]:
    """The versions of kernels that this process has."""
    return {
        f"{module}.{name}{signature}"
        for module, content in list(sys.modules.items())
        if module.startswith("catchment.")
        for name, kernel in list(vars(content).items())
        if isinstance(kernel, Dispatcher)
        for signature in kernel.overloads
    }


def work() -> None:
    """Publish batches of several sizes, with ids and without, to subscriptions of several kinds, and end those."""
    wire = Wire(Overlay.from_links([("b1", "b2")]), [_Aggregation])
    wire.advertise("b1/p")
    asked = (
        "SELECT * FROM traffic WHERE speed > 1 AND highway = '401'",
        "SELECT avg(speed) FROM traffic WHERE vehicles < 9 GROUP BY window(ts, '20 seconds', '5 seconds')",
        "SELECT highway, sum(vehicles) FROM traffic GROUP BY window(ts, '10 seconds'), highway",
    )
    for number, sql in enumerate(asked):
        wire.ask("b2/s", m.SubscribeTo, f"s{number}", sql)
        wire.run()
    for number, rows in enumerate([1, 3, 700, 5_000]):
        events: dict[str, Any] = {
            "speed": [float(one % 50) for one in range(rows)],
            "highway": ["401", "407"][:1] * rows,
            "vehicles": [one % 12 for one in range(rows)],
            "ts": pa.array([number * 60_000_000 + one for one in range(rows)], pa.timestamp("us", "UTC")),
        }
        wire.ask("b1/p", m.PublishEvents, "traffic", pa.RecordBatch.from_pydict(events))
        events["event_id"] = [f"{number}-{one}" for one in range(rows)]
        wire.ask("b1/p", m.PublishEvents, "traffic", pa.RecordBatch.from_pydict(events))
        wire.run()
    for number in range(len(asked)):
        wire.unsubscribe("b2/s", f"s{number}")
        wire.run()


def in_a_process(is_rehearsed: bool, results: Any) -> None:
    if is_rehearsed:
        rehearse()
    before, frozen = loaded(), gc.get_freeze_count()
    work()
    results.put((sorted(loaded() - before), frozen))


def found(is_rehearsed: bool) -> tuple[list[str], int]:
    context = multiprocessing.get_context("spawn")
    results = context.SimpleQueue()
    process = context.Process(target=in_a_process, args=(is_rehearsed, results), daemon=True)
    process.start()
    process.join(600)
    assert process.exitcode == 0
    late, frozen = results.get()
    return late, frozen


def test_nothing_is_loaded_by_events_after_a_rehearsal() -> None:
    late, frozen = found(is_rehearsed=True)
    assert late == []
    assert frozen > 0


def test_without_it_events_load_what_they_need() -> None:
    late, _ = found(is_rehearsed=False)
    assert late
