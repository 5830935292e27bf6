"""A handful of questions as plain Spark SQL: one query each, in one union."""

from __future__ import annotations

from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from catchment.model.operators import Measure
from catchment.model.rendering import filter_sql, literal_sql, name_sql
from catchment.model.schema import Type
from catchment.model.times import TIME_MAX_US, TIME_MIN_US
from catchment.pipeline.publications import Catalog
from catchment.stages import Plan
from catchment.stages.plan import Asker, Question

__all__ = ["plain_notifications"]

NOTIFICATION_COLUMNS = (
    "subscription", "window_start", "window_end", "group", "output", "value", "exact", "publications", "revision",
)  # fmt: skip


def plain_notifications(publications: DataFrame, plan: Plan) -> DataFrame:
    """The notifications of all questions that `planner.obstacle_to_plain_sql` lets through."""
    accepted = publications.where(accepted_sql(publications, plan))
    answers = [_question(accepted, question) for question in plan.questions.values()]
    if not answers:
        from pyspark.sql.pandas.types import from_arrow_schema

        from catchment.model.results import NOTIFICATION_SCHEMA

        return publications.sparkSession.createDataFrame([], from_arrow_schema(NOTIFICATION_SCHEMA))
    return reduce(DataFrame.unionAll, answers)


def accepted_sql(publications: DataFrame, plan: Plan) -> str:
    """The condition that `model.events.problems` finds nothing wrong, for Spark."""
    conditions = [f"{name} IS NOT NULL" for name in ("event_id", "topic", "broker", "ts")]
    conditions.append(f"unix_micros(ts) BETWEEN {TIME_MIN_US} AND {TIME_MAX_US}")
    if plan.has_overlay:
        conditions.append(f"broker IN ({', '.join(literal_sql(broker) for broker in plan.brokers)})")
    if not Catalog(plan.schemas).is_open:
        conditions.append(f"topic IN ({', '.join(literal_sql(topic) for topic in plan.schemas)})")
    for name, kind in publications.dtypes:
        column = name_sql(name)
        if kind == "double":
            largest = "1.7976931348623157E308D"
            conditions.append(f"({column} IS NULL OR {column} BETWEEN -{largest} AND {largest})")
        elif kind == "bigint" and name != "event_id":
            conditions.append(f"({column} IS NULL OR {column} > {-(2**63 - 1)} - 1)")
    return " AND ".join(conditions)


def _question(publications: DataFrame, question: Question) -> DataFrame:
    window = question.layout.window
    keys = [F.col(name_sql(name)) for name in question.layout.group_keys]
    # Two steps of projection are saved by grouping on the window alone where its shape allows it.
    stretch = F.window("ts", f"{window.size_us} microseconds", f"{window.shift_us} microseconds")
    measures = {
        measure: question.parts[position].kind
        for asker in question.askers
        for measure, position in [*((m, p) for _, m, p in asker.outputs), *asker.having_measures]
    }
    grouped = (
        publications.where(f"topic = {literal_sql(question.topic)} AND ({filter_sql(question.where)})")
        .groupBy(stretch, *keys)
        .agg(F.count("*").alias("_publications"), *(_aggregate(m, k).alias(str(m)) for m, k in measures.items()))
    )
    answers = [_asker(grouped, question, asker, measures) for asker in question.askers]
    return reduce(DataFrame.unionAll, answers)


def _asker(grouped: DataFrame, question: Question, asker: Asker, measures: dict[Measure, Type]) -> DataFrame:
    if asker.having is not None:
        grouped = grouped.where(filter_sql(asker.having))
    pairs = [(F.lit(name), F.col(name_sql(name)).cast("string")) for name in question.layout.group_keys]
    group = F.create_map(*(part for pair in pairs for part in pair)) if pairs else F.expr("map('', '')")
    if not pairs:
        group = F.map_from_arrays(F.array().cast("array<string>"), F.array().cast("array<string>"))
    outputs = F.array(
        *(
            F.struct(
                F.lit(name).alias("output"),
                F.col(name_sql(str(measure))).cast("double").alias("value"),
                _exact(F.col(name_sql(str(measure))), measure.result(measures[measure])).alias("exact"),
            )
            for name, measure, _ in asker.outputs
        )
    )
    rows = grouped.select(
        F.lit(asker.name).alias("subscription"),
        F.col("window.start").alias("window_start"),
        F.col("window.end").alias("window_end"),
        group.alias("group"),
        F.inline(outputs),
        F.col("_publications").alias("publications"),
        F.lit(0).alias("revision"),
    )
    return rows.select(*NOTIFICATION_COLUMNS)


def _aggregate(measure: Measure, kind: Type) -> Column:
    if measure.attribute is None:
        return F.count("*")
    column = F.col(name_sql(measure.attribute))
    if measure.operator == "sum" and kind is Type.INT:
        # Wide enough not to wrap; the cast back to 64 bits is what refuses an overflow.
        total = F.sum(column.cast("decimal(20,0)"))
        message = F.concat(F.lit("a sum of integers is "), total.cast("string"), F.lit("; accepted are sums within 64 bits"))
        fits = total.between(F.lit(-(2**63)).cast("decimal(20,0)"), F.lit(2**63 - 1).cast("decimal(20,0)"))
        return F.when(total.isNull() | fits, total.cast("bigint")).otherwise(F.raise_error(message).cast("bigint"))
    functions = {
        "count": F.count, "sum": F.sum, "avg": F.avg, "min": F.min, "max": F.max,
        "var_samp": F.var_samp, "stddev_samp": F.stddev_samp,
    }  # fmt: skip
    if measure.operator in ("var_samp", "stddev_samp"):
        column = column.cast("double")
    return functions[measure.operator](column)


def _exact(column: Column, kind: Type | None) -> Column:
    text = column.cast("string")
    if kind is Type.FLOAT:
        text = F.when(column.isin(float("inf"), float("-inf")), F.concat(F.lit('"'), text, F.lit('"'))).otherwise(text)
    return F.coalesce(text, F.lit("null"))
