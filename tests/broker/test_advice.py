"""Joinpoints and advice: what an advice may do, and what the broker does without or in spite of it."""

from typing import Any, cast

import numpy as np
import pyarrow as pa
import pytest

from catchment import Filter, Overlay
from catchment.broker import messages as m
from catchment.broker.advice import JOINPOINTS, VALUE_BYTES_MAX, Advice, At, Proceed
from catchment.broker.broker import Broker, Settings
from catchment.broker.demands import AskedQuestion
from catchment.broker.inputs import (
    TAKEN,
    AdviceAttached,
    AdviceRemoved,
    Attached,
    Detached,
    Overrun,
    Parked,
    Posted,
    Received,
    Replied,
    Resumed,
    TopicPlaced,
    TopicsAdded,
    Woken,
)
from catchment.broker.memory import freeze, restored
from catchment.broker.routing import Before, Matched
from catchment.broker.store import StoreReply
from catchment.model.errors import ConfigurationError
from catchment.model.subscription import Query
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
        at.state["told before"] = {n: [str(f) for f in one.sent] for n, one in before.items()}
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


# -- clients and advice talk ----------------------------------------------------------------------------------------


class Board(Advice):
    """A note that a client puts up at one broker, and every broker has."""

    name = "board"

    def on_request(self, at: At, client: str, value: Any) -> None:
        if value == "read":
            at.inform(client, at.state.get("note"))
        elif value == "break":
            at.tell(at.neighbours[0], "never")
            raise KeyError("broken")
        elif not isinstance(value, str):
            at.tell(at.neighbours[0], "never")
            raise ConfigurationError(f"a note is {value!r}; accepted is a text")
        else:
            self._spread(at, value, "")

    def on_message(self, at: At, sender: str, value: Any) -> None:
        self._spread(at, value, sender)

    def _spread(self, at: At, note: str, sender: str) -> None:
        at.state["note"] = note
        for neighbour in at.neighbours:
            if neighbour != sender:
                at.tell(neighbour, note, confirmed=True)


def test_a_request_to_an_advice_is_acknowledged_once_all_that_it_set_off_is_confirmed() -> None:
    wire = Wire(LINE, [Board])
    note = wire.ask_advice("b1/c", "board", "closed today")
    wire.run()
    assert wire.answer(note) == m.Acknowledged(1)
    assert [_state(broker, "board")["note"] for broker in wire.brokers.values()] == ["closed today"] * 3
    assert wire.trace == [
        "b1/c -> b1 ask board closed today",
        "b1 -> b2 TELL board closed today",
        "b2 -> b3 TELL board closed today",
        "b3 -> b2 CONFIRM 1",
        "b2 -> b1 CONFIRM 1",
        "b1 -> b1/c acknowledged #1",
    ]


def test_an_advice_informs_a_client() -> None:
    wire = Wire(LINE, [Board])
    wire.ask_advice("b1/c", "board", "closed today")
    wire.run()
    wire.ask_advice("b3/c", "board", "read")
    wire.run()
    assert wire.informed("b3/c") == ["closed today"]
    assert "b3 -> b3/c inform board closed today" in wire.trace


@pytest.mark.parametrize(
    ("advice", "body", "reason"),
    [
        ("board", b"\x05", "a note is 5; accepted is a text"),
        ("board", b"\xa5break", "advice 'board' failed: KeyError: 'broken'"),
        ("bored", b"\x05", "unknown advice 'bored'; known at broker 'b1' are board, watching"),
        ("watching", b"\x05", "advice 'watching' takes no requests; those that do are board"),
        (
            "board",
            b"\xa9cut",
            "a value does not decode: DecodeError: Input data was truncated; accepted is MessagePack",
        ),
        ("board", b"\x81\x80\x01", "a value does not decode"),
        ("board", bytes(VALUE_BYTES_MAX + 1), f"a request has {VALUE_BYTES_MAX + 1} bytes; accepted are at most"),
    ],
)
def test_a_request_to_an_advice_is_refused_with_the_reason(advice: str, body: bytes, reason: str) -> None:
    desk, client = Desk(Broker("b1", ["b2"], Settings(schemas=SCHEMAS), [Board(), Watching()])), Voice("c")
    desk.hand(Attached("c"))
    step = desk.hand(client.says(m.AskAdvice(1, advice, body)))
    (answer,) = client.hears(step)
    assert isinstance(answer, m.Refused)
    assert answer.reason.startswith(reason)
    assert [send.to for send in step.sends] == ["c"]
    assert [one.where for one in desk.broker.failures] == ["on_request"] * ("failed" in reason)
    assert client.hears(desk.hand(client.says(m.AskAdvice(2, "board", b"\xa4read"))))[-1] == m.Acknowledged(2)


class Doorkeeper(Advice):
    name = "doorkeeper"

    def _note(self, at: At, *what: str) -> None:
        at.state.setdefault("seen", []).append([*what, *at.clients])

    def on_client_attached(self, at: At, client: str) -> None:
        self._note(at, "attached", client)

    def on_client_parked(self, at: At, client: str) -> None:
        self._note(at, "parked", client)

    def on_client_resumed(self, at: At, client: str) -> None:
        at.inform(client, "welcome back")
        self._note(at, "resumed", client)

    def on_client_detached(self, at: At, client: str) -> None:
        at.inform(client, "nobody hears this")
        self._note(at, "detached", client)


def test_an_advice_hears_of_clients_that_come_park_resume_and_go() -> None:
    desk = Desk(Broker("b1", [], Settings(schemas=SCHEMAS), [Doorkeeper()]))
    for item in (Attached("c"), Attached("d"), Parked("c"), Parked("c"), Resumed("c", 2), Detached("c")):
        step = desk.hand(item)
    assert desk.hand(Attached("d", 2), Overrun("d", 3)).outcomes == (TAKEN, TAKEN)
    assert not step.sends
    assert desk.outcome(Parked("e")).kind == "refused"
    assert _state(desk.broker, "doorkeeper")["seen"] == [
        ["attached", "c", "c"],
        ["attached", "d", "c", "d"],
        ["parked", "c", "c", "d"],
        ["resumed", "c", "c", "d"],
        ["detached", "c", "d"],
        ["detached", "d"],
        ["attached", "d", "d"],
        ["detached", "d"],
    ]


# -- what an advice hears of and may look at ------------------------------------------------------------------------


class Taking(Advice):
    """Answers every aggregate."""

    name = "taking"

    def on_subscribe(self, at: At, client: str, name: str, sql: str, query: Query) -> AskedQuestion:
        at.state["asked"] = at.state.get("asked", 0) + 1
        return AskedQuestion.of(query, SCHEMAS["traffic"].with_implicit())


class Listing(Advice):
    name = "listing"

    def on_subscribed(self, at: At, client: str, name: str, query: Query) -> None:
        at.state.setdefault("heard", []).append(["begins", client, name, query.topic, query.aggregate is None])

    def on_unsubscribed(self, at: At, client: str, name: str) -> None:
        at.state.setdefault("heard", []).append(["ends", client, name])


class ListingToo(Listing):
    name = "listing too"


WINDOW = "GROUP BY window(ts, '2 seconds', '2 seconds')"


@pytest.mark.parametrize(
    "order", [[Taking, Listing, ListingToo], [Listing, Taking, ListingToo], [ListingToo, Listing, Taking]]
)
def test_every_advice_hears_of_every_accepted_subscription(order: list[type[Advice]]) -> None:
    wire = Wire(LINE, order)
    wire.ask("b1/c", m.SubscribeTo, "counted", f"SELECT count(*) FROM traffic {WINDOW}")
    wire.subscribe("b1/c", "plain")
    wire.subscribe("b1/c", "plain")
    wire.subscribe("b1/c", "odd", "height > 4")
    wire.run()
    wire.unsubscribe("b1/c", "plain")
    wire.run()
    wire.hand("b1", Detached("b1/c"))
    for name in ("listing", "listing too"):
        assert _state(wire.brokers["b1"], name)["heard"] == [
            ["begins", "b1/c", "counted", "traffic", False],
            ["begins", "b1/c", "plain", "traffic", True],
            ["ends", "b1/c", "plain"],
            ["ends", "b1/c", "counted"],
        ]
    assert _state(wire.brokers["b1"], "taking") == {"asked": 1}


class Looking(Advice):
    name = "looking"

    def on_request(self, at: At, client: str, value: Any) -> None:
        what, *arguments = value
        if what == "clients":
            found: Any = {one: [at.topics(one), at.subscriptions(one)] for one in at.clients}
        else:
            found = list(map(str, at.demands(*arguments)))
        at.inform(client, found)


def test_an_advice_may_look_at_clients_and_at_the_filters_of_neighbours() -> None:
    wire = Wire(LINE, [Looking])
    wire.advertise("b2/p")
    wire.subscribe("b2/p", "slow", "speed < 50")
    wire.subscribe("b3/s", "slower", "speed < 90")
    wire.run()
    topics = set(wire.brokers["b2"].topics)
    for value in (["clients"], ["filters", "b3", "traffic"], ["filters", "b1", "traffic"], ["filters", "b1", "stock"]):
        wire.ask_advice("b2/p", "looking", value)
    wire.run()
    assert wire.informed("b2/p") == [
        {"b2/p": [["traffic"], {"slow": ["traffic", "SELECT * FROM traffic WHERE speed < 50"]}]},
        ["speed < 90.0D"],
        [],
        [],
    ]
    assert set(wire.brokers["b2"].topics) == topics, "looking changes nothing"
    unknown = [
        wire.ask_advice("b2/p", "looking", ["filters", *pair]) for pair in (("b9", "traffic"), ("b1", "weather"))
    ]
    wire.run()
    assert [str(wire.answer(one)) for one in unknown] == [
        "refused #7: 'b9' is no neighbour; there are b1, b3",
        "refused #8: unknown topic 'weather'; known are stock, traffic",
    ]


# -- settling -------------------------------------------------------------------------------------------------------


class Settling(Advice):
    """Tells a neighbour of what no subscription carried along."""

    name = "settling"

    def sub_add(self, at: At, proceed: Proceed, topic: str, condition: Filter, peer: str) -> dict[str, Before]:
        at.settle()
        at.settle()
        at.state["carried"] = []
        return cast("dict[str, Before]", proceed())

    def sub_send(self, at: At, proceed: Proceed, topic: str, added: tuple[Filter, ...], neighbour: str) -> None:
        at.state["carried"].append(neighbour)
        proceed()

    def on_settled(self, at: At) -> None:
        at.state["settled"] = at.state.get("settled", 0) + 1
        for neighbour in at.neighbours:
            at.tell(neighbour, neighbour in at.state["carried"], confirmed=True)


def test_settling_is_one_call_after_all_neighbours_were_told() -> None:
    wire = Wire(LINE, [Settling])
    wire.advertise("b1/p")
    wire.run()
    wire.trace.clear()
    wire.subscribe("b2/s", "all")
    wire.run()
    assert _state(wire.brokers["b2"], "settling")["settled"] == 1
    assert wire.desks["b2"].timer_us is None
    assert [line for line in wire.trace if line.startswith(("b2/s", "b2 -> b1 SUB", "b2 -> b1 T", "b2 -> b3"))] == [
        "b2/s -> b2 subscribe all: SELECT * FROM traffic WHERE TRUE",
        "b2 -> b1 SUB traffic [TRUE]",
        "b2 -> b1 TELL settling True",
        "b2 -> b3 TELL settling False",
    ]
    # The answer waits for what settling has set off.
    before = wire.trace[: wire.trace.index("b2 -> b2/s acknowledged #1")]
    assert {"b1 -> b2 CONFIRM 1", "b1 -> b2 CONFIRM 2", "b3 -> b2 CONFIRM 2"} <= set(before)


# -- what goes wrong ------------------------------------------------------------------------------------------------

MOMENTS = sorted(name for name in vars(Advice) if name.startswith("on_"))


class Broken(Advice):
    """Raises in every moment."""

    name = "broken"


def _break(moment: str) -> Any:
    def method(self: Broken, at: Any, *arguments: Any) -> Any:
        at.settle()
        at.advertise("traffic")
        raise RuntimeError(f"no {moment} today")

    return method


for _moment in MOMENTS:
    setattr(Broken, _moment, _break(_moment))


class Stumbling(Broken):
    """Asks for something at joinpoints, and raises when it comes."""

    name = "stumbling"

    def sub_add(self, at: At, proceed: Proceed, topic: str, condition: Filter, peer: str) -> dict[str, Before]:
        at.settle()
        at.advertise("stock")
        at.wake("soon", at.now_us)
        at.read("key")
        for neighbour in at.neighbours:
            at.tell(neighbour, 1)
        return cast("dict[str, Before]", proceed())


def test_an_advice_that_raises_in_any_moment_is_reported_and_the_broker_goes_on() -> None:
    wire = Wire(LINE, [Stumbling], catalogue=[Broken])
    wire.hand("b2", AdviceAttached("broken"))
    wire.advertise("b2/p")
    wire.subscribe("b2/p", "all")
    wire.run()
    wire.ask("b2/p", m.SubscribeTo, "counted", f"SELECT count(*) FROM traffic {WINDOW}")
    wire.ask("b2/p", m.AdvanceTime, "traffic", 5)
    wire.ask_advice("b2/p", "broken", 1)
    wire.publish("b2/p", 1, 2)
    wire.unsubscribe("b2/p", "all")
    wire.run()
    assert wire.delivered("b2/p", "all") == ["b2/1", "b2/2"]
    wire.hand("b2", Replied(StoreReply(1, b"\x01", 1)))
    assert wire.hand("b2", Posted("traffic", b"{}")).kind == "refused"
    assert wire.hand("b2", TopicsAdded({"weather": {"rain": "float"}})) == TAKEN
    assert wire.hand("b2", TopicPlaced("weather", "late")) == TAKEN
    assert wire.hand("b2", Voice("b1", incarnation=2).says(m.RoomChanged(is_full=False))) == TAKEN
    wire.hand("b2", Attached("b2/q"))
    for item in (Parked("b2/q"), Resumed("b2/q", 2), Detached("b2/q"), AdviceRemoved("broken")):
        assert wire.hand("b2", item) == TAKEN
    failed = {(one.where, one.error) for broker in wire.brokers.values() for one in broker.failures}
    assert failed == {(moment, f"RuntimeError: no {moment} today") for moment in MOMENTS}


class Greedy(Advice):
    """Sends what no frame takes."""

    name = "greedy"

    def ad_add(self, at: At, proceed: Proceed, topic: str, peer: str) -> None:
        proceed()
        at.tell("b2", "x" * VALUE_BYTES_MAX)

    def ad_send(self, at: At, proceed: Proceed, topic: str, neighbour: str) -> None:
        proceed()
        at.attach("x" * 20_000)


def test_values_that_no_frame_takes_are_refused_to_the_advice() -> None:
    wire = Wire(LINE, [Greedy])
    advertised = wire.advertise("b1/p")
    wire.run()
    assert wire.answer(advertised) == m.Acknowledged(1)
    assert [one.error for one in wire.brokers["b1"].failures] == [
        f"ConfigurationError: a value of an advice has {count} bytes; accepted are at most {most}"
        for count, most in ((VALUE_BYTES_MAX + 5, VALUE_BYTES_MAX), (20_003, 10_000))
    ]


def test_a_value_in_the_store_that_does_not_decode_is_reported() -> None:
    wire = Wire(LINE, [Stumbling])
    wire.subscribe("b2/s", "all")
    wire.run()
    outcome = wire.hand("b2", Replied(StoreReply(1, b"\xc1", 1)))
    assert outcome.kind == "refused"
    assert outcome.reason.startswith("a value does not decode")


class Extra(Advice):
    name = "extra"

    def sub_add(self, at: At, proceed: Proceed, topic: str, condition: Filter, peer: str) -> dict[str, Before]:
        at.state["notes"] = at.notes
        return cast("dict[str, Before]", proceed())


def test_what_rode_along_on_events_that_do_not_fit_is_gone_with_them() -> None:
    desk, client, neighbour = Desk(Broker("b1", ["b2"], Settings(schemas=SCHEMAS), [Extra()])), Voice("c"), Voice("b2")
    odd = pa.RecordBatch.from_pydict({"event_id": ["e"], "speed": ["fast"]})
    desk.hand(Attached("c"), client.says(m.SubscribeTo(1, "slow", "SELECT * FROM traffic WHERE speed < 50")))
    notes = pa.RecordBatch.from_pydict({"extra/said": [5]})
    desk.hand(neighbour.says(m.Published("traffic", odd, notes)))
    assert desk.broker.counters == {"batches that do not fit their topic": 1}
    desk.hand(client.says(m.SubscribeTo(2, "all", "SELECT * FROM traffic")))
    assert _state(desk.broker, "extra") == {"notes": None}


def test_an_unknown_joinpoint_is_refused() -> None:
    class Odd(Advice):
        name = "odd"

        def sub_remove(self, at: Any, proceed: Any, *arguments: Any) -> None:
            proceed()

    with pytest.raises(ConfigurationError, match="unknown joinpoint 'sub_remove'; there are ad_add, ad_del"):
        Broker("b1", [], Settings(schemas=SCHEMAS), [Odd()])
    with pytest.raises(ConfigurationError, match="named 'silent'"):
        Broker("b1", [], Settings(schemas=SCHEMAS), [Silent(), Silent()])


class Spotting(Advice):
    """Sees which events are fast, and whatever else is asked for at run time."""

    name = "spotting"

    def ad_add(self, at: At, proceed: Proceed, topic: str, peer: str) -> None:
        proceed()
        at.watch(topic, 1, Filter.parse("speed > 50"))
        at.watch(topic, 2, Filter.parse("speed > 90"))

    def ad_del(self, at: At, proceed: Proceed, topic: str, peer: str) -> None:
        proceed()
        at.unwatch(topic, 2)

    def pub_send(
        self, at: At, proceed: Proceed, topic: str, events: pa.RecordBatch, matched: Matched, upstream: str
    ) -> None:
        proceed()
        rows, numbers = matched.watched.get(self.name, (np.zeros(0), np.zeros(0)))
        at.state["seen"] = sorted(zip(rows.tolist(), numbers.tolist(), strict=True))


@pytest.mark.parametrize("count", [1, 40])
def test_filters_of_advice_are_matched_in_the_same_pass(count: int) -> None:
    """Few pairs and many are told alike, also by a broker that was brought back; and no neighbour hears of them."""
    desk, neighbour = Desk(Broker("b1", ["b2"], Settings(schemas=SCHEMAS), [Spotting()])), Voice("b2")
    client = Voice("c")
    desk.hand(Attached("c"), client.says(m.SubscribeTo(1, "all", "SELECT * FROM traffic")))
    desk.hand(neighbour.says(m.Advertised("traffic", 1)))
    speeds = [40.0, 60.0, 95.0] * count
    ids, times = [f"e{at}" for at in range(len(speeds))], pa.array([1] * len(speeds), pa.timestamp("us", tz="UTC"))
    events = pa.RecordBatch.from_pydict({"event_id": ids, "ts": times, "speed": speeds})
    expected = [(row, one) for row, speed in enumerate(speeds) for one in (1, 2) if speed > (50, 90)[one - 1]]
    back = Desk(restored(freeze(desk.broker).pieces(), Settings(schemas=SCHEMAS), [Spotting()]))
    again = Voice("b2")
    again.sequence = neighbour.sequence
    for one, voice in ((desk, neighbour), (back, again)):
        one.hand(voice.says(m.Published("traffic", events)))
        assert _state(one.broker, "spotting")["seen"] == expected
        assert len(one.broker.routes("traffic").summaries["b2"].sent) == 1
    desk.hand(neighbour.says(m.Unadvertised("traffic", 2)), neighbour.says(m.Published("traffic", events)))
    assert _state(desk.broker, "spotting")["seen"] == [pair for pair in expected if pair[1] == 1]
