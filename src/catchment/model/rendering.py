"""From filters back to SQL: for people, for traces, and for Spark when it answers a question by itself."""

from __future__ import annotations

from catchment.model.constraint import ANYTHING, NOT_NULL, NULL, Constraint, Cut, Scalar
from catchment.model.filter import Conjunction, Filter
from catchment.model.times import timestamp_text

__all__ = ["filter_sql", "literal_sql"]


def filter_sql(condition: Filter) -> str:
    if not condition.disjuncts:
        return "FALSE"
    parts = [_conjunction(c) for c in condition.disjuncts]
    return parts[0] if len(parts) == 1 else " OR ".join(f"({part})" for part in parts)


def literal_sql(value: Scalar, family: str | None = None) -> str:
    if isinstance(value, str):
        return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if family == "timestamp":
        return f"TIMESTAMP '{timestamp_text(int(value))}'"
    return f"{value!r}D" if isinstance(value, float) else str(value)


def name_sql(name: str) -> str:
    return name if name.isidentifier() and name.isascii() else "`" + name.replace("`", "``") + "`"


def _conjunction(conjunction: Conjunction) -> str:
    if not conjunction.constraints:
        return "TRUE"
    return " AND ".join(_constraint(name_sql(name), c) for name, c in conjunction)


def _constraint(name: str, constraint: Constraint) -> str:
    if constraint == NULL:
        return f"{name} IS NULL"
    if constraint == NOT_NULL:
        return f"{name} IS NOT NULL"
    if constraint == ANYTHING:
        return "TRUE"
    if constraint.null:
        rest = Constraint(False, constraint.ranges, constraint.patterns, constraint.family)
        return f"({name} IS NULL OR {_constraint(name, rest)})"
    texts = [_like(name, p.kind, p.text, p.negated) for p in constraint.patterns]
    points = constraint.points
    if points is not None and len(points) > 1:
        texts.append(f"{name} IN ({', '.join(literal_sql(p, constraint.family) for p in points)})")
    else:
        said = {p.range for p in constraint.patterns if p.kind == "prefix" and not p.negated}
        ranges = [_range(name, *r, constraint.family) for r in constraint.ranges if r not in said]
        ranges = [text for text in ranges if text]
        if len(ranges) > 1:
            texts.append("(" + " OR ".join(ranges) + ")")
        else:
            texts.extend(ranges)
    return " AND ".join(texts)


def _range(name: str, low: Cut, high: Cut, family: str | None) -> str:
    if Constraint(False, ((low, high),), (), None).points is not None:
        assert len(low) == 3
        return f"{name} = {literal_sql(low[1], family)}"
    ends = []
    if len(low) == 3:
        ends.append(f"{name} {'>' if low[2] else '>='} {literal_sql(low[1], family)}")
    if len(high) == 3:
        ends.append(f"{name} {'<=' if high[2] else '<'} {literal_sql(high[1], family)}")
    return " AND ".join(ends)


def _like(name: str, kind: str, text: str, negated: bool) -> str:
    plain = text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    shape = {"prefix": f"{plain}%", "suffix": f"%{plain}", "contains": f"%{plain}%"}[kind]
    return f"{name} {'NOT LIKE' if negated else 'LIKE'} {literal_sql(shape)}"
