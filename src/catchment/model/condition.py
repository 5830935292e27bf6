"""From SQL conditions, as sqlglot parses them, to filters.

`NOT` is pushed down to the comparisons on the way, so that SQL's three-valued logic needs no third value: an atom and
its negation are both false of null.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from typing import TypeAlias

import numpy as np
from sqlglot import exp
from sqlglot import parse_one as _parse_one
from sqlglot.dialects.spark import Spark
from sqlglot.errors import SqlglotError

from catchment.model.constraint import NOT_NULL, NULL, Constraint, Family, Pattern, Scalar
from catchment.model.errors import EventError, FilterError
from catchment.model.filter import EVERY_EVENT, NO_EVENT, Filter
from catchment.model.schema import IMPLICIT_ATTRIBUTES, Schema, Type
from catchment.model.times import date_us, microseconds

__all__ = ["ConditionReader", "SubscriptionSql", "column_name", "first_line", "parse_condition", "sql_text"]

ACCEPTED = "=, !=, <, <=, >, >=, BETWEEN, IN, LIKE, IS [NOT] NULL, AND, OR, NOT between an attribute and literals"


class SubscriptionSql(Spark):
    """Spark's SQL, with `window` as the function that Spark knows and not as the clause that SQL reserves it for."""

    class Tokenizer(Spark.Tokenizer):
        KEYWORDS = {word: kind for word, kind in Spark.Tokenizer.KEYWORDS.items() if word != "WINDOW"}  # noqa: RUF012
        # As in Spark 4, a quote within quotes is written twice or with a backslash.
        STRING_ESCAPES = ["\\", "'", '"']  # noqa: RUF012


Resolve: TypeAlias = "Callable[[exp.Expr], str | None]"
"""Says which attribute an expression names, or None if it names none."""

TypeOf: TypeAlias = "Callable[[str], Type | None]"
"""Says the type of an attribute, or None if it is not known."""

_COMPARISONS: dict[type[exp.Expr], str] = {
    exp.EQ: "=",
    exp.NEQ: "!=",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
}
_NEGATED = {"=": "!=", "!=": "=", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}
_MIRRORED = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


def parse_condition(text: str, schema: Schema | None = None) -> Filter:
    reader = ConditionReader() if schema is None else ConditionReader(type_of=schema.get)
    try:
        return reader.read(_parse_one(text, dialect=SubscriptionSql))
    except SqlglotError as error:
        raise FilterError(f"cannot read the condition {text!r}: {first_line(error)}") from None
    except RecursionError:
        raise FilterError("the condition is nested too deeply; accepted are some hundred levels") from None


def column_name(node: exp.Expr) -> str | None:
    """The attribute that a plain column names; a name qualified by something else than the topic is none."""
    if isinstance(node, exp.Paren):
        return column_name(node.this)
    if isinstance(node, exp.Column) and not node.table and isinstance(node.this, exp.Identifier):
        return str(node.this.this)
    return None


class ConditionReader:
    """Reads parsed conditions; where the type of an attribute is known, text is read as a time if it is one."""

    def __init__(self, resolve: Resolve = column_name, type_of: TypeOf = IMPLICIT_ATTRIBUTES.get) -> None:
        self._resolve = resolve
        self._type_of = type_of
        self.texts: set[str] = set()
        """The attributes that were compared with text."""

    def read(self, node: exp.Expr, *, negated: bool = False) -> Filter:
        node, negated = _without_not(node, negated)
        if isinstance(node, (exp.And, exp.Or)):
            operands = [self.read(operand, negated=flipped) for operand, flipped in _operands(node, negated)]
            return Filter.all_of(operands) if _is_and(node, negated) else Filter.any_of(operands)
        if isinstance(node, exp.Boolean):
            return EVERY_EVENT if bool(node.this) is not negated else NO_EVENT
        if isinstance(node, exp.Null):
            return NO_EVENT
        return self._atom(node, negated)

    def _atom(self, node: exp.Expr, negated: bool) -> Filter:
        negated = negated is not bool(node.args.get("negate"))
        attribute = self._resolve(node)
        if attribute is not None:
            return Filter.where(attribute, Constraint.one_of([not negated]))
        operator = _COMPARISONS.get(type(node))
        if operator is not None:
            return self._comparison(node, _NEGATED[operator] if negated else operator)
        if isinstance(node, exp.NullSafeEQ):
            return self._null_safe_equal(node, negated)
        if isinstance(node, exp.Is):
            return self._is(node, negated)
        if isinstance(node, exp.Between):
            return self._between(node, negated)
        if isinstance(node, exp.In):
            return self._in(node, negated)
        if isinstance(node, exp.Like):
            return self._like(node, negated)
        raise FilterError(f"cannot use {sql_text(node)!r} in a condition; accepted are {ACCEPTED}")

    def _sides(self, node: exp.Expr) -> tuple[str, exp.Expr, bool]:
        """The attribute, what it is compared with, and whether that stands first."""
        for attribute_side, value, is_mirrored in (
            (node.this, node.expression, False),
            (node.expression, node.this, True),
        ):
            attribute = self._resolve(attribute_side)
            if attribute is not None:
                return attribute, value, is_mirrored
        raise FilterError(f"{sql_text(node)!r} compares no attribute with a literal; accepted are {ACCEPTED}")

    def _null_safe_equal(self, node: exp.Expr, negated: bool) -> Filter:
        attribute, value, _ = self._sides(node)
        literal = self._value(attribute, value)
        if literal is None:
            return Filter.where(attribute, NOT_NULL if negated else NULL)
        if negated:
            return Filter.where(attribute, NULL) | Filter.where(attribute, Constraint.compare("!=", *literal))
        return Filter.where(attribute, Constraint.compare("=", *literal))

    def _comparison(self, node: exp.Expr, operator: str) -> Filter:
        attribute, value, is_mirrored = self._sides(node)
        operator = _MIRRORED[operator] if is_mirrored else operator
        literal = self._value(attribute, value)
        if literal is None:
            return NO_EVENT
        return Filter.where(attribute, Constraint.compare(operator, *literal))

    def _is(self, node: exp.Is, negated: bool) -> Filter:
        attribute = self._attribute(node.this, node)
        if isinstance(node.expression, exp.Null):
            return Filter.where(attribute, NOT_NULL if negated else NULL)
        if isinstance(node.expression, exp.Boolean):
            asked = bool(node.expression.this)
            if negated:
                return Filter.where(attribute, NULL) | Filter.where(attribute, Constraint.one_of([not asked]))
            return Filter.where(attribute, Constraint.one_of([asked]))
        raise FilterError(f"cannot use {sql_text(node)!r} in a condition; accepted after IS are NULL, TRUE, FALSE")

    def _between(self, node: exp.Between, negated: bool) -> Filter:
        attribute = self._attribute(node.this, node)
        if node.args.get("symmetric"):
            raise FilterError(f"cannot use {sql_text(node)!r} in a condition; accepted is BETWEEN low AND high")
        low, high = (self._value(attribute, node.args[end]) for end in ("low", "high"))
        ends = ((low, "<" if negated else ">="), (high, ">" if negated else "<="))
        sides = [
            NO_EVENT if literal is None else Filter.where(attribute, Constraint.compare(operator, *literal))
            for literal, operator in ends
        ]
        return sides[0] | sides[1] if negated else sides[0] & sides[1]

    def _in(self, node: exp.In, negated: bool) -> Filter:
        attribute = self._attribute(node.this, node)
        if not node.expressions:
            raise FilterError(f"cannot use {sql_text(node)!r} in a condition; accepted after IN is a list of literals")
        literals = [self._value(attribute, item) for item in node.expressions]
        known = [literal for literal in literals if literal is not None]
        families = {family for _, family in known}
        if len(families) > 1:
            raise FilterError(f"{sql_text(node)!r} mixes {' and '.join(sorted(families))}; accepted is one type")
        if negated:
            if len(known) < len(literals):
                return NO_EVENT
            return Filter.where(attribute, Constraint.none_of([v for v, _ in known], known[0][1]))
        return Filter.where(attribute, Constraint.one_of([v for v, _ in known], known[0][1])) if known else NO_EVENT

    def _like(self, node: exp.Like, negated: bool) -> Filter:
        attribute = self._attribute(node.this, node)
        kind = self._type_of(attribute)
        if kind not in (None, Type.STRING):
            raise FilterError(
                f"cannot use {sql_text(node)!r} in a condition, as {attribute!r} is of type {kind.value}; "
                "LIKE accepts a string"
            )
        literal = _literal(node.expression, attribute)
        if literal is None:
            return NO_EVENT
        text, family = literal
        if family != "string":
            raise FilterError(f"cannot use {sql_text(node)!r} in a condition; LIKE accepts a string")
        return Filter.where(attribute, _pattern(str(text), negated))

    def _value(self, attribute: str, node: exp.Expr) -> tuple[Scalar, Family] | None:
        """The literal that an attribute is compared with; text is a time if the attribute is one."""
        literal = _literal(node, attribute)
        if literal is None or literal[1] != "string":
            return literal
        self.texts.add(attribute)
        if self._type_of(attribute) is not Type.TIMESTAMP:
            return literal
        try:
            return microseconds(str(literal[0]), attribute=attribute), "timestamp"
        except EventError:
            raise FilterError(
                f"attribute {attribute!r} is a time stamp and is compared with {literal[0]!r}; "
                "accepted are times like '2014-08-11 07:30:00'"
            ) from None

    def _attribute(self, node: exp.Expr, whole: exp.Expr) -> str:
        attribute = self._resolve(node)
        if attribute is None:
            raise FilterError(f"{sql_text(whole)!r} asks about no attribute; accepted are {ACCEPTED}")
        return attribute


def _without_not(node: exp.Expr, negated: bool) -> tuple[exp.Expr, bool]:
    while isinstance(node, (exp.Paren, exp.Not)):
        negated = negated is not isinstance(node, exp.Not)
        node = node.this
    return node, negated


def _is_and(node: exp.Expr, negated: bool) -> bool:
    return isinstance(node, exp.And) is not negated


def _operands(node: exp.Expr, negated: bool) -> list[tuple[exp.Expr, bool]]:
    """What a chain of the same connective connects, however it is nested."""
    conjunctive = _is_and(node, negated)
    found, waiting = [], [(node, negated)]
    while waiting:
        one, flipped = _without_not(*waiting.pop())
        if isinstance(one, (exp.And, exp.Or)) and _is_and(one, flipped) is conjunctive:
            waiting += [(one.expression, flipped), (one.this, flipped)]
        else:
            found.append((one, flipped))
    return found


def _pattern(text: str, negated: bool) -> Constraint:
    letters: list[str] = []
    wildcards: list[int] = []
    escaped = False
    for letter in text:
        if not escaped and letter == "\\":
            escaped = True
            continue
        if escaped and letter not in "\\%_":
            raise FilterError(f"LIKE {text!r} escapes {letter!r}; accepted after a backslash are %, _ and a backslash")
        if not escaped and letter == "_":
            raise FilterError(f"LIKE {text!r} uses the wildcard _; accepted are 'prefix%', '%suffix', '%contains%'")
        if not escaped and letter == "%":
            wildcards.append(len(letters))
        else:
            letters.append(letter)
        escaped = False
    if escaped:
        raise FilterError(f"LIKE {text!r} ends in a backslash; accepted after it are %, _ and a backslash")
    plain, places = "".join(letters), set(wildcards)
    if not places:
        return Constraint.compare("!=" if negated else "=", plain)
    if not places <= {0, len(plain)}:
        raise FilterError(f"LIKE {text!r} has a wildcard inside; accepted are 'prefix%', '%suffix', '%contains%'")
    if places == {0, len(plain)}:
        return Constraint.like(Pattern("contains", plain, negated))
    return Constraint.like(Pattern("prefix" if len(plain) in places else "suffix", plain, negated))


def _literal(node: exp.Expr, attribute: str) -> tuple[Scalar, Family] | None:
    """The value of a literal that an attribute is compared with, and its family; None is SQL's NULL."""
    try:
        return _read_literal(node)
    except OverflowError as error:
        raise FilterError(f"cannot use {sql_text(node)!r} as a value: {error}") from None
    except EventError:
        text = next(literal.this for literal in node.find_all(exp.Literal))
        raise FilterError(
            f"attribute {attribute!r} is compared with the time {text!r}; "
            "accepted are times like '2014-08-11 07:30:00', of the years 1 to 9999"
        ) from None


def _read_literal(node: exp.Expr, sign: int = 1) -> tuple[Scalar, Family] | None:
    if isinstance(node, exp.Paren):
        return _read_literal(node.this, sign)
    if isinstance(node, exp.Neg):
        return _read_literal(node.this, -sign)
    if isinstance(node, exp.Literal) and not node.is_string:
        return sign * _number(str(node.this)), "number"
    if isinstance(node, exp.Cast):
        number = _cast_number(node, sign)
        if number is not None:
            return number, "number"
    if sign == 1:
        if isinstance(node, exp.Null):
            return None
        if isinstance(node, exp.Boolean):
            return bool(node.this), "bool"
        if isinstance(node, exp.Literal):
            return str(node.this), "string"
        if isinstance(node, (exp.Cast, exp.TsOrDsToTimestamp, exp.TsOrDsToDate)) and _is_text(node.this):
            if isinstance(node, exp.TsOrDsToDate) or (isinstance(node, exp.Cast) and node.to.this is _DATE):
                return date_us(str(node.this.this)), "timestamp"
            if not isinstance(node, exp.Cast) or node.to.this in _TIME:
                return microseconds(str(node.this.this)), "timestamp"
    raise FilterError(
        f"{sql_text(node)!r} is no literal; accepted are numbers, strings, TRUE, FALSE, NULL, TIMESTAMP '…', DATE '…'"
    )


_DATE = exp.DataType.Type.DATE
_TIME = {
    exp.DataType.Type.TIMESTAMP,
    exp.DataType.Type.TIMESTAMPTZ,
    exp.DataType.Type.TIMESTAMPLTZ,
    exp.DataType.Type.TIMESTAMPNTZ,
}
_WHOLE_BITS = {
    exp.DataType.Type.BIGINT: 64,
    exp.DataType.Type.INT: 32,
    exp.DataType.Type.SMALLINT: 16,
    exp.DataType.Type.TINYINT: 8,
}


def _is_text(node: exp.Expr) -> bool:
    return isinstance(node, exp.Literal) and bool(node.is_string)


def _cast_number(node: exp.Cast, sign: int) -> int | float | None:
    """The value of a number with a suffix, which is parsed as a cast (1L, 0.1F, 2.5BD); None for other casts."""
    inner, kind = node.this, node.to.this
    while isinstance(inner, (exp.Paren, exp.Neg)):
        sign = -sign if isinstance(inner, exp.Neg) else sign
        inner = inner.this
    if not isinstance(inner, exp.Literal):
        return None
    text = str(inner.this)
    if kind is exp.DataType.Type.DECIMAL:
        return sign * _decimal(text) if _fits(text, node.to) else None
    if inner.is_string:
        return None
    if kind is exp.DataType.Type.DOUBLE:
        return sign * _finite(float(text))
    if kind is exp.DataType.Type.FLOAT:
        return sign * _float32(text)
    if kind in _WHOLE_BITS and text.isdecimal():
        # A fraction cast to a whole number is arithmetic, which no filter does.
        value, bits = sign * int(text), _WHOLE_BITS[kind]
        if not -(2 ** (bits - 1)) <= value < 2 ** (bits - 1):
            raise OverflowError(f"it is beyond {bits} bits")
        return value
    return None


def _fits(text: str, decimal: exp.DataType) -> bool:
    """Whether a decimal type has room for a number as it is; else a cast would round it."""
    digits = re.fullmatch(r"(\d*)\.?(\d*)", text)
    given = [int(one.name) for one in decimal.expressions if one.name.isdecimal()]
    precision, scale = (*given, 10, 0)[:2] if len(given) != 1 else (given[0], 0)
    return digits is not None and len(digits[2]) <= scale and len(digits[1].lstrip("0")) <= precision - scale


def _number(text: str) -> int | float:
    """A number as Spark reads it: whole, with an exponent a double, else a decimal."""
    if text.isdecimal():
        return int(text)
    return _finite(float(text)) if "e" in text.lower() else _decimal(text)


def _decimal(text: str) -> int | float:
    """The value of a decimal, exactly; one that is no whole number must be what a double shows."""
    try:
        exact = Decimal(text)
    except InvalidOperation:
        raise OverflowError("it is no decimal number") from None
    if exact == exact.to_integral_value():
        return int(exact)
    nearest = _finite(float(text))
    if Decimal(repr(nearest)) != exact:
        raise OverflowError(f"it has more digits than a double, which would make it {nearest!r}")
    return nearest


def _finite(value: float) -> float:
    if not math.isfinite(value):
        raise OverflowError("it is beyond the range of a double; accepted are finite numbers")
    return value


def _float32(text: str) -> float:
    """The number of 32 bits that is nearest to a decimal number; of two, the even one."""
    exact = Fraction(text)
    if abs(exact) > Fraction(float(np.finfo(np.float32).max)):
        raise OverflowError("it is beyond the range of a float of 32 bits")
    about = np.float32(float(text))
    around = [about, np.nextafter(about, np.float32(np.inf)), np.nextafter(about, np.float32(-np.inf))]
    finite = [one for one in around if np.isfinite(one)]
    return float(min(finite, key=lambda one: (abs(Fraction(float(one)) - exact), int(one.view(np.int32)) & 1)))


def sql_text(node: exp.Expr) -> str:
    return node.sql(dialect=SubscriptionSql)


def first_line(error: Exception) -> str:
    return str(error).splitlines()[0].replace("\x1b[4m", "").replace("\x1b[0m", "")
