"""Where subscriptions are written: in a file of SQL, JSON lines or CSV, or drawn at random from a workload."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from catchment.model.errors import CatchmentError, ConfigurationError
from catchment.model.subscription import Subscription
from catchment.workloads import stock_subscriptions, traffic_subscriptions

__all__ = ["DrawnSubscriptions", "read_subscriptions", "subscription_of"]

_KEYS = ("name", "at", "sql", "plane")
_NOTE = re.compile(r"^\s*--\s*(name|at|plane)\s*:\s*(\S.*?)\s*$")


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnSubscriptions:
    """Subscriptions that a workload's generator draws."""

    workload: str
    count: int
    seed: int = 1
    window: tuple[str, str] = ("20 seconds", "2 seconds")
    regular_share: float = 0.0
    selectivity: float | None = None
    brokers: tuple[str, ...] = ("b0",)

    def draw(self, sample: pa.Table | None = None) -> list[Subscription]:
        """`sample` is what their selectivity is measured on; by default, generated events."""
        draw = {"traffic": traffic_subscriptions, "stock": stock_subscriptions}.get(self.workload)
        if draw is None:
            raise ConfigurationError(f"workload is {self.workload!r}; accepted are traffic, stock")
        chosen: dict[str, Any] = {} if self.selectivity is None else {"selectivity": self.selectivity}
        drawn = draw(
            self.count,
            seed=self.seed,
            window=self.window,
            brokers=self.brokers,
            regular_share=self.regular_share,
            sample=sample,
            **chosen,
        )
        return [Subscription(one.name, one.at, sql=one.sql) for one in drawn]


def read_subscriptions(file: Path) -> list[Subscription]:
    """The subscriptions of a file, whose kind its ending tells: .sql, .jsonl, .json or .csv."""
    readers = {".sql": _sql, ".jsonl": _json_lines, ".json": _json_lines, ".ndjson": _json_lines, ".csv": _csv}
    reader = readers.get(file.suffix.lower())
    if reader is None:
        raise ConfigurationError(f"{file} is no file of subscriptions; accepted are {', '.join(sorted(readers))}")
    try:
        text = file.read_text("utf-8-sig")
    except OSError as error:
        raise ConfigurationError(f"cannot read the subscriptions of {file}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigurationError(f"{file} is not UTF-8; accepted are subscriptions in UTF-8") from None
    return distinct(reader(str(file), text), str(file))


def subscription_of(given: Mapping[str, Any], where: str) -> Subscription:
    """A subscription from its name, broker, SQL and plane; `where` it was written is part of every error."""
    unknown = [key for key in given if key not in _KEYS]
    if unknown:
        raise ConfigurationError(f"{where}: {', '.join(map(str, unknown))} is unknown; accepted are {', '.join(_KEYS)}")
    missing = [key for key in ("name", "sql") if not given.get(key)]
    if missing:
        raise ConfigurationError(f"{where}: {' and '.join(missing)} is missing; accepted are name, at, sql")
    try:
        plane: Any = given.get("plane") or "brokers"
        return Subscription(given["name"], given.get("at") or None, sql=given["sql"], plane=plane)
    except CatchmentError as error:
        raise type(error)(f"{where}: {error}") from None


def distinct(subscriptions: Iterable[Subscription], where: str) -> list[Subscription]:
    """All of them, if no two have one name."""
    found: dict[str, Subscription] = {}
    for one in subscriptions:
        if one.name in found:
            raise ConfigurationError(f"{where}: two subscriptions are named {one.name!r}; each name is accepted once")
        found[one.name] = one
    return list(found.values())


def _json_lines(file: str, text: str) -> Iterator[Subscription]:
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            given = json.loads(line)
        except json.JSONDecodeError as error:
            raise ConfigurationError(
                f'{file}:{number}: broken JSON: {error.msg}; accepted is one {{"name": …, "at": …, "sql": …}} a line'
            ) from None
        if not isinstance(given, dict):
            raise ConfigurationError(f"{file}:{number}: {line[:60]} is no object; accepted are name, at, sql")
        yield subscription_of(given, f"{file}:{number}")


def _csv(file: str, text: str) -> Iterator[Subscription]:
    rows = csv.DictReader(io.StringIO(text))
    if not {"name", "sql"} <= set(rows.fieldnames or ()):
        raise ConfigurationError(
            f"{file} has the columns {', '.join(rows.fieldnames or ())}; accepted are name, at, sql"
        )
    for row in rows:
        if None in row or None in row.values():
            raise ConfigurationError(f"{file}:{rows.line_num}: not as many fields as the header has")
        yield subscription_of(row, f"{file}:{rows.line_num}")


def _sql(file: str, text: str) -> Iterator[Subscription]:
    """Statements that end with a semicolon, each after the note `-- name: …`; in an overlay also `at` and `plane`."""
    notes: dict[str, str] = {}
    statement: list[str] = []
    begun = 0
    for number, line in enumerate(text.splitlines(), start=1):
        note = _NOTE.match(line)
        if note is not None:
            if statement:
                raise ConfigurationError(f"{file}:{begun}: the statement does not end; accepted is a ; at its end")
            notes[note[1]] = note[2]
        elif line.strip() and not line.lstrip().startswith("--"):
            begun = begun if statement else number
            statement.append(line)
            if line.rstrip().endswith(";"):
                if "name" not in notes:
                    raise ConfigurationError(f"{file}:{begun}: no name; accepted is a line `-- name: …` before the SQL")
                yield subscription_of({**notes, "sql": "\n".join(statement).rstrip().rstrip(";")}, f"{file}:{begun}")
                notes, statement = {}, []
    if statement:
        raise ConfigurationError(f"{file}:{begun}: the statement does not end; accepted is a ; at its end")
    if notes:
        raise ConfigurationError(f"{file}: {', '.join(notes.values())} has no statement after it")
