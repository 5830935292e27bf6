"""How filters relate: what one covers, what two overlap in, what bounds many; with and without a schema."""

from __future__ import annotations

import itertools
import math
import pickle
import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catchment.model.constraint import Constraint
from catchment.model.errors import FilterError
from catchment.model.filter import EVERY_EVENT, NO_EVENT, Filter, least_upper_bound
from catchment.model.schema import Schema, Type
from tests.model.strategies import conditions, events, filters, like_patterns, literal, quoted_name, schemas, values

# -- any filters ------------------------------------------------------------------------------------------------------


@given(st.data())
def test_what_is_covered_matches_no_more(data: st.DataObject) -> None:
    schema = data.draw(schemas())
    wide, narrow = data.draw(filters(schema, leaves_max=3)), data.draw(filters(schema, leaves_max=3))
    narrow = data.draw(st.sampled_from([narrow, narrow & wide]))
    known = data.draw(st.sampled_from([None, schema]))
    if wide.covers(narrow, known):
        for event in data.draw(st.lists(events(schema), min_size=1, max_size=8)):
            assert wide.matches(event) or not narrow.matches(event)


@given(st.data())
def test_what_matches_an_event_together_overlaps(data: st.DataObject) -> None:
    schema = data.draw(schemas())
    left, right = data.draw(filters(schema, leaves_max=3)), data.draw(filters(schema, leaves_max=3))
    for event in data.draw(st.lists(events(schema), min_size=1, max_size=8)):
        if left.matches(event) and right.matches(event):
            assert left.overlaps(right)
            assert left.overlaps(right, schema)
            assert right.overlaps(left)


@given(st.data())
def test_and_or_are_what_they_say(data: st.DataObject) -> None:
    schema = data.draw(schemas())
    left, right = data.draw(filters(schema, leaves_max=3)), data.draw(filters(schema, leaves_max=3))
    event = data.draw(events(schema))
    assert (left & right).matches(event) is (left.matches(event) and right.matches(event))
    assert (left | right).matches(event) is (left.matches(event) or right.matches(event))
    assert left & right == right & left
    assert left | right == right | left


@given(st.data())
def test_all_and_nothing(data: st.DataObject) -> None:
    found = data.draw(filters(data.draw(schemas())))
    assert EVERY_EVENT.covers(found)
    assert found.covers(NO_EVENT)
    assert found.covers(found)
    assert not found.overlaps(NO_EVENT)
    assert not NO_EVENT.overlaps(found)
    assert found.covers(EVERY_EVENT) is (found == EVERY_EVENT)
    assert NO_EVENT.covers(found) is (found == NO_EVENT)


@given(st.data())
def test_the_least_upper_bound_covers_each_member(data: st.DataObject) -> None:
    schema = data.draw(schemas())
    members = data.draw(st.lists(filters(schema, leaves_max=3), max_size=5))
    known = data.draw(st.sampled_from([None, schema]))
    if known is not None:
        members = [member.within(known) for member in members]
    bound = least_upper_bound(members)
    assert len(bound.disjuncts) <= 1
    for member in members:
        assert bound.covers(member)
        for event in data.draw(st.lists(events(schema), max_size=3)):
            assert bound.matches(event) or not member.matches(event)
    assert least_upper_bound(members[::-1]).attributes == bound.attributes


def test_the_least_upper_bound_is_narrow() -> None:
    parts = [Filter.parse("a = 1 AND b > 3 AND s LIKE 'ab%'"), Filter.parse("a = 2 AND b > 5 AND s LIKE 'abc%'")]
    assert least_upper_bound(parts) == Filter.parse("a IN (1, 2) AND b > 3 AND s LIKE 'ab%'")
    assert least_upper_bound([]) == NO_EVENT
    assert least_upper_bound([NO_EVENT]) == NO_EVENT
    assert least_upper_bound([parts[0]]) == parts[0]
    suffixes = [Filter.parse("s LIKE '%xa'"), Filter.parse("s LIKE '%ya'")]
    assert least_upper_bound(suffixes) == Filter.parse("s IS NOT NULL")
    many = [Filter.parse(f"a = {2 * i}") for i in range(40)]
    bound = least_upper_bound(many)
    assert Filter.parse("a BETWEEN 0 AND 78").covers(bound)
    assert len(bound.disjuncts[0].constraints[0][1].ranges) <= 16


def test_filters_of_different_types_cannot_be_compared() -> None:
    number, text = Filter.parse("a = 1"), Filter.parse("a = 'x'")
    for relate in (number.covers, number.overlaps):
        with pytest.raises(FilterError, match="'a' is compared with a number and with a string"):
            relate(text)
    with pytest.raises(FilterError, match="'a' is compared"):
        least_upper_bound([number, text])


def test_text_beside_a_time_is_a_time() -> None:
    text, time = Filter.parse("t >= '2014-08-11'"), Filter.parse("t >= TIMESTAMP '2014-08-12'")
    assert text.covers(time)
    assert not time.covers(text)
    assert text.overlaps(time)
    assert least_upper_bound([text, time]) == Filter.parse("t >= TIMESTAMP '2014-08-11'")


def test_filters_are_values() -> None:
    found = Filter.parse("a IN (1, 2) AND s LIKE '%x' OR t > TIMESTAMP '2014-08-11' OR b")
    assert pickle.loads(pickle.dumps(found)) == found
    assert len({found, Filter.parse(str(found))}) == 1


# -- completeness, by trying every event ------------------------------------------------------------------------------


def decided_by_trying(wide: Filter, narrow: Filter, domains: dict[str, list[Any]]) -> bool:
    every = (dict(zip(domains, row, strict=True)) for row in itertools.product(*domains.values()))
    return all(wide.matches(event) for event in every if narrow.matches(event))


@st.composite
def number_tests(draw: st.DrawFn, name: str) -> str:
    constant = st.sampled_from(["0", "1", "2", "0.5", "1.5"])
    match draw(st.sampled_from(["compare", "between", "in", "null"])):
        case "compare":
            return f"{name} {draw(st.sampled_from(['=', '!=', '<', '<=', '>', '>=']))} {draw(constant)}"
        case "between":
            return f"{name} {draw(st.sampled_from(['', 'NOT ']))}BETWEEN {draw(constant)} AND {draw(constant)}"
        case "in":
            members = draw(st.lists(constant, min_size=1, max_size=3))
            return f"{name} {draw(st.sampled_from(['', 'NOT ']))}IN ({', '.join(members)})"
        case _:
            return f"{name} IS {draw(st.sampled_from(['', 'NOT ']))}NULL"


@st.composite
def box_conditions(draw: st.DrawFn) -> str:
    """A conjunction of tests of two numbers and a truth value."""
    truth = st.sampled_from(["b", "NOT b", "b = TRUE", "b != TRUE", "b IS NULL", "b IS NOT NULL", "b IS NOT TRUE"])
    tests = [draw(st.lists(number_tests(name), max_size=2)) for name in ("x", "y")] + [
        draw(st.lists(truth, max_size=1))
    ]
    return " AND ".join(itertools.chain(*tests)) or "TRUE"


REALS: dict[str, list[Any]] = {
    "x": [None, *(quarter / 4 for quarter in range(-1, 10))],
    "y": [None, *(quarter / 4 for quarter in range(-1, 10))],
    "b": [None, False, True],
}
WHOLE: dict[str, list[Any]] = {**REALS, "x": [None, -1, 0, 1, 2, 3], "y": [None, -1, 0, 1, 2, 3]}
BOX_SCHEMA = Schema.of({"x": "int", "y": "int", "b": "bool"})


@given(box_conditions(), box_conditions())
@settings(max_examples=60)
def test_covering_is_decided_for_numbers_and_truth_values_over_the_reals(wide: str, narrow: str) -> None:
    left, right = Filter.parse(wide), Filter.parse(narrow)
    assert left.covers(right) is decided_by_trying(left, right, REALS)


@given(box_conditions(), box_conditions())
def test_covering_is_decided_for_numbers_and_truth_values_over_a_schema(wide: str, narrow: str) -> None:
    left, right = Filter.parse(wide), Filter.parse(narrow)
    assert left.covers(right, BOX_SCHEMA) is decided_by_trying(left, right, WHOLE)


@given(box_conditions(), box_conditions())
def test_overlap_is_decided_for_numbers_and_truth_values_over_a_schema(left_text: str, right_text: str) -> None:
    left, right = Filter.parse(left_text), Filter.parse(right_text)
    assert left.overlaps(right, BOX_SCHEMA) is not decided_by_trying(NO_EVENT, left & right, WHOLE)


STRINGS: dict[str, list[Any]] = {
    "s": [None, *("".join(letters) for n in range(6) for letters in itertools.product("abc", repeat=n))]
}
SHORT_TEXTS = ("a", "b", "ab", "ba", "aa")


@st.composite
def string_conditions(draw: st.DrawFn) -> str:
    negation = draw(st.sampled_from(["", "NOT "]))
    match draw(st.sampled_from(["like", "like", "like", "in", "null"])):
        case "like":
            return f"s {negation}LIKE {literal(draw(like_patterns(SHORT_TEXTS)), Type.STRING)}"
        case "in":
            members = draw(st.lists(st.sampled_from(SHORT_TEXTS), min_size=1, max_size=3))
            return f"s {negation}IN ({', '.join(literal(member, Type.STRING) for member in members)})"
        case _:
            return f"s IS {negation}NULL"


@given(string_conditions(), string_conditions(), st.sampled_from([None, Schema.of({"s": "string"})]))
@settings(max_examples=300)
def test_covering_is_decided_for_strings_and_one_pattern(wide: str, narrow: str, schema: Schema | None) -> None:
    left, right = Filter.parse(wide), Filter.parse(narrow)
    assert left.covers(right, schema) is decided_by_trying(left, right, STRINGS)


@given(st.lists(string_conditions(), min_size=1, max_size=3), st.lists(string_conditions(), min_size=1, max_size=3))
@settings(max_examples=150)
def test_covering_and_overlap_of_several_patterns_are_sound(wide: list[str], narrow: list[str]) -> None:
    left, right = Filter.parse(" AND ".join(wide)), Filter.parse(" AND ".join(narrow))
    if left.covers(right):
        assert decided_by_trying(left, right, STRINGS)
    if not left.overlaps(right):
        assert decided_by_trying(NO_EVENT, left & right, STRINGS)


@pytest.mark.parametrize(
    ("wide", "narrow"),
    [
        ("s LIKE '%b%'", "s LIKE 'abc%'"),
        ("s NOT LIKE 'abc%'", "s NOT LIKE '%b%'"),
        ("s NOT LIKE '%b'", "s NOT LIKE '%b%'"),
        ("s >= 'ab'", "s LIKE 'abc%'"),
        ("s LIKE '%b'", "s IN ('ab', 'b')"),
        ("s LIKE '\U0010ffff%'", "s LIKE '\U0010ffff\U0010ffff%'"),
        ("s < 'a\\0\\0'", "s IN ('a', 'a\\0')"),
        ("s != 'b'", "s LIKE '%a'"),
        ("s LIKE '%' ", "s = ''"),
    ],
)
def test_covering_among_texts(wide: str, narrow: str) -> None:
    assert Filter.parse(wide).covers(Filter.parse(narrow))
    assert not Filter.parse(narrow).covers(Filter.parse(wide))


# -- within a schema --------------------------------------------------------------------------------------------------


@given(st.data())
def test_within_a_schema_the_same_events_match(data: st.DataObject) -> None:
    schema = data.draw(schemas())
    found = data.draw(filters(schema))
    typed = found.within(schema)
    assert typed.within(schema) == typed
    for event in data.draw(st.lists(events(schema), min_size=1, max_size=8)):
        assert typed.matches(event) is found.matches(event)


@given(st.data())
def test_within_a_schema_cuts_stand_before_values_of_the_type(data: st.DataObject) -> None:
    schema = data.draw(schemas())
    typed = data.draw(filters(schema)).within(schema)
    held = {Type.BOOL: bool, Type.INT: int, Type.FLOAT: float, Type.STRING: str, Type.TIMESTAMP: int}
    for conjunction in typed.disjuncts:
        for name, constraint in conjunction:
            cuts = [cut for stretch in constraint.ranges for cut in stretch]
            assert cuts == sorted(set(cuts))
            for cut in cuts:
                assert len(cut) == 1 or (type(cut[1]) is held[schema[name]] and cut[2] == 0)
            assert all(pattern.kind != "prefix" and pattern.text for pattern in constraint.patterns)


@given(st.data())
def test_equal_sets_have_equal_cuts(data: st.DataObject) -> None:
    """Beside every constant, its neighbours in the type decide; constraints that agree on all of them are equal."""
    kind = data.draw(st.sampled_from([Type.INT, Type.FLOAT, Type.BOOL, Type.TIMESTAMP]))
    schema = Schema({"a": kind})
    constants = data.draw(st.lists(values(kind), min_size=2, max_size=2))
    operators = st.sampled_from(["=", "!=", "<", "<=", ">", ">="])
    family = "timestamp" if kind is Type.TIMESTAMP else None
    left, right = (
        Filter.where("a", Constraint.compare(data.draw(operators), value, family)).within(schema) for value in constants
    )
    near = {value for constant in constants for value in neighbours(constant, kind)}
    same = all(left.matches({"a": value}) is right.matches({"a": value}) for value in near)
    assert (left == right) is same


def neighbours(value: Any, kind: Type) -> list[Any]:
    if kind is Type.BOOL:
        return [False, True]
    if kind is Type.FLOAT:
        beside = [math.nextafter(value, -math.inf), math.nextafter(value, math.inf)]
        return [value, *filter(math.isfinite, beside)]
    least, most = (-(2**63), 2**63 - 1) if kind is Type.INT else (-62135596800000000, 253402300799999999)
    return [v for v in (value - 1, value, value + 1) if least <= v <= most]


LARGE = 2**53


@pytest.mark.parametrize(
    ("text", "kind", "canonical"),
    [
        (f"a > {LARGE}.0", "int", f"a >= {LARGE + 1}"),
        # Spark would round these numbers, which lie between two doubles.
        (f"a >= {LARGE + 1}", "float", f"a > {LARGE}"),
        (f"a = {LARGE + 1}", "float", "FALSE"),
        (f"a != {LARGE + 1}.0", "float", "a IS NOT NULL"),
        (f"a < {LARGE + 1}", "float", f"a <= {LARGE}"),
        ("a > 1.5", "int", "a >= 2"),
        ("a = 1.5", "int", "FALSE"),
        ("a > 2 AND a < 4", "int", "a = 3"),
        ("a > 2 AND a < 3", "int", "FALSE"),
        ("a IN (1, 2, 3)", "int", "a BETWEEN 0.5 AND 3.5"),
        (f"a <= {2**63 - 1}", "int", "a IS NOT NULL"),
        (f"a < {2**63}", "int", "a IS NOT NULL"),
        (f"a > {2**63 - 1}", "int", "FALSE"),
        (f"a >= {2**63}", "int", "FALSE"),
        (f"a >= {-(2**63)}", "int", "a IS NOT NULL"),
        (f"a > {-(2**63)}", "int", f"a >= {-(2**63) + 1}"),
        (f"a < {-(2**63)}", "int", "FALSE"),
        ("a < 1e300", "int", "a IS NOT NULL"),
        ("a < -1e300", "int", "FALSE"),
        (f"a <= {sys.float_info.max!r}", "float", "a IS NOT NULL"),
        (f"a > {sys.float_info.max!r}", "float", "FALSE"),
        (f"a >= -{sys.float_info.max!r}", "float", "a IS NOT NULL"),
        (f"a < {10**400}", "float", "a IS NOT NULL"),
        (f"a > -{10**400}", "float", "a IS NOT NULL"),
        ("a > -5e-324 AND a < 5e-324", "float", "a = 0"),
        ("a > 0", "float", "a >= 5e-324"),
        ("a < TRUE", "bool", "NOT a"),
        ("a <= TRUE", "bool", "a IS NOT NULL"),
        ("a > FALSE", "bool", "a"),
        ("a > TRUE", "bool", "FALSE"),
        ("a < 'a\\0'", "string", "a <= 'a'"),
        ("a > 'a' AND a < 'a\\0'", "string", "FALSE"),
        ("a > '2014-08-11T07:00:00+05:00' AND a < '2014-08-11T06:00:00'", "timestamp",
         "a > '2014-08-11 02:00:00' AND a <= '2014-08-11 05:59:59.999999'"),
        ("a = '2014-08-11' AND a = '2014-08-11 00:00:00'", "timestamp", "a = TIMESTAMP '2014-08-11'"),
        ("a IN ('2014-08-11T00:00:00', '2014-08-11 00:00:00')", "timestamp", "a = DATE '2014-08-11'"),
        ("a <= '9999-12-31 23:59:59.999999'", "timestamp", "a IS NOT NULL"),
        ("a >= '0001-01-01'", "timestamp", "a IS NOT NULL"),
    ],
)  # fmt: skip
def test_domains_of_types(text: str, kind: str, canonical: str) -> None:
    schema = {"a": kind}
    assert Filter.parse(text, schema) == Filter.parse(canonical, schema)


def test_integers_and_floats_compare_by_exact_value() -> None:
    above = Filter.parse(f"a > {LARGE}")
    assert not above.matches({"a": float(LARGE)})
    assert above.matches({"a": LARGE + 1})
    assert above.within(Schema.of({"a": "int"})).matches({"a": LARGE + 1})
    assert not Filter.parse(f"a = {LARGE + 1}").matches({"a": float(LARGE)})
    assert Filter.parse(f"a = {LARGE}.0").matches({"a": LARGE})
    assert not Filter.parse(f"a = {LARGE}.0").matches({"a": LARGE + 1})


@pytest.mark.parametrize(
    ("text", "kind", "named"),
    [
        ("a = 'x'", "int", "'a' is of type int and is compared with a string"),
        ("a = 1", "string", "'a' is of type string and is compared with a number"),
        ("a = 1", "bool", "'a' is of type bool and is compared with a number"),
        ("a = TRUE", "float", "'a' is of type float and is compared with a bool"),
        ("a", "string", "'a' is of type string and is compared with a bool"),
        ("a = 1", "timestamp", "'a' is of type timestamp and is compared with a number"),
        ("a = TIMESTAMP '2014-08-11'", "string", "'a' is of type string and is compared with a timestamp"),
        ("a LIKE '2014%'", "timestamp", "'a' is of type timestamp; LIKE accepts a string"),
        ("a LIKE '%1%'", "int", "'a' is of type int; LIKE accepts a string"),
        ("a > 'yesterday'", "timestamp", "'a' is a time stamp and is compared with 'yesterday'"),
        ("b = 1", "int", "unknown attribute 'b'; known are a"),
    ],
)
def test_types_that_do_not_fit_are_refused(text: str, kind: str, named: str) -> None:
    with pytest.raises(FilterError, match=named) as caught:
        Filter.parse(text, {"a": kind})
    assert "accept" in str(caught.value) or "known are" in str(caught.value)


def test_a_schema_that_comes_too_late_is_an_error_rather_than_a_wrong_answer() -> None:
    found = Filter.parse("a < '2014-08-11 23:00:00' OR a > '2014-08-11T01:00:00'")
    with pytest.raises(FilterError, match="different forms"):
        found.within(Schema.of({"a": "timestamp"}))
    with pytest.raises(FilterError, match="LIKE asks for text"):
        Filter.parse("a LIKE '%1'").within(Schema.of({"a": "timestamp"}))
    plain = Filter.parse("a >= '2014-08-11' AND a < '2014-08-12'").within(Schema.of({"a": "timestamp"}))
    assert plain == Filter.parse("a >= TIMESTAMP '2014-08-11' AND a < TIMESTAMP '2014-08-12'")


def test_conditions_with_quoted_names_work_within_a_schema() -> None:
    schema = Schema.of({"my attribute": "int"})
    assert Filter.parse(f"{quoted_name('my attribute')} > 1", schema).matches({"my attribute": 2})


@given(st.data())
def test_covering_within_a_schema_is_never_less_than_without(data: st.DataObject) -> None:
    schema = data.draw(schemas())
    left, right = (Filter.parse(data.draw(conditions(schema, leaves_max=2))) for _ in range(2))
    if left.covers(right):
        assert left.covers(right, schema)
    if not left.overlaps(right):
        assert not left.overlaps(right, schema)


def test_a_range_of_endlessly_many_zeros_costs_nothing() -> None:
    wide = Filter.parse("s >= 'a' AND s < 'a" + "\0" * 1_000_000 + "' AND s NOT LIKE '%b%'")
    narrow = Filter.parse("s = 'a' AND s NOT LIKE '%b%'")
    assert wide.covers(narrow)
    assert not narrow.covers(wide)
