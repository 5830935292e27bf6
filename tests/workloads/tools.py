"""What the workload tests share: the folder of real data, and a second opinion on SQL."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

import pyarrow as pa
import pytest

REAL_DATA = Path(os.environ.get("CATCHMENT_DATA", Path(__file__).parents[2] / ".." / "shared" / "data"))

needs_real_data = pytest.mark.skipif(
    not REAL_DATA.is_dir(), reason=f"no real data in {REAL_DATA}; set CATCHMENT_DATA to a folder that has it"
)


def sqlite_of(events: pa.Table, name: str) -> sqlite3.Connection:
    """The events as a table of an in-memory SQLite, which reads the same SQL conditions and shares no code with us."""
    database = sqlite3.connect(":memory:")
    columns = [column for column in events.column_names if column != "ts"]
    database.execute(f"CREATE TABLE {name} ({', '.join(columns)})")
    rows = zip(*(events[column].to_pylist() for column in columns), strict=True)
    database.executemany(f"INSERT INTO {name} VALUES ({', '.join('?' * len(columns))})", rows)
    database.execute("PRAGMA case_sensitive_like = ON")
    return database
