"""Joinpoints and advice: what an advice may do, and what the broker does without or in spite of it."""

from typing import Any

import pytest

from catchment import Filter, Overlay
from catchment.broker import messages as m
from catchment.broker.advice import JOINPOINTS, Advice
from catchment.broker.broker import Broker, Settings
from catchment.broker.inputs import Attached, Received, Woken
from catchment.model.errors import ConfigurationError
from tests.broker.wire import SCHEMAS, Desk, Voice, Wire

LINE = Overlay.from_links([("b1", "b2"), ("b2", "b3")])


class Watching(Advice):
    """Proceeds everywhere, and notes what it saw."""

    name = "watching"

    def _noted(self, at: Any, joinpoint: str, *seen: Any) -> None:
        at.state.setdefault("seen", []).append((joinpoint, *map(str, seen)))


def _watch(joinpoint: str) -> Any:
    def method(self: Watching, at: Any, proceed: Any, *arguments: Any) -> Any:
        self._noted(at, joinpoint, *arguments[:2])
        return proceed()

    return method


for _joinpoint in JOINPOINTS:
    setattr(Watching, _joinpoint, _watch(_joinpoint))


def played(wire: Wire) -> Wire:
    """Something of everything."""
    wire.subscribe("b3/s", "slow", "speed < 50")
    wire.advertise("b1/p")
    wire.run()
    wire.subscribe("b3/s", "wide", "speed < 90")
    wire.run()
    wire.publish("b1/p", 10, 60, 95)
    wire.run()
    wire.unsubscribe("b3/s", "wide")
    wire.run()
    wire.unadvertise("b1/p")
    wire.run()
    return wire


def test_an_advice_that_proceeds_changes_no_frame() -> None:
    plain, watched = played(Wire(LINE)), played(Wire(LINE, [Watching]))
    assert watched.trace == plain.trace
    seen = {joinpoint for broker in watched.brokers.values() for joinpoint, *_ in _state(broker)["seen"]}
    assert seen == set(JOINPOINTS)


def _state(broker: Broker, name: str = "watching") -> dict[str, Any]:
    return broker.weaver.states[name]


class Failing(Advice):
    """Raises at every joinpoint, half of the time after it has proceeded."""

    name = "failing"


def _fail(joinpoint: str) -> Any:
    def method(self: Failing, at: Any, proceed: Any, *arguments: Any) -> Any:
        at.attach("never")
        at.tell(at.neighbours[0], "never")
        if joinpoint < "pub":
            proceed()
        raise RuntimeError(f"no {joinpoint} today")

    return method


for _joinpoint in JOINPOINTS:
    setattr(Failing, _joinpoint, _fail(_joinpoint))


def test_an_advice_that_raises_is_reported_and_changes_no_frame() -> None:
    plain, failing = played(Wire(LINE)), played(Wire(LINE, [Failing]))
    assert failing.trace == plain.trace
    for broker in failing.brokers.values():
        assert broker.counters["failures of advice"] == len(broker.failures) > 0
        assert {one.error for one in broker.failures} <= {f"RuntimeError: no {name} today" for name in JOINPOINTS}


class Outer(Advice):
    name = "outer"

    def sub_add(self, at: Any, proceed: Any, topic: str, condition: Filter, peer: str) -> Any:
        at.state["order"] = [*at.state.get("order", []), "outer in"]
        before = proceed(topic, Filter.parse("speed < 20").within(SCHEMAS["traffic"]), peer)
        at.state["order"].append("outer out")
        return before


class Inner(Advice):
    name = "inner"

    def sub_add(self, at: Any, proceed: Any, topic: str, condition: Filter, peer: str) -> Any:
        at.state["got"] = str(condition)
        before = proceed()
        at.state["told before"] = {n: [str(f) for f in one.told] for n, one in before.items()}
        return before


def test_the_first_advice_is_outermost_and_may_replace_arguments() -> None:
    wire = Wire(LINE, [Outer, Inner])
    wire.advertise("b1/p")
    wire.subscribe("b3/s", "all", "speed < 90")
    wire.run()
    broker = wire.brokers["b3"]
    assert _state(broker, "outer")["order"] == ["outer in", "outer out"]
    assert _state(broker, "inner") == {"got": "speed < 20.0D", "told before": {"b2": []}}
    wire.publish("b1/p", 10, 50)
    wire.run()
    assert wire.delivered("b3/s", "all") == ["b1/1"]


class Silent(Advice):
    """Replaces a step by nothing."""

    name = "silent"

    def pub_send(self, at: Any, proceed: Any, *arguments: Any) -> None:
        at.state["kept"] = at.state.get("kept", 0) + arguments[1].num_rows


def test_an_advice_may_replace_a_step() -> None:
    wire = Wire(LINE, [Silent])
    wire.advertise("b1/p")
    wire.subscribe("b1/p", "own")
    wire.run()
    wire.publish("b1/p", 1, 2)
    wire.run()
    assert wire.delivered("b1/p", "own") == []
    assert _state(wire.brokers["b1"], "silent") == {"kept": 2}


class Counting(Advice):
    """Counts the hops that a subscription has come, as data on the messages that carry it."""

    name = "hops"

    def sub_send(self, at: Any, proceed: Any, *arguments: Any) -> None:
        at.attach(at.state.get("hops", 0) + 1)
        proceed()

    def sub_add(self, at: Any, proceed: Any, *arguments: Any) -> Any:
        at.state["hops"] = at.attached or 0
        return proceed()


def test_what_an_advice_attaches_reaches_the_same_advice() -> None:
    wire = Wire(LINE, [Counting])
    wire.advertise("b1/p")
    wire.run()
    wire.subscribe("b3/s", "all")
    wire.run()
    assert [_state(wire.brokers[name], "hops")["hops"] for name in ("b3", "b2", "b1")] == [0, 1, 2]
    assert "b2 -> b1 SUB traffic [TRUE] +hops=2" in wire.trace


class Ticking(Advice):
    name = "ticking"

    def ad_add(self, at: Any, proceed: Any, *arguments: Any) -> None:
        proceed()
        at.wake("tick", at.now_us + 10)

    def on_timer(self, at: Any, key: str) -> None:
        at.state["woken"] = (key, at.now_us)
        at.tell("b2", {"from": at.broker})

    def on_message(self, at: Any, sender: str, value: Any) -> None:
        at.state["heard"] = (sender, value)


def test_timers_and_messages_of_its_own() -> None:
    b1, b2 = (
        Desk(Broker(name, {"b1", "b2"} - {name}, Settings(schemas=SCHEMAS), [Ticking()])) for name in ("b1", "b2")
    )
    assert b1.hand(Attached("c"), at_us=5).timer_us is None
    assert b1.hand(Voice("c").says(m.AdvertiseTopic(1, "traffic")), at_us=5).timer_us == 15
    b1.hand(Woken(), at_us=14)
    assert "woken" not in _state(b1.broker, "ticking")
    # Whenever it is woken, the advice sees the time that it asked for.
    step = b1.hand(Woken(), at_us=17)
    assert _state(b1.broker, "ticking")["woken"] == ("tick", 15)
    assert step.timer_us is None
    (send,) = [one for one in step.sends if one.to == "b2"]
    assert b2.outcomes(Received(send.frames[0]), at_us=20) == ["premature"]
    first = Voice("b1").says(m.Advertised("traffic", 1))
    assert b2.outcomes(first, Received(send.frames[0]), at_us=20) == ["taken", "taken"]
    assert _state(b2.broker, "ticking")["heard"] == ("b1", {"from": "b1"})


def test_an_unknown_joinpoint_is_refused() -> None:
    class Odd(Advice):
        name = "odd"

        def sub_remove(self, at: Any, proceed: Any, *arguments: Any) -> None:
            proceed()

    with pytest.raises(ConfigurationError, match="unknown joinpoint 'sub_remove'; there are ad_add, ad_del"):
        Broker("b1", [], Settings(schemas=SCHEMAS), [Odd()])
    with pytest.raises(ConfigurationError, match="named 'silent'"):
        Broker("b1", [], Settings(schemas=SCHEMAS), [Silent(), Silent()])
