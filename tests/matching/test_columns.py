"""Events come in many Arrow types, chunks and slices, and mean the same; what cannot be an event is refused by name."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from catchment.matching import Matcher
from catchment.model.errors import EventError, FilterError
from catchment.model.filter import EVERY_EVENT, Filter
from catchment.model.schema import Schema
from tests.matching.cases import cases, expected, matched, table_of

WHOLE: list[Any] = [3, None, 0, 100, 7]
TEXTS: list[Any] = ["ab", None, "", "b", "ab"]
EQUIVALENT = {
    "int": (WHOLE, "x > 3 OR x = 0",
            [pa.int8(), pa.int16(), pa.int32(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64(),
             pa.dictionary(pa.int32(), pa.int64())]),
    "float": (WHOLE, "x > 3 OR x = 0",
              [pa.float16(), pa.float32(), pa.int8(), pa.int64(), pa.uint64(), pa.decimal128(10, 2)]),
    "string": (TEXTS, "x LIKE 'a%' OR x = '' OR x LIKE '%b%' OR x IS NULL",
               [pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string()),
                pa.dictionary(pa.uint32(), pa.large_string()), pa.dictionary(pa.int64(), pa.string_view())]),
    "bool": ([True, None, False, True], "x", [pa.dictionary(pa.int8(), pa.bool_())]),
    "timestamp": ([0, None, 86_400_000_000, -86_400_000_000], "x > TIMESTAMP '1970-01-01'",
                  [pa.timestamp("s"), pa.timestamp("ms", "Europe/Berlin"), pa.timestamp("ns"), pa.timestamp("us"),
                   pa.date32(), pa.date64()]),
}  # fmt: skip


@pytest.mark.parametrize(("kind", "other"), [(kind, other) for kind, case in EQUIVALENT.items() for other in case[2]])
def test_equivalent_types_mean_the_same(kind: str, other: pa.DataType) -> None:
    given_values, text, _ = EQUIVALENT[kind]
    matcher = Matcher({"q": Filter.parse(text)}, {"x": kind})
    plain = pa.table({"x": pa.array(given_values, Schema.of({"x": kind})["x"].arrow)})
    values: list[Any] = given_values
    if kind == "timestamp":
        cast = (
            plain.column("x").cast(pa.timestamp("us")).cast(other)
            if pa.types.is_date(other)
            else plain.column("x").cast(other)
        )
    elif pa.types.is_decimal(other):
        cast = pa.array([None if v is None else Decimal(v) for v in values], other)
    elif pa.types.is_dictionary(other):
        cast = pa.array(values, other.value_type).dictionary_encode().cast(other)
    elif pa.types.is_float16(other):
        cast = pa.array([None if v is None else np.float16(v) for v in values], other)
    else:
        cast = pa.array(values, other)
    want = matched(matcher, plain)
    assert want
    table = pa.table({"x": cast})
    assert matched(matcher, table) == want
    assert matched(matcher, table.slice(1)) == {(i - 1, name) for i, name in want if i >= 1}


@given(cases(), st.lists(st.integers(0, 12), max_size=4), st.booleans())
def test_chunks_slices_and_dictionaries_do_not_matter(case: Any, cuts: list[int], encode: bool) -> None:
    schema, conditions, rows = case
    table = table_of(rows, schema)
    if encode:
        table = pa.table({
            name: column.dictionary_encode() if pa.types.is_string(column.type) else column
            for name, column in zip(table.column_names, table.columns, strict=True)
        })  # fmt: skip
    edges = sorted({0, len(rows), *(cut for cut in cuts if cut < len(rows))})
    pieces = [table.slice(a, b - a) for a, b in pairwise(edges)]
    matcher = Matcher(conditions, schema)
    want = expected(conditions, rows)
    assert matched(matcher, pa.concat_tables(pieces) if pieces else table) == want
    for begin, piece in zip(edges, pieces, strict=False):
        assert matched(matcher, piece) == {(i - begin, name) for i, name in want if begin <= i < begin + len(piece)}


@given(cases(), st.data())
def test_a_missing_column_is_null(case: Any, data: st.DataObject) -> None:
    schema, conditions, rows = case
    gone = data.draw(st.sets(st.sampled_from(sorted(schema))))
    table = table_of(rows, schema).drop_columns(sorted(gone))
    left = [{name: value for name, value in row.items() if name not in gone} for row in rows]
    assert matched(Matcher(conditions, schema), table) == expected(conditions, left)


def test_null_columns_and_columns_nobody_asked_for() -> None:
    matcher = Matcher({"null": Filter.parse("x IS NULL"), "some": Filter.parse("x IS NOT NULL")}, {"x": "string"})
    table = pa.table({"x": pa.nulls(2), "list": pa.array([[1], [2]])})
    assert matched(matcher, table) == {(0, "null"), (1, "null")}


WRONG = [
    ("int", pa.array([1.5]), "double"),
    ("int", pa.array(["1"]), "string"),
    ("int", pa.array([True]), "bool"),
    ("float", pa.array(["1"]), "string"),
    ("string", pa.array([1]), "int64"),
    ("string", pa.array([b"a"]), "binary"),
    ("bool", pa.array([1]), "int64"),
    ("timestamp", pa.array([1]), "int64"),
]


@pytest.mark.parametrize(("kind", "column", "named"), WRONG)
def test_a_wrong_type_is_named(kind: str, column: pa.Array, named: str) -> None:
    matcher = Matcher({"q": EVERY_EVENT}, {"some column": kind})
    with pytest.raises(EventError, match=f"'some column' is of type {named}.*accepted is"):
        matcher.match(pa.table({"some column": column}))


def test_a_column_given_twice_is_refused() -> None:
    table = pa.Table.from_arrays([pa.array([1]), pa.array([2])], ["x", "x"])
    with pytest.raises(EventError, match="'x' is there 2 times"):
        Matcher({"q": EVERY_EVENT}, {"x": "int"}).match(table)


REFUSED = [
    ("float", pa.array([0.0, math.nan]), "no finite number"),
    ("float", pa.array([0.0, -math.inf]), "no finite number"),
    ("float", pa.array([0, 2**53 + 1]), "no double"),
    ("float", pa.array([0, 2**64 - 1], pa.uint64()), "no double"),
    ("float", pa.array([0, 2**63 - 1]), "no double"),
    ("int", pa.array([0, 2**63], pa.uint64()), "does not fit"),
    ("timestamp", pa.array([0, 2**60], pa.timestamp("s")), "does not fit"),
]


@pytest.mark.parametrize(("kind", "column", "reason"), REFUSED)
def test_a_value_that_is_no_value_is_refused_where_a_filter_asks(kind: str, column: pa.Array, reason: str) -> None:
    table = pa.table({"x": column})
    matcher = Matcher({"q": Filter.parse("x IS NOT NULL")}, {"x": kind})
    with pytest.raises(EventError, match=f"'x' of event 1 .*{reason}"):
        matcher.match(table)
    assert matched(matcher, table.slice(0, 1)) == {(0, "q")}
    assert matched(Matcher({"q": EVERY_EVENT}, {"x": kind}), table) == {(0, "q"), (1, "q")}


def test_what_hides_under_a_null_is_no_problem() -> None:
    hidden = pa.Array.from_buffers(
        pa.float64(), 2, [pa.py_buffer(b"\x01"), pa.py_buffer(np.array([1.0, math.nan]).tobytes())]
    )
    matcher = Matcher({"q": Filter.parse("x IS NULL")}, {"x": "float"})
    assert matched(matcher, pa.table({"x": hidden})) == {(1, "q")}


def test_many_distinct_and_long_strings_outgrow_what_is_remembered() -> None:
    conditions = {
        "piece": Filter.parse("s LIKE '%77%'"),
        "end": Filter.parse("s LIKE '%99'"),
        "order": Filter.parse("s < 'v5'"),
        "long": Filter.parse("t LIKE '%zz%'"),
    }
    schema = Schema.of({"s": "string", "t": "string"})
    rows = [{"s": f"v{i}", "t": "y" * (i % 300) + ("zz" if i % 1000 == 0 else "")} for i in range(30_000)]
    want = {(i, n) for i, r in enumerate(rows) for n, hit in (
        ("piece", "77" in r["s"]), ("end", r["s"].endswith("99")), ("order", r["s"] < "v5"), ("long", "zz" in r["t"])
    ) if hit}  # fmt: skip
    matcher = Matcher(conditions, schema)
    assert matched(matcher, table_of(rows, schema)) == want


def test_events_as_mappings() -> None:
    matcher = Matcher(
        {"late": Filter.parse("at >= TIMESTAMP '2024-01-01'"), "whole": Filter.parse("n = 2"), "on": Filter.parse("b")},
        {"at": "timestamp", "n": "int", "b": "bool", "x": "float", "s": "string"},
    )
    assert matcher.match_one({"at": datetime(2024, 5, 1, tzinfo=UTC), "n": 2.0}) == ["late", "whole"]
    assert matcher.match_one({"at": date(2023, 5, 1), "b": True}) == ["on"]
    assert matcher.match_one({}) == []
    for event in (
        {"n": 2.5},
        {"n": True},
        {"b": 1},
        {"s": 1},
        {"x": "1"},
        {"n": 2**63},
        {"n": -(2**63) - 1},
        {"at": "x"},
    ):
        with pytest.raises(EventError, match=f"{next(iter(event))!r}.*accepted"):
            matcher.match_one(event)
    numbers = Matcher({"q": Filter.parse("x > 0")}, {"x": "float"})
    with pytest.raises(EventError, match="'x' of event 0 is no finite number"):
        numbers.match_one({"x": math.nan})


def test_ids_that_are_there_or_not_are_named() -> None:
    matcher = Matcher({"q": EVERY_EVENT}, {"x": "int"})
    assert "q" in matcher
    assert "r" not in matcher
    assert matcher.id_of(matcher.slot_of("q")) == "q"
    with pytest.raises(FilterError, match="already a filter with the id 'q'"):
        matcher.add("q", EVERY_EVENT)
    with pytest.raises(FilterError, match="no filter has the id 'r'"):
        matcher.remove("r")
    with pytest.raises(FilterError, match="no filter has the id 'r'"):
        matcher.slot_of("r")
    with pytest.raises(FilterError, match="unknown attribute 'y'"):
        matcher.add("r", Filter.parse("y = 1"))
    assert list(matcher) == ["q"]
