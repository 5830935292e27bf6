"""What stands around a broker, whoever carries its bytes: the log of its inputs, replay after a crash, its outboxes.

    log ─► step ─► hand over, peer by peer ─► snapshot, now and then

Rule 1: an input is in the log before the broker sees it, and what came of a step is handed over after it.
Rule 2: frames are handed over in their order, each with the position that its step covers, and with where all steps
        have ended since anything was last handed over to anybody, or since that was last stored by itself.
Rule 3: after a crash the broker goes on from its last snapshot over all inputs since. As far as anything of it was
        handed over, they are put into the same steps, so that the same frames come of them; what a peer has already it
        does not get again, be it the first frames of a step. The rest may be put into steps of any size.
Rule 4: what a peer does not take waits in its outbox, whose size is limited. A neighbour's limit makes brokers refuse
        publications; a client that lets its own be passed is dropped, and costs nobody else anything.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, chain, repeat

import msgspec

from catchment.broker.broker import Broker
from catchment.broker.inputs import Attached, Input, Item, Overrun, Room, Send, Step
from catchment.model.errors import CheckpointError, ConfigurationError

__all__ = ["Host", "Limits", "Log", "Mark", "Outbox", "SnapshotHead", "item_from_bytes", "item_to_bytes"]


_items = msgspec.msgpack.Decoder(Item)


def item_to_bytes(item: Item) -> bytes:
    return msgspec.msgpack.encode(item)


def item_from_bytes(data: bytes) -> Item:
    """The item that `item_to_bytes` was given; anything else is a CheckpointError."""
    try:
        item: Item = _items.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise CheckpointError(f"an entry of a log does not decode: {str(error)[:200]}") from None
    return item


class Mark(msgspec.Struct, frozen=True, array_like=True):
    """What is stored with a frame, so that after a crash the newest one for each peer tells where steps have ended."""

    last: int = 0
    """The sequence of the frame."""
    covers: int = 0
    ends: tuple[int, ...] = ()
    """Rising."""

    def to_text(self) -> str:
        """In a form that fits into a header: ends as what each adds to the one before."""
        steps = (end - before for before, end in zip((0, *self.ends), self.ends, strict=False))
        return f"{self.last} {self.covers} {'+'.join(map(str, steps))}"

    @classmethod
    def from_text(cls, text: str) -> Mark:
        """The mark that `to_text` was called of; anything else is a CheckpointError."""
        last, _, rest = text.partition(" ")
        covers, _, steps = rest.partition(" ")
        try:
            ends = accumulate(int(step) for step in steps.split("+")) if steps else ()
            return cls(int(last), int(covers), tuple(ends))
        except ValueError:
            raise CheckpointError(f"a frame is marked {text[:80]!r}; accepted are two numbers, and ends") from None


class SnapshotHead(msgspec.Struct, frozen=True):
    """What is stored behind the pieces of a snapshot: it is whole once this is there."""

    broker: str
    neighbours: tuple[str, ...]
    position: int
    """Of the input that the snapshot stands for."""
    first: int
    """Where its first piece is stored; the others follow."""
    pieces: int
    size_bytes: int
    format: int = 1

    def to_bytes(self) -> bytes:
        return msgspec.json.encode(self)

    @classmethod
    def from_bytes(cls, data: bytes, broker: str, neighbours: Sequence[str]) -> SnapshotHead:
        """What `to_bytes` was called of, for the broker that it belongs to; anything else is a CheckpointError."""
        try:
            head = _heads.decode(data)
        except msgspec.MsgspecError as error:
            raise CheckpointError(f"the head of a snapshot does not decode: {str(error)[:200]}") from None
        if head.format != 1:
            raise CheckpointError(f"a snapshot of {broker!r} has the format {head.format}; accepted is 1")
        if (head.broker, head.neighbours) != (broker, tuple(neighbours)):
            raise CheckpointError(
                f"a snapshot is of {head.broker!r} with the neighbours {', '.join(head.neighbours) or 'none'}; "
                f"accepted is one of {broker!r} with {', '.join(neighbours) or 'none'}"
            )
        return head


_heads = msgspec.json.Decoder(SnapshotHead)


@dataclass(slots=True)
class Log:
    """A broker's inputs in memory, in the order in which they were stored."""

    first: int = 1
    """The position of the oldest entry that is kept."""
    _entries: deque[tuple[int, bytes]] = field(default_factory=deque)

    @property
    def end(self) -> int:
        """The position behind the last entry."""
        return self.first + len(self._entries)

    def append(self, item: Item, at_us: int) -> int:
        """Store an input; its position."""
        self._entries.append((at_us, item_to_bytes(item)))
        return self.end - 1

    def read(self, begin: int, end: int | None = None) -> list[Input]:
        """The inputs from one position to before another."""
        if begin < self.first:
            raise CheckpointError(f"a log begins at {self.first}; accepted are positions from there on, not {begin}")
        places = range(begin - self.first, (self.end if end is None else min(end, self.end)) - self.first)
        return [
            Input(item_from_bytes(data), at_us, self.first + place)
            for place in places
            for at_us, data in [self._entries[place]]
        ]

    def forget(self, before: int) -> None:
        """Drop what a snapshot stands for."""
        while self.first < min(before, self.end):
            self._entries.popleft()
            self.first += 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How many bytes may wait for one neighbour, and for one client."""

    link_bytes_max: int = 64_000_000
    client_bytes_max: int = 16_000_000

    def __post_init__(self) -> None:
        for name in ("link_bytes_max", "client_bytes_max"):
            if getattr(self, name) < 1:
                raise ConfigurationError(f"{name} is {getattr(self, name)}; accepted are numbers from 1 on")


@dataclass(slots=True)
class Outbox:
    """The frames for one peer that it has not taken yet. It outlives a crash of the broker."""

    last: int = 0
    """The sequence of the newest frame."""
    covers: int = 0
    size_bytes: int = 0
    frames: deque[bytes] = field(default_factory=deque)

    ends: list[int] = field(default_factory=list)
    """Where steps have ended, as far as that was told with frames for this peer, since the last snapshot."""

    def put(self, send: Send, ends: Iterable[int]) -> None:
        """Store the frames of a step; those of a life that is over are dropped."""
        if send.first == 1:
            self.clear()
        elif send.first != self.last + 1:
            raise CheckpointError(f"a peer has frames up to {self.last}; accepted is the next one, not {send.first}")
        self.frames.extend(send.frames)
        self.size_bytes += sum(map(len, send.frames))
        self.last, self.covers = send.last, send.covers
        self.ends.extend(ends)

    def take(self) -> bytes:
        """The next frame, which is on its way now."""
        data = self.frames.popleft()
        self.size_bytes -= len(data)
        return data

    def clear(self) -> None:
        self.frames.clear()
        self.size_bytes = 0


class Host:
    """Runs a broker: hands it its inputs, and its output to the outboxes."""

    def __init__(self, broker: Broker, outboxes: dict[str, Outbox], limits: Limits) -> None:
        self.broker, self.outboxes, self._limits = broker, outboxes, limits
        self._full = self._told_full()
        self._overrun: set[str] = set()
        self._ends: list[int] = []
        """Of the last step, and of those without output before it."""
        self._is_output = False

    def _told_full(self) -> set[str]:
        """The neighbours of which the broker was told that there is no room."""
        return {name for name in self.broker.neighbours if self.broker.peers[name].is_full}

    @property
    def position(self) -> int:
        """Of the last input that the broker has seen."""
        return self.broker.position

    def step(self, inputs: Sequence[Input]) -> Step:
        """One step; what came of it is to be handed over."""
        for one in inputs:
            if isinstance(one.item, Overrun):
                outbox = self.outboxes.setdefault(one.item.client, Outbox())
                if outbox.covers < one.position:
                    # Make room for the last that the client will hear.
                    outbox.clear()
            elif isinstance(one.item, Attached):
                self._overrun.discard(one.item.client)
        step = self.broker.step(inputs)
        if self._is_output:
            self._ends.clear()
        self._ends.append(self.position)
        self._is_output = bool(step.sends)
        return step

    def hand_over(self, send: Send) -> None:
        """Put what a step has for one peer into its outbox."""
        self.outboxes.setdefault(send.to, Outbox()).put(send, self._ends)

    def forget(self, position: int) -> None:
        """A snapshot stands for all up to a position: where steps ended before is of no use."""
        self._ends = [end for end in self._ends if end > position]
        for outbox in self.outboxes.values():
            outbox.ends = [end for end in outbox.ends if end > position]

    def notices(self) -> Iterator[Item]:
        """What the broker has to know of its outboxes: to be stored in its log."""
        most = self._limits.link_bytes_max
        for name in self.broker.neighbours:
            size = self.outboxes[name].size_bytes if name in self.outboxes else 0
            if name not in self._full and size > most:
                self._full.add(name)
                yield Room(name, is_full=True)
            elif name in self._full and size <= most // 2:
                self._full.remove(name)
                yield Room(name, is_full=False)
        for name in sorted(self.broker.clients - self._overrun):
            outbox = self.outboxes.get(name)
            if outbox is not None and outbox.size_bytes > self._limits.client_bytes_max:
                self._overrun.add(name)
                yield Overrun(name, len(outbox.frames))

    def replay(
        self, inputs: Sequence[Input], sizes: Iterable[int] = repeat(1_000), ends: Iterable[int] = ()
    ) -> Iterator[Step]:
        """Step over inputs that may have been handled before, and hand over what peers do not have.

        What a step gave is handed over when the next one is asked for. `ends` has where steps have ended, besides what
        outboxes say of it.
        """
        has: Mapping[str, tuple[int, int]] = {
            name: (outbox.covers, outbox.last) for name, outbox in self.outboxes.items()
        }
        known = chain(ends, *(outbox.ends for outbox in self.outboxes.values()))
        for group in chain(_groups(inputs, {end for end in known if end > self.position}, iter(sizes)), [()]):
            step = self.step(group)
            yield step
            for send in step.sends:
                lacking = send.lacking(*has.get(send.to, (0, 0)))
                if lacking is not None:
                    self.hand_over(lacking)
        # The log may have said more of room than the snapshot.
        self._full = self._told_full()


def _groups(inputs: Sequence[Input], ends: set[int], sizes: Iterator[int]) -> Iterator[Sequence[Input]]:
    """Inputs in the steps that are known, and behind them in steps of other sizes."""
    group: list[Input] = []
    size, known = next(sizes), max(ends, default=0)
    for one in inputs:
        group.append(one)
        if one.position in ends or (one.position > known and len(group) >= size):
            yield group
            group, size = [], next(sizes)
    if group:
        yield group
