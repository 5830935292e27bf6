"""Rights are an input: brokers refuse what an owner may not do, and end what it may no longer do; so does a replay."""

import pyarrow as pa
import pytest

from catchment.broker import messages as m
from catchment.broker.aggregation import Aggregation, AggregationOptions
from catchment.broker.broker import Broker, Settings
from catchment.broker.inputs import Allowed, Attached, Item, Parked, Rights
from catchment.broker.memory import freeze, restored
from tests.broker.wire import SCHEMAS, Desk, Voice

ALL = "SELECT * FROM traffic"
COUNT = "SELECT count(*) FROM traffic GROUP BY window(ts, '1 second')"
SETTINGS = Settings(schemas=SCHEMAS)
TABLE = {"ann": Allowed(("traffic",), ()), "bob": Allowed((), ("stock", "traffic")), "root": Allowed(None, None)}


def advice() -> list[Aggregation]:
    return [Aggregation(AggregationOptions())]


def desk() -> Desk:
    return Desk(Broker("b1", [], SETTINGS, advice()))


def answers(here: Desk, voice: Voice, *requests: m.Message) -> list[str]:
    return [str(message) for message in voice.hears(here.hand(voice.says(*requests)))]


@pytest.mark.parametrize(
    ("owner", "request_", "complaint"),
    [
        ("ann", m.AdvertiseTopic(1, "traffic"), None),
        ("ann", m.AdvertiseTopic(1, "stock"), "user 'ann' may not publish to 'stock'; accepted are traffic"),
        ("ann", m.SubscribeTo(1, "s", ALL), "user 'ann' may not subscribe to 'traffic'; accepted are no topics"),
        ("ann", m.SubscribeTo(1, "s", COUNT), "user 'ann' may not subscribe to 'traffic'; accepted are no topics"),
        ("bob", m.SubscribeTo(1, "s", ALL), None),
        ("bob", m.SubscribeTo(1, "s", COUNT), None),
        ("bob", m.AdvertiseTopic(1, "stock"), "user 'bob' may not publish to 'stock'; accepted are no topics"),
        ("eve", m.SubscribeTo(1, "s", ALL), "user 'eve' may not subscribe to 'traffic'; accepted are no topics"),
        ("root", m.AdvertiseTopic(1, "stock"), None),
        ("root", m.SubscribeTo(1, "s", ALL), None),
        ("", m.AdvertiseTopic(1, "stock"), None),
    ],
)
def test_a_broker_refuses_what_the_owner_of_a_client_may_not_do(
    owner: str, request_: m.Message, complaint: str | None
) -> None:
    here, voice = desk(), Voice("c")
    here.hand(Rights(TABLE), Attached("c", owner=owner))
    assert answers(here, voice, request_) == [f"refused #1: {complaint}" if complaint else "acknowledged #1"]


def test_events_of_a_topic_that_was_refused_are_refused_as_well() -> None:
    here, voice = desk(), Voice("c")
    here.hand(Rights(TABLE), Attached("c", owner="bob"))
    events = pa.RecordBatch.from_pydict({"speed": [1.0]})
    first, second, third = answers(
        here,
        voice,
        m.AdvertiseTopic(1, "traffic"),
        m.PublishEvents(2, "traffic", events),
        m.AdvanceTime(3, "traffic", 9),
    )
    assert "may not publish" in first
    assert "topic 'traffic' is not advertised" in second
    assert "topic 'traffic' is not advertised" in third


def used() -> tuple[Desk, dict[str, Voice]]:
    """A desk with a publisher of ann, a subscriber of bob, and one that bob has parked."""
    here, voices = desk(), {name: Voice(name) for name in ("p", "s", "away")}
    here.hand(Rights(TABLE), Attached("p", owner="ann"), Attached("s", owner="bob"), Attached("away", owner="bob"))
    assert answers(here, voices["p"], m.AdvertiseTopic(1, "traffic")) == ["acknowledged #1"]
    for name in ("s", "away"):
        assert answers(here, voices[name], m.SubscribeTo(1, "mine", ALL)) == ["acknowledged #1"]
    here.hand(Parked("away"))
    return here, voices


@pytest.mark.parametrize(
    ("table", "dropped"),
    [
        ({**TABLE, "eve": Allowed()}, {}),
        (None, {}),
        ({**TABLE, "ann": Allowed(("stock",), ())}, {"p": "user 'ann' may not publish to 'traffic' any more"}),
        (
            {**TABLE, "bob": Allowed((), ("stock",))},
            dict.fromkeys(("away", "s"), "user 'bob' may not subscribe to 'traffic' any more"),
        ),
        ({"bob": TABLE["bob"]}, {"p": "user 'ann' is not known any more"}),
    ],
)
def test_a_client_that_uses_a_right_its_owner_has_lost_is_dropped_and_told_why(
    table: dict[str, Allowed] | None, dropped: dict[str, str]
) -> None:
    here, voices = used()
    step = here.hand(Rights(table))
    told = {name: [str(one) for one in voice.hears(step)] for name, voice in voices.items()}
    assert told == {name: [f"dropped, {dropped[name]}"] if name in dropped else [] for name in voices}
    assert here.broker.clients == set(voices) - set(dropped)
    assert {client for client, _ in here.broker.subscribed} == {"s", "away"} - set(dropped)


def test_a_broker_that_is_brought_back_knows_the_rights_and_does_the_same() -> None:
    here, voices = used()
    before = [bytes(piece) for piece in freeze(here.broker).pieces()]
    back = Desk(restored(before, SETTINGS, advice()))
    back.position = here.position
    assert back.broker.rights == TABLE
    rest: list[Item] = [
        voices["p"].says(m.AdvertiseTopic(2, "stock")),
        Rights({"ann": TABLE["ann"]}),
        voices["s"].says(m.UnsubscribeFrom(2, "mine")),
    ]
    assert here.hand(*rest).sends == back.hand(*rest).sends
