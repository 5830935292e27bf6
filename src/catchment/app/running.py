"""`catchment run`: answers over a stream, for as long as it is let run."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Any

from pyspark.sql import SparkSession
from rich.console import Console
from rich.live import Live
from rich.text import Text

import catchment
from catchment.app.asking import read_subscriptions
from catchment.app.config import AVAILABLE_NOW, Configuration, SinkOptions
from catchment.app.outputs import require_local_folder, require_spark_folder
from catchment.app.printing import print_facts, print_warnings
from catchment.lab.progress import Steps
from catchment.model.errors import CatchmentError, ConfigurationError
from catchment.model.subscription import Subscription
from catchment.model.times import timestamp_text
from catchment.pipeline.quarantine import Quarantine, store_aside
from catchment.pipeline.sinks import ConsoleSink, ParquetSink
from catchment.pipeline.sources import Files, FromOverlay, Source, open_batch, open_stream
from catchment.pipeline.stream import Job, stream
from catchment.pipeline.topics import absent_topics

__all__ = ["Ran", "Watched", "run_job", "show_ran", "with_options"]

_LOOK_EVERY_SECONDS = 1.0
_TOPICS_SOUGHT_IN = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """What a run came to."""

    status: dict[str, Any]
    quarantined: int
    results: str | None
    changes: list[str]
    """Subscriptions that came and went while it ran."""


def answered_here(job: Configuration, subscriptions: Iterable[Subscription]) -> list[Subscription]:
    """Those that a Spark job answers: over a running overlay, not those that its brokers do."""
    if not isinstance(job.source, FromOverlay):
        return list(subscriptions)
    return [one for one in subscriptions if one.plane == "spark"]


class Watched:
    """A file of subscriptions, and what it said when it was last read."""

    def __init__(self, file: Path, known: dict[str, Subscription], job: Configuration) -> None:
        self._file = file
        self._job = job
        self._known = known
        # The first look reads the file in any case: it may have changed since it was read for the start of the job.
        self._seen: tuple[int, int] | None = None

    def _stamp(self) -> tuple[int, int] | None:
        try:
            status = self._file.stat()
        except OSError:  # an editor replaces a file by first taking it away
            return None
        return status.st_mtime_ns, status.st_size

    def changes(self) -> list[tuple[str, Subscription]]:
        """What to do so that the job asks what the file says: ("unsubscribe" or "subscribe", subscription) in order.

        A file that does not read raises its error once, and changes nothing.
        """
        stamp = self._stamp()
        if stamp is None or stamp == self._seen:
            return []
        self._seen = stamp
        wanted = {one.name: one for one in answered_here(self._job, read_subscriptions(self._file))}
        for one in wanted.values():
            self._job.check_subscription(one)
        gone = [one for name, one in self._known.items() if wanted.get(name) != one]
        new = [one for name, one in wanted.items() if self._known.get(name) != one]
        self._known = wanted
        return [*(("unsubscribe", one) for one in gone), *(("subscribe", one) for one in new)]


def with_options(
    job: Configuration,
    *,
    checkpoint: str | None,
    output: str | None,
    master: str | None,
    available_now: bool,
) -> Configuration:
    """What the command line says goes before what the file says."""
    options = job.options
    if checkpoint is not None:
        options = replace(options, checkpoint=checkpoint)
    if master is not None:
        options = replace(options, master=master)
    if available_now:
        options = replace(options, trigger=AVAILABLE_NOW)
    sink = job.sink if output is None else SinkOptions(path=output)
    return replace(job, options=options, sink=sink)


def run_job(
    job: Configuration,
    *,
    seconds: float | None,
    steps: Steps,
    end: bool = False,
    until: Callable[[], bool] = lambda: False,
    spark: SparkSession | None = None,
) -> Ran:
    """Run until the source ends, time is up, or Ctrl-C; then stop cleanly, so that the next run goes on from there.

    `until` is asked each second whether to stop. With `end` there is no next run: every open window is closed.
    """
    options = job.options
    if job.source is None:
        raise ConfigurationError(f"{job.file}: source is missing; run needs to know where events come from")
    if options.checkpoint is None:
        raise ConfigurationError(f"{job.file}: options.checkpoint is missing; accepted is a folder, or --checkpoint")
    written = {"the results": job.sink.path, "the checkpoint": options.checkpoint}
    for what, path in written.items():
        require_local_folder(path, what, options.master)
    subscriptions = job.drawn.draw() if job.drawn is not None else answered_here(job, job.subscriptions)
    if job.subscriptions and not subscriptions and job.subscriptions_file is None:
        raise ConfigurationError(
            f'{job.file}: brokers answer all subscriptions; run answers those with plane = "spark", and up the others'
        )
    if spark is None:
        with steps.step("Spark started"):
            spark = catchment.spark_session("catchment run", master=options.master)
    for what, path in written.items():
        require_spark_folder(spark, path, what)
    opened = open_stream(spark, job.source)
    there = _topics_so_far(spark, job.source)
    if there:
        print_warnings(absent_topics(subscriptions, there, "event so far"), steps.console)
    sink = ConsoleSink() if job.sink.format == "console" else ParquetSink(job.sink.path) if job.sink.path else None
    with steps.step(f"job started with {len(subscriptions)} subscriptions"):
        running = stream(
            spark,
            opened.publications,
            checkpoint=options.checkpoint,
            subscriptions=subscriptions,
            overlay=job.overlay,
            placement=options.placement,  # type: ignore[arg-type]
            schema=job.topics or None,
            lateness=options.lateness,
            delivery=options.delivery,  # type: ignore[arg-type]
            deduplicate=options.deduplicate,
            sink=sink,
            trigger=options.trigger,
            idle_after=options.idle_after,
            sampling_period=options.sampling_period,
            cost=options.cost,
            whole_from=opened.whole_from,
        )
    aside: Quarantine | None = None
    if opened.quarantined is not None:
        aside = store_aside(
            opened.quarantined,
            f"{job.sink.path or options.checkpoint}/quarantined",
            checkpoint=f"{options.checkpoint}/quarantine",
            available_now=options.trigger == AVAILABLE_NOW,
        )
    watched = None
    if job.subscriptions_file is not None:
        watched = Watched(job.subscriptions_file, {one.name: one for one in subscriptions}, job)
    changes: list[str] = []
    with _asked_to_stop() as asked:
        try:
            _follow(running, watched, seconds, lambda: asked.is_set() or until(), steps.console, changes)
            steps.console.print("stopping", highlight=False)
        finally:
            if end:
                running.end()
            else:
                running.stop()
            quarantined = _finished(aside, drain=options.trigger == AVAILABLE_NOW)
    return Ran(
        status=dict(running.status()),
        quarantined=quarantined,
        results=job.sink.path or (None if job.sink.format == "console" else f"{options.checkpoint}/results"),
        changes=changes,
    )


def _topics_so_far(spark: SparkSession, source: Source) -> set[str]:
    """The topics of the first events that a source holds, where nobody declares which there are; else none."""
    if not isinstance(source, Files) or source.topics:
        return set()
    if isinstance(source.topic, str):
        return {source.topic}
    try:
        first = open_batch(spark, source, rows_max=_TOPICS_SOUGHT_IN).publications
    except ConfigurationError:  # no file is there yet
        return set()
    return {row.topic for row in first.select("topic").distinct().collect() if row.topic is not None}


def _follow(
    running: Job,
    watched: Watched | None,
    seconds: float | None,
    until: Callable[[], bool],
    console: Console,
    changes: list[str],
) -> None:
    begun = time.monotonic()
    with Live(console=console, refresh_per_second=4, transient=True) as live:
        while not until() and (seconds is None or time.monotonic() - begun < seconds):
            left = _LOOK_EVERY_SECONDS if seconds is None else max(0.01, seconds - (time.monotonic() - begun))
            if running.await_termination(min(_LOOK_EVERY_SECONDS, left)):
                return
            live.update(_status_line(dict(running.status())))
            if watched is not None:
                _take_up(running, watched, console, changes)


def _take_up(running: Job, watched: Watched, console: Console, changes: list[str]) -> None:
    try:
        found = watched.changes()
        for verb, one in found:
            version = running.subscribe(one) if verb == "subscribe" else running.unsubscribe(one.name)
            changes.append(f"{verb} {one.name}")
            console.print(f"version {version}: {verb} {one.name}", highlight=False, markup=False)
    except CatchmentError as error:  # a mistake in the file is no reason to stop answering the others
        console.print(f"not taken up: {error}", style="red", highlight=False, markup=False)


def _status_line(status: dict[str, Any]) -> Text:
    watermark = status.get("watermark_us")
    until = "" if watermark is None else f", watermark {timestamp_text(watermark)[:19]}"
    always, if_any = ("events", "dropped", "rejected"), ("repeated", "overflows")
    shown = [name for name in (*always, *if_any) if name in status and (name in always or status[name])]
    counts = "  ".join(f"{status[name]:,} {name}" for name in shown)
    return Text(f"batch {status.get('batch', '-')}, version {status.get('version', '-')}{until}   {counts}")


def _finished(aside: Quarantine | None, *, drain: bool) -> int:
    if aside is None:
        return 0
    if drain:
        aside.query.awaitTermination()
    aside.stop()
    return aside.rows.count()


@contextmanager
def _asked_to_stop() -> Iterator[threading.Event]:
    """Set by Ctrl-C or a polite kill, and seen between two looks at the job: no call to Spark is torn in the middle.

    Asked twice, it does what was done before: the command exits.
    """
    asked = threading.Event()

    def take_note(number: int, frame: FrameType | None) -> None:
        if not asked.is_set():
            asked.set()
            return
        handler = before[number]
        if callable(handler):
            handler(number, frame)
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():  # where no signal arrives
        yield asked
        return
    before: dict[int, Any] = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    for number in before:
        signal.signal(number, take_note)
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def show_ran(ran: Ran) -> None:
    """The table of `catchment run`."""
    status = {name.replace("_", " "): value for name, value in ran.status.items() if not name.endswith("_us")}
    if ran.status.get("watermark_us") is not None:
        status["watermark"] = timestamp_text(ran.status["watermark_us"])[:19]
    print_facts("Run", {**status, "quarantined rows": ran.quarantined, "results": ran.results})
