"""One topic at one broker: it adds publications up, merges partials, and sends both when they are due.

Rule 1: a broker sends a neighbour publications, then partials, then the promise that covers them.
Rule 2: a broker sends what is due in the order of window ends; a decision at an end includes all that came before it.
Rule 3: with revisions, a broker also sends partials by the clock, before any promise. What comes later goes in partials
        of its own, and the subscriber's broker merges them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from catchment.broker.advice import At
from catchment.broker.aggregation.clocks import FOR_EVER, NEVER, Clock, last_end_us
from catchment.broker.aggregation.crossing import ADVICE, Arrived, Crossing
from catchment.broker.aggregation.deciding import Deciding
from catchment.broker.aggregation.edges import AnswersByClient, Edge, Local
from catchment.broker.aggregation.marks import Marks
from catchment.broker.aggregation.options import AggregationOptions
from catchment.broker.aggregation.places import Outlet, Pairs, Place
from catchment.broker.aggregation.questions import Questions
from catchment.broker.aggregation.silence import Silence
from catchment.broker.aggregation.timers import HOLDING, Item, WaitingTimes, timer_key
from catchment.broker.demands import AskedQuestion
from catchment.broker.peers import HERE
from catchment.broker.routing import Matched
from catchment.model.events import event_times_us
from catchment.model.schema import Schema
from catchment.overlay.placement import Strategy
from catchment.stages import ByCode, misfits, partials_from_bytes, partials_to_bytes

__all__ = ["Topic"]

Ints = npt.NDArray[np.int64]
_NOTHING = np.zeros(0, np.int64), np.zeros(0, np.int64)
_GONE_MAX = 1_000
FLOW_BYTES_MAX = 400_000
"""About how large a message with partials may be; more of them go in several."""


TOO_MUCH = "open windows that take more memory than they may"
WEIGHED_EVERY = 1_000
"""After how many publications the memory of open windows is looked at."""


class Topic:
    """All that a broker knows and holds of one topic, as far as partials are of one grain: for windows, or for strides.

    `key` names it in messages and timers.
    """

    def __init__(
        self, name: str, key: str, schema: Schema, options: AggregationOptions, broker: str, neighbours: Sequence[str]
    ) -> None:
        self.name, self.key, self._revises = name, key, options.revises
        self.grain = options.strategy().grain
        by_stride = self.grain == "stride"
        self.questions = Questions(name, schema)
        self.clock = Clock(options.lateness_us, options.idle_after_us)
        self.edge = Edge(self.questions, by_stride=by_stride, revises=options.revises)
        self.outlets = {side: Outlet(side, self.questions, by_stride=by_stride) for side in neighbours}
        self.silence = Silence(name, key, self.clock, options.idle_after_us, self._open_ends)
        self._waiting_times = WaitingTimes(broker, options)
        self.deciding = self.crossing = None
        if neighbours:
            self.deciding = Deciding(options.strategy(), broker, neighbours)
            self.crossing = Crossing(name, key, self.questions, self.outlets, self.deciding)
        self._unanswered: dict[str, dict[int, None]] = {}
        """Of neighbours, the questions that this input brought; empty between inputs."""
        self._gone: dict[int, None] = {}
        self._memory_bytes_max, self._unweighed = options.memory_bytes_max, 0

    def extend(self, schema: Schema) -> None:
        """Events have more attributes from now on; those that came before lack them."""
        for place in (self.edge, *self.outlets.values()):
            self._before_change(place)
        self.questions.extend(schema)

    def place(self, strategy: Strategy) -> None:
        """Let another placement of this grain decide from now on.

        That is sound at any moment, and brokers may change one after the other: each decision is about publications
        that are before one link, marks say on a publication which questions have it in a partial, and a partial says
        what it is of. So a window may have some of its publications in partials and get others as they are, as it does
        with placements that learn.
        """
        if self.deciding is not None and self.crossing is not None:
            self.crossing.tell_placement()
            self.deciding = self.crossing.deciding = self.deciding.under(strategy)

    # -- who asks ---------------------------------------------------------------------------------------------------

    def add(self, at: At, asked: AskedQuestion, side: str) -> None:
        """Begin to answer a question on a side."""
        place = self._place(side)
        self._before_change(place)
        known = self.questions.by_id.get(self.questions.id_of(asked))
        before = len(known.views[side].question.parts) if known is not None and side in known.views else 0
        is_new = known is None
        known = self.questions.add(asked, side)
        if is_new:
            at.watch(self.name, self._watched(known.number), known.where)
        place.asked_for(known.views[side].question, before)
        self._gone.pop(known.id, None)
        if side == HERE:
            self.edge.begin_after(max(self.clock.known_us, known.since_us), known.id)
        else:
            self._unanswered.setdefault(side, {})[known.id] = None

    def remove(self, at: At, asked: AskedQuestion, side: str) -> None:
        """Answer a question no more on a side, or fewer of its parts: their open windows are dropped."""
        if not self.questions.is_asked(asked, side):
            at.report("questions from before aggregation was attached", f"{asked} of {side or 'a client'}")
            return
        place = self._place(side)
        self._before_change(place)
        known = self.questions.remove(asked, side)
        view = known.views.get(side)
        place.forget(known.id, known.number, () if view is None else [part.id for part in view.question.parts])
        if view is None and self.crossing is not None and side != HERE:
            self.crossing.forget(side, known.number)
        if not known.views:
            at.unwatch(self.name, self._watched(known.number))
            self._waiting_times.forget(known.id)
            self._gone[known.id] = None
            while len(self._gone) > _GONE_MAX:
                del self._gone[next(iter(self._gone))]
            if self.deciding is not None:
                self.deciding.forget(self.questions.by_id)

    def _watched(self, number: int) -> int:
        """The number under which a question's filter is matched: those of both grains are matched together."""
        return 2 * number + (self.grain == "stride")

    def answer_since(self, at: At) -> None:
        """Tell neighbours up to which time the questions that they have just asked miss events."""
        for side, questions in self._unanswered.items():
            by_time: dict[int, list[int]] = {}
            for known in filter(None, map(self.questions.by_id.get, questions)):
                by_time.setdefault(max(self.clock.known_us, known.since_us), []).append(known.id)
            for since_us, ids in sorted(by_time.items()):
                if since_us > NEVER:
                    at.tell(side, ["since", self.key, ids, since_us])
        self._unanswered = {}

    def learn_since(self, at: At, questions: Iterable[int], since_us: int, sender: str) -> None:
        """Events up to a time came in beyond a neighbour before the brokers there knew some questions."""
        onwards: dict[str, list[int]] = {}
        for known in filter(None, map(self.questions.by_id.get, questions)):
            known.since_us = max(known.since_us, since_us)
            self.edge.begin_after(since_us, known.id)
            for side in known.views:
                if side not in (HERE, sender):
                    onwards.setdefault(side, []).append(known.id)
        for side, ids in onwards.items():
            at.tell(side, ["since", self.key, ids, since_us])

    def passed(self, at: At, local: Local, end_us: int) -> tuple[int, int, int]:
        """The first time from which on windows are whole, the end of the last that begins earlier, the end that passed.

        What has passed is closed: an event before it is late wherever it comes in. Time that has not come to `end_us`
        is asked for, as if a window were open.
        """
        window = local.wanted.window
        if local.whole_us == NEVER:
            return NEVER, NEVER, NEVER
        last_us = window.end_us((local.whole_us - 1) // window.shift_us)
        time_us = self.clock.watermark_us(at.advertisers(self.name), at.neighbours)
        passed_us = window.last_end_us(min(time_us, last_us))
        self.clock.closed_us = max(self.clock.closed_us, passed_us)
        if passed_us < min(end_us, last_us):
            self.silence.want(at, min(end_us, last_us), HERE)
        return local.whole_us, last_us, passed_us

    def _before_change(self, place: Place) -> None:
        """Add up what has come so far, by the questions that were asked until now."""
        place.add_up()
        if self.crossing is not None:
            self.crossing.tell_placement()

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
            windows = self.questions.windows_at(side)
            time_us = self.clock.watermark_us(advertisers, at.neighbours, side, latest_us=latest_us)
            if windows and time_us < FOR_EVER:
                ends.append(last_end_us(windows, time_us))
        return max(ends)

    def take_in(
        self,
        at: At,
        events: pa.RecordBatch,
        matched: Matched,
        upstream: str,
        marks: Marks | None,
        more: dict[str, Marks],
    ) -> Matched:
        """Add publications up, hold them back, or forward them; return where they go as they are, with which marks.

        `marks` have come with them, if anything has; `more` are marks by side of what was absorbed for questions of
        another grain, and those of this one are added.
        """
        if not self.questions and marks is None:
            return matched
        marks = marks or Marks.none()
        times_us = event_times_us(events)
        self._weigh(at, events.num_rows)
        self.clock.see(int(times_us.max()), at.now_us)
        rows, numbers = matched.watched.get(ADVICE, _NOTHING)
        mine = numbers % 2 == (self.grain == "stride")
        arrived = self._arrived(events, times_us, (rows[mine], numbers[mine] // 2), marks)
        here = self.questions.at_side(HERE)[arrived.pairs.numbers]
        if here.any():
            self.edge.add(arrived.pairs.where(here), int(arrived.ends_us[here].min()))
            at.spend("add", int(here.sum()))
        onwards = matched
        absorbed: dict[str, npt.NDArray[np.bool_]] = {}
        if self.crossing is not None:
            onwards, absorbed = self.crossing.offer(at, arrived, matched, upstream, more)
            onwards.watched = matched.watched
            for side, chosen in absorbed.items():
                if chosen.any():
                    ids = self.questions.tables.ids[arrived.pairs.numbers[chosen]]
                    more[side] = more.get(side, Marks.none()).more(arrived.pairs.rows[chosen], ids)
        if self._revises:
            self._set_timers(at, arrived, {HERE: here, **absorbed})
        return onwards

    def _arrived(self, events: pa.RecordBatch, times_us: Ints, watched: tuple[Ints, Ints], marks: Marks) -> Arrived:
        """Find out who wants publications and does not have them yet."""
        rows, numbers = self.questions.matching_questions(*watched, times_us)
        tables = self.questions.tables
        if len(marks.rows) and len(rows):
            known = self.questions.by_id
            of_known = np.array([key in known for key in marks.questions.tolist()], np.bool_)
            served = [known[key].number for key in marks.questions[of_known].tolist()]
            width = len(tables.ids)
            has = np.isin(rows * width + numbers, marks.rows[of_known] * width + np.array(served, np.int64))
            rows, numbers = rows[~has], numbers[~has]
        ends_us = np.asarray(tables.windows[numbers].next_end_us(times_us[rows]))
        return Arrived(Pairs(events, rows, numbers), times_us, ends_us, marks)

    def _set_timers(self, at: At, arrived: Arrived, into: Mapping[str, Any]) -> None:
        """Set the timers of the partials that publications went into, and learn how long they took; with revisions."""
        for side, chosen in into.items():
            if chosen.any():
                self._wake_for(at, side, arrived.pairs.where(chosen), arrived.times_us)
        if self.crossing is not None:
            for side, held in self.crossing.held.items():
                end_us = held.first_end_us()
                if end_us is not None:
                    self._wake(at, side, (HOLDING, end_us), self._release_us(side, end_us, at.now_us))
        held_us = arrived.marks.held_us
        rows, ids = arrived.pairs.rows, self.questions.tables.ids[arrived.pairs.numbers]
        for row, key, end_us in zip(rows.tolist(), ids.tolist(), arrived.ends_us.tolist(), strict=True):
            window, time_us = self.questions.by_id[key].window, int(arrived.times_us[row])
            # One that was held set out when its stride had ended.
            set_out_us = end_us if held_us is not None and held_us[row] > NEVER else time_us
            self._waiting_times.observe(key, window.last_window(window.slice_of(time_us)), at.now_us - set_out_us)

    def _release_us(self, side: str, end_us: int, now_us: int) -> int:
        """When the clock makes the broker decide about what it holds until an end: the earliest time of a question."""
        held = None if self.crossing is None else self.crossing.held[side].all()
        assert held is not None
        numbers = np.unique(held.pairs.numbers[np.isin(held.pairs.rows, np.flatnonzero(held.end_us == end_us))])
        ids = self.questions.tables.ids[numbers].tolist()
        return min(self._waiting_times.for_publication_us(key, end_us, now_us) for key in ids)

    def _wake_for(self, at: At, side: str, pairs: Pairs, times_us: Ints) -> None:
        for item, end_us in sorted(self._place(side).items_of_pairs(pairs, times_us)):
            self._wake(at, side, item, self._waiting_times.for_publication_us(item[0], end_us, at.now_us))

    def _wake(self, at: At, side: str, item: Item, due_us: int) -> None:
        if self._place(side).timers.wake(item, due_us):
            at.wake(timer_key("tell", self.key, side), due_us)

    def _weigh(self, at: At, publications: int) -> None:
        """Say so, now and then, if open windows take more memory than they may: who asks for them should know."""
        self._unweighed += publications
        if self._unweighed >= WEIGHED_EVERY:
            self._unweighed = 0
            held = self.edge.size_bytes + sum(outlet.size_bytes for outlet in self.outlets.values())
            if self.crossing is not None:
                held += sum(one.size_bytes for one in self.crossing.held.values())
            if held > self._memory_bytes_max:
                detail = (
                    f"topic {self.name!r} at {at.broker}: about {held} bytes; expected are {self._memory_bytes_max}"
                )
                at.report(TOO_MUCH, detail)

    # -- partials ---------------------------------------------------------------------------------------------------

    def receive(self, at: At, sender: str, pieces: Sequence[Any], promise_us: int | None) -> None:
        """Partials have come from a neighbour, and how far its time has come."""
        for data in pieces:
            try:
                rows = partials_from_bytes(data)
            except Exception as error:  # whatever a neighbour says: nothing of it is taken
                at.report("partials that do not fit", f"from {sender}: {type(error).__name__}: {str(error)[:200]}")
                continue
            self._receive(at, sender, rows)
        if promise_us is not None and not NEVER < promise_us < FOR_EVER:
            at.report("promises of no time that there is", f"{promise_us} from {sender}")
        elif promise_us is not None:
            self.clock.heard[sender] = max(self.clock.heard.get(sender, NEVER), promise_us)
            self.clock.see(promise_us, at.now_us)

    def _receive(self, at: At, sender: str, rows: pa.RecordBatch) -> None:
        asked = rows.column("question").to_numpy()
        known = {key: self.questions.by_id.get(key) for key in np.unique(asked).tolist()}
        for key in [key for key, one in known.items() if one is None]:
            gone = key in self._gone
            what = "partials of subscriptions that have gone" if gone else "partials of unknown subscriptions"
            at.report(what, f"{key} from {sender}")
        wrong = misfits(rows, {key: one.whole for key, one in known.items() if one is not None})
        for key, reason in wrong.items():
            at.report("partials that do not fit", f"{key} from {sender}: {reason}")
        good = [key for key, one in known.items() if one is not None and key not in wrong]
        if len(good) < len(known):
            rows = rows.take(pa.array(np.flatnonzero(np.isin(asked, good))))
        sides = {side: None for key in good for side in (known[key].views if known[key] is not None else ())}  # type: ignore[union-attr]
        for side in sides:
            if side != sender:
                self._put_in(at, side, rows)

    def _put_in(self, at: At, side: str, rows: pa.RecordBatch) -> None:
        place = self._place(side)
        for cells in place.receive(rows):
            at.spend("merge", len(cells))
            # Of the windows that a stride is part of, only the first ends with it.
            self.clock.see(int(place.ends_us(cells).max()), at.now_us)
            if self._revises:
                for item, end_us in sorted(place.items_of(cells)):
                    self._wake(at, side, item, self._waiting_times.for_partial_us(end_us, at.now_us))

    # -- time goes on -----------------------------------------------------------------------------------------------

    def advance(self, at: At) -> None:
        """Send neighbours and clients all that has become due."""
        advertisers = at.advertisers(self.name)
        for side, outlet in self.outlets.items():
            windows = self.questions.windows_at(side)
            time_us = self.clock.watermark_us(advertisers, at.neighbours, side)
            if windows:
                self._settle(at, outlet, windows, time_us)
        self._finish(at, self.clock.watermark_us(advertisers, at.neighbours))
        self.silence.watch(at)

    def _settle(self, at: At, outlet: Outlet, windows: Sequence[Any], time_us: int) -> None:
        """Send a neighbour all partials that end up to a time, and the promise that nothing before it will come."""
        end_us = self._first_end_us(outlet)
        cells: ByCode = {}
        closed_us = NEVER
        if end_us is not None and end_us <= time_us:
            closed_us = self._release_until(at, outlet.side, time_us)
            cells = outlet.take_until(time_us)
            closed_us = max(closed_us, min(outlet.closed_us, time_us))
        promise_us = last_end_us(windows, time_us) if time_us < FOR_EVER else closed_us
        self.clock.closed_us = max(self.clock.closed_us, promise_us)
        is_news = promise_us > NEVER and promise_us > outlet.promised_us and time_us < FOR_EVER
        if is_news:
            outlet.promised_us = promise_us
        if cells or is_news:
            self._send_flow(at, outlet, cells, promise_us if is_news else None)

    def _first_end_us(self, outlet: Outlet) -> int | None:
        held = None if self.crossing is None else self.crossing.held[outlet.side].first_end_us()
        ends = [one for one in (outlet.first_end_us(), held) if one is not None]
        return min(ends, default=None)

    def _release_until(self, at: At, side: str, time_us: int) -> int:
        """Decide about what is held until ends up to a time, one after the other; return the last."""
        last_us = NEVER
        if self.crossing is not None:
            while (end_us := self.crossing.held[side].first_end_us()) is not None and end_us <= time_us:
                self.crossing.release(at, side, end_us)
                last_us = end_us
        return last_us

    def _send_flow(self, at: At, outlet: Outlet, cells: ByCode, promise_us: int | None) -> None:
        """Send partials, and behind them the promise that covers them."""
        counts = None
        if cells:
            at.spend("merge", sum(map(len, cells.values())))
            counts = ("partials", *outlet.weight(cells))
        pieces = [partials_to_bytes(rows) for rows in outlet.pieces(cells, FLOW_BYTES_MAX)] or [memoryview(b"")]
        for piece in pieces[:-1]:
            at.tell(outlet.side, ["flow", self.key, [piece], None, at.now_us], counts=("partials", 0, 0))
        last = [pieces[-1]] if pieces[-1] else []
        at.tell(outlet.side, ["flow", self.key, last, promise_us, at.now_us], counts=counts)

    def _finish(self, at: At, time_us: int) -> None:
        """Notify clients of all windows that end up to a time."""
        windows = self.questions.windows_at(HERE)
        if not windows:
            return
        end_us = self.edge.first_end_us()
        closed_us = last_end_us(windows, time_us) if time_us < FOR_EVER else NEVER
        if end_us is not None and end_us <= time_us:
            answers, count = self.edge.finish_until(time_us)
            at.spend("merge", count)
            self._notify(at, answers)
            closed_us = max(closed_us, min(self.edge.closed_us, time_us) if time_us == FOR_EVER else closed_us)
        self.clock.closed_us = max(self.clock.closed_us, closed_us)

    def _notify(self, at: At, answers_of: AnswersByClient) -> None:
        for client, answers in sorted(answers_of.items()):
            at.notify(client, answers)

    # -- by the clock -------------------------------------------------------------------------------------------------

    def expire(self, at: At, side: str) -> None:
        """Send what is due by the clock."""
        timers = self._place(side).timers
        if side == HERE:
            self._notify(at, self.edge.finish_items(timers.expired(at.now_us)))
        else:
            outlet = self.outlets[side]
            items = timers.expired(at.now_us)
            for _, end_us in [item for item in items if item[0] == HOLDING]:
                self._release_by_clock(at, side, end_us)
            # What was held has waited already: partials of it go now.
            items += timers.expired(at.now_us)
            cells = outlet.take_items([item for item in items if item[0] != HOLDING])
            if cells:
                self._send_flow(at, outlet, cells, None)
        soonest_us = timers.soonest_us()
        if soonest_us is not None:
            at.wake(self._timer("tell", side), soonest_us)

    def _release_by_clock(self, at: At, side: str, end_us: int) -> None:
        assert self.crossing is not None
        into = self.crossing.release(at, side, end_us)
        if into is not None:
            times_us = event_times_us(into.events)
            self._wake_for(at, side, into, times_us)
        next_us = self.crossing.held[side].first_end_us()
        if next_us is not None:
            self._wake(at, side, (HOLDING, next_us), self._release_us(side, next_us, at.now_us))

    def look(self, at: At) -> None:
        """Something may have waited too long."""
        self.silence.look(at)
        self.advance(at)

    def advance_idle_clock(self, at: At) -> None:
        """This broker's publishers may have been silent for long enough."""
        if self.silence.has_passed(at):
            self.advance(at)

    def _timer(self, what: str, side: str) -> str:
        return timer_key(what, self.key, side)

    # -- what is there ------------------------------------------------------------------------------------------------

    def _open_ends(self) -> dict[str, int]:
        """Of each side for which something waits, the first end that it waits for."""
        found = {HERE: self.edge.first_end_us()} | {
            side: self._first_end_us(outlet) for side, outlet in self.outlets.items()
        }
        open_ends = {side: end_us for side, end_us in found.items() if end_us is not None}
        leaving_us = self.edge.leaving_us()
        if leaving_us is not None:
            open_ends[HERE] = min(open_ends.get(HERE, leaving_us), leaving_us)
        return open_ends

    def left(self, at: At) -> list[str]:
        """Take out the subscriptions that are answered by another grain, once their last window here has ended."""
        leaving_us = self.edge.leaving_us()
        if leaving_us is None:
            return []
        return self.edge.left_until(self.clock.watermark_us(at.advertisers(self.name), at.neighbours))

    def last_told_us(self) -> int:
        """The latest time about which something may have been told or closed here."""
        return max(self.clock.known_us, self.clock.seen_us, self.clock.closed_us, self.edge.closed_us)

    def sizes(self) -> dict[str, int]:
        """How large everything is that could grow."""
        places: Iterable[Place] = (self.edge, *self.outlets.values())
        return {
            "questions asked": self.questions.asked_count,
            "cells of open windows": sum(place.size for place in places),
            "series": 0 if self.deciding is None else len(self.deciding),
            "held publications": 0 if self.crossing is None else sum(map(len, self.crossing.held.values())),
        }

    # -- memory -----------------------------------------------------------------------------------------------------

    def saved(self) -> dict[str, Any]:
        return {
            "questions": self.questions.saved(),
            "clock": self.clock.saved(),
            "edge": self.edge.saved(),
            "outlets": {side: outlet.saved() for side, outlet in self.outlets.items()},
            "crossing": None if self.crossing is None else self.crossing.saved(),
            "deciding": None if self.deciding is None else self.deciding.saved(),
            "gone": tuple(self._gone),
            "waiting_times": self._waiting_times.saved(),
            "silence": self.silence.saved(),
            "unweighed": self._unweighed,
        }

    def restore(self, saved: Mapping[str, Any]) -> None:
        self.questions.restore(saved["questions"])
        self.clock.restore(saved["clock"])
        self.edge.restore(saved["edge"])
        for side, outlet in saved["outlets"].items():
            self.outlets[side].restore(outlet)
        if self.crossing is not None:
            self.crossing.restore(saved["crossing"])
        if self.deciding is not None:
            self.deciding.restore(saved["deciding"])
        self._gone = dict.fromkeys(saved["gone"])
        self._waiting_times.restore(saved["waiting_times"])
        self.silence.restore(saved["silence"])
        self._unweighed = saved["unweighed"]
