"""A broker that is made anew from its memory, at any moment, sends the same frames as one that lived on."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catchment import Overlay
from catchment.broker.memory import recalled, remembered
from catchment.model.errors import CheckpointError
from tests.broker.test_subscriber_count import COUNT
from tests.broker.wire import Wire

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
    memory = remembered(wire.brokers["b1"]).replace(b"\xa6format\x03", b"\xa6format\x09")
    with pytest.raises(CheckpointError, match="format 9; accepted is 3"):
        recalled(memory, wire.settings)
    assert recalled(remembered(wire.brokers["b1"]), wire.settings).name == "b1"
