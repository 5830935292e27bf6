"""Windowed aggregation as advice: who hears what, and when it is called.

    SUB of an aggregate   "ask"     towards advertisers, confirmed; taken back by "leave"
                          "since"   back to the subscriber's broker: the last event that came in before it was known
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
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from catchment.broker.advice import Advice, At, Proceed
from catchment.broker.aggregation.clocks import NEVER
from catchment.broker.aggregation.crossing import ADVICE
from catchment.broker.aggregation.deciding import SeriesKey
from catchment.broker.aggregation.edges import Local
from catchment.broker.aggregation.options import AggregationOptions
from catchment.broker.aggregation.questions import Asked
from catchment.broker.aggregation.topic import Topic
from catchment.broker.peers import HERE
from catchment.broker.routing import Matched
from catchment.model.errors import CatchmentError, SubscriptionError
from catchment.model.events import event_times_us
from catchment.model.schema import Schema
from catchment.model.subscription import Query
from catchment.stages import CELL_BYTES, state_bytes_max

__all__ = ["Aggregation"]


class Aggregation(Advice):
    """Answers aggregate subscriptions, together with itself at all other brokers."""

    name = ADVICE

    def __init__(self, schemas: Mapping[str, Schema], options: AggregationOptions) -> None:
        self._schemas, self._options = schemas, options
        self._topics: dict[str, Topic] = {}
        self._saved: dict[str, Any] = {}
        self._last = 0

    def _topic(self, at: At, name: str) -> Topic:
        if name not in self._topics:
            self._topics[name] = Topic(name, self._schemas[name], self._options, at.broker, at.neighbours)
            if name in self._saved:
                self._topics[name].restore(self._saved.pop(name), self._schemas)
        return self._topics[name]

    # -- subscriptions ----------------------------------------------------------------------------------------------

    def on_subscribe(self, at: At, client: str, name: str, sql: str, query: Query) -> bool:
        assert query.aggregate is not None
        here = self._topic(at, query.topic)
        asked = Asked.of(f"{at.broker}/{self._last + 1}", query, self._schemas[query.topic].with_implicit())
        self._require_memory(name, asked)
        self._last += 1
        question = here.add(at, asked, HERE)
        here.edge.subscribe(asked.id, Local(client, name, sql, query.aggregate, question))
        here.edge.begin_after(here.clock.known_us, asked.id)
        self._ask(at, here, [asked], HERE)
        return True

    def _require_memory(self, name: str, asked: Asked) -> None:
        states = sum(state_bytes_max(part.state) + CELL_BYTES for part in asked.parts)
        need = asked.window.span * states
        most = self._options.memory_bytes_max
        if need > most:
            raise SubscriptionError(
                f"subscription {name!r}: its window of {asked.window.size_us} microseconds every "
                f"{asked.window.shift_us} is {asked.window.span} slices, {need} bytes for each group; accepted are "
                f"at most {most} bytes: a shorter window, or a longer shift"
            )

    def _ask(self, at: At, here: Topic, several: list[Asked], side: str) -> None:
        """Tell all who must know some subscriptions."""
        advertisers = at.advertisers(here.name)
        for neighbour in at.neighbours:
            if neighbour != side and (at.is_flooded or neighbour in advertisers):
                self._tell(at, here, several, neighbour)

    def _tell(self, at: At, here: Topic, several: Iterable[Asked], neighbour: str) -> None:
        known = here.known_to[neighbour]
        fresh = [asked for asked in several if asked.id not in known]
        if fresh:
            known.update(asked.id for asked in fresh)
            at.tell(neighbour, ["ask", here.name, [asked.plain() for asked in fresh], at.now_us], confirmed=True)

    def on_acknowledged(self, at: At, client: str, name: str) -> None:
        for here in self._known(at).values():
            here.edge.acknowledge(client, name)

    def on_unsubscribe(self, at: At, client: str, name: str) -> bool:
        for here in self._known(at).values():
            for key, local in here.edge.locals.items():
                if (local.client, local.name) == (client, name):
                    self._leave(at, here, [key])
                    return True
        return False

    def _leave(self, at: At, here: Topic, keys: list[str]) -> None:
        for key in keys:
            here.remove(at, key)
        for neighbour in here.known_to:
            self._take_back(at, here, keys, neighbour)
        here.advance(at)

    def _take_back(self, at: At, here: Topic, keys: Iterable[str], neighbour: str) -> None:
        known = here.known_to[neighbour]
        told = [key for key in keys if key in known]
        if told:
            known.difference_update(told)
            at.tell(neighbour, ["leave", here.name, told], confirmed=True)

    # -- advertisements ---------------------------------------------------------------------------------------------

    def ad_add(self, at: At, proceed: Proceed, topic: str, peer: str) -> None:
        proceed()
        here = self._topic(at, topic)
        if peer in at.neighbours:
            self._tell(at, here, here.questions.beside(peer), peer)
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
            if not at.is_flooded:
                self._take_back(at, here, sorted(here.known_to[peer]), peer)
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
        if topic not in self._schemas:
            at.report("messages about unknown topics", f"{what} about {topic!r} from {sender}")
            return
        handler = self._HANDLERS.get(what)
        if handler is None:
            at.report("messages that nobody understands", f"{str(what)[:40]!r} from {sender}")
            return
        handler(self, at, self._topic(at, topic), sender, *rest)

    def _on_ask(self, at: At, here: Topic, sender: str, several: list[Any], now_us: int) -> None:
        fresh = []
        for plain in several:
            try:
                asked = Asked.from_plain(plain, here.questions.schema)
            except (CatchmentError, msgspec.MsgspecError, ValueError, TypeError) as error:
                at.report("subscriptions that do not fit their topic", f"from {sender}: {error}")
                continue
            if asked.id in here.questions.asked:
                at.report("subscriptions that were asked twice", f"{asked.id} from {sender}")
            else:
                here.add(at, asked, sender)
                fresh.append(asked)
        self._check_clock(at, here, sender, now_us)
        self._ask(at, here, fresh, sender)
        if fresh and here.clock.known_us > NEVER:
            at.tell(sender, ["since", here.name, [asked.id for asked in fresh], here.clock.known_us])
        here.advance(at)

    def _on_leave(self, at: At, here: Topic, sender: str, keys: list[str]) -> None:
        known = [key for key in keys if here.questions.sides.get(key) == sender]
        if len(known) < len(keys):
            at.report("subscriptions left that were never asked", f"some of {keys} from {sender}")
        self._leave(at, here, known)

    def _on_since(self, at: At, here: Topic, sender: str, keys: list[str], latest_us: int) -> None:
        onwards: dict[str, list[str]] = {}
        for key in keys:
            side = here.questions.sides.get(key)
            if side == HERE:
                here.edge.begin_after(latest_us, key)
            elif side is not None:
                onwards.setdefault(side, []).append(key)
        for side, some in onwards.items():
            at.tell(side, ["since", here.name, some, latest_us])

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
            for series, links in msgspec.convert(news, list[tuple[SeriesKey, int]]):
                here.deciding.hear(sender, series, links)
            here.crossing.coordinate(at)

    def _on_want(self, at: At, here: Topic, sender: str, end_us: int, now_us: int) -> None:
        self._check_clock(at, here, sender, now_us)
        here.silence.want(at, end_us, sender)

    _HANDLERS: ClassVar[Mapping[str, Callable[..., None]]] = {
        "ask": _on_ask,
        "leave": _on_leave,
        "since": _on_since,
        "floor": _on_floor,
        "flow": _on_flow,
        "ahead": _on_ahead,
        "want": _on_want,
    }

    def _check_clock(self, at: At, here: Topic, sender: str, now_us: int) -> None:
        """Nobody can hear from the future: a clock that says so is ahead, or this one behind."""
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
            here.go_on(at)

    def sizes(self) -> dict[str, int]:
        found: Counter[str] = Counter()
        for here in self._topics.values():
            found.update(here.sizes())
        return dict(found)

    # -- memory -----------------------------------------------------------------------------------------------------

    def _known(self, at: At) -> dict[str, Topic]:
        for name in list(self._saved):
            self._topic(at, name)
        return self._topics

    def saved(self) -> Any:
        topics = {**self._saved, **{name: topic.saved() for name, topic in self._topics.items()}}
        return {"last": self._last, "topics": topics}

    def restore(self, saved: Any) -> None:
        # Topics are brought back when they are next needed, when the broker's neighbours are known.
        self._last, self._saved = saved["last"], saved["topics"]
