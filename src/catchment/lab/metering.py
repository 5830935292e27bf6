"""Wall time, CPU time and memory of this process and of everything that it started, read from /proc.

A Spark job is a JVM, the Python workers that the JVM forks, and this process; only their sum says what a job costs.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

from catchment.model.errors import ConfigurationError

__all__ = ["Meter"]

PROC = Path("/proc")
SAMPLE_S = 0.2


class Meter:
    """Measures what runs inside a `with`; the figures are there when it ends."""

    def __init__(self) -> None:
        if not (PROC / "self" / "stat").exists():
            raise ConfigurationError(f"there is no {PROC}; accepted is a system that has one, as Linux")
        self.wall_s = 0.0
        self.cpu_s = 0.0
        self.peak_bytes = 0
        self._over = threading.Event()
        self._sampler = threading.Thread(target=self._sample, daemon=True)

    def __enter__(self) -> Meter:
        self._sampler.start()
        self._cpu_before, self._wall_before = _cpu_s(), time.perf_counter()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.wall_s = time.perf_counter() - self._wall_before
        self.cpu_s = _cpu_s() - self._cpu_before
        self._over.set()
        self._sampler.join()

    def _sample(self) -> None:
        over = False
        while not over:
            over = self._over.wait(SAMPLE_S)
            self.peak_bytes = max(self.peak_bytes, _memory_bytes())


def _cpu_s() -> float:
    """User and system time, with that of children that have ended and been waited for."""
    ticks = sum(sum(map(int, fields[11:15])) for _, fields in _family())
    return ticks / os.sysconf("SC_CLK_TCK")


def _memory_bytes() -> int:
    return sum(_proportional_bytes(process) for process, _ in _family())


def _proportional_bytes(process: int) -> int:
    """A page that n processes share counts as 1/n of a page in each: forked workers share much."""
    try:
        lines = (PROC / str(process) / "smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))


def _family() -> Iterator[tuple[int, list[str]]]:
    """This process and its descendants, each with the fields of its `stat` from the state on."""
    children: dict[int, list[int]] = {}
    fields: dict[int, list[str]] = {}
    for entry in PROC.iterdir():
        if entry.name.isdigit():
            try:
                # The name of the program comes in parentheses and may hold anything.
                fields[int(entry.name)] = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
    for process, of in fields.items():
        children.setdefault(int(of[1]), []).append(process)
    pending = [os.getpid()]
    while pending:
        process = pending.pop()
        if process in fields:
            yield process, fields[process]
        pending += children.get(process, [])
