"""Which filters match which events.

`Matcher` is the package's public class: made by the data plane from a snapshot's filters, asked once per batch, changed
when subscriptions come and go. It is sent to Spark's executors as it is built.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from numba import typeof

from catchment.matching.columns import Plan, columns_of, columns_of_event
from catchment.matching.encoding import Check, Space
from catchment.matching.few import match_few
from catchment.matching.grouping import RowsBySlot, count_by_slot, gather, rows_by_slot
from catchment.matching.index import Index
from catchment.matching.kernel import Scratch, look
from catchment.matching.layout import COLUMN_FIELDS, FINE, MEMO_FULL, NOT_A_FLOAT, NOT_FINITE, TOO_LARGE
from catchment.matching.memory import Array
from catchment.matching.owners import Registry
from catchment.matching.pairs import Owners, count, emit
from catchment.matching.reading import read
from catchment.matching.workspace import BITS_MAX, Workspace
from catchment.model.errors import EventError, FilterError
from catchment.model.filter import Filter
from catchment.model.schema import Schema

__all__ = ["Matcher"]

STRETCH_ROWS = 8192
"""Events matched together: enough to use what is in the cache many times over, few enough to stay there."""
FEW_ROWS = 1024
"""Events matched by one compiled call, as far as that does not take too much memory: more pay for several calls."""
SMALL_ENTRIES = 1024
"""Until so many entries are there the cells are drawn anew now and then; what so many show is typical of the rest."""

_PROBLEMS = {
    NOT_FINITE: "is no finite number; accepted are finite numbers",
    TOO_LARGE: "does not fit; accepted are integers of 64 bits, and times that fit as microseconds",
    NOT_A_FLOAT: "is an integer that no double equals; accepted are doubles",
}


class Matcher:
    """Filters by id, over events of one schema.

    `match` does not change the matcher as far as anyone can see, but `add` and `remove` do: callers that share one
    between threads must keep these apart.
    """

    _version: tuple[int, ...] | None
    _views: tuple[Any, ...] | None
    """What `match_few` reads of the index; None if the filters have changed."""
    _few_rows: int
    """How many events `match_few` takes; set with the views."""
    _call_few: Callable[..., int] | None

    def __init__(self, filters: Mapping[Any, Filter], schema: Schema | pa.Schema | Mapping[str, object]) -> None:
        self.schema = Schema.of(schema)
        self._own({identifier: condition.within(self.schema) for identifier, condition in filters.items()})

    @classmethod
    def of_typed(cls, filters: Mapping[Any, Filter], schema: Schema) -> Matcher:
        """A matcher for filters that are within the schema already."""
        matcher = cls.__new__(cls)
        matcher.schema = schema
        matcher._own(filters)
        return matcher

    def _own(self, filters: Mapping[Any, Filter]) -> None:
        space = Space(self.schema)
        owned = [
            (identifier, [space.checks(c) for c in condition.disjuncts]) for identifier, condition in filters.items()
        ]
        self._build(space, owned)

    def _build(self, space: Space, owned: list[tuple[Any, list[tuple[Check, ...]]]]) -> None:
        space.vocabulary.settle()
        self._space = space
        self._registry = Registry()
        self._plans: list[Plan] = []
        self._workspace: Workspace | None = None
        self._changed()
        numbers: dict[tuple[Check, ...], int] = {}
        for _, conjunctions in owned:
            for checks in conjunctions:
                numbers.setdefault(checks, len(numbers))
        self.index = Index(space, list(numbers))
        order = self.index.order.tolist()
        for identifier, conjunctions in owned:
            self._registry.enter(identifier, sorted({order[numbers[checks]] for checks in conjunctions}))
        self._drawn_for = self.index.entry_count
        self._entries = _by_hash(self.index)

    def __len__(self) -> int:
        return len(self._registry.slots)

    def __contains__(self, identifier: object) -> bool:
        return identifier in self._registry.slots

    def __iter__(self) -> Iterator[Any]:
        return iter(self._registry.slots)

    def id_of(self, slot: int) -> Any:
        return self._registry.ids[slot]

    def ids_of(self, slots: Array) -> list[Any]:
        found: list[Any] = self._registry.ids[slots].tolist()
        return found

    def slot_of(self, identifier: Hashable) -> int:
        try:
            return self._registry.slots[identifier]
        except KeyError:
            raise FilterError(f"no filter has the id {identifier!r}") from None

    def owners(self) -> Owners:
        """Which slots own which entries of the index, for kernels."""
        return self._registry.view()

    @property
    def size_bytes(self) -> int:
        """Memory of the index, as far as it grows with the filters."""
        arrays = [*self.index.fail, *self.index.doubt, *self.index.top]
        for part in (self.index, self.index.store, self._space.vocabulary, self._space.pieces, self._registry):
            arrays += [value for value in vars(part).values() if isinstance(value, np.ndarray)]
        return sum(array.nbytes for array in arrays)

    # -- matching -------------------------------------------------------------------------------------------------

    def match(self, events: pa.Table | pa.RecordBatch) -> tuple[Array, Array]:
        """Indices of events and ids of filters, aligned: each pair once, in the order of events."""
        rows, slots = self.match_slots(events)
        return rows, self._registry.ids[slots]

    def match_slots(self, events: pa.Table | pa.RecordBatch) -> tuple[Array, Array]:
        """As `match`, with slots instead of ids; both arrays are int32."""
        if isinstance(events, pa.RecordBatch):
            return self._match_batch(events)
        if events.num_columns and events.column(0).num_chunks > 1 + events.num_rows // 1024:
            events = events.combine_chunks()
        found, first = [], 0
        for batch in events.to_batches():
            rows, slots = self._match_batch(batch)
            found.append((rows + np.int32(first) if first else rows, slots))
            first += batch.num_rows
        if not found and events.num_rows:
            # Rows without any column come in no batch; every attribute of them is null.
            return self._match_columns(np.zeros((max(len(self.schema), 1), COLUMN_FIELDS), np.int64), events.num_rows)
        return joined(found)

    def rows_by_slot(self, batch: pa.RecordBatch) -> RowsBySlot:
        """As `match_slots`, by slot and not by event: for those who go on with one filter after the other."""
        columns, alive = columns_of(batch, self.schema, self._plans)
        owners, slots = self.owners(), len(self._registry.entries)
        begins, ends, out, found = [], [], np.empty(0, np.int32), 0
        for first, stretch, scratch, hits in self._looked_up(columns, batch.num_rows):
            begin, end = np.empty(slots, np.int64), np.empty(slots, np.int64)
            total = count_by_slot(owners, scratch, hits, found, begin, end)
            if total > len(out):
                out = _longer(out, found, _room(total, first + stretch, batch.num_rows))
            gather(owners, scratch, hits, first, begin, end, out)
            begins.append(begin)
            ends.append(end)
            found = total
        del alive
        shape = (len(begins), slots)
        return RowsBySlot(np.array(begins, np.int64).reshape(shape), np.array(ends, np.int64).reshape(shape), out)

    def by_slot(self, rows: Array, slots: Array) -> RowsBySlot:
        """Pairs that `match_slots` found, as `rows_by_slot` would have."""
        return rows_by_slot(rows, slots, len(self._registry.entries))

    def match_one(self, event: Mapping[str, object]) -> list[Any]:
        """The ids of the filters that match one event, given as attribute to value."""
        columns, alive = columns_of_event(event, self.schema)
        _, slots = self._match_columns(columns, 1)
        del alive
        return [self._registry.ids[slot] for slot in slots.tolist()]

    def _match_batch(self, batch: pa.RecordBatch) -> tuple[Array, Array]:
        columns, alive = columns_of(batch, self.schema, self._plans)
        found = self._match_columns(columns, batch.num_rows)
        del alive
        return found

    def _match_columns(self, columns: Array, rows: int) -> tuple[Array, Array]:
        if self._views is None:
            space, index = self._space, self.index
            texts, pieces = space.vocabulary.view(), space.pieces.view()
            self._views = (index.lanes(), texts, pieces, index.tiles(), index.checks(), self.owners())
            self._few_rows = min(FEW_ROWS, self._stretch_rows())
        found = self._match_few(columns, rows, self._views) if rows <= self._few_rows else None
        return found if found is not None else self._match_many(columns, rows)

    def _match_few(self, columns: Array, rows: int, views: tuple[Any, ...]) -> tuple[Array, Array] | None:
        """The pairs, unless there is no room for all hits yet, or something to complain about."""
        workspace = self._take_workspace()
        lanes, texts, pieces, tiles, checks, owners = views
        codes, cells = workspace.codes_and_cells(rows, len(self._space.lanes))
        out_row, out_slot = workspace.few
        arguments = (
            columns, lanes, texts, pieces, workspace.memo, codes, cells, tiles, checks, owners,
            workspace.scratch(rows, len(tiles.fail)), out_row, out_slot,
        )  # fmt: skip
        if self._call_few is None:
            # To look at the types of so many arrays again takes longer than to match one event.
            dispatcher: Any = match_few
            self._call_few = dispatcher.compile(tuple(map(typeof, arguments)))
        pairs = self._call_few(*arguments)
        if pairs > len(out_row):
            out_row, out_slot = workspace.make_room_for_pairs(pairs)
            pairs = self._call_few(*arguments[:-2], out_row, out_slot)
        self._workspace = workspace
        return (out_row[:pairs].copy(), out_slot[:pairs].copy()) if pairs >= 0 else None

    def _match_many(self, columns: Array, rows: int) -> tuple[Array, Array]:
        owners, tile_count = self.owners(), len(self.index.tiles().fail)
        out_row = out_slot = np.empty(0, np.int32)
        found = 0
        for first, stretch, scratch, hits in self._looked_up(columns, rows):
            pairs = count(owners, scratch, stretch, hits)
            if found + pairs > len(out_row):
                room = _room(found + pairs, first + stretch, rows)
                out_row, out_slot = _longer(out_row, found, room), _longer(out_slot, found, room)
            found += emit(owners, scratch, tile_count, stretch, first, out_row[found:], out_slot[found:])
        return out_row[:found], out_slot[:found]

    def _looked_up(self, columns: Array, rows: int) -> Iterator[tuple[int, int, Scratch, int]]:
        """First row, number of rows, hits and how many of one stretch of events after the other."""
        tiles, checks = self.index.tiles(), self.index.checks()
        for first, codes, cells, workspace in self.encoded(columns, rows):
            scratch = workspace.scratch(len(codes), len(tiles.fail))
            hits = look(tiles, checks, codes, cells, workspace.memo.bits, scratch)
            while hits < 0:
                scratch = workspace.make_room_for_hits()
                hits = look(tiles, checks, codes, cells, workspace.memo.bits, scratch)
            yield first, len(codes), scratch, hits

    def encoded(self, columns: Array, rows: int) -> Iterator[tuple[int, Array, Array, Workspace]]:
        """First row, codes and cells of one stretch of events after the other; each is overwritten by the next."""
        workspace = self._take_workspace()
        stretch = self._stretch_rows()
        for first in range(0, rows, stretch):
            codes, cells = workspace.codes_and_cells(min(stretch, rows - first), len(self._space.lanes))
            self._read(columns, first, workspace, codes, cells)
            yield first, codes, cells, workspace
        self._workspace = workspace

    def _take_workspace(self) -> Workspace:
        # Taken away while in use, so that two threads never share one.
        workspace, self._workspace = self._workspace, None
        if self._version is None:
            self._version = self.index.version
        if workspace is None or workspace.version != self._version:
            workspace = Workspace(self._version)
        return workspace

    def _read(self, columns: Array, first: int, workspace: Workspace, codes: Array, cells: Array) -> None:
        lanes, texts, pieces = self.index.lanes(), self._space.vocabulary.view(), self._space.pieces.view()
        while True:
            was_empty = workspace.memo.counts[0] == 0
            problem, attribute, row = read(columns, first, lanes, texts, pieces, workspace.memo, codes, cells)
            if problem == FINE:
                return
            if problem != MEMO_FULL:
                name = self._space.attributes[attribute]
                raise EventError(f"attribute {name!r} of event {first + row} {_PROBLEMS[problem]}")
            workspace.make_room(was_empty)

    def _stretch_rows(self) -> int:
        """Fewer rows where each needs much memory."""
        width = int(((self._space.pieces.count + 63) >> 6).sum())
        return max(64, min(STRETCH_ROWS, 2**22 // (10 * len(self._space.lanes) + 1), BITS_MAX // (width + 1)))

    # -- changing -------------------------------------------------------------------------------------------------

    def add(self, identifier: Hashable, condition: Filter) -> None:
        """Match another filter from now on."""
        if identifier in self._registry.slots:
            raise FilterError(f"there is already a filter with the id {identifier!r}; remove it first")
        self._changed()
        conjunctions = {self._space.checks(c): None for c in condition.within(self.schema).disjuncts}
        if self._space.vocabulary.settle():
            self.index.resolve()
        self._registry.enter(identifier, [self._entry(checks) for checks in conjunctions])
        if 64 <= self.index.entry_count <= SMALL_ENTRIES and self.index.entry_count >= 4 * self._drawn_for:
            self._redraw()

    def remove(self, identifier: Hashable) -> None:
        """Match a filter no longer."""
        self.slot_of(identifier)
        self._changed()
        for entry in self._registry.leave(identifier):
            key = int(self.index.store.hash[entry])
            self._entries[key].remove(entry)
            if not self._entries[key]:
                del self._entries[key]
            self.index.remove(entry)

    def _changed(self) -> None:
        """Forget what was read of the filters for the next match."""
        self._version, self._views, self._call_few = None, None, None

    def _entry(self, checks: tuple[Check, ...]) -> int:
        """The entry of these checks, shared if there is one already."""
        for entry in self._entries.get(hash(checks), ()):
            if self.index.store.of_entry(entry) == checks:
                return entry
        entry = self.index.add(checks)
        self._entries.setdefault(hash(checks), []).append(entry)
        return entry

    def _redraw(self) -> None:
        """Draw the cells again where the filters now are."""
        old = self.index
        living = old.living()
        self.index = Index(self._space, [old.store.of_entry(entry) for entry in living])
        order = np.full(old.entry_count, -1, np.int64)
        order[living] = self.index.order
        self._registry.move(order)
        self._workspace = None
        self._drawn_for = self.index.entry_count
        self._entries = _by_hash(self.index)

    def rebuilt(self) -> Matcher:
        """A matcher of the same filters, built anew: as fast as one that never changed, and without texts that no
        filter mentions any more. Slots are given anew.

        For callers that have added or removed a good part of all filters; takes about as long as building.
        """
        space, registry, store = Space(self.schema), self._registry, self.index.store
        owned = [
            (
                identifier,
                [
                    tuple(sorted(space.translated(check, self._space) for check in store.of_entry(entry)))
                    for entry in registry.entries[slot]
                ],
            )
            for identifier, slot in registry.slots.items()
        ]
        made = Matcher.__new__(Matcher)
        made.schema = self.schema
        made._build(space, owned)
        return made

    def __getstate__(self) -> dict[str, Any]:
        # Plans and workspace belong to the process; the hash table is quickly made again.
        own: dict[str, Any] = {"_plans": [], "_workspace": None, "_views": None, "_call_few": None, "_entries": None}
        return {**self.__dict__, **own}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._entries = _by_hash(self.index)


def _room(found: int, done: int, rows: int) -> int:
    """Room for the rest too, if it goes on like this. What stays unused is never written to."""
    return found + (rows - done) * found // done * 9 // 8


def _longer(array: Array, used: int, room: int) -> Array:
    longer = np.empty(room, array.dtype)
    longer[:used] = array[:used]
    return longer


def joined(found: list[tuple[Array, Array]]) -> tuple[Array, Array]:
    """Pairs of arrays end to end."""
    if len(found) == 1:
        return found[0]
    if not found:
        return np.zeros(0, np.int32), np.zeros(0, np.int32)
    return np.concatenate([rows for rows, _ in found]), np.concatenate([slots for _, slots in found])


def _by_hash(index: Index) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for entry in index.living():
        found.setdefault(int(index.store.hash[entry]), []).append(entry)
    return found
