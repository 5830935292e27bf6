"""The matcher says what `Filter.matches` says: for all kinds of constraints, values, and ways to get there."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catchment.matching import Matcher
from catchment.matching.linear import LinearScan
from catchment.model.constraint import Constraint, Pattern
from catchment.model.filter import EVERY_EVENT, NO_EVENT, Filter
from catchment.model.schema import Schema, Type
from tests.matching.cases import Event, cases, expected, full_events, matched, table_of
from tests.model.strategies import filters, schemas

Case = tuple[Schema, dict[str, Filter], list[Event]]


@settings(max_examples=400)
@given(cases())
def test_a_batch_matches_as_each_event_does(case: Case) -> None:
    schema, conditions, rows = case
    matcher = Matcher(conditions, schema)
    assert matched(matcher, table_of(rows, schema)) == expected(conditions, rows)


def test_a_whole_number_between_two_doubles_is_no_double() -> None:
    schema, rows = Schema({"a": Type.FLOAT}), [{"a": float(2**63)}, {"a": 1.0}]
    conditions = {"is": Filter.parse("a IN (9223372036854775807)"), "above": Filter.parse("a > 9223372036854775807")}
    assert matched(Matcher(conditions, schema), table_of(rows, schema)) == expected(conditions, rows) == {(0, "above")}


@given(cases())
def test_a_linear_scan_finds_the_same(case: Case) -> None:
    schema, conditions, rows = case
    matcher, table = Matcher(conditions, schema), table_of(rows, schema)
    found, slots = LinearScan(matcher).match_slots(table)
    assert {(row, matcher.id_of(slot)) for row, slot in zip(found.tolist(), slots.tolist(), strict=True)} == matched(
        matcher, table
    )


@given(cases())
def test_one_event_matches_as_a_batch_of_it(case: Case) -> None:
    schema, conditions, rows = case
    matcher = Matcher(conditions, schema)
    for row in rows:
        assert set(matcher.match_one(row)) == {name for _, name in expected(conditions, [row])}


@settings(max_examples=60)
@given(cases())
def test_a_matcher_arrives_as_it_was_sent(case: Case) -> None:
    schema, conditions, rows = case
    sent = Matcher(conditions, schema)
    table = table_of(rows, schema)
    before = matched(sent, table)
    arrived = pickle.loads(pickle.dumps(sent))
    assert matched(arrived, table) == before
    arrived.add("late", EVERY_EVENT)
    assert matched(arrived, table) == before | {(i, "late") for i in range(len(rows))}
    assert matched(sent, table) == before


@st.composite
def histories(draw: st.DrawFn) -> tuple[Schema, list[tuple[str, str, Filter]], list[Event]]:
    """A schema, additions and removals in an order that is possible, and events."""
    schema = draw(schemas())
    steps: list[tuple[str, str, Filter]] = []
    present: list[str] = []
    for number in range(draw(st.integers(1, 25))):
        if present and draw(st.integers(0, 2)) == 0:
            leaving = draw(st.sampled_from(present))
            present.remove(leaving)
            steps.append(("remove", leaving, NO_EVENT))
        else:
            # Few ids and few filters: entries are shared, and slots are used again.
            condition = draw(filters(schema) | st.sampled_from([f for _, _, f in steps] or [EVERY_EVENT]))
            steps.append(("add", f"q{number}", condition))
            present.append(f"q{number}")
    return schema, steps, draw(st.lists(full_events(schema), max_size=8))


@settings(max_examples=200)
@given(histories(), st.integers(0, 10))
def test_changes_lead_where_building_does(
    history: tuple[Schema, list[tuple[str, str, Filter]], list[Event]], built_from: int
) -> None:
    schema, steps, rows = history
    now: dict[str, Filter] = {}
    matcher = Matcher(now, schema)
    table = table_of(rows, schema)
    for number, (step, name, condition) in enumerate(steps):
        if step == "add":
            matcher.add(name, condition)
            now[name] = condition
        else:
            matcher.remove(name)
            del now[name]
        if number == built_from:
            matcher = Matcher(now, schema)
        assert len(matcher) == len(now)
        assert matched(matcher, table) == expected(now, rows)
    assert matched(matcher.rebuilt(), table) == expected(now, rows)
    assert set(matcher) == set(now)


def test_growing_from_nothing_draws_cells_and_stays_right() -> None:
    schema = Schema({"a": Type.INT, "s": Type.STRING})
    rows = [{"a": i % 50, "s": f"text{i % 37}"} for i in range(60)]
    table = table_of(rows, schema)
    matcher, now = Matcher({}, schema), {}
    for i in range(1_500):
        low = (i * 7) % 50
        text = f"a BETWEEN {low} AND {low + i % 5} AND s {'!=' if i % 3 else '='} 'text{i % 41}'"
        now[i] = Filter.parse(text if i % 11 else f"s LIKE '%{i % 41}' OR a = {low}")
        matcher.add(i, now[i])
        if i % 7 == 6:
            matcher.remove(i - 3)
            del now[i - 3]
        if i in (5, 63, 64, 65, 300, 1_030, 1_499):
            assert matched(matcher, table) == expected(now, rows)
    assert matched(matcher.rebuilt(), table) == expected(now, rows)


def test_more_entries_than_a_tile_and_more_rows_than_a_stretch() -> None:
    schema = Schema({"a": Type.INT, "b": Type.FLOAT})
    conditions = {i: Filter.parse(f"a >= {i} AND a < {i + 20} AND b > {i % 10}.5") for i in range(1_300)}
    rows = [{"a": (i * 13) % 1_400, "b": float(i % 12)} for i in range(9_000)]
    found, names = Matcher(conditions, schema).match(table_of(rows, schema))
    a = np.array([row["a"] for row in rows])[:, None]
    b = np.array([row["b"] for row in rows])[:, None]
    i = np.arange(1_300)[None, :]
    want = (a >= i) & (a < i + 20) & (b > i % 10 + 0.5)
    got = np.zeros_like(want)
    got[found, names.astype(np.int64)] = True
    assert len(found) == want.sum()
    assert np.array_equal(got, want)


PATTERNS: Mapping[str, Filter] = {
    f"{'not ' if negated else ''}{kind} {text}": Filter.where(
        "s",
        Constraint.like(Pattern(kind, text, negated)),  # type: ignore[arg-type]
    )
    for kind in ("prefix", "suffix", "contains")
    for text in ("a", "ab", "é", "éa", "\U0001f600", "\ud7ff", "\U0010ffff", "x" * 20)
    for negated in (False, True)
}


@settings(max_examples=200)
@given(st.lists(st.text("abéx\U0001f600\ud7ff\ue000\U0010ffff", max_size=24) | st.none(), max_size=30))
def test_strings_first_seen_after_the_build_match_patterns(texts: list[str | None]) -> None:
    schema = Schema({"s": Type.STRING})
    rows: list[Event] = [{"s": text} for text in texts]
    assert matched(Matcher(PATTERNS, schema), table_of(rows, schema)) == expected(PATTERNS, rows)


EDGES: dict[str, tuple[Type, list[Any], list[str]]] = {
    "integers beyond what doubles tell apart": (
        Type.INT,
        [2**52 - 1, 2**52, 2**53 - 1, 2**53, 2**53 + 1, 2**63 - 1, -(2**63), 0, -1],
        ["x = 9007199254740993", "x > 4503599627370495.5", "x <= 9223372036854775807", "x < 1e300", "x > -1e300",
         "x >= 9223372036854775807", "x != 9007199254740992", "x < -9223372036854775806"],
    ),
    "doubles": (
        Type.FLOAT,
        [-0.0, 0.0, 5e-324, -5e-324, 1.7976931348623157e308, -1.7976931348623157e308, 2.0**53, 0.1],
        ["x = 0", "x < 0", "x >= -0.0", "x > 1.7e308", "x = 9007199254740993", "x < 9007199254740993", "x = 0.1",
         "x != 0.1", "x <= -1.7976931348623157e308"],
    ),
    "truth": (Type.BOOL, [True, False], ["x", "NOT x", "x = TRUE", "x != TRUE", "x IS NOT NULL", "x IS NULL"]),
}  # fmt: skip


@pytest.mark.parametrize("edge", EDGES)
def test_edges(edge: str) -> None:
    kind, values, texts = EDGES[edge]
    conditions = {text: Filter.parse(text) for text in texts}
    rows: list[Event] = [{"x": value} for value in [*values, None]]
    schema = Schema({"x": kind})
    want = expected({name: condition.within(schema) for name, condition in conditions.items()}, rows)
    assert matched(Matcher(conditions, schema), table_of(rows, schema)) == want


def test_equal_conditions_share_an_entry_and_part_again() -> None:
    schema = Schema({"a": Type.INT})
    one = Filter.parse("a = 1")
    matcher = Matcher({"x": one, "y": one, "z": Filter.parse("a = 1 OR a > 5")}, schema)
    table = table_of([{"a": 1}, {"a": 7}], schema)
    matcher.add("w", Filter.parse("a = 1"))
    assert matched(matcher, table) == {(0, "x"), (0, "y"), (0, "z"), (0, "w"), (1, "z")}
    matcher.remove("x")
    matcher.remove("y")
    assert matched(matcher, table) == {(0, "z"), (0, "w"), (1, "z")}
    matcher.remove("w")
    assert matched(matcher, table) == {(0, "z"), (1, "z")}


def test_a_filter_of_several_conjunctions_is_reported_once() -> None:
    schema = Schema({"a": Type.INT, "b": Type.INT})
    matcher = Matcher({"q": Filter.parse("a > 0 OR b > 0"), "r": Filter.parse("a > 1 OR b > 1 OR a < 0")}, schema)
    assert matched(matcher, table_of([{"a": 2, "b": 2}, {"a": 1, "b": None}], schema)) == {(0, "q"), (0, "r"), (1, "q")}


def test_everything_and_nothing() -> None:
    schema = Schema({"a": Type.INT})
    table = table_of([{"a": 1}, {"a": None}], schema)
    assert matched(Matcher({}, schema), table) == set()
    assert matched(Matcher({"all": EVERY_EVENT, "none": NO_EVENT}, schema), table) == {(0, "all"), (1, "all")}
    assert matched(Matcher({"all": EVERY_EVENT}, {}), table) == {(0, "all"), (1, "all")}
    assert matched(Matcher({"all": EVERY_EVENT}, schema), table.slice(0, 0)) == set()
