"""Folding links is what walking every publication over every link counts; and no placement beats the bound."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catchment import Overlay, Schema, Subscription
from catchment.model.errors import ConfigurationError
from catchment.model.events import as_events
from catchment.overlay import Tree, topic_tree, traffic_table
from catchment.overlay.placement import (
    PLACEMENTS,
    Adaptive,
    Carried,
    Choose,
    Cost,
    Cover,
    Early,
    Fold,
    Knowledge,
    Late,
    Lots,
    Placement,
    Series,
    Strategy,
    each_link,
    lower_bound,
    minimum_cover,
)
from catchment.overlay.placement.offers import Grain
from catchment.stages import Active, Prepared, compile_plan, lots_of, origins_of, prepared_lots
from catchment.stages.lots import LotRows
from tests.model import strategies
from tests.overlay.overlays import overlays
from tests.stages.walking import Walk

TOPIC = "traffic"


@st.composite
def cases(draw: st.DrawFn, *, one_window: bool = False) -> tuple[Overlay, Schema, pa.Table, list[Subscription]]:
    overlay = draw(overlays(brokers_max=5))
    schema = draw(strategies.schemas())
    events = draw(strategies.event_tables({TOPIC: schema}, brokers=overlay.brokers, span=20))
    asked = draw(strategies.subscriptions({TOPIC: schema}, brokers=overlay.brokers, count_max=6))
    if one_window:
        window = draw(strategies.windows(unit_us=strategies.SECOND_US, size_max=10))
        text = f"window(ts, '{window.size_us} microseconds', '{window.shift_us} microseconds')"
        asked = [Subscription(one.name, one.at, sql=_with_window(one.sql, text)) for one in asked]
    return overlay, schema, events, asked


def _with_window(sql: str, window: str) -> str:
    if "window(" not in sql:
        return sql
    before, _, rest = sql.partition("window(")
    return before + window + rest.partition(")")[2]


class Placing:
    """The lots of a case, and what each placement makes of them."""

    def __init__(
        self, overlay: Overlay, schema: Schema, events: pa.Table, asked: Sequence[Subscription], cut: int | None = None
    ) -> None:
        self.tree, self._brokers = topic_tree(overlay), len(overlay)
        plan = compile_plan([Active(one) for one in asked], {TOPIC: schema}, overlay)
        self._topic = plan.topics[TOPIC]
        table = as_events(events, schema).combine_chunks()
        self._rows: list[LotRows] = []
        for part in [table] if cut is None else [table.slice(0, cut), table.slice(cut)]:
            for batch in part.combine_chunks().to_batches():
                found = self._topic.matcher.match_slots(batch)
                self._rows.append(lots_of(self._topic, batch, *found, origins_of(plan, batch), 1_000_000))

    def counts(self, placement: Placement) -> dict[tuple[str, str], int]:
        prepared = prepared_lots(self._topic, self._brokers, self._rows, placement.grain)
        fold = Fold(self.tree, placement, prepared.series).run(prepared.cells)
        return self._named(fold.publications.messages + fold.partials.messages)

    def prepared(self, grain: Grain) -> Prepared:
        return prepared_lots(self._topic, self._brokers, self._rows, grain)

    def carried(self, name: str) -> dict[tuple[str, str], int]:
        found = self._carried(name)
        return self._named(found.publications.messages + found.partials.messages)

    def traffic(self, name: str) -> list[dict[str, Any]]:
        """As a replay reports it."""
        found = self._carried(name)
        return traffic_table(self.tree, publications=found.publications, partials=found.partials).to_pylist()

    def _carried(self, name: str) -> Carried:
        prepared = prepared_lots(self._topic, self._brokers, self._rows, Strategy(name).grain)
        return Strategy(name, 1_000_000).carried(self.tree, prepared.series, prepared.cells)

    def adaptive(self, *, aggregates: bool) -> dict[tuple[str, str], int]:
        prepared = prepared_lots(self._topic, self._brokers, self._rows, "window")
        placement = Adaptive(Knowledge.of(self.tree, prepared.series))
        placement.aggregates[:] = aggregates
        placement.sample = lambda now_us: None  # type: ignore[method-assign]
        fold = Fold(self.tree, placement, prepared.series).run(prepared.cells)
        return self._named(fold.publications.messages + fold.partials.messages)

    def bound(self) -> dict[tuple[str, str], int]:
        prepared = prepared_lots(self._topic, self._brokers, self._rows, "window")
        found = lower_bound(self.tree, prepared.series, prepared.cells)
        return self._named(found.publications.messages + found.partials.messages)

    def each_link(self, grain: Grain, choose: Choose, *, forced_too: bool = False) -> dict[tuple[str, str], int]:
        prepared = prepared_lots(self._topic, self._brokers, self._rows, grain)
        found = each_link(self.tree, prepared.series, prepared.cells, choose, grain, forced_too=forced_too)
        return self._named(found.publications.messages + found.partials.messages)

    def _named(self, counts: np.ndarray) -> dict[tuple[str, str], int]:  # type: ignore[type-arg]
        return dict(zip(self.tree.link_names, counts.tolist(), strict=True))


@given(cases(), st.integers(0, 30))
@settings(max_examples=100, deadline=None)
def test_late_and_early_are_what_walking_counts(case: tuple, cut: int) -> None:  # type: ignore[type-arg]
    overlay, schema, events, asked = case
    walk = Walk(overlay, events, asked, TOPIC, schema)
    placing = Placing(*case, cut=cut)
    assert placing.counts(Late()) == walk.late()
    assert placing.counts(Early()) == walk.early()


@given(cases())
@settings(max_examples=100, deadline=None)
def test_the_bound_is_a_minimum_cover_on_every_link(case: tuple) -> None:  # type: ignore[type-arg]
    overlay, schema, events, asked = case
    assert Placing(*case).bound() == Walk(overlay, events, asked, TOPIC, schema).bound(by_window=True)


@given(cases(one_window=True))
@settings(max_examples=100, deadline=None)
def test_cover_is_the_optimum_of_every_link_and_never_above_others(case: tuple) -> None:  # type: ignore[type-arg]
    overlay, schema, events, asked = case
    placing = Placing(*case)
    covered = placing.counts(Cover())
    assert covered == Walk(overlay, events, asked, TOPIC, schema).bound(by_window=False)
    assert covered == placing.each_link("stride", minimum_cover)
    for other in (placing.counts(Late()), placing.counts(Early())):
        assert all(covered[link] <= other[link] for link in covered)


@given(cases())
@settings(max_examples=60, deadline=None)
def test_cover_is_never_above_late_whatever_windows_there_are(case: tuple) -> None:  # type: ignore[type-arg]
    placing = Placing(*case)
    covered, late = placing.counts(Cover()), placing.counts(Late())
    assert all(covered[link] <= late[link] for link in covered)


class Watched(Fold):
    """Notes how each publication reaches each of those who want it in a partial."""

    def __init__(self, tree: Tree, placement: Placement, series: Series) -> None:
        super().__init__(tree, placement, series)
        self.told: Counter[tuple[int, int, int, int]] = Counter()
        bits = np.unpackbits(series.brokers.astype("<u8").view(np.uint8), axis=1, bitorder="little")
        self.askers = [np.flatnonzero(row).tolist() for row in bits]

    def _put_in(self, link: int, lots: Lots, edges: np.ndarray) -> None:  # type: ignore[type-arg]
        super()._put_in(link, lots, edges)
        for edge in edges.tolist():
            self._note(lots, edge, [at for at in self.askers[lots.series[edge]] if not self._from_here[at, link]])

    def _cross(self, link: int, lots: Lots, rows: Any, edges: Any, arrived: Any) -> None:
        super()._cross(link, lots, rows, edges, arrived)
        target = self.tree.links[link][1]
        for edge in np.flatnonzero(edges).tolist():
            self._note(lots, edge, [at for at in self.askers[lots.series[edge]] if at == target])

    def _note(self, lots: Lots, edge: int, askers: list[int]) -> None:
        for at in askers:
            self.told[lots.begin_us, int(lots.lot[edge]), int(lots.series[edge]), at] += 1


@given(cases(), st.sampled_from([name for name in PLACEMENTS if name != "optimal"]))
@settings(max_examples=200, deadline=None)
def test_everyone_is_told_of_every_publication_once(case: tuple, name: str) -> None:  # type: ignore[type-arg]
    placing = Placing(*case)
    prepared = placing.prepared(Strategy(name).grain)
    watched = Watched(placing.tree, Strategy(name, 1_000_000).make(placing.tree, prepared.series), prepared.series)
    watched.run(prepared.cells)
    expected = {
        (cell.begin_us, int(lot), int(series), at)
        for cell in prepared.cells
        for lot, series in zip(cell.lot, cell.series, strict=True)
        for at in watched.askers[series]
        if at != cell.origin[lot]
    }
    assert watched.told == Counter(expected)


@given(cases(), st.sampled_from(["late", "early", "adaptive", "selective", "coordinated"]))
@settings(max_examples=60, deadline=None)
def test_no_placement_by_window_is_below_the_bound_on_any_link(case: tuple, name: str) -> None:  # type: ignore[type-arg]
    placing = Placing(*case)
    carried, bound = placing.carried(name), placing.bound()
    assert all(carried[link] >= bound[link] for link in bound)


def _renumbered(series: Series, places: np.ndarray) -> Series:  # type: ignore[type-arg]
    order = np.argsort(places)
    columns = (series.brokers, series.windows, series.partial_bytes, series.collects)
    shares = series.shares and replace(series.shares, series=places[series.shares.series])
    return Series(*(column[order] for column in columns), shares)


@given(cases(), st.sampled_from(["adaptive", "selective", "coordinated", "cover"]), st.data())
@settings(max_examples=60, deadline=None)
def test_a_fold_goes_on_where_another_left_off(case: tuple, name: str, data: st.DataObject) -> None:  # type: ignore[type-arg]
    placing = Placing(*case)
    prepared = placing.prepared(Strategy(name).grain)
    cut = data.draw(st.integers(0, len(prepared.cells)))

    def fold() -> Fold:
        return Fold(placing.tree, Strategy(name, 1_000_000).make(placing.tree, prepared.series), prepared.series)

    before = fold()
    for cell in prepared.cells[:cut]:
        before.feed(cell)
    saved = msgspec.msgpack.decode(msgspec.msgpack.encode(before.saved()))
    # Who goes on may have other numbers for the same series.
    places = np.array(data.draw(st.permutations(range(len(prepared.series)))), np.int64)
    series = _renumbered(prepared.series, places)
    after = Fold(placing.tree, Strategy(name, 1_000_000).make(placing.tree, series), series)
    after.restore(saved, places.tolist())
    after.run([replace(cell, series=places[cell.series]) for cell in prepared.cells[cut:]])
    whole = fold().run(prepared.cells)
    for kind in ("publications", "partials"):
        parts = getattr(before, kind).messages + getattr(after, kind).messages
        assert parts.tolist() == getattr(whole, kind).messages.tolist()


@given(cases(), st.booleans())
@settings(max_examples=60, deadline=None)
def test_adaptive_brokers_that_never_change_their_mode_are_early_or_late(case: tuple, aggregates: bool) -> None:  # type: ignore[type-arg]
    placing = Placing(*case)
    assert placing.adaptive(aggregates=aggregates) == placing.counts(Early() if aggregates else Late())


def test_adaptive_changes_over_when_publications_become_many() -> None:
    overlay = Overlay.from_links([("b1", "b2")])
    schema = Schema.of({"n": "int"})
    few, many = [0, 1_000_000], [4_000_000 + 20_000 * n for n in range(90)]
    times = [*few, *many, 6_000_000, 6_200_000, 6_400_000]
    events = pa.table(
        {
            "event_id": range(len(times)),
            "topic": [TOPIC] * len(times),
            "broker": ["b1"] * len(times),
            "ts": pa.array(times, pa.timestamp("us", "UTC")),
            "n": [1] * len(times),
        }
    )
    asked = [
        Subscription(f"s{n}", "b2", sql=f"SELECT sum(n) FROM {TOPIC} WHERE n > -{n} GROUP BY window(ts, '2 seconds')")
        for n in range(3)
    ]
    placing = Placing(overlay, schema, events, asked)
    prepared = prepared_lots(placing._topic, 2, placing._rows, "window")
    placement = Adaptive(Knowledge.of(placing.tree, prepared.series))
    fold = Fold(placing.tree, placement, prepared.series).run(prepared.cells)
    # Two seconds with many, seen as they end: what comes after is aggregated, three publications in three partials.
    assert fold.publications.messages.sum() == len(few) + len(many)
    assert fold.partials.messages.sum() == 3
    assert placement.transitions == 1
    assert placing.counts(Late())["b1", "b2"] == pytest.approx(95)


def _every_second(rate: int, seconds: int) -> pa.Table:
    times = [at * 1_000_000 // rate for at in range(rate * seconds)]
    return pa.table(
        {
            "event_id": pa.array(range(len(times))),
            "topic": [TOPIC] * len(times),
            "broker": ["b1"] * len(times),
            "ts": pa.array(times, pa.timestamp("us", "UTC")),
            "n": pa.array(range(len(times)), pa.int64()),
        }
    )


@pytest.mark.parametrize("name", ["adaptive", "selective", "coordinated"])
@pytest.mark.parametrize(("operator", "at_most"), [("avg(n)", 150), ("median(n)", 800)])
def test_a_partial_that_collects_values_costs_as_many_messages(name: str, operator: str, at_most: int) -> None:
    """Twenty publications a second in ten windows each: partials of an average are few, those of a median are not."""
    overlay = Overlay.from_links([("b1", "b2")])
    sql = f"SELECT {operator} FROM {TOPIC} GROUP BY window(ts, '20 seconds', '2 seconds')"
    placing = Placing(overlay, Schema.of({"n": "int"}), _every_second(20, 40), [Subscription("s", "b2", sql=sql)])
    assert placing.carried("late")["b1", "b2"] == 800
    assert placing.carried(name)["b1", "b2"] <= at_most


@pytest.mark.parametrize("name", ["adaptive", "selective", "coordinated"])
def test_what_a_message_costs_changes_the_choice(name: str) -> None:
    """A publication a second in windows of two: fewer messages as partials, but more bytes, and more work to merge."""
    overlay, schema = Overlay.from_links([("b1", "b2")]), Schema.of({"n": "int"})
    sql = f"SELECT avg(n), min(n), max(n), stddev_samp(n) FROM {TOPIC} GROUP BY window(ts, '2 seconds')"
    placing = Placing(overlay, schema, _every_second(1, 40), [Subscription("s", "b2", sql=sql)])
    prepared = placing.prepared("window")

    def partials(cost: Cost) -> int:
        carried = Strategy(name, 2_000_000, cost).carried(placing.tree, prepared.series, prepared.cells)
        return int(carried.partials.messages.sum())

    assert partials(Cost()) > 10
    assert partials(Cost(message=0, byte=1)) == 0
    assert partials(Cost(merge=5)) == 0
    assert partials(Cost(match=5, merge=5)) > 10


@pytest.mark.parametrize("value", [-1, math.nan, math.inf, "1", None, True])
def test_a_cost_that_nothing_can_be_weighed_by_is_refused(value: Any) -> None:
    with pytest.raises(ConfigurationError, match=rf"^cost.byte is {value!r}; accepted is a number from 0 on$"):
        Cost(byte=value)
