"""Lines of text as events, or kept aside with a reason. No Spark here: what a task does with its lines."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from catchment.model.errors import EventError
from catchment.model.schema import Type
from catchment.pipeline.parsing import LINE_COLUMNS, Field, Layout, parse_lines
from catchment.workloads import loading

FIELDS = (
    Field("event_id", Type.STRING, "id"),
    Field("topic", Type.STRING, None, "weather"),
    Field("broker", Type.STRING, "station", "town"),
    Field("ts", Type.TIMESTAMP, "time"),
    Field("celsius", Type.FLOAT, "celsius"),
    Field("count", Type.INT, "count"),
    Field("wet", Type.BOOL, "wet"),
    Field("note", Type.STRING, "note"),
)
CSV = Layout("csv", FIELDS)
JSON = Layout("json", FIELDS)
HEADER = "id,station,time,celsius,count,wet,note"


def lines_of(
    lines: Iterable[str | bytes], *, file: str = "file:///data/a.csv", start: int = 0, size: int | None = None
) -> pa.RecordBatch:
    content = [line.encode() if isinstance(line, str) else line for line in lines]
    length = sum(len(line) + 1 for line in content)
    rows = len(content)
    columns = [pa.array(content, pa.binary()), pa.repeat(file, rows)]
    columns += [pa.array([number] * rows, pa.int64()) for number in (start, length, length if size is None else size)]
    return pa.record_batch(columns, names=list(LINE_COLUMNS))


def parsed(layout: Layout, *batches: pa.RecordBatch) -> tuple[list[dict[str, Any]], list[tuple[Any, ...]]]:
    rows = [row for batch in parse_lines(iter(batches), layout) for row in batch.to_pylist()]
    good = [{f.name: row[f.name] for f in FIELDS} for row in rows if row["_reason"] is None]
    aside = [(row["_file"], row["_line"], row["_raw"], row["_reason"]) for row in rows if row["_reason"] is not None]
    return good, aside


def test_a_good_csv_row_is_an_event() -> None:
    good, aside = parsed(CSV, lines_of([HEADER, 'r1,hill,2024-03-01T06:00:00Z,1.5,7,true,"rain, wind"']))
    assert not aside
    assert good[0]["ts"].isoformat() == "2024-03-01T06:00:00+00:00"
    values = [good[0][name] for name in ("event_id", "topic", "broker", "celsius", "count", "wet", "note")]
    assert values == ["r1", "weather", "hill", 1.5, 7, True, "rain, wind"]


def test_an_empty_cell_is_null_and_an_empty_line_is_no_row() -> None:
    good, aside = parsed(CSV, lines_of([HEADER, "r1,,2024-03-01,,,,", "", "  ", "r2,hill,,,,,\r"]))
    assert not aside
    assert [row["broker"] for row in good] == ["town", "hill"]  # the description's broker, where the file has none
    assert [row["celsius"] for row in good] == [None, None]
    assert good[1]["ts"] is None  # for the stages to refuse: the row is well formed


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("r1,hill,2024-03-01,1.5,7,true", "6 fields, expected 7"),
        ("r1,hill,2024-03-01,1.5,7,true,a,b", "8 fields, expected 7"),
        ('r1,hill,2024-03-01,1.5,7,true,"open', "unexpected end of data"),
        ('r1,hill,2024-03-01,1.5,7,true,"a"b', "',' expected after '\"'"),
        ("r1,hill,2024-03-01,warm,7,true,", "celsius 'warm': not a number"),
        ("r1,hill,2024-03-01,NaN,7,true,", "celsius 'NaN': NaN and infinities are no values"),
        ("r1,hill,2024-03-01,-inf,7,true,", "celsius '-inf': NaN and infinities are no values"),
        ("r1,hill,2024-03-01,1e999,7,true,", "celsius '1e999': NaN and infinities are no values"),
        ("r1,hill,2024-03-01,1.5,7.5,true,", "count '7.5': not a whole number"),
        ("r1,hill,2024-03-01,1.5,9223372036854775808,true,", "count '9223372036854775808': does not fit 64 bits"),
        ("r1,hill,2024-03-01,1.5,7,maybe,", "wet 'maybe': not true or false"),
        ("r1,hill,yesterday,1.5,7,true,", "time 'yesterday': not an ISO 8601 time"),
        ("r1,hill,2024-02-30 06:00:00,1.5,7,true,", "time '2024-02-30 06:00:00': not an ISO 8601 time"),
        (",hill,2024-03-01,1.5,7,true,", "event_id is missing"),
        (b"r1,hill,2024-03-01,1.5,7,true,\xff", "not UTF-8"),
    ],
)
def test_a_bad_csv_row_is_kept_aside(line: str | bytes, reason: str) -> None:
    good, aside = parsed(CSV, lines_of([HEADER, "r0,hill,2024-03-01,1,1,true,", line, "r9,hill,2024-03-01,1,1,true,"]))
    raw = line if isinstance(line, str) else line.decode("utf-8", "backslashreplace")
    assert aside == [("/data/a.csv", 3, raw, reason)]
    assert [row["event_id"] for row in good] == ["r0", "r9"]  # its neighbours are not harmed


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"id": "r1", "celsius": 1.5', "broken JSON: Input data was truncated"),
        ('{"id": "r1", "celsius": NaN}', "broken JSON: invalid character (byte 24)"),
        ('{"id": "r1", "celsius": "NaN"}', "Expected `float | null`, got `str` - at `$.celsius`"),
        ('{"id": "r1", "count": 1.5}', "Expected `int | null`, got `float` - at `$.count`"),
        ('{"id": "r1", "count": 9223372036854775808}', "Expected `int` <= 9223372036854775807 - at `$.count`"),
        ('{"id": "r1", "celsius": 1e999}', "Number out of range - at `$.celsius`"),
        ('{"id": "r1", "wet": "true"}', "Expected `bool | null`, got `str` - at `$.wet`"),
        ('{"id": "r1", "time": "noon"}', "time 'noon': not an ISO 8601 time"),
        ('{"celsius": 1.5}', "event_id is missing"),
        ("[1, 2]", "Expected `object`, got `array`"),
        (b'{"id": "r1", "note": "\xff"}', "not UTF-8"),
    ],
)
def test_a_bad_json_line_is_kept_aside(line: str | bytes, reason: str) -> None:
    good, aside = parsed(JSON, lines_of(['{"id": 8}', line, '{"id": "r9", "extra": [1]}']))
    assert [(line_number, why) for _, line_number, _, why in aside] == [(2, reason)]
    assert [row["event_id"] for row in good] == ["8", "r9"]


@pytest.mark.parametrize(
    ("layout", "lines"),
    [
        (CSV, [HEADER, "r1,hill,2024-03-01,1.5,7,true,a", "r2,hill,2024-03-01,1.5,7,true,a", "r3,,,NaN,7,,"]),
        (JSON, ['{"id": "r1", "celsius": 1.5, "count": 7}', '{"id": "r2", "count": 7}', '{"id": 3, "celsius": 1e999}']),
    ],
)
def test_what_nobody_asks_about_is_looked_at_and_not_handed_on(layout: Layout, lines: list[str]) -> None:
    (batch,) = parse_lines(iter([lines_of(lines)]), replace(layout, asked=frozenset({"count"})))
    assert batch.schema.names[:5] == ["event_id", "topic", "broker", "ts", "count"]
    assert not {"celsius", "wet", "note"} & set(batch.schema.names)
    assert batch.column("count").to_pylist() == [7, 7, None]
    assert [reason is None for reason in batch.column("_reason").to_pylist()] == [True, True, False]


def test_every_file_is_read_by_its_own_header() -> None:
    other = lines_of(
        ["celsius,id,time,station,count,wet,note", "2.5,b1,2024-03-01,hill,1,,"], file="file:///data/b.csv"
    )
    good, aside = parsed(CSV, lines_of([HEADER, "a1,hill,2024-03-01,1.5,1,,"]), other)
    assert not aside
    assert [(row["event_id"], row["celsius"]) for row in good] == [("a1", 1.5), ("b1", 2.5)]


def test_rows_of_a_file_without_a_column_are_kept_aside() -> None:
    good, aside = parsed(CSV, lines_of(["id,station,time,count,wet,note", "a1,hill,2024-03-01,1,,"]))
    assert not good
    assert aside[0][3] == "the file has no column celsius; it has id, station, time, count, wet, note"


def test_a_large_file_is_read_in_pieces_by_the_header_of_the_first() -> None:
    layout = Layout("csv", FIELDS, header=tuple(HEADER.split(",")))
    first = lines_of([HEADER, "a1,hill,2024-03-01,1.5,1,,"], size=1_000)
    later = lines_of(["a2,hill,2024-03-01,2.5,1,,", "a3"], start=500, size=1_000)
    good, aside = parsed(layout, first, later)
    assert [row["event_id"] for row in good] == ["a1", "a2"]
    assert aside == [("/data/a.csv", None, "a3", "1 fields, expected 7")]
    another = lines_of([HEADER.replace("celsius", "kelvin"), "a1,hill,2024-03-01,1.5,1,,"], size=1_000)
    with pytest.raises(EventError, match=r"a.csv has the columns .*kelvin.*; accepted .* those of the first file"):
        parsed(layout, another)


def test_lines_are_counted_across_batches_and_the_byte_order_mark_is_no_name() -> None:
    first = lines_of(["\ufeff" + HEADER, "a1,hill,2024-03-01,1,1,,"], size=60)
    second = lines_of(["a2,hill,x,1,1,,"], size=60)
    good, aside = parsed(Layout("csv", FIELDS, header=tuple(HEADER.split(","))), first, second)
    assert [row["event_id"] for row in good] == ["a1"]
    assert aside[0][1] == 3


CELLS = st.one_of(
    st.integers(-(2**70), 2**70).map(str),
    st.floats().map(repr),
    st.from_regex(r"[+-]?[0-9]{0,20}\.?[0-9]{0,20}(e[+-]?[0-9]{1,3})?", fullmatch=True),
    st.datetimes().map(str),
    st.from_regex(
        r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,7})?(Z|\+00:00)?", fullmatch=True
    ),
    st.text(st.characters(codec="utf-8", exclude_characters='",\r\n'), max_size=6),
)


@given(st.lists(CELLS, min_size=1, max_size=5), st.sampled_from([Type.INT, Type.FLOAT, Type.TIMESTAMP]))
def test_a_column_is_cast_to_what_the_parser_of_one_cell_says(cells: list[str], kind: Type) -> None:
    parsers = {Type.INT: loading.integer, Type.FLOAT: loading.decimal, Type.TIMESTAMP: loading.time_us}
    fields = (Field("event_id", Type.STRING, "id"), Field("value", kind, "value"))
    lines = lines_of(["id,value", *(f"{at},{cell}" for at, cell in enumerate(cells))])
    table = pa.Table.from_batches(parse_lines(iter([lines]), Layout("csv", fields)))
    values = table.column("value").cast(pa.int64()) if kind is Type.TIMESTAMP else table.column("value")
    for cell, value, reason in zip(cells, values.to_pylist(), table.column("_reason").to_pylist(), strict=True):
        assert (value, reason) == outcome(parsers[kind], cell.strip())


def outcome(parser: Callable[[str], Any], text: str) -> tuple[Any, str | None]:
    try:
        return parser(text) if text else None, None
    except ValueError as error:
        return None, f"value {text!r}: {error}"
