"""What a broker records: every accepted event once, in frames that can be read alone; and marks."""

from collections.abc import Sequence

import msgspec
import pyarrow as pa

from catchment.broker import messages as m
from catchment.broker.broker import Broker, Settings
from catchment.broker.frames import FRAME_BYTES_MAX, FrameReader
from catchment.broker.history import NOTHING_RECORDED_US, History
from catchment.broker.inputs import Attached, Step
from catchment.broker.memory import freeze, restored
from catchment.broker.peers import HISTORY
from tests.broker.wire import SCHEMAS, Desk, Voice


def events(ids: Sequence[str], seconds: Sequence[int], highway: str = "401") -> pa.RecordBatch:
    times = pa.array([1_000_000 * one for one in seconds], pa.timestamp("us", "UTC"))
    return pa.RecordBatch.from_pydict({"event_id": ids, "ts": times, "highway": [highway] * len(ids)})


def recorded(step: Step) -> list[list[m.Recorded]]:
    """Of each frame what it says, each read by a reader of its own."""
    frames = [data for send in step.sends if send.to == HISTORY for data in send.frames]
    said = [FrameReader().decode(data).messages for data in frames]
    return [[one for one in messages if isinstance(one, m.Recorded)] for messages in said]


def desk_and_voices(*neighbours: str) -> tuple[Desk, Voice, dict[str, Voice]]:
    desk = Desk(Broker("b1", neighbours, Settings(schemas=SCHEMAS), [History()]))
    client, others = Voice("c"), {name: Voice(name) for name in neighbours}
    step = desk.hand(Attached("c"), client.says(m.AdvertiseTopic(1, "traffic"), m.AdvertiseTopic(2, "stock")))
    for voice in others.values():
        told = voice.hears(step)
        desk.hand(voice.says(*(m.Confirmed(one.change) for one in told if isinstance(one, m.Advertised))))
    return desk, client, others


def test_events_of_clients_are_recorded_with_how_many_and_how_late_those_before_were() -> None:
    desk, client, others = desk_and_voices("b2")
    first = desk.hand(client.says(m.PublishEvents(3, "traffic", events(["a", "b"], [5, 2]))))
    again = desk.hand(client.says(m.PublishEvents(4, "traffic", events(["b", "c"], [2, 3]))))
    wrong = desk.hand(client.says(m.PublishEvents(5, "traffic", pa.RecordBatch.from_pydict({"color": ["red"]}))))
    passing = others["b2"].says(m.Published("traffic", events(["x"], [9])))
    ((one,),), ((two,),) = recorded(first), recorded(again)
    assert (one.number, one.latest_us, one.topic) == (0, NOTHING_RECORDED_US, "traffic")
    assert one.events is not None
    assert one.events.column("broker").to_pylist() == ["b1", "b1"]
    assert (two.number, two.latest_us) == (2, 5_000_000)
    assert two.events is not None
    assert two.events.column("event_id").to_pylist() == ["c"]
    assert recorded(wrong) == recorded(desk.hand(passing)) == []


def test_frames_of_a_history_are_read_alone_also_where_one_step_takes_several() -> None:
    desk, client, _ = desk_and_voices()
    texts = [f"{number}" * 200_000 for number in range(1, 10)]
    step = desk.hand(
        *(
            client.says(m.PublishEvents(3 + n, "traffic", events([text[:1]], [n], text)))
            for n, text in enumerate(texts)
        ),
        client.says(
            m.PublishEvents(20, "stock", pa.RecordBatch.from_pydict({"symbol": ["y"] * 3, "price": [1.0] * 3}))
        ),
    )
    frames = recorded(step)
    assert len(frames) > 1
    assert all(len(data) <= FRAME_BYTES_MAX for send in step.sends if send.to == HISTORY for data in send.frames)
    total, latest_us = 0, NOTHING_RECORDED_US
    for one in (one for frame in frames for one in frame):
        assert one.events is not None
        assert (one.number, one.latest_us) == (total, latest_us)
        total += one.events.num_rows
        latest_us = max(latest_us, *one.events.column("ts").cast(pa.int64()).to_pylist())
    assert total == 12


def test_a_mark_is_recorded_everywhere_before_its_client_is_answered() -> None:
    desk, client, others = desk_and_voices("b2", "b3")
    step = desk.hand(client.says(m.AskAdvice(3, "history", msgspec.msgpack.encode("mark"))))
    ((mark,),) = recorded(step)
    assert (mark.mark, mark.events) == ("mark", None)
    asked = {name: voice.hears(step) for name, voice in others.items()}
    assert client.hears(step) == []
    for name, voice in others.items():
        (told,) = asked[name]
        assert isinstance(told, m.AdviceMessage)
        last = desk.hand(voice.says(m.Confirmed(told.change)))
    assert client.hears(last) == [m.Acknowledged(3)]
    passed_on = desk.hand(others["b2"].says(m.AdviceMessage("history", msgspec.msgpack.encode("other"), 7)))
    assert [one.mark for frame in recorded(passed_on) for one in frame] == ["other"]
    assert not others["b2"].hears(passed_on)
    (told,) = others["b3"].hears(passed_on)
    assert isinstance(told, m.AdviceMessage)
    assert others["b2"].hears(desk.hand(others["b3"].says(m.Confirmed(told.change)))) == [m.Confirmed(7)]


def test_a_broker_that_is_brought_back_goes_on_counting() -> None:
    desk, client, _ = desk_and_voices()
    desk.hand(client.says(m.PublishEvents(3, "traffic", events(["a"], [5]))))
    back = Desk(restored(freeze(desk.broker).pieces(), desk.broker.settings, [History()]))
    back.position = desk.position
    said = client.says(m.PublishEvents(4, "traffic", events(["b"], [6])))
    assert back.hand(said).sends == desk.hand(said).sends
