"""How what an engine found differs from the reference."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pyarrow as pa

from tests.reference.drawing import Case
from tests.reference.engines import EngineAnswer
from tests.reference.measures import Expected
from tests.reference.spark_sql import Answer, Key

__all__ = ["differences"]

SHOWN = 3
"""Differences of one subscription that are printed."""


def differences(case: Case, answer: Answer, said: EngineAnswer) -> list[str]:
    """A line for each difference, beginning with the engine and the subscription; some of each subscription."""
    found = _notified(answer, said)
    if said.deliveries is not None:
        found += _delivered(case, answer, said)
    if said.overflows is not None:
        found += _reported(answer, said)
    if said.rejected is not None:
        found += [("", f"rejected otherwise: {one!r}") for one in _unequal(answer.rejected, Counter(said.rejected))]
    shown: Counter[str] = Counter()
    lines = []
    for name, text in found:
        shown[name] += 1
        if shown[name] <= SHOWN:
            lines.append(f"{said.engine} {name}: {_short(text)}")
    return lines + [f"{said.engine} {name}: {n} differences in all" for name, n in shown.items() if n > SHOWN]


def _short(text: str) -> str:
    return text if len(text) < 600 else f"{text[:450]} … {text[-100:]}"


def keys_of(rows: pa.Table) -> list[Key]:
    starts, ends = (rows.column(n).cast(pa.int64()).to_pylist() for n in ("window_start", "window_end"))
    groups = [tuple(sorted(dict(group).items())) for group in rows.column("group").to_pylist()]
    names, outputs = (rows.column(n).to_pylist() for n in ("subscription", "output"))
    return list(zip(names, starts, ends, groups, outputs, strict=True))


def _notified(answer: Answer, said: EngineAnswer) -> list[tuple[str, str]]:
    rows = said.notifications
    got: dict[Key, tuple[Any, ...]] = {}
    found = []
    values = zip(*(rows.column(name).to_pylist() for name in ("value", "exact", "publications")), strict=True)
    for key, row in zip(keys_of(rows), values, strict=True):
        if key in got:
            found.append((key[0], f"answered twice: {key[1:]} {row} after {got[key]}"))
        got[key] = row
    for key, line in answer.lines.items():
        if key[0] not in said.subscriptions:
            continue
        if key not in got:
            if line.certain:
                found.append((key[0], f"missing: {key[1:]} = {line.expected}"))
            continue
        value, exact, publications = got[key]
        if publications != line.publications:
            found.append((key[0], f"{key[1:]} is of {publications} publications, expected {line.publications}"))
        if not _fits(value, exact, line.expected):
            found.append((key[0], f"{key[1:]} = {value!r} ({exact}), expected {line.expected}"))
    found += [(key[0], f"unexpected: {key[1:]} = {row}") for key, row in got.items() if key not in answer.lines]
    return found


def _fits(value: float | None, exact: str, expected: Expected) -> bool:
    try:
        precise = json.loads(exact, parse_constant=_no_json)
    except ValueError:
        return False
    if expected.value is None:
        return value is None and precise is None
    if expected.low is not None:
        return isinstance(precise, int | float) and value is not None and _between(value, precise, expected)
    if expected.text is not None:
        return value is None and bool(precise == expected.text)
    if isinstance(expected.value, bool) or not isinstance(expected.value, int | float):
        return value is None and type(precise) is type(expected.value) and bool(precise == expected.value)
    return not isinstance(precise, bool) and precise == expected.value and value == float(expected.value)


def _between(value: float, precise: float, expected: Expected) -> bool:
    # Both columns are held to the bounds, as a reader may use either.
    return bool(expected.low <= value <= expected.high and expected.low <= precise <= expected.high)


def _no_json(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def _delivered(case: Case, answer: Answer, said: EngineAnswer) -> list[tuple[str, str]]:
    assert said.deliveries is not None
    columns = ["subscription", *(n for n in ("topic", "broker") if n in said.deliveries.schema.names), "event_id"]
    positions = [["subscription", "topic", "broker", "event_id"].index(name) for name in columns]
    wanted: Counter[Any] = Counter()
    for key, count in answer.deliveries.items():
        if key[0] in said.subscriptions:
            wanted[tuple(key[position] for position in positions)] += count
    got = Counter(zip(*(said.deliveries.column(name).to_pylist() for name in columns), strict=True))
    found = [(one[0], f"delivered otherwise: {one[1:]}") for one in _unequal(wanted, got)]
    for name, rows in said.delivered.items():
        found += [(name, text) for text in _events(case, answer, name, rows)]
    return found


def _events(case: Case, answer: Answer, name: str, rows: pa.Table) -> list[str]:
    """`delivered` yields each event once, with the columns asked for and its id."""
    drawn = next(one for one in case.subscriptions if one.name == name)
    asked = [column.name for column in drawn.columns]
    if len(set(rows.schema.names)) < len(rows.schema.names):
        return [f"delivered() has a column twice: {rows.schema.names}"]
    missing = {"event_id", *asked} - set(rows.schema.names)
    if missing:
        return [f"delivered() lacks {sorted(missing)}"]
    wanted = Counter(key[3] for key in answer.deliveries.elements() if key[0] == name)
    return [f"delivered() otherwise: {one!r}" for one in _unequal(wanted, Counter(rows.column("event_id").to_pylist()))]


def _reported(answer: Answer, said: EngineAnswer) -> list[tuple[str, str]]:
    assert said.overflows is not None
    got = Counter(keys_of(said.overflows))
    found = [(key[0], f"reported twice: {key[1:]}") for key, count in got.items() if count > 1]
    for key, certain in answer.beyond.items():
        if certain and key not in got and key[0] in said.subscriptions:
            found.append((key[0], f"not reported: {key[1:]}"))
    silenced = {(*key[:4], "") for key in got if key[4] in answer.undecidable.get((*key[:4], ""), ())}
    for key, measures in answer.undecidable.items():
        if key not in silenced and key[0] in said.subscriptions:
            found.append((key[0], f"HAVING is undecidable, not reported: {key[1:]} {measures}"))
    unasked = [key for key in got if key not in answer.beyond and (*key[:4], "") not in silenced]
    return found + [(key[0], f"reported without reason: {key[1:]}") for key in unasked]


def _unequal(wanted: Counter[Any], got: Counter[Any]) -> list[Any]:
    """What is missing and what is too much, with its signed count."""
    missing = [(*_tuple(one), f"{-count:+d}") for one, count in (wanted - got).items()]
    return missing + [(*_tuple(one), f"{count:+d}") for one, count in (got - wanted).items()]


def _tuple(one: Any) -> tuple[Any, ...]:
    return one if isinstance(one, tuple) else (one,)
