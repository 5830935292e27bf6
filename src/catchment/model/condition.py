"""From SQL conditions, as sqlglot parses them, to filters.

`NOT` is pushed down to the comparisons on the way, so that SQL's three-valued logic needs no third value: an atom and
its negation are both false of null.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from sqlglot import exp
from sqlglot import parse_one as _parse_one
from sqlglot.errors import SqlglotError

from catchment.model.constraint import NOT_NULL, NULL, Constraint, Family, Pattern, Scalar
from catchment.model.dialect import SubscriptionSql, first_line, sql_text
from catchment.model.errors import EventError, FilterError
from catchment.model.filter import EVERY_EVENT, NO_EVENT, Filter
from catchment.model.literals import literal_of
from catchment.model.schema import IMPLICIT_ATTRIBUTES, Schema, Type
from catchment.model.times import has_offset, is_plain_date, microseconds

__all__ = ["ConditionReader", "column_name", "parse_condition"]

ACCEPTED = "=, !=, <, <=, >, >=, BETWEEN, IN, LIKE, IS [NOT] NULL, AND, OR, NOT between an attribute and literals"


Resolve: TypeAlias = "Callable[[exp.Expr], str | None]"
"""Says which attribute an expression names, or None if it names none."""

TypeOf: TypeAlias = "Callable[[str], Type | None]"
"""Says the type of an attribute, or None if it is not known."""

ColumnTypeOf: TypeAlias = "Callable[[str], str | None]"
"""Says the type of an attribute's column as Spark writes it, where that says more; see `Schema.column_types`."""

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
    reader = ConditionReader.within(schema)
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

    def __init__(
        self,
        resolve: Resolve = column_name,
        type_of: TypeOf = IMPLICIT_ATTRIBUTES.get,
        column_type_of: ColumnTypeOf = lambda attribute: None,
    ) -> None:
        self._resolve = resolve
        self._type_of = type_of
        self._column_type_of = column_type_of
        self.texts: set[str] = set()
        """The attributes that were compared with text."""

    @classmethod
    def within(cls, schema: Schema | None) -> ConditionReader:
        """One that reads conditions about the attributes of a schema, where it is known."""
        return cls() if schema is None else cls(type_of=schema.get, column_type_of=schema.column_types.get)

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
        literal = literal_of(node.expression, attribute)
        if literal is None:
            return NO_EVENT
        text, family = literal
        if family != "string":
            raise FilterError(f"cannot use {sql_text(node)!r} in a condition; LIKE accepts a string")
        return Filter.where(attribute, _pattern(str(text), negated))

    def _value(self, attribute: str, node: exp.Expr) -> tuple[Scalar, Family] | None:
        """The literal that an attribute is compared with; text is a time if the attribute is one."""
        literal = literal_of(node, attribute)
        if literal is None or literal[1] != "string":
            return literal
        self.texts.add(attribute)
        if self._type_of(attribute) is not Type.TIMESTAMP:
            return literal
        text, column = str(literal[0]), self._column_type_of(attribute)
        if column == "date" and not is_plain_date(text):
            raise FilterError(
                f"attribute {attribute!r} is a date and is compared with {text!r}, of which Spark would read the day "
                "alone; accepted are dates like '2014-08-11', and TIMESTAMP '…'"
            )
        if column == "timestamp_ntz" and has_offset(text):
            raise FilterError(
                f"attribute {attribute!r} is a time without a zone and is compared with {text!r}, of which Spark would "
                "not read the zone; accepted are times like '2014-08-11 07:30:00', and TIMESTAMP '…'"
            )
        try:
            return microseconds(text, attribute=attribute), "timestamp"
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
