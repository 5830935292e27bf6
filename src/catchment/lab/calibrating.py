"""`catchment calibrate`: what a broker takes for what it does, on this machine, with this code.

Simulations charge these times to virtual time. Each is the best of some rounds, as everything else a machine does only
makes a round longer.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.table import Table

from catchment.broker import FrameReader, FrameWriter
from catchment.broker import messages as m
from catchment.model.events import as_events, attribute_schema
from catchment.model.subscription import Subscription
from catchment.simulation.service import ServiceTimes
from catchment.stages import Active, Plan, Selection, compile_plan, finish_rows, partials_of, partials_of_accepted
from catchment.workloads import generate_traffic, traffic_subscriptions

__all__ = ["calibrated", "show_calibrated"]

EVENTS, FILTERS, WINDOW = 20_000, 1_000, ("20 seconds", "2 seconds")
BATCH = 100
ROUNDS = 5


def calibrated() -> ServiceTimes:
    """Measure all of them; takes some seconds."""
    table = generate_traffic(EVENTS, seed=1, duration_us=60_000_000)
    schema = attribute_schema(table.schema)
    texts = traffic_subscriptions(FILTERS, seed=2, window=WINDOW)
    active = [Active(Subscription(name, at, sql=sql)) for name, at, sql in texts]
    plan = compile_plan(active, {"*": schema}, None, open_topics=True)
    events = as_events(table, schema).combine_chunks().to_batches()[0]
    (topic,) = plan.topics.values()
    matched = topic.matcher.rows_by_slot(events)
    pairs = int((matched.end - matched.begin).sum())
    nowhere = np.zeros(events.num_rows, np.int64)
    return ServiceTimes(
        match_us=_best_us(lambda: topic.matcher.match_slots(events)) / events.num_rows,
        add_us=_best_us(lambda: partials_of(topic, events, matched, nowhere, 1)) / pairs,
        merge_us=_merge_us(events, plan),
        send_us=_send_us(events.slice(0, BATCH)),
    )


def show_calibrated(found: ServiceTimes, console: Console | None = None) -> None:
    """As a table, and as what to write into a program."""
    meanings = {
        "match_us": f"find out who wants an event, {FILTERS:,} filters",
        "add_us": "add an event to the state of a slice",
        "merge_us": "merge a state into a window, and finish it",
        "send_us": f"write and read a message of {BATCH} events",
    }
    table = Table(title="Microseconds of one core")
    table.add_column("what it takes to")
    table.add_column("us", justify="right")
    for name, meaning in meanings.items():
        table.add_row(meaning, f"{getattr(found, name):.3f}")
    console = console or Console()
    console.print(table)
    arguments = ", ".join(f"{name}={getattr(found, name):.3f}" for name in meanings)
    console.print(f"ServiceTimes({arguments})", highlight=False, soft_wrap=True)


def _merge_us(events: pa.RecordBatch, plan: Plan) -> float:
    order = [("question", "ascending"), ("part", "ascending"), ("first", "ascending")]
    rows = pa.Table.from_batches(partials_of_accepted(plan, events)).sort_by(order).combine_chunks()
    cells = len(rows.column("slices").combine_chunks().flatten())
    return _best_us(lambda: finish_rows(rows, plan, selection=Selection())) / cells


def _send_us(events: pa.RecordBatch) -> float:
    """A batch of events as a message, written and read."""
    message = m.Published("traffic", events.drop_columns(["topic"]))
    writer, reader = FrameWriter(), FrameReader()

    def send() -> None:
        for _ in range(100):
            for data in writer.frames("b1", [message], incarnation=1, epoch=1, after=0, covers=0):
                reader.decode(data)

    return _best_us(send) / 100


def _best_us(act: Callable[[], Any]) -> float:
    best = float("inf")
    for _ in range(ROUNDS + 1):
        begun = time.perf_counter()
        act()
        best = min(best, time.perf_counter() - begun)
    return best * 1e6
