"""A broker's host in a simulation, and what of it outlives a crash: the log, the last snapshot, the outboxes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from time import process_time

from catchment.broker.advice import Advice, Catalogue
from catchment.broker.broker import Broker, Settings
from catchment.broker.hosting import Host, Limits, Log, Outbox
from catchment.broker.inputs import Item, Send, Step
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
        catalogue: Catalogue,
        limits: Limits,
        snapshot_every: int | None,
        skew_us: int,
    ) -> None:
        self.name, self.is_down, self.busy_until_us = name, False, 0
        self._settings, self._make_advice, self._catalogue, self._limits = settings, make_advice, catalogue, limits
        self._snapshot_every, self.skew_us = snapshot_every, skew_us
        self.log, self.outboxes = Log(), dict[str, Outbox]()
        self.host = Host(Broker(name, neighbours, settings, make_advice(), catalogue=catalogue), self.outboxes, limits)
        self._snapshot = remembered(self.broker)
        self._steps = 0
        self.timer_us: int | None = None
        """When the broker wants to be woken, by its own clock."""
        self.restarts = 0
        self.load_us: Counter[str] = Counter()
        """Of one core, by what it was spent on."""
        self.cpu_s = 0.0
        """What its steps have really taken."""

    @property
    def broker(self) -> Broker:
        return self.host.broker

    @property
    def waiting(self) -> int:
        """Inputs that the broker has not seen."""
        return self.log.end - self.host.position - 1

    def store(self, item: Item, now_us: int) -> None:
        """Write an input into the log, which is there also while the broker is not."""
        self.log.append(item, now_us + self.skew_us)

    def step(self, count: int) -> Step:
        """Let the broker handle the next inputs; what came of it is to be handed over."""
        begin = self.host.position + 1
        inputs = self.log.read(begin, begin + count)
        begun_s = process_time()
        step = self.host.step(inputs)
        self.cpu_s += process_time() - begun_s
        self.timer_us = step.timer_us
        return step

    def hand_over(self, send: Send) -> None:
        self.host.hand_over(send)

    def notices(self) -> Iterator[Item]:
        return self.host.notices()

    def snapshot(self) -> None:
        """Now and then, write down what the broker must remember; what the log has of before is dropped."""
        self._steps += 1
        if self._snapshot_every is not None and self._steps % self._snapshot_every == 0:
            self._snapshot = remembered(self.broker)
            self.host.forget(self.host.position)
        if self._snapshot_every is None or self._steps % self._snapshot_every == 0:
            self.log.forget(self.host.position + 1)

    def crash(self) -> None:
        """Lose everything that is not on the disk."""
        self.is_down = True

    def restart(self, sizes: Iterator[int]) -> list[Step]:
        """Come back: the last snapshot, and all inputs since then once more, in steps of other sizes."""
        broker = recalled(self._snapshot, self._settings, self._make_advice(), catalogue=self._catalogue)
        self.host = Host(broker, self.outboxes, self._limits)
        steps = list(self.host.replay(self.log.read(broker.position + 1), sizes))
        self.timer_us = steps[-1].timer_us
        self.is_down = False
        self.restarts += 1
        return steps
