"""`catchment demo`: the main job from nothing, on the overlay and at the scale of the DEBS'14 paper."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from rich import box
from rich.console import Console
from rich.table import Table

import catchment
from catchment.lab.drawing import page_folder
from catchment.lab.progress import Steps
from catchment.lab.verifying import Verification, verify
from catchment.lab.warming import start_workers
from catchment.model.schema import Schema
from catchment.model.subscription import Subscription
from catchment.overlay import CLIENTS, Overlay
from catchment.pipeline.generated import Generated, generated_batch
from catchment.workloads import TRAFFIC_SCHEMA, Debs14, debs14_links, traffic_subscriptions

__all__ = [
    "ALONG",
    "SLOWEST",
    "Demo",
    "Shown",
    "carried_links",
    "demo_console",
    "demo_publications",
    "demo_subscriptions",
    "run_demo",
]

SECONDS = 600
ALONG = "speed-along-427"
SLOWEST = "slowest-roads"
_VERIFIED = 12
_TOP = 8
_WIDTH = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Demo:
    """What to show."""

    events: int = 300_000
    subscriptions: int = 200
    seed: int = 1


@dataclass(frozen=True, kw_only=True)
class Shown:
    """What came of it."""

    demo: Demo
    deployment: Debs14
    facts: dict[str, Any]
    links: list[tuple[str, str, int, int]]
    """As `carried_links` gives them."""
    answers: list[dict[str, Any]]
    """The slowest roads of any minute."""
    along_sql: str
    along: list[tuple[int, float, int]]
    """One subscription's answer: end of the window in microseconds, value, publications."""
    matches: npt.NDArray[np.int64]
    """How many events interest 0, 1, 2, … subscriptions."""
    verification: Verification
    report: Path

    def as_dict(self) -> dict[str, Any]:
        """What JSON can hold."""
        return {
            **self.facts,
            "links": [
                {"between": [one, other], "late": late, "early": early} for one, other, late, early in self.links
            ],
            "slowest roads": self.answers,
            "differences from the oracle": list(self.verification.differences),
            "report": str(self.report),
        }


def demo_subscriptions(demo: Demo, deployment: Debs14) -> list[Subscription]:
    """Drawn ones, of which some ask the same, and two that the page shows."""
    shown = [
        Subscription(
            ALONG,
            at=deployment.subscribers[0],
            sql="SELECT avg(speed) AS speed FROM traffic WHERE highway = '427' "
            "GROUP BY window(ts, '20 seconds', '2 seconds')",
        ),
        Subscription(
            SLOWEST,
            at=deployment.subscribers[-1],
            sql="SELECT highway, avg(speed) AS speed, count(*) AS readings FROM traffic WHERE speed < 60 "
            "GROUP BY window(ts, '1 minute'), highway HAVING avg(speed) < 35",
        ),
    ]
    count = max(0, demo.subscriptions - len(shown))
    drawn = traffic_subscriptions(
        count,
        seed=demo.seed,
        brokers=deployment.subscribers,
        regular_share=0.1,
        distinct_filters=max(1, count * 3 // 5) if count else None,
    )
    return [*shown, *(Subscription(one.name, one.at, sql=one.sql) for one in drawn)]


def demo_publications(spark: SparkSession, demo: Demo, deployment: Debs14) -> DataFrame:
    """Ten minutes of made-up traffic."""
    source = Generated(
        workload="traffic",
        seed=demo.seed,
        events=demo.events,
        rate=max(1, demo.events // SECONDS),
        brokers=deployment.publishers,
    )
    return generated_batch(spark, source)


def carried_links(run: catchment.Run, overlay: Overlay) -> list[tuple[str, str, int, int]]:
    """Two brokers, and the messages between them, both ways together, under late and under early."""
    late, early = (_messages(run.under(placement).traffic.toArrow()) for placement in ("late", "early"))
    return [(a, b, _between(late, a, b), _between(early, a, b)) for a, b in overlay.links]


def run_demo(
    demo: Demo, output: Path, steps: Steps, *, master: str | None = None, spark: SparkSession | None = None
) -> Shown:
    """Make events, answer all subscriptions under two placements, ask the oracle, and write the page."""
    from catchment.lab.report import write_report

    report = page_folder(output) / "index.html"
    begun = time.monotonic()
    deployment = debs14_links()
    overlay = Overlay.from_links(deployment.links)
    if spark is None:
        with steps.step("Spark started"):
            spark = catchment.spark_session("catchment demo", master=master)
    started_seconds = time.monotonic() - begun
    steps.spark = spark
    with steps.step(f"{demo.events:,} events made, {demo.subscriptions} subscriptions drawn"):
        publications = demo_publications(spark, demo, deployment).persist()
        publications.count()
        subscriptions = demo_subscriptions(demo, deployment)
    run = catchment.replay(
        spark, publications, subscriptions=subscriptions, overlay=overlay, schema={"traffic": TRAFFIC_SCHEMA}
    )
    starting = time.monotonic()
    with steps.step("Python workers started"):
        start_workers(spark, publications, subscriptions, {"traffic": TRAFFIC_SCHEMA})
    started_seconds += time.monotonic() - starting
    run = run.persist()
    answering = time.monotonic()
    with steps.step("all subscriptions answered in one pass"):
        notifications = run.notifications.toArrow()
        deliveries = run.deliveries.toArrow()
        overflows = run.overflows.toArrow()
    seconds = time.monotonic() - answering
    with steps.step("what each link carries under late and under early"):
        links = carried_links(run, overlay)
    events = publications.toArrow()
    chosen = _chosen(subscriptions)
    with steps.step(f"{len(chosen)} of the subscriptions compared with the oracle"):
        names = pa.array([one.name for one in chosen])
        verification = verify(
            spark,
            events,
            chosen,
            notifications=notifications.filter(pc.is_in(notifications.column("subscription"), value_set=names)),
            deliveries=deliveries.filter(pc.is_in(deliveries.column("subscription"), value_set=names)),
            overflows=overflows.filter(pc.is_in(overflows.column("subscription"), value_set=names)),
            schema={"traffic": TRAFFIC_SCHEMA},
        )
    totals = [sum(link[2] for link in links), sum(link[3] for link in links)]
    shown = Shown(
        demo=demo,
        deployment=deployment,
        facts={
            "events": demo.events,
            "subscriptions": len(subscriptions),
            "questions": len(run.plan.questions),
            "seconds starting": round(started_seconds, 2),
            "seconds answering": round(seconds, 2),
            "events a second": round(demo.events / seconds),
            "notifications": notifications.num_rows,
            "deliveries": deliveries.num_rows,
            "messages late": totals[0],
            "messages early": totals[1],
        },
        links=links,
        answers=_slowest(notifications),
        along_sql=subscriptions[0].sql,
        along=_along(notifications),
        matches=_interest(events, subscriptions),
        verification=verification,
        report=report,
    )
    with steps.step(f"report written to {shown.report}"):
        write_report(shown)
    run.unpersist()
    publications.unpersist()
    shown.facts["seconds in all"] = round(time.monotonic() - begun, 1)
    return shown


def _chosen(subscriptions: Sequence[Subscription]) -> list[Subscription]:
    """The shown ones and some others, regular ones among them."""
    regular = [one for one in subscriptions if one.is_regular][:2]
    others = [one for one in subscriptions if not one.is_regular]
    step = max(1, len(others) // (_VERIFIED - 4))
    return list(dict.fromkeys([*others[:2], *regular, *others[2::step]]))[:_VERIFIED]


def _messages(traffic: pa.Table) -> dict[tuple[str, str], int]:
    found: dict[tuple[str, str], int] = {}
    for row in traffic.to_pylist():
        if row["target"] != CLIENTS:
            ends = (row["source"], row["target"])
            found[ends] = found.get(ends, 0) + row["messages"]
    return found


def _between(messages: Mapping[tuple[str, str], int], one: str, other: str) -> int:
    return messages.get((one, other), 0) + messages.get((other, one), 0)


def _slowest(notifications: pa.Table) -> list[dict[str, Any]]:
    rows = notifications.filter(pc.equal(notifications.column("subscription"), SLOWEST)).to_pylist()
    readings = {_cell(row): int(row["value"]) for row in rows if row["output"] == "readings"}
    speeds = sorted((row["value"], _cell(row)) for row in rows if row["output"] == "speed")
    return [
        {
            "minute": start.strftime("%H:%M"),
            "highway": highway,
            "speed": round(speed, 1),
            "readings": readings[start, highway],
        }
        for speed, (start, highway) in speeds[:_TOP]
    ]


def _cell(row: Mapping[str, Any]) -> tuple[Any, str]:
    return row["window_start"], str(dict(row["group"])["highway"])


def _along(notifications: pa.Table) -> list[tuple[int, float, int]]:
    rows = notifications.filter(pc.equal(notifications.column("subscription"), ALONG))
    ends = rows.column("window_end").cast(pa.int64()).to_pylist()
    values, publications = rows.column("value").to_pylist(), rows.column("publications").to_pylist()
    return sorted(row for row in zip(ends, values, publications, strict=True) if row[1] is not None)


def _interest(events: pa.Table, subscriptions: Sequence[Subscription]) -> npt.NDArray[np.int64]:
    schemas: dict[str, Schema] = {"traffic": TRAFFIC_SCHEMA}
    matcher = catchment.Matcher({one.name: one.within(schemas).where for one in subscriptions}, TRAFFIC_SCHEMA)
    event_index, _ = matcher.match(events)
    per_event = np.bincount(np.asarray(event_index), minlength=events.num_rows)
    return np.bincount(per_event).astype(np.int64)


def demo_console(shown: Shown, console: Console | None = None) -> None:
    """The table at the end of the demo, within 100 columns."""
    console = console or Console(width=_WIDTH, highlight=False)
    facts = shown.facts
    late, early = facts["messages late"], facts["messages early"]
    told = shown.verification
    publishers, subscribers = len(shown.deployment.publishers), len(shown.deployment.subscribers)
    table = Table(title="Catchment demo", title_justify="left", title_style="bold", box=box.SIMPLE, show_header=False)
    table.add_column(style="dim")
    table.add_column()
    table.add_row("events", f"{facts['events']:,} over {SECONDS // 60} minutes, from {publishers} brokers")
    table.add_row(
        "subscriptions",
        f"{facts['subscriptions']} at {subscribers} brokers, sharing {facts['questions']} windowed questions",
    )
    table.add_row("started", f"in {facts['seconds starting']} s: Spark and its Python workers")
    table.add_row(
        "answered", f"in {facts['seconds answering']} s on Spark: {facts['events a second']:,} events a second"
    )
    table.add_row(
        "notifications", f"{facts['notifications']:,} values of windows, {facts['deliveries']:,} events delivered"
    )
    table.add_row("messages on links", f"late {late:,}   early {early:,}   {late / max(1, early):.1f} times fewer")
    correct = (
        f"{told.subscriptions} subscriptions compared, {told.values:,} values and {told.deliveries:,} deliveries: "
        + ("all equal" if not told.differences else f"{len(told.differences)} DIFFER")
    )
    table.add_row("oracle", correct)
    console.print(table)
    console.print(_links_table(shown))
    console.print(_answers_table(shown))
    console.print(f"The whole story, with pictures: [bold]{shown.report}[/bold]")


def _links_table(shown: Shown) -> Table:
    table = Table(title="Messages on each link", title_justify="left", title_style="bold", box=box.SIMPLE_HEAD)
    table.add_column("link")
    for name in ("late", "early"):
        table.add_column(name, justify="right")
    table.add_column("early / late", no_wrap=True)
    for one, other, late, early in shown.links:
        share = early / late if late else 0.0
        bar = "█" * max(1, round(24 * min(1.0, share))) if early else ""
        table.add_row(f"{one} – {other}", f"{late:,}", f"{early:,}", f"{bar} {share:.0%}" if late else "")
    return table


def _answers_table(shown: Shown) -> Table:
    title = f"Slowest roads of any minute (subscription {SLOWEST})"
    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD)
    for name in ("minute", "highway"):
        table.add_column(name)
    for name in ("km/h", "readings"):
        table.add_column(name, justify="right")
    for row in shown.answers:
        table.add_row(row["minute"], row["highway"], f"{row['speed']:.1f}", str(row["readings"]))
    return table
