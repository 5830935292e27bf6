"""`catchment bench matching`: events a second through the matcher, next to a plain compiled scan over all filters.

The workload is `catchment.workloads.matching`. Both start from Arrow columns and end with pairs of event and filter, on
one thread, with compiled code warm; they take turns within each round and their best round counts, so that the
machine's mood shows in neither.
"""

from __future__ import annotations

import gc
import os
import platform
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
from rich import box
from rich.console import Console
from rich.table import Table

from catchment.matching import Matcher
from catchment.matching.linear import LinearScan
from catchment.model.constraint import NOT_NULL, Constraint, Pattern
from catchment.model.filter import Conjunction, Filter
from catchment.workloads.matching import (
    MATCHING_SCHEMA,
    MatchingProfile,
    PlainConstraint,
    matching_constraints,
    matching_events,
)

__all__ = ["PROFILES", "QUICK", "SIZES", "Measured", "matching_filter_values", "print_report", "run"]

PROFILES: tuple[MatchingProfile, ...] = ("broad", "narrow", "ranges")
SIZES = (1_000, 10_000, 100_000)
EVENTS = 65_536
BATCH = 8_192
QUICK: dict[str, Any] = {"events": BATCH, "sizes": (1_000,), "repetitions": 2}
"""What CI has time for."""

SCANNED = 2 * 10**8
"""Pairs of event and filter that one round of the linear scan looks at, at most: some seconds."""
CHANGES = 1_000
SINGLES = 500


@dataclass(frozen=True, slots=True)
class Measured:
    """One profile at one size. Times are of the best round."""

    profile: str
    filters: int
    pairs_per_event: float
    events_per_s: float
    """Of the whole workload in one call."""
    batch_events_per_s: float
    """Of batches of 8,192."""
    ns_per_event_and_filter: float
    pairs_per_s: float
    linear_events_per_s: float
    linear_ns_per_event_and_filter: float
    ratio: float
    """How many times faster than the linear scan."""
    build_s: float
    """From filters, without parsing."""
    index_bytes: int
    add_us: float
    add_worst_ms: float
    remove_us: float
    remove_worst_ms: float
    single_us: float
    """Median of a batch of one, of the best round."""
    single_mapping_us: float
    """The same of one event given as a mapping."""


def run(
    *,
    profiles: Sequence[MatchingProfile] = PROFILES,
    sizes: Sequence[int] = SIZES,
    events: int = EVENTS,
    repetitions: int = 5,
    seed: int = 1,
    report: Callable[[str], None] = lambda line: None,
) -> dict[str, Any]:
    """Measure everything; a dictionary that JSON can hold. `report` hears what is going on."""
    table = matching_events(seed, events)
    report("compiling")
    warm = Matcher(matching_filter_values("broad", 200, seed), MATCHING_SCHEMA)
    warm.match_slots(table.slice(0, BATCH))
    LinearScan(warm).match_slots(table.slice(0, 100))
    warm.match_one({})
    _changes(warm, "broad", seed + 2)
    measured = []
    for profile in profiles:
        for size in sizes:
            report(f"{profile}, {size:,} filters")
            measured.append(_measure(profile, size, table, repetitions, seed))
            one = measured[-1]
            report(
                f"{profile}, {size:,} filters: {one.events_per_s:,.0f} events/s, {one.ratio:.0f} times a linear scan"
            )
    return {
        "events": events,
        "seed": seed,
        "processor": platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "measured": [asdict(one) for one in measured],
    }


def _measure(profile: MatchingProfile, size: int, table: pa.Table, repetitions: int, seed: int) -> Measured:
    filters = matching_filter_values(profile, size, seed + 1)
    gc.collect()
    build_s = _seconds(lambda: Matcher(filters, MATCHING_SCHEMA))
    matcher = Matcher(filters, MATCHING_SCHEMA)
    scan = LinearScan(matcher)
    some = table.slice(0, max(64, min(table.num_rows, SCANNED // size)))
    batches = table.combine_chunks().to_batches(BATCH)
    whole = batch = linear = float("inf")
    pairs = 0
    for _ in range(repetitions):
        begun = time.perf_counter()
        pairs = len(matcher.match_slots(table)[0])
        whole = min(whole, time.perf_counter() - begun)
        batch = min(batch, _seconds(lambda: [matcher.match_slots(one) for one in batches]))
        linear = min(linear, _seconds(lambda: scan.match_slots(some)))
    rows = table.num_rows
    single = [table.slice(i, 1).combine_chunks().to_batches()[0] for i in range(min(SINGLES, rows))]
    mappings = [{k: v for k, v in one.to_pylist()[0].items() if v is not None} for one in single]
    single_s = mapping_s = float("inf")
    for _ in range(repetitions):
        # The median tells of a round what its mean would hide; of rounds the best counts, as everywhere here.
        single_s = min(single_s, median(_seconds(partial(matcher.match_slots, one)) for one in single))
        mapping_s = min(mapping_s, median(_seconds(partial(matcher.match_one, one)) for one in mappings))
    index_bytes = matcher.size_bytes
    adds, removes = _changes(matcher, profile, seed + 2)
    best = min(whole, batch)
    return Measured(
        profile=profile,
        filters=size,
        pairs_per_event=pairs / rows,
        events_per_s=rows / whole,
        batch_events_per_s=rows / batch,
        ns_per_event_and_filter=best / rows / size * 1e9,
        pairs_per_s=pairs / best,
        linear_events_per_s=some.num_rows / linear,
        linear_ns_per_event_and_filter=linear / some.num_rows / size * 1e9,
        ratio=linear / some.num_rows / (best / rows),
        build_s=build_s,
        index_bytes=index_bytes,
        add_us=float(np.mean(adds)) * 1e6,
        add_worst_ms=max(adds) * 1e3,
        remove_us=float(np.mean(removes)) * 1e6,
        remove_worst_ms=max(removes) * 1e3,
        single_us=single_s * 1e6,
        single_mapping_us=mapping_s * 1e6,
    )


def _changes(matcher: Matcher, profile: MatchingProfile, seed: int) -> tuple[list[float], list[float]]:
    """Seconds of each of many additions, and of taking them out again."""
    new = {f"new {name}": one for name, one in matching_filter_values(profile, CHANGES, seed).items()}
    gc.collect()
    gc.disable()  # a collection of the benchmark's own filters is no stall of the matcher
    try:
        adds = [_seconds(partial(matcher.add, name, one)) for name, one in new.items()]
        removes = [_seconds(partial(matcher.remove, name)) for name in new]
    finally:
        gc.enable()
    return adds, removes


def _seconds(action: Callable[[], object]) -> float:
    begun = time.perf_counter()
    action()
    return time.perf_counter() - begun


def matching_filter_values(profile: MatchingProfile, count: int, seed: int) -> dict[str, Filter]:
    """The filters of the workload, made without parsing SQL, which would take longer than everything else."""
    return {
        name: Filter.of([Conjunction.of({one.attribute: _constraint(one) for one in constraints})])
        for name, constraints in matching_constraints(profile, count, seed).items()
    }


def _constraint(plain: PlainConstraint) -> Constraint:
    _, operator, operands = plain
    match operator:
        case "IS NOT NULL":
            return NOT_NULL
        case "BETWEEN":
            return Constraint.compare(">=", operands[0]).intersect(Constraint.compare("<=", operands[1]))
        case "IN":
            return Constraint.one_of(operands)
        case "PREFIX":
            return Constraint.like(Pattern("prefix", str(operands[0])))
        case "SUFFIX":
            return Constraint.like(Pattern("suffix", str(operands[0])))
        case "CONTAINS":
            return Constraint.like(Pattern("contains", str(operands[0])))
        case _:
            return Constraint.compare(operator, operands[0])


_Columns = tuple[tuple[str, Callable[[dict[str, Any]], str]], ...]

_MATCHING: _Columns = (
    ("pairs/event", lambda one: f"{one['pairs_per_event']:,.1f}"),
    ("k events/s", lambda one: f"{one['events_per_s'] / 1e3:,.0f}"),
    ("in batches", lambda one: f"{one['batch_events_per_s'] / 1e3:,.0f}"),
    ("linear", lambda one: f"{one['linear_events_per_s'] / 1e3:,.1f}"),
    ("ratio", lambda one: f"{one['ratio']:.0f}"),
    ("M pairs/s", lambda one: f"{one['pairs_per_s'] / 1e6:.1f}"),
)
_CHANGING: _Columns = (
    ("build s", lambda one: f"{one['build_s']:.2f}"),
    ("MB", lambda one: f"{one['index_bytes'] / 1e6:,.0f}"),
    ("add µs", lambda one: f"{one['add_us']:.0f}"),
    ("worst ms", lambda one: f"{one['add_worst_ms']:.1f}"),
    ("remove µs", lambda one: f"{one['remove_us']:.0f}"),
    ("worst ms", lambda one: f"{one['remove_worst_ms']:.1f}"),
    ("one event µs", lambda one: f"{one['single_us']:.0f}"),
)


def _targets(measured: Sequence[dict[str, Any]]) -> Iterator[tuple[str, str, str, bool]]:
    """What, measured, wanted, and whether it is."""
    for one in measured:
        where = f"{one['profile']}, {one['filters']:,}"
        at_least = {1_000: 10, 10_000: 25}.get(one["filters"])
        if at_least is not None:
            yield f"{where}: times a linear scan", f"{one['ratio']:.0f}", f"≥ {at_least}", one["ratio"] >= at_least
        if one["filters"] == 10_000:
            yield f"{where}: µs to add one", f"{one['add_us']:.0f}", "≤ 1,000", one["add_us"] <= 1_000
            yield f"{where}: … ms at worst", f"{one['add_worst_ms']:.1f}", "≤ 20", one["add_worst_ms"] <= 20
            yield f"{where}: µs for one event", f"{one['single_us']:.0f}", "≤ 100", one["single_us"] <= 100
        if one["filters"] == 100_000:
            yield f"{where}: s to build", f"{one['build_s']:.1f}", "≤ 20", one["build_s"] <= 20


def print_report(result: dict[str, Any], console: Console | None = None) -> None:
    """What `run` found, as tables."""
    console = console or Console()
    title = f"Matching {result['events']:,} events on one thread of {result['cores']} cores"
    console.print(_table(title, _MATCHING, result["measured"]))
    console.print(_table("The index: building it, changing it, single events", _CHANGING, result["measured"]))
    targets = list(_targets(result["measured"]))
    if targets:
        table = Table(title="Targets", box=box.SIMPLE_HEAD)
        for heading in ("what", "measured", "wanted", ""):
            table.add_column(heading, justify="right" if heading in ("measured", "wanted") else "left")
        for what, found, wanted, passes in targets:
            table.add_row(what, found, wanted, "[green]pass[/]" if passes else "[red]fail[/]")
        console.print(table)


def _table(title: str, columns: _Columns, measured: Sequence[dict[str, Any]]) -> Table:
    table = Table(title=title, box=box.SIMPLE_HEAD, padding=(0, 1))
    table.add_column("filters")
    table.add_column("", justify="right")
    for heading, _ in columns:
        table.add_column(heading, justify="right")
    previous = None
    for one in measured:
        if previous not in (None, one["profile"]):
            table.add_section()
        table.add_row(one["profile"], f"{one['filters']:,}", *(text(one) for _, text in columns))
        previous = one["profile"]
    return table
