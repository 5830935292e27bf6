"""Frames: what is encoded is decoded, whatever it is; and whatever is decoded, nothing but a FrameError happens."""

from datetime import UTC, datetime
from hashlib import blake2b
from typing import Any, get_args

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from catchment import Filter
from catchment.broker import FRAME_BYTES_MAX, Frame, FrameReader, FrameWriter, opened
from catchment.broker.messages import (
    Acknowledged,
    AdvanceTime,
    Advertised,
    AdvertiseTopic,
    AdviceMessage,
    AskAdvice,
    Confirmed,
    Delivered,
    Dropped,
    Informed,
    Message,
    Notified,
    Published,
    PublishEvents,
    Recorded,
    Refused,
    RoomChanged,
    Subscribed,
    SubscribeTo,
    TopicAdded,
    Unadvertised,
    UnadvertiseTopic,
    UnsubscribeFrom,
)
from catchment.model.errors import FrameError
from catchment.model.schema import Schema, Type
from catchment.stages import ANSWER_SCHEMA
from tests.model import strategies

SCHEMA = Schema({"speed": Type.FLOAT, "highway": Type.STRING, "vehicles": Type.INT, "open": Type.BOOL})
NAMES = st.sampled_from(["traffic", "", "é\U0001f600", "a b"])
NUMBERS = st.integers(0, 2**62)
EXTRAS = st.dictionaries(NAMES, st.binary(max_size=8), max_size=2)
ROWS = st.lists(st.integers(0, 2**31 - 1), max_size=3).map(lambda rows: np.array(rows, np.int32))
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


@st.composite
def answers(draw: st.DrawFn) -> pa.RecordBatch:
    value = st.fixed_dictionaries(
        {
            "subscription": NAMES,
            "window_start": st.integers(0, 10**15),
            "window_end": st.integers(0, 10**15),
            "group": st.dictionaries(NAMES, st.none() | NAMES, max_size=2).map(lambda group: list(group.items())),
            "output": NAMES,
            "value": st.none() | st.floats(allow_nan=False),
            "exact": NAMES,
            "publications": NUMBERS,
            "revision": st.integers(0, 99),
            "problem": st.none() | NAMES,
        }
    )
    return pa.RecordBatch.from_pylist(draw(st.lists(value, max_size=2)), ANSWER_SCHEMA)


@st.composite
def published(draw: st.DrawFn) -> Published:
    events = draw(batches())
    served = draw(st.lists(st.none() | st.binary(max_size=16), min_size=events.num_rows, max_size=events.num_rows))
    notes = pa.RecordBatch.from_pydict({"some/served": pa.array(served, pa.binary())})
    return Published(draw(NAMES), events, draw(st.sampled_from([None, notes])))


MESSAGES: st.SearchStrategy[Any] = st.one_of(
    st.builds(AdvertiseTopic, NUMBERS, NAMES),
    st.builds(UnadvertiseTopic, NUMBERS, NAMES),
    st.builds(SubscribeTo, NUMBERS, NAMES, NAMES),
    st.builds(UnsubscribeFrom, NUMBERS, NAMES),
    st.builds(PublishEvents, NUMBERS, NAMES, batches()),
    st.builds(AdvanceTime, NUMBERS, NAMES, st.integers(-(2**62), 2**62)),
    st.builds(AskAdvice, NUMBERS, NAMES, st.binary(max_size=12)),
    st.builds(Informed, NAMES, st.binary(max_size=12)),
    st.builds(Acknowledged, NUMBERS, st.lists(NAMES, max_size=2).map(tuple)),
    st.builds(Refused, NUMBERS, NAMES),
    st.builds(Delivered.of, NAMES, batches(), st.dictionaries(NAMES, ROWS, max_size=2)),
    st.builds(Dropped, NUMBERS),
    st.builds(TopicAdded, NAMES, st.dictionaries(NAMES, NAMES, max_size=3)),
    st.builds(Advertised, NAMES, NUMBERS, EXTRAS),
    st.builds(Unadvertised, NAMES, NUMBERS, EXTRAS),
    st.builds(Subscribed, NAMES, NUMBERS, st.tuples(FILTERS), st.tuples(FILTERS), EXTRAS),
    published(),
    st.builds(Confirmed, NUMBERS),
    st.builds(RoomChanged, st.booleans()),
    st.builds(AdviceMessage, NAMES, st.binary(max_size=12), NUMBERS),
    st.builds(Notified, answers()),
    st.builds(Recorded, NUMBERS, st.integers(-(2**62), 2**62), NAMES, st.none() | batches(), NAMES),
)


def test_every_kind_of_message_is_drawn() -> None:
    assert len(get_args(Message)) == 22


def encode(*messages: Message, sender: str = "b1", after: int = 0, writer: FrameWriter | None = None) -> bytes:
    (data,) = (writer or FrameWriter()).frames(sender, messages, incarnation=1, epoch=1, after=after, covers=9)
    return data


def said(message: Message) -> Any:
    """A message as something that can be compared."""
    plain = {name: getattr(message, name) for name in message.__struct_fields__}
    if isinstance(message, Delivered):
        plain |= {"ends": message.ends.tolist(), "rows": message.rows.tolist()}
    return type(message), plain


@given(st.lists(st.lists(MESSAGES, min_size=1, max_size=4), min_size=1, max_size=3))
@settings(max_examples=200, deadline=None)
def test_what_is_encoded_is_decoded(frames: list[list[Message]]) -> None:
    writer, reader = FrameWriter(), FrameReader()
    for number, messages in enumerate(frames):
        frame = reader.decode(encode(*messages, after=number, writer=writer))
        numbers = frame.incarnation, frame.epoch, frame.sequence, frame.covers
        assert (frame.sender, numbers) == ("b1", (1, 1, number + 1, 9))
        assert list(map(said, frame.messages)) == list(map(said, messages))
        assert list(map(str, frame.messages)) == list(map(str, messages))


def test_a_schema_is_named_once() -> None:
    writer, reader = FrameWriter(), FrameReader()
    batch = pa.RecordBatch.from_pydict({"event_id": ["a"], "speed": [1.5]})
    sizes = []
    for number in range(3):
        data = encode(Published("traffic", batch), after=number, writer=writer)
        assert reader.decode(data).messages[0].events == batch  # type: ignore[union-attr]
        sizes.append(len(data))
    assert sizes[0] > sizes[1] == sizes[2]
    with pytest.raises(FrameError, match="which was not named before"):
        FrameReader().decode(data)


def test_long_messages_are_split_and_single_events_that_are_too_long_are_named() -> None:
    texts = [f"{number:03d}" * 2_000 for number in range(600)]
    batch = pa.RecordBatch.from_pydict({"event_id": [f"e{n}" for n in range(600)], "highway": texts})
    wanted = {"s": np.arange(0, 600, 7, dtype=np.int32)}
    writer, reader = FrameWriter(), FrameReader()
    how = {"incarnation": 1, "epoch": 1, "after": 4, "covers": 2}
    frames = writer.frames("b1", [Published("t", batch), Delivered.of("t", batch, wanted), Confirmed(3)], **how)
    assert len(frames) > 6
    assert max(map(len, frames)) <= FRAME_BYTES_MAX
    decoded = [reader.decode(data) for data in frames]
    assert [frame.sequence for frame in decoded] == list(range(5, 5 + len(frames)))
    messages = [message for frame in decoded for message in frame.messages]
    published = [one.events for one in messages if isinstance(one, Published)]
    assert pa.concat_batches(published) == batch
    delivered = [one for one in messages if isinstance(one, Delivered)]
    ids = [one.events.column("event_id")[row].as_py() for one in delivered for row in one.wanted["s"].tolist()]
    assert ids == [f"e{n}" for n in range(0, 600, 7)]
    assert isinstance(messages[-1], Confirmed)
    long = pa.RecordBatch.from_pydict({"event_id": ["e"], "highway": ["x" * FRAME_BYTES_MAX]})
    with pytest.raises(FrameError, match="does not fit into a frame of 1000000 bytes: PUB t e; accepted are smaller"):
        writer.frames("b1", [Published("t", long)], **how)


ONE = encode(Published("traffic", pa.RecordBatch.from_pydict({"event_id": ["a"], "speed": [1.5]})))


@given(st.binary(max_size=200))
@example(b"")
@settings(max_examples=300, deadline=None)
def test_arbitrary_bytes_are_no_frame(data: bytes) -> None:
    with pytest.raises(FrameError):
        FrameReader().decode(data)
    with pytest.raises(FrameError):
        FrameReader().decode(ONE[:3] + data)


@given(st.data())
@settings(max_examples=500, deadline=None)
def test_a_damaged_frame_is_another_frame_or_an_error(data: st.DataObject) -> None:
    whole = encode(data.draw(MESSAGES), after=6)
    place = data.draw(st.integers(0, len(whole) - 1))
    damaged = whole[:place] + bytes([data.draw(st.integers(0, 255))]) + whole[place + 1 :]
    for bad in (damaged, whole[:place]):
        try:
            found = FrameReader().decode(bad)
        except FrameError:
            continue
        assert all(map(str, found.messages))
        again = FrameReader().decode(encode(*found.messages)) if found.messages else found
        assert list(map(str, again.messages)) == list(map(str, found.messages))


def _frame(*messages: Any, schemas: dict[str, bytes] | None = None, sequence: int = 1) -> bytes:
    return ONE[:3] + msgspec.msgpack.encode(["b1", 1, 1, sequence, 0, schemas or {}, messages])


def _named(schema: pa.Schema) -> tuple[str, bytes]:
    data = schema.serialize().to_pybytes()
    return blake2b(data, digest_size=8).hexdigest(), data


INTS = _named(pa.schema([("a", pa.int64())]))
LISTS = _named(pa.schema([("a", pa.list_(pa.int64()))]))
TWICE = _named(pa.schema([("a", pa.int64()), ("a", pa.int64())]))
BODY = pa.RecordBatch.from_pydict({"a": [1, 2]}).serialize().to_pybytes()
PAIRS = _named(pa.schema([("a", pa.int64()), ("b", pa.string())]))


@pytest.mark.parametrize(
    ("data", "named"),
    [
        (b"XY" + ONE[2:], "begins with b'XY'; accepted is b'CF'"),
        (ONE[:2] + b"\x01" + ONE[3:], r"version \[1\]; accepted is 2"),
        (ONE[:2], r"version \[\]"),
        (ONE + b"x" * FRAME_BYTES_MAX, "accepted are at most 1000000"),
        (_frame(["Confirmed", 1], sequence=0), "Expected `int` >= 1"),
        (_frame(["Shouted", 1]), "Invalid value 'Shouted'"),
        (_frame(["Published", "t", ["0123", BODY], {}]), "events of the schema '0123', which was not named before"),
        (_frame(["Published", "t", [INTS[0], BODY], {}], schemas={"other": INTS[1]}), "its schema 'other' is named"),
        (_frame(["Published", "t", [INTS[0], BODY[:40]], {}], schemas=dict([INTS])), "do not fit their schema"),
        (_frame(["Published", "t", [PAIRS[0], BODY], {}], schemas=dict([PAIRS])), "do not fit their schema"),
        (
            _frame(["Published", "t", 7, {}], schemas=dict([INTS])),
            "events are '7'; accepted are the name of a schema and a body",
        ),
        (_frame(schemas=dict([LISTS])), "column 'a' is of type list<item: int64>, which is not accepted"),
        (_frame(schemas=dict([TWICE])), "its schema has 2 columns; accepted are 4096 of different names"),
        (_frame(["Delivered", "t", [INTS[0], BODY], ["s"], b"123", b""], schemas=dict([INTS])), "no list of 32-bit"),
        (
            _frame(["Delivered", "t", [INTS[0], BODY], ["s"], b"", b""], schemas=dict([INTS])),
            "of 0 subscriptions; 1 are",
        ),
    ],
)
def test_the_error_says_what_is_wrong(data: bytes, named: str) -> None:
    with pytest.raises(FrameError, match=named):
        FrameReader().decode(data)


def test_a_frame_reads_as_a_line_of_a_trace() -> None:
    slow, fast = Filter.parse("speed < 60"), Filter.parse("speed > 90")
    change = Subscribed("traffic", 1, (slow,), (fast,), {"count": msgspec.msgpack.encode([1, 2])})
    assert str(Frame("b2", (change, Confirmed(3)), sequence=7)) == (
        "b2#7 SUB traffic [speed < 60] UNSUB traffic [speed > 90] +count=[1, 2]; CONFIRM 3"
    )
    assert str(FrameReader().decode(ONE)) == "b1#1 PUB traffic a"
    assert opened(ONE).covers == 9
