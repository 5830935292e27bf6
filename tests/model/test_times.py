"""Times as integer microseconds, and durations as Spark writes them."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catchment.model.errors import EventError, SubscriptionError
from catchment.model.times import TIME_MAX_US, TIME_MIN_US, duration_us, microseconds, timestamp_text


@given(st.integers(TIME_MIN_US, TIME_MAX_US))
def test_a_moment_written_and_read_is_the_same(moment_us: int) -> None:
    assert microseconds(timestamp_text(moment_us)) == moment_us
    assert len(timestamp_text(moment_us)) == len("2014-08-11 07:30:00.000000")


def test_the_same_moment_in_many_forms() -> None:
    moment_us = 1_407_742_200_000_000
    for given_form in [
        "2014-08-11 07:30:00",
        "2014-08-11T07:30:00Z",
        "2014-08-11T09:30:00+02:00",
        datetime(2014, 8, 11, 7, 30, tzinfo=UTC),
        datetime(2014, 8, 11, 9, 30, tzinfo=timezone(timedelta(hours=2))),
        datetime(2014, 8, 11, 7, 30),  # noqa: DTZ001 (without a zone it is UTC)
    ]:
        assert microseconds(given_form) == moment_us
    assert microseconds(date(1970, 1, 2)) == 86_400_000_000
    assert microseconds("1969-12-31 23:59:59.999999") == -1


def test_what_is_no_time_is_an_error_that_names_the_attribute() -> None:
    with pytest.raises(EventError, match="'due' is 'soon'; accepted are times like"):
        microseconds("soon", attribute="due")
    with pytest.raises(EventError, match=r"'due'.*of the years 1 to 9999"):
        microseconds("0001-01-01T00:00:00+14:00", attribute="due")


@pytest.mark.parametrize(
    ("text", "expected_us"),
    [
        ("20 seconds", 20_000_000),
        ("1 second", 1_000_000),
        ("1 HOUR 30 minutes", 5_400_000_000),
        ("interval 2 days", 172_800_000_000),
        ("INTERVAL 1 week", 604_800_000_000),
        ("3 milliseconds 4 microseconds", 3_004),
        ("  5   minutes ", 300_000_000),
        ("-1 minute", -60_000_000),
    ],
)
def test_durations(text: str, expected_us: int) -> None:
    assert duration_us(text) == expected_us


@pytest.mark.parametrize(
    "text", ["", "interval", "5", "seconds", "5 parsecs", "1.5 hours", "1 month", "5 s", "1 hour and"]
)
def test_what_is_no_duration_says_what_is(text: str) -> None:
    with pytest.raises(SubscriptionError, match="is no duration; accepted are whole numbers of microseconds"):
        duration_us(text)
