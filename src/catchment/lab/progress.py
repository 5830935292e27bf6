"""What a long job is doing, on standard error: a live line on a terminal, a line per finished step elsewhere."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

__all__ = ["Steps"]

_POLL_SECONDS = 0.25


class Steps:
    """Reports steps one after the other; the tasks of Spark jobs that run meanwhile are the progress of a step."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console(stderr=True)
        self.spark: SparkSession | None = None

    @contextmanager
    def step(self, title: str) -> Iterator[None]:
        """Called around each long piece of work, on the driver."""
        begun = time.monotonic()
        with Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[detail]}"),
            TimeElapsedColumn(),
            console=self.console,
            transient=True,
            disable=not self.console.is_terminal,
        ) as progress:
            shown = progress.add_task(title, total=None, detail="")
            finished = threading.Event()
            watcher = threading.Thread(target=self._watch, args=(progress, shown, finished), daemon=True)
            watcher.start()
            try:
                yield
            finally:
                finished.set()
                watcher.join()
        self.console.print(f"[green]✓[/green] {title} [dim]({time.monotonic() - begun:.1f} s)[/dim]", highlight=False)

    def _watch(self, progress: Progress, shown: Any, finished: threading.Event) -> None:
        done_before: dict[int, tuple[int, int]] = {}
        while not finished.wait(_POLL_SECONDS):
            if self.spark is None or not self.console.is_terminal:
                continue
            try:
                done_before.update(_stages(self.spark))
            except (Py4JError, OSError, AttributeError):  # the session has just been stopped
                continue
            total = sum(count for count, _ in done_before.values())
            done = sum(finished_tasks for _, finished_tasks in done_before.values())
            if total:
                progress.update(shown, total=total, completed=done, detail=f"{done}/{total} tasks")


def _stages(spark: SparkSession) -> dict[int, tuple[int, int]]:
    """Tasks, and finished tasks, of each stage of the jobs that run now."""
    tracker = spark.sparkContext.statusTracker()
    found: dict[int, tuple[int, int]] = {}
    for job in tracker.getActiveJobsIds():
        info = tracker.getJobInfo(job)
        for number in info.stageIds if info is not None else ():
            stage = tracker.getStageInfo(number)
            if stage is not None:
                found[number] = (stage.numTasks, stage.numCompletedTasks)
    return found
