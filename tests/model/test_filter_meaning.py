"""Filters mean what SQL means: read, negate, write down and read again."""

from __future__ import annotations

import math
import sqlite3
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catchment.model.constraint import Constraint
from catchment.model.dialect import SubscriptionSql
from catchment.model.errors import EventError, FilterError
from catchment.model.filter import EVERY_EVENT, NO_EVENT, Filter
from catchment.model.rendering import filter_sql, literal_sql, name_sql
from catchment.model.schema import Schema, Type
from tests.model.logic import holds
from tests.model.strategies import conditions, events, literal, quoted_name, schemas, values


def times_of(schema: Schema) -> frozenset[str]:
    return frozenset(name for name in schema if schema[name] is Type.TIMESTAMP)


@given(st.data())
def test_a_filter_holds_where_its_condition_is_true(data: st.DataObject) -> None:
    schema = data.draw(schemas())
    text = data.draw(conditions(schema))
    found = Filter.parse(text)
    for event in data.draw(st.lists(events(schema), min_size=1, max_size=5)):
        assert found.matches(event) is (holds(text, event) is True)


@given(st.data())
def test_with_a_schema_it_means_the_same_and_texts_beside_times_are_times(data: st.DataObject) -> None:
    schema = data.draw(schemas())
    text = data.draw(conditions(schema, texts_for_times=True))
    found = Filter.parse(text, schema)
    for event in data.draw(st.lists(events(schema), min_size=1, max_size=5)):
        assert found.matches(event) is (holds(text, event, times_of(schema)) is True)


@given(st.data())
def test_not_is_true_where_the_condition_is_false(data: st.DataObject) -> None:
    schema = data.draw(schemas())
    text = data.draw(conditions(schema))
    event = data.draw(events(schema))
    assert Filter.parse(f"NOT ({text})").matches(event) is (holds(text, event) is False)


SQLITE_TYPES = {Type.BOOL: "INTEGER", Type.INT: "INTEGER", Type.FLOAT: "REAL", Type.STRING: "TEXT"}


@given(st.data())
def test_sqlite_agrees(data: st.DataObject) -> None:
    schema = data.draw(schemas(names=("a", "b", "c"), kinds=tuple(SQLITE_TYPES)))
    text = data.draw(conditions(schema).filter(lambda sql: "\\" not in sql and "\0" not in sql))
    event = data.draw(events(schema).filter(lambda e: not any(isinstance(v, str) and "\0" in v for v in e.values())))
    columns = ", ".join(f"{name} {SQLITE_TYPES[schema[name]]}" for name in schema)
    with sqlite3.connect(":memory:") as base:
        base.execute("PRAGMA case_sensitive_like = ON")
        base.execute(f"CREATE TABLE event ({columns})")
        base.execute(f"INSERT INTO event VALUES ({', '.join('?' * len(schema))})", [event.get(name) for name in schema])
        count = base.execute(f"SELECT count(*) FROM event WHERE {text}").fetchone()[0]
    base.close()
    assert Filter.parse(text).matches(event) is bool(count)


# -- normal form ------------------------------------------------------------------------------------------------------


@given(st.data())
def test_order_nesting_and_negation_do_not_show(data: st.DataObject) -> None:
    schema = data.draw(schemas())
    parts = data.draw(st.lists(conditions(schema, leaves_max=2), min_size=2, max_size=4))
    shuffled = data.draw(st.permutations(parts))
    for word, dual in (("AND", "OR"), ("OR", "AND")):
        plain = Filter.parse(f" {word} ".join(f"({part})" for part in parts))
        assert Filter.parse(f" {word} ".join(f"({part})" for part in shuffled)) == plain
        assert Filter.parse(f"({shuffled[0]}) {word} ({f' {word} '.join(f'({p})' for p in shuffled[1:])})") == plain
        assert Filter.parse("NOT (" + f" {dual} ".join(f"NOT ({part})" for part in shuffled) + ")") == plain
        assert Filter.parse(f"NOT NOT ({f' {word} '.join(f'({part})' for part in parts)})") == plain


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("a BETWEEN 1 AND 3", "a >= 1 AND 3 >= a"),
        ("a IN (3, 1, 2, 1)", "a = 1 OR a = 2 OR a = 3"),
        ("a NOT IN (1, 2)", "a != 1 AND NOT a = 2"),
        ("a != 1", "a < 1 OR a > 1"),
        ("a = 1", "a = 1.0"),
        ("a = 1e22", "a = 10000000000000000000000"),
        ("a = 0", "a = -0.0"),
        ("a < 5 OR a >= 5", "a IS NOT NULL"),
        ("a IS NULL OR a IS NOT NULL", "TRUE"),
        ("a > 1 AND a < 1", "FALSE"),
        ("a > 3 AND (b = 1 OR b = 2)", "(b = 2 AND a > 3) OR (b = 1 AND a > 3)"),
        ("b", "b = TRUE"),
        ("b", "NOT (b = FALSE)"),
        ("b", "b IS TRUE"),
        ("b OR NOT b", "b IS NOT NULL"),
        ("b IS NOT TRUE", "b IS NULL OR b = FALSE"),
        ("s LIKE 'ab%'", "s LIKE 'ab%' AND s LIKE 'a%'"),
        ("s LIKE 'ab%'", "s >= 'ab' AND s < 'ac'"),
        ("s NOT LIKE 'ab%'", "NOT s LIKE 'ab%'"),
        ("s LIKE '%ab' AND s LIKE '%b%'", "s LIKE '%ab'"),
        ("s LIKE '%ab' AND s NOT LIKE '%b'", "FALSE"),
        ("s LIKE 'abc%' AND s NOT LIKE '%b%'", "FALSE"),
        ("s LIKE '%b' AND s IN ('ab', 'ba')", "s = 'ab'"),
        ("s LIKE '%'", "s IS NOT NULL"),
        ("s LIKE 'ab'", "s = 'ab'"),
        ("s >= ''", "s IS NOT NULL"),
        ("s > 'a' AND s < 'a\\0b' AND s != 'a\\0'", "s > 'a\\0' AND s < 'a\\0b'"),
        ("s = 'it''s'", "s = 'it\\'s'"),
        ("s = \"it's\"", "s = 'it''s'"),
        ("s LIKE 'a\\%%'", "s LIKE 'a\\\\%%'"),
        ("t > '2014-08-11' AND t < TIMESTAMP '2014-08-12'", "t BETWEEN '2014-08-11T00:00:00.000001Z' AND "
         "TIMESTAMP '2014-08-11 23:59:59.999999'"),
        ("t > '2014-08-11' OR t = TIMESTAMP '2014-08-11'", "t >= TIMESTAMP '2014-08-11 02:00:00+02:00'"),
        ("(a = 1 AND b = 1) OR (a = 1 AND b = 2) OR (a = 2 AND b = 1)",
         "(a = 2 AND b = 1) OR (a = 1 AND b = 2) OR (a = 1 AND b = 1)"),
        ("(a = 1e22 AND b = 0) OR (a = 15 AND b = 1)", "(a = 10000000000000000000000 AND b = 0) OR (a = 15 AND b = 1)"),
    ],
)  # fmt: skip
def test_equivalent_texts_are_equal_filters(left: str, right: str) -> None:
    assert Filter.parse(left) == Filter.parse(right)
    assert hash(Filter.parse(left)) == hash(Filter.parse(right))


@given(st.data())
def test_written_down_and_read_again_it_is_the_same(data: st.DataObject) -> None:
    schema = data.draw(schemas())
    found = Filter.parse(data.draw(conditions(schema)))
    assert Filter.parse(str(found)) == found
    typed = found.within(schema)
    assert Filter.parse(str(typed), schema) == typed
    assert Filter.parse(filter_sql(typed, schema), schema) == typed


@given(st.data())
def test_what_is_written_down_says_what_was_read(data: st.DataObject) -> None:
    schema = data.draw(schemas())
    found = Filter.parse(data.draw(conditions(schema)))
    event = data.draw(events(schema))
    typed = found.within(schema)
    assert (holds(str(found), event) is True) is found.matches(event)
    assert (holds(filter_sql(typed, schema), event) is True) is found.matches(event)


def test_it_is_written_as_a_person_would() -> None:
    schema = Schema.of({"a": "int", "b": "bool", "s": "string", "f": "float", "t": "timestamp"})
    for text in [
        "TRUE",
        "FALSE",
        "a = 3",
        "a != 3",
        "a IN (3, 5)",
        "a NOT IN (3, 5)",
        "a >= 3 AND a < 8",
        "(a IS NULL OR a = 3)",
        "(a = 3 OR a >= 5 AND a < 9)",
        "b = TRUE",
        "f = 0.5D",
        "s > 'a' AND s <= 'b'",
        "s LIKE 'ab%'",
        "s NOT LIKE 'ab%'",
        "s NOT LIKE '%c%' AND s LIKE '%ab'",
        "s LIKE '%50\\\\%%'",
        "t >= TIMESTAMP '2014-08-11 07:30:00.000000Z'",
        "(a = 1 AND b = TRUE) OR (a = 2 AND s = 'x')",
    ]:
        assert filter_sql(Filter.parse(text, schema), schema) == text


def test_without_a_schema_three_to_four_is_not_three() -> None:
    found = Filter.parse("a >= 3 AND a < 4")
    assert str(found) == "a >= 3 AND a < 4"
    assert Filter.parse(str(found)).matches({"a": 3.5})


@pytest.mark.parametrize("name", [*sorted(SubscriptionSql.Tokenizer.KEYWORDS), "window", "a`b", "1a", "é", "a b", "x"])
def test_every_name_can_be_written(name: str) -> None:
    found = Filter.where(name, Constraint.compare(">", 1))
    assert Filter.parse(str(found)) == found, name_sql(name)


@given(st.data())
def test_every_literal_can_be_written(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(list(Type)))
    value = data.draw(values(kind))
    family = "timestamp" if kind is Type.TIMESTAMP else None
    assert Filter.parse(f"a = {literal_sql(value, family)}") == Filter.parse(f"a = {literal(value, kind)}")


# -- many disjuncts ---------------------------------------------------------------------------------------------------


def test_more_than_64_disjuncts_are_an_error_that_says_so() -> None:
    accepted = " OR ".join(f"(a = {i} AND b = {i})" for i in range(64))
    assert len(Filter.parse(accepted).disjuncts) == 64
    with pytest.raises(FilterError, match=r"needs 65 disjuncts.*at most 64 are accepted"):
        Filter.parse(accepted + " OR (a = 64 AND b = 64)")
    with pytest.raises(FilterError, match="at most 64 are accepted"):
        Filter.parse(" AND ".join(f"(a{i} = 1 OR b{i} = 1)" for i in range(20)))


def test_a_hundred_values_of_one_attribute_are_one_disjunct() -> None:
    chained = Filter.parse(" OR ".join(f"a = {2 * i}" for i in range(100)))
    assert len(chained.disjuncts) == 1
    assert chained == Filter.parse(f"a IN ({', '.join(str(2 * i) for i in range(100))})")
    assert len(Filter.parse(" OR ".join(f"a = {2 * i} AND b = 1" for i in range(300))).disjuncts) == 1


def test_too_many_to_merge_are_refused_without_comparing_all_pairs() -> None:
    with pytest.raises(FilterError, match="at most 64 are accepted"):
        Filter.parse(" OR ".join(f"(a = {i} AND b = {i})" for i in range(1000)))


def test_nesting_beyond_the_stack_is_an_error_of_ours() -> None:
    with pytest.raises(FilterError):
        Filter.parse("(" * 5000 + "a = 1" + ")" * 5000)


# -- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("", "cannot read the condition"),
        ("a =", "cannot read the condition"),
        ("a = 1 AND", "cannot read the condition"),
        ("a = b", "'b' is no literal"),
        ("a = 1 + 1", "1 [+] 1"),
        ("1 = 1", "compares no attribute"),
        ("t.a = 1", "t.a"),
        ("abs(a) = 1", r"ABS\(a\)"),
        ("a RLIKE 'x'", "RLIKE"),
        ("a ILIKE 'x'", "ILIKE"),
        ("a LIKE 'x!%' ESCAPE '!'", "ESCAPE"),
        ("a LIKE 'a%b'", "wildcard inside"),
        ("a LIKE 'a_'", "wildcard _"),
        ("a LIKE 'a\\\\'", "ends in a backslash"),
        ("a LIKE '\\\\a%'", "escapes 'a'"),
        ("a LIKE 5", "LIKE accepts a string"),
        ("a IN ()", "IN"),
        ("a IN (SELECT 1)", "IN"),
        ("a IN (1, 'x')", "mixes number and string"),
        ("a BETWEEN SYMMETRIC 3 AND 1", "BETWEEN low AND high"),
        ("a BETWEEN 1 AND 'x'", "number and with a string"),
        ("a = 1 AND a = 'x'", "'a' is compared with a number and with a string"),
        ("a = 1 OR a = 'x'", "'a' is compared with a number and with a string"),
        ("(a = 1 AND b = 1) OR (a = TRUE AND b = 2)", "'a' is compared with a bool and with a number"),
        ("a = 1 OR a = TIMESTAMP '2014-08-11'", "'a' is compared with a number and with a timestamp"),
        ("a IS 5", "IS"),
        ("a = 1e999", "range of a double"),
        ("a = CAST(1.5 AS INT)", "no literal"),
        ("a = CAST('NaN' AS DOUBLE)", "no literal"),
        ("a = TIMESTAMP 'yesterday'", "attribute 'a' is compared with the time 'yesterday'; accepted are times like"),
        ("ts > DATE '2014-08-11' AND due < DATE '11.8.2014'", "'due' is compared with the time '11.8.2014'"),
        ("due IN (DATE '2014-08-11', DATE '2014-13-11')", "'due' is compared with the time '2014-13-11'"),
        ("t > 'yesterday' AND t < TIMESTAMP '2014-08-11'", "'yesterday' is no time"),
        ("SELECT 1", "SELECT 1"),
        ("a = 1; b = 2", "a = 1; b = 2"),
    ],
)
def test_a_refusal_names_what_was_given_and_what_is_accepted(text: str, named: str) -> None:
    with pytest.raises(FilterError, match=named) as caught:
        Filter.parse(text)
    assert "accepted" in str(caught.value) or "cannot read" in str(caught.value) or "accepts" in str(caught.value)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_is_refused_as_a_constant(value: float) -> None:
    for operator in ("=", "!=", "<", "<=", ">", ">="):
        with pytest.raises(FilterError, match="accepted are finite numbers"):
            Constraint.compare(operator, value)
    with pytest.raises(FilterError, match="accepted are finite numbers"):
        Constraint.one_of([1.0, value])


@pytest.mark.parametrize("value", [math.nan, math.inf, "x", True, [1], datetime(2014, 8, 11, tzinfo=UTC)])
def test_an_event_that_cannot_be_compared_is_an_error_that_names_the_attribute(value: Any) -> None:
    with pytest.raises(EventError, match=r"speed|attribute value"):
        Filter.parse("speed < 60").matches({"speed": value})


def test_times_may_be_given_in_many_forms() -> None:
    found = Filter.parse("due >= '2014-08-11 07:30:00'")
    moment = datetime(2014, 8, 11, 7, 30, tzinfo=UTC)
    assert found.matches({"due": moment})
    assert not found.matches({"due": datetime(2014, 8, 11, 7, 29, 59, 999999)})  # noqa: DTZ001 (no zone is UTC)
    typed = Filter.parse("due >= '2014-08-11 07:30:00'", {"due": "timestamp"})
    assert typed.matches({"due": moment})
    assert typed.matches({"due": 1_407_742_200_000_000})
    assert not typed.matches({"due": 1_407_742_199_999_999})


def test_constants() -> None:
    assert EVERY_EVENT.matches({})
    assert not NO_EVENT.matches({})
    assert str(EVERY_EVENT) == "TRUE"
    assert str(NO_EVENT) == "FALSE"
    assert Filter.parse("speed < 60 AND highway = '401'").attributes == ("highway", "speed")


@given(st.data())
def test_a_missing_attribute_is_null(data: st.DataObject) -> None:
    schema = data.draw(schemas())
    found = Filter.parse(data.draw(conditions(schema)))
    assert found.matches({}) is found.matches(dict.fromkeys(schema))


def test_quoted_names_are_the_names_within() -> None:
    assert Filter.parse(f"{quoted_name('my attribute')} = 1").attributes == ("my attribute",)


@pytest.mark.parametrize(
    ("chain", "same"),
    [
        (" AND ".join(f"n != {i}" for i in range(300)), f"n NOT IN ({', '.join(map(str, range(300)))})"),
        (" OR ".join(f"n = {i}" for i in range(300)), f"n IN ({', '.join(map(str, range(300)))})"),
        (" OR ".join(f"n = {i} OR s LIKE '%a' AND n < 9" for i in range(200)),
         f"n IN ({', '.join(map(str, range(200)))}) OR s LIKE '%a' AND n < 9"),
        (" AND ".join(f"(n != {i} OR s = 'a')" for i in range(40)),
         f"n NOT IN ({', '.join(map(str, range(40)))}) OR s = 'a'"),
    ],
    ids=["and", "or", "mixed", "product"],
)  # fmt: skip
def test_long_chains_mean_what_lists_mean(chain: str, same: str) -> None:
    assert Filter.parse(chain) == Filter.parse(same)
