"""Whatever a client sends, a step does not raise: it is refused with a reason, and the broker goes on."""

from typing import Any

import pyarrow as pa
import pytest

from catchment.broker import messages as m
from catchment.broker.advice import Advice
from catchment.broker.aggregation import Aggregation, AggregationOptions
from catchment.broker.broker import Broker, Settings
from catchment.broker.client import Session
from catchment.broker.frames import FRAME_BYTES_MAX, FrameWriter
from catchment.broker.inputs import Attached, Received, Unreadable
from catchment.broker.limits import EVENT_BYTES_MAX, NAME_CHARACTERS_MAX, SQL_CHARACTERS_MAX
from catchment.model.errors import ConfigurationError, FrameError
from tests.broker.wire import SCHEMAS, Desk, Voice

SETTINGS = Settings(schemas=SCHEMAS)
EVERYTHING = "SELECT * FROM traffic"
SECONDS = "SELECT count(*) FROM traffic GROUP BY window(ts, '1 second')"


def batch(**columns: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(columns)


def times(*times_us: int) -> pa.Array:
    return pa.array(times_us, pa.timestamp("us", tz="UTC"))


def publisher(*, sql: str = EVERYTHING, neighbours: tuple[str, ...] = ()) -> tuple[Desk, Voice]:
    """A broker with a client that advertises and subscribes."""
    advice: list[Advice] = [Aggregation(AggregationOptions())]
    desk, client = Desk(Broker("b1", neighbours, SETTINGS, advice)), Voice("c")
    step = desk.hand(Attached("c"), client.says(m.AdvertiseTopic(1, "traffic"), m.SubscribeTo(2, "all", sql)))
    client.hears(step)
    return desk, client


def refusal(desk: Desk, client: Voice, message: m.Message) -> str:
    """Why a message is refused; the broker takes no harm."""
    step = desk.hand(client.says(message))
    (answer,) = client.hears(step)
    assert isinstance(answer, m.Refused), answer
    assert desk.broker.input_failures == ()
    return answer.reason


@pytest.mark.parametrize(
    "ids",
    [pa.array([b"\xff"], pa.binary()), pa.array([[("a", "b")]], pa.map_(pa.string(), pa.string()))],
    ids=["invalid UTF-8", "a map"],
)
def test_ids_that_are_no_texts_are_refused(ids: pa.Array) -> None:
    desk, client = publisher()
    reason = refusal(desk, client, m.PublishEvents(3, "traffic", batch(event_id=ids, speed=[1.0])))
    assert reason.startswith("column 'event_id' has type")
    assert reason.endswith("accepted is string")


def test_late_events_are_told_in_several_messages_if_one_is_not_enough() -> None:
    desk, session = Desk(Broker("b1", [], SETTINGS, [Aggregation(AggregationOptions())])), Session("c")
    desk.hand(Attached("c"))
    count, heard, frames = 120_000, [], 0
    late = batch(ts=times(*[1] * count))
    for kind, *fields in (
        (m.AdvertiseTopic, "traffic"),
        (m.SubscribeTo, "all", SECONDS),
        (m.PublishEvents, "traffic", batch(ts=times(10_000_000))),
        (m.PublishEvents, "traffic", late),
    ):
        _, data = session.ask(kind, *fields)  # type: ignore[arg-type]
        step = desk.hand(*map(Received, data))
        frames = sum(len(send.frames) for send in step.sends)
        for one in (one for send in step.sends for one in send.frames):
            assert len(one) <= FRAME_BYTES_MAX
            heard += session.receive(one)
    assert frames > 1
    answers = [one for one in heard if isinstance(one, m.Acknowledged) and one.request == 4]
    assert [len(set(one.dropped)) for one in answers] == [count]
    assert session.open == {}
    assert desk.broker.input_failures == ()


def test_an_event_too_long_for_some_message_is_refused_where_it_comes_in() -> None:
    desk, client = publisher()
    for size in (EVENT_BYTES_MAX + 1, 999_400):
        reason = refusal(desk, client, m.PublishEvents(3, "traffic", batch(highway=["h" * size])))
        assert reason == f"an event has texts of {size} bytes; accepted are at most {EVENT_BYTES_MAX} in all"
    long_id = batch(event_id=["i" * EVENT_BYTES_MAX], highway=["h"])
    assert "accepted are at most" in refusal(desk, client, m.PublishEvents(4, "traffic", long_id))
    fine = [batch(event_id=[f"e{number}"], highway=["h" * (EVENT_BYTES_MAX - 2)]) for number in range(5)]
    step = desk.hand(*(client.says(m.PublishEvents(5 + number, "traffic", one)) for number, one in enumerate(fine)))
    told = client.hears(step)
    assert [one.request for one in told if isinstance(one, m.Acknowledged)] == [5, 6, 7, 8, 9]
    assert sum(one.events.num_rows for one in told if isinstance(one, m.Delivered)) == 5
    assert desk.broker.input_failures == ()


def test_an_event_for_many_subscriptions_is_delivered_in_several_messages() -> None:
    desk, client = publisher()
    names = [f"{number:04d}" + "n" * (NAME_CHARACTERS_MAX - 4) for number in range(4_000)]
    client.hears(desk.hand(*(client.says(m.SubscribeTo(3 + at, name, EVERYTHING)) for at, name in enumerate(names))))
    step = desk.hand(client.says(m.PublishEvents(9_999, "traffic", batch(highway=["h" * 200_000]))))
    told = [one for one in client.hears(step) if isinstance(one, m.Delivered)]
    assert len(told) > 1
    assert sorted(name for one in told for name, rows in one.wanted.items() if rows.tolist() == [0]) == [*names, "all"]
    assert desk.broker.input_failures == ()


def test_reasons_quote_only_so_much() -> None:
    desk, client = publisher()
    for message in (
        m.AdvertiseTopic(3, "x" * 990_000),
        m.UnsubscribeFrom(4, "x" * 990_000),
        m.AskAdvice(5, "x" * 990_000, b""),
        m.PublishEvents(6, "x" * 900_000, batch(speed=[1.0])),
    ):
        assert len(refusal(desk, client, message)) <= 1_000


@pytest.mark.parametrize("name", ["\0", "", "a\x1fb", "a\x85", "n" * (NAME_CHARACTERS_MAX + 1), "n" * 999_000])
def test_names_are_short_and_without_control_characters(name: str) -> None:
    desk, client = publisher()
    assert desk.outcome(Attached(name)).kind == "refused"
    assert "accepted" in refusal(desk, client, m.SubscribeTo(3, name, EVERYTHING))
    with pytest.raises(ConfigurationError, match="a topic"):
        Settings(schemas={name: SCHEMAS["traffic"]})
    with pytest.raises(ConfigurationError, match="a broker"):
        Broker("b1", [name], SETTINGS)
    with pytest.raises(ConfigurationError, match="an advice"):
        Broker("b1", [], SETTINGS, [type("Odd", (Advice,), {"name": name})()])


def test_sql_is_short_enough_to_be_read_soon() -> None:
    desk, client = publisher()
    sql = f"{EVERYTHING} WHERE " + " OR ".join(f"speed = {number}" for number in range(10_000))
    reason = refusal(desk, client, m.SubscribeTo(3, "many", sql))
    assert reason.endswith(f"its SQL has {len(sql)} characters; accepted are at most {SQL_CHARACTERS_MAX}")


# -- the client's own side --------------------------------------------------------------------------------------------


def test_a_request_that_is_too_large_leaves_a_session_as_it_was() -> None:
    session, large = Session("c"), batch(speed=[1.0] * 200_000)
    with pytest.raises(FrameError):
        session.ask(m.PublishEvents, "traffic", large)
    assert (session.requests, session.open) == (0, {})
    desk = Desk(Broker("b1", [], SETTINGS))
    desk.hand(Attached("c"))
    for kind, *fields in ((m.AdvertiseTopic, "traffic"), (m.PublishEvents, "traffic", large.slice(0, 10))):
        number, frames = session.ask(kind, *fields)  # type: ignore[arg-type]
        step = desk.hand(*map(Received, frames))
        assert [session.receive(data) for send in step.sends for data in send.frames] == [(m.Acknowledged(number),)]


def test_a_session_cuts_a_large_batch_into_several_requests() -> None:
    desk, session = Desk(Broker("b1", [], SETTINGS)), Session("c")
    _, frames = session.ask(m.AdvertiseTopic, "traffic")
    (send,) = desk.hand(Attached("c"), *map(Received, frames)).sends
    assert [session.receive(data) for data in send.frames] == [(m.Acknowledged(1),)]
    rows = 200_000
    numbers, frames = session.publish("traffic", batch(speed=[1.0] * rows))
    assert len(numbers) > 1
    assert max(map(len, frames)) <= FRAME_BYTES_MAX
    assert sum(session.open[number].events.num_rows for number in numbers) == rows  # type: ignore[union-attr]
    step = desk.hand(*map(Received, frames))
    answered = [one for send in step.sends for data in send.frames for one in session.receive(data)]
    assert answered == [m.Acknowledged(number) for number in numbers]
    assert desk.broker.ingress.sequence == rows


def test_a_session_publishes_all_or_nothing_of_what_fits_no_request() -> None:
    session = Session("c")
    with pytest.raises(FrameError, match="an event does not fit into a message"):
        session.publish("traffic", batch(highway=["h" * 10, "h" * 2_000_000]))
    assert (session.requests, session.open) == (0, {})


def test_a_writer_that_raises_names_its_schemas_later() -> None:
    writer, how = FrameWriter(), {"incarnation": 1, "epoch": 1, "covers": 0}
    large, small = batch(highway=["h" * 2_000_000]), batch(highway=["h"])
    with pytest.raises(FrameError):
        writer.frames("c", [m.Published("traffic", small), m.Published("traffic", large)], after=0, **how)
    frames = writer.frames("c", [m.Published("traffic", small)], after=0, **how)
    assert frames == FrameWriter().frames("c", [m.Published("traffic", small)], after=0, **how)


@pytest.mark.parametrize(
    "events",
    [
        batch(highway=pa.array(["401"], pa.large_string())),
        pa.RecordBatch.from_arrays([pa.array([1.0]), pa.array([2.0])], names=["speed", "speed"]),
        batch(ts=pa.array([1], pa.timestamp("ns"))),
    ],
    ids=["a type that no frame has", "one name twice", "nanoseconds"],
)
def test_a_request_that_does_not_decode_is_refused_by_its_number(events: pa.RecordBatch) -> None:
    desk, client = publisher()
    for number in (3, 4):
        step = desk.hand(client.says(m.PublishEvents(number, "traffic", events)))
        (answer,) = client.hears(step)
        assert isinstance(answer, m.Refused)
        assert answer.request == number
        assert "does not decode" in answer.reason
    # What it says next is taken.
    (answer,) = client.hears(desk.hand(client.says(m.PublishEvents(5, "traffic", batch(speed=[1.0])))))[:1]
    assert isinstance(answer, (m.Delivered, m.Acknowledged))


@pytest.mark.parametrize("kind", [b"advertised", b"AdvertisedOld"])
def test_requests_of_kinds_that_the_broker_does_not_know_are_refused(kind: bytes) -> None:
    desk, client = publisher()
    data = client.says(m.AdvertiseTopic(3, "stock")).data
    old = b"\xaeAdvertiseTopic"
    assert old in data
    (answer,) = client.hears(desk.hand(Received(data.replace(old, bytes([0xA0 + len(kind)]) + kind))))
    assert isinstance(answer, m.Refused)
    assert answer.request == 3


def test_who_speaks_of_another_epoch_or_without_numbers_is_told_so() -> None:
    desk, client = publisher()
    writer = FrameWriter()
    (other,) = writer.frames("c", [m.AdvertiseTopic(9, "stock")], incarnation=1, epoch=2, after=1, covers=0)
    (answer,) = client.hears(desk.hand(Received(other)))
    assert (answer.request, answer.reason) == (9, "a frame of 'c' is of epoch 2; accepted is 1")  # type: ignore[union-attr]
    numberless = client.says(m.RoomChanged(True)).data.replace(b"\xc3", b"\xc0")
    (answer,) = client.hears(desk.hand(Received(numberless)))
    assert answer.request == m.UNNUMBERED  # type: ignore[union-attr]
    (answer,) = client.hears(desk.hand(Unreadable("c", "a frame is of version [1]; accepted is 2")))
    assert str(answer) == "refused #0: a frame is of version [1]; accepted is 2"
    assert desk.outcome(Unreadable("nobody", "nonsense")).kind == "refused"
