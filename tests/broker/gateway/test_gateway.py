"""What foreign publishers post: who advertises for them, until when, and what is refused."""

import json
from collections.abc import Callable, Iterable
from typing import Any

import pyarrow as pa
import pytest

from catchment import Overlay
from catchment.broker import messages as m
from catchment.broker.advice import Advice
from catchment.broker.broker import Broker, Settings
from catchment.broker.gateway import Gateway, GatewayOptions
from catchment.broker.inputs import Attached, Input, Posted, Room, Woken
from catchment.broker.memory import freeze, restored
from catchment.model.errors import ConfigurationError
from tests.broker.wire import SCHEMAS, Desk, Voice, Wire

LINE = Overlay.from_links([("b1", "b2"), ("b2", "b3")])
LEASE_US = 1_000


class Posting(Gateway):
    """A gateway as every broker here has it."""

    def __init__(self) -> None:
        super().__init__(GatewayOptions(lease_us=LEASE_US, held_bytes_max=100_000))


def event(**values: Any) -> bytes:
    return json.dumps(values).encode()


def post(**values: Any) -> Posted:
    return Posted("traffic", event(**values))


def alone(advice: Iterable[Advice] | None = None) -> tuple[Desk, Voice]:
    """A broker without neighbours, and a client of it that wants everything."""
    desk = Desk(Broker("b1", [], Settings(schemas=SCHEMAS), [Posting()] if advice is None else advice))
    client = Voice("b1/s")
    desk.hand(Attached("b1/s"), client.says(m.SubscribeTo(1, "all", "SELECT * FROM traffic")))
    client.hears(desk.hand())
    return desk, client


def rows_of(heard: Iterable[m.Message]) -> list[dict[str, Any]]:
    return [row for one in heard if isinstance(one, m.Delivered) for row in one.events.to_pylist()]


def test_a_post_is_published_once_its_advertisement_is_confirmed() -> None:
    wire = Wire(LINE, [Posting])
    wire.subscribe("b3/s", "all")
    wire.run()
    assert wire.hand("b1", post(speed=10.0)).kind == "taken"
    assert wire.hand("b1", post(speed=20.0)).kind == "taken"
    assert wire.brokers["b1"].table_sizes()["bytes that the gateway holds"]
    wire.run()
    assert wire.delivered("b3/s", "all") == ["b1/1", "b1/2"]
    assert not wire.brokers["b1"].table_sizes()["bytes that the gateway holds"]
    advertised, published = (
        next(n for n, line in enumerate(wire.trace) if line.startswith(f"b1 -> b2 {kind}")) for kind in ("AD", "PUB")
    )
    confirmed = wire.trace.index("b2 -> b1 CONFIRM 1")
    assert advertised < confirmed < published


def test_posts_that_wait_together_are_one_batch_and_each_is_stamped_with_when_it_was_stored() -> None:
    desk, client = alone()
    client.hears(desk.hand(post(speed=0.5)))
    inputs = [Input(post(speed=float(n)), 100 + n, desk.position + n) for n in range(1, 4)]
    step = desk.broker.step(inputs)
    assert [one.kind for one in step.outcomes] == ["taken"] * 3
    (delivered,) = client.hears(step)
    rows = rows_of([delivered])
    assert [(row["speed"], row["ts"].timestamp()) for row in rows] == [(1.0, 101e-6), (2.0, 102e-6), (3.0, 103e-6)]


@pytest.mark.parametrize(
    "data",
    [
        b'{"speed": 1.5, "highway": "401"}',
        b'  {"highway": "401",\n "speed": 1.5}\n',
        b'[{"speed": 1.5, "highway": "401"}]',
        b'{"speed": 1.5, "highway": "401"}\n\n',
    ],
)
def test_one_event_in_every_form_of_json(data: bytes) -> None:
    desk, client = alone()
    step = desk.hand(Posted("traffic", data), at_us=7)
    assert step.outcomes[0].kind == "taken"
    (row,) = rows_of(client.hears(step))
    assert (row["event_id"], row["speed"], row["highway"], row["ts"].timestamp()) == ("b1/1", 1.5, "401", 7e-6)


@pytest.mark.parametrize(
    "data",
    [
        b'[{"speed": 1}, {"speed": 2}, {}]',
        b'{"speed": 1}\n{"speed": 2}\n\n{"highway": null}',
        b'{"speed": 1}\r\n{"speed": 2}\r\n{}\r\n',
    ],
)
def test_several_events_in_every_form_of_json(data: bytes) -> None:
    desk, client = alone()
    assert [row.get("speed") for row in rows_of(client.hears(desk.hand(Posted("traffic", data))))] == [1.0, 2.0, None]


def test_arrow_in_types_of_its_own() -> None:
    table = pa.table(
        {
            "vehicles": pa.array([1, 2], pa.uint8()),
            "highway": pa.array(["401", None]).dictionary_encode(),
            "ts": pa.array([5_000, None], pa.timestamp("ns")),
        }
    )
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    desk, client = alone()
    step = desk.hand(Posted("traffic", sink.getvalue().to_pybytes()), at_us=9)
    assert [one.kind for one in step.outcomes] == ["taken"]
    rows = rows_of(client.hears(step))
    assert [(row["vehicles"], row["highway"], row["ts"].timestamp()) for row in rows] == [
        (1, "401", 5e-6),
        (2, None, 9e-6),
    ]


def test_times_as_text_or_microseconds_and_ids_once() -> None:
    desk, client = alone()
    posts = [
        post(event_id="x", ts="2026-01-01T00:00:00.5Z"), post(event_id="x", ts=1), post(event_id=7, ts=1_000_000),
        post(event_id=None, ts=None),
    ]  # fmt: skip
    step = desk.hand(*posts, at_us=3)
    rows = rows_of(client.hears(step))
    assert [(row["event_id"], row["ts"].timestamp()) for row in rows] == [
        ("x", 1767225600.5), ("7", 1.0), ("b1/1", 3e-6)
    ]  # fmt: skip
    assert not rows_of(client.hears(desk.hand(post(event_id="x"), at_us=119_000_000)))
    assert rows_of(client.hears(desk.hand(post(event_id="x"), at_us=241_000_000)))


BAD = {
    b"": "is empty",
    b"nonsense": "accepted are a JSON object",
    b'{"speed": 1': "accepted are a JSON object",
    b"[1, 2]": "'1' for an event; accepted are a JSON object",
    b'"text"': "'text' for an event",
    b'{"sped": 1}': "an event of 'traffic' has sped; accepted are event_id, ts, speed, highway, vehicles",
    b'{"speed": "fast"}': "attribute 'speed' is 'fast'; accepted is float",
    b'{"speed": NaN}': "accepted are a JSON object",
    b'{"speed": 1e999}': "accepted are a JSON object",
    b'{"vehicles": 1.5}': "attribute 'vehicles' is 1.5; accepted is int",
    b'{"vehicles": 99999999999999999999}': "attribute 'vehicles' is 99999999999999999999; accepted is int",
    b'{"speed": 1152921504606846977}': "attribute 'speed' is 1152921504606846977; accepted is float",
    b'{"ts": "yesterday"}': "attribute 'ts' is 'yesterday'; accepted are times like",
    b'{"ts": 999999999999999999}': "ts",
    b'{"event_id": "b1/7"}': "an event has the id 'b1/7', which broker 'b1' gives itself",
    b'{"highway": "%s"}' % (b"x" * 300_000): "an event has texts of 300000 bytes",
    b'{"speed": 1}\n{"speed": "x"}': "attribute 'speed' is 'x'; accepted is float",
    b'{"speed": 1}\n{"speed": 2': "line 2",
    b"\xff\xff\xff\xffnonsense": "an Arrow stream does not decode",
    b"[" * 100_000: "accepted are a JSON object",
}


@pytest.mark.parametrize("data", BAD)
def test_a_bad_post_is_refused_alone_with_what_is_accepted(data: bytes) -> None:
    desk, client = alone()
    good = [post(event_id=f"g{n}", speed=float(n)) for n in range(5)]
    step = desk.hand(*good[:3], Posted("traffic", data), *good[3:])
    assert [one.kind for one in step.outcomes] == ["taken"] * 3 + ["refused"] + ["taken"] * 2
    assert BAD[data] in step.outcomes[3].reason
    assert len(step.outcomes[3].reason) <= 1_000
    assert [row["event_id"] for row in rows_of(client.hears(step))] == [f"g{n}" for n in range(5)]
    assert desk.broker.counters["posts that were refused"] == 1
    assert not desk.broker.failures
    assert not desk.broker.input_failures


def test_posts_of_an_unknown_topic_and_without_a_gateway_are_refused() -> None:
    desk, _ = alone()
    outcome = desk.outcome(Posted("weather", event(speed=1)))
    assert (outcome.kind, outcome.reason) == ("refused", "unknown topic 'weather'; known are stock, traffic")
    desk, _ = alone(advice=[])
    assert desk.outcome(post(speed=1)).reason.startswith("broker 'b1' has no advice that takes posts")


def advertised(broker: Broker) -> bool:
    return "@gateway" in broker.routes("traffic").advertisers


def test_the_advertisement_ends_a_lease_after_the_last_post() -> None:
    desk, _ = alone()
    desk.hand(post(speed=1.0), at_us=10)
    desk.hand(post(speed=1.0), at_us=510)
    desk.hand(post(nonsense=1), at_us=900)
    desk.hand(Woken(), at_us=510 + LEASE_US - 1)
    assert advertised(desk.broker)
    desk.hand(Woken(), at_us=510 + LEASE_US)
    assert not advertised(desk.broker)
    assert desk.timer_us is None
    desk.hand(post(speed=1.0), at_us=5_000)
    assert advertised(desk.broker)


def test_an_advertisement_that_nobody_confirms_is_kept_and_what_it_holds_is_bounded() -> None:
    broker = Broker("b1", ["b2"], Settings(schemas=SCHEMAS), [Posting()])
    desk = Desk(broker)
    outcomes = [desk.outcome(post(highway="x" * 10_000), at_us=n) for n in range(20)]
    kinds = [one.kind for one in outcomes]
    assert kinds == sorted(kinds, reverse=True)
    assert set(kinds) == {"taken", "refused"}
    assert "wait for its advertisement to be confirmed; accepted are 100000" in outcomes[-1].reason
    desk.hand(Woken(), at_us=10 * LEASE_US)
    assert advertised(broker)
    assert desk.timer_us == 11 * LEASE_US
    neighbour = Voice("b2")
    sent = neighbour.hears(desk.hand(neighbour.says(m.Confirmed(1)), at_us=10 * LEASE_US))
    assert not sent  # nobody wants them
    assert broker.ingress.sequence == kinds.count("taken")


def test_posts_are_taken_where_clients_are_refused_for_want_of_room() -> None:
    desk, client = alone()
    desk.hand(Room("b1", is_full=True))
    assert rows_of(client.hears(desk.hand(post(speed=1.0))))


def test_posts_end_at_any_other_input_and_come_behind_the_events_of_clients() -> None:
    desk, client = alone()
    publisher = Voice("b1/p")
    client.hears(desk.hand(Attached("b1/p"), publisher.says(m.AdvertiseTopic(1, "traffic")), post(speed=0.0)))
    events = pa.RecordBatch.from_pydict({"speed": [2.0]})
    step = desk.hand(
        post(speed=1.0), publisher.says(m.PublishEvents(2, "traffic", events)), post(speed=3.0), Woken(),
        post(speed=4.0),
    )  # fmt: skip
    assert [row["speed"] for row in rows_of(client.hears(step))] == [2.0, 1.0, 3.0, 4.0]


@pytest.mark.parametrize("size", [1, 2, 7])
def test_replay_from_a_snapshot_gives_the_same(size: int) -> None:
    def neighbour_of(hand: Callable[..., Any], begin: int) -> list[Any]:
        found = []
        for place in range(begin, len(items), size):
            found += hand(*items[place : place + size], at_us=place)
        return found

    neighbour = Voice("b2")
    items: list[Any] = [post(speed=float(n)) for n in range(4)]
    items += [post(sped=1), neighbour.says(m.Subscribed("traffic", 1, (), ())), post(event_id="x")]
    items += [neighbour.says(m.Confirmed(1)), post(event_id="x"), post(event_id="y", ts="2026-01-01"), Woken()]
    settings = Settings(schemas=SCHEMAS)
    first = Desk(Broker("b1", ["b2"], settings, [Posting()]))
    neighbour_of(lambda *some, at_us: first.hand(*some, at_us=at_us).sends, 0)
    half = Desk(Broker("b1", ["b2"], settings, [Posting()]))
    for place, item in enumerate(items[:6]):
        half.hand(item, at_us=place)
    back = Desk(restored(freeze(half.broker).pieces(), settings, [Posting()]))
    back.position = half.position
    assert back.broker.table_sizes()["bytes that the gateway holds"]
    for place, item in enumerate(items[6:], 6):
        back.hand(item, at_us=place)
    assert back.broker.ingress.sequence == first.broker.ingress.sequence
    assert len(back.broker.ingress.recent) == len(first.broker.ingress.recent) == 2
    assert back.broker.weaver.timers == first.broker.weaver.timers


def test_options_name_what_is_accepted() -> None:
    with pytest.raises(ConfigurationError, match="lease_us is 0; accepted are numbers from 1 on"):
        GatewayOptions(lease_us=0)
