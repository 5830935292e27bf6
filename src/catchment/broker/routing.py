"""What a broker knows of one topic: who publishes it, what each peer demands of it, and what each neighbour was sent.

Rule 1: a neighbour is sent the demands of all peers but itself; so one summary is kept per neighbour.
Rule 2: every change to these tables happens in this file.
Rule 3: peers are visited in the order of their names, so that a seed replays exactly.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from catchment.broker.demands import AskedQuestion, Demand, in_order
from catchment.broker.summaries import DemandSummary, Summary
from catchment.matching import Matcher
from catchment.matching.poset import Shift
from catchment.model.errors import ConfigurationError
from catchment.model.filter import Filter
from catchment.model.schema import Schema, Type

__all__ = ["Before", "BySubscription", "Matched", "Routes", "RowNumbers", "combined", "rising"]

RowNumbers = npt.NDArray[np.int64]

_WATCHED = "\0"
"""Whose filters are those of advice; no peer has this name."""
_Who = tuple[str, Demand | str | tuple[str, int]]
_ALWAYS_THERE = {"event_id": pa.string(), "ts": Type.TIMESTAMP.arrow}
FEW_PAIRS = 32
"""Up to so many, Python's own lists are quicker than arrays."""
_ENDS: Any = np.arange(1, FEW_PAIRS + 1, dtype=np.int32)
_ROWS: Any = np.zeros(FEW_PAIRS, np.int32)
"""Of the subscriptions that want a single event, where the rows of each end, and the rows."""
_ENDS.flags.writeable = _ROWS.flags.writeable = False


@dataclass(frozen=True, slots=True)
class Before:
    """What a neighbour had been sent before a change; worked out only if somebody looks."""

    summary: DemandSummary
    shift: Shift[Demand]

    @property
    def sent(self) -> tuple[Demand, ...]:
        now = dict.fromkeys(self.summary.sent)
        for risen in self.shift.risen:
            now.pop(risen, None)
        return (*now, *self.shift.sunk)


class BySubscription(msgspec.Struct, frozen=True):
    """Which rows of a batch each subscription of a client wants."""

    names: list[str]
    """Rising."""
    ends: RowNumbers
    """Where the rows of each end."""
    rows: RowNumbers
    """Rising within a subscription, one subscription behind the other."""

    def without(self, left_out: npt.NDArray[np.bool_]) -> BySubscription:
        """The same but for some rows."""
        kept = ~left_out[self.rows]
        ends = np.concatenate(([0], np.cumsum(kept)))[self.ends]
        some = np.diff(ends, prepend=0) > 0
        return BySubscription(
            [name for name, one in zip(self.names, some, strict=True) if one], ends[some], self.rows[kept]
        )


class Matched(msgspec.Struct):
    """Which rows of a batch go where, in the order of rows."""

    neighbours: dict[str, RowNumbers] = {}
    clients: dict[str, BySubscription] = {}
    watched: dict[str, tuple[RowNumbers, RowNumbers]] = {}
    """By advice, rows and the numbers of the filters of its own that want them: pairs, rows rising for each filter."""
    notes: dict[str, dict[str, pa.Array]] = {}
    """By neighbour, what advice says of each event that goes there, in columns."""

    def without(self, left_out: npt.NDArray[np.bool_]) -> Matched:
        """The same but for some rows."""
        neighbours = {side: rows[~left_out[rows]] for side, rows in self.neighbours.items()}
        clients = {client: of.without(left_out) for client, of in self.clients.items()}
        return Matched(
            {side: rows for side, rows in neighbours.items() if len(rows)},
            {client: of for client, of in clients.items() if len(of.rows)},
            self.watched,
        )

    def require_within(self, row_count: int) -> None:
        """Raise if this says nothing sensible of a batch of so many rows."""
        watched = [one for pair in self.watched.values() for one in pair[:1]]
        for rows in (*self.neighbours.values(), *(of.rows for of in self.clients.values()), *watched):
            if not isinstance(rows, np.ndarray) or rows.dtype.kind not in "iu":
                raise TypeError(f"rows are {str(rows)[:40]}; accepted are arrays of integers")
            if len(rows) and not 0 <= int(rows.min()) <= int(rows.max()) < row_count:
                raise TypeError(f"rows go from {rows.min()} to {rows.max()}; the batch has {row_count}")

    def note(self, advice: str, neighbour: str, columns: Mapping[str, pa.Array]) -> None:
        """Let the events that go to a neighbour carry columns of an advice: a value for each of them."""
        rows = len(self.neighbours.get(neighbour, ()))
        for name, column in columns.items():
            if len(column) != rows:
                raise ConfigurationError(
                    f"advice {advice!r} notes {len(column)} values {name!r}; accepted are {rows}, one for each event "
                    f"that goes to {neighbour!r}"
                )
        self.notes.setdefault(neighbour, {}).update({f"{advice}/{name}": column for name, column in columns.items()})


class Routes:
    """The routing tables of one topic."""

    def __init__(self, schema: Schema, neighbours: Collection[str], make_summary: Callable[[], Summary]) -> None:
        self.schema = schema
        self.advertisers: set[str] = set()
        self.advertised_to: set[str] = set()
        self.summaries = {neighbour: DemandSummary(make_summary()) for neighbour in sorted(neighbours)}
        self.demands: dict[str, dict[Demand, None]] = {neighbour: {} for neighbour in sorted(neighbours)}
        """Of each neighbour, what it has sent."""
        self.subscriptions: dict[tuple[str, str], tuple[Demand, tuple[str, ...] | None]] = {}
        """Of clients, by client and name: what it demands, and the columns wanted."""
        self.watched: dict[tuple[str, int], Filter] = {}
        """Of advice, by its name and a number of its own, filters that are matched besides."""
        self._matcher = Matcher({}, schema)
        self._matched_of: Counter[str] = Counter()
        """How many filters are matched for each peer."""
        self._of_events: tuple[pa.Schema, list[int]] | None = None
        """The last columns of events, and the places of those that every event has."""
        self._order: _Order | None = None
        """Of the matcher's slots; None if they have changed."""

    @property
    def is_empty(self) -> bool:
        has_demands = any(self.demands.values()) or self.subscriptions
        return not (self.advertisers or self.advertised_to or has_demands)

    # -- demands --------------------------------------------------------------------------------------------------

    def add_demand(self, neighbour: str, demand: Demand) -> dict[str, Before]:
        self.demands[neighbour][demand] = None
        self._begin_matching((neighbour, demand), demand)
        return self._spread(demand, neighbour, added=True)

    def remove_demand(self, neighbour: str, demand: Demand) -> dict[str, Before]:
        if demand not in self.demands[neighbour]:
            return {}
        del self.demands[neighbour][demand]
        self._end_matching((neighbour, demand), demand)
        return self._spread(demand, neighbour, added=False)

    def add_subscription(
        self, client: str, name: str, demand: Demand, columns: tuple[str, ...] | None
    ) -> dict[str, Before]:
        self.subscriptions[client, name] = (demand, columns)
        self._begin_matching((client, name), demand)
        return self._spread(demand, client, added=True)

    def remove_subscription(self, client: str, name: str) -> dict[str, Before]:
        if (client, name) not in self.subscriptions:
            return {}  # an advice kept it from being added
        demand, _ = self.subscriptions.pop((client, name))
        self._end_matching((client, name), demand)
        return self._spread(demand, client, added=False)

    def watch(self, advice: str, number: int, condition: Filter) -> None:
        """Match a filter of an advice besides, in place of the one it had under this number; no peer hears of it."""
        self.unwatch(advice, number)
        self.watched[advice, number] = condition
        self._begin_matching((_WATCHED, (advice, number)), condition)

    def unwatch(self, advice: str, number: int) -> None:
        condition = self.watched.pop((advice, number), None)
        if condition is not None:
            self._end_matching((_WATCHED, (advice, number)), condition)

    def unwatch_all(self, advice: str) -> None:
        """Match no filter of an advice any more."""
        for name, number in [key for key in self.watched if key[0] == advice]:
            self.unwatch(name, number)

    # The advice that answers questions has them matched by `watch`, once for all peers that ask them.

    def _begin_matching(self, who: _Who, demand: Demand) -> None:
        if not isinstance(demand, AskedQuestion):
            self._matcher.add(who, demand)
            self._matched_of[who[0]] += 1
            self._order = None

    def _end_matching(self, who: _Who, demand: Demand) -> None:
        if not isinstance(demand, AskedQuestion):
            self._matcher.remove(who)
            self._matched_of[who[0]] -= 1
            if not self._matched_of[who[0]]:
                del self._matched_of[who[0]]
            self._order = None

    def columns_for(self, client: str, names: Iterable[str], there: list[str]) -> list[str]:
        """The columns that some of a client's subscriptions ask for, of those that are there."""
        wanted = {"event_id"}
        for name in names:
            _, columns = self.subscriptions.get((client, name), (None, ()))
            if columns is None:
                return there
            wanted.update(columns)
        return [name for name in there if name in wanted]

    def _spread(self, demand: Demand, peer: str, *, added: bool) -> dict[str, Before]:
        before = {}
        for neighbour, summary in self.summaries.items():
            if neighbour != peer:
                shift = summary.add(demand) if added else summary.remove(demand)
                before[neighbour] = Before(summary, shift)
        return before

    def demands_beside(self, neighbour: str) -> list[Demand]:
        """What all peers but one want."""
        found = [one for peer, demands in self.demands.items() if peer != neighbour for one in demands]
        return found + [demand for demand, _ in self.subscriptions.values()]

    def saved(self) -> dict[str, Any]:
        return {
            "advertisers": frozenset(self.advertisers),
            "advertised_to": frozenset(self.advertised_to),
            "demands": {neighbour: tuple(demands) for neighbour, demands in self.demands.items()},
            "subscriptions": dict(self.subscriptions),
            "watched": dict(self.watched),
            "summaries": {neighbour: summary.saved() for neighbour, summary in self.summaries.items()},
        }

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Take over what other routes had; called on empty ones."""
        self.advertisers, self.advertised_to = set(saved["advertisers"]), set(saved["advertised_to"])
        for neighbour, several in saved["demands"].items():
            for demand in several:
                self.demands[neighbour][demand] = None
                self._begin_matching((neighbour, demand), demand)
        for (client, name), (demand, columns) in saved["subscriptions"].items():
            self.subscriptions[client, name] = demand, None if columns is None else tuple(columns)
            self._begin_matching((client, name), demand)
        for (advice, number), condition in saved["watched"].items():
            self.watch(advice, number, condition)
        for neighbour, summary in self.summaries.items():
            summary.restore(saved["summaries"][neighbour], self.demands_beside(neighbour))

    def extend(self, schema: Schema) -> None:
        """Events have more attributes from now on, which filters may be about."""
        self.schema = schema
        filters = {who: self._filter(who) for who in self._matcher}
        self._matcher, self._order = Matcher(filters, schema), None

    def _filter(self, who: _Who) -> Filter:
        """What is matched for somebody."""
        peer, what = who
        if isinstance(what, tuple):
            return self.watched[what]
        demand = self.subscriptions[peer, what][0] if isinstance(what, str) else what
        assert isinstance(demand, Filter)
        return demand

    # -- advertisements -------------------------------------------------------------------------------------------

    def advertisement_changes(self) -> Iterator[tuple[str, bool]]:
        """Neighbours to whom an advertisement is due (True) or has to be taken back.

        A neighbour hears of a publisher on any other side than its own.
        """
        for neighbour in self.summaries:
            is_due = bool(self.advertisers - {neighbour})
            if is_due != (neighbour in self.advertised_to):
                yield neighbour, is_due

    # -- events ---------------------------------------------------------------------------------------------------

    def are_events(self, events: pa.RecordBatch) -> bool:
        """Whether there are any, each with what every event has: an id and a time."""
        schema = events.schema
        if self._of_events is None or not self._of_events[0].equals(schema):
            places = [schema.get_field_index(name) for name in _ALWAYS_THERE]
            if any(
                place < 0 or schema.field(place).type != kind
                for place, kind in zip(places, _ALWAYS_THERE.values(), strict=True)
            ):
                return False
            self._of_events = schema, places
        return events.num_rows > 0 and not any(events.column(place).null_count for place in self._of_events[1])

    def match(self, events: pa.RecordBatch) -> Matched:
        rows, slots = self._matcher.match_slots(events)
        if len(self._matched_of) == 1:
            (peer,) = self._matched_of
            if peer in self.demands:
                return Matched({peer: rising(rows, events.num_rows)} if len(rows) else {})
        if len(slots) <= FEW_PAIRS:
            return self._few(rows, slots, events.num_rows)
        if self._order is None:
            self._order = _Order.of(self._matcher)
        return self._many(self._order, rows, slots, events.num_rows)

    def _few(self, rows: Any, slots: Any, row_count: int) -> Matched:
        by_peer: dict[str, list[tuple[Any, int]]] = {}
        for (peer, what), row in zip(self._matcher.ids_of(slots), rows.tolist(), strict=True):
            if peer in by_peer:
                by_peer[peer].append((what, row))
            else:
                by_peer[peer] = [(what, row)]
        matched = Matched()
        for peer in sorted(by_peer):
            pairs = by_peer[peer]
            if peer in self.demands:
                wanted = _ROWS[:1] if row_count == 1 else np.array(sorted({row for _, row in pairs}), np.int64)
                matched.neighbours[peer] = wanted
            elif peer == _WATCHED:
                for advice in dict.fromkeys(advice for (advice, _), _ in pairs):
                    found = [(row, number) for (name, number), row in pairs if name == advice]
                    matched.watched[advice] = tuple(np.array(found, np.int64).T)
            else:
                pairs.sort()
                names = [name for name, _ in pairs]
                if row_count == 1:
                    matched.clients[peer] = BySubscription(names, _ENDS[: len(names)], _ROWS[: len(names)])
                else:
                    counts = Counter(names)
                    chosen = np.array([row for _, row in pairs])
                    matched.clients[peer] = BySubscription(
                        list(counts), np.array([*accumulate(counts.values())]), chosen
                    )
        return matched

    def _many(self, order: _Order, rows: Any, slots: Any, row_count: int) -> Matched:
        matched = Matched()
        begin, end, rows = self._matcher.by_slot(rows, order.places[slots])
        begin, end = begin[0], end[0]
        for peer, first, last in order.stretches:
            wanted = rows[begin[first] : end[last - 1]]
            if not len(wanted):
                continue
            if peer in self.demands:
                matched.neighbours[peer] = rising(wanted, row_count)
                continue
            if peer == _WATCHED:
                matched.watched = order.watched_by(end[first:last] - begin[first:last], wanted)
                continue
            there = first + (end[first:last] > begin[first:last]).nonzero()[0]
            names = [order.names[place] for place in there.tolist()]
            matched.clients[peer] = BySubscription(names, end[there] - begin[first], wanted)
        return matched


@dataclass(frozen=True, slots=True)
class _Order:
    """The slots of a matcher by peer and, of clients, by name."""

    places: npt.NDArray[np.int32]
    """Of each slot."""
    names: list[Any]
    """By place, what is asked there: the name of a subscription, or a neighbour's filter."""
    stretches: list[tuple[str, int, int]]
    """Peers, and from which place to before which other they are."""
    advice: list[str]
    """Whose filters are watched."""
    owners: RowNumbers
    """Of each filter that is watched, whose it is of `advice`."""
    numbers: RowNumbers
    """Of each filter that is watched, its number."""

    @classmethod
    def of(cls, matcher: Matcher) -> _Order:
        ids = sorted(matcher, key=lambda one: (one[0], one[1] if isinstance(one[1], str) else ""))
        slots = np.array([matcher.slot_of(one) for one in ids])
        places = np.zeros(slots.max() + 1, np.int32)
        places[slots] = np.arange(len(ids))
        edges = [at for at, (peer, _) in enumerate(ids) if not at or peer != ids[at - 1][0]]
        stretches = [(ids[first][0], first, last) for first, last in pairwise([*edges, len(ids)])]
        watched = [what for peer, what in ids if peer == _WATCHED]
        advice = list(dict.fromkeys(name for name, _ in watched))
        owners = np.array([advice.index(name) for name, _ in watched], np.int64)
        numbers = np.array([number for _, number in watched], np.int64)
        return cls(places, [what for _, what in ids], stretches, advice, owners, numbers)

    def watched_by(self, counts: RowNumbers, rows: RowNumbers) -> dict[str, tuple[RowNumbers, RowNumbers]]:
        """The pairs of each advice, given all rows, filter by filter, and how many each filter has."""
        rows, numbers = rows.astype(np.int64), np.repeat(self.numbers, counts)
        if len(self.advice) == 1:
            return {self.advice[0]: (rows, numbers)}
        owners = np.repeat(self.owners, counts)
        found = {advice: (rows[owners == at], numbers[owners == at]) for at, advice in enumerate(self.advice)}
        return {advice: pairs for advice, pairs in found.items() if len(pairs[0])}


def rising(rows: RowNumbers, row_count: int) -> RowNumbers:
    """Some rows of a batch, each once."""
    if row_count == 1:
        return rows[:1]
    is_there = np.zeros(row_count, np.bool_)
    is_there[rows] = True
    return is_there.nonzero()[0]


def combined(befores: Iterable[Any]) -> dict[str, Shift[Demand]]:
    """What several changes, one after the other, did to what each neighbour is sent."""
    risen: dict[str, dict[Demand, None]] = {}
    sunk: dict[str, dict[Demand, None]] = {}
    for before in befores:
        # An advice that stood in for the step may say nothing of neighbours.
        if not isinstance(before, Mapping):
            continue
        for neighbour, one in before.items():
            up, down = risen.setdefault(neighbour, {}), sunk.setdefault(neighbour, {})
            for demand in one.shift.sunk:
                if demand in up:
                    del up[demand]
                else:
                    down[demand] = None
            for demand in one.shift.risen:
                if demand in down:
                    del down[demand]
                else:
                    up[demand] = None
    return {neighbour: Shift(in_order(up), in_order(sunk[neighbour])) for neighbour, up in risen.items()}
