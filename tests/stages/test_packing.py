"""What is packed for Spark comes back as it was, whatever its width and whatever it lies beside."""

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from catchment.stages import PACKED_SCHEMA, PARTIAL_SCHEMA, packed, unpacked

small, any_width = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)


def lists(kind: pa.DataType, numbers: st.SearchStrategy[int]) -> st.SearchStrategy[list[object]]:
    if kind == pa.int64():
        return st.lists(numbers, max_size=3)
    if kind == pa.float64():
        return st.lists(st.floats(allow_nan=False), max_size=3)
    return st.lists(st.text(max_size=3) if kind == pa.string() else st.binary(max_size=3), max_size=3)


@st.composite
def partials(draw: st.DrawFn) -> pa.RecordBatch:
    numbers = draw(st.sampled_from([small, any_width]))
    fields = {
        field.name: lists(field.type.value_type, numbers) if pa.types.is_list(field.type) else any_width
        for field in PARTIAL_SCHEMA
    }
    return pa.RecordBatch.from_pylist(draw(st.lists(st.fixed_dictionaries(fields), max_size=4)), PARTIAL_SCHEMA)


@given(st.lists(partials(), min_size=1, max_size=4), st.integers(0, 3))
def test_comes_back_as_it_was(batches: list[pa.RecordBatch], skipped: int) -> None:
    side_by_side = pa.Table.from_batches([packed(batch) for batch in batches], PACKED_SCHEMA).slice(skipped)
    expected = pa.Table.from_batches(batches).slice(skipped)
    rows = side_by_side.combine_chunks().to_batches()
    assert pa.Table.from_batches(map(unpacked, rows), PARTIAL_SCHEMA).to_pylist() == expected.to_pylist()


def test_small_numbers_take_half_the_room() -> None:
    row = {field.name: [1, 2] if pa.types.is_list(field.type) else 1 for field in PARTIAL_SCHEMA}
    row.update(groups=[], blob=[], real=[], rest=[])
    narrow = packed(pa.RecordBatch.from_pylist([row], PARTIAL_SCHEMA))
    wide = packed(pa.RecordBatch.from_pylist([{**row, "slices": [1, 2**40]}], PARTIAL_SCHEMA))
    assert [len(batch.column("slices")[0].as_py()) for batch in (narrow, wide)] == [8, 16]
