"""Conditions as drawn: their text in a subscription, the same in Spark's SQL, and their truth in plain Python.

Spark reads literals as the subscription writes them. Only where Spark would round an integer or a double before it
compares them, which Catchment does not, the comparison is written with a bound that is computed here.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

from tests.reference.values import Family

__all__ = [
    "NULL",
    "And",
    "Atom",
    "Condition",
    "Literal_",
    "Not",
    "Or",
    "Truth",
    "quoted",
    "spark_sql",
    "sql",
    "subjects",
    "truth",
]

Form = Literal["int", "decimal", "double", "float", "string", "time", "bool", "null"]
Truth = frozenset[bool | None]
"""What a condition may be: one of true, false, null; several where rounding within the promise decides."""

INT64 = (-(2**63), 2**63 - 1)


@dataclass(frozen=True, slots=True)
class Literal_:  # noqa: N801  (`Literal` is Python's own)
    """A literal as it is written, and its exact value; a time is in microseconds."""

    text: str
    form: Form
    value: Any

    def number(self, family: Family) -> Fraction:
        """What a column of a family is compared with: fractions become doubles beside doubles, as in Spark."""
        if family == "float" and not self.is_whole:
            return Fraction(float(self.value))
        return Fraction(self.value)

    @property
    def is_whole(self) -> bool:
        """Whether this is a whole number of any size, however it is written: `5`, `5.0`, `5BD`."""
        return self.form in ("int", "decimal") and Fraction(self.value).denominator == 1


NULL = Literal_("NULL", "null", None)


@dataclass(frozen=True, slots=True)
class Atom:
    """A comparison of a subject, which is a column, a key or a measure, with literals."""

    subject: str
    """As the subscription writes it."""
    family: Family
    operator: str
    literals: tuple[Literal_, ...] = ()
    mirrored: bool = False
    column: str = ""
    """As the reference calls it."""


@dataclass(frozen=True, slots=True)
class Not:
    inner: Condition


@dataclass(frozen=True, slots=True)
class And:
    parts: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class Or:
    parts: tuple[Condition, ...]


Condition = Atom | Not | And | Or
_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "=", "!=": "!=", "<>": "<>", "<=>": "<=>", "==": "=="}


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def subjects(condition: Condition) -> set[str]:
    """All that a condition is about."""
    if isinstance(condition, Atom):
        return {condition.subject}
    parts = (condition.inner,) if isinstance(condition, Not) else condition.parts
    return set().union(*map(subjects, parts))


# -- as a subscription writes it ---------------------------------------------------------------------------------------


def sql(condition: Condition) -> str:
    if isinstance(condition, Not):
        return f"NOT ({sql(condition.inner)})"
    if isinstance(condition, And | Or):
        return (" AND " if isinstance(condition, And) else " OR ").join(f"({sql(part)})" for part in condition.parts)
    subject, operator, texts = condition.subject, condition.operator, [one.text for one in condition.literals]
    if operator == "bare":
        return subject
    if operator.startswith("IS"):
        return f"{subject} {operator}"
    if operator.endswith("BETWEEN"):
        return f"{subject} {operator} {texts[0]} AND {texts[1]}"
    if operator.endswith("IN"):
        return f"{subject} {operator} ({', '.join(texts)})"
    if condition.mirrored:
        return f"{texts[0]} {_MIRRORED[operator]} {subject}"
    return f"{subject} {operator} {texts[0]}"


# -- as Spark is asked -------------------------------------------------------------------------------------------------


def spark_sql(condition: Condition) -> str:
    if isinstance(condition, Not):
        return f"NOT ({spark_sql(condition.inner)})"
    if isinstance(condition, And | Or):
        connective = " AND " if isinstance(condition, And) else " OR "
        return connective.join(f"({spark_sql(part)})" for part in condition.parts)
    column, operator, literals = condition.column, condition.operator, condition.literals
    compare = lambda op, literal: _compared(column, condition.family, op, literal)  # noqa: E731
    if operator == "bare":
        return column
    if operator.startswith("IS"):
        return f"{column} {operator}"
    if operator.endswith("BETWEEN"):
        inside = f"({compare('>=', literals[0])} AND {compare('<=', literals[1])})"
        return f"NOT {inside}" if operator.startswith("NOT") else inside
    if operator.endswith("IN"):
        # One by one: Spark looks for a type that all members have in common, and would round for it.
        inside = "(" + " OR ".join(compare("=", one) for one in literals) + ")"
        return f"NOT {inside}" if operator.startswith("NOT") else inside
    if operator.endswith("LIKE"):
        return f"{column} {operator} {literals[0].text}"
    return compare(operator, literals[0])


def _compared(column: str, family: Family, operator: str, literal: Literal_) -> str:
    plain = {"<>": "!=", "==": "="}.get(operator, operator)
    if literal.form == "null" or family not in ("int", "float"):
        return f"({column} {plain} {literal.text})"
    if plain == "<=>":
        return f"coalesce({_compared(column, family, '=', literal)}, FALSE)"
    if family == "int" and (literal.form in ("double", "float") or abs(literal.number(family)) > 2**62):
        return _whole_against(column, plain, literal.number(family))
    if family == "float" and literal.is_whole:
        return _real_against(column, plain, int(literal.value))
    return f"({column} {plain} {literal.text})"


def _whole_against(column: str, operator: str, value: Fraction) -> str:
    """An integer column against the exact value of a number that Spark would round it for.

    Numbers beyond 64 bits are not left to Spark, which takes `n < 9223372036854775808` for true even of null.
    """
    if operator in ("=", "!="):
        possible = value.denominator == 1 and INT64[0] <= value <= INT64[1]
        return f"({column} {operator} {value.numerator})" if possible else _never(column, operator == "!=")
    bound = math.ceil(value) if operator in ("<", ">=") else math.floor(value)
    if INT64[0] <= bound <= INT64[1]:
        return f"({column} {operator} {bound})"
    return _never(column, (bound > 0) is (operator in ("<", "<=")))


def _never(column: str, always: bool = False) -> str:
    """False, or always true, of everything but null."""
    return f"({column} {'=' if always else '<>'} {column})"


def _real_against(column: str, operator: str, value: int) -> str:
    """A double column against an integer that may lie between two doubles."""
    near = float(value)
    if int(near) == value:
        return f"({column} {operator} {near!r}D)"
    if operator in ("=", "!="):
        return _never(column, operator == "!=")
    if int(near) > value:
        return f"({column} {'<' if operator in ('<', '<=') else '>='} {near!r}D)"
    return f"({column} {'<=' if operator in ('<', '<=') else '>'} {near!r}D)"


# -- as plain Python decides it, for HAVING ----------------------------------------------------------------------------

Known = Callable[[str], tuple[Any, Any] | None]
"""The least and the greatest value that a subject may have; None is null."""


def truth(condition: Condition, known: Known) -> Truth:
    if isinstance(condition, Not):
        return _combined([truth(condition.inner, known)], lambda values: _not(values[0]))
    if isinstance(condition, And | Or):
        decide = _all if isinstance(condition, And) else _any
        return _combined([truth(part, known) for part in condition.parts], decide)
    return _atom_truth(condition, known(condition.subject))


def _combined(parts: list[Truth], decide: Callable[[tuple[bool | None, ...]], bool | None]) -> Truth:
    return frozenset(decide(values) for values in itertools.product(*parts))


def _not(value: bool | None) -> bool | None:
    return None if value is None else not value


def _all(values: Iterable[bool | None]) -> bool | None:
    given = set(values)
    return False if False in given else None if None in given else True


def _any(values: Iterable[bool | None]) -> bool | None:
    return _not(_all(_not(value) for value in values))


def _atom_truth(atom: Atom, value: tuple[Any, Any] | None) -> Truth:
    operator, literals, family = atom.operator, atom.literals, atom.family
    if operator.startswith("IS"):
        return _is(operator, value)
    if operator == "bare":
        return frozenset([None if value is None else bool(value[0])])
    one = lambda op, literal: _compared_truth(value, family, op, literal)  # noqa: E731
    if operator.endswith("BETWEEN"):
        inside = _combined([one(">=", literals[0]), one("<=", literals[1])], _all)
    elif operator.endswith("IN"):
        inside = _combined([one("=", literal) for literal in literals], _any)
    else:
        return one({"<>": "!=", "==": "="}.get(operator, operator), literals[0])
    return _combined([inside], lambda values: _not(values[0])) if operator.startswith("NOT") else inside


def _is(operator: str, value: tuple[Any, Any] | None) -> Truth:
    wanted: Any = {"NULL": None, "TRUE": True, "FALSE": False}[operator.rsplit(maxsplit=1)[-1]]
    equal = (value is None) if wanted is None else value is not None and value[0] is wanted
    return frozenset([equal is not ("NOT" in operator)])


def _compared_truth(value: tuple[Any, Any] | None, family: Family, operator: str, literal: Literal_) -> Truth:
    if operator == "<=>":
        if literal.value is None or value is None:
            return frozenset([literal.value is None and value is None])
        operator = "="
    if value is None or literal.value is None:
        return frozenset([None])
    right = literal.number(family) if family in ("int", "float") else literal.value
    low, high = value
    if operator in ("=", "!="):
        found = {True} if low == high == right else {True, False} if low <= right <= high else {False}
        return frozenset(found if operator == "=" else {not one for one in found})
    if operator in ("<", ">="):
        found = {True} if high < right else {False} if low >= right else {True, False}
        return frozenset(found if operator == "<" else {not one for one in found})
    found = {True} if high <= right else {False} if low > right else {True, False}
    return frozenset(found if operator == "<=" else {not one for one in found})
