"""One topic at one broker: what publications and partials set off, and what is told when."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from catchment import Subscription
from catchment.broker.aggregation import topic as topics
from catchment.broker.aggregation.crossing import ADVICE
from catchment.broker.aggregation.edges import Local
from catchment.broker.aggregation.marks import Marks, heard_marks
from catchment.broker.aggregation.options import AggregationOptions
from catchment.broker.aggregation.topic import Topic
from catchment.broker.demands import AskedQuestion
from catchment.broker.peers import HERE
from catchment.broker.routing import Matched
from catchment.stages import described_partials, partials_from_bytes
from tests.broker.aggregation.tools import COUNT, SCHEMA, SLIDING, TUMBLING, Ear, asked, events

NEIGHBOURS = ("left", "right")


class TopicBroker:
    """One topic at a broker between `left` and `right`, with a publisher `client`."""

    def __init__(self, placement: str = "early", **options: Any) -> None:
        self.topic = Topic("t", "t", SCHEMA, AggregationOptions(placement=placement, **options), "b", NEIGHBOURS)
        self._by_stride = placement == "cover"
        self.advertisers = {"client"}

    def ear(self, now_us: int = 0) -> Ear:
        return Ear(self.advertisers, NEIGHBOURS, now_us)

    def question(self, sql: str, name: str = "b/1") -> AskedQuestion:
        return asked(sql, "" if self._by_stride else name)

    def ask(self, side: str, sql: str = COUNT, name: str = "b/1", *, acknowledged: bool = True) -> int:
        """Let a question be asked on a side; its id."""
        question = self.question(sql, name)
        ear = self.ear()
        if side == HERE:
            wanted = Subscription("s", sql=sql).within({"t": SCHEMA}).aggregate
            assert wanted is not None
            self.topic.edge.locals[name] = Local("reader", "s", sql, wanted, self.topic.questions.id_of(question))
        self.topic.add(ear, question, side)
        if side == HERE and acknowledged:
            self.topic.edge.acknowledge("reader", "s")
        return self.topic.questions.id_of(question)

    def publish(self, *several: tuple[int, int], now_us: int = 0, upstream: str = "client") -> tuple[Ear, Matched]:
        """Take in events that all questions want; what that leads to, and where they go as they are."""
        ear, batch = self.ear(now_us), events(*several)
        if upstream == "client":
            self.topic.clock.accept(max(time_us for time_us, _ in several), now_us)
        rows = np.tile(np.arange(len(several)), len(self.topic.questions.by_id))
        numbers = np.repeat([one.number for one in self.topic.questions.by_id.values()], len(several))
        onwards = self.take_in(ear, batch, rows, numbers, upstream)
        self.topic.advance(ear)
        return ear, onwards

    def take_in(self, ear: Ear, batch: pa.RecordBatch, rows: Any, numbers: Any, upstream: str) -> Matched:
        """Take in events whose rows the questions of some numbers want."""
        matched = Matched(watched={ADVICE: (rows, 2 * numbers + self._by_stride)})
        return self.topic.take_in(ear, batch, matched, upstream, heard_marks(ear, upstream), {})

    def shown(self, ear: Ear) -> list[tuple[str, Any]]:
        """What neighbours were sent; partials by their states, behind them the promise."""
        parts = {
            part.id: part
            for one in self.topic.questions.by_id.values()
            for view in one.views.values()
            for part in view.question.parts
        }
        found: list[tuple[str, Any]] = []
        for side, value in ear.heard:
            if value[0] == "flow":
                _, _, pieces, promise_us, _ = value
                told = [described_partials(partials_from_bytes(data), parts).values() for data in pieces]
                found.append((side, [*(text for texts in told for text in texts), promise_us]))
            else:
                found.append((side, value))
        return found


def partials(*several: tuple[int, int], sql: str = COUNT) -> list[bytes]:
    """What a broker further up would tell of some events."""
    above = TopicBroker()
    above.ask("left", sql)
    above.publish(*several)
    ear, _ = above.publish((1_000, 0))
    return [data for _, value in ear.heard for data in value[2]]


def test_partials_go_with_the_promise_that_covers_them() -> None:
    one = TopicBroker()
    one.ask("left")
    first, onwards = one.publish((1, 5), (2, 6))
    assert (one.shown(first), onwards.neighbours) == ([("left", [0])], {})
    second, _ = one.publish((12, 7))
    assert one.shown(second) == [("left", ["count=2", 10])]
    assert second.counted[0][:2] == ("partials", 1)  # type: ignore[index]
    third, _ = one.publish((13, 7))
    assert third.heard == []  # no news


def test_events_that_were_held_go_ahead_of_partials_and_the_promise() -> None:
    one = TopicBroker("cover")
    one.ask("left")
    one.ask("left", f"SELECT count(*) FROM t WHERE x > 5 {TUMBLING}")
    one.publish((1, 7))
    ids = [known.number for known in one.topic.questions.by_id.values()]
    batch, ear = events((2, 5), (3, 5)), one.ear()
    one.take_in(ear, batch, np.arange(2), np.full(2, ids[0]), "client")
    due, _ = one.publish((12, 7))
    assert one.shown(due) == [("left", ["e1"]), ("left", ["count=2", 10])]


def test_a_promise_is_what_all_other_sides_have_promised() -> None:
    one = TopicBroker()
    one.ask("left")
    one.advertisers = {"client", "right", "left"}
    held, _ = one.publish((25, 5))
    assert held.heard == []
    ear = one.ear()
    one.topic.receive(ear, "right", partials((1, 5), (2, 5)), 10)
    one.topic.advance(ear)
    assert one.shown(ear) == [("left", ["count=2", 10])]


def test_an_event_behind_what_was_closed_before_its_request_is_not_admitted() -> None:
    one = TopicBroker()
    one.ask("left")
    assert one.topic.admit(one.ear(), np.array([1, 9]), np.array([0, 0])) is None
    # The second request closes the window [0, 10) for the third, not for itself.
    times, requests = np.array([5, 12, 8, 7, 13]), np.array([1, 2, 2, 3, 3])
    in_time = one.topic.admit(one.ear(), times, requests)
    assert in_time is not None
    assert in_time.tolist() == [True, True, True, False, True]
    assert one.topic.clock.latest_us == 13


def test_an_event_in_a_partial_from_further_up_is_not_counted_again() -> None:
    one = TopicBroker()
    one.advertisers = {"right"}
    key = one.ask("left")
    ear, batch = one.ear(), events((1, 5), (2, 6))
    ear.notes = Marks(np.array([0]), np.array([key])).columns(2)
    one.take_in(ear, batch, np.arange(2), np.zeros(2, np.int64), "right")
    due = one.ear()
    one.topic.receive(due, "right", [], 10)
    one.topic.advance(due)
    assert one.shown(due) == [("left", ["count=1", 10])]


def test_marks_that_make_no_sense_are_reported_and_the_events_taken() -> None:
    one = TopicBroker()
    one.advertisers = {"right"}
    one.ask("left")
    ear = one.ear()
    ear.notes = {}
    one.take_in(ear, events((1, 5)), np.array([0]), np.array([0]), "right")
    assert list(ear.reports) == ["marks that do not fit"]
    assert one.topic.sizes()["cells of open windows"] == 1


def test_who_asks_hears_up_to_when_events_came_before_and_others_hear_it_through_here() -> None:
    one = TopicBroker()
    one.publish((7, 5))
    key = one.ask("left")
    ear = one.ear()
    one.topic.answer_since(ear)
    assert ear.heard == [("left", ["since", "t", [key], 7])]
    one.topic.answer_since(ear)
    assert len(ear.heard) == 1
    news = one.ear()
    one.topic.learn_since(news, [key, 99], 9, "right")
    assert news.heard == [("left", ["since", "t", [key], 9])]
    back = one.ear()
    one.topic.learn_since(back, [key], 11, "left")
    assert back.heard == []


def test_partials_do_not_go_back_to_who_sent_them() -> None:
    one = TopicBroker()
    one.advertisers = {"left", "right"}
    for side in NEIGHBOURS:
        one.ask(side)
    ear = one.ear()
    one.topic.receive(ear, "right", partials((1, 5)), 10)
    one.topic.receive(ear, "left", [], 10)
    one.topic.advance(ear)
    assert one.shown(ear) == [("left", ["count=1", 10]), ("right", [10])]


def test_windows_that_began_before_all_brokers_knew_are_not_told() -> None:
    here, beyond = TopicBroker(), TopicBroker()
    here.publish((5, 1))
    for one in (here, beyond):
        key = one.ask(HERE, acknowledged=False)
        if one is beyond:
            one.topic.learn_since(one.ear(), [key], 5, "right")
        one.topic.edge.acknowledge("reader", "s")
        told = [one.publish((time_us, 5))[0].values for time_us in (6, 12, 20)]
        assert told == [{}, {}, {"reader": [("s", 10, "count(*)", "1", 0)]}]


def test_windows_for_clients_are_told_when_all_sides_have_promised_their_end() -> None:
    one = TopicBroker()
    one.advertisers = {"client", "right"}
    one.ask(HERE)
    one.topic.receive(one.ear(), "right", partials((1, 5), (2, 6)), 20)
    early, _ = one.publish((3, 5))
    assert early.values == {}
    due, _ = one.publish((10, 5))
    assert due.values == {"reader": [("s", 0, "count(*)", "3", 0)]}
    assert one.topic.clock.closed_us == 10


def test_with_revisions_things_are_told_by_the_clock() -> None:
    one = TopicBroker(delivery="revisions")
    one.ask("left")
    one.advertisers = {"client", "right"}  # the right promises nothing
    ear, _ = one.publish((1, 5), now_us=4)
    assert ear.timers["tell"] == 10
    due = one.ear(now_us=10)
    one.topic.expire(due, "left")
    assert one.shown(due) == [("left", ["count=1", None])]
    more, _ = one.publish((2, 5), now_us=11)
    assert more.timers["tell"] == 13  # publications took 3 us of late
    again = one.ear(now_us=13)
    one.topic.expire(again, "left")
    assert one.shown(again) == [("left", ["count=1", None])]


def test_more_partials_than_a_message_may_hold_go_in_several(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topics, "FLOW_BYTES_MAX", 300)
    one = TopicBroker()
    one.ask("left", f"SELECT count(*) FROM t {TUMBLING}, x")
    one.publish(*((1, value) for value in range(20)))
    ear, _ = one.publish((12, 0))
    flows = one.shown(ear)
    assert len(flows) > 1
    assert [told[-1] for _, told in flows] == [None] * (len(flows) - 1) + [10]
    assert sum(len(told) - 1 for _, told in flows) == 20
    assert sum(counts[1] for counts in ear.counted if counts is not None) == 20


def test_partials_of_a_question_that_has_gone_are_told_from_those_of_one_that_never_was() -> None:
    one = TopicBroker()
    one.ask("left")
    one.topic.remove(one.ear(), one.question(COUNT), "left")
    gone, unknown = one.ear(), one.ear()
    one.topic.receive(gone, "right", partials((1, 5)), None)
    assert list(gone.reports) == ["partials of subscriptions that have gone"]
    one.topic.receive(unknown, "right", partials((1, 5), sql=f"SELECT count(*) FROM t {SLIDING}"), None)
    assert list(unknown.reports) == ["partials of unknown subscriptions"]
    assert one.topic.sizes()["cells of open windows"] == 0


def test_filters_are_matched_while_somebody_asks() -> None:
    one = TopicBroker()
    ear = one.ear()
    for side in NEIGHBOURS:
        one.topic.add(ear, one.question(COUNT), side)
    assert list(ear.watched) == [0]
    one.topic.remove(ear, one.question(COUNT), "left")
    assert list(ear.watched) == [0]
    one.topic.remove(ear, one.question(COUNT), "right")
    assert ear.watched == {}
