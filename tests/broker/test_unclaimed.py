"""Messages of advice that is not attached wait for it: for a limited time, within some bytes, over a restart."""

from typing import Any

import msgspec

from catchment.broker import messages as m
from catchment.broker.advice import Advice, At
from catchment.broker.broker import Broker, Settings
from catchment.broker.inputs import AdviceAttached, AdviceRemoved, Woken
from catchment.broker.memory import freeze, restored
from catchment.broker.unclaimed import OVERHEAD_BYTES, UNCLAIMED_BYTES_MAX, UNCLAIMED_US
from tests.broker.wire import SCHEMAS, Desk, Voice

SETTINGS = Settings(schemas=SCHEMAS)


class Noting(Advice):
    name = "noting"

    def on_begin(self, at: At) -> None:
        at.state["heard"] = ["begin"]

    def on_message(self, at: At, sender: str, value: Any) -> None:
        at.state["heard"].append([sender, value])


def told(value: Any, change: int = 0, advice: str = "noting") -> m.AdviceMessage:
    return m.AdviceMessage(advice, msgspec.msgpack.encode(value), change)


def new_desk() -> tuple[Desk, Voice]:
    return Desk(Broker("b1", ["b2"], SETTINGS, catalogue={"noting": Noting})), Voice("b2")


def test_they_are_given_to_an_advice_that_is_attached_in_time_and_confirmed_then() -> None:
    desk, neighbour = new_desk()
    step = desk.hand(neighbour.says(told("one", 1), told("two"), told("never", 2, "other")), at_us=5)
    assert not step.sends
    assert step.timer_us == 5 + UNCLAIMED_US
    desk.broker = restored(freeze(desk.broker).pieces(), SETTINGS, catalogue={"noting": Noting})
    step = desk.hand(AdviceAttached("noting"), at_us=UNCLAIMED_US)
    assert desk.broker.weaver.states["noting"] == {"heard": ["begin", ["b2", "one"], ["b2", "two"]]}
    assert neighbour.hears(step) == [m.Confirmed(1)]
    step = desk.hand(Woken(), at_us=5 + UNCLAIMED_US)
    assert neighbour.hears(step) == [m.Confirmed(2)]
    assert step.timer_us is None
    assert desk.broker.counters == {"messages of unknown advice": 1}


def test_they_are_dropped_and_counted_when_nobody_comes() -> None:
    desk, neighbour = new_desk()
    desk.hand(neighbour.says(told("one", 1)), at_us=5)
    assert not desk.hand(Woken(), at_us=4 + UNCLAIMED_US).sends
    assert neighbour.hears(desk.hand(Woken(), at_us=5 + UNCLAIMED_US)) == [m.Confirmed(1)]
    desk.hand(AdviceAttached("noting"), at_us=6 + UNCLAIMED_US)
    assert desk.broker.weaver.states["noting"] == {"heard": ["begin"]}
    assert desk.broker.counters == {"messages of unknown advice": 1}


def test_they_take_only_so_many_bytes() -> None:
    desk, neighbour = new_desk()
    half = "x" * (UNCLAIMED_BYTES_MAX // 2)
    desk.hand(neighbour.says(told(half, 1)))
    step = desk.hand(neighbour.says(told(half, 2), told("small", 3)))
    assert neighbour.hears(step) == [m.Confirmed(2)]
    assert desk.broker.counters == {"messages of unknown advice": 1}
    assert neighbour.hears(desk.hand(AdviceAttached("noting"))) == [m.Confirmed(1), m.Confirmed(3)]
    assert desk.broker.weaver.unclaimed.size_bytes == 0


def test_they_are_forgotten_with_the_life_of_their_sender() -> None:
    desk, neighbour = new_desk()
    desk.hand(neighbour.says(told("one", 1)))
    desk.hand(Voice("b2", incarnation=2).says(told("anew", 1)))
    assert desk.hand(AdviceAttached("noting")).sends[0].to == "b2"
    assert desk.broker.weaver.states["noting"] == {"heard": ["begin", ["b2", "anew"]]}


def test_those_of_an_advice_that_was_removed_wait_too() -> None:
    desk, neighbour = new_desk()
    desk.hand(AdviceAttached("noting"), AdviceRemoved("noting"), neighbour.says(told("one")))
    assert desk.broker.weaver.unclaimed.size_bytes == 4 + len("noting") + OVERHEAD_BYTES
