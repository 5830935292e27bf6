"""Sketches travel both ways: Spark's own functions read ours, and ours read Spark's."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import (
    BinaryType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from catchment.model.operators import Measure
from catchment.model.schema import Type
from catchment.model.states import DISTINCT_SKETCH, QUANTILE_SKETCH, TOP_SKETCH
from catchment.oracle.measures import measured

pytestmark = pytest.mark.spark

SPARK_TYPES: dict[Type, DataType] = {
    Type.INT: LongType(),
    Type.FLOAT: DoubleType(),
    Type.STRING: StringType(),
    Type.TIMESTAMP: LongType(),
}
MANY = [(i * 7919) % 3001 - 1500 for i in range(12_000)]
"""Negative numbers too, and more than any sketch keeps one by one."""


def typed(kind: Type, numbers: list[int]) -> list[Any]:
    return (
        [str(n) for n in numbers] if kind is Type.STRING else [float(n) if kind is Type.FLOAT else n for n in numbers]
    )


def column(spark: SparkSession, kind: Type, values: list[Any]) -> DataFrame:
    return spark.createDataFrame([(v,) for v in values], StructType([StructField("x", SPARK_TYPES[kind])]))


def blobs(spark: SparkSession, sketches: list[bytes]) -> DataFrame:
    return spark.createDataFrame([(bytearray(s),) for s in sketches], "blob binary")


def only(frame: DataFrame) -> Any:
    return frame.collect()[0][0]


def within(measure: Measure, kind: Type, values: list[Any], found: float) -> bool:
    expected = measured(measure, values, kind)
    assert expected.low is not None
    assert expected.high is not None
    return expected.low <= found <= expected.high


@pytest.mark.parametrize("kind", [Type.INT, Type.STRING, Type.TIMESTAMP])
@pytest.mark.parametrize("count", [3, 12_000])
def test_distinct(spark: SparkSession, kind: Type, count: int) -> None:
    values = typed(kind, MANY[:count])
    half = count // 2
    measure = Measure("approx_count_distinct", "x")
    ours = [DISTINCT_SKETCH.collect(part, kind) for part in (values[:half], values[half:])]
    read = only(blobs(spark, ours).selectExpr("hll_sketch_estimate(hll_union_agg(blob))"))
    assert within(measure, kind, values, read)
    theirs = bytes(only(column(spark, kind, values[:half]).selectExpr("hll_sketch_agg(x, 12)")))
    mixed = DISTINCT_SKETCH.merge_all([theirs, ours[1], ours[0]], kind)
    assert within(measure, kind, values, DISTINCT_SKETCH.estimate(mixed))
    if count == 3:
        assert DISTINCT_SKETCH.estimate(mixed) == read == 3


@pytest.mark.parametrize("count", [1, 3, 200, 201, 400, 12_000])
def test_quantiles(spark: SparkSession, count: int) -> None:
    """Merged by them, merged by us and not merged at all; 400 values in two sketches leave the lowest level empty."""
    values = typed(Type.FLOAT, MANY[:count])
    half = count // 2
    measure = Measure("approx_percentile", "x", (0.75,))
    ours = [QUANTILE_SKETCH.collect(part, Type.FLOAT) for part in (values[:half], values[half:])]
    found = only(blobs(spark, ours).selectExpr("kll_sketch_get_quantile_double(kll_merge_agg_double(blob), 0.75D)"))
    assert within(measure, Type.FLOAT, values, found)
    theirs = bytes(only(column(spark, Type.FLOAT, values[:half]).selectExpr("kll_sketch_agg_double(x)")))
    mixed = QUANTILE_SKETCH.merge_all([theirs, ours[1]], Type.FLOAT)
    assert mixed == QUANTILE_SKETCH.merge_all([theirs, ours[1]], Type.FLOAT)
    for sketch in (mixed, QUANTILE_SKETCH.merge_all(ours, Type.FLOAT), QUANTILE_SKETCH.collect(values, Type.FLOAT)):
        read = blobs(spark, [sketch]).selectExpr(
            "kll_sketch_get_n_double(blob)",
            "kll_sketch_get_quantile_double(blob, 0.75D)",
            "kll_sketch_get_quantile_double(blob, 0D)",
            "kll_sketch_get_quantile_double(blob, 1D)",
        )
        assert tuple(read.collect()[0]) == (count, QUANTILE_SKETCH.quantile(sketch, 0.75), min(values), max(values))
        assert within(measure, Type.FLOAT, values, read.collect()[0][1])


ITEM_DDL = {Type.STRING: "item string not null", Type.INT: "item bigint not null", Type.FLOAT: "item double not null"}


@pytest.mark.parametrize("kind", [Type.STRING, Type.INT, Type.FLOAT])
def test_top_items(spark: SparkSession, kind: Type) -> None:
    values = typed(kind, [n for n in range(-40, 40) for _ in range(abs(n))] + [7] * 100)
    expected = measured(Measure("approx_top_k", "x", (1.0,)), values, kind).value
    parts = (values[:900], values[900:])
    ours = [TOP_SKETCH.collect(part, kind) for part in parts]
    state = StructType(
        [
            StructField("sketch", BinaryType(), nullable=False),
            StructField("maxItemsTracked", IntegerType(), nullable=False),
            StructField("itemDataType", SPARK_TYPES[kind]),
            StructField("itemDataTypeDDL", StringType(), nullable=False),
        ]
    )
    rows = [((bytearray(TOP_SKETCH.spark_bytes(blob)), 10_000, None, ITEM_DDL[kind]),) for blob in ours]
    frame = spark.createDataFrame(rows, StructType([StructField("state", state, nullable=False)]))
    read = only(frame.selectExpr("approx_top_k_estimate(approx_top_k_combine(state, 10000), 1)"))
    assert [{"item": row["item"], "count": row["count"]} for row in read] == expected
    accumulated = only(column(spark, kind, parts[0]).selectExpr("approx_top_k_accumulate(x, 10000)"))
    assert accumulated.itemDataTypeDDL.lower() == ITEM_DDL[kind]
    assert accumulated.itemDataType is None
    theirs = TOP_SKETCH.from_spark_bytes(bytes(accumulated.sketch))
    assert TOP_SKETCH.top(TOP_SKETCH.merge_all([theirs, ours[1]], kind), 1, kind) == expected
