"""Literals of conditions, as sqlglot parses them: the values that Spark gives them, or an error."""

from __future__ import annotations

import math
import re
from decimal import Decimal, InvalidOperation
from fractions import Fraction

import numpy as np
from sqlglot import exp

from catchment.model.constraint import Family, Scalar
from catchment.model.dialect import sql_text
from catchment.model.errors import EventError, FilterError
from catchment.model.times import date_us, microseconds

__all__ = ["literal_of"]


def literal_of(node: exp.Expr, attribute: str) -> tuple[Scalar, Family] | None:
    """The value of a literal that an attribute is compared with, and its family; None is SQL's NULL."""
    try:
        return _read_literal(node)
    except OverflowError as error:
        raise FilterError(f"cannot use {sql_text(node)!r} as a value: {error}") from None
    except EventError:
        text = next(literal.this for literal in node.find_all(exp.Literal))
        raise FilterError(
            f"attribute {attribute!r} is compared with the time {text!r}; "
            "accepted are times like '2014-08-11 07:30:00', of the years 1 to 9999"
        ) from None
    except FilterError:
        raise
    except ValueError:
        raise FilterError(
            f"cannot use {sql_text(node)!r} as a value; accepted are numbers like 15, 1.5, 1.5e3"
        ) from None


def _read_literal(node: exp.Expr, sign: int = 1) -> tuple[Scalar, Family] | None:
    if isinstance(node, exp.Paren):
        return _read_literal(node.this, sign)
    if isinstance(node, exp.Neg):
        return _read_literal(node.this, -sign)
    if isinstance(node, exp.Literal) and not node.is_string:
        return sign * _number(str(node.this)), "number"
    if isinstance(node, exp.Cast):
        number = _cast_number(node, sign)
        if number is not None:
            return number, "number"
    if sign == 1:
        if isinstance(node, exp.Null):
            return None
        if isinstance(node, exp.Boolean):
            return bool(node.this), "bool"
        if isinstance(node, exp.Literal):
            return str(node.this), "string"
        if isinstance(node, (exp.Cast, exp.TsOrDsToTimestamp, exp.TsOrDsToDate)) and _is_text(node.this):
            if isinstance(node, exp.TsOrDsToDate) or (isinstance(node, exp.Cast) and node.to.this is _DATE):
                return date_us(str(node.this.this)), "timestamp"
            if not isinstance(node, exp.Cast) or node.to.this in _TIME:
                return microseconds(str(node.this.this)), "timestamp"
    raise FilterError(
        f"{sql_text(node)!r} is no literal; accepted are numbers, strings, TRUE, FALSE, NULL, TIMESTAMP '…', DATE '…'"
    )


_DATE = exp.DataType.Type.DATE
_TIME = {
    exp.DataType.Type.TIMESTAMP,
    exp.DataType.Type.TIMESTAMPTZ,
    exp.DataType.Type.TIMESTAMPLTZ,
    exp.DataType.Type.TIMESTAMPNTZ,
}
_WHOLE_BITS = {
    exp.DataType.Type.BIGINT: 64,
    exp.DataType.Type.INT: 32,
    exp.DataType.Type.SMALLINT: 16,
    exp.DataType.Type.TINYINT: 8,
}


def _is_text(node: exp.Expr) -> bool:
    return isinstance(node, exp.Literal) and bool(node.is_string)


def _cast_number(node: exp.Cast, sign: int) -> int | float | None:
    """The value of a number with a suffix, which is parsed as a cast (1L, 0.1F, 2.5BD); None for other casts."""
    inner, kind = node.this, node.to.this
    while isinstance(inner, (exp.Paren, exp.Neg)):
        sign = -sign if isinstance(inner, exp.Neg) else sign
        inner = inner.this
    if not isinstance(inner, exp.Literal):
        return None
    text = str(inner.this)
    if kind is exp.DataType.Type.DECIMAL:
        return sign * _decimal(text) if _fits(text, node.to) else None
    if inner.is_string:
        return None
    if kind is exp.DataType.Type.DOUBLE:
        return sign * _finite(float(text))
    if kind is exp.DataType.Type.FLOAT:
        return sign * _float32(text)
    if kind in _WHOLE_BITS and text.isdecimal():
        # A fraction cast to a whole number is arithmetic, which no filter does.
        value, bits = sign * int(text), _WHOLE_BITS[kind]
        if not -(2 ** (bits - 1)) <= value < 2 ** (bits - 1):
            raise OverflowError(f"it is beyond {bits} bits")
        return value
    return None


def _fits(text: str, decimal: exp.DataType) -> bool:
    """Whether a decimal type has room for a number as it is; else a cast would round it."""
    digits = re.fullmatch(r"(\d*)\.?(\d*)", text)
    given = [int(one.name) for one in decimal.expressions if one.name.isdecimal()]
    precision, scale = (*given, 10, 0)[:2] if len(given) != 1 else (given[0], 0)
    return digits is not None and len(digits[2]) <= scale and len(digits[1].lstrip("0")) <= precision - scale


def _number(text: str) -> int | float:
    """A number as Spark reads it: whole, with an exponent a double, else a decimal."""
    if text.isdecimal():
        return int(text)
    return _finite(float(text)) if "e" in text.lower() else _decimal(text)


def _decimal(text: str) -> int | float:
    """The value of a decimal, exactly; one that is no whole number must be what a double shows."""
    try:
        exact = Decimal(text)
    except InvalidOperation:
        raise OverflowError("it is no decimal number") from None
    if exact == exact.to_integral_value():
        return int(exact)
    nearest = _finite(float(text))
    if Decimal(repr(nearest)) != exact:
        raise OverflowError(f"it has more digits than a double, which would make it {nearest!r}")
    return nearest


def _finite(value: float) -> float:
    if not math.isfinite(value):
        raise OverflowError("it is beyond the range of a double; accepted are finite numbers")
    return value


def _float32(text: str) -> float:
    """The number of 32 bits that is nearest to a decimal number; of two, the even one."""
    exact = Fraction(text)
    if abs(exact) > Fraction(float(np.finfo(np.float32).max)):
        raise OverflowError("it is beyond the range of a float of 32 bits")
    about = np.float32(float(text))
    around = [about, np.nextafter(about, np.float32(np.inf)), np.nextafter(about, np.float32(-np.inf))]
    finite = [one for one in around if np.isfinite(one)]
    return float(min(finite, key=lambda one: (abs(Fraction(float(one)) - exact), int(one.view(np.int32)) & 1)))
