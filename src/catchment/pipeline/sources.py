"""From a description of where events come from to DataFrames of publications, bounded or streaming.

Files      Parquet, CSV with a header, JSON lines: a file, a glob, or a folder, which may grow
Generated  made-up traffic or stock, by seed
Recorded   the public data sets whose formats we know
FromOverlay   what the brokers of a running overlay have accepted
"""

from __future__ import annotations

import csv
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.functions import col, lit
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from catchment.model.errors import ConfigurationError, EventError
from catchment.model.rendering import name_sql
from catchment.model.schema import RESERVED_COLUMNS, Schema, Type
from catchment.model.times import timestamp_text
from catchment.pipeline.columns import map_in_arrow
from catchment.pipeline.generated import Generated, generated_batch, generated_stream
from catchment.pipeline.overlay_source import OverlayOptions, OverlaySource, first_whole_us
from catchment.pipeline.parsing import Field, Layout, parse_lines
from catchment.pipeline.publications import Catalog
from catchment.pipeline.quarantine import Opened, nothing_aside, split
from catchment.workloads import (
    FLIGHTS_SCHEMA,
    STOCK_SCHEMA,
    TRAFFIC_SCHEMA,
    Loaded,
    load_reports,
    load_stock,
    load_traffic,
)

__all__ = [
    "FORMATS",
    "RECORDED",
    "Files",
    "FromColumn",
    "FromOverlay",
    "Recorded",
    "Source",
    "open_batch",
    "open_stream",
]

FileFormat = Literal["parquet", "csv", "json"]
FORMATS: tuple[FileFormat, ...] = ("parquet", "csv", "json")


@dataclass(frozen=True, slots=True)
class FromColumn:
    """A value that a column of the file holds."""

    name: str
    otherwise: str | None = None
    """The value where the file has no such column."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Files:
    """Events in files; `topics` says the attributes, which Parquet files may say themselves."""

    format: FileFormat
    path: str
    topics: Mapping[str, Schema] | None = None
    event_id: str = "event_id"
    ts: str = "ts"
    topic: str | FromColumn = field(default=FromColumn("topic"))
    broker: str | FromColumn = field(default=FromColumn("broker"))
    columns: Mapping[str, str] = field(default_factory=dict)
    """Of attributes that have another name in the file."""
    delimiter: str = ","
    max_files_per_trigger: int | None = None

    def __post_init__(self) -> None:
        if self.format not in FORMATS:
            raise ConfigurationError(f"format is {self.format!r}; accepted are {', '.join(FORMATS)}")
        if self.format != "parquet" and not self.topics:
            raise ConfigurationError(
                f"{self.format} files do not say the types of their columns; give the topics with their attributes"
            )
        if len(self.delimiter) != 1 or self.delimiter in '"\r\n':
            raise ConfigurationError(f"delimiter is {self.delimiter!r}; accepted is one character")
        if self.max_files_per_trigger is not None and self.max_files_per_trigger < 1:
            raise ConfigurationError(f"max_files_per_trigger is {self.max_files_per_trigger}; accepted is 1 or more")

    @property
    def fields(self) -> tuple[Field, ...]:
        """The columns of publications, and where in the files they are."""
        attributes = Catalog(self.topics or {}).attributes
        unknown = [name for name in self.columns if name not in attributes]
        if self.topics and unknown:
            raise ConfigurationError(
                f"columns names {', '.join(unknown)}; accepted are the attributes {', '.join(attributes)}"
            )
        return (
            Field("event_id", Type.STRING, self.event_id),
            _text_field("topic", self.topic),
            _text_field("broker", self.broker),
            Field("ts", Type.TIMESTAMP, self.ts),
            *(Field(name, kind, self.columns.get(name, name)) for name, kind in attributes.items()),
        )


def _text_field(name: str, given: str | FromColumn) -> Field:
    if isinstance(given, str):
        return Field(name, Type.STRING, None, given)
    return Field(name, Type.STRING, given.name, given.otherwise)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """A folder of one of the public data sets in RECORDED."""

    name: str
    folder: str
    brokers: tuple[str, ...] = ("b0",)

    def __post_init__(self) -> None:
        if self.name not in RECORDED:
            raise ConfigurationError(f"{self.name!r} is no data set we can read; accepted are {', '.join(RECORDED)}")

    @property
    def topic(self) -> str:
        return RECORDED[self.name][0]

    @property
    def schema(self) -> Schema:
        return RECORDED[self.name][1]

    def load(self) -> Loaded:
        return RECORDED[self.name][2](self.folder, brokers=self.brokers)  # type: ignore[no-any-return,operator]


RECORDED: dict[str, tuple[str, Schema, object]] = {
    "aarhus": ("traffic", TRAFFIC_SCHEMA, load_traffic),
    "yahoo": ("stock", STOCK_SCHEMA, load_stock),
    "flights": ("flights", FLIGHTS_SCHEMA, load_reports),
}
"""Topic, schema and loader of each data set: road sensors of Aarhus, Yahoo! Finance quotes, reports on flights."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FromOverlay:
    """What the brokers of a running overlay have accepted, as far back as they keep it."""

    server: str
    topics: tuple[str, ...] = ()
    """None are all."""
    since: str | None = None
    """Leave out events before a time, or before a duration before now."""
    max_rows_per_batch: int | None = None
    fail_on_data_loss: bool = True
    key: str | None = None
    """The file of an operator's key, where access is controlled."""
    ca: str | None = None

    @property
    def options(self) -> dict[str, str]:
        """What Spark is told."""
        found = {
            "server": self.server,
            "topics": ",".join(self.topics),
            "since": self.since,
            "maxRowsPerBatch": None if self.max_rows_per_batch is None else str(self.max_rows_per_batch),
            "failOnDataLoss": str(self.fail_on_data_loss).lower(),
            "key": self.key,
            "ca": self.ca,
        }
        return {name: value for name, value in found.items() if value}


Source = Files | Generated | Recorded | FromOverlay


def open_batch(
    spark: SparkSession, source: Source, *, rows_max: int | None = None, asked: Collection[str] | None = None
) -> Opened:
    """All that a source holds now. Called on the driver; files are listed, and read when the results are used.

    Of files, `rows_max` is how many rows to read at most: a limit on what comes out would come too late to save work.
    Of text, only attributes that are `asked` about leave the parser, if not all.
    """
    if isinstance(source, Generated):
        return Opened(generated_batch(spark, source), nothing_aside(spark))
    if isinstance(source, Recorded):
        loaded = source.load()
        aside = loaded.rejected if loaded.rejected.num_rows else None
        kept = nothing_aside(spark) if aside is None else spark.createDataFrame(aside)
        return Opened(spark.createDataFrame(loaded.events), kept)
    if isinstance(source, FromOverlay):
        spark.dataSource.register(OverlaySource)
        frame = spark.read.format("catchment").options(**source.options).load()
        return Opened(frame if rows_max is None else frame.limit(rows_max), nothing_aside(spark))
    if source.format == "parquet":
        frame = _mapped_columns(_listed(spark, source), source)
        return Opened(frame if rows_max is None else frame.limit(rows_max), nothing_aside(spark))
    lines = _listed(spark, source)
    layout = replace(_layout(source, lines), asked=None if asked is None else frozenset(asked))
    return _parsed(lines, layout, rows_max)


def open_stream(spark: SparkSession, source: Source) -> Opened:
    """All that a source holds and will hold: a folder or glob is watched for new files."""
    if isinstance(source, Generated):
        return Opened(generated_stream(spark, source), None)
    if isinstance(source, Recorded):
        raise ConfigurationError(
            f"the data set {source.name!r} has an end; accepted for a stream are files or generated"
        )
    if isinstance(source, FromOverlay):
        # Read once, so that "2 hours" before now is the same time for all who ask.
        asked = OverlayOptions.of(source.options)
        spark.dataSource.register(OverlaySource)
        since = {} if asked.since_us is None else {"since": timestamp_text(asked.since_us)}
        frame = spark.readStream.format("catchment").options(**{**source.options, **since}).load()
        return Opened(frame, None, whole_from=partial(first_whole_us, asked))
    options = {} if source.max_files_per_trigger is None else {"maxFilesPerTrigger": source.max_files_per_trigger}
    reader = spark.readStream.options(**options)
    try:
        if source.format == "parquet":
            frame = reader.schema(_parquet_schema(spark, source)).parquet(source.path)
            return Opened(_mapped_columns(frame, source), None)
        return _parsed(reader.text(source.path), _layout(source, _first_lines(spark, source)))
    except AnalysisException as error:
        raise _nothing_there(source, error) from None


def _listed(spark: SparkSession, source: Files) -> DataFrame:
    try:
        return spark.read.parquet(source.path) if source.format == "parquet" else spark.read.text(source.path)
    except AnalysisException as error:
        raise _nothing_there(source, error) from None


def _nothing_there(source: Files, error: AnalysisException) -> ConfigurationError:
    condition = error.getCondition() or ""
    if condition in ("PATH_NOT_FOUND", "UNABLE_TO_INFER_SCHEMA") or "does not exist" in str(error):
        return ConfigurationError(
            f"there is no {source.format} file at {source.path}; accepted are a file, a glob, or a folder with files"
        )
    return ConfigurationError(f"cannot read {source.path} as {source.format}: {str(error).splitlines()[0]}")


def _first_lines(spark: SparkSession, source: Files) -> DataFrame | None:
    """The files that are there when a stream starts; a folder may well be empty then."""
    try:
        return spark.read.text(source.path)
    except AnalysisException:
        return None


def _layout(source: Files, lines: DataFrame | None) -> Layout:
    layout = Layout(source.format, source.fields, source.delimiter)  # type: ignore[arg-type]
    if source.format == "json" or lines is None:
        return layout
    first = lines.where("_metadata.file_block_start = 0").select("value", "_metadata.file_path").limit(1).collect()
    if not first:
        return layout
    header = tuple(next(csv.reader([first[0].value.removeprefix("\ufeff")], delimiter=source.delimiter), []))
    missing = [
        f.column for f in layout.fields if f.column is not None and f.column not in header and f.otherwise is None
    ]
    if missing:
        raise EventError(
            f"{first[0].file_path} has the columns {', '.join(header)}; "
            f"missing {'is' if len(missing) == 1 else 'are'} {', '.join(missing)}{_advice(missing, source)}"
        )
    return replace(layout, header=header)


def _advice(missing: list[str], source: Files) -> str:
    reserved = {source.event_id: "event_id", source.ts: "ts"}
    for name in ("topic", "broker"):
        given = getattr(source, name)
        if isinstance(given, FromColumn):
            reserved[given.name] = name
    named = [reserved[column] for column in missing if column in reserved]
    if not named:
        return "; accepted are files with a column for each attribute"
    hints = {
        "event_id": 'event_id = "the column that holds it"',
        "ts": 'ts = "the column that holds it"',
        "topic": 'topic = "the topic of all rows"',
        "broker": 'broker = "the broker of all rows"',
    }
    return "; the source may say " + ", ".join(hints[name] for name in named)


def _parsed(lines: DataFrame, layout: Layout, rows_max: int | None = None) -> Opened:
    located = lines.select(
        col("value").cast("binary").alias("value"),
        col("_metadata.file_path").alias("file"),
        col("_metadata.file_block_start").alias("block_start"),
        col("_metadata.file_block_length").alias("block_length"),
        col("_metadata.file_size").alias("file_size"),
    )
    if rows_max is not None:
        located = located.limit(rows_max + 1)  # and a header
    return split(map_in_arrow(located, partial(_parse, layout), layout.schema))


def _parse(layout: Layout, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return parse_lines(batches, layout)


# Parquet -----------------------------------------------------------------------------------------------------------


def _parquet_schema(spark: SparkSession, source: Files) -> StructType:
    """What the files say, if there are any yet; else what the description does."""
    try:
        return spark.read.parquet(source.path).schema
    except AnalysisException:
        if not source.topics:
            raise ConfigurationError(
                f"there is no file at {source.path} yet that says the columns; give the topics with their attributes"
            ) from None
    columns = [(f.column, f.kind.arrow) for f in source.fields if f.column is not None]
    return from_arrow_schema(pa.schema(columns))


def _mapped_columns(frame: DataFrame, source: Files) -> DataFrame:
    there = set(frame.columns)
    selected: list[Column] = []
    used: set[str] = set()
    missing: list[str] = []
    for one in source.fields:
        if one.column in there:
            selected.append(col(name_sql(str(one.column))).alias(one.name))
            used.add(str(one.column))
        elif one.otherwise is not None:
            selected.append(lit(one.otherwise).alias(one.name))
        elif one.name in RESERVED_COLUMNS:
            missing.append(str(one.column))
    if missing:
        raise EventError(
            f"{source.path} has the columns {', '.join(frame.columns)}; missing {'is' if len(missing) == 1 else 'are'} "
            f"{', '.join(missing)}{_advice(missing, source)}"
        )
    if source.topics is None:
        taken = used | set(RESERVED_COLUMNS)
        selected += [col(name_sql(name)) for name in frame.columns if name not in taken]
    return frame.select(*selected)
