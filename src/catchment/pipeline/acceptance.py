"""Which publications are events, as Spark sees it: the same as `model.events.problems`, in SQL."""

from __future__ import annotations

from pyspark.sql import DataFrame

from catchment.model.rendering import literal_sql, name_sql
from catchment.model.times import TIME_MAX_US, TIME_MIN_US
from catchment.stages import Plan

__all__ = ["accepted"]

LARGEST_DOUBLE = "1.7976931348623157E308D"


def accepted(publications: DataFrame, plan: Plan) -> DataFrame:
    """Prepared publications with nothing wrong that some subscription could be about, in the columns that it needs.

    What goes to Python goes value by value, so that a column less is worth more than a condition more.
    """
    topics = ", ".join(literal_sql(topic) for topic in plan.topics) or "NULL"
    used = {"ts", *(name for topic in plan.topics.values() for name in topic.schema)}
    if len(plan.topics) > 1:
        used.add("topic")
    kept = publications.where(f"topic IN ({topics})").where(" AND ".join(_conditions(publications, plan)))
    return kept.select(*(name_sql(name) for name in publications.columns if name in used))


def _conditions(publications: DataFrame, plan: Plan) -> list[str]:
    conditions = ["event_id IS NOT NULL", "broker IS NOT NULL"]
    conditions.append(f"unix_micros(ts) BETWEEN {TIME_MIN_US} AND {TIME_MAX_US}")
    if plan.has_overlay:
        conditions.append(f"broker IN ({', '.join(literal_sql(broker) for broker in plan.brokers)})")
    for name, kind in publications.dtypes:
        column = name_sql(name)
        if kind == "double":
            conditions.append(f"({column} IS NULL OR {column} BETWEEN -{LARGEST_DOUBLE} AND {LARGEST_DOUBLE})")
        elif kind == "timestamp" and name != "ts":
            conditions.append(f"({column} IS NULL OR unix_micros({column}) BETWEEN {TIME_MIN_US} AND {TIME_MAX_US})")
    return conditions
