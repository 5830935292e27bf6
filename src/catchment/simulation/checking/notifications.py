"""Who was told which values of which windows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from catchment.broker.client import WindowValue
from catchment.oracle import oracle
from catchment.oracle.answer import Line
from catchment.simulation.clients import Publication, Wish
from catchment.simulation.world import World

__all__ = ["check_notifications"]

Key = tuple[int, int, tuple[tuple[str, str | None], ...], str]


def check_notifications(world: World, *, revises: bool = False) -> Iterator[str]:
    """Every window that was told of has, in the end, the value of all events in it that were accepted; none is missing.

    Told of must be the windows that begin after all that was accepted before the subscription was acknowledged. With
    revisions, a subscription that has ended, or whose client was dropped, may have heard only some of them, and a value
    that HAVING let pass is not taken back if a later one is not worth telling, which leaves a gap in their numbers.
    """
    for client in world.clients.values():
        for wish in client.all_wishes:
            if not wish.is_regular:
                has_ended = wish.ended is not None or client.is_dropped
                yield from _check_wish(world, wish, revises=revises, has_ended=has_ended)


def _check_wish(world: World, wish: Wish, *, revises: bool, has_ended: bool) -> Iterator[str]:
    is_whole, lingers = not revises or not has_ended, revises and "HAVING" in wish.subscription.sql
    who = f"{wish.client} {wish.name}"
    last: dict[Key, WindowValue] = {}
    for _, value in wish.values:
        key = (value.start_us, value.end_us, tuple(sorted(value.group.items())), value.output)
        following = last[key].revision + 1 if key in last else 0
        if key in last and not revises:
            yield f"{who} was told {key} again"
        elif value.revision < following or (value.revision > following and not lingers):
            yield f"{who} was told {key} as revision {value.revision}"
        last[key] = value
    topic = wish.topic
    accepted = [one for one in world.publications if one.topic == topic]
    expected = _expected(world, wish, accepted)
    for key, value in last.items():
        line = expected.get(key)
        if line is None and lingers:
            continue
        if line is None:
            yield f"{who} was told of {key}, which has no events"
        elif is_whole and not _is_right(value, line):
            yield f"{who} was told {value}; right is {line}"
    acknowledged_us = wish.asked.answered_us
    if wish.asked.refused is not None or has_ended or acknowledged_us is None:
        return
    before = max((one.values["ts"] for one in accepted if one.accepted_us <= acknowledged_us), default=None)
    for key, line in expected.items():
        if key not in last and (before is None or before < key[0]):
            yield f"{who} was not told of {line}"


def _is_right(value: WindowValue, line: Line) -> bool:
    if value.publications != line.publications:
        return False
    if value.problem != line.problem:
        return line.is_borderline
    return line.problem is not None or line.accepts(value.value, value.exact)


def _expected(world: World, wish: Wish, accepted: list[Publication]) -> dict[Key, Line]:
    """What the oracle says of all windows."""
    if not accepted:
        return {}
    events = _table(accepted, wish.topic, world.schemas)
    answer = oracle(events, subscriptions=[wish.subscription], schema=world.schemas)
    return {(line.key[1], line.key[2], line.key[3], line.key[4]): line for line in (*answer.lines, *answer.overflown)}


def _table(accepted: list[Publication], topic: str, schemas: Mapping[str, Any]) -> pa.Table:
    columns: dict[str, pa.Array] = {
        "event_id": pa.array([one.event_id for one in accepted], pa.string()),
        "topic": pa.array([topic] * len(accepted), pa.string()),
        "broker": pa.array(["-"] * len(accepted), pa.string()),
        "ts": pa.array([one.values["ts"] for one in accepted], pa.timestamp("us", tz="UTC")),
    }
    for name in schemas[topic]:
        columns[name] = pa.array([one.values.get(name) for one in accepted], schemas[topic][name].arrow)
    return pa.table(columns)
