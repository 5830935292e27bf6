"""The matcher says what each filter says of each event, through any sequence of additions and removals."""

import pickle
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from catchment import Filter, Matcher
from catchment.model.schema import Schema, Type
from tests.model import strategies


def table_of(events: list[dict[str, Any]], schema: Schema) -> pa.Table:
    columns = {name: pa.array([event.get(name) for event in events], schema[name].arrow) for name in schema}
    return pa.table(columns)


def expected(events: list[dict[str, Any]], filters: dict[str, Filter]) -> set[tuple[int, str]]:
    return {(row, name) for row, event in enumerate(events) for name, f in filters.items() if f.matches(event)}


def pairs(matcher: Matcher, table: pa.Table) -> list[tuple[int, str]]:
    rows, names = matcher.match(table)
    assert np.all(np.diff(rows) >= 0), "in the order of events"
    return list(zip(rows.tolist(), names.tolist(), strict=True))


@st.composite
def cases(draw: st.DrawFn) -> tuple[Any, ...]:
    schema = draw(strategies.schemas())
    conditions = strategies.conditions(schema, leaves_max=4)
    return (
        schema,
        draw(st.lists(conditions, max_size=8)),
        draw(st.lists(conditions, max_size=5)),
        draw(st.lists(strategies.events(schema), max_size=12)),
        draw(st.randoms(use_true_random=False)),
    )


@given(cases())
@settings(max_examples=200)
def test_matching_equals_every_filter_on_every_event(case: tuple[Any, ...]) -> None:
    schema, conditions, later, events, chance = case
    filters = {f"f{n}": Filter.parse(text, schema) for n, text in enumerate(conditions)}
    matcher = Matcher(filters, schema)
    table = table_of(events, schema)
    got = pairs(matcher, table)
    assert len(got) == len(set(got))
    assert set(got) == expected(events, filters)
    for number, text in enumerate(later):
        filters[f"later{number}"] = Filter.parse(text, schema)
        matcher.add(f"later{number}", filters[f"later{number}"])
        if filters and chance.random() < 0.5:
            gone = chance.choice(sorted(filters))
            matcher.remove(gone)
            del filters[gone]
        assert set(pairs(matcher, table)) == expected(events, filters)
    assert len(matcher) == len(filters)
    copy = pickle.loads(pickle.dumps(matcher))
    assert set(pairs(copy, table)) == expected(events, filters)
    assert set(pairs(matcher.rebuilt(), table)) == expected(events, filters)
    for row, event in enumerate(events):
        assert set(matcher.match_one(event)) == {name for at, name in expected(events, filters) if at == row}


def test_strings_first_seen_after_the_build_match_patterns() -> None:
    schema = Schema({"s": Type.STRING})
    texts = {"prefix": "s LIKE 'ab%'", "suffix": "s LIKE '%yz'", "contains": "s LIKE '%mn%'", "not": "s NOT LIKE '%q%'"}
    matcher = Matcher({name: Filter.parse(text, schema) for name, text in texts.items()}, schema)
    seen = pa.table({"s": ["ab", "q"]})
    assert set(pairs(matcher, seen)) == {(0, "prefix"), (0, "not")}
    new = pa.table({"s": [f"ab-{n}-mn-{n}-yz" for n in range(5_000)] + ["q", None, ""]})
    got = pairs(matcher, new)
    assert len(got) == 4 * 5_000 + 1
    assert got[-1] == (5_002, "not")
