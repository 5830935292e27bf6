"""Calls at joinpoints: through the advice attached there, in order, down to the broker's own step.

Rule 1: where no advice is attached, the broker's own step is called and nothing else.
Rule 2: advice is called in the order in which it was attached; the first is the outermost.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from catchment.broker.advice import JOINPOINTS, Advice, At, Reply
from catchment.broker.inputs import TAKEN, Outcome
from catchment.broker.messages import Extras, Notified, Published, Told
from catchment.broker.store import Requests, StoreReply
from catchment.model.errors import CatchmentError, ConfigurationError
from catchment.model.subscription import Query

if TYPE_CHECKING:
    from catchment.broker.broker import Broker

__all__ = ["Failure", "Weaver"]

FAILURES_MAX = 100
_NOTHING: Mapping[str, Any] = {}


@dataclass(frozen=True, slots=True)
class Failure:
    """An advice raised; the broker went on without it."""

    advice: str
    where: str
    """The joinpoint, or the moment, as `on_message`."""
    error: str
    at_us: int


class Weaver:
    """The advice of one broker: who is called where, what each remembers, and its timers."""

    def __init__(self, broker: Broker, advice: Iterable[Advice]) -> None:
        self._broker = broker
        self._advice: dict[str, Advice] = {}
        self._chains: dict[str, list[Advice]] = {joinpoint: [] for joinpoint in JOINPOINTS}
        self._own: dict[str, Callable[..., Any]] = {name: getattr(broker, f"own_{name}") for name in JOINPOINTS}
        self.states: dict[str, dict[str, Any]] = {}
        self.timers: dict[tuple[str, str], int] = {}
        self.requests = Requests()
        self.attached: Extras = {}
        self.failures: deque[Failure] = deque(maxlen=FAILURES_MAX)
        self.reports: dict[str, str] = {}
        """The last of what advice has reported, by what it is about."""
        self._extras: Extras = {}
        for one in advice:
            self.attach(one)

    def attach(self, advice: Advice) -> None:
        """Add an advice behind those that are there."""
        if not advice.name or advice.name in self._advice:
            raise ConfigurationError(f"an advice is named {advice.name!r}; accepted is a name that no other one has")
        for name in vars(type(advice)):
            if not name.startswith("_") and not hasattr(Advice, name):
                raise ConfigurationError(
                    f"advice {advice.name!r} is for the unknown joinpoint {name!r}; there are {', '.join(JOINPOINTS)}; "
                    "names of one's own begin with an underscore"
                )
        self._advice[advice.name] = advice
        self.states.setdefault(advice.name, {})
        for joinpoint, chain in self._chains.items():
            if getattr(type(advice), joinpoint) is not getattr(Advice, joinpoint):
                chain.append(advice)

    # -- calling --------------------------------------------------------------------------------------------------

    def call(self, joinpoint: str, *arguments: Any, own: Mapping[str, Any] = _NOTHING) -> Any:
        """Reach a joinpoint. Only the broker's own step sees what is in `own`."""
        chain = self._chains[joinpoint]
        if not chain:
            return self._own[joinpoint](*arguments, **own)
        return self._invoke(joinpoint, chain, 0, arguments, own)

    def call_sending(self, joinpoint: str, *arguments: Any, own: Mapping[str, Any] = _NOTHING) -> Extras:
        """Reach a joinpoint that sends; what advice attached to the message."""
        self._extras = {}
        self.call(joinpoint, *arguments, own=own)
        return self._extras

    def _invoke(
        self, joinpoint: str, chain: list[Advice], place: int, arguments: tuple[Any, ...], own: Mapping[str, Any]
    ) -> Any:
        if place == len(chain):
            return self._own[joinpoint](*arguments, **own)
        advice = chain[place]
        results: list[Any] = []

        def proceed(*replaced: Any) -> Any:
            results.append(self._invoke(joinpoint, chain, place + 1, replaced or arguments, own))
            return results[-1]

        at = self._at(advice)
        try:
            found = getattr(advice, joinpoint)(at, proceed, *arguments)
        except Exception as error:  # whatever an advice raises, the broker goes on
            self._fail(advice, joinpoint, error)
            return results[-1] if results else proceed()
        self._carry_out(advice, at)
        return found

    def deliver(self, message: Told, sender: str) -> None:
        """A message of an advice has come."""
        advice = self._advice.get(message.advice)
        if advice is None:
            self._broker.counters["messages of unknown advice"] += 1
            return
        try:
            value = msgspec.msgpack.decode(message.body)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            self._fail(advice, "on_message", error)
            return
        self._react(advice, "on_message", sender, value)

    def replied(self, reply: StoreReply) -> Outcome:
        """The store has answered a request of an advice."""
        name, request = self.requests.open.pop(reply.number, ("", None))
        advice = self._advice.get(name)
        if advice is None or request is None:
            return Outcome("repeated", f"request {reply.number} is not open")
        try:
            value = None if reply.value is None else msgspec.msgpack.decode(reply.value)
        except Exception as error:  # anybody may have written anything
            self._fail(advice, "on_reply", error)
            return Outcome("refused", f"what is at {request.key!r} does not decode: {str(error)[:200]}")
        answer = Reply(reply.number, request.key, value, reply.version, reply.written, reply.keys)
        self._react(advice, "on_reply", answer)
        return TAKEN

    # -- what clients do --------------------------------------------------------------------------------------------

    def subscribe(self, client: str, name: str, sql: str, query: Query) -> bool:
        """Whether an advice sees to a subscription to aggregates; raises why it does not want to."""
        return any(self._react(one, "on_subscribe", client, name, sql, query) for one in self._advice.values())

    def acknowledged(self, client: str, name: str) -> None:
        """All brokers that must know a subscription do, and its client is told so."""
        for advice in self._advice.values():
            self._react(advice, "on_acknowledged", client, name)

    def unsubscribe(self, client: str, name: str) -> bool:
        """Whether an advice had seen to a subscription, and does so no more."""
        return any(self._react(one, "on_unsubscribe", client, name) for one in self._advice.values())

    def admit(
        self, topic: str, events: pa.RecordBatch, requests: npt.NDArray[np.int64]
    ) -> tuple[pa.RecordBatch, list[int]]:
        """The events that may go on, and the rows of the others."""
        rows = np.arange(events.num_rows)
        accepted = events
        for advice in self._advice.values():
            kept = self._react(advice, "on_publish", topic, accepted, requests[rows]) if accepted.num_rows else None
            if kept is not None and not kept.all():
                accepted, rows = accepted.filter(pa.array(kept)), rows[kept]
        if accepted is events:
            return events, []
        return accepted, np.setdiff1d(np.arange(events.num_rows), rows).tolist()

    # -- carrying out -----------------------------------------------------------------------------------------------

    def _react(self, advice: Advice, where: str, *arguments: Any) -> Any:
        """What an advice returns; None if it raised. What it refuses a client, the client is told."""
        if getattr(type(advice), where) is getattr(Advice, where):
            return None
        at = self._at(advice)
        try:
            found = getattr(advice, where)(at, *arguments)
        except Exception as error:
            if where == "on_subscribe" and isinstance(error, CatchmentError):
                raise
            self._fail(advice, where, error)
            return None
        self._carry_out(advice, at)
        return found

    def _at(self, advice: Advice) -> At:
        return At(self._broker, self.states[advice.name], self.attached.get(advice.name))

    def _carry_out(self, advice: Advice, at: At) -> None:
        for what, key, value in at.asked:
            if what == "attach":
                self._extras[advice.name] = value
            elif what == "tell":
                body, confirmed, counts = value
                change = self._broker.change_for(key) if confirmed else 0
                self._broker.send(key, Told(advice.name, body, change), counts)
            elif what == "publish":
                topic, events, attached = value
                self._broker.send(key, Published(topic, events, {advice.name: attached}))
            elif what == "notify":
                if key in self._broker.clients:
                    self._broker.send(key, Notified(value))
            elif what == "report":
                self._broker.counters[key] += 1
                self.reports[key] = value
            elif what == "spend":
                self._broker.work[key] += value
            elif what == "ask":
                self.requests.add(advice.name, value)
            else:
                self.timers[advice.name, key] = value

    def _fail(self, advice: Advice, where: str, error: Exception) -> None:
        self._broker.counters["failures of advice"] += 1
        said = f"{type(error).__name__}: {error}"
        self.failures.append(Failure(advice.name, where, said, self._broker.now_us))

    def sizes(self) -> dict[str, int]:
        return {what: size for advice in self._advice.values() for what, size in advice.sizes().items()}

    # -- memory -----------------------------------------------------------------------------------------------------

    def saved(self) -> dict[str, Any]:
        """What advice remembers in ways of its own."""
        found = {name: advice.saved() for name, advice in self._advice.items()}
        return {name: value for name, value in found.items() if value is not None}

    def restore(self, saved: Mapping[str, Any]) -> None:
        for name, value in saved.items():
            self._advice[name].restore(value)

    # -- timers ---------------------------------------------------------------------------------------------------

    def timer_us(self) -> int | None:
        return min(self.timers.values(), default=None)

    def wake(self) -> None:
        """Call all whose time has come, in the order of their times."""
        due = sorted((at, *key) for key, at in self.timers.items() if at <= self._broker.now_us)
        for _, name, key in due:
            del self.timers[name, key]
            advice = self._advice[name]
            self._react(advice, "on_timer", key)
