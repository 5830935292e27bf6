"""From the SQL of a subscription to its meaning; everything that is not accepted gets an error that names it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import takewhile
from typing import NoReturn

from sqlglot import exp
from sqlglot import parse as _parse
from sqlglot.errors import SqlglotError

from catchment.model.condition import ConditionReader, column_name
from catchment.model.constraint import ANYTHING, Constraint
from catchment.model.dialect import SubscriptionSql, first_line, sql_text
from catchment.model.errors import FilterError, SubscriptionError
from catchment.model.filter import EVERY_EVENT, Filter
from catchment.model.operators import OPERATORS, Measure, operator_named
from catchment.model.schema import Schema, Type
from catchment.model.subscription import Aggregate, Output, Query
from catchment.model.times import duration_us
from catchment.model.window import Window

__all__ = ["also_selecting", "parse_query"]

_ONE_OR_MORE = Constraint.compare(">=", 1)

ACCEPTED = (
    "SELECT attributes or aggregates FROM topic [WHERE condition] "
    "[GROUP BY window(ts, size[, shift]) [, attributes] [HAVING condition]]"
)

# The parts of a parsed SELECT that a subscription may have; the name of any other goes into the error.
_PARTS = {"expressions", "from_", "from", "where", "group", "having"}
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


def parse_query(text: str, schema: Schema | None = None) -> Query:
    """What SQL asks for; the schema, where it is known, says which texts are times and which names are meant."""
    select = _single_select(text)
    for part, value in select.args.items():
        if value and part not in _PARTS:
            _refuse(f"{_CLAUSES.get(part, part.upper())} is not accepted")
    topic = _topic(select)
    _resolve_names(select, topic, schema)
    where = select.args.get("where")
    reader = ConditionReader.within(schema)
    condition = EVERY_EVENT if where is None else _condition("WHERE", where, reader)
    group, having = select.args.get("group"), select.args.get("having")
    if group is not None:
        is_strict = schema is not None and schema.case_sensitive
        aggregate, renamed = _aggregate(select, group, text, is_strict)
        if having is not None:
            aliases = {node.alias for node in select.expressions if isinstance(node, exp.Alias)}
            aggregate, having_texts = _with_having(aggregate, having, schema, aliases, renamed)
            reader.texts.update(having_texts)
        return Query(topic.name, condition, aggregate=aggregate, texts=tuple(sorted(reader.texts)))
    if having is not None:
        _refuse("HAVING without GROUP BY window(…)")
    return Query(topic.name, condition, columns=_columns(select), texts=tuple(sorted(reader.texts)))


def also_selecting(text: str, column: str) -> str:
    """The SQL of a regular subscription that selects columns, with one column more."""
    tokens = SubscriptionSql().tokenize(text)
    begin = next(token.start for token in tokens if token.token_type.name == "FROM")
    return f"{text[:begin].rstrip()}, {column} {text[begin:]}"


_WRITTEN = "written"
"""Under which a column keeps the name that it was given in the SQL."""


def _resolve_names(select: exp.Select, topic: exp.Table, schema: Schema | None) -> None:
    """Let columns have the names of the schema's attributes, without the topic's name or alias before them."""
    is_strict = schema is not None and schema.case_sensitive
    for column in select.find_all(exp.Column):
        is_ours = any(_is_same(column.table, name, is_strict) for name in (topic.name, topic.alias))
        if is_ours and not column.args.get("db"):
            column.set("table", None)
        if schema is not None and isinstance(column.this, exp.Identifier) and not column.table:
            column.meta[_WRITTEN] = column.name
            column.this.set("this", schema.resolve(column.name))


def _is_same(written: str, name: str, is_strict: bool) -> bool:
    """Tell whether a name is meant; strictly only if it is written in the same case."""
    return written == name or (not is_strict and written.lower() == name.lower())


def _written(column: exp.Expr) -> str:
    return str(column.meta.get(_WRITTEN) or column.name)


def _condition(clause: str, node: exp.Expr, reader: ConditionReader) -> Filter:
    try:
        return reader.read(node.this)
    except FilterError as error:
        raise SubscriptionError(f"{clause}: {error}") from None
    except RecursionError:
        raise SubscriptionError(f"{clause} is nested too deeply; accepted are some hundred levels") from None


def _refuse(problem: str) -> NoReturn:
    raise SubscriptionError(f"{problem}; accepted is {ACCEPTED}")


def _single_select(text: str) -> exp.Select:
    try:
        if "|>" in text and any(token.text == "|>" for token in SubscriptionSql().tokenize(text)):
            _refuse("the pipe |> is not accepted")
        parsed = [statement for statement in _parse(text, dialect=SubscriptionSql) if statement is not None]
    except SubscriptionError:
        raise  # which is a ValueError too
    except (SqlglotError, AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        # The parser has errors of its own for most SQL that it cannot read, and stumbles over some.
        _refuse(f"cannot read {text!r}: {first_line(error)}")
    except RecursionError:
        _refuse("the SQL is nested too deeply")
    if len(parsed) != 1:
        _refuse(f"{len(parsed)} statements given")
    _refuse_weights(text)
    statement = parsed[0]
    if not isinstance(statement, exp.Select):
        _refuse(f"{statement.key.upper()} is no SELECT")
    return statement


def _refuse_weights(text: str) -> None:
    """The parser drops the third argument of `percentile`, the weight of each value; a wrong answer would follow."""
    tokens = SubscriptionSql().tokenize(text) if "percentile" in text.lower() else []
    for position, token in enumerate(tokens):
        if token.text.lower() == "percentile" and [t.text for t in tokens[position + 1 : position + 2]] == ["("]:
            arguments = list(takewhile(lambda t: t.text != ")", tokens[position:]))
            if sum(t.text == "," for t in arguments) > 1:
                _refuse("percentile with more than percentile(attribute, fraction)")


def _topic(select: exp.Select) -> exp.Table:
    source = select.args.get("from_") or select.args.get("from")
    if source is None:
        _refuse("FROM is missing")
    table = source.this
    if not isinstance(table, exp.Table) or not isinstance(table.this, exp.Identifier):
        _refuse(f"FROM {sql_text(table)} is no topic")
    extra = [part for part, value in table.args.items() if value and part not in ("this", "alias")]
    if extra or table.alias_column_names:
        _refuse(f"FROM {sql_text(table)} is more than the name of a topic and an alias")
    return table


def _columns(select: exp.Select) -> tuple[str, ...] | None:
    if not select.expressions:
        _refuse("SELECT names nothing")
    (first, *others) = select.expressions
    star = first.this if isinstance(first, exp.Column) and not first.table else first
    if isinstance(star, exp.Star) and not others:
        if any(star.args.values()):
            _refuse(f"SELECT {sql_text(star)} is not accepted")
        return None
    names = []
    for node in select.expressions:
        name = column_name(node)
        if name is None:
            if node.find(exp.AggFunc) is not None or _measure_name(node):
                _refuse(f"SELECT {sql_text(node)} aggregates without GROUP BY window(…)")
            _refuse(f"SELECT {sql_text(node)} is no attribute")
        names.append(name)
    return tuple(dict.fromkeys(names))


def _aggregate(select: exp.Select, group: exp.Group, text: str, is_strict: bool) -> tuple[Aggregate, dict[str, str]]:
    """What is asked of each window, and the group keys that SELECT renames, by their new names."""
    for part, value in group.args.items():
        if value and part != "expressions":
            _refuse(f"GROUP BY {part.upper()} is not accepted")
    window: Window | None = None
    keys: list[str] = []
    for node in group.expressions:
        if _is_window(node):
            if window is not None:
                _refuse("GROUP BY has two windows")
            window = _window(node, is_strict)
        else:
            key = column_name(node)
            if key is None:
                _refuse(f"GROUP BY {sql_text(node)} is neither window(…) nor an attribute")
            keys.append(key)
    if window is None:
        _refuse("GROUP BY lacks window(ts, size[, shift])")
    outputs, renamed = _outputs(select, keys, text, is_strict)
    return Aggregate(window, outputs, tuple(dict.fromkeys(keys))), renamed


def _outputs(
    select: exp.Select, keys: list[str], text: str, is_strict: bool
) -> tuple[tuple[Output, ...], dict[str, str]]:
    outputs: list[Output] = []
    renamed: dict[str, str] = {}
    for node in select.expressions:
        inner = (node.this if isinstance(node, exp.Alias) else node).unnest()
        name = column_name(inner)
        # Every notification carries its window and its group, under their own names.
        if _is_window_bound(inner, is_strict):
            continue
        key = next((key for key in (*keys, "window") if name is not None and _is_same(name, key, is_strict)), None)
        if key is not None:
            if isinstance(node, exp.Alias) and key in keys:
                renamed[str(node.alias)] = key
            continue
        if name is not None or isinstance(inner, exp.Star):
            _refuse(f"SELECT {sql_text(inner)} is neither an aggregate nor a GROUP BY attribute")
        measure = _measure(inner)
        outputs.append(Output(str(node.alias) if isinstance(node, exp.Alias) else _output_name(inner, text), measure))
    if not outputs:
        _refuse("SELECT has no aggregate")
    names = [*renamed, *(output.name for output in outputs)]
    for name in names:
        if names.count(name) > 1:
            _refuse(f"SELECT has two outputs named {name!r}: name one with AS")
    return tuple(outputs), renamed


def _is_window_bound(inner: exp.Expr, is_strict: bool) -> bool:
    if not isinstance(inner, exp.Column) or not _is_same(inner.table, "window", is_strict):
        return False
    if not any(_is_same(inner.name, bound, is_strict) for bound in ("start", "end")):
        _refuse(f"SELECT {sql_text(inner)} is neither window.start nor window.end")
    return True


def _output_name(node: exp.Expr, text: str) -> str:
    """What an output without an alias is called: its text, in one spelling of white space and function names."""
    measure = _measure(node)
    spelled = text[node.meta["start"] : node.meta["end"] + 1].lower() if "start" in node.meta else measure.operator
    spelled = "any" if isinstance(node, exp.Any) else spelled
    arguments = _arguments(node)
    if measure.attribute is None:
        return f"{spelled}({sql_text(arguments[0])})"
    operator = measure.operator if measure.operator == "count_distinct" else spelled
    columns = (column for argument in arguments for column in argument.find_all(exp.Column))
    return str(replace(measure, operator=operator, attribute=_written(next(columns))))


def _with_having(
    aggregate: Aggregate, having: exp.Expr, schema: Schema | None, aliases: set[str], renamed: Mapping[str, str]
) -> tuple[Aggregate, set[str]]:
    """The aggregate with its condition, and the attributes whose keys or measures were compared with text."""
    # A name means a group key, as in Spark, else an alias, else an output by its text.
    by_text = {output.name: output.measure for output in aggregate.outputs}
    named: dict[str, Measure | str] = {key: key for key in aggregate.group_keys}
    named |= {name: key for name, key in renamed.items() if name not in named}
    for names in (aliases, by_text):
        named |= {name: measure for name, measure in by_text.items() if name in names and name not in named}
    used: dict[str, Measure] = {}

    def use(measure: Measure) -> str:
        used[aggregate.fact_of(measure)] = measure
        return aggregate.fact_of(measure)

    def resolve(inner: exp.Expr) -> str | None:
        if column_name(inner) is None:
            return use(_measure(inner)) if _measure_name(inner) else None
        written, is_strict = _written(inner), schema is not None and schema.case_sensitive
        for name, measure in named.items():
            if _is_same(written, name, is_strict):
                return measure if isinstance(measure, str) else use(measure)
        raise SubscriptionError(f"HAVING uses {written!r}; accepted are aggregates, {', '.join(named)}")

    def type_of(name: str) -> Type | None:
        if schema is None or name not in used:
            return None if schema is None else schema.get(name)
        attribute = used[name].attribute
        kind = Type.INT if attribute is None else schema.get(attribute)
        return None if kind is None else used[name].result(kind)

    def column_type_of(name: str) -> str | None:
        measure = used.get(name)
        if schema is None or (measure is not None and measure.definition.gives != "the same"):
            return None
        return schema.column_types.get(name if measure is None else measure.attribute or "")

    reader = ConditionReader(resolve, type_of, column_type_of)
    condition = _condition("HAVING", having, reader)
    _refuse_having_of_empty_windows(condition, aggregate.fact_of(Measure("count")))
    measured = {name: name if measure.attribute is None else measure.attribute for name, measure in used.items()}
    texts = {measured.get(name, name) for name in reader.texts}
    return replace(aggregate, having=condition, having_measures=tuple(used.values())), texts


def _refuse_having_of_empty_windows(condition: Filter, counted: str) -> None:
    """A window is told of only where it has an event, so `count(*) = 0` would wait for ever."""
    counts = [dict(disjunct).get(counted, ANYTHING) for disjunct in condition.disjuncts]
    if any(count.family not in (None, "number") for count in counts):
        return  # which is refused as soon as the types are known
    whole = [count.within(Type.INT) for count in counts]
    if counts and all(count.intersect(_ONE_OR_MORE).is_empty for count in whole):
        reason = (
            "windows without an event yield nothing, so count(*) is 1 or more"
            if any(count.matches(0) for count in whole)
            else "no number of events is what it says of count(*)"
        )
        raise SubscriptionError(f"HAVING is never true: {reason}; accepted is a condition that some such count fulfils")


def _measure_name(node: exp.Expr) -> str | None:
    # sqlglot has a class for most aggregate functions, which knows all their names, and keeps the rest by name.
    names = []
    if isinstance(node, exp.Anonymous):
        names = [str(node.this)]
    elif isinstance(node, exp.Func):
        names = node.sql_names()
    elif isinstance(node, exp.Any):
        names = ["any"]
    return next((found for name in names if (found := operator_named(name.lower()))), None)


def _measure(node: exp.Expr) -> Measure:
    name = _measure_name(node)
    if name is None or name == "count_distinct":
        accepted = ", ".join(n for n in OPERATORS if n != "count_distinct")
        raise SubscriptionError(f"{sql_text(node)} is no aggregate; accepted are {accepted}, count(DISTINCT …)")
    arguments = [*_arguments(node)]
    if name == "count" and len(arguments) == 1 and isinstance(arguments[0], (exp.Star, exp.Literal, exp.Boolean)):
        return Measure("count")
    if name == "count" and len(arguments) == 1 and isinstance(arguments[0], exp.Distinct):
        name, arguments = "count_distinct", [*arguments[0].expressions]
    wanted = OPERATORS[name].parameters
    attribute = column_name(arguments[0]) if arguments else None
    if attribute is None or len(arguments) != 1 + len(wanted):
        form = (
            "count(DISTINCT attribute)" if name == "count_distinct" else f"{name}({', '.join(['attribute', *wanted])})"
        )
        raise SubscriptionError(f"{sql_text(node)} is not accepted; write {form}")
    return Measure(name, attribute, tuple(_parameter(n, a, node) for n, a in zip(wanted, arguments[1:], strict=True)))


def _arguments(node: exp.Expr) -> list[exp.Expr]:
    if isinstance(node, exp.Anonymous):
        return list(node.expressions)
    # In the order of sqlglot's own definitions, which is that of writing; none may be overlooked.
    given = (node.args.get(part) for part in node.arg_types)
    listed = (one if isinstance(one, list) else [one] for one in given)
    return [argument for some in listed for argument in some if isinstance(argument, exp.Expression)]


def _parameter(name: str, node: exp.Expr, whole: exp.Expr) -> float:
    text = str(node.this) if isinstance(node, exp.Literal) and not node.is_string else ""
    try:
        value = float(text)
    except ValueError:
        raise SubscriptionError(f"{sql_text(whole)}: {name} is {sql_text(node)}; accepted is a number") from None
    if name == "fraction" and not 0 <= value <= 1:
        raise SubscriptionError(f"{sql_text(whole)}: the fraction is {text}; accepted is a number from 0 to 1")
    if name == "k" and not (1 <= value <= 1000 and value.is_integer()):
        raise SubscriptionError(f"{sql_text(whole)}: k is {text}; accepted is a whole number from 1 to 1000")
    return value


def _is_window(node: exp.Expr) -> bool:
    return isinstance(node, exp.Anonymous) and str(node.this).lower() == "window"


def _window(node: exp.Expr, is_strict: bool) -> Window:
    arguments = node.expressions
    if not 2 <= len(arguments) <= 3 or not _is_same(column_name(arguments[0]) or "", "ts", is_strict):
        _refuse(f"GROUP BY {sql_text(node)} is not accepted: write window(ts, size[, shift])")
    size, *shift = (_duration(argument) for argument in arguments[1:])
    return Window(size, shift[0] if shift else size)


def _duration(node: exp.Expr) -> int:
    if isinstance(node, exp.Literal) and node.is_string:
        return duration_us(str(node.this))
    if isinstance(node, exp.Interval):
        return duration_us(sql_text(node).replace("'", ""))
    _refuse(f"the duration {sql_text(node)} is not accepted: write it as '20 seconds'")
