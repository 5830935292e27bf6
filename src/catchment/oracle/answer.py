"""What the oracle says, and how another engine's answer differs from it."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from catchment.model.results import NOTIFICATION_SCHEMA, OVERFLOW_SCHEMA

__all__ = ["Answer", "Line", "differences"]

Key = tuple[str, int, int, tuple[tuple[str, str | None], ...], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One value of one window, and the bounds of what would be right; without bounds only the exact value is."""

    key: Key
    value: float | None
    exact: str
    publications: int
    low: float | None
    high: float | None
    problem: str | None = None
    """What is reported instead of the value, if it is beyond its type."""
    is_borderline: bool = False
    """Whether telling and reporting are both right."""

    def accepts(self, value: float | None, exact: str) -> bool:
        if self.low is None or self.high is None:
            return value == self.value and json.loads(exact) == json.loads(self.exact)
        precise = json.loads(exact)
        # Both columns are held to the bounds, as a reader may use either.
        return (
            value is not None
            and isinstance(precise, (int, float))
            and not isinstance(precise, bool)
            and self.low <= value <= self.high
            and self.low <= precise <= self.high
        )


@dataclass(frozen=True, slots=True)
class Answer:
    """Notifications, deliveries and overflows of the oracle."""

    lines: list[Line]
    """Values that subscribers receive."""
    overflown: list[Line]
    """What is reported, as its value is beyond its type."""
    delivered: list[tuple[str, Any]]
    event_id_type: pa.DataType

    @property
    def notifications(self) -> pa.Table:
        return pa.Table.from_pylist(
            [
                {
                    **_place(line),
                    "value": line.value,
                    "exact": line.exact,
                    "publications": line.publications,
                    "revision": 0,
                }
                for line in sorted(self.lines, key=lambda line: repr(line.key))
            ],
            NOTIFICATION_SCHEMA,
        )

    @property
    def overflows(self) -> pa.Table:
        found = sorted(self.overflown, key=lambda line: repr(line.key))
        return pa.Table.from_pylist([{**_place(line), "problem": line.problem} for line in found], OVERFLOW_SCHEMA)

    @property
    def deliveries(self) -> pa.Table:
        schema = pa.schema([("subscription", pa.string()), ("event_id", self.event_id_type)])
        return pa.Table.from_pylist([{"subscription": s, "event_id": e} for s, e in self.delivered], schema)


def _place(line: Line) -> dict[str, Any]:
    name, start, end, group, output = line.key
    return {"subscription": name, "window_start": start, "window_end": end, "group": list(group), "output": output}


def differences(
    answer: Answer, notifications: pa.Table, deliveries: pa.Table, overflows: pa.Table | None = None
) -> list[str]:
    """How an engine's results differ from the oracle's: its last value of every window, its deliveries, its reports."""
    expected = {line.key: line for line in answer.lines}
    reported = {line.key: line for line in answer.overflown}
    either = {line.key for line in (*answer.lines, *answer.overflown) if line.is_borderline}
    got: dict[Key, tuple[int, float | None, str, int]] = {}
    found: list[str] = []
    columns = ["revision", "value", "exact", "publications"]
    values = zip(*(notifications.column(name).to_pylist() for name in columns), strict=True)
    for key, row in zip(_keys(notifications), values, strict=True):
        if key in got and row[0] == got[key][0]:
            found.append(f"notified twice: {key}")
        if key not in got or row[0] > got[key][0]:
            got[key] = row
    found += [f"missing: {line}" for key, line in expected.items() if key not in got and key not in either]
    found += [f"unexpected: {key} = {got[key]}" for key in got if key not in expected and key not in either]
    for key, (_, value, exact, publications) in got.items():
        line = expected.get(key)
        if line is not None and (not line.accepts(value, exact) or publications != line.publications):
            found.append(f"expected {line}, got {value} ({exact}) over {publications} publications")
    if overflows is not None:
        given_problems = dict(zip(_keys(overflows), overflows.column("problem").to_pylist(), strict=True))
        found += _different_overflows(reported, given_problems, either)
    wanted = Counter(answer.delivered)
    given = Counter(zip(*(deliveries.column(n).to_pylist() for n in ("subscription", "event_id")), strict=True))
    found += [f"not delivered: {pair} x{count}" for pair, count in (wanted - given).items()]
    found += [f"delivered too often: {pair} x{count}" for pair, count in (given - wanted).items()]
    return found


def _different_overflows(expected: dict[Key, Line], got: dict[Key, str], either: set[Key]) -> list[str]:
    found = [f"not reported: {line}" for key, line in expected.items() if key not in got and key not in either]
    found += [f"reported: {key}: {got[key]}" for key in got if key not in expected and key not in either]
    for key, line in expected.items():
        if got.get(key, line.problem) != line.problem:
            found.append(f"expected the report {line}, got {got[key]}")
    return found


def _keys(notifications: pa.Table) -> list[Key]:
    starts, ends = (notifications.column(n).cast(pa.int64()).to_pylist() for n in ("window_start", "window_end"))
    groups = [tuple(sorted(dict(group).items())) for group in notifications.column("group").to_pylist()]
    names, outputs = (notifications.column(n).to_pylist() for n in ("subscription", "output"))
    return list(zip(names, starts, ends, groups, outputs, strict=True))
