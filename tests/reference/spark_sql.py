"""The second reference: each subscription is a query of its own in plain Spark SQL over the raw publications.

Rule 1: nothing here comes from Catchment; a subscription is known by the parts that it was drawn from.
Rule 2: Spark filters, puts into windows, groups and aggregates. What Spark answers differently by definition is plain
        arithmetic: sampling windows, sums that must be exact, measures whose error is bounded, HAVING over them.
Rule 3: the reference has settings of its own, whatever those of the case are. A time without a zone is UTC.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from tests.reference.conditions import quoted, spark_sql, subjects, truth
from tests.reference.drawing import Case, Column, Drawn
from tests.reference.measures import BEYOND, Expected, key_text
from tests.reference.values import moment_us

__all__ = ["Answer", "Key", "Line", "configured", "reference_answer"]

SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "false",
    "spark.sql.ansi.enforceReservedKeywords": "false",
    "spark.sql.caseSensitive": "true",
    "spark.sql.timestampType": "TIMESTAMP_LTZ",
    "spark.sql.variable.substitute": "false",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    # Many small queries over few rows: compiling them would take longer than running them.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
FIRST_US, LAST_US = moment_us("0001-01-01 00:00:00"), moment_us("9999-12-31 23:59:59.999999")
RESERVED = ("event_id", "topic", "broker", "ts")

REJECTED = (
    "SELECT -1 AS at, 0L AS start_us, 0L AS end_us, 0L AS events, to_json(struct(event_id)) AS found "
    "FROM reference_publications WHERE bad"
)

REPEATED = (
    "NOT bad AND coalesce(unix_micros(ts) - lag(unix_micros(ts)) OVER "
    "(PARTITION BY bad, topic, broker, event_id ORDER BY ts) <= 120000000, FALSE)"
)
"""The same event at most 120 s after the one before it."""

Key = tuple[str, int, int, tuple[tuple[str, str | None], ...], str]
"""Subscription, window start and end, group, output."""


@dataclass(frozen=True, slots=True)
class Line:
    """One value that must be told; `certain` is false where HAVING hangs on rounding within the promise."""

    expected: Expected
    publications: int
    certain: bool


@dataclass(frozen=True, slots=True)
class Answer:
    """What every engine must say."""

    lines: dict[Key, Line]
    beyond: dict[Key, bool]
    """Values beyond their types, to be reported; False where rounding decides whether they are."""
    undecidable: dict[Key, set[str]]
    """Windows whose HAVING asks for such values, with an empty output, and the measures one of which is reported."""
    deliveries: Counter[tuple[str, Any, Any, Any]]
    """Subscription, topic, broker, id."""
    rejected: Counter[Any]


@contextmanager
def configured(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """The session with other settings, and as it was afterwards."""
    before = {name: spark.conf.get(name, None) for name in settings}
    try:
        for name, value in settings.items():
            spark.conf.set(name, value)
        yield
    finally:
        for name, old in before.items():
            if old is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, old)


def reference_answer(spark: SparkSession, read: Callable[[], DataFrame], case: Case) -> Answer:
    """What plain Spark SQL says; `read` yields the raw publications, and is called under the reference's settings."""
    with configured(spark, SETTINGS):
        typed = _typed(read(), case).coalesce(1).persist()
        typed.createOrReplaceTempView("reference_publications")
        try:
            queries = [REJECTED, *(_query(at, one) for at, one in enumerate(case.subscriptions))]
            rows = spark.sql("\nUNION ALL ".join(queries)).toArrow().to_pylist()
        finally:
            spark.catalog.dropTempView("reference_publications")
            typed.unpersist()
    return _answer(case, rows)


def _typed(raw: DataFrame, case: Case) -> DataFrame:
    """The publications under plain names, in the five types that attributes have; `bad` are no events."""
    at = {name: position for position, name in enumerate(raw.columns)}
    plain = raw.toDF(*(f"r{position}" for position in range(len(raw.columns))))
    columns = {name: f"r{at[name]}" for name in RESERVED}
    problems = [f"{column} IS NULL" for column in columns.values()]
    columns["ts"] = f"CAST({columns['ts']} AS TIMESTAMP)"
    problems.append(_outside(columns["ts"]))
    for column in case.columns:
        given = f"r{at[column.name]}"
        columns[column.reference] = given
        if column.kind.family == "int":
            columns[column.reference] = f"CAST({given} AS BIGINT)"
        elif column.kind.family == "float":
            # The sum turns −0.0 into 0.0: they are one value, also where Spark takes them for two.
            columns[column.reference] = f"CAST({given} AS DOUBLE) + 0D"
            problems.append(f"isnan(CAST({given} AS DOUBLE)) OR abs(CAST({given} AS DOUBLE)) = double('Infinity')")
        elif column.kind.family == "time":
            columns[column.reference] = f"CAST({given} AS TIMESTAMP)"
            columns[f"own_{column.reference}"] = given
            problems.append(_outside(f"CAST({given} AS TIMESTAMP)"))
    bad = " OR ".join(f"coalesce({problem}, FALSE)" for problem in problems)
    typed = plain.selectExpr(*(f"{value} AS {name}" for name, value in columns.items()), f"{bad} AS bad")
    return typed.selectExpr("*", f"{REPEATED if case.deduplicate else 'FALSE'} AS repeated")


def _outside(time: str) -> str:
    return f"unix_micros({time}) NOT BETWEEN {FIRST_US} AND {LAST_US}"


def _query(at: int, one: Drawn) -> str:
    topic = one.topic.replace("\\", "\\\\").replace("'", "\\'")
    kept = f"NOT bad AND NOT repeated AND topic = '{topic}'" + (
        f" AND ({spark_sql(one.where)})" if one.where is not None else ""
    )
    if one.window is None:
        told = _json({"topic": "topic", "broker": "broker", "id": "event_id"})
        return f"SELECT {at}, 0L, 0L, 1L, {told} FROM reference_publications WHERE {kept}"
    fields = {f"k{number}": _plain(key) for number, key in enumerate(one.keys)}
    fields |= {f"o{number}": measure.spark_sql for number, (_, measure) in enumerate(one.outputs)}
    fields |= {f"h{number}": measure.spark_sql for number, (_, measure) in enumerate(one.having_measures)}
    size_us, shift_us = one.window.size_us, one.window.shift_us
    if shift_us > size_us:
        into = f"unix_micros(ts) - pmod(unix_micros(ts), {shift_us})"
        kept += f" AND pmod(unix_micros(ts), {shift_us}) < {size_us}"
        start, end = into, f"{into} + {size_us}"
    else:
        into = f"window(ts, '{size_us} microseconds', '{shift_us} microseconds')"
        start, end = "unix_micros(window.start)", "unix_micros(window.end)"
    groups = ", ".join([into, *(key.reference for key in one.keys)])
    return (
        f"SELECT {at}, {start}, {end}, count(*), {_json(fields)} FROM reference_publications WHERE {kept} "
        f"GROUP BY {groups}"
    )


def _plain(key: Column) -> str:
    return f"unix_micros({key.reference})" if key.kind.family == "time" else key.reference


def _json(fields: Mapping[str, str]) -> str:
    struct = ", ".join(f"'{name}', {value}" for name, value in fields.items())
    return f"to_json(named_struct({struct}), map('ignoreNullFields', 'false'))"


def _answer(case: Case, rows: list[dict[str, Any]]) -> Answer:
    answer = Answer({}, {}, {}, Counter(), Counter())
    for row in rows:
        at, start_us, end_us, count, text = row.values()
        found = json.loads(text)
        if at < 0:
            answer.rejected[found.get("event_id")] += 1
            continue
        one = case.subscriptions[at]
        if one.window is None:
            answer.deliveries[one.name, found["topic"], found["broker"], found["id"]] += 1
        else:
            _tell(answer, one, (start_us, end_us), count, found)
    return answer


def _tell(answer: Answer, one: Drawn, window: tuple[int, int], count: int, found: dict[str, Any]) -> None:
    keys = [(key, found[f"k{number}"]) for number, key in enumerate(one.keys)]
    group = tuple(sorted((key.name, key_text(value, key.kind.family)) for key, value in keys))
    certain = True
    if one.having is not None:
        known = {quoted(key.name): Expected(value) for key, value in keys}
        measures = dict(one.having_measures)
        for number, (text, measure) in enumerate(one.having_measures):
            known[text] = measure.expected(found[f"h{number}"])
        asked = subjects(one.having)
        beyond = {text for text in asked if known[text] is BEYOND}
        if beyond:
            answer.undecidable[(one.name, *window, group, "")] = {measures[text].plain_text for text in beyond}
            return
        # Rounding decides whether such a measure is there at all: then anything is right.
        borderline = [text for text in asked if known[text].borderline]
        certain = not borderline
        for text in borderline:
            if text in measures:
                answer.beyond[(one.name, *window, group, measures[text].plain_text)] = False
        decided = truth(one.having, lambda subject: known[subject].ends)
        if True not in decided and certain:
            return
        certain = certain and decided == {True}
    for number, (alias, measure) in enumerate(one.outputs):
        key = (one.name, *window, group, alias or measure.plain_text)
        expected = measure.expected(found[f"o{number}"])
        if expected is BEYOND:
            answer.beyond[key] = certain
            continue
        if expected.borderline:
            answer.beyond[key] = False
        answer.lines[key] = Line(expected, count, certain and not expected.borderline)
