"""`catchment bench placement`: what each placement sends, in relation to the least that one could send.

Every point of the DEBS'14 paper's sweeps is run under every placement. The bound is the optimum of each link with full
knowledge, one partial for each window of a subscription; `cover` may be below it, as it sends one for each stride of
all who ask the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from statistics import mean
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from catchment.lab.debs14.adversary import reversed_trend
from catchment.lab.debs14.measuring import BOUND, PLACEMENTS, Measured, Sent, decision_ms, measure_all
from catchment.lab.debs14.points import DATA, Data, source_rows, workload
from catchment.pipeline.session import spark_session

__all__ = ["QUICK", "print_report", "run"]

VARIED = ("rate", "subscriptions", "aggregates")
"""What matters to messages under every placement."""

QUICK: dict[str, Any] = {"seconds": 20.0, "every": 5}
"""What CI has time for."""
SECONDS = 60.0
DECISION_S = 20.0
"""How long the run is that decisions are timed in."""
FIRST = 50
SHARED = "shared"
FREE = ("select*", "cover*")


def run(
    *,
    folder: Path | None = None,
    seconds: float = SECONDS,
    every: int = 1,
    spark: Any = None,
    report: Callable[[str], None] = lambda line: None,
) -> dict[str, Any]:
    """Measure everything; a dictionary that JSON can hold.

    `folder` has the real data in `stock` and `traffic`; without it they are generated. `seconds` is how long each run
    is: the paper's are of 1,000; `every` leaves points out.
    """
    points = [one for one in workload().shortened(seconds).points if one.vary in VARIED][::every]
    folders: dict[Data, str | None] = {data: None if folder is None else str(folder / data) for data in DATA}
    report("reading the data")
    measured = measure_all(spark or spark_session("catchment bench placement"), points, folders, report)
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
        "decision": {
            "rate": largest.rate,
            "subscriptions": largest.subscriptions,
            "mean_ms": mean(decisions),
            "at_most_ms": max(decisions),
        },
        "adversary": [asdict(reversed_trend(name)) for name in PLACEMENTS],
        "targets": list(_targets(measured, decisions)),
    }


def _targets(measured: Sequence[Measured], decisions: Sequence[float]) -> Iterator[dict[str, Any]]:
    own = [one for one in measured if not one.point.figure.startswith(SHARED)]
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
    yield _target("ms for a decision of cover, on average", mean(decisions), 1.0)


def _target(name: str, value: float, at_most: float) -> dict[str, Any]:
    return {"name": name, "value": value, "at_most": at_most, "passes": value <= at_most + 1e-9}


def _ratio(one: Measured, placement: str) -> float:
    return one.sent[placement].messages / max(one.sent[BOUND].messages, 1)


# -- printing ---------------------------------------------------------------------------------------------------------


def print_report(result: dict[str, Any], console: Console | None = None) -> None:
    """What `run` found, as tables."""
    console = console or Console()
    for data in DATA:
        found = [one for one in result["measured"] if one["point"]["data"] == data]
        if found:
            console.print(_table(data, found, result))
    console.print(
        "Messages on all links in relation to the bound; with *, without the publications that a regular subscription "
        "made cross. moves: how often brokers changed between forwarding and aggregating."
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
        f"subscriptions: {decision['mean_ms']:.2f} ms on average, {decision['at_most_ms']:.2f} ms at most."
    )


def _table(data: str, found: Sequence[dict[str, Any]], result: dict[str, Any]) -> Table:
    table = Table(
        title=f"{data}, {result['data']} data, {result['seconds']:g} s a run",
        box=box.SIMPLE_HEAD,
        padding=(0, 0),
    )
    for heading in (
        "figure",
        "pub/s",
        "subs",
        "agg",
        "late",
        "early",
        "adapt",
        "select",
        "coord",
        "cover",
        *FREE,
        "moves",
    ):
        table.add_column(heading, justify="left" if heading == "figure" else "right", no_wrap=True)
    ratios: dict[str, list[float]] = {name: [] for name in PLACEMENTS}
    for plain in found:
        point, sent = plain["point"], {name: Sent(**one) for name, one in plain["sent"].items()}
        for name in PLACEMENTS:
            ratios[name].append(sent[name].messages / max(sent[BOUND].messages, 1))
        free = [sent[name].free / max(sent[BOUND].free, 1) for name in ("selective", "cover")]
        table.add_row(
            point["figure"].removeprefix(SHARED + "-"),
            f"{point['rate']:,}",
            f"{point['subscriptions']}",
            f"{point['aggregates']:.0%}",
            *(f"{ratios[name][-1]:.2f}" for name in PLACEMENTS),
            *(f"{value:.2f}" for value in free),
            f"{sent['adaptive'].transitions:,}",
        )
    table.add_section()
    for label, choose in (("mean", mean), ("worst", max)):
        table.add_row(label, "", "", "", *(f"{choose(ratios[name]):.2f}" for name in PLACEMENTS))
    return table
