"""An advice as a client of its own broker: what it asks for runs after the input that led to it, in bounded rounds."""

from typing import Any

import pyarrow as pa
import pytest

from catchment import Overlay
from catchment.broker import messages as m
from catchment.broker.advice import Advice, At, Proceed
from catchment.broker.aggregation import Aggregation, AggregationOptions
from catchment.broker.broker import Broker, Settings
from catchment.broker.inputs import AdviceAttached, AdviceRemoved, Attached, Detached, Parked
from catchment.broker.rounds import ROUNDS_MAX
from catchment.broker.routing import Matched
from catchment.model.subscription import Query
from tests.broker.wire import SCHEMAS, Desk, Voice, Wire

LINE = Overlay.from_links([("b1", "b2"), ("b2", "b3")])


def events(*speeds: float) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"speed": pa.array(speeds, pa.float64())})


class Obeying(Advice):
    """Asks its broker for whatever a client tells it to, and passes on what it gets."""

    name = "obeying"

    def on_request(self, at: At, client: str, value: Any) -> None:
        at.state["client"] = client
        for what, *arguments in value:
            if what == "publish":
                arguments[1] = events(*arguments[1])
            at.state["last"] = getattr(at, what)(*arguments)

    def on_received(self, at: At, message: m.ForClient) -> None:
        if at.state["client"] in at.clients:
            at.inform(at.state["client"], str(message))

    def on_end(self, at: At) -> None:
        at.unadvertise("traffic")


def test_it_subscribes_advertises_and_publishes_like_any_client() -> None:
    wire = Wire(LINE, [Obeying])
    wire.ask_advice(
        "b1/c", "obeying", [["advertise", "traffic"], ["subscribe", "slow", "SELECT * FROM traffic WHERE speed < 50"]]
    )
    wire.subscribe("b3/s", "all")
    wire.run()
    # The client is answered after everything that its request led to is confirmed.
    assert wire.trace.index("b2 -> b1 CONFIRM 1") < wire.trace.index("b1 -> b1/c acknowledged #1")
    published = wire.ask_advice("b1/c", "obeying", [["publish", "traffic", [10.0, 90.0]]])
    wire.run()
    assert wire.answer(published) == m.Acknowledged(2)
    assert wire.delivered("b3/s", "all") == ["b1/1", "b1/2"]
    assert wire.informed("b1/c") == [
        "acknowledged #1",
        "acknowledged #2",
        "acknowledged #3",
        "deliver traffic: slow b1/1",
    ]
    wire.ask_advice("b1/c", "obeying", [["unsubscribe", "slow"], ["unadvertise", "traffic"]])
    wire.run()
    assert wire.informed("b1/c")[4:] == ["acknowledged #4", "acknowledged #5"]
    assert wire.brokers["b3"].routes("traffic").advertisers == set()


def test_what_no_client_could_ask_for_is_refused() -> None:
    wire = Wire(LINE, [Obeying])
    wire.ask_advice("b1/c", "obeying", [["publish", "traffic", [1.0]], ["subscribe", "odd", "SELECT"]])
    bad = wire.ask_advice("b1/c", "obeying", [["subscribe", 5, "SELECT * FROM traffic"]])
    wire.ask_advice("b1/c", "obeying", [["advance_time", "traffic", 5]])
    wire.run()
    told = wire.informed("b1/c")
    assert told[0] == "refused #1: topic 'traffic' is not advertised by '@obeying'; advertised: none"
    assert told[1].startswith("refused #2: subscription 'odd'")
    assert told[2].startswith("refused #4: topic 'traffic' is not advertised by '@obeying'")
    assert str(wire.answer(bad)).startswith("refused #2: a frame of '' does not decode")


def test_its_name_belongs_to_it_alone() -> None:
    desk, client = Desk(Broker("b1", [], Settings(schemas=SCHEMAS), [Obeying()])), Voice("c")
    outcome = desk.outcome(Attached("@obeying"))
    assert outcome.reason == "a client is named '@obeying'; accepted are names without '@' in front"
    desk.hand(Attached("c"), client.says(m.AskAdvice(1, "obeying", b"\x91\x92\xa9advertise\xa7traffic")))
    assert desk.broker.peers["@obeying"].topics == {"traffic": 1}
    assert desk.outcome(Detached("@obeying")).reason == "no client '@obeying' is at broker 'b1'; there are c"
    assert desk.outcome(Parked("@obeying")).kind == "refused"
    assert desk.outcome(Voice("@obeying").says(m.UnadvertiseTopic(1, "traffic"))).kind == "stranger"
    assert desk.broker.routes("traffic").advertisers == {"@obeying"}


def test_time_that_a_client_or_an_advice_says_has_come_closes_windows() -> None:
    options = AggregationOptions(idle_after_us=2**60)
    broker = Broker("b1", [], Settings(schemas=SCHEMAS), [Aggregation(options), Obeying()])
    desk, client = Desk(broker), Voice("c")
    sql = "SELECT count(*) FROM traffic GROUP BY window(ts, '2 seconds', '2 seconds')"
    stamped = events(1.0, 2.0).append_column("ts", pa.array([5_000_000, 5_100_000], pa.timestamp("us", "UTC")))
    step = desk.hand(
        Attached("c"),
        client.says(m.SubscribeTo(1, "n", sql), m.AdvertiseTopic(2, "traffic"), m.PublishEvents(3, "traffic", stamped)),
    )
    assert client.hears(step) == [m.Acknowledged(1), m.Acknowledged(2), m.Acknowledged(3)]
    said = client.hears(desk.hand(client.says(m.AdvanceTime(4, "traffic", 5_999_999))))
    assert said == [m.Acknowledged(4)]
    said = client.hears(desk.hand(client.says(m.AdvanceTime(5, "traffic", 6_000_000))))
    assert list(map(str, said)) == ["notify n [4000000, 6000000) count(*) = 2", "acknowledged #5"]
    late = client.hears(desk.hand(client.says(m.PublishEvents(6, "traffic", stamped))))
    assert late == [m.Acknowledged(6, ("b1/3", "b1/4"))]
    for topic, time_us, reason in (
        ("weather", 1, "unknown topic 'weather'; known are stock, traffic"),
        ("stock", 1, "topic 'stock' is not advertised by 'c'; advertised: traffic"),
        ("traffic", 2**62, "time has come to 4611686018427387904; accepted are microseconds between plus and minus"),
    ):
        (refused,) = client.hears(desk.hand(client.says(m.AdvanceTime(7, topic, time_us))))
        assert isinstance(refused, m.Refused)
        assert refused.reason.startswith(reason)
    assert not broker.failures


class Endless(Advice):
    """Answers every answer by another request."""

    name = "endless"

    def on_request(self, at: At, client: str, value: Any) -> None:
        at.advertise("traffic")

    def on_received(self, at: At, message: m.ForClient) -> None:
        at.state.setdefault("heard", []).append(str(message))
        at.advertise("traffic")
        at.settle()


def test_rounds_are_bounded() -> None:
    wire = Wire(LINE, [Endless])
    asked = wire.ask_advice("b1/c", "endless", None)
    wire.run()
    assert wire.answer(asked) == m.Acknowledged(1)
    broker = wire.brokers["b1"]
    heard = broker.weaver.states["endless"]["heard"]
    # The first request waits for its confirmation, so that its rounds begin when that comes.
    assert heard[-1] == f"refused #{ROUNDS_MAX + 1}: it was asked for in round 9 of one input; accepted are 8"
    assert len(heard) == ROUNDS_MAX + 1
    assert broker.counters["rounds of advice that had no end"] == 1
    wire.subscribe("b1/c", "all")
    wire.run()
    assert len(wire.heard["b1/c"]) == 2


class Settled(Advice):
    """Subscribes when it settles, and settles when that is done."""

    name = "settled"

    def on_request(self, at: At, client: str, value: Any) -> None:
        for number in range(3):
            at.subscribe(f"s{number}", f"SELECT * FROM traffic WHERE speed < {number}")
        at.settle()

    def on_settled(self, at: At) -> None:
        at.state.setdefault("there", []).append(sorted(at.subscriptions("@settled")))


def test_settling_comes_after_all_requests() -> None:
    wire = Wire(LINE, [Settled])
    wire.ask_advice("b1/c", "settled", None)
    wire.run()
    assert wire.brokers["b1"].weaver.states["settled"] == {"there": [["s0", "s1", "s2"]]}


class Noisy(Advice):
    """Publishes again what comes in, once."""

    name = "noisy"

    def ad_add(self, at: At, proceed: Proceed, topic: str, peer: str) -> None:
        proceed()
        if peer != "@noisy":
            at.advertise(topic)

    def pub_send(
        self, at: At, proceed: Proceed, topic: str, events: pa.RecordBatch, matched: Matched, upstream: str
    ) -> None:
        proceed()
        text = "highway" if topic == "traffic" else "symbol"
        if "@noisy" not in events.column(text).to_pylist():
            at.publish(topic, pa.RecordBatch.from_pydict({text: ["@noisy"]}))

    def ad_del(self, at: At, proceed: Proceed, topic: str, peer: str) -> None:
        proceed()
        at.settle()

    def on_settled(self, at: At) -> None:
        at.state["settled"] = at.state.get("settled", 0) + 1


def test_events_of_several_topics_that_wait_are_forwarded_though_advice_publishes_meanwhile() -> None:
    desk, client = Desk(Broker("b1", ["b2"], Settings(schemas=SCHEMAS), [Noisy()])), Voice("c")
    neighbour = Voice("b2")
    ready = [Attached("c"), client.says(m.AdvertiseTopic(1, "traffic"), m.AdvertiseTopic(2, "stock"))]
    desk.hand(*ready, neighbour.says(m.Confirmed(1), m.Confirmed(2)))
    step = desk.hand(
        client.says(m.SubscribeTo(3, "t", "SELECT * FROM traffic"), m.SubscribeTo(4, "s", "SELECT * FROM stock")),
        client.says(
            m.PublishEvents(5, "traffic", pa.RecordBatch.from_pydict({"highway": ["401"]})),
            m.PublishEvents(6, "stock", pa.RecordBatch.from_pydict({"symbol": ["A"]})),
        ),
    )
    said = [str(one) for one in client.hears(step)]
    assert [line for line in said if line.startswith("deliver")] == [
        "deliver traffic: t b1/1",
        "deliver stock: s b1/2",
        "deliver traffic: t b1/3",
        "deliver stock: s b1/4",
    ]
    assert not desk.broker.failures


def test_a_neighbour_that_starts_anew_with_a_frame_that_is_missing_leaves_nothing_behind() -> None:
    desk, before, after = Desk(Broker("b1", ["b2"], Settings(schemas=SCHEMAS), [Noisy()])), Voice("b2"), Voice("b2", 2)
    desk.hand(before.says(m.Advertised("traffic", 1)))
    after.says(m.Confirmed(1))
    assert desk.outcome(after.says(m.Confirmed(2))).kind == "premature"
    assert desk.broker.weaver.states["noisy"] == {"settled": 1}


class Following(Advice):
    """Advertises what anybody subscribes to."""

    name = "following"

    def on_subscribed(self, at: At, client: str, name: str, query: Query) -> None:
        at.advertise(query.topic)


def test_an_answer_waits_for_what_other_advice_asks_for_because_of_the_request() -> None:
    wire = Wire(LINE, [Obeying, Following])
    wire.ask_advice("b1/c", "obeying", [["subscribe", "all", "SELECT * FROM traffic"]])
    wire.run()
    confirmed, told = "b2 -> b1 CONFIRM 1", "b1 -> b1/c inform obeying acknowledged #1"
    assert wire.trace.index("b1 -> b2 AD traffic") < wire.trace.index(confirmed) < wire.trace.index(told)


@pytest.mark.parametrize("again", [False, True])
def test_what_it_wanted_goes_with_it(again: bool) -> None:
    wire = Wire(LINE, catalogue=[Obeying])
    assert wire.hand("b1", AdviceAttached("obeying")).kind == "taken"
    assert wire.hand("b1", AdviceAttached("obeying")).kind == "repeated"
    wire.ask_advice("b1/c", "obeying", [["advertise", "traffic"], ["subscribe", "all", "SELECT * FROM traffic"]])
    wire.advertise("b3/p")
    wire.run()
    assert [str(one) for one in wire.brokers["b3"].routes("traffic").demands["b2"]] == ["TRUE"]
    assert wire.hand("b1", AdviceRemoved("obeying")).kind == "taken"
    wire.run()
    assert not wire.brokers["b3"].routes("traffic").demands["b2"]
    assert wire.brokers["b3"].routes("traffic").advertisers == {"b3/p"}
    assert "@obeying" not in wire.brokers["b1"].clients
    outcome = wire.hand("b1", AdviceRemoved("obeying"))
    assert outcome.reason == "unknown advice 'obeying'; known at broker 'b1' are none"
    if again:
        wire.hand("b1", AdviceAttached("obeying"))
        wire.ask_advice("b1/c", "obeying", [["advertise", "traffic"]])
        wire.run()
        assert wire.informed("b1/c")[-1] == "acknowledged #1"
