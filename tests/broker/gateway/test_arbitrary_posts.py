"""Whatever is posted, it is taken or refused with a reason, and nothing fails."""

import json
from typing import Any

import pyarrow as pa
from hypothesis import example, given
from hypothesis import strategies as st

from catchment.broker.broker import Broker, Settings
from catchment.broker.gateway import Gateway
from catchment.broker.inputs import Posted
from catchment.model.schema import Schema
from tests.broker.wire import Desk

SCHEMAS = {"t": Schema({"a b": "float", "s": "string", "n": "int", "y": "bool", "at": "timestamp"})}


def arrow(table: pa.Table, compression: str | None = None) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as writer:
        writer.write_table(table)
    data: bytes = sink.getvalue().to_pybytes()
    return data


TABLE = pa.table(
    {
        "a b": [1.0, None], "s": ["x", "é"], "n": [1, 2], "y": [True, None],
        "event_id": pa.array(["i", "j"]).dictionary_encode(),
    }
)  # fmt: skip
STREAMS = [arrow(TABLE), arrow(TABLE, "zstd"), arrow(TABLE.slice(0, 0))]

_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
_names = st.sampled_from(["a b", "s", "n", "y", "at", "ts", "event_id", "topic", "broker", ""]) | st.text(max_size=3)
_rows = st.dictionaries(_names, _values, max_size=5)
_documents = st.one_of(
    _rows.map(json.dumps),
    st.lists(_rows, max_size=4).map(json.dumps),
    st.lists(_rows, max_size=4).map(lambda rows: "\n".join(map(json.dumps, rows))),
    _values.map(json.dumps),
).map(str.encode)


@st.composite
def _damaged(draw: st.DrawFn) -> bytes:
    data = bytearray(draw(st.sampled_from(STREAMS) | _documents))
    for _ in range(draw(st.integers(0, 4))):
        if data:
            data[draw(st.integers(0, len(data) - 1))] = draw(st.integers(0, 255))
    return bytes(data[: draw(st.integers(0, len(data)))] if draw(st.booleans()) else data)


def outcomes(*data: bytes) -> list[Any]:
    broker = Broker("b1", [], Settings(schemas=SCHEMAS), [Gateway()])
    step = Desk(broker).hand(*(Posted("t", one) for one in data))
    assert not broker.failures
    assert not broker.input_failures
    return [(one.kind, one.reason) for one in step.outcomes]


@given(st.lists(st.binary(max_size=200) | _documents | _damaged(), min_size=1, max_size=6))
@example([STREAMS[0], b"{}", STREAMS[1], STREAMS[2], b"[]", b"\xff\xff\xff\xff", b"{" * 10_000])
@example([b'{"n": 1e5}', b'{"at": -9223372036854775808}', b'{"s": "\\ud800"}', b'{"s": "\xff"}'])
def test_anything_is_taken_or_refused_with_a_reason(data: list[bytes]) -> None:
    together = outcomes(*data)
    for kind, reason in together:
        assert (kind, bool(reason)) in (("taken", False), ("refused", True))
    # The same, whatever waits together with it.
    assert [kind for kind, _ in together] == [outcomes(one)[0][0] for one in data]


def test_a_small_stream_that_is_large_once_it_is_read_is_refused() -> None:
    large = pa.table({"s": pa.array(["x" * 100_000] * 1_000)})
    data = arrow(large, "zstd")
    assert len(data) < 1_000_000
    ((kind, reason),) = outcomes(data)
    assert kind == "refused"
    assert "accepted are 1000000 of 16000000" in reason
