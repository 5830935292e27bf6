"""A handful of questions as plain Spark SQL.

    scan ─ which questions match? ─ aggregate by (question, slice) ─ slices to windows ─ aggregate by window ─► answers

Questions of one layout (topic, window, group keys) share a scan. Every matched event updates the states of all of them,
which is cheap as long as they are few.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from catchment.model.operators import BEYOND_DOUBLE, Measure, beyond_integer
from catchment.model.schema import Type
from catchment.model.states import DOWN, UP
from catchment.model.window import Window
from catchment.pipeline.acceptance import LARGEST_DOUBLE, accepted, used_columns
from catchment.pipeline.columns import any_of_sql, column_of, condition_sql, spark_literal
from catchment.pipeline.statistics import NOTHING_KNOWN, Known
from catchment.stages import ANSWER_SCHEMA, Plan
from catchment.stages.plan import Asker, Layout, Part, Question

__all__ = ["PLAIN_STATES", "plain_answers"]


def plain_answers(publications: DataFrame, plan: Plan, known: Known = NOTHING_KNOWN) -> DataFrame:
    """The answers to all questions that `planner.obstacle_to_plain_sql` lets through, as ANSWER_SCHEMA."""
    alike: dict[tuple[str, Layout], list[Question]] = defaultdict(list)
    for question in plan.questions.values():
        alike[question.topic, question.layout].append(question)
    if not alike:
        return publications.sparkSession.createDataFrame([], from_arrow_schema(ANSWER_SCHEMA))
    answers = []
    for (topic, layout), questions in alike.items():
        of_topic = publications.where(f"topic = {spark_literal(topic)}")
        answers.append(_answered(of_topic, plan, layout, questions, known))
    return reduce(DataFrame.unionAll, answers)


def _answered(
    publications: DataFrame, plan: Plan, layout: Layout, questions: list[Question], known: Known
) -> DataFrame:
    window, keys = layout.window, [column_of(name) for name in layout.group_keys]
    states = {part: f"state{number}" for number, part in enumerate({p: None for q in questions for p in q.parts})}
    conditions = [f"({condition_sql(question.where, schema=plan.schemas[question.topic])})" for question in questions]
    numbered = ", ".join(f"CASE WHEN {condition} THEN {at} END" for at, condition in enumerate(conditions))
    # What satisfies the only question needs no second look.
    which = f"explode(array({numbered}))" if len(questions) > 1 else "0"
    # Few publications satisfy a question, so it is asked before whether they are events at all.
    matching = any_of_sql([question.where for question in questions], plan.schemas[questions[0].topic])
    events = accepted(publications.where(matching), plan, known)
    columns = used_columns(publications, plan)
    matched = events.selectExpr(*columns, f"{which} AS question", f"{_slice(window)} AS slice").where(
        "question IS NOT NULL"
    )
    sliced = _aggregated(matched, ["question", "slice", *keys], _created(states))
    if len(questions) == 1 and not keys:
        # One question has few slices: to put them together where they are is quicker than to spread them once more.
        sliced = sliced.coalesce(1)
    spread = sliced.selectExpr("*", f"explode({_windows(window)}) AS window")
    merged = _aggregated(spread, ["question", "window", *keys], _merged(states))
    group = ", ".join(f"{spark_literal(name)}, CAST({column_of(name)} AS STRING)" for name in layout.group_keys)
    finished = _finished(questions, states)
    answers = " ".join(f"WHEN {at} THEN {_answers(question, finished)}" for at, question in enumerate(questions))
    start = f"window * {window.shift_us}"
    return (
        merged.select("*", *(one.result for one in finished.values()))
        .select("*", *(column for one in finished.values() for column in one.columns))
        .selectExpr(
            f"timestamp_micros({start}) AS window_start",
            f"timestamp_micros({start} + {window.size_us}) AS window_end",
            (f"map({group})" if group else "CAST(map() AS MAP<STRING, STRING>)") + " AS `group`",
            f"inline(CASE question {answers} END)",
            "events AS publications",
            "0 AS revision",
        )
        .where("worth")
        .select(*ANSWER_SCHEMA.names)
    )


def _aggregated(rows: DataFrame, keys: list[str], states: list[str]) -> DataFrame:
    return rows.groupBy(*keys).agg(*(F.expr(state) for state in states))


# -- slices and windows: the formulas of model.window, as SQL ----------------------------------------------------------


def _slice(window: Window) -> str:
    time, shift_us = "unix_micros(ts)", window.shift_us
    shifts = f"({time} - pmod({time}, {shift_us})) DIV {shift_us}"
    if window.step == 1:
        return shifts
    return f"2 * ({shifts}) + CAST(pmod({time}, {shift_us}) >= {window.rest_us} AS BIGINT)"


def _windows(window: Window) -> str:
    """The numbers of the windows that a slice lies in; a shift is a division by the one or two slices of a step."""
    halvings = window.step - 1
    first = f"shiftright(slice - {window.span - window.step}, {halvings})"
    return f"sequence({first}, shiftright(slice, {halvings}))"


# -- states: create and add, merge, finish ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _PlainState:
    """How plain SQL says a state."""

    columns: Mapping[str, tuple[str, str]]
    """Beside its count: what makes each from an attribute, and what merges it."""
    numbers: tuple[str, ...]
    """What `State.numbers` gives beside the count, from the name of a state and the type of the result's numbers."""


_FITS = f"abs({{0}}_value) <= {LARGEST_DOUBLE}"
PLAIN_STATES: Mapping[str, _PlainState] = {
    "tally": _PlainState({}, ()),
    # Two halves, so that a sum beyond 64 bits is seen and not wrapped.
    "whole total": _PlainState(
        {"high": ("sum(shiftright({}, 32))", "sum"), "low": ("sum({} & 4294967295)", "sum")},
        ("CAST({0}_high AS {1}) * 4294967296 + {0}_low", "1"),
    ),
    # The second tells the sum where the first is beyond a double, if only on the way.
    "real total": _PlainState(
        {"value": ("sum({})", "sum"), "down": (f"sum({{}} * {DOWN!r}D)", "sum")},
        (f"IF({_FITS}, {{0}}_value, {{0}}_down)", f"IF({_FITS}, 1D, {UP!r}D)"),
    ),
    "lowest": _PlainState({"value": ("min({})", "min")}, ("{0}_value",)),
    "highest": _PlainState({"value": ("max({})", "max")}, ("{0}_value",)),
}
"""The states whose slices Spark's own functions put together into windows."""


def _created(states: dict[Part, str]) -> list[str]:
    found = ["count(*) AS events"]
    for part, name in states.items():
        if part.attribute is not None:
            attribute = column_of(part.attribute)
            found.append(f"count({attribute}) AS {name}_count")
            columns = PLAIN_STATES[part.state].columns.items()
            found += [f"{create.format(attribute)} AS {name}_{column}" for column, (create, _) in columns]
    return found


def _merged(states: dict[Part, str]) -> list[str]:
    found = ["sum(events) AS events"]
    for part, name in states.items():
        if part.attribute is not None:
            found.append(f"sum({name}_count) AS {name}_count")
            columns = PLAIN_STATES[part.state].columns.items()
            found += [f"{merge}({name}_{column}) AS {name}_{column}" for column, (_, merge) in columns]
    return found


@dataclass(frozen=True, slots=True)
class _Finished:
    """The columns of a measure's results: the value, null if it is beyond its type, and then the problem."""

    number: int
    result: Column
    """Of the formula; a column of its own, or Spark would work it out wherever it is looked at."""
    value: Column
    problem: Column | None
    """Made from the result; None where no value is beyond the type."""

    @property
    def columns(self) -> list[Column]:
        problem = [] if self.problem is None else [self.problem.alias(self.problem_column)]
        return [self.value.alias(self.value_column), *problem]

    @property
    def value_column(self) -> str:
        return f"value{self.number}"

    @property
    def problem_column(self) -> str:
        return "CAST(NULL AS STRING)" if self.problem is None else f"problem{self.number}"


def _finished(questions: list[Question], states: dict[Part, str]) -> dict[Measure, _Finished]:
    """All measures that anyone asks for."""
    found: dict[Measure, _Finished] = {}
    for question in questions:
        for asker in question.askers:
            for measure, position in _measures(asker):
                if measure not in found:
                    part = question.parts[position]
                    found[measure] = _result(len(found), measure, part, states[part])
    return found


def _measures(asker: Asker) -> list[tuple[Measure, int]]:
    return [(measure, position) for _, measure, position in (*asker.outputs, *asker.having_measures)]


def _result(number: int, measure: Measure, part: Part, name: str) -> _Finished:
    """Finish a measure by the formula of its operator."""
    operator, count = measure.definition, F.col("events" if part.attribute is None else f"{name}_count")
    is_real = measure.result(part.kind) is Type.FLOAT
    kind = "DOUBLE" if is_real else "DECIMAL(38, 0)"
    numbers = (F.expr(text.format(name, kind)) for text in PLAIN_STATES[part.state].numbers)
    result = F.when(count >= operator.fewest, operator.formula(count, *numbers)).alias(f"result{number}")
    value = F.col(f"result{number}")
    if operator.is_bounded:
        return _Finished(number, result, value, None)
    if is_real:
        within, problem = F.when(F.abs(value) <= F.expr(LARGEST_DOUBLE), value), F.lit(BEYOND_DOUBLE)
    else:
        before, after = beyond_integer(0).split("0", 1)
        within, problem = value.try_cast("BIGINT"), F.concat(F.lit(before), value.cast("STRING"), F.lit(after))
    return _Finished(number, result, within, F.when(value.isNotNull() & within.isNull(), problem))


# -- what each asker gets --------------------------------------------------------------------------------------------


def _answers(question: Question, finished: dict[Measure, _Finished]) -> str:
    """An array with a struct for each output of each subscription that asks this question."""
    rows = []
    for asker in question.askers:
        worth, undecidable = "TRUE", []
        if asker.having is not None:
            columns = {key: column_of(key) for key in question.layout.group_keys}
            columns |= {name: finished[measure].value_column for name, measure, _ in asker.having_measures}
            condition = condition_sql(asker.having, columns.__getitem__)
            undecidable = [m for _, m, _ in asker.having_measures if finished[m].problem is not None]
            decidable = "".join(f" AND {finished[m].problem_column} IS NULL" for m in undecidable)
            worth = f"coalesce({condition}, FALSE){decidable}"
        for output, measure, _ in asker.outputs:
            one = finished[measure]
            rows.append(_row(asker, spark_literal(output), one.value_column, one.problem_column, worth))
        if undecidable:
            problems = [finished[measure].problem_column for measure in undecidable]
            first = " ".join(
                f"WHEN {problem} IS NOT NULL THEN {spark_literal(str(measure))}"
                for measure, problem in zip(undecidable, problems, strict=True)
            )
            problem = f"coalesce({', '.join(problems)})"
            rows.append(_row(asker, f"CASE {first} END", "NULL", problem, f"{problem} IS NOT NULL"))
    return f"array({', '.join(rows)})"


def _row(asker: Asker, output: str, value: str, problem: str, worth: str) -> str:
    fields = {
        "subscription": spark_literal(asker.name),
        "output": output,
        "value": f"CAST({value} AS DOUBLE)",
        "exact": f"coalesce(CAST({value} AS STRING), 'null')",
        "problem": problem,
        "worth": worth,
    }
    return "named_struct(" + ", ".join(f"'{name}', {sql}" for name, sql in fields.items()) + ")"
