"""Publications as the stages want them: the reserved columns, and attributes in the types of their schema."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_type

from catchment.model.errors import EventError, SchemaError
from catchment.model.schema import RESERVED_COLUMNS, Schema, Type

__all__ = ["DEDUPLICATION_SECONDS", "Catalog", "deduplicated", "deduplicated_against", "event_id_type", "prepared"]

DEDUPLICATION_SECONDS = 120
ANY_TOPIC = "*"

_SPARK_TYPES: dict[type[T.DataType], Type] = {
    T.BooleanType: Type.BOOL,
    T.ByteType: Type.INT,
    T.ShortType: Type.INT,
    T.IntegerType: Type.INT,
    T.LongType: Type.INT,
    T.FloatType: Type.FLOAT,
    T.DoubleType: Type.FLOAT,
    T.DecimalType: Type.FLOAT,
    T.StringType: Type.STRING,
    T.TimestampType: Type.TIMESTAMP,
    T.TimestampNTZType: Type.TIMESTAMP,
    T.DateType: Type.TIMESTAMP,
}
_TARGETS: dict[Type, T.DataType] = {
    Type.BOOL: T.BooleanType(),
    Type.INT: T.LongType(),
    Type.FLOAT: T.DoubleType(),
    Type.STRING: T.StringType(),
    Type.TIMESTAMP: T.TimestampType(),
}
_EVENT_ID_TYPES = (T.StringType, T.LongType, T.IntegerType)


@dataclass(frozen=True, slots=True)
class Catalog:
    """The topics and what their events look like; `*` stands for every topic where none is declared."""

    schemas: Mapping[str, Schema]

    @classmethod
    def of(cls, given: Any, publications: DataFrame) -> Catalog:
        """From a schema per topic, one schema for all, or, given nothing, the columns of the publications."""
        if given is None:
            return cls({ANY_TOPIC: _columns_schema(publications)})
        if isinstance(given, (Schema, pa.Schema)):
            return cls({ANY_TOPIC: Schema.of(given)})
        if all(isinstance(one, (Schema, pa.Schema, Mapping)) for one in given.values()):
            return cls({topic: Schema.of(one) for topic, one in given.items()})
        return cls({ANY_TOPIC: Schema.of(given)})

    @property
    def is_open(self) -> bool:
        return ANY_TOPIC in self.schemas

    @property
    def attributes(self) -> dict[str, Type]:
        """All attributes of all topics; one name has one type, as it is one column."""
        found: dict[str, Type] = {}
        for topic, schema in sorted(self.schemas.items()):
            for name, kind in schema.attributes.items():
                if found.setdefault(name, kind) is not kind:
                    raise SchemaError(
                        f"attribute {name!r} is {kind.value} in topic {topic!r} and {found[name].value} in another; "
                        "accepted is one type per name, as both are one column"
                    )
        return found


def prepared(publications: DataFrame, catalog: Catalog) -> DataFrame:
    """The reserved columns and the catalog's attributes; a column of another type is an error that names it."""
    columns = {field.name: field.dataType for field in publications.schema}
    missing = [name for name in RESERVED_COLUMNS if name not in columns]
    if missing:
        raise EventError(
            f"publications lack the column{'s' * (len(missing) > 1)} {', '.join(missing)}; "
            f"required are {', '.join(RESERVED_COLUMNS)}, then the attributes"
        )
    if not isinstance(columns["event_id"], _EVENT_ID_TYPES):
        given = columns["event_id"].simpleString()
        raise EventError(f"column 'event_id' has type {given}; accepted are string, bigint, int")
    selected = [
        F.col("event_id"),
        _cast("topic", columns["topic"], Type.STRING),
        _cast("broker", columns["broker"], Type.STRING),
        _cast("ts", columns["ts"], Type.TIMESTAMP),
    ]
    for name, kind in catalog.attributes.items():
        if name in columns:
            selected.append(_cast(name, columns[name], kind))
    return publications.select(*selected)


def _columns_schema(publications: DataFrame) -> Schema:
    found = {}
    for field in publications.schema:
        kind = _SPARK_TYPES.get(type(field.dataType))
        if field.name not in RESERVED_COLUMNS and kind is not None:
            found[field.name] = kind
    return Schema(found)


def _cast(name: str, given: T.DataType, wanted: Type) -> Column:
    kind = _SPARK_TYPES.get(type(given))
    column = F.col(f"`{name}`")
    if given == _TARGETS[wanted]:
        return column
    if kind is not wanted and not (kind is Type.INT and wanted is Type.FLOAT):
        accepted = ", ".join(kind.typeName() for kind, means in _SPARK_TYPES.items() if means is wanted)
        raise EventError(f"column {name!r} has type {given.simpleString()}; accepted for {wanted.value} are {accepted}")
    if isinstance(given, (T.TimestampNTZType, T.DateType)):
        # A time without a zone is UTC, whatever zone the session displays.
        local = f"CAST(`{name}` AS TIMESTAMP_NTZ)"
        since_epoch = f"timestampdiff(MICROSECOND, TIMESTAMP_NTZ '1970-01-01 00:00:00', {local})"
        return F.expr(f"timestamp_micros({since_epoch})").alias(name)
    return column.cast(_TARGETS[wanted]).alias(name)


def event_id_type(publications: DataFrame) -> pa.DataType:
    return to_arrow_type(publications.schema["event_id"].dataType)


def deduplicated(publications: DataFrame) -> DataFrame:
    """Without repeats: the same id at the same broker at most 120 s after the one before it."""
    same = Window.partitionBy("broker", "event_id").orderBy("ts")
    gap = F.unix_micros("ts") - F.unix_micros(F.lag("ts").over(same))
    repeated = F.coalesce(gap <= DEDUPLICATION_SECONDS * 1_000_000, F.lit(False))
    return publications.withColumn("_repeated", repeated).where("NOT _repeated").drop("_repeated")


def deduplicated_against(
    publications: DataFrame, seen: DataFrame | None, watermark_us: int | None
) -> tuple[DataFrame, DataFrame]:
    """Without repeats, also of what earlier batches saw; and what the next batch must know to do the same.

    Ids are remembered for as long as a repeat of them could still be accepted.
    """
    known = publications.select("broker", "event_id", "ts").limit(0) if seen is None else seen
    both = publications.withColumn("_old", F.lit(False)).unionByName(
        known.withColumn("_old", F.lit(True)), allowMissingColumns=True
    )
    same = Window.partitionBy("broker", "event_id").orderBy("ts", F.desc("_old"))
    limit_us = DEDUPLICATION_SECONDS * 1_000_000
    since = F.unix_micros("ts") - F.unix_micros(F.lag("ts").over(same))
    until = F.unix_micros(F.when(F.lead("_old").over(same), F.lead("ts").over(same))) - F.unix_micros("ts")
    repeated = F.coalesce(since <= limit_us, F.lit(False)) | F.coalesce(until <= limit_us, F.lit(False))
    kept = both.withColumn("_repeated", repeated).where("NOT _old AND NOT _repeated").drop("_old", "_repeated")
    remembered = both.groupBy("broker", "event_id").agg(F.max("ts").alias("ts"))
    if watermark_us is not None:
        remembered = remembered.where(F.unix_micros("ts") >= watermark_us - limit_us)
    return kept, remembered
