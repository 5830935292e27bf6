"""A handful of questions as plain Spark SQL.

    scan ─ which questions match? ─ aggregate by (question, slice) ─ slices to windows ─ aggregate by window ─► values

Questions of one layout (topic, window, group keys) share a scan. Every matched event updates the states of all of them,
which is cheap as long as they are few.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from catchment.model.operators import Measure
from catchment.model.rendering import filter_sql, literal_sql, name_sql
from catchment.model.results import NOTIFICATION_SCHEMA
from catchment.model.schema import Type
from catchment.model.window import Window
from catchment.pipeline.acceptance import accepted
from catchment.stages import Plan
from catchment.stages.plan import Asker, Layout, Part, Question

__all__ = ["plain_notifications"]


def plain_notifications(publications: DataFrame, plan: Plan, complete: Collection[str] = ()) -> DataFrame:
    """The notifications of all questions that `planner.obstacle_to_plain_sql` lets through."""
    alike: dict[tuple[str, Layout], list[Question]] = defaultdict(list)
    for question in plan.questions.values():
        alike[question.topic, question.layout].append(question)
    if not alike:
        return publications.sparkSession.createDataFrame([], from_arrow_schema(NOTIFICATION_SCHEMA))
    answers = []
    for (topic, layout), questions in alike.items():
        of_topic = publications.where(f"topic = {literal_sql(topic)}")
        answers.append(_answered(of_topic, plan, layout, questions, complete))
    return reduce(DataFrame.unionAll, answers)


def _answered(
    publications: DataFrame, plan: Plan, layout: Layout, questions: list[Question], complete: Collection[str]
) -> DataFrame:
    window, keys = layout.window, [name_sql(name) for name in layout.group_keys]
    states = {part: f"_state{number}" for number, part in enumerate({p: None for q in questions for p in q.parts})}
    conditions = [f"({filter_sql(question.where)})" for question in questions]
    numbered = ", ".join(f"CASE WHEN {condition} THEN {at} END" for at, condition in enumerate(conditions))
    # What satisfies the only question needs no second look.
    which = f"explode(array({numbered}))" if len(questions) > 1 else "0"
    # Few publications satisfy a question, so it is asked before whether they are events at all.
    events = accepted(publications.where(" OR ".join(conditions)), plan, complete)
    matched = events.selectExpr("*", f"{which} AS _question", f"{_slice(window)} AS _slice").where(
        "_question IS NOT NULL"
    )
    sliced = _aggregated(matched, ["_question", "_slice", *keys], _created(states))
    if len(questions) == 1 and not keys:
        # One question has few slices: to put them together where they are is quicker than to spread them once more.
        sliced = sliced.coalesce(1)
    spread = sliced.selectExpr("*", f"explode({_windows(window)}) AS _window")
    merged = _aggregated(spread, ["_question", "_window", *keys], _merged(states))
    group = ", ".join(f"{literal_sql(name)}, CAST({name_sql(name)} AS STRING)" for name in layout.group_keys)
    told = " ".join(f"WHEN {at} THEN {_told(question)}" for at, question in enumerate(questions))
    start = f"_window * {window.shift_us}"
    return (
        merged.selectExpr("*", *_finished(questions, states))
        .selectExpr(
            f"timestamp_micros({start}) AS window_start",
            f"timestamp_micros({start} + {window.size_us}) AS window_end",
            f"map({group}) AS group" if group else "CAST(map() AS MAP<STRING, STRING>) AS group",
            f"inline(CASE _question {told} END)",
            "_events AS publications",
            "0 AS revision",
        )
        .where("worth")
        .select(*NOTIFICATION_SCHEMA.names)
    )


def _aggregated(rows: DataFrame, keys: list[str], states: list[str]) -> DataFrame:
    return rows.groupBy(*keys).agg(*(F.expr(state) for state in states))


# -- slices and windows, as model.window says --------------------------------------------------------------------------


def _slice(window: Window) -> str:
    time, shift_us = "unix_micros(ts)", window.shift_us
    shifts = f"({time} - pmod({time}, {shift_us})) DIV {shift_us}"
    rest = window.size_us % shift_us
    return f"2 * ({shifts}) + CAST(pmod({time}, {shift_us}) >= {rest} AS BIGINT)" if rest else shifts


def _windows(window: Window) -> str:
    """The numbers of the windows that a slice lies in; a shift is a division by the one or two slices of a step."""
    halvings = window.step - 1
    first = f"shiftright(_slice - {window.span - window.step}, {halvings})"
    return f"sequence({first}, shiftright(_slice, {halvings}))"


# -- states: create and add, merge, finish ----------------------------------------------------------------------------


_COLUMNS: dict[str, dict[str, tuple[str, str]]] = {
    "tally": {},
    # Two halves, so that a sum beyond 64 bits is seen and not wrapped.
    "whole total": {"high": ("sum(shiftright({}, 32))", "sum"), "low": ("sum({} & 4294967295)", "sum")},
    "real total": {"value": ("sum({})", "sum")},
    "lowest": {"value": ("min({})", "min")},
    "highest": {"value": ("max({})", "max")},
}
"""The columns of a state beside its count: what makes them from an attribute, and what merges them."""


def _created(states: dict[Part, str]) -> list[str]:
    found = ["count(*) AS _events"]
    for part, name in states.items():
        if part.attribute is not None:
            attribute = name_sql(part.attribute)
            found.append(f"count({attribute}) AS {name}_count")
            columns = _COLUMNS[part.state].items()
            found += [f"{create.format(attribute)} AS {name}_{column}" for column, (create, _) in columns]
    return found


def _merged(states: dict[Part, str]) -> list[str]:
    found = ["sum(_events) AS _events"]
    for part, name in states.items():
        if part.attribute is not None:
            found.append(f"sum({name}_count) AS {name}_count")
            columns = _COLUMNS[part.state].items()
            found += [f"{merge}({name}_{column}) AS {name}_{column}" for column, (_, merge) in columns]
    return found


def _finished(questions: list[Question], states: dict[Part, str]) -> list[str]:
    """All measures that anyone asks for, each under its own name, as HAVING calls it."""
    found = {}
    for question in questions:
        for asker in question.askers:
            for measure, position in _measures(asker):
                part = question.parts[position]
                found[measure] = f"{_result(measure, part, states[part])} AS {name_sql(str(measure))}"
    return list(found.values())


def _measures(asker: Asker) -> list[tuple[Measure, int]]:
    return [*((measure, position) for _, measure, position in asker.outputs), *asker.having_measures]


def _result(measure: Measure, part: Part, name: str) -> str:
    if measure.operator == "count":
        return "_events" if part.attribute is None else f"{name}_count"
    if part.state != "whole total":
        return f"{name}_value / {name}_count" if measure.operator == "avg" else f"{name}_value"
    if measure.operator == "avg":
        return f"({name}_high * 4294967296D + {name}_low) / {name}_count"
    high, low = f"({name}_high + shiftright({name}_low, 32))", f"({name}_low & 4294967295)"
    total = f"CAST(CAST({name}_high AS DECIMAL(38, 0)) * 4294967296 + {name}_low AS STRING)"
    message = f"concat('a sum of integers is ', {total}, '; accepted are sums within 64 bits')"
    return (
        f"CASE WHEN {high} BETWEEN {-(2**31)} AND {2**31 - 1} THEN shiftleft({high}, 32) + {low} "
        f"WHEN {name}_high IS NOT NULL THEN CAST(raise_error({message}) AS BIGINT) END"
    )


# -- what each asker is told ------------------------------------------------------------------------------------------


def _told(question: Question) -> str:
    """An array with a struct for each output of each subscription that asks this question."""
    rows = []
    for asker in question.askers:
        worth = "TRUE" if asker.having is None else f"coalesce({filter_sql(asker.having)}, FALSE)"
        for output, measure, position in asker.outputs:
            value = name_sql(str(measure))
            fields = {
                "subscription": literal_sql(asker.name),
                "output": literal_sql(output),
                "value": f"CAST({value} AS DOUBLE)",
                "exact": _exact(value, measure.result(question.parts[position].kind)),
                "worth": worth,
            }
            rows.append("named_struct(" + ", ".join(f"'{name}', {sql}" for name, sql in fields.items()) + ")")
    return f"array({', '.join(rows)})"


def _exact(value: str, kind: Type | None) -> str:
    text = f"CAST({value} AS STRING)"
    if kind is Type.FLOAT:
        text = f"CASE WHEN abs({value}) = double('Infinity') THEN concat('\"', {text}, '\"') ELSE {text} END"
    return f"coalesce({text}, 'null')"
