"""Calls at joinpoints: through the advice attached there, in order, down to the broker's own step.

Rule 1: where no advice is attached, the broker's own step is called and nothing else.
Rule 2: advice is called in the order in which it was attached; the first is the outermost.
Rule 3: advice that is attached or removed while the broker runs is an input like any other, taken from a catalogue.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from catchment.broker.advice import JOINPOINTS, OWN, VALUE_BYTES_MAX, Advice, At, Catalogue, Reply
from catchment.broker.demands import AskedQuestion
from catchment.broker.inputs import TAKEN, Outcome, Post
from catchment.broker.limits import require_name, shortened
from catchment.broker.messages import AdviceMessage, Confirmed, Extras
from catchment.broker.rounds import Rounds
from catchment.broker.routing import Before, Matched
from catchment.broker.store import Requests, StoreReply
from catchment.broker.unclaimed import Unclaimed
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


_REFUSING = ("on_subscribe", "on_topic_placed")
"""Moments in which a CatchmentError is no failure of the advice, but its answer."""


class Weaver:
    """The advice of one broker: who is called where, what each remembers, and its timers."""

    def __init__(self, broker: Broker, advice: Iterable[Advice]) -> None:
        self._broker = broker
        self._advice: dict[str, Advice] = {}
        self._chains: dict[str, list[Advice]] = {joinpoint: [] for joinpoint in JOINPOINTS}
        self._own: dict[str, Callable[..., Any]] = {name: getattr(broker, f"own_{name}") for name in JOINPOINTS}
        self.states: dict[str, dict[str, Any]] = {}
        self.timers: dict[tuple[str, str], int] = {}
        self.timers_until_us: int | None = None
        """While timers are called before an input, its time."""
        self.requests = Requests()
        self.rounds = Rounds(broker, self._react_by_name)
        self.unclaimed = Unclaimed()
        self.removed: set[str] = set()
        """Advice that was removed while the broker ran."""
        self.attached: Extras = {}
        self.notes: pa.RecordBatch | None = None
        """What advice at the sender says of each event that is forwarded."""
        self.failures: deque[Failure] = deque(maxlen=FAILURES_MAX)
        self.reports: dict[str, str] = {}
        """The last of what advice has reported, by what it is about."""
        self._extras: Extras = {}
        for one in advice:
            self._attach(one)

    @property
    def names(self) -> tuple[str, ...]:
        """Of all advice, in the order in which it was attached."""
        return tuple(self._advice)

    def _attach(self, advice: Advice) -> None:
        """Add an advice behind those that are there."""
        require_name("an advice", advice.name)
        if advice.name in self._advice:
            raise ConfigurationError(f"an advice is named {advice.name!r}; accepted is a name that no other one has")
        for name in vars(type(advice)):
            if not name.startswith("_") and not hasattr(Advice, name):
                raise ConfigurationError(
                    f"advice {advice.name!r} is for the unknown joinpoint {name!r}; there are {', '.join(JOINPOINTS)}; "
                    "names of one's own begin with an underscore"
                )
        self._advice[advice.name] = advice
        self.removed.discard(advice.name)
        self.states.setdefault(advice.name, {})
        for joinpoint, chain in self._chains.items():
            if _has(advice, joinpoint):
                chain.append(advice)

    def begin(self, name: str, catalogue: Catalogue) -> Outcome:
        """Attach an advice of a catalogue, and give it the messages that wait for it."""
        if name in self._advice:
            return Outcome("repeated", f"advice {name!r} is attached already")
        if name not in catalogue:
            there = ", ".join(sorted(catalogue)) or "none"
            raise ConfigurationError(
                f"advice {name!r} is not in the catalogue of {self._broker.name!r}; there are {there}"
            )
        try:
            advice = catalogue[name]()
        except Exception as error:  # whatever it raises, the broker goes on
            raise ConfigurationError(f"advice {name!r} cannot be made: {_said(error)}") from None
        if not isinstance(advice, Advice) or advice.name != name:
            raise ConfigurationError(f"the catalogue has for {name!r} {advice!r}; accepted is an advice of that name")
        self._attach(advice)
        self._react(advice, "on_begin")
        for one in self.unclaimed.of_advice(name):
            self.deliver(one.message, one.sender)
        return TAKEN

    def remove(self, name: str) -> Outcome:
        """Remove an advice, with all that it remembers, waits for and wants as a client."""
        advice = self._require(name)
        self._react(advice, "on_end")
        self.rounds.run()
        if OWN + name in self._broker.clients:
            self._broker.drop_client(OWN + name)
        del self._advice[name], self.states[name]
        for routes in self._broker.topics.values():
            routes.unwatch_all(name)
        for chain in self._chains.values():
            chain[:] = [one for one in chain if one is not advice]
        self.timers = {key: at_us for key, at_us in self.timers.items() if key[0] != name}
        self.requests.forget(name)
        self.rounds.forget(name)
        self.removed.add(name)
        return TAKEN

    def _require(self, name: str) -> Advice:
        if name not in self._advice:
            known = ", ".join(sorted(self._advice)) or "none"
            raise ConfigurationError(f"unknown advice {name!r}; known at broker {self._broker.name!r} are {known}")
        return self._advice[name]

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
        errors: list[Exception] = []

        def proceed(*replaced: Any) -> Any:
            try:
                results.append(self._invoke(joinpoint, chain, place + 1, replaced or arguments, own))
            except Exception as error:
                if not replaced:
                    # The broker's own step failed on what it was given: no advice is to blame.
                    errors.append(error)
                raise
            return results[-1]

        at = self._at(advice)
        try:
            found = getattr(advice, joinpoint)(at, proceed, *arguments)
            self._require_returned(joinpoint, found, arguments)
        except Exception as error:  # whatever an advice raises, the broker goes on
            if any(one is error for one in errors):
                raise
            self._fail(advice, joinpoint, error)
            return results[-1] if results else proceed()
        self._carry_out(advice, joinpoint, at)
        return found

    def _require_returned(self, where: str, found: Any, arguments: tuple[Any, ...]) -> None:
        """Raise if an advice returned something that the broker cannot go on with."""
        if where == "pub_match":
            if not isinstance(found, Matched):
                raise TypeError(f"it returned {_shown(found)}; accepted is a Matched")
            found.require_within(arguments[1].num_rows)
        elif where in ("sub_add", "sub_del") and found is not None:
            there = self._broker.neighbours
            if not isinstance(found, Mapping) or not all(
                name in there and isinstance(before, Before) for name, before in found.items()
            ):
                raise TypeError(f"it returned {_shown(found)}; accepted is a Before by neighbour, or None")
        elif where == "on_publish" and found is not None:
            rows = arguments[1].num_rows
            if not isinstance(found, np.ndarray) or found.dtype != np.bool_ or found.shape != (rows,):
                raise TypeError(f"it returned {_shown(found)}; accepted is an array of {rows} booleans, or None")
        elif where == "on_posted" and found is not None:
            places = range(len(arguments[1]))
            if not isinstance(found, Mapping) or not all(
                place in places and isinstance(reason, str) for place, reason in found.items()
            ):
                raise TypeError(f"it returned {_shown(found)}; accepted are reasons by the places of posts, or None")
        elif where == "on_subscribe" and not isinstance(found, AskedQuestion | None):
            raise TypeError(f"it returned {_shown(found)}; accepted is an AskedQuestion, or None")

    def deliver(self, message: AdviceMessage, sender: str) -> None:
        """A message of an advice has come; it is confirmed once it has had its effect, or has none."""
        advice = self._advice.get(message.advice)
        if advice is None and self.unclaimed.takes(message, sender, self._broker.now_us):
            return
        if advice is None:
            self._broker.counters["messages of unknown advice"] += 1
        else:
            try:
                value = _decoded(message.body)
            except ConfigurationError as error:
                self._fail(advice, "on_message", error)
            else:
                self._react(advice, "on_message", sender, value)
        if message.change:
            self._broker.when_confirmed(sender, Confirmed(message.change))

    def replied(self, reply: StoreReply) -> Outcome:
        """The store has answered a request of an advice."""
        name, request = self.requests.open.pop(reply.number, ("", None))
        advice = self._advice.get(name)
        if advice is None or request is None:
            return Outcome("repeated", f"request {reply.number} is not open")
        try:
            value = None if reply.value is None else _decoded(reply.value)
        except ConfigurationError as error:
            self._fail(advice, "on_reply", error)
            return Outcome("refused", str(error))
        answer = Reply(reply.number, request.key, value, reply.version, reply.written, reply.keys)
        self._react(advice, "on_reply", answer)
        return TAKEN

    # -- what clients do --------------------------------------------------------------------------------------------

    def request(self, name: str, client: str, body: bytes) -> None:
        """A client asks something of an advice; raises why it is refused."""
        advice = self._require(name)
        if not _has(advice, "on_request"):
            able = ", ".join(sorted(one for one in self._advice if _has(self._advice[one], "on_request"))) or "none"
            raise ConfigurationError(f"advice {name!r} takes no requests; those that do are {able}")
        if len(body) > VALUE_BYTES_MAX:
            raise ConfigurationError(f"a request has {len(body)} bytes; accepted are at most {VALUE_BYTES_MAX}")
        value, at = _decoded(body), self._at(advice)
        try:
            advice.on_request(at, client, value)
        except CatchmentError:
            raise
        except Exception as error:
            self._fail(advice, "on_request", error)
            raise ConfigurationError(f"advice {name!r} failed: {_said(error)}") from None
        problem = self._carry_out(advice, "on_request", at)
        if problem is not None:
            raise ConfigurationError(f"advice {name!r} failed: {_said(problem)}")

    def happened(self, where: str, *what: Any) -> None:
        """Let every advice hear of something."""
        for advice in list(self._advice.values()):
            self._react(advice, where, *what)

    def asked_question(self, client: str, name: str, sql: str, query: Query) -> AskedQuestion | None:
        """What the first advice that answers an aggregate subscription asks for it; raises why it refuses to."""
        for advice in self._advice.values():
            asked: AskedQuestion | None = self._react(advice, "on_subscribe", client, name, sql, query)
            if asked is not None:
                return asked
        return None

    def posted(self, topic: str, posts: Sequence[Post]) -> Mapping[int, str]:
        """Let the first advice that takes posts have some; by their places, why it refuses some of them."""
        for advice in self._advice.values():
            refused: Mapping[int, str] | None = self._react(advice, "on_posted", topic, posts)
            if refused is not None:
                return refused
        reason = f"broker {self._broker.name!r} has no advice that takes posts; accepted are events of its clients"
        return dict.fromkeys(range(len(posts)), reason)

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
        if not _has(advice, where):
            return None
        at = self._at(advice)
        try:
            found = getattr(advice, where)(at, *arguments)
            self._require_returned(where, found, arguments)
        except Exception as error:
            if where in _REFUSING and isinstance(error, CatchmentError):
                raise
            self._fail(advice, where, error)
            return None
        self._carry_out(advice, where, at)
        return found

    def _carry_out(self, advice: Advice, where: str, at: At) -> Exception | None:
        """Do what an advice asked for; what cannot be done is left out and reported, and the last error returned."""
        problem = None
        for act in at.asked:
            try:
                act()
            except Exception as error:
                self._fail(advice, where, error)
                problem = error
        return problem

    def _react_by_name(self, name: str, where: str, *arguments: Any) -> None:
        self._react(self._advice[name], where, *arguments)

    def _at(self, advice: Advice) -> At:
        return At(self._broker, advice.name, self.attached.get(advice.name), _own(advice, self.notes))

    def put_extra(self, advice: str, body: bytes) -> None:
        self._extras[advice] = body

    def report(self, what: str, detail: str) -> None:
        self._broker.counters[what] += 1
        self.reports[what] = detail

    def _fail(self, advice: Advice, where: str, error: Exception) -> None:
        self._broker.counters["failures of advice"] += 1
        self.failures.append(Failure(advice.name, where, shortened(_said(error)), self._broker.now_us))

    def sizes(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for advice in self._advice.values():
            try:
                found.update({str(what): int(size) for what, size in advice.sizes().items()})
            except Exception as error:
                self._fail(advice, "sizes", error)
        return found

    # -- memory -----------------------------------------------------------------------------------------------------

    def saved(self) -> dict[str, Any]:
        """Give what advice remembers and waits for; `At.state` is encoded at once, as advice may change all of it."""
        states = {name: self._guarded(advice, "state", self._encoded_state) for name, advice in self._advice.items()}
        own = {name: self._guarded(advice, "saved", lambda one: one.saved()) for name, advice in self._advice.items()}
        return {
            "attached": self.names,
            "removed": frozenset(self.removed),
            "states": {name: value for name, value in states.items() if value is not None},
            "own": {name: value for name, value in own.items() if value is not None},
            "timers": dict(self.timers),
            "requests": self.requests.saved(),
            "rounds": dict(self.rounds.numbers),
            "unclaimed": self.unclaimed.saved(),
        }

    def _encoded_state(self, advice: Advice) -> msgspec.Raw:
        return msgspec.Raw(msgspec.msgpack.encode(self.states[advice.name]))

    def _guarded(self, advice: Advice, where: str, save: Callable[[Advice], Any]) -> Any:
        """What an advice remembers; one whose memory cannot be written is reported, and remembers nothing."""
        try:
            return save(advice)
        except Exception as error:
            self._fail(advice, where, error)
            return None

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Take over what another one had; called on a new one with the same advice attached."""
        self.removed = set(saved["removed"])
        self.states.update(saved["states"])
        for name, value in saved["own"].items():
            self._advice[name].restore(self._at(self._advice[name]), value)
        self.timers = saved["timers"]
        self.requests.restore(saved["requests"])
        self.rounds.numbers = saved["rounds"]
        self.unclaimed.restore(saved["unclaimed"])

    # -- timers ---------------------------------------------------------------------------------------------------

    def timer_us(self) -> int | None:
        due = [*self.timers.values()]
        if self.unclaimed.due_us is not None:
            due.append(self.unclaimed.due_us)
        return min(due, default=None)

    def set_timer(self, advice: str, key: str, at_us: int) -> None:
        """Call an advice at a time; a timer call that asks for now or the past waits until after the input."""
        if self.timers_until_us is not None and at_us <= self._broker.now_us:
            at_us = self.timers_until_us + 1
        self.timers[advice, key] = at_us

    def wake(self) -> None:
        """Call all whose time has come, in the order of their times."""
        due = sorted((at, *key) for key, at in self.timers.items() if at <= self._broker.now_us)
        for at_us, name, key in due:
            # One that was called before it may have moved it.
            if self.timers.get((name, key)) == at_us:
                del self.timers[name, key]
                self._react(self._advice[name], "on_timer", key)
        for one in self.unclaimed.expired(self._broker.now_us):
            self._broker.counters["messages of unknown advice"] += 1
            if one.message.change:
                self._broker.when_confirmed(one.sender, Confirmed(one.message.change))


def _has(advice: Advice, where: str) -> bool:
    """Whether an advice has something to do at a joinpoint or a moment."""
    return getattr(type(advice), where) is not getattr(Advice, where)


def _decoded(body: bytes) -> Any:
    try:
        return msgspec.msgpack.decode(body)
    except Exception as error:  # a peer may send anything
        raise ConfigurationError(f"a value does not decode: {_said(error)[:200]}; accepted is MessagePack") from None


def _shown(value: Any) -> str:
    return f"{str(value)[:40]!r} of type {type(value).__name__}"


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _own(advice: Advice, notes: pa.RecordBatch | None) -> dict[str, pa.Array] | None:
    """The columns of an advice, by their own names."""
    if notes is None:
        return None
    mine = f"{advice.name}/"
    return {
        name.removeprefix(mine): column
        for name, column in zip(notes.schema.names, notes.columns, strict=True)
        if name.startswith(mine)
    }
