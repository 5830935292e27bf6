"""The topic `flights`: many sources report the same flights, each with gaps and mistakes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from catchment.model.schema import Schema, Type
from catchment.workloads import loading
from catchment.workloads.loading import Loaded, data_files, read_rows
from catchment.workloads.publications import assign_brokers, publications

__all__ = ["FLIGHTS_SCHEMA", "load_reports", "load_true_reports"]

FLIGHTS_SCHEMA = Schema(
    dict.fromkeys(
        ("src", "flight", "sched_dep_time", "act_dep_time", "sched_arr_time", "act_arr_time"),
        Type.STRING,
    )
)
"""Times stay the strings that the sources wrote: they disagree in format too, and that is what gathering meets."""

_START_US = 1_322_697_600_000_000  # 1 December 2011, 00:00 UTC: the day of the flights


def load_reports(
    folder: str | Path,
    *,
    brokers: Sequence[str] = ("b0",),
    start_us: int = _START_US,
    spacing_us: int = 1_000_000,
) -> Loaded:
    """Read flights-reported.csv: one event per report, null where a cell is empty; a source publishes at one broker.

    The file has no time of report: reports follow each other in the file's order, `spacing_us` apart.
    """
    return _load(folder, "flights-reported.csv", brokers, start_us, spacing_us)


def load_true_reports(
    folder: str | Path,
    *,
    brokers: Sequence[str] = ("b0",),
    start_us: int = _START_US,
    spacing_us: int = 1_000_000,
) -> Loaded:
    """Read flights-true.csv: what each report would have said, had its source been right; row by row as above."""
    return _load(folder, "flights-true.csv", brokers, start_us, spacing_us)


def _load(folder: str | Path, name: str, brokers: Sequence[str], start_us: int, spacing_us: int) -> Loaded:
    needed = {"src": loading.required, "flight": loading.required}
    rows = read_rows(data_files(folder, name), {field: needed.get(field, loading.text) for field in FLIGHTS_SCHEMA})
    sources = [str(source) for source in rows.columns["src"]]
    home = assign_brokers(sources, brokers)
    events = publications(
        "flights",
        FLIGHTS_SCHEMA,
        brokers=brokers,
        broker=np.array([home[source] for source in sources], dtype=np.int64),
        ts_us=start_us + np.arange(len(rows), dtype=np.int64) * spacing_us,
        attributes={field: pa.array(column, pa.string()) for field, column in rows.columns.items()},
    )
    return Loaded(events, rows.rejected)
