"""The events of a running overlay as a Spark source: `spark.readStream.format("catchment")`, or `spark.read`.

    spark.dataSource.register(catchment.OverlaySource)      # `spark_session` has done so
    spark.readStream.format("catchment").option("server", "nats://host:4222").option("topics", "traffic").load()

The driver asks the server for positions, once a micro-batch. Each history is one partition: a task connects by itself,
reads its messages from one position to another, and hands them on as Arrow batches.

Rule 1: an offset is the position of the last message that was read, of each broker. The same two offsets have the same
        events, as long as the histories keep them.
Rule 2: where a history has dropped what comes next, a job fails and names it; with `failOnDataLoss` false it goes on
        behind that, and says so in the log.
Rule 3: a server that is away is waited for, for `timeout` at most.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from catchment.model.errors import ConfigurationError, TransportError
from catchment.model.events import event_times_us
from catchment.model.schema import Schema, Type
from catchment.model.times import duration_us, since_us
from catchment.pipeline.publications import Catalog
from catchment.transport.credentials import OPEN, Credentials
from catchment.transport.description import Description
from catchment.transport.history import (
    NOTHING_RECORDED_US,
    HistoryGoneError,
    Recorded,
    begin_for,
    dropped_until,
    history_state,
    position_after_rows,
    recorded_in,
    require_kept,
)
from catchment.transport.jetstream import JetStream, Reader, Stored
from catchment.transport.names import history_stream, history_subject
from catchment.transport.wire import AccessError, Connection, open_connection

__all__ = ["OverlayOptions", "OverlaySource", "first_whole_us", "publications_schema"]

_LOG = logging.getLogger(__name__)
Found = TypeVar("Found")
Offset = dict[str, int]
RETRY_S = 0.2
READ_MESSAGES, READ_BYTES = 200, 16_000_000
LOOK_AGAIN_S = 1.0
ROWS_PER_BATCH = 200_000
"""Of a micro-batch, unless `maxRowsPerBatch` says otherwise: some seconds of work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OverlayOptions:
    """Where a running overlay is, and what of it is read."""

    server: str
    topics: tuple[str, ...] = ()
    """None are all."""
    since_us: int | None = None
    """Events of earlier times are left out; None is all that histories keep."""
    max_rows: int = ROWS_PER_BATCH
    """Of a micro-batch, about: messages are not cut."""
    fail_on_data_loss: bool = True
    timeout_s: float = 30.0
    credentials: Credentials = OPEN
    """Where access is controlled, of an operator; the files are read where a task runs."""

    @classmethod
    def of(cls, given: Mapping[str, str]) -> OverlayOptions:
        """Read what a user has said; anything unknown or unreadable is a ConfigurationError."""
        options = {name.lower(): value for name, value in given.items()}
        files = ("key", "ca", "certificate")
        accepted = ("server", "topic", "topics", "since", "maxRowsPerBatch", "failOnDataLoss", "timeout", *files)
        for name in options:
            if name not in {one.lower() for one in accepted}:
                raise ConfigurationError(f"option {name!r} is unknown; accepted are {', '.join(accepted)}")
        if not options.get("server"):
            raise ConfigurationError("option 'server' is missing; accepted is the address of a NATS server")
        listed = ",".join(options.get(name, "") for name in ("topic", "topics"))
        since = options.get("since")
        return cls(
            server=options["server"],
            topics=tuple(one.strip() for one in listed.split(",") if one.strip()),
            since_us=None if since is None else since_us(since, time.time_ns() // 1_000),
            max_rows=_number("maxRowsPerBatch", options.get("maxrowsperbatch", str(ROWS_PER_BATCH))),
            fail_on_data_loss=_flag("failOnDataLoss", options.get("failondataloss", "true")),
            timeout_s=duration_us(options.get("timeout", "30 seconds")) / 1e6,
            credentials=Credentials.of_files({name: options.get(name) for name in files}),
        )


def _number(name: str, given: str) -> int:
    if not given.isdecimal() or int(given) < 1:
        raise ConfigurationError(f"option {name!r} is {given!r}; accepted is a whole number from 1 on")
    return int(given)


def _flag(name: str, given: str) -> bool:
    if given.lower() not in ("true", "false"):
        raise ConfigurationError(f"option {name!r} is {given!r}; accepted are true and false")
    return given.lower() == "true"


def publications_schema(schemas: Mapping[str, Schema], topics: Sequence[str] = ()) -> pa.Schema:
    """The columns of the publications of some topics, or of all."""
    unknown = [one for one in topics if one not in schemas]
    if unknown:
        raise ConfigurationError(f"unknown topic {unknown[0]!r}; the overlay has {', '.join(sorted(schemas))}")
    chosen = Catalog({topic: schemas[topic] for topic in topics or schemas})
    reserved = [(name, Type.STRING.arrow) for name in ("event_id", "topic", "broker")]
    attributes = [(name, kind.arrow) for name, kind in chosen.attributes.items()]
    return pa.schema([*reserved, ("ts", Type.TIMESTAMP.arrow), *attributes])


class _Session:
    """A connection to the server that is opened again while the server is away, and the event loop that it needs."""

    def __init__(self, options: OverlayOptions) -> None:
        self._options = options
        self._runner = asyncio.Runner()
        self._streams: JetStream | None = None

    def __enter__(self) -> _Session:
        return self

    def __exit__(self, *_: object) -> None:
        if self._streams is not None:
            self._runner.run(self._streams.connection.close())
        self._runner.close()

    def ask(self, work: Callable[[JetStream], Awaitable[Found]]) -> Found:
        """What a server answers, asked again while it is away, but not for ever."""
        return self._runner.run(self._ask(work))

    async def _connected(self) -> Connection:
        return await open_connection(self._options.server, "catchment on Spark", self._options.credentials)

    async def _ask(self, work: Callable[[JetStream], Awaitable[Found]]) -> Found:
        until_s = time.monotonic() + self._options.timeout_s
        while True:
            try:
                if self._streams is None or self._streams.connection.is_lost:
                    self._streams = None
                    self._streams = JetStream(await self._connected())
                return await work(self._streams)
            except AccessError:
                raise
            except TransportError as error:
                if self._streams is not None and not self._streams.connection.is_lost:
                    raise
                if time.monotonic() >= until_s:
                    raise TransportError(
                        f"the server {self._options.server} was away for {self._options.timeout_s:g} seconds: {error}"
                    ) from None
                await asyncio.sleep(RETRY_S)


class OverlaySource(DataSource):
    """Called by Spark, on the driver: once for the schema, once for a reader."""

    @classmethod
    def name(cls) -> str:
        return "catchment"

    def schema(self) -> StructType:
        options = OverlayOptions.of(self.options)
        return from_arrow_schema(_columns(options, _described(options)))

    def reader(self, schema: StructType) -> DataSourceReader:
        return _BatchReader(OverlayOptions.of(self.options), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  (Spark's name)
        return _StreamReader(OverlayOptions.of(self.options), schema)


def _described(options: OverlayOptions) -> Description:
    with _Session(options) as session:
        return session.ask(Description.read)


def _columns(options: OverlayOptions, description: Description) -> pa.Schema:
    if description.history is None:
        raise ConfigurationError(
            f"the overlay at {options.server} keeps no history; accepted is one whose file says "
            '[history] keep = "7 days"'
        )
    return publications_schema(description.schemas, options.topics)


def first_whole_us(options: OverlayOptions) -> int | None:
    """The time from which on histories have every event that is asked for; None if none was ever left out."""

    async def find(streams: JetStream) -> int:
        brokers = (await Description.read(streams)).brokers
        return max([await dropped_until(streams, broker) for broker in brokers])

    with _Session(options) as session:
        gone_us = session.ask(find)
    since_us = NOTHING_RECORDED_US if options.since_us is None else options.since_us
    whole_us = max(gone_us + 1, since_us)
    return None if whole_us <= NOTHING_RECORDED_US + 1 else whole_us


@dataclass
class _Stretch(InputPartition):
    """The messages of one history behind a position, up to another."""

    broker: str
    after: int
    until: int


class _Histories:
    """The histories of an overlay, as the driver and the tasks of a job see them."""

    def __init__(self, options: OverlayOptions, schema: StructType) -> None:
        self._options = options
        description = _described(options)
        _columns(options, description)
        # The job was planned with these; what was added to the overlay meanwhile is in no column of it.
        self._columns, self._brokers = to_arrow_schema(schema, timezone="UTC"), tuple(description.brokers)
        self._topics = frozenset(options.topics or description.schemas)

    def ask(self, work: Callable[[JetStream], Awaitable[Found]]) -> Found:
        with _Session(self._options) as session:
            return session.ask(work)

    async def begin(self, streams: JetStream) -> Offset:
        """The offset behind which a new job reads."""
        since = self._options.since_us
        found: Offset = {}
        for broker in self._brokers:
            if since is None:
                found[broker] = (await history_state(streams, broker)).first - 1
            else:
                found[broker] = await begin_for(streams, broker, since) - 1
        return found

    async def end(self, streams: JetStream) -> Offset:
        """The offset of all that is there."""
        return {broker: (await history_state(streams, broker)).last for broker in self._brokers}

    async def end_within(self, streams: JetStream, start: Offset, end: Offset, rows_max: int) -> Offset:
        """An offset behind another one with about so many events in between, some of every broker that has any."""
        start = {broker: await self._kept(streams, broker, start.get(broker, 0)) for broker in self._brokers}
        behind = [broker for broker in self._brokers if start[broker] < end[broker]]
        found = dict(start)
        for broker in behind:
            share = max(rows_max // len(behind), 1)
            found[broker] = await position_after_rows(streams, broker, start[broker], end[broker], share)
        return found

    async def _kept(self, streams: JetStream, broker: str, after: int) -> int:
        """The position, if the history has all behind it; else, if data may be lost, one of which that is so."""
        state = await history_state(streams, broker)
        try:
            require_kept(broker, state, after)
        except HistoryGoneError as error:
            if self._options.fail_on_data_loss or after > state.last:
                raise HistoryGoneError(f"{error}; the option failOnDataLoss = false leaves out what is gone") from None
            _LOG.warning("%s; they are left out, as failOnDataLoss is false", error)
            return state.first - 1
        return after

    def stretches(self, start: Offset, end: Offset) -> list[_Stretch]:
        """A partition for each history that has something between two offsets."""
        return [_Stretch(one, start.get(one, 0), end[one]) for one in end if start.get(one, 0) < end[one]]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Called by a task, once for each partition; it may be called again, and gives the same."""
        assert isinstance(partition, _Stretch)
        tail = _Tail(partition.broker, partition.after)
        with _Session(self._options) as session:
            while tail.after < partition.until:
                found = session.ask(tail.next)
                if not found or found[0].position > tail.after + 1:
                    tail.after = session.ask(lambda streams: self._kept(streams, partition.broker, tail.after))
                if not found and not session.ask(tail.is_more):
                    return
                for stored in found:
                    if stored.position > partition.until:
                        return
                    tail.after = stored.position
                    yield from filter(None, map(self._publications, recorded_in(stored)))

    def _publications(self, one: Recorded) -> pa.RecordBatch | None:
        """Events in the columns of publications; None if they are of no topic that is read."""
        events, since = one.events, self._options.since_us
        if events is None or one.topic not in self._topics:
            return None
        if since is not None:
            events = events.filter(pa.array(event_times_us(events) >= since))
        there = {"topic": pa.repeat(one.topic, events.num_rows)} | dict(
            zip(events.schema.names, events.columns, strict=True)
        )
        columns = [there.get(f.name, pa.nulls(events.num_rows, f.type)) for f in self._columns]
        return pa.RecordBatch.from_arrays(columns, schema=self._columns) if events.num_rows else None


class _Tail:
    """What a history has behind a position, read on from there whenever the connection was lost."""

    def __init__(self, broker: str, after: int) -> None:
        self._broker, self.after = broker, after
        self._reader: Reader | None = None
        self._streams: JetStream | None = None

    async def is_more(self, streams: JetStream) -> bool:
        """Whether there is a message that was not read."""
        subject = history_subject(self._broker)
        return await streams.next(history_stream(self._broker), self.after + 1, subject) is not None

    async def next(self, streams: JetStream) -> list[Stored]:
        """The next messages; none if they do not come for a while."""
        if self._reader is None or streams is not self._streams:
            self._streams, self._reader = streams, Reader(streams, history_stream(self._broker), self.after + 1)
            await self._reader.start()
        try:
            async with asyncio.timeout(LOOK_AGAIN_S):
                return await self._reader.read(READ_MESSAGES, READ_BYTES)
        except TimeoutError:
            return []


class _BatchReader(DataSourceReader):
    """Called by Spark: `partitions` on the driver, once; `read` by each task."""

    def __init__(self, options: OverlayOptions, schema: StructType) -> None:
        self._histories = _Histories(options, schema)

    def partitions(self) -> Sequence[InputPartition]:
        begin, end = self._histories.ask(self._histories.begin), self._histories.ask(self._histories.end)
        return self._histories.stretches(begin, end)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._histories.read(partition)


class _StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Called by Spark: `read` by each task, all else on the driver, some times a micro-batch."""

    def __init__(self, options: OverlayOptions, schema: StructType) -> None:
        self._options, self._histories = options, _Histories(options, schema)
        self._until: Offset | None = None

    def initialOffset(self) -> Offset:  # noqa: N802
        return self._histories.ask(self._histories.begin)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._until = self._histories.ask(self._histories.end)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadMaxRows(self._options.max_rows)

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        async def find(streams: JetStream) -> Offset:
            end = self._until if self._until is not None else await self._histories.end(streams)
            rows = limit.max_rows if isinstance(limit, ReadMaxRows) else 2**62
            return await self._histories.end_within(streams, start, end, rows)

        return self._histories.ask(find)

    def reportLatestOffset(self) -> Offset:  # noqa: N802
        return self._histories.ask(self._histories.end)

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        return self._histories.stretches(start, end)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._histories.read(partition)
