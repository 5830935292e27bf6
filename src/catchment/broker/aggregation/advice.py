"""Windowed aggregation as advice: who hears what, and when it is called.

    SUB of a question     "since"   back to the subscriber's broker: the last event that came in before it was known
    AD                    "floor"   towards the publisher: up to where time is closed
    PUB                   marks     which subscriptions have it in a partial already
    partials              "flow"    with the events, with the promise that covers them
    silence               "want"    towards those whose time is behind
    adaptation            "ahead"   on how many links more publications cost, if neighbours coordinate

Rule 1: control arrives in order, and a confirmation comes after all that the confirmed change set off: so when a
        subscription is acknowledged, its broker has heard every "since", and a publisher every "floor".
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

from catchment.broker.advice import Advice, At, Proceed
from catchment.broker.aggregation.clocks import NEVER
from catchment.broker.aggregation.crossing import ADVICE
from catchment.broker.aggregation.edges import Local
from catchment.broker.aggregation.options import AggregationOptions
from catchment.broker.aggregation.topic import Topic
from catchment.broker.demands import AskedQuestion, Demand
from catchment.broker.peers import HERE
from catchment.broker.routing import Before, Matched
from catchment.model.errors import ConfigurationError, SubscriptionError
from catchment.model.events import event_times_us
from catchment.model.schema import Schema
from catchment.model.subscription import Query
from catchment.overlay.placement import exchangeable
from catchment.stages import CELL_BYTES, SeriesName, state_bytes_max

__all__ = ["Aggregation"]


class Aggregation(Advice):
    """Answers aggregate subscriptions, together with itself at all other brokers."""

    name = ADVICE

    def __init__(self, options: AggregationOptions) -> None:
        self._options = options
        self._by_stride = options.strategy().grain == "stride"
        self._topics: dict[str, Topic] = {}
        self._last = 0
        self._changed: dict[Topic, None] = {}
        """Topics to look at again; empty between inputs."""

    def _topic(self, at: At, name: str) -> Topic:
        if name not in self._topics:
            self._topics[name] = Topic(
                name, at.schemas[name], self._placed(at.placements.get(name)), at.broker, at.neighbours
            )
        return self._topics[name]

    def _placed(self, placement: str | None) -> AggregationOptions:
        """How a topic is aggregated that has been given a placement, if it has."""
        return self._options if placement is None else replace(self._options, placement=placement)

    def on_topic_placed(self, at: At, topic: str, placement: str) -> None:
        accepted = exchangeable(self._options.placement)
        if placement not in accepted:
            raise ConfigurationError(
                f"placement is {placement!r}; accepted while this overlay runs are {', '.join(accepted)}"
            )
        if topic in self._topics:
            self._topics[topic].place(self._placed(placement).strategy())

    def on_topic_added(self, at: At, topic: str, schema: Schema) -> None:
        if topic in self._topics:
            self._topics[topic].extend(schema)

    # -- subscriptions ----------------------------------------------------------------------------------------------

    def on_subscribe(self, at: At, client: str, name: str, sql: str, query: Query) -> AskedQuestion:
        assert query.aggregate is not None
        here = self._topic(at, query.topic)
        key = f"{at.broker}/{self._last + 1}"
        asked = AskedQuestion.of(query, here.questions.schema, "" if self._by_stride else key)
        self._require_memory(name, asked)
        self._last += 1
        here.edge.locals[key] = Local(client, name, sql, query.aggregate, here.questions.id_of(asked))
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
            here = self._topic(at, topic)
            here.add(at, demand, peer if peer in at.neighbours else HERE)
            self._settle(at, here)
        return before

    def sub_del(self, at: At, proceed: Proceed, topic: str, demand: Demand, peer: str) -> dict[str, Before]:
        before: dict[str, Before] = proceed()
        if isinstance(demand, AskedQuestion):
            here = self._topic(at, topic)
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

    def on_acknowledged(self, at: At, client: str, name: str) -> None:
        for here in self._topics.values():
            here.edge.acknowledge(client, name)

    def on_unsubscribed(self, at: At, client: str, name: str) -> None:
        for here in self._topics.values():
            if here.edge.unsubscribe(client, name):
                return

    def on_request(self, at: At, client: str, value: Any) -> None:
        """A client asks which windows of its subscription do not come by themselves, and how far time has passed them.

        It is told from when on windows do, the end of the last that does not, and the last end that has passed.
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
        here = self._topic(at, topic)
        if peer in at.neighbours:
            closed_us = here.clock.closed_us
            if closed_us > NEVER:
                at.tell(peer, ["floor", topic, closed_us])
                here.clock.heard[peer] = max(here.clock.heard.get(peer, NEVER), closed_us)
        elif here.clock.arrived_us == NEVER:
            here.clock.arrived_us = at.now_us
        here.silence.peers_changed(at)
        here.advance(at)

    def ad_del(self, at: At, proceed: Proceed, topic: str, peer: str) -> None:
        proceed()
        here = self._topic(at, topic)
        if peer in at.neighbours:
            here.clock.heard.pop(peer, None)
            if at.attached is not None:
                here.clock.past_us = max(here.clock.past_us, at.attached)
                here.edge.begin_after(at.attached)
        here.silence.peers_changed(at)
        here.advance(at)

    def unad_send(self, at: At, proceed: Proceed, topic: str, neighbour: str) -> None:
        proceed()
        here = self._topic(at, topic)
        # The neighbour forgets what it was promised, and must hear it again if this side publishes again.
        here.outlets[neighbour].promised_us = NEVER
        if here.clock.known_us > NEVER:
            at.attach(here.clock.known_us)

    # -- publications -----------------------------------------------------------------------------------------------

    def on_publish(
        self, at: At, topic: str, events: pa.RecordBatch, requests: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.bool_] | None:
        return self._topic(at, topic).admit(at, event_times_us(events), requests)

    def pub_send(
        self, at: At, proceed: Proceed, topic: str, events: pa.RecordBatch, matched: Matched, upstream: str
    ) -> None:
        here = self._topic(at, topic)
        proceed(topic, events, here.take_in(at, events, matched, upstream), upstream)
        here.advance(at)

    def on_advance(self, at: At, client: str, topic: str, time_us: int) -> None:
        here = self._topic(at, topic)
        here.clock.accept(time_us, at.now_us)
        here.advance(at)

    # -- what other brokers say ---------------------------------------------------------------------------------------

    def on_message(self, at: At, sender: str, value: Any) -> None:
        what, topic, *rest = value
        if topic not in at.schemas:
            at.report("messages about unknown topics", f"{what} about {topic!r} from {sender}")
            return
        handler = self._HANDLERS.get(what)
        if handler is None:
            at.report("messages that nobody understands", f"{str(what)[:40]!r} from {sender}")
            return
        handler(self, at, self._topic(at, topic), sender, *rest)

    def _on_since(self, at: At, here: Topic, sender: str, questions: list[int], latest_us: int) -> None:
        here.learn_since(at, questions, latest_us, sender)

    def _on_floor(self, at: At, here: Topic, sender: str, closed_us: int) -> None:
        here.clock.closed_us = max(here.clock.closed_us, closed_us)
        for peer in sorted(at.advertisers(here.name)):
            if peer in at.neighbours and peer != sender:
                at.tell(peer, ["floor", here.name, closed_us])

    def _on_flow(
        self, at: At, here: Topic, sender: str, partials: list[Any], promise_us: int | None, now_us: int
    ) -> None:
        self._check_clock(at, here, sender, now_us)
        here.receive(at, sender, partials, promise_us)
        here.advance(at)

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
        what, topic, side = key.split("\x1f")
        here = self._topic(at, topic)
        if what == "tell":
            here.expire(at, side)
        elif what == "watch":
            here.look(at)
        else:
            here.advance_idle_clock(at)

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
