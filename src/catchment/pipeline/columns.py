"""Columns inside our Spark jobs: their names, and values as SQL that means the same under every session setting.

An attribute of any name gets a column that needs no quotes, differs from all others even where Spark ignores case, and
is none of ours, as only attributes begin with `a_`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import from_arrow_schema

from catchment.model.constraint import Constraint, Scalar
from catchment.model.filter import Filter
from catchment.model.rendering import filter_sql, literal_sql
from catchment.model.schema import RESERVED_COLUMNS, Schema, Type
from catchment.pipeline.workers import shipped

__all__ = [
    "NEVER",
    "any_of_sql",
    "attribute_of",
    "column_of",
    "condition_sql",
    "is_attribute",
    "map_in_arrow",
    "spark_literal",
    "with_attribute_names",
]

Batches = Iterator[pa.RecordBatch]

NEVER = "spark_partition_id() < 0"
"""False, but Spark infers nothing from a condition that may be true for it.

From others it infers one more for each set of renamed columns in them: a dozen columns keep it busy for minutes.
"""
TOGETHER_MAX = 4
"""So many columns in one condition it may infer from; what it infers lets it leave out parts of files."""
OLD_BEFORE_US = -2_208_988_800_000_000
"""The year 1900: later times are the same in every calendar that Spark uses."""

_PREFIX = "a_"
_ESCAPED = re.compile(r"[^a-z0-9]")
_ESCAPE = re.compile(r"_([0-9a-f]+)_")
_SPECIAL = re.compile(r"(['\\$])")
"""What Spark may read as something else within quotes."""


def column_of(attribute: str) -> str:
    """The column of an attribute: `speed` is `a_speed`, `Top Speed` is `a__54_op_20__53_peed`."""
    if attribute in RESERVED_COLUMNS:
        return attribute
    return _PREFIX + _ESCAPED.sub(lambda found: f"_{ord(found[0]):x}_", attribute)


def attribute_of(column: str) -> str:
    """The attribute of a column, or the name of a column of ours."""
    if not is_attribute(column):
        return column
    return _ESCAPE.sub(lambda found: chr(int(found[1], 16)), column.removeprefix(_PREFIX))


def is_attribute(column: str) -> bool:
    """Whether a column holds an attribute; the others are reserved, or ours."""
    return column.startswith(_PREFIX)


def with_attribute_names(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A batch of our columns as the stages know it."""
    return batch.rename_columns([attribute_of(name) for name in batch.schema.names])


def spark_literal(value: Scalar, family: str | None = None) -> str:
    """A value as Spark reads it whatever the session says of quotes, backslashes, variables and time zones."""
    if family == "timestamp":
        return f"timestamp_micros({value})"
    if not isinstance(value, str) or not _SPECIAL.search(value):
        return literal_sql(value, family)
    pieces = [piece for piece in _SPECIAL.split(value) if piece]
    return f"concat({', '.join(f'char({ord(one)})' if _SPECIAL.match(one) else literal_sql(one) for one in pieces)})"


def condition_sql(condition: Filter, column: Callable[[str], str] = column_of, schema: Schema | None = None) -> str:
    """A filter over our columns as Spark reads it; with their schema, what it leaves to Parquet is right as well.

    To Parquet's filters -0.0 is less than 0.0, and they would leave out what Spark finds equal. Old times go to them by
    way of a calendar that has no 5th to 14th of October 1582, so Spark has to compare those itself.
    """
    with_old_times = {name for one in condition.disjuncts for name, constraint in one if _has_old_time(constraint)}

    def named(attribute: str) -> str:
        name = column(attribute)
        return f"timestamp_micros(unix_micros({name}))" if attribute in with_old_times else name

    def from_zero(attribute: str) -> str | None:
        is_real = schema is not None and schema.attributes.get(attribute) is Type.FLOAT
        return "-0.0D" if is_real else None

    return filter_sql(condition, name=named, literal=spark_literal, from_zero=from_zero)


def _has_old_time(constraint: Constraint) -> bool:
    ends = (cut for stretch in constraint.ranges for cut in stretch if len(cut) == 3)
    return constraint.family == "timestamp" and any(int(value) < OLD_BEFORE_US for _, value, _ in ends)


def any_of_sql(conditions: Sequence[Filter], schema: Schema | None = None) -> str:
    """Whether one of some filters holds, for `where`."""
    sql = " OR ".join(f"({condition_sql(one, schema=schema)})" for one in conditions)
    is_split = len(conditions) == 1 and len(conditions[0].disjuncts) <= 1
    attributes = {name for one in conditions for name in one.attributes}
    return sql if is_split or len(attributes) <= TOGETHER_MAX else f"{sql} OR {NEVER}"


def map_in_arrow(frame: DataFrame, run: Callable[[Batches], Batches], schema: pa.Schema) -> DataFrame:
    """`mapInArrow` with text and bytes in the types that our code reads, also where the session prefers large ones."""
    return frame.mapInArrow(shipped(partial(_over_plain_types, run)), from_arrow_schema(schema))


def _over_plain_types(run: Callable[[Batches], Batches], batches: Batches) -> Batches:
    return run(map(_with_plain_types, batches))


def _with_plain_types(batch: pa.RecordBatch) -> pa.RecordBatch:
    plain = pa.schema([field.with_type(_plain(field.type)) for field in batch.schema])
    return batch if plain.equals(batch.schema) else batch.cast(plain)


def _plain(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_large_string(kind):
        return pa.string()
    if pa.types.is_large_binary(kind):
        return pa.binary()
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(kind.value_field.with_type(_plain(kind.value_type)))
    return kind
