"""Draw a case from a seed: a table of publications, the settings of a session, and many subscriptions."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tests.reference.conditions import Condition, quoted, sql
from tests.reference.literals import Subject, drawn_condition
from tests.reference.measures import OPERATORS, Measure
from tests.reference.values import KINDS, NAMES, TOPICS, TWINS, Family, Kind, array_of, pool_of, times_of

__all__ = ["Case", "Column", "Drawn", "Window", "drawn_case"]

STRING, TIME, LOCAL_TIME = (kind for kind in KINDS if kind.spark in ("string", "timestamp", "timestamp_ntz"))
PLAIN = ("count", "sum", "avg", "min", "max")
"""Operators that Catchment can leave to Spark's own functions."""

SECOND_US = 1_000_000
UNITS = {"microseconds": 1, "milliseconds": 1000, "seconds": SECOND_US, "minutes": 60 * SECOND_US}
UNITS |= {"hours": 3600 * SECOND_US, "days": 86_400 * SECOND_US}
ALIASES = ["o", "ö ", "value", "a'b", "a\\b", "x`y", "${spark.app.name}", "_window", "count(*)"]
ENDINGS = ["", "", "", "'", "\\", "é", "%", "${spark.app.name}"]
"""Of the names of subscriptions."""

HOUR_US = 3600 * SECOND_US
ODD_WINDOWS = [
    (HOUR_US * 3 // 2, HOUR_US // 2, "window(ts, '1 hour 30 minutes', '30 minutes')"),
    (2 * HOUR_US, 2 * HOUR_US, "window(ts, INTERVAL 2 HOURS)"),
    (7 * 24 * HOUR_US, 24 * HOUR_US, "window(`ts`, '1 week', '1 DAY')"),
    (SECOND_US + 1, SECOND_US + 1, "window(ts, 'interval 1 second 1 microsecond')"),
    (90 * SECOND_US, 40 * SECOND_US, "window(ts, INTERVAL '90' SECOND, '40 seconds')"),
]


def other_case(name: str) -> str:
    """With its ASCII letters in the other case; Java and Python disagree about some of the others."""
    return "".join(letter.swapcase() if letter.isascii() else letter for letter in name)


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the table, and its name in the reference."""

    name: str
    kind: Kind
    pool: tuple[Any, ...]
    tame: bool
    reference: str

    def subject(self, *, in_other_case: bool = False) -> Subject:
        name = other_case(self.name) if in_other_case else self.name
        # How Spark reads text beside a date or a local time depends on the column's own type.
        reference = f"own_{self.reference}" if self.kind.spark in ("date", "timestamp_ntz") else self.reference
        return Subject(quoted(name), self.kind.family, self.pool, reference, self.kind)


@dataclass(frozen=True, slots=True)
class Window:
    size_us: int
    shift_us: int
    text: str


@dataclass(frozen=True, slots=True)
class Drawn:
    """A subscription in its parts; without outputs it is a regular one, and without columns it wants all."""

    name: str
    topic: str
    where: Condition | None
    columns: tuple[Column, ...] = ()
    window: Window | None = None
    keys: tuple[Column, ...] = ()
    outputs: tuple[tuple[str, Measure], ...] = ()
    having: Condition | None = None
    having_measures: tuple[tuple[str, Measure], ...] = ()
    """By the text that HAVING uses."""
    in_other_case: bool = False
    """Whether WHERE and GROUP BY write names in another case than the table."""

    @property
    def sql(self) -> str:
        if self.window is None:
            selected = ", ".join(quoted(column.name) for column in self.columns) or "*"
        else:
            told = [measure.text + (f" AS {quoted(name)}" if name else "") for name, measure in self.outputs]
            selected = ", ".join(self._mixed([*(quoted(key.name) for key in self.keys), *told]))
        text = f"{self._word('SELECT')} {selected} {self._word('FROM')} {quoted(self.topic)}"
        if self.where is not None:
            text += f"\n {self._word('WHERE')} {sql(self.where)}"
        if self.window is not None:
            names = [other_case(key.name) if self.in_other_case else key.name for key in self.keys]
            groups = self._mixed([self.window.text, *map(quoted, names)])
            text += f" -- it's a comment\n {self._word('GROUP BY')} {', '.join(groups)}"
        return text if self.having is None else f"{text} {self._word('HAVING')} {sql(self.having)}"

    def _mixed(self, parts: list[str]) -> list[str]:
        """The parts in another order, for some names of subscriptions."""
        return parts if len(self.name) % 2 else parts[::-1]

    def _word(self, word: str) -> str:
        return word if len(self.name) % 2 else word.lower()

    @property
    def is_plain(self) -> bool:
        """Whether plain Spark SQL could answer it inside Catchment."""
        if self.window is None or self.window.shift_us > self.window.size_us:
            return False
        measures = [measure for _, measure in (*self.outputs, *self.having_measures)]
        return all(m.operator in PLAIN and (not m.name or m.family in ("int", "float")) for m in measures) and all(
            key.kind.family in ("string", "int", "bool") for key in self.keys
        )


@dataclass(frozen=True, slots=True)
class Case:
    seed: int
    columns: tuple[Column, ...]
    """The attributes; `broker` and `ts` are there too, as subscriptions may use them."""
    table: pa.Table
    settings: dict[str, str]
    partition_count: int
    batch_count: int
    """In how many files, each a micro-batch, a stream gets the table."""
    subscriptions: tuple[Drawn, ...]
    deduplicate: bool = False
    """Whether ids come again at the same broker, and the same event is to be counted once."""


def drawn_case(seed: int, *, overflows: bool, subscription_count: int = 24) -> Case:
    """The same case for the same seed; without `overflows` no result is beyond its type."""
    draw = random.Random(seed)
    settings = _settings(draw)
    count = draw.choice([0, 1, 7, 60, 60, 200, 200, 500])
    columns = _columns(draw, settings["spark.sql.caseSensitive"] == "true")
    topics = draw.sample(TOPICS, draw.choice([1, 2, 3]))
    deduplicate = draw.random() < 0.2
    table, usable = _table(draw, columns, topics, count, deduplicate)
    names = [f"s{at}{draw.choice(ENDINGS)}" for at in range(subscription_count)]
    may_differ = settings["spark.sql.caseSensitive"] == "false"
    asked = tuple(
        _subscription(draw, name, topics, usable, overflows, in_other_case=may_differ and at % 3 == 0)
        for at, name in enumerate(names)
    )
    # Which of two equal ids is the repeat depends on the order of arrival, so that they come in one batch.
    batch_count = 1 if deduplicate else draw.choice([1, 1, 2])
    partition_count = draw.choice([1, 2, 5])
    # Queries over few rows take most of their time in the compiler: one case in five has them compiled.
    if seed % 5:
        settings |= {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
    return Case(seed, tuple(columns), table, settings, partition_count, batch_count, asked, deduplicate)


def _settings(draw: random.Random) -> dict[str, str]:
    chosen = {
        "spark.sql.session.timeZone": ["UTC", "America/New_York", "Asia/Kolkata", "Pacific/Apia"],
        "spark.sql.ansi.enabled": ["true", "false"],
        "spark.sql.ansi.enforceReservedKeywords": ["false", "false", "true"],
        "spark.sql.execution.arrow.useLargeVarTypes": ["false", "false", "true"],
        "spark.sql.execution.arrow.maxRecordsPerBatch": ["1", "7", "10000", "10000"],
        "spark.sql.shuffle.partitions": ["1", "2", "5"],
        "spark.sql.adaptive.enabled": ["true", "false"],
        "spark.sql.caseSensitive": ["false", "false", "true"],
        "spark.sql.timestampType": ["TIMESTAMP_LTZ", "TIMESTAMP_LTZ", "TIMESTAMP_NTZ"],
        "spark.sql.parser.escapedStringLiterals": ["false", "false", "true"],
        "spark.sql.parser.quotedRegexColumnNames": ["false", "false", "true"],
        "spark.sql.ansi.doubleQuotedIdentifiers": ["false", "false", "true"],
    }
    return {name: draw.choice(values) for name, values in chosen.items()}


def _columns(draw: random.Random, case_sensitive: bool) -> list[Column]:
    names = draw.sample(NAMES, draw.choice([4, 8, 12, 14]))
    if case_sensitive:
        names += [name for name in draw.choice(TWINS) if name not in (*names, "ts", "broker")]
    else:
        seen: set[str] = set()
        names = [name for name in names if not (name.lower() in seen or seen.add(name.lower()))]  # type: ignore[func-returns-value]
    columns = []
    for at, name in enumerate(names):
        kind, tame = draw.choice(KINDS), draw.random() < 0.6
        columns.append(Column(name, kind, tuple(pool_of(draw, kind, tame=tame)), tame, f"c{at}"))
    return columns


def _table(
    draw: random.Random, columns: list[Column], topics: Sequence[str], count: int, repeats: bool
) -> tuple[pa.Table, list[Column]]:
    """The publications, and all columns that subscriptions may use."""
    brokers = draw.sample(["b1", "b2", "B1", "", "brök'er", "back\\slash"], draw.choice([1, 2, 3]))
    times = times_of(draw, count)
    id_type = draw.choice([pa.int64(), pa.int32(), pa.string()])
    rows = [(draw.choice(topics), draw.choice(brokers), time) for time in times]
    numbers = _numbers(draw, rows, repeats)
    ids = [f"é{number}'" if id_type == pa.string() else number for number in numbers]
    lost = 0.01 if draw.random() < 0.5 else 0.0

    def kept(values: list[Any]) -> list[Any]:
        return [None if draw.random() < lost else value for value in values]

    data = {
        "event_id": pa.array(kept(ids), id_type),
        "topic": pa.array(kept([row[0] for row in rows]), pa.string()),
        "broker": pa.array(kept([row[1] for row in rows]), pa.string()),
        "ts": array_of(kept([row[2] for row in rows]), draw.choice([TIME, TIME, LOCAL_TIME])),
    }
    for column in columns:
        missing, broken = draw.choice([0.0, 0.0, 0.1, 0.5, 1.0]), draw.random() < 0.1
        values = [None if draw.random() < missing else draw.choice(column.pool) for _ in range(count)]
        if broken and column.kind.spark in ("double", "float"):
            odd = [float("nan"), float("inf"), float("-inf")]
            values = [draw.choice(odd) if draw.random() < 0.03 else value for value in values]
        data[column.name] = array_of(values, column.kind)
    names = list(data)
    draw.shuffle(names)
    known = [
        Column("broker", STRING, tuple(brokers), True, "broker"),
        Column("ts", TIME, tuple(times) or (0,), True, "ts"),
    ]
    return pa.table({name: data[name] for name in names}), columns + known


def _numbers(draw: random.Random, rows: list[tuple[str, str, int]], repeats: bool) -> list[int]:
    """Ids that come again at other brokers and in other topics; with repeats also at the same, but at another time."""
    last: dict[tuple[str, str], int] = {}
    taken: set[tuple[str, str, int, int]] = set()
    found = []
    for topic, broker, time in rows:
        number = last[topic, broker] = last.get((topic, broker), 0) + 1
        again = draw.randint(1, number)
        if repeats and draw.random() < 0.4 and (topic, broker, time, again) not in taken:
            number = again
        taken.add((topic, broker, time, number))
        found.append(number)
    return found


def _window(draw: random.Random) -> Window:
    if draw.random() < 0.1:
        return Window(*draw.choice(ODD_WINDOWS))
    unit = draw.choice(list(UNITS))
    shift = draw.choice([1, 2, 3, 5, 7, 10, 30])
    size = draw.choice([shift, shift, shift * 2, shift * 3, shift + 1, shift * 4 + 1, max(shift // 2, 1)])
    size_text, shift_text = f"'{size} {unit}'", f"'{shift} {unit}'"
    if size == shift and draw.random() < 0.7:
        text = f"window(ts, {size_text})"
    else:
        text = f"{draw.choice(['window', 'WINDOW'])}(ts, {size_text}, {shift_text})"
    return Window(size * UNITS[unit], shift * UNITS[unit], text)


def _subscription(
    draw: random.Random,
    name: str,
    topics: Sequence[str],
    columns: Sequence[Column],
    overflows: bool,
    *,
    in_other_case: bool,
) -> Drawn:
    topic = draw.choice(topics) if draw.random() < 0.97 else "nobody"
    subjects = [column.subject(in_other_case=in_other_case) for column in columns]
    where = drawn_condition(draw, subjects) if draw.random() < 0.75 else None
    if draw.random() < 0.25:
        wanted = draw.sample(columns, draw.choice([0, 0, 1, min(4, len(columns))]))
        return Drawn(name, topic, where, columns=tuple(wanted))
    keys = draw.sample(columns, min(len(columns), draw.choice([0, 0, 1, 1, 2, 3, 5, 10])))
    plain = draw.random() < 0.5
    if plain:
        keys = [key for key in keys if key.kind.family in ("string", "int", "bool")]
    operators = PLAIN if plain else tuple(OPERATORS)
    measures = [_measure(draw, columns, operators, overflows, plain) for _ in range(draw.choice([1, 1, 2, 3, 5]))]
    outputs = tuple((_alias(draw, at, measure), measure) for at, measure in enumerate(dict.fromkeys(measures)))
    named = {key.name.lower() for key in keys}
    others = {name or measure.plain_text for name, measure in outputs[1:]}
    if keys and keys[0].name not in others and draw.random() < 0.1:
        outputs = ((keys[0].name, outputs[0][1]), *outputs[1:])
    having, used = None, {}
    if draw.random() < 0.3:
        more = _measure(draw, columns, operators, overflows, plain)
        used = {
            measure.text: measure for measure in (more, *(m for _, m in outputs)) if "top_k" not in measure.operator
        }
        used |= {
            quoted(alias): used[m.text] for alias, m in outputs if alias.lower() not in ("", *named) and m.text in used
        }
        having = _having(draw, used, keys)
    window = _window(draw)
    return Drawn(name, topic, where, (), window, tuple(keys), outputs, having, tuple(used.items()), in_other_case)


def _alias(draw: random.Random, at: int, measure: Measure) -> str:
    """Names an output; only a measure of a plain name may go without, as its own text is then its name."""
    plain = measure.name.strip("`").isidentifier() and measure.name.isascii()
    if (plain or not measure.name) and draw.random() < 0.3:
        return ""
    return f"{draw.choice(ALIASES)}{at}"


def _measure(
    draw: random.Random, columns: Sequence[Column], operators: Sequence[str], overflows: bool, plain: bool
) -> Measure:
    for _ in range(20):
        operator, column = draw.choice(operators), draw.choice(columns)
        if operator == "count" and draw.random() < 0.5:
            return Measure("count")
        family: Family = column.kind.family
        may_overflow = not column.tame and operator in ("sum", "avg", "var_samp", "stddev_samp")
        accepted = ("int", "float") if plain else OPERATORS[operator][0]
        is_refused = operator in ("sum", "avg") and column.kind.spark == "decimal(12,3)"
        if family in accepted and (overflows or not may_overflow) and not is_refused:
            parameter = ""
            if operator.endswith("percentile"):
                parameter = draw.choice(["0.5", "0", "1", "0.25", "0.9", "0.333"])
            if operator == "approx_top_k":
                parameter = draw.choice(["1", "3", "1000"])
            return Measure(operator, quoted(column.name), column.reference, family, parameter)
    return Measure("count")


def _having(draw: random.Random, measures: dict[str, Measure], keys: Sequence[Column]) -> Condition | None:
    subjects = [key.subject() for key in keys]
    for text, measure in measures.items():
        pool: dict[Family, list[Any]] = {
            "bool": [True, False],
            "int": [0, 1, 2, 3, 5, 40],
            "float": [0, 1, 0.5, 2.5, -3, 30, 1e6, 0.1, 0.125, -0.001],
            "string": ["", "a", "b", "é"],
            "time": [0, 1_772_953_200_000_000],
        }
        subjects.append(Subject(text, measure.result, pool[measure.result]))
    return drawn_condition(draw, subjects, depth=1, having=True) if subjects else None
