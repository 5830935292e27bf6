"""The host of a broker: hands it its input, writes down what it must remember, and brings it back after a crash.

Rule 1: an input is written down before its output leaves; so what others have heard can always be worked out again.
Rule 2: after a crash everything since the last memory is handed to the broker again, and sent again. Receivers know
        by the numbers of the frames what they have already.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from catchment.broker.advice import Advice
from catchment.broker.broker import Broker, Send, Settings
from catchment.broker.frames import Frame
from catchment.broker.memory import recalled, remembered

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
        memory_every: int,
        skew_us: int,
    ) -> None:
        self.name, self.is_down, self.busy_until_us = name, False, 0
        self._settings, self._make_advice = settings, make_advice
        self._memory_every, self._skew_us = memory_every, skew_us
        self.broker = Broker(name, neighbours, settings, make_advice())
        self._memory = remembered(self.broker)
        self._since: list[tuple[str, tuple[Any, ...]]] = []
        self.restarts = 0

    def receive(self, frame: Frame, now_us: int) -> tuple[bool, list[Send]]:
        """Whether the frame was taken, and what to send."""
        if self.is_down:
            return False, []
        local_us = max(now_us + self._skew_us, 0)
        if not self.broker.receive(frame, local_us):
            return False, []
        return True, self._noted("receive", frame, local_us)

    def attach(self, client: str) -> list[Send]:
        self.broker.attach(client)
        return self._noted("attach", client)

    def handle_timer(self, now_us: int) -> list[Send]:
        local_us = max(now_us + self._skew_us, 0)
        self.broker.handle_timer(local_us)
        return self._noted("handle_timer", local_us)

    def timer_us(self) -> int | None:
        """When the broker wants to be woken, by the true clock."""
        due_us = None if self.is_down else self.broker.timer_us()
        return None if due_us is None else due_us - self._skew_us

    def _noted(self, call: str, *arguments: Any) -> list[Send]:
        self._since.append((call, arguments))
        sent = self.broker.take_output()
        if len(self._since) >= self._memory_every:
            self._memory = remembered(self.broker)
            self._since.clear()
        return sent

    def crash(self) -> None:
        self.is_down = True

    def restart(self) -> list[Send]:
        """Come back; what to send once more."""
        self.broker = recalled(self._memory, self._settings, self._make_advice())
        sent: list[Send] = []
        for call, arguments in self._since:
            getattr(self.broker, call)(*arguments)
            sent += self.broker.take_output()
        self.is_down = False
        self.restarts += 1
        return sent
