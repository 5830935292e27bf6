"""Publications as the stages want them: the reserved columns, and attributes in the types of their schema."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_type

from catchment.model.errors import EventError, SchemaError
from catchment.model.schema import DECIMALS_ACCEPTED, RESERVED_COLUMNS, Schema, Type
from catchment.model.subscription import Subscription
from catchment.pipeline.acceptance import OUTSIDE, outside_of_ranges
from catchment.pipeline.columns import column_of

__all__ = ["Catalog", "Preparation", "event_id_type", "prepared"]

ANY_TOPIC = "*"

_SPARK_TYPES: dict[type[T.DataType], Type] = {
    T.BooleanType: Type.BOOL,
    T.ByteType: Type.INT,
    T.ShortType: Type.INT,
    T.IntegerType: Type.INT,
    T.LongType: Type.INT,
    T.FloatType: Type.FLOAT,
    T.DoubleType: Type.FLOAT,
    T.StringType: Type.STRING,
    T.VarcharType: Type.STRING,
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
_WITH_A_RANGE = (T.DoubleType, T.FloatType, T.TimestampType, T.TimestampNTZType, T.DateType)
"""Columns whose values may be beyond what an event can say: years, NaN and infinities."""
_EVENT_ID_TYPES = (T.StringType, T.LongType, T.IntegerType)


_CHAR_OR_VARCHAR = "__CHAR_VARCHAR_TYPE_STRING"
"""Under which Spark keeps the type of a column that is shown as a string."""
_SAYING_MORE = (T.DateType, T.TimestampNTZType, T.DecimalType)


def _type_of(given: T.StructField) -> Type | None:
    """The type of a column's values; None where no subscription can use them."""
    kind = given.dataType
    if isinstance(kind, T.DecimalType):
        return Type.of_decimal(kind.precision, kind.scale)
    # Spark compares padded text, and text with a collation, in ways that only its own functions know.
    if isinstance(kind, T.StringType) and (_written_type(given).startswith("char") or not _is_binary(kind)):
        return None
    return _SPARK_TYPES.get(type(kind))


def _is_binary(kind: T.StringType) -> bool:
    return bool(kind.collation == "UTF8_BINARY")


def _written_type(given: T.StructField) -> str:
    return str((given.metadata or {}).get(_CHAR_OR_VARCHAR) or given.dataType.simpleString())


@dataclass(frozen=True, slots=True)
class Catalog:
    """The topics and what their events look like; `*` stands for every topic where none is declared."""

    schemas: Mapping[str, Schema]

    @classmethod
    def of(cls, given: Any, publications: DataFrame) -> Catalog:
        """From a schema per topic, one schema for all, or, given nothing, the columns of the publications."""
        case_sensitive = publications.sparkSession.conf.get("spark.sql.caseSensitive") == "true"
        columns = _columns_schema(publications, case_sensitive)

        def read(one: Any) -> Schema:
            declared = Schema.of(one)
            said = {name: kind for name, kind in columns.column_types.items() if name == "ts"}
            return replace(columns, attributes=declared.attributes, column_types={**declared.column_types, **said})

        if given is None:
            return cls({ANY_TOPIC: columns})
        if isinstance(given, (Schema, pa.Schema)):
            return cls({ANY_TOPIC: read(given)})
        if all(isinstance(one, (Schema, pa.Schema, Mapping)) for one in given.values()):
            return cls({topic: read(one) for topic, one in given.items()})
        return cls({ANY_TOPIC: read(given)})

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

    def attributes_of(self, subscription: Subscription) -> set[str]:
        """The attributes that a subscription asks about, by their own names, however it writes them."""
        schema = self.schemas.get(subscription.query.topic) or self.schemas[ANY_TOPIC]
        return {schema.resolve(name) for name in subscription.query.attributes}


def prepared(publications: DataFrame, catalog: Catalog) -> DataFrame:
    """The reserved columns and the catalog's attributes, under the names of `columns`."""
    return Preparation(publications, catalog).frame()


class Preparation:
    """How the columns of publications become ours; a column that is missing or of another type is an error."""

    def __init__(self, publications: DataFrame, catalog: Catalog) -> None:
        given = {field.name: field for field in publications.schema}
        if len(given) < len(publications.columns):
            repeated = sorted(name for name in given if publications.columns.count(name) > 1)
            raise EventError(f"publications have two columns {', '.join(repeated)}; accepted is each name once")
        case_sensitive = all(schema.case_sensitive for schema in catalog.schemas.values())
        meant = Schema(dict.fromkeys(given, Type.STRING), case_sensitive).resolve
        missing = [name for name in RESERVED_COLUMNS if meant(name) not in given]
        if missing:
            raise EventError(
                f"publications lack the column{'s' * (len(missing) > 1)} {', '.join(missing)}; "
                f"required are {', '.join(RESERVED_COLUMNS)}, then the attributes"
            )
        event_id = given[meant("event_id")]
        if not isinstance(event_id.dataType, _EVENT_ID_TYPES) or _type_of(event_id) is None:
            raise EventError(f"column 'event_id' has type {_written_type(event_id)}; accepted are string, bigint, int")
        wanted = {"topic": Type.STRING, "broker": Type.STRING, "ts": Type.TIMESTAMP, **catalog.attributes}
        self.source = publications
        self._is_ambiguous = not case_sensitive and len({name.lower() for name in given}) < len(given)
        self._sources = {"event_id": meant("event_id")} | {n: meant(n) for n in wanted if meant(n) in given}
        self._casts = {"event_id": "{}"} | {
            name: _cast(name, given[source], wanted[name])
            for name, source in self._sources.items()
            if name != "event_id"
        }
        self._checked = {
            name: ("timestamp" if wanted[name] is Type.TIMESTAMP else "double")
            for name, source in self._sources.items()
            if isinstance(given[source].dataType, _WITH_A_RANGE) and name != "event_id"
        }

    def frame(self, attributes: Collection[str] | None = None, finite: Collection[str] = ()) -> DataFrame:
        """All attributes or only some, and as OUTSIDE what is wrong with any that is not known as finite."""
        source, column = self._addressed()
        values = {name: cast.format(column[name]) for name, cast in self._casts.items()}
        chosen = [name for name in values if attributes is None or name in RESERVED_COLUMNS or name in attributes]
        doubtful = {name: (values[name], kind) for name, kind in self._checked.items() if name not in finite}
        selected = (f"{values[name]} AS {column_of(name)}" for name in chosen)
        return source.selectExpr(*selected, f"{outside_of_ranges(doubtful)} AS {OUTSIDE}")

    def _addressed(self) -> tuple[DataFrame, dict[str, str]]:
        """The publications, and each attribute's column there as SQL."""
        has_patterns = self.source.sparkSession.conf.get("spark.sql.parser.quotedRegexColumnNames") == "true"
        if not (self._is_ambiguous or has_patterns or any("$" in name for name in self._sources.values())):
            return self.source, {name: _quoted(source) for name, source in self._sources.items()}
        # By position, as Spark could not tell names apart that differ in case alone, or would read more into a name.
        ours = {source: column_of(name) for name, source in self._sources.items()}
        names = (ours.get(name, f"unused_{at}") for at, name in enumerate(self.source.columns))
        return self.source.toDF(*names), {name: column_of(name) for name in self._sources}


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _columns_schema(publications: DataFrame, case_sensitive: bool) -> Schema:
    """What the columns say about attributes."""
    found: dict[str, Type] = {}
    unusable, column_types = {}, {}
    for field in publications.schema:
        kind, name = _type_of(field), field.name if case_sensitive else field.name.lower()
        is_whole = isinstance(field.dataType, T.DecimalType) and field.dataType.scale <= 0
        if isinstance(field.dataType, _SAYING_MORE) and not is_whole:
            column_types["ts" if name == "ts" else field.name] = field.dataType.simpleString()
        if name in RESERVED_COLUMNS:
            continue
        if kind is None:
            unusable[field.name] = _written_type(field)
        else:
            found[field.name] = kind
    return Schema(found, case_sensitive, unusable, column_types)


def _cast(name: str, field: T.StructField, wanted: Type) -> str:
    """SQL for a column, to be filled in, in the type that is wanted."""
    given, kind = field.dataType, _type_of(field)
    if given == _TARGETS[wanted] and kind is wanted:
        return "{}"
    if kind is not wanted and not (kind is Type.INT and wanted is Type.FLOAT):
        accepted = ", ".join(kind.typeName() for kind, means in _SPARK_TYPES.items() if means is wanted)
        decimals = f", {DECIMALS_ACCEPTED}" if wanted.is_number else ""
        raise EventError(
            f"column {name!r} has type {_written_type(field)}; accepted for {wanted.value} are {accepted}{decimals}"
        )
    if isinstance(given, (T.TimestampNTZType, T.DateType)):
        return f"timestamp_micros({_since_epoch_us(given)})"
    return f"CAST({{}} AS {_TARGETS[wanted].simpleString()})"


def _since_epoch_us(given: T.DataType) -> str:
    """A time without a zone is UTC: by its parts, as Spark would take it through the clock of the session's zone."""
    if isinstance(given, T.DateType):
        return "unix_date({0}) * 86400000000L"
    return (
        "unix_date(CAST({0} AS DATE)) * 86400000000L + hour({0}) * 3600000000L "
        "+ minute({0}) * 60000000L + CAST(extract(SECOND FROM {0}) * 1000000 AS BIGINT)"
    )


def event_id_type(publications: DataFrame) -> pa.DataType:
    return to_arrow_type(publications.schema["event_id"].dataType)
