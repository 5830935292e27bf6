"""The traffic of a streaming job under any placement: folded as far as the watermark has come, the rest kept for later.

Lots wait for the watermark, so that they are folded in the order of time whatever batches they came in; what a stream
has sent when it ends is what a replay would have sent. What brokers have learned, and what they hold, is written down
with each batch, so that a batch that runs again does the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
import numpy as np

from catchment.overlay import Tree, word_count
from catchment.overlay.placement import Carried, Fold, Strategy
from catchment.stages import LOT_KINDS, LotRows, Plan, SeriesName, cells_of, lot_tables, lots_from, prepared_lots

__all__ = ["OngoingTraffic", "lots_by_topic"]


def lots_by_topic(rows: Iterable[Any], words: int) -> dict[str, LotRows]:
    """The lots of each topic in rows of LOT_KINDS."""
    numbers: dict[str, dict[str, list[Any]]] = {}
    for row in rows:
        numbers.setdefault(row.name, {kind: [] for kind in LOT_KINDS})[row.kind].append(np.array(row.numbers, np.int64))
    return {
        topic: lots_from({kind: np.concatenate(found) for kind, found in tables.items()}, words)
        for topic, tables in sorted(numbers.items())
    }


class OngoingTraffic:
    """One job's fold of each topic, taken up where `saved` left it."""

    def __init__(self, tree: Tree, strategy: Strategy, saved: bytes | None) -> None:
        self._tree, self._strategy = tree, strategy
        self._topics: dict[str, dict[str, Any]] = {} if saved is None else msgspec.msgpack.decode(saved)

    def saved(self) -> bytes:
        return msgspec.msgpack.encode(self._topics)

    def advance(self, plan: Plan, fresh: Mapping[str, LotRows], watermark_us: int | None) -> Carried:
        """What links carry of all cells that the watermark has passed; of all there are, if it is None."""
        total = Carried.none(len(self._tree.links))
        for topic in sorted({*fresh, *self._topics}):
            total += self._folded(topic, plan, fresh.get(topic), watermark_us)
        return total

    def _folded(self, topic: str, plan: Plan, fresh: LotRows | None, watermark_us: int | None) -> Carried:
        before = self._topics.pop(topic, {})
        words = word_count(len(self._tree.brokers))
        waiting = {kind: np.array(before.get(kind, []), np.int64) for kind in LOT_KINDS}
        lots = [lots_from(waiting, words)] + ([] if fresh is None else [fresh])
        if topic not in plan.topics:
            return Carried.none(len(self._tree.links))  # nobody asks about it any more
        windows = {layout.window for layout in plan.topics[topic].layouts}
        until_us = None
        if watermark_us is not None:
            until_us = int(cells_of(np.array([watermark_us]), windows, self._strategy.period_us)[0])
        due = [_between(one, None, until_us) for one in lots]
        known: list[SeriesName] = [_name(plain) for plain in before.get("series", [])]
        # What no open window needs is not remembered any longer.
        names = [name for name, is_open in zip(known, before.get("open", []), strict=True) if is_open]
        prepared = prepared_lots(plan.topics[topic], len(self._tree.brokers), due, self._strategy.grain, names)
        fold = Fold(self._tree, self._strategy.make(self._tree, prepared.series), prepared.series)
        if "fold" in before:
            kept = set(names)
            numbers = {name: number for number, name in enumerate(prepared.names) if name in kept}
            fold.restore(before["fold"], [numbers.get(name, -1) for name in known])
        transitions = fold.placement.transitions
        for cell in prepared.cells:
            fold.feed(cell)
        if until_us is None:
            fold.finish()
        else:
            fold.advance(until_us)
            self._topics[topic] = self._kept(fold, prepared.names, [_between(one, until_us, None) for one in lots])
        return Carried(fold.publications, fold.partials, fold.forced, fold.placement.transitions - transitions)

    def _kept(self, fold: Fold, names: list[SeriesName], later: list[LotRows]) -> dict[str, Any]:
        tables = [lot_tables(one) for one in later]
        waiting = {
            kind: np.concatenate([table[at].reshape(-1) for table in tables]).tolist()
            for at, kind in enumerate(LOT_KINDS)
        }
        return {**waiting, "series": names, "open": fold.is_open.tolist(), "fold": fold.saved()}


def _name(plain: Any) -> SeriesName:
    *numbers, who = plain
    return (*numbers, None if who is None else tuple(who))


def _between(lots: LotRows, begin_us: int | None, end_us: int | None) -> LotRows:
    """The lots of the cells that begin in a stretch of time, and what their signatures mean."""
    chosen = np.ones(len(lots.cell_us), np.bool_)
    if begin_us is not None:
        chosen &= lots.cell_us >= begin_us
    if end_us is not None:
        chosen &= lots.cell_us < end_us
    present = {tuple(key) for key in lots.signature[chosen].tolist()}
    kept = np.array([tuple(key) in present for key in lots.known.tolist()], np.bool_)
    lengths = np.diff(lots.wants_begin)
    return LotRows(
        lots.cell_us[chosen],
        lots.origin[chosen],
        lots.signature[chosen],
        lots.messages[chosen],
        lots.size_bytes[chosen],
        lots.known[kept],
        lots.raw_at[kept],
        np.concatenate(([0], np.cumsum(lengths[kept]))).astype(np.int64),
        lots.wants[np.repeat(kept, lengths)],
    )
