"""Time as integer microseconds since the Unix epoch, UTC."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta

from catchment.model.errors import ConfigurationError, EventError, SubscriptionError

__all__ = [
    "TIME_MAX_US",
    "TIME_MIN_US",
    "date_us",
    "duration_us",
    "has_offset",
    "is_plain_date",
    "microseconds",
    "since_us",
    "timestamp_text",
]

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
TIME_MIN_US = (datetime(1, 1, 1, tzinfo=UTC) - EPOCH) // _MICROSECOND
TIME_MAX_US = (datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC) - EPOCH) // _MICROSECOND
"""Time stamps outside of these years are refused: no reader of the results could show them."""

_UNITS_US = {
    "microsecond": 1,
    "millisecond": 1_000,
    "second": 1_000_000,
    "minute": 60_000_000,
    "hour": 3_600_000_000,
    "day": 86_400_000_000,
    "week": 604_800_000_000,
}
_DURATION_PART = re.compile(r"\s*([+-]?\d+)\s+([a-z]+?)s?\b\s*", re.IGNORECASE)


_TIME = re.compile(
    r"\s*(\d{4})-(\d{1,2})-(\d{1,2})"
    r"(?:[T ](\d{1,2}):(\d{1,2})(?::(\d{1,2})(?:\.(\d{1,9}))?)?\s*(Z|UTC|GMT|[+-]\d{1,2}(?::?\d{2})?)?)?\s*",
    re.IGNORECASE,
)
_DATE = re.compile(r"\s*(\d{4})(?:-(\d{1,2})(?:-(\d{1,2})(?:[ T].*)?)?)?\s*")


_PLAIN_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")


def microseconds(given: datetime | date | str, *, attribute: str = "ts") -> int:
    """The moment that a datetime, date or text means; without a zone it is UTC."""
    if isinstance(given, str):
        try:
            return _read_us(given)
        except (ValueError, OverflowError):
            raise EventError(
                f"attribute {attribute!r} is {given!r}; accepted are times like '2014-08-11 07:30:00', "
                "of the years 1 to 9999, UTC"
            ) from None
    elif not isinstance(given, datetime):
        given = datetime(given.year, given.month, given.day, tzinfo=UTC)
    if given.tzinfo is None:
        given = given.replace(tzinfo=UTC)
    moment_us = (given - EPOCH) // _MICROSECOND
    if not TIME_MIN_US <= moment_us <= TIME_MAX_US:
        raise EventError(f"attribute {attribute!r} is {given}; accepted are the years 1 to 9999, UTC")
    return moment_us


def _read_us(text: str) -> int:
    """A time as Spark reads it, as far as its text says which day it is."""
    found = _TIME.fullmatch(text)
    if found is None:
        raise ValueError(text)
    *numbers, fraction, zone = found.groups()
    year, month, day, hour, minute, second = (int(number or 0) for number in numbers)
    moment = datetime(year, month, day, hour, minute, second, int((fraction or "").ljust(6, "0")[:6]), UTC)
    return (moment - _zone_offset(zone or "Z") - EPOCH) // _MICROSECOND


def _zone_offset(zone: str) -> timedelta:
    if zone[0] not in "+-":
        return timedelta()
    hours, minutes = zone[1:].split(":") if ":" in zone else (zone[1:-2], zone[-2:]) if len(zone) > 3 else (zone[1:], 0)
    if int(hours) > 18 or int(minutes) > 59:
        raise ValueError(zone)
    offset = timedelta(hours=int(hours), minutes=int(minutes))
    return -offset if zone[0] == "-" else offset


def is_plain_date(text: str) -> bool:
    """Tell whether a text is a date in the one spelling that Spark reads alike everywhere."""
    return _PLAIN_DATE.fullmatch(text) is not None


def has_offset(text: str) -> bool:
    """Tell whether the text of a time names a zone other than UTC."""
    found = _TIME.fullmatch(text)
    return found is not None and found[8] is not None and any(digit in "123456789" for digit in found[8])


def date_us(text: str) -> int:
    """The beginning, in UTC, of the day that the text of a date means; like Spark, without what follows the day."""
    found = _DATE.fullmatch(text)
    try:
        year, month, day = (int(number or 1) for number in found.groups()) if found is not None else (0, 0, 0)
        return microseconds(date(year, month, day))
    except ValueError:
        raise EventError(f"{text!r} is no date; accepted are dates like '2014-08-11'") from None


def since_us(given: object, now_us: int) -> int:
    """The moment that a time means, or a duration before now: `2014-08-11 07:30:00`, `2 hours`."""
    if isinstance(given, int) and not isinstance(given, bool):
        return given
    if isinstance(given, (date, datetime)):
        return microseconds(given)
    if isinstance(given, str):
        try:
            return microseconds(given)
        except EventError:
            pass
        try:
            return now_us - duration_us(given)
        except SubscriptionError:
            pass
    raise ConfigurationError(
        f"since is {given!r}; accepted are a time as '2014-08-11 07:30:00' or a datetime, microseconds, "
        "or a duration before now as '2 hours'"
    )


def timestamp_text(moment_us: int) -> str:
    """The moment as ISO text without its zone, which is UTC."""
    moment = (EPOCH + timedelta(microseconds=moment_us)).replace(tzinfo=None)
    return moment.isoformat(sep=" ", timespec="microseconds")


def duration_us(text: str) -> int:
    """Read a duration as Spark writes it: `20 seconds`, `1 hour 30 minutes`, `INTERVAL 2 DAYS`."""
    rest = re.sub(r"^\s*interval\b", "", text, flags=re.IGNORECASE) if isinstance(text, str) else ""
    total, position = 0, 0
    while position < len(rest):
        part = _DURATION_PART.match(rest, position)
        unit = part and _UNITS_US.get(part.group(2).lower())
        if part is None or unit is None:
            break
        total += int(part.group(1)) * unit
        position = part.end()
    if position == 0 or position < len(rest):
        raise SubscriptionError(
            f"{text!r} is no duration; accepted are whole numbers of "
            f"{', '.join(unit + 's' for unit in _UNITS_US)}, as in '1 hour 30 minutes'"
        )
    return total
