"""Quantile sketches: equal input makes equal bytes, within the library's bound, and the library reads them."""

from __future__ import annotations

import functools
import hashlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterable
from typing import Any

import datasketches
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catchment.model.errors import FrameError
from catchment.model.kll import HELD_MAX, KLL_K
from catchment.model.quantiles import FEW, PART, merged_sketch, quantile, sketch_of

Values = np.ndarray[Any, Any]
BOUND = datasketches.kll_doubles_sketch.get_normalized_rank_error(KLL_K, False)
EMPTY = sketch_of([])
COUNT = 12_000


def read(sketch: bytes) -> Any:
    return datasketches.kll_doubles_sketch.deserialize(sketch)


def by_library(values: Values, k: int = KLL_K) -> bytes:
    sketch = datasketches.kll_doubles_sketch(k)
    sketch.update(values.copy())
    return bytes(sketch.serialize())


def rank_errors(sketch: bytes, values: Values) -> Values:
    """By how much of all values the rank of each value is wrong, without the value and with it."""
    ranked, points = np.sort(values), np.unique(values)
    both = []
    for side, is_inclusive in (("left", False), ("right", True)):
        estimated = np.array(read(sketch).get_cdf(points.tolist(), is_inclusive)[:-1])
        both.append(estimated - np.searchsorted(ranked, points, side) / len(ranked))
    return np.concatenate(both)


def assert_right(sketch: bytes, values: Values, bound: float = BOUND) -> None:
    found = read(sketch)
    assert (found.k, found.n, found.get_min_value(), found.get_max_value()) == (
        KLL_K,
        len(values),
        min(values),
        max(values),
    )
    assert found.num_retained <= min(3 * KLL_K + 100, len(values))
    assert np.abs(rank_errors(sketch, values)).max() <= bound


# -- determinism ------------------------------------------------------------------------------------------------------


def shuffled(count: int, seed: int = 7) -> Values:
    return np.random.default_rng(seed).permutation(count).astype(float)


def fingerprint() -> str:
    """Of sketches of all sizes, and of their merges."""
    parts = [sketch_of(np.arange(count) * 7_919 % 100_003 / 8) for count in (0, 1, 7, 200, 201, 3_000, 50_000)]
    return hashlib.sha256(b"".join([*parts, merged_sketch(parts), functools.reduce(merge_two, parts)])).hexdigest()


def merge_two(left: bytes, right: bytes) -> bytes:
    return merged_sketch([left, right])


PINNED = "ca9bc10aa8d1ca376ee0402922a9abbc9a83c004fcf9de4a73f0f2d5a7313aef"


def test_bytes_are_the_same_in_every_process_and_version() -> None:
    """A log that an older version wrote is replayed to the same bytes: change this only together with the format."""
    there = subprocess.run(
        [sys.executable, "-c", "from tests.model.test_quantiles import fingerprint; print(fingerprint())"],
        env={**os.environ, "PYTHONHASHSEED": "1", "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert there.stdout.strip() == fingerprint() == PINNED


@given(st.lists(st.floats(allow_nan=False), max_size=3 * FEW), st.data())
def test_equal_values_in_any_order_make_equal_bytes(values: list[float], data: st.DataObject) -> None:
    other = data.draw(st.permutations(values))
    assert sketch_of(values) == sketch_of(np.array(other)) == merged_sketch([sketch_of(tuple(other))])


def test_a_thousand_values_in_any_order_make_equal_bytes() -> None:
    assert len({sketch_of(shuffled(PART, seed)) for seed in range(10)}) == 1


def test_zeros_are_equal_whatever_their_sign() -> None:
    for count in (FEW, 150, 500):
        signs = np.where(np.arange(count) % 3, -0.0, 0.0)
        assert sketch_of(signs) == sketch_of(np.zeros(count)) == sketch_of(signs.tolist())


# -- error ------------------------------------------------------------------------------------------------------------

AT = np.arange(COUNT)
SEQUENCES: dict[str, Values] = {
    "sorted": AT * 1.0,
    "reversed": AT[::-1] * 1.0,
    "random": shuffled(COUNT),
    "few distinct": shuffled(COUNT) % 7,
    "constant": np.full(COUNT, -2.5),
    "zig-zag": np.where(AT % 2, AT, COUNT - AT) * 1.0,
    "outside in": np.argsort(np.abs(AT - COUNT / 2))[::-1] * 1.0,
    "a period of 8": AT % 8 * 1.0,
    "one low value of 16": np.where(AT % 16, AT, -AT) * 1.0,
    "one low value of 18": np.where(AT % 18, AT, -AT) * 1.0,
    "equal slices": AT % 120 * 1.0,
    "wide": np.sign(np.sin(AT)) * 10.0 ** (shuffled(COUNT) % 600 - 300),
}


def in_tree(sketches: list[bytes], width: int) -> bytes:
    while len(sketches) > 1:
        sketches = [merged_sketch(sketches[at : at + width]) for at in range(0, len(sketches), width)]
    return sketches[0]


SHAPES: dict[str, Callable[[list[bytes]], bytes]] = {
    "at once": merged_sketch,
    "from the left": lambda sketches: functools.reduce(merge_two, sketches),
    "from the right": lambda sketches: functools.reduce(lambda left, right: merge_two(right, left), sketches[::-1]),
    "in a tree of pairs": lambda sketches: in_tree(sketches, 2),
    "in a tree of threes": lambda sketches: in_tree(sketches, 3),
}


def slices(values: Values, count: int) -> list[bytes]:
    return [sketch_of(part) for part in np.array_split(values, count)]


@pytest.mark.parametrize("name", SEQUENCES)
def test_ranks_are_within_the_bound_however_values_come(name: str) -> None:
    values = SEQUENCES[name]
    assert_right(sketch_of(values), values)
    one_by_one = functools.reduce(lambda sketch, value: merged_sketch([sketch, sketch_of([value])]), values, EMPTY)
    assert_right(one_by_one, values)
    for shape, merged in SHAPES.items():
        for count in (2, 10, 100, 1_000):
            try:
                assert_right(merged(slices(values, count)), values)
            except AssertionError as error:
                raise AssertionError(f"{count} slices merged {shape}") from error


def test_ranks_are_within_the_bound_where_slices_differ_in_size() -> None:
    values = SEQUENCES["random"]
    growing = [sketch_of(part) for part in np.split(values, 2 ** np.arange(14))]
    for sketches in (growing, growing[::-1]):
        assert_right(functools.reduce(merge_two, sketches), values)
        assert_right(merged_sketch(sketches), values)


def test_ranks_are_within_the_bound_if_the_input_watches_the_sketch() -> None:
    """An adversary sends values next to the one whose rank is wrong most, on the side that is counted too high."""
    values = shuffled(3 * KLL_K)
    sketch = sketch_of(values)
    for _ in range(150):
        errors = rank_errors(sketch, values)[len(np.unique(values)) :]
        worst = np.unique(values)[np.abs(errors).argmax()]
        ahead = np.nextafter(worst, np.inf if errors[np.abs(errors).argmax()] > 0 else -np.inf)
        values = np.append(values, np.linspace(worst, ahead, 20))
        sketch = merged_sketch([sketch, sketch_of(values[-20:])])
    assert_right(sketch, values)


def test_compactions_favour_neither_half() -> None:
    """Of 201 values the largest rises, or the one below it."""
    risen = sum(read(sketch_of(np.arange(201.0) + first)).get_quantile(1 - 1e-9) == first + 200 for first in range(400))
    assert 160 <= risen <= 240


def test_errors_are_not_biased() -> None:
    """Errors of a middle rank have a mean of nothing, over many inputs that are merged in the same way."""
    errors = []
    for seed in range(200):
        values = shuffled(4_000, seed)
        errors.append(read(in_tree(slices(values, 32), 2)).get_rank(1_999.0, True) - 0.5)
    assert abs(np.mean(errors)) <= 4 * np.std(errors) / np.sqrt(len(errors))
    assert np.std(errors) <= BOUND / 3


# -- few values, and none ---------------------------------------------------------------------------------------------


def test_of_nothing_there_is_no_quantile() -> None:
    assert EMPTY == by_library(np.array([])) == merged_sketch([]) == merged_sketch([EMPTY, EMPTY])
    assert quantile(EMPTY, 0.5) is None


@pytest.mark.parametrize("value", [0.0, -1.5, 1e308, float("inf"), 2**63 - 1, 7])
def test_a_single_value_is_every_quantile(value: float) -> None:
    sketch = sketch_of([value])
    assert (
        sketch == by_library(np.array([value], float)) == merged_sketch([EMPTY, sketch]) == sketch_of(np.array([value]))
    )
    assert [quantile(sketch, fraction) for fraction in (0.0, 0.5, 1.0)] == [float(value)] * 3


@pytest.mark.parametrize("count", [2, FEW, FEW + 1, KLL_K])
def test_up_to_k_values_are_exact(count: int) -> None:
    values = shuffled(count)
    for sketch in (sketch_of(values), in_tree(slices(values, 5), 2), merged_sketch([by_library(values), EMPTY])):
        assert [quantile(sketch, (rank + 0.5) / count) for rank in range(count)] == list(range(count))


@pytest.mark.parametrize("count", [KLL_K + 1, 333, HELD_MAX, PART, PART + 1, 10 * PART + 1])
def test_more_than_k_values_are_within_the_bound(count: int) -> None:
    assert_right(sketch_of(shuffled(count)), shuffled(count))


@pytest.mark.parametrize("count", [1, FEW, 100, 2_000])
def test_nan_is_left_out(count: int) -> None:
    values = shuffled(count)
    holey = np.insert(values, [0, count // 2, count], np.nan)
    assert read(sketch_of(holey)).n == read(by_library(holey)).n == count
    assert sketch_of([float("nan")]) == sketch_of(np.full(50, np.nan)) == EMPTY
    if count <= PART:
        assert sketch_of(holey) == sketch_of(values)


# -- sketches of others -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 150, 5_000])
@pytest.mark.parametrize("k", [8, 50, 200, 3_000])
def test_sketches_of_the_library_can_be_merged(count: int, k: int) -> None:
    values = shuffled(2 * count)
    theirs, ours = by_library(values[:count], k), sketch_of(values[count:])
    bound = datasketches.kll_doubles_sketch.get_normalized_rank_error(min(k, KLL_K) if count > k else KLL_K, False)
    for sketch in (merged_sketch([theirs, ours]), merged_sketch([ours, theirs])):
        assert_right(sketch, values, 2 * bound)
        assert read(sketch).normalized_rank_error(False) == bound
    by_it = read(theirs)
    by_it.merge(read(ours))
    assert by_it.n == 2 * count


def test_the_library_goes_on_with_our_sketches() -> None:
    values = shuffled(COUNT)
    sketch = read(sketch_of(values[:5_000]))
    sketch.update(values[5_000:].copy())
    assert_right(bytes(sketch.serialize()), values, 2 * BOUND)


# -- bytes that are no sketch -----------------------------------------------------------------------------------------

GIVEN = [sketch_of(shuffled(count)) for count in (0, 1, 5, 300, 5_000)]
GIVEN += [by_library(shuffled(300), k) for k in (8, 200)]


def changed(sketch: bytes, at: int, new: bytes) -> bytes:
    return sketch[:at] + new + sketch[at + len(new) :]


def double(value: float) -> bytes:
    return np.float64(value).tobytes()


@pytest.mark.parametrize(
    "given_bytes",
    [
        b"garbage!",
        bytes(8),
        changed(GIVEN[2], 0, b"\x02"),  # as long as a single value
        changed(GIVEN[2], 1, b"\x03"),  # version
        changed(GIVEN[2], 2, b"\x07"),  # family
        changed(GIVEN[2], 3, b"\x04"),  # flags
        changed(GIVEN[2], 4, b"\x07\x00"),  # k
        changed(GIVEN[2], 6, b"\x09"),  # smallest level
        changed(GIVEN[2], 8, b"\x06"),  # values seen
        changed(GIVEN[4], 14, b"\x01"),  # more of them than can be
        changed(GIVEN[2], 18, b"\x00"),  # no level
        changed(GIVEN[2], 18, b"\xff"),
        changed(GIVEN[4], 20, b"\xff\xff\xff\xff"),  # where levels begin
        changed(GIVEN[4], 28, bytes(4)),
        changed(GIVEN[2], 24, double(np.nan)),  # lowest
        changed(GIVEN[2], 32, double(1.0)),  # highest
        changed(GIVEN[2], 40, double(np.nan)),
        changed(GIVEN[1], 8, double(np.nan)),
        GIVEN[2] + bytes(8),
        GIVEN[2] * 2,
    ],
)
def test_what_is_no_sketch_is_refused(given_bytes: bytes) -> None:
    with pytest.raises(FrameError, match=f"^{len(given_bytes) + 8} bytes are not 2 KLL sketches of doubles$"):
        merged_sketch([EMPTY, given_bytes])


@pytest.mark.parametrize("sketch", GIVEN)
def test_a_part_of_a_sketch_is_refused(sketch: bytes) -> None:
    for size in {*range(min(100, len(sketch))), len(sketch) - 8, len(sketch) - 1}:
        with pytest.raises(FrameError):
            merged_sketch([EMPTY, sketch[:size]])


def edits() -> Iterable[st.SearchStrategy[tuple[int, bytes]]]:
    """Of what a header or a level may be taken for."""
    yield st.tuples(st.integers(0, 60), st.binary(min_size=1, max_size=4))
    yield st.tuples(st.integers(0, 15).map(lambda word: 4 * word), st.binary(min_size=4, max_size=4))
    yield st.tuples(st.integers(0, 5_000), st.floats().map(double))


@given(st.sampled_from(GIVEN), st.lists(st.one_of(*edits()), min_size=1, max_size=3), st.sampled_from(GIVEN))
@settings(max_examples=500)
def test_damaged_sketches_are_refused_or_read(sketch: bytes, new: list[tuple[int, bytes]], other: bytes) -> None:
    for at, what in new:
        sketch = changed(sketch, at, what)
    try:
        merged = [merged_sketch([EMPTY, sketch]), merged_sketch([sketch, other]), merged_sketch([other, sketch])]
    except FrameError:
        return
    for found in [sketch, *merged]:
        quantiles = [quantile(found, fraction) for fraction in (0.0, 0.3, 1.0)]
        assert None in quantiles or quantiles[0] <= quantiles[2]


def test_a_level_that_is_not_sorted_is_refused() -> None:
    """Quantiles of it would not rise."""
    sketch = next(one for one in GIVEN if len(one) > 28 and one[18] == 2 and one[20:24] == one[24:28])
    values = 5 * 4 + 2 * 4 + 16
    damaged = changed(changed(sketch, values - 8, double(131_072.0)), values, double(131_072.0))
    assert quantile(damaged, 0.0) > quantile(damaged, 1.0)
    with pytest.raises(FrameError):
        merged_sketch([EMPTY, damaged])


def test_other_types_are_refused() -> None:
    with pytest.raises(TypeError):
        merged_sketch(["text"])
