"""The poset against the plain definition of its roots, and against one that compares with every root."""

from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catchment import Filter
from catchment.matching import poset as poset_module
from catchment.matching.poset import Poset, Shift
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


class PlainPoset:
    """The same by comparing with every root: first those that constrain what was constrained first, then by age."""

    def __init__(self) -> None:
        self.count: dict[Filter, int] = {}
        self.below: dict[Filter, list[Filter]] = {}
        self.seen: list[tuple[str, ...] | None] = []

    def insert(self, condition: Filter) -> Shift:
        self.count[condition] = self.count.get(condition, 0) + 1
        return self.place(condition) if self.count[condition] == 1 else Shift()

    def delete(self, condition: Filter) -> Shift:
        self.count[condition] -= 1
        if self.count[condition]:
            return Shift()
        if condition not in self.below:
            next(below for below in self.below.values() if condition in below).remove(condition)
            return Shift()
        before = list(self.below)
        sunk = [one for orphan in self.below.pop(condition) for one in self.place(orphan).sunk]
        risen = tuple(root for root in self.below if root not in before)
        return Shift(risen, (condition, *(one for one in sunk if one in before)))

    def place(self, condition: Filter) -> Shift:
        candidates = sorted(self.below, key=lambda root: self.seen.index(constrained(root)))
        for root in candidates:
            if root.covers(condition):
                self.below[root].append(condition)
                return Shift()
        sunk = [root for root in candidates if condition.covers(root)]
        self.below[condition] = [one for root in sunk for one in (root, *self.below.pop(root))]
        if constrained(condition) not in self.seen:
            self.seen.append(constrained(condition))
        return Shift((condition,), tuple(sunk))


def constrained(condition: Filter) -> tuple[str, ...] | None:
    return condition.attributes if len(condition.disjuncts) == 1 else None


WIDE_SCHEMA = Schema({"a": Type.INT, "x": Type.FLOAT, "s": Type.STRING, "b": Type.BOOL, "t": Type.TIMESTAMP})
NUMBERS = [
    *(
        "{} = 1",
        "{} = 1.0",
        "{} = 1.5",
        "{} IN (1, 2)",
        "{} IN (1.0, 2.5)",
        "{} IN (-1, 0, 1, 2)",
        "{} >= 1 AND {} < 2",
    ),
    *("{} BETWEEN 1 AND 3", "{} BETWEEN 0.5 AND 2.5", "{} > 0 AND {} < 1", "{} > 1", "{} <= 2", "{} != 2"),
    *(
        "{} IS NULL",
        "{} IS NOT NULL",
        "({} IS NULL OR {} = 1)",
        "({} IS NULL OR {} IN (1, 2))",
        "({} IS NULL OR {} > 0)",
    ),
]
TEXTS = [
    *("s = 'p'", "s = 'q'", "s = ''", "s IN ('p', 'q')", "s IN ('a', 'p', 'q')", "s IN ('a', 'q')", "s = '2014-01-01'"),
    *("s IN ('2014-01-01', '2014-01-01 00:00:00')", "s LIKE 'p%'", "s LIKE '%q'", "s NOT LIKE '%x'", "s >= 'p'"),
    *("s BETWEEN 'p' AND 'q' AND s NOT LIKE '%p%'", "s BETWEEN 'o' AND 'q' AND s NOT LIKE '%p%'", "s NOT LIKE '%p%'"),
    *("s IS NULL", "(s IS NULL OR s = 'q')", "s BETWEEN '2014-01-01' AND '2014-01-01 00:00:00'"),
]
TIMES = [
    *(
        "t = TIMESTAMP '2014-01-01'",
        "t = '2014-01-01'",
        "t = '2014-01-01 00:00:00'",
        "t IN ('2014-01-01', '2014-01-02')",
    ),
    *("t >= '2014-01-01' AND t <= '2014-01-01 00:00:00'", "t >= '2014-01-01' AND t < '2014-01-01 00:00:00'"),
    *("t >= TIMESTAMP '2014-01-01'", "t >= '2014-01-01'", "t IN (TIMESTAMP '2014-01-01', TIMESTAMP '2014-01-02')"),
    "t BETWEEN TIMESTAMP '2014-01-01' AND TIMESTAMP '2014-01-01 00:00:00.000002'",
]
ATOMS = {
    "a": [text.replace("{}", "a") for text in NUMBERS],
    "x": [text.replace("{}", "x") for text in NUMBERS],
    "s": TEXTS,
    "b": ["b", "NOT b", "b IS NULL", "b IS NOT NULL", "b IS NOT TRUE"],
    "t": TIMES,
}


@st.composite
def vocabularies(draw: st.DrawFn) -> dict[str, list[str]]:
    """Of one or two attributes a few atoms each, so that many filters cover each other."""
    names = draw(st.lists(st.sampled_from(sorted(ATOMS)), min_size=1, max_size=2, unique=True))
    return {name: draw(st.lists(st.sampled_from(ATOMS[name]), min_size=2, max_size=5)) for name in names}


@st.composite
def conditions(draw: st.DrawFn, vocabulary: dict[str, list[str]]) -> Filter:
    """With a schema and without."""
    atoms = {name: st.sampled_from(texts) for name, texts in vocabulary.items()}
    conjunctions = st.fixed_dictionaries({}, optional=atoms).map(lambda found: " AND ".join(found.values()) or "TRUE")
    # Texts that are times are not mixed in one condition, as they may be written in forms whose order differs.
    disjunctions = conjunctions if "t" in atoms else st.tuples(conjunctions, conjunctions).map(" OR ".join)
    others = strategies.conditions(Schema({name: WIDE_SCHEMA[name] for name in atoms}), leaves_max=3)
    condition = Filter.parse(draw(st.one_of(conjunctions, conjunctions, disjunctions, others)))
    return condition.within(WIDE_SCHEMA) if draw(st.booleans()) else condition


@given(st.data(), st.sampled_from([1, 2, 3, 64]))
@settings(max_examples=300, deadline=None)
def test_what_is_looked_up_is_what_comparing_all_finds(data: st.DataObject, cells_max: int) -> None:
    """Each step inserts a filter, or deletes it if it is there."""
    filters = data.draw(st.lists(conditions(data.draw(vocabularies())), min_size=6, max_size=12))
    steps = data.draw(st.lists(st.sampled_from(filters), min_size=20, max_size=40))
    poset, plain = Poset(), PlainPoset()
    with patch.object(poset_module, "CELLS_MAX", cells_max):
        for one in [*filters, *steps]:
            if one in poset:
                assert poset.delete(one) == plain.delete(one)
            else:
                assert poset.insert(one) == plain.insert(one)
            assert poset.roots == tuple(plain.below)


def test_an_orphan_may_cover_a_root_that_its_own_did_not() -> None:
    """That only 'q' is both is found where texts are listed, not where their ends are forbidden."""
    wide, listed, hidden = (
        Filter.parse(text)
        for text in ("s NOT LIKE '%x'", "s IN ('a', 'q')", "s BETWEEN 'p' AND 'q' AND s NOT LIKE '%p%'")
    )
    poset = Poset()
    for condition in (wide, listed, hidden):
        poset.insert(condition)
    assert poset.roots == (wide, hidden)
    assert poset.delete(wide) == ((listed,), (wide, hidden))
    assert poset.roots == (listed,)


def test_a_filter_that_cannot_be_compared_is_not_there() -> None:
    poset = Poset()
    poset.insert(Filter.parse("a > 1"))
    with pytest.raises(FilterError, match="a number and with a string"):
        poset.insert(Filter.parse("a > 'x'"))
    assert len(poset) == 1


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
