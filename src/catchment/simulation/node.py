"""The host of a broker: hands it its input, writes down what it must remember, and brings it back after a crash.

Rule 1: an input is written down before its output leaves; so what others have heard can always be worked out again.
Rule 2: after a crash everything since the last memory is handed to the broker again, and sent again. Receivers know
        by the numbers of the frames what they have already.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from time import process_time
from typing import Any

from catchment.broker.advice import Advice
from catchment.broker.broker import Broker, Send, Settings
from catchment.broker.frames import Frame
from catchment.broker.memory import recalled, remembered
from catchment.broker.store import StoreReply

__all__ = ["Node"]


class Node:
    """A broker that may crash, with a clock that may be wrong."""

    def __init__(
        self,
        name: str,
        neighbours: Iterable[str],
        settings: Settings,
        make_advice: Callable[[], Iterable[Advice]],
        *,
        memory_every: int | None,
        skew_us: int,
    ) -> None:
        self.name, self.is_down, self.busy_until_us = name, False, 0
        self._settings, self._make_advice = settings, make_advice
        self._memory_every, self.skew_us = memory_every, skew_us
        self.broker = Broker(name, neighbours, settings, make_advice())
        self._memory = remembered(self.broker)
        self._since: list[tuple[str, tuple[Any, ...]]] = []
        self.restarts = 0
        self.load_us: Counter[str] = Counter()
        """Of one core, by what it was spent on."""
        self.cpu_s = 0.0
        """What its calls have really taken."""

    def receive(self, frame: Frame, now_us: int) -> bool:
        """Whether the frame was taken."""
        local_us = now_us + self.skew_us
        begun_s = process_time()
        taken = not self.is_down and self.broker.receive(frame, local_us)
        self.cpu_s += process_time() - begun_s
        if not taken:
            return False
        self._note("receive", frame, local_us)
        return True

    def receive_reply(self, reply: StoreReply, now_us: int) -> None:
        """The store has answered; to a broker that is down it has not."""
        if not self.is_down:
            local_us = now_us + self.skew_us
            self.broker.receive_reply(reply, local_us)
            self._note("receive_reply", reply, local_us)

    def attach(self, client: str) -> None:
        self.broker.attach(client)
        self._note("attach", client)

    def handle_timer(self, now_us: int) -> None:
        local_us = now_us + self.skew_us
        begun_s = process_time()
        self.broker.handle_timer(local_us)
        self.cpu_s += process_time() - begun_s
        self._note("handle_timer", local_us)

    def take_output(self, peer: str, room: tuple[int, int]) -> list[Send]:
        """What to send to a peer now."""
        taken = self.broker.take_output(peer, room)
        events = sum(send.frame.message.is_event for send in taken)
        self._note("take_output", peer, (len(taken) - events, events))
        return taken

    def timer_us(self) -> int | None:
        """When the broker wants to be woken, by the true clock."""
        due_us = None if self.is_down else self.broker.timer_us()
        return None if due_us is None else due_us - self.skew_us

    def _note(self, call: str, *arguments: Any) -> None:
        if self._memory_every is None:
            return
        self._since.append((call, arguments))
        if len(self._since) >= self._memory_every:
            self._memory = remembered(self.broker)
            self._since.clear()

    def crash(self) -> None:
        self.is_down = True

    def restart(self) -> list[Send]:
        """Come back; what to send once more."""
        self.broker = recalled(self._memory, self._settings, self._make_advice())
        sent: list[Send] = []
        for call, arguments in self._since:
            found = getattr(self.broker, call)(*arguments)
            if call == "take_output":
                sent += found
        self.is_down = False
        self.restarts += 1
        return sent
