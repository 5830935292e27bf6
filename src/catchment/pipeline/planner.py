"""Which engine answers: plain Spark SQL for a handful of questions, the shared pass for many."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from catchment.model.errors import ConfigurationError
from catchment.model.schema import Type
from catchment.pipeline.plain_sql import PLAIN_STATES
from catchment.stages import Plan
from catchment.stages.plan import Question

__all__ = ["Choice", "choose"]

FEW_QUESTIONS = 6
"""Up to here a query per question is faster than starting Python workers; measured by `catchment bench pipeline`."""

WINDOWS_PER_EVENT_MAX = 100
"""Plain SQL makes a row of each window that a slice lies in; beyond so many, sliding in the shared pass is faster."""


@dataclass(frozen=True, slots=True)
class Choice:
    """An engine, and the reason."""

    engine: Literal["shared", "sql"]
    reason: str

    def __str__(self) -> str:
        name = "plain Spark SQL" if self.engine == "sql" else "the shared pass"
        return f"answered by {name}: {self.reason}"


def choose(plan: Plan, asked: str = "auto") -> Choice:
    """The engine for the notifications of a plan; everything else always comes out of the shared pass."""
    if asked not in ("auto", "shared", "sql"):
        raise ConfigurationError(f"engine is {asked!r}; accepted are 'auto', 'shared', 'sql'")
    if asked == "shared":
        return Choice("shared", "asked for")
    questions = list(plan.questions.values())
    for question in questions:
        obstacle = obstacle_to_plain_sql(question)
        if obstacle is not None:
            if asked == "sql":
                raise ConfigurationError(f"engine 'sql' cannot answer every question: {obstacle}; accepted is 'shared'")
            return Choice("shared", obstacle)
    if asked == "sql":
        return Choice("sql", "asked for")
    overlap = max((question.layout.window.overlap for question in questions), default=1)
    if overlap > WINDOWS_PER_EVENT_MAX:
        return Choice("shared", f"an event lies in {overlap} windows, which is more than {WINDOWS_PER_EVENT_MAX}")
    if len(questions) <= FEW_QUESTIONS:
        return Choice("sql", f"{len(questions)} questions are few; the shared pass takes over beyond {FEW_QUESTIONS}")
    return Choice("shared", f"{len(questions)} questions are more than {FEW_QUESTIONS}")


def obstacle_to_plain_sql(question: Question) -> str | None:
    """Where Spark's meaning differs from ours, or our operators are not Spark's."""
    if question.layout.window.kind == "sampling":
        return "Spark's window() refuses sampling windows"
    for name, kind in zip(question.layout.group_keys, question.key_types, strict=True):
        if kind not in (Type.STRING, Type.INT, Type.BOOL):
            return f"the group key {name!r} is a {kind.value}"
    for asker in question.askers:
        for _, measure, position in (*asker.outputs, *asker.having_measures):
            part = question.parts[position]
            if part.state not in PLAIN_STATES:
                return f"{measure} has no equal in plain Spark SQL"
            if part.kind not in (Type.INT, Type.FLOAT):
                return f"{measure} is over a {part.kind.value}"
    return None
