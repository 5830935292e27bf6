"""Windowed aggregation as advice: who hears what, and when it is called. One real broker, and voices around it."""

from typing import Any

import msgspec
import pytest

from catchment.broker import messages as m
from catchment.broker.aggregation import Aggregation, AggregationOptions
from catchment.broker.broker import Broker, Settings
from catchment.broker.client import window_values
from catchment.broker.demands import AskedQuestion
from catchment.broker.inputs import Attached, Item, Woken
from tests.broker.aggregation.tools import COUNT, SCHEMA, SUM, TUMBLING, asked, events
from tests.broker.wire import Desk, Voice

NEIGHBOURS = ("left", "right")


class Between:
    """A broker `b` between `left` and `right`, with a subscriber `c` and a publisher `p`."""

    def __init__(self, **options: Any) -> None:
        schemas = {"t": SCHEMA}
        advice = Aggregation(AggregationOptions(**options))
        self.broker = Broker("b", NEIGHBOURS, Settings(schemas=schemas), [advice])
        self.desk = Desk(self.broker)
        self._voices = {name: Voice(name) for name in (*NEIGHBOURS, "c", "p")}
        self._requests = dict.fromkeys(("c", "p"), 0)
        self._confirmed: dict[str, set[int]] = {side: set() for side in NEIGHBOURS}
        self._changes: dict[str, set[int]] = {side: set() for side in NEIGHBOURS}
        self.heard: dict[str, list[m.Message]] = {}
        """By peer, what the last step had for it."""
        for client in self._requests:
            self.hand(Attached(client))

    def hand(self, item: Item, at_us: int = 0) -> None:
        step = self.desk.hand(item, at_us=at_us)
        self.heard = {name: voice.hears(step) for name, voice in self._voices.items()}
        for side in NEIGHBOURS:
            self._changes[side] |= {one.change for one in self.heard[side] if getattr(one, "change", 0)}  # type: ignore[union-attr]

    def say(self, who: str, message: m.Message, at_us: int = 0) -> None:
        self.hand(self._voices[who].says(message), at_us)

    def confirm(self) -> None:
        """Let neighbours confirm all that they have heard."""
        for side in NEIGHBOURS:
            for change in sorted(self._changes[side] - self._confirmed[side]):
                self._confirmed[side].add(change)
                self.say(side, m.Confirmed(change))

    def ask(self, client: str, kind: type[Any], *fields: Any, at_us: int = 0) -> None:
        self._requests[client] += 1
        self.say(client, kind(self._requests[client], *fields), at_us)

    def publish(self, *several: tuple[int, int], at_us: int = 0) -> None:
        """Publish events, after having advertised."""
        if not self._requests["p"]:
            self.ask("p", m.AdvertiseTopic, "t")
            self.confirm()
        self.ask("p", m.PublishEvents, "t", events(*several), at_us=at_us)

    def tell(self, neighbour: str, *value: Any) -> None:
        self.say(neighbour, m.AdviceMessage("aggregation", msgspec.msgpack.encode(value)))

    def told(self, neighbour: str) -> list[Any]:
        """What the advice has just said to itself at a neighbour."""
        return [msgspec.msgpack.decode(one.body) for one in self.heard[neighbour] if isinstance(one, m.AdviceMessage)]

    def values(self) -> list[tuple[str, int, str]]:
        """What the subscriber was just told: subscription, beginning of the window, value."""
        found = [window_values(one) for one in self.heard["c"] if isinstance(one, m.Notified)]
        return [(one.subscription, one.start_us, one.exact) for values in found for one in values]

    def asked(self, neighbour: str) -> list[AskedQuestion]:
        """The questions that a neighbour has just heard."""
        found = [one.added for one in self.heard[neighbour] if isinstance(one, m.Subscribed)]
        return [one for added in found for one in added if isinstance(one, AskedQuestion)]


@pytest.mark.parametrize(("placement", "whose"), [("early", ["b/1", "b/2"]), ("cover", [""])])
def test_subscriptions_share_a_question_where_partials_are_for_strides(placement: str, whose: list[str]) -> None:
    one = Between(placement=placement)
    one.say("left", m.Advertised("t", 1))
    found = []
    for name in ("s1", "s2"):
        one.ask("c", m.SubscribeTo, name, COUNT)
        found += one.asked("left")
    assert [question.subscription for question in found] == whose


def test_who_begins_to_advertise_hears_up_to_where_time_is_closed() -> None:
    one = Between()
    one.ask("c", m.SubscribeTo, "s", COUNT)
    one.publish((5, 1))
    one.say("left", m.Advertised("t", 1))
    assert one.told("left") == [["floor", "t", 0]]
    one.tell("left", "flow", "t", [], 12, 0)
    one.publish((15, 5))
    one.say("right", m.Advertised("t", 1))
    assert one.told("right") == [["floor", "t", 10]]


def test_a_floor_goes_on_to_other_advertisers_and_makes_older_events_late() -> None:
    one = Between()
    for side in NEIGHBOURS:
        one.say(side, m.Advertised("t", 1))
    one.tell("left", "floor", "t", 10)
    assert (one.told("left"), one.told("right")) == ([], [["floor", "t", 10]])
    one.publish((9, 5), (10, 5))
    assert one.heard["p"] == [m.Acknowledged(2, ("e9",))]


def test_a_question_is_answered_with_since_ahead_of_its_confirmation() -> None:
    one = Between()
    one.publish((7, 5))
    question = asked(COUNT, "far/1")
    one.say("left", m.Subscribed("t", 1, (question,)))
    assert one.told("left") == [["since", "t", [question.planned("t", SCHEMA).id], 7], ["flow", "t", [], 0, 0]]
    assert [type(message) for message in one.heard["left"]] == [m.AdviceMessage, m.AdviceMessage, m.Confirmed]


def test_a_publisher_who_goes_leaves_behind_how_far_its_events_came() -> None:
    """Who subscribes after that leaves out the windows that these events were in."""
    one, other = Between(), Between()
    one.publish((7, 5))
    one.ask("p", m.UnadvertiseTopic, "t")
    (gone,) = one.heard["left"]
    assert isinstance(gone, m.Unadvertised)
    other.say("left", m.Advertised("t", 1))
    other.say("left", m.Unadvertised("t", 2, gone.extras))
    other.ask("c", m.SubscribeTo, "s", COUNT)
    told = []
    for time_us in (8, 11, 21):
        other.publish((time_us, 5))
        told += other.values()
    assert told == [("s", 10, "1")]


def test_time_that_a_client_says_has_come_closes_windows() -> None:
    one = Between()
    one.ask("c", m.SubscribeTo, "s", SUM)
    one.publish((1, 5), (2, 6))
    one.ask("p", m.AdvanceTime, "t", 10)
    assert one.values() == [("s", 0, "11")]


def test_a_subscription_is_told_nothing_before_it_is_acknowledged() -> None:
    one = Between()
    one.say("left", m.Advertised("t", 1))
    one.confirm()
    one.ask("c", m.SubscribeTo, "s", COUNT)
    one.say("left", m.Published("t", events((1, 5))))
    one.tell("left", "flow", "t", [], 10, 0)
    assert one.values() == []
    one.confirm()
    one.say("left", m.Published("t", events((11, 5))))
    one.tell("left", "flow", "t", [], 20, 0)
    assert one.values() == [("s", 10, "1")]


def test_timers_lead_to_what_they_were_set_for() -> None:
    """A window that nobody closes is looked at, and a broker whose publishers are silent goes on by the clock."""
    one = Between(idle_after_us=100)
    one.say("left", m.Subscribed("t", 1, (asked(COUNT, "far/1"),)))
    one.publish((5, 1), at_us=1_000)
    assert one.desk.timer_us == 1_000 + (10 - 5) + 100
    told = []
    for _ in range(3):
        if one.desk.timer_us is not None:
            one.hand(Woken(), at_us=one.desk.timer_us)
            told += one.told("left")
    assert one.desk.timer_us is None
    assert [(what, len(pieces), promise_us) for what, _, pieces, promise_us, _ in told] == [("flow", 1, 10)]


def test_a_window_that_no_broker_could_hold_is_refused() -> None:
    one = Between(memory_bytes_max=1_000)
    one.ask("c", m.SubscribeTo, "s", f"SELECT approx_top_k(x, 3) FROM t {TUMBLING}")
    (refused,) = one.heard["c"]
    assert isinstance(refused, m.Refused)
    assert "accepted are at most 1000 bytes" in refused.reason
    assert one.broker.weaver.sizes()["questions asked"] == 0
