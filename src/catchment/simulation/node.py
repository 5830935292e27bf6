"""A broker's host in a simulation, and what of it outlives a crash: the log, pieces of snapshots, the outboxes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from time import process_time

from catchment.broker.advice import Advice, Catalogue
from catchment.broker.broker import Broker, Settings
from catchment.broker.hosting import Host, Limits, Log, Outbox, Snapshots
from catchment.broker.inputs import Item, Send, Step
from catchment.broker.memory import restored

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
        self._neighbours, self._limits = tuple(neighbours), limits
        self._settings, self._make_advice, self._catalogue = settings, make_advice, catalogue
        self._snapshot_every, self.skew_us = snapshot_every, skew_us
        self.log, self.outboxes = Log(), dict[str, Outbox]()
        self._pieces: dict[str, bytes] = {}
        self._snapshots = Snapshots(name)
        self.host = Host(self._brought_back(), self.outboxes, limits)
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

    def snapshot(self) -> None:
        """Freeze the broker now and then, and store the next piece of what was frozen."""
        self._steps += 1
        if self._snapshot_every is None:
            self.log.forget(self.host.position + 1)
            return
        if self._steps % self._snapshot_every == 0:
            self._snapshots.begin(self.broker)
        piece = self._snapshots.next_piece()
        if piece is not None:
            key, data = piece
            self._pieces[key] = data
            if self._snapshots.note_stored():
                self.host.forget(self._snapshots.position)
                self.log.forget(self._snapshots.position + 1)
            for useless in self._snapshots.useless():
                del self._pieces[useless]

    def _brought_back(self) -> Broker:
        """Make the broker of the last whole snapshot, or a new one."""
        pieces = [self._pieces[key] for key in self._snapshots.needed]
        if pieces:
            return restored(pieces, self._settings, self._make_advice(), catalogue=self._catalogue)
        return Broker(self.name, self._neighbours, self._settings, self._make_advice(), catalogue=self._catalogue)

    def crash(self) -> None:
        """Lose everything that is not on the disk."""
        self.is_down = True

    def restart(self, sizes: Iterator[int]) -> list[Step]:
        """Come back: the last whole snapshot, and all inputs since then once more, in steps of other sizes."""
        self._snapshots = Snapshots(self.name, self._pieces.values())
        broker = self._brought_back()
        self.host = Host(broker, self.outboxes, self._limits)
        steps = list(self.host.replay(self.log.read(broker.position + 1), sizes))
        self.timer_us = steps[-1].timer_us
        self.is_down = False
        self.restarts += 1
        return steps
