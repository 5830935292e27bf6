"""Random filters and batches for the matcher, and what `Filter.matches` says about them."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from catchment.matching import Matcher
from catchment.model.filter import Filter
from catchment.model.schema import Schema, Type
from tests.model.strategies import events, filters, schemas, values

Event = Mapping[str, Any]
Pairs = set[tuple[int, Hashable]]


@st.composite
def cases(draw: st.DrawFn) -> tuple[Schema, dict[str, Filter], list[Event]]:
    """A schema, filters, and events; all values may be new to the filters."""
    schema = draw(schemas())
    known = draw(st.lists(filters(schema), max_size=12))
    return schema, {f"q{i}": condition for i, condition in enumerate(known)}, draw(batches(schema))


def batches(schema: Schema) -> st.SearchStrategy[list[Event]]:
    return st.lists(st.one_of(events(schema), full_events(schema)), max_size=12)


def full_events(schema: Schema) -> st.SearchStrategy[Event]:
    return st.fixed_dictionaries({name: values(schema[name]) for name in schema})


def table_of(rows: Sequence[Event], schema: Schema) -> pa.Table:
    return pa.Table.from_pylist(
        [dict(row) for row in rows], pa.schema([(name, kind.arrow) for name, kind in schema.attributes.items()])
    )


def expected(conditions: Mapping[Any, Filter], rows: Sequence[Event]) -> Pairs:
    return {(i, name) for i, row in enumerate(rows) for name, condition in conditions.items() if condition.matches(row)}


def matched(matcher: Matcher, table: pa.Table | pa.RecordBatch) -> Pairs:
    """What the matcher says, after checking what it promises about the form of its answer."""
    rows, names = matcher.match(table)
    same_rows, slots = matcher.match_slots(table)
    assert rows.tolist() == same_rows.tolist() == sorted(rows.tolist())
    assert [matcher.id_of(slot) for slot in slots.tolist()] == names.tolist()
    for batch in [table] if isinstance(table, pa.RecordBatch) else table.combine_chunks().to_batches():
        _check_by_slot(matcher, batch)
    pairs = list(zip(rows.tolist(), names.tolist(), strict=True))
    assert len(pairs) == len(set(pairs)), "a pair came twice"
    return set(pairs)


def _check_by_slot(matcher: Matcher, batch: pa.RecordBatch) -> None:
    """Matching by slot says the same as matching by event."""
    rows, slots = matcher.match_slots(batch)
    found = [matcher.rows_by_slot(batch), matcher.by_slot(rows, slots)]
    for slot in range(found[0].begin.shape[1]):
        expected_rows = rows[slots == slot].tolist()
        for one in found:
            stretches = zip(one.begin[:, slot].tolist(), one.end[:, slot].tolist(), strict=True)
            assert [row for begin, end in stretches for row in one.rows[begin:end].tolist()] == expected_rows


TEXT_SCHEMA = Schema({"s": Type.STRING, "n": Type.INT})
