"""One topic at one broker: what publications and partials set off, and what is told when.

Rule 1: to a neighbour go, in this order, publications, partials, and the promise that covers them.
Rule 2: what is due is told in the order of the ends of windows; a decision at an end knows what came before it.
Rule 3: with revisions, things are also told by the clock before anyone has promised anything; what comes later is told
        apart, and the subscriber's broker puts it together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from catchment.broker.advice import At
from catchment.broker.aggregation.asking import Asked, Base, Bases
from catchment.broker.aggregation.clocks import FOR_EVER, NEVER, Clock, last_end_us
from catchment.broker.aggregation.crossing import HOLDING, Batch, Crossing, Wants
from catchment.broker.aggregation.deciding import Deciding
from catchment.broker.aggregation.edges import Edge
from catchment.broker.aggregation.options import AggregationOptions
from catchment.broker.aggregation.outlets import Outlet
from catchment.broker.aggregation.places import Item, Place, Wanted
from catchment.broker.aggregation.rows import Rows, marks_by_row
from catchment.broker.aggregation.shelves import Partial, Received
from catchment.broker.aggregation.silence import Silence
from catchment.broker.aggregation.waiting import Waiting, timer_key
from catchment.broker.peers import HERE
from catchment.broker.routing import Matched
from catchment.model.schema import Schema

__all__ = ["Topic"]

_GONE_MAX = 1_000


TOO_MUCH = "open windows that take more memory than they may"
WEIGHED_EVERY = 1_000
"""After how many publications the memory of open windows is looked at."""


class Topic:
    """All that a broker knows and holds of one topic."""

    def __init__(
        self, name: str, schema: Schema, options: AggregationOptions, broker: str, neighbours: Sequence[str]
    ) -> None:
        self.name, self._schema = name, schema
        by_stride = options.strategy().grain == "stride"
        self.bases = Bases(schema, by_stride=by_stride)
        self.clock = Clock(options.lateness_us, options.idle_after_us)
        self.edge = Edge(schema, by_stride=by_stride, revises=options.revises)
        self.outlets = {side: Outlet(side, by_stride=by_stride) for side in neighbours}
        self.silence = Silence(name, self.clock, options.idle_after_us, self._open_ends)
        self._waiting = Waiting(name, broker, options)
        self.deciding = self.crossing = None
        if neighbours:
            self.deciding = Deciding(options.strategy(), broker, neighbours)
            self.crossing = Crossing(name, schema, self.bases, self.outlets, self.deciding, self._waiting)
        self.known_to: dict[str, set[str]] = {side: set() for side in neighbours}
        """The subscriptions that each neighbour knows from here."""
        self._gone: dict[str, None] = {}
        self._memory_bytes_max, self._unweighed = options.memory_bytes_max, 0

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
            self._waiting.forget(base.key)
            self._gone[base.key] = None
            while len(self._gone) > _GONE_MAX:
                del self._gone[next(iter(self._gone))]
            if self.deciding is not None:
                self.deciding.forget(self.bases.by_key)

    def _place(self, side: str) -> Place:
        return self.edge if side == HERE else self.outlets[side]

    # -- publications -----------------------------------------------------------------------------------------------

    def admit(
        self, at: At, times: npt.NDArray[np.int64], requests: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.bool_] | None:
        """Which events of this broker's clients are in time: not behind what was closed before their request.

        The answer is that of taking in one request after the other, whose events may close windows.
        """
        clock = self.clock
        latest_us = max(clock.latest_us, int(times.max()))
        if int(times.min()) >= self._closed_us(at, latest_us):
            clock.accept(latest_us, at.now_us)
            return None
        in_time = np.ones(len(times), np.bool_)
        closed_us = clock.closed_us
        edges = np.flatnonzero(np.diff(requests)) + 1
        for rows in np.split(np.arange(len(times)), edges):
            in_time[rows] = times[rows] >= closed_us
            if in_time[rows].any():
                clock.accept(int(times[rows][in_time[rows]].max()), at.now_us)
                closed_us = max(closed_us, self._closed_us(at, clock.latest_us))
        return in_time

    def _closed_us(self, at: At, latest_us: int) -> int:
        """Up to where time is closed here once events up to `latest_us` have come in."""
        advertisers = at.advertisers(self.name)
        ends = [self.clock.closed_us]
        for side in (HERE, *self.outlets):
            windows = self.bases.windows_at(side)
            time_us = self.clock.watermark_us(advertisers, at.neighbours, side, latest_us=latest_us)
            if windows and time_us < FOR_EVER:
                ends.append(last_end_us(windows, time_us))
        return max(ends)

    def take_in(self, at: At, events: pa.RecordBatch, matched: Matched, upstream: str) -> Matched:
        """Add publications up, hold them back, or let them go on: where they go as they are, and with which marks."""
        attached: dict[str, Any] | None = at.attached if upstream in at.neighbours else None
        if not self.bases and attached is None:
            return matched
        served = marks_by_row(attached)
        held_until_us: int | None = None if attached is None else attached["held"]
        was_held = held_until_us is not None
        # What was held back goes on for aggregates alone: others have it already.
        regular = Matched(extras=matched.extras) if was_held else matched
        rows = Rows(events)
        self._weigh(at, events.num_rows)
        self.clock.see(max(rows.times), at.now_us)
        batch = Batch.of(events, rows, self._wants(rows, events, served), served, held_until_us)
        self._add_here(at, batch)
        onwards = regular if self.crossing is None else self.crossing.offer(at, batch, regular, upstream)
        for row, several in batch.wants.items():
            for base, wanted in several:
                self._waiting.observe(base, rows.times[row], wanted, at.now_us, was_held=was_held)
        return onwards

    def _weigh(self, at: At, publications: int) -> None:
        """Say so, now and then, if open windows take more memory than they may: who asks for them should know."""
        self._unweighed += publications
        if self._unweighed >= WEIGHED_EVERY:
            self._unweighed = 0
            places: list[Place] = [self.edge, *self.outlets.values()]
            held = sum(place.weight_bytes(self.bases.by_key) for place in places)
            if held > self._memory_bytes_max:
                detail = (
                    f"topic {self.name!r} at {at.broker}: about {held} bytes; expected are {self._memory_bytes_max}"
                )
                at.report(TOO_MUCH, detail)

    def _add_here(self, at: At, batch: Batch) -> None:
        """Add publications to the windows of this broker's own clients."""
        adds = 0
        for row, several in batch.wants.items():
            for base, wanted in several:
                if HERE in base.sides:
                    due = self.edge.add(base, wanted, batch.values(row, base))
                    self._waiting.for_publication(at, self.edge, due, base)
                    adds += 1
        if adds:
            at.spend("add", adds)

    def _wants(self, rows: Rows, events: pa.RecordBatch, served: Mapping[int, Sequence[str]]) -> Wants:
        """Of each row, the bases that want it and do not have it yet."""
        found: dict[int, list[tuple[Base, Wanted]]] = {}
        for matching, bases in self.bases.wanting(events):
            for base in bases:
                for row in matching:
                    number = base.window.slice_of(rows.times[row])
                    if base.window.in_a_window(number) and base.key not in served.get(row, ()):
                        wanted = Wanted(base.key, rows.group(row, base.group_keys), number)
                        found.setdefault(row, []).append((base, wanted))
        return dict(sorted(found.items()))

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
                self._waiting.for_partial(at, self._place(side), due)
                merges += len(found)
                if due:
                    # Of the windows that a stride is part of, only the first ends with it.
                    self.clock.see(min(end_us for end_us, _ in due), at.now_us)
        if merges:
            at.spend("merge", merges)
        if promise_us is not None and not NEVER < promise_us < FOR_EVER:
            at.report("promises of no time that there is", f"{promise_us} from {sender}")
        elif promise_us is not None:
            self.clock.heard[sender] = max(self.clock.heard.get(sender, NEVER), promise_us)
            self.clock.see(promise_us, at.now_us)

    # -- time goes on -----------------------------------------------------------------------------------------------

    def advance(self, at: At) -> None:
        """Tell everyone what has become due."""
        advertisers = at.advertisers(self.name)
        for side, outlet in self.outlets.items():
            windows = self.bases.windows_at(side)
            time_us = self.clock.watermark_us(advertisers, at.neighbours, side)
            if windows:
                self._settle(at, outlet, windows, time_us)
        self._finish(at, self.clock.watermark_us(advertisers, at.neighbours))
        self.silence.watch(at)

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
            self._tell_flow(at, outlet.side, partials, promise_us if is_news else None)

    def _tell_flow(self, at: At, side: str, partials: list[Any], promise_us: int | None) -> None:
        counts = None
        if partials:
            counts = ("partials", sum(one[3] for one in partials), sum(one[4] for one in partials))
        at.tell(side, ["flow", self.name, partials, promise_us, at.now_us], counts=counts)

    def _release(self, at: At, side: str, end_us: int) -> None:
        if self.crossing is not None:
            self.crossing.release(at, side, end_us)

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
                values.setdefault(client, []).extend(found)
        for client, found in sorted(values.items()):
            if found:
                at.notify(client, tuple(found))

    # -- by the clock -------------------------------------------------------------------------------------------------

    def expire(self, at: At, side: str) -> None:
        """Tell what the clock says is due."""
        agenda = self._place(side).agenda
        if side == HERE:
            self._notify(at, agenda.expired(at.now_us))
        else:
            items = agenda.expired(at.now_us)
            for key, _, end_us in items:
                if key == HOLDING:
                    self._release(at, side, end_us)
            # What was held has waited already: partials of it go now.
            items += agenda.expired(at.now_us)
            partials = self._taken(at, self.outlets[side], [item for item in items if item[0] != HOLDING])
            if partials:
                self._tell_flow(at, side, partials, None)
        soonest_us = agenda.soonest_us()
        if soonest_us is not None:
            at.wake(self._timer("tell", side), soonest_us)

    def look(self, at: At) -> None:
        """Something may have waited too long."""
        self.silence.look(at)
        self.advance(at)

    def go_on(self, at: At) -> None:
        """This broker's publishers may have been silent for long enough."""
        if self.silence.has_passed(at):
            self.advance(at)

    def _timer(self, what: str, side: str) -> str:
        return timer_key(what, self.name, side)

    # -- what is there ------------------------------------------------------------------------------------------------

    def _open_ends(self) -> dict[str, int]:
        """Of each side for which something waits, the first end that it waits for."""
        found = {place.side: place.first_end_us() for place in (self.edge, *self.outlets.values())}
        return {side: end_us for side, end_us in found.items() if end_us is not None}

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
            "known_to": {side: sorted(names) for side, names in self.known_to.items()},
            "gone": list(self._gone),
            "waiting": self._waiting.plain(),
            "silence": self.silence.plain(),
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
        self.known_to = {side: set(names) for side, names in plain["known_to"].items()}
        self._gone = dict.fromkeys(plain["gone"])
        self._waiting.restore(plain["waiting"])
        self.silence.restore(plain["silence"])


def _require_fitting(base: Base, group: Sequence[Any], slices: Mapping[int, Partial]) -> None:
    if len(group) != len(base.group_keys) or not slices:
        raise ValueError(f"{len(group)} values of {len(base.group_keys)} group keys, {len(slices)} slices")
    hash(tuple(group))
    for partial in slices.values():
        partial.require_fitting(base.parts)
