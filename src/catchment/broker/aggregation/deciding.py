"""A placement at one broker: the classes of `overlay.placement`, over the star of a broker and its neighbours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from catchment.broker.aggregation.clocks import NEVER
from catchment.broker.aggregation.questions import KnownQuestion
from catchment.model.window import WindowColumns
from catchment.overlay import Overlay, topic_tree, word_count
from catchment.overlay.placement import Coordinated, Offer, Placement, Series, Strategy
from catchment.overlay.placement.offers import sampled_until
from catchment.stages import SeriesName, collects_values, mixed, numbered, partial_bytes

__all__ = ["Deciding", "Standing"]

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
_FEW, _MANY = 64, 10_000
"""Series that there is room for at first; and up to how many none is forgotten."""


@dataclass(frozen=True, slots=True, eq=False)
class Standing:
    """Lots of publications that stand before a link, with an edge for each thing that one is wanted for beyond."""

    weights: Ints
    """Of each lot, how many publications it is."""
    size_bytes: Ints
    must: Bools
    """Whether each crosses anyway."""
    lot: Ints
    """Of each edge."""
    wants: Ints
    """[edges, 4]"""
    keys: npt.NDArray[np.uint64]
    """Of each edge, a hash of what it is wanted for."""
    numbers: Ints
    """Of each edge, its slice or stride."""
    due: Bools | None = None
    """Of each edge, whether its partial is known to cross anyway."""

    def where(self, chosen: Bools) -> Standing:
        """Some edges of the same lots."""
        if chosen.all():
            return self
        due = None if self.due is None else self.due[chosen]
        return Standing(
            self.weights, self.size_bytes, self.must, self.lot[chosen], self.wants[chosen], self.keys[chosen],
            self.numbers[chosen], due,
        )  # fmt: skip


class Deciding:
    """One topic's placement at one broker, and what it has learned."""

    def __init__(self, strategy: Strategy, broker: str, neighbours: Sequence[str]) -> None:
        self._strategy, self._star = strategy, (broker, tuple(neighbours))
        self._tree = topic_tree(Overlay.from_links([(broker, one) for one in neighbours]))
        self._links = {target: at for at, (source, target) in enumerate(self._tree.link_names) if source == broker}
        self._broker = self._tree.brokers.index(broker)
        self._numbers: dict[SeriesName, int] = {}
        self._by_key: dict[int, int] = {}
        """The same by the hash of the series."""
        self._many = _MANY
        """From how many series on it is time to forget some."""
        self._sampled_us = NEVER
        self._heard: dict[tuple[str, SeriesName], int] = {}
        """By neighbour and series, how many more links a publication crosses beyond that neighbour, as it has said."""
        self._said: dict[tuple[str, SeriesName], int] = {}
        self.placement = self._make(0)

    def under(self, strategy: Strategy) -> Deciding:
        """Another placement at this broker, which has learned nothing yet but what neighbours have said."""
        made = Deciding(strategy, *self._star)
        made._heard, made._said = self._heard, self._said
        return made

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

    def answer(self) -> bool | None:
        """What is answered to every offer until the next sample, if that is sure."""
        return self.placement.answer(self._broker)

    def would_sample(self, time_us: int) -> bool:
        """Whether a period has ended that the placement has not heard of."""
        period_us = self.placement.period_us
        return period_us is not None and NEVER < self._sampled_us < time_us // period_us * period_us

    def sample(self, time_us: int) -> bool:
        """Event time has come so far; whether a period has ended."""
        before_us = self._sampled_us
        self._sampled_us = sampled_until(self.placement, before_us, time_us)
        has_ended = NEVER < before_us < self._sampled_us
        if has_ended and len(self) > self._many:
            self._forget_past()
            self._many = max(_MANY, 2 * len(self))
        return has_ended

    def __len__(self) -> int:
        """How many series it has learned about."""
        return len(self._numbers)

    def absorb(self, neighbour: str, standing: Standing, known: Mapping[int, KnownQuestion]) -> Bools:
        """Of each edge, whether its lot goes into the partial here."""
        keys = standing.keys
        example, column = numbered(keys)
        link = self._links[neighbour]
        if self.placement.holds:
            series = np.arange(len(example))
        else:
            series = self._numbered(standing.wants[example], keys[example].view(np.int64), known)
        order = np.argsort(series, kind="stable")
        place = np.empty(len(order), np.int64)
        place[order] = np.arange(len(order))
        first = example[order]
        numbers = standing.numbers[first]
        due = self._absorbed[link, series[order]] == numbers if standing.due is None else standing.due[first]
        offer = Offer(
            self._broker, link, standing.weights, standing.size_bytes, standing.must, standing.lot, place[column],
            series[order], numbers, due,
        )  # fmt: skip
        absorbed = self.placement.absorb(offer)
        if not self.placement.holds:
            into = np.unique(offer.column[absorbed])
            self._absorbed[link, offer.series[into]] = numbers[into]
        return absorbed

    def _numbered(self, wants: Ints, keys: Ints, known: Mapping[int, KnownQuestion]) -> Ints:
        """The numbers of some series, also of those that are met for the first time."""
        found = [self._by_key.get(key, -1) for key in keys.tolist()]
        for at, number in enumerate(found):
            if number < 0:
                question, group, part, value = wants[at].tolist()
                found[at] = self._number((question, group, part, value, None), int(keys[at]), known)
        return np.array(found, np.int64)

    # -- neighbours coordinate --------------------------------------------------------------------------------------

    def hear(self, neighbour: str, series: SeriesName, links: int) -> None:
        """Note how many more links a publication of a series crosses beyond a neighbour, as it says."""
        self._heard[neighbour, series] = links
        if isinstance(self.placement, Coordinated) and series in self._numbers:
            self.placement.links_beyond[self._links[neighbour], self._numbers[series]] = links

    def news(self, known: Mapping[int, KnownQuestion]) -> dict[str, list[tuple[SeriesName, int]]]:
        """By neighbour, the series whose number of links has changed since it was last sent."""
        if not isinstance(self.placement, Coordinated):
            return {}
        found: dict[str, list[tuple[SeriesName, int]]] = {}
        ahead = (1 - self.placement.chosen) * self.placement.reach()
        for series, number in self._numbers.items():
            sides = known[series[0]].views if series[0] in known else {}
            costs = {side: int(ahead[link, number]) for side, link in self._links.items() if side in sides}
            for side in self._links:
                links = sum(cost for other, cost in costs.items() if other != side)
                if links != self._said.get((side, series), 0):
                    self._said[side, series] = links
                    found.setdefault(side, []).append((series, links))
        return found

    # -- series come and go -----------------------------------------------------------------------------------------

    def _number(self, name: SeriesName, key: int, known: Mapping[int, KnownQuestion]) -> int:
        """Number a series that is met for the first time."""
        question, _, part, _, _ = name
        window, parts = known[question].window, known[question].whole.parts
        number = len(self)
        if number == len(self._series):
            self._remake(max(_FEW, 2 * number), np.arange(number))
        self._numbers[name] = self._by_key[key] = number
        # The placement looks at these very columns.
        series = self._series
        series.windows.size_us[number], series.windows.shift_us[number] = window.size_us, window.shift_us
        series.partial_bytes[number], series.collects[number] = partial_bytes(part, parts), collects_values(part, parts)
        self._recall_heard(name, number)
        return number

    def _make(self, room: int) -> Placement:
        """With room for more series than there are, so that it is seldom made anew."""
        self._series = Series(
            np.zeros((room, word_count(len(self._tree.brokers))), np.uint64),
            WindowColumns(np.ones(room, np.int64), np.ones(room, np.int64)),
            np.zeros(room, np.int64),
            np.zeros(room, np.bool_),
        )
        self._absorbed = np.full((len(self._tree.links), room), NEVER, np.int64)
        """By link and series, the last slice of which something was absorbed."""
        return self._strategy.make(self._tree, self._series)

    def _recall_heard(self, name: SeriesName, number: int) -> None:
        if isinstance(self.placement, Coordinated):
            for neighbour, link in self._links.items():
                self.placement.links_beyond[link, number] = self._heard.get((neighbour, name), 0)

    def _remake(self, room: int, places: Ints) -> None:
        """Make the placement anew for other series; `places` is where each of then is now, or below zero."""
        before, then = self.placement, {**self._columns(), **self._tables()}
        self.placement = self._make(room)
        kept = np.flatnonzero(places >= 0)
        for name, now in {**self._columns(), **self._tables()}.items():
            now[..., places[kept]] = then[name][..., kept]
        self.placement.restore(before.saved(), places)
        for series, number in self._numbers.items():
            self._recall_heard(series, number)

    def _columns(self) -> dict[str, Any]:
        """What is known of each series."""
        series = self._series
        return {
            "size_us": series.windows.size_us,
            "shift_us": series.windows.shift_us,
            "partial_bytes": series.partial_bytes,
            "collects": series.collects,
        }

    def _tables(self) -> dict[str, Ints]:
        """What is remembered by link and series."""
        return {**self.placement.tables(), "absorbed": self._absorbed}

    def forget(self, known: Mapping[int, KnownQuestion]) -> None:
        """Forget the series of questions that are no longer asked."""
        self._heard = {key: links for key, links in self._heard.items() if key[1][0] in known}
        self._said = {key: links for key, links in self._said.items() if key[1][0] in known}
        self._keep([series for series in self._numbers if series[0] in known])

    def _forget_past(self) -> None:
        """Leave out the series whose windows have all been closed for some time."""
        touched = self._tables().get("touched", self._absorbed)[:, : len(self)].max(axis=0)
        windows = self._series.windows[: len(self)]
        kept_us = windows.until_us(touched) + 2 * np.maximum(windows.shift_us, self._strategy.period_us)
        is_kept = (touched > NEVER) & (kept_us > self._sampled_us)
        self._keep([series for series, number in self._numbers.items() if is_kept[number]])

    def _keep(self, kept: Sequence[SeriesName]) -> None:
        if len(kept) == len(self):
            return
        places = np.full(len(self), -1, np.int64)
        places[[self._numbers[series] for series in kept]] = np.arange(len(kept))
        self._name(kept)
        self._remake(len(self._series), places)

    def _name(self, several: Sequence[SeriesName]) -> None:
        self._numbers = {series: at for at, series in enumerate(several)}
        keys = mixed(np.array([series[:4] for series in several], np.int64).reshape(-1, 4), 0).view(np.int64)
        self._by_key = {key: at for at, key in enumerate(keys.tolist())}

    # -- memory -----------------------------------------------------------------------------------------------------

    def saved(self) -> dict[str, Any] | None:
        if self.placement.holds:
            return None
        count = len(self)
        return {
            "names": tuple(self._numbers),
            "series": {name: column[:count].copy() for name, column in self._columns().items()},
            "room": len(self._series),
            "many": self._many,
            "sampled_us": self._sampled_us,
            "tables": {name: table[:, :count].copy() for name, table in self._tables().items()},
            "placement": self.placement.saved(),
            "heard": dict(self._heard),
            "said": dict(self._said),
        }

    def restore(self, saved: Mapping[str, Any] | None) -> None:
        if saved is None:
            return
        self._name([(question, group, part, value, None) for question, group, part, value, _ in saved["names"]])
        self._heard, self._said = dict(saved["heard"]), dict(saved["said"])
        self._many, self._sampled_us = saved["many"], saved["sampled_us"]
        self.placement = self._make(saved["room"])
        then = {**saved["series"], **saved["tables"]}
        for name, now in {**self._columns(), **self._tables()}.items():
            now[..., : len(self)] = then[name]
        self.placement.restore(saved["placement"], np.arange(len(self)))
