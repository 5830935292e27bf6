"""From SQL conditions, as sqlglot parses them, to filters.

`NOT` is pushed down to the comparisons on the way, so that SQL's three-valued logic needs no third value: an atom and
its negation are both false of null.
"""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp
from sqlglot import parse_one as _parse_one
from sqlglot.dialects.spark import Spark
from sqlglot.errors import SqlglotError

from catchment.model.constraint import NOT_NULL, NULL, Constraint, Family, Pattern, Scalar
from catchment.model.errors import EventError, FilterError
from catchment.model.filter import EVERY_EVENT, NO_EVENT, Filter
from catchment.model.times import microseconds

__all__ = ["SubscriptionSql", "column_name", "filter_of", "first_line", "parse_condition"]

ACCEPTED = "=, !=, <, <=, >, >=, BETWEEN, IN, LIKE, IS [NOT] NULL, AND, OR, NOT between an attribute and literals"


class SubscriptionSql(Spark):
    """Spark's SQL, with `window` as the function that Spark knows and not as the clause that SQL reserves it for."""

    class Tokenizer(Spark.Tokenizer):
        KEYWORDS = {word: kind for word, kind in Spark.Tokenizer.KEYWORDS.items() if word != "WINDOW"}  # noqa: RUF012


Resolve = Callable[[exp.Expression], str | None]
"""Says which attribute an expression names, or None if it names none."""

_COMPARISONS: dict[type[exp.Expression], str] = {
    exp.EQ: "=",
    exp.NEQ: "!=",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
}
_NEGATED = {"=": "!=", "!=": "=", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}
_MIRRORED = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


def parse_condition(text: str) -> Filter:
    try:
        parsed = _parse_one(text, dialect=SubscriptionSql)
    except SqlglotError as error:
        raise FilterError(f"cannot read the condition {text!r}: {first_line(error)}") from None
    return filter_of(parsed)


def column_name(node: exp.Expression) -> str | None:
    """The attribute that a plain column names; a qualified name is none."""
    if isinstance(node, exp.Column) and not node.table and isinstance(node.this, exp.Identifier):
        return str(node.this.this)
    return None


def filter_of(node: exp.Expression, resolve: Resolve = column_name) -> Filter:
    """Read a parsed condition, finding attributes with `resolve`."""
    return _Reader(resolve).read(node, negated=False)


class _Reader:
    def __init__(self, resolve: Resolve) -> None:
        self._resolve = resolve

    def read(self, node: exp.Expression, *, negated: bool) -> Filter:
        if isinstance(node, exp.Paren):
            return self.read(node.this, negated=negated)
        if isinstance(node, exp.Not):
            return self.read(node.this, negated=not negated)
        if isinstance(node, (exp.And, exp.Or)):
            left, right = self.read(node.this, negated=negated), self.read(node.expression, negated=negated)
            return left & right if isinstance(node, exp.And) is not negated else left | right
        if isinstance(node, exp.Boolean):
            return EVERY_EVENT if bool(node.this) is not negated else NO_EVENT
        if isinstance(node, exp.Null):
            return NO_EVENT
        return self._atom(node, negated)

    def _atom(self, node: exp.Expression, negated: bool) -> Filter:
        negated = negated is not bool(node.args.get("negate"))
        attribute = self._resolve(node)
        if attribute is not None:
            return Filter.where(attribute, Constraint.one_of([not negated]))
        operator = _COMPARISONS.get(type(node))
        if operator is not None:
            return self._comparison(node, _NEGATED[operator] if negated else operator)
        if isinstance(node, exp.Is):
            return self._is(node, negated)
        if isinstance(node, exp.Between):
            return self._between(node, negated)
        if isinstance(node, exp.In):
            return self._in(node, negated)
        if isinstance(node, exp.Like):
            return self._like(node, negated)
        raise FilterError(f"cannot use {_text(node)!r} in a condition; accepted are {ACCEPTED}")

    def _comparison(self, node: exp.Expression, operator: str) -> Filter:
        attribute, value = self._resolve(node.this), node.expression
        if attribute is None:
            attribute, value, operator = self._resolve(node.expression), node.this, _MIRRORED[operator]
        if attribute is None:
            raise FilterError(f"{_text(node)!r} compares no attribute with a literal; accepted are {ACCEPTED}")
        literal = _literal(value)
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
        raise FilterError(f"cannot use {_text(node)!r} in a condition; accepted after IS are NULL, TRUE, FALSE")

    def _between(self, node: exp.Between, negated: bool) -> Filter:
        attribute = self._attribute(node.this, node)
        low, high = _literal(node.args["low"]), _literal(node.args["high"])
        outside = (low and Filter.where(attribute, Constraint.compare("<", *low))) or NO_EVENT
        above = (high and Filter.where(attribute, Constraint.compare(">", *high))) or NO_EVENT
        if negated:
            return outside | above
        if low is None or high is None:
            return NO_EVENT
        return Filter.where(
            attribute, Constraint.compare(">=", *low).intersect(Constraint.compare("<=", *high))
        )

    def _in(self, node: exp.In, negated: bool) -> Filter:
        attribute = self._attribute(node.this, node)
        if not node.expressions:
            raise FilterError(f"cannot use {_text(node)!r} in a condition; accepted after IN is a list of literals")
        literals = [_literal(item) for item in node.expressions]
        known = [literal for literal in literals if literal is not None]
        families = {family for _, family in known}
        if len(families) > 1:
            raise FilterError(f"{_text(node)!r} mixes {' and '.join(sorted(families))}; accepted is one type")
        if negated:
            if len(known) < len(literals):
                return NO_EVENT
            kept = NOT_NULL
            for literal in known:
                kept = kept.intersect(Constraint.compare("!=", *literal))
            return Filter.where(attribute, kept)
        return Filter.where(attribute, Constraint.one_of([v for v, _ in known], known[0][1])) if known else NO_EVENT

    def _like(self, node: exp.Like, negated: bool) -> Filter:
        attribute = self._attribute(node.this, node)
        literal = _literal(node.expression)
        if literal is None:
            return NO_EVENT
        text, family = literal
        if family != "string":
            raise FilterError(f"cannot use {_text(node)!r} in a condition; LIKE accepts a string")
        return Filter.where(attribute, _pattern(str(text), negated))

    def _attribute(self, node: exp.Expression, whole: exp.Expression) -> str:
        attribute = self._resolve(node)
        if attribute is None:
            raise FilterError(f"{_text(whole)!r} asks about no attribute; accepted are {ACCEPTED}")
        return attribute


def _pattern(text: str, negated: bool) -> Constraint:
    letters: list[str] = []
    wildcards: list[int] = []
    escaped = False
    for letter in text:
        if not escaped and letter == "\\":
            escaped = True
            continue
        if not escaped and letter == "_":
            raise FilterError(f"LIKE {text!r} uses the wildcard _; accepted are 'prefix%', '%suffix', '%contains%'")
        if not escaped and letter == "%":
            wildcards.append(len(letters))
        else:
            letters.append(letter)
        escaped = False
    plain, places = "".join(letters), set(wildcards)
    if not places:
        return Constraint.compare("!=" if negated else "=", plain)
    if not places <= {0, len(plain)}:
        raise FilterError(f"LIKE {text!r} has a wildcard inside; accepted are 'prefix%', '%suffix', '%contains%'")
    if places == {0, len(plain)}:
        return Constraint.like(Pattern("contains", plain, negated))
    return Constraint.like(Pattern("prefix" if len(plain) in places else "suffix", plain, negated))


def _literal(node: exp.Expression) -> tuple[Scalar, Family] | None:
    """The value of a literal and its family; None is SQL's NULL."""
    try:
        return _read_literal(node)
    except (OverflowError, EventError) as error:
        raise FilterError(f"cannot use {_text(node)!r} as a value: {error}") from None


def _read_literal(node: exp.Expression) -> tuple[Scalar, Family] | None:
    if isinstance(node, exp.Paren):
        return _read_literal(node.this)
    if isinstance(node, exp.Null):
        return None
    if isinstance(node, exp.Boolean):
        return bool(node.this), "bool"
    if isinstance(node, exp.Neg):
        inner = _read_literal(node.this)
        if inner is not None and inner[1] == "number" and not isinstance(inner[0], str):
            return -inner[0], "number"
    if isinstance(node, exp.Literal):
        return (str(node.this), "string") if node.is_string else (_number(str(node.this)), "number")
    if isinstance(node, (exp.Cast, exp.TsOrDsToTimestamp, exp.TsOrDsToDate)):
        inner = _read_literal(node.this)
        if inner is not None and inner[1] == "string" and _is_time(node):
            return microseconds(str(inner[0])), "timestamp"
        if inner is not None and inner[1] == "number" and not isinstance(inner[0], str) and _is_number(node):
            return (float(inner[0]) if node.to.this in _REAL else inner[0]), "number"
    raise FilterError(f"{_text(node)!r} is no literal; accepted are numbers, strings, TRUE, FALSE, NULL, TIMESTAMP '…'")


_REAL = {exp.DataType.Type.DOUBLE, exp.DataType.Type.FLOAT}
_WHOLE = {exp.DataType.Type.BIGINT, exp.DataType.Type.INT, exp.DataType.Type.SMALLINT, exp.DataType.Type.TINYINT}
_TIME = {
    exp.DataType.Type.TIMESTAMP,
    exp.DataType.Type.TIMESTAMPTZ,
    exp.DataType.Type.TIMESTAMPLTZ,
    exp.DataType.Type.TIMESTAMPNTZ,
    exp.DataType.Type.DATE,
}


def _is_time(node: exp.Expression) -> bool:
    return not isinstance(node, exp.Cast) or node.to.this in _TIME


def _is_number(node: exp.Expression) -> bool:
    return isinstance(node, exp.Cast) and node.to.this in _REAL | _WHOLE


def _number(text: str) -> int | float:
    try:
        return int(text)
    except ValueError:
        value = float(text)
    if value in (float("inf"), float("-inf")):
        raise OverflowError("it is beyond the range of a double")
    return value


def _text(node: exp.Expression) -> str:
    return node.sql(dialect=SubscriptionSql)


def first_line(error: Exception) -> str:
    return str(error).splitlines()[0].replace("\x1b[4m", "").replace("\x1b[0m", "")


