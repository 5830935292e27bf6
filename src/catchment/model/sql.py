"""From the SQL of a subscription to its meaning; everything that is not accepted gets an error that names it."""

from __future__ import annotations

from typing import NoReturn

from sqlglot import exp
from sqlglot import parse as _parse
from sqlglot.errors import SqlglotError

from catchment.model.condition import SubscriptionSql, column_name, filter_of, first_line
from catchment.model.errors import SubscriptionError
from catchment.model.filter import EVERY_EVENT, Filter
from catchment.model.operators import OPERATORS, Measure
from catchment.model.subscription import Aggregate, Output, Query
from catchment.model.times import duration_us
from catchment.model.window import Window

__all__ = ["parse_query"]

ACCEPTED = (
    "SELECT attributes or aggregates FROM topic [WHERE condition] "
    "[GROUP BY window(ts, size[, shift]) [, attributes] [HAVING condition]]"
)

# The parts of a parsed SELECT that a subscription may have; the name of any other goes into the error.
_PARTS = {"expressions", "from_", "from", "where", "group", "having", "kind"}
_CLAUSES = {
    "distinct": "SELECT DISTINCT",
    "joins": "JOIN",
    "order": "ORDER BY",
    "limit": "LIMIT",
    "offset": "OFFSET",
    "with_": "WITH",
    "with": "WITH",
    "laterals": "LATERAL VIEW",
    "qualify": "QUALIFY",
    "windows": "WINDOW",
    "sort": "SORT BY",
    "cluster": "CLUSTER BY",
    "distribute": "DISTRIBUTE BY",
    "hint": "a hint",
    "into": "INTO",
    "sample": "TABLESAMPLE",
    "pivots": "PIVOT",
}
# sqlglot has a class for most aggregate functions and keeps the rest by name.
_NAMES: dict[type[exp.Expression], str] = {
    exp.Count: "count",
    exp.Sum: "sum",
    exp.Min: "min",
    exp.Max: "max",
    exp.LogicalAnd: "bool_and",
    exp.LogicalOr: "bool_or",
    exp.Avg: "avg",
    exp.Variance: "var_samp",
    exp.StddevSamp: "stddev_samp",
    exp.ApproxDistinct: "approx_count_distinct",
    exp.ApproxQuantile: "approx_percentile",
    exp.ApproxTopK: "approx_top_k",
    exp.Median: "median",
    exp.Quantile: "percentile",
    exp.Mode: "mode",
}


def parse_query(text: str) -> Query:
    select = _single_select(text)
    for part, value in select.args.items():
        if value and part not in _PARTS:
            _refuse(f"{_CLAUSES.get(part, part.upper())} is not accepted")
    topic = _topic(select)
    where = select.args.get("where")
    condition = filter_of(where.this) if where is not None else EVERY_EVENT
    group, having = select.args.get("group"), select.args.get("having")
    if group is not None:
        return Query(topic, condition, aggregate=_aggregate(select, group, having))
    if having is not None:
        _refuse("HAVING without GROUP BY window(…)")
    return Query(topic, condition, columns=_columns(select))


def _refuse(problem: str) -> NoReturn:
    raise SubscriptionError(f"{problem}; accepted is {ACCEPTED}")


def _single_select(text: str) -> exp.Select:
    try:
        parsed = [statement for statement in _parse(text, dialect=SubscriptionSql) if statement is not None]
    except SqlglotError as error:
        _refuse(f"cannot read {text!r}: {first_line(error)}")
    if len(parsed) != 1:
        _refuse(f"{len(parsed)} statements given")
    statement = parsed[0]
    if not isinstance(statement, exp.Select):
        _refuse(f"{statement.key.upper()} is no SELECT")
    return statement


def _topic(select: exp.Select) -> str:
    source = select.args.get("from_") or select.args.get("from")
    if source is None:
        _refuse("FROM is missing")
    table = source.this
    if not isinstance(table, exp.Table):
        _refuse(f"FROM {_text(table)} is no topic")
    extra = [part for part, value in table.args.items() if value and part != "this"]
    if extra:
        _refuse(f"FROM {_text(table)} is more than the name of a topic ({', '.join(extra)})")
    return str(table.name)


def _columns(select: exp.Select) -> tuple[str, ...] | None:
    if len(select.expressions) == 1 and isinstance(select.expressions[0], exp.Star):
        star = select.expressions[0]
        if any(star.args.values()):
            _refuse(f"SELECT {_text(star)} is not accepted")
        return None
    names = []
    for node in select.expressions:
        name = column_name(node)
        if name is None:
            if node.find(exp.AggFunc) is not None or _measure_name(node) in OPERATORS:
                _refuse(f"SELECT {_text(node)} aggregates without GROUP BY window(…)")
            _refuse(f"SELECT {_text(node)} is no attribute")
        names.append(name)
    return tuple(dict.fromkeys(names))


def _aggregate(select: exp.Select, group: exp.Group, having: exp.Having | None) -> Aggregate:
    for part, value in group.args.items():
        if value and part != "expressions":
            _refuse(f"GROUP BY {part.upper()} is not accepted")
    window: Window | None = None
    keys: list[str] = []
    for node in group.expressions:
        if _is_window(node):
            if window is not None:
                _refuse("GROUP BY has two windows")
            window = _window(node)
        else:
            key = column_name(node)
            if key is None:
                _refuse(f"GROUP BY {_text(node)} is neither window(…) nor an attribute")
            keys.append(key)
    if window is None:
        _refuse("GROUP BY lacks window(ts, size[, shift])")
    outputs = _outputs(select, keys)
    group_keys = tuple(dict.fromkeys(keys))
    if having is None:
        return Aggregate(window, outputs, group_keys)
    condition, measures = _having(having.this, outputs, group_keys)
    return Aggregate(window, outputs, group_keys, condition, measures)


def _outputs(select: exp.Select, keys: list[str]) -> tuple[Output, ...]:
    outputs: list[Output] = []
    for node in select.expressions:
        inner = node.this if isinstance(node, exp.Alias) else node
        name = column_name(inner)
        if name in keys or (name == "window" and not isinstance(node, exp.Alias)):
            continue  # every notification carries its window and its group
        if name is not None or isinstance(inner, exp.Star):
            _refuse(f"SELECT {_text(inner)} is neither an aggregate nor a GROUP BY attribute")
        measure = _measure(inner)
        outputs.append(Output(str(node.alias) if isinstance(node, exp.Alias) else str(measure), measure))
    if not outputs:
        _refuse("SELECT has no aggregate")
    names = [output.name for output in outputs]
    for name in names:
        if names.count(name) > 1:
            _refuse(f"two outputs are named {name!r}: name one with AS")
    return tuple(outputs)


def _having(
    node: exp.Expression, outputs: tuple[Output, ...], keys: tuple[str, ...]
) -> tuple[Filter, tuple[Measure, ...]]:
    named = {output.name: output.measure for output in outputs}
    used: dict[str, Measure] = {}

    def resolve(inner: exp.Expression) -> str | None:
        name = column_name(inner)
        if name is not None and name not in named:
            if name not in keys:
                raise SubscriptionError(
                    f"HAVING uses {name!r}; accepted are aggregates, {', '.join([*named, *keys])}"
                )
            return name
        if name is None and _measure_name(inner) not in OPERATORS:
            return None
        measure = named[name] if name is not None else _measure(inner)
        used[str(measure)] = measure
        return str(measure)

    return filter_of(node, resolve), tuple(used.values())


def _measure_name(node: exp.Expression) -> str:
    if isinstance(node, exp.Anonymous):
        return str(node.this).lower()
    return _NAMES.get(type(node), "")


def _measure(node: exp.Expression) -> Measure:
    name = _measure_name(node)
    if name not in OPERATORS or name == "count_distinct":
        accepted = ", ".join(n for n in OPERATORS if n != "count_distinct")
        raise SubscriptionError(f"{_text(node)} is no aggregate; accepted are {accepted}, count(DISTINCT …)")
    arguments = [*_arguments(node)]
    if name == "count" and len(arguments) == 1 and isinstance(arguments[0], exp.Star):
        return Measure("count")
    if name == "count" and len(arguments) == 1 and isinstance(arguments[0], exp.Distinct):
        name, arguments = "count_distinct", [*arguments[0].expressions]
    wanted = OPERATORS[name].parameters
    attribute = column_name(arguments[0]) if arguments else None
    if attribute is None or len(arguments) != 1 + len(wanted):
        raise SubscriptionError(f"{_text(node)} is not accepted; write {name}({', '.join(['attribute', *wanted])})")
    return Measure(name, attribute, tuple(_parameter(n, a, node) for n, a in zip(wanted, arguments[1:], strict=True)))


def _arguments(node: exp.Expression) -> list[exp.Expression]:
    if isinstance(node, exp.Anonymous):
        return list(node.expressions)
    given = [node.this, *(node.args.get(part) for part in ("quantile", "expression", "accuracy", "counters"))]
    given += node.expressions
    return [argument for argument in given if isinstance(argument, exp.Expression)]


def _parameter(name: str, node: exp.Expression, whole: exp.Expression) -> float:
    text = str(node.this) if isinstance(node, exp.Literal) and not node.is_string else ""
    try:
        value = float(text)
    except ValueError:
        raise SubscriptionError(f"{_text(whole)}: {name} is {_text(node)}; accepted is a number") from None
    if name == "fraction" and not 0 <= value <= 1:
        raise SubscriptionError(f"{_text(whole)}: the fraction is {text}; accepted is a number from 0 to 1")
    if name == "k" and (value != int(value) or not 1 <= value <= 1000):
        raise SubscriptionError(f"{_text(whole)}: k is {text}; accepted is a whole number from 1 to 1000")
    return value


def _is_window(node: exp.Expression) -> bool:
    return isinstance(node, exp.Anonymous) and str(node.this).lower() == "window"


def _window(node: exp.Expression) -> Window:
    arguments = node.expressions
    if not 2 <= len(arguments) <= 3 or column_name(arguments[0]) != "ts":
        _refuse(f"GROUP BY {_text(node)} is not accepted: write window(ts, size[, shift])")
    size, *shift = (_duration(argument) for argument in arguments[1:])
    return Window(size, shift[0] if shift else size)


def _duration(node: exp.Expression) -> int:
    if isinstance(node, exp.Literal) and node.is_string:
        return duration_us(str(node.this))
    if isinstance(node, exp.Interval):
        return duration_us(_text(node).replace("'", ""))
    _refuse(f"the duration {_text(node)} is not accepted: write it as '20 seconds'")


def _text(node: exp.Expression) -> str:
    return node.sql(dialect=SubscriptionSql)
