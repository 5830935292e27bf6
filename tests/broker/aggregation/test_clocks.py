"""How far event time has come, on each side of a broker."""

from catchment.broker.aggregation.clocks import FOR_EVER, NEVER, Clock, last_end_us
from catchment.model.window import Window
from tests.broker.wire import read_back

SECOND_US = 1_000_000
NEIGHBOURS = ("left", "right")


def test_a_broker_promises_what_all_others_have_promised() -> None:
    clock = Clock(lateness_us=SECOND_US, idle_after_us=10 * SECOND_US)
    assert clock.watermark_us({"left", "right"}, NEIGHBOURS) == NEVER
    clock.heard.update(left=30 * SECOND_US, right=20 * SECOND_US)
    assert clock.watermark_us({"left", "right"}, NEIGHBOURS) == 20 * SECOND_US
    assert clock.watermark_us({"left", "right"}, NEIGHBOURS, "right") == 30 * SECOND_US
    assert clock.watermark_us({"right"}, NEIGHBOURS, "right") == FOR_EVER
    clock.accept(15 * SECOND_US, 0)
    assert clock.watermark_us({"left", "right", "client", "another"}, NEIGHBOURS) == 14 * SECOND_US
    assert clock.watermark_us({"client"}, NEIGHBOURS, latest_us=18 * SECOND_US) == 17 * SECOND_US
    assert clock.watermark_us(set(), NEIGHBOURS) == FOR_EVER


def test_silence_lets_time_go_on_to_what_is_wanted() -> None:
    clock = Clock(lateness_us=0, idle_after_us=10 * SECOND_US)
    clock.accept(5 * SECOND_US, 100 * SECOND_US)
    clock.want(12 * SECOND_US)
    assert clock.idle_at_us() == 110 * SECOND_US
    clock.want(40 * SECOND_US)
    assert clock.idle_at_us() == 135 * SECOND_US
    clock.advance_idle_clock()
    assert clock.own_us() == 40 * SECOND_US


def test_patience_ends_when_a_time_should_have_come_and_some_more() -> None:
    clock = Clock(lateness_us=0, idle_after_us=10 * SECOND_US)
    clock.see(11 * SECOND_US, 100 * SECOND_US)
    assert clock.patience_us(14 * SECOND_US, 100 * SECOND_US) == 113 * SECOND_US
    assert clock.patience_us(14 * SECOND_US, 112 * SECOND_US) == 113 * SECOND_US  # whenever that is asked
    assert clock.patience_us(14 * SECOND_US, 120 * SECOND_US) == 120 * SECOND_US


def test_a_clock_is_restored_as_it_was() -> None:
    clock, back = (Clock(lateness_us=5, idle_after_us=7) for _ in range(2))
    clock.accept(100, 3)
    clock.see(120, 4)
    clock.heard["left"] = 90
    clock.want(130)
    back.restore(read_back(clock.saved()))
    assert back.saved() == clock.saved()
    assert back.watermark_us({"left", "c"}, ["left"]) == clock.watermark_us({"left", "c"}, ["left"]) == 90


def test_the_last_end_of_any_window() -> None:
    windows = [Window(10, 5), Window(7, 7)]
    assert last_end_us(windows, 22) == 21
    assert last_end_us(windows, 20) == 20
    assert last_end_us([], 20) == NEVER
