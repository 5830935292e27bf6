"""SQL's three-valued logic, evaluated on the parsed tree of a condition: what filters are held against.

True, False, or None for unknown. Nothing here is shared with the model.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlglot import exp, parse_one

from catchment.model.dialect import SubscriptionSql

Truth = bool | None
_COMPARISONS: dict[type, Callable[[Any, Any], bool]] = {
    exp.EQ: operator.eq,
    exp.NEQ: operator.ne,
    exp.LT: operator.lt,
    exp.LTE: operator.le,
    exp.GT: operator.gt,
    exp.GTE: operator.ge,
}


def holds(condition: str, event: Mapping[str, Any], times: frozenset[str] = frozenset()) -> Truth:
    """The truth of a condition for an event; texts beside the attributes in `times` are times."""
    return _truth(parse_one(condition, dialect=SubscriptionSql), event, times)


def _truth(node: Any, event: Mapping[str, Any], times: frozenset[str]) -> Truth:
    def value(inner: Any, beside: Any) -> Any:
        return _value(inner, event, _is_time(beside, times))

    match node:
        case exp.Paren():
            return _truth(node.this, event, times)
        case exp.Not():
            return _not(_truth(node.this, event, times))
        case exp.And() | exp.Or():
            sides = {_truth(node.this, event, times), _truth(node.expression, event, times)}
            decisive = isinstance(node, exp.Or)
            return decisive if decisive in sides else None if None in sides else not decisive
        case exp.Boolean():
            return bool(node.this)
        case exp.Null():
            return None
        case exp.Column():
            return _value(node, event, False)
        case exp.Is():
            given, wanted = value(node.this, None), value(node.expression, None)
            return _negated(node, (given is None) if wanted is None else given is wanted)
        case exp.Between():
            low = _compared(operator.ge, value(node.this, None), value(node.args["low"], node.this))
            high = _compared(operator.le, value(node.this, None), value(node.args["high"], node.this))
            return _negated(node, False if False in (low, high) else None if None in (low, high) else True)
        case exp.In():
            found = [_compared(operator.eq, value(node.this, None), value(n, node.this)) for n in node.expressions]
            return _negated(node, True if True in found else None if None in found else False)
        case exp.Like():
            return _negated(node, _compared(_like, value(node.this, None), value(node.expression, None)))
    left, right = value(node.this, node.expression), value(node.expression, node.this)
    return _compared(_COMPARISONS[type(node)], left, right)


def _not(truth: Truth) -> Truth:
    return None if truth is None else not truth


def _negated(node: Any, truth: Truth) -> Truth:
    return _not(truth) if node.args.get("negate") else truth


def _compared(test: Callable[[Any, Any], bool], left: Any, right: Any) -> Truth:
    return None if left is None or right is None else test(left, right)


def _is_time(node: Any, times: frozenset[str]) -> bool:
    return isinstance(node, exp.Column) and node.name in times


def _value(node: Any, event: Mapping[str, Any], beside_time: bool) -> Any:
    match node:
        case exp.Paren():
            return _value(node.this, event, beside_time)
        case exp.Column():
            return event.get(node.name)
        case exp.Null():
            return None
        case exp.Boolean():
            return bool(node.this)
        case exp.Neg():
            return -_value(node.this, event, False)
        case exp.Cast():
            return _microseconds(node.this.this) if node.this.is_string else float(node.this.this)
        case exp.Literal() if node.is_string:
            return _microseconds(node.this) if beside_time else node.this
    return int(node.this) if node.this.isdigit() else float(node.this)


def _microseconds(text: str) -> int:
    moment = datetime.fromisoformat(text)
    return (moment.replace(tzinfo=moment.tzinfo or UTC) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def _like(text: str, pattern: str) -> bool:
    pieces = re.findall(r"\\.|[^\\]", pattern, re.DOTALL)
    shape = "".join(
        ".*" if p == "%" else "." if p == "_" else re.escape(p[1:] if p.startswith("\\") else p) for p in pieces
    )
    return re.fullmatch(shape, text, re.DOTALL) is not None
