"""What stands around a broker, whoever carries its bytes: the log of its inputs, replay after a crash, its outboxes.

    log ─► step ─► hand over, peer by peer ─► freeze, now and then; one piece of the snapshot after each later step

Rule 1: an input is in the log before the broker sees it, and what came of a step is handed over after it.
Rule 2: frames are handed over in their order, each with the position that its step covers, and with where all steps
        have ended since anything was last handed over to anybody, or since that was last stored by itself.
Rule 3: after a crash the broker goes on from its last snapshot over all inputs since. As far as anything of it was
        handed over, they are put into the same steps, so that the same frames come of them; what a peer has already it
        does not get again, be it the first frames of a step. The rest may be put into steps of any size.
Rule 4: a snapshot counts once all its pieces are stored. Until then the one before counts, and neither the log nor the
        ends of steps are forgotten behind that.
Rule 5: what a peer does not take waits in its outbox, whose size is limited. A neighbour's limit makes brokers refuse
        publications; a client that lets its own be passed is dropped, and costs nobody else anything. A durable client
        has a limit of its own. What waits for an earlier life of a client is dropped when the next one begins.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, chain, repeat

import msgspec

from catchment.broker.broker import Broker
from catchment.broker.inputs import Attached, Input, Item, Overrun, Room, Send, Step
from catchment.broker.memory import freeze
from catchment.broker.snapshot_pieces import PieceHead, SnapshotPiece
from catchment.model.errors import UNREADABLE, CheckpointError, ConfigurationError, VersionError

__all__ = ["Host", "Limits", "Log", "Mark", "Outbox", "Snapshots", "item_from_bytes", "item_to_bytes"]


NOWHERE = -1
MARK_VERSION = "v1"
_MARK_VERSIONS = re.compile(r"v\d+")
_items = msgspec.msgpack.Decoder(Item)


def item_to_bytes(item: Item) -> bytes:
    return msgspec.msgpack.encode(item)


def item_from_bytes(data: bytes) -> Item:
    """The item that `item_to_bytes` was given; anything else is a CheckpointError."""
    try:
        item: Item = _items.decode(data)
    except UNREADABLE as error:
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
        return f"{MARK_VERSION} {self.last} {self.covers} {'+'.join(map(str, steps))}"

    @classmethod
    def from_text(cls, text: str) -> Mark:
        """The mark that `to_text` was called of; anything else is a CheckpointError, another version a VersionError."""
        version, _, rest = text.partition(" ")
        if version != MARK_VERSION and _MARK_VERSIONS.fullmatch(version):
            raise VersionError(f"a frame is marked in version {version}; accepted is {MARK_VERSION}")
        last, _, rest = rest.partition(" ")
        covers, _, steps = rest.partition(" ")
        try:
            if version != MARK_VERSION:
                raise ValueError
            ends = accumulate(int(step) for step in steps.split("+")) if steps else ()
            return cls(int(last), int(covers), tuple(ends))
        except ValueError:
            raise CheckpointError(
                f"a frame is marked {text[:80]!r}; accepted are {MARK_VERSION}, two numbers, and ends"
            ) from None


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
    """How many bytes may wait for one neighbour, for one client, and for one that is durable."""

    link_bytes_max: int = 64_000_000
    client_bytes_max: int = 16_000_000
    durable_bytes_max: int = 1_000_000_000

    def __post_init__(self) -> None:
        for name in ("link_bytes_max", "client_bytes_max", "durable_bytes_max"):
            if getattr(self, name) < 1:
                raise ConfigurationError(f"{name} is {getattr(self, name)}; accepted are numbers from 1 on")

    def for_client(self, *, is_durable: bool) -> int:
        """How many bytes may wait for a client."""
        return self.durable_bytes_max if is_durable else self.client_bytes_max


@dataclass(slots=True)
class Outbox:
    """The frames for one peer that it has not taken yet. It outlives a crash of the broker."""

    last: int = 0
    """The sequence of the newest frame."""
    covers: int = 0
    size_bytes: int = 0
    frames: deque[bytes] = field(default_factory=deque)

    ends: list[int] = field(default_factory=list)
    """Where steps have ended, as far as frames for this peer say so, since the last snapshot."""

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

    def end_life(self) -> None:
        """Drop what waits for a life of a client that is over."""
        self.clear()


class Snapshots:
    """Says which pieces of one broker's snapshots its host must store, keep and delete. It stores nothing itself.

        snapshots.begin(broker)                         # now and then, when all of the last step is handed over
        key, data = snapshots.next_piece()              # after each step, while there is one
        …store data under key…
        if snapshots.note_stored():                     # the snapshot is whole
            …forget the log and the ends of steps up to snapshots.position…
        …delete what is stored under snapshots.useless()…

    A host that is back gives what it finds stored. It brings the broker back from the pieces under `needed` or, if
    there are none, makes a new one; and hands it the inputs behind `position`.
    """

    def __init__(self, broker: str, stored: Iterable[bytes] = ()) -> None:
        self._stored: dict[str, SnapshotPiece] = {}
        """By key, without their bodies."""
        self._unwritten: Iterator[SnapshotPiece] | None = None
        self._unstored: SnapshotPiece | None = None
        self._writing = NOWHERE
        """The position of the snapshot that is being written."""
        self.position = 0
        """The position of the input that the newest whole snapshot stands for; 0 if there is none."""
        self.needed: list[str] = []
        """The keys of the pieces that bring its broker back, in the order in which `restored` takes them."""
        for data in stored:
            piece = SnapshotPiece.read(data)
            if piece.head.broker != broker:
                raise CheckpointError(f"{piece.head} is stored; accepted are pieces of {broker!r}")
            self._stored[_key(piece.head)] = piece.without_body()
        for last in sorted((one.head for one in self._stored.values() if one.head.is_last), key=_position):
            self._take_whole(last)

    def begin(self, broker: Broker) -> None:
        """Freeze a broker; or do nothing if a snapshot is being written, or one of the same position is whole."""
        is_there = bool(self.needed) and broker.position == self.position
        if self._unwritten is None and not is_there:
            self._writing = broker.position
            self._unwritten = freeze(broker).cut(self._ids_end())

    def next_piece(self) -> tuple[str, bytes] | None:
        """Write the next piece of the snapshot that was begun, and the key to store it under; None if there is none."""
        if self._unstored is None and self._unwritten is not None:
            self._unstored = next(self._unwritten)
        return None if self._unstored is None else (_key(self._unstored.head), self._unstored.data)

    def note_stored(self) -> bool:
        """Note that the piece is stored which `next_piece` gave; tell whether its snapshot is whole by that."""
        assert self._unstored is not None
        piece, self._unstored = self._unstored, None
        self._stored[_key(piece.head)] = piece.without_body()
        if piece.head.is_last:
            self._unwritten, self._writing = None, NOWHERE
            self._take_whole(piece.head)
        return piece.head.is_last

    def useless(self) -> list[str]:
        """Give up the pieces that nobody needs any more: keys to delete."""
        needed = set(self.needed)
        found = [key for key, one in self._stored.items() if key not in needed and one.head.position != self._writing]
        for key in found:
            del self._stored[key]
        return found

    def _take_whole(self, last: PieceHead) -> None:
        """Let a snapshot be the one that counts, if all its pieces and all its ids are there."""
        own: list[str] = []
        before: SnapshotPiece | None = None
        for number in range(1, last.number + 1):
            key = _key(last, number)
            piece = self._stored.get(key)
            if piece is None or not piece.follows(before):
                return
            own.append(key)
            before = piece
        earlier = self._ids_before(own[0])
        if earlier is not None:
            self.position, self.needed = last.position, earlier + own

    def _ids_before(self, key: str) -> list[str] | None:
        """Find the pieces of earlier snapshots with the ids that one lacks; None if some are missing.

        The same positions have the same ids, in whichever snapshot they were written.
        """
        ids = self._stored[key].head.ids
        assert ids is not None
        ending = {
            one.head.ids.end: (other, one.head.ids)
            for other, one in self._stored.items()
            if one.head.ids is not None and one.head.ids.begin < one.head.ids.end
        }
        found: list[str] = []
        begin = ids.begin
        while begin > ids.oldest:
            if begin not in ending:
                return None
            other, before = ending[begin]
            found.append(other)
            begin = before.begin
        return found[::-1]

    def _ids_end(self) -> int:
        """The position up to which remembered ids are stored, for the newest whole snapshot."""
        ranges = [self._stored[key].head.ids for key in self.needed]
        return max((one.end for one in ranges if one is not None), default=0)


def _position(head: PieceHead) -> int:
    return head.position


def _key(head: PieceHead, number: int | None = None) -> str:
    """The key of a piece, or of another one of the same snapshot."""
    return f"{head.position}/{head.number if number is None else number}"


class Host:
    """Runs a broker: hands it its inputs, and its output to the outboxes."""

    def __init__(self, broker: Broker, outboxes: dict[str, Outbox], limits: Limits) -> None:
        self.broker, self.outboxes, self._limits = broker, outboxes, limits
        self._full = self._known_full()
        self._overrun: set[str] = set()
        self._ends: list[int] = []
        """Of the last step, and of those without output before it."""
        self._is_output = False
        self._grown = set(outboxes)
        """Peers whose outboxes may have come to their limits since notices were last asked for."""

    def _known_full(self) -> set[str]:
        """The neighbours towards which the broker knows that there is no room."""
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
        before = self.position
        step = self.broker.step(inputs)
        for client in step.begun:
            # On replay, the new life may have frames of its own already.
            if client in self.outboxes and self.outboxes[client].covers <= before:
                self.outboxes[client].end_life()
        if self._is_output:
            self._ends.clear()
        self._ends.append(self.position)
        self._is_output = bool(step.sends)
        return step

    def hand_over(self, send: Send) -> None:
        """Put what a step has for one peer into its outbox."""
        self.outboxes.setdefault(send.to, Outbox()).put(send, self._ends)
        self._grown.add(send.to)

    def forget(self, position: int) -> None:
        """A snapshot stands for all up to a position: where steps ended before is of no use."""
        self._ends = [end for end in self._ends if end > position]
        for outbox in self.outboxes.values():
            outbox.ends = [end for end in outbox.ends if end > position]

    def notices(self) -> list[Item]:
        """What the broker has to know of its outboxes: to be stored in its log."""
        found: list[Item] = []
        changed = sorted(self._grown | self._full)
        self._grown.clear()
        for name in changed:
            outbox = self.outboxes.get(name)
            size = 0 if outbox is None else outbox.size_bytes
            if name in self.broker.neighbours:
                most = self._limits.link_bytes_max
                if name not in self._full and size > most:
                    self._full.add(name)
                    found.append(Room(name, is_full=True))
                elif name in self._full and size <= most // 2:
                    self._full.remove(name)
                    found.append(Room(name, is_full=False))
            elif name in self.broker.clients and name not in self._overrun and size > self._client_bytes_max(name):
                self._overrun.add(name)
                found.append(Overrun(name, len(self.outboxes[name].frames)))
        return found

    def _client_bytes_max(self, name: str) -> int:
        return self._limits.for_client(is_durable=self.broker.peers[name].is_durable)

    def replay(self, inputs: Sequence[Input], sizes: Iterable[int] = repeat(1_000)) -> Iterator[Step]:
        """Step over inputs that may have been handled before, and hand over what peers do not have.

        The last step has no input: it asks the store for what has no reply in the log, and no other step asks anything.
        """
        for step, lacking in self.steps_again(inputs, sizes):
            for send in lacking:
                self.hand_over(send)
            yield step

    def steps_again(
        self, inputs: Sequence[Input], sizes: Iterable[int] = repeat(1_000), ends: Iterable[int] = ()
    ) -> Iterator[tuple[Step, list[Send]]]:
        """Step as `replay` does, and give what is to be handed over before the next step is asked for.

        `ends` has where steps have ended, besides what outboxes say of it.
        """
        has = {name: (outbox.covers, outbox.last) for name, outbox in self.outboxes.items()}
        known = chain(ends, *(outbox.ends for outbox in self.outboxes.values()))
        for group in _groups(inputs, {end for end in known if end > self.position}, iter(sizes)):
            step = self.step(group)
            # The log may have the reply: to write once more what was deleted since would bring it back.
            yield msgspec.structs.replace(step, requests=()), _lacking(step, has)
        self.broker.weaver.requests.ask_open()
        step = self.step(())
        yield step, _lacking(step, has)
        # The log may have said more of room than the snapshot.
        self._full = self._known_full()


def _lacking(step: Step, has: Mapping[str, tuple[int, int]]) -> list[Send]:
    """What peers lack of a step, by what they have: up to which position, and up to which frame."""
    lacking = (send.lacking(*has.get(send.to, (0, 0))) for send in step.sends)
    return [send for send in lacking if send is not None]


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
