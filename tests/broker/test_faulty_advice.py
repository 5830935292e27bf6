"""Advice that asks for nonsense or returns it is reported, and the broker goes on as if it had only said proceed()."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from catchment.broker import messages as m
from catchment.broker.advice import Advice, At, Proceed
from catchment.broker.aggregation import Aggregation, AggregationOptions
from catchment.broker.broker import TIMER_TURNS_MAX, Broker, Settings
from catchment.broker.inputs import AdviceAttached, AdviceRemoved, Attached, Input, Woken
from catchment.broker.memory import freeze, restored
from catchment.broker.routing import Matched
from catchment.model.filter import Filter
from tests.broker.wire import SCHEMAS, Desk, Voice

SETTINGS = Settings(schemas=SCHEMAS)
EVERYTHING = "SELECT * FROM traffic"
WINDOWS = "SELECT count(*) FROM traffic WHERE speed > {} GROUP BY window(ts, '1 second')"


def events(*speeds: float, **columns: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"speed": pa.array(speeds, pa.float64()), **columns})


def at_times(*times_us: int) -> pa.Array:
    return pa.array(times_us, pa.timestamp("us", tz="UTC"))


def served(advice: Advice) -> tuple[Desk, Voice, list[m.Message]]:
    """A broker with an advice, whose client advertises, subscribes and publishes; and what the client hears."""
    desk, client, neighbour = Desk(Broker("b1", ["b2"], SETTINGS, [advice])), Voice("c"), Voice("b2")
    heard: list[m.Message] = []
    for items in (
        (Attached("c"), client.says(m.AdvertiseTopic(1, "traffic")), neighbour.says(m.Confirmed(1))),
        (client.says(m.SubscribeTo(2, "all", EVERYTHING)), Woken()),
        (client.says(m.PublishEvents(3, "traffic", events(1.0))), Woken()),
    ):
        heard += client.hears(desk.hand(*items, at_us=5))
    return desk, client, heard


def assert_all_is_well(desk: Desk, heard: list[m.Message], where: str) -> None:
    """The broker did what it does without the advice, and says where the advice failed."""
    assert [type(one).__name__ for one in heard] == ["Acknowledged"] * 3 + ["Delivered"]
    assert {one.where for one in desk.broker.failures} == {where}
    assert desk.broker.input_failures == ()
    list(freeze(desk.broker).pieces())


def two_events(**columns: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"event_id": ["a", "b"], "speed": [1.0, 2.0], **columns})


EVERY = Filter.parse("TRUE")
NONSENSE: dict[str, Callable[[At], object]] = {
    "watch an unknown topic": lambda at: at.watch("nope", 0, EVERY),
    "watch an unknown attribute": lambda at: at.watch("traffic", 0, Filter.parse("nope < 3")),
    "watch no filter": lambda at: at.watch("traffic", 0, "speed < 3"),  # type: ignore[arg-type]
    "watch by no number": lambda at: at.watch("traffic", "x", EVERY),  # type: ignore[arg-type]
    "unwatch an unknown topic": lambda at: at.unwatch("nope", 0),
    "wake soon": lambda at: at.wake("k", "soon"),  # type: ignore[arg-type]
    "wake without a key": lambda at: at.wake(None, 7),  # type: ignore[arg-type]
    "spend no number": lambda at: at.spend("w", "x"),  # type: ignore[arg-type]
    "forward an unknown topic": lambda at: at.forward("b2", "nope", two_events(), {}),
    "forward notes of another length": lambda at: at.forward("b2", "traffic", two_events(), {"n": pa.array([1])}),
    "forward notes of several lengths": lambda at: at.forward(
        "b2", "traffic", two_events(), {"n": pa.array([1]), "o": pa.array([1, 2])}
    ),
    "forward an event of 1 MB": lambda at: at.forward(
        "b2", "traffic", two_events(highway=["h" * 1_000_000, ""]), {"n": pa.array([1, 2])}
    ),
    "forward lists": lambda at: at.forward("b2", "traffic", two_events(highway=[[1], [2]]), {"n": pa.array([1, 2])}),
    "inform what no frame carries": lambda at: at.inform("c", object()),
    "inform nobody": lambda at: at.inform(["c"], 1),  # type: ignore[arg-type]
    "notify other columns": lambda at: at.notify("c", two_events()),
    "tell with strange counts": lambda at: at.tell("b2", 1, counts=("k", "x", 0)),  # type: ignore[arg-type]
    "report nothing": lambda at: at.report(None, "x"),  # type: ignore[arg-type]
    "fail while it is carried out": lambda at: at.asked.append(lambda: 1 // 0),  # type: ignore[arg-type,return-value]
}


@pytest.mark.parametrize("ask", NONSENSE.values(), ids=NONSENSE)
def test_what_cannot_be_done_is_refused_to_the_advice_that_asks(ask: Callable[[At], object]) -> None:
    class Asking(Advice):
        name = "asking"

        def pub_send(
            self, at: At, proceed: Proceed, topic: str, events: pa.RecordBatch, matched: Matched, upstream: str
        ) -> None:
            proceed()
            ask(at)

    desk, client, heard = served(Asking())
    assert_all_is_well(desk, heard, "pub_send")
    step = desk.hand(client.says(m.PublishEvents(4, "traffic", events(2.0))), Woken(), at_us=6)
    assert [type(one).__name__ for one in client.hears(step)] == ["Acknowledged", "Delivered"]


@pytest.mark.parametrize("ask", NONSENSE.values(), ids=NONSENSE)
def test_a_client_whose_request_leads_to_nonsense_is_refused(ask: Callable[[At], object]) -> None:
    class Asking(Advice):
        name = "asking"

        def on_request(self, at: At, client: str, value: Any) -> None:
            ask(at)

    desk, client = Desk(Broker("b1", ["b2"], SETTINGS, [Asking()])), Voice("c")
    step = desk.hand(Attached("c"), client.says(m.AskAdvice(1, "asking", b"\x01")))
    assert [type(one) for one in client.hears(step)] == [m.Refused]
    assert desk.broker.input_failures == ()


def returning(where: str, value: Any) -> Advice:
    return type("Returning", (Advice,), {"name": "returning", where: lambda *_: value})()


@pytest.mark.parametrize(
    ("where", "value"),
    [
        ("on_publish", "yes"),
        ("on_publish", np.zeros(7, np.bool_)),
        ("on_publish", np.zeros(1)),
        ("pub_match", None),
        ("pub_match", Matched(neighbours={"b2": np.array([7])})),
        ("pub_match", Matched(neighbours={"b2": ["x"]})),  # type: ignore[dict-item]
        ("sub_add", {"b2": 5}),
        ("sub_add", 5),
    ],
)
def test_what_makes_no_sense_as_a_result_is_not_used(where: str, value: Any) -> None:
    desk, _, heard = served(returning(where, value))
    assert_all_is_well(desk, heard, where)


def test_a_question_that_is_none_is_not_subscribed_to() -> None:
    desk, client = Desk(Broker("b1", [], SETTINGS, [returning("on_subscribe", 5)])), Voice("c")
    step = desk.hand(Attached("c"), client.says(m.SubscribeTo(1, "w", WINDOWS.format(1))))
    assert [type(one) for one in client.hears(step)] == [m.Refused]
    assert [one.where for one in desk.broker.failures] == ["on_subscribe"]


def test_arguments_that_make_no_sense_are_replaced_by_the_first_ones() -> None:
    class Replacing(Advice):
        name = "replacing"

        def pub_send(
            self, at: At, proceed: Proceed, topic: str, events: pa.RecordBatch, matched: Matched, upstream: str
        ) -> None:
            proceed(topic, events, "matched", upstream)

    desk, _, heard = served(Replacing())
    assert_all_is_well(desk, heard, "pub_send")


def test_notes_of_another_length_are_refused() -> None:
    class Noting(Advice):
        name = "noting"

        def pub_send(
            self, at: At, proceed: Proceed, topic: str, events: pa.RecordBatch, matched: Matched, upstream: str
        ) -> None:
            matched.note("noting", "b2", {"n": pa.array([1, 2, 3])})
            proceed()

    desk, _, heard = served(Noting())
    assert_all_is_well(desk, heard, "pub_send")


def test_what_the_broker_itself_fails_on_is_no_failure_of_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    class Proceeding(Advice):
        name = "proceeding"

        def ad_add(self, at: At, proceed: Proceed, topic: str, peer: str) -> None:
            proceed()

    def bug(*_: Any) -> None:
        calls.append(1)
        raise KeyError("a bug")

    calls: list[int] = []
    monkeypatch.setattr(Broker, "own_ad_add", bug)
    desk, client = Desk(Broker("b1", [], SETTINGS, [Proceeding()])), Voice("c")
    desk.hand(Attached("c"), client.says(m.AdvertiseTopic(1, "traffic")))
    assert desk.broker.failures == ()
    assert [one.where for one in desk.broker.input_failures] == ["AdvertiseTopic"]
    assert calls == [1]


def test_memory_and_sizes_that_raise_are_reported() -> None:
    class Raising(Advice):
        name = "raising"

        def saved(self) -> Any:
            raise RuntimeError("nothing to save")

        def sizes(self) -> dict[str, int]:
            raise RuntimeError("no size")

    desk = Desk(Broker("b1", [], SETTINGS, [Raising()]))
    list(freeze(desk.broker).pieces())
    assert desk.broker.table_sizes()["subscriptions"] == 0
    assert [one.where for one in desk.broker.failures] == ["saved", "sizes"]


def test_a_state_that_cannot_be_written_is_reported_and_harms_no_snapshot() -> None:
    class Odd(Advice):
        name = "odd"

        def on_client_attached(self, at: At, client: str) -> None:
            at.state["odd"] = object()

    desk = Desk(Broker("b1", [], SETTINGS, [Odd()]))
    desk.hand(Attached("c"))
    back = restored(freeze(desk.broker).pieces(), SETTINGS, [Odd()])
    assert back.clients == {"c"}
    assert back.weaver.states == {"odd": {}}
    assert [one.where for one in desk.broker.failures] == ["state"]


# -- timers -----------------------------------------------------------------------------------------------------------


class Hasty(Advice):
    """Sets a timer for a time from now, again and again."""

    name = "hasty"

    def __init__(self, after_us: int) -> None:
        self._after_us = after_us

    def on_begin(self, at: At) -> None:
        at.wake("k", at.now_us)

    def on_timer(self, at: At, key: str) -> None:
        at.state["called"] = [*at.state.get("called", []), at.now_us]
        at.wake("k", at.now_us + self._after_us)


@pytest.mark.parametrize("after_us", [0, -100])
def test_a_timer_that_sets_itself_for_now_is_called_once_an_input(after_us: int) -> None:
    desk = Desk(Broker("b1", [], SETTINGS, catalogue={"hasty": lambda: Hasty(after_us)}))
    desk.hand(AdviceAttached("hasty"), at_us=5)
    assert desk.timer_us == 5
    for at_us in (10, 10, 11, 20, 20):
        desk.hand(Woken(), at_us=at_us)
    assert desk.broker.weaver.states["hasty"]["called"] == [5, 11, 12]
    assert desk.timer_us == 21


def test_timers_of_one_input_have_an_end() -> None:
    desk = Desk(Broker("b1", [], SETTINGS, catalogue={"hasty": lambda: Hasty(1)}))
    desk.hand(AdviceAttached("hasty"), at_us=0)
    step = desk.hand(Woken(), at_us=TIMER_TURNS_MAX + 50)
    assert step.timer_us == TIMER_TURNS_MAX
    assert desk.broker.counters["timers put off to the next input"] == 1
    desk.hand(Woken(), at_us=TIMER_TURNS_MAX + 50)
    called = desk.broker.weaver.states["hasty"]["called"]
    assert called[:TIMER_TURNS_MAX] == list(range(TIMER_TURNS_MAX))
    assert desk.timer_us == TIMER_TURNS_MAX + 51


def test_events_are_not_joined_across_a_timer() -> None:
    class Witness(Advice):
        name = "witness"

        def on_subscribed(self, at: At, client: str, name: str, query: Any) -> None:
            at.wake("k", 10)

        def on_timer(self, at: At, key: str) -> None:
            at.state["seen"].append(f"timer at {at.now_us}")

        def pub_match(self, at: At, proceed: Proceed, topic: str, events: pa.RecordBatch) -> Matched:
            at.state.setdefault("seen", []).append(f"{events.num_rows} at {at.now_us}")
            found: Matched = proceed()
            return found

    broker, client = Broker("b1", [], SETTINGS, [Witness()]), Voice("c")
    desk = Desk(broker)
    desk.hand(Attached("c"), client.says(m.AdvertiseTopic(1, "traffic"), m.SubscribeTo(2, "all", EVERYTHING)))
    frames = [client.says(m.PublishEvents(number, "traffic", events(1.0))) for number in (3, 4, 5, 6)]
    broker.step([Input(one, at_us, 10 + at_us) for one, at_us in zip(frames, (5, 6, 15, 16), strict=True)])
    assert broker.weaver.states["witness"]["seen"] == ["2 at 6", "timer at 10", "2 at 16"]


# -- removed ----------------------------------------------------------------------------------------------------------


class Watching(Advice):
    """Watches a filter as long as it is attached."""

    name = "watching"

    def on_begin(self, at: At) -> None:
        at.watch("traffic", 0, Filter.parse("speed < 3"))
        at.watch("stock", 0, Filter.parse("price < 3"))

    def pub_send(
        self, at: At, proceed: Proceed, topic: str, events: pa.RecordBatch, matched: Matched, upstream: str
    ) -> None:
        at.state["rows"] = matched.watched["watching"][0].tolist()
        proceed()


def test_an_advice_that_is_removed_watches_nothing_any_more() -> None:
    desk, client = Desk(Broker("b1", [], SETTINGS, catalogue={"watching": Watching})), Voice("c")
    desk.hand(AdviceAttached("watching"), Attached("c"), client.says(m.AdvertiseTopic(1, "traffic")))
    desk.hand(AdviceRemoved("watching"))
    assert [routes.watched for routes in desk.broker.topics.values()] == [{}, {}]
    assert desk.outcomes(AdviceAttached("watching")) == ["taken"]
    desk.hand(client.says(m.PublishEvents(2, "traffic", events(1.0, 9.0, 2.0))))
    assert desk.broker.weaver.states["watching"]["rows"] == [0, 2]
    assert desk.broker.failures == ()


def test_a_filter_under_a_number_that_is_taken_replaces_the_one_before() -> None:
    class Twice(Watching):
        def on_begin(self, at: At) -> None:
            at.watch("traffic", 0, EVERY)
            at.watch("traffic", 0, Filter.parse("speed > 3"))

    desk, client = Desk(Broker("b1", [], SETTINGS, catalogue={"watching": Twice})), Voice("c")
    desk.hand(AdviceAttached("watching"), Attached("c"), client.says(m.AdvertiseTopic(1, "traffic")))
    desk.hand(client.says(m.PublishEvents(2, "traffic", events(1.0, 9.0))))
    assert desk.broker.weaver.states["watching"]["rows"] == [1]
    assert desk.broker.failures == ()


def test_aggregation_that_was_removed_and_attached_again_answers_again() -> None:
    catalogue = {"aggregation": lambda: Aggregation(AggregationOptions())}
    desk, client = Desk(Broker("b1", [], SETTINGS, catalogue=catalogue)), Voice("c")
    heard = client.hears(
        desk.hand(AdviceAttached("aggregation"), Attached("c"), client.says(m.AdvertiseTopic(1, "traffic")))
    )
    old = [m.SubscribeTo(2 + number, f"old{number}", WINDOWS.format(number)) for number in range(3)]
    heard += client.hears(desk.hand(client.says(*old)))
    heard += client.hears(
        desk.hand(
            AdviceRemoved("aggregation"),
            AdviceAttached("aggregation"),
            client.says(m.SubscribeTo(9, "new", WINDOWS.format(1))),
        )
    )
    for number, time_us in enumerate((100_000, 200_000, 5_000_000)):
        message = m.PublishEvents(10 + number, "traffic", events(50.0, ts=at_times(time_us)))
        heard += client.hears(desk.hand(client.says(message), at_us=time_us))
    assert [str(one) for one in heard if isinstance(one, m.Notified)] == ["notify new [0, 1000000) count(*) = 2"]
    heard = client.hears(desk.hand(client.says(*(m.UnsubscribeFrom(20 + at, one.name) for at, one in enumerate(old)))))
    assert [type(one) for one in heard] == [m.Acknowledged] * 3
    assert desk.broker.failures == ()
    assert desk.broker.input_failures == ()
    assert desk.broker.counters["questions from before aggregation was attached"] == 3
