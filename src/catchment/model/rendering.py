"""From filters back to SQL: for people, for traces, and for Spark when it answers a question by itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from catchment.model.constraint import ANYTHING, NOT_NULL, NULL, Constraint, Pattern, Range, Scalar, prefix_of
from catchment.model.dialect import SubscriptionSql
from catchment.model.filter import Conjunction, Filter
from catchment.model.schema import Schema, Type
from catchment.model.times import timestamp_text

__all__ = ["filter_sql", "literal_sql", "name_sql"]


def literal_sql(value: Scalar, family: str | None = None) -> str:
    if isinstance(value, str):
        return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if family == "timestamp":
        # With its zone, as Spark would read it in that of the session.
        return f"TIMESTAMP '{timestamp_text(int(value))}Z'"
    return f"{value!r}D" if isinstance(value, float) else str(value)


def name_sql(name: str) -> str:
    plain = name.isascii() and name.isidentifier() and name.upper() not in SubscriptionSql.Tokenizer.KEYWORDS
    return name if plain else "`" + name.replace("`", "``") + "`"


def filter_sql(
    condition: Filter,
    schema: Schema | None = None,
    *,
    name: Callable[[str], str] = name_sql,
    literal: Callable[[Scalar, str | None], str] = literal_sql,
    from_zero: Callable[[str], str | None] = lambda attribute: None,
) -> str:
    """SQL for a filter. With the schema that the filter is within, whole numbers read `= 3`, not `>= 3 AND < 4`.

    `name` and `literal` say how attributes and values are written, `from_zero` what an attribute is compared with whose
    values begin at zero, if that is another zero.
    """
    writer = _Writer({} if schema is None else schema.attributes, name, literal, from_zero)
    if not condition.disjuncts:
        return "FALSE"
    parts = [writer.conjunction(c) for c in condition.disjuncts]
    return parts[0] if len(parts) == 1 else " OR ".join(f"({part})" for part in parts)


@dataclass(frozen=True, slots=True)
class _Writer:
    kinds: Mapping[str, Type]
    name: Callable[[str], str]
    literal: Callable[[Scalar, str | None], str]
    from_zero: Callable[[str], str | None]

    def conjunction(self, conjunction: Conjunction) -> str:
        if not conjunction.constraints:
            return "TRUE"
        return " AND ".join(self._constraint(name, c, self.kinds.get(name)) for name, c in conjunction)

    def _constraint(self, attribute: str, constraint: Constraint, kind: Type | None) -> str:
        name = self.name(attribute)
        if constraint == NULL:
            return f"{name} IS NULL"
        if constraint == NOT_NULL:
            return f"{name} IS NOT NULL"
        if constraint == ANYTHING:
            return "TRUE"
        texts = [self._like(name, p) for p in constraint.patterns]
        ranges = self._alternatives(name, constraint, kind, self.from_zero(attribute))
        if len(ranges) == 1 or (ranges and constraint.null and not texts):
            texts.append(" OR ".join(ranges))
        elif ranges:
            texts.append("(" + " OR ".join(ranges) + ")")
        said = " AND ".join(texts)
        return f"({name} IS NULL OR {said})" if constraint.null else said

    def _alternatives(self, name: str, constraint: Constraint, kind: Type | None, zero: str | None) -> list[str]:
        """What a value may be, one of several; nothing where the ranges leave nothing out."""
        every = constraint.points(kind)
        if every is not None:
            return [self._members(name, every, constraint.family)]
        outside = constraint.outside()
        left_out = outside.points(kind)
        if left_out is not None:
            return [self._members(name, left_out, constraint.family, negated=True)] if left_out else []
        if len(outside.ranges) == 1 and prefix_of(outside.ranges[0]):
            return [self._like(name, Pattern("prefix", prefix_of(outside.ranges[0]), True))]
        points: list[Scalar] = []
        texts: list[str] = []
        for one in constraint.ranges:
            found = Constraint(False, (one,), (), constraint.family).points(kind)
            if found is None:
                texts.append(self._range(name, one, constraint.family, zero))
            else:
                points += found
        return ([self._members(name, tuple(points), constraint.family)] if points else []) + texts

    def _members(self, name: str, points: tuple[Scalar, ...], family: str | None, *, negated: bool = False) -> str:
        texts = [self.literal(point, family) for point in points]
        if len(texts) == 1:
            return f"{name} {'!=' if negated else '='} {texts[0]}"
        return f"{name} {'NOT IN' if negated else 'IN'} ({', '.join(texts)})"

    def _range(self, name: str, stretch: Range, family: str | None, zero: str | None) -> str:
        prefix = prefix_of(stretch)
        if prefix:
            return self._like(name, Pattern("prefix", prefix))
        ends = []
        for cut, including, excluding in ((stretch[0], ">=", ">"), (stretch[1], "<", "<=")):
            if len(cut) == 3:
                value, side = _end(cut)
                operator = excluding if side else including
                is_zero = zero is not None and operator == ">=" and value == 0
                ends.append(f"{name} {operator} {zero if is_zero else self.literal(value, family)}")
        return " AND ".join(ends)

    def _like(self, name: str, pattern: Pattern) -> str:
        plain = pattern.text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
        shape = {"prefix": f"{plain}%", "suffix": f"%{plain}", "contains": f"%{plain}%"}[pattern.kind]
        return f"{name} {'NOT LIKE' if pattern.negated else 'LIKE'} {self.literal(shape, None)}"


def _end(cut: tuple[int, Scalar, int]) -> tuple[Scalar, int]:
    """The value of a cut and its side; what stands before a text with a zero at its end stands after the text."""
    _, value, side = cut
    if isinstance(value, str) and value.endswith("\0"):
        return value[:-1], 1
    return value, side
