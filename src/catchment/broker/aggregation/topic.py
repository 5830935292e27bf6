"""One topic at one broker: what publications and partials set off, and what is told when.

Rule 1: to a neighbour go, in this order, publications, partials, and the promise that covers them.
Rule 2: what is due is told in the order of the ends of windows; a decision at an end knows what came before it.
Rule 3: with revisions, things are also told by the clock before anyone has promised anything; what comes later is told
        apart, and the subscriber's broker puts it together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from catchment.broker.advice import At
from catchment.broker.aggregation.asking import HERE, Asked, Base, Bases
from catchment.broker.aggregation.clocks import FOR_EVER, NEVER, Clock, last_end_us
from catchment.broker.aggregation.deciding import Column, Deciding, Standing, columns_of
from catchment.broker.aggregation.edges import Edge
from catchment.broker.aggregation.options import AggregationOptions
from catchment.broker.aggregation.outlets import Held, Outlet
from catchment.broker.aggregation.places import Due, Item, Place, Wanted
from catchment.broker.aggregation.rows import Rows, batch_of, marks_by_row, marks_of
from catchment.broker.aggregation.shelves import Partial, Received, slice_of
from catchment.broker.routing import Matched
from catchment.model.errors import AggregateOverflowError
from catchment.model.schema import Schema
from catchment.overlay.placement import grain_of
from catchment.stages import event_bytes

__all__ = ["ADVICE", "Topic"]

ADVICE = "aggregation"
_HOLDING = " held"
"""A timer for publications that are held; no base has this key."""
Wants = dict[int, list[tuple[Base, Wanted]]]
"""Of each row of a batch, who wants it and does not have it yet."""
_NO_ROOM_US = 10_000
_GONE_MAX = 1_000


@dataclass(slots=True)
class _Draft:
    """What goes to a neighbour as it is."""

    crossing: set[int]
    marks: dict[int, list[str]] = field(default_factory=dict)


class Topic:
    """All that a broker knows and holds of one topic."""

    def __init__(
        self, name: str, schema: Schema, options: AggregationOptions, broker: str, neighbours: Sequence[str]
    ) -> None:
        self.name, self._schema, self._options, self._broker = name, schema, options, broker
        self._by_stride = grain_of(options.placement) == "stride"
        self.bases = Bases(schema, by_stride=self._by_stride)
        self.clock = Clock(options.lateness_us, options.idle_after_us)
        self.edge = Edge(schema, by_stride=self._by_stride, revises=options.revises)
        self.outlets = {side: Outlet(side, by_stride=self._by_stride) for side in neighbours}
        self.deciding = None
        if neighbours:
            self.deciding = Deciding(options.placement, broker, neighbours, options.sampling_period_us)
        self.told: dict[str, set[str]] = {side: set() for side in neighbours}
        """The subscriptions that each neighbour knows from here."""
        self._gone: dict[str, None] = {}
        self._waits: dict[str, list[int]] = {}
        """Of each base, how long publications took at most in the last two strides, and which the last one is."""
        self._watching = False
        self._sought: dict[str, int] = {}
        """Of each side for which something is open, up to where the others have been asked."""
        self._wanted: dict[str, int] = {}
        """Of each side, up to where it waits for the others."""

    # -- who asks ---------------------------------------------------------------------------------------------------

    def add(self, asked: Asked, side: str) -> None:
        self._gone.pop(self.bases.add(asked, side).key, None)

    def remove(self, name: str) -> None:
        """A subscription is no more, and its open windows with it."""
        base, side = self.bases.remove(name)
        self.edge.leave(name)
        if side not in base.sides:
            self._place(side).forget(base.key)
        if not base.sides:
            self._waits.pop(base.key, None)
            self._gone[base.key] = None
            while len(self._gone) > _GONE_MAX:
                del self._gone[next(iter(self._gone))]
            if self.deciding is not None:
                self.deciding.forget(self.bases.by_key)

    def _place(self, side: str) -> Place:
        return self.edge if side == HERE else self.outlets[side]

    # -- publications -----------------------------------------------------------------------------------------------

    def take_in(self, at: At, events: pa.RecordBatch, matched: Matched, upstream: str) -> Matched:
        """Add publications up, hold them back, or let them go on: where they go as they are, and with which marks."""
        attached: dict[str, Any] | None = at.attached if upstream in at.neighbours else None
        if not self.bases and attached is None:
            return matched
        served = marks_by_row(attached)
        # What was held back goes on for aggregates alone: others have it already.
        regular = Matched() if attached is not None and attached["only"] else matched
        rows = Rows(events)
        self.clock.see(max(rows.times), at.now_us)
        wants = self._wants(rows, events, served)
        adds = 0
        for row, several in wants.items():
            for base, wanted in several:
                if HERE in base.sides:
                    values = rows.values(row, _attributes(base))
                    self._wait_for(at, HERE, self.edge.add(base, wanted, values), base, rows.times[row])
                    adds += 1
        drafts = {side: _Draft(set(_rows(regular, side))) for side in self.outlets if side != upstream}
        if self.deciding is not None and wants:
            sizes = event_bytes(events).tolist()
            if self.deciding.placement.holds:
                for side, draft in drafts.items():
                    self._hold_back(at, side, draft, rows, wants, sizes, served)
            else:
                adds += self._absorb(at, drafts, rows, wants, sizes)
        if adds:
            at.spend("add", adds)
        self._observe(wants, rows, at.now_us)
        return self._changed(regular, matched, drafts, served)

    @staticmethod
    def _changed(
        regular: Matched, matched: Matched, drafts: Mapping[str, _Draft], served: Mapping[int, Sequence[str]]
    ) -> Matched:
        changed = Matched(clients=regular.clients, extras=matched.extras)
        for side, draft in drafts.items():
            crossing = sorted(draft.crossing)
            if crossing:
                changed.neighbours[side] = np.array(crossing, np.int64)
                marks = {at: [*served.get(row, ()), *draft.marks.get(row, ())] for at, row in enumerate(crossing)}
                value = marks_of(marks, only=False)
                if value is not None:
                    changed.attach(ADVICE, side, value)
        return changed

    def _wants(self, rows: Rows, events: pa.RecordBatch, served: Mapping[int, Sequence[str]]) -> Wants:
        """Of each row, the bases that want it and do not have it yet."""
        found: dict[int, list[tuple[Base, Wanted]]] = {}
        for matching, bases in self.bases.wanting(events):
            for base in bases:
                for row in matching:
                    number = slice_of(base.window, rows.times[row])
                    if number is not None and base.key not in served.get(row, ()):
                        wanted = Wanted(base.key, rows.group(row, base.group_keys), number)
                        found.setdefault(row, []).append((base, wanted))
        return dict(sorted(found.items()))

    def _hold_back(
        self,
        at: At,
        side: str,
        draft: _Draft,
        rows: Rows,
        wants: Wants,
        sizes: Sequence[int],
        served: Mapping[int, Sequence[str]],
    ) -> None:
        """Let wait what may; what a regular subscription wants goes at once, and so does what must be collected."""
        for row, several in _beyond(wants, side).items():
            collects = any(part.state == "values" for base, _ in several for part in base.views[side].collected)
            if collects:
                draft.crossing.add(row)
            elif row not in draft.crossing:
                self._hold(at, side, rows, row, several, sizes[row], served.get(row, ()))

    def _absorb(self, at: At, drafts: Mapping[str, _Draft], rows: Rows, wants: Wants, sizes: Sequence[int]) -> int:
        """Decide for each link what goes into partials; how many publications were added to some."""
        assert self.deciding is not None
        adds = 0
        beyond = {side: _beyond(wants, side) for side in drafts}
        for begin_us, run in rows.runs(self.bases.windows, self.deciding.placement):
            before = self.deciding.transitions
            if self.deciding.sample(begin_us):
                at.spend("transition", self.deciding.transitions - before)
                self.coordinate(at)
            for side, draft in drafts.items():
                inside = [row for row in run if row in beyond[side]]
                crosses, absorbed = self._decide_run(at, side, rows, inside, beyond[side], draft.crossing, sizes)
                draft.crossing |= crosses
                draft.marks.update(absorbed)
                adds += sum(map(len, absorbed.values()))
        return adds

    def _decide_run(
        self,
        at: At,
        side: str,
        rows: Rows,
        inside: Sequence[int],
        beyond: Wants,
        must: set[int],
        sizes: Sequence[int],
    ) -> tuple[set[int], dict[int, list[str]]]:
        """Of some rows, those that cross as they are, and for which bases each was absorbed."""
        if not inside:
            return set(), {}
        assert self.deciding is not None
        outlet = self.outlets[side]
        standing = []
        for row in inside:
            columns: list[tuple[Column, int, bool]] = []
            for base, wanted in beyond[row]:
                values = rows.values(row, _attributes(base))
                columns += self._columns(outlet, base, wanted, values, ended=False)
            standing.append(Standing(sizes[row], row in must, columns))
        if self.deciding.ponders:
            at.spend("decide", len(standing))
        crosses: set[int] = set()
        absorbed: dict[int, list[str]] = {}
        for row, one, decided in zip(
            inside, standing, self.deciding.absorb(side, standing, self.bases.by_key), strict=True
        ):
            into = _whole_bases(one, decided)
            for base, wanted in beyond[row]:
                if base.key in into:
                    values = rows.values(row, _attributes(base))
                    due = outlet.add(base, wanted, values)
                    self._wait_for(at, side, due, base, rows.times[row])
                    absorbed.setdefault(row, []).append(base.key)
                else:
                    crosses.add(row)
        return crosses, absorbed

    @staticmethod
    def _columns(
        outlet: Outlet, base: Base, wanted: Wanted, values: Mapping[str, Any], *, ended: bool
    ) -> list[tuple[Column, int, bool]]:
        """What a placement is asked about for one base; `ended` says whether all partials from further up are here."""
        number = outlet.number(base, wanted)
        return [
            (column, number, outlet.crosses_anyway(base, column, number, ended=ended))
            for column in columns_of(base, base.views[outlet.side], wanted.group, values)
        ]

    def coordinate(self, at: At) -> None:
        """Tell neighbours what has changed for them."""
        if self.deciding is not None:
            for side, news in self.deciding.news(self.bases.by_key).items():
                at.tell(side, ["ahead", self.name, news])

    # -- publications that are held back ------------------------------------------------------------------------------

    def _hold(
        self,
        at: At,
        side: str,
        rows: Rows,
        row: int,
        several: Sequence[tuple[Base, Wanted]],
        size: int,
        served: Sequence[str],
    ) -> None:
        outlet = self.outlets[side]
        end_us = min(outlet.end_us(base, wanted) for base, wanted in several)
        wanted = tuple(one for _, one in several)
        outlet.held.append(Held(rows.times[row], end_us, rows.whole(row), size, wanted, tuple(served)))
        for base, _ in several:
            self._wait_for(at, side, [(end_us, (_HOLDING, (), end_us))], base, rows.times[row])

    def _release(self, at: At, side: str, end_us: int) -> None:
        """Decide about all that waits for the end of a stride, and let go on what shall cross as it is."""
        outlet = self.outlets[side]
        ready = [one for one in outlet.held if one.time_us < end_us]
        if not any(one.end_us <= end_us for one in ready):
            return
        assert self.deciding is not None
        bases = self.bases.by_key
        standing = []
        for one in ready:
            columns: list[tuple[Column, int, bool]] = []
            for wanted in one.wanted:
                base = bases[wanted.key]
                has_ended = outlet.end_us(base, wanted) <= end_us
                columns += self._columns(outlet, base, wanted, one.values, ended=has_ended)
            standing.append(Standing(one.size_bytes, False, columns))
        at.spend("decide", len(standing))
        crossing: list[Held] = []
        marks: dict[int, list[str]] = {}
        done = set()
        for one, stands, decided in zip(ready, standing, self.deciding.absorb(side, standing, bases), strict=True):
            if one.end_us > end_us:
                continue
            done.add(id(one))
            into = _whole_bases(stands, decided)
            for wanted in one.wanted:
                if wanted.key in into:
                    base = bases[wanted.key]
                    self._wait_for(at, side, outlet.add(base, wanted, one.values), base, None)
            at.spend("add", len(into))
            if len(into) < len({wanted.key for wanted in one.wanted}):
                marks[len(crossing)] = [*one.served, *into]
                crossing.append(one)
        outlet.held = [one for one in outlet.held if id(one) not in done]
        if crossing:
            batch = batch_of([one.values for one in crossing], self._schema)
            at.publish(side, self.name, batch, marks_of(marks, only=True))

    # -- partials ---------------------------------------------------------------------------------------------------

    def receive(self, at: At, sender: str, partials: Sequence[Any], promise_us: int | None) -> None:
        """Partials have come from a neighbour, and how far its time has come."""
        merges = 0
        for plain in partials:
            try:
                key, group, number, _, _, slices = msgspec.convert(plain, Received)
                found = {place: Partial.from_plain(one) for place, one in slices}
                base = self.bases.by_key.get(key)
                if base is not None:
                    _require_fitting(base, group, found)
            except Exception as error:  # whatever a neighbour says: nothing of it is taken
                at.report("partials that do not fit", f"from {sender}: {type(error).__name__}: {error}")
                continue
            if base is None:
                gone = key in self._gone
                what = "partials of subscriptions that have gone" if gone else "partials of unknown subscriptions"
                at.report(what, f"{key} from {sender}")
                continue
            for side in base.sides:
                if side == sender:
                    continue
                due = self._place(side).receive(base, tuple(group), number, found)
                self._wait_for(at, side, due, base, None)
                merges += len(found)
                for end_us, _ in due:
                    self.clock.see(end_us, at.now_us)
        if merges:
            at.spend("merge", merges)
        if promise_us is not None:
            self.clock.heard[sender] = max(self.clock.heard.get(sender, NEVER), promise_us)
            self.clock.see(promise_us, at.now_us)

    # -- time goes on -----------------------------------------------------------------------------------------------

    def advance(self, at: At) -> None:
        """Tell everyone what has become due."""
        advertisers = at.advertisers(self.name)
        for side, outlet in self.outlets.items():
            windows = self.bases.windows_at(side)
            if windows and not at.has_room(side):
                at.wake(self._key("later", side), at.now_us + _NO_ROOM_US)
            elif windows:
                self._settle(at, outlet, windows, self.clock.watermark_us(advertisers, at.neighbours, side))
        if self._clients_have_room(at):
            self._finish(at, self.clock.watermark_us(advertisers, at.neighbours))
        else:
            at.wake(self._key("later", HERE), at.now_us + _NO_ROOM_US)
        self._watch(at)

    def _clients_have_room(self, at: At) -> bool:
        return all(at.has_room(client) for client in {local.client for local in self.edge.locals.values()})

    def _settle(self, at: At, outlet: Outlet, windows: Sequence[Any], time_us: int) -> None:
        """Tell a neighbour all that ends up to a time, and that nothing before it will come."""
        partials: list[Any] = []
        closed_us = NEVER
        while (end_us := outlet.first_end_us()) is not None and end_us <= time_us:
            closed_us = end_us
            self._release(at, outlet.side, end_us)
            for _, items in outlet.agenda.until(end_us):
                partials += self._taken(at, outlet, items)
        promise_us = last_end_us(windows, time_us) if time_us < FOR_EVER else closed_us
        self.clock.closed_us = max(self.clock.closed_us, promise_us)
        is_news = promise_us > NEVER and promise_us > outlet.promised_us and time_us < FOR_EVER
        if closed_us > NEVER:
            outlet.forget_until(promise_us, self.bases.by_key)
        if is_news:
            outlet.promised_us = promise_us
        if partials or is_news:
            flow = ["flow", self.name, partials, promise_us if is_news else None, at.now_us]
            at.tell(outlet.side, flow, with_events=True)

    def _taken(self, at: At, outlet: Outlet, items: Sequence[Item]) -> list[Any]:
        found = []
        for item in items:
            base = self.bases.by_key.get(item[0])
            if base is not None:
                partial, states = outlet.take(item, base)
                at.spend("merge", max(states - 1, 0))
                found += [partial] if partial is not None else []
        return found

    def _finish(self, at: At, time_us: int) -> None:
        """Tell clients of all windows that end up to a time."""
        windows = self.bases.windows_at(HERE)
        if not windows:
            return
        due = self.edge.agenda.until(time_us)
        self._notify(at, [item for _, items in due for item in items])
        closed_us = last_end_us(windows, time_us) if time_us < FOR_EVER else max((end for end, _ in due), default=NEVER)
        if closed_us > self.clock.closed_us or due:
            self.clock.closed_us = max(self.clock.closed_us, closed_us)
            self.edge.forget_until(closed_us, self.bases.by_key)

    def _notify(self, at: At, items: Sequence[Item]) -> None:
        values: dict[str, list[Any]] = {}
        for item in items:
            base = self.bases.by_key.get(item[0])
            if base is None:
                continue
            for client, found, states in self.edge.tell(item, base):
                at.spend("merge", max(states - 1, 0))
                if isinstance(found, AggregateOverflowError):
                    at.report("values that are beyond their type", f"{client}, {item}: {found}")
                else:
                    values.setdefault(client, []).extend(found)
        for client, found in sorted(values.items()):
            if found:
                at.notify(client, tuple(found))

    # -- by the clock, with revisions ---------------------------------------------------------------------------------

    def _wait_for(self, at: At, side: str, due: Due, base: Base, time_us: int | None) -> None:
        """Set timers for what is due: for publications by how long they took of late, for partials by the delay."""
        if not self._options.revises:
            return
        agenda = self._place(side).agenda
        wait_us = None if time_us is None else max(self._waits.get(base.key, (0, 0))[:2])
        for end_us, item in due:
            if wait_us is None:
                due_us = max(at.now_us, end_us) + self._options.collection_delay_us(self._broker, end_us)
            else:
                due_us = max(at.now_us, end_us + wait_us)
            if agenda.wake(item, due_us):
                at.wake(self._key("tell", side), due_us)

    def _observe(self, wants: Wants, rows: Rows, now_us: int) -> None:
        """Learn how long publications take to come here."""
        if self._options.revises:
            for row, several in wants.items():
                for base, _ in several:
                    stride = rows.times[row] // base.window.shift_us
                    wait = self._waits.setdefault(base.key, [0, 0, stride])
                    if stride > wait[2]:
                        wait[:] = [wait[1], 0, stride]
                    wait[1] = max(wait[1], now_us - rows.times[row])

    def expire(self, at: At, side: str) -> None:
        """Tell what the clock says is due."""
        agenda = self._place(side).agenda
        has_room = self._clients_have_room(at) if side == HERE else at.has_room(side)
        if side == HERE and has_room:
            self._notify(at, agenda.expired(at.now_us))
        elif has_room:
            items = agenda.expired(at.now_us)
            for key, _, end_us in items:
                if key == _HOLDING:
                    self._release(at, side, end_us)
            partials = self._taken(at, self.outlets[side], [item for item in items if item[0] != _HOLDING])
            if partials:
                at.tell(side, ["flow", self.name, partials, None, at.now_us], with_events=True)
        else:
            at.wake(self._key("tell", side), at.now_us + _NO_ROOM_US)
            return
        if agenda.timers:
            at.wake(self._key("tell", side), min(agenda.timers.values()))

    # -- silence ----------------------------------------------------------------------------------------------------

    def _open_ends(self) -> dict[str, int]:
        """Of each side for which something waits, the first end that it waits for."""
        found = {side: outlet.first_end_us() for side, outlet in self.outlets.items()}
        found[HERE] = self.edge.first_end_us()
        return {side: end_us for side, end_us in found.items() if end_us is not None}

    def _watch(self, at: At) -> None:
        """See to it that nothing stays open because somebody is silent."""
        if not self._watching:
            ends = [end_us for side, end_us in self._open_ends().items() if end_us > self._sought.get(side, NEVER)]
            if ends:
                self._watching = True
                at.wake(self._key("watch", HERE), self.clock.patience_us(min(ends), at.now_us))

    def look(self, at: At) -> None:
        """Something may have waited too long: ask those whose time is behind."""
        self._watching = False
        late_us = at.now_us - self.clock.seen_at_us + self.clock.seen_us - self._options.idle_after_us
        for side, end_us in self._open_ends().items():
            if self._sought.get(side, NEVER) < end_us <= late_us:
                self._sought[side] = end_us
                self.want(at, end_us, side)
        self.advance(at)

    def peers_changed(self, at: At) -> None:
        """Others publish than before: what somebody waits for has to be asked of them as well."""
        self._sought.clear()
        advertisers = at.advertisers(self.name)
        for side, end_us in list(self._wanted.items()):
            if self.clock.watermark_us(advertisers, at.neighbours, side) < end_us:
                self.want(at, end_us, side)
            else:
                del self._wanted[side]

    def want(self, at: At, end_us: int, besides: str) -> None:
        """Somebody waits for a time: ask all sides but one that have not promised it. They answer when they can."""
        if besides != HERE:
            self._wanted[besides] = max(self._wanted.get(besides, NEVER), end_us)
        for peer in sorted(at.advertisers(self.name)):
            if peer == besides:
                continue
            if peer in at.neighbours:
                if self.clock.heard.get(peer, NEVER) < end_us:
                    at.tell(peer, ["want", self.name, end_us, at.now_us])
            elif self.clock.own_us() < end_us:
                self.clock.want(end_us)
        if self.clock.wanted_us > self.clock.own_us():
            at.wake(self._key("idle", HERE), max(self.clock.idle_at_us(), at.now_us))

    def go_on(self, at: At) -> None:
        """This broker's publishers may have been silent for long enough."""
        if self.clock.wanted_us <= self.clock.own_us():
            return
        if at.now_us >= self.clock.idle_at_us():
            self.clock.go_on()
            self.advance(at)
        else:
            at.wake(self._key("idle", HERE), self.clock.idle_at_us())

    def _key(self, what: str, side: str) -> str:
        return f"{what}\x1f{self.name}\x1f{side}"

    def sizes(self) -> dict[str, int]:
        """How large everything is that could grow."""
        places: list[Place] = [self.edge, *self.outlets.values()]
        return {
            "aggregate subscriptions": len(self.bases.asked),
            "states of open windows": sum(len(place.shelves) for place in places),
            "values that may be revised": len(self.edge.told),
            "series of the placement": 0 if self.deciding is None else len(self.deciding),
            "windows to be told of": sum(len(items) for place in places for items in place.agenda.ends.values()),
            "events held back": sum(len(outlet.held) for outlet in self.outlets.values()),
        }

    # -- memory -----------------------------------------------------------------------------------------------------

    def plain(self) -> dict[str, Any]:
        bases = self.bases.by_key
        return {
            "asked": [[self.bases.sides[name], asked.plain()] for name, asked in self.bases.asked.items()],
            "clock": self.clock.plain(),
            "edge": self.edge.plain(bases),
            "outlets": {side: outlet.plain(bases) for side, outlet in self.outlets.items()},
            "deciding": None if self.deciding is None else self.deciding.plain(),
            "told": {side: sorted(names) for side, names in self.told.items()},
            "gone": list(self._gone),
            "waits": self._waits,
            "watching": self._watching,
            "sought": self._sought,
            "wanted": self._wanted,
        }

    def restore(self, plain: Mapping[str, Any], schemas: Mapping[str, Schema]) -> None:
        for side, asked in plain["asked"]:
            self.bases.add(Asked.from_plain(asked, self._schema), side)
        self.clock.restore(plain["clock"])
        self.edge.restore(plain["edge"], schemas)
        for side, outlet in plain["outlets"].items():
            self.outlets[side].restore(outlet)
        if self.deciding is not None:
            self.deciding.restore(plain["deciding"])
        self.told = {side: set(names) for side, names in plain["told"].items()}
        self._gone = dict.fromkeys(plain["gone"])
        self._waits, self._watching = plain["waits"], plain["watching"]
        self._sought, self._wanted = plain["sought"], plain["wanted"]


def _rows(matched: Matched, side: str) -> list[int]:
    found: list[int] = matched.neighbours[side].tolist() if side in matched.neighbours else []
    return found


def _beyond(wants: Wants, side: str) -> Wants:
    """What is wanted on one side."""
    found = {row: [pair for pair in several if side in pair[0].sides] for row, several in wants.items()}
    return {row: several for row, several in found.items() if several}


def _require_fitting(base: Base, group: Sequence[Any], slices: Mapping[int, Partial]) -> None:
    if len(group) != len(base.group_keys) or not slices:
        raise ValueError(f"{len(group)} values of {len(base.group_keys)} group keys, {len(slices)} slices")
    hash(tuple(group))
    for partial in slices.values():
        partial.require_fitting(base.parts)


def _attributes(base: Base) -> list[str]:
    return [part.attribute for part in base.parts.values() if part.attribute is not None]


def _whole_bases(standing: Standing, absorbed: Sequence[bool]) -> set[str]:
    """The bases all of whose columns were absorbed."""
    keys = {column[0] for column, _, _ in standing.columns}
    return keys - {column[0] for (column, _, _), inside in zip(standing.columns, absorbed, strict=True) if not inside}
