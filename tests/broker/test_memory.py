"""A broker that is made anew from its memory, at any moment, sends the same frames as one that lived on."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catchment import Overlay
from catchment.broker import messages as m
from catchment.broker.advice import Advice, At, Reply
from catchment.broker.broker import Broker, Settings
from catchment.broker.inputs import AdviceAttached, AdviceRemoved, Replied, Woken
from catchment.broker.memory import recalled, remembered
from catchment.broker.store import StoreReply
from catchment.model.errors import CheckpointError
from tests.broker.test_subscriber_count import COUNT
from tests.broker.wire import SCHEMAS, Desk, Voice, Wire

LINE = Overlay.from_links([("b1", "b2"), ("b2", "b3")])


class Forgetful(Wire):
    """Every broker is made anew from its memory before each frame."""

    def run(self, choose: Any = None) -> None:
        def forget_and_choose(count: int) -> int:
            for desk in self.desks.values():
                desk.broker = recalled(remembered(desk.broker), self.settings, [COUNT()])
            return choose(count) if choose is not None else 0

        super().run(forget_and_choose)


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["advertise", "unadvertise", "subscribe", "subscribe", "unsubscribe", "publish", "run"]),
        st.sampled_from(["b1", "b2", "b3"]),
        st.integers(0, 4),
    ),
    max_size=14,
)


@given(STEPS, st.sampled_from(["bound", "covering", "each"]), st.randoms(use_true_random=False))
@settings(max_examples=60, deadline=None)
def test_it_goes_on_as_if_nothing_had_happened(steps: list, summary: str, random: Any) -> None:  # type: ignore[type-arg]
    seed = random.random()
    traces = []
    for kind in (Wire, Forgetful):
        wire = kind(LINE, [COUNT], summary=summary)
        random.seed(seed)
        for step, broker, number in steps:
            client = f"{broker}/c"
            if step == "run":
                wire.run(random.randrange)
            elif step == "subscribe":
                wire.subscribe(client, f"s{number}", f"speed >= {number} AND speed < {2 * number + 1}")
            elif step == "unsubscribe":
                wire.unsubscribe(client, f"s{number}")
            elif step == "publish":
                wire.publish(client, float(number), ids=[f"{number}"])
            else:
                getattr(wire, step)(client)
        wire.run(random.randrange)
        traces.append((wire.trace, [broker.counters for broker in wire.brokers.values()]))
    assert traces[0] == traces[1]


def test_another_format_is_refused() -> None:
    wire = Wire(LINE)
    memory = remembered(wire.brokers["b1"]).replace(b"\xa6format\x04", b"\xa6format\x09")
    with pytest.raises(CheckpointError, match="format 9; accepted is 4"):
        recalled(memory, wire.settings)
    assert recalled(remembered(wire.brokers["b1"]), wire.settings).name == "b1"


class Late(Advice):
    """Remembers in all the ways there are, and waits for everything that can be waited for."""

    name = "late"

    def __init__(self) -> None:
        self._begun_us: int | None = None

    def on_begin(self, at: At) -> None:
        self._begun_us = at.state["begun"] = at.now_us
        at.advertise("traffic")
        at.subscribe("all", "SELECT * FROM traffic")
        at.wake("later", 500)
        at.state["read"] = at.read("key")

    def on_received(self, at: At, message: m.ForClient) -> None:
        at.state.setdefault("received", []).append(str(message))

    def on_timer(self, at: At, key: str) -> None:
        at.tell("b2", [key, self._begun_us])

    def on_reply(self, at: At, reply: Reply) -> None:
        at.tell("b2", [reply.request == at.state["read"], reply.key])

    def saved(self) -> Any:
        return self._begun_us

    def restore(self, saved: Any) -> None:
        self._begun_us = saved


def test_advice_that_came_and_went_while_the_broker_ran_is_remembered() -> None:
    agreed = Settings(schemas=SCHEMAS)
    neighbour = Voice("b2")
    desk = Desk(Broker("b1", ["b2"], agreed, [COUNT()], catalogue={"late": Late}))
    desk.hand(AdviceAttached("late"), AdviceRemoved("subscriber count"), at_us=3)
    memory = remembered(desk.broker)
    desk.broker = recalled(memory, agreed, [COUNT()], catalogue={"late": Late})
    assert remembered(desk.broker) == memory
    assert desk.broker.weaver.names == ("late",)
    step = desk.hand(neighbour.says(m.Confirmed(1)), Replied(StoreReply(1, None, 0)), Woken(), at_us=600)
    assert [str(one) for one in neighbour.hears(step)] == ["TELL late ['later', 3]", "TELL late [True, 'key']"]
    assert desk.broker.weaver.states["late"]["received"] == ["acknowledged #1", "acknowledged #2"]
    desk.hand(AdviceRemoved("late"), at_us=700)
    assert recalled(remembered(desk.broker), agreed, [COUNT()], catalogue={"late": Late}).weaver.names == ()


def test_advice_that_nobody_gives_is_refused_by_name() -> None:
    agreed = Settings(schemas=SCHEMAS)
    desk = Desk(Broker("b1", [], agreed, [COUNT()], catalogue={"late": Late}))
    desk.hand(AdviceAttached("late"))
    with pytest.raises(CheckpointError, match="has the advice 'late'; given are subscriber count"):
        recalled(remembered(desk.broker), agreed, [COUNT()])
    assert desk.outcome(AdviceAttached("other")).reason == (
        "advice 'other' is not in the catalogue of 'b1'; there are late"
    )


def test_a_catalogue_that_makes_something_else_is_refused() -> None:
    def broken() -> Advice:
        raise KeyError("no")

    desk = Desk(Broker("b1", [], Settings(schemas=SCHEMAS), catalogue={"count": COUNT, "broken": broken}))
    assert "accepted is an advice of that name" in desk.outcome(AdviceAttached("count")).reason
    assert desk.outcome(AdviceAttached("broken")).reason == "advice 'broken' cannot be made: KeyError: 'no'"
