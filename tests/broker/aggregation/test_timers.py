"""What is due by the clock, with revisions."""

from catchment.broker.aggregation.options import AggregationOptions
from catchment.broker.aggregation.timers import Timers, WaitingTimes
from tests.broker.wire import read_back


def test_timers_end_in_their_order_and_are_set_once() -> None:
    timers = Timers()
    assert timers.wake((1, 1), 30)
    assert not timers.wake((1, 1), 10)  # it has one
    assert timers.wake((2, 5), 20)
    assert not timers.wake((3, 7), 25)  # another is sooner
    assert timers.soonest_us() == 20
    assert timers.expired(25) == [(2, 5), (3, 7)]
    assert timers.expired(25) == []
    timers.drop([(1, 1)])
    assert timers.soonest_us() is None


def test_timers_are_restored_as_they_were() -> None:
    timers, back = Timers(), Timers()
    for item, at_us in (((1, 1), 30), ((1, 2), 10), ((2, 1), 10)):
        timers.wake(item, at_us)
    timers.forget(2)
    back.restore(read_back(timers.saved()))
    assert back.expired(99) == timers.expired(99) == [(1, 2), (1, 1)]


def test_publications_are_waited_for_as_long_as_they_took_of_late() -> None:
    times = WaitingTimes("b1", AggregationOptions(collection_us=7))
    assert times.for_publication_us(1, 100, 50) == 100
    times.observe(1, 0, 30)
    times.observe(1, 0, 20)
    assert times.for_publication_us(1, 100, 50) == 130
    times.observe(1, 1, 5)
    assert times.for_publication_us(1, 100, 50) == 130  # the last two shifts count
    times.observe(1, 2, 5)
    assert times.for_publication_us(1, 100, 50) == 105
    assert times.for_publication_us(1, 100, 500) == 500
    assert times.for_partial_us(100, 50) == 107
    back = WaitingTimes("b1", AggregationOptions(collection_us=7))
    back.restore(read_back(times.saved()))
    assert back.for_publication_us(1, 100, 50) == 105
    back.forget(1)
    assert back.for_publication_us(1, 100, 50) == 100
