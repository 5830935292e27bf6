"""Which publications are events, as Spark sees it: the same as `model.events.problems`, in SQL.

What goes to Python goes value by value, so that a column less is worth more than a condition more.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from pyspark.sql import DataFrame

from catchment.model.schema import RESERVED_COLUMNS, Schema
from catchment.model.times import TIME_MAX_US, TIME_MIN_US
from catchment.pipeline.columns import NEVER, column_of, is_attribute, spark_literal
from catchment.pipeline.statistics import NOTHING_KNOWN, Known
from catchment.stages import HEADER_BYTES, Plan, Wanted

__all__ = [
    "LARGEST_DOUBLE",
    "OUTSIDE",
    "REASON",
    "SIZE",
    "accepted",
    "for_a_pass",
    "judged",
    "outside_of_ranges",
    "used_columns",
]

REASON = "reason"
"""Why a publication is no event; null if it is one."""
OUTSIDE = "outside"
"""Which attribute has a value beyond the range of its type, also of those that are not selected; null if none has."""
SIZE = "size"
"""How large a publication is on the wire."""

LARGEST_DOUBLE = "1.7976931348623157E308D"

_RANGES = {
    "double": ("abs({})", None, LARGEST_DOUBLE, "is NaN or infinite"),
    "timestamp": ("unix_micros({})", TIME_MIN_US, TIME_MAX_US, "is outside of the years 1 to 9999"),
}
"""By type: what must lie between which ends, and what is said if not. To Spark a NaN is beyond every number."""


def accepted(publications: DataFrame, plan: Plan, known: Known = NOTHING_KNOWN) -> DataFrame:
    """Prepared publications with nothing wrong that some subscription could be about; what is known is not asked."""
    topics = ", ".join(spark_literal(topic) for topic in plan.topics) or "NULL"
    kept = publications.where(f"topic IN ({topics})")
    if REASON in publications.columns:
        # What Spark infers from one condition over many computed columns may grow until its memory is full.
        return kept.where(f"{REASON} IS NULL")
    problems = _problems(plan.schemas, plan.brokers if plan.has_overlay else None, known)
    return kept.where(f"NOT ({' OR '.join(problems)}) OR {NEVER}")


def used_columns(publications: DataFrame, plan: Plan) -> list[str]:
    """The columns that answering aggregate subscriptions needs."""
    used = {"ts", *_used(plan)}
    if len(plan.topics) > 1:
        used.add("topic")
    return [name for name in publications.columns if name in used]


def judged(
    publications: DataFrame,
    schemas: Mapping[str, Schema],
    brokers: Collection[str] | None,
    known: Known = NOTHING_KNOWN,
    *,
    measured: bool,
) -> DataFrame:
    """Prepared publications, each with what is wrong with it and, if asked, its size on the wire."""
    sizes = [f"{_size(publications)} AS {SIZE}"] if measured else []
    if REASON in publications.columns:
        return publications.selectExpr("*", *sizes)
    problems = _problems(schemas, brokers, known)
    reason = " ".join(f"WHEN {problem} THEN {said}" for problem, said in problems.items())
    return publications.selectExpr("*", f"CASE {reason} END AS {REASON}", *sizes).drop(OUTSIDE)


def for_a_pass(judged: DataFrame, plan: Plan, wanted: Wanted, watermark_us: int | None) -> DataFrame:
    """Judged publications in the columns that a pass needs.

    The id is there where it will be shown: of events that are delivered, late or refused.
    """
    shown = "TRUE" if wanted.deliveries and plan.regular_names else f"{REASON} IS NOT NULL"
    if watermark_us is not None:
        shown += f" OR unix_micros(ts) < {watermark_us}"
    used = {"topic", "broker", "ts", REASON, *_used(plan), *([SIZE] if wanted.sizes else [])}
    columns = [name for name in judged.columns if name in used]
    return judged.selectExpr(f"CASE WHEN {shown} THEN event_id END AS event_id", *columns)


def _used(plan: Plan) -> set[str]:
    return {column_of(name) for topic in plan.topics.values() for name in topic.schema}


def _problems(schemas: Mapping[str, Schema], brokers: Collection[str] | None, known: Known) -> dict[str, str]:
    """What makes a publication no event, and what is then said, both as SQL; the first that holds counts."""
    doubtful = (name for name in RESERVED_COLUMNS if name not in known.complete)
    found = {f"{name} IS NULL": spark_literal(f"{name} is missing") for name in doubtful}
    if "*" not in schemas:
        topics = ", ".join(sorted(schemas))
        found[f"topic NOT IN ({_list(schemas)})"] = spark_literal(f"unknown topic; known are {topics}")
    if brokers is not None:
        found[f"broker NOT IN ({_list(brokers)})"] = spark_literal("the broker is not in the overlay")
    found[f"{OUTSIDE} IS NOT NULL"] = OUTSIDE
    return found


def outside_of_ranges(values: Mapping[str, tuple[str, str]]) -> str:
    """OUTSIDE as SQL, from SQL and type of each attribute.

    One function over all of a type: a condition for each would be too much for Spark where there are thousands.
    """
    checked = {name: (sql, _RANGES[kind]) for name, (sql, kind) in values.items() if kind in _RANGES}
    beyond = []
    for number, low, high, problem in _RANGES.values():
        numbers = [number.format(sql) for sql, limits in checked.values() if limits[-1] == problem]
        if numbers:
            beyond.append(f"{_of_all('greatest', numbers)} > {high}")
        if numbers and low is not None:
            beyond.append(f"{_of_all('least', numbers)} < {low}")
    if not beyond:
        return "CAST(NULL AS STRING)"
    said = []
    for name, (sql, (number, low, high, problem)) in checked.items():
        value = number.format(sql)
        condition = f"{value} > {high}" if low is None else f"{value} NOT BETWEEN {low} AND {high}"
        said.append(f"CASE WHEN {condition} THEN {spark_literal(f'{name} {problem}')} END")
    return f"CASE WHEN {' OR '.join(beyond)} THEN {_of_all('coalesce', said)} END"


def _of_all(function: str, values: list[str]) -> str:
    return values[0] if len(values) == 1 else f"{function}({', '.join(values)})"


def _list(names: Iterable[str]) -> str:
    return ", ".join(spark_literal(name) for name in sorted(names))


def _size(publications: DataFrame) -> str:
    """As `stages.measuring.event_bytes`."""
    sizes = [f"{HEADER_BYTES}L"]
    for column, kind in publications.dtypes:
        if is_attribute(column):
            size = f"octet_length({column}) + 4" if kind == "string" else "1" if kind == "boolean" else "8"
            sizes.append(f"CASE WHEN {column} IS NULL THEN 0 ELSE {size} END")
    # In pairs, as a sum of thousands one after the other is nested too deeply for Spark.
    while len(sizes) > 1:
        sizes = [f"({' + '.join(sizes[at : at + 2])})" for at in range(0, len(sizes), 2)]
    return sizes[0]
