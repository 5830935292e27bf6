"""Which publications are events, as Spark sees it: the same as `model.events.problems`, in SQL.

What goes to Python goes value by value, so that a column less is worth more than a condition more.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from pyspark.sql import DataFrame

from catchment.model.rendering import literal_sql, name_sql
from catchment.model.schema import RESERVED_COLUMNS, Schema
from catchment.model.times import TIME_MAX_US, TIME_MIN_US
from catchment.stages import HEADER_BYTES, REASON, SIZE, Plan, Wanted

__all__ = ["accepted", "for_a_pass", "judged"]

LARGEST_DOUBLE = "1.7976931348623157E308D"


def accepted(publications: DataFrame, plan: Plan, complete: Collection[str] = ()) -> DataFrame:
    """Prepared publications with nothing wrong that some subscription could be about, in the columns that it needs.

    Columns that are known to be `complete` are not asked whether something is missing in them.
    """
    topics = ", ".join(literal_sql(topic) for topic in plan.topics) or "NULL"
    used = {"ts", *_used(plan)}
    if len(plan.topics) > 1:
        used.add("topic")
    kept = publications.where(f"topic IN ({topics})")
    known = {_missing(name) for name in complete}
    for problem in _problems(publications, plan.schemas, plan.brokers if plan.has_overlay else None):
        if problem not in known:
            kept = kept.where(f"NOT ({problem})")
    return kept.select(*(name_sql(name) for name in publications.columns if name in used))


def judged(
    publications: DataFrame, schemas: Mapping[str, Schema], brokers: Collection[str] | None, *, measured: bool
) -> DataFrame:
    """Prepared publications, each with what is wrong with it and, if asked, its size on the wire."""
    problems = _problems(publications, schemas, brokers)
    reason = " ".join(f"WHEN {problem} THEN {literal_sql(said)}" for problem, said in problems.items())
    sizes = [f"{_size(publications)} AS {SIZE}"] if measured else []
    return publications.selectExpr("*", f"CASE {reason} END AS {REASON}", *sizes)


def for_a_pass(judged: DataFrame, plan: Plan, wanted: Wanted, watermark_us: int | None) -> DataFrame:
    """Judged publications in the columns that a pass needs.

    The id is there where it will be told: of events that are delivered, late or refused.
    """
    told = "TRUE" if wanted.deliveries and plan.regular_names else f"{REASON} IS NOT NULL"
    if watermark_us is not None:
        told += f" OR unix_micros(ts) < {watermark_us}"
    used = {"topic", "broker", "ts", REASON, *_used(plan), *([SIZE] if wanted.sizes else [])}
    columns = [name_sql(name) for name in judged.columns if name in used]
    return judged.selectExpr(f"CASE WHEN {told} THEN event_id END AS event_id", *columns)


def _used(plan: Plan) -> set[str]:
    return {name for topic in plan.topics.values() for name in topic.schema}


def _problems(
    publications: DataFrame, schemas: Mapping[str, Schema], brokers: Collection[str] | None
) -> dict[str, str]:
    """What makes a publication no event, and what is then said; the first that holds counts."""
    found = {_missing(name): f"{name} is missing" for name in RESERVED_COLUMNS}
    if "*" not in schemas:
        found[f"topic NOT IN ({_list(schemas)})"] = f"unknown topic; known are {', '.join(sorted(schemas))}"
    if brokers is not None:
        found[f"broker NOT IN ({_list(brokers)})"] = "the broker is not in the overlay"
    for name, kind in publications.dtypes:
        column = name_sql(name)
        if kind == "double":
            outside = f"{column} NOT BETWEEN -{LARGEST_DOUBLE} AND {LARGEST_DOUBLE}"
            found[f"coalesce({outside}, FALSE)"] = f"{name} is NaN or infinite"
        elif kind == "timestamp":
            outside = f"unix_micros({column}) NOT BETWEEN {TIME_MIN_US} AND {TIME_MAX_US}"
            found[f"coalesce({outside}, FALSE)"] = f"{name} is outside of the years 1 to 9999"
    return found


def _missing(name: str) -> str:
    return f"{name_sql(name)} IS NULL"


def _list(names: Iterable[str]) -> str:
    return ", ".join(literal_sql(name) for name in sorted(names))


def _size(publications: DataFrame) -> str:
    """As `stages.matching.event_bytes`."""
    sizes = [f"{HEADER_BYTES}L"]
    for name, kind in publications.dtypes:
        if name not in RESERVED_COLUMNS:
            column = name_sql(name)
            size = f"octet_length({column}) + 4" if kind == "string" else "1" if kind == "boolean" else "8"
            sizes.append(f"CASE WHEN {column} IS NULL THEN 0 ELSE {size} END")
    return " + ".join(sizes)
