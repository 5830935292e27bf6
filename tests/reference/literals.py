"""Draw literals in every way that Spark reads them, and conditions of them."""

from __future__ import annotations

import random
import struct
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

from tests.reference.conditions import NULL, And, Atom, Condition, Literal_, Not, Or
from tests.reference.values import DAY_US, EPOCH, Family, Kind, moment_us

__all__ = ["Subject", "drawn_condition", "quoted_text"]

COMPARISONS = ["=", "!=", "<", "<=", ">", ">=", "<>", "=="]


@dataclass(frozen=True, slots=True)
class Subject:
    """What a condition may be about, and values that it has."""

    text: str
    family: Family
    pool: Sequence[Any]
    column: str = ""
    kind: Kind | None = None


def drawn_condition(
    draw: random.Random, subjects: Sequence[Subject], *, depth: int = 2, having: bool = False
) -> Condition:
    """Nested at most so deep; HAVING knows no patterns here, as Python decides it."""
    if depth and draw.random() < 0.45:
        parts = tuple(
            drawn_condition(draw, subjects, depth=depth - 1, having=having) for _ in range(draw.choice([2, 2, 3]))
        )
        return draw.choice([And, Or])(parts)
    if depth and draw.random() < 0.15:
        return Not(drawn_condition(draw, subjects, depth=depth - 1, having=having))
    return _atom(draw, draw.choice(subjects), having)


def _atom(draw: random.Random, subject: Subject, having: bool) -> Atom:
    def made(operator: str, *literals: Literal_, mirrored: bool = False) -> Atom:
        return Atom(subject.text, subject.family, operator, literals, mirrored, subject.column)

    chosen = draw.random()
    if chosen < 0.08:
        return made(draw.choice(["IS NULL", "IS NOT NULL"]))
    if subject.family == "bool" and chosen < 0.5:
        return made(draw.choice(["bare", "IS TRUE", "IS FALSE", "IS NOT TRUE", "IS NOT FALSE"]))
    if chosen < 0.22:
        count = draw.choice([1, 2, 3, 8])
        if subject.family == "time":
            # A list is all text or all times: a mixture is refused.
            bare, values = draw.random() < 0.5, [one for one in subject.pool if one is not None] or [0]
            members = [_time(draw, draw.choice(values), subject, bare=bare) for _ in range(count)]
        else:
            members = [_literal(draw, subject) for _ in range(count)]
        return made(draw.choice(["IN", "NOT IN"]), *members)
    if subject.family == "string" and not having and chosen < 0.55:
        return made(draw.choice(["LIKE", "LIKE", "NOT LIKE"]), _pattern(draw, subject))
    if subject.family != "bool" and chosen < 0.36:
        ends = [_literal(draw, subject), _literal(draw, subject)]
        if None not in (ends[0].value, ends[1].value) and draw.random() < 0.8:
            ends.sort(key=lambda one: one.value)
        return made(draw.choice(["BETWEEN", "BETWEEN", "NOT BETWEEN"]), *ends)
    if chosen < 0.4:
        return made("<=>", _literal(draw, subject))
    return made(draw.choice(COMPARISONS), _literal(draw, subject), mirrored=draw.random() < 0.15)


def _literal(draw: random.Random, subject: Subject) -> Literal_:
    if draw.random() < 0.04:
        return NULL
    value = draw.choice(subject.pool)
    if value is None:
        return NULL
    return _WRITERS[subject.family](draw, value, subject)


def _bool(draw: random.Random, value: Any, subject: Subject) -> Literal_:
    return Literal_(draw.choice([str(value).upper(), str(value).lower()]), "bool", bool(value))


# -- numbers -----------------------------------------------------------------------------------------------------------


def _number(draw: random.Random, value: Any, subject: Subject) -> Literal_:
    if draw.random() < 0.15:
        value = draw.choice([0, 1, 2**53 + 1, -(2**53) - 1, 2**63 - 1, -(2**63) + 1, 2**63, 10**19, Fraction(1, 10)])
    exact = Fraction(value)
    if draw.random() < 0.25:
        exact += draw.choice([1, -1, Fraction(1, 2), Fraction(1, 10)])
    nearest = float(exact)
    whole = round(exact)
    forms: list[Callable[[], Literal_]] = [lambda: _double(draw, nearest)]
    if exact.denominator == 1 or abs(whole) < 10**9:
        forms += [lambda: _whole(draw, whole)] * 3
    if abs(exact) < 10**19:
        forms += [lambda: _decimal(draw, exact)] * 2
    if abs(nearest) < 3e38:
        forms.append(lambda: _narrow(nearest))
    return draw.choice(forms)()


def _whole(draw: random.Random, value: int) -> Literal_:
    suffixes = ["", "", "", "", "", "BD"] if draw.random() < 0.2 else [""]
    for suffix, bits in (("L", 64), ("S", 16), ("Y", 8)):
        if abs(value) < 2 ** (bits - 1):
            suffixes.append(suffix)
    suffix = draw.choice(suffixes) if len(str(abs(value))) < 38 else "D"
    if suffix == "D":
        return _double(draw, float(value))
    return Literal_(f"{value}{suffix}", "decimal" if suffix == "BD" else "int", value)


def _decimal(draw: random.Random, value: Fraction) -> Literal_:
    places = draw.choice([1, 1, 2, 6])
    text = f"{Decimal(value.numerator) / Decimal(value.denominator):.{places}f}"
    return Literal_(text + draw.choice([""] * 9 + ["BD"]), "decimal", Fraction(text))


def _double(draw: random.Random, value: float) -> Literal_:
    text = draw.choice([f"{value!r}D", f"{value:.17E}", f"{value:.17e}D"])
    if abs(Fraction(text.rstrip("D"))) > Fraction(sys.float_info.max):
        text = f"{value!r}D"  # Spark refuses what is beyond the largest double by a digit
    return Literal_(text, "double", Fraction(value))


def _narrow(value: float) -> Literal_:
    # Written as a double would be, read as the nearest float.
    return Literal_(f"{value!r}F", "float", Fraction(struct.unpack("f", struct.pack("f", value))[0]))


# -- text --------------------------------------------------------------------------------------------------------------


def quoted_text(draw: random.Random, text: str, *, pattern: bool = False) -> str:
    """A string literal, with quotes and backslashes escaped in one of the ways that Spark knows."""
    quote = draw.choice(["'", "'", "'", '"'])
    written = text.replace("\\", "\\\\")
    if pattern and draw.random() < 0.5:
        # Within a string literal Spark reads \% and \_ as they stand, for LIKE's sake.
        written = written.replace("\\\\%", "\\%").replace("\\\\_", "\\_")
    written = written.replace(quote, draw.choice(["\\" + quote, quote + quote]))
    if draw.random() < 0.3:
        written = written.replace("\n", "\\n").replace("\t", "\\t").replace("\r", "\\r")
    return quote + written + quote


def _text(draw: random.Random, value: str, subject: Subject) -> Literal_:
    if draw.random() < 0.2:
        value = draw.choice([value[:1], value + "a", value[:-1], value + "\0", value + "\U0010ffff", value.upper()])
    return Literal_(quoted_text(draw, value), "string", value)


def _pattern(draw: random.Random, subject: Subject) -> Literal_:
    value = draw.choice([one for one in subject.pool if one is not None] or [""])
    length = draw.choice([0, 1, 1, 2, 3, len(value)])
    part = value[:length] if draw.random() < 0.5 else value[len(value) - length :]
    escaped = part.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    shape = draw.choice(["{}%", "%{}", "%{}%", "{}", "{}%%"])
    return Literal_(quoted_text(draw, shape.format(escaped), pattern=True), "string", part)


# -- times -------------------------------------------------------------------------------------------------------------


def _time(draw: random.Random, value: int, subject: Subject, *, bare: bool | None = None) -> Literal_:
    """A time as bare text, or after a word that says so."""
    bare = draw.random() < 0.4 if bare is None else bare
    time_us = value * DAY_US if subject.kind is not None and subject.kind.spark == "date" else value
    # A zone moves the time that is written, which has to stay within the years 1 to 9999 too.
    low, high = moment_us("0001-01-02 00:00:00"), moment_us("9999-12-30 23:59:59.999999")
    time_us = max(low, min(high, time_us + draw.choice([0, 0, 0, 1, -1, 1_000_000])))
    column = subject.kind.spark if subject.kind is not None else ""
    # Beside a date, text with a time is refused; beside a local time, text with a zone.
    if draw.random() < (0.8 if bare and column == "date" else 0.1):
        time_us -= time_us % DAY_US
        moment = EPOCH + timedelta(microseconds=time_us)
        return Literal_(
            f"{'' if bare else draw.choice(['DATE ', 'date'])}'{moment.date().isoformat()}'", "time", time_us
        )
    zones = [("", 0), ("", 0), ("Z", 0), ("+00:00", 0), ("+05:30", 330), ("-04:00", -240)]
    is_local = bare and column == "timestamp_ntz" and draw.random() < 0.8
    zone, shift = draw.choice(zones[:4] if is_local else zones)
    moment = EPOCH + timedelta(microseconds=time_us + shift * 60_000_000)
    digits = "microseconds" if time_us % 1_000_000 else draw.choice(["seconds", "microseconds", "milliseconds"])
    text = moment.replace(tzinfo=None).isoformat(sep=draw.choice([" ", "T"]), timespec=digits) + zone
    prefix = "" if bare else draw.choice(["TIMESTAMP ", "TIMESTAMP ", "timestamp"])
    return Literal_(f"{prefix}'{text}'", "time", time_us)


_WRITERS: dict[Family, Callable[[random.Random, Any, Subject], Literal_]] = {
    "bool": _bool,
    "int": _number,
    "float": _number,
    "string": _text,
    "time": _time,
}
