"""The poset against the plain definition of its roots."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catchment import Filter
from catchment.matching.poset import Poset
from catchment.model.errors import FilterError
from catchment.model.schema import Schema, Type
from tests.model import strategies

SCHEMA = Schema({"a": Type.INT, "s": Type.STRING})
NARROW = st.builds(
    lambda low, width, s: Filter.parse(f"a >= {low} AND a < {low + width}{s}", SCHEMA),
    st.integers(0, 6),
    st.integers(1, 5),
    st.sampled_from(["", " AND s = 'x'", " AND s IN ('x', 'y')", " OR s LIKE 'x%'"]),
)
FILTERS = NARROW | strategies.filters(SCHEMA, leaves_max=3).map(lambda condition: condition.within(SCHEMA))


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 30), FILTERS), max_size=25), strategies.events(SCHEMA))
@settings(max_examples=300, deadline=None)
def test_roots_cover_everything_and_not_each_other(steps: list, event: dict) -> None:  # type: ignore[type-arg]
    poset, inserted = Poset(), []
    for deletes, place, condition in steps:
        before = set(poset.roots)
        if deletes and inserted:
            gone = inserted.pop(place % len(inserted))
            shift = poset.delete(gone)
        else:
            inserted.append(condition)
            shift = poset.insert(condition)
        roots = poset.roots
        assert set(roots) == (before | set(shift.risen)) - set(shift.sunk)
        assert not set(shift.risen) & before
        assert set(shift.sunk) <= before
        assert set(poset) == set(inserted)
        assert all(any(root.covers(one) for root in roots) for one in inserted)
        assert not any(one.covers(other) for one in roots for other in roots if one != other)
        assert set(poset.match(event)) == {one for one in inserted if one.matches(event)}


def test_an_equal_filter_goes_with_its_last_deletion() -> None:
    poset, condition = Poset(), Filter.parse("a > 1")
    assert poset.insert(condition)
    assert not poset.insert(condition)
    assert not poset.delete(condition)
    assert poset.roots == (condition,)
    assert poset.delete(condition).sunk == (condition,)
    assert len(poset) == 0
    with pytest.raises(FilterError, match=r"\[a > 1\] is not there"):
        poset.delete(condition)


def test_what_a_root_hid_rises_when_it_goes() -> None:
    wide, narrow, other = (Filter.parse(text) for text in ("a > 1", "a > 5", "a BETWEEN 2 AND 3"))
    poset = Poset()
    poset.insert(narrow)
    assert poset.insert(wide) == ((wide,), (narrow,))
    assert not poset.insert(other)
    assert poset.delete(wide) == ((narrow, other), (wide,))
