"""Hostile values, times and names to draw tables from.

A *tame* pool holds odd values whose sums and squares stay within their types; the other pools go to the edges.
"""

from __future__ import annotations

import random
import struct
import sys
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Literal

import pyarrow as pa

__all__ = [
    "EPOCH",
    "KINDS",
    "NAMES",
    "TOPICS",
    "TWINS",
    "Family",
    "Kind",
    "array_of",
    "moment_us",
    "pool_of",
    "times_of",
]

Family = Literal["bool", "int", "float", "string", "time"]
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
DAY_US = 86_400_000_000
LARGEST = sys.float_info.max


@dataclass(frozen=True, slots=True)
class Kind:
    """A type of Spark, its Arrow type, and what Catchment takes its values for."""

    spark: str
    arrow: pa.DataType
    family: Family


KINDS = [
    Kind("boolean", pa.bool_(), "bool"),
    Kind("bigint", pa.int64(), "int"),
    Kind("int", pa.int32(), "int"),
    Kind("smallint", pa.int16(), "int"),
    Kind("tinyint", pa.int8(), "int"),
    Kind("double", pa.float64(), "float"),
    Kind("float", pa.float32(), "float"),
    Kind("decimal(12,3)", pa.decimal128(12, 3), "float"),
    Kind("decimal(18,0)", pa.decimal128(18, 0), "int"),
    Kind("string", pa.string(), "string"),
    Kind("timestamp", pa.timestamp("us", tz="UTC"), "time"),
    Kind("timestamp_ntz", pa.timestamp("us"), "time"),
    Kind("date", pa.date32(), "time"),
]

NAMES = [
    "speed", "n", "x1", "a.b", "a`b", "with space", "quo'te", 'double"quote', "back\\slash", "select", "group",
    "window", "table", "order", "from", "where", "having", "between", "null", "true", "_question", "_slice", "_window",
    "_events", "_state0_count", "_state0_value", "__reason", "__size", "_repeated", "_old", "_heartbeat", "value",
    "subscription", "kind", "question", "output", "exact", "name", "numbers", "ids", "batch", "worth", "slice", "états",
    "速度", "é", "e\u0301", "🚗", "1st", "a-b", "count", "sum(x)", "count(*)", "window_start", "publications",
    "revision", "start", "end", "interval", "timestamp", "current_date", "left", "state", "parts", "partial",
    "position", "a.b.c", "${spark.app.name}", "*", "DISTINCT n", "a\x1fb",
]  # fmt: skip
TWINS = [("speed", "Speed"), ("value", "VALUE"), ("ts", "TS"), ("broker", "Broker"), ("window", "Window"), ("É", "é")]
"""Names that differ in case alone: columns of their own where the session distinguishes case."""

TOPICS = ["traffic", "t", "select", "a b", "a.b", "T", "wetter-é", "it's", "tick`s", "window", "😀"]

MOMENTS = [
    "2026-03-08 07:00:00",  # New York springs forward
    "2026-11-01 06:00:00",  # and falls back
    "2011-12-30 10:00:00",  # Apia leaves out a day
    "1970-01-01 00:00:00",
    "1969-12-31 23:59:59",
    "1945-10-15 00:00:00",  # Kolkata's last change
    "1883-11-18 17:00:00",  # before standard time
    "1582-10-15 00:00:00",
    "0001-01-01 00:00:00",
    "9999-12-31 23:59:59.999999",
    "2014-08-11 07:30:00",
]

STRINGS = [
    "", " ", "a", "A", "ab", "a\0", "a%", "a_", "%", "_", "\\", "a\\b", "'", "''", '"', "it's", "line\nfeed", "tab\t",
    "\r\n", "é", "e\u0301", "🚗", "🚗🚗", "\ud7ff", "\ue000", "a\ud7ff", "a\ue000", "\uffff", "a\uffff", "\U0010ffff",
    "a\U0010ffff", "a\U0010ffffb", "ß", "SS", "İ", "null", "NULL", "true", "0", "-0.0", "1", "NaN", "2026-03-08",
    "2026-03-08 07:00:00", "b1", "50%_off\\", "aa", "aab", "\u200b", "\x7f", "ÿ", "Ā", "{}", "$x", "--", "/*", "a;b",
    "${spark.app.name}", "${", "catchment-tests",
]  # fmt: skip


def moment_us(text: str) -> int:
    return (datetime.fromisoformat(text).replace(tzinfo=UTC) - EPOCH) // timedelta(microseconds=1)


def times_of(draw: random.Random, count: int) -> list[int]:
    """Microseconds: mostly around one moment, at and beside the edges of windows, sometimes anywhere."""
    main = moment_us(draw.choice(MOMENTS))
    step = draw.choice([1, 250_000, 1_000_000, 10_000_000, 60_000_000, 3_600_000_000])
    found = []
    for _ in range(count):
        base = main if draw.random() < 0.9 else moment_us(draw.choice(MOMENTS))
        found.append(base + draw.randint(-20, 20) * step + draw.choice([0, 0, 0, 1, -1, 499_999]))
    return found


def pool_of(draw: random.Random, kind: Kind, *, tame: bool) -> list[Any]:
    """Values of a column, to be drawn from; times are microseconds, dates days since 1970."""
    size = draw.choice([1, 2, 4, 12, 60])
    return [_value(draw, kind, tame) for _ in range(size)]


def _value(draw: random.Random, kind: Kind, tame: bool) -> Any:
    if kind.family == "bool":
        return draw.random() < 0.5
    if kind.family == "int":
        # Integers of 60 bits have at most 18 digits.
        return _whole(draw, 60 if kind.spark.startswith("decimal") else kind.arrow.bit_width, tame)
    if kind.family == "string":
        return _text(draw)
    if kind.family == "time":
        time_us = times_of(draw, 1)[0]
        if kind.spark == "date":
            # Days of the years 1 to 9999; with a day beyond them, every event of the table would be refused.
            return min(max(time_us // DAY_US, moment_us("0001-01-01") // DAY_US), moment_us("9999-12-31") // DAY_US)
        return time_us
    if kind.spark.startswith("decimal"):
        return Decimal(draw.choice([0, 100, 1, -1, 125, 999_999_999_999, draw.randint(-5000, 5000)])).scaleb(-3)
    return _real(draw, kind.spark == "float", tame)


def _whole(draw: random.Random, bits: int, tame: bool) -> int:
    top = 2 ** (bits - 1)
    edges = [2**53 - 1, 2**53, 2**53 + 1, -(2**53) - 1, 2**31, -(2**31) - 1, 127, -128, 255, 32_768]
    if not tame:
        edges += [top - 1, top - 2, -top, -top + 1, 2**62, -(2**62), 2**62 + 1]
    small = [0, 1, -1, 2, 3, draw.randint(-60, 60), draw.randint(-60, 60)]
    chosen = draw.choice(small if draw.random() < (0.85 if tame else 0.4) else edges)
    return chosen if -top <= chosen < top else chosen % 100


def _real(draw: random.Random, narrow: bool, tame: bool) -> float:
    edges = [5e-324, -5e-324, 2.2250738585072014e-308, 2.0**53, 2.0**53 + 2, -(2.0**53), 1 / 3, 0.1, 0.3, 1e15, 1e-9]
    edges += [struct.unpack("f", struct.pack("f", 0.1))[0], 123456789.123456789, 1e22, -1e22]
    if not tame:
        edges += [1e300, 2.0**63, -(2.0**63), 2.0**63 + 2048]
        edges += [3.4028234663852886e38, 1e-45] if narrow else [LARGEST, -LARGEST, 1.7e308, -1.7e308, 9.3e18]
    small = [0.0, -0.0, 1.0, -1.0, 0.5, round(draw.uniform(-99, 99), 1), draw.uniform(-99, 99)]
    chosen = draw.choice(small if draw.random() < (0.85 if tame else 0.4) else edges)
    if narrow:
        return float(struct.unpack("f", struct.pack("f", max(-3.4e38, min(3.4e38, chosen))))[0])
    return chosen


def _text(draw: random.Random) -> str:
    chosen = draw.random()
    if chosen < 0.6:
        return draw.choice(STRINGS)
    if chosen < 0.9:
        return draw.choice(STRINGS) + draw.choice(STRINGS)
    if chosen < 0.91:
        return draw.choice(STRINGS) * draw.choice([1, 40]) + "x" * 100_000
    return f"k{draw.randint(0, 999)}"


def array_of(values: list[Any], kind: Kind) -> pa.Array:
    if kind.spark == "date":
        return pa.array(values, pa.int32()).cast(pa.date32())
    if kind.family == "time":
        return pa.array(values, pa.int64()).cast(kind.arrow)
    return pa.array(values, kind.arrow)
