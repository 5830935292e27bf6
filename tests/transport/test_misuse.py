"""Clients that are used in ways that nobody meant: an answer or an error, and never an endless wait."""

import asyncio
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

import catchment
from catchment.broker import messages as m
from catchment.model.errors import EventError
from catchment.transport.client import RequestRefusedError
from catchment.transport.jetstream import JetStream
from catchment.transport.names import client_subject
from catchment.transport.rows import batches_of
from tests.transport.conftest import SCHEMAS, Live, eventually, run

ALL = "SELECT * FROM traffic"
NOON_NS = 1_767_355_200_000_000_000


def column(name: str, values: list[Any], kind: pa.DataType) -> pa.Table:
    return pa.table({name: pa.array(values, kind)})


ACCEPTED: list[Any] = [
    column("highway", ["401"], pa.large_string()),
    pa.table({"highway": pa.array(["401", "401"]).dictionary_encode()}),
    column("ts", [NOON_NS], pa.timestamp("ns", "America/Toronto")),
    column("ts", [NOON_NS // 10**6], pa.timestamp("ms", "UTC")),
    column("speed", [Decimal("55.5")], pa.decimal128(5, 1)),
    column("vehicles", [7], pa.uint64()),
    pd.DataFrame({"ts": pd.to_datetime(["2026-01-02"]), "highway": pd.Categorical(["401"]), "vehicles": [1.0]}),
]
REFUSED: list[tuple[Any, str]] = [
    (column("vehicles", [2**63], pa.uint64()), "column 'vehicles' of type uint64 does not fit int"),
    (column("ts", [1_501], pa.timestamp("ns")), "column 'ts' of type timestamp"),
    (column("speed", ["55"], pa.string()), "column 'speed' has type string; accepted is float"),
    (column("speed", [[1.0]], pa.list_(pa.float64())), "column 'speed' has type list<item: double>; accepted is float"),
    (pa.table([pa.array([1.0]), pa.array([2.0])], names=["speed", "speed"]), "several columns speed"),
    (column("sped", [1.0], pa.float64()), "an event of 'traffic' has sped; accepted are event_id, ts, speed"),
    (pd.DataFrame([[1.0, 2.0]], columns=["speed", "speed"]), "Duplicate column names"),
    (pd.DataFrame({"speed": [1.0, "fast"]}), "a data frame does not become columns"),
]


def test_columns_of_any_type_are_taken_or_refused_by_name(live: Callable[..., Live]) -> None:
    async def test() -> None:
        overlay = live()
        await overlay.start()
        async with catchment.connect(overlay.url) as client, asyncio.timeout(60):
            subscription = await client.subscribe(ALL)
            for events in ACCEPTED:
                receipt = await client.publish("traffic", events)
                assert receipt.events == len(events)
                for _ in range(receipt.events):
                    await anext(subscription)
            asked = client._session.requests
            for events, reason in REFUSED:
                with pytest.raises(EventError, match=reason):
                    await client.publish("traffic", events)
            assert client._session.requests == asked

    run(test())


def test_nothing_of_a_table_is_sent_whose_last_chunk_does_not_fit() -> None:
    chunks = pa.chunked_array([pa.array([1], pa.uint64()), pa.array([2**63], pa.uint64())])
    with pytest.raises(EventError, match="vehicles"):
        next(batches_of("traffic", SCHEMAS["traffic"], pa.table({"vehicles": chunks})))


def test_a_frame_that_the_broker_cannot_read_is_refused(live: Callable[..., Live]) -> None:
    async def test() -> None:
        overlay = live()
        await overlay.start()
        async with catchment.connect(overlay.url) as client, asyncio.timeout(60):
            await client.advertise("traffic")
            batch = pa.RecordBatch.from_pydict({"highway": pa.array(["401"], pa.large_string())})
            with pytest.raises(RequestRefusedError, match="'highway' is of type large_string, which is not accepted"):
                await client._sending.ask(m.PublishEvents, "traffic", batch)
            # A client of an older version gets a frame, whose version tells it enough.
            refused = list[Any]()
            client._sending.settle = refused.append  # type: ignore[method-assign]
            await JetStream(client._connection).store(client_subject("b1", client.full_name), b"CF\x01nonsense")

            async def is_told() -> bool:
                return bool(refused)

            await eventually(is_told)
            assert refused == [m.Refused(m.UNREADABLE, "a frame is of version [1]; accepted is 2")]
            del client._sending.settle
            await client.publish("traffic", {"speed": 1.0})

    run(test())
