"""How a streaming job moves from batch to batch, without Spark."""

import pytest

from catchment.model.window import Window
from catchment.pipeline.ledger import Clock, Ledger, Moved, Pin, Step, closes_any, moved_on

SECOND_US = 1_000_000


def pin(began_s: int, resumed_s: int = 0) -> Pin:
    return Pin(version=1, began_us=began_s * SECOND_US, resumed_us=resumed_s * SECOND_US)


def ledger(watermark_us: int | None = None, **clocks: tuple[int, int]) -> Ledger:
    known = {name: Clock(latest * SECOND_US, heard * SECOND_US) for name, (latest, heard) in clocks.items()}
    return Ledger(batch=3, clocks=known, watermark_us=watermark_us)


def test_the_watermark_is_the_least_of_the_brokers_latest_times_less_the_lateness() -> None:
    heard = {"b1": (50 * SECOND_US, 10), "b2": (30 * SECOND_US, 1)}
    moved = moved_on(Ledger(), pin(100), heard, lateness_us=5 * SECOND_US, idle_after_us=None)
    assert (moved.watermark_us, moved.latest_us) == (25 * SECOND_US, 50 * SECOND_US)
    assert moved.clocks["b2"] == Clock(30 * SECOND_US, 100 * SECOND_US)


def test_an_older_event_turns_no_clock_back() -> None:
    before = ledger(40 * SECOND_US, b1=(40, 90))
    moved = moved_on(before, pin(100), {"b1": (20 * SECOND_US, 1)}, lateness_us=0, idle_after_us=None)
    assert (moved.clocks["b1"].latest_us, moved.watermark_us) == (40 * SECOND_US, 40 * SECOND_US)


def test_a_broker_that_appears_late_does_not_pull_the_watermark_back() -> None:
    before = ledger(40 * SECOND_US, b1=(40, 90))
    moved = moved_on(before, pin(100), {"b2": (7 * SECOND_US, 1)}, lateness_us=0, idle_after_us=None)
    assert moved.watermark_us == 40 * SECOND_US


@pytest.mark.parametrize(
    ("now_s", "expected_s"),
    [
        (99, 30),  # silent for 9 s: it may still speak
        (100, 40),  # silent for 10 s: idle, and its time is 30 s + 10 s
        (105, 45),
        (500, 50),  # never beyond the others
    ],
)
def test_a_silent_broker_advances_with_the_drivers_clock(now_s: int, expected_s: int) -> None:
    before = ledger(-99, b1=(50, 90), b2=(30, 90))
    heard = {"b1": (50 * SECOND_US, 1)}
    moved = moved_on(before, pin(now_s), heard, lateness_us=0, idle_after_us=10 * SECOND_US)
    assert moved.watermark_us == expected_s * SECOND_US


def test_silence_while_the_job_was_down_does_not_count() -> None:
    before = ledger(-99, b1=(50, 90), b2=(30, 90))
    pinned = pin(5_000, resumed_s=4_995)
    moved = moved_on(before, pinned, {"b1": (60 * SECOND_US, 1)}, lateness_us=0, idle_after_us=10 * SECOND_US)
    assert moved.watermark_us == 30 * SECOND_US


def test_nobody_heard_of_means_no_watermark() -> None:
    assert moved_on(Ledger(), pin(1), {}, lateness_us=0, idle_after_us=1) == Moved({}, None, None, None)


@pytest.mark.parametrize("window", [Window(10, 10), Window(10, 3), Window(3, 10), Window(7, 2)])
def test_closes_any_agrees_with_looking_at_every_window(window: Window) -> None:
    ends = [number * window.shift_us + window.size_us for number in range(-50, 50)]
    for after in range(-30, 30):
        for until in range(after, 30):
            assert closes_any(window, after, until) == any(after < end <= until for end in ends), (after, until)


def test_a_subscription_counts_from_the_first_batch_that_held_it() -> None:
    known = Ledger(steps=(Step(1, 0, None), Step(4, 7, 1_000), Step(5, 9, 2_000)))
    assert [known.since_us(incarnation) for incarnation in (1, 2, 4, 5)] == [None, 1_000, 1_000, 2_000]
    assert known.version == 5
