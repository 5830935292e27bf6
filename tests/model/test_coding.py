"""Filters as plain lists: what is written is read back, and nothing else is believed."""

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catchment import Filter
from catchment.model.coding import filter_from_plain, filter_to_plain
from catchment.model.errors import FilterError
from tests.model import strategies


@given(st.data())
@settings(max_examples=300)
def test_what_is_written_is_read_back(data: st.DataObject) -> None:
    schema = data.draw(strategies.schemas())
    condition = Filter.parse(data.draw(strategies.conditions(schema)), schema)
    assert filter_from_plain(filter_to_plain(condition)) == condition
    packed = msgspec.msgpack.encode(filter_to_plain(condition))
    assert filter_from_plain(msgspec.msgpack.decode(packed)) == condition


NUMBER = ["a", "number", False, [[[1, 0], [2, 1]]], []]


@pytest.mark.parametrize(
    ("plain", "named"),
    [
        (None, "a filter is 'None'"),
        ([[]] * 65, "at most 64"),
        ([[1]], "a constraint is '1'"),
        ([[NUMBER[:4]]], "five parts"),
        ([[[1, *NUMBER[1:]]]], "an attribute is '1'"),
        ([[NUMBER, NUMBER]], "each once"),
        ([[["a", "colour", False, [], []]]], "a family is 'colour'"),
        ([[["a", [], False, [], []]]], "a family is"),
        ([[["a", "number", 1, [], []]]], "whether null is accepted is '1'"),
        ([[["a", "number", False, [[[1, 0]]], []]]], "two ends"),
        ([[["a", "number", False, [[[2, 0], [1, 0]]], []]]], "ascending"),
        ([[["a", "number", False, [[[3, 0], [4, 0]], [[1, 0], [2, 0]]], []]]], "ascending"),
        ([[["a", "number", False, [[["x", 0], []]], []]]], "a value is 'x'"),
        ([[["a", "number", False, [[[True, 0], []]], []]]], "a value is 'True'"),
        ([[["a", "number", False, [[[float("nan"), 0], []]], []]]], "a value is 'nan'"),
        ([[["a", "timestamp", False, [[[2**62, 0], []]], []]]], "a time of the years 1 to 9999"),
        ([[["a", "number", False, [[[1, 2], []]], []]]], "a side is '2'"),
        ([[["a", "string", False, [[["x", 1], []]], []]]], "a side is '1'"),
        ([[["a", None, False, [[[1, 0], []]], []]]], "a value is '1'"),
        ([[["a", "number", False, [[[], []]], [["suffix", "x", False]]]]], "of a string"),
        ([[["a", "string", False, [[[], []]], [["prefix", "x", False]]]]], "suffix or contains"),
        ([[["a", "string", False, [[[], []]], [["suffix", "", False]]]]], "suffix or contains"),
    ],
)
def test_what_nobody_wrote_is_refused(plain: Any, named: str) -> None:
    with pytest.raises(FilterError, match=named):
        filter_from_plain(plain)


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from(["a", "number", "string", "suffix"]) | st.floats(),
    lambda inner: st.lists(inner, max_size=5),
    max_leaves=12,
)


@given(PLAIN)
@settings(max_examples=500)
def test_arbitrary_input_is_a_filter_or_an_error_of_ours(plain: Any) -> None:
    try:
        condition = filter_from_plain(plain)
    except FilterError:
        return
    assert filter_from_plain(filter_to_plain(condition)) == condition
