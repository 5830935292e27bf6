"""`catchment bench placement`: what each placement sends, in relation to the least that one could send.

Every point of the DEBS'14 paper's sweeps is run under every placement. The bound is the optimum of each link with full
knowledge, one partial for each window of a subscription; `cover` may be below it, as it sends one for each stride of
all who ask the same.

Besides, the processor time of brokers over daily quotes with windows of 30 days: it has to follow the events and
windows, not the time that passes between them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from itertools import product
from pathlib import Path
from statistics import mean
from typing import Any, get_args

import pyarrow as pa
from rich import box
from rich.console import Console
from rich.table import Table

from catchment.broker.aggregation.options import Delivery
from catchment.lab.debs14.adversary import reversed_trend
from catchment.lab.debs14.loads import SIMULATED, load_all
from catchment.lab.debs14.measuring import BOUND, PLACEMENTS, TIMINGS, Measured, Sent, decision_ms, measure_all
from catchment.lab.debs14.points import DATA, Data, Workload, source_rows, workload
from catchment.model.errors import ConfigurationError
from catchment.model.subscription import Subscription
from catchment.pipeline.session import spark_session
from catchment.simulation.overlays import DEBS14
from catchment.simulation.service import FREE
from catchment.simulation.simulate import simulate
from catchment.workloads import stock_subscriptions
from catchment.workloads.publications import respaced

__all__ = ["QUICK", "print_report", "run"]

VARIED = ("rate", "subscriptions", "aggregates")
"""What matters to messages under every placement."""

QUICK: dict[str, Any] = {"seconds": 20.0, "every": 5, "delay_seconds": 2.5, "quotes": 2_000}
"""What CI has time for."""
SECONDS, DELAY_S, DECISION_S = 60.0, 8.0, 20.0
"""How long runs are: that messages are counted in, notifications timed, and decisions."""
SECONDS_ACCEPTED = (2.0, 10_000.0)
QUOTES, QUOTES_PER_DAY, QUOTED_SUBSCRIPTIONS, QUOTED_WINDOW = 20_000, 62, 60, ("30 days", "7 days")
"""How sparse data are made: daily quotes, and long windows over them."""
FIRST = 50
SHARED, FETCH = "shared", "fetch"
DELAYED = (("6c", 90), ("6d", 45))
"""Figures and numbers of subscriptions of the points at which real brokers are asked how late notifications are."""
KINDS = {"messages": "Messages", "free": "Messages, without the publications that a regular subscription made cross"}
SHORT = {"adaptive": "adapt", "selective": "select", "coordinated": "coord"}


def run(
    *,
    folder: Path | None = None,
    seconds: float = SECONDS,
    every: int = 1,
    delay_seconds: float = DELAY_S,
    quotes: int = QUOTES,
    spark: Any = None,
    report: Callable[[str], None] = lambda line: None,
) -> dict[str, Any]:
    """Measure everything; a dictionary that JSON can hold.

    `folder` has the real data in `stock` and `traffic`; without it they are generated. `seconds` is how long each run
    is: the paper's are of 1,000; `every` leaves points out; `delay_seconds` is how long real brokers run, and `quotes`
    how many daily quotes they are handed.
    """
    least, most = SECONDS_ACCEPTED
    if not least <= seconds <= most:
        raise ConfigurationError(f"seconds is {seconds:g}; accepted are {least:g} to {most:g}")
    whole = workload()
    points = [one for one in whole.shortened(seconds).points if one.vary in VARIED][::every]
    folders: dict[Data, str | None] = {data: None if folder is None else str(folder / data) for data in DATA}
    report("reading the data")
    spark = spark or spark_session("catchment bench placement")
    measured = measure_all(spark, points, folders, report)
    delays = _delays(spark, whole, folders, delay_seconds, lambda line: report(f"real brokers: {line}"))
    report(f"{quotes:,} daily quotes, windows of {QUOTED_WINDOW[0]}")
    sparse = _sparse(source_rows("stock", folders["stock"]), quotes)
    report("timing the decisions of cover")
    largest = max((point for point in points if point.filters is None), key=lambda one: one.rate * one.subscriptions)
    rows = source_rows(largest.data, folders[largest.data])
    decisions = decision_ms(replace(largest, seconds=min(DECISION_S, largest.seconds)), rows)
    # The first ones load what is compiled.
    decisions = decisions[min(FIRST, len(decisions) // 2) :]
    return {
        "data": "real" if folder is not None else "generated",
        "seconds": points[0].seconds,
        "measured": [asdict(one) for one in measured],
        "delays": delays,
        "sparse": {"quotes": quotes, "cpu_s": sparse},
        "decision": {
            "rate": largest.rate,
            "subscriptions": largest.subscriptions,
            "mean_ms": mean(decisions),
            "at_most_ms": max(decisions),
        },
        "adversary": [asdict(reversed_trend(name)) for name in PLACEMENTS],
        "targets": list(_targets(measured, delays, decisions, sparse)),
    }


def _delays(
    spark: Any,
    whole: Workload,
    folders: Mapping[Data, str | None],
    seconds: float,
    report: Callable[[str], None],
) -> list[dict[str, Any]]:
    """How long after the end of a window it is told of: where brokers take no time, and where they take theirs."""
    points = [one for figure, at in DELAYED for one in whole.of(figure) if one.at == at]
    always_us = sum(whole.simulated.network_us) // 2
    calm = replace(whole.simulated, seconds=seconds, service=FREE, network_us=(always_us, always_us))
    found = []
    for fixed, delivery in product((calm, replace(whole.simulated, seconds=seconds)), get_args(Delivery)):
        for one in load_all(spark, points, folders, fixed, SIMULATED, report, delivery=delivery):
            delay_ms = {name: load.delay_ms for name, load in one.of.items()}
            found.append(
                {"data": one.point.data, "delivery": delivery, "served": fixed is not calm, "delay_ms": delay_ms}
            )
    return found


def _sparse(rows: pa.Table, quotes: int) -> dict[str, float]:
    """Processor time of simulated brokers over daily quotes, by placement."""
    table = respaced(rows.slice(0, quotes), start_us=0, duration_us=max(quotes // QUOTES_PER_DAY, 1) * 86_400_000_000)
    drawn = stock_subscriptions(
        QUOTED_SUBSCRIPTIONS, seed=1, window=QUOTED_WINDOW, brokers=DEBS14.brokers, regular_share=0.2
    )
    asked = [Subscription(one.name, one.at, sql=one.sql) for one in drawn]
    found = {}
    for placement in ("late", "early", "cover", "adaptive"):
        begun_s = time.process_time()
        simulate(table, overlay=DEBS14, subscriptions=asked, placement=placement)
        found[placement] = time.process_time() - begun_s
    return found


def _targets(
    measured: Sequence[Measured],
    delays: Sequence[dict[str, Any]],
    decisions: Sequence[float],
    sparse: Mapping[str, float],
) -> Iterator[dict[str, Any]]:
    own = [one for one in measured if not one.point.figure.startswith((SHARED, FETCH))]
    tumbling, sliding = ([one for one in own if one.point.data == data] for data in DATA)
    shared = [one for one in measured if one.point.figure.startswith(SHARED)]
    if tumbling:
        ratios = [_ratio(one, "cover") for one in tumbling]
        yield _target("cover, tumbling windows, at most", max(ratios), 1.0)
    if sliding:
        ratios = [_ratio(one, "cover") for one in sliding]
        yield _target("cover, sliding windows, on average", mean(ratios), 0.95)
        yield _target("cover, sliding windows, at most", max(ratios), 1.0)
    for one in shared:
        if one.point.subscriptions == 990:
            yield _target("cover, 990 subscriptions of 60 filters", _ratio(one, "cover"), 0.40)
    for other in ("late", "early"):
        worst = max(one.sent["cover"].messages / max(one.sent[other].messages, 1) for one in measured)
        yield _target(f"cover in relation to {other}, at most", worst, 1.0)
    for data, several in zip(DATA, (tumbling, sliding), strict=True):
        if several:
            for placement in ("adaptive", "selective", "coordinated"):
                average = mean(_ratio(one, placement) for one in several)
                yield _target(f"{placement}, {data}, on average", average, 1.16)
    slower = [one["delay_ms"]["cover"] / max(one["delay_ms"]["early"], 1e-9) for one in delays if not one["served"]]
    yield _target("delay of cover over early's, at most", max(slower), 1.0)
    yield _target("ms for a decision of cover, at most", max(decisions), 1.0)
    yield _target("processor time of adaptive over cover's, daily quotes", sparse["adaptive"] / sparse["cover"], 2.0)


def _target(name: str, value: float, at_most: float) -> dict[str, Any]:
    return {"name": name, "value": value, "at_most": at_most, "passes": value <= at_most + 1e-9}


def _ratio(one: Measured, placement: str) -> float:
    return one.sent[placement].messages / max(one.sent[BOUND].messages, 1)


# -- printing ---------------------------------------------------------------------------------------------------------


def print_report(result: dict[str, Any], console: Console | None = None) -> None:
    """What `run` found, as tables."""
    console = console or Console()
    for data in DATA:
        found = [_point(one) for one in result["measured"] if one["point"]["data"] == data]
        if found:
            title = f"{data}, {result['data']} data, {result['seconds']:g} s a run"
            for kind, meaning in KINDS.items():
                console.print(_table(f"{meaning}: {title}", found, kind))
            console.print(_summary(title, found))
    console.print(
        "All in relation to what the bound sends: the least, with one partial for each window of a subscription. "
        "moves: how often adaptive brokers changed between forwarding and aggregating."
    )
    console.print(_delay_table(result["delays"]))
    shown = ", ".join(f"{name} {seconds:.1f}" for name, seconds in result["sparse"]["cpu_s"].items())
    console.print(
        f"{result['sparse']['quotes']:,} daily quotes, {QUOTED_SUBSCRIPTIONS} subscriptions with windows of "
        f"{QUOTED_WINDOW[0]} every {QUOTED_WINDOW[1]}, seconds of processor time of all brokers: {shown}."
    )
    table = Table(title="Messages where an adversary reverses the trend whenever brokers have adapted")
    for heading in ("against", "sent", "late", "early", "cover", "optimal", "reversals"):
        table.add_column(heading, justify="left" if heading == "against" else "right")
    for one in result["adversary"]:
        table.add_row(*(str(value) if isinstance(value, str) else f"{value:,}" for value in one.values()))
    console.print(table)
    table = Table(title="Targets")
    for heading in ("what", "measured", "wanted", ""):
        table.add_column(heading, justify="right" if heading in ("measured", "wanted") else "left")
    for target in result["targets"]:
        verdict = "[green]pass[/]" if target["passes"] else "[red]fail[/]"
        table.add_row(target["name"], f"{target['value']:.3f}", f"≤ {target['at_most']:g}", verdict)
    console.print(table)
    decision = result["decision"]
    console.print(
        f"Decisions of cover at {decision['rate']:,} publications a second and {decision['subscriptions']} "
        f"subscriptions, each about all that one link held at the end of a stride: {decision['mean_ms']:.2f} ms on "
        f"average, {decision['at_most_ms']:.2f} ms at most (the least of {TIMINGS} timings of each)."
    )


Row = tuple[dict[str, Any], dict[str, Sent]]


def _point(plain: dict[str, Any]) -> Row:
    return plain["point"], {name: Sent(**one) for name, one in plain["sent"].items()}


def _relative(sent: Mapping[str, Sent], name: str, kind: str) -> float:
    ours, least = (int(getattr(sent[one], kind)) for one in (name, BOUND))
    return ours / max(least, 1)


def _table(title: str, found: Sequence[Row], kind: str) -> Table:
    table = Table(title=title, box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for heading in ("figure", "pub/s", "subs", "agg", *(SHORT.get(name, name) for name in PLACEMENTS), "moves"):
        table.add_column(heading, justify="left" if heading == "figure" else "right", no_wrap=True)
    for point, sent in found:
        table.add_row(
            point["figure"].removesuffix(f"-{point['data']}"),
            f"{point['rate']:,}",
            f"{point['subscriptions']}",
            f"{point['aggregates']:.0%}",
            *(f"{_relative(sent, name, kind):.2f}" for name in PLACEMENTS),
            f"{sent['adaptive'].transitions:,}",
        )
    return table


def _summary(title: str, found: Sequence[Row]) -> Table:
    table = Table(title=f"Mean and worst of all points: {title}", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("")
    for name in PLACEMENTS:
        table.add_column(SHORT.get(name, name), justify="right", no_wrap=True)
    for kind, label in (("messages", "messages"), ("free", "not forced"), ("bytes", "bytes")):
        several = [[_relative(sent, name, kind) for _, sent in found] for name in PLACEMENTS]
        table.add_row(label, *(f"{mean(one):.2f} {max(one):.2f}" for one in several))
    return table


def _delay_table(delays: Sequence[dict[str, Any]]) -> Table:
    table = Table(title="Real brokers: ms from the end of a window to what is told of it, on average")
    for heading in ("data", "delivery", "brokers", *SIMULATED):
        table.add_column(heading, justify="right" if heading in SIMULATED else "left")
    for one in delays:
        brokers = "take their time" if one["served"] else "take no time"
        table.add_row(one["data"], one["delivery"], brokers, *(f"{one['delay_ms'][name]:.1f}" for name in SIMULATED))
    return table
