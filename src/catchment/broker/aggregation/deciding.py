"""A placement at one broker: the classes of `overlay.placement`, over the star of a broker and its neighbours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from catchment.broker.aggregation.asking import Base, View
from catchment.broker.aggregation.clocks import NEVER
from catchment.model.window import Window, WindowColumns
from catchment.overlay import Overlay, topic_tree, word_count
from catchment.overlay.placement import Coordinated, Offer, Placement, Series, Strategy
from catchment.overlay.placement.offers import sampled_until
from catchment.stages import PARTIAL_BYTES, Part, state_bytes

__all__ = ["Column", "Deciding", "Standing", "column_from", "columns_of", "size_of"]

Column = tuple[str, tuple[Any, ...], int, Any]
"""Base, group, part and value; part 0 where nothing is collected."""
_FEW, _MANY = 64, 10_000
"""Series that there is room for at first; and from how many on those are forgotten whose windows are closed."""


@dataclass(frozen=True, slots=True)
class Standing:
    """A publication that stands before a link, and what it is wanted for beyond."""

    size_bytes: int
    must: bool
    columns: Sequence[tuple[Column, int, bool]]
    """Each with its slice or stride, and whether its partial is known to cross anyway."""


def columns_of(base: Base, view: View, group: tuple[Any, ...], values: Mapping[str, Any]) -> list[Column]:
    """What a publication is wanted for by those who ask for a base on one side."""
    found: list[Column] = [(base.key, group, 0, None)] if view.is_plain else []
    for part in view.collected:
        assert part.attribute is not None
        found.append((base.key, group, part.id, None if part.state == "values" else values.get(part.attribute)))
    return found


def column_from(plain: Sequence[Any]) -> Column:
    key, group, part, value = plain
    return key, tuple(group), part, value


def size_of(parts: Sequence[Part]) -> int:
    """The bytes of a partial, without the values that it may have collected."""
    return PARTIAL_BYTES + sum(state_bytes(part.state) for part in parts)


class Deciding:
    """One topic's placement at one broker, and what it has learned."""

    def __init__(self, strategy: Strategy, broker: str, neighbours: Sequence[str]) -> None:
        self._strategy = strategy
        self._tree = topic_tree(Overlay.from_links([(broker, one) for one in neighbours]))
        self._links = {target: at for at, (source, target) in enumerate(self._tree.link_names) if source == broker}
        self._broker = self._tree.brokers.index(broker)
        self._numbers: dict[Column, int] = {}
        self._rows: list[tuple[Window, int, bool]] = []
        self._room = 0
        self._sampled_us = NEVER
        self._heard: dict[tuple[str, Column], int] = {}
        """What neighbours have told of columns: how many links more it costs behind them."""
        self._said: dict[tuple[str, Column], int] = {}
        self.placement = self._make()

    @property
    def learns(self) -> bool:
        return self.placement.period_us is not None

    @property
    def ponders(self) -> bool:
        """Whether a decision takes any time worth counting."""
        return self.learns or self.placement.holds

    @property
    def transitions(self) -> int:
        return self.placement.transitions

    def sample(self, time_us: int) -> bool:
        """Event time has come so far; whether a period has ended."""
        before_us = self._sampled_us
        self._sampled_us = sampled_until(self.placement, before_us, time_us)
        has_ended = NEVER < before_us < self._sampled_us
        if has_ended and len(self) > _MANY:
            self._forget_past()
        return has_ended

    def __len__(self) -> int:
        """How many series it has learned about."""
        return len(self._numbers)

    def absorb(self, neighbour: str, standing: Sequence[Standing], bases: dict[str, Base]) -> list[list[bool]]:
        """Of each publication and column, whether it goes into a partial here."""
        lot, column, series, slices, due = [], [], [], [], []
        places: dict[Column, int] = {}
        for at, one in enumerate(standing):
            for name, number, is_due in one.columns:
                if name not in places:
                    places[name] = len(places)
                    series.append(self._number(name, bases) if self.learns else places[name])
                    slices.append(number)
                    due.append(is_due)
                lot.append(at)
                column.append(places[name])
        order = np.argsort(series, kind="stable") if self.learns else np.arange(len(series))
        place = np.empty(len(order), np.int64)
        place[order] = np.arange(len(order))
        offer = Offer(
            self._broker,
            self._links[neighbour],
            np.ones(len(standing), np.int64),
            np.array([one.size_bytes for one in standing], np.int64),
            np.array([one.must for one in standing], np.bool_),
            np.array(lot, np.int64),
            place[np.array(column, np.int64)] if column else np.zeros(0, np.int64),
            np.array(series, np.int64)[order],
            np.array(slices, np.int64)[order],
            np.array(due, np.bool_)[order],
        )
        self._grow()
        absorbed = iter(self.placement.absorb(offer).tolist())
        return [[next(absorbed) for _ in one.columns] for one in standing]

    # -- neighbours coordinate --------------------------------------------------------------------------------------

    def hear(self, neighbour: str, column: Column, links: int) -> None:
        """A neighbour has told how many links more it costs behind it if something crosses as it is."""
        self._heard[neighbour, column] = links
        if isinstance(self.placement, Coordinated) and column in self._numbers:
            self.placement.told[self._links[neighbour], self._numbers[column]] = links

    def news(self, bases: Mapping[str, Base]) -> dict[str, list[tuple[Column, int]]]:
        """By neighbour, what has changed of that since it was last told."""
        if not isinstance(self.placement, Coordinated):
            return {}
        found: dict[str, list[tuple[Column, int]]] = {}
        ahead = (1 - self.placement.chosen) * self.placement.reach()
        for column, number in self._numbers.items():
            sides = bases[column[0]].sides if column[0] in bases else {}
            costs = {side: int(ahead[link, number]) for side, link in self._links.items() if side in sides}
            for side in self._links:
                links = sum(cost for other, cost in costs.items() if other != side)
                if links != self._said.get((side, column), 0):
                    self._said[side, column] = links
                    found.setdefault(side, []).append((column, links))
        return found

    # -- series come and go -----------------------------------------------------------------------------------------

    def _number(self, name: Column, bases: dict[str, Base]) -> int:
        if name not in self._numbers:
            base = bases[name[0]]
            collects = any(part.id == name[2] and part.state == "values" for part in base.parts.values())
            size = PARTIAL_BYTES if name[2] else size_of(tuple(base.parts.values()))
            number = self._numbers[name] = len(self._numbers)
            self._rows.append((base.window, size, collects))
            if number < self._room:
                self._fill(number)
                self._recall_heard(name, number)
        return self._numbers[name]

    def _make(self) -> Placement:
        """With room for more series than there are, so that it is seldom made anew."""
        self._series = Series(
            np.zeros((self._room, word_count(len(self._tree.brokers))), np.uint64),
            WindowColumns(np.ones(self._room, np.int64), np.ones(self._room, np.int64)),
            np.zeros(self._room, np.int64),
            np.zeros(self._room, np.bool_),
        )
        for number in range(len(self._rows)):
            self._fill(number)
        return self._strategy.make(self._tree, self._series)

    def _recall_heard(self, name: Column, number: int) -> None:
        if isinstance(self.placement, Coordinated):
            for neighbour, link in self._links.items():
                self.placement.told[link, number] = self._heard.get((neighbour, name), 0)

    def _fill(self, number: int) -> None:
        """The placement looks at these very columns."""
        window, size, collects = self._rows[number]
        series = self._series
        series.windows.size_us[number], series.windows.shift_us[number] = window.size_us, window.shift_us
        series.partial_bytes[number], series.collects[number] = size, collects

    def _grow(self) -> None:
        if len(self._rows) > self._room:
            self._room = max(_FEW, 2 * len(self._rows))
            self._remake(np.arange(self._room))

    def _remake(self, places: Any) -> None:
        """Make the placement anew for other series; `places` is where each of then is now, or below zero."""
        before = self.placement
        self.placement = self._make()
        now = self.placement.tables()
        for name, table in before.tables().items():
            then = np.flatnonzero(places[: table.shape[1]] >= 0)
            now[name][:, places[then]] = table[:, then]
        self.placement.recall(before.facts(), places)
        for column, number in self._numbers.items():
            self._recall_heard(column, number)

    def forget(self, bases: dict[str, Base]) -> None:
        """Leave out the series of what nobody asks any more."""
        self._heard = {key: links for key, links in self._heard.items() if key[1][0] in bases}
        self._said = {key: links for key, links in self._said.items() if key[1][0] in bases}
        self._keep([name for name in self._numbers if name[0] in bases])

    def _forget_past(self) -> None:
        """Leave out the series whose windows have all been closed for some time."""
        touched = self.placement.tables()["touched"].max(axis=0)
        kept = []
        for name, number in self._numbers.items():
            window = self._rows[number][0]
            until_us = window.until_us(int(touched[number]))
            if until_us + 2 * max(window.shift_us, self._strategy.period_us) > self._sampled_us:
                kept.append(name)
        self._keep(kept)

    def _keep(self, kept: Sequence[Column]) -> None:
        if len(kept) == len(self._numbers):
            return
        places = np.full(max(self._room, len(self._numbers)), -1, np.int64)
        for at, name in enumerate(kept):
            places[self._numbers[name]] = at
        self._rows = [self._rows[self._numbers[name]] for name in kept]
        self._numbers = {name: at for at, name in enumerate(kept)}
        self._remake(places)

    # -- memory -----------------------------------------------------------------------------------------------------

    def plain(self) -> list[Any] | None:
        if not self.learns:
            return None
        rows = [[window.size_us, window.shift_us, size, collects] for window, size, collects in self._rows]
        tables = {name: table.tolist() for name, table in self.placement.tables().items()}
        talk = [[[*key, links] for key, links in table.items()] for table in (self._heard, self._said)]
        return [list(self._numbers), rows, self._room, self._sampled_us, tables, self.placement.facts(), talk]

    def restore(self, plain: list[Any] | None) -> None:
        if plain is None:
            return
        names, rows, self._room, self._sampled_us, tables, facts, talk = plain
        self._numbers = {column_from(name): at for at, name in enumerate(names)}
        self._heard, self._said = ({(side, column_from(name)): links for side, name, links in one} for one in talk)
        self._rows = [(Window(size_us, shift_us), size, collects) for size_us, shift_us, size, collects in rows]
        self.placement = self._make()
        for name, table in self.placement.tables().items():
            table[:] = np.array(tables[name], np.int64).reshape(table.shape)
        self.placement.recall(facts, np.arange(self._room))
