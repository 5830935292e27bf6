"""The worked example: every broker with a publisher knows how many subscriptions there are."""

import importlib.util
from pathlib import Path
from types import ModuleType

from hypothesis import given, settings
from hypothesis import strategies as st

from catchment import Overlay
from tests.broker.wire import Wire

EXAMPLE = Path(__file__).parents[2] / "examples" / "subscriber_count.py"
OVERLAYS = [
    Overlay.from_links([("b1", "b2"), ("b2", "b3")]),
    Overlay.from_links([("b1", "b2")]),
    Overlay.from_links([("b1", "b2"), ("b1", "b3"), ("b1", "b4"), ("b4", "b5")]),
]


def example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("subscriber_count", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


COUNT = example().SubscriberCount


def test_it_is_short() -> None:
    assert sum(bool(line.strip()) for line in EXAMPLE.read_text().splitlines()) < 60


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_publishers_know_the_number_of_subscriptions(data: st.DataObject) -> None:
    wire = Wire(
        data.draw(st.sampled_from(OVERLAYS)), [COUNT], summary=data.draw(st.sampled_from(["bound", "covering"]))
    )
    brokers = sorted(wire.brokers)
    living: list[tuple[str, str]] = []
    advertising: set[str] = set()

    def choose(count: int) -> int:
        return data.draw(st.integers(0, count - 1))

    for number in range(data.draw(st.integers(1, 12))):
        client = f"{data.draw(st.sampled_from(brokers))}/c"
        step = data.draw(st.sampled_from(["advertise", "unadvertise", "subscribe", "subscribe", "unsubscribe"]))
        if step == "advertise" and client not in advertising:
            advertising.add(client)
            wire.advertise(client)
        elif step == "unadvertise" and client in advertising:
            advertising.remove(client)
            wire.unadvertise(client)
        elif step == "subscribe":
            living.append((client, f"s{number}"))
            wire.subscribe(client, f"s{number}", f"speed < {data.draw(st.integers(1, 4))}")
        elif living:
            wire.unsubscribe(*living.pop(data.draw(st.integers(0, len(living) - 1))))
        if data.draw(st.booleans()):
            wire.run(choose)
    wire.run(choose)
    for client in sorted(advertising):
        broker = wire.brokers[client.split("/")[0]]
        assert not broker.failures, broker.failures
        state = broker.weaver.states["subscriber count"].get("traffic", {"from": {}})
        assert sum(state["from"].values()) == len(living), state
