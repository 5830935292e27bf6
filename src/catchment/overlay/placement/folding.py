"""What each link carries under any placement: links folded in tree order, cell by cell. No hop is simulated.

    lots of a cell ─► at their origin ─► link ─► at its end ─► next link ─► …

A cell is a stretch of time that no edge of a window, and no end of a sampling period, divides; cells come in the order
of time. A link is visited after all links that lead to it. What has arrived at a broker is offered to each of its
links; the placement says what goes into partials there; the rest crosses as it is.

Rule 1: a lot that crosses as it is takes with it which of its edges were absorbed; they are offered no more.
Rule 2: a partial that has reached a broker goes on towards all who want it, merged with what is absorbed there.
Rule 3: under placements that hold, a lot waits at a link until one of the strides ends in which it is wanted beyond.
Rule 4: nobody decides by what a broker could not know: of a partial further up, it hears when its stride has ended.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from catchment.overlay.placement.offers import FOR_EVER, NEVER, Bools, Ints, Offer, Placement, sampled_until
from catchment.overlay.placement.series import VALUE_BYTES, Lots, Series
from catchment.overlay.traffic import LinkCounts, meets, members
from catchment.overlay.trees import Tree

__all__ = ["Fold", "tree_order"]


@dataclass(frozen=True, slots=True, eq=False)
class _Arrived:
    """Lots that have reached a broker, and their edges that nobody has absorbed on the way."""

    lots: Lots
    rows: Bools
    edges: Bools


class Fold:
    """Adds up what a placement makes the links of a tree carry."""

    def __init__(self, tree: Tree, placement: Placement, series: Series) -> None:
        self.tree, self.placement, self.series = tree, placement, series
        links = len(tree.links)
        self._order = tree_order(tree)
        ending: dict[int, list[int]] = defaultdict(list)
        for link, (_, target) in enumerate(tree.links):
            ending[target].append(link)
        self._into = [[one for one in ending[source] if tree.links[one][0] != target] for source, target in tree.links]
        self._from_here = ~members(tree)
        self._beyond = np.ascontiguousarray(meets(tree.beyond, series.brokers).T)
        self._touched = np.full((links, len(series)), NEVER, np.int64)
        """By link and series, the last slice or stride of which a partial crosses."""
        self._absorbed = np.full((links, len(series)), NEVER, np.int64)
        """… and of which something was absorbed right there."""
        self._bytes = series.bytes_beyond(tree)
        self._held: list[list[_Arrived]] = [[] for _ in range(links)]
        self._now_us, self._period_us = NEVER, NEVER
        self.publications = LinkCounts.none(links)
        self.partials = LinkCounts.none(links)
        self.forced = np.zeros(links, np.int64)
        """Of the publications, those that a regular subscription made cross."""

    @property
    def _is_by_stride(self) -> bool:
        return self.placement.grain == "stride"

    # -- time passes ------------------------------------------------------------------------------------------------

    def run(self, cells: Iterable[Lots]) -> Fold:
        """Feed it all there is."""
        for lots in cells:
            self.feed(lots)
        self.finish()
        return self

    def feed(self, lots: Lots) -> None:
        """The next cell in the order of time."""
        self._advance(lots.begin_us)
        if self._is_by_stride:
            lots = replace(lots, slices=self.series.windows[lots.series].stride_of(lots.slices))
        arrived: dict[int, list[_Arrived]] = defaultdict(list)
        for origin in np.unique(lots.origin).tolist():
            rows = lots.origin == origin
            arrived[origin].append(_Arrived(lots, rows, rows[lots.lot]))
        for link in self._order:
            for one in arrived[self.tree.links[link][0]]:
                self._offer(link, one, arrived)
            self._merge(link)

    def finish(self) -> None:
        """The input has ended, and everything closes."""
        self._close(FOR_EVER)

    def advance(self, now_us: int) -> None:
        """All cells that begin before this time have been fed."""
        if self._now_us != NEVER:
            self._advance(now_us)

    def _advance(self, now_us: int) -> None:
        self._close(now_us)
        self._period_us = sampled_until(self.placement, self._period_us, now_us)
        self._now_us = now_us

    def _close(self, now_us: int) -> None:
        """Decide about everything that waits where a stride has ended, one end after the other."""
        if not self.placement.holds or self._now_us == NEVER:
            return
        series = self.series
        ends_us = series.windows.next_end_us(np.asarray(self._now_us))
        waiting = np.zeros(len(series), np.bool_)
        for one in (one for held in self._held for one in held):
            waiting[one.lots.series[one.edges]] = True
        for end_us in np.unique(ends_us[waiting & (ends_us <= now_us)]).tolist():
            self._close_ended(ends_us <= end_us)

    def _close_ended(self, ended: Bools) -> None:
        arrived: dict[int, list[_Arrived]] = defaultdict(list)
        for link in self._order:
            held = self._held[link]
            for one in arrived[self.tree.links[link][0]]:
                found = self._wanted(link, one)
                held += [found] if found is not None else []
            if any(ended[one.lots.series[one.edges]].any() for one in held):
                self._held[link] = self._decide(link, held, arrived, ended)
            self._merge(link)

    # -- to go on later ---------------------------------------------------------------------------------------------

    def saved(self) -> dict[str, Any]:
        """All that another fold needs to go on from here, in plain values; the counts start anew."""
        return {
            "now_us": self._now_us,
            "period_us": self._period_us,
            "touched": self._touched.tolist(),
            "absorbed": self._absorbed.tolist(),
            "tables": {name: table.tolist() for name, table in self.placement.tables().items()},
            "facts": self.placement.saved(),
            "held": [[_plain(one) for one in held] for held in self._held],
        }

    def restore(self, saved: Mapping[str, Any], places: Sequence[int]) -> None:
        """Go on from what was saved; `places` is where each series of then is now, below zero if it is no more."""
        there = np.array(places, np.int64)
        then = np.flatnonzero(there >= 0)
        now = there[then]
        self._now_us, self._period_us = saved["now_us"], saved["period_us"]
        tables = [(self._touched, saved["touched"]), (self._absorbed, saved["absorbed"])]
        tables += [(table, saved["tables"][name]) for name, table in self.placement.tables().items()]
        for table, plain in tables:
            table[:, now] = np.array(plain, np.int64).reshape(len(table), len(places))[:, then]
        self.placement.restore(saved["facts"], there)
        self._held = [[_arrived(one, there) for one in held] for held in saved["held"]]

    @property
    def is_open(self) -> Bools:
        """Of each series, whether it still matters: whether one of its windows that something was seen for is open."""
        last = self._touched.max(axis=0, initial=NEVER)
        for table in self.placement.tables().values():
            last = np.maximum(last, table.max(axis=0, initial=NEVER))
        # The last slice of a stride is the first of the window of that number.
        window = last if self._is_by_stride else self.series.windows.last_window(last)
        is_open: Bools = (last != NEVER) & (self.series.windows.end_us(window + 1) > self._now_us)
        for held in self._held:
            for one in held:
                is_open[one.lots.series[one.edges]] = True
        return is_open

    # -- at a link --------------------------------------------------------------------------------------------------

    def _wanted(self, link: int, one: _Arrived) -> _Arrived | None:
        """What of it somebody beyond the link wants."""
        lots = one.lots
        rows = one.rows & self._from_here[lots.origin, link]
        edges = one.edges & rows[lots.lot] & self._beyond[link, lots.series]
        rows &= self._must(link, lots)
        rows[lots.lot[edges]] = True
        return _Arrived(lots, rows, edges) if rows.any() else None

    def _must(self, link: int, lots: Lots) -> Bools:
        """Which lots a regular subscription beyond the link wants."""
        wanted: Bools = meets(self.tree.beyond[link : link + 1], lots.raw_at)[:, 0]
        return wanted

    def _offer(self, link: int, one: _Arrived, arrived: dict[int, list[_Arrived]]) -> None:
        found = self._wanted(link, one)
        if found is None:
            return
        if not self.placement.holds:
            self._decide(link, [found], arrived)
            return
        lots = found.lots
        # What a regular subscription wants leaves at once; so does what no partial could tell in fewer messages.
        at_once = self._must(link, lots)
        at_once[lots.lot[found.edges & self.series.collects[lots.series]]] = True
        at_once &= found.rows
        self._cross(link, lots, at_once, found.edges & at_once[lots.lot], arrived)
        waits = found.rows & ~at_once
        if waits.any():
            self._held[link].append(_Arrived(lots, waits, found.edges & waits[lots.lot]))

    def _decide(
        self,
        link: int,
        pieces: Sequence[_Arrived],
        arrived: dict[int, list[_Arrived]],
        ended: Bools | None = None,
    ) -> list[_Arrived]:
        """Ask the placement about all that stands before a link, and carry it out; what goes on waiting.

        That is what is wanted in no series that has `ended`.
        """
        firsts = np.cumsum([0, *(len(piece.lots.weights) for piece in pieces)]).tolist()
        lot = np.concatenate([p.lots.lot[p.edges] + first for p, first in zip(pieces, firsts[:-1], strict=True)])
        series = np.concatenate([piece.lots.series[piece.edges] for piece in pieces])
        slices = np.concatenate([piece.lots.slices[piece.edges] for piece in pieces])
        columns, at, column = np.unique(series, return_index=True, return_inverse=True)
        of_column = slices[at]
        due = self._absorbed[link, columns] == of_column
        if ended is not None:
            for one in (link, *self._into[link]):
                due |= ended[columns] & (self._touched[one, columns] == of_column)
        must = np.concatenate([self._must(link, piece.lots) & piece.rows for piece in pieces])
        weights = np.concatenate([piece.lots.weights for piece in pieces])
        size_bytes = np.concatenate([piece.lots.size_bytes for piece in pieces])
        source = self.tree.links[link][0]
        offer = Offer(source, link, weights, size_bytes, must, lot, column, columns, of_column, due)
        absorbed = self.placement.absorb(offer)
        crosses = must.copy()
        crosses[lot[~absorbed]] = True
        decided = np.ones(len(weights), np.bool_)
        if ended is not None:
            decided[:] = False
            decided[lot[ended[series]]] = True
        carried_out = absorbed & decided[lot]
        into = np.bincount(column[carried_out], minlength=len(columns)) > 0
        self._absorbed[link, columns[into]] = of_column[into]
        self._touch(link, columns, of_column, into)
        waiting = []
        done = 0
        for piece, first in zip(pieces, firsts[:-1], strict=True):
            lots = piece.lots
            of_piece = slice(first, first + len(lots.weights))
            numbers = np.flatnonzero(piece.edges)
            inside = numbers[carried_out[done : done + len(numbers)]]
            done += len(numbers)
            self._put_in(link, lots, inside)
            raw = piece.rows & crosses[of_piece] & decided[of_piece]
            edges = piece.edges & raw[lots.lot]
            edges[inside] = False
            self._cross(link, lots, raw, edges, arrived)
            rest = piece.rows & ~decided[of_piece]
            if rest.any():
                waiting.append(_Arrived(lots, rest, piece.edges & rest[lots.lot]))
        return waiting

    def _cross(self, link: int, lots: Lots, rows: Bools, edges: Bools, arrived: dict[int, list[_Arrived]]) -> None:
        if rows.any():
            self.publications.messages[link] += lots.weights[rows].sum()
            self.publications.bytes[link] += lots.size_bytes[rows].sum()
            self.forced[link] += lots.weights[rows & self._must(link, lots)].sum()
            arrived[self.tree.links[link][1]].append(_Arrived(lots, rows, edges))

    # -- partials ---------------------------------------------------------------------------------------------------

    def _merge(self, link: int) -> None:
        """Let go on what has come from further up."""
        for before in self._into[link]:
            columns = np.flatnonzero(self._beyond[link] & (self._touched[before] > self._touched[link]))
            if len(columns):
                self._touch(link, columns, self._touched[before, columns], np.ones(len(columns), np.bool_))

    def _touch(self, link: int, series: Ints, slices: Ints, chosen: Bools) -> None:
        """Count the partials of strides, or of the windows that slices lie in, that were not counted before."""
        series, slices = series[chosen], slices[chosen]
        last = self._touched[link, series]
        fresh = slices > last
        series, slices, last = series[fresh], slices[fresh], last[fresh]
        counts = np.ones(len(series), np.int64)
        if not self._is_by_stride:
            windows = self.series.windows[series]
            first, behind = windows.windows_around(slices)
            counts = behind - np.maximum(first, windows.last_window(last) + 1)
        self._touched[link, series] = slices
        self.partials.messages[link] += counts[~self.series.collects[series]].sum()
        self.partials.bytes[link] += (counts * self._bytes[link, series]).sum()

    def _put_in(self, link: int, lots: Lots, edges: Ints) -> None:
        """Count the values of absorbed publications on all links that their partials will cross."""
        edges = edges[self.series.collects[lots.series[edges]]]
        if not len(edges):
            return
        series, slices = lots.series[edges], lots.slices[edges]
        values = lots.weights[lots.lot[edges]]
        if not self._is_by_stride:
            first, behind = self.series.windows[series].windows_around(slices)
            values = values * (behind - first)
        crossed = self._beyond[:, series] & self._after(link)[:, None]
        self.partials.messages[:] += crossed @ values
        self.partials.bytes[:] += VALUE_BYTES * (crossed @ values)

    def _after(self, link: int) -> Bools:
        """Which links what crosses this one may come to, and itself."""
        starts = np.array([source for source, _ in self.tree.links])
        after: Bools = self._from_here[self.tree.links[link][0]] & ~self._from_here[starts, link]
        after[link] = True
        return after


_COLUMNS = ("origin", "weights", "size_bytes", "raw_at", "lot", "series", "slices")


def _plain(one: _Arrived) -> dict[str, Any]:
    """Lots that wait, without those that do not."""
    rows, edges = np.flatnonzero(one.rows), np.flatnonzero(one.edges)
    place = np.zeros(len(one.rows), np.int64)
    place[rows] = np.arange(len(rows))
    lots = one.lots
    chosen = {
        "origin": lots.origin[rows],
        "weights": lots.weights[rows],
        "size_bytes": lots.size_bytes[rows],
        "raw_at": lots.raw_at[rows].view(np.int64),
        "lot": place[lots.lot[edges]],
        "series": lots.series[edges],
        "slices": lots.slices[edges],
    }
    return {"begin_us": lots.begin_us, **{name: column.tolist() for name, column in chosen.items()}}


def _arrived(plain: Mapping[str, Any], places: Ints) -> _Arrived:
    columns = {name: np.array(plain[name], np.int64) for name in _COLUMNS}
    known = places[columns["series"]] >= 0
    edges = {name: columns[name][known] for name in ("lot", "series", "slices")}
    edges["series"] = places[edges["series"]]
    raw_at = columns["raw_at"].reshape(len(columns["origin"]), -1).view(np.uint64)
    lots = Lots(
        plain["begin_us"], columns["origin"], columns["weights"], columns["size_bytes"], raw_at,
        edges["lot"], edges["series"], edges["slices"],
    )  # fmt: skip
    # Who is wanted by nobody any more waits for nothing.
    rows = np.bincount(edges["lot"], minlength=len(lots.weights)) > 0
    return _Arrived(lots, rows, np.ones(len(edges["lot"]), np.bool_))


def tree_order(tree: Tree) -> list[int]:
    """Links such that each comes after all that lead to it: towards the root, the farthest first; then away from it."""
    depth = [0] * len(tree.brokers)
    for broker in range(len(depth)):
        at = broker
        while tree.parent[at] != at:
            at = tree.parent[at]
            depth[broker] += 1
    upwards = [link for link, (source, target) in enumerate(tree.links) if tree.parent[source] == target]
    downwards = [link for link, (source, target) in enumerate(tree.links) if tree.parent[target] == source]
    upwards.sort(key=lambda link: (-depth[tree.links[link][0]], link))
    downwards.sort(key=lambda link: (depth[tree.links[link][0]], link))
    return upwards + downwards
