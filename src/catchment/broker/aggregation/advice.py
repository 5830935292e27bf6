"""Windowed aggregation as advice: who hears what, and when it is called.

    SUB of a question     "since"   back to the subscriber's broker: the last event that came in before it was known
    AD                    "floor"   towards the publisher: up to where time is closed
    PUB                   marks     which subscriptions have it in a partial already
    partials              "flow"    with the events, with the promise that covers them
    silence               "want"    towards those whose time is behind
    adaptation            "ahead"   on how many links more publications cost, if neighbours coordinate

Rule 1: control arrives in order, and a confirmation comes after all that the confirmed change set off: so when a
        subscription is acknowledged, its broker has heard every "since", and a publisher every "floor".
Rule 2: a topic has a `Topic` for each grain of partials that anybody asks for. If its placement changes to the other
        grain, the subscriber's broker asks for each subscription in that as well, and draws a line once it is
        acknowledged: windows that begin before are answered by the first question, which is then taken back, and later
        ones by the second. Neither could have told the other's: the line is behind all that was told or heard of.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, ClassVar

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from catchment.broker.advice import OWN, Advice, At, Proceed
from catchment.broker.aggregation.clocks import NEVER
from catchment.broker.aggregation.crossing import ADVICE
from catchment.broker.aggregation.edges import Local
from catchment.broker.aggregation.marks import Marks, heard_marks
from catchment.broker.aggregation.options import AggregationOptions
from catchment.broker.aggregation.topic import Topic
from catchment.broker.demands import AskedQuestion, Demand
from catchment.broker.peers import HERE
from catchment.broker.routing import Before, Matched
from catchment.model.errors import SubscriptionError
from catchment.model.events import event_times_us
from catchment.model.schema import Schema
from catchment.model.subscription import Query
from catchment.stages import CELL_BYTES, SeriesName, state_bytes_max

__all__ = ["Aggregation"]

_OTHER = "\x1e"
"""Before the name of a topic in messages and timers about partials of the grain that the overlay did not begin with."""


class Aggregation(Advice):
    """Answers aggregate subscriptions, together with itself at all other brokers."""

    name = ADVICE

    def __init__(self, options: AggregationOptions) -> None:
        self._options = options
        self._grain = options.strategy().grain
        self._topics: dict[str, Topic] = {}
        """By topic; what is of the grain that the overlay did not begin with has `_OTHER` before its name."""
        self._last = 0
        self._changed: dict[Topic, None] = {}
        """Topics to look at again; empty between inputs."""
        self._unplaced: dict[str, None] = {}
        """Topics whose subscriptions may have to be asked in another grain; empty between inputs."""

    def _topic(self, at: At, key: str) -> Topic:
        """A topic, as far as it is about partials of one grain."""
        if key not in self._topics:
            name = key.removeprefix(_OTHER)
            grain = self._grain if key == name else ("window" if self._grain == "stride" else "stride")
            options = self._options_of(at.placements.get(name), grain)
            made = self._topics[key] = Topic(name, key, at.schemas[name], options, at.broker, at.neighbours)
            for other in self._grains(name):
                if other is not made:
                    made.clock.follow(other.clock)
        return self._topics[key]

    def _grains(self, name: str) -> list[Topic]:
        """All that there is of a topic: that whose partials are for windows before that whose are for strides."""
        found = [self._topics[key] for key in (name, _OTHER + name) if key in self._topics]
        return sorted(found, key=lambda one: one.grain == "stride")

    def _key(self, name: str, grain: str) -> str:
        return name if grain == self._grain else _OTHER + name

    def _options_of(self, placed: str | None, grain: str) -> AggregationOptions:
        """How a topic is aggregated where partials are of a grain: as it is placed, if that is of this grain."""
        for placement in (placed, self._options.placement, "early", "cover"):
            if placement is not None:
                options = replace(self._options, placement=placement)
                if options.strategy().grain == grain:
                    return options
        raise AssertionError(grain)

    def _asked_grain(self, at: At, name: str) -> str:
        """Of which grain partials are for who subscribes now."""
        return replace(self._options, placement=at.placements.get(name, self._options.placement)).strategy().grain

    # -- placements -------------------------------------------------------------------------------------------------

    def on_topic_placed(self, at: At, topic: str, placement: str) -> None:
        replace(self._options, placement=placement)  # which refuses what is none
        for here in self._grains(topic):
            here.place(self._options_of(placement, here.grain).strategy())
        self._unplaced[topic] = None
        at.settle()

    def _move(self, at: At, name: str) -> None:
        """Ask for all subscriptions of a topic in the grain of its placement that are asked in the other one."""
        wanted = self._asked_grain(at, name)
        for here in self._grains(name):
            for key, local in here.edge.locals.items():
                if here.grain != wanted and local.is_acknowledged and not local.is_moving:
                    local.is_moving = True
                    at.subscribe(key, local.sql)

    def _asked_again(self, at: At, key: str) -> Local | None:
        """The subscription that is asked in another grain under a key, unless it has gone."""
        found = (here.edge.locals.get(key) for here in self._topics.values())
        return next((one for one in found if one is not None), None)

    def _begin_other(self, at: At, own: str) -> None:
        """All brokers know a subscription in another grain: which windows it answers is decided here and now."""
        old = self._asked_again(at, own)
        new = next(
            ((here, key) for here in self._topics.values() for key, one in here.edge.locals.items() if one.own == own),
            None,
        )
        if new is None:
            return
        here, key = new
        if old is None:
            here.edge.drop(key)
            at.unsubscribe(own)
            return
        cut_us = max(here.edge.locals[key].since_us, *(one.last_told_us() + 1 for one in self._grains(here.name)))
        next(one for one in self._topics.values() if own in one.edge.locals).edge.leave_at(own, cut_us)
        here.edge.begin_whole(key, cut_us)
        for one in self._grains(here.name):
            self._settle(at, one)

    def _leave(self, at: At, here: Topic) -> None:
        """Demand no more for subscriptions whose windows another grain answers from now on."""
        left = here.left(at)
        for key in left:
            local = here.edge.drop(key)
            if local.own:
                at.unsubscribe(local.own)
            else:
                at.let_go(local.client, local.name)
            self._unplaced[here.name] = None
        if left:
            # Others may wait for a later end, which nobody has asked for yet.
            here.silence.watch(at)

    def on_topic_added(self, at: At, topic: str, schema: Schema) -> None:
        for here in self._grains(topic):
            here.extend(schema)

    # -- subscriptions ----------------------------------------------------------------------------------------------

    def on_subscribe(self, at: At, client: str, name: str, sql: str, query: Query) -> AskedQuestion:
        assert query.aggregate is not None
        grain = self._asked_grain(at, query.topic)
        here = self._topic(at, self._key(query.topic, grain))
        key = f"{at.broker}/{self._last + 1}"
        asked = AskedQuestion.of(query, here.questions.schema, "" if grain == "stride" else key)
        self._require_memory(name, asked)
        self._last += 1
        local = Local(client, name, sql, query.aggregate, here.questions.id_of(asked))
        if client == OWN + ADVICE:
            before = self._asked_again(at, name)
            if before is None:
                raise SubscriptionError(f"subscription {name!r} has gone; accepted are those that are there")
            local.client, local.name, local.own = before.client, before.name, name
            local.first_us = before.whole_us
        here.edge.locals[key] = local
        return asked

    def _require_memory(self, name: str, asked: AskedQuestion) -> None:
        window = asked.layout.window
        states = sum(state_bytes_max(part.state) + CELL_BYTES for part in asked.parts)
        need = window.span * states
        most = self._options.memory_bytes_max
        if need > most:
            raise SubscriptionError(
                f"subscription {name!r}: its window of {window.size_us} microseconds every {window.shift_us} is "
                f"{window.span} slices, {need} bytes for each group; accepted are at most {most} bytes: "
                "a shorter window, or a longer shift"
            )

    def sub_add(self, at: At, proceed: Proceed, topic: str, demand: Demand, peer: str) -> dict[str, Before]:
        before: dict[str, Before] = proceed()
        if isinstance(demand, AskedQuestion):
            here = self._topic(at, self._key(topic, "window" if demand.subscription else "stride"))
            here.add(at, demand, peer if peer in at.neighbours else HERE)
            self._settle(at, here)
        return before

    def sub_del(self, at: At, proceed: Proceed, topic: str, demand: Demand, peer: str) -> dict[str, Before]:
        before: dict[str, Before] = proceed()
        if isinstance(demand, AskedQuestion):
            here = self._topic(at, self._key(topic, "window" if demand.subscription else "stride"))
            here.remove(at, demand, peer if peer in at.neighbours else HERE)
            self._settle(at, here)
        return before

    def _settle(self, at: At, here: Topic) -> None:
        """Look at a topic again once all that this input asks or takes back is known."""
        self._changed[here] = None
        at.settle()

    def on_settled(self, at: At) -> None:
        changed, self._changed = self._changed, {}
        for here in changed:
            here.answer_since(at)
            here.advance(at)
            self._leave(at, here)
        unplaced, self._unplaced = self._unplaced, {}
        for name in unplaced:
            self._move(at, name)

    def _advance(self, at: At, here: Topic) -> None:
        here.advance(at)
        self._look_who_leaves(at, here)

    def _look_who_leaves(self, at: At, here: Topic) -> None:
        """Let subscriptions leave whose time has come, once neighbours know all else that this input leads to."""
        if here.left(at):
            self._settle(at, here)

    def on_acknowledged(self, at: At, client: str, name: str) -> None:
        if client == OWN + ADVICE:
            self._begin_other(at, name)
            return
        for here in self._topics.values():
            if here.edge.acknowledge(client, name) and here.grain != self._asked_grain(at, here.name):
                self._unplaced[here.name] = None
                at.settle()

    def on_unsubscribed(self, at: At, client: str, name: str) -> None:
        for here in self._topics.values():
            for local in here.edge.unsubscribe(client, name):
                if local.own:
                    at.unsubscribe(local.own)

    def on_request(self, at: At, client: str, value: Any) -> None:
        """A client asks which windows of its subscription do not come by themselves, and how far time has passed them.

        The answer is from when on windows do, the end of the last that does not, and the last end that has passed.
        """
        try:
            name, end_us = msgspec.convert(value, tuple[str, int])
        except msgspec.ValidationError as error:
            raise SubscriptionError(f"{str(value)[:80]!r} is asked; accepted is a name and a time: {error}") from None
        for here in self._topics.values():
            local = here.edge.local_of(client, name)
            if local is not None:
                at.inform(client, [name, *here.passed(at, local, end_us)])
                return
        raise SubscriptionError(f"client {client!r} has no aggregate subscription {name!r}; accepted are its own")

    # -- advertisements ---------------------------------------------------------------------------------------------

    def ad_add(self, at: At, proceed: Proceed, topic: str, peer: str) -> None:
        proceed()
        for here in self._grains(topic) or [self._topic(at, topic)]:
            if peer in at.neighbours:
                closed_us = here.clock.closed_us
                if closed_us > NEVER:
                    at.tell(peer, ["floor", here.key, closed_us])
                    here.clock.heard[peer] = max(here.clock.heard.get(peer, NEVER), closed_us)
            elif here.clock.arrived_us == NEVER:
                here.clock.arrived_us = at.now_us
            here.silence.peers_changed(at)
            self._advance(at, here)

    def ad_del(self, at: At, proceed: Proceed, topic: str, peer: str) -> None:
        proceed()
        for here in self._grains(topic) or [self._topic(at, topic)]:
            if peer in at.neighbours:
                here.clock.heard.pop(peer, None)
                if at.attached is not None:
                    here.clock.past_us = max(here.clock.past_us, at.attached)
                    here.edge.begin_after(at.attached)
            here.silence.peers_changed(at)
            self._advance(at, here)

    def unad_send(self, at: At, proceed: Proceed, topic: str, neighbour: str) -> None:
        proceed()
        there = self._grains(topic) or [self._topic(at, topic)]
        for here in there:
            # The neighbour forgets what it was promised, and must hear it again if this side publishes again.
            here.outlets[neighbour].promised_us = NEVER
        known_us = max(here.clock.known_us for here in there)
        if known_us > NEVER:
            at.attach(known_us)

    # -- publications -----------------------------------------------------------------------------------------------

    def on_publish(
        self, at: At, topic: str, events: pa.RecordBatch, requests: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.bool_] | None:
        times_us = event_times_us(events)
        found = None
        for here in self._grains(topic) or [self._topic(at, topic)]:
            in_time = here.admit(at, times_us, requests)
            found = in_time if found is None else found if in_time is None else found & in_time
        return found

    def pub_send(
        self, at: At, proceed: Proceed, topic: str, events: pa.RecordBatch, matched: Matched, upstream: str
    ) -> None:
        there = self._grains(topic) or [self._topic(at, topic)]
        marks, more = heard_marks(at, upstream), dict[str, Marks]()
        if marks is not None and marks.held_us is not None:
            # What was held goes on for aggregates alone: whoever wants it as it is has it already.
            matched = matched.without(marks.held_us > NEVER)
        for here in there:
            matched = here.take_in(at, events, matched, upstream, marks, more)
        proceed(topic, events, matched, upstream)
        for here in there:
            self._advance(at, here)

    def on_advance(self, at: At, client: str, topic: str, time_us: int) -> None:
        for here in self._grains(topic) or [self._topic(at, topic)]:
            here.clock.accept(time_us, at.now_us)
            self._advance(at, here)

    # -- what other brokers say ---------------------------------------------------------------------------------------

    def on_message(self, at: At, sender: str, value: Any) -> None:
        what, key, *rest = value
        topic = str(key).removeprefix(_OTHER)
        if topic not in at.schemas:
            at.report("messages about unknown topics", f"{what} about {topic!r} from {sender}")
            return
        handler = self._HANDLERS.get(what)
        if handler is None:
            at.report("messages that nobody understands", f"{str(what)[:40]!r} from {sender}")
            return
        handler(self, at, self._topic(at, key), sender, *rest)

    def _on_since(self, at: At, here: Topic, sender: str, questions: list[int], latest_us: int) -> None:
        here.learn_since(at, questions, latest_us, sender)

    def _on_floor(self, at: At, here: Topic, sender: str, closed_us: int) -> None:
        here.clock.closed_us = max(here.clock.closed_us, closed_us)
        for peer in sorted(at.advertisers(here.name)):
            if peer in at.neighbours and peer != sender:
                at.tell(peer, ["floor", here.key, closed_us])

    def _on_flow(
        self, at: At, here: Topic, sender: str, partials: list[Any], promise_us: int | None, now_us: int
    ) -> None:
        self._check_clock(at, here, sender, now_us)
        here.receive(at, sender, partials, promise_us)
        self._advance(at, here)

    def _on_ahead(self, at: At, here: Topic, sender: str, news: list[Any]) -> None:
        if here.deciding is not None and here.crossing is not None:
            for series, links in msgspec.convert(news, list[tuple[SeriesName, int]]):
                here.deciding.hear(sender, series, links)
            here.crossing.coordinate(at)

    def _on_want(self, at: At, here: Topic, sender: str, end_us: int, now_us: int) -> None:
        self._check_clock(at, here, sender, now_us)
        here.silence.want(at, end_us, sender)

    _HANDLERS: ClassVar[Mapping[str, Callable[..., None]]] = {
        "since": _on_since,
        "floor": _on_floor,
        "flow": _on_flow,
        "ahead": _on_ahead,
        "want": _on_want,
    }

    def _check_clock(self, at: At, here: Topic, sender: str, now_us: int) -> None:
        """Report a message that was sent later than now: the sender's clock is ahead, or this one behind."""
        ahead_us = now_us - at.now_us
        if ahead_us > 0:
            slice_us = min((window.shortest_slice_us for window in here.questions.windows), default=ahead_us)
            if ahead_us > slice_us:
                at.report(
                    "clocks that disagree by more than a slice",
                    f"that of {sender} is at least {ahead_us} microseconds ahead of that of {at.broker}",
                )

    def on_timer(self, at: At, key: str) -> None:
        what, of, side = key.split("\x1f")
        here = self._topic(at, of)
        if what == "tell":
            here.expire(at, side)
        elif what == "watch":
            here.look(at)
        else:
            here.advance_idle_clock(at)
        self._look_who_leaves(at, here)

    def sizes(self) -> dict[str, int]:
        found: Counter[str] = Counter()
        for here in self._topics.values():
            found.update(here.sizes())
        return dict(found)

    # -- memory -----------------------------------------------------------------------------------------------------

    def saved(self) -> Any:
        return {"last": self._last, "topics": {name: topic.saved() for name, topic in self._topics.items()}}

    def restore(self, at: At, saved: Any) -> None:
        self._last = saved["last"]
        for name, topic in saved["topics"].items():
            self._topic(at, name).restore(topic)
