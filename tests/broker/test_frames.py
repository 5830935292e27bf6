"""Frames: what is encoded is decoded, whatever it is; and whatever is decoded, nothing but a FrameError happens."""

from datetime import UTC, datetime
from typing import Any, get_args

import msgspec
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from catchment import Filter
from catchment.broker import Frame, decode, encode
from catchment.broker.messages import (
    Acknowledged,
    Advertised,
    AdvertiseTopic,
    Confirmed,
    Delivered,
    Message,
    Notified,
    Published,
    PublishEvents,
    Refused,
    Subscribed,
    SubscribeTo,
    Told,
    Unadvertised,
    UnadvertiseTopic,
    UnsubscribeFrom,
    WindowValue,
)
from catchment.model.errors import FrameError
from catchment.model.packing import batch_from_plain, batch_to_plain
from catchment.model.schema import Schema, Type
from tests.model import strategies

SCHEMA = Schema({"speed": Type.FLOAT, "highway": Type.STRING, "vehicles": Type.INT, "open": Type.BOOL})
NAMES = st.sampled_from(["traffic", "", "é\U0001f600", "a b"])
NUMBERS = st.integers(0, 2**62)
EXTRAS = st.dictionaries(NAMES, st.binary(max_size=8), max_size=2)
FILTERS = strategies.filters(SCHEMA, leaves_max=3).map(lambda condition: condition.within(SCHEMA))


@st.composite
def batches(draw: st.DrawFn) -> pa.RecordBatch:
    rows = draw(st.integers(0, 5))
    columns = {"event_id": pa.array([f"b1/{n}" for n in range(rows)], pa.string())}
    for name, kind in SCHEMA.attributes.items():
        values = st.none() | strategies.values(kind)
        columns[name] = pa.array(draw(st.lists(values, min_size=rows, max_size=rows)), kind.arrow)
    columns["ts"] = pa.array([datetime(2026, 5, 1, tzinfo=UTC)] * rows, Type.TIMESTAMP.arrow)
    batch = pa.RecordBatch.from_pydict(columns)
    return batch.slice(draw(st.integers(0, rows)))


VALUES = st.builds(
    WindowValue,
    NAMES,
    NUMBERS,
    NUMBERS,
    st.dictionaries(NAMES, st.none() | NAMES, max_size=2),
    NAMES,
    st.none() | st.floats(allow_nan=False),
    NAMES,
    NUMBERS,
    st.integers(0, 99),
)
MESSAGES: st.SearchStrategy[Any] = st.one_of(
    st.builds(AdvertiseTopic, NUMBERS, NAMES),
    st.builds(UnadvertiseTopic, NUMBERS, NAMES),
    st.builds(SubscribeTo, NUMBERS, NAMES, NAMES),
    st.builds(UnsubscribeFrom, NUMBERS, NAMES),
    st.builds(PublishEvents, NUMBERS, NAMES, batches()),
    st.builds(Acknowledged, NUMBERS, st.lists(NAMES, max_size=2).map(tuple)),
    st.builds(Refused, NUMBERS, NAMES),
    st.builds(Delivered, NAMES, batches(), st.dictionaries(NAMES, st.just(()), max_size=2)),
    st.builds(Advertised, NAMES, NUMBERS, NUMBERS, EXTRAS),
    st.builds(Unadvertised, NAMES, NUMBERS, NUMBERS, EXTRAS),
    st.builds(Subscribed, NAMES, NUMBERS, st.tuples(FILTERS), st.tuples(FILTERS), EXTRAS),
    st.builds(Published, NAMES, batches(), EXTRAS),
    st.builds(Confirmed, NUMBERS),
    st.builds(Told, NAMES, st.binary(max_size=12), NUMBERS, st.booleans()),
    st.builds(Notified, st.lists(VALUES, max_size=2).map(tuple)),
)


def test_every_kind_of_message_is_drawn() -> None:
    assert len(get_args(Message)) == 15


@given(st.builds(Frame, NAMES, st.integers(1, 2**62), MESSAGES))
@settings(max_examples=300, deadline=None)
def test_what_is_encoded_is_decoded(frame: Frame) -> None:
    again = decode(encode(frame))
    assert again == frame
    assert str(again) == str(frame)


@given(batches())
@settings(max_examples=200, deadline=None)
def test_batches_keep_their_values_and_types(batch: pa.RecordBatch) -> None:
    again = batch_from_plain(batch_to_plain(batch))
    assert again.schema == batch.schema
    assert again.to_pylist() == batch.to_pylist()


ONE = encode(Frame("b1", 1, Published("traffic", pa.RecordBatch.from_pydict({"event_id": ["a"], "speed": [1.5]}))))


@given(st.binary(max_size=200))
@example(b"")
@settings(max_examples=300, deadline=None)
def test_arbitrary_bytes_are_no_frame(data: bytes) -> None:
    with pytest.raises(FrameError):
        decode(data)
    with pytest.raises(FrameError):
        decode(ONE[:3] + data)


@given(st.data())
@settings(max_examples=500, deadline=None)
def test_a_damaged_frame_is_another_frame_or_an_error(data: st.DataObject) -> None:
    whole = encode(data.draw(st.builds(Frame, NAMES, st.just(7), MESSAGES)))
    place = data.draw(st.integers(0, len(whole) - 1))
    damaged = whole[:place] + bytes([data.draw(st.integers(0, 255))]) + whole[place + 1 :]
    for bad in (damaged, whole[:place]):
        try:
            found = decode(bad)
        except FrameError:
            continue
        assert decode(encode(found)) == found
        assert str(found)


def _plain(rows: int, *column: Any) -> bytes:
    return ONE[:3] + msgspec.msgpack.encode(["b1", 1, "Published", ["traffic", [rows, [list(column)]], {}]])


@pytest.mark.parametrize(
    ("data", "named"),
    [
        (b"XY" + ONE[2:], "begins with b'XY'; accepted is b'CF'"),
        (ONE[:2] + b"\x02" + ONE[3:], r"version \[2\]; accepted is 1"),
        (ONE[:2], r"version \[\]"),
        (ONE[:3] + msgspec.msgpack.encode(["b1", 0, "Confirmed", [1]]), "sequence 0; accepted are numbers from 1"),
        (ONE[:3] + msgspec.msgpack.encode(["b1", 1, "Shouted", [1]]), "Shouted"),
        (_plain(-1, "a", "int", None, b"", None), "number of events is -1"),
        (_plain(10**9, "a", "int", None, b"", None), "at most 1000000"),
        (_plain(1, "a", "colour", None, b"", None), "type of 'a' is colour"),
        (_plain(1, "a", "int", None, b"1234567", None), "accepted: 8 bytes"),
        (_plain(1, "a", "int", b"12", b"12345678", None), "validity of 'a'"),
        (_plain(1, "a", "string", None, b"\0\0\0\0\5\0\0\0", b"abc"), "ends of 'a'"),
        (_plain(1, "a", "string", None, b"\0\0\0\0\2\0\0\0", b"\xff\xfe"), "'a' is damaged: .*UTF8"),
    ],
)
def test_the_error_says_what_is_wrong(data: bytes, named: str) -> None:
    with pytest.raises(FrameError, match=named):
        decode(data)


def test_a_frame_reads_as_a_line_of_a_trace() -> None:
    slow, fast = Filter.parse("speed < 60"), Filter.parse("speed > 90")
    assert str(
        Frame("b2", 7, Subscribed("traffic", 1, (slow,), (fast,), {"count": msgspec.msgpack.encode([1, 2])}))
    ) == ("b2#7 SUB traffic [speed < 60] UNSUB traffic [speed > 90] +count=[1, 2]")
    assert str(decode(ONE)) == "b1#1 PUB traffic a"
