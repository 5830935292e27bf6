"""Random schemas, values, conditions, events, windows, measures, subscriptions: for all tests that compare engines.

Constants of conditions and values of events come from the same small pools most of the time, as conditions that
nothing satisfies prove nothing. `tame` values keep sums within 64 bits and squares within a double; events have tame
values and others.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from catchment.model.filter import Filter
from catchment.model.operators import OPERATORS, Measure
from catchment.model.schema import Schema, Type
from catchment.model.subscription import Subscription
from catchment.model.times import TIME_MAX_US, TIME_MIN_US, timestamp_text
from catchment.model.window import Window

NAMES = ("a", "b", "speed", "order", "my attribute", "größe")
"""Plain names, a reserved word, a space, and letters beyond ASCII."""

SECOND_US = 1_000_000
LEAST_INTEGERS = (-(2**63), -(2**63) + 1)
"""Values like any other, but no constants of subscriptions."""

_POOLS: dict[Type, tuple[Any, ...]] = {
    Type.BOOL: (False, True),
    Type.INT: (-3, -1, 0, 1, 2, 7, 2**53 - 1, 2**53, 2**53 + 1, 2**63 - 1, -(2**63)),
    Type.FLOAT: (-1.5, -0.0, 0.0, 0.5, 1.0, 2.0, 2.0**53, 2.0**53 + 2, 5e-324, -sys.float_info.max, 2.0**63),
    Type.STRING: ("", "a", "ab", "b", "ba", "a%b", "a_b", "it's", "a\\b", "a\0", "é", "\ud7ff", "\ue000", "\U0010ffff"),
    Type.TIMESTAMP: (0, -1, 1, 1_407_742_200_000_000, TIME_MIN_US, TIME_MAX_US),
}
_TAME_POOLS: dict[Type, tuple[Any, ...]] = {
    **_POOLS,
    Type.INT: (-3, -1, 0, 1, 2, 7, 2**40),
    Type.FLOAT: (-1.5, -0.0, 0.0, 0.5, 1.0, 2.0, 1e9 + 0.25, -1e9),
}
_PATTERN_TEXTS = ("", "a", "b", "ab", "ba", "%", "_", "\\", "é", "\ud7ff", "\U0010ffff")
TEXT = st.characters(exclude_categories=["Cs"])


def values(kind: Type, *, tame: bool = False) -> st.SearchStrategy[Any]:
    """A value of a type, never null."""
    pool = st.sampled_from((_TAME_POOLS if tame else _POOLS)[kind])
    if kind is Type.BOOL:
        return pool
    if kind is Type.INT:
        most = 2**40 if tame else 2**63 - 1
        return pool | st.integers(-most, most)
    if kind is Type.FLOAT:
        most_real = 1e12 if tame else sys.float_info.max
        return pool | st.floats(-most_real, most_real, allow_subnormal=not tame)
    if kind is Type.STRING:
        return pool | st.text("ab%", max_size=4) | st.text(TEXT, max_size=6)
    return pool | st.integers(TIME_MIN_US, TIME_MAX_US)


@st.composite
def schemas(draw: st.DrawFn, *, names: Sequence[str] = NAMES, kinds: Sequence[Type] = tuple(Type)) -> Schema:
    chosen = draw(st.lists(st.sampled_from(names), min_size=1, max_size=4, unique=True))
    return Schema({name: draw(st.sampled_from(kinds)) for name in chosen})


@st.composite
def events(draw: st.DrawFn, schema: Schema) -> dict[str, Any]:
    """An event as attribute to value; attributes may be null or missing."""
    found: dict[str, Any] = {}
    for name in schema:
        present = draw(st.sampled_from(["value", "value", "value", "null", "missing"]))
        if present != "missing":
            found[name] = draw(values(schema[name])) if present == "value" else None
    return found


# -- conditions -------------------------------------------------------------------------------------------------------


def quoted_name(name: str) -> str:
    return f"`{name}`"


def literal(value: Any, kind: Type) -> str:
    """SQL for a value, written independently of the model."""
    if kind is Type.BOOL:
        return "TRUE" if value else "FALSE"
    if kind is Type.STRING:
        return "'" + value.replace("\\", "\\\\").replace("'", "''") + "'"
    if kind is Type.TIMESTAMP:
        return f"TIMESTAMP '{timestamp_text(value)}'"
    return repr(value)


@st.composite
def literals(draw: st.DrawFn, kind: Type, *, texts_for_times: bool = False) -> str:
    """A constant to compare an attribute of a type with; numbers of either kind go with either."""
    if kind.is_number:
        kind = draw(st.sampled_from([Type.INT, Type.FLOAT, kind]))
    text = literal(draw(values(kind).filter(lambda value: value not in LEAST_INTEGERS)), kind)
    if kind is Type.TIMESTAMP and texts_for_times and draw(st.booleans()):
        return text.removeprefix("TIMESTAMP ")
    return text


@st.composite
def atoms(draw: st.DrawFn, schema: Schema, *, texts_for_times: bool = False) -> str:
    """One comparison."""
    attribute = draw(st.sampled_from(sorted(schema)))
    kind, name = schema[attribute], quoted_name(attribute)
    constant = literals(kind, texts_for_times=texts_for_times)
    shapes = ["compare", "compare", "mirrored", "between", "in", "null"]
    shapes += {Type.BOOL: ["bare", "is"], Type.STRING: ["like", "like"]}.get(kind, [])
    negation = draw(st.sampled_from(["", "NOT "]))
    match draw(st.sampled_from(shapes)):
        case "compare":
            return f"{name} {draw(st.sampled_from(['=', '!=', '<>', '<', '<=', '>', '>=']))} {draw(constant)}"
        case "mirrored":
            return f"{draw(constant)} {draw(st.sampled_from(['=', '!=', '<', '<=', '>', '>=']))} {name}"
        case "between":
            ends = [draw(constant | st.just("NULL")) for _ in range(2)]
            return f"{name} {negation}BETWEEN {ends[0]} AND {ends[1]}"
        case "in":
            members = draw(st.lists(constant, min_size=1, max_size=4)) + draw(st.sampled_from([[], [], ["NULL"]]))
            return f"{name} {negation}IN ({', '.join(members)})"
        case "like":
            return f"{name} {negation}LIKE {literal(draw(like_patterns()), Type.STRING)}"
        case "is":
            return f"{name} IS {negation}{draw(st.sampled_from(['TRUE', 'FALSE', 'NULL']))}"
        case "bare":
            return name
        case _:
            return f"{name} IS {negation}NULL"


@st.composite
def like_patterns(draw: st.DrawFn, texts: Sequence[str] = _PATTERN_TEXTS) -> str:
    """A pattern with wildcards at its ends only."""
    text = draw(st.sampled_from(texts))
    escaped = text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    before, behind = draw(st.sampled_from([("", ""), ("", "%"), ("%", ""), ("%", "%")]))
    return f"{before}{escaped}{behind}"


@st.composite
def conditions(draw: st.DrawFn, schema: Schema, *, leaves_max: int = 6, texts_for_times: bool = False) -> str:
    """The SQL of a condition. Times are written as text too only where the reader will know the schema."""
    constants = st.sampled_from(["TRUE", "FALSE", "NULL"])
    atom = atoms(schema, texts_for_times=texts_for_times)
    leaf = st.one_of(atom, atom, atom, atom, constants)

    def extend(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        joined = st.tuples(inner, st.sampled_from(["AND", "OR"]), inner).map(lambda t: f"({t[0]} {t[1]} {t[2]})")
        return joined | joined | inner.map(lambda text: f"NOT ({text})")

    return draw(st.recursive(leaf, extend, max_leaves=leaves_max))


def filters(schema: Schema, *, leaves_max: int = 6) -> st.SearchStrategy[Filter]:
    """Filters without a schema of their own; `within(schema)` gives them one."""
    return conditions(schema, leaves_max=leaves_max).map(Filter.parse)


# -- subscriptions ----------------------------------------------------------------------------------------------------


@st.composite
def windows(draw: st.DrawFn, *, unit_us: int = 1, size_max: int = 40) -> Window:
    """Sliding, tumbling and sampling windows, whose shift often does not divide their size."""
    size = draw(st.integers(1, size_max))
    shift = draw(st.one_of(st.just(size), st.integers(1, size), st.integers(size, 2 * size_max)))
    return Window(size * unit_us, shift * unit_us)


FRACTIONS = st.sampled_from([0.0, 0.25, 0.5, 0.95, 1.0]) | st.floats(0, 1).map(lambda f: round(f, 3))


@st.composite
def measures(draw: st.DrawFn, schema: Schema, *, operators: Sequence[str] = tuple(OPERATORS)) -> Measure:
    """An operator over an attribute whose type it accepts."""
    choices = [("count", None)] if "count" in operators else []
    choices += [
        (name, attribute) for name in operators for attribute in schema if schema[attribute] in OPERATORS[name].accepts
    ]
    operator, attribute = draw(st.sampled_from(choices or [("count", None)]))
    parameters = {"fraction": FRACTIONS, "k": st.integers(1, 5).map(float)}
    if attribute is None:
        return Measure(operator)
    return Measure(operator, attribute, tuple(draw(parameters[name]) for name in OPERATORS[operator].parameters))


def measure_sql(measure: Measure) -> str:
    if measure.attribute is None:
        return "count(*)"
    name = quoted_name(measure.attribute)
    if measure.operator == "count_distinct":
        return f"count(DISTINCT {name})"
    numbers = [str(int(p)) if p.is_integer() else repr(p) for p in measure.parameters]
    return f"{measure.operator}({', '.join([name, *numbers])})"


EXACT_OPERATORS = ("count", "min", "max", "bool_and", "bool_or", "count_distinct", "mode")
"""Whose answers are the same to the last bit in every engine, so that HAVING decides alike."""


def _whole_sums(schema: Schema) -> st.SearchStrategy[Measure]:
    whole = [name for name in schema if schema[name] is Type.INT]
    return st.sampled_from([Measure("sum", name) for name in whole]) if whole else st.nothing()


@st.composite
def havings(draw: st.DrawFn, schema: Schema, keys: Sequence[str]) -> str:
    measure = draw(measures(schema, operators=EXACT_OPERATORS) | _whole_sums(schema))
    kind = measure.result(schema[measure.attribute] if measure.attribute is not None else Type.INT)
    assert kind is not None
    # No window is told of with fewer than one event, and a HAVING that waits for one is refused.
    given = draw(values(kind, tame=True) if measure.attribute is not None else st.integers(2, 6))
    constant = literal(given, kind)
    tests = [f"{measure_sql(measure)} {draw(st.sampled_from(['=', '!=', '<', '<=', '>', '>=']))} {constant}"]
    if keys and draw(st.booleans()):
        tests.append(f"{quoted_name(draw(st.sampled_from(keys)))} IS {draw(st.sampled_from(['', 'NOT ']))}NULL")
    return draw(st.sampled_from([" AND ", " OR "])).join(tests)


@st.composite
def queries(
    draw: st.DrawFn,
    schema: Schema,
    *,
    topic: str = "traffic",
    unit_us: int = SECOND_US,
    operators: Sequence[str] = tuple(OPERATORS),
    leaves_max: int = 3,
) -> str:
    """The SQL of a regular or an aggregate subscription."""
    where = f" WHERE {draw(conditions(schema, leaves_max=leaves_max))}" if draw(st.booleans()) else ""
    if draw(st.integers(0, 3)) == 0:
        columns = draw(st.lists(st.sampled_from(sorted(schema)), unique=True, max_size=2))
        return f"SELECT {', '.join(map(quoted_name, columns)) or '*'} FROM {quoted_name(topic)}{where}"
    wanted = draw(st.lists(measures(schema, operators=operators), min_size=1, max_size=3, unique_by=str))
    outputs = [measure_sql(m) + (f" AS out{i}" if draw(st.booleans()) else "") for i, m in enumerate(wanted)]
    keys = draw(st.lists(st.sampled_from(sorted(schema)), unique=True, max_size=2))
    window = draw(windows(unit_us=unit_us, size_max=20))
    grouped = [
        f"window(ts, '{window.size_us} microseconds', '{window.shift_us} microseconds')",
        *map(quoted_name, keys),
    ]
    having = f" HAVING {draw(havings(schema, keys))}" if draw(st.integers(0, 2)) == 0 else ""
    return f"SELECT {', '.join(outputs)} FROM {quoted_name(topic)}{where} GROUP BY {', '.join(grouped)}{having}"


@st.composite
def subscriptions(
    draw: st.DrawFn,
    schemas_by_topic: Mapping[str, Schema],
    *,
    brokers: Sequence[str] | None = None,
    count_max: int = 4,
    **options: Any,
) -> list[Subscription]:
    """Subscriptions with different names, each at some broker; `options` are those of `queries`."""
    found = []
    for number in range(draw(st.integers(1, count_max))):
        topic = draw(st.sampled_from(sorted(schemas_by_topic)))
        sql = draw(queries(schemas_by_topic[topic], topic=topic, **options))
        at = draw(st.sampled_from(list(brokers))) if brokers else None
        found.append(Subscription(f"s{number}", at, sql=sql))
    return found


@st.composite
def event_tables(
    draw: st.DrawFn,
    schemas_by_topic: Mapping[str, Schema],
    *,
    brokers: Sequence[str] = ("b0",),
    count_max: int = 30,
    unit_us: int = SECOND_US,
    span: int = 60,
) -> pa.Table:
    """Publications in order of arrival, with unique ids and times on both sides of 1970, often on window edges."""
    merged = {name: schema[name] for schema in schemas_by_topic.values() for name in schema}
    rows = []
    for number in range(draw(st.integers(0, count_max))):
        topic = draw(st.sampled_from(sorted(schemas_by_topic)))
        row: dict[str, Any] = {
            "event_id": number,
            "topic": topic,
            "broker": draw(st.sampled_from(list(brokers))),
            "ts": draw(st.integers(-span, span)) * unit_us + draw(st.sampled_from([0, 0, -1, 1, unit_us // 2])),
        }
        for name in schemas_by_topic[topic]:
            row[name] = draw(st.none() | values(merged[name], tame=True) | values(merged[name]))
        rows.append(row)
    fields = [("event_id", pa.int64()), ("topic", pa.string()), ("broker", pa.string()), ("ts", Type.TIMESTAMP.arrow)]
    return pa.Table.from_pylist(rows, pa.schema(fields + [(name, kind.arrow) for name, kind in merged.items()]))
