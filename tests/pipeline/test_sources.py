"""Sources on Spark: files of all formats, bounded and growing, and events made up by number."""

import json
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from catchment.model.errors import ConfigurationError, EventError
from catchment.model.schema import Schema
from catchment.pipeline.generated import BLOCK_EVENTS, Generated, chunk_of
from catchment.pipeline.quarantine import store_aside
from catchment.pipeline.sources import Files, FromColumn, Recorded, open_batch, open_stream
from catchment.workloads import TRAFFIC_SCHEMA, generate_traffic

pytestmark = pytest.mark.spark

WEATHER = {"weather": Schema.of({"celsius": "float", "note": "string"})}


def csv_files(path: object, **changes: Any) -> Files:
    described: dict[str, Any] = {"event_id": "id", "ts": "time", "topic": "weather", "broker": FromColumn("station")}
    return Files(format="csv", path=str(path), topics=WEATHER, **{**described, **changes})


def rows_of(frame: DataFrame, *columns: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in frame.select(*columns).collect())


def drained(frame: DataFrame, name: str, folder: Path) -> list[tuple[Any, ...]]:
    """All that a stream yields of what is there now; asked again with the same folder, what is new."""
    found: list[tuple[Any, ...]] = []
    query = (
        frame.writeStream.foreachBatch(lambda batch, _: found.extend(tuple(row) for row in batch.collect()))
        .option("checkpointLocation", str(folder / name))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return sorted(found)


@pytest.fixture
def readings(tmp_path: Path) -> Path:
    folder = tmp_path / "readings"
    folder.mkdir()
    (folder / "1.csv").write_text("id,time,station,celsius,note\nr1,2024-03-01 06:00:00,hill,1.5,\nr2,noon,hill,1.5,\n")
    (folder / "2.csv").write_text("note,celsius,station,time,id\ngusts,2.5,town,2024-03-01 07:00:00,r3\nx,cold,y,,r4\n")
    return folder


def test_csv_files_are_events_and_rows_kept_aside(spark: SparkSession, readings: Path) -> None:
    opened = open_batch(spark, csv_files(readings / "*.csv"))
    assert rows_of(opened.publications, "event_id", "topic", "broker", "celsius", "note") == [
        ("r1", "weather", "hill", 1.5, None),
        ("r3", "weather", "town", 2.5, "gusts"),
    ]
    assert opened.quarantined is not None
    assert rows_of(opened.quarantined, "file", "line", "raw", "reason") == [
        (str(readings / "1.csv"), 3, "r2,noon,hill,1.5,", "time 'noon': not an ISO 8601 time"),
        (str(readings / "2.csv"), 3, "x,cold,y,,r4", "celsius 'cold': not a number"),
    ]


def test_a_folder_that_grows_is_a_stream_and_each_bad_row_is_stored_once(
    spark: SparkSession, readings: Path, tmp_path: Path
) -> None:
    source = csv_files(readings, max_files_per_trigger=1)

    def quarantined() -> list[tuple[Any, ...]]:
        aside = open_stream(spark, source).quarantined
        assert aside is not None
        stored = store_aside(aside, str(tmp_path / "aside"), checkpoint=str(tmp_path / "aside-ck"), available_now=True)
        stored.query.awaitTermination()
        return rows_of(stored.rows, "raw")

    def ids() -> list[str]:
        return [row[0] for row in drained(open_stream(spark, source).publications.select("event_id"), "ck", tmp_path)]

    assert ids() == ["r1", "r3"]
    assert quarantined() == [("r2,noon,hill,1.5,",), ("x,cold,y,,r4",)]
    (readings / "3.csv").write_text("id,time,station,celsius,note\nr5,2024-03-01 08:00:00,hill,0.5,\nr6\n")
    assert ids() == ["r5"]
    assert quarantined() == [("r2,noon,hill,1.5,",), ("r6",), ("x,cold,y,,r4",)]


def test_a_stream_may_begin_before_its_first_file(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "empty"
    folder.mkdir()
    stream = open_stream(spark, csv_files(folder)).publications.select("event_id", "broker")
    (folder / "1.csv").write_text("station,id,time,celsius,note\nhill,r1,2024-03-01 06:00:00,1.5,\n")
    assert drained(stream, "ck", tmp_path) == [("r1", "hill")]


def test_json_lines_are_events(spark: SparkSession, tmp_path: Path) -> None:
    rows = [
        {"event_id": "r1", "topic": "weather", "broker": "hill", "ts": "2024-03-01T06:00:00Z", "celsius": 1},
        {"event_id": "r2", "topic": "weather", "broker": "hill", "ts": "2024-03-01T06:00:00Z", "celsius": "1"},
    ]
    file = tmp_path / "a.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows) + "{\n")
    opened = open_batch(spark, Files(format="json", path=str(file), topics=WEATHER))
    assert rows_of(opened.publications, "event_id", "celsius") == [("r1", 1.0)]
    assert opened.quarantined is not None
    assert rows_of(opened.quarantined, "line", "reason") == [
        (2, "Expected `float | null`, got `str` - at `$.celsius`"),
        (3, "broken JSON: Input data was truncated"),
    ]


def test_parquet_files_keep_their_types_and_take_names_and_constants(spark: SparkSession, tmp_path: Path) -> None:
    table = pa.table({"key": [1, 2], "when": pa.array([0, 1], pa.timestamp("us", tz="UTC")), "c": [1.5, None]})
    pq.write_table(table, tmp_path / "a.parquet")
    source = Files(
        format="parquet", path=str(tmp_path / "*.parquet"), topics=WEATHER, event_id="key", ts="when", topic="weather",
        broker="hill", columns={"celsius": "c"},
    )  # fmt: skip
    opened = open_batch(spark, source)
    assert opened.publications.columns == ["event_id", "topic", "broker", "ts", "celsius"]
    assert rows_of(opened.publications, "event_id", "broker", "celsius") == [(1, "hill", 1.5), (2, "hill", None)]
    stream = open_stream(spark, source).publications.select("event_id")
    assert drained(stream, "ck", tmp_path) == [(1,), (2,)]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"event_id": "key"}, r'missing is key; the source may say event_id = "the column that holds it"'),
        ({"broker": FromColumn("broker")}, r'missing is broker; the source may say broker = "the broker of all rows"'),
        ({"columns": {"celsius": "kelvin"}}, "missing is kelvin; accepted are files with a column for each attribute"),
    ],
)
def test_a_column_that_is_not_there_is_named(
    changes: dict[str, Any], message: str, spark: SparkSession, readings: Path
) -> None:
    with pytest.raises(EventError, match=message):
        open_batch(spark, csv_files(readings / "1.csv", **changes))


def test_a_source_that_is_not_there_is_named(spark: SparkSession, tmp_path: Path) -> None:
    for described in (csv_files(tmp_path / "gone"), Files(format="parquet", path=str(tmp_path / "gone"))):
        with pytest.raises(ConfigurationError, match=f"no {described.format} file at {tmp_path}/gone; accepted"):
            open_batch(spark, described)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": "xml"}, "format is 'xml'; accepted are parquet, csv, json"),
        ({"topics": None}, "csv files do not say the types"),
        ({"delimiter": "||"}, "delimiter is '||'; accepted is one character"),
        ({"max_files_per_trigger": 0}, "max_files_per_trigger is 0; accepted is 1 or more"),
    ],
)
def test_an_impossible_description_is_refused(changes: dict[str, Any], message: str) -> None:
    described: dict[str, Any] = {"format": "csv", "path": "x", "topics": WEATHER, **changes}
    with pytest.raises(ConfigurationError) as raised:
        Files(**described)
    assert message in str(raised.value)


def test_a_name_for_an_attribute_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="columns names kelvin; accepted are the attributes celsius, note"):
        _ = csv_files("x", columns={"kelvin": "k"}).fields


# Made-up events ----------------------------------------------------------------------------------------------------

GENERATED = Generated(workload="traffic", events=1_000, rate=200, brokers=("b1", "b2"), seed=7)


def test_a_generated_table_is_the_same_each_time_and_in_order_of_time(spark: SparkSession) -> None:
    first = open_batch(spark, GENERATED).publications.toArrow()
    again = open_batch(spark, GENERATED).publications.toArrow()
    assert first.equals(again)
    assert first.num_rows == 1_000
    assert len(set(first.column("event_id").to_pylist())) == 1_000
    times = first.column("ts").cast(pa.int64()).to_pylist()
    assert times == sorted(times)
    assert 4_900_000 < times[-1] - times[0] < 5_000_000  # 200 a second
    assert not first.equals(
        open_batch(spark, Generated(workload="traffic", events=1_000, rate=200)).publications.toArrow()
    )


def test_a_generated_stream_makes_the_events_of_the_table(spark: SparkSession, tmp_path: Path) -> None:
    source = Generated(workload="stock", events=600, rate=200, seed=3)
    bounded = {row[0] for row in rows_of(open_batch(spark, source).publications, "event_id")}
    found: list[tuple[int, list[str]]] = []

    def take(batch: DataFrame, number: int) -> None:
        # Twice, as a micro-batch that runs again would.
        twice = [sorted(row.event_id for row in batch.select("event_id").collect()) for _ in range(2)]
        assert twice[0] == twice[1]
        found.append((number, twice[0]))

    query = (
        open_stream(spark, source).publications.writeStream.foreachBatch(take)
        .option("checkpointLocation", str(tmp_path)).start()
    )  # fmt: skip
    deadline = time.monotonic() + 120
    while len(found) < 4 and time.monotonic() < deadline:
        query.awaitTermination(1)
    query.stop()
    ids = [one for _, batch in found[:4] for one in batch]
    assert set(ids) == bounded
    assert len(ids) == 600  # none twice, and none after the last


def test_a_chunk_may_span_two_blocks() -> None:
    source = Generated(workload="traffic", rate=28_000)
    number = BLOCK_EVENTS // source.chunk_events
    assert BLOCK_EVENTS % source.chunk_events
    table = chunk_of(source, number)
    assert table.num_rows == source.chunk_events
    first = number * source.chunk_events
    assert table.column("event_id").to_pylist() == [f"b0-{at}" for at in range(first, first + source.chunk_events)]


def test_a_generated_table_needs_an_end(spark: SparkSession) -> None:
    with pytest.raises(ConfigurationError, match=r"never ends; accepted is events = …"):
        open_batch(spark, Generated(workload="traffic"))
    with pytest.raises(ConfigurationError, match="workload is 'tides'; accepted are traffic, stock"):
        Generated(workload="tides")  # type: ignore[arg-type]


# Data sets ---------------------------------------------------------------------------------------------------------


def test_a_data_set_is_loaded_with_its_bad_rows_aside(spark: SparkSession, tmp_path: Path) -> None:
    header = "Symbol,Date,Open,High,Low,Close,Volume,Adj Close\n"
    (tmp_path / "yahoo-x.csv").write_text(header + "IBM,2008-01-02,1,2,1,2,100,2\nIBM,2008-01-03,1,2,1,x,100,2\n")
    opened = open_batch(spark, Recorded(name="yahoo", folder=str(tmp_path), brokers=("b1",)))
    assert rows_of(opened.publications, "topic", "broker", "symbol", "close") == [("stock", "b1", "IBM", 2.0)]
    assert opened.quarantined is not None
    assert rows_of(opened.quarantined, "line", "reason") == [(3, "Close 'x': not a number")]
    with pytest.raises(ConfigurationError, match="'yahoo' has an end"):
        open_stream(spark, Recorded(name="yahoo", folder=str(tmp_path)))
    with pytest.raises(ConfigurationError, match="'tides' is no data set we can read; accepted are aarhus"):
        Recorded(name="tides", folder=str(tmp_path))


def test_text_and_parquet_of_the_same_events_are_the_same(spark: SparkSession, tmp_path: Path) -> None:
    events = generate_traffic(2_000, seed=5)
    pq.write_table(events, tmp_path / "a.parquet")
    with (tmp_path / "a.jsonl").open("w") as lines:
        for row in events.to_pylist():
            lines.write(json.dumps({**row, "ts": row["ts"].isoformat()}) + "\n")
    topics = {"traffic": TRAFFIC_SCHEMA}
    parquet, text = (
        open_batch(spark, Files(format=kind, path=str(tmp_path / name), topics=topics)).publications  # type: ignore[arg-type]
        for kind, name in (("parquet", "a.parquet"), ("json", "a.jsonl"))
    )
    assert text.toArrow().sort_by("event_id").equals(parquet.toArrow().sort_by("event_id"))
