"""Operators: four verbs, and the same answer whatever the cut and the order."""

from __future__ import annotations

import itertools
import math
import statistics
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catchment.model.errors import AggregateOverflowError
from catchment.model.operators import BEYOND_DOUBLE, OPERATORS, Measure
from catchment.model.schema import Type
from catchment.model.states import STATES
from catchment.oracle.measures import Result, measured
from tests.model.strategies import FRACTIONS, values

CASES = [(name, kind) for name in OPERATORS for kind in OPERATORS[name].accepts]
PARAMETERS = {"fraction": FRACTIONS, "k": st.integers(1, 5).map(float)}


@st.composite
def asked(draw: st.DrawFn) -> tuple[Measure, Type]:
    name, kind = draw(st.sampled_from(CASES))
    return Measure(name, "x", tuple(draw(PARAMETERS[p]) for p in OPERATORS[name].parameters)), kind


def merged_in_pieces(measure: Measure, kind: Type, pieces: list[list[Any]]) -> Any:
    """Fold each piece, then merge neighbours pairwise until one state is left."""
    operator = measure.definition
    states = [operator.fold(piece, kind) for piece in pieces] or [operator.create(kind)]
    while len(states) > 1:
        pairs = [states[i : i + 2] for i in range(0, len(states), 2)]
        states = [operator.merge(*pair, kind) if len(pair) == 2 else pair[0] for pair in pairs]
    return measure.finish(states[0], kind)


def assert_right(value: Any, expected: Result) -> None:
    if expected.low is None or expected.high is None or value is None:
        assert value == expected.value
    else:
        assert expected.low <= value <= expected.high


@given(st.data())
@settings(max_examples=400)
def test_any_cut_and_any_order_give_the_answer_of_the_oracle(data: st.DataObject) -> None:
    measure, kind = data.draw(asked())
    given_values = data.draw(st.lists(values(kind, tame=True), max_size=25))
    expected = measured(measure, given_values, kind)
    assert_right(measure.finish(measure.definition.fold(given_values, kind), kind), expected)
    shuffled = data.draw(st.permutations(given_values))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(shuffled)), max_size=4)))
    pieces = [shuffled[a:b] for a, b in zip([0, *cuts], [*cuts, len(shuffled)], strict=True)]
    result = merged_in_pieces(measure, kind, pieces)
    assert_right(result, expected)
    if result is not None:
        wanted = {None: list, Type.INT: int, Type.FLOAT: float, Type.STRING: str, Type.BOOL: bool, Type.TIMESTAMP: int}
        assert type(result) is wanted[measure.result(kind)]


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_of_nothing_there_is_nothing(name: str, kind: Type) -> None:
    measure = Measure(name, "x", (0.5,) * len(OPERATORS[name].parameters) if name != "approx_top_k" else (3.0,))
    nothing = 0 if "count" in name else [] if name == "approx_top_k" else None
    operator = measure.definition
    assert measure.finish(operator.create(kind), kind) == nothing
    assert measure.finish(operator.merge(operator.create(kind), operator.create(kind), kind), kind) == nothing
    assert measured(measure, [], kind).value == nothing
    assert STATES[measure.state(kind).name] is measure.state(kind)


# -- integers ---------------------------------------------------------------------------------------------------------


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=8))
def test_a_sum_of_integers_is_exact_or_an_overflow_of_the_total(numbers: list[int]) -> None:
    state = OPERATORS["sum"].fold(numbers, Type.INT)
    if -(2**63) <= sum(numbers) < 2**63:
        assert Measure("sum", "x").finish(state, Type.INT) == sum(numbers)
    else:
        problem = f"it is {sum(numbers)}, beyond 64 bits"
        with pytest.raises(AggregateOverflowError, match=problem):
            Measure("sum", "x").finish(state, Type.INT)
        assert measured(Measure("sum", "x"), numbers, Type.INT).problem == problem
    assert Measure("avg", "x").finish(state, Type.INT) == float(Fraction(sum(numbers), len(numbers)))


def test_a_sum_that_overflows_on_its_way_is_no_overflow() -> None:
    sum_ = OPERATORS["sum"]
    left, right = sum_.fold([2**63 - 1, 2**63 - 1], Type.INT), sum_.fold([-(2**63), -(2**63) + 5], Type.INT)
    assert sum_.finish(sum_.merge(left, right, Type.INT), Type.INT) == 3


# -- floats -----------------------------------------------------------------------------------------------------------


@given(st.lists(st.floats(-1e150, 1e150), min_size=1, max_size=12), st.data())
def test_cancellation_leaves_what_is_left(numbers: list[float], data: st.DataObject) -> None:
    small = data.draw(st.lists(st.floats(-1, 1), min_size=1, max_size=4))
    mixed = data.draw(st.permutations(numbers + [-n for n in numbers] + small))
    for name in ("sum", "avg"):
        assert_right(Measure(name, "x").finish(OPERATORS[name].fold(mixed, Type.FLOAT), Type.FLOAT),
                     measured(Measure(name, "x"), mixed, Type.FLOAT))  # fmt: skip
    assert Measure("sum", "x").finish(OPERATORS["sum"].fold([1e16, 1.0, -1e16], Type.FLOAT), Type.FLOAT) == 1.0


@given(st.lists(st.floats(0, 1), min_size=2, max_size=40), st.sampled_from([1e9, -1e9, 1e12]), st.data())
def test_a_variance_far_from_zero_is_right(parts: list[float], offset: float, data: st.DataObject) -> None:
    numbers = [offset + part for part in parts]
    cut = data.draw(st.integers(0, len(numbers)))
    exact = float(statistics.variance([Fraction(n) for n in numbers]))
    found = merged_in_pieces(Measure("var_samp", "x"), Type.FLOAT, [numbers[:cut], numbers[cut:]])
    # What the rounding of a mean of this size allows; a plain sum of squares would be off by hundreds.
    mean_error = len(numbers) * math.ulp(offset)
    assert abs(found - exact) <= mean_error * (math.sqrt(exact) + mean_error)


def test_a_variance_of_equal_values_is_zero() -> None:
    for value in (0.1, 1e9 + 0.1, -1e15):
        numbers = [value] * 7
        assert merged_in_pieces(Measure("var_samp", "x"), Type.FLOAT, [numbers[:3], numbers[3:]]) == 0.0


@pytest.mark.parametrize("fraction", [0.0, 0.3, 0.5, 1.0])
def test_percentiles_between_the_largest_doubles_are_finite(fraction: float) -> None:
    largest = 1.7976931348623157e308
    found = Measure("percentile", "x", (fraction,)).finish(
        OPERATORS["percentile"].fold([largest, -largest], Type.FLOAT), Type.FLOAT
    )
    assert found == pytest.approx((2 * fraction - 1) * largest, rel=1e-9)


LARGEST = 1.7e308


@pytest.mark.parametrize(
    ("name", "numbers", "result"),
    [
        ("sum", [LARGEST, LARGEST], None),
        ("sum", [-LARGEST, -LARGEST, -1.0], None),
        ("sum", [LARGEST, LARGEST, -LARGEST, -LARGEST, 5.0], 5.0),
        ("sum", [LARGEST, LARGEST, -LARGEST], LARGEST),
        ("avg", [LARGEST, LARGEST, LARGEST], LARGEST),
        ("var_samp", [LARGEST, -LARGEST], None),
        ("var_samp", [1e200, 0.0, -1e200], None),
        ("stddev_samp", [1e200, 0.0], None),
        ("stddev_samp", [LARGEST, LARGEST], 0.0),
        ("var_samp", [1e150, -1e150], 2e300),
    ],
)
def test_what_is_beyond_a_double_does_not_depend_on_the_order(
    name: str, numbers: list[float], result: float | None
) -> None:
    operator = OPERATORS[name]
    expected = measured(Measure(name, "x"), numbers, Type.FLOAT)
    assert expected.problem == (BEYOND_DOUBLE if result is None else None)
    for order in itertools.permutations(numbers):
        for cut in range(len(order) + 1):
            state = operator.merge(
                operator.fold(order[:cut], Type.FLOAT), operator.fold(order[cut:], Type.FLOAT), Type.FLOAT
            )
            if result is None:
                with pytest.raises(AggregateOverflowError, match=BEYOND_DOUBLE):
                    operator.finish(state, Type.FLOAT)
            else:
                assert expected.low is not None
                assert expected.high is not None
                assert expected.low <= operator.finish(state, Type.FLOAT) <= expected.high
                assert expected.low <= result <= expected.high


# -- the faults of an older implementation ----------------------------------------------------------------------------


def test_counts_are_merged_by_adding_them() -> None:
    assert merged_in_pieces(Measure("count", "x"), Type.INT, [[1, 2, 3], [4, 5]]) == 5


def test_the_maximum_of_negative_numbers_is_negative() -> None:
    assert merged_in_pieces(Measure("max", "x"), Type.INT, [[-5, -3], [], [-4]]) == -3
    assert merged_in_pieces(Measure("max", "x"), Type.FLOAT, [[-5.5], [-3.25]]) == -3.25
    assert merged_in_pieces(Measure("min", "x"), Type.INT, [[5, 3], []]) == 3


def test_negative_numbers_are_distinct() -> None:
    for name in ("count_distinct", "approx_count_distinct"):
        assert merged_in_pieces(Measure(name, "x"), Type.INT, [[-1, 1, -2], [-1, 2, -(2**62)]]) == 5
        assert merged_in_pieces(Measure(name, "x"), Type.FLOAT, [[-1.5, 1.5], [-1.5, -0.0], [0.0]]) == 3


def test_averages_and_medians_exist() -> None:
    assert merged_in_pieces(Measure("avg", "x"), Type.INT, [[1], [2, 6]]) == 3.0
    assert merged_in_pieces(Measure("median", "x"), Type.INT, [[1], [10, 2]]) == 2.0


def test_operators_of_the_same_attribute_have_states_of_their_own() -> None:
    states = {Measure(name, "x").state(Type.INT).name for name in ("count", "sum", "min", "max", "var_samp", "median")}
    assert len(states) == 6
    assert Measure("sum", "x").state(Type.INT) is Measure("avg", "x").state(Type.INT)


# -- sketches ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [Type.INT, Type.FLOAT, Type.STRING])
def test_sketches_stay_within_their_bounds(kind: Type) -> None:
    cast = {Type.INT: int, Type.FLOAT: float, Type.STRING: str}[kind]
    numbers = [cast((i * 7919) % 5003) for i in range(20_000)]
    for name, parameters in (("approx_count_distinct", ()), ("approx_percentile", (0.9,)), ("approx_top_k", (5.0,))):
        if kind not in OPERATORS[name].accepts:
            continue
        measure = Measure(name, "x", parameters)
        state = measure.state(kind)
        blobs = [state.collect(numbers[i : i + 2500], kind) for i in range(0, len(numbers), 2500)]
        assert_right(measure.finish(state.merge_all(blobs, kind), kind), measured(measure, numbers, kind))


def test_the_empty_string_is_a_string() -> None:
    assert merged_in_pieces(Measure("approx_count_distinct", "x"), Type.STRING, [["", "a"], [""]]) == 2
    assert merged_in_pieces(Measure("count_distinct", "x"), Type.STRING, [["", "a"], [""]]) == 2
    top = merged_in_pieces(Measure("approx_top_k", "x", (1.0,)), Type.STRING, [["", "a"], [""]])
    assert top == [{"item": "", "count": 2}]


def test_the_quantile_of_the_largest_integers_is_an_integer_of_64_bits() -> None:
    measure = Measure("approx_percentile", "x", (0.5,))
    assert measure.finish(measure.definition.fold([2**63 - 1], Type.INT), Type.INT) == 2**63 - 1


def test_equal_values_make_equal_bytes() -> None:
    for name, kind in (
        ("approx_count_distinct", Type.STRING),
        ("approx_top_k", Type.STRING),
        ("count_distinct", Type.INT),
        ("approx_percentile", Type.INT),
    ):
        state = OPERATORS[name].state(kind)
        first, second = (["b", "a", "b"], ["b", "b", "a"]) if kind is Type.STRING else ([2, 1, 2], [2, 2, 1])
        assert state.collect(first, kind) == state.collect(second, kind)


# -- names ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("measure", "text"),
    [
        (Measure("count"), "count(*)"),
        (Measure("count", "speed"), "count(speed)"),
        (Measure("count_distinct", "speed"), "count(DISTINCT speed)"),
        (Measure("percentile", "speed", (0.25,)), "percentile(speed, 0.25)"),
        (Measure("percentile", "speed", (0.1234567,)), "percentile(speed, 0.1234567)"),
        (Measure("percentile", "speed", (1.0,)), "percentile(speed, 1)"),
        (Measure("approx_top_k", "speed", (5.0,)), "approx_top_k(speed, 5)"),
    ],
)
def test_a_measure_is_named_by_its_text(measure: Measure, text: str) -> None:
    assert str(measure) == measure.quoted == text


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Measure("count"), Measure("count", "*")),
        (Measure("count_distinct", "n"), Measure("count", "DISTINCT n")),
        (Measure("percentile", "x", (0.5,)), Measure("percentile", "x, 0.5")),
        (Measure("sum", "a"), Measure("sum", "`a`")),
    ],
)
def test_no_name_of_a_column_makes_two_measures_one(one: Measure, other: Measure) -> None:
    assert str(one).replace("`", "") == str(other).replace("`", "")
    assert one.quoted != other.quoted
