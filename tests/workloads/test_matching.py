"""The matching benchmark's workload is the one that its text describes."""

from __future__ import annotations

import operator
from collections import Counter
from typing import get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from catchment.model.errors import ConfigurationError
from catchment.model.filter import Filter
from catchment.workloads import (
    MATCHING_SCHEMA,
    MatchingProfile,
    PlainConstraint,
    condition_of,
    matching_constraints,
    matching_events,
    matching_filters,
)
from tests.workloads.tools import sqlite_of

PROFILES: tuple[MatchingProfile, ...] = get_args(MatchingProfile)
COMPARE = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "PREFIX": np.strings.startswith,
    "SUFFIX": np.strings.endswith,
    "CONTAINS": lambda values, part: np.strings.find(values, part) >= 0,
}
BLANK = {pa.string(): "", pa.bool_(): False, pa.int64(): 0, pa.float64(): 0.0}


class Columns:
    """Events as NumPy columns, and a filter decided the plain way."""

    def __init__(self, events: pa.Table) -> None:
        self.valid = {name: events[name].is_valid().to_numpy() for name in events.column_names}
        self.values = {}
        for name in events.column_names:
            filled = events[name].fill_null(BLANK[events[name].type])
            is_text = filled.type == pa.string()
            self.values[name] = np.array(filled.to_pylist()) if is_text else filled.to_numpy()

    def meet(self, constraint: PlainConstraint) -> np.ndarray:
        name, how, operands = constraint
        values = self.values[name]
        if how == "IS NOT NULL":
            return self.valid[name]
        if how == "BETWEEN":
            return self.valid[name] & (values >= operands[0]) & (values <= operands[1])
        if how == "IN":
            return self.valid[name] & np.isin(values, operands)
        return self.valid[name] & COMPARE[how](values, operands[0])

    def matching(self, constraints: tuple[PlainConstraint, ...]) -> int:
        return int(np.count_nonzero(np.logical_and.reduce([self.meet(constraint) for constraint in constraints])))


@pytest.fixture(scope="module")
def events() -> pa.Table:
    return matching_events(1)


def test_events(events: pa.Table) -> None:
    assert events.num_rows == 65_536
    assert events.schema == pa.schema([(name, kind.arrow) for name, kind in MATCHING_SCHEMA.attributes.items()])
    assert len(MATCHING_SCHEMA) == 20
    present = np.sum([events[name].is_valid().to_numpy() for name in events.column_names], axis=0)
    shares = np.bincount(present, minlength=21)[8:] / events.num_rows
    assert shares.sum() == pytest.approx(1.0)
    assert shares == pytest.approx(1 / 13, rel=0.1)
    assert events["topic"].null_count == 0


def test_distributions(events: pa.Table) -> None:
    def share_of_first(name: str, value: object) -> float:
        known = events[name].drop_null()
        return pc.sum(pc.equal(known, value)).as_py() / len(known)

    assert share_of_first("topic", "topic00") == pytest.approx(1 / 5.187, rel=0.05)
    assert share_of_first("i5", 0) == pytest.approx(1 / 7.485, rel=0.05)
    assert share_of_first("b1", True) == pytest.approx(0.5, abs=0.01)
    assert share_of_first("b2", True) == pytest.approx(0.9, abs=0.01)
    for name, below in {"i1": 1_000, "i2": 1_000, "i3": 100_000, "i4": 100_000}.items():
        assert pc.max(events[name]).as_py() < below
        assert pc.mean(events[name]).as_py() == pytest.approx(below / 2, rel=0.02)
    floats = events["f3"].drop_null().to_numpy()
    assert (np.round(floats, 6) == floats).all()
    for name in ("s1", "s6"):
        words = events[name].drop_null()
        counts = sorted(Counter(words.to_pylist()).values(), reverse=True)
        assert 950 < len(counts) <= 1_000
        assert counts[0] / len(words) == pytest.approx(0.065, rel=0.1)
        assert {len(word) for word in set(words.to_pylist())} == set(range(5, 13))
    assert not set(events["s1"].to_pylist()) >= set(events["s2"].to_pylist())


def test_seeds() -> None:
    assert matching_events(1, 100).equals(matching_events(1, 100))
    assert not matching_events(1, 100).equals(matching_events(2, 100))
    assert matching_filters("broad", 50, 1) == matching_filters("broad", 50, 1)
    assert matching_filters("broad", 50, 1) != matching_filters("broad", 50, 2)


@pytest.mark.parametrize(
    ("profile", "filters", "stated"), [("broad", 3_000, 0.012), ("narrow", 8_000, 0.00013), ("ranges", 2_000, 0.009)]
)
def test_selectivity(events: pa.Table, profile: MatchingProfile, filters: int, stated: float) -> None:
    columns = Columns(events.slice(0, 2_000))
    matched = sum(columns.matching(one) for one in matching_constraints(profile, filters, 7).values())
    assert matched / filters / 2_000 == pytest.approx(stated, rel=0.25)


@pytest.mark.parametrize("profile", PROFILES)
def test_the_sql_says_what_the_constraints_say(events: pa.Table, profile: MatchingProfile) -> None:
    sample = events.slice(0, 1_000)
    columns, database = Columns(sample), sqlite_of(sample, "events")
    filters, conditions = matching_constraints(profile, 250, 3), matching_filters(profile, 250, 3)
    assert list(filters) == list(conditions)
    for name, constraints in filters.items():
        assert conditions[name] == condition_of(constraints)
        counted = database.execute(f"SELECT count(*) FROM events WHERE {conditions[name]}").fetchone()[0]
        assert counted == columns.matching(constraints), conditions[name]
    database.close()


@pytest.mark.parametrize("profile", PROFILES)
def test_the_sql_parses(events: pa.Table, profile: MatchingProfile) -> None:
    rows = events.slice(0, 200).to_pylist()
    columns = Columns(events.slice(0, 200))
    for name, constraints in matching_constraints(profile, 100, 5).items():
        parsed = Filter.parse(condition_of(constraints), MATCHING_SCHEMA)
        assert sum(parsed.matches(row) for row in rows) == columns.matching(constraints), name


def test_profiles_have_the_stated_mix() -> None:
    broad = list(matching_constraints("broad", 20_000, 1).values())
    assert {len(one) for one in broad} == set(range(1, 7))
    assert all(len({part.attribute for part in one}) == len(one) for one in broad)
    anchors = Counter(one[0].operator for one in broad)
    assert anchors["="] / 20_000 == pytest.approx(0.60, abs=0.02)
    assert anchors["BETWEEN"] / 20_000 == pytest.approx(0.25, abs=0.02)
    assert anchors["IN"] / 20_000 == pytest.approx(0.15, abs=0.02)
    strings = Counter(part.operator for one in broad for part in one[1:] if part.attribute in ("s1", "s2", "s3"))
    want = {"IN": 0.30, "!=": 0.15, "PREFIX": 0.20, "SUFFIX": 0.12, "CONTAINS": 0.15, "IS NOT NULL": 0.08}
    assert {how: count / strings.total() for how, count in strings.items()} == pytest.approx(want, abs=0.02)
    ranges = matching_constraints("ranges", 2_000, 1).values()
    assert {len(one) for one in ranges} == {3, 4, 5, 6}
    assert {part.operator for one in ranges for part in one} == {"BETWEEN"}


def test_an_unknown_profile_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="accepted are broad, narrow, ranges"):
        matching_constraints("wide", 1, 1)  # type: ignore[arg-type]
