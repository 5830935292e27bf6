"""The changes that neighbours have not confirmed yet, and the answers that wait for them.

Rule 1: an answer is given once every change is confirmed that was sent to another neighbour before it. Changes that are
        sent later never delay it.
Rule 2: so answers to clients become due in the order in which they began to wait, and so do those to one neighbour;
        only the first of each queue has to be looked at.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from catchment.broker.messages import Acknowledged, Confirmed

__all__ = ["Confirmations", "WaitingAnswer"]

_CLIENTS = ""
"""The queue of all clients; no neighbour is named so."""


@dataclass(frozen=True, slots=True)
class WaitingAnswer:
    """An answer that is due once neighbours have confirmed what they were sent before it."""

    peer: str
    answer: Acknowledged | Confirmed
    subscription: str
    """What is acknowledged by it, if it is a subscription."""
    changes: dict[str, int]
    """By neighbour, the last change that it has to confirm."""


@dataclass(slots=True)
class _Sent:
    """The changes that one neighbour was sent, numbered from 1 on."""

    last: int = 0
    confirmed: int = 0
    """All up to this one are confirmed."""
    beyond: set[int] = field(default_factory=set)
    """Those that are confirmed beyond it."""

    def confirm(self, change: int) -> bool:
        """Note a confirmation; whether it was awaited."""
        if not self.confirmed < change <= self.last or change in self.beyond:
            return False
        self.beyond.add(change)
        while self.confirmed + 1 in self.beyond:
            self.confirmed += 1
            self.beyond.remove(self.confirmed)
        return True


class Confirmations:
    """What one broker waits for."""

    def __init__(self, neighbours: Iterable[str]) -> None:
        self._sent = {name: _Sent() for name in neighbours}
        self._queues: dict[str, deque[WaitingAnswer]] = {name: deque() for name in (_CLIENTS, *sorted(self._sent))}
        self._requests: dict[str, set[int]] = {}
        """Of clients, the requests whose answers wait."""

    def __len__(self) -> int:
        return sum(map(len, self._queues.values()))

    def next_change(self, neighbour: str) -> int:
        """Number a change that a neighbour is about to be sent, and has to confirm."""
        self._sent[neighbour].last += 1
        return self._sent[neighbour].last

    def unconfirmed_count(self, neighbour: str) -> int:
        sent = self._sent[neighbour]
        return sent.last - sent.confirmed - len(sent.beyond)

    def waiting_count(self, client: str) -> int:
        """How many requests of a client wait for their answers."""
        return len(self._requests.get(client, ()))

    def is_waiting(self, client: str, request: int) -> bool:
        return request in self._requests.get(client, ())

    def answers_for(self, peer: str) -> list[Acknowledged | Confirmed]:
        return [one.answer for one in self._queue_of(peer) if one.peer == peer]

    def wait(self, peer: str, answer: Acknowledged | Confirmed, subscription: str) -> WaitingAnswer | None:
        """Let an answer wait for what other neighbours have not confirmed; return it if it need not wait."""
        changes = {name: sent.last for name, sent in self._sent.items() if name != peer and sent.confirmed < sent.last}
        waiting = WaitingAnswer(peer, answer, subscription, changes)
        if not changes:
            return waiting
        self._add(waiting)
        return None

    def _add(self, waiting: WaitingAnswer) -> None:
        self._queue_of(waiting.peer).append(waiting)
        if isinstance(waiting.answer, Acknowledged):
            self._requests.setdefault(waiting.peer, set()).add(waiting.answer.request)

    def _queue_of(self, peer: str) -> deque[WaitingAnswer]:
        return self._queues[peer if peer in self._sent else _CLIENTS]

    def confirm(self, neighbour: str, change: int) -> list[WaitingAnswer] | None:
        """Note that a neighbour has confirmed a change; return what is due now, or None if nobody had asked."""
        return list(self._due()) if self._sent[neighbour].confirm(change) else None

    def confirm_all(self, neighbour: str) -> list[WaitingAnswer]:
        """Wait no more for a neighbour that has started anew, nor for anything that its old life asked."""
        sent = self._sent[neighbour]
        sent.confirmed = sent.last
        sent.beyond.clear()
        self._queues[neighbour].clear()
        return list(self._due())

    def forget_client(self, client: str) -> None:
        """Answer nothing any more that a client has asked."""
        if self._requests.pop(client, None):
            queue = self._queues[_CLIENTS]
            self._queues[_CLIENTS] = deque(one for one in queue if one.peer != client)

    def _due(self) -> Iterator[WaitingAnswer]:
        for queue in self._queues.values():
            while queue and all(self._sent[name].confirmed >= last for name, last in queue[0].changes.items()):
                waiting = queue.popleft()
                if isinstance(waiting.answer, Acknowledged):
                    self._forget_request(waiting.peer, waiting.answer.request)
                yield waiting

    def _forget_request(self, client: str, request: int) -> None:
        requests = self._requests[client]
        requests.discard(request)
        if not requests:
            del self._requests[client]

    def saved(self) -> tuple[Any, ...]:
        sent = {name: (one.last, one.confirmed, frozenset(one.beyond)) for name, one in self._sent.items()}
        waiting = [(one.peer, one.answer, one.subscription, one.changes) for q in self._queues.values() for one in q]
        return sent, waiting

    def restore(self, saved: tuple[Any, ...]) -> None:
        sent, waiting = saved
        self._sent = {name: _Sent(last, confirmed, set(beyond)) for name, (last, confirmed, beyond) in sent.items()}
        for peer, answer, subscription, changes in waiting:
            self._add(WaitingAnswer(peer, msgspec.convert(answer, Acknowledged | Confirmed), subscription, changes))
