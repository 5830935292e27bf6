"""Small tables of events, written as one line each."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from catchment.model.schema import Schema
from catchment.oracle import Answer

SECOND_US = 1_000_000


def events(
    *rows: tuple[float, dict[str, Any]], topic: str = "traffic", types: dict[str, str] | None = None
) -> pa.Table:
    """Events in order of arrival: (seconds, attributes), among them perhaps `topic`, `broker` and `event_id`."""
    schema = Schema.of(types if types is not None else {"speed": "int", "highway": "string"})
    listed = []
    for number, (seconds, attributes) in enumerate(rows):
        defaults = {"event_id": number, "topic": topic, "broker": "b1"}
        listed.append({**defaults, **attributes, "ts": None if seconds is None else round(seconds * SECOND_US)})
    fields = [("event_id", pa.int64()), ("topic", pa.string()), ("broker", pa.string())]
    fields += [("ts", pa.timestamp("us", tz="UTC"))]
    return pa.Table.from_pylist(listed, pa.schema(fields + [(name, schema[name].arrow) for name in schema]))


def said(answer: Answer) -> list[str]:
    """What an answer says, a line a value: `name [start, end) key=value output = exact of publications`, in seconds."""
    lines = []
    for line in answer.lines:
        name, start, end, group, output = line.key
        keys = "".join(f" {key}={value}" for key, value in group)
        lines.append(
            f"{name} [{start / SECOND_US:g}, {end / SECOND_US:g}){keys} {output} = {line.exact} of {line.publications}"
        )
    return sorted(lines)
