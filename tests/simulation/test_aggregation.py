"""Aggregation in brokers: what it promises, what it refuses, and what it survives. One story each."""

from collections.abc import Sequence
from random import Random
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from catchment import Overlay, Subscription, oracle, simulate
from catchment.broker import messages as m
from catchment.broker.aggregation import Aggregation, AggregationOptions
from catchment.broker.broker import Broker, Settings
from catchment.broker.client import window_values
from catchment.broker.demands import AskedQuestion
from catchment.broker.hosting import Limits
from catchment.broker.inputs import Attached, Step
from catchment.broker.memory import freeze
from catchment.model.schema import Schema, Type
from catchment.model.window import Window
from catchment.oracle import differences
from catchment.simulation.checking import check_conduct, check_emptiness, check_notifications
from catchment.simulation.clients import Client
from catchment.simulation.options import CALM, Options
from catchment.simulation.world import World
from catchment.stages import PARTIAL_SCHEMA, Layout, Question, partials_to_bytes
from catchment.workloads import generate_traffic, traffic_subscriptions
from tests.broker.wire import Desk, Voice

SCHEMAS = {"t": Schema({"x": Type.INT, "road": Type.STRING})}
CHAIN = Overlay.from_links([("b1", "b2"), ("b2", "b3")])
SECOND_US = 1_000_000
COUNT = "SELECT count(*), sum(x) FROM t GROUP BY window(ts, '10 seconds')"
EVERY_PLACEMENT = ["late", "early", "adaptive", "selective", "coordinated", "cover"]


def batch_of(*events: tuple[float, int], named: str) -> pa.RecordBatch:
    """Seconds and values."""
    return pa.RecordBatch.from_pydict(
        {
            "event_id": [f"{named}-{at}" for at in range(len(events))],
            "ts": pa.array([int(second * SECOND_US) for second, _ in events], Type.TIMESTAMP.arrow),
            "x": pa.array([value for _, value in events], pa.int64()),
        }
    )


class Story:
    """A chain of three brokers, with publishers wherever one publishes and a subscriber at b3."""

    def __init__(self, placement: str = "early", options: Options = CALM, seed: int = 0, **how: Any) -> None:
        aggregating = AggregationOptions(placement=placement, **how)
        make = lambda: [Aggregation(aggregating)]  # noqa: E731
        settings = Settings(schemas=SCHEMAS, meters=True)
        self.world = World(CHAIN, settings, seed=seed, options=options, make_advice=make)
        self.subscriber = self.world.client("b3", "s")
        self._revises = aggregating.revises

    def subscribe(self, sql: str = COUNT, name: str = "s") -> str | None:
        """Why it was refused, if it was."""
        self.world.subscribe(self.subscriber, name, sql)
        self.rest()
        return self.subscriber.requests[-1].refused

    def publisher(self, broker: str) -> Client:
        found = self.world.clients.get(f"{broker}/p")
        if found is None:
            found = self.world.client(broker, "p")
            self.world.advertise(found, "t")
            self.rest()
        return found

    def publish(self, broker: str, *events: tuple[float, int]) -> tuple[str, ...]:
        """Seconds and values, published at the first of these times; the ids of those that came too late."""
        client = self.publisher(broker)
        self.world.run(max(self.world.timeline.now_us, int(events[0][0] * SECOND_US)))
        number = len(client.requests)
        self.world.publish(client, "t", batch_of(*events, named=f"{broker}-{number}"))
        self.rest(0.1)
        assert client.requests[number].refused is None
        return client.requests[number].dropped

    def rest(self, seconds: float = 1.0) -> None:
        """Let some time pass."""
        self.world.run(self.world.timeline.now_us + int(seconds * SECOND_US))

    def told(self, output: str = "count(*)", name: str = "s") -> list[tuple[float, str]]:
        """Beginnings of windows in seconds, and their values or what is wrong with them, as they came."""
        wish = self.subscriber.wishes[name]
        values = (one for _, one in wish.values if one.output == output)
        return [(one.start_us / SECOND_US, one.problem or one.exact) for one in values]

    def check(self) -> None:
        """In the end, when silence has closed every window, all is as it should be."""
        self.world.run()
        assert [*check_notifications(self.world, revises=self._revises), *check_conduct(self.world)] == []


@pytest.mark.parametrize("placement", EVERY_PLACEMENT)
def test_a_window_is_told_once_when_all_have_passed_its_end(placement: str) -> None:
    story = Story(placement)
    story.subscribe()
    story.publish("b1", (1, 5), (2, 6))
    story.publish("b2", (3, 7))
    story.publish("b1", (12, 1))
    assert story.told() == []  # b2 has not said yet that nothing before 10 s will come
    story.publish("b2", (13, 1))
    assert story.told() == [(0.0, "3")]
    assert story.told("sum(x)") == [(0.0, "18")]
    story.check()


def test_revisions_come_as_soon_as_something_is_known() -> None:
    story = Story("early", delivery="revisions")
    story.subscribe()
    story.publish("b1", (1, 5))
    story.publish("b2", (3, 7))
    story.publish("b1", (12, 1))
    # How many come depends on who collects for how long; each is all that is known so far.
    assert story.told()[-1] == (0.0, "2")
    assert story.publish("b2", (9, 2)) == ()  # late, but nobody has promised anything for b2
    story.rest(0.2)
    assert story.told()[-1] == (0.0, "3")
    revisions = [one.revision for _, one in story.subscriber.wishes["s"].values if one.output == "count(*)"]
    assert revisions == list(range(len(revisions)))
    story.check()


@pytest.mark.parametrize("placement", EVERY_PLACEMENT)
def test_windows_close_while_everybody_is_silent_and_then_nothing_is_sent(placement: str) -> None:
    story = Story(placement, idle_after_us=5 * SECOND_US)
    story.subscribe()
    story.publisher("b2")
    story.publish("b1", (1, 5))
    story.rest(30)
    assert story.told() == [(0.0, "1")]
    frames = story.world.tally.frames
    story.world.run()
    assert story.world.tally.frames == frames
    story.check()


@pytest.mark.parametrize("delivery", ["final", "revisions"])
@pytest.mark.parametrize("placement", EVERY_PLACEMENT)
def test_nobody_is_asked_for_a_time_that_has_not_come(placement: str, delivery: str) -> None:
    story = Story(placement, delivery=delivery)
    story.subscribe("SELECT count(*) FROM t GROUP BY window(ts, '10 minutes', '1 minute')")
    story.publisher("b1")
    story.publish("b2", (10, 1), (10, 1))
    story.publish("b2", (65, 1))
    assert story.publish("b1", (110, 1)) == ()
    story.check()


def test_an_event_behind_what_was_promised_is_named_and_goes_nowhere() -> None:
    story = Story()
    story.subscribe()
    story.subscribe("SELECT * FROM t", "all")
    story.publish("b1", (1, 5))
    story.publish("b1", (12, 5))
    assert story.told() == [(0.0, "1")]
    assert story.publish("b1", (9, 7), (11, 8)) == ("b1-3-0",)
    story.publish("b1", (21, 5))
    assert story.told() == [(0.0, "1"), (10.0, "2")]
    assert story.subscriber.wishes["all"].received == ["b1-1-0", "b1-2-0", "b1-3-1", "b1-4-0"]
    story.check()


def test_lateness_keeps_windows_open() -> None:
    story = Story(lateness_us=5 * SECOND_US)
    story.subscribe()
    story.publish("b1", (1, 5))
    story.publish("b1", (12, 5))
    assert story.told() == []
    assert story.publish("b1", (9, 7)) == ()
    story.publish("b1", (16, 5))
    assert story.told() == [(0.0, "2")]
    story.check()


def test_who_begins_to_publish_may_not_reach_back_into_closed_windows() -> None:
    story = Story()
    story.subscribe()
    story.publish("b1", (1, 5))
    story.publish("b1", (12, 5))
    assert story.told() == [(0.0, "1")]
    assert story.publish("b2", (5, 7), (13, 7)) == ("b2-1-0",)
    story.publish("b1", (21, 5))
    story.publish("b2", (22, 7))
    assert story.told() == [(0.0, "1"), (10.0, "2")]
    story.check()


def test_a_subscription_with_shorter_windows_that_comes_while_something_is_held() -> None:
    story = Story("cover")
    story.subscribe("SELECT count(*) FROM t GROUP BY window(ts, '30 seconds')")
    story.publish("b1", (1, 5))
    story.subscribe("SELECT count(*) FROM t GROUP BY window(ts, '10 seconds')", "t")
    story.publish("b1", (31, 5))
    story.publish("b1", (61, 5))
    assert story.told() == [(0.0, "1"), (30.0, "1")]
    assert story.told(name="t") == [(30.0, "1")]
    story.check()


def test_what_was_held_is_delivered_to_nobody_who_came_meanwhile() -> None:
    story = Story("cover")
    story.subscribe()
    story.publish("b1", (1, 5))
    story.subscribe("SELECT median(x) FROM t GROUP BY window(ts, '10 seconds')", "middle")
    story.subscribe("SELECT * FROM t", "all")
    story.publish("b1", (11, 5))
    assert story.told() == [(0.0, "1")]
    assert story.subscriber.wishes["all"].received == ["b1-2-0"]
    story.check()


def test_windows_that_began_before_a_subscription_are_left_out() -> None:
    story = Story()
    story.publish("b1", (1, 5))
    story.subscribe()
    story.publish("b1", (4, 5))
    story.publish("b1", (12, 5))
    story.publish("b1", (22, 5))
    assert story.told() == [(10.0, "1")]
    story.check()


@pytest.mark.parametrize("placement", EVERY_PLACEMENT)
def test_a_broker_that_crashes_with_partials_in_hand_goes_on_with_them(placement: str) -> None:
    story = Story(placement, options=Options(snapshot_every=3))
    story.subscribe()
    story.publish("b1", (1, 5), (2, 6))
    story.publish("b2", (3, 7))
    for broker in CHAIN.brokers:
        story.world.crash(broker, 100_000)
        story.rest()
    story.publish("b1", (12, 1))
    story.publish("b2", (13, 1))
    assert story.told() == [(0.0, "3")]
    assert all(node.restarts == 1 for node in story.world.nodes.values())
    story.check()


def test_a_subscription_that_goes_while_its_partials_travel() -> None:
    story = Story(options=Options(delay_us_min=50_000, delay_us_max=50_000))
    story.subscribe()
    story.publish("b1", (1, 5))
    client = story.publisher("b1")
    batch = pa.RecordBatch.from_pydict({"ts": pa.array([12 * SECOND_US], Type.TIMESTAMP.arrow), "x": [1]})
    story.world.publish(client, "t", batch.append_column("event_id", pa.array(["last"])))
    story.rest(0.08)  # the partial is on its way from b1 to b2
    story.world.unsubscribe(story.subscriber, "s")
    story.world.run()
    assert story.subscriber.past[0].values == []
    assert list(check_conduct(story.world)) == []
    story.world.unadvertise(client, "t")
    story.world.run()
    assert list(check_emptiness(story.world)) == []


def test_a_window_that_no_broker_could_hold_is_refused_with_the_figure() -> None:
    story = Story()
    refused = story.subscribe("SELECT approx_top_k(x, 3) FROM t GROUP BY window(ts, '1 day', '1 second')", "day")
    assert refused is not None
    assert "86400 slices, 18813945600 bytes for each group; accepted are at most 1073741824 bytes" in refused
    assert story.subscribe("SELECT avg(x) FROM t GROUP BY window(ts, '1 day', '1 second')", "fine") is None
    nobody = story.subscribe("SELECT avg(x) FROM t GROUP BY window(ts, '365 days', '1 millisecond')", "year")
    assert nobody is not None
    assert "each event in 31536000000 windows; accepted are up to 1000000" in nobody
    assert story.subscribe("SELECT avg(x) FROM t GROUP BY window(ts, '365 days')", "calm") is None
    assert story.world.nodes["b3"].broker.weaver.sizes()["questions asked"] == 2


@pytest.mark.parametrize(
    ("placement", "sql"),
    [
        ("early", "SELECT median(x) FROM t GROUP BY window(ts, '1 hour')"),
        ("early", "SELECT count(*) FROM t GROUP BY window(ts, '1 hour'), x"),
        ("cover", "SELECT sum(x) FROM t GROUP BY window(ts, '1 hour')"),
    ],
)
def test_open_windows_that_take_more_memory_than_they_may_are_reported(placement: str, sql: str) -> None:
    """Values that are collected, groups, and events that are held back grow with the events."""
    story = Story(placement, memory_bytes_max=7_000)
    assert story.subscribe(sql) is None
    for begin in range(0, 2_000, 100):
        story.publish("b1", *((begin + n, begin + n) for n in range(100)))
    (said,) = [
        text for what, text in story.world.nodes["b1"].broker.weaver.reports.items() if what.startswith("open windows")
    ]
    assert "topic 't' at b1: about " in said
    assert "expected are 7000" in said


class Alone:
    """One broker, whose neighbour b2 advertises and says whatever it is told to."""

    def __init__(self) -> None:
        self.broker = Broker("b1", ["b2"], Settings(schemas=SCHEMAS), [Aggregation(AggregationOptions())])
        self._desk, self._neighbour = Desk(self.broker), Voice("b2")
        self._desk.hand(self._neighbour.says(m.Advertised("t", 1)))

    def subscriber(self, sql: str = COUNT) -> Voice:
        """A client whose subscription all know."""
        client = Voice("b1/s")
        self._desk.hand(Attached("b1/s"), client.says(m.SubscribeTo(1, "s", sql)))
        client.hears(self._desk.hand(self._neighbour.says(m.Confirmed(1))))
        return client

    def say(self, message: m.Message) -> Step:
        return self._desk.hand(self._neighbour.says(message))

    def tell(self, value: Sequence[Any]) -> Step:
        return self.say(m.AdviceMessage("aggregation", msgspec.msgpack.encode(value)))


QUERY = Subscription("s", sql=COUNT).within(SCHEMAS)
WINDOW = Window(10 * SECOND_US, 10 * SECOND_US)
PARTS = sorted(AskedQuestion.of(QUERY, SCHEMAS["t"].with_implicit()).parts, key=lambda part: part.state)
COUNT_ID = Question("t", QUERY.where, Layout(WINDOW, ()), (), list(PARTS), [], "b1/1").id


def partials(question: int = COUNT_ID, **changed: Any) -> bytes:
    """One publication with x = 5 in the first window, with some columns of the second part changed."""
    tally: dict[str, Any] = {
        "question": question, "part": PARTS[0].id, "first": 0, "until_us": 0, "slices": [0], "publications": [1],
        **{name: [] for name in ("groups", "origins", "count", "whole", "low", "real", "rest", "blob")},
    }  # fmt: skip
    total = {**tally, "part": PARTS[1].id, "count": [1], "whole": [0], "low": [5], **changed}
    return partials_to_bytes(pa.RecordBatch.from_pylist([tally, total], PARTIAL_SCHEMA))


def test_partials_of_an_unknown_question_are_counted_and_left_out() -> None:
    one = Alone()
    broker = one.broker
    one.tell(["flow", "t", [partials(99)], None, 0])
    assert broker.counters["partials of unknown subscriptions"] == 1
    assert broker.weaver.reports["partials of unknown subscriptions"] == "99 from b2"
    assert broker.failures == ()
    one.tell(["flow", "nowhere", [], None, 0])
    assert broker.counters["messages about unknown topics"] == 1


def test_clocks_that_disagree_by_more_than_a_slice_are_reported() -> None:
    one = Alone()
    broker = one.broker
    one.subscriber()
    one.tell(["flow", "t", [], None, 9 * SECOND_US])
    assert broker.counters["clocks that disagree by more than a slice"] == 0
    one.tell(["flow", "t", [], None, 11 * SECOND_US])
    assert broker.counters["clocks that disagree by more than a slice"] == 1
    said = broker.weaver.reports["clocks that disagree by more than a slice"]
    assert said == "that of b2 is at least 11000000 microseconds ahead of that of b1"


@pytest.mark.parametrize("placement", ["adaptive", "selective", "coordinated"])
def test_nothing_is_lost_or_counted_twice_when_brokers_change_their_mode(placement: str) -> None:
    """Traffic comes in waves, so that forwarding pays now and aggregating then."""
    busy = generate_traffic(600, seed=1, duration_us=10 * SECOND_US, brokers=CHAIN.brokers)
    slow = generate_traffic(15, seed=2, duration_us=20 * SECOND_US, brokers=CHAIN.brokers)
    waves, at_us = [], 0
    for wave, length_us in ((slow, 20), (busy, 10), (slow, 20), (busy, 10)):
        times = wave.column("ts").cast(pa.int64()).to_numpy()
        shifted = pa.array(times - times.min() + at_us, Type.TIMESTAMP.arrow)
        waves.append(wave.set_column(wave.schema.get_field_index("ts"), "ts", shifted))
        at_us += length_us * SECOND_US
    events = pa.concat_tables(waves)
    drawn = traffic_subscriptions(12, seed=3, brokers=CHAIN.brokers, selectivity=0.3, window=("4 seconds", "2 seconds"))
    asked = [Subscription(name, at, sql=sql) for name, at, sql in drawn]
    found = simulate(events, overlay=CHAIN, subscriptions=asked, placement=placement)
    assert (
        differences(oracle(events, subscriptions=asked), found.notifications, found.deliveries, found.overflows) == []
    )
    assert found.transitions > 3


def _arrived(placement: str, delivery: Any) -> dict[tuple[str, int, str], int]:
    """When the last word about each window came."""
    calm = Options(delay_us_min=1_000, delay_us_max=1_000)
    events = generate_traffic(400, seed=5, duration_us=20 * SECOND_US, brokers=["b1", "b2"])
    drawn = traffic_subscriptions(12, seed=3, brokers=["b3"], selectivity=0.2, window=("4 seconds", "2 seconds"))
    asked = [Subscription(name, at, sql=sql) for name, at, sql in drawn]
    found = simulate(events, overlay=CHAIN, subscriptions=asked, placement=placement, delivery=delivery, options=calm)
    return {
        (one.subscription, one.start_us, one.output): came_us
        for client in found.world.clients.values()
        for wish in client.all_wishes
        for came_us, one in wish.values
    }


def test_cover_tells_nobody_later_than_early_does() -> None:
    """A partial leaves at the end of its slice anyway; holding publications till then delays nobody."""
    early, cover = (_arrived(placement, "final") for placement in ("early", "cover"))
    assert cover.keys() == early.keys()
    assert len(early) > 50
    assert all(came_us <= early[key] for key, came_us in cover.items())


def test_with_revisions_cover_is_sooner_than_early() -> None:
    """What was held goes on at once when its stride has ended; only partials that have come wait for others."""
    early, cover = (_arrived(placement, "revisions") for placement in ("early", "cover"))
    assert cover.keys() == early.keys()
    assert sum(cover.values()) < sum(early.values())


def test_a_publisher_who_comes_back_says_again_what_it_promised() -> None:
    story = Story(idle_after_us=5 * SECOND_US)
    story.subscribe()
    story.publish("b1", (45, 1))
    story.publish("b2", (98, 1))
    gone = story.publisher("b2")
    story.world.unadvertise(gone, "t")
    story.rest()
    story.world.advertise(gone, "t")
    story.rest()
    story.publish("b1", (99, 1))
    story.rest(60)
    assert story.told() == [(40.0, "1"), (90.0, "2")]
    story.check()


@pytest.mark.parametrize("delivery", ["final", "revisions"])
@pytest.mark.parametrize("placement", EVERY_PLACEMENT)
def test_a_publisher_who_comes_back_before_what_it_left_has_come(placement: str, delivery: str) -> None:
    story = Story(placement, Options(in_flight_max=1), delivery=delivery)
    story.subscribe()
    story.subscribe("SELECT * FROM t WHERE x > 100", "large")
    story.world.subscribe(story.world.client("b2", "s"), "there", COUNT)
    back, ahead = story.publisher("b2"), story.publisher("b3")
    story.world.cut("b2", "b3", SECOND_US)
    for second in range(3):
        story.world.publish(back, "t", batch_of((second, 5), (second, 200), named=f"back-{second}"))
    story.world.publish(ahead, "t", batch_of((30, 5), named="ahead"))
    story.rest(0.1)
    story.world.unadvertise(back, "t")
    story.world.advertise(back, "t")
    story.check()


@pytest.mark.parametrize("delivery", ["final", "revisions"])
@pytest.mark.parametrize("placement", EVERY_PLACEMENT)
def test_a_publisher_who_goes_while_its_link_is_full_takes_nothing_along(placement: str, delivery: str) -> None:
    limits = Limits(link_bytes_max=3_000)
    story = Story(placement, Options(in_flight_max=1, delay_us_max=100, limits=limits), delivery=delivery)
    story.subscribe("SELECT count(*) FROM t GROUP BY window(ts, '1 second')")
    client = story.publisher("b2")
    story.world.cut("b2", "b3", SECOND_US // 2)
    for second in range(6):
        story.world.publish(client, "t", batch_of((second, 5), named=str(second)))
        story.rest(0.005)
    story.world.unadvertise(client, "t")
    story.check()
    assert len(story.told()) == len(story.world.publications) > 1


def test_one_sum_beyond_64_bits_is_reported_and_silences_nobody_else() -> None:
    story = Story("cover")
    story.subscribe("SELECT sum(x) FROM t GROUP BY window(ts, '10 seconds')", "sum")
    story.subscribe("SELECT count(*) FROM t GROUP BY window(ts, '10 seconds')", "count")
    story.publish("b1", (1, 2**62), (2, 2**62), (3, 2**62))
    story.publish("b1", (12, 1))
    assert story.told("sum(x)", "sum") == [(0.0, f"it is {3 * 2**62}, beyond 64 bits")]
    assert story.told("count(*)", "count") == [(0.0, "3")]


def test_a_gap_of_a_year_in_event_time_takes_no_time() -> None:
    story = Story("adaptive", lateness_us=0)
    story.subscribe()
    story.publish("b1", (1, 5))
    story.publish("b1", (365 * 86_400, 5))
    story.rest(40)
    assert story.told() == [(0.0, "1"), (365 * 86_400.0, "1")]


def test_a_subscription_that_crosses_a_publisher_who_goes_leaves_out_what_came_before() -> None:
    """The answer to its question finds nobody any more, but the news that the publisher has gone says as much."""

    def event(name: str, second: float) -> pa.RecordBatch:
        times = pa.array([int(second * SECOND_US)], Type.TIMESTAMP.arrow)
        return pa.RecordBatch.from_pydict({"event_id": [name], "ts": times, "x": [1]})

    for seed in range(40, 60):
        story = Story(options=Options(delay_us_min=100, delay_us_max=100_000), seed=seed, idle_after_us=5 * SECOND_US)
        world, publisher = story.world, story.publisher("b1")
        world.publish(publisher, "t", event("e1", 1))
        world.run(2 * SECOND_US)
        world.unadvertise(publisher, "t")
        world.run(2 * SECOND_US + Random(seed).randint(0, 150_000))
        world.subscribe(story.subscriber, "s", COUNT)
        world.run(4 * SECOND_US)
        world.advertise(publisher, "t")
        world.run(5 * SECOND_US)
        world.publish(publisher, "t", event("e2", 5))
        world.run(6 * SECOND_US)
        world.publish(publisher, "t", event("e3", 12))
        story.check()


def test_nobody_is_asked_twice_for_the_same_time() -> None:
    story = Story(lateness_us=86_400 * SECOND_US)
    story.subscribe()
    story.publish("b1", (1, 5))
    story.publish("b2", (2, 5))
    story.publish("b1", (86_400, 5))
    story.world.run()
    assert story.world.tally.frames < 100
    story.check()


@pytest.mark.parametrize(
    "wrong",
    [
        "nonsense",
        b"nonsense",
        b"",
        partials(slices=[1]),
        partials(slices=[]),
        partials(slices=[0, 1]),
        partials(slices=[2**62]),
        partials(slices=[None]),
        partials(publications=[-1]),
        partials(publications=[2]),
        partials(publications=[1, 1]),
        partials(groups=["[]"]),
        partials(count=[2]),
        partials(count=[-1]),
        partials(whole=[]),
        partials(real=[1.5]),
        partials(blob=[b"x"]),
        partials()[:-40],
    ],
)
def test_a_partial_that_does_not_fit_is_left_out_and_harms_nobody(wrong: Any) -> None:
    one = Alone()
    broker = one.broker
    client = one.subscriber()
    one.tell(["flow", "t", [wrong], None, 0])
    assert broker.counters["partials that do not fit"] == 1
    step = one.tell(["flow", "t", [partials()], 10 * SECOND_US, 0])
    told = [message for message in client.hears(step) if isinstance(message, m.Notified)]
    assert [(value.exact, value.publications) for value in window_values(told[0])] == [("1", 1), ("5", 1)]
    assert broker.failures == ()
    assert list(freeze(broker).pieces())


@pytest.mark.parametrize(
    ("sql", "blob"),
    [
        ("SELECT median(x) FROM t GROUP BY window(ts, '10 seconds')", b"odd"),
        ("SELECT count(DISTINCT road) FROM t GROUP BY window(ts, '10 seconds')", b"\xc1"),
        ("SELECT approx_count_distinct(x) FROM t GROUP BY window(ts, '10 seconds')", b"no sketch"),
        ("SELECT percentile_approx(x, 0.5) FROM t GROUP BY window(ts, '10 seconds')", b"no sketch"),
        ("SELECT approx_top_k(road, 3) FROM t GROUP BY window(ts, '10 seconds')", b"no sketch"),
        ("SELECT max(road) FROM t GROUP BY window(ts, '10 seconds')", b"\xff"),
    ],
)
def test_bytes_that_are_no_state_are_left_out(sql: str, blob: bytes) -> None:
    one = Alone()
    one.subscriber(sql)
    asked = AskedQuestion.of(Subscription("s", sql=sql).within(SCHEMAS), SCHEMAS["t"].with_implicit())
    question = Question("t", asked.where, Layout(WINDOW, ()), (), [], [], "b1/1").id
    row = {
        "question": question, "part": asked.parts[0].id, "first": 0, "until_us": 0, "slices": [0],
        "publications": [1], "count": [1], "blob": [blob],
        **{name: [] for name in ("groups", "origins", "whole", "low", "real", "rest")},
    }  # fmt: skip
    one.tell(["flow", "t", [partials_to_bytes(pa.RecordBatch.from_pylist([row], PARTIAL_SCHEMA))], None, 0])
    assert one.broker.counters["partials that do not fit"] == 1
    assert one.broker.failures == ()


@pytest.mark.parametrize("promise_us", [2**62, -(2**62), 2**63])
def test_a_promise_of_no_time_that_there_is_closes_nothing(promise_us: int) -> None:
    one = Alone()
    client = one.subscriber()
    step = one.tell(["flow", "t", [partials()], promise_us, 0])
    assert one.broker.counters["promises of no time that there is"] == 1
    assert not [message for message in client.hears(step) if isinstance(message, m.Notified)]
    assert one.broker.failures == ()


def test_a_question_about_another_topic_is_counted_and_left_out() -> None:
    one = Alone()
    query = Subscription("s", sql="SELECT sum(y) FROM u GROUP BY window(ts, '10 seconds')")
    elsewhere = Schema({"y": "int"})
    asked = AskedQuestion.of(query.within({"u": elsewhere}), elsewhere.with_implicit())
    one.say(m.Subscribed("t", 1, (asked,)))
    assert one.broker.counters["demands that do not fit their topic"] == 1
    assert one.broker.weaver.sizes()["questions asked"] == 0
    one.tell(["sing", "t"])
    assert one.broker.counters["messages that nobody understands"] == 1
    assert one.broker.failures == ()
