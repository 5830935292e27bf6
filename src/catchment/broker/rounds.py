"""What an advice asks of its own broker as a client, and the end of an input, when it may look at all that came of it.

Rule 1: requests of advice are handled like those of any client, after the input that led to them and before the next.
Rule 2: they run in rounds: all requests, then what the broker has for the advice, then `on_settled` once nobody asks
        for more. What is asked in that begins another round; after `ROUNDS_MAX` of them, requests are refused.
Rule 3: an answer is worked out after all that its request led to has run, so that it waits for those confirmations too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from catchment.broker import messages as m
from catchment.broker.advice import OWN
from catchment.broker.peers import Peer

if TYPE_CHECKING:
    from catchment.broker.broker import Broker

__all__ = ["ROUNDS_MAX", "Rounds"]

ROUNDS_MAX = 8


class Rounds:
    """The requests of one broker's advice. Nothing waits here between inputs."""

    def __init__(self, broker: Broker, react: Callable[..., Any]) -> None:
        self._broker, self._react = broker, react
        self.numbers: dict[str, int] = {}
        """By advice, the number of its last request."""
        self._asked: list[tuple[str, Any]] = []
        self._answers: list[tuple[str, m.Acknowledged | m.Confirmed, str]] = []
        self._heard: list[tuple[str, m.Message]] = []
        self._unsettled: dict[str, None] = {}
        self._is_running = False

    def next_number(self, advice: str) -> int:
        self.numbers[advice] = self.numbers.get(advice, 0) + 1
        return self.numbers[advice]

    def ask(self, advice: str, request: m.Message) -> None:
        self._asked.append((advice, request))

    def settle_later(self, advice: str) -> None:
        self._unsettled[advice] = None

    def hear(self, client: str, message: m.Message) -> None:
        """The broker has something for an advice."""
        self._heard.append((client.removeprefix(OWN), message))

    def put_off(self, peer: str, answer: m.Acknowledged | m.Confirmed, subscription: str) -> bool:
        """Whether an answer has to wait for what the requests of advice lead to."""
        if self._is_running:
            self._answers.append((peer, answer, subscription))
        return self._is_running

    def answers_for(self, peer: str) -> list[m.Message]:
        """Answers to a peer that wait for what requests of advice lead to, or that an advice will get."""
        heard = [message for advice, message in self._heard if OWN + advice == peer]
        return [answer for to, answer, _ in self._answers if to == peer] + heard

    def forget(self, advice: str) -> None:
        """An advice is no more."""
        self.numbers.pop(advice, None)
        self._unsettled.pop(advice, None)
        self._asked = [one for one in self._asked if one[0] != advice]
        self._heard = [one for one in self._heard if one[0] != advice]

    def run(self) -> None:
        """Carry out all that advice has asked for."""
        if self._is_running or not self._is_pending():
            return
        self._is_running = True
        try:
            for _ in range(ROUNDS_MAX):
                self._run_one()
                if not self._is_pending():
                    return
            self._refuse()
        finally:
            self._is_running = False

    def _is_pending(self) -> bool:
        return bool(self._asked or self._answers or self._heard or self._unsettled)

    def _run_one(self) -> None:
        asked, self._asked = self._asked, []
        for advice, request in asked:
            self._handle(advice, request)
        self._broker.forward_joined()
        if self._asked:
            return
        self._answer()
        self._give()
        if not self._asked:
            unsettled, self._unsettled = self._unsettled, {}
            for advice in unsettled:
                self._react(advice, "on_settled")

    def _handle(self, advice: str, request: m.Message) -> None:
        client = OWN + advice
        if client not in self._broker.clients:
            self._broker.peers[client] = Peer()
            self._broker.clients.add(client)
        self._broker.hear(request, client)

    def _answer(self) -> None:
        answers, self._answers = self._answers, []
        for one in answers:
            self._broker.answer_once_confirmed(*one)

    def _give(self) -> None:
        heard, self._heard = self._heard, []
        for advice, message in heard:
            self._react(advice, "on_received", message)

    def _refuse(self) -> None:
        """Refuse what is still asked for; what an advice asks for in reply is left out."""
        asked, self._asked = self._asked, []
        self._answer()
        for advice, request in asked:
            reason = f"it was asked for in round {ROUNDS_MAX + 1} of one input; accepted are {ROUNDS_MAX}"
            self._heard.append((advice, m.Refused(request.request, reason)))
        self._give()
        self._broker.counters["rounds of advice that had no end"] += 1
        self._asked, self._answers, self._heard, self._unsettled = [], [], [], {}
