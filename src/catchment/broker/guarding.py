"""The last guard around a broker's inputs: whatever one of them raises, the broker goes on.

An input is in the log before the broker sees it. If it made a step raise, every restart would meet it again.

Rule 1: what raises is counted ("inputs that failed") and kept in `broker.input_failures`. It is always a bug of the
        broker: what peers do wrong is refused where it is read, and what advice does wrong is a failure of that advice.
Rule 2: the guard stands around single messages, single batches of joined events, timers and each peer's frames, so that
        an input does not suffer for another. What an input did before it raised stays done, with what was sent of it.
Rule 3: a request is refused with the reason, a change of a neighbour's is confirmed, so that nobody waits for ever. An
        acknowledgement of events that were not forwarded is taken back.
Rule 4: all of this depends on the input alone, so that the same happens when it is replayed. Running out of memory does
        not, and is no reason to refuse an input: a MemoryError passes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from traceback import extract_tb
from typing import TYPE_CHECKING, TypeVar

from catchment.broker import messages as m
from catchment.broker import neighbours
from catchment.broker.frames import EPOCH, fitting_parts
from catchment.broker.limits import shortened
from catchment.broker.peers import Peer
from catchment.model.errors import FrameError

if TYPE_CHECKING:
    from catchment.broker.broker import Broker

__all__ = ["Guard", "InputFailure"]

FAILURES_MAX = 100
FAILED = "inputs that failed"
_Found = TypeVar("_Found")


@dataclass(frozen=True, slots=True)
class InputFailure:
    """The broker raised while it handled an input, and went on with the next."""

    where: str
    """The kind of input or message; `timers`, `events of` a topic, `frames for` a peer."""
    error: str
    """What was raised, and by which function."""
    at_us: int
    position: int
    """Of the input in the broker's log."""


class Guard:
    """What the inputs of one broker raised."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.failures: deque[InputFailure] = deque(maxlen=FAILURES_MAX)

    def attempt(self, where: str, act: Callable[..., _Found], *arguments: object) -> tuple[_Found | None, str]:
        """Call something: what it returns, and why it failed, or an empty text."""
        try:
            return act(*arguments), ""
        except MemoryError:
            raise
        except Exception as error:
            return None, self.failed(where, error)

    def failed(self, where: str, error: Exception) -> str:
        """Count what was raised and keep it; the reason for whoever asked."""
        broker = self._broker
        by = [frame.name for frame in extract_tb(error.__traceback__)][-1:]
        said = f"{type(error).__name__}: {error}" + "".join(f" in {name}" for name in by)
        broker.counters[FAILED] += 1
        self.failures.append(InputFailure(where, shortened(said), broker.now_us, broker.position))
        # They belong to the message that failed.
        broker.weaver.attached, broker.weaver.notes = {}, None
        return shortened(f"the broker failed on it, and it may have taken effect in part: {said}")

    # -- answering what failed --------------------------------------------------------------------------------------

    def give_up(self, message: m.Message, sender: str, reason: str) -> None:
        """Answer a message that failed, if it wants an answer and none is under way."""
        if sender in self._broker.clients:
            self.attempt("a refusal", self._refuse, message, sender, reason)
        elif getattr(message, "change", 0):
            self.attempt("a confirmation", self._confirm, message, sender)

    def _refuse(self, message: m.Message, client: str, reason: str) -> None:
        request: int | None = getattr(message, "request", None)
        if request is None:
            return
        broker = self._broker
        if isinstance(message, m.SubscribeTo):
            self.attempt("a subscription that failed", self._take_back, client, message.name)
        if isinstance(message, m.PublishEvents):
            broker.unsend(client, m.Acknowledged, request)
        answers = (m.Acknowledged, m.Refused)
        under_way = broker.answers_under_way(client)
        if not any(isinstance(one, answers) and one.request == request for one in under_way):
            broker.send(client, m.Refused(request, reason))

    def _take_back(self, client: str, name: str) -> None:
        """Let nothing be left of a subscription whose refusal its client is sent."""
        broker = self._broker
        if (client, name) not in broker.subscribed:
            for topic, routes in sorted(broker.topics.items()):
                broker.update_neighbours(topic, [routes.remove_subscription(client, name)])

    def _confirm(self, message: m.Message, neighbour: str) -> None:
        answer = m.Confirmed(message.change)  # type: ignore[union-attr]
        if answer not in self._broker.answers_under_way(neighbour):
            self._broker.when_confirmed(neighbour, answer)

    # -- frames -----------------------------------------------------------------------------------------------------

    def frames(self, name: str, peer: Peer, messages: list[m.Message]) -> list[bytes]:
        """The next frames for a peer; of messages that none can carry, those parts that one can."""
        try:
            return self._written(peer, messages)
        except MemoryError:
            raise
        except Exception:  # one of them fits no frame: find it
            sendable = [part for one in messages for part in self._sendable(name, one)]
        found, _ = self.attempt(f"frames for {name}", self._written, peer, sendable)
        return found or []

    def _written(self, peer: Peer, messages: list[m.Message]) -> list[bytes]:
        broker = self._broker
        return peer.writer.frames(
            broker.name, messages, incarnation=broker.incarnation, epoch=EPOCH, after=peer.sent,
            covers=broker.position, coder=broker.coder,
        )  # fmt: skip

    def _sendable(self, name: str, message: m.Message) -> list[m.Message]:
        fits, rest = fitting_parts(message)
        for one in rest:
            self.failed(f"frames for {name}", FrameError(f"no frame can carry {str(one)[:100]}"))
        change = getattr(message, "change", 0)
        if rest and not fits and change and name in self._broker.neighbours:
            # The neighbour will never hear of it, and nobody shall wait for its confirmation.
            self.attempt(f"frames for {name}", neighbours.confirm, self._broker, name, change)
        return fits
